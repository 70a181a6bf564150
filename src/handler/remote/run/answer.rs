//! What a run answers: JSON that its clients read, and refusals with their codes. Each says what is wrong and how to mend
//! it; when one is given is for the run to say.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::handler::{
    remote::{Answer, Follows, Refusal},
    steps::{Running, not_kept},
};

/// How a run is.
#[derive(Serialize)]
pub(super) struct Facts<'a> {
    pub(super) key: Option<&'a str>,
    pub(super) fence: u64,
    pub(super) attempt: u32,
    pub(super) deadline_ms: u64,
    pub(super) lease_ms: u64,
    pub(super) steps: BTreeMap<&'a str, Known<'a>>,
}

/// What is known of a step.
#[derive(Serialize)]
pub(super) struct Known<'a> {
    pub(super) state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<&'a RawValue>,
}

pub(super) fn begun(running: &Running) -> String {
    #[derive(Serialize)]
    struct Begun<'a> {
        recorded: bool,
        key: &'a str,
    }
    json(&Begun { recorded: false, key: running.key.as_str() })
}

pub(super) fn recorded(name: &str, result: Option<&str>) -> Answer {
    #[derive(Serialize)]
    struct Recorded<'a> {
        recorded: bool,
        result: &'a RawValue,
    }
    match raw(result) {
        Some(result) => Ok(Some(json(&Recorded { recorded: true, result }))),
        None => Err(Refusal::of(&not_kept(name))),
    }
}

/// A recorded result; `None` where it was not kept.
pub(super) fn raw(result: Option<&str>) -> Option<&RawValue> {
    serde_json::from_str(result?).ok()
}

pub(super) fn too_large(name: &str) -> Refusal {
    Refusal { follows: Follows::NotKept, ..Refusal::of(&not_kept(name)) }
}

pub(super) fn not_begun(name: &str) -> Refusal {
    let what = format!("step {name:?} does not run: it was not begun, or has failed");
    Refusal::mistake("step_not_begun", what, "begin it first, with POST")
}

pub(super) fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

/// Cannot fail: every map here has text for keys.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Another use of the name of a step that this run has taken: what it records would be taken for its own.
pub(super) fn repeated(name: &str) -> Refusal {
    const MEND: &str = "give each step of a run a name of its own: `line-1`, `line-2`. End the work with any failure: the \
                        message is then dead-lettered, with this as its reason";
    let what = format!("step {name:?} was taken twice in one run");
    Refusal { mend: MEND, ..Refusal::failure("step_repeated", what) }
}

/// Another use of the name of a step that is not to run twice, and runs.
pub(super) fn runs_once(name: &str) -> Refusal {
    let what = format!(
        "step {name:?} was begun in this run and has not ended: it may have taken effect, and is not run again"
    );
    Refusal::failure("step_in_doubt", what)
}

/// It has ended, whatever else is said of it.
pub(super) fn is_done(name: &str) -> Refusal {
    Refusal::mistake("step_recorded", format!("step {name:?} is recorded as done"), "go on with the next step")
}
