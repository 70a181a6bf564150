//! What a worker is doing, as it tells those who ask.
//!
//! Values only: made by the worker, told at its HTTP endpoint. Says of every pause what it is for and how it ends.
//! [`Status`] is for probes, and short; [`Overview`] is for people, and has keys and error texts in it, but never a payload.

use std::collections::BTreeMap;

/// What a worker is doing.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Status {
    /// How far it is.
    pub phase: Phase,
    /// What it waits for before it starts, and what is wrong with the queues that it did not start.
    pub problems: Vec<String>,
    /// How long the process stood still, in milliseconds: it was stopped, or got no processor. Now, or at its worst in the
    /// last minute; `None` if it did not.
    pub stalled_ms: Option<u64>,
    /// Whether the process stands still now, and for so long that it should be killed: its tasks are not run any more.
    pub hangs: bool,
    /// The queues that it works on, by their names in the configuration.
    pub queues: BTreeMap<String, QueueStatus>,
}

/// How far a worker is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// Looks at queues and table.
    #[default]
    Starting,
    /// Receives.
    Running,
    /// Takes nothing new.
    Draining,
}

/// What a worker does with one queue.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct QueueStatus {
    /// What keeps its work to once: `claim` or `none` (`GUARD`).
    pub guard: String,
    /// What is done while the guard's table is away: `pause` or `open` (`GUARD_OUTAGE`).
    pub guard_outage: String,
    /// Places for running handlers.
    pub slots: usize,
    /// How many of them are free.
    pub free_slots: usize,
    /// The visibility timeout in force, in seconds.
    pub visibility_timeout: u64,
    /// The p99 of handler time of the last minutes with work, in milliseconds; `None` before the first handler has ended.
    pub handler_p99_ms: Option<u64>,
    /// How long ago a poll last came back, with whatever answer, in milliseconds; `None` before the first.
    pub polled_ms_ago: Option<u64>,
    /// Whether every poll came back within its bound. `false` is a worker that hangs.
    pub polls_come_back: bool,
    /// Why nothing is received at the moment, if it is so on purpose.
    pub pauses: Vec<Pause>,
    /// Why only a little is received at the moment: real work has to show that what was away is back. An idle queue may
    /// stay so for long, so this does not make a worker unready.
    pub trials: Vec<Pause>,
    /// Why handlers run without a guard at the moment, as `GUARD_OUTAGE=open` allows while the table is away.
    pub unguarded: Option<Pause>,
}

/// Why a queue is not received from.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Pause {
    /// What is away, or who said so: `the guard's table`, `the handler`, `an operator`.
    pub what: String,
    /// What was met.
    pub cause: String,
    /// How it ends.
    pub ends: String,
}

impl Status {
    /// Whether it does its work, or pauses on purpose: `false` is a worker that should be killed.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !self.hangs && self.queues.values().all(|queue| queue.polls_come_back)
    }

    /// Whether it is live and receives from every queue that it was given.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_live()
            && self.phase == Phase::Running
            && self.problems.is_empty()
            && self.queues.values().all(|queue| queue.pauses.is_empty())
    }
}

/// Everything that a worker tells of itself. Times are in milliseconds; counts are since its start.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct Overview {
    /// [`Status::is_ready`].
    pub ready: bool,
    /// [`Status::is_live`].
    pub live: bool,
    /// How far it is.
    pub phase: Phase,
    /// What it waits for before it starts, and what is wrong with the queues that it did not start.
    pub problems: Vec<String>,
    /// Its name, as records have it.
    pub worker: String,
    /// Leasehold's version.
    pub version: &'static str,
    /// The worker's wall clock, since 1970.
    pub now: u64,
    /// Since the worker was made.
    pub up_ms: u64,
    /// While it drains: until it must be gone.
    pub drain_left_ms: Option<u64>,
    /// [`Status::stalled_ms`].
    pub stalled_ms: Option<u64>,
    /// What is open or on trial of what concerns the whole worker: the guard's table.
    pub circuits: Vec<CircuitStatus>,
    /// Requests sent to AWS, by IAM action; empty for other adapters than AWS's.
    pub calls: BTreeMap<String, u64>,
    /// Write units of DynamoDB.
    pub write_units: u64,
    /// Requests for each delivery settled in the last five minutes; `None` before the first.
    pub calls_per_message: Option<f64>,
    /// Write units for each of them.
    pub write_units_per_message: Option<f64>,
    /// The queues that it works on, by their names in the configuration.
    pub queues: BTreeMap<String, QueueOverview>,
}

