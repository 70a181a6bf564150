//! `dlq redrive` and `dlq purge`: putting back, or deleting, with progress and an honest end.
//!
//! Owns the questions before, and which way all go back: SQS moves them, unless that would not be right.

use std::{
    cell::Cell,
    io::{self, IsTerminal},
    process::ExitCode,
};

use indicatif::{ProgressBar, ProgressStyle};
use leasehold::{
    config::Rate,
    ops::dead_letters::{BrokenOff, DeadLetters, Ending, Moving, Put, Redrive, Redriven},
    queue::{MoveStatus, MoveTask},
};

use super::{
    Change, PurgeArgs, RedriveArgs, explained, opened, print, show,
    stop::{self, Stop},
    told::{self, Did},
    tools,
};
use crate::{pause::speaker, usage, words::plain};

/// How many letters a dry run shows one by one.
const SHOWN: usize = 50;

/// How letters go back.
enum Way {
    /// SQS moves all of them.
    AtOnce,
    /// One by one, and why, if not because somebody asked for it.
    OneByOne(Option<String>),
}

impl Way {
    async fn of(letters: &DeadLetters, ask: &Redrive, args: &RedriveArgs) -> Self {
        if !ask.choice.is_all() || args.one_by_one || args.force_rerun {
            return Self::OneByOne(None);
        }
        letters.why_one_by_one(ask.rate).await.map_or(Self::AtOnce, |why| Self::OneByOne(Some(why)))
    }
}

