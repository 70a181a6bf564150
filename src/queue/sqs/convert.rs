//! Messages, between the SDK's words and ours.
//!
//! Owns what becomes of things that are missing or odd in a reply: they are told and never end anything.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use aws_sdk_sqs::{
    error::BuildError,
    primitives::Blob,
    types::{
        self, MessageAttributeValue, MessageSystemAttributeName as Name, MessageSystemAttributeNameForSends,
        MessageSystemAttributeValue, SendMessageBatchRequestEntry,
    },
};

use crate::{
    clock::Millis,
    message::{Attribute, AttributeValue, Message, ReceiptHandle},
    queue::{Outgoing, Received, RedriveAllow, RedrivePolicy},
};

/// The SDK's own maps, which it wants back.
#[expect(clippy::disallowed_types, reason = "the SDK takes nothing else; neither is iterated by us")]
type Map<K, V> = std::collections::HashMap<K, V>;

/// What is told once for a queue, and was told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    receive_count: AtomicBool,
    attribute: AtomicBool,
}

/// What was received. `None` for a message without a receipt handle: nobody could settle it, so it is left to its
/// visibility timeout.
///
/// A missing or unreadable receive count counts as 1, and an attribute without a value is left out; either is told once.
pub(crate) fn received(from: types::Message, told: &Told) -> Option<Received> {
    let id = from.message_id.unwrap_or_default();
    let Some(handle) = from.receipt_handle else {
        tracing::warn!(message_id = %id, "a message came without a receipt handle; it is left to its timeout");
        return None;
    };
    let mut system = from.attributes.unwrap_or_default();
    let receive_count = system.get(&Name::ApproximateReceiveCount).and_then(|count| count.parse().ok());
    if receive_count.is_none() && !told.receive_count.swap(true, Ordering::Relaxed) {
        tracing::warn!(message_id = %id, "the queue does not tell receive counts; each is taken for the first receive");
    }
    let mut message = Message {
        body: from.body.unwrap_or_default(),
        receive_count: receive_count.unwrap_or(1),
        sent_at: system.get(&Name::SentTimestamp).and_then(|at| at.parse().ok()).map(Millis),
        group: system.remove(&Name::MessageGroupId),
        deduplication_id: system.remove(&Name::MessageDeduplicationId),
        trace_header: system.remove(&Name::AwsTraceHeader),
        moved_from: system.remove(&Name::DeadLetterQueueSourceArn),
        ..Message::default()
    };
    let named = from.message_attributes.unwrap_or_default().into_iter();
    message.attributes = named.filter_map(|(name, value)| attribute(name, value, &id, told)).collect();
    message.id = id;
    Some(Received { message: message.unpacked(), handle: ReceiptHandle::new(handle) })
}

/// `None` if it has neither a text nor bytes, which SQS does not let anybody send: one of the lists that its protocol has
/// and does not use, or what a service lost that only resembles SQS.
fn attribute(name: String, from: MessageAttributeValue, id: &str, told: &Told) -> Option<(String, Attribute)> {
    let value = match (from.string_value, from.binary_value) {
        (Some(text), _) => AttributeValue::Text(text),
        (None, Some(bytes)) => AttributeValue::Binary(bytes.into_inner()),
        (None, None) => {
            if !told.attribute.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    message_id = id,
                    attribute = name,
                    data_type = from.data_type,
                    "a message attribute came with neither a text nor bytes; such attributes are left out"
                );
            }
            return None;
        }
    };
    Some((name, Attribute { data_type: from.data_type, value }))
}

/// One entry of a batch of sends.
pub(super) fn entry(id: &str, message: &Outgoing) -> Result<SendMessageBatchRequestEntry, BuildError> {
    SendMessageBatchRequestEntry::builder()
        .id(id)
        .message_body(&message.body)
        .set_message_attributes(Some(attributes(message)?))
        .set_message_system_attributes(trace_header(message)?)
        .set_message_group_id(message.group.clone())
        .set_message_deduplication_id(message.deduplication_id.clone())
        .set_delay_seconds(message.delay.map(seconds))
        .build()
}

/// The message attributes of a send.
pub(super) fn attributes(message: &Outgoing) -> Result<Map<String, MessageAttributeValue>, BuildError> {
    let value = |attribute: &Attribute| {
        let builder = MessageAttributeValue::builder().data_type(&attribute.data_type);
        match &attribute.value {
            AttributeValue::Text(text) => builder.string_value(text),
            AttributeValue::Binary(bytes) => builder.binary_value(Blob::new(bytes.clone())),
        }
        .build()
    };
    message.attributes.iter().map(|(name, attribute)| Ok((name.clone(), value(attribute)?))).collect()
}

/// The trace header travels as a system attribute: it takes none of the ten places and none of the size.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html>
pub(super) fn trace_header(
    message: &Outgoing,
) -> Result<Option<Map<MessageSystemAttributeNameForSends, MessageSystemAttributeValue>>, BuildError> {
    let Some(header) = &message.trace_header else { return Ok(None) };
    let value = MessageSystemAttributeValue::builder().data_type("String").string_value(header).build()?;
    Ok(Some([(MessageSystemAttributeNameForSends::AwsTraceHeader, value)].into_iter().collect()))
}

/// Whole seconds, rounded up.
pub(super) fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(i32::MAX)
}

/// The redrive allow policy's JSON: `{"redrivePermission": "byQueue", "sourceQueueArns": ["arn:…"]}`, `allowAll` or
/// `denyAll`. A cleared policy is an empty text. One that cannot be read is told and taken for none.
pub(crate) fn redrive_allow(json: &str) -> RedriveAllow {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Policy {
        redrive_permission: String,
        #[serde(default)]
        source_queue_arns: Vec<String>,
    }
    let policy: Option<Policy> = serde_json::from_str(json).ok();
    match policy.as_ref().map(|policy| policy.redrive_permission.as_str()) {
        Some("denyAll") => RedriveAllow::Nobody,
        Some("byQueue") => RedriveAllow::These(policy.map(|policy| policy.source_queue_arns).unwrap_or_default()),
        Some("allowAll") => RedriveAllow::All,
        _ => {
            if !json.is_empty() {
                tracing::warn!(json, "the redrive allow policy cannot be read; the queue is taken to have none");
            }
            RedriveAllow::All
        }
    }
}

/// The redrive policy's JSON: `{"deadLetterTargetArn": "arn:…", "maxReceiveCount": 5}`, the number also as text. A
/// cleared policy is an empty text. One that cannot be read is told and taken for none.
pub(crate) fn redrive(json: &str) -> Option<RedrivePolicy> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Policy {
        dead_letter_target_arn: String,
        max_receive_count: Count,
    }
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Count {
        Number(u32),
        Text(String),
    }
    if json.is_empty() {
        return None;
    }
    let policy: Option<Policy> = serde_json::from_str(json).ok();
    let policy = policy.and_then(|policy| {
        let max_receive_count = match policy.max_receive_count {
            Count::Number(count) => count,
            Count::Text(count) => count.parse().ok()?,
        };
        Some(RedrivePolicy { dead_letter_arn: policy.dead_letter_target_arn, max_receive_count })
    });
    if policy.is_none() {
        tracing::warn!(json, "the redrive policy cannot be read; the queue is taken to have none");
    }
    policy
}
