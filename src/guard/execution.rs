//! A claim that is ours: the execution lease, and the writes that its owner may make.
//!
//! Owns the local view of the record (its steps above all) and the token that every write needs. Decides nothing: what
//! is to be written comes from the job.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tracing::Instrument as _;

use crate::{
    causes::in_full,
    clock::{Clock, Millis},
    lease::{Beat, Lease},
    queue::LONGEST_VISIBILITY,
    seldom::seldom,
    testing::{Planted, planted},
    trace,
};

use super::{
    Change, Failure, Fence, Guard, GuardError, LARGEST_RECORD, Owner, Pk, Record, Status, Step, StepState, Undoing,
    Written, outage::Circuit,
};

#[cfg(test)]
pub(crate) use claimed::claimed;
pub(crate) use commit::{NotMade, Progress};

#[cfg(test)]
mod claimed;
mod commit;

/// What came of a write by the owner.
#[derive(Debug)]
pub(crate) enum Owned {
    /// It is written.
    Applied,
    /// The record is DONE by this very claim, whatever was about to be written (rule G3).
    Done,
    /// The record is somebody else's by now, or gone; this is what it says.
    Lost(Option<Box<Record>>),
}

/// What is recorded of work that has failed for good.
#[derive(Debug, Clone)]
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    /// Failed attempts.
    pub(crate) failures: u32,
    /// Names the failure.
    pub(crate) id: String,
}

/// The right to run one key, from a claim to its end.
#[derive(Debug)]
pub(crate) struct ExecutionLease {
    guard: Arc<dyn Guard>,
    store: Arc<Circuit>,
    clock: Clock,
    pub(crate) pk: Pk,
    pub(crate) fence: Fence,
    owner: Owner,
    /// The record as it was claimed, but for its steps: they are in `steps`.
    pub(crate) claimed: Record,
    steps: Mutex<Steps>,
    /// Locked for single looks, never across an await.
    commit: Mutex<Progress>,
    /// How long "done" is remembered.
    done_ttl: Duration,
    pub(crate) lease: Lease,
}

#[derive(Debug, Default)]
struct Steps {
    recorded: BTreeMap<String, Step>,
    /// Ended, but not known to be in the record.
    unwritten: BTreeMap<String, Step>,
}

/// A first pause between two tries of a write, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// So often a step's write is tried again before the run is told; the job tries on when the run has ended.
const STEP_TRIES: u32 = 3;

impl ExecutionLease {
    /// For a record that was just claimed; the lease counts from before that call.
    pub(crate) fn new(
        (guard, store): (Arc<dyn Guard>, Arc<Circuit>),
        clock: Clock,
        mut record: Record,
        lease: Lease,
        done_ttl: Duration,
    ) -> Self {
        Self {
            guard,
            store,
            lease,
            clock,
            pk: record.pk.clone(),
            fence: record.fence,
            owner: record.owner.clone(),
            steps: Mutex::new(Steps { recorded: std::mem::take(&mut record.steps), ..Steps::default() }),
            commit: Mutex::default(),
            done_ttl,
            claimed: record,
        }
    }

    /// Held for a few straight lines, never across an await: the run and the job's end both look at the steps.
    fn steps(&self) -> MutexGuard<'_, Steps> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is recorded of a step, or has ended and will be.
    pub(crate) fn step(&self, name: &str) -> Option<Step> {
        let steps = self.steps();
        if planted(Planted::StepsForgotten) {
            return None;
        }
        steps.unwritten.get(name).or_else(|| steps.recorded.get(name)).cloned()
    }

    /// The step that was recorded last.
    pub(crate) fn last_step(&self) -> Option<String> {
        self.steps().recorded.iter().max_by_key(|(_, step)| step.at).map(|(name, _)| name.clone())
    }

    /// The names of all steps that are recorded as done.
    pub(crate) fn finished_steps(&self) -> Vec<String> {
        let steps = self.steps();
        let done = steps.recorded.iter().filter(|(_, step)| step.state == StepState::Done);
        done.map(|(name, _)| name.clone()).collect()
    }

    /// All steps that are recorded, or have ended and will be.
    pub(crate) fn all_steps(&self) -> BTreeMap<String, Step> {
        let steps = self.steps();
        steps.recorded.iter().chain(&steps.unwritten).map(|(name, step)| (name.clone(), step.clone())).collect()
    }

    /// A step whose beginning may not have been recorded did not begin: that is what is written in its place.
    pub(crate) fn takes_back(&self, name: &str, step: Step) {
        if let Some(unwritten) = self.steps().unwritten.get_mut(name) {
            *unwritten = step;
        }
    }

    /// Whether a step has ended whose record did not get through yet.
    pub(crate) fn has_unwritten_steps(&self) -> bool {
        !self.steps().unwritten.is_empty()
    }

    /// How many bytes a step and its name may have, in place of what is recorded of it so far.
    pub(crate) fn room(&self, name: &str) -> usize {
        let steps = self.steps();
        let others = steps.recorded.iter().chain(&steps.unwritten).filter(|(other, _)| *other != name);
        let taken: usize = others.map(|(name, step)| name.len() + step.size()).sum();
        LARGEST_RECORD.saturating_sub(self.claimed.size() + taken)
    }

    /// Records a step that has ended. An error leaves it to [`flush`](Self::flush).
    pub(crate) async fn record_step(&self, name: String, step: Step) -> Result<Owned, GuardError> {
        self.steps().unwritten.insert(name.clone(), step.clone());
        let change = self.step_change(&name, step);
        let mut pauses = 0;
        loop {
            match self.write(&change).await {
                Err(error) if error.is_transient() && pauses < STEP_TRIES => {
                    pauses += 1;
                    sleep(self.clock.backoff(RETRY, pauses)).await;
                }
                answer => {
                    if matches!(answer, Ok(Owned::Applied)) {
                        self.written(&name);
                    }
                    return answer;
                }
            }
        }
    }

