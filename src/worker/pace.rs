//! How fast work may begin: `RATE`, counted where messages are received.
//!
//! A poll books starts before it is sent, and what it brings counts when it comes: polls of an empty queue use up
//! nothing, and one that was parked for long brings no more than another. Holds no messages: a queue that is too fast is
//! asked for less.

use std::{
    future::pending,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::config::Rate;

/// So many starts at once are worth a receive, if that is less than a quarter of a second of them.
const PORTIONS_A_SECOND: u32 = 4;

/// A start counts from its poll's sending, if that was this short a while ago: else a slow rate would wait for the network
/// each time.
const ON_THE_WIRE: Duration = Duration::from_millis(100);

/// The pace of one queue.
#[derive(Debug)]
pub(crate) struct Pace {
    interval: Duration,
    /// How many may begin at once after a pause: those of one second.
    burst: u32,
    /// Locked for single look-ups.
    begun: Mutex<Begun>,
    /// Wakes who waits when less is booked.
    returned: Notify,
}

#[derive(Debug)]
struct Begun {
    /// When all that was begun is paid for.
    paid: Instant,
    /// Starts of polls that are on the wire.
    booked: u32,
}

impl Pace {
    pub(super) fn new(rate: Rate) -> Self {
        let interval = rate.interval();
        let in_a_second = Duration::from_secs(1).as_nanos() / interval.as_nanos().max(1);
        let burst = u32::try_from(in_a_second).unwrap_or(u32::MAX).max(1);
        // The first second's burst would come on top of the first second's rate.
        let paid = Instant::now() + interval.saturating_mul(burst - 1);
        Self { interval, burst, begun: Mutex::new(Begun { paid, booked: 0 }), returned: Notify::new() }
    }

    fn begun(&self) -> MutexGuard<'_, Begun> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until so many starts can be booked as are worth a receive of up to `most`. Cancel safe.
    pub(super) async fn ready(&self, most: usize) {
        loop {
            // Listens before it looks, so that no return falls between the two.
            let mut returned = pin!(self.returned.notified());
            returned.as_mut().enable();
            let (free, at) = {
                let begun = self.begun();
                let may_be_unpaid = self.burst.saturating_sub(begun.booked).checked_sub(self.worth(most));
                let at = may_be_unpaid.map(|starts| begun.paid.checked_sub(self.interval.saturating_mul(starts)));
                (self.free(&begun), at)
            };
            if free >= self.worth(most) {
                return;
            }
            let paid = async {
                match at {
                    Some(at) => sleep_until(at.unwrap_or_else(Instant::now)).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                // Either way the loop looks again; neither arm holds anything.
                biased;
                () = returned => {}
                () = paid => {}
            }
        }
    }

    /// Books up to `most` starts, if as many are free as are worth a receive.
    pub(super) fn book(&self, most: usize) -> Option<Booking<'_>> {
        let mut begun = self.begun();
        let free = self.free(&begun);
        if free < self.worth(most) {
            return None;
        }
        let starts = free.min(u32::try_from(most).unwrap_or(u32::MAX));
        begun.booked += starts;
        Some(Booking { pace: self, starts, at: Instant::now() })
    }

    fn worth(&self, most: usize) -> u32 {
        (self.burst / PORTIONS_A_SECOND).clamp(1, u32::try_from(most).unwrap_or(u32::MAX).max(1))
    }

    fn free(&self, begun: &Begun) -> u32 {
        let unpaid = begun.paid.saturating_duration_since(Instant::now());
        let unpaid = unpaid.as_nanos().div_ceil(self.interval.as_nanos().max(1));
        self.burst.saturating_sub(begun.booked).saturating_sub(u32::try_from(unpaid).unwrap_or(u32::MAX))
    }
}

/// Starts that a poll may bring. Dropped, they are free again.
#[derive(Debug)]
pub(super) struct Booking<'a> {
    pace: &'a Pace,
    starts: u32,
    at: Instant,
}

impl Booking<'_> {
    pub(super) fn starts(&self) -> usize {
        self.starts as usize
    }

    /// Lets others have them: the poll may not come back for long. What it brings counts all the same.
    pub(super) fn give_up(&mut self) {
        self.pace.begun().booked -= std::mem::take(&mut self.starts);
        self.pace.returned.notify_waiters();
    }

    /// So many begin now.
    pub(super) fn begin(self, starts: usize) {
        let from = Instant::now().checked_sub(ON_THE_WIRE).map_or(self.at, |from| from.max(self.at));
        let starts = u32::try_from(starts).unwrap_or(u32::MAX);
        let mut begun = self.pace.begun();
        begun.paid = begun.paid.max(from) + self.pace.interval.saturating_mul(starts);
    }
}

impl Drop for Booking<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(rate: &str) -> Pace {
        Pace::new(rate.parse().expect("a rate"))
    }

    async fn book(pace: &Pace, most: usize) -> Booking<'_> {
        loop {
            pace.ready(most).await;
            if let Some(booking) = pace.book(most) {
                return booking;
            }
        }
    }

    /// Begins as many as may begin, and says how many.
    async fn begin(pace: &Pace, most: usize) -> usize {
        let booking = book(pace, most).await;
        let starts = booking.starts();
        booking.begin(starts);
        starts
    }

    /// How many begin in so many seconds, if there is always more.
    async fn begun(pace: &Pace, secs: u64) -> usize {
        let end = Instant::now() + Duration::from_secs(secs);
        let mut begun = 0;
        loop {
            let starts = begin(pace, 10).await;
            if Instant::now() > end {
                return begun;
            }
            begun += starts;
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
        let start = Instant::now();
        assert_eq!((begin(&pace, 10).await, start.elapsed()), (5, Duration::ZERO));
        assert_eq!(begin(&pace, 10).await, 1);
        assert!(start.elapsed() >= Duration::from_millis(200));
    }

    #[tokio::test(start_paused = true)]
    async fn what_did_not_begin_is_given_back() {
        let pace = pace("1");
        let start = Instant::now();
        for _ in 0..100 {
            drop(book(&pace, 10).await);
        }
        assert!(start.elapsed() < Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_rate_books_portions_worth_a_receive() {
        let pace = pace("50");
        begin(&pace, 50).await;
        begin(&pace, 10).await;
        for _ in 0..20 {
            assert!(begin(&pace, 10).await >= 10);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_poll_that_was_parked_brings_no_credit_and_one_that_was_given_up_keeps_nobody_waiting() {
        let pace = pace("5");
        tokio::time::advance(Duration::from_secs(3600)).await;
        let mut parked = book(&pace, 10).await;
        let start = Instant::now();
        tokio::join!(book(&pace, 10), async {
            tokio::time::sleep(Duration::from_secs(9)).await;
            parked.give_up();
        });
        assert_eq!(start.elapsed().as_secs(), 9, "all of them were booked");
        parked.begin(5);
        assert!(pace.book(10).is_none_or(|more| more.starts() == 0), "what was given up counts when it comes");
        assert_eq!((begin(&pace, 10).await, start.elapsed().as_millis()), (1, 9_100));
    }
}
