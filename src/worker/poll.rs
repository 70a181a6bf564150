//! Polling: slots first, then a long poll, then lanes.
//!
//! A poll that was sent is always awaited, whatever happens meanwhile: messages that SQS hands to an aborted one stay
//! hidden for a whole timeout.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, mpsc::UnboundedSender},
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{
    clock::{Clock, Moment},
    config::explain::{WHY_LOWERED, longest_wait},
    lease::{Deadline, Lease},
    message::Delivery,
    queue::{BATCH, LONGEST_VISIBILITY, Receive, Received},
};

use super::lanes::Hall;

/// One lane that is to begin.
pub(super) type Begun = (VecDeque<Delivery>, OwnedSemaphorePermit);

/// At saturation a poller waits this long for more slots to come free, rather than ask for one message at a time.
const GATHER: Duration = Duration::from_millis(100);

/// A lease counts from the reply's arrival less this: the reply took its time to come.
const ALLOWANCE: Duration = Duration::from_millis(500);

/// A poll that took longer than its wait time by this much was not simply a long poll.
const LATE: Duration = Duration::from_secs(1);

/// Kept clear of SQS's 12 hours, for clocks and calls take time.
const CAP_MARGIN: Duration = Duration::from_secs(60);

/// How long a poller waits for the outcome of the work that it brought for a trial.
const TRIAL: Duration = Duration::from_secs(10);

/// An empty answer that came sooner, for there was no wait time, is followed by a pause: idle polling must not spin.
const SHORTEST_POLL: Duration = Duration::from_secs(1);

/// Pauses after failed polls: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(20));

/// Polls until the worker drains.
///
/// # Cancel safety
/// Dropped, what the poll on the wire brings stays hidden for a whole timeout.
pub(super) async fn poll(hall: Arc<Hall>, pulse: Arc<Pulse>, lanes: UnboundedSender<Begun>) {
    let mut failures = 0;
    loop {
        let slots = tokio::select! {
            // No receive is sent once the worker drains; slots that were gathered are given back.
            biased;
            () = hall.drain.cancelled() => return,
            slots = ready(&hall) => slots,
        };
        let ask =
            Receive { max: slots.len(), wait: hall.wait_time, visibility: hall.jobs.visibility, attempt_id: None };
        let sent = hall.jobs.clock.now();
        let stalls = pulse.stalls();
        match hall.desk.queue.receive(&ask).await {
            Ok(received) => {
                failures = 0;
                let start = counted_from(sent, hall.jobs.clock.now(), ask.wait, pulse.stood_still_since(stalls));
                let pause = if received.is_empty() {
                    SHORTEST_POLL.saturating_sub(sent.instant.elapsed())
                } else {
                    Duration::ZERO
                };
                begin(&hall, received, start, slots, &lanes);
                verdict(&hall).await;
                unless_draining(&hall, sleep(pause)).await;
            }
            Err(error) => {
                drop(slots);
                failures += 1;
                let most = RETRY.0.saturating_mul(1 << failures.min(16)).min(RETRY.1);
                let pause = hall.jobs.clock.part_of(most);
                tracing::warn!(queue = &*hall.jobs.name, %error, failures, "the poll failed; again in {pause:?}");
                unless_draining(&hall, sleep(pause)).await;
            }
        }
    }
}

/// A poller that has brought work for a trial waits for its outcome, so that a trickle stays one; but not for ever, for
/// that work may take long, or have been a duplicate that shows nothing.
async fn verdict(hall: &Hall) {
    if let Some(circuit) = hall.on_trial() {
        unless_draining(hall, async { drop(timeout(TRIAL, circuit.tried()).await) }).await;
    }
}

async fn unless_draining(hall: &Hall, pause: impl Future<Output = ()>) {
    tokio::select! {
        // Nothing is lost with a pause.
        biased;
        () = hall.drain.cancelled() => {}
        () = pause => {}
    }
}

/// As asked, or as long as it may be.
pub(super) fn wait_time(name: &str, asked: Duration, visibility: Duration, drain_timeout: Duration) -> Duration {
    let most = longest_wait(visibility, drain_timeout);
    if asked > most {
        tracing::warn!(queue = name, "WAIT_TIME is lowered from {asked:?} to {most:?}: {WHY_LOWERED}");
    }
    asked.min(most)
}

/// Waits until messages may be received and there are slots for them (rule R1).
async fn ready(hall: &Hall) -> Vec<OwnedSemaphorePermit> {
    loop {
        hall.may_receive().await;
        let _turn = hall.gathering.lock().await;
        let wanted = most(hall);
        let mut slots = Vec::with_capacity(wanted);
        let Ok(first) = Arc::clone(&hall.slots).acquire_owned().await else { return slots };
        slots.push(first);
        let gather_until = Instant::now() + GATHER;
        while slots.len() < wanted {
            match timeout_at(gather_until, Arc::clone(&hall.slots).acquire_owned()).await {
                Ok(Ok(slot)) => slots.push(slot),
                Ok(Err(_)) | Err(_) => break,
            }
        }
        // Waiting took time; it may be that nothing should be received by now.
        if most(hall) >= slots.len() && hall.open_circuit().is_none() {
            return slots;
        }
    }
}

