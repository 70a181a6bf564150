//! What the adapter makes of replies that no backend gives on request.

use std::collections::BTreeMap;

use aws_sdk_sqs::{
    Client,
    operation::{
        change_message_visibility::ChangeMessageVisibilityOutput,
        change_message_visibility_batch::ChangeMessageVisibilityBatchOutput, delete_message::DeleteMessageOutput,
        delete_message_batch::DeleteMessageBatchOutput, get_queue_attributes::GetQueueAttributesOutput,
        get_queue_url::GetQueueUrlOutput, list_dead_letter_source_queues::ListDeadLetterSourceQueuesOutput,
        receive_message::ReceiveMessageOutput, send_message::SendMessageOutput,
    },
    primitives::Blob,
    types::{
        BatchResultErrorEntry, ChangeMessageVisibilityBatchResultEntry, DeleteMessageBatchResultEntry, Message,
        MessageAttributeValue,
    },
};
use aws_smithy_mocks::{Rule, RuleMode, mock, mock_client};
use futures_util::future::{join, join3};

use super::*;
use crate::{
    message::{Attribute, AttributeValue},
    queue::{RedriveAllow, RedrivePolicy},
    settle::dead_letter,
};

const URL: &str = "https://sqs.us-east-1.amazonaws.com/123456789012/payments";

/// A queue whose calls are answered by `rules`, in this order.
fn queue(rules: &[&Rule]) -> SqsQueue {
    SqsQueue::new(mock_client!(aws_sdk_sqs, RuleMode::Sequential, rules), URL.into(), Clock::simulated(1, 0))
}

fn broker(rules: &[&Rule]) -> SqsBroker {
    SqsBroker::new(mock_client!(aws_sdk_sqs, RuleMode::Sequential, rules), Clock::simulated(1, 0))
}

fn failed(id: &str, code: &str, message: &str) -> BatchResultErrorEntry {
    BatchResultErrorEntry::builder().id(id).code(code).message(message).sender_fault(true).build().expect("complete")
}

async fn receive(messages: Vec<Message>) -> Vec<Received> {
    let reply = move || ReceiveMessageOutput::builder().set_messages(Some(messages.clone())).build();
    let rule = mock!(Client::receive_message).then_output(reply);
    queue(&[&rule]).receive(&ask()).await.expect("receives")
}

#[tokio::test]
async fn r3_all_that_a_message_carries_is_kept() {
    let message = Message::builder()
        .message_id("m1")
        .receipt_handle("h1")
        .body("{}")
        .attributes(MessageSystemAttributeName::ApproximateReceiveCount, "3")
        .attributes(MessageSystemAttributeName::SentTimestamp, "1800000000123")
        .attributes(MessageSystemAttributeName::MessageGroupId, "group")
        .attributes(MessageSystemAttributeName::MessageDeduplicationId, "once")
        .attributes(MessageSystemAttributeName::AwsTraceHeader, "Root=1")
        .message_attributes("n", text_attribute("Number.int", "7"))
        .message_attributes(
            "b",
            MessageAttributeValue::builder()
                .data_type("Binary")
                .binary_value(Blob::new([0, 255]))
                .build()
                .expect("complete"),
        )
        .build();
    let received = receive(vec![message]).await.remove(0);
    assert_eq!(received.handle, handle("h1"));
    let message = received.message;
    assert_eq!((message.id.as_str(), message.body.as_str(), message.receive_count), ("m1", "{}", 3));
    assert_eq!(message.sent_at, Some(crate::clock::Millis(1_800_000_000_123)));
    assert_eq!(message.group.as_deref(), Some("group"));
    assert_eq!(message.deduplication_id.as_deref(), Some("once"));
    assert_eq!(message.trace_header.as_deref(), Some("Root=1"));
    let number = Attribute { data_type: "Number.int".into(), value: AttributeValue::Text("7".into()) };
    let bytes = Attribute { data_type: "Binary".into(), value: AttributeValue::Binary(vec![0, 255]) };
    assert_eq!(message.attributes, BTreeMap::from([("b".into(), bytes), ("n".into(), number)]));
}

#[tokio::test]
async fn r3_what_is_missing_ends_nothing() {
    let bare = Message::builder().receipt_handle("h1").build();
    let odd = Message::builder()
        .receipt_handle("h2")
        .attributes(MessageSystemAttributeName::ApproximateReceiveCount, "many")
        .attributes(MessageSystemAttributeName::SentTimestamp, "")
        .build();
    let unsettleable = Message::builder().message_id("m3").body("lost").build();
    let received = receive(vec![bare, unsettleable, odd]).await;
    assert_eq!(received.iter().map(|r| r.handle.as_str()).collect::<Vec<_>>(), ["h1", "h2"]);
    for Received { message, .. } in received {
        assert_eq!((message.body.as_str(), message.receive_count, message.sent_at), ("", 1, None));
    }
}

