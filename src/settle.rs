//! Settlements: what is to be done with a delivery, and doing it.
//!
//! A `Settlement` is decided elsewhere, by the job or by the worker; here it becomes queue calls. This is the only
//! place that deletes, delays or dead-letters. Nothing here changes a claim: of the guard it knows one write, the mark
//! that a copy has been sent.

use std::{sync::Arc, time::Duration};

use crate::{
    causes::in_full,
    clock::{Clock, Millis, whole_seconds},
    guard::Guard,
    message::Delivery,
    queue::{Queue, QueueError},
    seldom::{Seldom, seldom},
    testing::{Planted, planted},
};

use dead_letter::{DeadLetter, DeadLetters};

pub(crate) mod dead_letter;

/// What is to be done with a delivery.
#[derive(Debug)]
pub(crate) enum Settlement {
    /// Its work is done, or was done before: delete it.
    Delete(Deleted),
    /// Make it visible at that time.
    Delay { until: Millis, why: Delayed },
    /// Its work has failed for good: send a copy, then delete it.
    DeadLetter(Box<DeadLetter>),
    /// Do nothing; it comes back when its visibility timeout ends.
    Leave(Left),
    /// Not to be run before that time, for another runs the key or it is not yet due. Delayed, or waited for in place.
    Held { until: Millis, why: Held },
    /// Run it again at that time, under the same delivery.
    RetryInPlace { until: Millis, why: Delayed },
    /// The guard's store is away and nothing is claimed: keep it in hand for a while.
    Outage,
}

/// Why a delivery is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deleted {
    /// Its work took effect in this run.
    Done,
    /// Its work had taken effect before, or has failed for good and is dead-lettered.
    Suppressed,
    /// A copy is dead-lettered.
    DeadLettered,
    /// It failed for good, and the configuration says to drop such messages.
    Dropped,
}

/// Why a delivery is made visible later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delayed {
    /// The attempt failed.
    Failed,
    /// The handler asked for it.
    NotYet,
    /// What does the work is not there.
    Unavailable,
    /// The run was interrupted, or not begun, because the worker stops or a lease ended.
    Interrupted,
    /// The guard gave no verdict on this key.
    NoVerdict,
    /// Its body is elsewhere, and cannot be had now.
    BodyAway,
    /// Another delivery has the key, or it is not yet due.
    Held,
    /// It failed for good, but no copy of it can be kept elsewhere.
    Kept,
}

/// Why a delivery is left to its visibility timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// The delivery's lease is over: it may be somebody else's by now.
    LeaseOver,
    /// The claim is somebody else's by now.
    ClaimLost,
    /// What was begun may still run until then, and another run must not begin beside it.
    StillRunning { until: Millis },
    /// It was its last receive, and there was no place to wait.
    LastReceive,
    /// What happened could not be written down.
    Unwritten,
}

/// Why a key is not to be run yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// Another owner runs it.
    Running,
    /// It is released, and its back-off has not passed.
    BackingOff,
    /// A run of it in this process ignores its cancellation.
    Stuck,
}

/// What acting on settlements needs.
#[derive(Debug)]
pub(crate) struct Desk {
    /// The queue's name in the configuration.
    pub(crate) name: Arc<str>,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) guard: Option<Arc<dyn Guard>>,
    pub(crate) clock: Clock,
    pub(crate) dead_letters: DeadLetters,
    /// How long a message waits that has failed for good and cannot be copied.
    pub(crate) longest_backoff: Duration,
    /// What an outage would log with each message.
    pub(crate) seldom: Arc<Seldom>,
}

/// Whether a delete took the message away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Landed {
    /// SQS said so, and while the delivery's lease lasted.
    Surely,
    /// SQS did not say so; or it did after the lease's end, when it says so of handles that delete nothing, too.
    Perhaps,
}

/// What became of a delivery.
#[derive(Debug)]
pub(crate) enum Settled {
    /// The message is deleted, as far as SQS tells; what it did not tell of, its next delivery deletes.
    Deleted(Deleted, Landed),
    /// The message will be visible after that while.
    Delayed { why: Delayed, wait: Duration },
    /// The message comes back by itself.
    Left(Left),
    /// The queue does not let us delete: nothing good can come of receiving more. With what it said.
    DeleteDenied(Option<String>),
}

