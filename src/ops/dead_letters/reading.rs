//! Receiving everything that is in a queue, each message once, and giving it back.
//!
//! Owns the handles: what was received and is not settled stays hidden by a beat while the reading lives, for else it would
//! come back before the end is reached. What is dropped comes back by itself, two minutes later at the most. The end is
//! what SQS's own count agrees with, and said to be none where that tells of more.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    message::{Message, ReceiptHandle},
    queue::{BATCH, Depth, Queue, QueueError, Receive, Received},
};

/// How long what is looked at stays hidden if nobody gives it back: a tool that is killed hides nothing from the next for
/// longer.
const HIDDEN: Duration = Duration::from_secs(120);

/// What is held is hidden anew when less than this is left, and looked through for such so often.
const BEAT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(15);

/// No call is sent for a handle with less than this left: on a standard queue one that arrives late would change the
/// timeout of another's receive (rule L6).
const MARGIN: Duration = Duration::from_secs(5);

/// How long giving back may take altogether: whoever says stop waits for it.
const GIVE_BACK: Duration = Duration::from_secs(10);

/// Calls that are under way at once; the adapter sends ten in one request.
const TOGETHER: usize = 10 * BATCH;

/// A long poll asks all of the servers that hold a queue's messages; a short one only some.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html>
const WAIT: Duration = Duration::from_secs(1);

/// So many empty polls are believed against a count that says that more is there; and so many after deletes, which the count
/// follows only after a while.
const EMPTY_POLLS: u32 = 3;
const EMPTY_POLLS_AFTER_DELETES: u32 = 20;

/// So many polls in a row that bring only what was seen: what is held comes back when its beats fail.
const KNOWN_POLLS: u32 = 100;

/// Tries of one receive, and the pauses between them: the first, and the longest.
const TRIES: u32 = 5;
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// The most that are held: less than a queue may have in flight, 120,000 or on FIFO 20,000, past which it says nothing and
/// gives nothing.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html>
const MOST_HELD: (usize, usize) = (100_000, 15_000);

/// How a way through a dead-letter queue ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ending {
    /// Everything was seen.
    #[default]
    All,
    /// As many as were asked for were found, or looked at.
    Enough,
    /// It was told to stop.
    Stopped,
    /// Others are there that SQS hides: somebody looks at them, or a tool was killed that did. They are back in two minutes.
    Hidden,
    /// Others of a FIFO queue are there, behind one of their group that stays.
    Behind,
    /// Nothing came any more but what has died since the beginning.
    Dying,
    /// As many are held as SQS lets one hold.
    TooMany,
    /// An error ended it.
    BrokenOff,
}

/// What comes next of a queue.
pub(super) enum Next {
    /// Some that were not seen yet.
    Some(Vec<Message>),
    End(Ending),
}

/// The right to settle a message, and until when.
struct Hold {
    handle: ReceiptHandle,
    until: Instant,
}

/// One way through a dead-letter queue.
pub(super) struct Reading<'a> {
    queue: &'a dyn Queue,
    clock: &'a Clock,
    is_fifo: bool,
    /// What was seen, by message id, and what of that is held.
    seen: BTreeMap<String, Option<Hold>>,
    /// Polls in a row that brought nothing, or nothing new.
    empty: u32,
    known: u32,
    is_settling: bool,
    next_look: Instant,
    unseen: u64,
}

impl<'a> Reading<'a> {
    pub(super) fn begin(queue: &'a dyn Queue, is_fifo: bool, clock: &'a Clock) -> Self {
        Self {
            queue,
            clock,
            is_fifo,
            seen: BTreeMap::new(),
            empty: 0,
            known: 0,
            is_settling: false,
            next_look: Instant::now() + LOOK,
            unseen: 0,
        }
    }

    /// Some that were not seen yet, up to `most` of them, or the end.
    pub(super) async fn next(&mut self, most: usize, stop: &CancellationToken) -> Result<Next, QueueError> {
        loop {
            if stop.is_cancelled() {
                return Ok(Next::End(Ending::Stopped));
            }
            self.keep_hidden().await;
            if self.held() >= if self.is_fifo { MOST_HELD.1 } else { MOST_HELD.0 } {
                return Ok(Next::End(Ending::TooMany));
            }
            let (received, until) = self.receive(most.clamp(1, BATCH), stop).await?;
            let is_empty = received.is_empty();
            let new = self.hold(received, until);
            if !new.is_empty() {
                (self.empty, self.known) = (0, 0);
                return Ok(Next::Some(new));
            }
            if is_empty {
                self.empty += 1;
            } else {
                self.known += 1;
            }
            if let Some(ending) = self.ending(is_empty).await {
                return Ok(Next::End(ending));
            }
        }
    }

    /// What a message is settled with, while it is ours.
    pub(super) fn handle(&self, id: &str) -> Option<ReceiptHandle> {
        let hold = self.seen.get(id)?.as_ref()?;
        hold.is_good().then(|| hold.handle.clone())
    }

    /// It is settled: there is nothing to be given back.
    pub(super) fn settled(&mut self, id: &str) {
        self.is_settling = true;
        self.seen.insert(id.to_owned(), None);
    }

