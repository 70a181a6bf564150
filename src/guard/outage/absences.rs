//! A handler that is away for all, told from a key that alone finds it away.
//!
//! Counts in memory only, for as many keys as are worth it; what follows from a verdict is decided by the job.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Tells a key whose own fault it is that its handler is "not there" from a handler that is away for all: it meets it
/// again and again while others succeed.
#[derive(Debug, Default)]
pub(crate) struct Absences {
    successes: AtomicU64,
    /// Per key: how often in a row, and how many successes of others there were at the last time.
    keys: Mutex<BTreeMap<String, (u32, u64)>>,
}

/// So many absences of one key in a row, with successes of others between them, are that key's failure.
const ABSENCES_OF_ONE_KEY: u32 = 5;

/// Keys that are remembered; in an outage of the handler there can be as many as there are messages.
const KEYS_REMEMBERED: usize = 10_000;

impl Absences {
    pub(crate) fn succeeded(&self, key: &str) {
        self.successes.fetch_add(1, Ordering::Relaxed);
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Notes an absence; `true` if it is the key's own failure.
    pub(crate) fn is_the_keys_own(&self, key: &str) -> bool {
        let successes = self.successes.load(Ordering::Relaxed);
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() >= KEYS_REMEMBERED && !keys.contains_key(key) {
            keys.pop_first();
        }
        let (count, at) = keys.entry(key.to_owned()).or_insert((0, successes));
        if *count == 0 || *at < successes {
            *count += 1;
        }
        *at = successes;
        let own = *count >= ABSENCES_OF_ONE_KEY;
        if own {
            keys.remove(key);
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_absence_of_one_key_while_others_succeed_is_its_own_failure() {
        let absences = Absences::default();
        for _ in 0..20 {
            assert!(!absences.is_the_keys_own("p1"), "nobody else succeeds: the handler is away");
        }
        let mut own = false;
        for _ in 0..ABSENCES_OF_ONE_KEY {
            absences.succeeded("p2");
            own |= absences.is_the_keys_own("p1");
        }
        assert!(own);
    }
}
