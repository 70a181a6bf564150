//! The decisions of the path, without any I/O: what a record that is in the way means, and what follows from a run.
//!
//! Pure: given the same record, message and moment it decides the same. Acting on a decision is `job.rs`.

use std::time::Duration;

use crate::{
    clock::Millis,
    guard::{Failure, Record, Status, TakeOverKind},
    handler::{HandlerError, error::Verdict},
    message::Message,
    queue::LONGEST_VISIBILITY,
    settle::Held,
    telemetry,
    testing::{Planted, planted},
};

/// How a message sees a record that is in the way of its claim.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) message: &'a Message,
    pub(super) fingerprint: Option<&'a str>,
    pub(super) now: Millis,
    pub(super) skew: Duration,
    pub(super) max_takeovers: u32,
    /// How long the record has been seen unchanged, by local time.
    pub(super) unchanged_for: Duration,
    /// How long our own leases are.
    pub(super) lease: Duration,
    /// The back-off that a parked record gets.
    pub(super) park: Duration,
}

/// What a record that is in the way means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The work took effect before.
    Done,
    /// The work failed for good before, and this is a delivery of the same work.
    Dead,
    /// The record belongs to other work: same key, another payload.
    OtherPayload,
    /// Not now.
    Held { until: Millis, why: Held },
    /// It can be taken over.
    TakeOver(TakeOverKind),
}

impl Found {
    /// As it is counted; a takeover is counted when it has been made.
    pub(super) fn verdict(self) -> Option<telemetry::Verdict> {
        Some(match self {
            Self::Done => telemetry::Verdict::Done,
            Self::Dead => telemetry::Verdict::Dead,
            Self::OtherPayload => telemetry::Verdict::OtherPayload,
            Self::Held { why: Held::BackingOff, .. } => telemetry::Verdict::BackingOff,
            Self::Held { .. } => telemetry::Verdict::Held,
            Self::TakeOver(_) => return None,
        })
    }
}

/// A `lease_until` further ahead than this is not one that a worker of ours has written.
fn is_absurd(lease_until: Millis, view: &View<'_>) -> bool {
    lease_until > view.now + LONGEST_VISIBILITY + view.skew * 2
}

/// Rules G1, G4, G6, G7, G9 and G11.
pub(super) fn found(record: &Record, view: &View<'_>) -> Found {
    if record.is_expired(view.now) {
        return Found::TakeOver(TakeOverKind::Fresh);
    }
    let anew = begins_anew(record, view);
    let differs = |ours: &str| record.fingerprint.as_deref().is_some_and(|theirs| theirs != ours);
    if !anew && view.fingerprint.is_some_and(differs) {
        return Found::OtherPayload;
    }
    match record.status {
        Status::Done => Found::Done,
        Status::Dead if anew => Found::TakeOver(TakeOverKind::Anew),
        Status::Dead => Found::Dead,
        Status::Released => not_yet(record, view).unwrap_or(Found::TakeOver(if anew {
            TakeOverKind::Anew
        } else {
            TakeOverKind::Resume
        })),
        Status::Running | Status::Failed => lapsed(record, view, anew),
    }
}

/// Whether a message is a new beginning on a record of failed work, rather than a duplicate of it (rule G11).
fn begins_anew(record: &Record, view: &View<'_>) -> bool {
    let sent_after = |at: Millis| view.message.sent_at.is_some_and(|sent| sent > at + view.skew);
    match record.status {
        Status::Dead if planted(Planted::DuplicateBeginsAnew) => true,
        Status::Dead => {
            let redriven = view.message.dead_letter.as_ref().map(|note| &note.failure_id);
            redriven.is_some_and(|id| Some(id) == record.failure_id.as_ref()) || record.dead_at.is_some_and(sent_after)
        }
        Status::Released => sent_after(record.updated_at),
        Status::Running => record.lease_until + view.skew <= view.now && sent_after(record.updated_at),
        Status::Failed | Status::Done => false,
    }
}

fn not_yet(record: &Record, view: &View<'_>) -> Option<Found> {
    let until = record.not_before.filter(|at| *at > view.now)?;
    Some(Found::Held { until, why: Held::BackingOff })
}

fn lapsed(record: &Record, view: &View<'_>, anew: bool) -> Found {
    let free_at =
        if planted(Planted::TakeoverWithoutSkew) { record.lease_until } else { record.lease_until + view.skew };
    if free_at > view.now {
        if !is_absurd(record.lease_until, view) {
            return Found::Held { until: free_at, why: Held::Running };
        }
        if view.unchanged_for < view.lease {
            tracing::error!(
                pk = %record.pk, lease_until = %record.lease_until,
                "the record's lease ends further ahead than any lease can: a clock is wrong; taken over if it stays so"
            );
            return Found::Held { until: view.now + view.lease, why: Held::Running };
        }
    }
    if let Some(held) = not_yet(record, view) {
        return held;
    }
    let takeovers = match record.status {
        Status::Failed => record.undo.as_ref().map_or(0, |undo| undo.takeovers),
        _ => record.takeovers,
    };
    // FAILED stays FAILED when it is given back; a time that it had to wait for tells that it was.
    let given_back = record.status == Status::Failed && record.not_before.is_some();
    match takeovers {
        _ if given_back => Found::TakeOver(TakeOverKind::Resume),
        _ if anew => Found::TakeOver(TakeOverKind::Anew),
        n if n == 0 || n >= view.max_takeovers => Found::TakeOver(TakeOverKind::AfterLapse),
        _ => Found::TakeOver(TakeOverKind::Park { not_before: view.now + view.park }),
    }
}

