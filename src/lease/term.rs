//! How long there is for a delivery, beside what its leases say: as long as the worker stays, or to the end of an invocation.
//!
//! Handed to each delivery as it is received. Reckons, and ends nothing itself; whoever made it cancels its token.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Deadline, Lease};
use crate::clock::{Clock, Moment};

/// How long there is for a delivery.
#[derive(Debug, Clone)]
pub(crate) struct Term {
    /// Cancels what runs: nobody can wait for it any longer.
    pub(crate) halt: CancellationToken,
    /// How long a run may take to come to an end when it is told to.
    pub(crate) grace: Duration,
    /// Where the end is known from the beginning.
    span: Option<Span>,
}

/// The time of one invocation.
#[derive(Debug, Clone, Copy)]
struct Span {
    begun: Instant,
    /// From here on nothing runs but what is coming to its end.
    halts_at: Instant,
    /// By then all is settled.
    settled_by: Deadline,
}

/// A budget ends so long before the halt, lest it be chance which of the two ends a run.
const BEFORE_THE_HALT: Duration = Duration::from_millis(10);

impl Term {
    /// As long as the worker stays, which it does not know.
    pub(crate) fn open(halt: CancellationToken, grace: Duration) -> Self {
        Self { halt, grace, span: None }
    }

    /// From now on: runs to `halts_at`, all settled at `settled_by`.
    #[cfg(any(test, feature = "lambda"))]
    pub(crate) fn within(halt: CancellationToken, grace: Duration, halts_at: Instant, settled_by: Deadline) -> Self {
        Self { halt, grace, span: Some(Span { begun: Instant::now(), halts_at, settled_by }) }
    }

    /// Whether it has an end that is known.
    pub(crate) fn is_bounded(&self) -> bool {
        self.span.is_some()
    }

    /// Whether there is time to begin something.
    #[cfg(any(test, feature = "lambda"))]
    pub(crate) fn allows_a_begin(&self) -> bool {
        /// A run is not begun for less than this part of an invocation, or for less than [`LEAST_RUN`].
        const LEAST_PART: u32 = 10;
        /// Enough for most handlers to come to their end.
        const LEAST_RUN: Duration = Duration::from_secs(1);
        let enough = |span: &Span| {
            let least = (span.halts_at.saturating_duration_since(span.begun) / LEAST_PART).min(LEAST_RUN);
            span.halts_at.saturating_duration_since(Instant::now()) > least
        };
        !self.halt.is_cancelled() && self.span.as_ref().is_none_or(enough)
    }

    /// Whether nothing runs any more but what is coming to its end.
    pub(crate) fn is_over(&self) -> bool {
        self.halt.is_cancelled() || self.span.is_some_and(|span| span.halts_at - BEFORE_THE_HALT <= Instant::now())
    }

    /// The time budget of a run that begins now and may take so long by itself.
    pub(crate) fn budget(&self, allowed: Duration) -> Duration {
        let left = |span: Span| (span.halts_at - BEFORE_THE_HALT).saturating_duration_since(Instant::now());
        self.span.map_or(allowed, |span| allowed.min(left(span)))
    }

    /// Whether a run that used up its budget had less than it is allowed, and less than half of the time that there is for
    /// any: that is not its own failure. One that had more would not come to its end the next time either.
    pub(crate) fn excuses(&self, begun: Instant, allowed: Duration) -> bool {
        self.span.is_some_and(|span| {
            let had = span.halts_at.saturating_duration_since(begun);
            had < allowed && had < span.halts_at.saturating_duration_since(span.begun) / 2
        })
    }

    /// How long a claim is that is sent now: as long as leases are, or to the end.
    pub(crate) fn claim(&self, usual: Duration, sent: Moment) -> Duration {
        self.span.map_or(usual, |span| span.settled_by.left(sent))
    }

    /// The lease of such a claim. It is not renewed beyond the end.
    pub(crate) fn lease(&self, clock: &Clock, sent: Moment, length: Duration) -> Lease {
        let lease = Lease::new(clock.clone(), sent, length);
        match self.span {
            Some(span) => lease.capped(span.settled_by),
            None => lease,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Halts in ten seconds, and is settled two seconds later.
    fn term(clock: &Clock) -> Term {
        let settled_by = Deadline::after(clock.now(), Duration::from_secs(12));
        let halts_at = Instant::now() + Duration::from_secs(10);
        Term::within(CancellationToken::new(), Duration::from_secs(1), halts_at, settled_by)
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_begun_when_little_is_left() {
        let term = term(&Clock::simulated(1, 0));
        assert!(term.allows_a_begin());
        tokio::time::advance(Duration::from_millis(8_999)).await;
        assert!(term.allows_a_begin() && !term.is_over());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!term.allows_a_begin() && !term.is_over());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(term.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn a_budget_ends_before_the_halt_and_what_had_little_time_is_excused() {
        let term = term(&Clock::simulated(1, 0));
        let early = Instant::now();
        assert_eq!(term.budget(MINUTE), Duration::from_millis(9_990));
        assert_eq!(term.budget(Duration::from_secs(3)), Duration::from_secs(3));
        assert!(!term.excuses(early, MINUTE));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(term.budget(MINUTE), Duration::from_millis(3_990));
        assert!(term.excuses(Instant::now(), MINUTE));
        assert!(!term.excuses(Instant::now(), Duration::from_secs(3)), "it had all that it is allowed");
    }

    #[tokio::test(start_paused = true)]
    async fn l1_a_claim_lasts_to_the_end_of_its_invocation_and_is_not_renewed() {
        let clock = Clock::simulated(1, 0);
        let term = term(&clock);
        tokio::time::advance(Duration::from_secs(2)).await;
        let length = term.claim(MINUTE, clock.now());
        assert_eq!(length, Duration::from_secs(10));
        let lease = term.lease(&clock, clock.now(), length);
        tokio::time::advance(Duration::from_secs(7)).await;
        assert!(lease.reach() <= lease.left(), "a beat would win nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_stays_bounds_nothing() {
        let (term, clock) = (Term::open(CancellationToken::new(), MINUTE), Clock::simulated(1, 0));
        assert_eq!((term.budget(MINUTE), term.claim(MINUTE, clock.now())), (MINUTE, MINUTE));
        assert!(!term.excuses(Instant::now(), MINUTE) && !term.is_over() && !term.is_bounded());
        let lease = term.lease(&clock, clock.now(), MINUTE);
        tokio::time::advance(MINUTE / 2).await;
        assert_eq!(lease.reach(), MINUTE);
        term.halt.cancel();
        assert!(term.is_over() && !term.allows_a_begin());
    }
}
