//! One queue's messages, and what SQS answers about them at a given moment.
//!
//! Owns receipt handles, FIFO order and retention. It reads no clock and never waits: every answer
//! depends on the calls before it and on the moment that is passed in. Where AWS's documents are silent, the answer is
//! one that was seen on AWS, with where it was seen.

use std::{
    cmp::Ordering::{Equal, Greater, Less},
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::{
    clock::Moment,
    message::{Message, ReceiptHandle},
    queue::{Outgoing, QueueError, QueueFacts, Receive, Received, RedrivePolicy},
};

use super::{
    LateChange, MemoryQueueSettings, arn,
    repeats::{DEDUPLICATION_INTERVAL, Repeats, hash},
    stored::{Standing, Stored},
    url,
};

/// One queue.
pub(super) struct Store {
    name: String,
    settings: MemoryQueueSettings,
    /// In the order of arrival.
    messages: BTreeMap<u64, Stored>,
    /// Of a FIFO queue.
    repeats: Repeats,
    /// Nothing expires before this, so that not every call has to look through everything.
    next_expiry: Instant,
    /// So many receives are still to come back empty.
    misses: u64,
    changes: Arc<Notify>,
    sequence: Arc<AtomicU64>,
}

/// What one look at the queue brought.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) received: Vec<Received>,
    /// Received too often: to be moved to the dead-letter queue.
    pub(super) dead: Vec<Stored>,
}

/// What a receipt handle is good for.
enum Found {
    /// The message is no more.
    Gone,
    /// The message was received again since.
    Stale(u64),
    /// It is the handle of the latest receive.
    Latest(u64),
}

impl Store {
    pub(super) fn new(name: &str, settings: MemoryQueueSettings, sequence: Arc<AtomicU64>, now: Instant) -> Self {
        Self {
            name: name.to_owned(),
            settings,
            messages: BTreeMap::new(),
            repeats: Repeats::default(),
            next_expiry: now,
            misses: 0,
            changes: Arc::default(),
            sequence,
        }
    }

    /// AWS makes no other FIFO queues, and no standard ones of such a name.
    pub(super) fn is_fifo(&self) -> bool {
        self.name.ends_with(".fifo")
    }

    pub(super) fn redrive(&self) -> Option<(String, u32)> {
        self.settings.redrive.clone()
    }

    pub(super) fn changes(&self) -> Arc<Notify> {
        Arc::clone(&self.changes)
    }

    pub(super) fn wake_pollers(&self) {
        self.changes.notify_waiters();
    }

    pub(super) fn miss(&mut self, receives: u64) {
        self.misses = receives;
    }

    /// Whether this receive is one of those that come back empty.
    pub(super) fn misses_backlog(&mut self) -> bool {
        let misses = self.misses > 0;
        self.misses = self.misses.saturating_sub(1);
        misses
    }

    pub(super) fn facts(&self) -> QueueFacts {
        let policy = |(name, max_receive_count): &(String, u32)| RedrivePolicy {
            dead_letter_arn: arn(name),
            max_receive_count: *max_receive_count,
        };
        QueueFacts {
            arn: arn(&self.name),
            url: url(&self.name),
            fifo: self.is_fifo(),
            content_based_deduplication: self.is_fifo() && self.settings.content_based_deduplication,
            deduplication_scope: self.settings.deduplication_scope,
            visibility: self.settings.visibility,
            retention: self.settings.retention,
            redrive: self.settings.redrive.as_ref().map(policy),
            redrive_allow: self.settings.redrive_allow.clone(),
            largest_message: self.settings.largest_message,
            kms_key: self.settings.kms_key.clone(),
        }
    }

    pub(super) fn count(&self, standing: Standing, now: Instant) -> usize {
        self.messages.values().filter(|message| message.standing(now) == standing).count()
    }

