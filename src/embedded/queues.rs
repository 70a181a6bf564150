//! The engine's queues, made and looked at in process, past its port: what a demonstration does must not be counted with
//! what its workers do.
//!
//! Relies on rustack for everything; must never touch a message.

use std::num::ParseIntError;

use rustack_sqs_model::{
    error::SqsError,
    input::{CreateQueueInput, GetQueueAttributesInput, GetQueueUrlInput},
};

use super::{Engine, EngineError};
use crate::queue::Depth;

impl From<SqsError> for EngineError {
    fn from(error: SqsError) -> Self {
        Self::Queue(error.to_string())
    }
}

impl Engine {
    /// Makes a queue, FIFO if its name ends in `.fifo`. With `dead_letters`, messages go to that queue, which must be
    /// there, after so many receives. A queue that is there already is left as it is. Not counted in
    /// [`calls`](Self::calls).
    ///
    /// # Errors
    /// The name is none that a queue can have, or there is no such dead-letter queue.
    pub async fn create_queue(&self, name: &str, dead_letters: Option<(&str, u32)>) -> Result<(), EngineError> {
        let mut input = CreateQueueInput { queue_name: name.to_owned(), ..CreateQueueInput::default() };
        if name.ends_with(".fifo") {
            input.attributes.insert("FifoQueue".to_owned(), "true".to_owned());
        }
        if let Some((target, max_receive_count)) = dead_letters {
            let [arn] = self.attributes(target, ["QueueArn"]).await?;
            let policy = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{max_receive_count}}}"#);
            input.attributes.insert("RedrivePolicy".to_owned(), policy);
        }
        self.queues.create_queue(input).await?;
        Ok(())
    }

    /// How many messages a queue has. Exact, unlike AWS's. Not counted in [`calls`](Self::calls).
    ///
    /// # Errors
    /// There is no such queue.
    pub async fn depth(&self, name: &str) -> Result<Depth, EngineError> {
        // In one call: a message that moves on between two could be in neither answer.
        let numbers = [
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesNotVisible",
            "ApproximateNumberOfMessagesDelayed",
        ];
        let [visible, in_flight, delayed] = self.attributes(name, numbers).await?.map(|number| number.parse());
        let unreadable = |error: ParseIntError| EngineError::Queue(format!("the depth of {name:?}: {error}"));
        Ok(Depth {
            visible: visible.map_err(unreadable)?,
            in_flight: in_flight.map_err(unreadable)?,
            delayed: delayed.map_err(unreadable)?,
        })
    }

    async fn attributes<const N: usize>(&self, queue: &str, names: [&str; N]) -> Result<[String; N], EngineError> {
        let input = GetQueueUrlInput { queue_name: queue.to_owned(), ..GetQueueUrlInput::default() };
        let queue_url = self.queues.get_queue_url(input).await?.queue_url.unwrap_or_default();
        let input = GetQueueAttributesInput { queue_url, attribute_names: names.map(str::to_owned).to_vec() };
        let mut attributes = self.queues.get_queue_attributes(input).await?.attributes;
        Ok(names.map(|name| attributes.remove(name).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn queues_are_made_with_their_dead_letter_queue_and_looked_at_without_being_counted() {
        let engine = Engine::start().await.expect("starts");
        engine.create_queue("dead.fifo", None).await.expect("is made");
        engine.create_queue("q.fifo", Some(("dead.fifo", 3))).await.expect("is made");
        let [policy] = engine.attributes("q.fifo", ["RedrivePolicy"]).await.expect("is there");
        assert!(policy.contains("dead.fifo") && policy.contains('3'), "{policy}");
        assert_eq!(engine.depth("q.fifo").await.expect("is there"), Depth::default());
        assert!(engine.calls().is_empty());
    }

    #[tokio::test]
    async fn what_is_not_there_is_an_error() {
        let engine = Engine::start().await.expect("starts");
        assert!(engine.depth("q").await.is_err());
        assert!(engine.create_queue("q", Some(("dead", 3))).await.is_err());
        assert!(engine.create_queue("no such name!", None).await.is_err());
    }
}
