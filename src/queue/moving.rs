//! What SQS does with all of a queue's messages at once: moving those of a dead-letter queue somewhere else.
//!
//! Values only. A task runs at the service, survives whoever started it, and takes every message that is there while it
//! runs. <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_StartMessageMoveTask.html>

use crate::clock::Millis;

/// A move of all messages of a dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The ARN of the dead-letter queue.
    pub from: String,
    /// The ARN of the queue that they go to. Never left to SQS, which then sends each to the queue that SQS itself moved it
    /// from: copies that a worker sent came from none, and the task fails at the first of them.
    pub to: String,
    /// At most so many in a second, 1 to 500; `None` is as fast as SQS can.
    pub per_second: Option<u32>,
}

/// What a service tells of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveTask {
    /// Names it, while it runs.
    pub handle: Option<String>,
    /// How far it is.
    pub status: MoveStatus,
    /// The ARN of the queue that the messages go to.
    pub to: Option<String>,
    /// About how many it has moved.
    pub moved: u64,
    /// About how many there were when it began.
    pub of: Option<u64>,
    /// Why it failed.
    pub failure: Option<String>,
    /// When it began, by the service's clock.
    pub started_at: Millis,
}

/// How far a move is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MoveStatus {
    /// It moves messages.
    Running,
    /// It was told to stop, and has not stopped yet.
    Cancelling,
    /// All are moved.
    Completed,
    /// It was stopped; what it had moved stays moved.
    Cancelled,
    /// It has ended by itself before all were moved.
    Failed,
}

impl MoveStatus {
    /// Whether it moves nothing any more.
    #[must_use]
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Running | Self::Cancelling)
    }

    /// From what SQS says; `None` for a word that nobody knows.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "RUNNING" => Self::Running,
            "CANCELLING" => Self::Cancelling,
            "COMPLETED" => Self::Completed,
            "CANCELLED" => Self::Cancelled,
            "FAILED" => Self::Failed,
            _ => return None,
        })
    }
}

/// How many messages a queue has, by what keeps them. SQS's own estimate, which is exact only a minute after the last
/// change.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/confirm-queue-is-empty.html>
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Depth {
    /// Can be received now.
    pub visible: u64,
    /// Were received, and are hidden until their visibility timeout ends.
    pub in_flight: u64,
    /// Were sent with a delay that has not passed.
    pub delayed: u64,
}

impl Depth {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.visible + self.in_flight + self.delayed
    }
}
