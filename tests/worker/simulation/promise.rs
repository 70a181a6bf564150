//! The promise, literally: looked at whenever something happens to the queue, to a record, or in a handler.
//!
//! It sees what was really applied, beneath all faults, and believes no worker. Numbers are those of the invariants in
//! `simulation.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold::{
    Message,
    clock::{Clock, Millis},
    guard::{Change, Fence, Owner, Pk, Record, Status, StepState, TakeOver, TakeOverKind, memory::MemoryGuard},
    key::FingerprintSource,
    message::{DEAD_LETTER_ATTRIBUTE, Note},
    queue::Outgoing,
};

use super::{
    groups::Groups,
    plan::{Plan, SKEW},
    trace::Trace,
};

#[derive(Debug)]
pub(crate) struct Promise {
    pub(super) plan: Arc<Plan>,
    pub(super) trace: Arc<Trace>,
    pub(super) guard: MemoryGuard,
    /// The wall clocks of the workers.
    pub(super) clocks: Vec<Clock>,
    /// Order inside the groups of a FIFO queue.
    pub(crate) groups: Groups,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// All messages that ever came into the queue, by id.
    pub(super) sent: BTreeMap<String, Sent>,
    pub(super) copies: Vec<Letter>,
    /// Failures that a record says, and until when it said so.
    deaths: BTreeMap<String, Option<Duration>>,
    /// Bodies that the operator has replaced in a dead letter: he answers for them.
    pub(super) mended: BTreeSet<String>,
    /// Which worker holds a token.
    owners: BTreeMap<Owner, usize>,
    /// The furthest end of each claim's lease that was ever written.
    leases: BTreeMap<(Pk, Fence), Millis>,
    /// Runs that go on, by number.
    runs: BTreeMap<u64, Run>,
    runs_begun: u64,
    /// When suspended machines wake, or last woke.
    wakes_at: Option<Duration>,
    /// Runs that have returned `Ok`.
    succeeded: BTreeSet<(Pk, Fence)>,
    /// Their bodies.
    took_effect: BTreeSet<String>,
    /// Their messages, by id.
    succeeded_messages: BTreeSet<String>,
}

/// How long after a lease's end a run may still be there: it is aborted then, and needs a moment to be gone.
const ABORT: Duration = Duration::from_secs(1);

/// A message that came into the queue.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) body: String,
    at: Duration,
    failure_id: Option<String>,
}

/// A copy that was dead-lettered by a worker.
#[derive(Debug)]
pub(super) struct Letter {
    body: String,
    at: Duration,
    failure_id: Option<String>,
}

#[derive(Debug)]
struct Run {
    worker: usize,
    pk: Pk,
    fence: Fence,
}

