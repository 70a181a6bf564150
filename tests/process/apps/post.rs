//! What is sent to the bench's queue, whatever is in it, and what is dead-lettered of it.

use std::collections::BTreeMap;

use aws_sdk_sqs::{
    Client,
    primitives::Blob,
    types::{MessageAttributeValue, SendMessageBatchRequestEntry},
};
use leasehold::aws;
use serde_json::{Value, json};

use crate::bench::Bench;

/// Messages of one sending.
const BATCH: usize = 10;

pub(crate) struct Post {
    sqs: Client,
    queue: String,
    dead: String,
}

/// A message to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    body: String,
    attributes: Vec<(String, MessageAttributeValue)>,
}

impl Letter {
    pub(crate) fn new(body: impl Into<String>) -> Self {
        Self { body: body.into(), attributes: Vec::new() }
    }

    pub(crate) fn payment(id: impl Into<String>) -> Self {
        Self::new(json!({"payment_id": id.into(), "cents": 1200}).to_string())
    }

    pub(crate) fn text(self, name: &str, value: impl Into<String>) -> Self {
        self.with(name, MessageAttributeValue::builder().data_type("String").string_value(value).build())
    }

    pub(crate) fn bytes(self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        let value = Blob::new(value);
        self.with(name, MessageAttributeValue::builder().data_type("Binary").binary_value(value).build())
    }

    fn with<E: std::fmt::Debug>(mut self, name: &str, value: Result<MessageAttributeValue, E>) -> Self {
        self.attributes.push((name.to_owned(), value.expect("an attribute")));
        self
    }
}

impl Post {
    pub(crate) async fn new(bench: &Bench) -> Self {
        let sqs = Client::new(&aws::local(bench.engine.endpoint()));
        let url = async |name: &str| {
            let url = sqs.get_queue_url().queue_name(name).send().await;
            url.expect("a queue").queue_url.expect("a URL")
        };
        let (queue, dead) = (url("jobs").await, url("jobs-dlq").await);
        Self { sqs, queue, dead }
    }

    /// Sends as many together as one sending takes; one that has attributes alone, for it can be large.
    pub(crate) async fn send(&self, letters: impl IntoIterator<Item = Letter>) {
        let (plain, dressed) = letters.into_iter().partition::<Vec<_>, _>(|letter| letter.attributes.is_empty());
        for batch in plain.chunks(BATCH).chain(dressed.chunks(1)) {
            let entries = batch.iter().enumerate().map(|(index, letter)| {
                let entry = SendMessageBatchRequestEntry::builder().id(index.to_string()).message_body(&letter.body);
                let attributes = letter.attributes.iter().cloned().collect();
                entry.set_message_attributes(Some(attributes)).build().expect("an entry")
            });
            let sent = self.sqs.send_message_batch().queue_url(&self.queue).set_entries(Some(entries.collect()));
            let sent = sent.send().await.expect("is sent");
            assert_eq!(sent.failed, [], "{:?}", batch[0]);
        }
    }

    /// What is dead-lettered, each with its code, by the member of its body that names it.
    pub(crate) async fn dead(&self, name: &str) -> BTreeMap<String, String> {
        let mut dead = BTreeMap::new();
        loop {
            let poll = self.sqs.receive_message().queue_url(&self.dead).message_attribute_names("All");
            let poll = poll.max_number_of_messages(10).send().await.expect("a poll");
            let messages = poll.messages.unwrap_or_default();
            if messages.is_empty() {
                return dead;
            }
            for message in messages {
                let body: Value = serde_json::from_str(&message.body.expect("a body")).expect("JSON");
                let attributes = message.message_attributes.unwrap_or_default();
                let note = attributes.get("leasehold").and_then(|note| note.string_value()).unwrap_or("null");
                let note: Value = serde_json::from_str(note).expect("JSON");
                dead.insert(body[name].as_str().unwrap_or("?").to_owned(), note["code"].as_str().unwrap_or("?").into());
            }
        }
    }
}
