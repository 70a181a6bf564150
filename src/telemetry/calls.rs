//! Requests to AWS, counted by operation and by what was answered: they are users' bill.
//!
//! Told by an interceptor of the SDK; knows nothing of it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Count, Telemetry, by::By, labels::Answered, table};

/// Requests by operation. Clones are of the same counts.
#[derive(Debug, Clone)]
pub(crate) struct Calls(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    telemetry: Telemetry,
    /// Held for one look-up.
    sent: Mutex<BTreeMap<String, u64>>,
    /// Held for one look-up.
    answered: Mutex<BTreeMap<String, By<Answered>>>,
    units: Count,
}

fn locked<T>(counts: &Mutex<T>) -> MutexGuard<'_, T> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Calls {
    fn default() -> Self {
        Self::new(Telemetry::default())
    }
}

impl Calls {
    pub(crate) fn new(telemetry: Telemetry) -> Self {
        let units = telemetry.count(table::UNITS, &[]);
        Self(Arc::new(Inner { telemetry, sent: Mutex::default(), answered: Mutex::default(), units }))
    }

    /// A request is sent, `sqs:ReceiveMessage`.
    pub(crate) fn sent(&self, operation: &str) {
        let mut sent = locked(&self.0.sent);
        match sent.get_mut(operation) {
            Some(count) => *count += 1,
            None => drop(sent.insert(operation.to_owned(), 1)),
        }
    }

    /// It was answered, or not.
    pub(crate) fn answered(&self, operation: &str, answer: Answered) {
        let mut answered = locked(&self.0.answered);
        if !answered.contains_key(operation) {
            let counts = By::counts(&self.0.telemetry, table::CALLS, &[("operation", operation)], "result");
            answered.insert(operation.to_owned(), counts);
        }
        if let Some(counts) = answered.get(operation) {
            counts.of(answer).one();
        }
    }

    /// Write units were used.
    pub(crate) fn used(&self, units: u64) {
        self.0.units.add(units);
    }

    /// How many were sent, by operation.
    pub(crate) fn all(&self) -> BTreeMap<String, u64> {
        locked(&self.0.sent).clone()
    }

    /// How many were sent in all, and the write units that were used.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (locked(&self.0.sent).values().sum(), self.0.units.total())
    }

    /// How often each answer was given to each operation.
    #[cfg(test)]
    pub(crate) fn by_answer(&self) -> BTreeMap<(String, &'static str), u64> {
        use super::labels::Fixed as _;
        let answered = locked(&self.0.answered);
        let all = answered.iter().flat_map(|(operation, counts)| {
            Answered::ALL.iter().map(|answer| ((operation.clone(), answer.as_str()), counts.of(*answer).total()))
        });
        all.filter(|(_, count)| *count > 0).collect()
    }
}
