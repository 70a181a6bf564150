//! Steps: named parts of a handler whose results are recorded, so that an attempt goes on where the last one ended.
//!
//! Here are their types, and where they are recorded at all; the recording itself is in `recorder`.

use std::{fmt, future::Future};

use serde::{Serialize, de::DeserializeOwned};
use tracing::Instrument as _;

use crate::{guard::StepState, key::sha256, trace};

use super::{HandlerError, HandlerResult, JobContext};
pub(crate) use recorder::{Begun, Kind, Part, Recorder, Running};

mod recorder;

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
            text = sha256([text]);
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
    Recorded(Recorder),
    /// Nowhere: the store is down and the queue's outage policy is `open`.
    Unrecorded { pk: String },
    /// The queue has no guard.
    Refused,
}

impl JobContext {
    /// Runs `work` and records its result, or returns the result that an earlier attempt recorded.
    ///
    /// `work` is lent the step's key, to be given to the downstream API: stable over attempts, so that an effect whose
    /// record was lost is not made twice where that API knows idempotency keys. Results are kept as JSON in the guard's
    /// table.
    ///
    /// Steps can run side by side (`join!`), and in loops, each under a name of its own: `format!("line-{number}")`. A name
    /// that changes from one version of the handler to the next is another step; a run that does not take a step which an
    /// earlier one recorded, or takes it later, is warned of.
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
        let span = trace::step(&name);
        self.take_step(name, Kind::Repeatable, work).instrument(span).await
    }

    /// As [`step`](Self::step), for what must rather not happen than happen twice: an e-mail, a call to an API that knows no
    /// idempotency keys. That it begins is recorded first, which costs a write.
    ///
    /// A step that was begun and whose end is not recorded is *in doubt*, and never run again by itself: by a crash, or by
    /// an error of `work`. That is a permanent error with the reason `step_in_doubt`, so that a person looks at it; `leasehold
    /// guard reset --step` is the way out. An error that says that nothing was done leaves no doubt: [`unavailable`] and
    /// [`not_yet`], after which the same step runs again, and [`definite`], a refusal.
    ///
    /// [`unavailable`]: crate::ResultExt::unavailable
    /// [`not_yet`]: crate::ResultExt::not_yet
    /// [`definite`]: crate::ResultExt::definite
    ///
    /// # Errors
    /// As [`step`](Self::step), and as said above. An interruption, too, when its beginning could not be recorded: then it
    /// has not begun.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped before `work` has ended and is recorded, the step is in doubt.
    pub async fn step_once<T, E, F, R>(&self, name: impl Into<String>, work: F) -> HandlerResult<T>
    where
        T: Serialize + DeserializeOwned,
        E: Into<HandlerError>,
        F: FnOnce(StepKey) -> R,
        R: Future<Output = Result<T, E>>,
    {
        let name = name.into();
        let span = trace::step(&name);
        self.take_step(name, Kind::Once, work).instrument(span).await
    }

    async fn take_step<T, E, F, R>(&self, name: String, kind: Kind, work: F) -> HandlerResult<T>
    where
        T: Serialize + DeserializeOwned,
        E: Into<HandlerError>,
        F: FnOnce(StepKey) -> R,
        R: Future<Output = Result<T, E>>,
    {
        let recorder = match &self.steps {
            Steps::Recorded(recorder) => recorder,
            Steps::Unrecorded { pk } if kind == Kind::Repeatable => {
                return work(StepKey::new(pk, &name, 1)).await.map_err(Into::into);
            }
            Steps::Unrecorded { .. } => {
                let text = format!("step {name:?} was not begun: the guard's table, which keeps it to once, is away");
                return Err(HandlerError::interrupted(text));
            }
            Steps::Refused => return Err(without_guard(&name)),
        };
        match recorder.begin(name.clone(), kind, &self.cancelled).await? {
            Begun::Recorded(result) => parse(&name, result),
            Begun::Runs(running) => match work(running.key.clone()).await.map_err(Into::into) {
                Ok(value) => {
                    let kept = recorder.done(&running, serde_json::to_string(&value).ok()).await?;
                    if kept { Ok(value) } else { Err(not_kept(&name)) }
                }
                Err(error) => Err(recorder.failed(&running, error).await),
            },
        }
    }

    /// What a step recorded, in this run or in an earlier one; `None` if it is not recorded as done. For
    /// [`undo`](crate::Handler::undo) above all, which has to know what there is to undo.
    ///
    /// # Errors
    /// A permanent error when the result is of another type, or was too large to be kept, or when there is no guard.
    pub fn recorded<T: DeserializeOwned>(&self, name: &str) -> HandlerResult<Option<T>> {
        match &self.steps {
            Steps::Recorded(recorder) => match recorder.recorded(name) {
                Some(step) if step.state == StepState::Done => parse(name, step.result).map(Some),
                _ => Ok(None),
            },
            Steps::Unrecorded { .. } => Ok(None),
            Steps::Refused => Err(without_guard(name)),
        }
    }

    /// The downstream key of a step: the one that it ran under, if it is recorded or was under way, and else the one that it
    /// runs under next. `None` without a guard.
    ///
    /// For [`undo`](crate::Handler::undo): a step whose answer was lost at the last attempt is not recorded, and only who was
    /// called can tell by this key whether it took effect.
    #[must_use]
    pub fn step_key(&self, name: &str) -> Option<StepKey> {
        match &self.steps {
            Steps::Recorded(recorder) => Some(recorder.key(name)),
            Steps::Unrecorded { pk } => Some(StepKey::new(pk, name, 1)),
            Steps::Refused => None,
        }
    }

    /// Whether a [`step_once`](Self::step_once) was begun, and nobody knows how it ended.
    #[must_use]
    pub fn is_in_doubt(&self, name: &str) -> bool {
        match &self.steps {
            Steps::Recorded(recorder) => recorder.recorded(name).is_some_and(|step| step.state == StepState::Started),
            Steps::Unrecorded { .. } | Steps::Refused => false,
        }
    }

    /// The step that the run is in, or was in last.
    pub(crate) fn last_step(&self) -> Option<String> {
        match &self.steps {
            Steps::Recorded(recorder) => recorder.last_taken(),
            Steps::Unrecorded { .. } | Steps::Refused => None,
        }
    }

    pub(crate) fn is_undo(&self) -> bool {
        matches!(&self.steps, Steps::Recorded(recorder) if recorder.part == Part::Undo)
    }

    /// The run has come to its end: tells if an earlier one took steps that it did not. What is elsewhere may have read them in
    /// its request, and had no need to take them.
    pub(crate) fn notice_vanished_steps(&self) {
        if let (Steps::Recorded(recorder), None) = (&self.steps, &self.remote) {
            recorder.notice_vanished();
        }
    }
}

fn without_guard(name: &str) -> HandlerError {
    let text = format!("step {name:?} needs a guard, and this queue has GUARD=none");
    HandlerError::new(text).permanent().reason("step_without_guard")
}

fn parse<T: DeserializeOwned>(name: &str, result: Option<String>) -> HandlerResult<T> {
    let Some(json) = result else { return Err(not_kept(name)) };
    serde_json::from_str(&json).map_err(|error| {
        let text = format!("step {name:?} has a recorded result of another type: {error}");
        HandlerError::new(text).permanent().reason("step_result")
    })
}

pub(super) fn not_kept(name: &str) -> HandlerError {
    let text = format!(
        "step {name:?} took effect, but its result is too large to be recorded, or is no JSON; it will not run again"
    );
    HandlerError::new(text).permanent().reason("step_result_not_kept").fixed()
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
