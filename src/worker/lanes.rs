//! Lanes: the deliveries that are in hand, from their receive to their settlement.
//!
//! A lane is a FIFO group in hand, or a single standard message; it takes one slot. Everything that is in hand is kept
//! by its beat here, whether a job runs it, it waits in place, or it stands behind the head of its group.

use std::{collections::VecDeque, pin::pin, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    causes::in_full,
    clock::Millis,
    config::{OutagePolicy, explain::longest_wait},
    guard::outage::Circuit,
    job::{Jobs, Slot, Slots, job},
    lease::{Beat, Tick, keep},
    message::{Delivery, Pointer},
    queue::QueueError,
    settle::{self, Delayed, Deleted, Desk, Left, Settled, Settlement, settle},
};

use super::{Tally, brake::Brake, control::Word, pace::Pace, pulse::Polls};

/// One queue's side of the worker: what all its lanes share.
pub(crate) struct Hall {
    pub(crate) jobs: Jobs,
    pub(crate) desk: Desk,
    pub(crate) fifo: bool,
    /// From this receive on SQS gives a message to nobody but the dead-letter queue.
    pub(crate) max_receive_count: Option<u32>,
    pub(crate) drain_timeout: Duration,
    pub(crate) slots: Slots,
    /// The most messages of one receive: on a full answer there is likely more.
    pub(crate) portion: usize,
    /// The most polls at once.
    pub(crate) pollers: usize,
    pub(crate) polls: Polls,
    pub(crate) pace: Option<Pace>,
    /// Whose turn it is to gather slots: pollers that gather side by side share out what comes free, and then each asks
    /// for a few messages where one could ask for ten.
    pub(crate) gathering: tokio::sync::Mutex<()>,
    /// Deliveries that are being settled without a slot: nothing of theirs runs any more.
    pub(crate) settling: Arc<Semaphore>,
    /// Places for what waits without a slot: half as many as slots, so that waiters never outnumber runs.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) tick: Tick,
    /// Open while the queue denies deletes.
    pub(crate) intake: Arc<Circuit>,
    pub(crate) brake: Brake,
    /// Where operators' word on the queue is; `None` without a table.
    pub(crate) word: Option<Word>,
    /// Open while an operator has paused the queue.
    pub(crate) paused: Arc<Circuit>,
    /// Nothing new is begun.
    pub(crate) drain: CancellationToken,
    /// Every poll has come back: what is given back from now on is not received by ourselves.
    pub(crate) polled: CancellationToken,
    /// The drain's time is over: what is still in hand is cut off.
    pub(crate) gone: CancellationToken,
    pub(crate) tally: Arc<Tally>,
}

/// So many deliveries are settled at once without a slot; more keep theirs, so that a queue that does not answer stops
/// the intake.
pub(crate) const SETTLING: usize = 200;

/// So many messages are let through at once on a trial: of a single one it could be the same again and again that keeps it
/// from succeeding.
const TRIAL: usize = 3;

/// What is this near is waited for in place: a delay would cost a receive and whole seconds.
const SHORT_WAIT: Duration = Duration::from_secs(2);

/// How long deliveries are kept in hand while the guard's store is away, before they are given back (rule G8).
const KEPT_IN_HAND: Duration = Duration::from_secs(5 * 60);

/// Spreads the deliveries that wait for one key; grows with their receive count (rule G7).
const HELD_JITTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Works a lane off: one delivery after the other, as long as each is deleted; what stands behind one that is not goes
/// back after it, so that a group keeps its order. Bodies that nobody needs any more come back.
pub(super) async fn lane(hall: Arc<Hall>, mut deliveries: VecDeque<Delivery>, slot: Slot) -> Vec<Pointer> {
    let (mut slot, mut needless) = (Some(slot), Vec::new());
    while let Some(head) = deliveries.pop_front() {
        let (alone, slot, needless) = (deliveries.is_empty(), &mut slot, &mut needless);
        let work: BoxFuture<'_, bool> = Box::pin(async {
            let settlement = hall.work_off(&head, slot).await;
            let settling = hall.settling.try_acquire();
            if alone && settling.is_ok() {
                slot.take();
            }
            hall.settle(head, settlement, needless).await
        });
        let deleted = deliveries.iter().fold(work, |work, follower| {
            Box::pin(keep(&follower.lease, Some(hall.tick), |reach| beat(&hall, follower, reach), work))
        });
        if !deleted.await {
            break;
        }
    }
    for follower in deliveries {
        let settlement = hall.given_back(&follower);
        hall.settle(follower, settlement, &mut needless).await;
    }
    needless
}

impl Hall {
    /// Keeps a delivery by its beat until it is known how to settle it: runs its job, waits in place where it must, and
    /// sends the copy of what has failed for good.
    async fn work_off(&self, delivery: &Delivery, slot: &mut Option<Slot>) -> Settlement {
        let work = async {
            let settlement = self.run_or_wait(delivery, slot).await;
            if self.drain.is_cancelled() && !matches!(settlement, Settlement::Delete(_)) {
                self.polled.cancelled().await;
            }
            settlement
        };
        keep(&delivery.lease, Some(self.tick), |reach| beat(self, delivery, reach), pin!(work)).await
    }