/// Why work that was just claimed is buried instead of run: it has failed for good before, or is past a limit (rule G6).
/// An attempt that may still have run when it was counted could not be buried then.
pub(super) fn spent(claimed: &Record, max_attempts: u32, max_takeovers: u32) -> Option<Failure> {
    let last_error = || claimed.last_error.clone().unwrap_or_else(|| Failure::new("error", "not recorded"));
    if claimed.takeovers > max_takeovers {
        let text = format!("{} workers died or lost their lease while they ran it", claimed.takeovers);
        return Some(Failure::new("takeovers", text));
    }
    let allowed = max_attempts + u32::from(planted(Planted::OneAttemptMore));
    (claimed.failures >= allowed).then(last_error)
}

/// How a run ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The handler returned.
    Returned(Result<(), HandlerError>),
    /// It failed without an answer from where the work was handed over: what was begun there may still run.
    Unanswered(Failure),
    /// Its time budget was used up, and it did not end in the grace either.
    TimedOut { still_running: bool },
    /// It was told to stop because the worker stops or its lease ends, and did not end in the grace.
    Interrupted { still_running: bool },
}

impl Ended {
    /// In words, for the log.
    pub(super) fn told(&self) -> String {
        match self {
            Self::Returned(Ok(())) => "it returned".to_owned(),
            Self::Returned(Err(error)) => format!("{}: {error}", error.code()),
            Self::Unanswered(failure) => format!("{}: {}", failure.code, failure.text),
            Self::TimedOut { .. } => "it ran past its time budget".to_owned(),
            Self::Interrupted { .. } => "it was told to stop".to_owned(),
        }
    }

    /// A run that ran out of time for a reason that is not its own was interrupted.
    pub(super) fn excused(self) -> Self {
        match self {
            Self::TimedOut { still_running } => Self::Interrupted { still_running },
            ended => ended,
        }
    }
}

/// What follows from a run.
#[derive(Debug)]
pub(super) enum Next {
    /// It took effect.
    Confirm,
    /// A failed attempt; again after the back-off, or after what the handler asked for.
    Retry { failure: Failure, delay: Option<Duration> },
    /// It has failed for good.
    Bury(Failure),
    /// No attempt is used: not yet.
    NotYet(Duration),
    /// No attempt is used: what does the work is not there.
    Unavailable(Option<Duration>),
    /// No attempt is used: it was interrupted.
    Interrupted,
    /// What was begun may still run; a timeout counts as an attempt, an interruption does not.
    StillRunning(Option<Failure>),
}

/// What bounds the attempts of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Failed attempts, this one included.
    pub(super) attempt: u32,
    pub(super) max_attempts: u32,
    /// After this delivery SQS gives the message to the dead-letter queue only (rule T6).
    pub(super) is_last: bool,
    /// The absence of its handler is this key's own failure.
    pub(super) own_absence: bool,
}

pub(super) fn next(ended: Ended, limits: Limits) -> Next {
    let allowed = limits.max_attempts + u32::from(planted(Planted::OneAttemptMore));
    let exhausted = limits.attempt >= allowed || limits.is_last;
    let failed = |failure: Failure, delay| {
        if exhausted { Next::Bury(failure) } else { Next::Retry { failure, delay } }
    };
    let timed_out = || Failure::new("timed_out", "the handler ran past its time budget (HANDLER_TIMEOUT)");
    match ended {
        Ended::Returned(Ok(())) => Next::Confirm,
        Ended::Returned(Err(error)) => {
            let failure = Failure::new(error.code(), &error);
            match error.verdict {
                Verdict::Retry(delay) => failed(failure, delay),
                Verdict::Permanent => Next::Bury(failure),
                Verdict::NotYet(delay) if planted(Planted::NotYetCounts) => failed(failure, Some(delay)),
                Verdict::NotYet(delay) => Next::NotYet(delay),
                Verdict::Unavailable(_) if limits.own_absence => {
                    failed(Failure { code: "unavailable".into(), ..failure }, None)
                }
                Verdict::Unavailable(delay) => Next::Unavailable(delay),
                Verdict::Interrupted => Next::Interrupted,
            }
        }
        // A copy would free the key for a redrive while the work may still run: not even on the last attempt.
        Ended::Unanswered(failure) => Next::StillRunning(Some(failure)),
        Ended::TimedOut { still_running: true } => Next::StillRunning(Some(timed_out())),
        Ended::TimedOut { still_running: false } => failed(timed_out(), None),
        Ended::Interrupted { still_running: true } => Next::StillRunning(None),
        Ended::Interrupted { still_running: false } => Next::Interrupted,
    }
}

#[cfg(test)]
mod tests;