/// Acts on what was decided, after everything that keeps the delivery has ended: no beat is on the wire any more.
///
/// # Cancel safety
/// Dropped, the message is settled or comes back by itself.
pub(crate) async fn settle(desk: &Desk, delivery: Delivery, settlement: Settlement) -> Settled {
    match settlement {
        Settlement::Delete(why) => delete(desk, &delivery, why).await,
        Settlement::Delay { until, why } | Settlement::RetryInPlace { until, why } => {
            delay(desk, &delivery, until, why).await
        }
        Settlement::Held { until, .. } => delay(desk, &delivery, until, Delayed::Held).await,
        Settlement::Outage => delay(desk, &delivery, desk.clock.wall(), Delayed::NoVerdict).await,
        Settlement::Leave(why) => Settled::Left(why),
        // Its copy is sent while the delivery is still kept, by `dead_letter`, which says what remains to be done.
        Settlement::DeadLetter(_) => Settled::Left(Left::Unwritten),
    }
}

/// Always tried, also when the delivery's lease is over: the work is finished, and a delete that is too late is
/// harmless.
async fn delete(desk: &Desk, delivery: &Delivery, why: Deleted) -> Settled {
    match desk.queue.delete(&delivery.handle).await {
        Ok(()) if delivery.lease.is_over() => Settled::Deleted(why, Landed::Perhaps),
        Ok(()) => Settled::Deleted(why, Landed::Surely),
        Err(QueueError::Denied(cause)) => Settled::DeleteDenied(cause.map(|cause| cause.to_string())),
        Err(error) => {
            let (queue, message_id, error) = (&*desk.name, &delivery.message.id, in_full(&error));
            seldom!(
                desk.seldom,
                "not deleted",
                warn,
                queue,
                message_id,
                error,
                "not deleted; the next delivery will be"
            );
            Settled::Deleted(why, Landed::Perhaps)
        }
    }
}

/// Sent once and only while the lease lasts: an old handle can shorten the next owner's timeout (rule L6).
async fn delay(desk: &Desk, delivery: &Delivery, until: Millis, why: Delayed) -> Settled {
    if delivery.lease.is_over() {
        return Settled::Left(Left::LeaseOver);
    }
    // Rounded up, so that nothing comes back too early.
    let wait = whole_seconds(until.since(desk.clock.wall())).min(delivery.lease.farthest());
    match desk.queue.change_visibility(&delivery.handle, wait).await {
        Ok(()) => Settled::Delayed { why, wait },
        Err(error) => {
            let (queue, message_id, error) = (&*desk.name, &delivery.message.id, in_full(&error));
            seldom!(
                desk.seldom,
                "not delayed",
                warn,
                queue,
                message_id,
                error,
                "not delayed; it comes back at its timeout"
            );
            Settled::Left(Left::LeaseOver)
        }
    }
}

/// Sends the copy of a message that has failed for good, marks its record, and says how to settle the original. The
/// delivery must be kept meanwhile.
///
/// The order is rule T3's: record DEAD, copy, mark, delete. A crash between any two of them makes another copy at the
/// most, with the same failure id.
pub(crate) async fn dead_letter(desk: &Desk, delivery: &Delivery, dead: DeadLetter) -> Settlement {
    let kept = |desk: &Desk| Settlement::Delay { until: desk.clock.wall() + desk.longest_backoff, why: Delayed::Kept };
    match &desk.dead_letters {
        DeadLetters::Drop => Settlement::Delete(Deleted::Dropped),
        DeadLetters::Keep => kept(desk),
        DeadLetters::Queue(target) => {
            if planted(Planted::DeadWithoutCopyFlag)
                && let (Some(guard), Some(record)) = (&desk.guard, &dead.record)
            {
                dead_letter::mark_copied(&**guard, desk, record, &dead.note.failure_id).await;
            }
            if let Err(error) = target.send(desk, &delivery.message, &dead.note, &delivery.lease).await {
                // The original is left to the queue's own redrive policy.
                delivery.about().cause = Some(in_full(&error));
                if planted(Planted::DeletedWithoutCopy) {
                    return Settlement::Delete(Deleted::DeadLettered);
                }
                return kept(desk);
            }
            if let (Some(guard), Some(record)) = (&desk.guard, &dead.record) {
                dead_letter::mark_copied(&**guard, desk, record, &dead.note.failure_id).await;
            }
            Settlement::Delete(Deleted::DeadLettered)
        }
    }
}
