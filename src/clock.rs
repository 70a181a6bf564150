//! Time and chance: the two things a run cannot repeat, behind one seam.
//!
//! Monotonic time is [`tokio::time::Instant`] everywhere, so that tests can pause it. The wall clock and all random
//! numbers come from a [`Clock`], which a simulation seeds and skews. Nothing else in the crate reads either.

use std::{
    fmt,
    ops::Add,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::time::Instant;

/// A moment on the wall clock, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// How long after `earlier` this is; zero if it is before it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// As people read it, to the second: `2026-11-29T21:44:10Z`. What is too far away for that is told in milliseconds.
    #[must_use]
    pub fn utc(self) -> String {
        let seconds = i64::try_from(self.0 / 1000).unwrap_or(i64::MAX);
        let moment = OffsetDateTime::from_unix_timestamp(seconds).ok().and_then(|moment| moment.format(&Rfc3339).ok());
        moment.unwrap_or_else(|| format!("{self} ms"))
    }

    /// From what AWS writes: `2026-11-29T21:44:10.655Z`. `None` for anything else, and for what was before 1970.
    #[must_use]
    pub(crate) fn from_rfc_3339(text: &str) -> Option<Self> {
        let moment = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        u64::try_from(moment.unix_timestamp_nanos() / 1_000_000).ok().map(Self)
    }

    /// The same moment in whole seconds, rounded up: what DynamoDB's TTL reads.
    #[must_use]
    pub fn seconds(self) -> Seconds {
        Seconds(self.0.div_ceil(1000))
    }
}

impl Add<Duration> for Millis {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(millis(by)))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A moment on the wall clock, in seconds since the Unix epoch. A type of its own, because DynamoDB's TTL silently
/// keeps an item for ever if it is given milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seconds(pub u64);

impl Seconds {
    /// Whether this moment has passed at `now`.
    #[must_use]
    pub fn is_past(self, now: Millis) -> bool {
        self.0.saturating_mul(1000) <= now.0
    }
}

/// In whole milliseconds, as records and reports have it.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// In whole seconds, as SQS has it, and no shorter.
pub(crate) fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

/// One moment, read on both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// On the monotonic clock, which stands still while the machine is suspended.
    pub instant: Instant,
    /// On the wall clock, which can be set.
    pub wall: Millis,
}

impl Moment {
    /// How long after `earlier` this is, by whichever clock has seen more of it: a suspended machine's monotonic clock has
    /// seen nothing.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.instant.saturating_duration_since(earlier.instant).max(self.wall.since(earlier.wall))
    }
}

/// A worker's wall clock and its source of random numbers. Clones share both.
#[derive(Clone)]
pub struct Clock {
    wall: Wall,
    chance: Arc<Mutex<fastrand::Rng>>,
}

#[derive(Debug, Clone, Copy)]
enum Wall {
    System,
    Simulated { origin: Instant, at_origin: Millis },
}

/// Where simulated wall clocks begin: an arbitrary moment that looks like a real one in a trace.
const SIMULATED_EPOCH: Millis = Millis(1_800_000_000_000);

impl Clock {
    /// The machine's own clock and randomness.
    #[must_use]
    pub fn system() -> Self {
        Self { wall: Wall::System, chance: Arc::new(Mutex::new(fastrand::Rng::new())) }
    }

