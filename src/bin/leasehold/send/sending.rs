//! Sending: as many at once as is good for the queue, bounded in number and in bytes.
//!
//! The queue's adapter gathers what is sent at once into batches of ten. One message's failure is that message's; what
//! would fail every other one too ends the sending. Must never drop a message that it has read without telling it.

use std::{io, pin::pin, sync::Arc};

use futures_util::{StreamExt, TryStreamExt, stream};
use leasehold::queue::{BATCH, Outgoing, Queue, QueueError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::source::{Numbered, Source};

/// Messages on the wire at once: some batches. A FIFO queue gets one after the other, for its order would not survive a
/// batch of which a part failed.
const AT_ONCE: usize = 8 * BATCH;

/// What they may come to together, in KiB: the largest messages are fewer at once.
const KIB_AT_ONCE: u32 = 16 * 1024;

/// So many in a row that were not answered or not taken, each after its retries: the others would not be either.
const AWAY: u64 = 100;

/// What is sent with every body.
#[derive(Debug, Clone)]
pub(super) struct Form {
    pub(super) outgoing: Outgoing,
    pub(super) fifo: bool,
    pub(super) repeat: u64,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) sent: u64,
    pub(super) failed: u64,
    /// The last body that was tried.
    pub(super) last: u64,
    /// Why it ended before the end of its source, if it did.
    pub(super) cut: Option<Cut>,
    away_in_a_row: u64,
    away: Option<QueueError>,
}

/// Why the rest was not tried.
#[derive(Debug)]
pub(super) enum Cut {
    /// Somebody said so.
    Told,
    /// The queue is not there, or may not be used.
    Wrong(QueueError),
    /// The queue does not answer.
    Away(QueueError),
    /// The source cannot be read any further.
    Unreadable(io::Error),
}

/// Sends all that the source has, until `enough` is told. `failed` is called with a body's number and why it was not
/// sent, `sent` with how many were sent so far.
pub(super) async fn send(
    queue: &Arc<dyn Queue>,
    source: Source,
    form: &Form,
    enough: &CancellationToken,
    mut failed: impl FnMut(u64, &str),
    mut progress: impl FnMut(u64),
) -> Sent {
    let (room, mut result) = (Arc::new(Semaphore::new(KIB_AT_ONCE as usize)), Sent::default());
    let bodies =
        stream::try_unfold(source, async |mut source| io::Result::Ok(source.next().await?.map(|body| (body, source))));
    let messages = bodies
        .map_ok(|body| stream::iter((0..form.repeat).map(move |_| Ok(body.clone()))))
        .try_flatten()
        .and_then(|body| async { Ok((place(&room, &body).await, body)) })
        .take_until(enough.cancelled());
    let sending = messages.map(|message| send_one(queue, form, message));
    let mut outcomes = pin!(sending.buffer_unordered(if form.fifo { 1 } else { AT_ONCE }));
    while let Some((number, outcome)) = outcomes.next().await {
        result.last = result.last.max(number);
        match outcome {
            Ok(()) => {
                result.sent += 1;
                result.away_in_a_row = 0;
                progress(result.sent);
            }
            Err(Failure::Unreadable(error)) => result.cut = Some(Cut::Unreadable(error)),
            Err(Failure::Own(why)) => {
                result.failed += 1;
                failed(number, &why);
            }
            Err(Failure::Queue(error)) => {
                result.failed += 1;
                if error.is_transient() {
                    failed(number, &told(&error));
                    result.away_in_a_row += 1;
                    result.away = Some(error);
                } else {
                    // Told once, at the end, and not for each that was on the wire.
                    result.cut = Some(Cut::Wrong(error));
                }
            }
        }
        if result.cut.is_some() || result.away_in_a_row >= AWAY {
            enough.cancel();
        }
    }
    let none_was_taken = result.sent == 0 && result.failed == result.away_in_a_row;
    let away = result.away.filter(|_| none_was_taken || result.away_in_a_row >= AWAY);
    let told = enough.is_cancelled().then_some(Cut::Told);
    Sent { cut: result.cut.or(away.map(Cut::Away)).or(told), away: None, ..result }
}

/// Why a message was not sent.
enum Failure {
    /// It cannot be sent; others can.
    Own(String),
    /// It may have been as good as any.
    Queue(QueueError),
    Unreadable(io::Error),
}

async fn send_one(
    queue: &Arc<dyn Queue>,
    form: &Form,
    message: io::Result<(Option<OwnedSemaphorePermit>, Numbered)>,
) -> (u64, Result<(), Failure>) {
    let (_place, Numbered { number, body }) = match message {
        Ok(message) => message,
        Err(error) => return (0, Err(Failure::Unreadable(error))),
    };
    let body = match body {
        Ok(body) if body.is_empty() => {
            return (number, Err(Failure::Own("it is empty, and SQS takes no empty body".into())));
        }
        Ok(body) => body,
        Err(why) => return (number, Err(Failure::Own(why))),
    };
    let mut outgoing = Outgoing { body, ..form.outgoing.clone() };
    if form.fifo && outgoing.deduplication_id.is_none() {
        // Of its own, so that two bodies that are alike are two messages, and one that is sent again stays one.
        outgoing.deduplication_id = Some(format!("{:032x}", fastrand::u128(..)));
    }
    let outcome = queue.send(&outgoing).await.map_err(|error| match error {
        QueueError::Refused(why) => Failure::Own(why),
        error => Failure::Queue(error),
    });
    (number, outcome)
}

