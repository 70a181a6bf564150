//! The time of one invocation, and what it is divided into: running, coming to an end, settling, the answer.
//!
//! Reckons from the deadline that Lambda gives. The parts are fixed where there is time for them, and shrink with a function's
//! timeout where there is little: Lambda's default is three seconds.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::{Clock, Millis},
    lease::{Deadline, Lease, Term},
    queue::{LONGEST_VISIBILITY, QueueFacts},
    worker::poll::CAP_MARGIN,
};

/// The answer needs so long at the most: it goes to an address on the same machine.
const ANSWER: Duration = Duration::from_millis(300);

/// What has ended is written, and its visibility is set: a few calls to AWS, and aborting what did not end.
const SETTLE: Duration = Duration::from_millis(1200);

/// Of a short invocation, these parts.
const ANSWER_PART: u32 = 20;
const SETTLE_PART: u32 = 6;
const GRACE_PART: u32 = 6;

/// One invocation's time.
pub(super) struct Time {
    /// Nothing runs from here on but what is coming to its end.
    pub(super) halts_at: Instant,
    /// The answer goes out, whatever is not settled.
    pub(super) answers_at: Instant,
    pub(super) term: Term,
    /// What is left to the deadline at the beginning.
    left: Duration,
}

impl Time {
    pub(super) fn until(deadline: Millis, clock: &Clock, cancel_grace: Duration) -> Self {
        let now = clock.now();
        let left = deadline.since(now.wall);
        let running = left - ANSWER.min(left / ANSWER_PART);
        let grace = cancel_grace.min(left / GRACE_PART);
        let answers_at = now.instant + running;
        let halts_at = answers_at - grace - SETTLE.min(left / SETTLE_PART);
        let term = Term::within(CancellationToken::new(), grace, halts_at, Deadline::after(now, running));
        Self { halts_at, answers_at, term, left }
    }

    /// How long a record stays hidden, as far as is known. When a message was received is only told of its first receive. Of
    /// a later one it is taken to last to the deadline: Lambda lets no function's timeout be longer than its queue's
    /// visibility timeout, and advises six times that.
    /// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html>
    pub(super) fn lease(
        &self,
        clock: &Clock,
        facts: Option<&QueueFacts>,
        first_receive: Option<Millis>,
        skew: Duration,
    ) -> Lease {
        let now = clock.now();
        let hidden = facts.map(|facts| facts.visibility);
        let still = hidden.zip(first_receive).map(|(hidden, at)| hidden.saturating_sub(now.wall.since(at) + skew));
        let length = still.map_or(self.left, |still| still.min(self.left));
        // It was received no longer ago than it can be hidden.
        let cap = LONGEST_VISIBILITY - CAP_MARGIN - hidden.unwrap_or_default().min(LONGEST_VISIBILITY / 2);
        Lease::new(clock.clone(), now, length).capped(Deadline::after(now, cap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(2);

    fn time(clock: &Clock, left: Duration) -> Time {
        Time::until(clock.wall() + left, clock, GRACE)
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_invocation_keeps_back_what_the_end_needs_and_a_short_one_a_part() {
        let (clock, now) = (Clock::simulated(1, 0), Instant::now());
        let long = time(&clock, Duration::from_secs(60));
        assert_eq!(long.answers_at - now, Duration::from_millis(59_700));
        assert_eq!(long.halts_at - now, Duration::from_millis(56_500));
        let short = time(&clock, Duration::from_secs(3));
        assert_eq!(short.answers_at - now, Duration::from_millis(2_850));
        assert_eq!(short.halts_at - now, Duration::from_millis(1_850));
        let none = time(&clock, Duration::ZERO);
        assert_eq!((none.answers_at, none.halts_at), (now, now));
        assert!(!none.term.allows_a_begin());
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_receive_tells_how_long_a_record_stays_hidden() {
        let clock = Clock::simulated(1, 0);
        let time = time(&clock, Duration::from_secs(60));
        let facts = QueueFacts::example("q");
        let lease = |ago: Option<u64>| {
            let at = ago.map(|ago| Millis(clock.wall().0 - ago * 1000));
            time.lease(&clock, Some(&facts), at, Duration::from_secs(2)).left().as_secs()
        };
        assert_eq!((lease(Some(5)), lease(Some(28)), lease(Some(300))), (23, 0, 0), "of thirty seconds");
        assert_eq!(lease(None), 60);
        assert_eq!(time.lease(&clock, None, Some(clock.wall()), GRACE).left(), Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn l7_no_delay_reaches_past_the_twelve_hours() {
        let clock = Clock::simulated(1, 0);
        let facts = QueueFacts { visibility: Duration::from_secs(3600), ..QueueFacts::example("q") };
        let lease = time(&clock, Duration::from_secs(60)).lease(&clock, Some(&facts), None, GRACE);
        assert_eq!(lease.farthest(), Duration::from_secs(11 * 3600 - 60));
    }
}
