//! Steps: named parts of a handler whose results are recorded, so that an attempt goes on where the last one ended.
//!
//! A step is written under the claim's condition, after its effect and before the handler goes on. Nothing here runs a
//! step that is recorded, nor begins one when the run is told to stop.

use std::{
    collections::BTreeSet,
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use crate::{
    clock::Clock,
    guard::{
        Step, StepState,
        execution::{ExecutionLease, Owned},
    },
    testing::{Planted, planted},
};

use super::{Cancelled, HandlerError, HandlerResult, JobContext};

/// The key to give to a downstream API for one step: the same on every attempt.
///
/// It reads `operation#key/step`, and `operation#key/a/b/1` for a step whose name has a slash. One that would be longer than
/// 255 bytes, or hold anything but visible ASCII (a step's name with a space, say), is its SHA-256 instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepKey(String);

/// Downstream APIs limit their idempotency keys; Stripe's take 255 characters.
/// <https://docs.stripe.com/api/idempotent_requests>
const LONGEST_KEY: usize = 255;

impl StepKey {
    fn new(key: &str, step: &str, generation: u32) -> Self {
        let mut text = format!("{key}/{step}");
        // A name with a slash always has its generation: `a/2` is no second generation of `a`.
        if generation > 1 || step.contains('/') {
            text = format!("{text}/{generation}");
        }
        if text.len() > LONGEST_KEY || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            text = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        }
        Self(text)
    }

    /// As text: at most 255 visible ASCII characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a run's steps are recorded.
#[derive(Debug)]
pub(crate) enum Steps {
    /// In the claim's record.
    Recorded { claim: Arc<ExecutionLease>, clock: Clock, taken: Mutex<BTreeSet<String>> },
    /// Nowhere: the store is down and the queue's outage policy is `open`.
    Unrecorded { pk: String },
    /// The queue has no guard.
    Refused,
}

impl Steps {
    pub(crate) fn recorded(claim: Arc<ExecutionLease>, clock: Clock) -> Self {
        Self::Recorded { claim, clock, taken: Mutex::default() }
    }
}

/// Room that is kept for a step's result before the step is begun: what a small result and its bookkeeping take.
const RESERVED: usize = 4 * 1024;

/// The longest name of a step, in bytes.
const LONGEST_NAME: usize = 255;

impl JobContext {
    /// Runs `work` and records its result, or returns the result that an earlier attempt recorded.
    ///
    /// `work` is lent the step's key, to be given to the downstream API: stable over attempts, so that an effect whose
    /// record was lost is not made twice where that API knows idempotency keys. Results are kept as JSON in the guard's
    /// table.
    ///
    /// # Errors
    /// What `work` failed with. A permanent error when there is no guard, when the name was taken before in this run,
    /// or when the record has no more room; an interruption, which uses no attempt, when the run is told to stop or the
    /// result could not be recorded.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped between the effect and its record, the next attempt runs `work` again, with the same
    /// key.
    pub async fn step<T, E, F, R>(&self, name: impl Into<String>, work: F) -> HandlerResult<T>
    where
        T: Serialize + DeserializeOwned,
        E: Into<HandlerError>,
        F: FnOnce(StepKey) -> R,
        R: Future<Output = Result<T, E>>,
    {
        let name = name.into();
        let (claim, clock) = match &self.steps {
            Steps::Recorded { claim, clock, taken } => {
                take(&name, taken)?;
                super::commit::not_after_commit(claim, || format!("step {name:?}"))?;
                (claim, clock)
            }
            Steps::Unrecorded { pk } => return work(StepKey::new(pk, &name, 1)).await.map_err(Into::into),
            Steps::Refused => {
                let text = format!("step {name:?} needs a guard, and this queue has GUARD=none");
                return Err(HandlerError::new(text).permanent().reason("step_without_guard"));
            }
        };
        let generation = match claim.step(&name) {
            Some(step) if step.state == StepState::Done => return recorded(&name, step),
            Some(step) if step.state == StepState::Undone => step.generation.saturating_add(1),
            Some(step) => step.generation,
            None => 1,
        };
        may_begin(&name, claim, &self.cancelled)?;
        let step = |state, result| Step { state, generation, result, at: clock.wall() };
        let key = if planted(Planted::StepKeyOfTheClaim) {
            StepKey::new(&claim.pk.0, &format!("{name}/{}", claim.fence.0), generation)
        } else {
            StepKey::new(&claim.pk.0, &name, generation)
        };
        match work(key).await.map_err(Into::into) {
            Ok(value) => {
                let fits = |json: &String| json.len() + name.len() + step(StepState::Done, None).size() <= claim.room();
                let json = serde_json::to_string(&value).ok().filter(fits);
                let kept = json.is_some();
                write(claim, &name, step(StepState::Done, json)).await?;
                if kept { Ok(value) } else { Err(not_kept(&name)) }
            }
            Err(error) => {
                if error.definite {
                    write(claim, &name, step(StepState::Undone, None)).await?;
                }
                Err(error)
            }
        }
    }
}

/// A name is good for one step of a run: twice the same name would hand the first one's result to the second.
fn take(name: &str, taken: &Mutex<BTreeSet<String>>) -> HandlerResult {
    if name.is_empty() || name.len() > LONGEST_NAME {
        let text = format!("a step's name has 1 to {LONGEST_NAME} bytes, and {name:?} has {}", name.len());
        return Err(HandlerError::new(text).permanent().reason("step_name"));
    }
    // Held for this one line; an insert that panics leaves a set that is still one.
    if taken.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned()) {
        return Ok(());
    }
    Err(HandlerError::new(format!("step {name:?} was taken twice in one run")).permanent().reason("step_repeated"))
}

