//! One batch, from its records to those that need not come again.
//!
//! Owns the tasks that work it off and the probes beside them, and has ended all of them when it returns. A lane is a FIFO
//! group of the batch, or a single standard record, as in a worker; but nothing is waited for, and nothing deleted.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tracing::{Instrument as _, Span};

use crate::{
    clock::Millis,
    guard::outage::Circuit,
    job::{Slot, job},
    message::Delivery,
    settle::{Delayed, Held, Landed, Settled, Settlement, settle},
    telemetry::Outcome,
    trace,
    worker::{
        control::LOOK,
        hall::Hall,
        poll::delivery,
        site::Site,
        tending::{tend_queue, tend_store},
    },
};

use super::{record::Record, time::Time};

/// The longest wait for probes that are due, before a batch that an outage would only send back.
const PROBE: Duration = Duration::from_secs(5);

/// How long tasks that are cut off may take to be gone.
const ABORT: Duration = Duration::from_millis(100);

/// What a batch brings of one queue: records, by their places in the batch.
pub(super) struct Share {
    pub(super) hall: Arc<Hall>,
    pub(super) records: Vec<(usize, Record)>,
}

/// One record in hand.
struct InHand {
    /// In its batch.
    place: usize,
    delivery: Delivery,
    /// Of its delivery, once it is its turn.
    span: Option<Span>,
}

/// One batch.
pub(super) struct Batch<'a> {
    site: &'a Site,
    time: Time,
    done: Arc<Done>,
}

/// The places of those records that need not come again. What is not known to be one of them comes again.
#[derive(Debug, Default)]
struct Done(Mutex<BTreeSet<usize>>);

impl Done {
    /// Held for one entry.
    fn places(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Batch<'a> {
    pub(super) fn new(site: &'a Site, time: Time) -> Self {
        Self { site, time, done: Arc::default() }
    }

    /// Works all of it off, or as much as there is time for.
    pub(super) async fn work_off(self, shares: Vec<Share>, heeded: &mut BTreeMap<String, Millis>) -> BTreeSet<usize> {
        let mut tending = JoinSet::new();
        tend_store(self.site, &mut tending);
        let halls: Vec<_> = shares.iter().map(|share| Arc::clone(&share.hall)).collect();
        halls.iter().for_each(|hall| tend_queue(hall, &mut tending));
        self.look(&halls, heeded).await;
        let mut lanes = JoinSet::new();
        // What is cut off is counted too.
        let mut expected = Vec::new();
        // Alone, a record has no other beside it that could be what holds its key.
        let is_alone = shares.iter().map(|share| share.records.len()).sum::<usize>() == 1;
        let turn = if is_alone { Turn::Second } else { Turn::First };
        for Share { hall, records } in shares {
            expected.push((Arc::clone(&hall), hall.jobs.meters.all_settled() + records.len() as u64));
            for lane in self.lanes(&hall, records) {
                // Spans of deliveries are of this invocation's.
                lanes.spawn(work_off(Arc::clone(&hall), lane, Arc::clone(&self.done), turn).in_current_span());
            }
        }
        self.until_answered(lanes).await;
        tending.shutdown().await;
        for (hall, all) in expected {
            let left = all.saturating_sub(hall.jobs.meters.all_settled());
            hall.jobs.meters.settled(Outcome::Left, left);
        }
        mem::take(&mut self.done.places())
    }

    /// Looks whether operators have paused a queue, now and then, and whether what was away is back.
    async fn look(&self, halls: &[Arc<Hall>], heeded: &mut BTreeMap<String, Millis>) {
        let now = self.site.clock.wall();
        let is_due = |hall: &&Arc<Hall>| heeded.get(&*hall.jobs.name).is_none_or(|last| now.since(*last) >= LOOK);
        let due: Vec<_> = halls.iter().filter(is_due).collect();
        heeded.extend(due.iter().map(|hall| (hall.jobs.name.to_string(), now)));
        let words = join_all(due.iter().map(|hall| hall.heed_operators()));
        let probes = halls.iter().flat_map(|hall| hall.circuits()).map(Circuit::probed);
        let until = (Instant::now() + PROBE).min(self.time.halts_at);
        // What could not be looked at stays as it is.
        let _ = timeout_at(until, async { tokio::join!(words, join_all(probes)) }).await;
    }

    /// A lane for each record, or on a FIFO queue for each group, in order.
    fn lanes(&self, hall: &Hall, records: Vec<(usize, Record)>) -> Vec<VecDeque<InHand>> {
        let mut lanes: Vec<(Option<String>, VecDeque<InHand>)> = Vec::new();
        for (place, record) in records {
            let group = record.received.message.group.clone().filter(|_| hall.fifo);
            let (facts, skew) = (hall.facts.as_ref(), self.site.config.clock_skew);
            let lease = self.time.lease(&self.site.clock, facts, record.first_receive, skew);
            let delivery = delivery(hall, record.received, lease, self.time.term.clone());
            let one = InHand { place, delivery, span: None };
            match lanes.iter_mut().find(|(of, _)| group.is_some() && *of == group) {
                Some((_, lane)) => lane.push_back(one),
                None => lanes.push((group, VecDeque::from([one]))),
            }
        }
        lanes.into_iter().map(|(_, lane)| lane).collect()
    }

    /// Until all lanes have ended, or the answer must go out.
    async fn until_answered(&self, mut lanes: JoinSet<Again>) {
        let mut again = Vec::new();
        tokio::select! {
            // What has ended needs no halt. Lanes and what they leave are kept here, and not in the wait.
            biased;
            () = self.ended(&mut lanes, &mut again) => return,
            () = sleep_until(self.time.halts_at) => self.time.term.halt.cancel(),
        }
        if timeout_at(self.time.answers_at, self.ended(&mut lanes, &mut again)).await.is_err() {
            tracing::error!("not everything could be settled in time: what is left comes back at its timeout");
            // One that does not even end now has users' code on its thread.
            let _ = timeout(ABORT, lanes.shutdown()).await;
        }
    }

    /// Waits for all lanes. What another record of the same batch had in hand is looked at once more behind it: most
    /// duplicates come together, and are done by then.
    async fn ended(&self, lanes: &mut JoinSet<Again>, again: &mut Vec<(Arc<Hall>, InHand)>) {
        loop {
            while let Some(ended) = lanes.join_next().await {
                match ended {
                    Ok(one) => again.extend(one),
                    Err(error) => tracing::error!(%error, "a lane died; its messages come back at their timeout"),
                }
            }
            if again.is_empty() {
                return;
            }
            for (hall, one) in again.drain(..) {
                let lane = work_off(hall, VecDeque::from([one]), Arc::clone(&self.done), Turn::Second);
                lanes.spawn(lane.in_current_span());
            }
        }
    }
}

/// What is to be looked at once more.
type Again = Option<(Arc<Hall>, InHand)>;

/// Whether a record may be looked at once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    First,
    Second,
}

