//! One run that can be asked: what it answers, beside the work itself.
//!
//! A client that lost a reply asks again, so what was asked before gets the answer that it had. What a run was refused is
//! also what it fails with, when it fails: whoever does the work need not know our codes.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::{sync::mpsc, time::Instant};

use crate::{
    guard::StepState,
    handler::{
        CancelCause, HandlerError, HandlerResult, JobContext,
        error::Verdict,
        steps::{Begun, Kind, Recorder, Running, Steps, not_kept},
    },
};

use super::{Answer, Ask, Asked, Failure, Follows, Place, Refusal, Told};

/// A run that can be asked, while this lasts.
pub(in crate::handler) struct Askable<'a> {
    cx: &'a JobContext,
    recorder: &'a Recorder,
    place: Place,
    asked: mpsc::Receiver<Asked>,
    /// How far the steps are that this run was asked about.
    steps: BTreeMap<String, Progress>,
    /// What it was refused, and will fail with if it fails.
    refused: Option<Refusal>,
}

/// How far a step is.
enum Progress {
    /// It was begun, and its end is not recorded.
    Runs(Running),
    /// It is recorded as done.
    Done,
    /// It failed, and that is all that follows.
    Failed,
    /// It may not run, or is in doubt.
    Refused(Refusal),
}

/// Does the work, and answers what it asks about its run meanwhile. With the work's end that is over; what was just being
/// recorded then is recorded by the job.
pub(in crate::handler) async fn answering(
    run: Option<Askable<'_>>,
    work: impl Future<Output = HandlerResult>,
) -> HandlerResult {
    let Some(mut run) = run else { return work.await };
    let ended = tokio::select! {
        // The work's end counts before any question; a client that is still asking then has given up on the answer.
        biased;
        ended = work => ended,
        never = run.answers() => match never {},
    };
    run.outcome(ended)
}

impl<'a> Askable<'a> {
    /// Lists this run, if there is somewhere to ask and something to ask about.
    pub(in crate::handler) fn list(cx: &'a JobContext) -> Option<Self> {
        let (Some(runs), Steps::Recorded(recorder)) = (&cx.remote, &cx.steps) else { return None };
        let (place, asked) = runs.list();
        Some(Self { cx, recorder, place, asked, steps: BTreeMap::new(), refused: None })
    }

    /// What is told of it in the request.
    pub(in crate::handler) fn told(&self) -> Told {
        let all = self.recorder.all();
        let results: BTreeMap<&str, &RawValue> = all
            .iter()
            .filter(|(_, step)| step.state == StepState::Done)
            .filter_map(|(name, step)| Some((name.as_str(), raw(step.result.as_deref())?)))
            .collect();
        Told { url: self.place.url.clone(), token: self.place.token.clone(), steps: json(&results) }
    }

    /// # Cancel safety
    /// Dropped, what was just being recorded is left to the job.
    async fn answers(&mut self) -> Infallible {
        loop {
            let Some(Asked { ask, answer }) = self.asked.recv().await else {
                return std::future::pending().await;
            };
            let given = self.answer(ask).await;
            self.remember(&given);
            // A client that has given up asks again.
            let _ = answer.send(given);
        }
    }

    /// What fails for good stays so. What interrupts does as long as nothing went well after it: a step that could not be
    /// written may have been, the next time it was asked for.
    fn remember(&mut self, given: &Answer) {
        if self.refused.as_ref().is_some_and(|refusal| refusal.follows != Follows::Interruption) {
            return;
        }
        match given {
            Ok(_) => self.refused = None,
            Err(refusal) if refusal.follows != Follows::Nothing => self.refused = Some(refusal.clone()),
            Err(_) => {}
        }
    }

    async fn answer(&mut self, ask: Ask) -> Answer {
        match ask {
            Ask::Facts => self.facts(),
            Ask::Begin { step, kind } => self.begin(step, kind).await,
            Ask::Done { step, result } => self.done(step, result).await,
            Ask::Failed { step, how } => self.failed(step, how).await,
            Ask::MoreTime(time) => self.more_time(time),
        }
    }

    /// The failure of a run that was refused something is that, unless it says more itself. Without a reply nobody knows what
    /// it was.
    fn outcome(self, ended: HandlerResult) -> HandlerResult {
        match (ended, self.refused) {
            (Err(HandlerError { verdict: Verdict::Retry(_), .. }), Some(refusal)) if !self.cx.elsewhere.may_run() => {
                Err(refusal.into_error())
            }
            (ended, _) => ended,
        }
    }