    pub(super) fn size(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn messages(&self) -> Vec<Message> {
        self.messages.values().map(Stored::message).collect()
    }

    /// Accepts a message; a FIFO queue accepts a duplicate too, and drops it. Answers the message's id.
    pub(super) fn put(&mut self, mut content: Outgoing, now: Moment) -> String {
        let sequence = self.next_sequence();
        let id = format!("message-{sequence}");
        if self.is_fifo() {
            if self.settings.content_based_deduplication {
                content.deduplication_id.get_or_insert_with(|| hash(&content.body));
            }
            let scope = self.settings.deduplication_scope;
            if let Some(original) = self.repeats.accept(&content, scope, &id, now.instant) {
                return original;
            }
        }
        let delay = content.delay.unwrap_or(self.settings.delay);
        self.insert(sequence, Stored::new(id.clone(), content, delay, now));
        id
    }

    /// Takes out what was sent of that many of those that may be received now.
    pub(super) fn take_visible(&mut self, most: usize, now: Instant) -> Vec<Outgoing> {
        let visible = self.available(now);
        visible.iter().take(most).filter_map(|sequence| self.messages.remove(sequence)).map(Stored::content).collect()
    }

    /// Takes in what another queue's redrive policy moves here.
    pub(super) fn adopt(&mut self, message: Stored, from: String, now: Moment) {
        let moved = message.moved(from, self.is_fifo(), now);
        self.insert(self.next_sequence(), moved);
    }

    fn insert(&mut self, sequence: u64, message: Stored) {
        self.next_expiry = self.next_expiry.min(message.expires_at(self.settings.retention));
        self.messages.insert(sequence, message);
        self.wake_pollers();
    }

    fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Takes what may be received now. A message that has had its `limit` of receives is not received but dead.
    pub(super) fn take(&mut self, ask: &Receive, limit: Option<u32>, now: Instant) -> Taken {
        if let Some(received) = self.repeat_attempt(ask, now) {
            return Taken { received, dead: Vec::new() };
        }
        let mut taken = Taken::default();
        for sequence in self.available(now) {
            if taken.received.len() == ask.max {
                break;
            }
            let Some(message) = self.messages.get_mut(&sequence) else { continue };
            if limit.is_some_and(|limit| message.receives() >= limit) {
                taken.dead.extend(self.messages.remove(&sequence));
            } else {
                message.receive(ask.visibility, now);
                let handle = ReceiptHandle::new(format!("{sequence}/{}@{}", message.receives(), self.name));
                taken.received.push(Received { message: message.message(), handle });
            }
        }
        if let Some(attempt) = ask.attempt_id.as_ref().filter(|_| self.is_fifo()) {
            let handles = taken.received.iter().map(|received| received.handle.clone()).collect();
            self.repeats.answered(attempt, handles, now);
        }
        taken
    }

    /// What may be received now, in the order in which it is. AWS gives as many messages of one FIFO group as there are
    /// before it goes on to the next group:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-queues-understanding-logic.html>.
    /// It stops a group at its first hidden message, why ever that is hidden; messages before it are not blocked
    /// (seen on AWS: `test_fifo_group_visibility_extends_with_change_message_visibility` in
    /// <https://github.com/localstack/localstack/blob/main/tests/aws/services/sqs/test_sqs.py>).
    fn available(&self, now: Instant) -> Vec<u64> {
        if !self.is_fifo() {
            let visible = self.messages.iter().filter(|(_, message)| message.visible_at() <= now);
            return visible.map(|(sequence, _)| *sequence).collect();
        }
        let mut groups: Vec<Vec<u64>> = Vec::new();
        let mut open: BTreeMap<Option<&str>, Option<usize>> = BTreeMap::new();
        for (sequence, message) in &self.messages {
            let group = open.entry(message.group()).or_insert_with(|| {
                groups.push(Vec::new());
                Some(groups.len() - 1)
            });
            if message.visible_at() > now {
                *group = None;
            } else if let Some(group) = group.and_then(|group| groups.get_mut(group)) {
                group.push(*sequence);
            }
        }
        groups.into_iter().flatten().collect()
    }

    /// The same receive once more, if none of its messages has changed since. It starts the timeouts again, and is not
    /// counted as a receive.
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html>
    fn repeat_attempt(&mut self, ask: &Receive, now: Instant) -> Option<Vec<Received>> {
        let handles = self.repeats.answer(ask.attempt_id.as_ref()?, now)?.to_vec();
        let untouched: Option<Vec<u64>> = handles.iter().map(|handle| self.untouched(handle, now)).collect();
        let mut repeated = Vec::new();
        for (sequence, handle) in untouched?.into_iter().zip(handles) {
            let message = self.messages.get_mut(&sequence)?;
            message.receive_again(ask.visibility, now);
            repeated.push(Received { message: message.message(), handle });
        }
        Some(repeated)
    }

    fn untouched(&self, handle: &ReceiptHandle, now: Instant) -> Option<u64> {
        let Ok(Found::Latest(sequence)) = self.find(handle) else { return None };
        self.messages.get(&sequence)?.is_untouched(now).then_some(sequence)
    }

    /// Deletes a message.
    ///
    /// On a standard queue a handle is good for as long as the message was not received again, whether the timeout has
    /// ended or not; after that the answer is `Ok` and the message stays:
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html>. A FIFO queue
    /// refuses both, "the receipt handle has expired" (<https://github.com/aws/aws-sdk-js/issues/1279>). Deleting what
    /// is deleted is `Ok` everywhere.
    pub(super) fn delete(&mut self, handle: &ReceiptHandle, now: Instant) -> Result<(), QueueError> {
        match self.find(handle)? {
            Found::Gone => return Ok(()),
            Found::Stale(_) if self.is_fifo() => return Err(QueueError::HandleLost),
            Found::Stale(_) => return Ok(()),
            Found::Latest(sequence) => {
                let visible = self.messages.get(&sequence).is_some_and(|message| message.visible_at() <= now);
                if self.is_fifo() && visible {
                    return Err(QueueError::HandleLost);
                }
                self.messages.remove(&sequence);
            }
        }
        self.wake_pollers();
        Ok(())
    }

    /// Changes how long a message stays hidden.
    ///
    /// On a standard queue an old handle works on whatever receive the message is in flight for, so that it can shorten
    /// the next owner's timeout (`test_terminate_visibility_timeout_after_receive`, seen on AWS, in
    /// <https://github.com/localstack/localstack/blob/main/tests/aws/services/sqs/test_sqs.py>).
    pub(super) fn change_visibility(
        &mut self,
        handle: &ReceiptHandle,
        timeout: Duration,
        now: Instant,
    ) -> Result<(), QueueError> {
        let fifo = self.is_fifo();
        let sequence = match self.find(handle)? {
            Found::Gone => return Err(QueueError::HandleLost),
            Found::Stale(_) if fifo => return Err(QueueError::HandleLost),
            Found::Stale(sequence) | Found::Latest(sequence) => sequence,
        };
        let Some(message) = self.messages.get_mut(&sequence) else { return Err(QueueError::HandleLost) };
        if message.visible_at() <= now {
            return match self.settings.late_change {
                LateChange::Ignored if !fifo => Ok(()),
                LateChange::Ignored | LateChange::Refused => Err(QueueError::HandleLost),
            };
        }
        message.change_visibility(timeout, now)?;
        self.wake_pollers();
        Ok(())
    }

    /// Makes a message that is in flight visible; answers whether it was.
    pub(super) fn redeliver(&mut self, message_id: &str, now: Instant) -> bool {
        let mut in_flight = self.messages.values_mut().filter(|message| message.standing(now) == Standing::InFlight);
        let Some(message) = in_flight.find(|message| message.id() == message_id) else { return false };
        message.reappear(now);
        self.wake_pollers();
        true
    }

    /// When a receive that found nothing may find something without anybody's call: a message becomes visible, or one
    /// expires that blocked its group.
    pub(super) fn next_change(&self, now: Instant) -> Instant {
        let hidden = self.messages.values().map(Stored::visible_at).filter(|at| *at > now);
        hidden.fold(self.next_expiry, Instant::min)
    }

    /// Forgets what is too old: messages past their retention, in flight or not, and ids past their five minutes.
    pub(super) fn expire(&mut self, now: Instant) {
        if now < self.next_expiry {
            return;
        }
        let retention = self.settings.retention;
        self.messages.retain(|_, message| now < message.expires_at(retention));
        self.repeats.expire(now);
        let expiries = self.messages.values().map(|message| message.expires_at(retention));
        self.next_expiry = expiries.fold(now + DEDUPLICATION_INTERVAL, Instant::min);
    }

    /// A handle that this queue never gave out is refused by every call (`ReceiptHandleIsInvalid`).
    fn find(&self, handle: &ReceiptHandle) -> Result<Found, QueueError> {
        let (sequence, number) = self.parse(handle).ok_or(QueueError::HandleLost)?;
        let Some(message) = self.messages.get(&sequence) else { return Ok(Found::Gone) };
        match number.cmp(&message.receives()) {
            Less => Ok(Found::Stale(sequence)),
            Equal => Ok(Found::Latest(sequence)),
            Greater => Err(QueueError::HandleLost),
        }
    }

    fn parse(&self, handle: &ReceiptHandle) -> Option<(u64, u32)> {
        let (issue, queue) = handle.as_str().split_once('@')?;
        let (sequence, number) = issue.split_once('/')?;
        (queue == self.name).then_some(())?;
        Some((sequence.parse().ok()?, number.parse().ok()?))
    }
}
