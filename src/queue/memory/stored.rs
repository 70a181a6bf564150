//! One message in a queue: what was sent, until when it is hidden, and how often it was received.
//!
//! It knows the rules that need no look at other messages. Which queue it is in, and what a handle is good for, is its
//! [`super::store::Store`]'s business.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    clock::{Millis, Moment},
    message::Message,
    queue::{LONGEST_VISIBILITY, Outgoing, QueueError},
};

/// One message in a queue.
pub(super) struct Stored {
    id: String,
    content: Outgoing,
    sent_at: Millis,
    /// What retention counts from.
    enqueued: Instant,
    visible_at: Instant,
    /// Receives from this queue: the number of the latest handle.
    receives: u32,
    /// Receives from the queues it was moved from.
    receives_elsewhere: u32,
    received_at: Instant,
    /// Whether the visibility was changed since the latest receive.
    changed: bool,
    /// The ARN of the queue that a redrive policy moved it from.
    moved_from: Option<String>,
}

/// Where a message stands in its queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Visible,
    InFlight,
    Delayed,
}

impl Stored {
    pub(super) fn new(id: String, content: Outgoing, delay: Duration, now: Moment) -> Self {
        Self {
            id,
            content,
            sent_at: now.wall,
            enqueued: now.instant,
            visible_at: now.instant + delay,
            receives: 0,
            receives_elsewhere: 0,
            received_at: now.instant,
            changed: false,
            moved_from: None,
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn group(&self) -> Option<&str> {
        self.content.group.as_deref()
    }

    /// Receives from this queue.
    pub(super) fn receives(&self) -> u32 {
        self.receives
    }

    /// Until then it is hidden.
    pub(super) fn visible_at(&self) -> Instant {
        self.visible_at
    }

    pub(super) fn expires_at(&self, retention: Duration) -> Instant {
        self.enqueued + retention
    }

    pub(super) fn standing(&self, now: Instant) -> Standing {
        match (self.visible_at <= now, self.receives) {
            (true, _) => Standing::Visible,
            (false, 0) => Standing::Delayed,
            (false, _) => Standing::InFlight,
        }
    }

    /// Whether nothing has happened to it since its latest receive.
    pub(super) fn is_untouched(&self, now: Instant) -> bool {
        self.standing(now) == Standing::InFlight && !self.changed
    }

    pub(super) fn receive(&mut self, visibility: Duration, now: Instant) {
        self.receives += 1;
        self.received_at = now;
        self.visible_at = now + visibility;
        self.changed = false;
    }

    /// The latest receive once more: its timeout starts again, and nothing else.
    pub(super) fn receive_again(&mut self, visibility: Duration, now: Instant) {
        self.visible_at = now + visibility;
    }

    /// Hides it until `timeout` from now. The 12 hours count from the latest receive:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html>
    pub(super) fn change_visibility(&mut self, timeout: Duration, now: Instant) -> Result<(), QueueError> {
        if now + timeout > self.received_at + LONGEST_VISIBILITY {
            return Err(QueueError::TwelveHours);
        }
        self.visible_at = now + timeout;
        self.changed = true;
        Ok(())
    }

    /// Makes it visible before its timeout has ended, with nobody having asked for it.
    pub(super) fn reappear(&mut self, now: Instant) {
        self.visible_at = now;
    }

    /// What a redrive policy's move leaves of it.
    ///
    /// It keeps its id, and its receive count goes on (seen on AWS: `test_dead_letter_queue_message_attributes` in
    /// <https://github.com/localstack/localstack/blob/main/tests/aws/services/sqs/test_sqs.snapshot.json>). Its enqueue
    /// time is kept on standard queues and reset on FIFO queues:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/setting-up-dead-letter-queue-retention.html>.
    /// On FIFO queues its deduplication id becomes its message id:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-dead-letter-queue-redrive.html>
    pub(super) fn moved(mut self, from: String, fifo: bool, now: Moment) -> Self {
        self.moved_from = Some(from);
        self.receives_elsewhere += std::mem::take(&mut self.receives);
        self.visible_at = now.instant;
        if fifo {
            (self.sent_at, self.enqueued) = (now.wall, now.instant);
            self.content.deduplication_id = Some(self.id.clone());
        }
        self
    }

    /// What was sent. On a FIFO queue, what is sent again has an id of its own.
    pub(super) fn content(mut self) -> Outgoing {
        self.content.deduplication_id = self.content.deduplication_id.map(|_| format!("moved-{}", self.id));
        self.content.delay = None;
        self.content
    }

    /// As a receive shows it.
    pub(super) fn message(&self) -> Message {
        let content = self.content.clone();
        Message {
            id: self.id.clone(),
            body: content.body,
            attributes: content.attributes,
            receive_count: self.receives_elsewhere + self.receives,
            sent_at: Some(self.sent_at),
            group: content.group,
            deduplication_id: content.deduplication_id,
            trace_header: content.trace_header,
            dead_letter: None,
            moved_from: self.moved_from.clone(),
            sns: None,
        }
        .unpacked()
    }
}
