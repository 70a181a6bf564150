//! Lines that an outage repeats: the first of a kind is logged at once, then one now and then, with how many were not.
//!
//! Owns only when. There is one for each queue and for each thing that can be away, none for the whole process: what one
//! queue says must not keep another's first line back.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// When the second line of a kind may follow, and the longest pause between two: each is twice the one before.
const PAUSE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));

/// After this long without an occasion the next one is news again. Whatever is repeated in an outage is so more often.
const QUIET: Duration = Duration::from_secs(5 * 60);

/// When which kind of line was logged.
#[derive(Debug, Default)]
pub(crate) struct Seldom(Mutex<BTreeMap<&'static str, Told>>);

#[derive(Debug)]
struct Told {
    /// The last occasion, logged or not.
    last: Instant,
    /// Before this none is logged.
    next: Instant,
    pause: Duration,
    /// Occasions since the last line.
    more: u64,
}

impl Seldom {
    /// Whether a line of this kind is to be logged now; and with how many that were not, if there were any.
    pub(crate) fn tell(&self, kind: &'static str) -> Option<Option<u64>> {
        let now = Instant::now();
        // Held for a few straight lines.
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match kinds.get_mut(kind) {
            Some(told) if now.duration_since(told.last) < QUIET => {
                told.last = now;
                if now < told.next {
                    told.more += 1;
                    return None;
                }
                told.pause = (told.pause * 2).min(PAUSE.1);
                told.next = now + told.pause;
                Some(Some(mem::take(&mut told.more)).filter(|more| *more > 0))
            }
            _ => {
                kinds.insert(kind, Told { last: now, next: now + PAUSE.0, pause: PAUSE.0, more: 0 });
                Some(None)
            }
        }
    }
}

/// Logs a line at its level where it is time for one of its kind, with `more` that were not logged since the last; and else
/// at `debug`. Says which.
macro_rules! seldom {
    ($seldom:expr, $kind:literal, $level:ident, $($line:tt)+) => {
        match $seldom.tell($kind) {
            Some(more) => {
                tracing::$level!(more, $($line)+);
                true
            }
            None => {
                tracing::debug!($($line)+);
                false
            }
        }
    };
}

pub(crate) use seldom;

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn an_hour_of_the_same_is_told_at_once_and_then_at_growing_pauses_with_all_that_was_not() {
        let (seldom, mut told) = (Seldom::default(), Vec::new());
        for second in 0..3600_u64 {
            told.extend(seldom.tell("poll").map(|more| (second, more)));
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(
            told,
            [(0, None), (60, Some(59)), (180, Some(119)), (420, Some(239)), (900, Some(479)), (1860, Some(959))]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_while_without_it_the_next_is_news_again_and_kinds_know_nothing_of_each_other() {
        let seldom = Seldom::default();
        assert_eq!((seldom.tell("a"), seldom.tell("b"), seldom.tell("a")), (Some(None), Some(None), None));
        advance(QUIET).await;
        assert_eq!(seldom.tell("a"), Some(None));
    }
}
