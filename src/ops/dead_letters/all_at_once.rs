//! Putting all dead letters back at once, which SQS does by itself with a task.
//!
//! The task does not look at what it moves: letters whose work is done go round and are deleted by a worker, and copies of
//! one failure are made one by the guard. Where that would not be right, this says why not.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    config::KeySource,
    queue::{Move, MoveTask, QueueError},
};

use super::{DeadLetters, OpsError};

/// Between two looks at a task that runs.
const LOOK: Duration = Duration::from_secs(1);

/// So many looks that fail in a row end the watching, and not the task.
const FAILED_LOOKS: u32 = 5;

/// How a move by SQS stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Moving {
    /// SQS cannot do it, or it would not be right: letters have to be put back one by one. Says why.
    OneByOne(String),
    /// There is such a task, which may be over.
    Task(MoveTask),
}

impl DeadLetters {
    /// Why a task must not move all of these; `None` if it may.
    #[must_use]
    pub fn why_one_by_one(&self) -> Option<String> {
        use KeySource::{DeduplicationId, GroupAndDeduplicationId, MessageId};
        if let Some(key @ (MessageId | DeduplicationId | GroupAndDeduplicationId)) = &self.config.key {
            return Some(format!("the key is {key}, which a task would change"));
        }
        let own =
            self.source.facts.redrive.as_ref().is_some_and(|policy| policy.dead_letter_arn == self.dead.facts.arn);
        if !own {
            return Some(format!("{} is not what the queue's redrive policy names", self.dead.name()));
        }
        None
    }

    /// Lets SQS put back all of them, at most so many in a second, and tells how far it is about every second until it is
    /// over. One that already runs to this queue is watched. When `stop` is cancelled the task is told to stop; what it has
    /// moved stays moved.
    ///
    /// # Errors
    /// [`OpsError::Queue`]: the task was refused, or another one runs to another queue.
    ///
    /// # Cancel safety
    /// Dropped, the task goes on at SQS.
    pub async fn redrive_all(
        &self,
        per_second: Option<u32>,
        stop: &CancellationToken,
        mut tell: impl FnMut(&MoveTask),
    ) -> Result<Moving, OpsError> {
        let (from, to) = (self.dead.facts.arn.as_str(), self.source.facts.arn.as_str());
        let failed = |error| self.dead.failed(error);
        let before = self.broker.latest_move(from).await.map_err(failed)?;
        match &before {
            Some(task) if !task.status.is_over() && task.to.as_deref() == Some(to) => {}
            Some(task) if !task.status.is_over() => {
                let to = task.to.as_deref().unwrap_or("another queue");
                return Err(failed(QueueError::Refused(format!("a task is moving its messages to {to}"))));
            }
            _ => {
                let task = Move { from: from.to_owned(), to: to.to_owned(), per_second };
                match self.broker.start_move(&task).await {
                    Ok(()) => {}
                    Err(QueueError::Unsupported(why)) => return Ok(Moving::OneByOne(why)),
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        self.watch(from, before.filter(|task| task.status.is_over()), stop, &mut tell).await.map(Moving::Task)
    }

    /// Until the task is over that is not this one.
    async fn watch(
        &self,
        from: &str,
        before: Option<MoveTask>,
        stop: &CancellationToken,
        tell: &mut impl FnMut(&MoveTask),
    ) -> Result<MoveTask, OpsError> {
        let (mut failures, mut is_told) = (0, false);
        loop {
            match self.broker.latest_move(from).await {
                Ok(Some(task)) if Some(task.started_at) != before.as_ref().map(|task| task.started_at) => {
                    failures = 0;
                    tell(&task);
                    if task.status.is_over() {
                        return Ok(task);
                    }
                    if let Some(handle) = task.handle.as_ref().filter(|_| stop.is_cancelled() && !is_told) {
                        let told = self.broker.cancel_move(from, handle).await;
                        told.map_err(|error| self.dead.failed(error))?;
                        is_told = true;
                    }
                }
                // It was begun a moment ago, and is not told yet.
                Ok(_) => failures += 1,
                Err(error) if error.is_transient() && failures < FAILED_LOOKS => failures += 1,
                Err(error) => return Err(self.dead.failed(error)),
            }
            if failures > FAILED_LOOKS {
                return Err(self.dead.failed(QueueError::Unavailable(Some("it does not tell of its task".into()))));
            }
            if stop.is_cancelled() {
                sleep(LOOK).await;
            } else {
                tokio::select! {
                    // A stop is seen before another second goes by.
                    biased;
                    () = stop.cancelled() => {}
                    () = sleep(LOOK) => {}
                }
            }
        }
    }
}
