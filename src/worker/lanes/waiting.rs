//! What a delivery in hand waits for, in place: its next attempt, a slot, a key that another holds, the guard's store.
//!
//! Nothing here settles. A wait ends early with the delivery's lease, and when nothing new is begun any more.

use std::{collections::VecDeque, time::Duration};

use tokio::{
    sync::SemaphorePermit,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Millis,
    config::S3Payload,
    job::Slot,
    message::Delivery,
    settle::{Delayed, Left, Settlement},
    telemetry::Outcome,
    testing::{Planted, planted},
    worker::{hall::Hall, outcome::Told},
};

/// What is this near is waited for in place: a delay would cost a receive and whole seconds.
const SHORT_WAIT: Duration = Duration::from_secs(2);

/// How long deliveries are kept in hand while the guard's store is away, before they are given back (rule G8).
const KEPT_IN_HAND: Duration = Duration::from_secs(5 * 60);

/// Spreads the deliveries that wait for one key; grows with their receive count (rule G7).
const HELD_JITTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

impl Hall {
    /// Lets the head of a group in hand wait in place for its next attempt, with those that stand behind it: given back,
    /// each of them would lose a receive to every attempt of its head (rule T5). `false` when there is no place, or the
    /// wait was cut short. A place that was found is the head's until it is settled, or others would take it on the way
    /// from one attempt to the next.
    pub(super) async fn rest<'a>(
        &'a self,
        head: &Delivery,
        settlement: &Settlement,
        slot: &mut Option<Slot>,
        followers: &VecDeque<Delivery>,
        resting: &mut Option<SemaphorePermit<'a>>,
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
        *resting = resting.take().or_else(|| self.resting.try_acquire().ok());
        let place = if resting.is_none() {
            // What is on its last receive goes to the DLQ without a reason if it is given back.
            let must_stay = followers.iter().any(|follower| follower.is_last);
            let Some(place) = self.places.try_acquire().ok().filter(|_| must_stay) else { return false };
            Some(place)
        } else {
            None
        };
        self.tell_failure(head, until);
        self.give_up(slot, head, until);
        let wait = async {
            sleep(until.since(self.jobs.clock.wall())).await;
            // Others wait for a moment only, and not for the end of a pause.
            drop(place);
            self.may_run_on(head).await;
        };
        let waited = self.unless_cut_short(head, wait).await;
        if waited && matches!(settlement, Settlement::Delay { why: Delayed::Failed, .. }) {
            self.jobs.meters.settled(Outcome::Failed, 1);
        }
        waited
    }

    /// Waits until nothing that is the queue's own speaks against another attempt. The guard's store is asked by the claim.
    async fn may_run_on(&self, head: &Delivery) {
        while let Some(circuit) = self.own_circuits().find(|circuit| circuit.is_open()) {
            self.put_down_its_body(head);
            circuit.closed().await;
        }
    }

    /// What ends a delivery's time in hand before its work is done: the drain; for a last receive the end of the drain, for
    /// it would never come again (rule T6).
    pub(super) fn stop<'a>(&'a self, delivery: &'a Delivery) -> &'a CancellationToken {
        if delivery.is_last { &delivery.term.halt } else { &self.drain }
    }

    pub(super) fn is_near(&self, until: Millis) -> bool {
        until.since(self.jobs.clock.wall()) <= SHORT_WAIT
    }

    pub(super) fn held_jitter(&self, receive_count: u32) -> Duration {
        self.jobs.clock.part_of(HELD_JITTER.0.saturating_mul(receive_count).min(HELD_JITTER.1))
    }

    /// The lane's slot, taken again if it was given up for a wait; `None` when the delivery is not to be begun any more.
    pub(super) async fn take(&self, delivery: &Delivery, slot: &mut Option<Slot>) -> Option<Slot> {
        if slot.is_none() {
            *slot = self.slots.try_take();
        }
        if slot.is_none() {
            self.put_down_its_body(delivery);
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
    pub(super) async fn wait_in_place(&self, delivery: &Delivery, until: Millis, slot: &mut Option<Slot>) -> bool {
        let Ok(_place) = self.places.try_acquire() else { return false };
        self.tell_failure(delivery, until);
        self.give_up(slot, delivery, until);
        self.unless_cut_short(delivery, sleep(until.since(self.jobs.clock.wall()))).await
    }

    /// An attempt that failed is told when its wait begins; the delivery has another outcome yet.
    fn tell_failure(&self, delivery: &Delivery, until: Millis) {
        Told::failed_in_place(&self.jobs.name, delivery, until.since(self.jobs.clock.wall()));
    }

    /// Gives up the slot for a wait; and unless that is short, the body that was fetched, of which there are to be no more in
    /// memory than there are slots.
    fn give_up(&self, slot: &mut Option<Slot>, delivery: &Delivery, until: Millis) {
        slot.take();
        if !self.is_near(until) {
            self.put_down_its_body(delivery);
        }
    }

    /// Lets go of a body that was fetched, for a wait without a slot; it is fetched again. Not where it may be deleted
    /// meanwhile, by a duplicate whose work is done.
    fn put_down_its_body(&self, delivery: &Delivery) {
        if self.jobs.config.s3_payload != S3Payload::FetchDelete {
            delivery.put_down_its_body();
        }
    }

    /// Waits for the guard's store, and keeps the place in the queue: there is nothing else to run in it.
    pub(super) async fn wait_for_the_store(
        &self,
        delivery: &Delivery,
        since: Instant,
        slot: &mut Option<Slot>,
    ) -> bool {
        let rest = slot.take().and_then(Slot::rest);
        self.put_down_its_body(delivery);
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
}
