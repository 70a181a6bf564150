//! The table of metrics: names, units, labels, meaning, and the alarm that belongs to each.
//!
//! Words and constants; a test beside compares them with what is recorded.

use metrics::{KeyName, Recorder, Unit};

use super::labels::{
    Answered, Beaten, Circuited, Fixed, HandlerEnd, LeaseKind, Outcome, Polled, ProtectionResult, Verdict,
};

/// The version of OpenTelemetry's semantic conventions that names are taken from, where they have one: `messaging.*`.
/// <https://github.com/open-telemetry/semantic-conventions/blob/v1.43.0/docs/messaging/messaging-metrics.md>
pub const SEMANTIC_CONVENTIONS: &str = "1.43.0";

/// One metric.
#[derive(Debug)]
#[non_exhaustive]
pub struct Metric {
    /// Its name, with dots as OpenTelemetry has it.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its unit, as UCUM writes it: `s`, `1`, `{message}`.
    pub unit: &'static str,
    /// Its labels. `queue` is a name in `QUEUES`; no label is ever a key or an id.
    pub labels: &'static [&'static str],
    /// What it means, in a sentence.
    pub doc: &'static str,
    /// When somebody should look, if this is a metric to be woken by, as a condition in words.
    pub alarm: Option<&'static str>,
}

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// Grows from 0 at the start.
    Counter,
    /// As it is now.
    Gauge,
    /// A distribution, with these upper bounds of buckets.
    Histogram(&'static [f64]),
}

impl Kind {
    /// In words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// Handlers take from milliseconds to hours. The conventions' own end at 10 s.
const TIMES: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];

/// Messages lie in queues for up to 14 days.
const AGES: &[f64] =
    &[0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 345_600.0, 1_209_600.0];

impl Metric {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.name == name)
    }

    /// Its name at `/metrics`: with underscores, its unit, and `_total` where it only grows.
    #[must_use]
    pub fn prometheus_name(&self) -> String {
        let unit = match self.unit {
            "s" => "_seconds",
            _ => "",
        };
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{unit}{total}", self.name.replace('.', "_"))
    }

    /// The values that a label of it can have, where that is a fixed set, and what each means.
    #[must_use]
    pub fn values(label: &str, metric: &str) -> Option<Vec<(&'static str, &'static str)>> {
        fn all<L: Fixed>() -> Option<Vec<(&'static str, &'static str)>> {
            let values = L::ALL.iter().map(|value| (value.as_str(), value.doc()));
            Some(values.filter(|(value, _)| !value.is_empty()).collect())
        }
        match (label, metric) {
            ("outcome", _) => all::<Outcome>(),
            ("verdict", _) => all::<Verdict>(),
            ("lease", _) => all::<LeaseKind>(),
            ("result", BEATS) => all::<Beaten>(),
            ("result", POLLS) => all::<Polled>(),
            ("result", PROTECTIONS) => all::<ProtectionResult>(),
            ("result", CALLS) => all::<Answered>(),
            ("error.type", _) => all::<HandlerEnd>(),
            ("circuit", _) => all::<Circuited>(),
            _ => None,
        }
    }

    pub(super) fn describe(&self, recorder: &dyn Recorder) {
        let unit = match self.unit {
            "s" => Some(Unit::Seconds),
            _ => None,
        };
        let name = KeyName::from_const_str(self.name);
        match self.kind {
            Kind::Counter => recorder.describe_counter(name, unit, self.doc.into()),
            Kind::Gauge => recorder.describe_gauge(name, unit, self.doc.into()),
            Kind::Histogram(_) => recorder.describe_histogram(name, unit, self.doc.into()),
        }
    }
}

