use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;

use super::*;
use crate::queue::{Outgoing, QueueFacts};

/// A queue without an end.
#[derive(Debug, Default)]
struct Endless {
    given: AtomicU64,
    given_back: AtomicU64,
}

#[async_trait]
impl Queue for Endless {
    async fn receive(&self, ask: &Receive) -> Result<Vec<Received>, QueueError> {
        let received = (0..ask.max).map(|_| {
            let id = self.given.fetch_add(1, Relaxed).to_string();
            let handle = ReceiptHandle::new(id.as_str());
            Received { message: Message { id, ..Message::default() }, handle }
        });
        Ok(received.collect())
    }

    async fn delete(&self, _: &ReceiptHandle) -> Result<(), QueueError> {
        Ok(())
    }

    async fn change_visibility(&self, _: &ReceiptHandle, timeout: Duration) -> Result<(), QueueError> {
        assert_eq!(timeout, Duration::ZERO);
        self.given_back.fetch_add(1, Relaxed);
        Ok(())
    }

    async fn send(&self, _: &Outgoing) -> Result<(), QueueError> {
        Ok(())
    }

    async fn facts(&self) -> Result<QueueFacts, QueueError> {
        Ok(QueueFacts::example("endless.fifo"))
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_is_held_than_a_queue_may_have_in_flight_and_what_is_settled_does_not_count() {
    let (queue, clock, stop) = (Endless::default(), Clock::simulated(0, 0), CancellationToken::new());
    let mut reading = Reading::begin(&queue, true, &clock);
    for id in 0..100 {
        reading.settled(&format!("settled {id}"));
    }
    let ending = loop {
        match reading.next(BATCH, &stop).await.expect("messages") {
            Next::Some(messages) => assert_eq!(messages.len(), BATCH),
            Next::End(ending) => break ending,
        }
    };
    assert_eq!((ending, queue.given.load(Relaxed)), (Ending::TooMany, 15_000));
    reading.give_back().await;
    assert_eq!(queue.given_back.load(Relaxed), 15_000);
}
