//! The meters of one queue.
//!
//! Made once for a queue, so that counting is an atomic addition and never looks a name up. Counts by reason code are the
//! exception: codes are handlers' own words, and so many of them are told apart and no more.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    Count, Gauge, Histogram, Telemetry,
    by::By,
    labels::{Beaten, Circuited, Fixed, HandlerEnd, LeaseKind, Outcome, Polled, Verdict},
    table,
};

/// So many reason codes of one queue are told apart. A handler that puts ids into them would else fill whatever collects.
const CODES: usize = 100;

/// What stands for the codes beyond.
const OTHER: &str = "other";

/// The longest code in a label, in bytes.
const LONGEST_CODE: usize = 64;

/// The meters of one queue.
#[derive(Debug)]
pub(crate) struct Meters {
    pub(crate) received: Count,
    pub(crate) started: Count,
    pub(crate) takeovers: Count,
    pub(crate) to_start: Histogram,
    pub(crate) slots: Gauge,
    pub(crate) running: Gauge,
    pub(crate) in_hand_gauge: Gauge,
    pub(crate) stuck: Gauge,
    pub(crate) visibility: Gauge,
    pub(crate) p99: Gauge,
    pub(crate) failures: Codes,
    pub(crate) dead: Codes,
    age: Histogram,
    outcomes: By<Outcome>,
    verdicts: By<Verdict>,
    polls: By<Polled>,
    handler: By<HandlerEnd, Histogram>,
    beats: By<LeaseKind, By<Beaten>>,
    late: By<LeaseKind>,
    lost: By<LeaseKind>,
    outages: By<Circuited>,
    circuits: By<Circuited, Gauge>,
    in_hand: Arc<AtomicU64>,
    oldest: AtomicU64,
}

impl Meters {
    /// Of a queue that goes by that name in the configuration, and by the other at SQS.
    pub(crate) fn new(telemetry: &Telemetry, queue: &str, at_sqs: &str) -> Self {
        let of_queue = [("queue", queue)];
        let count = |name| telemetry.count(name, &of_queue);
        let gauge = |name| telemetry.gauge(name, &of_queue);
        let conventional = |operation| {
            [
                ("queue", queue),
                ("messaging.system", "aws_sqs"),
                ("messaging.destination.name", at_sqs),
                ("messaging.operation.name", operation),
            ]
        };
        let handler = |end: HandlerEnd| {
            let labels: Vec<_> = conventional("process").into_iter().chain([("error.type", end.as_str())]).collect();
            telemetry.histogram(table::PROCESS, &labels)
        };
        let beats = |lease: LeaseKind| {
            By::new(|beaten: Beaten| {
                let labels = [("queue", queue), ("lease", lease.as_str()), ("result", beaten.as_str())];
                telemetry.count(table::BEATS, &labels)
            })
        };
        let circuit =
            |which: Circuited| telemetry.gauge(table::CIRCUIT, &[("queue", queue), ("circuit", which.as_str())]);
        Self {
            received: telemetry.count(table::RECEIVED, &conventional("receive")),
            started: count(table::STARTED),
            takeovers: count(table::TAKEOVERS),
            to_start: telemetry.histogram(table::TO_START, &of_queue),
            slots: gauge(table::SLOTS),
            running: gauge(table::RUNNING),
            in_hand_gauge: gauge(table::IN_HAND),
            stuck: gauge(table::STUCK),
            visibility: gauge(table::VISIBILITY),
            p99: gauge(table::P99),
            failures: Codes::new(telemetry, table::FAILURES, queue),
            dead: Codes::new(telemetry, table::DEAD, queue),
            age: telemetry.histogram(table::AGE, &of_queue),
            outcomes: By::counts(telemetry, table::OUTCOMES, &of_queue, "outcome"),
            verdicts: By::counts(telemetry, table::VERDICTS, &of_queue, "verdict"),
            polls: By::counts(telemetry, table::POLLS, &of_queue, "result"),
            handler: By::new(handler),
            beats: By::new(beats),
            late: By::counts(telemetry, table::LATE, &of_queue, "lease"),
            lost: By::counts(telemetry, table::LOST, &of_queue, "lease"),
            outages: By::counts(telemetry, table::OUTAGES, &of_queue, "circuit"),
            circuits: By::new(circuit),
            in_hand: Arc::default(),
            oldest: AtomicU64::new(0),
        }
    }

