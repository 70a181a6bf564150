//! One run that can be asked: what it answers, beside the work itself.
//!
//! A client that lost a reply asks again, so what was asked before gets the answer that it had. What a run was refused is
//! also what it fails with, when it fails: whoever does the work need not know our codes.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use futures_util::FutureExt;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::{sync::mpsc, time::Instant};

use crate::{
    guard::StepState,
    handler::{
        CancelCause, HandlerError, HandlerResult, JobContext,
        error::Verdict,
        steps::{Begun, Kind, Recorder, Running, Steps},
    },
};

use super::{Answer, Ask, Asked, Failure, Follows, Place, Refusal, Told};
use answer::{Facts, Known, begun, is_done, json, millis, not_begun, raw, recorded, repeated, runs_once, too_large};

mod answer;

/// A run that can be asked, while this lasts.
pub(in crate::handler) struct Askable<'a> {
    cx: &'a JobContext,
    recorder: &'a Recorder,
    place: Place,
    asked: mpsc::Receiver<Asked>,
    /// The steps that this run has taken, by their names.
    steps: BTreeMap<String, Taken>,
    /// What it was refused, and will fail with if it fails.
    refused: Option<Refusal>,
}

/// A step that was asked for.
struct Taken {
    /// Who did: the same call gets the same answer again, another one does not. Without a name it is nobody's.
    call: Option<String>,
    progress: Progress,
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

/// Does the work, and answers what it asks about its run meanwhile. With the work's end that is over; the ends of steps that
/// were told by then are recorded by the job.
pub(in crate::handler) async fn answering(
    run: Option<Askable<'_>>,
    work: impl Future<Output = HandlerResult>,
) -> HandlerResult {
    let Some(mut run) = run else { return work.await };
    let ended = tokio::select! {
        // The work's end counts before any question: nothing begins after it. What was being recorded is the job's then.
        biased;
        ended = work => ended,
        never = run.answers() => match never {},
    };
    run.take_last_ends();
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

    /// The work has ended: begins nothing more, and waits for nothing. Steps whose ends are told already have ended all the
    /// same, and what is being recorded without an answer is left to the job.
    fn take_last_ends(&mut self) {
        while let Ok(Asked { ask, answer }) = self.asked.try_recv() {
            if !matches!(ask, Ask::Done { .. } | Ask::Failed { .. }) {
                continue;
            }
            if let Some(given) = self.answer(ask).now_or_never() {
                self.remember(&given);
                let _ = answer.send(given);
            }
        }
    }

    /// What fails for good stays so. What interrupts does until a step is written: then what could not be is the past, and a
    /// failure the work's own.
    fn remember(&mut self, given: &Answer) {
        let Err(refusal) = given else { return };
        if refusal.follows != Follows::Nothing && !self.has_failed() {
            self.refused = Some(refusal.clone());
        }
    }

    /// A step was written just now.
    fn is_written(&mut self) {
        if !self.has_failed() {
            self.refused = None;
        }
    }

    fn has_failed(&self) -> bool {
        self.refused.as_ref().is_some_and(|refusal| refusal.follows != Follows::Interruption)
    }

    async fn answer(&mut self, ask: Ask) -> Answer {
        match ask {
            Ask::Facts => self.facts(),
            Ask::Begin { step, kind, call } => self.begin(step, kind, call).await,
            Ask::Done { step, result } => self.done(step, result).await,
            Ask::Failed { step, how } => self.failed(step, how).await,
            Ask::TimeLeft { at_least } => self.more_time(at_least),
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
        self.may_go_on()?;
        let all = self.recorder.all();
        let steps = all.iter().map(|(name, step)| {
            let state = match (step.state, self.progress(name)) {
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
            deadline_ms: millis(self.time_left()),
            lease_ms: millis(self.recorder.lease_left()),
            steps: steps.collect(),
        })))
    }

    async fn begin(&mut self, step: String, kind: Kind, call: Option<String>) -> Answer {
        if let Some(taken) = self.steps.get(&step) {
            let is_same = call.is_some() && call == taken.call;
            return self.begin_again(&step, kind, is_same, &taken.progress);
        }
        let (progress, answer) = match self.recorder.begin(step.clone(), kind, &self.cx.cancelled).await {
            Ok(Begun::Recorded(result)) => (Progress::Done, recorded(&step, result.as_deref())),
            Ok(Begun::Runs(running)) => {
                let answer = Ok(Some(begun(&running)));
                if running.kind == Kind::Once {
                    self.is_written();
                }
                (Progress::Runs(running), answer)
            }
            Err(error) => {
                let refusal = self.may_go_on().err().unwrap_or_else(|| Refusal::of(&error));
                (Progress::Refused(refusal.clone()), Err(refusal))
            }
        };
        self.steps.insert(step, Taken { call, progress });
        answer
    }

    /// A step that was asked for before: by a client that lost its answer, or for a second use of its name.
    fn begin_again(&self, step: &str, kind: Kind, is_same_call: bool, progress: &Progress) -> Answer {
        match progress {
            Progress::Refused(refusal) => Err(refusal.clone()),
            Progress::Runs(running) if !is_same_call && running.kind == Kind::Once && !self.has_ended(step) => {
                Err(runs_once(step))
            }
            _ if !is_same_call => Err(repeated(step)),
            Progress::Runs(_) | Progress::Done if self.has_ended(step) => {
                let result = self.recorder.recorded(step).and_then(|step| step.result);
                recorded(step, result.as_deref())
            }
            Progress::Runs(running) if running.kind == kind => {
                self.may_go_on()?;
                Ok(Some(begun(running)))
            }
            Progress::Runs(_) | Progress::Done | Progress::Failed => Err(repeated(step)),
        }
    }

    /// Whether it took effect, be it written by now or not.
    fn has_ended(&self, step: &str) -> bool {
        self.recorder.recorded(step).is_some_and(|step| step.state == StepState::Done)
    }

    async fn done(&mut self, step: String, result: Option<String>) -> Answer {
        let running = match self.progress(&step) {
            Some(Progress::Runs(running)) => running,
            Some(Progress::Done) => return self.is_what_was_recorded(&step, result.as_deref()),
            _ => return Err(not_begun(&step)),
        };
        let kept = self.recorder.done(running, result).await.map_err(|error| Refusal::of(&error))?;
        let answer = if kept { Ok(None) } else { Err(too_large(&step)) };
        self.proceed(&step, Progress::Done);
        self.is_written();
        answer
    }

    fn progress(&self, step: &str) -> Option<&Progress> {
        self.steps.get(step).map(|taken| &taken.progress)
    }

    fn proceed(&mut self, step: &str, progress: Progress) {
        if let Some(taken) = self.steps.get_mut(step) {
            taken.progress = progress;
        }
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
        let running = match self.progress(&step) {
            Some(Progress::Runs(_)) if self.has_ended(&step) => return Err(is_done(&step)),
            Some(Progress::Runs(running)) => running,
            Some(Progress::Failed) => return Ok(None),
            Some(Progress::Refused(refusal)) => return Err(refusal.clone()),
            Some(Progress::Done) => return Err(is_done(&step)),
            None => return Err(not_begun(&step)),
        };
        let error = HandlerError::new("it failed, and what does the work did not say how").reason(FAILED);
        let error = match how {
            Failure::Unknown => error,
            Failure::Refused => error.definite(),
            Failure::NotBegun => error.not_yet(Duration::ZERO),
        };
        let leaves_no_doubt = how == Failure::Refused || (how == Failure::NotBegun && running.kind == Kind::Once);
        let error = self.recorder.failed(running, error).await;
        // Where that could not be written the job tries on, and the step is over all the same.
        let refusal = (error.code() != FAILED).then(|| Refusal::of(&error));
        self.proceed(&step, refusal.clone().map_or(Progress::Failed, Progress::Refused));
        if leaves_no_doubt && refusal.is_none() {
            self.is_written();
        }
        refusal.map_or(Ok(None), Err)
    }

    fn more_time(&self, at_least: Duration) -> Answer {
        #[derive(Serialize)]
        struct Deadline {
            deadline_ms: u64,
        }
        self.may_go_on()?;
        self.cx.extend_deadline(at_least.saturating_sub(self.time_left()));
        Ok(Some(json(&Deadline { deadline_ms: millis(self.time_left()) })))
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

    fn time_left(&self) -> Duration {
        self.cx.deadline().saturating_duration_since(Instant::now())
    }
}

#[cfg(test)]
mod tests;
