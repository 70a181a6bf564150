//! `confirm_with`: a handler's writes and "done" in one transaction (rule G12).
//!
//! Says in a handler's words what came of it. What follows for the run is the job's.

use std::fmt;

use crate::{
    causes::in_full,
    guard::{
        Committed, GuardError, Item, ItemWrite,
        execution::{ExecutionLease, NotMade, Progress},
    },
};

use super::{
    HandlerError, HandlerResult, JobContext,
    steps::{Part, Steps},
};

/// The condition of a write did not hold, so that nothing was written. Had with [`HandlerError::condition`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConditionFailed {
    /// Which of the writes, from 0.
    pub index: usize,
    /// Its table, as the write names it.
    pub table: String,
    /// The item as it is; `None` if there is none. [`from_item`](crate::guard::from_item) makes a type of yours of it.
    pub item: Option<Item>,
}

impl fmt::Display for ConditionFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, table, item } = self;
        let there = if item.is_some() { "another item is there" } else { "there is no such item" };
        write!(f, "the condition of write {index} to the table {table:?} does not hold: {there}; nothing was written")
    }
}

impl std::error::Error for ConditionFailed {}

impl HandlerError {
    /// The condition that failed, if that is what it tells of: see [`JobContext::confirm_with`].
    #[must_use]
    pub fn condition(&self) -> Option<&ConditionFailed> {
        self.downcast_ref()
    }
}

impl JobContext {
    /// Makes these writes and records "done", in one DynamoDB transaction under this run's claim: all of it happens once,
    /// or nothing does (rule G12). For work whose whole effect is in DynamoDB tables of the guard's account and region.
    ///
    /// After `Ok` the work **is done**, whatever the handler returns or however it ends: it is the last thing to do. What
    /// is to happen along with it outside of DynamoDB goes into [steps](Self::step) before it.
    ///
    /// The worker's role needs the right to each write (`dynamodb:PutItem`, `UpdateItem`, `DeleteItem`,
    /// `ConditionCheckItem`) on its table. A transaction costs twice the writes that it is made of, has at most
    /// [99 of them](crate::guard::MOST_WRITES), no two to one item, and 4 MB together.
    /// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html>
    ///
    /// ```
    /// use leasehold::{HandlerResult, JobContext, guard::ItemWrite};
    ///
    /// # #[derive(serde::Deserialize)] struct Grant { grant_id: String, account: String, cents: u64 }
    /// async fn grant(grant: &Grant, cx: &JobContext) -> HandlerResult {
    ///     let row = [("grant_id", grant.grant_id.as_str()), ("account", &grant.account)];
    ///     cx.confirm_with([
    ///         ItemWrite::put("grants", row).when("attribute_not_exists(grant_id)"),
    ///         ItemWrite::update("balances", [("account", &grant.account)], "ADD cents :granted")
    ///             .value(":granted", grant.cents),
    ///     ])
    ///     .await
    /// }
    /// ```
    ///
    /// # Errors
    /// In each case the writes are not made, but where it says so.
    ///
    /// - The condition of a write does not hold: a failed attempt with reason `condition_failed`, unless the handler says
    ///   otherwise; [`HandlerError::condition`] tells which, and brings the item that is there. The claim is still held: the
    ///   handler may go on, and commit something else.
    /// - Another worker has taken over, or the lease is over (nothing is sent then): an interruption, which uses no attempt.
    /// - Others are at the same items, or the table is throttled, for longer than a few tries: an interruption.
    /// - No answer came: an interruption, and it *may be made*. The record tells: if it was, the message is deleted as done,
    ///   and if not, the next attempt runs. Meanwhile this run can neither commit again nor confirm by returning `Ok`.
    /// - A table is missing, or a right: *not there* (`commit_table_missing`, `commit_denied`), as with
    ///   [`HandlerError::unavailable`].
    /// - Permanent: a second one after one was made (`commit_repeated`); what DynamoDB never takes (`commit_refused`), writes
    ///   to the guard's own table among it; a queue with `GUARD=none` (`commit_without_guard`). While the store is away and
    ///   `GUARD_OUTAGE=open`, the same reason is *not there*.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, it may be made or not, as when no answer came.
    pub async fn confirm_with(&self, writes: impl IntoIterator<Item = ItemWrite>) -> HandlerResult {
        let claim = match &self.steps {
            Steps::Recorded(recorder) if recorder.part == Part::Undo => {
                let text = "confirm_with in undo: the work has failed for good, and cannot be done any more";
                return Err(HandlerError::new(text).permanent().reason("commit_in_undo"));
            }
            Steps::Recorded(recorder) => &recorder.claim,
            Steps::Unrecorded { .. } => {
                let text = "confirm_with needs the guard, whose store is away; GUARD_OUTAGE=open cannot help it";
                return Err(HandlerError::new(text).unavailable().reason("commit_without_guard"));
            }
            Steps::Refused => {
                let text = "confirm_with needs a guard, and this queue has GUARD=none; leasehold::unique does without";
                return Err(HandlerError::new(text).permanent().reason("commit_without_guard"));
            }
        };
        let writes: Vec<_> = writes.into_iter().collect();
        let tables: Vec<_> = writes.iter().map(|write| write.table.clone()).collect();
        match claim.commit(writes).await {
            Ok(Committed::Applied) => Ok(()),
            Ok(Committed::Refused(_)) => {
                Err(HandlerError::interrupted("another worker has taken over: nothing was committed"))
            }
            Ok(Committed::Condition { index, item }) => {
                let table = tables.get(index).cloned().unwrap_or_default();
                Err(HandlerError::new(ConditionFailed { index, table, item }).reason("condition_failed"))
            }
            Err(NotMade::Repeated) => Err(after_the_end(claim, "a second confirm_with", "commit_repeated")),
            Err(NotMade::LeaseOver) => {
                Err(HandlerError::interrupted("the execution lease is over: nothing was committed"))
            }
            Err(NotMade::Unknown(error)) => Err(HandlerError::interrupted(match error {
                Some(error) => format!("it is not known whether it was committed: {}", in_full(&error)),
                None => "it is not known whether an earlier try was committed".to_owned(),
            })),
            Err(NotMade::Refused(error)) => Err(refused(&error, tables)),
        }
    }
}

