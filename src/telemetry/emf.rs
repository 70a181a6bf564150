//! Metrics as lines of CloudWatch's embedded metric format: CloudWatch Logs makes metrics of them, and nobody has to be called.
//!
//! Owns what was counted since the last lines. Where lines go, and when, others say: `leasehold run` writes them to its log each
//! minute, a Lambda function to standard output before each answer.
//! <https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html>

use std::{
    collections::BTreeMap,
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::{CounterFn, Gauge, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use serde_json::{Map, Value, json};

use super::Metric;

/// The labels that are dimensions. Each combination of values is a metric on the bill, so that what has many values (reason
/// codes, operations) or always the same is summed up.
pub const DIMENSIONS: [&str; 6] = ["queue", "outcome", "verdict", "lease", "circuit", "error.type"];

/// So many metrics may be in one document, and so many values in one metric.
const MOST: usize = 100;

/// Of two values that are nearer than this factor, what is told is their mean.
const NEAR: f64 = 1.1;

/// A recorder of the [`metrics`] facade whose values come out as lines. Clones are of the same values.
#[derive(Clone)]
pub struct Emf(Arc<Inner>);

struct Inner {
    namespace: String,
    /// By dimensions and name. Held for single look-ups, and while lines are made.
    series: Mutex<BTreeMap<Dimensions, BTreeMap<String, Series>>>,
}

type Dimensions = Vec<(String, String)>;

enum Series {
    Counter(Arc<Counted>),
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<Spread>),
}

impl Emf {
    /// Of a namespace in CloudWatch.
    #[must_use]
    pub fn new(namespace: impl Into<String>) -> Self {
        Self(Arc::new(Inner { namespace: namespace.into(), series: Mutex::default() }))
    }

    fn series(&self) -> MutexGuard<'_, BTreeMap<Dimensions, BTreeMap<String, Series>>> {
        self.0.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted and measured since the last time, and every gauge that was ever set: documents without line breaks, each to be written
    /// as one line. `at` is in milliseconds since the Unix epoch.
    #[must_use]
    pub fn lines(&self, at: u64) -> Vec<String> {
        let mut lines = Vec::new();
        for (dimensions, series) in &*self.series() {
            let values: Vec<_> = series.iter().flat_map(|(name, series)| told(name, series)).collect();
            // A name stands once in a document: what has more values than fit is told in the next.
            let mut documents: Vec<BTreeMap<&str, Value>> = Vec::new();
            for (name, value) in values {
                let has_room = |all: &&mut BTreeMap<&str, Value>| all.len() < MOST && !all.contains_key(name);
                match documents.iter_mut().find(has_room) {
                    Some(document) => drop(document.insert(name, value)),
                    None => documents.push(BTreeMap::from([(name, value)])),
                }
            }
            lines.extend(documents.into_iter().map(|values| self.document(at, dimensions, values).to_string()));
        }
        lines
    }

    fn document(&self, at: u64, dimensions: &Dimensions, values: BTreeMap<&str, Value>) -> Value {
        let names: Vec<_> = dimensions.iter().map(|(name, _)| name).collect();
        let metrics: Vec<_> = values.keys().map(|name| json!({"Name": name, "Unit": unit(name)})).collect();
        let directive = json!({"Namespace": self.0.namespace, "Dimensions": [names], "Metrics": metrics});
        let mut document = Map::new();
        document.insert("_aws".to_owned(), json!({"Timestamp": at, "CloudWatchMetrics": [directive]}));
        document.extend(dimensions.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))));
        document.extend(values.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Value::Object(document)
    }

    fn one<T>(
        &self,
        key: &Key,
        of: impl Fn(&Series) -> Option<Arc<T>>,
        make: impl Fn(Arc<T>) -> Series,
        new: impl Fn() -> T,
    ) -> Option<Arc<T>> {
        let labels = key.labels().filter(|label| DIMENSIONS.contains(&label.key()) && !label.value().is_empty());
        let dimensions: Dimensions = labels.map(|label| (label.key().to_owned(), label.value().to_owned())).collect();
        let mut all = self.series();
        let series = all.entry(dimensions).or_default();
        // One name is one kind of metric; of another kind it counts nothing.
        of(series.entry(key.name().to_owned()).or_insert_with(|| make(Arc::new(new()))))
    }
}

