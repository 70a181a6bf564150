//! `leasehold guard`: the record of one key, for those who must know what happened to it, or know better.
//!
//! Owns which record is meant, the question before a change, and what an end is worth. What a change makes of a record is
//! the library's; it is written only if the record still is the one that was shown.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Context;
use leasehold::{
    clock::Millis,
    config::{DurationText, LONGEST_RETENTION, QueueConfig},
    guard::{Amend, FinishedSteps, NotBefore, Record, Status, StepWord},
    ops::{Ops, OpsError, StepNames},
};

use crate::{help, pause::speaker, usage, words::json};
use change::{carry_out, refused};
use find::{Meant, either, find};
use show::View;

mod change;
mod find;
mod show;

/// Either way to name a record; clap would show all of both as optional.
macro_rules! usage_of {
    ($verb:literal) => {
        concat!(
            "leasehold guard ",
            $verb,
            " [OPTIONS] <QUEUE> <KEY>...\n       leasehold guard ",
            $verb,
            " [OPTIONS] --pk <PK> [QUEUE]"
        )
    };
}

/// Look at the record of a key, reset it, or say that it is done
///
/// A record is what the workers know of one piece of work: whether it is running, done or dead, how often it failed, and
/// which of its steps are finished. These commands show it, and change it by somebody's word where no worker would.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    #[command(after_long_help = help::guard_get(), override_usage = usage_of!("get"))]
    Get(GetArgs),
    #[command(after_long_help = help::guard_reset(), override_usage = usage_of!("reset"))]
    Reset(ResetArgs),
    #[command(after_long_help = help::guard_done(), override_usage = usage_of!("done"))]
    Done(DoneArgs),
}

/// Show what is known of a key's work
#[derive(Debug, clap::Args)]
struct GetArgs {
    #[command(flatten)]
    meant: Meant,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Let work run again that is done, dead or stuck, or say how one of its steps ended
///
/// The next message of the key runs the work as if nothing had been tried, and whatever its payload; finished steps are not
/// repeated. Work that waits, because it failed or may still run, goes on waiting unless --now is said. No message is made by this: send one, or redrive the copy. With --step it says only how that step ended. What
/// is there and what will change is shown first. While a worker runs the work, nothing is written.
#[derive(Debug, clap::Args)]
struct ResetArgs {
    #[command(flatten)]
    meant: Meant,

    /// Repeat finished steps too, each under a new downstream key; what is not undone to the end is reset only so
    #[arg(long, conflicts_with = "step")]
    steps_again: bool,

    /// Do not wait where the record says to: beware, what was begun may still run until then, and the next run is beside it
    #[arg(long, conflicts_with = "step")]
    now: bool,

    /// Only say how this step ended: with --done or --again
    #[arg(long, value_name = "NAME", requires = "ended")]
    step: Option<String>,

    /// The step took effect: it is not run
    #[arg(long, group = "ended", requires = "step")]
    done: bool,

    /// What the step returned, as JSON [default: null]; in place of another result that is recorded
    #[arg(long, value_name = "JSON", requires = "done")]
    result: Option<String>,

    /// The record does not know this step yet, and the name is not misspelt
    #[arg(long, requires = "done")]
    new: bool,

    /// The step is run again: under the same downstream key if it was in doubt, under a new one if it was done
    #[arg(long, group = "ended", requires = "step")]
    again: bool,

    #[command(flatten)]
    change: Change,
}

/// Say that work is done, by hand: its messages are deleted without a run
///
/// Also where there is no record yet. What is there and what will change is shown first. While a worker runs the work,
/// nothing is written.
#[derive(Debug, clap::Args)]
struct DoneArgs {
    #[command(flatten)]
    meant: Meant,

    /// For how long it is remembered [default: DONE_TTL of the queue]
    #[arg(long, value_name = "DURATION")]
    ttl: Option<DurationText>,

    #[command(flatten)]
    change: Change,
}

#[derive(Debug, clap::Args)]
struct Change {
    /// Do it without a question
    #[arg(short, long)]
    yes: bool,

    /// Show what would change, and write nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,

