//! An SQS in memory: the queue port for tests and simulations, on tokio's time, so that a paused clock drives it.
//!
//! Owns the queues of one account and the waiting of long polls; what a queue answers is in `store`, what a request may
//! say in `check`. It answers as AWS does, the awkward answers too, and always the same way for the same calls: no
//! randomness, no task, no lock held across an await. It never throttles or fails by itself; that is what
//! [`crate::testing::faults`] is for.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use async_trait::async_trait;
use tokio::time::Instant;

use crate::{
    clock::{Clock, Moment},
    message::{Message, ReceiptHandle},
};

use super::{
    Broker, DeduplicationScope, Depth, LARGEST_MESSAGE, Move, MoveTask, Outgoing, Queue, QueueAddress, QueueError,
    QueueFacts, Receive, Received, RedriveAllow,
};
use moves::Moving;
use store::Store;
use stored::Standing;

mod check;
mod moves;
mod repeats;
mod store;
mod stored;
#[cfg(test)]
mod tests;

/// What a queue in memory is like. The default is AWS's own for a new queue, but for content-based deduplication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryQueueSettings {
    /// The queue's own visibility timeout: only told by [`Queue::facts`], since every receive brings one.
    pub visibility: Duration,
    /// How long a message is kept that nobody deletes.
    pub retention: Duration,
    /// The name of the dead-letter queue, and after how many receives a message is moved there.
    pub redrive: Option<(String, u32)>,
    /// How long a new message is hidden at first, unless it says so itself.
    pub delay: Duration,
    /// What a visibility change answers that comes after the timeout.
    pub late_change: LateChange,
    /// Of a FIFO queue: a message without a deduplication id gets a hash of its body. Without it such a message is
    /// refused. On, unlike on AWS, for what a test sends is mostly its body.
    pub content_based_deduplication: bool,
    /// Of a FIFO queue: among which messages it looks for a duplicate.
    pub deduplication_scope: DeduplicationScope,
    /// Which queues may move messages here. Only told: SQS looks at it when a redrive policy is set.
    pub redrive_allow: RedriveAllow,
    /// The largest message that it takes, in bytes.
    pub largest_message: usize,
    /// The KMS key that it encrypts messages with. Only told.
    pub kms_key: Option<String>,
}

impl Default for MemoryQueueSettings {
    fn default() -> Self {
        Self {
            visibility: Duration::from_secs(30),
            retention: Duration::from_secs(4 * 24 * 60 * 60),
            redrive: None,
            delay: Duration::ZERO,
            late_change: LateChange::Refused,
            content_based_deduplication: true,
            deduplication_scope: DeduplicationScope::Queue,
            redrive_allow: RedriveAllow::All,
            largest_message: LARGEST_MESSAGE,
            kms_key: None,
        }
    }
}

/// What a standard queue answers to a visibility change with the latest handle of a message that has become visible
/// again. Sources contradict each other, so that a worker has to live with both; FIFO queues always refuse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LateChange {
    /// As documented (`MessageNotInflight`):
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html>
    #[default]
    Refused,
    /// Answered `Ok`, and nothing done, as was seen on AWS: <https://github.com/localstack/localstack/pull/9632>
    Ignored,
}

/// How often an operation was called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Calls {
    /// The calls, refused ones included. A long poll counts when it arrives.
    pub calls: u64,
    /// The messages they were about: those a receive brought, and one for each delete, visibility change and send.
    pub entries: u64,
}

/// An account with queues in memory. Clones share it.
#[derive(Clone)]
pub struct MemoryBroker {
    account: Arc<Account>,
}

/// Behind every handle. One lock for all queues, because a redrive moves a message from one to another; it is held for
/// one straight look-up or change and never across an await.
struct Account {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queues: BTreeMap<String, Store>,
    /// By queue. Apart from the queues, so that calls to a queue that is gone are counted too.
    calls: BTreeMap<String, BTreeMap<&'static str, Calls>>,
    /// The latest move from each queue, by its ARN.
    moves: BTreeMap<String, Moving>,
    /// Numbers messages over all queues, so that a queue that is made again never repeats an id.
    sequence: Arc<AtomicU64>,
}

impl Default for MemoryBroker {
    /// With a simulated clock of its own, which begins now.
    fn default() -> Self {
        Self::with_clock(Clock::simulated(0, 0))
    }
}

