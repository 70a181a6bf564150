//! What is outside of the jobs: a payment provider that knows idempotency keys, a mail server that knows none, a shop's stock,
//! and somebody's web hook. They stand for systems that are not ours, and count what really happened.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold::{HandlerError, HandlerResult};

/// How long a call takes.
const CALL: Duration = Duration::from_millis(200);

/// Calls and effects, by what they were.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    calls: Mutex<Vec<String>>,
    /// Effects by the key under which they were asked for; without a key, each call is one.
    effects: Mutex<BTreeMap<String, String>>,
    /// What is to go wrong, once each: the name of a call.
    broken: Mutex<Vec<&'static str>>,
}

impl Outside {
    /// A call that its receiver knows by a key: the same key again is answered, and does nothing.
    pub(crate) async fn with_key(&self, what: &'static str, key: &str) -> HandlerResult<String> {
        self.call(what, key.to_owned(), format!("{what} under {key}")).await
    }

    /// A call that its receiver takes as often as it comes.
    pub(crate) async fn without_key(&self, what: &'static str, whom: &str) -> HandlerResult<String> {
        let number = self.calls.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.call(what, format!("{what} {number}"), format!("{what} to {whom}")).await
    }

    async fn call(&self, what: &'static str, key: String, told: String) -> HandlerResult<String> {
        held(&self.calls).push(told.clone());
        tokio::time::sleep(CALL / 2).await;
        let id = format!("{what}-{}", held(&self.effects).len() + 1);
        let id = held(&self.effects).entry(key).or_insert(id).clone();
        println!("{told}: {id}");
        tokio::time::sleep(CALL / 2).await;
        let mut broken = held(&self.broken);
        if let Some(at) = broken.iter().position(|call| *call == what) {
            broken.swap_remove(at);
            return Err(HandlerError::new(format!("{what}: the connection broke")));
        }
        Ok(id)
    }

    /// Whether anything took effect under that key.
    #[allow(dead_code, reason = "for those examples that ask")]
    pub(crate) fn knows(&self, key: &str) -> bool {
        held(&self.effects).contains_key(key)
    }

    /// The next call of this name takes effect, and its answer is lost.
    #[allow(dead_code, reason = "for the tests of these examples")]
    pub(crate) fn breaks(&self, what: &'static str) {
        held(&self.broken).push(what);
    }

    /// How often a call of this name was made, and how often it took effect.
    #[allow(dead_code, reason = "for the tests of these examples")]
    pub(crate) fn count(&self, what: &str) -> (usize, usize) {
        let calls = held(&self.calls).iter().filter(|call| call.starts_with(what)).count();
        (calls, held(&self.effects).values().filter(|id| id.starts_with(what)).count())
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
