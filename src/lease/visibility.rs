//! How long leases are: the visibility timeout in force, which follows what handlers take (rule L3).
//!
//! In a range it is twice the p99 of the last minutes with work, so that ninety-nine of a hundred handlers need no beat;
//! its ceiling bounds what a crash can cost. Decides one number; leases that were given keep the length they began with.

use std::{
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hdrhistogram::Histogram;
use tokio::time::Instant;

use crate::clock::{millis, whole_seconds};

/// The visibility timeout in force of one queue.
#[derive(Debug)]
pub(crate) struct Visibility {
    queue: Arc<str>,
    floor: Duration,
    ceiling: Duration,
    /// Where it starts from, and stays above until enough handlers have run to say better.
    start: Duration,
    /// In whole seconds, as SQS has it. Read by every poll and claim; written with `times` locked.
    in_force: AtomicU64,
    /// Locked for one entry at a time.
    times: Mutex<Times>,
}

/// What handlers took lately, in two windows: what is older than both is forgotten.
#[derive(Debug)]
struct Times {
    current: Histogram<u64>,
    before: Histogram<u64>,
    since: Instant,
    looked_at: Instant,
    /// A fixed timeout is too short for these handlers, and that was told.
    told: bool,
}

/// One window. Two of them are long enough to see rare slow handlers, and short enough to forget a bad hour's.
const WINDOW: Duration = Duration::from_secs(5 * 60);

/// Between two looks at the p99: it is not reckoned for each message.
const LOOK: Duration = Duration::from_secs(1);

/// So few handlers say nothing about the slowest in a hundred: they may raise the timeout, and not lower it.
const ENOUGH: u64 = 100;

/// A change of less than this part of the timeout is none.
const LEAST_CHANGE: u32 = 10;

/// Longer than any handler's lease lasts, in milliseconds.
const LONGEST: u64 = 2 * 12 * 60 * 60 * 1000;

impl Visibility {
    /// Of a queue, within bounds in whole seconds; starts from `own`, the queue's own setting, brought within them.
    pub(crate) fn new(queue: Arc<str>, floor: Duration, ceiling: Duration, own: Option<Duration>) -> Self {
        let start = own.unwrap_or(floor).clamp(floor, ceiling);
        let now = Instant::now();
        Self {
            queue,
            floor,
            ceiling,
            start,
            in_force: AtomicU64::new(start.as_secs()),
            times: Mutex::new(Times {
                current: histogram(),
                before: histogram(),
                since: now,
                looked_at: now,
                told: false,
            }),
        }
    }

    /// For what is received or claimed now.
    pub(crate) fn in_force(&self) -> Duration {
        Duration::from_secs(self.in_force.load(Ordering::Relaxed))
    }

    /// A handler took so long.
    pub(crate) fn took(&self, time: Duration) {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if now.duration_since(times.since) >= WINDOW {
            times.before = mem::replace(&mut times.current, histogram());
            times.since = now;
        }
        let millis = u64::try_from(time.as_millis()).unwrap_or(LONGEST);
        times.current.saturating_record(millis);
        if now.duration_since(times.looked_at) >= LOOK || time > self.in_force() / 2 {
            times.looked_at = now;
            self.follow(&mut times);
        }
    }

    /// The slowest in a hundred handlers of late; `None` before the first.
    pub(crate) fn p99(&self) -> Option<Duration> {
        self.slowest(0.99)
    }

    /// The slower half of handlers of late takes longer than this.
    pub(crate) fn p50(&self) -> Option<Duration> {
        self.slowest(0.5)
    }

    fn slowest(&self, part: f64) -> Option<Duration> {
        let (time, seen) = self.times.lock().unwrap_or_else(PoisonError::into_inner).quantile(part);
        (seen > 0).then_some(time)
    }

    fn follow(&self, times: &mut Times) {
        let (p99, seen) = times.quantile(0.99);
        let wanted = whole_seconds(p99 * 2);
        if self.floor == self.ceiling {
            let short = wanted > self.floor;
            if short && !times.told {
                tracing::warn!(
                    queue = &*self.queue,
                    p99_ms = millis(p99),
                    "VISIBILITY_TIMEOUT is {} s, less than twice the p99 of handlers: many need beats; {} s would fit",
                    self.floor.as_secs(),
                    wanted.as_secs()
                );
            }
            times.told = short;
            return;
        }
        let least = if seen < ENOUGH { self.start.max(self.floor) } else { self.floor };
        let (now, next) = (self.in_force(), wanted.clamp(least, self.ceiling));
        if now.abs_diff(next) > now / LEAST_CHANGE || next == self.ceiling && now != next {
            self.in_force.store(next.as_secs(), Ordering::Relaxed);
            tracing::debug!(
                queue = &*self.queue,
                p99_ms = millis(p99),
                "the visibility timeout is now {} s, and was {} s: it follows twice the p99 of handlers",
                next.as_secs(),
                now.as_secs()
            );
        }
    }
}

impl Times {
    /// A quantile of both windows, and of how many handlers it is.
    fn quantile(&self, part: f64) -> (Duration, u64) {
        let mut both = self.current.clone();
        // Both have the same bounds, so that this cannot fail.
        let _ = both.add(&self.before);
        (Duration::from_millis(both.value_at_quantile(part)), both.len())
    }
}

fn histogram() -> Histogram<u64> {
    // Two digits: a hundredth more or less is no other timeout. The bounds are constants that it takes.
    Histogram::new_with_bounds(1, LONGEST, 2).unwrap_or_else(|_| unreachable!("bounds that a histogram takes"))
}

#[cfg(test)]
mod tests;