impl fmt::Debug for Emf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emf").field("namespace", &self.0.namespace).finish_non_exhaustive()
    }
}

/// As CloudWatch calls them.
fn unit(name: &str) -> &'static str {
    match Metric::named(name).map(|metric| metric.unit) {
        Some("s") => "Seconds",
        Some(unit) if unit.starts_with('{') => "Count",
        _ => "None",
    }
}

/// What is told of a series: nothing of what was not counted, and in pieces what does not fit.
fn told<'a>(name: &'a str, series: &Series) -> Vec<(&'a str, Value)> {
    match series {
        Series::Counter(counted) => {
            let since = counted.since.swap(0, Ordering::Relaxed);
            if since == 0 { Vec::new() } else { vec![(name, since.into())] }
        }
        Series::Gauge(bits) => {
            // One that is not a number has no place in JSON.
            let value = serde_json::Number::from_f64(f64::from_bits(bits.load(Ordering::Relaxed)));
            value.map(|value| (name, Value::Number(value))).into_iter().collect()
        }
        Series::Histogram(spread) => {
            let near: Vec<_> = mem::take(&mut *spread.near()).into_values().collect();
            let piece = |near: &[(u64, f64)]| {
                let values: Vec<_> = near.iter().map(|(_, mean)| *mean).collect();
                let counts: Vec<_> = near.iter().map(|(count, _)| *count).collect();
                (name, json!({"Values": values, "Counts": counts}))
            };
            near.chunks(MOST).map(piece).collect()
        }
    }
}

#[derive(Debug, Default)]
struct Counted {
    since: AtomicU64,
    total: AtomicU64,
}

impl CounterFn for Counted {
    fn increment(&self, value: u64) {
        self.total.fetch_add(value, Ordering::Relaxed);
        self.since.fetch_add(value, Ordering::Relaxed);
    }

    fn absolute(&self, value: u64) {
        let before = self.total.fetch_max(value, Ordering::Relaxed);
        self.since.fetch_add(value.saturating_sub(before), Ordering::Relaxed);
    }
}

/// How values are spread: for each power of [`NEAR`], how many there are and their mean.
#[derive(Debug, Default)]
struct Spread(Mutex<BTreeMap<i32, (u64, f64)>>);

impl Spread {
    /// Held for one value.
    fn near(&self) -> MutexGuard<'_, BTreeMap<i32, (u64, f64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HistogramFn for Spread {
    fn record(&self, value: f64) {
        if !value.is_finite() {
            return;
        }
        // Below a microsecond all is the same; the cast saturates, and is far from its ends.
        #[expect(clippy::cast_possible_truncation, reason = "a logarithm is small")]
        let power = (value.max(1e-6).ln() / NEAR.ln()).round() as i32;
        let mut near = self.near();
        let (count, mean) = near.entry(power).or_insert((0, 0.0));
        *count += 1;
        // Counts of a minute are exact in a float.
        #[expect(clippy::cast_precision_loss, reason = "counts of a minute are far below 2^53")]
        let weight = *count as f64;
        *mean += (value - *mean) / weight;
    }
}