    /// A clock that follows tokio's (paused) time from now on, `ahead` of the others by a skew in milliseconds, with
    /// random numbers that repeat for the same seed. Each begins at the same moment whenever it is made: workers that
    /// are made later need one that is [skewed](Self::skewed) from the first. Must be called inside a runtime.
    #[must_use]
    pub fn simulated(seed: u64, ahead: i64) -> Self {
        let at_origin = Millis(SIMULATED_EPOCH.0.saturating_add_signed(ahead));
        let wall = Wall::Simulated { origin: Instant::now(), at_origin };
        Self { wall, chance: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))) }
    }

    /// The same time as this clock's, `ahead` of it by a skew in milliseconds, with random numbers of its own.
    #[must_use]
    pub fn skewed(&self, seed: u64, ahead: i64) -> Self {
        let wall = match self.wall {
            Wall::System => Wall::System,
            Wall::Simulated { origin, at_origin } => {
                Wall::Simulated { origin, at_origin: Millis(at_origin.0.saturating_add_signed(ahead)) }
            }
        };
        Self { wall, chance: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))) }
    }

    /// What the wall clock shows.
    #[must_use]
    pub fn wall(&self) -> Millis {
        match self.wall {
            Wall::Simulated { origin, at_origin } => at_origin + origin.elapsed(),
            Wall::System => {
                #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
                let now = SystemTime::now();
                Millis(0) + now.duration_since(UNIX_EPOCH).unwrap_or_default()
            }
        }
    }

    /// This moment on both clocks.
    #[must_use]
    pub fn now(&self) -> Moment {
        Moment { instant: Instant::now(), wall: self.wall() }
    }

    /// A random part of `most`, for jitter: from zero up to it, in whole milliseconds.
    #[must_use]
    pub fn part_of(&self, most: Duration) -> Duration {
        let most = millis(most);
        Duration::from_millis(self.with_chance(|chance| chance.u64(0..=most)))
    }

    /// The pause before the `n`-th repetition, from 1: see [`backoff`].
    pub(crate) fn backoff(&self, (first, longest): (Duration, Duration), n: u32) -> Duration {
        backoff(first, longest, n, |most| self.part_of(most))
    }

    /// A random token of 128 bits, as 32 hexadecimal digits.
    #[must_use]
    pub fn token(&self) -> String {
        self.with_chance(|chance| format!("{:032x}", chance.u128(..)))
    }

    /// The lock is held for one straight line and never across an await; a panic cannot leave a generator half-changed.
    fn with_chance<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.chance.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The `n`-th of pauses that double from the base, capped, with jitter on the upper half (rule T2). `part` draws the
