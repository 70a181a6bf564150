//! The last quarter of an hour, kept in samples whether somebody looks or not: an operator who is woken wants to see how it
//! came. Sampling also sets the gauges, which nobody then has to keep up to date.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use crate::{
    clock::millis,
    guard::outage::Circuit,
    status::Sample,
    telemetry::{Circuited, Outcome},
};

use super::hall::Hall;

/// From one sample to the next.
pub(super) const STEP: Duration = Duration::from_secs(5);

/// A quarter of an hour of them.
const KEPT: usize = 180;

/// Samples in the minute for which ages are told.
const A_MINUTE: usize = 12;

/// What is kept of one queue.
pub(super) struct History {
    pub(super) hall: Arc<Hall>,
    samples: VecDeque<Sample>,
    /// The totals at the last sample.
    last: Totals,
    /// Ages of the oldest messages, in each of the last steps; 0 where none came.
    oldest: VecDeque<u64>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Totals {
    done: u64,
    failed: u64,
    suppressed: u64,
    dead: u64,
}

impl Totals {
    fn of(hall: &Hall) -> Self {
        let meters = &hall.jobs.meters;
        Self {
            done: meters.outcome(Outcome::Done),
            failed: meters.outcome(Outcome::Failed),
            suppressed: meters.outcome(Outcome::Suppressed),
            dead: meters.outcomes_of(&[Outcome::DeadLettered, Outcome::Dropped, Outcome::Kept]),
        }
    }
}

impl History {
    pub(super) fn of(hall: Arc<Hall>) -> Self {
        let oldest = VecDeque::from([0; A_MINUTE]);
        Self { hall, samples: VecDeque::with_capacity(KEPT), last: Totals::default(), oldest }
    }

    /// Takes a sample, and sets the gauges.
    pub(super) fn sample(&mut self) {
        let (jobs, now, last) = (&self.hall.jobs, Totals::of(&self.hall), self.last);
        let p99 = jobs.visibility.p99();
        let running = jobs.watch.count();
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample {
            at: jobs.clock.wall().0,
            done: now.done - last.done,
            failed: now.failed - last.failed,
            suppressed: now.suppressed - last.suppressed,
            dead: now.dead - last.dead,
            in_flight: running,
            p99_ms: p99.map(millis),
            visibility_timeout: jobs.visibility.in_force().as_secs(),
        });
        self.last = now;
        self.oldest.pop_front();
        self.oldest.push_back(jobs.meters.take_oldest());
        self.set_gauges(running, p99);
    }

    fn set_gauges(&self, running: usize, p99: Option<Duration>) {
        #[expect(clippy::cast_precision_loss, reason = "counts of what is in one process")]
        let number = |n: usize| n as f64;
        let (hall, meters) = (&self.hall, &self.hall.jobs.meters);
        meters.slots.set(number(hall.jobs.config.concurrency));
        meters.running.set(number(running));
        meters.in_hand_gauge.set(number(usize::try_from(meters.in_hand()).unwrap_or(usize::MAX)));
        meters.stuck.set(number(hall.jobs.stuck.count()));
        meters.visibility.set(hall.jobs.visibility.in_force().as_secs_f64());
        if let Some(p99) = p99 {
            meters.p99.set(p99.as_secs_f64());
        }
        for (which, circuit) in hall.circuits_by_name() {
            meters.circuit(which, openness(circuit), circuit.times_opened());
        }
    }

    /// The samples, the oldest first.
    pub(super) fn samples(&self) -> Vec<Sample> {
        self.samples.iter().cloned().collect()
    }

    /// The age of the oldest message that was received in the last minute.
    pub(super) fn oldest(&self) -> Option<u64> {
        let now = self.hall.jobs.meters.oldest();
        Some(self.oldest.iter().copied().max().unwrap_or_default().max(now)).filter(|age| *age > 0)
    }

    /// How many deliveries have been settled since the start.
    pub(super) fn settled(&self) -> u64 {
        self.hall.jobs.meters.all_settled()
    }
}

fn openness(circuit: &Circuit) -> f64 {
    if circuit.is_open() {
        1.0
    } else if circuit.is_trial() {
        0.5
    } else {
        0.0
    }
}

impl Hall {
    /// All that can pause the queue, as it is counted.
    fn circuits_by_name(&self) -> impl Iterator<Item = (Circuited, &Circuit)> {
        let jobs = &self.jobs;
        let own = [
            (Circuited::Operator, &self.paused),
            (Circuited::Deletes, &self.intake),
            (Circuited::Handler, &jobs.there),
            (Circuited::Bodies, &jobs.bodies_there),
            (Circuited::Brake, &self.brake.circuit),
        ];
        let store = self.remembers().then_some((Circuited::Table, &jobs.store));
        own.into_iter().chain(store).map(|(which, circuit)| (which, &**circuit))
    }
}

/// What was sent and used in the last minutes, for each delivery that was settled in them.
#[derive(Debug)]
pub(super) struct Costs {
    samples: VecDeque<Cost>,
}

/// At one moment, since the start.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Cost {
    pub(super) calls: u64,
    pub(super) units: u64,
    pub(super) settled: u64,
}

/// Five minutes of samples.
const COSTS_KEPT: usize = 60;

impl Default for Costs {
    fn default() -> Self {
        Self { samples: VecDeque::from([Cost::default()]) }
    }
}

impl Costs {
    pub(super) fn sample(&mut self, cost: Cost) {
        if self.samples.len() > COSTS_KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(cost);
    }

    /// Calls and units for each delivery; `None` where none was settled.
    pub(super) fn per_message(&self, now: Cost) -> Option<(f64, f64)> {
        let then = self.samples.front().copied().unwrap_or_default();
        let settled = now.settled.saturating_sub(then.settled);
        #[expect(clippy::cast_precision_loss, reason = "counts of minutes")]
        let of_each = |n: u64| n as f64 / settled as f64;
        (settled > 0)
            .then(|| (of_each(now.calls.saturating_sub(then.calls)), of_each(now.units.saturating_sub(then.units))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_those_of_the_last_five_minutes() {
        let mut costs = Costs::default();
        assert_eq!(costs.per_message(Cost { calls: 3, units: 0, settled: 0 }), None);
        let now = Cost { calls: 300, units: 200, settled: 100 };
        assert_eq!(costs.per_message(now), Some((3.0, 2.0)));
        for _ in 0..=COSTS_KEPT {
            costs.sample(now);
        }
        assert_eq!(costs.per_message(now), None, "what is older is of the past");
        assert_eq!(costs.per_message(Cost { calls: 305, units: 202, settled: 101 }), Some((5.0, 2.0)));
    }
}
