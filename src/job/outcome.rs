//! What came of a run: written into the record first, then told as a settlement.
//!
//! Every write here says what has happened and must not be lost, so it is insisted on. A claim that is lost by then is
//! somebody else's to settle.

use std::time::Duration;

use super::{
    Jobs,
    decide::{Ended, Next},
};
use crate::{
    causes::in_full,
    clock::Millis,
    guard::{
        Failure, GuardError, Record, Status, UndoAnswer, Undoing,
        execution::{ExecutionLease, Failed, Owned, Progress},
        outage::LONGEST_WORD,
    },
    key::sha256,
    lease::Lease,
    message::{Delivery, Message},
    queue::LONGEST_VISIBILITY,
    settle::{
        Delayed, Deleted, Left, Settlement,
        dead_letter::{DeadLetter, INCOMPLETE, Note},
    },
    testing::{Planted, planted},
};

/// How a run ended, seen together with what it committed (rule G12): what is committed is done, however the run ends, and
/// what may be is never confirmed without its writes.
pub(super) fn with_commit(claim: &ExecutionLease, ended: Ended) -> Ended {
    match (claim.commit_progress(), ended) {
        (Progress::Made, Ended::Returned(Ok(()))) => Ended::Returned(Ok(())),
        (Progress::Made, ended) => {
            let (queue, how) = (&claim.claimed.source.queue, ended.told());
            tracing::warn!(queue, pk = %claim.pk, how, "the run ended otherwise after its work was committed, which is done");
            Ended::Returned(Ok(()))
        }
        (Progress::Unknown, Ended::Returned(Ok(()))) => Ended::Interrupted { still_running: false },
        // The store used up the run's time.
        (Progress::Unknown, ended) => ended.excused(),
        (Progress::Open, ended) => ended,
    }
}

/// Records that the work took effect, if that is not recorded yet.
pub(super) async fn confirm(delivery: &Delivery, claim: &ExecutionLease) -> Settlement {
    if claim.commit_progress() == Progress::Made || planted(Planted::ConfirmAfterDelete) {
        return Settlement::Delete(Deleted::Done);
    }
    match claim.insist(&claim.confirmation()).await {
        Ok(Owned::Applied | Owned::Done) => Settlement::Delete(Deleted::Done),
        Ok(Owned::Lost(record)) => {
            delivery.about().cause =
                Some("another worker had taken over when the work ended: what it recorded counts".into());
            let done = record.is_some_and(|record| record.status == Status::Done);
            if done { Settlement::Delete(Deleted::Suppressed) } else { Settlement::Leave(Left::ClaimLost) }
        }
        Err(error) => unwritten(delivery, &error),
    }
}

/// Records that the work has failed for good; the copy follows (rule T3).
pub(super) async fn bury(
    jobs: &Jobs,
    delivery: &Delivery,
    claim: &ExecutionLease,
    failed: &Failed,
    undo: Option<Undoing>,
) -> Settlement {
    match claim.insist(&claim.burial(failed, undo.clone(), jobs.config.done_ttl)).await {
        Ok(Owned::Applied) => {
            let record = Record {
                failures: failed.failures,
                last_error: Some(failed.failure.clone()),
                failure_id: Some(failed.id.clone()),
                undo,
                ..claim.claimed.clone()
            };
            jobs.dead_letter(&delivery.message, &record, claim.last_step(), true)
        }
        answer => otherwise(delivery, answer),
    }
}

/// What follows from a write that was not applied.
pub(super) fn otherwise(delivery: &Delivery, answer: Result<Owned, GuardError>) -> Settlement {
    match answer {
        Ok(Owned::Applied | Owned::Done) => Settlement::Delete(Deleted::Done),
        Ok(Owned::Lost(_)) => Settlement::Leave(Left::ClaimLost),
        Err(error) => unwritten(delivery, &error),
    }
}

/// A run that did not take effect and has not failed for good: what the record says of it, and how the message comes
/// again.
#[derive(Debug)]
pub(super) struct Again {
    /// Why the attempt failed, if it counts as one.
    pub(super) failure: Option<Failure>,
    pub(super) not_before: Option<Millis>,
    pub(super) settlement: Settlement,
}

/// Gives the claim back, and says when the message is to come again.
pub(super) async fn give_back(
    jobs: &Jobs,
    delivery: &Delivery,
    claim: &ExecutionLease,
    next: Next,
    attempt: u32,
) -> Settlement {
    let again = jobs.again(delivery, &claim.lease, next, attempt);
    match claim.insist(&claim.release(again.not_before, again.failure.clone())).await {
        Ok(Owned::Applied) => {
            if let Some(why) = again.failure {
                jobs.attempt_failed(delivery, &claim.pk.0, attempt, &why, &again.settlement);
            }
            again.settlement
        }
        answer => otherwise(delivery, answer),
    }
}

/// What came of the run cannot be recorded; the next delivery finds its steps.
fn unwritten(delivery: &Delivery, error: &GuardError) -> Settlement {
    delivery.about().cause = Some(in_full(error));
    Settlement::Leave(Left::Unwritten)
}

