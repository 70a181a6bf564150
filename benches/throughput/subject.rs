//! What is measured: bare loops, and Leasehold in several situations.
//!
//! Owns how each is set up. Everything that is not compared is the same for all: one thread, the same SDK, a log that
//! takes what is written at `info`.

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use clap::ValueEnum;
use leasehold::{
    Handler, HandlerResult, JobContext, Shutdown, Worker, aws,
    clock::{Clock, Millis},
    queue::LARGEST_MESSAGE,
};
use serde::Deserialize;
use tokio::{
    sync::Barrier,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::{
    bare,
    usage::{Usage, cpu_micros, peak_kb},
};

pub(crate) const QUEUE: &str = "jobs";
pub(crate) const TABLE: &str = "leasehold";

/// Receives on their way at once, at full batches.
pub(crate) const POLLS: usize = 8;

/// Slots at saturation, and what a handler takes there.
const SLOTS: usize = 16;
const SLOW: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Subject {
    /// Receives ten, deletes ten.
    Bare,
    /// And with a conditional put and a conditional update for each message, of ten at a time.
    BareGuarded,
    /// Handlers that do nothing.
    Unguarded,
    Guarded,
    /// The same, and all is told that is told by default: what is counted goes to a recorder and is there over HTTP, though
    /// nobody asks, and there is a log at `info`, as JSON with its spans.
    UnguardedTold,
    GuardedTold,
    /// Few slots, handlers that take a while, and more messages than they can do.
    SaturatedUnguarded,
    SaturatedGuarded,
    /// A thousand handlers at once, with bodies of a kilobyte.
    InFlightUnguarded,
    InFlightGuarded,
    /// The same with bodies as large as SQS takes them, which the handler keeps in hand.
    InFlightLarge,
    /// One message that waits for the process.
    Start,
}

impl Subject {
    pub(crate) const ALL: [Self; 12] = [
        Self::Bare,
        Self::Unguarded,
        Self::UnguardedTold,
        Self::BareGuarded,
        Self::Guarded,
        Self::GuardedTold,
        Self::SaturatedUnguarded,
        Self::SaturatedGuarded,
        Self::InFlightUnguarded,
        Self::InFlightGuarded,
        Self::InFlightLarge,
        Self::Start,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::BareGuarded => "bare-guarded",
            Self::Unguarded => "unguarded",
            Self::Guarded => "guarded",
            Self::UnguardedTold => "unguarded-told",
            Self::GuardedTold => "guarded-told",
            Self::SaturatedUnguarded => "saturated-unguarded",
            Self::SaturatedGuarded => "saturated-guarded",
            Self::InFlightUnguarded => "in-flight-unguarded",
            Self::InFlightGuarded => "in-flight-guarded",
            Self::InFlightLarge => "in-flight-large",
            Self::Start => "start",
        }
    }

    /// What it is compared with.
    pub(crate) fn baseline(self) -> Option<Self> {
        match self {
            Self::Unguarded => Some(Self::Bare),
            Self::Guarded => Some(Self::BareGuarded),
            Self::UnguardedTold => Some(Self::Unguarded),
            Self::GuardedTold => Some(Self::Guarded),
            _ => None,
        }
    }

    pub(crate) fn messages(self) -> usize {
        match self {
            Self::Bare | Self::Unguarded | Self::UnguardedTold => 40_000,
            Self::BareGuarded | Self::Guarded | Self::GuardedTold => 8_000,
            Self::SaturatedUnguarded | Self::SaturatedGuarded => 480,
            Self::InFlightUnguarded | Self::InFlightGuarded | Self::InFlightLarge => 1_000,
            Self::Start => 1,
        }
    }

    /// Its messages are as many as they are for a reason.
    pub(crate) fn is_paced(self) -> bool {
        self.messages() <= 1_000
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::InFlightUnguarded | Self::InFlightGuarded => 1024,
            Self::InFlightLarge => LARGEST_MESSAGE,
            _ => 200,
        }
    }

    fn is_guarded(self) -> bool {
        !matches!(
            self,
            Self::Bare
                | Self::Unguarded
                | Self::UnguardedTold
                | Self::SaturatedUnguarded
                | Self::InFlightUnguarded
                | Self::InFlightLarge
        )
    }

    /// Whether it tells what it counts.
    fn tells(self) -> bool {
        matches!(self, Self::UnguardedTold | Self::GuardedTold)
    }

    fn waits(self) -> Waits {
        match self {
            Self::SaturatedUnguarded | Self::SaturatedGuarded => Waits::ForAWhile(SLOW),
            Self::InFlightUnguarded | Self::InFlightGuarded | Self::InFlightLarge => {
                Waits::ForEachOther(Barrier::new(self.messages()))
            }
            _ => Waits::Not,
        }
    }

    fn concurrency(self) -> usize {
        match self {
            Self::SaturatedUnguarded | Self::SaturatedGuarded => SLOTS,
            Self::InFlightUnguarded | Self::InFlightGuarded | Self::InFlightLarge => self.messages(),
            _ => POLLS * 10,
        }
    }
}

