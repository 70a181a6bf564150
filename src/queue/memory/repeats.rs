//! What a FIFO queue remembers for five minutes: what it was sent, and how it answered receives by their attempt ids.
//!
//! It knows ids, handles and times, and nothing of messages; whether a receive may still be repeated is its
//! [`super::store::Store`]'s to say.

use std::{collections::BTreeMap, time::Duration};

use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::{
    message::ReceiptHandle,
    queue::{DeduplicationScope, Outgoing},
};

/// How long FIFO queues remember a deduplication id, and a receive by its attempt id.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html>
pub(super) const DEDUPLICATION_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// The memory of one FIFO queue.
#[derive(Default)]
pub(super) struct Repeats {
    /// By group, where the scope is the group, and deduplication id: when a message was accepted, and its id.
    accepted: BTreeMap<(Option<String>, String), (Instant, String)>,
    /// By attempt id: when a receive was answered, and what with.
    attempts: BTreeMap<String, (Instant, Vec<ReceiptHandle>)>,
}

impl Repeats {
    /// Accepts a message under this id, or answers the id of the message that it is a duplicate of. A message without a
    /// deduplication id, which only a test can send, is none.
    pub(super) fn accept(
        &mut self,
        content: &Outgoing,
        scope: DeduplicationScope,
        id: &str,
        now: Instant,
    ) -> Option<String> {
        let group = content.group.clone().filter(|_| scope == DeduplicationScope::MessageGroup);
        let name = (group, content.deduplication_id.clone()?);
        match self.accepted.get(&name) {
            Some((at, original)) if now < *at + DEDUPLICATION_INTERVAL => Some(original.clone()),
            _ => {
                self.accepted.insert(name, (now, id.to_owned()));
                None
            }
        }
    }

    /// Remembers what a receive was answered with. An attempt that brought nothing is not repeated but looks again.
    pub(super) fn answered(&mut self, attempt: &str, handles: Vec<ReceiptHandle>, now: Instant) {
        if !handles.is_empty() {
            self.attempts.insert(attempt.to_owned(), (now, handles));
        }
    }

    /// What a receive of this attempt id was answered with, in the last five minutes.
    pub(super) fn answer(&self, attempt: &str, now: Instant) -> Option<&[ReceiptHandle]> {
        let (at, handles) = self.attempts.get(attempt)?;
        (now < *at + DEDUPLICATION_INTERVAL).then_some(handles)
    }

    /// Forgets what is past its five minutes.
    pub(super) fn expire(&mut self, now: Instant) {
        self.accepted.retain(|_, (at, _)| now < *at + DEDUPLICATION_INTERVAL);
        self.attempts.retain(|_, (at, _)| now < *at + DEDUPLICATION_INTERVAL);
    }
}

/// Content-based deduplication: SHA-256 of the body, attributes left out.
pub(super) fn hash(body: &str) -> String {
    Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}
