//! `leasehold pause` and `leasehold resume`: what operators say of a queue, to all of its workers at once.
//!
//! Owns which queues are meant, who speaks, and how it is told. It is kept in the guard's table, which is all that this
//! talks to; what a worker makes of it is the worker's.

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use leasehold::{
    Config, Problem, WorkerError,
    aws::{self, Aws},
    clock::{Clock, Millis},
    config::{GuardMode, user},
    guard::{Control, ControlKey, Guard, GuardError, Paused, dynamodb::DynamoDbGuard},
    queue::QueueAddress,
};
use serde::Serialize;

use crate::{
    exit,
    words::{self, access, plain},
};

/// Pause queues for all of their workers, or list what is paused
///
/// Nothing new is received from a paused queue. What runs finishes, and so does what was received and waits. No deploy and
/// no restart: the word is kept in the guard's table, at which every worker looks every 5 seconds. It holds until
/// `leasehold resume`, however long that is and whichever workers come and go.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    meant: Meant,

    /// Why, for those who find it paused
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    why: Option<String>,
}

/// Let the workers of paused queues go on
///
/// Also ends what workers have paused by themselves, as after a burst of work that failed for good. They know within 5
/// seconds.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    meant: Meant,
}

#[derive(Debug, clap::Args)]
struct Meant {
    /// Names from LEASEHOLD_QUEUES; where that is not set, names in SQS
    #[arg(value_name = "QUEUE")]
    queues: Vec<String>,

    /// All queues of LEASEHOLD_QUEUES
    #[arg(long, conflicts_with = "queues")]
    all: bool,

    /// Print one JSON object a line, one line a queue
    #[arg(long)]
    json: bool,
}

fn reason(text: &str) -> Result<String, String> {
    let (text, most) = (text.trim(), Control::LONGEST_TEXT);
    if text.is_empty() || text.len() > most || text.contains(char::is_control) {
        return Err(format!("one line of 1 to {most} bytes"));
    }
    Ok(text.to_owned())
}

pub(crate) async fn pause(args: PauseArgs) -> anyhow::Result<ExitCode> {
    let names_none = args.meant.queues.is_empty() && !args.meant.all;
    if names_none && args.why.is_some() {
        return Ok(usage("--why needs a queue, or --all"));
    }
    let paused = Paused { at: Clock::system().wall(), by: speaker(), why: args.why };
    let word = (!names_none).then_some(Word::Pause(paused));
    tell("pause", &args.meant, word).await
}

pub(crate) async fn resume(args: ResumeArgs) -> anyhow::Result<ExitCode> {
    if args.meant.queues.is_empty() && !args.meant.all {
        return Ok(usage("name a queue, or say --all; `leasehold pause` lists what is paused"));
    }
    tell("resume", &args.meant, Some(Word::Resume(Clock::system().wall()))).await
}

/// Standard error that is closed leaves nobody to tell.
fn usage(problem: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "error: {problem}");
    exit::USAGE.into()
}

/// `user@host`, as far as the system knows them.
pub(crate) fn speaker() -> String {
    let user = user().unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
}

/// What is to be said.
#[derive(Debug)]
enum Word {
    Pause(Paused),
    Resume(Millis),
}

impl Word {
    fn after(&self, before: &Control) -> Control {
        match self {
            Self::Pause(paused) => Control { paused: Some(paused.clone()), resumed_at: before.resumed_at },
            // Later than the last one, which another machine's clock may have dated: workers heed what is new.
            Self::Resume(at) => {
                let after = before.resumed_at.map(|last| last + Duration::from_millis(1));
                Control { paused: None, resumed_at: after.max(Some(*at)) }
            }
        }
    }

    /// For a write without an answer may have been made.
    fn not_done(&self) -> &'static str {
        match self {
            Self::Pause(_) => "not paused, as far as is known",
            Self::Resume(_) => "not resumed, as far as is known",
        }
    }
}