impl MemoryBroker {
    /// With this wall clock, which gives messages their sent time.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        Self { account: Arc::new(Account { clock, state: Mutex::default() }) }
    }

    /// The wall clock that gives messages their sent time.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.account.clock
    }

    /// Makes a queue, empty; one of the same name is replaced. It is FIFO if its name ends in `.fifo`, as on AWS.
    /// The dead-letter queue may be made later; while there is none, nothing is moved.
    pub fn create(&self, name: &str, settings: MemoryQueueSettings) -> Arc<MemoryQueue> {
        let mut state = self.account.lock();
        let store = Store::new(name, settings, Arc::clone(&state.sequence), Instant::now());
        if let Some(replaced) = state.queues.insert(name.to_owned(), store) {
            replaced.wake_pollers();
        }
        drop(state);
        self.queue(name)
    }

    /// A handle to the queue of this name, whether it is there or not; where it is not, calls answer
    /// [`QueueError::Missing`].
    #[must_use]
    pub fn queue(&self, name: &str) -> Arc<MemoryQueue> {
        Arc::new(MemoryQueue { account: Arc::clone(&self.account), name: name.to_owned() })
    }

    /// Deletes a queue with its messages. Later calls answer [`QueueError::Missing`], and so do parked long polls.
    pub fn delete_queue(&self, name: &str) {
        if let Some(deleted) = self.account.lock().queues.remove(name) {
            deleted.wake_pollers();
        }
    }
}

#[async_trait]
impl Broker for MemoryBroker {
    async fn open(&self, address: &QueueAddress) -> Result<Arc<dyn Queue>, QueueError> {
        let name = address.queue_name();
        if self.account.lock().queues.contains_key(name) { Ok(self.queue(name)) } else { Err(QueueError::Missing) }
    }

    /// Over at once where no rate is asked for.
    async fn start_move(&self, task: &Move) -> Result<(), QueueError> {
        let now = self.account.clock.now();
        self.account.lock().start_move(task, now)
    }

    async fn latest_move(&self, from: &str) -> Result<Option<MoveTask>, QueueError> {
        let now = self.account.clock.now();
        Ok(self.account.lock().latest_move(from, now))
    }

    async fn cancel_move(&self, from: &str, handle: &str) -> Result<(), QueueError> {
        let now = self.account.clock.now();
        self.account.lock().cancel_move(from, handle, now)
    }
}

/// A queue's ARN: region and account are those that LocalStack has by default.
fn arn(name: &str) -> String {
    format!("arn:aws:sqs:us-east-1:000000000000:{name}")
}

/// A queue's URL, in the same account.
fn url(name: &str) -> String {
    format!("http://sqs.us-east-1.localhost/000000000000/{name}")
}

/// A queue in memory.
pub struct MemoryQueue {
    account: Arc<Account>,
    name: String,
}

#[async_trait]
impl Queue for MemoryQueue {
    async fn receive(&self, ask: &Receive) -> Result<Vec<Received>, QueueError> {
        let missed = self.call("receive", 0, |store, _| {
            check::receive(ask)?;
            Ok(store.misses_backlog())
        })?;
        let end = Instant::now() + ask.wait;
        if missed {
            tokio::time::sleep_until(end).await;
            return Ok(Vec::new());
        }
        let received = self.long_poll(ask, end).await?;
        self.account.lock().count(&self.name, "receive", 0, received.len());
        Ok(received)
    }

    async fn delete(&self, handle: &ReceiptHandle) -> Result<(), QueueError> {
        self.call("delete", 1, |store, now| store.delete(handle, now.instant))
    }

    async fn change_visibility(&self, handle: &ReceiptHandle, timeout: Duration) -> Result<(), QueueError> {
        self.call("change_visibility", 1, |store, now| {
            check::whole_seconds("VisibilityTimeout", timeout)?;
            store.change_visibility(handle, timeout, now.instant)
        })
    }

    async fn send(&self, message: &Outgoing) -> Result<(), QueueError> {
        self.call("send", 1, |store, now| {
            check::send(message, &store.facts())?;
            store.put(message.clone(), now);
            Ok(())
        })
    }

    async fn facts(&self) -> Result<QueueFacts, QueueError> {
        self.call("facts", 0, |store, _| Ok(store.facts()))
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        self.call("depth", 0, |store, now| {
            let count = |standing| store.count(standing, now.instant) as u64;
            let [visible, in_flight, delayed] = [Standing::Visible, Standing::InFlight, Standing::Delayed].map(count);
            Ok(Depth { visible, in_flight, delayed })
        })
    }

    async fn sources(&self) -> Result<Vec<String>, QueueError> {
        self.call("sources", 0, |_, _| Ok(()))?;
        Ok(self.account.lock().sources_of(&self.name).iter().map(|name| url(name)).collect())
    }
}

/// For tests: what a producer, an operator or a bad day would do. None of it counts as a call.
impl MemoryQueue {
    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Puts a message into the queue without the checks of [`Queue::send`], so that it may be one that SQS would refuse
    /// today. Answers its id, or on a FIFO queue that of the message it is a duplicate of. `None` if there is no queue.
    pub fn put(&self, message: Outgoing) -> Option<String> {
        self.look(|store, now| store.put(message, now))
    }

