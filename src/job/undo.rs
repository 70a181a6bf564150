//! Work that has failed for good: recorded as such, undone by handlers that can, and buried (rule S3).
//!
//! Undoing is a run like any other, under the same lease and with the same steps, but with counts of its own. The verdict
//! stands by then: whatever comes of it, the work itself does not run again.

use std::sync::{Arc, OnceLock};

use futures_util::{FutureExt, future::BoxFuture};

use super::{
    Jobs, Slot,
    decide::Next,
    open::Opened,
    outcome::{self, bury, failure_id},
};
use crate::{
    guard::{
        Failure, UndoAnswer, Undoing,
        execution::{ExecutionLease, Failed, Owned},
    },
    handler::{HandlerResult, JobContext, Work, steps::Part},
    key::Key,
    message::Delivery,
    settle::Settlement,
    testing::{Planted, planted},
};

/// The work fails for good now.
pub(super) async fn fail_for_good(
    jobs: &Jobs,
    delivery: &Delivery,
    slot: &Slot,
    opened: Opened,
    claim: &Arc<ExecutionLease>,
    (failure, failures): (Failure, u32),
) -> Settlement {
    let id = failure_id(&[&claim.pk.0, &claim.fence.0.to_string()]);
    let failed = Failed { failure, failures, id };
    if !jobs.handler.undoes() {
        return bury(jobs, delivery, claim, &failed, None).await;
    }
    if planted(Planted::UndoneWithoutVerdict) {
        return undo(jobs, delivery, slot, opened, claim, &failed).await;
    }
    match claim.insist(&claim.failing(&failed)).await {
        Ok(Owned::Applied) => undo(jobs, delivery, slot, opened, claim, &failed).await,
        answer => outcome::otherwise(delivery, answer),
    }
}

/// The work has failed for good before, and whoever was undoing it is gone.
pub(super) async fn go_on_undoing(
    jobs: &Jobs,
    delivery: &Delivery,
    slot: &Slot,
    opened: Opened,
    claim: &Arc<ExecutionLease>,
) -> Settlement {
    let record = &claim.claimed;
    let failed = Failed {
        failure: record.last_error.clone().unwrap_or_else(|| Failure::new("error", "not recorded")),
        failures: record.failures,
        id: record.failure_id.clone().unwrap_or_else(|| failure_id(&[&claim.pk.0, &claim.fence.0.to_string()])),
    };
    if !jobs.handler.undoes() {
        let why = "this handler has no undo, and an earlier one, or another version of it, had one";
        return incomplete(jobs, delivery, claim, &failed, (record.undo.clone().unwrap_or_default(), why)).await;
    }
    undo(jobs, delivery, slot, opened, claim, &failed).await
}

async fn undo(
    jobs: &Jobs,
    delivery: &Delivery,
    slot: &Slot,
    opened: Opened,
    claim: &Arc<ExecutionLease>,
    failed: &Failed,
) -> Settlement {
    let counts = claim.claimed.undo.clone().unwrap_or_default();
    let incomplete = async |counts: Undoing, why: &str| incomplete(jobs, delivery, claim, failed, (counts, why)).await;
    if counts.takeovers > jobs.config.max_takeovers {
        let why = format!("{} workers died or lost their lease while they undid it", counts.takeovers);
        return incomplete(counts, &why).await;
    }
    if counts.failures >= jobs.config.max_attempts {
        return incomplete(counts.clone(), &format!("{} attempts failed", counts.failures)).await;
    }
    let attempt = counts.failures + 1;
    delivery.about().attempt = Some(attempt);
    let undoing = Arc::new(Undo { work: opened.work, answer: OnceLock::new() });
    let work: Arc<dyn Work> = Arc::<Undo>::clone(&undoing);
    let cx = jobs.guarded_context(opened.message, claim, (Part::Undo, attempt), &delivery.term);
    let (ended, _unwritten) = jobs.run_guarded(work, cx, claim, (delivery, slot)).await;
    match jobs.next(ended, &claim.pk.0, attempt, delivery.is_last) {
        Next::Confirm => {
            let answer = undoing.answer.get().copied();
            tracing::info!(queue = &*jobs.name, pk = %claim.pk, answer = answer.map(UndoAnswer::as_str), "undone, after it had failed for good");
            bury(jobs, delivery, claim, failed, Some(Undoing { answer, ..counts })).await
        }
        Next::Bury(failure) => {
            incomplete(Undoing { failures: attempt, ..counts }, &format!("{}: {}", failure.code, failure.text)).await
        }
        next => {
            let again = jobs.again(delivery, &claim.lease, next, attempt);
            let counts = Undoing { failures: counts.failures + u32::from(again.failure.is_some()), ..counts };
            let not_before = again.not_before.unwrap_or_else(|| jobs.clock.wall());
            match claim.insist(&claim.release_undone(failed.failures, not_before, counts)).await {
                Ok(Owned::Applied) => {
                    if let Some(why) = again.failure {
                        let why = Failure { text: format!("undoing it failed: {}", why.text), ..why };
                        jobs.attempt_failed(delivery, &claim.pk.0, attempt, &why, &again.settlement);
                    }
                    again.settlement
                }
                answer => outcome::otherwise(delivery, answer),
            }
        }
    }
}

/// It cannot be undone to the end by itself. The record keeps why the work has failed; that it is half undone is told by its
/// counts without an answer, and by the dead letter.
async fn incomplete(
    jobs: &Jobs,
    delivery: &Delivery,
    claim: &ExecutionLease,
    failed: &Failed,
    (counts, why): (Undoing, &str),
) -> Settlement {
    let mut settlement = bury(jobs, delivery, claim, failed, Some(counts)).await;
    if let Settlement::DeadLetter(letter) = &mut settlement {
        letter.note.message = Failure::new("", format!("{}; its undo: {why}", letter.note.message)).text;
    }
    settlement
}

/// A handler's undo as work of its own, which keeps what it answered.
struct Undo {
    work: Arc<dyn Work>,
    answer: OnceLock<UndoAnswer>,
}

impl Work for Undo {
    fn key(&self) -> Option<Key> {
        self.work.key()
    }

    fn handle<'a>(&'a self, cx: &'a JobContext) -> BoxFuture<'a, HandlerResult> {
        async move {
            let answer = self.work.undo(cx).await?;
            // It runs once.
            let _ = self.answer.set(answer);
            Ok(())
        }
        .boxed()
    }

    fn undo<'a>(&'a self, cx: &'a JobContext) -> BoxFuture<'a, HandlerResult<UndoAnswer>> {
        self.work.undo(cx)
    }
}
