//! What an event brings, between Lambda's words and ours.
//!
//! A record that lacks what every record of SQS has makes the whole event somebody else's: it is refused before anything of
//! it runs, for an answer could not name it.

use aws_lambda_events::sqs::{SqsEvent, SqsMessage, SqsMessageAttribute};

use crate::{
    clock::Millis,
    message::{Attribute, AttributeValue, Message, ReceiptHandle},
    queue::Received,
};

use super::NotFromSqs;

/// One record of a batch.
pub(super) struct Record {
    pub(super) received: Received,
    /// Of its queue.
    pub(super) arn: String,
    /// When it was received, if this is its first receive.
    pub(super) first_receive: Option<Millis>,
}

impl Record {
    /// What its queue is called in SQS: what stands last in `arn:aws:sqs:region:account:name`.
    pub(super) fn queue_name(&self) -> &str {
        self.arn.rsplit(':').next().unwrap_or_default()
    }
}

/// The records of an event, in their order.
pub(super) fn read(event: SqsEvent) -> Result<Vec<Record>, NotFromSqs> {
    let numbered = event.records.into_iter().enumerate();
    numbered.map(|(number, record)| record_of(record).ok_or(NotFromSqs(number))).collect()
}

/// <https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html>
fn record_of(from: SqsMessage) -> Option<Record> {
    let some = |text: Option<String>| text.filter(|text| !text.is_empty());
    let (id, handle, arn) = (some(from.message_id)?, some(from.receipt_handle)?, some(from.event_source_arn)?);
    let mut system = from.attributes;
    let millis = |text: &String| text.parse().ok().map(Millis);
    // A missing receive count counts as 1 (rule R3).
    let receive_count = system.get("ApproximateReceiveCount").and_then(|count| count.parse().ok()).unwrap_or(1);
    let first_receive = system.get("ApproximateFirstReceiveTimestamp").and_then(millis).filter(|_| receive_count == 1);
    let named = from.message_attributes.into_iter();
    let message = Message {
        id,
        body: from.body.unwrap_or_default(),
        attributes: named.filter_map(|(name, value)| Some((name, attribute(value)?))).collect(),
        receive_count,
        sent_at: system.get("SentTimestamp").and_then(millis),
        group: system.remove("MessageGroupId"),
        deduplication_id: system.remove("MessageDeduplicationId"),
        trace_header: system.remove("AWSTraceHeader"),
        moved_from: system.remove("DeadLetterQueueSourceArn"),
        ..Message::default()
    };
    Some(Record {
        received: Received { message: message.unpacked(), handle: ReceiptHandle::new(handle) },
        arn,
        first_receive,
    })
}

/// `None` if it has neither a text nor bytes, which SQS lets nobody send.
fn attribute(from: SqsMessageAttribute) -> Option<Attribute> {
    let value = match (from.string_value, from.binary_value) {
        (Some(text), _) => AttributeValue::Text(text),
        (None, Some(bytes)) => AttributeValue::Binary(bytes.0),
        (None, None) => return None,
    };
    Some(Attribute { data_type: from.data_type.unwrap_or_else(|| "String".to_owned()), value })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Lambda sends them.
    const EVENT: &str = r#"{"Records":[{
        "messageId":"059f36b4-87a3-44ab-83d2-661975830a7d","receiptHandle":"AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a",
        "body":"{\"id\":\"p-1\"}","attributes":{"ApproximateReceiveCount":"2","SentTimestamp":"1545082649183",
        "SenderId":"AIDAIENQZJOLO23YVJ4VO","ApproximateFirstReceiveTimestamp":"1545082649185",
        "MessageGroupId":"g","MessageDeduplicationId":"d","AWSTraceHeader":"Root=1-5759e988-bd862e3fe1be46a994272793"},
        "messageAttributes":{"text":{"stringValue":"t","stringListValues":[],"binaryListValues":[],"dataType":"String"},
        "bytes":{"binaryValue":"AAE=","stringListValues":[],"binaryListValues":[],"dataType":"Binary"},
        "none":{"stringListValues":[],"binaryListValues":[],"dataType":"String"}},
        "md5OfBody":"098f6bcd4621d373cade4e832627b4f6","eventSource":"aws:sqs",
        "eventSourceARN":"arn:aws:sqs:us-east-2:123456789012:my-queue","awsRegion":"us-east-2"}]}"#;

    fn event(json: &str) -> SqsEvent {
        serde_json::from_str(json).expect("an event")
    }

    #[test]
    fn r3_a_record_has_all_that_a_receive_brings() {
        let records = read(event(EVENT)).expect("of SQS");
        let (record, message) = (&records[0], &records[0].received.message);
        assert_eq!((record.queue_name(), record.first_receive), ("my-queue", None));
        assert_eq!(record.received.handle.as_str(), "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a");
        assert_eq!((message.receive_count, message.sent_at), (2, Some(Millis(1_545_082_649_183))));
        assert_eq!((message.group.as_deref(), message.deduplication_id.as_deref()), (Some("g"), Some("d")));
        assert!(message.trace_header.as_ref().is_some_and(|header| header.starts_with("Root=1-")));
        assert_eq!(message.attribute("text"), Some("t"));
        assert_eq!(message.attributes["bytes"].value, AttributeValue::Binary(vec![0, 1]));
        assert_eq!(message.attributes.len(), 2, "one had neither text nor bytes");
        let first = read(event(&EVENT.replace(r#""2""#, r#""1""#))).expect("of SQS");
        assert_eq!(first[0].first_receive, Some(Millis(1_545_082_649_185)));
    }

    #[test]
    fn what_is_not_of_sqs_is_refused_whole() {
        for lacking in ["messageId", "receiptHandle", "eventSourceARN"] {
            let error = read(event(&EVENT.replace(lacking, "other"))).map(|_| ()).expect_err("refused");
            assert!(error.to_string().contains("record 0"), "{error}");
        }
        assert!(read(event(r#"{"Records":[]}"#)).is_ok_and(|records| records.is_empty()));
    }
}
