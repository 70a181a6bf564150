//! What a worker is doing, as it tells those who ask.
//!
//! Values only: made by the worker, told by the health endpoint. Says of every pause what it is for and how it ends.

use std::collections::BTreeMap;

/// What a worker is doing.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Status {
    /// How far it is.
    pub phase: Phase,
    /// What it waits for before it starts, and what is wrong with the queues that it did not start.
    pub problems: Vec<String>,
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
        self.queues.values().all(|queue| queue.polls_come_back)
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