/// Waits for room. Held until the message is sent.
async fn place(room: &Arc<Semaphore>, body: &Numbered) -> Option<OwnedSemaphorePermit> {
    let kib = body.body.as_ref().map_or(0, |body| body.len() / 1024) + 1;
    let kib = u32::try_from(kib).unwrap_or(KIB_AT_ONCE).min(KIB_AT_ONCE);
    // It is never closed.
    Arc::clone(room).acquire_many_owned(kib).await.ok()
}

/// An error with what led to it.
pub(super) fn told(error: &QueueError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use leasehold::{
        message::ReceiptHandle,
        queue::{QueueFacts, Receive, Received},
    };

    use super::*;

    /// Takes its time for each message, and answers by its body.
    #[derive(Debug, Default)]
    struct Slow {
        /// On the wire: now, and the most.
        load: Mutex<(usize, usize)>,
        kib: Mutex<(usize, usize)>,
    }

    fn change(load: &Mutex<(usize, usize)>, by: impl Fn(usize) -> usize) {
        let mut load = load.lock().expect("whole");
        load.0 = by(load.0);
        load.1 = load.1.max(load.0);
    }

    #[async_trait]
    impl Queue for Slow {
        async fn send(&self, message: &Outgoing) -> Result<(), QueueError> {
            let kib = message.body.len() / 1024;
            change(&self.load, |now| now + 1);
            change(&self.kib, |now| now + kib);
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            change(&self.load, |now| now - 1);
            change(&self.kib, |now| now - kib);
            match message.body.as_str() {
                "away" => Err(QueueError::NoAnswer(None)),
                "gone" => Err(QueueError::Missing),
                "bad" => Err(QueueError::Refused("bad".into())),
                _ => Ok(()),
            }
        }

        async fn receive(&self, _: &Receive) -> Result<Vec<Received>, QueueError> {
            Err(QueueError::Missing)
        }

        async fn delete(&self, _: &ReceiptHandle) -> Result<(), QueueError> {
            Err(QueueError::Missing)
        }

        async fn change_visibility(&self, _: &ReceiptHandle, _: std::time::Duration) -> Result<(), QueueError> {
            Err(QueueError::Missing)
        }

        async fn facts(&self) -> Result<QueueFacts, QueueError> {
            Err(QueueError::Missing)
        }
    }

    async fn sent(slow: &Arc<Slow>, bodies: Vec<String>, fifo: bool) -> (Sent, Vec<u64>) {
        let queue: Arc<dyn Queue> = Arc::clone(slow) as _;
        let form = Form { outgoing: Outgoing::default(), fifo, repeat: 1 };
        let mut failed = Vec::new();
        let enough = CancellationToken::new();
        let sent =
            send(&queue, Source::arguments(bodies), &form, &enough, |number, _| failed.push(number), |_| {}).await;
        (sent, failed)
    }

    #[tokio::test(start_paused = true)]
    async fn many_go_at_once_but_not_too_many_nor_too_much_and_on_fifo_one() {
        let slow = Arc::new(Slow::default());
        let (sent_all, failed) = sent(&slow, vec!["good".to_owned(); 1000], false).await;
        assert_eq!((sent_all.sent, failed.len(), slow.load.lock().expect("whole").1), (1000, 0, AT_ONCE));
        sent(&slow, vec!["x".repeat(1024 * 1024); 100], false).await;
        let most = slow.kib.lock().expect("whole").1;
        assert!((8 * 1024..=KIB_AT_ONCE as usize).contains(&most), "{most} KiB");
        let alone = Arc::new(Slow::default());
        sent(&alone, vec!["good".to_owned(); 50], true).await;
        assert_eq!(alone.load.lock().expect("whole").1, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_one_messages_unless_it_would_be_every_ones() {
        let slow = Arc::new(Slow::default());
        let some = ["good", "bad", "", "away", "good"].map(str::to_owned).to_vec();
        let (some, failed) = sent(&slow, some, true).await;
        assert_eq!((some.sent, some.failed, failed), (2, 3, vec![2, 3, 4]));
        assert!(some.cut.is_none(), "{some:?}");

        let (away, failed) = sent(&slow, vec!["away".to_owned(); 10_000], false).await;
        assert!(matches!(away.cut, Some(Cut::Away(_))) && away.last < 400, "{away:?}");
        assert_eq!(failed.len() as u64, away.last, "each that was tried is told");
        let (one, _) = sent(&slow, vec!["away".to_owned()], false).await;
        assert!(matches!(one.cut, Some(Cut::Away(_))), "{one:?}");

        let (gone, _) = sent(&slow, vec!["gone".to_owned(); 10_000], false).await;
        assert!(matches!(gone.cut, Some(Cut::Wrong(QueueError::Missing))) && gone.last < 400, "{gone:?}");
    }
}
