//! The steps of one run, without their types: which may begin, what is recorded of them, and what was taken.
//!
//! A step is written under the claim's condition, after its effect and before the handler goes on; one that may run only
//! once is written before its effect too. Nothing here runs a step that is recorded, nor begins one when the run is told to
//! stop.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    clock::{Clock, Millis},
    guard::{
        Step, StepState,
        execution::{ExecutionLease, Owned},
    },
    handler::error::Verdict,
    testing::{Planted, planted},
};

use super::{
    super::{Cancelled, commit::not_after_commit},
    HandlerError, HandlerResult, StepKey,
};

/// Whether a step whose outcome is not known may run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It may, with the same downstream key.
    Repeatable,
    /// It may not.
    Once,
}

/// What a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The work.
    Work,
    /// It undoes it.
    Undo,
}

/// Records the steps of one run in the claim's record.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) claim: Arc<ExecutionLease>,
    pub(crate) part: Part,
    clock: Clock,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    names: BTreeSet<String>,
    /// The step that was taken last.
    last: Option<String>,
    /// The step that this run was the first to finish, before any other.
    first_new: Option<String>,
    /// It was told that steps changed their order.
    is_told: bool,
}

/// How a step begins.
pub(crate) enum Begun {
    /// It is recorded, with this result as JSON; `None` for one that was not kept. It does not run.
    Recorded(Option<String>),
    /// It runs.
    Runs(Running),
}

/// A step that runs.
#[derive(Debug)]
pub(crate) struct Running {
    name: String,
    pub(crate) kind: Kind,
    generation: u32,
    pub(crate) key: StepKey,
}

/// Room that is kept for a step's result before the step is begun: what a small result and its bookkeeping take.
const RESERVED: usize = 4 * 1024;

/// The longest name of a step, in bytes.
const LONGEST_NAME: usize = 255;

impl Recorder {
    pub(crate) fn new(claim: Arc<ExecutionLease>, clock: Clock, part: Part) -> Self {
        Self { claim, part, clock, taken: Mutex::default() }
    }

    /// Takes a step by its name: it is recorded, or it may run now.
    pub(crate) async fn begin(&self, name: String, kind: Kind, cancelled: &Cancelled) -> HandlerResult<Begun> {
        self.take(&name)?;
        not_after_commit(&self.claim, || format!("step {name:?}"))?;
        let generation = match self.claim.step(&name) {
            Some(step) if step.state == StepState::Done => {
                self.notice_order(&name);
                return Ok(Begun::Recorded(step.result));
            }
            Some(step) if step.state == StepState::Undone => step.generation.saturating_add(1),
            Some(step) if kind == Kind::Once => return Err(in_doubt(&name, begun_before(step.at))),
            Some(step) => step.generation,
            None => 1,
        };
        self.may_begin(&name, cancelled)?;
        let key = if planted(Planted::StepKeyOfTheClaim) {
            StepKey::new(&self.claim.pk.0, &format!("{name}/{}", self.claim.fence.0), generation)
        } else {
            StepKey::new(&self.claim.pk.0, &name, generation)
        };
        let running = Running { name, kind, generation, key };
        if kind == Kind::Once {
            self.start(&running).await?;
        }
        Ok(Begun::Runs(running))
    }

    /// Records that a step took effect, with its result as JSON; whether that could be kept.
    pub(crate) async fn done(&self, running: &Running, json: Option<String>) -> HandlerResult<bool> {
        let room = self.claim.room(&running.name);
        let bare = running.as_it_is(StepState::Done, None, &self.clock).size() + running.name.len();
        let json = json.filter(|json| json.len() + bare <= room);
        let kept = json.is_some();
        self.write(running, StepState::Done, json).await?;
        self.taken().first_new.get_or_insert_with(|| running.name.clone());
        Ok(kept)
    }

    /// What follows from a step's failure. One that may run only once is in doubt now, unless its error says that it
    /// certainly took no effect.
    pub(crate) async fn failed(&self, running: &Running, error: HandlerError) -> HandlerError {
        let was_not_begun = matches!(error.verdict, Verdict::Unavailable(_) | Verdict::NotYet(_));
        let is_certain = error.definite || (running.kind == Kind::Once && was_not_begun);
        if is_certain {
            return self.write(running, StepState::Undone, None).await.err().unwrap_or(error);
        }
        match running.kind {
            Kind::Repeatable => error,
            Kind::Once => in_doubt(&running.name, error),
        }
    }

    /// The key under which a step runs next, or ran.
    pub(crate) fn key(&self, name: &str) -> StepKey {
        let generation = match self.claim.step(name) {
            Some(step) if step.state == StepState::Undone => step.generation.saturating_add(1),
            Some(step) => step.generation,
            None => 1,
        };
        StepKey::new(&self.claim.pk.0, name, generation)
    }

    /// What is recorded of a step.
    pub(crate) fn recorded(&self, name: &str) -> Option<Step> {
        self.claim.step(name)
    }

    /// Whatever is recorded of steps, by their names.
    pub(crate) fn all(&self) -> BTreeMap<String, Step> {
        self.claim.all_steps()
    }