#[tokio::test]
async fn r3_an_attribute_without_a_value_is_left_out_and_harms_no_other() {
    let bare = || MessageAttributeValue::builder().data_type("String").build().expect("complete");
    let message = |handle: &str| {
        Message::builder()
            .receipt_handle(handle)
            .message_attributes("bare", bare())
            .message_attributes("empty", text_attribute("String", ""))
            .message_attributes("whole", text_attribute("String.custom", "x"))
            .build()
    };
    for Received { message, .. } in receive(vec![message("h1"), message("h2")]).await {
        let labelled = Attribute { data_type: "String.custom".into(), value: AttributeValue::Text("x".into()) };
        let left = BTreeMap::from([("empty".into(), Attribute::text("")), ("whole".into(), labelled)]);
        assert_eq!(message.attributes, left);
    }
}

#[tokio::test]
async fn t3_a_redriven_message_comes_unpacked() {
    let note = r#"{"code":"declined","message":"","failure_id":"f1"}"#;
    let message = Message::builder()
        .receipt_handle("h1")
        .message_attributes(dead_letter::ATTRIBUTE, text_attribute("String", note))
        .build();
    let message = receive(vec![message]).await.remove(0).message;
    assert_eq!(message.dead_letter.map(|note| note.failure_id), Some("f1".to_owned()));
    assert!(message.attributes.is_empty());
}

fn text_attribute(data_type: &str, text: &str) -> MessageAttributeValue {
    MessageAttributeValue::builder().data_type(data_type).string_value(text).build().expect("complete")
}