/// What stands in a message.
#[derive(Debug, Deserialize)]
pub(crate) struct Job {
    pub(crate) id: String,
}

/// Works a full queue off, and tells what that took.
pub(crate) async fn run(subject: Subject, endpoint: &str, messages: usize, started: u64) -> anyhow::Result<Usage> {
    if subject.tells() {
        let quiet = EnvFilter::new("aws=warn,hyper=warn,info");
        tracing_subscriber::fmt().with_env_filter(quiet).with_writer(io::sink).json().init();
    }
    let config = aws::local(endpoint);
    let (cpu, work) = (cpu_micros()?, Arc::new(Work::new(messages, Millis(started))));
    match subject {
        Subject::Bare | Subject::BareGuarded => bare::run(&config, &work, subject.is_guarded()).await?,
        _ => {
            let handler = Jobs { work: Arc::clone(&work), waits: subject.waits() };
            worker(subject)
                .aws(&config)
                .queue(QUEUE, handler)
                .run(Shutdown::when(work.done.clone().cancelled_owned()))
                .await?;
        }
    }
    let (first_ms, first_ms_of_work) = work.first.get().copied().context("no message came")?;
    let seconds = work.last.get().copied().context("not all messages came")?;
    Ok(Usage { seconds, cpu_micros: cpu_micros()? - cpu, peak_kb: peak_kb()?, first_ms, first_ms_of_work })
}

fn worker(subject: Subject) -> Worker {
    let concurrency = subject.concurrency().to_string();
    let guard = if subject.is_guarded() { "claim" } else { "none" };
    let http = if subject.tells() { "127.0.0.1:0" } else { "off" };
    let vars = [
        ("LEASEHOLD_HTTP_ADDR", http),
        ("LEASEHOLD_QUEUES", QUEUE),
        ("LEASEHOLD_TABLE", TABLE),
        ("LEASEHOLD_KEY", "/id"),
        ("LEASEHOLD_GUARD", guard),
        ("LEASEHOLD_CONCURRENCY", &concurrency),
        ("LEASEHOLD_DEAD_LETTER", "keep"),
        // The drain waits for polls that are parked on the empty queue.
        ("LEASEHOLD_WAIT_TIME", "1s"),
    ];
    Worker::from_vars(vars.map(|(name, value)| (name.to_owned(), value.to_owned())))
}

/// What a handler waits for.
#[derive(Debug)]
enum Waits {
    Not,
    ForAWhile(Duration),
    /// Until so many run.
    ForEachOther(Barrier),
}

struct Jobs {
    work: Arc<Work>,
    waits: Waits,
}

impl Handler for Jobs {
    type Payload = Job;

    async fn handle(&self, _: &Job, _: &JobContext) -> HandlerResult {
        self.work.begins();
        match &self.waits {
            Waits::Not => {}
            Waits::ForAWhile(time) => sleep(*time).await,
            Waits::ForEachOther(all) => {
                all.wait().await;
            }
        }
        self.work.ends();
        Ok(())
    }
}

/// How far the work is.
pub(crate) struct Work {
    messages: usize,
    ended: AtomicUsize,
    /// When the process was started.
    started: Millis,
    begun: Instant,
    first: OnceLock<(u64, f64)>,
    last: OnceLock<f64>,
    /// Told when all messages are worked off.
    pub(crate) done: CancellationToken,
}

impl Work {
    fn new(messages: usize, started: Millis) -> Self {
        Self {
            messages,
            ended: AtomicUsize::new(0),
            started,
            begun: Instant::now(),
            first: OnceLock::new(),
            last: OnceLock::new(),
            done: CancellationToken::new(),
        }
    }

    pub(crate) fn begins(&self) {
        self.first.get_or_init(|| {
            let since_start = Clock::system().wall().since(self.started);
            (u64::try_from(since_start.as_millis()).unwrap_or(u64::MAX), self.begun.elapsed().as_secs_f64() * 1000.0)
        });
    }

    pub(crate) fn ends(&self) {
        if self.ended.fetch_add(1, Ordering::Relaxed) + 1 == self.messages {
            self.last.get_or_init(|| self.begun.elapsed().as_secs_f64());
            self.done.cancel();
        }
    }
}