/// How many messages a receive may bring at the most.
fn most(hall: &Hall) -> usize {
    if hall.on_trial().is_some() { 1 } else { BATCH.min(hall.jobs.config.concurrency) }
}

/// From when a delivery's lease counts (rule R2): the reply's arrival less an allowance; the sending, if the reply may
/// have lain somewhere meanwhile.
fn counted_from(sent: Moment, arrived: Moment, wait: Duration, stood_still: bool) -> Moment {
    let took = arrived.since(sent);
    if stood_still || took > wait + LATE || took < ALLOWANCE {
        return sent;
    }
    let wall = crate::clock::Millis(arrived.wall.0.saturating_sub(ALLOWANCE.as_millis().try_into().unwrap_or(0)));
    Moment { instant: arrived.instant - ALLOWANCE, wall }
}

/// Makes lanes of what was received: a lane for each message, or on a FIFO queue for each group, in order.
fn begin(
    hall: &Hall,
    received: Vec<Received>,
    start: Moment,
    mut slots: Vec<OwnedSemaphorePermit>,
    lanes: &UnboundedSender<Begun>,
) {
    let mut begun: Vec<(Option<String>, VecDeque<Delivery>)> = Vec::new();
    for received in received {
        let group = received.message.group.clone().filter(|_| hall.fifo);
        let delivery = delivery(hall, received, start);
        match begun.iter_mut().find(|(of, _)| group.is_some() && *of == group) {
            Some((_, lane)) => lane.push_back(delivery),
            None => begun.push((group, VecDeque::from([delivery]))),
        }
    }
    for (_, lane) in begun {
        let Some(slot) = slots.pop() else {
            tracing::error!(
                queue = &*hall.jobs.name,
                "the queue handed out more than was asked for; left to its timeout"
            );
            return;
        };
        // The receiver lives as long as any poller does.
        let _ = lanes.send((lane, slot));
    }
}

fn delivery(hall: &Hall, received: Received, start: Moment) -> Delivery {
    let lease = Lease::new(hall.jobs.clock.clone(), start, hall.jobs.visibility)
        .capped(Deadline::after(start, LONGEST_VISIBILITY - CAP_MARGIN));
    let is_last = hall.max_receive_count.is_some_and(|most| received.message.receive_count >= most);
    Delivery { message: Arc::new(received.message), handle: received.handle, lease, is_last }
}

/// Notices when the whole process stood still: stopped, suspended, or starved of its processor.
#[derive(Debug)]
pub(super) struct Pulse {
    clock: Clock,
    /// Locked for single look-ups.
    last: Mutex<Moment>,
    stalls: AtomicU64,
}

/// How often the pulse beats, and the gap between two beats that is a stall.
const PULSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(1500));

impl Pulse {
    pub(super) fn new(clock: Clock) -> Self {
        Self { last: Mutex::new(clock.now()), clock, stalls: AtomicU64::new(0) }
    }

    /// Beats, for ever.
    pub(super) async fn beat(&self) {
        loop {
            if self.gap() > PULSE.1 {
                self.stalls.fetch_add(1, Ordering::Relaxed);
            }
            *self.last() = self.clock.now();
            sleep(PULSE.0).await;
        }
    }

    fn last(&self) -> MutexGuard<'_, Moment> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gap(&self) -> Duration {
        self.clock.now().since(*self.last())
    }

    fn stalls(&self) -> u64 {
        self.stalls.load(Ordering::Relaxed)
    }

    /// Whether there was a stall since `stalls` was read, or there is one that the pulse has not yet come round to.
    fn stood_still_since(&self, stalls: u64) -> bool {
        self.stalls() != stalls || self.gap() > PULSE.1
    }
}

/// Pollers of one queue: each can have ten messages on the way.
pub(super) fn pollers(concurrency: usize) -> usize {
    /// More add nothing but requests, before polling adapts.
    const MOST: usize = 4;
    concurrency.div_ceil(BATCH).clamp(1, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn r2_a_lease_counts_from_the_sending_where_the_machine_was_suspended_meanwhile() {
        let clock = Clock::simulated(1, 0);
        let sent = clock.now();
        tokio::time::advance(Duration::from_secs(3)).await;
        let wait = Duration::from_secs(10);
        let arrived = clock.now();
        assert_eq!(counted_from(sent, arrived, wait, false).instant, arrived.instant - ALLOWANCE);
        // Suspended: the monotonic clock stood still, the wall clock did not.
        let arrived = clock.skewed(1, 60_000).now();
        assert_eq!(counted_from(sent, arrived, wait, false).instant, sent.instant);
        let pulse = Pulse::new(clock.clone());
        assert!(!pulse.stood_still_since(0));
        *pulse.last() = clock.skewed(1, -5_000).now();
        assert!(pulse.stood_still_since(0), "also where it was short");
    }
}