impl Recorder for Emf {
    // Units are in the table of metrics, and CloudWatch has no descriptions.
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> metrics::Counter {
        let of = |series: &Series| if let Series::Counter(it) = series { Some(Arc::clone(it)) } else { None };
        self.one(key, of, Series::Counter, Counted::default)
            .map_or_else(metrics::Counter::noop, metrics::Counter::from_arc)
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let of = |series: &Series| if let Series::Gauge(it) = series { Some(Arc::clone(it)) } else { None };
        // Not a number until it is set, and so not told: under Lambda nobody sets most of them.
        self.one(key, of, Series::Gauge, || AtomicU64::new(f64::NAN.to_bits()))
            .map_or_else(Gauge::noop, Gauge::from_arc)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        let of = |series: &Series| if let Series::Histogram(it) = series { Some(Arc::clone(it)) } else { None };
        self.one(key, of, Series::Histogram, Spread::default)
            .map_or_else(metrics::Histogram::noop, metrics::Histogram::from_arc)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telemetry::{Meters, Outcome, Telemetry};

    /// The units that CloudWatch knows, of which ours are some.
    const UNITS: [&str; 3] = ["Seconds", "Count", "None"];

    /// A line by the specification: what it refers to is there and of a kind that may be, and nothing is over a limit.
    fn check(line: &str) -> Value {
        assert!(!line.contains('\n') && line.len() < 256 * 1024, "{} bytes", line.len());
        let document: Value = serde_json::from_str(line).expect("JSON");
        assert!(document["_aws"]["Timestamp"].is_u64(), "{line}");
        let directives = document["_aws"]["CloudWatchMetrics"].as_array().expect("directives");
        for directive in directives {
            assert_eq!(directive["Namespace"], "shop/prod");
            for set in directive["Dimensions"].as_array().expect("dimension sets") {
                let set = set.as_array().expect("a set");
                assert!(set.len() <= 30);
                for name in set {
                    let value = document[name.as_str().expect("a name")].as_str().expect("a value");
                    assert!((1..=1024).contains(&value.len()), "{line}");
                }
            }
            let metrics = directive["Metrics"].as_array().expect("metrics");
            assert!((1..=MOST).contains(&metrics.len()), "{line}");
            for metric in metrics {
                assert!(UNITS.contains(&metric["Unit"].as_str().expect("a unit")), "{line}");
                match &document[metric["Name"].as_str().expect("a name")] {
                    Value::Number(_) => {}
                    Value::Object(spread) => {
                        let [values, counts] =
                            ["Values", "Counts"].map(|name| spread[name].as_array().expect("an array"));
                        assert!(values.len() == counts.len() && (1..=MOST).contains(&values.len()), "{line}");
                        assert!(values.iter().all(Value::is_f64) && counts.iter().all(Value::is_u64), "{line}");
                    }
                    other => panic!("{other}"),
                }
            }
        }
        document
    }

    #[test]
    fn everything_that_is_counted_comes_out_as_lines_by_the_specification_and_once() {
        let emf = Emf::new("shop/prod");
        let telemetry = Telemetry::default().and(Arc::new(emf.clone()));
        let meters = Meters::new(&telemetry, "payments", "payments-prod");
        meters.settled(Outcome::Done, 3);
        meters.failures.one("declined");
        meters.failures.one("timed_out");
        meters.slots.set(20.0);
        for millis in 1..=20_000_u64 {
            meters.to_start.record(Duration::from_millis(millis * millis));
        }
        let lines: Vec<_> = emf.lines(1_700_000_000_000).iter().map(|line| check(line)).collect();
        let of = |name: &str| lines.iter().filter(|line| !line[name].is_null()).collect::<Vec<_>>();
        let done = of("leasehold.messages.settled");
        assert_eq!(
            done.iter().map(|line| (&line["outcome"], &line["leasehold.messages.settled"])).collect::<Vec<_>>(),
            [(&"done".into(), &3.into())]
        );
        // Over the codes, of which there can be a hundred.
        assert_eq!(of("leasehold.handler.failures")[0]["leasehold.handler.failures"], 2);
        assert_eq!(of("leasehold.slots")[0]["leasehold.slots"], 20.0);
        assert!(of("leasehold.handlers.running").is_empty(), "nobody has set it");
        let spread = of("leasehold.message.wait");
        assert!(spread.len() > 1, "more values than fit in one document");
        let counted =
            spread.iter().flat_map(|line| line["leasehold.message.wait"]["Counts"].as_array().expect("counts"));
        assert_eq!(counted.map(|count| count.as_u64().expect("a count")).sum::<u64>(), 20_000);
        // Gauges are as they are; what is counted is told once.
        let again: Vec<_> = emf.lines(1_700_000_060_000).iter().map(|line| check(line)).collect();
        assert!(
            again
                .iter()
                .all(|line| line["leasehold.messages.settled"].is_null() && line["leasehold.message.wait"].is_null())
        );
        assert!(again.iter().any(|line| line["leasehold.slots"] == 20.0));
    }

    #[test]
    fn more_metrics_than_a_document_takes_are_in_several() {
        let emf = Emf::new("shop/prod");
        for number in 0..250 {
            let key = Key::from_name(format!("m{number}"));
            emf.register_counter(&key, &Metadata::new("", metrics::Level::INFO, None)).increment(1);
        }
        let lines = emf.lines(1);
        assert_eq!(lines.len(), 3);
        lines.iter().for_each(|line| drop(check(line)));
    }
}