/// Works a lane off, as long as each record is done; what stands behind one that is not comes again unrun, in order.
async fn work_off(hall: Arc<Hall>, mut lane: VecDeque<InHand>, done: Arc<Done>, turn: Turn) -> Again {
    let mut slot = None;
    while let Some(InHand { place, delivery, span }) = lane.pop_front() {
        let span = span.unwrap_or_else(|| trace::process(&hall.jobs.name, hall.jobs.at_sqs(), &delivery.message));
        if slot.is_none() {
            slot = delivery.term.halt.run_until_cancelled(hall.slots.take()).await.flatten();
        }
        let settlement = match &slot {
            Some(slot) => run(&hall, &delivery, slot).instrument(span.clone()).await,
            None => hall.given_back(&delivery),
        };
        let is_ours = matches!(settlement, Settlement::Held { why: Held::Running, .. });
        if is_ours && turn == Turn::First && !hall.fifo {
            drop(slot);
            return Some((hall, InHand { place, delivery, span: Some(span) }));
        }
        if !put_down(&hall, delivery, settlement).instrument(span).await {
            break;
        }
        done.places().insert(place);
    }
    drop(slot);
    // Behind the head's delay. They are visible at once, for SQS gives nothing of a group while something before it is
    // hidden, and then gives all of it together.
    join_all(lane.into_iter().map(async |follower| {
        let settlement = hall.given_back(&follower.delivery);
        put_down(&hall, follower.delivery, settlement).await
    }))
    .await;
    None
}

/// Runs a record's job, if there is time for it and nothing is away that it needs, and sends the copy of what has failed for
/// good.
async fn run(hall: &Hall, delivery: &Delivery, slot: &Slot) -> Settlement {
    if delivery.lease.is_over() || !delivery.term.allows_a_begin() {
        return hall.given_back(delivery);
    }
    if hall.open_circuit().is_some() {
        return put_off(hall, delivery, Delayed::Unavailable);
    }
    match job(&hall.jobs, delivery, slot).await {
        Settlement::DeadLetter(dead) => hall.dead_letter(delivery, *dead).await,
        Settlement::Outage => put_off(hall, delivery, Delayed::NoVerdict),
        settlement => settlement,
    }
}

/// Later, for nobody waits here for what is away; the longer, the more often it came.
fn put_off(hall: &Hall, delivery: &Delivery, why: Delayed) -> Settlement {
    let until = hall.jobs.clock.wall() + hall.jobs.backoff(delivery.message.receive_count);
    Settlement::Delay { until, why }
}

/// Settles a record. `true` if it need not come again: the mapping deletes what is not returned.
async fn put_down(hall: &Hall, delivery: Delivery, settlement: Settlement) -> bool {
    let settlement = hall.unless_last(&delivery, settlement);
    let settle = async |delivery: Delivery| match settlement {
        Settlement::Delete(why) => Settled::Deleted(why, Landed::Perhaps),
        settlement => settle(&hall.desk, delivery, settlement).await,
    };
    let settled = hall.settled(delivery, settle).await;
    matches!(settled, Settled::Deleted(..))
}
