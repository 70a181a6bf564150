//! What tells that something stands still: the whole process, or a poll that does not come back.
//!
//! Looks at clocks only; what follows is for leases and for health to say.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::clock::{Clock, Moment};

/// Notices when the whole process stood still: stopped, suspended, or starved of its processor.
#[derive(Debug)]
pub(super) struct Pulse {
    clock: Clock,
    /// Locked for single look-ups.
    last: Mutex<Moment>,
    stalls: AtomicU64,
    /// The stalls of the last while: when each was noticed, and how long it was. Locked for single looks.
    lately: Mutex<VecDeque<(Instant, Duration)>>,
}

/// For so long a stall is told of.
const LATELY: Duration = Duration::from_secs(60);

/// How often the pulse beats, and the gap between two beats that is a stall.
const PULSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(1500));

impl Pulse {
    pub(super) fn new(clock: Clock) -> Self {
        Self { last: Mutex::new(clock.now()), clock, stalls: AtomicU64::new(0), lately: Mutex::default() }
    }

    /// Beats, for ever.
    pub(super) async fn beat(&self) {
        loop {
            let gap = self.gap();
            if gap > PULSE.1 {
                self.stalls.fetch_add(1, Ordering::Relaxed);
                let mut lately = self.lately();
                lately.retain(|(noticed, _)| noticed.elapsed() < LATELY);
                lately.push_back((Instant::now(), gap));
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

    fn lately(&self) -> MutexGuard<'_, VecDeque<(Instant, Duration)>> {
        self.lately.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For how long tasks have not been run: by the monotonic clock, for a wall clock that is set ahead is no standstill.
    pub(super) fn stands_still_for(&self) -> Duration {
        self.last().instant.elapsed()
    }

    /// The longest stall of the last minute, one that still lasts among them.
    pub(super) fn worst(&self) -> Option<Duration> {
        let lasting = Some(self.stands_still_for()).filter(|gap| *gap > PULSE.1);
        let lately = self.lately();
        let before = lately.iter().filter(|(noticed, _)| noticed.elapsed() < LATELY).map(|(_, gap)| *gap);
        before.chain(lasting).max()
    }

    pub(super) fn stalls(&self) -> u64 {
        self.stalls.load(Ordering::Relaxed)
    }

    /// Whether there was a stall since `stalls` was read, or there is one that the pulse has not yet come round to.
    pub(super) fn stood_still_since(&self, stalls: u64) -> bool {
        self.stalls() != stalls || self.gap() > PULSE.1
    }
}

/// The polls of one queue that are on the wire, and when one last came back.
#[derive(Debug, Default)]
pub(crate) struct Polls(Mutex<OnTheWire>);

#[derive(Debug, Default)]
struct OnTheWire {
    number: u64,
    /// By when each has to be back.
    due: BTreeMap<u64, Instant>,
    back: Option<Instant>,
    /// The latest of those that were answered.
    answered: u64,
    /// What the last one met, if it failed.
    failure: Option<String>,
}

/// A poll is late when it takes so much longer than its wait time: well past every timeout that an adapter has for it.
const LATE: Duration = Duration::from_secs(30);

impl Polls {
    /// Held for single changes.
    fn lock(&self) -> MutexGuard<'_, OnTheWire> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A poll is sent; it is back when what comes back here is dropped.
    pub(super) fn sent(&self, wait: Duration) -> Out<'_> {
        let mut polls = self.lock();
        polls.number += 1;
        let number = polls.number;
        polls.due.insert(number, Instant::now() + wait + LATE);
        Out { polls: self, number }
    }

    /// Why the last poll failed, if it did.
    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// How long ago a poll last came back, whatever it brought.
    pub(super) fn back_since(&self) -> Option<Duration> {
        self.lock().back.map(|back| back.elapsed())
    }

    /// Whether no poll is late.
    pub(super) fn come_back(&self) -> bool {
        let now = Instant::now();
        self.lock().due.values().all(|due| now < *due)
    }
}

/// A poll that is on the wire.
#[derive(Debug)]
pub(super) struct Out<'a> {
    polls: &'a Polls,
    number: u64,
}

impl Out<'_> {
    /// It was answered with messages, or with none.
    pub(super) fn answered(self) {
        let mut polls = self.polls.lock();
        polls.answered = polls.answered.max(self.number);
        polls.failure = None;
    }

    /// It failed: no news if one that was sent after it was answered meanwhile.
    pub(super) fn failed(self, cause: String) {
        let mut polls = self.polls.lock();
        if polls.answered < self.number {
            polls.failure = Some(cause);
        }
    }
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        let mut polls = self.polls.lock();
        polls.due.remove(&self.number);
        polls.back = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn r2_a_machine_that_was_suspended_is_noticed() {
        let clock = Clock::simulated(1, 0);
        let pulse = Pulse::new(clock.clone());
        assert!(!pulse.stood_still_since(0));
        *pulse.last() = clock.skewed(1, -5_000).now();
        assert!(pulse.stood_still_since(0), "also where it was short");
    }

    #[tokio::test(start_paused = true)]
    async fn r4_a_poll_that_does_not_come_back_is_told_and_an_empty_one_is_no_silence() {
        let polls = Polls::default();
        assert_eq!((polls.come_back(), polls.back_since()), (true, None));
        let hangs = polls.sent(Duration::from_secs(10));
        drop(polls.sent(Duration::from_secs(10)));
        tokio::time::advance(Duration::from_secs(39)).await;
        assert_eq!((polls.come_back(), polls.back_since()), (true, Some(Duration::from_secs(39))));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!polls.come_back());
        drop(hangs);
        assert!(polls.come_back());
    }
}
