//! The one line of the log for each outcome of a delivery, at the level that says who has to act.
//!
//! `error`: somebody, now. `warn`: the owner, in working hours. `info`: nobody, but it is unusual. `debug`: it went as
//! planned, or what is in the way is told elsewhere: an outage must not log a line for each message in hand. A body is never
//! in it.

use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use crate::{
    message::{About, Delivery},
    settle::{Delayed, Deleted, Left, Settled},
    telemetry::{Fixed as _, Outcome},
    trace,
};

/// The target of these lines. Filters name it; so it stays where it is.
const TARGET: &str = "leasehold::outcome";

/// What is told of a delivery, taken out of it before it is settled.
#[derive(Debug)]
pub(super) struct Told<'a> {
    queue: &'a str,
    message_id: String,
    group: Option<String>,
    received: Instant,
    about: About,
}

/// How an outcome is told.
#[derive(Debug)]
struct Line {
    level: Level,
    /// What has become of the message.
    text: &'static str,
    /// Of those that are left to their timeout, why.
    why: Option<&'static str>,
    wait: Option<Duration>,
}

impl<'a> Told<'a> {
    pub(super) fn of(queue: &'a str, delivery: &Delivery) -> Self {
        Self {
            queue,
            message_id: delivery.message.id.clone(),
            group: delivery.message.group.clone(),
            received: delivery.received,
            about: std::mem::take(&mut *delivery.about()),
        }
    }

    /// Tells that an attempt failed, if one did, of a delivery that waits in place for the next: its outcome is yet to come.
    pub(super) fn failed_in_place(queue: &'a str, delivery: &Delivery, wait: Duration) {
        if delivery.about().code.is_some() {
            let told = Self::of(queue, delivery);
            told.write(Outcome::Failed, failed(Some(wait)));
            let mut about = delivery.about();
            (about.pk, about.attempt) = (told.about.pk, told.about.attempt);
        }
    }

    /// It is settled. While the worker stops, what it interrupts is told.
    pub(super) fn settled(&self, settled: &Settled, outcome: Outcome, stops: bool) {
        self.write(outcome, line(&self.about, settled, stops));
    }

    fn write(&self, outcome: Outcome, Line { level, text, why, wait }: Line) {
        let Self { queue, message_id, group, received, about } = self;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let outcome = outcome.as_str();
        trace::outcome(outcome, about.code.as_deref());
        let (took_ms, wait_ms) = (millis(received.elapsed()), wait.map(millis));
        let About { pk, attempt, code, error, failure_id, cause, .. } = about;
        macro_rules! write {
            ($level:ident) => {
                tracing::$level!(
                    target: TARGET,
                    queue, message_id, pk, group, attempt, outcome, why, took_ms, wait_ms, code, error, cause, failure_id,
                    "{text}"
                )
            };
        }
        match level {
            Level::ERROR => write!(error),
            Level::WARN => write!(warn),
            Level::INFO => write!(info),
            _ => write!(debug),
        }
    }
}

fn line(about: &About, settled: &Settled, stops: bool) -> Line {
    let line = |level, text| Line { level, text, why: None, wait: None };
    let interrupted = if stops { Level::INFO } else { Level::DEBUG };
    match settled {
        Settled::Deleted(..) if about.is_half_undone => {
            line(Level::ERROR, "failed for good, and is not undone: a person has to see to it")
        }
        // Another ran it at the same time. That is past, but it is not as it should be.
        Settled::Deleted(Deleted::Suppressed, _) if about.cause.is_some() => line(Level::INFO, "deleted"),
        Settled::Deleted(Deleted::Done | Deleted::Suppressed, _) => line(Level::DEBUG, "deleted"),
        Settled::Deleted(Deleted::DeadLettered, _) => line(Level::WARN, "failed for good: dead-lettered"),
        Settled::Deleted(Deleted::Dropped, _) => line(Level::WARN, "failed for good: dropped"),
        Settled::Delayed { why, wait } => match why {
            Delayed::Kept => kept(about, Some(*wait)),
            // An interruption is one where it may still run and its time was used up.
            Delayed::Failed | Delayed::Interrupted if about.code.is_some() => failed(Some(*wait)),
            // A failure was told when it began to wait in place, and that was cut short.
            _ => {
                let level = if *why == Delayed::Interrupted { interrupted } else { Level::DEBUG };
                Line { wait: Some(*wait), ..line(level, "comes again later") }
            }
        },
        Settled::Left(why) => left(about, *why, interrupted),
        // That deletes are denied is told once, as the pause that follows from it.
        Settled::DeleteDenied(_) => Line { why: Some("delete_denied"), ..line(Level::DEBUG, LEFT) },
    }
}

/// What has become of what is left alone.
const LEFT: &str = "left to its visibility timeout";

fn left(about: &About, why: Left, interrupted: Level) -> Line {
    let line = |level, why| Line { level, text: LEFT, why: Some(why), wait: None };
    match why {
        Left::ClaimLost => line(Level::INFO, "claim_lost"),
        Left::Unwritten => line(Level::ERROR, "unwritten"),
        Left::LastReceive => {
            let text =
                "its last receive, and it cannot wait here: SQS moves it to the dead-letter queue without a reason";
            Line { text, ..line(Level::WARN, "last_receive") }
        }
        Left::LeaseOver if about.cause.is_some() => Line { why: Some("lease_over"), ..kept(about, None) },
        Left::LeaseOver if about.code.is_some() => Line { why: Some("lease_over"), ..failed(None) },
        Left::StillRunning { .. } if about.code.is_some() => Line { why: Some("still_running"), ..failed(None) },
        Left::LeaseOver => line(Level::DEBUG, "lease_over"),
        Left::StillRunning { .. } => line(interrupted, "still_running"),
    }
}

fn failed(wait: Option<Duration>) -> Line {
    Line { level: Level::WARN, text: "the attempt failed", why: None, wait }
}

/// It failed for good, and its message stays: as the configuration says, or because no copy can be sent.
fn kept(about: &About, wait: Option<Duration>) -> Line {
    let (level, text) = match about.cause {
        Some(_) => {
            (Level::ERROR, "no copy can be dead-lettered: the original is left to the queue's own redrive policy")
        }
        None => (Level::WARN, "failed for good: kept in its queue"),
    };
    Line { level, text, why: None, wait }
}