    /// About how many others are there, by SQS's own count at the end.
    pub(super) fn unseen(&self) -> u64 {
        self.unseen
    }

    /// Waits, and keeps what is held hidden meanwhile. A stop ends it.
    pub(super) async fn rest_until(&mut self, at: Instant, stop: &CancellationToken) {
        while Instant::now() < at && !stop.is_cancelled() {
            self.keep_hidden().await;
            tokio::select! {
                // Both only wait.
                biased;
                () = stop.cancelled() => {}
                () = sleep_until(at.min(self.next_look)) => {}
            }
        }
    }

    /// Makes everything that is held visible again. What cannot be in time comes back by itself.
    pub(super) async fn give_back(&mut self) {
        let held: Vec<_> = std::mem::take(&mut self.seen).into_values().flatten().collect();
        let give = async {
            for some in held.chunks(TOGETHER) {
                let good = some.iter().filter(|hold| hold.is_good());
                let given = join_all(good.map(|hold| self.queue.change_visibility(&hold.handle, Duration::ZERO))).await;
                if let Some(error) = given.into_iter().find_map(Result::err) {
                    tracing::debug!(%error, "some of what was looked at comes back in two minutes, not now");
                }
            }
        };
        if timeout(GIVE_BACK, give).await.is_err() {
            tracing::debug!("the rest of what was looked at comes back in two minutes, not now");
        }
    }

    /// Not cancel safe, as no receive is; it is short.
    async fn receive(&self, max: usize, stop: &CancellationToken) -> Result<(Vec<Received>, Instant), QueueError> {
        // On FIFO the same id brings what a lost reply took.
        let attempt_id = self.is_fifo.then(|| self.clock.token());
        let ask = Receive { max, wait: WAIT, visibility: HIDDEN, attempt_id };
        let mut attempt = 1;
        loop {
            let until = Instant::now() + HIDDEN;
            match self.queue.receive(&ask).await {
                Err(error) if error.is_transient() && attempt < TRIES && !stop.is_cancelled() => {
                    tracing::debug!(%error, attempt, "nothing is received; it is asked again");
                }
                answer => return answer.map(|received| (received, until)),
            }
            tokio::select! {
                // Both only wait.
                biased;
                () = stop.cancelled() => {}
                () = tokio::time::sleep(self.clock.backoff(RETRY, attempt)) => {}
            }
            attempt += 1;
        }
    }

    /// Holds all of these, and answers those that are new.
    fn hold(&mut self, received: Vec<Received>, until: Instant) -> Vec<Message> {
        let held = received.into_iter().filter_map(|Received { message, handle }| {
            let before = self.seen.insert(message.id.clone(), Some(Hold { handle, until }));
            before.is_none().then_some(message)
        });
        held.collect()
    }

    /// Whether this is the end. A poll that finds nothing is one if SQS counts nothing but what is held; one that finds only
    /// what was seen, and one against which that count stands, are when there have been many.
    async fn ending(&mut self, is_empty: bool) -> Option<Ending> {
        let most = if self.is_settling { EMPTY_POLLS_AFTER_DELETES } else { EMPTY_POLLS };
        let is_long = self.empty >= most || self.known >= KNOWN_POLLS;
        if !is_empty && !is_long {
            return None;
        }
        // Where nobody may ask for the count, polls tell the end.
        let Ok(Depth { visible, in_flight, delayed }) = self.queue.depth().await else {
            return (self.empty >= EMPTY_POLLS || is_long).then_some(Ending::All);
        };
        // All together: what was received a moment ago may still count as visible.
        let held = self.held() as u64;
        let unseen = (visible + in_flight + delayed).saturating_sub(held);
        if unseen == 0 {
            return Some(Ending::All);
        }
        is_long.then(|| {
            self.unseen = unseen;
            if self.is_fifo && visible > 0 && held > 0 { Ending::Behind } else { Ending::Hidden }
        })
    }

    fn held(&self) -> usize {
        self.seen.values().flatten().filter(|hold| hold.until > Instant::now()).count()
    }

    /// One beat over what is held.
    async fn keep_hidden(&mut self) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK;
        let due = |hold: &Hold| hold.until < now + BEAT;
        let due: Vec<_> = self.seen.values_mut().filter(|hold| hold.as_ref().is_some_and(due)).collect();
        let mut due = due.into_iter();
        loop {
            let some: Vec<_> = due.by_ref().take(TOGETHER).collect();
            if some.is_empty() {
                return;
            }
            let until = Instant::now() + HIDDEN;
            let queue = self.queue;
            join_all(some.into_iter().map(async |held| {
                let Some(hold) = held.as_mut().filter(|hold| hold.is_good()) else { return };
                match queue.change_visibility(&hold.handle, HIDDEN).await {
                    Ok(()) => hold.until = until,
                    Err(QueueError::HandleLost | QueueError::TwelveHours) => *held = None,
                    Err(error) => tracing::debug!(%error, "what is held may come back before it is given back"),
                }
            }))
            .await;
        }
    }
}

impl Hold {
    fn is_good(&self) -> bool {
        self.until > Instant::now() + MARGIN
    }
}

#[cfg(test)]
mod tests;
