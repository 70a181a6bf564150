//! `dlq redrive` and `dlq purge`: putting back, or deleting, with progress and an honest end.
//!
//! Owns the questions before, and which way all go back: SQS moves them, unless that would not be right.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use indicatif::{ProgressBar, ProgressStyle};
use leasehold::{
    config::Rate,
    ops::dead_letters::{DeadLetters, Moving, Put, Redrive, Redriven},
    queue::{MoveStatus, MoveTask},
};
use tokio_util::sync::CancellationToken;

use super::{PurgeArgs, RedriveArgs, explained, opened, print, show, tools, until_told, usage};
use crate::{pause::speaker, words::confirm};

pub(super) async fn redrive(args: &RedriveArgs) -> anyhow::Result<ExitCode> {
    let change = &args.change;
    if args.force_rerun && change.json && !change.yes && !change.dry_run {
        return Err(usage("--json asks nothing: say --yes, or --dry-run"));
    }
    let ops = tools(std::slice::from_ref(&args.queue)).await?;
    let choice = args.which.choice(&ops, &args.queue, args.limit)?;
    let letters = opened(&ops, &args.queue).await?;
    let is_all = choice.is_all() && !args.one_by_one && !args.force_rerun;
    let why_not = letters.why_one_by_one();
    let ask =
        Redrive { choice, rate: args.rate, force_rerun_by: args.force_rerun.then(speaker), dry_run: change.dry_run };
    if args.force_rerun && !change.yes && !change.dry_run {
        let dead = show::dead(&letters);
        if !confirm(&format!("Work of {dead} that is done is to take effect a second time. Do it?"))? {
            print("Nothing is put back.\n")?;
            return Ok(ExitCode::FAILURE);
        }
    }
    let screen = Screen::new(change.json, letters.depth().await.map_or(0, |depth| depth.visible));
    if is_all && change.dry_run && why_not.is_none() {
        screen.say("SQS itself would move all of them (StartMessageMoveTask), those too that were done or are copies:");
    } else if is_all && !change.dry_run {
        match &why_not {
            Some(why) => screen.say(&format!("One by one: {why}.")),
            None => {
                if let Some(code) = all_at_once(&letters, args.rate, &screen).await? {
                    return Ok(code);
                }
            }
        }
    }
    let tell = |put: &Put<'_>| screen.put(put);
    let work = async |stop: &CancellationToken| letters.redrive(&ask, stop, tell).await;
    let redriven = until_told(work, |told| screen.say(told)).await?;
    let redriven = redriven.map_err(|error| explained(&args.queue, error))?;
    ended(&letters, &redriven, if change.dry_run { "would be put back" } else { "put back" }, change.json, &screen)
}

pub(super) async fn purge(args: &PurgeArgs) -> anyhow::Result<ExitCode> {
    let change = &args.change;
    if change.json && !change.yes && !change.dry_run {
        return Err(usage("--json asks nothing: say --yes, or --dry-run"));
    }
    let ops = tools(std::slice::from_ref(&args.queue)).await?;
    let choice = args.which.choice(&ops, &args.queue, args.limit)?;
    let letters = opened(&ops, &args.queue).await?;
    let depth = letters.depth().await.map_err(|error| explained(&args.queue, error))?;
    if !change.yes && !change.dry_run {
        let (dead, total) = (show::dead(&letters), depth.total());
        let which = if choice.is_all() { "all of the" } else { "those that are meant of the" };
        if !confirm(&format!("Delete {which} {total} messages of {dead} for good?"))? {
            print("Nothing is deleted.\n")?;
            return Ok(ExitCode::FAILURE);
        }
    }
    let screen = Screen::new(change.json, depth.visible);
    let ask = Redrive { choice, dry_run: change.dry_run, ..Redrive::default() };
    let tell = |put: &Put<'_>| screen.put(put);
    let work = async |stop: &CancellationToken| letters.purge(&ask, stop, tell).await;
    let redriven = until_told(work, |told| screen.say(told)).await?;
    let redriven = redriven.map_err(|error| explained(&args.queue, error))?;
    ended(&letters, &redriven, if change.dry_run { "would be deleted" } else { "deleted" }, change.json, &screen)
}

/// `None` where SQS cannot do it.
async fn all_at_once(letters: &DeadLetters, rate: Option<Rate>, screen: &Screen) -> anyhow::Result<Option<ExitCode>> {
    // SQS knows whole numbers, from 1 to 500.
    let per_second = match rate.map(|rate| 1.0 / rate.interval().as_secs_f64()) {
        Some(rate) if rate < 1.0 => {
            screen.say("One by one: SQS moves one in a second at the least.");
            return Ok(None);
        }
        rate => rate.map(|rate| rate.min(500.0) as u32),
    };
    let tell = |task: &MoveTask| screen.moved(task);
    let work = async |stop: &CancellationToken| letters.redrive_all(per_second, stop, tell).await;
    let moving = until_told(work, |told| screen.say(told)).await?;
    let task = match moving.map_err(|error| explained(letters.queue(), error))? {
        Moving::Task(task) => task,
        Moving::OneByOne(why) => {
            screen.say(&format!("One by one: {why}."));
            return Ok(None);
        }
        _ => return Ok(None),
    };
    screen.clear();
    print(&show::moved(letters, &task, screen.json)?)?;
    let is_whole = task.status == MoveStatus::Completed;
    Ok(Some(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

fn ended(
    letters: &DeadLetters,
    redriven: &Redriven,
    what: &str,
    json: bool,
    screen: &Screen,
) -> anyhow::Result<ExitCode> {
    screen.clear();
    print(&show::ended(letters, redriven, what, json)?)?;
    Ok(if redriven.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is seen meanwhile: a bar on a terminal, and a line for what goes wrong; with `--json` a line for each message.
struct Screen {
    json: bool,
    bar: ProgressBar,
}

impl Screen {
    fn new(json: bool, messages: u64) -> Self {
        let is_shown = !json && io::stderr().is_terminal() && messages > 0;
        let bar = if is_shown { ProgressBar::new(messages) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{elapsed:>6}  {bar:24.green/dim} {pos}/{len} · {msg}") {
            bar.set_style(style.progress_chars("━━─"));
        }
        Self { json, bar }
    }

    fn say(&self, what: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr(), "{what}");
        });
    }

    fn put(&self, put: &Put<'_>) {
        self.bar.inc(1);
        if self.json {
            // Standard output that is closed leaves nobody to tell; what is under way goes on to its end.
            let _ = print(&show::put_json(put));
        } else if let Some(line) = show::trouble(put) {
            self.say(&line);
        }
    }

    fn moved(&self, task: &MoveTask) {
        if let Some(of) = task.of {
            self.bar.set_length(of);
        }
        self.bar.set_position(task.moved);
        if task.status == MoveStatus::Cancelling {
            self.bar.set_message("SQS is stopping it");
        }
    }

    fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
