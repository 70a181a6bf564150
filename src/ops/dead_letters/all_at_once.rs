//! Putting all dead letters back at once, which SQS does by itself with a task.
//!
//! The task does not look at what it moves: letters whose work is done go round and are deleted by a worker, and copies of
//! one failure are made one by the guard. Where that would not be right, this says why not.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Millis,
    config::{DeadLetter, KeySource, Rate},
    queue::{Move, MoveStatus, MoveTask, QueueAddress, QueueError},
};

use super::{DeadLetters, OpsError};

/// Between two looks at a task that runs.
const LOOK: Duration = Duration::from_secs(1);

/// The least and the most that a task moves.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_StartMessageMoveTask.html>
const SLOWEST: Duration = Duration::from_secs(1);
const FASTEST: f64 = 500.0;

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
    /// Why a task must not move all of these at this rate; `None` if it may. Whether the service has such tasks is seen only
    /// when one is begun.
    ///
    /// A task is not told which letters it moves, so that every queue whose letters are there has to be known.
    pub async fn why_one_by_one(&self, rate: Option<Rate>) -> Option<String> {
        use KeySource::{DeduplicationId, GroupAndDeduplicationId, MessageId};
        if let Some(key @ (MessageId | DeduplicationId | GroupAndDeduplicationId)) = &self.config.key {
            return Some(format!("the key is {key}, which a task would change"));
        }
        if rate.is_some_and(|rate| rate.interval() > SLOWEST) {
            return Some("a task moves one in a second at the least".to_owned());
        }
        let dead = self.dead.name();
        let own =
            self.source.facts.redrive.as_ref().is_some_and(|policy| policy.dead_letter_arn == self.dead.facts.arn);
        if !own {
            return Some(format!("{dead} is not what the queue's redrive policy names"));
        }
        let goes_here = |to: &DeadLetter| matches!(to, DeadLetter::Queue(address) if address.queue_name() == dead);
        if let Some((other, _)) = self.others.iter().find(|(_, to)| goes_here(to)) {
            return Some(format!("{dead} has the dead letters of {other} too, which a task would put into this queue"));
        }
        match self.dead.queue.sources().await {
            Ok(sources) => {
                let names: Vec<_> =
                    sources.into_iter().map(|url| QueueAddress::Url(url).queue_name().to_owned()).collect();
                let other = names.into_iter().find(|name| name != self.source.name())?;
                Some(format!("{dead} has the dead letters of {other} too, which a task would put into this queue"))
            }
            // What has no such answer has no tasks either, or one queue of each name.
            Err(QueueError::Unsupported(_)) => None,
            Err(error) => {
                let error = crate::causes::in_full(&error);
                Some(format!("which other queues have their dead letters in {dead} cannot be looked up: {error}"))
            }
        }
    }

    /// Lets SQS put back all of them, no faster than `rate` (whole numbers, up to 500 a second), and tells how far it is
    /// about every second until it is over. One that already runs to this queue is watched, at its own rate. When `stop` is
    /// cancelled the task is told to stop, until it does; what it has moved stays moved. To be asked only where there is no
    /// [reason against it](Self::why_one_by_one).
    ///
    /// # Errors
    /// [`OpsError::Queue`]: the task was refused, another one runs to another queue, or SQS does not tell of it any more.
    ///
    /// # Cancel safety
    /// Dropped, the task goes on at SQS.
    pub async fn redrive_all(
        &self,
        rate: Option<Rate>,
        stop: &CancellationToken,
        mut tell: impl FnMut(&MoveTask),
    ) -> Result<Moving, OpsError> {
        let (from, to) = (self.dead.facts.arn.as_str(), self.source.facts.arn.as_str());
        let failed = |error| self.dead.failed(error);
        let before = match self.broker.latest_move(from).await {
            // Then there was none. Whether there can be one is for the start to say.
            Err(QueueError::Unsupported(_)) => None,
            answer => answer.map_err(failed)?,
        };
        match &before {
            Some(task) if !task.status.is_over() && task.to.as_deref() == Some(to) => {}
            Some(task) if !task.status.is_over() => {
                let to = task.to.as_deref().unwrap_or("another queue");
                return Err(failed(QueueError::Refused(format!("a task is moving its messages to {to}"))));
            }
            _ => {
                let per_second = rate.map(|rate| (1.0 / rate.interval().as_secs_f64()).clamp(1.0, FASTEST) as u32);
                let task = Move { from: from.to_owned(), to: to.to_owned(), per_second };
                match self.broker.start_move(&task).await {
                    Ok(()) => {}
                    Err(QueueError::Unsupported(why)) => return Ok(Moving::OneByOne(why)),
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        let before = before.filter(|task| task.status.is_over()).map(|task| task.started_at);
        self.watch(from, before, stop, &mut tell).await.map(Moving::Task)
    }

    /// Until the task is over that is not the one that began then.
    async fn watch(
        &self,
        from: &str,
        before: Option<Millis>,
        stop: &CancellationToken,
        tell: &mut impl FnMut(&MoveTask),
    ) -> Result<MoveTask, OpsError> {
        let mut failures = 0;
        loop {
            match self.broker.latest_move(from).await {
                Ok(Some(task)) if Some(task.started_at) != before => {
                    failures = 0;
                    tell(&task);
                    if task.status.is_over() {
                        return Ok(task);
                    }
                    self.stop_if_told(from, &task, stop).await;
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

    /// What refuses to be stopped is told again at the next look, and may be over by then.
    async fn stop_if_told(&self, from: &str, task: &MoveTask, stop: &CancellationToken) {
        let Some(handle) = &task.handle else { return };
        if stop.is_cancelled()
            && task.status == MoveStatus::Running
            && let Err(error) = self.broker.cancel_move(from, handle).await
        {
            tracing::warn!(%error, "the task is not stopped yet");
        }
    }
}
