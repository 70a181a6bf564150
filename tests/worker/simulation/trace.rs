//! What happened, in order and readable: who did what, when. The same seed writes the same trace.

use std::{
    collections::BTreeMap,
    fmt::Display,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The trace of one run, and counts of what it met.
#[derive(Debug)]
pub(crate) struct Trace {
    origin: Instant,
    written: Mutex<Written>,
}

#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) lines: Vec<String>,
    pub(crate) violations: Vec<String>,
    pub(crate) met: BTreeMap<&'static str, u64>,
}

impl Trace {
    /// Begins now.
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), written: Mutex::default() }
    }

    /// Since the beginning.
    pub(crate) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    pub(crate) fn note(&self, who: impl Display, what: impl Display) {
        let now = self.now().as_millis();
        self.written().lines.push(format!("{:>6}.{:03}  {who:<5} {what}", now / 1000, now % 1000));
    }

    /// The promise is broken.
    pub(crate) fn violated(&self, what: impl Display) {
        self.note("!!", &what);
        self.written().violations.push(what.to_string());
    }

    /// Something happened that a simulation worth its name must meet.
    pub(crate) fn met(&self, what: &'static str) {
        *self.written().met.entry(what).or_default() += 1;
    }

    /// What was written, taken out.
    pub(crate) fn take(&self) -> Written {
        std::mem::take(&mut *self.written())
    }

    /// Held for single lines; one that panics there leaves a list of whole lines.
    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
