//! Receiving everything that is in a queue, each message once, and giving it back.
//!
//! Owns the handles of what is held. What is dropped with them comes back by itself, two minutes after it was received.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;

use crate::{
    message::ReceiptHandle,
    queue::{BATCH, Queue, QueueError, Receive, Received},
};

use super::{DeadLetters, OpsError};

/// How long what is looked at stays hidden if nobody gives it back: long enough to receive thousands, short enough that a
/// tool that is killed hides nothing from the next for long.
pub(super) const HIDDEN: Duration = Duration::from_secs(120);

/// A long poll asks all of the servers that hold a queue's messages; a short one only some.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html>
const WAIT: Duration = Duration::from_secs(1);

/// So many polls in a row that bring nothing new are the end of a queue that should have more, by its own estimate.
const EMPTY_POLLS: u32 = 3;

/// So many in a row that bring only what was seen: what is held comes back when a pass takes long.
const KNOWN_POLLS: u32 = 1000;

/// One pass through a dead-letter queue.
pub(super) struct Reading<'a> {
    queue: &'a dyn Queue,
    /// About how many can be received.
    expected: u64,
    seen: BTreeSet<String>,
    empty: u32,
    known: u32,
    held: Vec<ReceiptHandle>,
}

impl<'a> Reading<'a> {
    pub(super) async fn begin(letters: &'a DeadLetters) -> Result<Self, OpsError> {
        let expected = match letters.dead.queue.depth().await {
            Ok(depth) => depth.visible,
            // Then the end is told by polls alone.
            Err(QueueError::Denied(_) | QueueError::Unsupported(_)) => u64::MAX,
            Err(error) => return Err(letters.dead.failed(error)),
        };
        Ok(Self { queue: &*letters.dead.queue, expected, seen: BTreeSet::new(), empty: 0, known: 0, held: Vec::new() })
    }

    /// Some that were not seen yet, up to `most` of them; `None` at the end.
    pub(super) async fn next(&mut self, most: usize) -> Result<Option<Vec<Received>>, QueueError> {
        loop {
            let ask = Receive { max: most.clamp(1, BATCH), wait: WAIT, visibility: HIDDEN, attempt_id: None };
            let received = self.queue.receive(&ask).await?;
            let (new, again): (Vec<_>, Vec<_>) =
                received.into_iter().partition(|received| self.seen.insert(received.message.id.clone()));
            // Hidden for too short a time, or delivered twice.
            let is_known = !again.is_empty();
            self.hold(again.into_iter().map(|received| received.handle));
            if !new.is_empty() {
                (self.empty, self.known) = (0, 0);
                return Ok(Some(new));
            }
            if is_known {
                self.known += 1;
            } else {
                self.empty += 1;
            }
            let is_long = self.empty >= EMPTY_POLLS || self.known >= KNOWN_POLLS;
            if is_long || self.seen.len() as u64 >= self.expected {
                return Ok(None);
            }
        }
    }

    /// Holds these, to be given back.
    pub(super) fn hold(&mut self, handles: impl IntoIterator<Item = ReceiptHandle>) {
        self.held.extend(handles);
    }

    /// Makes everything that is held visible again. What cannot be comes back by itself.
    pub(super) async fn give_back(&mut self) {
        let held = std::mem::take(&mut self.held);
        for some in held.chunks(10 * BATCH) {
            let given = join_all(some.iter().map(|handle| self.queue.change_visibility(handle, Duration::ZERO))).await;
            if let Some(error) = given.into_iter().find_map(Result::err) {
                tracing::debug!(%error, "some of what was looked at comes back in two minutes, not now");
            }
        }
    }
}