pub(super) const RECEIVED: &str = "messaging.client.consumed.messages";
pub(super) const PROCESS: &str = "messaging.process.duration";
pub(super) const OUTCOMES: &str = "leasehold.messages.settled";
pub(super) const STARTED: &str = "leasehold.handler.started";
pub(super) const FAILURES: &str = "leasehold.handler.failures";
pub(super) const DEAD: &str = "leasehold.messages.dead";
pub(super) const TO_START: &str = "leasehold.message.wait";
pub(super) const AGE: &str = "leasehold.message.age";
pub(super) const TAKEOVERS: &str = "leasehold.guard.takeovers";
pub(super) const VERDICTS: &str = "leasehold.guard.verdicts";
pub(super) const LOST: &str = "leasehold.leases.lost";
pub(super) const BEATS: &str = "leasehold.beats";
pub(super) const LATE: &str = "leasehold.beats.late";
pub(super) const POLLS: &str = "leasehold.polls";
pub(super) const OUTAGES: &str = "leasehold.outages";
pub(super) const CIRCUIT: &str = "leasehold.circuit.open";
pub(super) const SLOTS: &str = "leasehold.slots";
pub(super) const RUNNING: &str = "leasehold.handlers.running";
pub(super) const IN_HAND: &str = "leasehold.messages.in_hand";
pub(super) const STUCK: &str = "leasehold.handlers.stuck";
pub(super) const VISIBILITY: &str = "leasehold.visibility_timeout";
pub(super) const P99: &str = "leasehold.handler.p99";
pub(super) const READY: &str = "leasehold.ready";
pub(super) const PROTECTED: &str = "leasehold.scale_in_protection.held";
pub(super) const PROTECTIONS: &str = "leasehold.scale_in_protection.requests";
pub(super) const CALLS: &str = "leasehold.api.calls";
pub(super) const UNITS: &str = "leasehold.guard.write_units";
pub(super) const CALLS_PER_MESSAGE: &str = "leasehold.api.calls_per_message";
pub(super) const UNITS_PER_MESSAGE: &str = "leasehold.guard.write_units_per_message";

macro_rules! metric {
    ($kind:expr, $name:expr, $unit:literal, $labels:expr, $doc:literal) => {
        Metric { name: $name, kind: $kind, unit: $unit, labels: $labels, doc: $doc, alarm: None }
    };
    ($kind:expr, $name:expr, $unit:literal, $labels:expr, $doc:literal, alarm: $alarm:literal) => {
        Metric { name: $name, kind: $kind, unit: $unit, labels: $labels, doc: $doc, alarm: Some($alarm) }
    };
}

use Kind::{Counter, Gauge, Histogram};

