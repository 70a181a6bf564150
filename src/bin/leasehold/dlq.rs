//! `leasehold dlq`: what failed for good, why, and putting it back.
//!
//! Owns the options, which queues are meant, and what an end is worth. What is done to messages is the library's
//! (`leasehold::ops::dead_letters`).

use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Context;
use leasehold::{
    Config, Key, Problem, aws,
    config::{DurationText, QueueConfig, Rate},
    ops::{
        Ops, OpsError,
        dead_letters::{Choice, DeadLetters},
    },
    queue::{QueueAddress, QueueError},
};

use crate::{help, words::access};
use stop::Stop;

mod body;
mod look;
mod put;
mod show;
mod stop;
mod told;

/// See what failed for good and why, put it back, or delete it
///
/// Every queue of LEASEHOLD_QUEUES has a dead-letter queue, in which a copy of each message that failed for good stands with
/// the reason. To look is to receive: each message that is shown counts as received once more, and is hidden from others
/// meanwhile.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    #[command(after_long_help = help::dlq_ls())]
    Ls(LsArgs),
    #[command(after_long_help = help::dlq_peek())]
    Peek(PeekArgs),
    #[command(after_long_help = help::dlq_redrive())]
    Redrive(RedriveArgs),
    #[command(after_long_help = help::dlq_purge())]
    Purge(PurgeArgs),
}

/// List dead-letter queues: how many messages, since when, and why
///
/// Groups what is there by reason code, and copies of one failure into one. What SQS moved by itself, after too many
/// receives, has no reason: what its records say is shown instead.
#[derive(Debug, clap::Args)]
struct LsArgs {
    /// Names from LEASEHOLD_QUEUES [default: all]; where that is not set, names in SQS
    #[arg(value_name = "QUEUE")]
    queues: Vec<String>,

    /// Look at no more than so many messages of each
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,

    /// Print one JSON object a line, one line a dead-letter queue
    #[arg(long)]
    json: bool,
}

/// Show messages with their reason, record and body
#[derive(Debug, clap::Args)]
struct PeekArgs {
    /// A name from LEASEHOLD_QUEUES; where that is not set, a name in SQS
    #[arg(value_name = "QUEUE")]
    queue: String,

    #[command(flatten)]
    which: Which,

    /// Show no more than so many
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,

    /// Show bodies whole
    #[arg(long)]
    full: bool,

    /// Print one JSON object a line, one line a message, with its whole body
    #[arg(long)]
    json: bool,
}

/// Put messages back into their queue
///
/// Without options, all: SQS moves them by itself (StartMessageMoveTask), and this shows how far it is. With any of them,
/// one by one: work that is done by now is cleaned away, copies of one failure go back as one. Either way each piece of
/// work takes effect once, and finished steps are not repeated. Can be broken off and done again.
#[derive(Debug, clap::Args)]
struct RedriveArgs {
    /// A name from LEASEHOLD_QUEUES; where that is not set, a name in SQS
    #[arg(value_name = "QUEUE")]
    queue: String,

    #[command(flatten)]
    which: Which,

    /// No more than so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,

    /// No faster than so many in a second
    #[arg(long, value_name = "N")]
    rate: Option<Rate>,

    /// One by one, whichever they are
    #[arg(long)]
    one_by_one: bool,

    /// Let work that is done run once more, its steps too, under new downstream keys: a second effect is meant
    #[arg(long)]
    force_rerun: bool,

    #[command(flatten)]
    change: Change,
}

/// Delete messages for good
///
/// Their work stays failed: its records are kept, so that a late duplicate still does not run.
#[derive(Debug, clap::Args)]
struct PurgeArgs {
    /// A name from LEASEHOLD_QUEUES; where that is not set, a name in SQS
    #[arg(value_name = "QUEUE")]
    queue: String,

    #[command(flatten)]
    which: Which,

    /// No more than so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,

    #[command(flatten)]
    change: Change,
}

