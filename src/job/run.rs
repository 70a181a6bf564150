//! One run of a handler: in a task of its own, within its time budget and its lease, told to stop with a cause.
//!
//! Owns the handler's task and ends it on every path, except a thread that ignores its cancellation: that one is handed
//! out. Knows nothing of records, and decides nothing about what the end means.

use std::{sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::{
    guard::Failure,
    handler::{CancelCause, HandlerError, HandlerResult, JobContext, Work, context::Elsewhere},
    lease::{Lease, Term},
    testing::{Planted, planted},
    trace,
};

use super::{Slot, decide::Ended};

/// What may end a run before it ends by itself.
#[derive(Debug)]
pub(super) struct Bounds<'a> {
    /// The lease that allows it: the claim's, or without a guard the delivery's.
    pub(super) lease: &'a Lease,
    /// How long a run may take to come to an end when it is told to.
    pub(super) grace: Duration,
    /// The worker stops, or its invocation ends, and no longer waits.
    pub(super) halt: &'a CancellationToken,
    /// The place that the run takes.
    pub(super) slot: &'a Slot,
}

impl<'a> Bounds<'a> {
    pub(super) fn new(lease: &'a Lease, term: &'a Term, slot: &'a Slot) -> Self {
        Self { lease, grace: term.grace, halt: &term.halt, slot }
    }

    /// Whether a run may begin. Nothing new starts (rule L1) when the claim was answered so late that the run would be
    /// cancelled as it begins.
    pub(super) fn allow_a_begin(&self) -> bool {
        !self.halt.is_cancelled() && self.lease.left() > self.grace
    }
}

/// How a run ended, and what of it may still be at work here.
pub(super) type Over = (Ended, Option<JoinSet<HandlerResult>>);

/// How long an aborted task may take to be gone. One that does not yield takes longer, and counts as still running.
const ABORT: Duration = Duration::from_millis(500);

/// Runs the handler. What may still run afterwards comes back too, to be watched.
///
/// # Cancel safety
/// Dropped, it aborts the handler at its next await; one on a blocking thread runs on.
pub(super) async fn run(work: Arc<dyn Work>, cx: Arc<JobContext>, blocking: bool, bounds: Bounds<'_>) -> Over {
    let mut task = JoinSet::new();
    let slot = bounds.slot.clone();
    let (told, deadline) = (cx.cancelled.clone(), cx.deadline.subscribe());
    let elsewhere = cx.elsewhere.clone();
    let span = trace::handler(&cx.queue, &cx.message, cx.key.as_deref(), cx.attempt, cx.is_undo());
    if blocking {
        let runtime = Handle::current();
        task.spawn_blocking(move || {
            let _slot = slot;
            runtime.block_on(handle(&*work, &cx).instrument(span))
        });
    } else {
        let run = async move {
            let _slot = slot;
            handle(&*work, &cx).await
        };
        task.spawn(run.instrument(span));
    }
    let cause = loop {
        let budget = *deadline.borrow();
        tokio::select! {
            // A handler that has ended is never cancelled; the other arms hold nothing.
            biased;
            Some(ended) = task.join_next() => return (returned(ended, None, &elsewhere), None),
            () = bounds.halt.cancelled() => break CancelCause::Shutdown,
            () = bounds.lease.ends_within(bounds.grace), if !planted(Planted::RunOutlivesLease) => {
                break CancelCause::LeaseLost;
            }
            // More time may have been asked for meanwhile.
            () = sleep_until(budget) => if *deadline.borrow() <= Instant::now() { break CancelCause::TimedOut },
        }
    };
    told.cancel(cause);
    if let Ok(Some(ended)) = timeout(bounds.grace, task.join_next()).await {
        return (returned(ended, Some(cause), &elsewhere), None);
    }
    task.abort_all();
    let is_here = match timeout(ABORT, task.join_next()).await {
        // It ended on the brink of being aborted: what it returned counts.
        Ok(Some(Ok(result))) => return (returned(Ok(result), Some(cause), &elsewhere), None),
        Ok(_) => false,
        Err(_) => true,
    };
    let still_running = is_here || elsewhere.may_run();
    let ended = match cause {
        CancelCause::TimedOut => Ended::TimedOut { still_running },
        CancelCause::LeaseLost | CancelCause::Shutdown => Ended::Interrupted { still_running },
    };
    (ended, is_here.then_some(task))
}

/// Runs the handler, and has its error say what it is while still in the handler's task: the text is users' code too, and
/// one that panics is a panic of the handler.
async fn handle(work: &dyn Work, cx: &JobContext) -> HandlerResult {
    let result = work.handle(cx).await;
    if let Err(error) = &result {
        drop(error.to_string());
    }
    result
}

/// What a handler returned, seen together with why it was told to stop: an error that it returned only for that is not
/// its failure. One that was returned without an answer from where the work was handed over says nothing about the work's
/// end.
fn returned(ended: Result<HandlerResult, JoinError>, told: Option<CancelCause>, elsewhere: &Elsewhere) -> Ended {
    let still_running = elsewhere.may_run();
    let result = ended.unwrap_or_else(|error| Err(panicked(error)));
    match (told, &result) {
        (_, Ok(())) => Ended::Returned(result),
        (_, Err(error)) if error.is_permanent() => Ended::Returned(result),
        (None, Err(error)) if still_running => Ended::Unanswered(Failure::new(error.code(), error)),
        (None, _) => Ended::Returned(result),
        (Some(CancelCause::TimedOut), _) => Ended::TimedOut { still_running },
        (Some(CancelCause::LeaseLost | CancelCause::Shutdown), _) => Ended::Interrupted { still_running },
    }
}

fn panicked(error: JoinError) -> HandlerError {
    let text = match error.try_into_panic() {
        Ok(panic) => format!("the handler panicked: {}", super::open::panic_text(&*panic)),
        Err(_) => "the handler's task was aborted".to_owned(),
    };
    HandlerError::new(text).reason("panicked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use CancelCause::{LeaseLost, Shutdown, TimedOut};

    #[test]
    fn d2_a_failure_without_an_answer_leaves_open_what_runs_and_an_answer_does_not() {
        let handed_over = Elsewhere::default();
        handed_over.begins();
        let answered = Elsewhere::default();
        let end = |result, told, elsewhere: &Elsewhere| returned(Ok(result), told, elsewhere);
        let failed = || Err(HandlerError::new("it broke").reason("no_reply"));
        let unanswered = end(failed(), None, &handed_over);
        assert!(matches!(unanswered, Ended::Unanswered(failure) if failure.code == "no_reply"));
        assert!(matches!(end(failed(), None, &answered), Ended::Returned(Err(_))));
        for (elsewhere, expected) in [(&handed_over, true), (&answered, false)] {
            let timed_out = end(failed(), Some(TimedOut), elsewhere);
            assert!(matches!(timed_out, Ended::TimedOut { still_running } if still_running == expected));
            for cause in [LeaseLost, Shutdown] {
                let interrupted = end(failed(), Some(cause), elsewhere);
                assert!(matches!(interrupted, Ended::Interrupted { still_running } if still_running == expected));
            }
        }
        for told in [None, Some(TimedOut), Some(LeaseLost), Some(Shutdown)] {
            assert!(matches!(end(Ok(()), told, &handed_over), Ended::Returned(Ok(()))), "{told:?}");
            let permanent = Err(HandlerError::new("no").permanent());
            assert!(matches!(end(permanent, told, &answered), Ended::Returned(Err(_))), "{told:?}");
        }
    }
}
