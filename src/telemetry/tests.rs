use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use metrics::{Counter, CounterFn, Gauge as GaugeHandle, GaugeFn, Histogram as HistogramHandle, HistogramFn, Unit};

use super::*;

/// A recorder that keeps what it is told.
#[derive(Debug, Default)]
struct Kept {
    described: Mutex<BTreeMap<String, Option<Unit>>>,
    registered: Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>,
    values: Arc<Mutex<BTreeMap<String, f64>>>,
}

#[derive(Debug)]
struct Handle(String, Arc<Mutex<BTreeMap<String, f64>>>);

impl Handle {
    fn put(&self, change: impl FnOnce(f64) -> f64) {
        let mut values = self.1.lock().unwrap();
        let value = values.entry(self.0.clone()).or_default();
        *value = change(*value);
    }
}

impl CounterFn for Handle {
    fn increment(&self, value: u64) {
        self.put(|before| before + value as f64);
    }
    fn absolute(&self, value: u64) {
        self.put(|_| value as f64);
    }
}

impl GaugeFn for Handle {
    fn increment(&self, value: f64) {
        self.put(|before| before + value);
    }
    fn decrement(&self, value: f64) {
        self.put(|before| before - value);
    }
    fn set(&self, value: f64) {
        self.put(|_| value);
    }
}

impl HistogramFn for Handle {
    fn record(&self, value: f64) {
        self.put(|before| before + value);
    }
}

impl Kept {
    fn handle(&self, key: &Key) -> Arc<Handle> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let mut registered = self.registered.lock().unwrap();
        registered.entry(key.name().to_owned()).or_default().extend(key.labels().map(|label| label.key().to_owned()));
        Arc::new(Handle(format!("{} {}", key.name(), labels.join(" ")), Arc::clone(&self.values)))
    }

    fn value(&self, of: &str) -> f64 {
        *self.values.lock().unwrap().get(of).unwrap_or_else(|| panic!("{of} is not in {:?}", self.values))
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().insert(key.as_str().to_owned(), unit);
    }
    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe_counter(key, unit, description);
    }
    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe_counter(key, unit, description);
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.handle(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> GaugeHandle {
        GaugeHandle::from_arc(self.handle(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> HistogramHandle {
        HistogramHandle::from_arc(self.handle(key))
    }
}

/// Everything that a worker registers, used once.
fn all(telemetry: &Telemetry) -> (Meters, Calls) {
    let meters = Meters::new(telemetry, "payments", "payments-prod");
    meters.failures.one("timed_out");
    meters.dead.one("malformed");
    let calls = Calls::new(telemetry.clone());
    calls.answered("sqs:ReceiveMessage", Answered::Ok);
    telemetry.worker_gauges();
    telemetry.protection();
    (meters, calls)
}

#[test]
fn what_is_recorded_is_the_table_with_all_its_labels() {
    let kept = Arc::new(Kept::default());
    let telemetry = Telemetry::default().and(Arc::clone(&kept) as _);
    telemetry.describe();
    let _all = all(&telemetry);
    let table: BTreeMap<_, BTreeSet<_>> = METRICS
        .iter()
        .map(|metric| (metric.name.to_owned(), metric.labels.iter().map(|label| (*label).to_owned()).collect()))
        .collect();
    assert_eq!(*kept.registered.lock().unwrap(), table);
    let described = kept.described.lock().unwrap();
    assert_eq!(described.keys().collect::<Vec<_>>(), table.keys().collect::<Vec<_>>());
    assert_eq!(described["messaging.process.duration"], Some(Unit::Seconds));
}

#[test]
fn values_go_to_the_programs_recorder_and_to_the_workers_own() {
    let (programs, own) = (Kept::default(), Arc::new(Kept::default()));
    let telemetry = Telemetry::default().and(Arc::clone(&own) as _);
    let (meters, calls) = metrics::with_local_recorder(&programs, || all(&telemetry));
    meters.settled(Outcome::Done, 2);
    meters.settled(Outcome::Done, 1);
    meters.beat(LeaseKind::Execution, Beaten::Lost, true);
    meters.handled(HandlerEnd::Ok, std::time::Duration::from_millis(1500));
    calls.used(7);
    for recorder in [&programs, &*own] {
        assert!((recorder.value("leasehold.messages.settled queue=payments outcome=done") - 3.0).abs() < 1e-9);
        assert!((recorder.value("leasehold.beats queue=payments lease=execution result=lost") - 1.0).abs() < 1e-9);
        assert!((recorder.value("leasehold.beats.late queue=payments lease=execution") - 1.0).abs() < 1e-9);
        assert!((recorder.value("leasehold.guard.write_units ") - 7.0).abs() < 1e-9);
        let time = "messaging.process.duration queue=payments messaging.system=aws_sqs \
                    messaging.destination.name=payments-prod messaging.operation.name=process";
        assert!((recorder.value(time) - 1.5).abs() < 1e-9, "a success has no error.type");
    }
    assert_eq!((meters.outcome(Outcome::Done), meters.late_beats(), calls.totals()), (3, 1, (0, 7)));
}

#[test]
fn reason_codes_are_told_apart_up_to_a_limit_and_hostile_ones_are_other() {
    let meters = Meters::new(&Telemetry::default(), "q", "q");
    for code in ["", "a\nb", &"x".repeat(65)] {
        meters.dead.one(code);
    }
    for n in 0..500 {
        meters.dead.one(&format!("order-{n}"));
    }
    let totals = meters.dead.totals();
    assert!(totals.len() <= 101, "{}", totals.len());
    assert_eq!(totals.values().sum::<u64>(), 503);
    assert!(totals["other"] > 400 && totals["order-7"] == 1);
}

#[test]
fn a_circuit_that_opened_between_two_looks_is_counted() {
    let meters = Meters::new(&Telemetry::default(), "q", "q");
    for openings in [0, 1, 1, 4] {
        meters.circuit(Circuited::Table, 0.0, openings);
    }
    assert_eq!(meters.outages_of(Circuited::Table), 4);
}

#[test]
fn what_is_in_hand_is_counted_until_it_is_dropped_and_the_oldest_is_told_once() {
    let meters = Meters::new(&Telemetry::default(), "q", "q");
    let ages = [Some(std::time::Duration::from_secs(9)), None, Some(std::time::Duration::from_secs(3))];
    let mut held: Vec<_> = ages.map(|age| meters.receives(age)).into();
    assert_eq!((meters.in_hand(), meters.received.total()), (3, 3));
    held.pop();
    assert_eq!((meters.in_hand(), meters.take_oldest(), meters.take_oldest()), (2, 9_000, 0));
}

#[test]
fn names_are_written_as_the_conventions_ask_and_every_label_value_is_of_a_fixed_set_but_names_and_codes() {
    let mut seen = BTreeSet::new();
    for metric in METRICS {
        assert!(seen.insert(metric.name), "{} twice", metric.name);
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '_';
        assert!(metric.name.chars().all(is_plain), "{}", metric.name);
        assert!(metric.name.starts_with("leasehold.") || metric.name.starts_with("messaging."), "{}", metric.name);
        assert!(metric.doc.ends_with('.') && metric.doc.len() > 15, "{}", metric.name);
        if let Kind::Histogram(bounds) = metric.kind {
            assert!(bounds.is_sorted() && metric.unit == "s", "{}", metric.name);
        }
        for label in metric.labels {
            let is_free = matches!(*label, "queue" | "code" | "operation") || label.starts_with("messaging.");
            assert!(is_free || Metric::values(label, metric.name).is_some(), "{} {label}", metric.name);
        }
    }
}