    fn facts(&self) -> Answer {
        #[derive(Serialize)]
        struct Facts<'a> {
            key: Option<&'a str>,
            fence: u64,
            attempt: u32,
            deadline_ms: u64,
            lease_ms: u64,
            steps: BTreeMap<&'a str, Known<'a>>,
        }
        #[derive(Serialize)]
        struct Known<'a> {
            state: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            result: Option<&'a RawValue>,
        }
        self.may_go_on()?;
        let all = self.recorder.all();
        let steps = all.iter().map(|(name, step)| {
            let state = match (step.state, self.steps.get(name)) {
                (StepState::Done, _) => "done",
                (StepState::Undone, _) => "undone",
                (StepState::Started, Some(Progress::Runs(_))) => "started",
                (StepState::Started, _) => "in_doubt",
            };
            (name.as_str(), Known { state, result: raw(step.result.as_deref()) })
        });
        Ok(Some(json(&Facts {
            key: self.cx.key(),
            fence: self.cx.fence(),
            attempt: self.cx.attempt(),
            deadline_ms: self.deadline_left(),
            lease_ms: millis(self.recorder.lease_left()),
            steps: steps.collect(),
        })))
    }

    async fn begin(&mut self, step: String, kind: Kind) -> Answer {
        match self.steps.get(&step) {
            Some(Progress::Runs(running)) if running.kind == kind => {
                self.may_go_on()?;
                return Ok(Some(begun(running)));
            }
            Some(Progress::Refused(refusal)) => return Err(refusal.clone()),
            Some(Progress::Done) => {
                let result = self.recorder.recorded(&step).and_then(|step| step.result);
                return recorded(&step, result.as_deref());
            }
            Some(_) => {
                let what = format!("step {step:?} was taken before in this run");
                return Err(Refusal::mistake("step_repeated", what, "give each step of a run a name of its own"));
            }
            None => {}
        }
        match self.recorder.begin(step.clone(), kind, &self.cx.cancelled).await {
            Ok(Begun::Recorded(result)) => {
                let answer = recorded(&step, result.as_deref());
                self.steps.insert(step, Progress::Done);
                answer
            }
            Ok(Begun::Runs(running)) => {
                let answer = begun(&running);
                self.steps.insert(step, Progress::Runs(running));
                Ok(Some(answer))
            }
            Err(error) => {
                let refusal = self.may_go_on().err().unwrap_or_else(|| Refusal::of(&error));
                self.steps.insert(step, Progress::Refused(refusal.clone()));
                Err(refusal)
            }
        }
    }

    async fn done(&mut self, step: String, result: Option<String>) -> Answer {
        let running = match self.steps.get(&step) {
            Some(Progress::Runs(running)) => running,
            Some(Progress::Done) => return self.is_what_was_recorded(&step, result.as_deref()),
            _ => return Err(not_begun(&step)),
        };
        let kept = self.recorder.done(running, result).await.map_err(|error| Refusal::of(&error))?;
        self.steps.insert(step.clone(), Progress::Done);
        if kept { Ok(None) } else { Err(too_large(&step)) }
    }

    fn is_what_was_recorded(&self, name: &str, result: Option<&str>) -> Answer {
        match self.recorder.recorded(name).and_then(|step| step.result) {
            None => Err(too_large(name)),
            Some(recorded) if Some(recorded.as_str()) == result => Ok(None),
            Some(_) => {
                let what = format!("step {name:?} is recorded with another result");
                Err(Refusal::mistake(
                    "step_recorded",
                    what,
                    "begin a step before it runs: what is recorded is in the answer",
                ))
            }
        }
    }

    async fn failed(&mut self, step: String, how: Failure) -> Answer {
        const FAILED: &str = "step_failed";
        let running = match self.steps.get(&step) {
            Some(Progress::Runs(running)) => running,
            Some(Progress::Failed) => return Ok(None),
            Some(Progress::Refused(refusal)) => return Err(refusal.clone()),
            Some(Progress::Done) => {
                let what = format!("step {step:?} is recorded as done");
                return Err(Refusal::mistake("step_recorded", what, "go on with the next step"));
            }
            None => return Err(not_begun(&step)),
        };
        let error = HandlerError::new("it failed, and what does the work did not say how").reason(FAILED);
        let error = match how {
            Failure::Unknown => error,
            Failure::Refused => error.definite(),
            Failure::NotBegun => error.not_yet(Duration::ZERO),
        };
        let error = self.recorder.failed(running, error).await;
        let (progress, answer) = match error.verdict {
            _ if error.code() == FAILED => (Progress::Failed, Ok(None)),
            // It could not be written, and may be asked for again.
            Verdict::Interrupted => return Err(Refusal::of(&error)),
            _ => (Progress::Refused(Refusal::of(&error)), Err(Refusal::of(&error))),
        };
        self.steps.insert(step, progress);
        answer
    }

    fn more_time(&self, time: Duration) -> Answer {
        #[derive(Serialize)]
        struct Deadline {
            deadline_ms: u64,
        }
        self.may_go_on()?;
        self.cx.extend_deadline(time);
        Ok(Some(json(&Deadline { deadline_ms: self.deadline_left() })))
    }

    /// Whether the run is still this worker's own, and not told to stop.
    fn may_go_on(&self) -> Result<(), Refusal> {
        let (code, why) = match self.cx.cancelled.cause() {
            Some(CancelCause::LeaseLost) => {
                ("lease_lost", "its lease is about to end, or has: another worker may begin")
            }
            Some(CancelCause::TimedOut) => ("timed_out", "its time is used up"),
            Some(CancelCause::Shutdown) => ("shutdown", "the worker stops"),
            None if self.recorder.lease_left().is_zero() => {
                ("lease_lost", "its lease is over: another worker may begin")
            }
            None => return Ok(()),
        };
        Err(Refusal::interruption(code, format!("the run is to stop: {why}")))
    }

    fn deadline_left(&self) -> u64 {
        millis(self.cx.deadline().saturating_duration_since(Instant::now()))
    }
}

fn begun(running: &Running) -> String {
    #[derive(Serialize)]
    struct Begun<'a> {
        recorded: bool,
        key: &'a str,
    }
    json(&Begun { recorded: false, key: running.key.as_str() })
}

fn recorded(name: &str, result: Option<&str>) -> Answer {
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
fn raw(result: Option<&str>) -> Option<&RawValue> {
    serde_json::from_str(result?).ok()
}

fn too_large(name: &str) -> Refusal {
    Refusal { follows: Follows::NotKept, ..Refusal::of(&not_kept(name)) }
}

fn not_begun(name: &str) -> Refusal {
    let what = format!("step {name:?} does not run: it was not begun, or has failed");
    Refusal::mistake("step_not_begun", what, "begin it first, with POST")
}

fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

/// Cannot fail: every map here has text for keys.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