    /// The step that was taken last.
    pub(crate) fn last_taken(&self) -> Option<String> {
        self.taken().last.clone()
    }

    /// How much is left of the lease that allows the run.
    pub(crate) fn lease_left(&self) -> Duration {
        self.claim.lease.left()
    }

    /// Tells of steps that are recorded and were not taken by a run that has come to its end.
    pub(crate) fn notice_vanished(&self) {
        let taken = self.taken();
        let recorded = self.claim.finished_steps();
        let vanished: Vec<_> = recorded.iter().filter(|name| !taken.names.contains(*name)).collect();
        if !vanished.is_empty() {
            tracing::warn!(
                pk = %self.claim.pk, ?recorded, taken = ?taken.names,
                "an earlier run recorded steps that this one did not take, {vanished:?}: was the handler changed?"
            );
        }
    }

    /// Tells once if a step that an earlier run recorded comes after one that no run before had finished. Steps that run side
    /// by side have no order.
    fn notice_order(&self, name: &str) {
        let mut taken = self.taken();
        let Some(first) = taken.first_new.clone().filter(|_| !taken.is_told) else { return };
        taken.is_told = true;
        drop(taken);
        tracing::warn!(
            pk = %self.claim.pk, recorded = ?self.claim.finished_steps(),
            "step {name:?} is recorded by an earlier run, in which it came before {first:?}: was the handler changed?"
        );
    }

    /// A name is good for one step of a run: twice the same name would hand the first one's result to the second.
    fn take(&self, name: &str) -> HandlerResult {
        if name.is_empty() || name.len() > LONGEST_NAME {
            let text = format!("a step's name has 1 to {LONGEST_NAME} bytes, and {name:?} has {}", name.len());
            return Err(HandlerError::new(text).permanent().reason("step_name"));
        }
        let mut taken = self.taken();
        if taken.names.insert(name.to_owned()) {
            taken.last = Some(name.to_owned());
            return Ok(());
        }
        drop(taken);
        Err(HandlerError::new(format!("step {name:?} was taken twice in one run")).permanent().reason("step_repeated"))
    }

    fn may_begin(&self, name: &str, cancelled: &Cancelled) -> HandlerResult {
        if let Some(cause) = cancelled.cause() {
            let text = format!("step {name:?} was not begun: the run is to stop ({cause:?})");
            return Err(HandlerError::interrupted(text));
        }
        if self.claim.lease.is_over() {
            return Err(HandlerError::interrupted(format!("step {name:?} was not begun: the execution lease is over")));
        }
        if self.claim.room(name) < RESERVED + name.len() {
            let text = format!("step {name:?} was not begun: the record has no room for its result");
            return Err(HandlerError::new(text).permanent().reason("record_full"));
        }
        Ok(())
    }

    /// Records that a step begins. It does not, where that is not known to be recorded: then nothing is in doubt.
    async fn start(&self, running: &Running) -> HandlerResult {
        if planted(Planted::OnceWithoutStart) {
            return Ok(());
        }
        // Also when it is dropped meanwhile. Once it is recorded there is nothing to take back.
        let _taken_back = TakesBack(self, running);
        self.write(running, StepState::Started, None).await
    }

    async fn write(&self, running: &Running, state: StepState, result: Option<String>) -> HandlerResult {
        let name = &running.name;
        match self.claim.record_step(name.clone(), running.as_it_is(state, result, &self.clock)).await {
            Ok(Owned::Applied) => Ok(()),
            Ok(Owned::Done | Owned::Lost(_)) => {
                let text = format!("step {name:?} is not recorded: another worker has taken over");
                Err(HandlerError::interrupted(text))
            }
            Err(error) if error.is_transient() => {
                Err(HandlerError::interrupted(format!("step {name:?} could not be recorded yet: {error}")))
            }
            // An interruption would run it again and again, for no attempt would be used.
            Err(error) => {
                let text = format!("step {name:?} can never be recorded: {error}");
                Err(HandlerError::new(text).permanent().reason("step_not_recorded"))
            }
        }
    }

    /// Held for single lines; an insert that panics leaves a set that is still one.
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A step whose beginning is being written, and has not begun.
struct TakesBack<'a>(&'a Recorder, &'a Running);

impl Drop for TakesBack<'_> {
    fn drop(&mut self) {
        let Self(recorder, running) = self;
        recorder.claim.takes_back(&running.name, running.as_it_is(StepState::Undone, None, &recorder.clock));
    }
}

impl Running {
    fn as_it_is(&self, state: StepState, result: Option<String>, clock: &Clock) -> Step {
        Step { state, generation: self.generation, result, at: clock.wall() }
    }
}

fn begun_before(at: Millis) -> String {
    format!("it was begun at {}, and nobody recorded how it ended", at.utc())
}

fn in_doubt(name: &str, why: impl fmt::Display) -> HandlerError {
    let text = format!(
        "step {name:?} may have taken effect, and is not run again: {why}. Find out, then say so: `leasehold guard reset … \
         --step {name} --done` or `--again`"
    );
    HandlerError::new(text).permanent().reason("step_in_doubt").fixed()
}