    /// How many messages there are, hidden ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.look(|store, _| store.size()).unwrap_or_default()
    }

    /// Whether there is no message, not even a hidden one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many messages are visible. On a FIFO queue they may be blocked all the same.
    #[must_use]
    pub fn visible(&self) -> usize {
        self.count(Standing::Visible)
    }

    /// How many messages were received and are still hidden.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.count(Standing::InFlight)
    }

    /// How many messages are hidden since they were sent.
    #[must_use]
    pub fn delayed(&self) -> usize {
        self.count(Standing::Delayed)
    }

    /// All messages as they are, in the order of sending.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        self.look(|store, _| store.messages()).unwrap_or_default()
    }

    /// The calls of the queue port so far, by operation: `receive`, `delete`, `change_visibility`, `send`, `facts`.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<&'static str, Calls> {
        self.account.lock().calls.get(&self.name).cloned().unwrap_or_default()
    }

    /// At-least-once delivery at its worst: makes a message that is in flight visible now, although its timeout has not
    /// ended. Answers whether it was in flight.
    pub fn redeliver(&self, message_id: &str) -> bool {
        self.look(|store, now| store.redeliver(message_id, now.instant)).unwrap_or(false)
    }

    /// Lets the next `receives` come back empty after their whole wait, whatever the backlog.
    pub fn empty_receives(&self, receives: u64) {
        self.look(|store, _| store.miss(receives));
    }

    fn count(&self, standing: Standing) -> usize {
        self.look(|store, now| store.count(standing, now.instant)).unwrap_or_default()
    }

    /// Tries again whenever the queue changes or a hidden message may have become visible, until `end`.
    async fn long_poll(&self, ask: &Receive, end: Instant) -> Result<Vec<Received>, QueueError> {
        let changes = self.look(|store, _| store.changes()).ok_or(QueueError::Missing)?;
        loop {
            // Listens before it looks, so that no change falls between the two.
            let mut change = std::pin::pin!(changes.notified());
            change.as_mut().enable();
            let (received, look_again) = self.take(ask)?;
            if !received.is_empty() || Instant::now() >= end {
                return Ok(received);
            }
            // Whether it was a change or the time that woke it makes no difference to what is done next.
            let _ = tokio::time::timeout_at(look_again.min(end), change).await;
        }
    }

    /// One look for messages, and when to look again if there is none. What was received too often goes to the
    /// dead-letter queue on the way: AWS moves it at the receive after its last one.
    fn take(&self, ask: &Receive) -> Result<(Vec<Received>, Instant), QueueError> {
        let now = self.account.clock.now();
        let mut state = self.account.lock();
        let redrive = state.store(&self.name, now)?.redrive();
        let redrive = redrive.filter(|(dead_letters, _)| state.queues.contains_key(dead_letters));
        let store = state.store(&self.name, now)?;
        let taken = store.take(ask, redrive.as_ref().map(|(_, limit)| *limit), now.instant);
        let look_again = store.next_change(now.instant);
        if let Some((dead_letters, _)) = redrive {
            let dead_letters = state.store(&dead_letters, now)?;
            taken.dead.into_iter().for_each(|message| dead_letters.adopt(message, arn(&self.name), now));
        }
        Ok((taken.received, look_again))
    }

    /// One call of the port.
    fn call<T>(
        &self,
        operation: &'static str,
        entries: usize,
        answer: impl FnOnce(&mut Store, Moment) -> Result<T, QueueError>,
    ) -> Result<T, QueueError> {
        let now = self.account.clock.now();
        let mut state = self.account.lock();
        state.count(&self.name, operation, 1, entries);
        answer(state.store(&self.name, now)?, now)
    }

    fn look<T>(&self, answer: impl FnOnce(&mut Store, Moment) -> T) -> Option<T> {
        let now = self.account.clock.now();
        self.account.lock().store(&self.name, now).ok().map(|store| answer(store, now))
    }
}

impl Account {
    /// A panic under the lock can only be one of a test's own making; the next test must not suffer from it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn store(&mut self, name: &str, now: Moment) -> Result<&mut Store, QueueError> {
        let store = self.queues.get_mut(name).ok_or(QueueError::Missing)?;
        store.expire(now.instant);
        Ok(store)
    }

    fn count(&mut self, name: &str, operation: &'static str, calls: u64, entries: usize) {
        let counted = self.calls.entry(name.to_owned()).or_default().entry(operation).or_default();
        counted.calls += calls;
        counted.entries += entries as u64;
    }
}

impl fmt::Debug for MemoryBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBroker").field("queues", &self.account.lock().queues.keys()).finish_non_exhaustive()
    }
}

impl fmt::Debug for MemoryQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryQueue").field("name", &self.name).finish_non_exhaustive()
    }
}