    async fn run_or_wait(&self, delivery: &Delivery, slot: &mut Option<Slot>) -> Settlement {
        let in_hand_since = Instant::now();
        loop {
            if delivery.lease.is_over() {
                return Settlement::Leave(Left::LeaseOver);
            }
            if self.drain.is_cancelled() {
                return self.given_back(delivery);
            }
            let Some(taken) = self.take(slot).await else { return self.given_back(delivery) };
            let settlement = match job(&self.jobs, delivery, &taken).await {
                Settlement::DeadLetter(dead) => {
                    if dead.is_news(&self.desk.dead_letters, delivery.message.receive_count) {
                        self.brake.failed(&dead.note.code);
                    }
                    return settle::dead_letter(&self.desk, delivery, *dead).await;
                }
                settlement => settlement,
            };
            drop(taken);
            let waited = match &settlement {
                Settlement::Outage => self.wait_for_the_store(delivery, in_hand_since, slot).await,
                Settlement::RetryInPlace { until, .. } => self.wait_in_place(delivery, *until, slot).await,
                Settlement::Held { until, .. } if delivery.is_last || self.is_near(*until) => {
                    self.wait_in_place(delivery, *until + self.held_jitter(1), slot).await
                }
                _ => false,
            };
            if !waited {
                return self.unless_last(delivery, settlement);
            }
        }
    }

    fn is_near(&self, until: Millis) -> bool {
        until.since(self.jobs.clock.wall()) <= SHORT_WAIT
    }

    fn held_jitter(&self, receive_count: u32) -> Duration {
        self.jobs.clock.part_of(HELD_JITTER.0.saturating_mul(receive_count).min(HELD_JITTER.1))
    }

    /// The lane's slot, taken again if it was given up for a wait; `None` when the worker drains.
    async fn take(&self, slot: &mut Option<Slot>) -> Option<Slot> {
        if slot.is_none() {
            *slot = self.unless_draining(self.slots.take()).await;
        }
        slot.clone()
    }

    async fn unless_draining(&self, slot: impl Future<Output = Option<Slot>>) -> Option<Slot> {
        tokio::select! {
            // A slot that comes free while the worker drains is of no use; a dropped wait leaves the line.
            biased;
            () = self.drain.cancelled() => None,
            slot = slot => slot,
        }
    }

    /// Waits without a slot, but in a place. `false` when there is none, or the wait was cut short.
    async fn wait_in_place(&self, delivery: &Delivery, until: Millis, slot: &mut Option<Slot>) -> bool {
        let Ok(_place) = Arc::clone(&self.places).try_acquire_owned() else { return false };
        slot.take();
        self.unless_cut_short(delivery, sleep(until.since(self.jobs.clock.wall()))).await
    }

    /// Waits for the guard's store, and keeps the place in the queue: there is nothing else to run in it.
    async fn wait_for_the_store(&self, delivery: &Delivery, in_hand_since: Instant, slot: &mut Option<Slot>) -> bool {
        let rest = slot.take().and_then(Slot::rest);
        let left = KEPT_IN_HAND.saturating_sub(in_hand_since.elapsed());
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
            *slot = self.unless_draining(self.slots.take_again(rest)).await;
        }
        is_back
    }

    async fn unless_cut_short(&self, delivery: &Delivery, wait: impl Future<Output = ()>) -> bool {
        tokio::select! {
            // A wait that is over counts; what is dropped here holds nothing.
            biased;
            () = wait => true,
            () = self.drain.cancelled() => false,
            () = delivery.lease.ends_within(Duration::ZERO) => false,
        }
    }

    /// What is not to be run now: visible at once, but for a last receive, after which SQS would give the message to the
    /// dead-letter queue without a reason; that one keeps what is left of its timeout.
    fn given_back(&self, delivery: &Delivery) -> Settlement {
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

    /// Settles and counts; `true` if the message is deleted.
    async fn settle(&self, mut delivery: Delivery, settlement: Settlement, needless: &mut Vec<Pointer>) -> bool {
        let (queue, message_id) = (&*self.jobs.name, delivery.message.id.clone());
        let body_at = delivery.let_go_of_its_body();
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
        needless.extend(body_at.filter(|_| self.needs_its_body_no_more(&settled)));
        matches!(settled, Settled::Deleted(..))
    }

    /// Looks at what operators have said of the queue, and does it.
    pub(super) async fn heed_operators(&self) {
        if let Some(word) = &self.word {
            word.heed(self).await;
        }
    }

    /// Waits until nothing speaks against receiving.
    pub(super) async fn may_receive(&self) {
        while let Some(circuit) = self.open_circuit() {
            circuit.closed().await;
        }
    }

    /// What is away, if something is that makes receiving pointless.
    pub(super) fn open_circuit(&self) -> Option<&Circuit> {
        self.circuits().find(|circuit| circuit.is_open())
    }

    /// What is on trial: real work has to show that it is back.
    pub(super) fn on_trial(&self) -> Option<&Circuit> {
        self.circuits().find(|circuit| circuit.is_trial())
    }

    /// All that can pause the queue.
    pub(super) fn circuits(&self) -> impl Iterator<Item = &Circuit> {
        let needs_the_store = self.jobs.guard.is_some() && self.jobs.config.guard_outage == OutagePolicy::Pause;
        let store = needs_the_store.then_some(&self.jobs.store);
        let always = [&self.paused, &self.intake, &self.jobs.there, &self.brake.circuit];
        always.into_iter().chain(store).map(|circuit| &**circuit)
    }

    /// How many messages a receive may bring at the most.
    pub(super) fn most(&self) -> usize {
        if self.on_trial().is_some() { self.portion.min(TRIAL) } else { self.portion }
    }

    /// How long a poll waits: as asked, or as long as it may.
    pub(super) fn wait_time(&self) -> Duration {
        self.jobs.config.wait_time.min(longest_wait(self.jobs.visibility.in_force(), self.drain_timeout))
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
