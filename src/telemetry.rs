//! What a worker counts and measures, under which names, and where it goes.
//!
//! [`METRICS`] is the one table of metrics: recording, `/metrics` and the documentation follow it. Values go through the
//! [`metrics`] facade to whichever recorder the program has installed before it runs its worker; feature `serve` renders them
//! for Prometheus beside that. Nothing here knows what the numbers mean for the work: whoever acts, counts.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, SharedString};

pub use table::{Kind, METRICS, Metric, SEMANTIC_CONVENTIONS};

pub(crate) use calls::Calls;
pub(crate) use labels::{
    Answered, Beaten, Circuited, Fixed, HandlerEnd, LeaseKind, Outcome, Polled, ProtectionResult, Verdict,
};
pub(crate) use protection::ProtectionMeters;
pub(crate) use queue::{InHand, Meters};

mod by;
mod calls;
pub mod emf;
mod labels;
mod protection;
mod queue;
mod table;
#[cfg(test)]
mod tests;

/// Where values go: to the program's recorder, and to those of the worker's own.
#[derive(Clone, Default)]
pub(crate) struct Telemetry {
    own: Vec<Arc<dyn Recorder + Send + Sync>>,
}

impl Telemetry {
    /// And to this one, from here on.
    pub(crate) fn and(mut self, own: Arc<dyn Recorder + Send + Sync>) -> Self {
        self.own.push(own);
        self
    }

    /// Tells every recorder what each metric is: its unit, and what it means.
    pub(crate) fn describe(&self) {
        self.each(|recorder| METRICS.iter().for_each(|metric| metric.describe(recorder)));
    }

    /// Ready, calls for each message, and write units for each.
    pub(crate) fn worker_gauges(&self) -> [Gauge; 3] {
        [table::READY, table::CALLS_PER_MESSAGE, table::UNITS_PER_MESSAGE].map(|name| self.gauge(name, &[]))
    }

    /// Of a task of ECS that protects itself from scaling in.
    pub(crate) fn protection(&self) -> ProtectionMeters {
        ProtectionMeters::new(self)
    }

    fn each(&self, mut tell: impl FnMut(&dyn Recorder)) {
        metrics::with_recorder(&mut tell);
        self.own.iter().for_each(|own| tell(&**own));
    }

    pub(crate) fn count(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Count {
        let (mut out, key) = (Vec::new(), key(name, labels));
        self.each(|recorder| out.push(recorder.register_counter(&key, &METADATA)));
        Count { total: AtomicU64::new(0), out }
    }

    pub(crate) fn gauge(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Gauge {
        let (mut out, key) = (Vec::new(), key(name, labels));
        self.each(|recorder| out.push(recorder.register_gauge(&key, &METADATA)));
        Gauge(out)
    }

    pub(crate) fn histogram(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Histogram {
        let (mut out, key) = (Vec::new(), key(name, labels));
        self.each(|recorder| out.push(recorder.register_histogram(&key, &METADATA)));
        Histogram(out)
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("own", &self.own.len()).finish()
    }
}

static METADATA: Metadata<'static> = Metadata::new("leasehold", Level::INFO, Some("leasehold"));

fn key(name: &'static str, labels: &[(&'static str, &str)]) -> Key {
    debug_assert!(
        Metric::named(name).is_some_and(|metric| labels.iter().all(|(label, _)| metric.labels.contains(label))),
        "{name} with {labels:?} is not in the table of metrics"
    );
    let labels = labels.iter().filter(|(_, value)| !value.is_empty());
    let labels: Vec<_> =
        labels.map(|(name, value)| Label::new(*name, SharedString::from((*value).to_owned()))).collect();
    Key::from_parts(KeyName::from_const_str(name), labels)
}

/// A count since the start.
#[derive(Debug)]
pub(crate) struct Count {
    total: AtomicU64,
    out: Vec<metrics::Counter>,
}

impl Count {
    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, n: u64) {
        self.total.fetch_add(n, Ordering::Relaxed);
        self.out.iter().for_each(|counter| counter.increment(n));
    }

    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}

/// A value that is as it is now.
#[derive(Debug)]
pub(crate) struct Gauge(Vec<metrics::Gauge>);

impl Gauge {
    pub(crate) fn set(&self, value: f64) {
        self.0.iter().for_each(|gauge| gauge.set(value));
    }
}

/// Values of which the distribution matters, in seconds.
#[derive(Debug)]
pub(crate) struct Histogram(Vec<metrics::Histogram>);

impl Histogram {
    pub(crate) fn record(&self, time: std::time::Duration) {
        self.0.iter().for_each(|histogram| histogram.record(time.as_secs_f64()));
    }
}
