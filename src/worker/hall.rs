//! One queue's side of the worker: what all its lanes and polls share, and what can keep it from receiving.
//!
//! Made by the site, once for each queue. Holds no messages; what happens to those is the lanes' business.

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    config::{OutagePolicy, explain::longest_wait},
    guard::outage::Circuit,
    job::{Jobs, Slots},
    lease::{Term, Tick},
    settle::Desk,
};

use super::{brake::Brake, control::Word, pace::Pace, pulse::Polls};

/// One queue's side of the worker.
pub(crate) struct Hall {
    pub(crate) jobs: Jobs,
    pub(crate) desk: Desk,
    pub(crate) fifo: bool,
    /// What its own settings are, if that could be looked up.
    #[cfg(feature = "lambda")]
    pub(crate) facts: Option<crate::queue::QueueFacts>,
    /// From this receive on SQS gives a message to nobody but the dead-letter queue.
    pub(crate) max_receive_count: Option<u32>,
    pub(crate) drain_timeout: Duration,
    pub(crate) slots: Slots,
    /// The most messages of one receive: on a full answer there is likely more.
    pub(crate) portion: usize,
    /// The most polls at once.
    pub(crate) pollers: usize,
    pub(crate) polls: Polls,
    pub(crate) pace: Option<Pace>,
    /// Whose turn it is to gather slots: pollers that gather side by side share out what comes free, and then each asks
    /// for a few messages where one could ask for ten.
    pub(crate) gathering: tokio::sync::Mutex<()>,
    /// Deliveries that are being settled without a slot: nothing of theirs runs any more.
    pub(crate) settling: Semaphore,
    /// Places for what waits without a slot: half as many as slots, so that waiters never outnumber runs.
    pub(crate) places: Semaphore,
    /// Places for FIFO groups in hand whose head waits for its next attempt, as many as slots.
    pub(crate) resting: Semaphore,
    pub(crate) tick: Tick,
    /// Open while the queue denies deletes.
    pub(crate) intake: Arc<Circuit>,
    pub(crate) brake: Brake,
    /// Where operators' word on the queue is; `None` without a table.
    pub(crate) word: Option<Word>,
    /// Open while an operator has paused the queue.
    pub(crate) paused: Arc<Circuit>,
    /// Nothing new is begun.
    pub(crate) drain: CancellationToken,
    /// How long there is for what is received: as long as the worker stays.
    pub(crate) term: Term,
    /// Every poll has come back: what is given back from now on is not received by ourselves.
    pub(crate) polled: CancellationToken,
    /// The drain's time is over: what is still in hand is cut off.
    pub(crate) gone: CancellationToken,
}

/// So many deliveries are settled at once without a slot; more keep theirs, so that a queue that does not answer stops
/// the intake.
pub(crate) const SETTLING: usize = 200;

/// So many messages are let through at once on a trial: of a single one it could be the same again and again that keeps it
/// from succeeding.
const TRIAL: usize = 3;

impl Hall {
    /// Looks at what operators have said of the queue, and does it.
    pub(crate) async fn heed_operators(&self) {
        if let Some(word) = &self.word {
            word.heed(self).await;
        }
    }

    /// Waits until nothing speaks against receiving.
    pub(super) async fn may_receive(&self) {
        while let Some(circuit) = self.open_circuit() {
            circuit.closed().await;
        }
    }

    /// What is away, if something is that makes receiving pointless.
    pub(crate) fn open_circuit(&self) -> Option<&Circuit> {
        self.circuits().find(|circuit| circuit.is_open())
    }

    /// What is on trial: real work has to show that it is back.
    pub(super) fn on_trial(&self) -> Option<&Circuit> {
        self.circuits().find(|circuit| circuit.is_trial())
    }

    /// All that can pause the queue.
    pub(crate) fn circuits(&self) -> impl Iterator<Item = &Circuit> {
        let store = self.remembers().then_some(&*self.jobs.store);
        self.own_circuits().chain(store)
    }

    /// Those of the queue alone: the guard's store is all queues'.
    pub(super) fn own_circuits(&self) -> impl Iterator<Item = &Circuit> {
        let jobs = &self.jobs;
        [&self.paused, &self.intake, &jobs.there, &jobs.bodies_there, &self.brake.circuit]
            .into_iter()
            .map(|circuit| &**circuit)
    }

    /// Whether every run has a claim, so that a record tells at any later time what has taken effect.
    pub(super) fn remembers(&self) -> bool {
        self.jobs.guard.is_some() && self.jobs.config.guard_outage == OutagePolicy::Pause
    }

    /// How many messages a receive may bring at the most.
    pub(super) fn most(&self) -> usize {
        if self.on_trial().is_some() { self.portion.min(TRIAL) } else { self.portion }
    }

    /// How long a poll waits: as asked, or as long as it may.
    pub(super) fn wait_time(&self) -> Duration {
        self.jobs.config.wait_time.min(longest_wait(self.jobs.visibility.in_force(), self.drain_timeout))
    }
}