impl Jobs {
    /// When the message of a run comes again; `lease` is the one that allowed the run.
    pub(super) fn again(&self, delivery: &Delivery, lease: &Lease, next: Next, attempt: u32) -> Again {
        let now = self.clock.wall();
        let (failure, wait, why) = match next {
            Next::Retry { failure, delay } => {
                (Some(failure), delay.unwrap_or_else(|| self.backoff(attempt)), Delayed::Failed)
            }
            Next::NotYet(delay) => (None, delay, Delayed::NotYet),
            Next::StillRunning(failure) if !planted(Planted::ReleaseOfRunning) => {
                let free = lease.end().unwrap_or(now).max(now) + self.clock_skew;
                return Again { failure, not_before: Some(free), settlement: after_what_still_runs(delivery, free) };
            }
            // The key is free: what was in the way was not the key's.
            Next::Unavailable(delay) => {
                let wait = delay.map_or_else(|| self.backoff(1), |asked| asked.min(LONGEST_WORD));
                let settlement = later(delivery, now + wait, Delayed::Unavailable);
                return Again { failure: None, not_before: None, settlement };
            }
            Next::Interrupted | Next::StillRunning(_) | Next::Confirm | Next::Bury(_) => {
                let settlement = later(delivery, self.after_an_interruption(delivery), Delayed::Interrupted);
                return Again { failure: None, not_before: None, settlement };
            }
        };
        let until = now + possible(wait);
        Again { failure, not_before: Some(until), settlement: later(delivery, until, why) }
    }

    pub(crate) fn backoff(&self, n: u32) -> Duration {
        let (base, cap) = (self.config.backoff.base, self.config.backoff.cap);
        self.clock.backoff((base, cap), n)
    }

    /// At once when this worker stops or its invocation ends, for others are there. Else what interrupted the run (a store that is slow or does
    /// not renew) is likely to meet the next one too, and each costs a receive.
    fn after_an_interruption(&self, delivery: &Delivery) -> Millis {
        let wait = if delivery.term.is_over() { Duration::ZERO } else { self.backoff(1) };
        self.clock.wall() + wait
    }

    fn note(&self, message: &Message, failure: Failure, failure_id: String) -> Note {
        Note::new(failure, failure_id, &self.name, message, self.clock.wall())
    }

    /// Work without a record has failed for good: malformed, without a key, another payload, or without a guard.
    pub(super) fn unrecorded(&self, message: &Message, failure: Failure) -> Settlement {
        let id = failure_id(&[&self.name, &message.id]);
        let note = self.note(message, failure, id);
        Settlement::DeadLetter(Box::new(DeadLetter { note, record: None, failed_now: true }))
    }

    /// A record says that its work has failed for good, and its copy is not known to be sent.
    pub(super) fn dead_letter(
        &self,
        message: &Message,
        record: &Record,
        step: Option<String>,
        failed_now: bool,
    ) -> Settlement {
        let mut failure = record.last_error.clone().unwrap_or_else(|| Failure::new("error", "not recorded"));
        if record.undo.as_ref().is_some_and(|undo| undo.answer.is_none()) {
            failure = Failure::new("undo_incomplete", format!("{}: {}", failure.code, failure.text));
        }
        let mut note = self.note(message, failure, record.failure_id.clone().unwrap_or_default());
        note.failures = record.failures;
        note.takeovers = record.takeovers;
        note.fence = record.fence.0;
        note.pk = Some(record.pk.0.clone());
        note.step = step;
        note.undo = record.undo.as_ref().map(|undo| undo.answer.map_or(INCOMPLETE, UndoAnswer::as_str).to_owned());
        Settlement::DeadLetter(Box::new(DeadLetter { note, record: Some(record.pk.clone()), failed_now }))
    }
}

/// A delay as SQS can give it.
fn possible(asked: Duration) -> Duration {
    asked.min(LONGEST_VISIBILITY)
}

/// Again at that time: through visibility, or on the last receive in place, for a delayed message would go to the
/// dead-letter queue without a word of ours (rule T6).
pub(super) fn later(delivery: &Delivery, until: Millis, why: Delayed) -> Settlement {
    if delivery.is_last { Settlement::RetryInPlace { until, why } } else { Settlement::Delay { until, why } }
}

/// What was begun may still run until `free`: not given back, so that nobody runs it beside (rule D2); but a last receive
/// must not run out.
fn after_what_still_runs(delivery: &Delivery, free: Millis) -> Settlement {
    if delivery.is_last {
        later(delivery, free, Delayed::Interrupted)
    } else {
        Settlement::Leave(Left::StillRunning { until: free })
    }
}

/// Names one failure for good. Parts are counted, so that different parts never become one text.
pub(super) fn failure_id(parts: &[&str]) -> String {
    let mut id = sha256(parts.iter().flat_map(|part| [part.len().to_be_bytes().to_vec(), part.as_bytes().to_vec()]));
    id.truncate(32);
    id
}