fn may_begin(name: &str, claim: &ExecutionLease, cancelled: &Cancelled) -> HandlerResult {
    if let Some(cause) = cancelled.cause() {
        return Err(HandlerError::interrupted(format!("step {name:?} was not begun: the run is to stop ({cause:?})")));
    }
    if claim.lease.is_over() {
        return Err(HandlerError::interrupted(format!("step {name:?} was not begun: the execution lease is over")));
    }
    if claim.room() < RESERVED + name.len() {
        let text = format!("step {name:?} was not begun: the record has no room for its result");
        return Err(HandlerError::new(text).permanent().reason("record_full"));
    }
    Ok(())
}

fn recorded<T: DeserializeOwned>(name: &str, step: Step) -> HandlerResult<T> {
    let Some(json) = step.result else { return Err(not_kept(name)) };
    serde_json::from_str(&json).map_err(|error| {
        let text = format!("step {name:?} has a recorded result of another type: {error}");
        HandlerError::new(text).permanent().reason("step_result")
    })
}

fn not_kept(name: &str) -> HandlerError {
    let text = format!(
        "step {name:?} took effect, but its result is too large to be recorded, or is no JSON; it will not run again"
    );
    HandlerError::new(text).permanent().reason("step_result_not_kept")
}

async fn write(claim: &ExecutionLease, name: &str, step: Step) -> HandlerResult {
    match claim.record_step(name.to_owned(), step).await {
        Ok(Owned::Applied) => Ok(()),
        Ok(Owned::Done | Owned::Lost(_)) => {
            Err(HandlerError::interrupted(format!("step {name:?} ended after another worker had taken over")))
        }
        Err(error) if error.is_transient() => {
            Err(HandlerError::interrupted(format!("step {name:?} could not be recorded yet: {error}")))
        }
        // An interruption would run it again and again, for no attempt would be used.
        Err(error) => {
            let text = format!("step {name:?} ended, and can never be recorded: {error}");
            Err(HandlerError::new(text).permanent().reason("step_not_recorded"))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::select};

    use super::*;
    use crate::key::{Key, KeyHash, pk};

    fn step_key(key: &str, step: &str, generation: u32) -> StepKey {
        let pk = pk(Some("n/1"), "q", &Key::from(key), KeyHash::Long).expect("a key");
        StepKey::new(&pk.0, step, generation)
    }

    #[test]
    fn s1_a_step_named_like_a_later_generation_of_another_has_its_own_downstream_key() {
        assert_eq!(step_key("k", "a", 1).as_str(), "n%2F1/q#k/a");
        assert_eq!(step_key("k", "a", 2).as_str(), "n%2F1/q#k/a/2");
        assert_eq!(step_key("k", "a/2", 1).as_str(), "n%2F1/q#k/a/2/1");
    }

    const STEPS: [&str; 8] = ["a", "a/2", "a/2/2", "a/1", "/", "//2", "a 2", "a/ 2"];

    proptest! {
        #[test]
        fn s1_different_keys_steps_and_generations_never_have_one_downstream_key(
            one in (select(vec!["a", "a/2"]), select(STEPS.to_vec()), 1..4_u32),
            two in (select(vec!["a", "a/2"]), select(STEPS.to_vec()), 1..4_u32),
        ) {
            let [a, b] = [&one, &two].map(|(key, step, generation)| step_key(key, step, *generation));
            prop_assert_eq!(a == b, one == two, "{} {}", a, b);
        }

        #[test]
        fn s1_a_downstream_key_is_visible_ascii_that_payment_providers_take(
            key in ".{1,300}", step in ".{1,300}", generation: u32,
        ) {
            let key = step_key(&key, &step, generation);
            prop_assert!(key.as_str().len() <= LONGEST_KEY && key.as_str().bytes().all(|byte| byte.is_ascii_graphic()));
        }
    }
}