    /// Writes the steps that ended but whose write did not get through, so that they never run again. Patient: ends
    /// when all are written or the record is no longer ours; a write that can never succeed is given up.
    pub(crate) async fn flush(&self) {
        loop {
            let Some((name, step)) = self.steps().unwritten.first_key_value().map(|(n, s)| (n.clone(), s.clone()))
            else {
                return;
            };
            match self.insist(&self.step_change(&name, step)).await {
                Ok(Owned::Applied) => self.written(&name),
                Ok(Owned::Done | Owned::Lost(_)) => return,
                Err(error) => {
                    let queue = &self.claimed.source.queue;
                    tracing::error!(queue, pk = %self.pk, step = name, error = in_full(&error), "a finished step cannot be recorded");
                    self.steps().unwritten.remove(&name);
                }
            }
        }
    }

    fn step_change(&self, name: &str, step: Step) -> Change {
        Change::Step { owner: self.owner.clone(), now: self.clock.wall(), name: name.to_owned(), step }
    }

    fn written(&self, name: &str) {
        let mut steps = self.steps();
        if let Some((name, step)) = steps.unwritten.remove_entry(name) {
            steps.recorded.insert(name, step);
        }
    }

    /// One beat: renews the lease in the record, counted from now.
    pub(crate) async fn renew(&self, length: Duration) -> Beat {
        let now = self.clock.wall();
        let change = Change::Renew { owner: self.owner.clone(), now, lease_until: now + length };
        match self.write(&change).await {
            Ok(Owned::Applied) => Beat::Renewed,
            // Our own finishing write came first; there is nothing left to renew.
            Ok(Owned::Done) => Beat::Final,
            Ok(Owned::Lost(record)) if record.as_ref().is_some_and(|record| record.owner == self.owner) => Beat::Final,
            Ok(Owned::Lost(_)) => Beat::Lost,
            Err(error) => {
                let (queue, pk, error, left) =
                    (&self.claimed.source.queue, &self.pk, in_full(&error), self.lease.left());
                seldom!(self.store.seldom, "not renewed", warn, queue, %pk, error, ?left, "the execution lease was not renewed; tried on");
                Beat::Transient
            }
        }
    }

    pub(crate) fn confirmation(&self) -> Change {
        let now = self.clock.wall();
        Change::Confirm { owner: self.owner.clone(), now, expires_at: (now + self.done_ttl).seconds() }
    }

    /// The work has failed for good, and is to be undone.
    pub(crate) fn failing(&self, failed: &Failed) -> Change {
        Change::Fail {
            owner: self.owner.clone(),
            now: self.clock.wall(),
            failures: failed.failures,
            error: failed.failure.clone(),
            failure_id: failed.id.clone(),
        }
    }

    /// Gives back what is being undone. It has to wait until then: by that it is told from one whose worker died.
    pub(crate) fn release_undone(&self, failures: u32, not_before: Millis, undo: Undoing) -> Change {
        Change::Release {
            owner: self.owner.clone(),
            now: self.clock.wall(),
            not_before: Some(not_before),
            failures,
            error: None,
            undo: Some(undo),
        }
    }

    /// Gives the claim back. `failure` counts as a failed attempt.
    pub(crate) fn release(&self, not_before: Option<Millis>, failure: Option<Failure>) -> Change {
        let failures = self.claimed.failures + u32::from(failure.is_some());
        Change::Release {
            owner: self.owner.clone(),
            now: self.clock.wall(),
            not_before,
            failures,
            error: failure,
            undo: None,
        }
    }

    pub(crate) fn burial(&self, failed: &Failed, undo: Option<Undoing>, ttl: Duration) -> Change {
        let now = self.clock.wall();
        Change::Bury {
            owner: self.owner.clone(),
            now,
            failures: failed.failures,
            error: failed.failure.clone(),
            failure_id: failed.id.clone(),
            undo,
            expires_at: (now + ttl).seconds(),
        }
    }

    /// Writes once, without insisting.
    pub(crate) async fn write(&self, change: &Change) -> Result<Owned, GuardError> {
        Ok(match self.guard.write(&self.pk, change).await? {
            Written::Applied => Owned::Applied,
            Written::Refused(Some(record)) if record.owner == self.owner && record.status == Status::Done => {
                Owned::Done
            }
            Written::Refused(record) => Owned::Lost(record),
        })
    }

    /// Writes what has happened and must not be lost, again and again until the store answers or nobody can wait any
    /// longer. Harmless however late it is, by the write's condition (rule L1).
    ///
    /// # Cancel safety
    /// Dropped, the write may or may not have been applied.
    pub(crate) async fn insist(&self, change: &Change) -> Result<Owned, GuardError> {
        self.until_written(change).instrument(trace::record(change.name())).await
    }

    async fn until_written(&self, change: &Change) -> Result<Owned, GuardError> {
        let mut pauses: u32 = 0;
        let begun = Instant::now();
        loop {
            match self.write(change).await {
                Err(error) if error.is_transient() && begun.elapsed() < LONGEST_VISIBILITY => {
                    let (queue, pk, error) = (&self.claimed.source.queue, &self.pk, in_full(&error));
                    seldom!(self.store.seldom, "not written", warn, queue, %pk, error, "not written yet");
                    pauses = pauses.saturating_add(1);
                    self.store.pause_or_probe(self.clock.backoff(RETRY, pauses)).await;
                }
                answer => return answer,
            }
        }
    }
}