    /// Print one JSON object; with --yes or --dry-run
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let change = match &args.verb {
        Verb::Get(_) => None,
        Verb::Reset(args) => Some(&args.change),
        Verb::Done(args) => Some(&args.change),
    };
    if change.is_some_and(|change| change.json && !change.yes && !change.dry_run) {
        return Err(usage("--json asks nothing: say --yes, or --dry-run"));
    }
    let (ops, warnings) = Ops::from_env().await.map_err(refused)?;
    for warning in warnings {
        let _ = writeln!(io::stderr(), "leasehold: {warning}");
    }
    match args.verb {
        Verb::Get(args) => get(&ops, &args).await,
        Verb::Reset(args) => reset(&ops, &args).await,
        Verb::Done(args) => done(&ops, &args).await,
    }
}

async fn get(ops: &Ops, args: &GetArgs) -> anyhow::Result<ExitCode> {
    let found = find(ops, &args.meant).await?;
    if args.json {
        print(&json(&show::as_json(&found.pks[0], found.record.as_ref()).to_string()))?;
        return Ok(if found.record.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let record = found.record.as_ref().ok_or_else(|| found.none(ops, &args.meant))?;
    print(show::page(record, view(ops)).trim_end())?;
    Ok(ExitCode::SUCCESS)
}

async fn reset(ops: &Ops, args: &ResetArgs) -> anyhow::Result<ExitCode> {
    let found = find(ops, &args.meant).await?;
    let record = found.record.as_ref().ok_or_else(|| found.none(ops, &args.meant))?;
    let by = speaker();
    let (plan, means) = match &args.step {
        Some(name) => of_step(ops, record, name, args, &by),
        None => of_work(ops, record, args, &by),
    };
    carry_out(ops, &found, plan, &means, &args.change).await
}

fn of_step(ops: &Ops, record: &Record, name: &str, args: &ResetArgs, by: &str) -> (Result<Amend, OpsError>, String) {
    let mut means = "The work itself is left as it is: reset it too, if it is to run.".to_owned();
    if args.done && args.result.is_none() {
        means
            .insert_str(0, "The result is recorded as null, for no --result is said: a run that reads it gets null.\n");
    }
    let result = args.result.clone().unwrap_or_else(|| "null".to_owned());
    let word = if args.done { StepWord::Done(result) } else { StepWord::Again };
    let names = if args.new { StepNames::Any } else { StepNames::Recorded };
    (ops.step(record, name, names, &word, by), means)
}

fn of_work(ops: &Ops, record: &Record, args: &ResetArgs, by: &str) -> (Result<Amend, OpsError>, String) {
    let steps = if args.steps_again { FinishedSteps::Repeat } else { FinishedSteps::Keep };
    let not_before = if args.now { NotBefore::Clear } else { NotBefore::Keep };
    let mut means = Vec::new();
    if record.status == Status::Failed {
        means.push("Its undo is not finished, and is given up: what it has not undone stays done.".to_owned());
    }
    match record.waits_until(ops.clock().wall()) {
        Some(at) if args.now => means.push(format!(
            "What was begun may still run, until {}: the next message runs it BESIDE that, and it may take effect twice.",
            at.utc()
        )),
        Some(at) => means.push(format!(
            "It may not run before {}, for what was begun may still run until then; --now does not wait.",
            at.utc()
        )),
        None => {}
    }
    means.push("The next message of the key runs it. This makes none: send one, or redrive the copy.".to_owned());
    (ops.reset(record, steps, not_before, by), means.join("\n"))
}

async fn done(ops: &Ops, args: &DoneArgs) -> anyhow::Result<ExitCode> {
    let found = find(ops, &args.meant).await?;
    let [pk] = found.pks.as_slice() else {
        let told = "there is no record yet, and the key can be a text or a number: say";
        return Err(usage(&format!("{told} {}", either(&found.pks))));
    };
    let queue = found.queue.as_deref().or(found.record.as_ref().map(|record| record.source.queue.as_str()));
    let Some(queue) = queue else {
        return Err(usage("there is no record yet, and LEASEHOLD_QUEUES names no queue with such primary keys"));
    };
    let ttl = args.ttl.map(|DurationText(ttl)| ttl);
    // A queue that is not configured here has the default of all.
    let ttl = ttl.or_else(|| ops.queue(queue).is_err().then(|| QueueConfig::new(queue).done_ttl));
    let plan = ops.done(queue, pk, found.record.as_ref(), ttl, &speaker());
    let means = what_done_means(ops, queue, plan.as_ref().ok());
    carry_out(ops, &found, plan, &means, &args.change).await
}

/// A message can be delivered, or put back, for as long as SQS keeps it: one that comes after "done" is forgotten runs.
fn what_done_means(ops: &Ops, queue: &str, plan: Option<&Amend>) -> String {
    let means = "Messages of the key are deleted without a run.";
    let (enough, whose) = match ops.queue(queue) {
        Ok(queue) => (queue.done_ttl, "its DONE_TTL"),
        Err(_) => (LONGEST_RETENTION, "a queue can keep messages, and this one is not configured here"),
    };
    let Some(Amend { record, .. }) = plan else { return means.to_owned() };
    let end = Millis(record.expires_at.0.saturating_mul(1000));
    // Seconds are rounded up, and so never short of what they stand for.
    if end >= record.updated_at + enough {
        return means.to_owned();
    }
    format!(
        "{means}\nThat is forgotten {}, sooner than {} ({whose}): a message that comes later RUNS the work.",
        end.utc(),
        DurationText(enough)
    )
}

fn view(ops: &Ops) -> View {
    View { now: ops.clock().wall(), skew: ops.config().clock_skew }
}

fn print(text: &str) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{text}").context("standard output")
}
