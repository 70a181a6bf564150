//! Tasks that move all messages of a dead-letter queue, as SQS has them.
//!
//! Owns how far each is. No task runs in the background: whoever asks for one finds it as far as it would be by now.

use tokio::time::Instant;

use super::{State, stored::Standing};
use crate::{
    clock::{Millis, Moment},
    queue::{Move, MoveStatus, MoveTask, QueueAddress, QueueError},
};

/// The latest move from one queue.
pub(super) struct Moving {
    task: MoveTask,
    /// `None` is all at once.
    per_second: Option<u32>,
    begun: Instant,
}

impl State {
    /// Begins a move. What is moved is a new message, with what was sent and nothing of what SQS knew of it.
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-dead-letter-queue-redrive.html>
    pub(super) fn start_move(&mut self, ask: &Move, now: Moment) -> Result<(), QueueError> {
        let from = name_of(&ask.from);
        let of = self.store(&from, now)?.count(Standing::Visible, now.instant) as u64;
        self.store(&name_of(&ask.to), now)?;
        if self.sources_of(&from).is_empty() {
            let why = format!("{from} is no queue's dead-letter queue");
            return Err(QueueError::Unsupported(why));
        }
        let before = self.latest_move(&ask.from, now);
        if before.as_ref().is_some_and(|task| !task.status.is_over()) {
            return Err(QueueError::Refused(format!("a task moves the messages of {from} already")));
        }
        // By this a task is told from the one before it.
        let started_at = before.map_or(now.wall, |task| now.wall.max(Millis(task.started_at.0 + 1)));
        let task = MoveTask {
            handle: Some(format!("move-{}@{from}", started_at.0)),
            status: MoveStatus::Running,
            to: Some(ask.to.clone()),
            moved: 0,
            of: Some(of),
            failure: None,
            started_at,
        };
        self.moves.insert(ask.from.clone(), Moving { task, per_second: ask.per_second, begun: now.instant });
        self.go_on(&ask.from, now);
        Ok(())
    }

    /// The latest move from that queue, as it stands now.
    pub(super) fn latest_move(&mut self, from: &str, now: Moment) -> Option<MoveTask> {
        self.go_on(from, now);
        self.moves.get(from).map(|moving| moving.task.clone())
    }

    /// Tells it to stop: nothing more is moved, and the next look finds it stopped.
    pub(super) fn cancel_move(&mut self, from: &str, handle: &str, now: Moment) -> Result<(), QueueError> {
        self.go_on(from, now);
        let running = self.moves.get_mut(from).filter(|moving| moving.task.status == MoveStatus::Running);
        match running.filter(|moving| moving.task.handle.as_deref() == Some(handle)) {
            Some(moving) => moving.task.status = MoveStatus::Cancelling,
            None => return Err(QueueError::Missing),
        }
        Ok(())
    }

    /// The names of the queues whose dead letters go there.
    pub(super) fn sources_of(&self, dead_letters: &str) -> Vec<String> {
        let is_source = |redrive: Option<(String, u32)>| redrive.is_some_and(|(name, _)| name == dead_letters);
        self.queues.iter().filter(|(_, store)| is_source(store.redrive())).map(|(name, _)| name.clone()).collect()
    }

    /// Moves what is due.
    fn go_on(&mut self, from: &str, now: Moment) {
        let Some(mut moving) = self.moves.remove(from) else { return };
        match moving.task.status {
            MoveStatus::Running => moving.task.status = self.moved(from, &mut moving, now),
            MoveStatus::Cancelling => moving.task.status = MoveStatus::Cancelled,
            _ => {}
        }
        if moving.task.status.is_over() {
            moving.task.handle = None;
        }
        self.moves.insert(from.to_owned(), moving);
    }

    fn moved(&mut self, from: &str, moving: &mut Moving, now: Moment) -> MoveStatus {
        let due = moving.per_second.map_or(u64::MAX, |rate| {
            let elapsed = now.instant.saturating_duration_since(moving.begun);
            (elapsed.as_secs_f64() * f64::from(rate)) as u64
        });
        let due = usize::try_from(due.saturating_sub(moving.task.moved)).unwrap_or(usize::MAX);
        let to = name_of(moving.task.to.as_deref().unwrap_or_default());
        if let Err(error) = self.store(&to, now) {
            moving.task.failure = Some(error.to_string());
            return MoveStatus::Failed;
        }
        let Ok(source) = self.store(&name_of(from), now) else { return MoveStatus::Failed };
        let content = source.take_visible(due, now.instant);
        let is_all = source.count(Standing::Visible, now.instant) == 0;
        moving.task.moved += content.len() as u64;
        if let Ok(to) = self.store(&to, now) {
            content.into_iter().for_each(|content| drop(to.put(content, now)));
        }
        if is_all { MoveStatus::Completed } else { MoveStatus::Running }
    }
}

fn name_of(of: &str) -> String {
    QueueAddress::Arn(of.to_owned()).queue_name().to_owned()
}
