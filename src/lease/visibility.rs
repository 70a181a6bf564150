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
        let (p99, seen) = self.times.lock().unwrap_or_else(PoisonError::into_inner).p99();
        (seen > 0).then_some(p99)
    }

    fn follow(&self, times: &mut Times) {
        let (p99, seen) = times.p99();
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
            tracing::info!(
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
    /// The p99 of both windows, and of how many handlers it is.
    fn p99(&self) -> (Duration, u64) {
        let mut both = self.current.clone();
        // Both have the same bounds, so that this cannot fail.
        let _ = both.add(&self.before);
        (Duration::from_millis(both.value_at_quantile(0.99)), both.len())
    }
}

fn histogram() -> Histogram<u64> {
    // Two digits: a hundredth more or less is no other timeout. The bounds are constants that it takes.
    Histogram::new_with_bounds(1, LONGEST, 2).unwrap_or_else(|_| unreachable!("bounds that a histogram takes"))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// What each took in milliseconds, how many they are, and how long nothing is then heard of others.
    fn some_handlers() -> impl Strategy<Value = (u32, u32, u64)> {
        prop_oneof![(0..500_u32, 0..150_u32, 0..1_000_000_u64), (any::<u32>(), 1..4_u32, 0..1_000_000_u64)]
    }

    proptest! {
        #[test]
        fn l3_whatever_handlers_take_it_stays_within_its_range(
            floor in 1..100_u64, more in 0..1_000_u64, own in proptest::option::of(0..50_000_u64),
            times in vec(some_handlers(), 0..8),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime.expect("a runtime").block_on(async {
                let (floor, ceiling) = (secs(floor), secs(floor + more));
                let visibility = Visibility::new("q".into(), floor, ceiling, own.map(secs));
                for (took, handlers, then) in times {
                    (0..handlers).for_each(|_| visibility.took(Duration::from_millis(took.into())));
                    tokio::time::advance(Duration::from_millis(then)).await;
                    assert!((floor..=ceiling).contains(&visibility.in_force()));
                }
            });
        }
    }

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn in_range(floor: u64, ceiling: u64, own: u64) -> Visibility {
        Visibility::new("q".into(), secs(floor), secs(ceiling), Some(secs(own)))
    }

    async fn run(visibility: &Visibility, handlers: u32, each: Duration) -> u64 {
        for _ in 0..handlers {
            visibility.took(each);
        }
        tokio::time::advance(LOOK).await;
        visibility.took(each);
        visibility.in_force().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn l3_it_starts_from_the_queues_own_within_the_range() {
        assert_eq!(in_range(30, 120, 45).in_force(), secs(45));
        assert_eq!(in_range(30, 120, 0).in_force(), secs(30));
        assert_eq!(in_range(30, 120, 43_200).in_force(), secs(120));
        assert_eq!(Visibility::new("q".into(), secs(3), secs(9), None).in_force(), secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn l3_it_follows_twice_the_p99_up_to_the_ceiling() {
        let visibility = in_range(30, 120, 30);
        assert_eq!(run(&visibility, 1_000, Duration::from_millis(20)).await, 30, "the floor");
        // Two in a hundred take 25 s.
        for n in 0..2_000 {
            visibility.took(if n % 50 == 0 { secs(25) } else { Duration::from_millis(20) });
        }
        assert!((50..=52).contains(&run(&visibility, 0, secs(25)).await), "{:?}", visibility.in_force());
        assert_eq!(run(&visibility, 2_000, secs(90)).await, 120, "the ceiling");
    }

    #[tokio::test(start_paused = true)]
    async fn l3_a_handler_that_is_too_slow_is_seen_at_once() {
        let visibility = in_range(30, 120, 30);
        visibility.took(secs(40));
        assert!((79..=82).contains(&visibility.in_force().as_secs()), "{:?}", visibility.in_force());
    }

    #[tokio::test(start_paused = true)]
    async fn l3_one_slow_handler_in_a_thousand_changes_nothing() {
        let visibility = in_range(30, 120, 30);
        run(&visibility, 1_000, Duration::from_millis(20)).await;
        visibility.took(secs(50));
        assert_eq!(run(&visibility, 1_000, Duration::from_millis(20)).await, 30);
    }

    #[tokio::test(start_paused = true)]
    async fn l3_few_handlers_raise_it_and_do_not_lower_it() {
        let visibility = in_range(30, 120, 60);
        assert_eq!(run(&visibility, 20, Duration::from_millis(20)).await, 60);
        assert!((79..=82).contains(&run(&visibility, 0, secs(40)).await), "{:?}", visibility.in_force());
        assert_eq!(run(&visibility, 10_000, Duration::from_millis(20)).await, 30, "now there are enough");
    }

    #[tokio::test(start_paused = true)]
    async fn l3_what_was_slow_once_is_forgotten() {
        let visibility = in_range(30, 120, 30);
        assert_eq!(run(&visibility, 200, secs(60)).await, 120);
        tokio::time::advance(WINDOW).await;
        assert_eq!(run(&visibility, 200, Duration::from_millis(20)).await, 120, "still in the window before");
        tokio::time::advance(WINDOW).await;
        assert_eq!(run(&visibility, 200, Duration::from_millis(20)).await, 30);
    }

    #[tokio::test(start_paused = true)]
    async fn l3_a_fixed_timeout_stays_and_knows_when_it_is_too_short() {
        let visibility = in_range(30, 30, 30);
        // Twice the p99 of these is 30 s, rounded up.
        assert_eq!(run(&visibility, 200, Duration::from_millis(14_900)).await, 30);
        assert!(!visibility.times.lock().expect("not poisoned").told);
        assert_eq!(run(&visibility, 200, secs(16)).await, 30);
        assert!(visibility.times.lock().expect("not poisoned").told);
        assert!(visibility.p99().is_some_and(|p99| (16_000..17_000).contains(&p99.as_millis())));
    }
}