/// jitter.
pub(crate) fn backoff(base: Duration, cap: Duration, n: u32, part: impl FnOnce(Duration) -> Duration) -> Duration {
    let doubled = 1_u32.checked_shl(n.saturating_sub(1)).unwrap_or(u32::MAX);
    let full = base.saturating_mul(doubled).min(cap);
    full / 2 + part(full / 2)
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("wall", &self.wall).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any that a setting, a header or a handler can come up with, and what borders on them.
    fn any_duration() -> impl Strategy<Value = Duration> {
        prop_oneof![
            (0..100_000_u64).prop_map(Duration::from_millis),
            any::<u64>().prop_map(Duration::from_millis),
            (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
            Just(Duration::MAX),
        ]
    }

    proptest! {
        #[test]
        fn t2_no_bounds_and_no_attempt_number_take_a_back_off_out_of_its_range(
            base in any_duration(), cap in any_duration(), n in prop_oneof![0..70_u32, any::<u32>()], seed: u64,
        ) {
            let chance = Mutex::new(fastrand::Rng::with_seed(seed));
            let clock = Clock { wall: Wall::System, chance: Arc::new(chance) };
            let full = backoff(base, cap, n, |most| most);
            prop_assert!(full <= cap && full + Duration::from_nanos(1) >= base.min(cap), "{full:?}");
            prop_assert!(backoff(base, cap, n.saturating_add(1), |most| most) >= full);
            let wait = clock.backoff((base, cap), n);
            prop_assert!(full / 2 <= wait && wait <= full, "{wait:?} of {full:?}");
        }

        #[test]
        fn t2_a_back_off_doubles_until_its_cap(base in 1..100_000_u64, n in 1..30_u32) {
            let wait = |n| backoff(Duration::from_millis(base * 2), Duration::MAX, n, |most| most);
            prop_assert_eq!(wait(1), Duration::from_millis(base * 2));
            prop_assert_eq!(wait(n + 1), wait(n) * 2);
        }

        #[test]
        fn moments_end_where_they_cannot_be_told_and_never_wrap(at: u64, by in any_duration()) {
            let later = Millis(at) + by;
            prop_assert!(later >= Millis(at) && Millis(at).since(later).is_zero());
            prop_assert_eq!(later.since(Millis(at)), Duration::from_millis(millis(by).min(u64::MAX - at)));
        }

        #[test]
        fn g4_a_moment_in_seconds_is_past_with_the_first_millisecond_of_its_second(at: u64, by in 0..3_000_u64) {
            let (seconds, now) = (Millis(at).seconds(), at.saturating_add(by));
            prop_assert_eq!(seconds.0, at / 1000 + u64::from(at % 1000 > 0));
            prop_assert_eq!(seconds.is_past(Millis(now)), now >= seconds.0.saturating_mul(1000));
        }

        #[test]
        fn whole_seconds_are_no_shorter_and_less_than_a_second_longer(at: u64, nanos in 0..1_000_000_u64) {
            let time = Duration::from_millis(at) + Duration::from_nanos(nanos);
            let whole = whole_seconds(time);
            prop_assert!(whole.subsec_nanos() == 0 && whole >= time && whole - time < Duration::from_secs(1));
            prop_assert_eq!(whole_seconds(whole), whole);
        }

        #[test]
        fn l5_a_moment_is_as_far_from_another_as_the_clock_says_that_has_seen_more(passed: [u16; 2]) {
            let [ticked, shown] = passed.map(|time| Duration::from_millis(time.into()));
            let earlier = Clock::system().now();
            let later = Moment { instant: earlier.instant + ticked, wall: earlier.wall + shown };
            prop_assert_eq!(later.since(earlier), ticked.max(shown));
            prop_assert_eq!(earlier.since(later), Duration::ZERO);
        }

        #[test]
        fn what_is_told_in_utc_is_read_back_and_no_text_is_a_panic(seconds in 0..253_402_300_800_u64, text: String) {
            let at = Millis(seconds * 1000);
            prop_assert_eq!(Millis::from_rfc_3339(&at.utc()), Some(at));
            let _ = Millis::from_rfc_3339(&text);
        }
    }

    #[test]
    fn jitter_comes_from_all_of_its_range() {
        let clock = Clock { wall: Wall::System, chance: Arc::new(Mutex::new(fastrand::Rng::with_seed(1))) };
        let drawn: std::collections::BTreeSet<_> = (0..200).map(|_| clock.part_of(Duration::from_millis(3))).collect();
        assert_eq!(drawn, [0, 1, 2, 3].map(Duration::from_millis).into());
    }

    #[test]
    fn seconds_round_up_and_are_past_only_when_their_second_has_come() {
        assert_eq!(Millis(1_001).seconds(), Seconds(2));
        assert!(!Seconds(2).is_past(Millis(1_999)));
        assert!(Seconds(2).is_past(Millis(2_000)));
    }

    #[test]
    fn moments_are_told_in_utc() {
        // By `date -u -d @SECONDS`.
        let moments = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, expected) in moments {
            assert_eq!(Millis(seconds * 1000 + 999).utc(), expected);
        }
        assert_eq!(Millis(u64::MAX).utc(), "18446744073709551615 ms", "whatever stands in a table");
    }

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_follows_paused_time_and_repeats_its_numbers() {
        let one = Clock::simulated(7, 0);
        tokio::time::advance(Duration::from_secs(3)).await;
        let two = one.skewed(7, 500);
        assert_eq!(one.wall(), SIMULATED_EPOCH + Duration::from_secs(3));
        assert_eq!(two.wall().since(one.wall()), Duration::from_millis(500));
        let token = one.token();
        assert_eq!(token, two.token());
        assert!(token.len() == 32 && token != one.token(), "{token}");
    }
}