/// A write to the guard's table that was applied.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Write<'a> {
    Claim,
    TakeOver(&'a TakeOver),
    Change(&'a Change),
}

impl Promise {
    pub(crate) fn new(
        plan: Arc<Plan>,
        trace: Arc<Trace>,
        guard: MemoryGuard,
        clocks: Vec<Clock>,
        groups: Groups,
    ) -> Self {
        Self { plan, trace, guard, clocks, groups, state: Mutex::default() }
    }

    /// Held for straight lines. A test that panics inside has failed anyway.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn broken(&self, rule: u32, what: impl std::fmt::Display) {
        self.trace.violated(format_args!("invariant {rule}: {what}"));
    }

    /// A producer or an operator has sent a message.
    pub(crate) fn sent(&self, id: String, body: &str, note: Option<&Note>) {
        let failure_id = note.map(|note| note.failure_id.clone());
        let sent = Sent { body: body.to_owned(), at: self.trace.now(), failure_id };
        self.state().sent.insert(id, sent);
    }

    /// For a message that is sent: SQS takes none like it for a duplicate.
    pub(crate) fn next_deduplication_id(&self) -> String {
        format!("sent-{}", self.state().sent.len())
    }

    /// An operator has replaced this body by another.
    pub(crate) fn mended(&self, body: &str) {
        self.state().mended.insert(body.to_owned());
    }

    /// All machines are suspended, until then.
    pub(crate) fn wakes(&self, then: Duration) {
        self.state().wakes_at = Some(then);
    }

    /// A worker has dead-lettered a copy.
    pub(crate) fn copied(&self, copy: &Outgoing) {
        let note = note_of(copy);
        let failure_id = note.map(|note| note.failure_id);
        let copy = Letter { body: copy.body.clone(), at: self.trace.now(), failure_id };
        self.state().copies.push(copy);
    }

    /// A message has left its queue by a worker's delete.
    pub(crate) fn deleted(&self, id: &str) {
        if !self.is_accounted_for(id) {
            self.broken(1, format_args!("{id} was deleted, and its work is neither done nor dead-lettered"));
        }
    }

    /// Its work is done or dead-lettered: nobody waits for this message any more.
    pub(super) fn is_accounted_for(&self, id: &str) -> bool {
        let state = self.state();
        let Some(sent) = state.sent.get(id) else { return true };
        let done = if self.plan.line_of(&sent.body).is_guarded() {
            self.is_done(&state, &sent.body)
        } else {
            state.succeeded_messages.contains(id)
        };
        done || state.has_copy_of(sent)
    }

    pub(super) fn is_dead_lettered(&self, id: &str) -> bool {
        let state = self.state();
        state.sent.get(id).is_some_and(|sent| state.has_copy_of(sent))
    }

    /// No program can look at its lease and begin in one instant: it may be suspended between the two.
    pub(super) fn has_just_woken(&self) -> bool {
        self.state().wakes_at == Some(self.trace.now())
    }

    /// The record says so of this very payload; or of another that began anew on it, when a run of this one had already
    /// succeeded and only its confirm came too late.
    ///
    /// Without a guard nothing says so but the handler.
    pub(super) fn is_done(&self, state: &State, body: &str) -> bool {
        if !self.plan.line_of(body).is_guarded() {
            return state.took_effect.contains(body);
        }
        let done = self.guard.record(&self.pk_of(body)).filter(|record| record.status == Status::Done);
        done.is_some_and(|done| done.fingerprint == fingerprint_of(body) || state.took_effect.contains(body))
    }

    /// The record's key, from a body: what the configuration of the simulated workers makes of it.
    fn pk_of(&self, body: &str) -> Pk {
        use leasehold::key::{Key, KeyHash, pk};
        let id = super::handler::Order::of(body).map(|order| order.id).unwrap_or_default();
        pk(None, self.plan.line_of(body).name, &Key::from(id), KeyHash::Long).expect("the id is a key")
    }

    /// A write to the table was applied.
    pub(crate) fn wrote(&self, worker: usize, before: Option<&Record>, after: &Record, write: Write<'_>) {
        match (write, before) {
            (Write::Claim, None) => {}
            (Write::Claim, Some(before)) => {
                self.broken(6, format_args!("a claim replaced {} which is {:?}", before.pk, before.status));
            }
            (Write::TakeOver(take_over), Some(before)) => self.taken_over(before, after, take_over),
            (Write::Change(change), Some(before)) => self.changed(before, after, change),
            (_, None) => self.broken(6, format_args!("{} was changed where there was none", after.pk)),
        }
        if after.failures > self.plan.max_attempts {
            self.broken(7, format_args!("{} counts {} failures", after.pk, after.failures));
        }
        if let Some(undo) = after.undo.as_ref().filter(|undo| undo.failures > self.plan.max_attempts) {
            self.broken(7, format_args!("{} counts {} failures of its undo", after.pk, undo.failures));
        }
        let mut state = self.state();
        if !matches!(write, Write::Change(_)) {
            state.owners.insert(after.owner.clone(), worker);
        }
        if matches!(after.status, Status::Running | Status::Failed) {
            let until = state.leases.entry((after.pk.clone(), after.fence)).or_default();
            *until = after.lease_until.max(*until);
        }
    }

    fn taken_over(&self, before: &Record, after: &Record, take_over: &TakeOver) {
        let pk = &before.pk;
        let anew = take_over.kind == TakeOverKind::Anew;
        self.trace.met(match take_over.kind {
            TakeOverKind::Resume => "resumed",
            TakeOverKind::AfterLapse => "taken over",
            TakeOverKind::Park { .. } => "parked",
            TakeOverKind::Anew => "begun anew",
            TakeOverKind::Fresh => "begun afresh",
        });
        if after.fence <= before.fence {
            self.broken(6, format_args!("the fence of {pk} went from {:?} to {:?}", before.fence, after.fence));
        }
        if let Some(id) = before.failure_id.clone().filter(|_| before.status == Status::Dead) {
            self.state().deaths.insert(id, Some(self.trace.now()));
        }
        match before.status {
            Status::Done => self.broken(6, format_args!("{pk} is DONE and was taken over")),
            Status::Dead if !anew || !self.may_begin_anew(before, take_over) => {
                self.broken(6, format_args!("{pk} is DEAD and was taken over by {:?}", take_over.claim.source));
            }
            Status::Running | Status::Failed => self.was_over(before),
            Status::Released if before.not_before.is_some_and(|at| take_over.claim.now < at) => {
                self.broken(2, format_args!("{pk} was taken over before its time"));
            }
            Status::Dead | Status::Released => {}
        }
    }

    /// By the former owner's own clock: it may have run until then.
    fn was_over(&self, before: &Record) {
        let state = self.state();
        let Some(clock) = state.owners.get(&before.owner).and_then(|worker| self.clocks.get(*worker)) else { return };
        let (now, until) = (clock.wall(), before.lease_until);
        drop(state);
        if now < until && !self.plan.wild {
            let left = until.since(now);
            self.broken(2, format_args!("{} was taken over {left:?} before its owner's lease ended", before.pk));
        }
    }

    /// Rule G11, read again from the ledger and not from what the worker saw.
    fn may_begin_anew(&self, before: &Record, take_over: &TakeOver) -> bool {
        let source = &take_over.claim.source;
        let state = self.state();
        let id = self.plan.line_named(&source.queue).map(|line| line.tag(&source.message_id)).unwrap_or_default();
        let failure_id = state.sent.get(&id).and_then(|sent| sent.failure_id.as_ref());
        let sent_later = source.sent_at > before.dead_at.map(|at| at + SKEW);
        sent_later || (failure_id.is_some() && failure_id == before.failure_id.as_ref())
    }

    fn changed(&self, before: &Record, after: &Record, change: &Change) {
        let pk = &before.pk;
        if change.owner().is_some_and(|owner| *owner != before.owner) {
            self.broken(6, format_args!("a former owner's {} changed {pk}", change.name()));
        }
        let terminal = matches!(before.status, Status::Done | Status::Dead);
        if terminal && after.status != before.status {
            self.broken(6, format_args!("{pk} went from {:?} to {:?}", before.status, after.status));
        }
        match change {
            Change::Confirm { .. } => {
                self.trace.met("done");
                if !self.state().succeeded.contains(&(pk.clone(), after.fence)) {
                    self.broken(1, format_args!("{pk} is DONE, and no run of that claim has succeeded"));
                }
            }
            Change::Bury { failure_id, .. } => {
                self.trace.met("dead");
                self.state().deaths.insert(failure_id.clone(), None);
            }
            Change::Copied { failure_id, .. } => {
                self.trace.met("marked as copied");
                let made = self.state().copies.iter().any(|copy| copy.failure_id.as_ref() == Some(failure_id));
                if !made {
                    self.broken(6, format_args!("{pk} says that its copy is sent, and there is none"));
                }
            }
            _ => {}
        }
    }

    /// A handler begins. Answers the run's number.
    pub(crate) fn run_began(&self, worker: usize, id: &str, body: &str, pk: &Pk, fence: Fence) -> u64 {
        self.groups.run_began(self, id);
        if self.plan.line_of(body).is_guarded() {
            self.run_began_under_its_claim(worker, pk, fence);
        }
        self.begins(worker, pk, fence)
    }

    fn begins(&self, worker: usize, pk: &Pk, fence: Fence) -> u64 {
        let mut state = self.state();
        let number = state.runs_begun;
        state.runs_begun += 1;
        state.runs.insert(number, Run { worker, pk: pk.clone(), fence });
        number
    }

    /// Undoing begins. Answers the run's number.
    pub(crate) fn undo_began(&self, worker: usize, id: &str, pk: &Pk, fence: Fence) -> u64 {
        self.groups.run_began(self, id);
        let now = self.clocks[worker].wall();
        match self.guard.record(pk) {
            Some(record) if record.status == Status::Failed && record.fence == fence && now < record.lease_until => {}
            _ if self.has_just_woken() || self.plan.wild => {}
            other => {
                self.broken(12, format_args!("{pk} is undone at {now} under {fence:?}, and its record is {other:?}"));
            }
        }
        self.alone(pk, fence);
        self.begins(worker, pk, fence)
    }

    fn run_began_under_its_claim(&self, worker: usize, pk: &Pk, fence: Fence) {
        let now = self.clocks[worker].wall();
        match self.guard.record(pk) {
            Some(record) if record.status == Status::Done => {
                self.broken(3, format_args!("{pk} is DONE and runs again"));
            }
            Some(r) if r.status == Status::Running && r.fence == fence && now < r.lease_until => {}
            _ if self.has_just_woken() || self.plan.wild => {}
            other => {
                self.broken(2, format_args!("{pk} runs at {now} under fence {fence:?}, and its record is {other:?}"));
            }
        }
        self.alone(pk, fence);
    }

    fn alone(&self, pk: &Pk, fence: Fence) {
        let state = self.state();
        let beside = state.runs.values().filter(|run| run.pk == *pk && run.fence != fence);
        let overlap = beside.into_iter().find(|run| {
            let until = state.leases.get(&(run.pk.clone(), run.fence));
            until.is_some_and(|until| self.clocks[run.worker].wall() < *until)
        });
        if let Some(run) = overlap.filter(|_| !self.plan.wild) {
            self.broken(
                2,
                format_args!("{pk} runs beside its run by worker {}, whose lease has not ended", run.worker),
            );
        }
    }

    /// A run succeeded: it is about to return `Ok`.
    pub(crate) fn run_succeeded(&self, pk: &Pk, fence: Fence, id: String, message: &Message) {
        let mut state = self.state();
        state.succeeded.insert((pk.clone(), fence));
        state.took_effect.insert(message.body.clone());
        state.succeeded_messages.insert(id);
    }

    /// A run is over, however that came; by then its lease may just have ended.
    pub(crate) fn run_ended(&self, number: u64, has_crashed: bool) {
        let mut state = self.state();
        let Some(run) = state.runs.remove(&number) else { return };
        let until = state.leases.get(&(run.pk.clone(), run.fence)).copied();
        let late = until.map(|until| self.clocks[run.worker].wall().since(until));
        drop(state);
        if let Some(late) = late.filter(|late| *late > ABORT && !has_crashed && !self.plan.suspends()) {
            self.broken(2, format_args!("a run of {} went on for {late:?} after its lease had ended", run.pk));
        }
    }

    /// A step's closure begins, with this key downstream.
    pub(crate) fn step_began(&self, pk: &Pk, step: &str, downstream: &str) {
        let recorded = self.guard.record(pk).and_then(|record| record.steps.get(step).cloned());
        if recorded.is_some_and(|recorded| recorded.state == StepState::Done) && !self.plan.wild {
            self.broken(4, format_args!("{step} of {pk} is recorded and runs again as {downstream}"));
        }
    }
}

impl State {
    /// Whether a copy of this message is dead-lettered. A duplicate that was sent later than the copy belongs to the same
    /// failure, while its record says so.
    fn has_copy_of(&self, sent: &Sent) -> bool {
        let same_failure = |id: &String| self.deaths.get(id).is_some_and(|end| end.is_none_or(|end| end >= sent.at));
        self.copies.iter().any(|copy| {
            copy.body == sent.body && (copy.at >= sent.at || copy.failure_id.as_ref().is_some_and(same_failure))
        })
    }
}

/// The note in a copy, if it carries one.
fn note_of(copy: &Outgoing) -> Option<Note> {
    match &copy.attributes.get(DEAD_LETTER_ATTRIBUTE)?.value {
        leasehold::message::AttributeValue::Text(json) => serde_json::from_str(json).ok(),
        leasehold::message::AttributeValue::Binary(_) => None,
    }
}

fn fingerprint_of(body: &str) -> Option<String> {
    let mut message = Message::default();
    message.body = body.to_owned();
    FingerprintSource::Body.of(&message)
}