/// All metrics, in the order in which they are told of.
pub static METRICS: &[Metric] = &[
    metric!(
        Counter,
        RECEIVED,
        "{message}",
        &["queue", "messaging.system", "messaging.destination.name", "messaging.operation.name"],
        "Deliveries received: a message that is received twice counts twice."
    ),
    metric!(
        Counter,
        OUTCOMES,
        "{message}",
        &["queue", "outcome"],
        "What became of deliveries. Each ends in one of these; an attempt that fails and is repeated in place counts as failed too.",
        alarm: "none is done or suppressed for ten minutes in which messages are received: every run fails, or hangs"
    ),
    metric!(Counter, STARTED, "{run}", &["queue"], "Runs of handlers that began, those of undo included."),
    metric!(
        Counter,
        FAILURES,
        "{run}",
        &["queue", "code"],
        "Attempts that failed and come again, by reason code; past a hundred codes of one queue the rest are other.",
        alarm: "more than a tenth of the runs of ten minutes"
    ),
    metric!(
        Counter,
        DEAD,
        "{message}",
        &["queue", "code"],
        "Messages that failed for good, dead-lettered or dropped, by reason code.",
        alarm: "any, if each dead message needs a person"
    ),
    metric!(
        Histogram(TIMES),
        PROCESS,
        "s",
        &["queue", "messaging.system", "messaging.destination.name", "messaging.operation.name", "error.type"],
        "How long runs of handlers took."
    ),
    metric!(
        Histogram(TIMES),
        TO_START,
        "s",
        &["queue"],
        "From a message's receive to the start of its handler: the claim, and the wait for a place or a turn."
    ),
    metric!(
        Histogram(AGES),
        AGE,
        "s",
        &["queue"],
        "From when a message was sent to when it was received, at every receive: back-offs show in it.",
        alarm: "its p90 exceeds what users can wait; the rule says five minutes"
    ),
    metric!(
        Counter,
        VERDICTS,
        "{verdict}",
        &["queue", "verdict"],
        "What the guard said to claims.",
        alarm: "unknown in each of five minutes: the table throttles or is away"
    ),
    metric!(
        Counter,
        TAKEOVERS,
        "{takeover}",
        &["queue"],
        "Claims of keys whose former worker died, or lost its lease, in the midst of a run.",
        alarm: "any without a deploy: workers die"
    ),
    metric!(
        Counter,
        LOST,
        "{lease}",
        &["queue", "lease"],
        "Leases that ended while the work was in hand.",
        alarm: "any: the worker or AWS is too slow for the visibility timeout"
    ),
    metric!(Counter, BEATS, "{beat}", &["queue", "lease", "result"], "Extensions of leases, by what came of them."),
    metric!(
        Counter,
        LATE,
        "{beat}",
        &["queue", "lease"],
        "Beats that were sent when less than a quarter of the lease was left.",
        alarm: "some in each of ten minutes: the process is starved of its processor"
    ),
    metric!(Counter, POLLS, "{poll}", &["queue", "result"], "Receives, by what they brought.", alarm: "error in each of five minutes"),
    metric!(
        Counter,
        OUTAGES,
        "{outage}",
        &["queue", "circuit"],
        "Pauses that began, by what they are for. One of the table counts for every queue with a guard."
    ),
    metric!(
        Gauge,
        CIRCUIT,
        "1",
        &["queue", "circuit"],
        "Whether a queue pauses: 1 it does, 0.5 a little is let through to see whether it is over, 0 it does not.",
        alarm: "above 0 for ten minutes, but for operator: somebody's word"
    ),
    metric!(Gauge, SLOTS, "{handler}", &["queue"], "Places for running handlers (CONCURRENCY)."),
    metric!(
        Gauge,
        RUNNING,
        "{handler}",
        &["queue"],
        "Handlers that run.",
        alarm: "as many as there are slots for ten minutes: the queue is served no faster than this"
    ),
    metric!(
        Gauge,
        IN_HAND,
        "{message}",
        &["queue"],
        "Deliveries in hand: running, waiting in place, or behind the head of their group."
    ),
    metric!(
        Gauge,
        STUCK,
        "{handler}",
        &["queue"],
        "Handlers that ignored their cancellation and still run, each in a place of its own.",
        alarm: "above 0: only a restart frees the place"
    ),
    metric!(
        Gauge,
        VISIBILITY,
        "s",
        &["queue"],
        "The visibility timeout in force: the lease of a message, and how long a crash holds it back."
    ),
    metric!(
        Gauge,
        P99,
        "s",
        &["queue"],
        "The p99 of handler time of the last minutes with work.",
        alarm: "above half of the visibility timeout in force for fifteen minutes: VISIBILITY_TIMEOUT is too short, and beats are needed"
    ),
    metric!(
        Gauge,
        READY,
        "1",
        &[],
        "Whether the worker receives from every queue that it was given.",
        alarm: "0 for five minutes, or not there for ten"
    ),
    metric!(
        Gauge,
        PROTECTED,
        "1",
        &[],
        "Whether the task of ECS is protected from scaling in: 1 it is, 0 it is not. Only with SCALE_IN_PROTECTION=on."
    ),
    metric!(
        Counter,
        PROTECTIONS,
        "{request}",
        &["result"],
        "Requests for that protection, and for its end, by what came of them; expired is one that ended because it could not be extended.",
        alarm: "expired, or denied or refused for ten minutes: long work is cut off at a deploy"
    ),
    metric!(
        Counter,
        CALLS,
        "{call}",
        &["operation", "result"],
        "Requests to AWS, retries included, as they are on the bill; operation is the IAM action, result ok or what was answered instead.",
        alarm: "any denied; throttled in each of five minutes"
    ),
    metric!(
        Counter,
        UNITS,
        "{unit}",
        &[],
        "Write units of DynamoDB that the guard used, as the table says; a refused write counts as one, for DynamoDB does not say."
    ),
    metric!(
        Gauge,
        CALLS_PER_MESSAGE,
        "{call}",
        &[],
        "Requests to AWS for each delivery settled in the last five minutes: what users pay. It stays as it was while none is settled.",
        alarm: "twice what it was a week ago, at more than a message a second"
    ),
    metric!(Gauge, UNITS_PER_MESSAGE, "{unit}", &[], "Write units for each delivery settled in the last five minutes."),
];