/// Refuses what would come after the run's work is done.
pub(super) fn not_after_commit(claim: &ExecutionLease, what: impl FnOnce() -> String) -> HandlerResult {
    match claim.commit_progress() {
        Progress::Open => Ok(()),
        Progress::Unknown => {
            Err(HandlerError::interrupted(format!("{}: it is not known whether the work was committed", what())))
        }
        Progress::Made => Err(after_the_end(claim, &what(), "step_after_commit")),
    }
}

/// Told at once: what the handler makes of the error no longer counts.
fn after_the_end(claim: &ExecutionLease, what: &str, reason: &'static str) -> HandlerError {
    tracing::error!(pk = %claim.pk, reason, "{what} after confirm_with, which is the end of the work: refused");
    HandlerError::new(format!("{what} after confirm_with, which is the end of the work")).permanent().reason(reason)
}

fn refused(error: &GuardError, mut tables: Vec<String>) -> HandlerError {
    let text = format!("not committed: {}", in_full(error));
    match error {
        GuardError::Denied(_) => {
            let text = format!("{text}; the worker's role needs the right to each write on its table");
            HandlerError::new(text).unavailable().reason("commit_denied")
        }
        GuardError::Missing => {
            tables.sort();
            tables.dedup();
            let text = format!("not committed: one of the tables {tables:?}, or the guard's, does not exist");
            HandlerError::new(text).unavailable().reason("commit_table_missing")
        }
        GuardError::TooLarge | GuardError::Refused(_) => HandlerError::new(text).permanent().reason("commit_refused"),
        _ => HandlerError::interrupted(text),
    }
}
