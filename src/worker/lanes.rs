//! Lanes: the deliveries that are in hand, from their receive to their settlement.
//!
//! A lane is a FIFO group in hand, or a single standard message; it takes one slot. Everything that is in hand is kept
//! by its beat here, whether a job runs it, it waits in place, or it stands behind the head of its group.

use std::{collections::VecDeque, pin::pin, sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, join_all};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::{
    causes::in_full,
    guard::Failure,
    job::{Slot, job},
    lease::{Beat, keep},
    message::{Delivery, Note, Pointer},
    queue::QueueError,
    seldom::seldom,
    settle::{self, Delayed, Deleted, Landed, Left, Settled, Settlement, dead_letter::DeadLetter, settle},
    telemetry::{LeaseKind, Outcome},
    testing::{Planted, planted},
    trace,
};

use super::{hall::Hall, outcome::Told};

mod waiting;

/// Works a lane off: one delivery after the other, as long as each frees its group; what stands behind one that does not
/// goes back after it, so that a group keeps its order. Bodies that nobody needs any more come back.
pub(super) async fn lane(hall: Arc<Hall>, mut deliveries: VecDeque<Delivery>, slot: Slot) -> Vec<Pointer> {
    let (mut slot, mut needless) = (Some(slot), Vec::new());
    while let Some(head) = deliveries.pop_front() {
        let (followers, slot, needless) = (&deliveries, &mut slot, &mut needless);
        let span = trace::process(&hall.jobs.name, hall.jobs.at_sqs(), &head.message);
        let work = async {
            let settlement = hall.work_off(&head, slot, followers).await;
            let settling = hall.settling.try_acquire();
            if followers.is_empty() && settling.is_ok() {
                slot.take();
            }
            let body_at = head.let_go_of_its_body();
            let settled = hall.settle(head, settlement).await;
            needless.extend(body_at.filter(|_| hall.needs_its_body_no_more(&settled)));
            hall.frees_its_group(&settled)
        };
        let work: BoxFuture<'_, bool> = Box::pin(work.instrument(span));
        let goes_on = followers.iter().fold(work, |work, follower| {
            Box::pin(keep(&follower.lease, Some(hall.tick), |reach| beat(&hall, follower, reach), work))
        });
        if !goes_on.await {
            break;
        }
    }
    slot.take();
    // Together, for one call does for all. Whatever becomes visible first, SQS gives nothing of a group while something
    // before it is hidden.
    join_all(deliveries.into_iter().map(async |follower| {
        if hall.drain.is_cancelled() {
            let polled = pin!(hall.polled.cancelled());
            keep(&follower.lease, Some(hall.tick), |reach| beat(&hall, &follower, reach), polled).await;
        }
        let settlement = hall.given_back(&follower);
        hall.settle(follower, settlement).await
    }))
    .await;
    needless
}

impl Hall {
    /// Keeps a delivery by its beat until it is known how to settle it: runs its job, waits in place where it must, and
    /// sends the copy of what has failed for good.
    async fn work_off(&self, head: &Delivery, slot: &mut Option<Slot>, followers: &VecDeque<Delivery>) -> Settlement {
        let work = async {
            let settlement = self.run_or_wait(head, slot, followers).await;
            if self.drain.is_cancelled() && !matches!(settlement, Settlement::Delete(_)) {
                // For those that are on their last receive, and must still run.
                slot.take();
                self.polled.cancelled().await;
            }
            settlement
        };
        keep(&head.lease, Some(self.tick), |reach| beat(self, head, reach), pin!(work)).await
    }

    async fn run_or_wait(
        &self,
        head: &Delivery,
        slot: &mut Option<Slot>,
        followers: &VecDeque<Delivery>,
    ) -> Settlement {
        let (mut away_since, mut resting) = (None, None);
        loop {
            if head.lease.is_over() || self.stop(head).is_cancelled() {
                return self.given_back(head);
            }
            let Some(taken) = self.take(head, slot).await else { return self.given_back(head) };
            let settlement = match job(&self.jobs, head, &taken).await {
                Settlement::DeadLetter(dead) => return self.dead_letter(head, *dead).await,
                settlement => settlement,
            };
            drop(taken);
            let waited = match &settlement {
                Settlement::Outage => {
                    let since = *away_since.get_or_insert_with(Instant::now);
                    self.wait_for_the_store(head, since, slot).await
                }
                Settlement::RetryInPlace { until, .. } => self.wait_in_place(head, *until, slot).await,
                Settlement::Held { until, .. } if head.is_last || self.is_near(*until) => {
                    self.wait_in_place(head, *until + self.held_jitter(1), slot).await
                }
                settlement if !followers.is_empty() => self.rest(head, settlement, slot, followers, &mut resting).await,
                _ => false,
            };
            if !waited {
                return self.unless_last(head, settlement);
            }
            if !matches!(settlement, Settlement::Outage) {
                away_since = None;
            }
        }
    }

    /// Sends the copy of what has failed for good, and tells of it.
    pub(crate) async fn dead_letter(&self, head: &Delivery, dead: DeadLetter) -> Settlement {
        head.about().buried(&dead.note);
        if dead.is_news(&self.desk.dead_letters, head.message.receive_count) {
            self.brake.failed(&dead.note.code);
        }
        let Note { code, message, pk, failures, .. } = dead.note.clone();
        let settlement = settle::dead_letter(&self.desk, head, dead).instrument(trace::dead_letter()).await;
        let follows = match &settlement {
            Settlement::Delete(Deleted::Dropped) => "dropped",
            Settlement::Delete(_) => "dead-lettered",
            _ => "kept in its queue, for no copy can be made",
        };
        self.jobs.died(&head.message, pk.as_deref(), failures, &Failure { code, text: message }, follows);
        settlement
    }