/// Something that can be away, and is or was.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct CircuitStatus {
    /// What it is.
    pub what: String,
    /// `open`, or `trial`: a little is let through to see whether it is back.
    pub state: &'static str,
    /// What was met.
    pub cause: String,
    /// How it ends.
    pub ends: String,
}

/// Everything that a worker tells of one queue.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct QueueOverview {
    /// What probes are told, too.
    #[serde(flatten)]
    pub status: QueueStatus,
    /// Whether it is a FIFO queue.
    pub fifo: bool,
    /// Deliveries in hand: running, waiting in place, or behind the head of their group.
    pub in_hand: u64,
    /// Handlers that ignored their cancellation and still run.
    pub stuck: usize,
    /// The median of handler time of the last minutes with work.
    pub handler_p50_ms: Option<u64>,
    /// The age of the oldest message that was received in the last minute.
    pub oldest_ms: Option<u64>,
    /// How many messages SQS has, roughly; asked only while somebody looks.
    pub depth: Option<DepthStatus>,
    /// Deliveries received.
    pub received: u64,
    /// Runs of handlers that began.
    pub started: u64,
    /// What became of deliveries.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Claims of keys whose former worker died.
    pub takeovers: u64,
    /// Leases that ended while the work was in hand, by kind.
    pub leases_lost: BTreeMap<&'static str, u64>,
    /// Extensions of leases, by kind and by what came of them.
    pub beats: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// Beats that were sent late.
    pub late_beats: u64,
    /// Failed attempts, by reason code.
    pub failed_by_code: BTreeMap<String, u64>,
    /// Messages that failed for good, by reason code.
    pub dead_by_code: BTreeMap<String, u64>,
    /// Handlers that run, the oldest first, so many at the most.
    pub running: Vec<RunStatus>,
    /// How many run in all.
    pub running_total: usize,
    /// What failed lately, the newest first.
    pub failures: Vec<FailureStatus>,
}

/// How many messages SQS has, roughly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct DepthStatus {
    /// That can be received.
    pub visible: u64,
    /// That are in hand, of any consumer.
    pub in_flight: u64,
    /// That were sent with a delay which is not over.
    pub delayed: u64,
}

/// A handler that runs.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct RunStatus {
    /// The key, as its record has it.
    pub key: Option<String>,
    /// SQS's id of the message.
    pub message_id: String,
    /// Which attempt it is, from 1.
    pub attempt: u32,
    /// Whether it is an undo.
    pub undo: bool,
    /// For how long it has run.
    pub age_ms: u64,
    /// What is left of the lease that allows it.
    pub lease_left_ms: u64,
    /// The whole of that lease.
    pub lease_ms: u64,
    /// Whether it has run for longer than ninety-nine of a hundred.
    pub past_p99: bool,
    /// The step that it is in, or was in last.
    pub step: Option<String>,
}

/// A failure.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct FailureStatus {
    /// When, since 1970.
    pub at: u64,
    /// The key, as its record has it.
    pub key: Option<String>,
    /// SQS's id of the message.
    pub message_id: String,
    /// Which attempt it was; 0 where none was made.
    pub attempt: u32,
    /// The reason code.
    pub code: String,
    /// The handler's own words.
    pub error: String,
    /// Whether it failed for good.
    pub permanent: bool,
    /// What follows, in words.
    pub follows: String,
}

/// The last quarter of an hour.
#[derive(Debug, Clone, Default, serde::Serialize)]
#[non_exhaustive]
pub struct History {
    /// From one sample to the next.
    pub step_ms: u64,
    /// By queue, the oldest first.
    pub queues: BTreeMap<String, Vec<Sample>>,
}

/// What happened to a queue's deliveries since the sample before.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Sample {
    /// When it was taken, since 1970.
    pub at: u64,
    /// Took effect.
    pub done: u64,
    /// Failed and come again.
    pub failed: u64,
    /// Were deleted without a run.
    pub suppressed: u64,
    /// Failed for good.
    pub dead: u64,
    /// Places that were taken then.
    pub in_flight: usize,
    /// The p99 of handler time then.
    pub p99_ms: Option<u64>,
    /// The visibility timeout in force then, in seconds.
    pub visibility_timeout: u64,
}
