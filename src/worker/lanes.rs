//! Lanes: the deliveries that are in hand, from their receive to their settlement.
//!
//! A lane is a FIFO group in hand, or a single standard message; it takes one slot. Everything that is in hand is kept
//! by its beat here, whether a job runs it, it waits in place, or it stands behind the head of its group.

use std::{collections::VecDeque, pin::pin, sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, join_all};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    causes::in_full,
    clock::Millis,
    job::{Slot, job},
    lease::{Beat, keep},
    message::{Delivery, Pointer},
    queue::QueueError,
    settle::{self, Delayed, Deleted, Landed, Left, Settled, Settlement, settle},
    testing::{Planted, planted},
};

use super::hall::Hall;

/// What is this near is waited for in place: a delay would cost a receive and whole seconds.
const SHORT_WAIT: Duration = Duration::from_secs(2);

/// How long deliveries are kept in hand while the guard's store is away, before they are given back (rule G8).
const KEPT_IN_HAND: Duration = Duration::from_secs(5 * 60);

/// Spreads the deliveries that wait for one key; grows with their receive count (rule G7).
const HELD_JITTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Works a lane off: one delivery after the other, as long as each frees its group; what stands behind one that does not
/// goes back after it, so that a group keeps its order. Bodies that nobody needs any more come back.
pub(super) async fn lane(hall: Arc<Hall>, mut deliveries: VecDeque<Delivery>, slot: Slot) -> Vec<Pointer> {
    let (mut slot, mut needless) = (Some(slot), Vec::new());
    while let Some(head) = deliveries.pop_front() {
        let (followers, slot, needless) = (&deliveries, &mut slot, &mut needless);
        let work: BoxFuture<'_, bool> = Box::pin(async {
            let settlement = hall.work_off(&head, slot, followers).await;
            let settling = hall.settling.try_acquire();
            if followers.is_empty() && settling.is_ok() {
                slot.take();
            }
            let body_at = head.let_go_of_its_body();
            let settled = hall.settle(head, settlement).await;
            needless.extend(body_at.filter(|_| hall.needs_its_body_no_more(&settled)));
            hall.frees_its_group(&settled)
        });
        let goes_on = followers.iter().fold(work, |work, follower| {
            Box::pin(keep(&follower.lease, Some(hall.tick), |reach| beat(&hall, follower, reach), work))
        });
        if !goes_on.await {
            break;
        }
    }
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
        let mut away_since = None;
        loop {
            if head.lease.is_over() || self.stop(head).is_cancelled() {
                return self.given_back(head);
            }
            let Some(taken) = self.take(head, slot).await else { return self.given_back(head) };
            let settlement = match job(&self.jobs, head, &taken).await {
                Settlement::DeadLetter(dead) => {
                    if dead.is_news(&self.desk.dead_letters, head.message.receive_count) {
                        self.brake.failed(&dead.note.code);
                    }
                    return settle::dead_letter(&self.desk, head, *dead).await;
                }
                settlement => settlement,
            };
            drop(taken);
            let waited = match &settlement {
                Settlement::Outage => {
                    let since = *away_since.get_or_insert_with(Instant::now);
                    self.wait_for_the_store(head, since, slot).await
                }
                Settlement::RetryInPlace { until, .. } => self.wait_in_place(head, *until, slot, &self.places).await,
                Settlement::Held { until, .. } if head.is_last || self.is_near(*until) => {
                    self.wait_in_place(head, *until + self.held_jitter(1), slot, &self.places).await
                }
                settlement if !followers.is_empty() => self.rest(head, settlement, slot, followers).await,
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

    /// Lets the head of a group in hand wait in place for its next attempt, with those that stand behind it: given back,
    /// each of them would lose a receive to every attempt of its head (rule T5). `false` when there is no place, or the
    /// wait was cut short.
    async fn rest(
        &self,
        head: &Delivery,
        settlement: &Settlement,
        slot: &mut Option<Slot>,
        followers: &VecDeque<Delivery>,
    ) -> bool {
        let until = match settlement {
            // Nothing will change in place: its next delivery finds the same, until SQS gives it up.
            Settlement::Delay { why: Delayed::Kept, .. } => return false,
            Settlement::Delay { until, .. } | Settlement::Leave(Left::StillRunning { until }) => *until,
            Settlement::Held { until, .. } => *until + self.held_jitter(1),
            _ => return false,
        };
        if until.since(self.jobs.clock.wall()) >= head.lease.farthest() || planted(Planted::HeadDoesNotRest) {
            return false;
        }
        // What is on its last receive goes to the DLQ without a reason if it is given back.
        let must_stay = followers.iter().any(|follower| follower.is_last);
        let mut places = [Some(&self.resting), must_stay.then_some(&self.places)].into_iter().flatten();
        let Some(_place) = places.find_map(|places| places.try_acquire().ok()) else { return false };
        self.give_up(slot, head, until);
        let wait = async {
            sleep(until.since(self.jobs.clock.wall())).await;
            self.may_run_on().await;
        };
        let waited = self.unless_cut_short(head, wait).await;
        if waited && matches!(settlement, Settlement::Delay { why: Delayed::Failed, .. }) {
            self.tally.count(|report| report.failed += 1);
        }
        waited
    }

    /// Waits until nothing that is the queue's own speaks against another attempt. The guard's store is asked by the claim.
    async fn may_run_on(&self) {
        while let Some(circuit) = self.own_circuits().find(|circuit| circuit.is_open()) {
            circuit.closed().await;
        }
    }

    /// Whether what stands behind may run: the message is gone, or a record tells of its work whenever it comes again.
    fn frees_its_group(&self, settled: &Settled) -> bool {
        match settled {
            Settled::Deleted(_, Landed::Surely) => true,
            Settled::Deleted(_, Landed::Perhaps) => self.remembers() || planted(Planted::UndeletedHeadFreesGroup),
            Settled::Delayed { .. } | Settled::Left(_) | Settled::DeleteDenied => planted(Planted::FollowersRunAhead),
        }
    }

    /// What ends a delivery's time in hand before its work is done: the drain; for a last receive the end of the drain, for
    /// it would never come again (rule T6).
    fn stop(&self, delivery: &Delivery) -> &CancellationToken {
        if delivery.is_last { &self.jobs.halt } else { &self.drain }
    }

    fn is_near(&self, until: Millis) -> bool {
        until.since(self.jobs.clock.wall()) <= SHORT_WAIT
    }

    fn held_jitter(&self, receive_count: u32) -> Duration {
        self.jobs.clock.part_of(HELD_JITTER.0.saturating_mul(receive_count).min(HELD_JITTER.1))
    }

    /// The lane's slot, taken again if it was given up for a wait; `None` when the delivery is not to be begun any more.
    async fn take(&self, delivery: &Delivery, slot: &mut Option<Slot>) -> Option<Slot> {
        if slot.is_none() {
            *slot = self.unless_stopped(delivery, self.slots.take()).await;
        }
        slot.clone()
    }

    async fn unless_stopped(&self, delivery: &Delivery, slot: impl Future<Output = Option<Slot>>) -> Option<Slot> {
        tokio::select! {
            // A slot that comes free for what is not to be begun is of no use; a dropped wait leaves the line.
            biased;
            () = self.stop(delivery).cancelled() => None,
            () = delivery.lease.ends_within(Duration::ZERO) => None,
            slot = slot => slot,
        }
    }

    /// Waits without a slot, but in a place. `false` when there is none, or the wait was cut short.
    async fn wait_in_place(
        &self,
        delivery: &Delivery,
        until: Millis,
        slot: &mut Option<Slot>,
        places: &Semaphore,
    ) -> bool {
        let Ok(_place) = places.try_acquire() else { return false };
        self.give_up(slot, delivery, until);
        self.unless_cut_short(delivery, sleep(until.since(self.jobs.clock.wall()))).await
    }

    /// Gives up the slot for a wait; and unless that is short, the body that was fetched, of which there are to be no more in
    /// memory than there are slots.
    fn give_up(&self, slot: &mut Option<Slot>, delivery: &Delivery, until: Millis) {
        slot.take();
        if !self.is_near(until) {
            delivery.put_down_its_body();
        }
    }

    /// Waits for the guard's store, and keeps the place in the queue: there is nothing else to run in it.
    async fn wait_for_the_store(&self, delivery: &Delivery, since: Instant, slot: &mut Option<Slot>) -> bool {
        let rest = slot.take().and_then(Slot::rest);
        delivery.put_down_its_body();
        let left = KEPT_IN_HAND.saturating_sub(since.elapsed());
        let mut in_time = true;
        let back = async {
            let back = self.jobs.store.closed();
            if delivery.is_last {
                back.await;
            } else {
                in_time = tokio::time::timeout(left, back).await.is_ok();
            }
        };
        let is_back = self.unless_cut_short(delivery, back).await && in_time;
        if let Some(rest) = rest.filter(|_| is_back) {
            *slot = self.unless_stopped(delivery, self.slots.take_again(rest)).await;
        }
        is_back
    }

    async fn unless_cut_short(&self, delivery: &Delivery, wait: impl Future<Output = ()>) -> bool {
        tokio::select! {
            // A wait that is over counts; what is dropped here holds nothing.
            biased;
            () = wait => true,
            () = self.stop(delivery).cancelled() => false,
            () = delivery.lease.ends_within(Duration::ZERO) => false,
        }
    }

    /// What is not to be run now: visible at once, but for a last receive, after which SQS would give the message to the
    /// dead-letter queue without a reason; that one keeps what is left of its timeout.
    fn given_back(&self, delivery: &Delivery) -> Settlement {
        if delivery.lease.is_over() {
            return Settlement::Leave(Left::LeaseOver);
        }
        let until = self.jobs.clock.wall();
        self.unless_last(delivery, Settlement::Delay { until, why: Delayed::Interrupted })
    }

    /// On the last receive nothing is delayed or given back (rule T6).
    fn unless_last(&self, delivery: &Delivery, settlement: Settlement) -> Settlement {
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
                tracing::error!(
                    message_id = %delivery.message.id,
                    "its last receive, and it cannot wait here: SQS moves it to the dead-letter queue without a reason"
                );
                Settlement::Leave(Left::LastReceive)
            }
            settlement => settlement,
        }
    }

    /// Settles and counts.
    async fn settle(&self, delivery: Delivery, settlement: Settlement) -> Settled {
        let (queue, message_id) = (&*self.jobs.name, delivery.message.id.clone());
        let settled = settle(&self.desk, delivery, settlement).await;
        match settled {
            Settled::Deleted(why, _) => {
                tracing::debug!(queue, message_id, ?why, "deleted");
                self.intake.succeeded();
                if why == Deleted::Done {
                    self.brake.succeeded();
                }
            }
            Settled::Delayed { why, wait } => tracing::debug!(queue, message_id, ?why, ?wait, "comes again later"),
            Settled::Left(why @ (Left::ClaimLost | Left::Unwritten)) => {
                tracing::warn!(queue, message_id, ?why, "left to its visibility timeout");
            }
            Settled::Left(why) => tracing::info!(queue, message_id, ?why, "left to its visibility timeout"),
            Settled::DeleteDenied => self.intake.open("sqs:DeleteMessage is denied", None),
        }
        self.tally.count(|report| match settled {
            Settled::Deleted(Deleted::Done, _) => report.done += 1,
            Settled::Deleted(Deleted::Suppressed, _) => report.suppressed += 1,
            Settled::Deleted(Deleted::DeadLettered, _) => report.dead += 1,
            Settled::Deleted(Deleted::Dropped, _) => report.dropped += 1,
            Settled::Delayed { why: Delayed::Failed | Delayed::Kept, .. } => report.failed += 1,
            Settled::Delayed { .. } => report.released += 1,
            Settled::Left(_) | Settled::DeleteDenied => report.left += 1,
        });
        settled
    }
}

/// One beat of a delivery.
async fn beat(hall: &Hall, delivery: &Delivery, reach: Duration) -> Beat {
    let answer = hall.desk.queue.change_visibility(&delivery.handle, Duration::from_secs(reach.as_secs())).await;
    let beat = match &answer {
        Ok(()) => return Beat::Renewed,
        Err(QueueError::HandleLost | QueueError::Missing) => return Beat::Lost,
        Err(QueueError::TwelveHours) => return Beat::Final,
        Err(QueueError::Refused(_)) => Beat::Final,
        Err(_) => Beat::Transient,
    };
    if let Some(error) = answer.err().filter(|_| delivery.lease.fails()) {
        let (queue, message_id, left) = (&*hall.jobs.name, &delivery.message.id, delivery.lease.left());
        let denied = matches!(error, QueueError::Denied(_) | QueueError::Refused(_));
        let error = in_full(&error);
        if denied {
            tracing::error!(queue, message_id, error, ?left, "the visibility timeout cannot be extended");
        } else {
            tracing::warn!(queue, message_id, error, ?left, "the visibility timeout was not extended; tried on");
        }
    }
    beat
}