    /// A message was received, so long after it was sent. What comes back counts as in hand until it is dropped.
    pub(crate) fn receives(&self, age: Option<Duration>) -> InHand {
        self.received.one();
        if let Some(age) = age {
            self.age.record(age);
            self.oldest.fetch_max(u64::try_from(age.as_millis()).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
        }
        self.in_hand.fetch_add(1, Ordering::Relaxed);
        InHand(Some(Arc::clone(&self.in_hand)))
    }

    /// The age of the oldest message that was received since this was last asked, in milliseconds; 0 if none was.
    pub(crate) fn take_oldest(&self) -> u64 {
        self.oldest.swap(0, Ordering::Relaxed)
    }

    /// The same, without taking it.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::Relaxed)
    }

    pub(crate) fn all_settled(&self) -> u64 {
        self.outcomes_of(Outcome::ALL)
    }

    /// How many deliveries came to one of these.
    pub(crate) fn outcomes_of(&self, outcomes: &[Outcome]) -> u64 {
        outcomes.iter().map(|outcome| self.outcome(*outcome)).sum()
    }

    pub(crate) fn in_hand(&self) -> u64 {
        self.in_hand.load(Ordering::Relaxed)
    }

    pub(crate) fn settled(&self, outcome: Outcome, n: u64) {
        self.outcomes.of(outcome).add(n);
    }

    pub(crate) fn outcome(&self, outcome: Outcome) -> u64 {
        self.outcomes.of(outcome).total()
    }

    pub(crate) fn verdict(&self, verdict: Verdict) {
        self.verdicts.of(verdict).one();
    }

    pub(crate) fn polled(&self, polled: Polled) {
        self.polls.of(polled).one();
    }

    pub(crate) fn handled(&self, end: HandlerEnd, took: Duration) {
        self.handler.of(end).record(took);
    }

    /// A beat came to that; `late` says whether it was sent late.
    pub(crate) fn beat(&self, lease: LeaseKind, beaten: Beaten, late: bool) {
        self.beats.of(lease).of(beaten).one();
        if late {
            self.late.of(lease).one();
        }
    }

    pub(crate) fn beats(&self, lease: LeaseKind, beaten: Beaten) -> u64 {
        self.beats.of(lease).of(beaten).total()
    }

    pub(crate) fn late_beats(&self) -> u64 {
        LeaseKind::ALL.iter().map(|lease| self.late.of(*lease).total()).sum()
    }

    pub(crate) fn lost(&self, lease: LeaseKind) {
        self.lost.of(lease).one();
    }

    pub(crate) fn leases_lost(&self, lease: LeaseKind) -> u64 {
        self.lost.of(lease).total()
    }

    #[cfg(test)]
    pub(crate) fn outages_of(&self, which: Circuited) -> u64 {
        self.outages.of(which).total()
    }

    /// A circuit is so far open: 1, on trial 0.5, closed 0; and has opened so often by now.
    pub(crate) fn circuit(&self, which: Circuited, open: f64, openings: u64) {
        self.circuits.of(which).set(open);
        let outages = self.outages.of(which);
        outages.add(openings.saturating_sub(outages.total()));
    }
}

/// A delivery that is in hand until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct InHand(Option<Arc<AtomicU64>>);

impl Drop for InHand {
    fn drop(&mut self) {
        if let Some(in_hand) = &self.0 {
            in_hand.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// One count for each reason code.
#[derive(Debug)]
pub(crate) struct Codes {
    telemetry: Telemetry,
    name: &'static str,
    queue: String,
    /// Held for one look-up.
    counts: Mutex<BTreeMap<String, Count>>,
}

impl Codes {
    fn new(telemetry: &Telemetry, name: &'static str, queue: &str) -> Self {
        Self { telemetry: telemetry.clone(), name, queue: queue.to_owned(), counts: Mutex::default() }
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, Count>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn one(&self, code: &str) {
        let mut counts = self.counts();
        let is_plain = code.len() <= LONGEST_CODE && !code.is_empty() && !code.chars().any(char::is_control);
        let room = counts.len() < CODES || counts.contains_key(code);
        let code = if is_plain && room { code } else { OTHER };
        match counts.get(code) {
            Some(count) => count.one(),
            None => {
                let count = self.telemetry.count(self.name, &[("queue", &self.queue), ("code", code)]);
                count.one();
                counts.insert(code.to_owned(), count);
            }
        }
    }

    /// How often each was counted.
    pub(crate) fn totals(&self) -> BTreeMap<String, u64> {
        self.counts().iter().map(|(code, count)| (code.clone(), count.total())).collect()
    }
}