pub(super) async fn redrive(args: &RedriveArgs, stop: &Stop) -> anyhow::Result<ExitCode> {
    let change = &args.change;
    if args.force_rerun && change.json && !change.yes && !change.dry_run {
        return Err(usage("--json asks nothing: say --yes, or --dry-run"));
    }
    let ops = stop.or(tools(std::slice::from_ref(&args.queue))).await??;
    let choice = args.which.choice(&ops, &args.queue, args.limit)?;
    let letters = stop.or(opened(&ops, &args.queue)).await??;
    let ask =
        Redrive { choice, rate: args.rate, force_rerun_by: args.force_rerun.then(speaker), dry_run: change.dry_run };
    if args.force_rerun && !change.yes && !change.dry_run {
        let dead = show::dead(&letters);
        if !stop.confirmed(format!("Work of {dead} that is done is to take effect a second time. Do it?")).await? {
            print("Nothing is put back.\n")?;
            return Ok(ExitCode::FAILURE);
        }
    }
    let visible = stop.or(letters.depth()).await?.map_or(0, |depth| depth.visible);
    let screen = Screen::new(change, visible, stop);
    match stop.or(Way::of(&letters, &ask, args)).await? {
        Way::OneByOne(why) => screen.say_why(why),
        Way::AtOnce if change.dry_run => screen.stop.say(
            "SQS itself would move all of them (StartMessageMoveTask), those too that were done or are copies. \
             One by one, or where the service has no such tasks:",
        ),
        Way::AtOnce => {
            if let Some(code) = all_at_once(&letters, args.rate, &screen).await? {
                return Ok(code);
            }
        }
    }
    let redriven = letters.redrive(&ask, stop.told(), |put: &Put<'_>| screen.put(put)).await;
    ended(&letters, redriven, Did::PutBack, change, &screen)
}

pub(super) async fn purge(args: &PurgeArgs, stop: &Stop) -> anyhow::Result<ExitCode> {
    let change = &args.change;
    if change.json && !change.yes && !change.dry_run {
        return Err(usage("--json asks nothing: say --yes, or --dry-run"));
    }
    let ops = stop.or(tools(std::slice::from_ref(&args.queue))).await??;
    let choice = args.which.choice(&ops, &args.queue, args.limit)?;
    let letters = stop.or(opened(&ops, &args.queue)).await??;
    let depth = stop.or(letters.depth()).await?.map_err(|error| explained(&args.queue, error))?;
    if !change.yes && !change.dry_run {
        let (dead, total) = (show::dead(&letters), depth.total());
        let which = if choice.is_all() { "all of the" } else { "those that are meant of the" };
        let behind = if letters.is_fifo() && !choice.is_all() {
            " What is behind others in its group stays if those do."
        } else {
            ""
        };
        if !stop.confirmed(format!("Delete {which} {total} messages of {dead} for good?{behind}")).await? {
            print("Nothing is deleted.\n")?;
            return Ok(ExitCode::FAILURE);
        }
    }
    let screen = Screen::new(change, depth.visible, stop);
    let ask = Redrive { choice, dry_run: change.dry_run, ..Redrive::default() };
    let redriven = letters.purge(&ask, stop.told(), |put: &Put<'_>| screen.put(put)).await;
    ended(&letters, redriven, Did::Delete, change, &screen)
}

/// `None` where SQS cannot do it.
async fn all_at_once(
    letters: &DeadLetters,
    rate: Option<Rate>,
    screen: &Screen<'_>,
) -> anyhow::Result<Option<ExitCode>> {
    screen.stop.means(stop::MOVING);
    let moving = letters.redrive_all(rate, screen.stop.told(), |task: &MoveTask| screen.moved(task)).await;
    let task = match moving.map_err(|error| explained(letters.queue(), error))? {
        Moving::Task(task) => task,
        Moving::OneByOne(why) => {
            screen.stop.means_receiving();
            screen.say_why(Some(why));
            return Ok(None);
        }
        _ => return Ok(None),
    };
    screen.clear();
    print(&told::moved(letters, &task, screen.json)?)?;
    let is_whole = task.status == MoveStatus::Completed;
    Ok(Some(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

/// What it came to is told also where an error ended it.
fn ended(
    letters: &DeadLetters,
    outcome: Result<Redriven, BrokenOff>,
    did: Did,
    change: &Change,
    screen: &Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let (redriven, error) = match outcome {
        Ok(redriven) => (redriven, None),
        Err(BrokenOff { redriven, error, .. }) => (*redriven, Some(error)),
    };
    screen.clear();
    print(&told::ended(letters, &redriven, did, change.dry_run, change.json)?)?;
    if let Some(error) = error {
        return Err(explained(letters.queue(), error));
    }
    // Nothing that a dry run did not see is left undone by it.
    let is_good = redriven.is_clean() || (change.dry_run && redriven.ending == Ending::Behind);
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is seen meanwhile: a bar on a terminal, and a line for what goes wrong; with `--json` a line for each message, and
/// of a dry run one for each of the first.
struct Screen<'a> {
    json: bool,
    dry_run: bool,
    put: Cell<usize>,
    bar: ProgressBar,
    stop: &'a Stop,
}

impl<'a> Screen<'a> {
    fn new(change: &Change, messages: u64, stop: &'a Stop) -> Self {
        let is_shown = !change.json && !change.dry_run && io::stderr().is_terminal() && messages > 0;
        let bar = if is_shown { ProgressBar::new(messages) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{elapsed:>6}  {bar:24.green/dim} {pos}/{len} · {msg}") {
            bar.set_style(style.progress_chars("━━─"));
        }
        stop.shows(bar.clone());
        Self { json: change.json, dry_run: change.dry_run, put: Cell::new(0), bar, stop }
    }

    fn say_why(&self, one_by_one: Option<String>) {
        if let Some(why) = one_by_one {
            self.stop.say(&format!("One by one: {}.", plain(&why)));
        }
    }

    fn put(&self, put: &Put<'_>) {
        self.bar.inc(1);
        self.put.set(self.put.get() + 1);
        // Standard output that is closed leaves nobody to tell; what is under way goes on to its end.
        if self.json {
            let _ = print(&told::put_json(put));
        } else if let Some(line) = told::trouble(put) {
            self.stop.say(&line);
        } else if self.dry_run && self.put.get() <= SHOWN {
            let _ = print(&told::put(put));
        } else if self.dry_run && self.put.get() == SHOWN + 1 {
            let _ = print("  …\n");
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