    /// Whether what stands behind may run: the message is gone, or a record tells of its work whenever it comes again.
    fn frees_its_group(&self, settled: &Settled) -> bool {
        match settled {
            Settled::Deleted(_, Landed::Surely) => true,
            Settled::Deleted(_, Landed::Perhaps) => self.remembers() || planted(Planted::UndeletedHeadFreesGroup),
            Settled::Delayed { .. } | Settled::Left(_) | Settled::DeleteDenied(_) => {
                planted(Planted::FollowersRunAhead)
            }
        }
    }

    /// What is not to be run now: visible at once, but for a last receive, after which SQS would give the message to the
    /// dead-letter queue without a reason; that one keeps what is left of its timeout.
    pub(crate) fn given_back(&self, delivery: &Delivery) -> Settlement {
        if delivery.lease.is_over() {
            return Settlement::Leave(Left::LeaseOver);
        }
        let until = self.jobs.clock.wall();
        self.unless_last(delivery, Settlement::Delay { until, why: Delayed::Interrupted })
    }

    /// On the last receive nothing is delayed or given back (rule T6).
    pub(crate) fn unless_last(&self, delivery: &Delivery, settlement: Settlement) -> Settlement {
        match settlement {
            Settlement::Held { until, why } if !delivery.is_last => {
                let until = until + self.held_jitter(delivery.message.receive_count);
                Settlement::Held { until, why }
            }
            Settlement::Delay { .. }
            | Settlement::RetryInPlace { .. }
            | Settlement::Held { .. }
            | Settlement::Outage
                if delivery.is_last =>
            {
                Settlement::Leave(Left::LastReceive)
            }
            settlement => settlement,
        }
    }

    /// Settles, tells and counts.
    async fn settle(&self, delivery: Delivery, settlement: Settlement) -> Settled {
        self.settled(delivery, |delivery| settle(&self.desk, delivery, settlement)).await
    }

    /// Tells and counts how a delivery is settled.
    pub(crate) async fn settled<F>(&self, delivery: Delivery, settle: impl FnOnce(Delivery) -> F) -> Settled
    where
        F: Future<Output = Settled>,
    {
        let told = Told::of(&self.jobs.name, &delivery);
        if delivery.lease.is_over() {
            self.jobs.meters.lost(LeaseKind::Delivery);
        }
        let settled = settle(delivery).instrument(trace::settle(self.jobs.at_sqs())).await;
        let outcome = Outcome::from(&settled);
        told.settled(&settled, outcome, self.drain.is_cancelled());
        match &settled {
            Settled::Deleted(why, _) => {
                self.intake.succeeded();
                if *why == Deleted::Done {
                    self.brake.succeeded();
                }
            }
            Settled::DeleteDenied(said) => {
                let said = said.as_ref().map(|said| format!(": {said}")).unwrap_or_default();
                let cause = format!(
                    "deletes are denied, and finished messages come back until sqs:DeleteMessage is allowed{said}"
                );
                self.intake.open(&cause, None);
            }
            Settled::Delayed { .. } | Settled::Left(_) => {}
        }
        self.jobs.meters.settled(outcome, 1);
        settled
    }
}

impl From<&Settled> for Outcome {
    fn from(settled: &Settled) -> Self {
        match settled {
            Settled::Deleted(Deleted::Done, _) => Self::Done,
            Settled::Deleted(Deleted::Suppressed, _) => Self::Suppressed,
            Settled::Deleted(Deleted::DeadLettered, _) => Self::DeadLettered,
            Settled::Deleted(Deleted::Dropped, _) => Self::Dropped,
            Settled::Delayed { why, .. } => match why {
                Delayed::Failed => Self::Failed,
                Delayed::NotYet => Self::NotYet,
                Delayed::Unavailable => Self::Unavailable,
                Delayed::Interrupted => Self::Interrupted,
                Delayed::NoVerdict => Self::NoVerdict,
                Delayed::BodyAway => Self::BodyAway,
                Delayed::Held => Self::Held,
                Delayed::Kept => Self::Kept,
            },
            Settled::Left(_) | Settled::DeleteDenied(_) => Self::Left,
        }
    }
}

/// One beat of a delivery.
async fn beat(hall: &Hall, delivery: &Delivery, reach: Duration) -> Beat {
    let late = delivery.lease.is_late();
    let beat = extend(hall, delivery, reach).await;
    hall.jobs.meters.beat(LeaseKind::Delivery, beat.into(), late);
    beat
}

async fn extend(hall: &Hall, delivery: &Delivery, reach: Duration) -> Beat {
    let answer = hall.desk.queue.change_visibility(&delivery.handle, Duration::from_secs(reach.as_secs())).await;
    let beat = match &answer {
        Ok(()) => return Beat::Renewed,
        Err(QueueError::HandleLost | QueueError::Missing) => return Beat::Lost,
        Err(QueueError::TwelveHours) => return Beat::Final,
        Err(QueueError::Refused(_)) => Beat::Final,
        Err(_) => Beat::Transient,
    };
    if let Err(error) = answer {
        delivery.lease.fails();
        let (queue, message_id, left) = (&*hall.jobs.name, &delivery.message.id, delivery.lease.left());
        let denied = matches!(error, QueueError::Denied(_) | QueueError::Refused(_));
        let error = in_full(&error);
        if denied {
            seldom!(
                hall.jobs.seldom,
                "beat denied",
                error,
                queue,
                message_id,
                error,
                ?left,
                "the visibility timeout cannot be extended"
            );
        } else {
            seldom!(
                hall.jobs.seldom,
                "beat",
                warn,
                queue,
                message_id,
                error,
                ?left,
                "the visibility timeout was not extended; tried on"
            );
        }
    }
    beat
}
