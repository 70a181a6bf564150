//! Runs that ignore their cancellation: who they are, and when they have ended.
//!
//! Owns their tasks, and ends none of them: a thread cannot be stopped from outside.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::task::JoinSet;

use crate::{guard::Pk, handler::HandlerResult};

/// Runs that ignore their cancellation. Each keeps its key and its slot until it ends, so that no second run of the key
/// begins beside it in this process, and one key cannot take all slots (rule L8).
#[derive(Debug, Default)]
pub(crate) struct Stuck(Mutex<BTreeMap<Pk, JoinSet<HandlerResult>>>);

impl Stuck {
    /// Held for a few straight lines.
    fn runs(&self) -> MutexGuard<'_, BTreeMap<Pk, JoinSet<HandlerResult>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watch(&self, queue: &str, pk: Pk, task: JoinSet<HandlerResult>) {
        tracing::error!(queue, %pk, "the handler ignores its cancellation; its slot is kept until it ends");
        let mut runs = self.runs();
        // Those that have ended are forgotten also when nobody asks for their key again.
        runs.retain(|_, task| task.try_join_next().is_none());
        runs.insert(pk, task);
    }

    /// Whether a run of the key still goes on; one that has ended is forgotten.
    pub(crate) fn holds(&self, pk: &Pk) -> bool {
        let mut runs = self.runs();
        let ended = runs.get_mut(pk).is_none_or(|task| task.try_join_next().is_some());
        if ended {
            runs.remove(pk);
        }
        !ended
    }

    /// How many still go on.
    pub(crate) fn count(&self) -> usize {
        let mut runs = self.runs();
        runs.retain(|_, task| task.try_join_next().is_none());
        runs.len()
    }
}