#[tokio::test]
async fn r4_a_receive_asks_for_what_was_asked_and_for_everything_the_queue_knows() {
    let rule = mock!(Client::receive_message)
        .match_requests(|request| {
            request.queue_url() == Some(URL)
                && request.max_number_of_messages() == Some(4)
                && request.wait_time_seconds() == Some(20)
                && request.visibility_timeout() == Some(31)
                && request.receive_request_attempt_id() == Some("again")
                && request.message_system_attribute_names() == [MessageSystemAttributeName::All]
                && request.message_attribute_names() == ["All"]
        })
        .then_output(|| ReceiveMessageOutput::builder().build());
    let ask = Receive {
        max: 4,
        wait: Duration::from_secs(20),
        visibility: Duration::from_millis(30_500),
        attempt_id: Some("again".into()),
    };
    assert_eq!(queue(&[&rule]).receive(&ask).await.expect("receives").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn r4_a_receive_is_never_sent_twice() {
    let rule = mock!(Client::receive_message).sequence().http_status(503, None).times(5).build();
    let outcome = queue(&[&rule]).receive(&ask()).await.map(drop);
    assert_eq!((kind(&outcome), rule.num_calls()), ("Unavailable", 1));
}

#[tokio::test(start_paused = true)]
async fn t1_a_throttled_delete_is_tried_again() {
    let body = r#"{"__type":"com.amazonaws.sqs#RequestThrottled","message":"slow down"}"#.to_owned();
    let rule = mock!(Client::delete_message)
        .sequence()
        .http_status(400, Some(body))
        .http_status(500, None)
        .output(|| DeleteMessageOutput::builder().build())
        .build();
    let outcome = queue(&[&rule]).delete(&handle("h")).await;
    assert_eq!((kind(&outcome), rule.num_calls()), ("Ok", 3));
}

#[tokio::test(start_paused = true)]
async fn t1_a_delete_that_cannot_succeed_is_not_tried_again() {
    for (status, code, expected) in [
        (403, "AccessDenied", "Denied"),
        (400, "AWS.SimpleQueueService.NonExistentQueue", "Missing"),
        (400, "ReceiptHandleIsInvalid", "HandleLost"),
    ] {
        let body = format!(r#"{{"__type":"{code}","message":"no"}}"#);
        let rule = mock!(Client::delete_message).sequence().http_status(status, Some(body)).times(3).build();
        assert_eq!((kind(&queue(&[&rule]).delete(&handle("h")).await), rule.num_calls()), (expected, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn t1_only_the_deletes_that_failed_are_sent_again() {
    let done = |id: &str| DeleteMessageBatchResultEntry::builder().id(id).build().expect("complete");
    let first = mock!(Client::delete_message_batch).match_requests(|request| request.entries().len() == 3).then_output(
        move || {
            DeleteMessageBatchOutput::builder()
                .successful(done("0"))
                .failed(failed("1", "InternalError", ""))
                .failed(failed("2", "ReceiptHandleIsInvalid", ""))
                .build()
                .expect("complete")
        },
    );
    let again = mock!(Client::delete_message)
        .match_requests(|request| request.receipt_handle() == Some("b"))
        .then_output(|| DeleteMessageOutput::builder().build());
    let queue = queue(&[&first, &again]);
    let (a, b, c) = (handle("a"), handle("b"), handle("c"));
    let (a, b, c) = join3(queue.delete(&a), queue.delete(&b), queue.delete(&c)).await;
    assert_eq!((kind(&a), kind(&b), kind(&c)), ("Ok", "Ok", "HandleLost"));
    assert_eq!(again.num_calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn l4_each_visibility_change_has_its_own_verdict() {
    let cap = "Value 43200 for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the \
               message is beyond the limit [43200 seconds]";
    let gone = "Value h for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available \
                for visibility timeout change.";
    let done = || ChangeMessageVisibilityBatchResultEntry::builder().id("0").build().expect("complete");
    let rule = mock!(Client::change_message_visibility_batch)
        .match_requests(|request| request.entries().iter().all(|entry| entry.visibility_timeout() == Some(2)))
        .then_output(move || {
            ChangeMessageVisibilityBatchOutput::builder()
                .successful(done())
                .failed(failed("1", "InvalidParameterValue", cap))
                .failed(failed("2", "InvalidParameterValue", gone))
                .failed(failed("3", "RequestThrottled", ""))
                .build()
                .expect("complete")
        });
    let queue = queue(&[&rule]);
    let handles = ["a", "b", "c", "d", "e"].map(handle);
    let changes = handles.iter().map(|handle| queue.change_visibility(handle, Duration::from_millis(1001)));
    let verdicts =
        futures_util::future::join_all(changes).await.into_iter().map(|verdict| kind(&verdict)).collect::<Vec<_>>();
    assert_eq!(verdicts, ["Ok", "TwelveHours", "HandleLost", "Throttled", "NoAnswer"]);
    assert_eq!(rule.num_calls(), 1, "l6: none is sent again");
}

#[tokio::test(start_paused = true)]
async fn l4_a_refused_batch_is_sent_one_by_one() {
    let body = r#"{"__type":"InvalidParameterValue","message":"something about one entry"}"#.to_owned();
    let batch = mock!(Client::change_message_visibility_batch).sequence().http_status(400, Some(body)).build();
    let good =
        mock!(Client::change_message_visibility).then_output(|| ChangeMessageVisibilityOutput::builder().build());
    let lost = r#"{"__type":"ReceiptHandleIsInvalid","message":"no"}"#.to_owned();
    let bad = mock!(Client::change_message_visibility).sequence().http_status(400, Some(lost)).build();
    let queue = queue(&[&batch, &good, &bad]);
    let (a, b) = (handle("a"), handle("b"));
    let zero = Duration::ZERO;
    let (a, b) = join(queue.change_visibility(&a, zero), queue.change_visibility(&b, zero)).await;
    assert_eq!((kind(&a), kind(&b)), ("Ok", "HandleLost"));
}

#[tokio::test]
async fn a_message_is_sent_with_all_its_fields() {
    let rule = mock!(Client::send_message)
        .match_requests(|request| {
            let trace = aws_sdk_sqs::types::MessageSystemAttributeNameForSends::AwsTraceHeader;
            let traced = request.message_system_attributes().and_then(|system| system.get(&trace));
            request.message_body() == Some("{}")
                && request.message_group_id() == Some("group")
                && request.message_deduplication_id() == Some("once")
                && request.delay_seconds() == Some(2)
                && traced.and_then(|value| value.string_value()) == Some("Root=1")
                && request.message_attributes().is_some_and(|named| named.len() == 1)
        })
        .then_output(|| SendMessageOutput::builder().build());
    let message = Outgoing {
        body: "{}".into(),
        attributes: BTreeMap::from([("a".into(), Attribute::text("b"))]),
        group: Some("group".into()),
        deduplication_id: Some("once".into()),
        trace_header: Some("Root=1".into()),
        delay: Some(Duration::from_millis(1500)),
    };
    assert_eq!(kind(&queue(&[&rule]).send(&message).await), "Ok");
}

#[tokio::test]
async fn what_sqs_would_refuse_is_not_sent() {
    let large = Outgoing { body: "x".repeat(LARGEST_MESSAGE + 1), ..Outgoing::default() };
    assert_eq!(kind(&queue(&[]).send(&large).await), "Refused");
    let attributes = (0..=MOST_ATTRIBUTES).map(|i| (format!("a{i}"), Attribute::text("v"))).collect();
    let many = Outgoing { body: "x".into(), attributes, ..Outgoing::default() };
    assert_eq!(kind(&queue(&[]).send(&many).await), "Refused");
}

#[tokio::test]
async fn a_dead_letter_queue_is_told_by_its_url_and_its_sources_come_as_urls() {
    let url = format!("{URL}-source");
    let answer = url.clone();
    let rule = mock!(Client::list_dead_letter_source_queues)
        .match_requests(|request| request.queue_url() == Some(URL))
        .then_output(move || {
            ListDeadLetterSourceQueuesOutput::builder().queue_urls(answer.clone()).build().expect("is whole")
        });
    assert_eq!(queue(&[&rule]).sources().await.expect("an answer"), [url]);
}

async fn facts(attributes: &'static [(QueueAttributeName, &'static str)]) -> Result<QueueFacts, QueueError> {
    let rule = mock!(Client::get_queue_attributes).then_output(move || {
        let attributes = attributes.iter().map(|(name, value)| (name.clone(), (*value).to_owned()));
        GetQueueAttributesOutput::builder().set_attributes(Some(attributes.collect())).build()
    });
    queue(&[&rule]).facts().await
}

#[tokio::test]
async fn r5_facts_are_read_whether_counts_are_numbers_or_text() {
    let plain = facts(&[(QueueAttributeName::QueueArn, "arn:q"), (QueueAttributeName::RedrivePolicy, "")]).await;
    let plain = plain.expect("has facts");
    assert_eq!((plain.arn.as_str(), plain.fifo, plain.redrive), ("arn:q", false, None));
    assert_eq!((plain.visibility.as_secs(), plain.retention.as_secs()), (30, 345_600));
    assert_eq!((plain.redrive_allow, plain.largest_message, plain.kms_key), (RedriveAllow::All, LARGEST_MESSAGE, None));
    assert_eq!(plain.url, URL);
    let full = facts(&[
        (QueueAttributeName::QueueArn, "arn:q"),
        (QueueAttributeName::FifoQueue, "true"),
        (QueueAttributeName::ContentBasedDeduplication, "true"),
        (QueueAttributeName::DeduplicationScope, "messageGroup"),
        (QueueAttributeName::VisibilityTimeout, "60"),
        (QueueAttributeName::MessageRetentionPeriod, "3600"),
        (QueueAttributeName::RedrivePolicy, r#"{"deadLetterTargetArn":"arn:dlq","maxReceiveCount":"5"}"#),
        (QueueAttributeName::RedriveAllowPolicy, r#"{"redrivePermission":"byQueue","sourceQueueArns":["arn:s"]}"#),
        (QueueAttributeName::MaximumMessageSize, "2048"),
        (QueueAttributeName::KmsMasterKeyId, "alias/ours"),
    ]);
    let full = full.await.expect("has facts");
    assert!(!plain.content_based_deduplication && full.content_based_deduplication);
    assert_eq!(plain.deduplication_scope, DeduplicationScope::Queue);
    assert_eq!(full.deduplication_scope, DeduplicationScope::MessageGroup);
    assert_eq!((full.fifo, full.visibility.as_secs(), full.retention.as_secs()), (true, 60, 3600));
    let policy = RedrivePolicy { dead_letter_arn: "arn:dlq".into(), max_receive_count: 5 };
    assert_eq!(full.redrive, Some(policy.clone()));
    assert_eq!(convert::redrive(r#"{"deadLetterTargetArn":"arn:dlq","maxReceiveCount":5}"#), Some(policy));
    assert_eq!(convert::redrive("nonsense"), None);
    assert_eq!(full.redrive_allow, RedriveAllow::These(vec!["arn:s".into()]));
    assert_eq!((full.largest_message, full.kms_key.as_deref()), (2048, Some("alias/ours")));
    for (policy, allowed) in [
        (r#"{"redrivePermission":"denyAll"}"#, RedriveAllow::Nobody),
        (r#"{"redrivePermission":"allowAll"}"#, RedriveAllow::All),
        ("", RedriveAllow::All),
        ("nonsense", RedriveAllow::All),
    ] {
        assert_eq!(convert::redrive_allow(policy), allowed, "{policy}");
    }
    assert_eq!(kind(&facts(&[]).await.map(drop)), "Unavailable");
}

#[tokio::test(start_paused = true)]
async fn queues_are_found_by_name_url_and_arn() {
    let found = || GetQueueUrlOutput::builder().queue_url(URL).build();
    let by_name = mock!(Client::get_queue_url)
        .match_requests(|r| r.queue_name() == Some("payments") && r.queue_owner_aws_account_id().is_none())
        .then_output(found);
    let by_arn = mock!(Client::get_queue_url)
        .match_requests(|r| {
            r.queue_name() == Some("payments") && r.queue_owner_aws_account_id() == Some("123456789012")
        })
        .then_output(found);
    let missing = r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"no"}"#.to_owned();
    let gone = mock!(Client::get_queue_url).sequence().http_status(400, Some(missing)).build();
    let broker = broker(&[&by_name, &by_arn, &gone]);
    let name = QueueAddress::Name("payments".into());
    let arn = |region: &str| QueueAddress::Arn(format!("arn:aws:sqs:{region}:123456789012:payments"));
    assert_eq!(broker.url(&name).await.expect("found"), URL);
    assert_eq!(broker.url(&arn("us-east-1")).await.expect("found"), URL);
    assert_eq!(broker.url(&QueueAddress::Url(URL.into())).await.expect("taken as it is"), URL);
    assert_eq!(kind(&broker.open(&name).await.map(drop)), "Missing");

    assert_eq!(kind(&broker.url(&QueueAddress::Arn("payments".into())).await.map(drop)), "Refused");
}

/// A broker that answers every look-up with a URL, and the addresses of one queue in another region and account.
fn elsewhere() -> (SqsBroker, [QueueAddress; 2]) {
    let found = mock!(Client::get_queue_url)
        .match_requests(|r| r.queue_owner_aws_account_id() == Some("210987654321"))
        .then_output(|| {
            GetQueueUrlOutput::builder().queue_url("https://sqs.eu-west-1.amazonaws.com/210987654321/q").build()
        });
    let broker = SqsBroker::new(mock_client!(aws_sdk_sqs, RuleMode::MatchAny, [&found]), Clock::simulated(1, 0));
    let url = QueueAddress::Url("https://sqs.eu-west-1.amazonaws.com/210987654321/q".into());
    (broker, [QueueAddress::Arn("arn:aws:sqs:eu-west-1:210987654321:q".into()), url])
}

#[tokio::test(start_paused = true)]
async fn a_queue_in_another_region_and_account_is_asked_there_by_one_client_for_each_region() {
    let (broker, addresses) = elsewhere();
    for address in &addresses {
        let target = broker.target(address).await.expect("found");
        assert_eq!(target.client.config().region().map(AsRef::as_ref), Some("eu-west-1"), "{address}");
        assert_eq!(target.url, "https://sqs.eu-west-1.amazonaws.com/210987654321/q");
    }
    let here = broker.target(&QueueAddress::Url(URL.into())).await.expect("taken as it is");
    assert_eq!(here.client.config().region().map(AsRef::as_ref), Some("us-east-1"));
    assert_eq!(broker.regions.others(), ["eu-west-1"], "one, and none for its own");
    assert_eq!(broker.clone().regions.others(), ["eu-west-1"], "clones share them");
}

#[tokio::test]
async fn a_queue_of_another_region_than_that_of_the_one_endpoint_is_refused_with_what_to_set() {
    let (broker, addresses) = elsewhere();
    let broker = broker.at_one_endpoint();
    for address in addresses {
        let error = broker.url(&address).await.expect_err("is elsewhere").to_string();
        assert!(error.contains("set AWS_REGION=eu-west-1") && error.contains("AWS_ENDPOINT_URL"), "{error}");
    }
    assert_eq!(broker.url(&QueueAddress::Url(URL.into())).await.expect("is here"), URL);
    let local = QueueAddress::Url("http://sqs.eu-west-1.localhost.localstack.cloud:4566/000000000000/q".into());
    assert!(broker.url(&local).await.is_ok(), "no host of AWS");
}

#[tokio::test]
async fn where_a_queue_is_looked_for_can_be_told() {
    let (broker, [arn, url]) = elsewhere();
    let told = |address: &QueueAddress| broker.looks_in(address).expect("a region");
    assert_eq!(told(&QueueAddress::Name("q".into())), "region us-east-1, in the account of the credentials");
    assert_eq!(told(&arn), "region eu-west-1, account 210987654321");
    assert_eq!(told(&url), "region eu-west-1");
}