#[derive(Debug, clap::Args)]
struct Which {
    /// Only those with this reason code; several are any of them
    #[arg(long, value_name = "CODE")]
    reason: Vec<String>,

    /// Only those with this key, or primary key; several are any of them
    #[arg(long, value_name = "KEY")]
    key: Vec<String>,

    /// Only those that have been dead for so long
    #[arg(long, value_name = "DURATION")]
    older_than: Option<DurationText>,
}

#[derive(Debug, clap::Args)]
struct Change {
    /// Show what would happen to each, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Do it without a question
    #[arg(short, long, conflicts_with = "dry_run")]
    yes: bool,

    /// Print one JSON object a line: one for each message, and what it came to
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let stop = Stop::new();
    let work = async {
        match &args.verb {
            Verb::Ls(args) => look::list(args, &stop).await,
            Verb::Peek(args) => look::peek(args, &stop).await,
            Verb::Redrive(args) => put::redrive(args, &stop).await,
            Verb::Purge(args) => put::purge(args, &stop).await,
        }
    };
    stop.or_done(work).await
}

/// The tools, for these queues at least.
async fn tools(named: &[String]) -> anyhow::Result<Ops> {
    let (mut config, warnings) = Config::from_env_for_tools().map_err(OpsError::Configuration)?;
    for warning in warnings {
        let _ = writeln!(io::stderr(), "leasehold: {warning}");
    }
    if config.queues.is_empty() {
        if named.is_empty() {
            return Err(OpsError::Configuration(vec![Problem::new(
                "LEASEHOLD_QUEUES is not set, and no queue is named",
                "LEASEHOLD_QUEUES=payments,emails, or name a queue as SQS does: leasehold dlq ls payments",
            )])
            .into());
        }
        for name in named {
            let address: QueueAddress = name.parse().map_err(|error: leasehold::config::ValueError| {
                OpsError::Configuration(vec![Problem::new(error.what, error.instead)])
            })?;
            let mut queue = QueueConfig::new(address.queue_name());
            queue.address = address;
            config.queues.insert(name.clone(), queue);
        }
    }
    Ok(Ops::new(config, &aws::load().await)?)
}

/// One queue's dead letters, and the choice among them.
async fn opened(ops: &Ops, queue: &str) -> anyhow::Result<DeadLetters> {
    ops.dead_letters(queue).await.map_err(|error| explained(queue, error))
}

/// What a person can mend is told with how.
fn explained(queue: &str, error: OpsError) -> anyhow::Error {
    match error {
        OpsError::Queue { queue: name, error: QueueError::Missing } => OpsError::Configuration(vec![Problem::new(
            format!("there is no queue {name}, or the credentials may not see it"),
            format!(
                "{}=<its URL>, AWS_REGION and AWS_PROFILE as for every AWS tool",
                leasehold::config::variable(queue, "URL")
            ),
        )])
        .into(),
        OpsError::Queue { queue: name, error: error @ QueueError::Denied(_) } => {
            let mend = access(error.lacks_credentials(), "do it");
            let what = format!("the queue {name}: {:#}", anyhow::Error::new(error));
            OpsError::Configuration(vec![Problem::new(what, mend)]).into()
        }
        error => error.into(),
    }
}

impl Which {
    fn choice(&self, ops: &Ops, queue: &str, limit: Option<u32>) -> anyhow::Result<Choice> {
        let mut pks = Vec::new();
        for key in &self.key {
            pks.push(key.clone());
            for reading in Key::readings(std::slice::from_ref(key)) {
                // A queue without a guard has keys too, which go downstream and are in no record.
                match ops.pk(queue, &reading) {
                    Ok(pk) => pks.push(pk.0),
                    Err(OpsError::Unguarded { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(Choice {
            codes: self.reason.clone(),
            pks,
            older_than: self.older_than.map(|DurationText(age)| age),
            limit: limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        })
    }

    fn is_all(&self) -> bool {
        self.reason.is_empty() && self.key.is_empty() && self.older_than.is_none()
    }
}

/// Lines for standard output, which may be closed.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output")
}
