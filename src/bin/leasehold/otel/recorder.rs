//! The `metrics` facade over OpenTelemetry's meter.
//!
//! An instrument for each name, made once, with unit, meaning and buckets from the table of metrics: the SDK takes those only
//! when it makes one.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use leasehold::telemetry::{Kind, Metric};
use metrics::{CounterFn, GaugeFn, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};
use opentelemetry::{
    KeyValue,
    metrics::{Counter, Gauge, Histogram, Meter, MeterProvider as _},
};
use opentelemetry_sdk::metrics::SdkMeterProvider;

/// Records what is counted through the facade.
pub(super) struct Recorder {
    meter: Meter,
    /// Each locked for single look-ups, when a series is first recorded.
    counters: Mutex<BTreeMap<String, Counter<u64>>>,
    gauges: Mutex<BTreeMap<String, Gauge<f64>>>,
    histograms: Mutex<BTreeMap<String, Histogram<f64>>>,
}

impl Recorder {
    pub(super) fn new(provider: &SdkMeterProvider) -> Self {
        Self {
            meter: provider.meter("leasehold"),
            counters: Mutex::default(),
            gauges: Mutex::default(),
            histograms: Mutex::default(),
        }
    }
}

fn of_ours(name: &str) -> (&'static str, &'static str, Option<Kind>) {
    Metric::named(name).map_or(("", "", None), |Metric { unit, doc, kind, .. }| (*unit, *doc, Some(*kind)))
}

fn one<I: Clone>(of: &Mutex<BTreeMap<String, I>>, key: &Key, make: impl FnOnce() -> I) -> I {
    let mut all = of.lock().unwrap_or_else(PoisonError::into_inner);
    all.entry(key.name().to_owned()).or_insert_with(make).clone()
}

impl metrics::Recorder for Recorder {
    // Ours are in the table; others have no description.
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> metrics::Counter {
        let (unit, doc, _) = of_ours(key.name());
        let name = key.name().to_owned();
        let counter =
            one(&self.counters, key, || self.meter.u64_counter(name).with_unit(unit).with_description(doc).build());
        metrics::Counter::from_arc(Series::new(counter, key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> metrics::Gauge {
        let (unit, doc, _) = of_ours(key.name());
        let name = key.name().to_owned();
        let gauge = one(&self.gauges, key, || self.meter.f64_gauge(name).with_unit(unit).with_description(doc).build());
        metrics::Gauge::from_arc(Series::new(gauge, key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        let (unit, doc, kind) = of_ours(key.name());
        let name = key.name().to_owned();
        let histogram = one(&self.histograms, key, || {
            let builder = self.meter.f64_histogram(name).with_unit(unit).with_description(doc);
            match kind {
                Some(Kind::Histogram(bounds)) => builder.with_boundaries(bounds.to_vec()).build(),
                _ => builder.build(),
            }
        });
        metrics::Histogram::from_arc(Series::new(histogram, key))
    }
}

/// One instrument under one set of labels.
struct Series<I> {
    instrument: I,
    attributes: Vec<KeyValue>,
    /// What the facade may ask to be changed by a difference, or raised to a total: as the bits of the number.
    last: AtomicU64,
}

impl<I> Series<I> {
    fn new(instrument: I, key: &Key) -> Arc<Self> {
        let attributes = key.labels().map(|label| KeyValue::new(label.key().to_owned(), label.value().to_owned()));
        Arc::new(Self { instrument, attributes: attributes.collect(), last: AtomicU64::new(0) })
    }
}

impl CounterFn for Series<Counter<u64>> {
    fn increment(&self, value: u64) {
        self.last.fetch_add(value, Ordering::Relaxed);
        self.instrument.add(value, &self.attributes);
    }

    fn absolute(&self, value: u64) {
        let before = self.last.fetch_max(value, Ordering::Relaxed);
        self.instrument.add(value.saturating_sub(before), &self.attributes);
    }
}

impl Series<Gauge<f64>> {
    fn change(&self, to: impl Fn(f64) -> f64) {
        let change = |bits| Some(to(f64::from_bits(bits)).to_bits());
        // Never fails, for the change is never none.
        if let Ok(before) = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change) {
            self.instrument.record(to(f64::from_bits(before)), &self.attributes);
        }
    }
}

impl GaugeFn for Series<Gauge<f64>> {
    fn increment(&self, value: f64) {
        self.change(|before| before + value);
    }

    fn decrement(&self, value: f64) {
        self.change(|before| before - value);
    }

    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl HistogramFn for Series<Histogram<f64>> {
    fn record(&self, value: f64) {
        self.instrument.record(value, &self.attributes);
    }
}
