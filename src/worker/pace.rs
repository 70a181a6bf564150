//! How fast work may begin: `RATE`, counted where messages are received.
//!
//! What was booked and did not come is given back, so that polls of an empty queue use up nothing. Holds no messages: a
//! queue that is too fast is asked for less.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use crate::config::Rate;

/// So many starts at once are worth a receive, if that is less than a quarter of a second of them.
const PORTIONS_A_SECOND: u32 = 4;

/// The pace of one queue.
#[derive(Debug)]
pub(crate) struct Pace {
    interval: Duration,
    /// How many may begin at once after a pause: those of one second.
    burst: u32,
    /// When all that was begun is paid for. Locked for single look-ups.
    paid: Mutex<Instant>,
}

impl Pace {
    pub(super) fn new(rate: Rate) -> Self {
        let interval = rate.interval();
        let in_a_second = Duration::from_secs(1).as_nanos() / interval.as_nanos().max(1);
        let burst = u32::try_from(in_a_second).unwrap_or(u32::MAX).max(1);
        // The first second's burst would come on top of the first second's rate.
        Self { interval, burst, paid: Mutex::new(Instant::now() + interval.saturating_mul(burst - 1)) }
    }

    fn paid(&self) -> MutexGuard<'_, Instant> {
        self.paid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Books up to `most` starts as soon as a few may begin, and says how many.
    ///
    /// # Cancel safety
    /// Dropped, it has booked nothing.
    pub(super) async fn book(&self, most: usize) -> usize {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let worth = (self.burst / PORTIONS_A_SECOND).clamp(1, most.max(1));
        loop {
            let enough_at = {
                let mut paid = self.paid();
                let now = Instant::now();
                let booked = paid.saturating_duration_since(now);
                let free = self.burst - self.intervals(booked).min(self.burst);
                if free >= worth {
                    let take = free.min(most);
                    *paid = (*paid).max(now) + self.interval * take;
                    return take as usize;
                }
                *paid - self.interval * (self.burst - worth)
            };
            sleep_until(enough_at).await;
        }
    }

    /// These did not begin after all.
    pub(super) fn give_back(&self, starts: usize) {
        let starts = u32::try_from(starts).unwrap_or(u32::MAX);
        let mut paid = self.paid();
        *paid = paid.checked_sub(self.interval.saturating_mul(starts)).unwrap_or(*paid);
    }

    /// How many intervals it takes to pay for that, rounded up.
    fn intervals(&self, booked: Duration) -> u32 {
        let intervals = booked.as_nanos().div_ceil(self.interval.as_nanos().max(1));
        u32::try_from(intervals).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(rate: &str) -> Pace {
        Pace::new(rate.parse().expect("a rate"))
    }

    /// How many begin in so many seconds, if there is always more.
    async fn begun(pace: &Pace, secs: u64) -> usize {
        let end = Instant::now() + Duration::from_secs(secs);
        let mut begun = 0;
        loop {
            let booked = pace.book(10).await;
            if Instant::now() > end {
                pace.give_back(booked);
                return begun;
            }
            begun += booked;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_begin_than_the_rate_says() {
        for (rate, secs, most) in [("50", 10, 500), ("3", 10, 30), ("0.5", 20, 10), ("1", 10, 10)] {
            let pace = pace(rate);
            let begun = begun(&pace, secs).await;
            assert!((most - most / 10..=most + 1).contains(&begun), "{rate}: {begun} in {secs} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_pause_a_second_of_them_may_begin_at_once_and_no_more() {
        let pace = pace("5");
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!((pace.book(10).await, pace.paid().elapsed()), (5, Duration::ZERO));
        let start = Instant::now();
        assert_eq!(pace.book(10).await, 1);
        assert!(start.elapsed() >= Duration::from_millis(200));
    }

    #[tokio::test(start_paused = true)]
    async fn what_did_not_begin_is_given_back() {
        let pace = pace("1");
        let start = Instant::now();
        for _ in 0..100 {
            let booked = pace.book(10).await;
            pace.give_back(booked);
        }
        assert!(start.elapsed() < Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_rate_books_portions_worth_a_receive() {
        let pace = pace("50");
        pace.book(50).await;
        pace.book(10).await;
        for _ in 0..20 {
            assert!(pace.book(10).await >= 10);
        }
    }
}