/// Says it of each queue, or only asks. Ends at the first that it cannot be said of, and names those that are left.
async fn tell(command: &str, meant: &Meant, word: Option<Word>) -> anyhow::Result<ExitCode> {
    let (config, warnings) = Config::from_env_for_tools().map_err(WorkerError::Configuration)?;
    for warning in warnings {
        let _ = writeln!(io::stderr(), "leasehold: {warning}");
    }
    let queues = queues(&config, meant, command).map_err(|problem| WorkerError::Configuration(vec![problem]))?;
    let sdk = aws::load().await;
    let problems = aws::problems(&sdk);
    if !problems.is_empty() {
        return Err(WorkerError::Configuration(problems).into());
    }
    let aws = Aws::new(&sdk);
    let guard = DynamoDbGuard::new(aws.dynamodb(), config.table.clone());
    for (number, queue) in queues.iter().enumerate() {
        let key = ControlKey::new(config.namespace.as_deref(), &queue.name);
        let said = say(&guard, &key, word.as_ref()).await.map_err(|error| {
            let left: Vec<_> = queues[number..].iter().map(|queue| queue.queue.as_str()).collect();
            let what = word.as_ref().map_or("not looked at", Word::not_done);
            refused(error, &config.table, &format!("{what}: {}", left.join(", ")))
        })?;
        show(queue, &said, meant.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was so, and what is so now, if that was changed.
struct Said {
    before: Control,
    now: Option<Control>,
}

async fn say(guard: &impl Guard, key: &ControlKey, word: Option<&Word>) -> Result<Said, GuardError> {
    let before = guard.control(key).await?;
    let now = word.map(|word| word.after(&before));
    if let Some(now) = &now {
        guard.set_control(key, now).await?;
    }
    Ok(Said { before, now })
}

/// A queue by the name that people use here, and the one that it has in SQS.
#[derive(Debug, PartialEq, Eq)]
struct Queue {
    queue: String,
    name: String,
}

fn queues(config: &Config, meant: &Meant, command: &str) -> Result<Vec<Queue>, Problem> {
    let unguarded = |(_, queue): (_, &leasehold::config::QueueConfig)| queue.guard == GuardMode::None;
    if !config.queues.is_empty() && config.queues.iter().all(unguarded) {
        return Err(Problem::new(
            "every queue here has GUARD=none: its workers have no table in which a word for them could be kept",
            "LEASEHOLD_GUARD=claim, at the workers too; until then stop them to pause",
        ));
    }
    let mut queues: Vec<Queue> = Vec::new();
    let names: Vec<&str> = match meant.queues.as_slice() {
        [] => config.queues.keys().map(String::as_str).collect(),
        named => named.iter().map(String::as_str).collect(),
    };
    if names.is_empty() {
        return Err(Problem::new(
            "LEASEHOLD_QUEUES is not set, and no queue is named",
            format!("LEASEHOLD_QUEUES=payments,emails, or name a queue as SQS does: leasehold {command} payments"),
        ));
    }
    for queue in names {
        let name = match config.queues.get(queue) {
            Some(known) => known.address.queue_name().to_owned(),
            None if config.queues.is_empty() => queue
                .parse::<QueueAddress>()
                .map(|address| address.queue_name().to_owned())
                .map_err(|error| Problem::new(error.what, format!("leasehold {command} {}", error.instead)))?,
            None => {
                let known: Vec<_> = config.queues.keys().map(String::as_str).collect();
                return Err(Problem::new(
                    format!("LEASEHOLD_QUEUES names no queue {queue:?}, but {}", known.join(", ")),
                    format!("leasehold {command} {}", known.first().unwrap_or(&"payments")),
                ));
            }
        };
        if queues.iter().all(|other| other.name != name) {
            queues.push(Queue { queue: queue.to_owned(), name });
        }
    }
    Ok(queues)
}

/// An error as what a person can mend, or try again.
fn refused(error: GuardError, table: &str, about: &str) -> anyhow::Error {
    let problem = match error {
        GuardError::Missing => Problem::new(
            format!("{about}: there is no table {table:?}, in which the word is kept"),
            "LEASEHOLD_TABLE=<the table of the workers>, AWS_REGION=<its region>; infra/queue.yaml makes one",
        ),
        GuardError::Denied(_) => {
            let mend = access(error.lacks_credentials(), &format!("dynamodb:GetItem and PutItem on {table}"));
            Problem::new(format!("{about}: {:#}", anyhow::Error::new(error)), mend)
        }
        error => return anyhow::Error::new(error).context(format!("{about}; the table {table:?}")),
    };
    WorkerError::Configuration(vec![problem]).into()
}

/// What a script reads.
#[derive(Serialize)]
struct Line<'a> {
    queue: &'a str,
    name: &'a str,
    #[serde(flatten)]
    now: &'a Control,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<&'a Control>,
}

fn show(Queue { queue, name }: &Queue, said: &Said, json: bool) -> anyhow::Result<()> {
    let before = said.now.as_ref().map(|_| &said.before);
    let now = said.now.as_ref().unwrap_or(&said.before);
    let text = if json {
        words::json(&serde_json::to_string(&Line { queue, name, now, before })?)
    } else {
        let queue = if queue == name { queue.clone() } else { format!("{queue} ({name} in SQS)") };
        match (&now.paused, before) {
            (_, None) => format!("{queue}: {}", standing(now)),
            (Some(_), Some(before)) => format!("{queue}: paused; was {}", standing(before)),
            (None, Some(before)) => format!("{queue}: goes on; was {}", standing(before)),
        }
    };
    writeln!(io::stdout(), "{text}").context("standard output")
}

fn standing(control: &Control) -> String {
    let Some(Paused { at, by, why }) = &control.paused else { return "not paused".to_owned() };
    let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    // Whoever may write the table may have written anything.
    plain(&format!("paused since {} by {by}{why}", at.utc()))
}

#[cfg(test)]
mod tests;
