//! What a worker does, gathered for those who ask while it does it.
//!
//! Reads what is there and changes nothing; asked seldom, so nothing is kept up to date for it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    clock::millis,
    config::OutagePolicy,
    guard::outage::{Circuit, Told},
    status::{Pause, Phase, QueueStatus, Status},
};

use super::{hall::Hall, poll::RETRY};

/// What is known of a worker, from its start on.
#[derive(Default)]
pub(crate) struct Board(Mutex<Known>);

#[derive(Default)]
struct Known {
    phase: Phase,
    problems: Vec<String>,
    halls: Vec<Arc<Hall>>,
}

impl Board {
    /// Held for single look-ups and changes.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn enters(&self, phase: Phase) {
        self.known().phase = phase;
    }

    /// What keeps the worker, or some of its queues, from starting.
    pub(super) fn problems(&self, problems: Vec<String>) {
        self.known().problems = problems;
    }

    pub(super) fn works_on(&self, hall: Arc<Hall>) {
        self.known().halls.push(hall);
    }

    fn status(&self) -> Status {
        let known = self.known();
        let queues = known.halls.iter().map(|hall| (hall.jobs.name.to_string(), of(hall)));
        Status { phase: known.phase, problems: known.problems.clone(), queues: queues.collect::<BTreeMap<_, _>>() }
    }
}

/// Tells how a worker is, at any time from its making on. Clones are of the same worker.
#[derive(Clone)]
pub struct Health(pub(super) Arc<Board>);

impl Health {
    /// How it is now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.0.status()
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Health").field(&self.status()).finish()
    }
}

fn of(hall: &Hall) -> QueueStatus {
    let open = hall.jobs.guard.is_some() && hall.jobs.config.guard_outage == OutagePolicy::Open;
    QueueStatus {
        guard: hall.jobs.config.guard.to_string(),
        guard_outage: hall.jobs.config.guard_outage.to_string(),
        slots: hall.jobs.config.concurrency,
        free_slots: hall.slots.free(),
        visibility_timeout: hall.jobs.visibility.in_force().as_secs(),
        handler_p99_ms: hall.jobs.visibility.p99().map(millis),
        polled_ms_ago: hall.polls.back_since().map(millis),
        polls_come_back: hall.polls.come_back(),
        pauses: told(hall, Circuit::is_open).chain(failing(hall)).collect(),
        trials: told(hall, Circuit::is_trial).collect(),
        unguarded: open.then(|| hall.jobs.store.told().map(pause)).flatten(),
    }
}

/// What the queue's circuits say that are in that state.
fn told(hall: &Hall, state: fn(&Circuit) -> bool) -> impl Iterator<Item = Pause> {
    hall.circuits().filter(move |circuit| state(circuit)).filter_map(Circuit::told).map(pause)
}

/// Receives that fail are no pause on purpose, but bring as little.
fn failing(hall: &Hall) -> Option<Pause> {
    let ends = format!("asked again by itself, at least every {} s", RETRY.1.as_secs());
    Some(Pause { what: format!("receiving from {}", hall.jobs.name), cause: hall.polls.failure()?, ends })
}

fn pause(Told { what, cause, ends }: Told) -> Pause {
    Pause { what, cause, ends }
}
