//! What is outside: a bank that knows idempotency keys, as payment providers do, and counts calls and effects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use leasehold::guard::Pk;

/// Steps by key and name, and under which downstream keys each took effect.
type Effects = BTreeMap<(Pk, String), BTreeSet<String>>;

#[derive(Debug, Default)]
pub(crate) struct Bank {
    effects: Mutex<Effects>,
    refused: Mutex<BTreeSet<String>>,
    /// Mails that went out, by their downstream keys: the mail server looks at none.
    mailed: Mutex<BTreeMap<String, u32>>,
}

impl Bank {
    /// Takes effect, if this downstream key has not before. A key that was refused stays refused.
    pub(crate) fn pay(&self, pk: &Pk, step: &str, downstream: &str) -> Result<(), &'static str> {
        if self.refused.lock().unwrap_or_else(PoisonError::into_inner).contains(downstream) {
            return Err("refused before");
        }
        let mut effects = self.effects.lock().unwrap_or_else(PoisonError::into_inner);
        effects.entry((pk.clone(), step.to_owned())).or_default().insert(downstream.to_owned());
        Ok(())
    }

    /// Refuses this downstream key for good, unless it has taken effect; answers whether it did.
    pub(crate) fn refuse(&self, pk: &Pk, step: &str, downstream: &str) -> bool {
        let paid = self.effects().get(&(pk.clone(), step.to_owned())).is_some_and(|keys| keys.contains(downstream));
        if !paid {
            self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(downstream.to_owned());
        }
        !paid
    }

    /// A mail goes out; how often it has under this key.
    pub(crate) fn mail(&self, downstream: &str) -> u32 {
        let mut mailed = self.mailed.lock().unwrap_or_else(PoisonError::into_inner);
        let times = mailed.entry(downstream.to_owned()).or_default();
        *times += 1;
        *times
    }

    pub(crate) fn effects(&self) -> Effects {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
