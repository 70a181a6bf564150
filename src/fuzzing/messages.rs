//! What was received: attributes, the note of an earlier failure, a pointer into S3, an SNS envelope, a redrive policy.
//!
//! Goes in as the SDK would hand it to the adapter, and out as a copy to a dead-letter queue.

use aws_sdk_sqs::{
    primitives::Blob,
    types::{self, MessageAttributeValue, MessageSystemAttributeName as Name},
};

use super::BETWEEN;
use crate::{
    message::{
        Message, Note,
        envelope::{self, Form},
    },
    queue::{
        LARGEST_MESSAGE, MOST_ATTRIBUTES, Outgoing, attribute_problem,
        sqs::convert::{Told, received, redrive},
    },
    settle::dead_letter::pack,
};

/// A body, a receive count, the time of sending, and three parts for each attribute: its name, its type, its value.
pub fn messages(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let message = decoded(&text);
    assert!(message.dead_letter.as_ref().is_none_or(|note| !note.failure_id.is_empty()));
    if let Ok(Some(pointer)) = message.pointer() {
        assert!(!pointer.to_string().contains(char::is_control), "{pointer}");
    }
    let form = Form::of(&message.body);
    assert_eq!(form == Form::Text, serde_json::from_str::<serde::de::IgnoredAny>(&message.body).is_err());
    match envelope::open(&message) {
        Ok(published) => {
            assert_eq!(form, Form::Notification);
            assert!(published.sns.is_some() && published.dead_letter == message.dead_letter);
            goes_and_comes_back(&published);
        }
        Err(error) => drop(error.to_string()),
    }
    goes_and_comes_back(&message);
    drop(redrive(&message.body));
}

fn decoded(text: &str) -> Message {
    let mut parts = text.split(BETWEEN);
    let mut next = || parts.next().unwrap_or_default();
    let mut from = types::Message::builder()
        .message_id("m1")
        .receipt_handle("h1")
        .body(next())
        .attributes(Name::ApproximateReceiveCount, next())
        .attributes(Name::SentTimestamp, next());
    loop {
        let (name, data_type, value) = (next(), next(), next());
        if data_type.is_empty() {
            break;
        }
        let to = MessageAttributeValue::builder().data_type(data_type);
        let binary = data_type.starts_with("Binary");
        let to = if binary { to.binary_value(Blob::new(value)) } else { to.string_value(value) };
        if let Ok(value) = to.build() {
            from = from.message_attributes(name, value);
        }
    }
    let Some(received) = received(from.build(), &Told::default()) else { unreachable!("it has a receipt handle") };
    received.message
}

/// Its copy in a dead-letter queue is one that SQS takes, and a redrive of that is the same message again (rule T3).
fn goes_and_comes_back(message: &Message) {
    let note =
        Note { failure_id: "f1".to_owned(), message: message.body.chars().take(2000).collect(), ..Note::default() };
    let copy = pack(message, note.clone());
    assert_eq!(copy.body, message.body);
    assert!(copy.attributes.len() <= MOST_ATTRIBUTES, "{copy:?}");
    for (name, attribute) in &copy.attributes {
        assert_eq!(attribute_problem(name, attribute), None, "{name}");
    }
    if Outgoing::from(message).size() <= LARGEST_MESSAGE {
        assert!(copy.size() <= LARGEST_MESSAGE);
    }
    let again = Message { attributes: copy.attributes, body: copy.body, ..Message::default() }.unpacked();
    // Without room for the note the copy goes without it.
    if let Some(told) = again.dead_letter.filter(|told| told.failure_id == note.failure_id) {
        assert_eq!(told.message, note.message);
        assert_eq!(again.attributes, message.attributes);
    }
}
