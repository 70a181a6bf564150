//! The brake: a burst of permanent failures is more likely one bad deploy than so many bad messages.
//!
//! Counts what has failed for good against what succeeded. Past [`BURST`] the queue is received from at a trickle, through
//! a [`Circuit`] that a success closes; what is in hand by then runs on.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    clock::Clock,
    guard::outage::{Circuit, Ends},
};

/// So many messages may fail for good in a row before the brake is on: each success takes one off, and so does a while.
/// Enough for a producer's batch of bad messages, and few enough to read in a dead-letter queue.
pub(super) const BURST: u32 = 20;

/// After so long a failure is no part of a burst any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);

/// The brake of one queue.
#[derive(Debug)]
pub(crate) struct Brake {
    pub(super) circuit: Arc<Circuit>,
    /// Locked for single changes.
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    failures: u32,
    since: Instant,
}

impl Brake {
    pub(super) fn new(queue: &str, clock: Clock) -> Self {
        let circuit = Circuit::new(format!("the brake of {queue}"), Ends::WorkOrResume, clock);
        let level = Mutex::new(Level { failures: 0, since: Instant::now() });
        Self { circuit: Arc::new(circuit), level }
    }

    fn level(&self) -> MutexGuard<'_, Level> {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let forgotten = level.since.elapsed().as_millis() / FORGOTTEN_AFTER.as_millis();
        if forgotten > 0 {
            level.failures = level.failures.saturating_sub(u32::try_from(forgotten).unwrap_or(u32::MAX));
            level.since = Instant::now();
        }
        level
    }

    /// A message has failed for good.
    pub(super) fn failed(&self, code: &str) {
        let burst = {
            let mut level = self.level();
            level.failures = (level.failures + 1).min(BURST);
            level.failures == BURST
        };
        // However long the trickle lasted: what it let through has failed too.
        if burst || self.circuit.is_trial() {
            let cause = format!("{BURST} messages have failed for good with hardly a success, the last with {code:?}");
            self.circuit.open(&cause, None);
        }
    }

    /// A message took effect.
    pub(super) fn succeeded(&self) {
        let mut level = self.level();
        level.failures = level.failures.saturating_sub(1);
        drop(level);
        self.circuit.succeeded();
    }

    /// An operator's word that all is well again.
    pub(super) fn release(&self) {
        self.level().failures = 0;
        self.circuit.resume();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brake() -> Brake {
        Brake::new("q", Clock::simulated(1, 0))
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_permanent_failures_puts_it_on_and_an_operator_releases_it() {
        let brake = brake();
        for _ in 1..BURST {
            brake.failed("x");
        }
        assert!(!brake.circuit.is_open());
        brake.failed("x");
        assert!(brake.circuit.told().is_some_and(|told| told.ends.contains("resume") && told.cause.contains("\"x\"")));
        brake.release();
        assert!(!brake.circuit.is_open());
        brake.failed("x");
        assert!(!brake.circuit.is_open(), "it counts from the beginning");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_among_more_successes_and_a_few_a_minute_do_not_put_it_on() {
        let brake = brake();
        for _ in 0..100 {
            brake.failed("x");
            brake.succeeded();
        }
        for _ in 0..100 {
            brake.failed("x");
            tokio::time::advance(FORGOTTEN_AFTER).await;
        }
        assert!(!brake.circuit.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_ends_it_but_the_next_failure_puts_it_on_again() {
        let brake = brake();
        (0..BURST).for_each(|_| brake.failed("x"));
        let tend = brake.circuit.tend(false, || async { Ok(()) });
        tokio::select! { biased; () = tend => {}, () = brake.circuit.closed() => {} }
        assert!(brake.circuit.is_trial());
        brake.succeeded();
        assert!(!brake.circuit.is_trial());
        brake.failed("x");
        assert!(brake.circuit.is_open(), "most still fail");
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_that_fails_puts_it_on_again_however_long_that_took() {
        let brake = brake();
        (0..BURST).for_each(|_| brake.failed("x"));
        let tend = brake.circuit.tend(false, || async { Ok(()) });
        tokio::select! { biased; () = tend => {}, () = brake.circuit.closed() => {} }
        tokio::time::advance(FORGOTTEN_AFTER * BURST).await;
        assert!(brake.circuit.is_trial());
        brake.failed("x");
        assert!(brake.circuit.is_open());
    }
}
