//! Counting requests: by operation when they are sent, by what was answered when that is known, and the write units of the
//! table.
//!
//! Reads what passes and changes nothing. Attempts count, as they do on the bill.

use aws_sdk_dynamodb::{
    operation::{
        put_item::{PutItemError, PutItemOutput},
        transact_write_items::{TransactWriteItemsError, TransactWriteItemsOutput},
        update_item::{UpdateItemError, UpdateItemOutput},
    },
    types::ConsumedCapacity,
};
use aws_sdk_sqs::{
    config::{
        ConfigBag, Intercept, RuntimeComponents,
        http::HttpRequest,
        interceptors::{BeforeTransmitInterceptorContextRef, FinalizerInterceptorContextRef},
    },
    error::BoxError,
};

use aws_smithy_types::config_bag::{Storable, StoreReplace};

use crate::telemetry::{Answered, Calls};

/// The action of the attempt that is under way: when it is over its request is not there any more.
#[derive(Debug)]
struct Attempt(String);

impl Storable for Attempt {
    type Storer = StoreReplace<Self>;
}

/// Counts a service's requests, each by the target that is read from it.
#[derive(Debug)]
pub(super) struct Counting {
    pub(super) calls: Calls,
    pub(super) target: fn(&HttpRequest) -> &str,
}

/// SQS and DynamoDB name the operation in a header, as `AmazonSQS.SendMessage` and `DynamoDB_20120810.PutItem`.
pub(super) fn named_target(request: &HttpRequest) -> &str {
    request.headers().get("x-amz-target").unwrap_or_default()
}

/// The IAM action of a request. S3 names no operation in the same header, and is counted in that way.
fn action(target: &str) -> Option<String> {
    let (service, operation) = target.split_once('.')?;
    let service = match service {
        "S3" => "s3",
        dynamodb if dynamodb.starts_with("DynamoDB") => "dynamodb",
        _ => "sqs",
    };
    Some(format!("{service}:{operation}"))
}

impl Intercept for Counting {
    fn name(&self) -> &'static str {
        "leasehold::Counting"
    }

    /// Just before each attempt.
    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        call: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(action) = action((self.target)(context.request())) {
            self.calls.sent(&action);
            call.interceptor_state().store_put(Attempt(action));
        }
        Ok(())
    }

    /// When each is over.
    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        call: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        // One that was not sent, for want of a region or of credentials, is none.
        let Some(Attempt(action)) = call.load::<Attempt>() else { return Ok(()) };
        let answered = match context.output_or_error() {
            None => Answered::Error,
            Some(Ok(output)) => {
                let used = [
                    output.downcast_ref::<PutItemOutput>().map(|output| units(output.consumed_capacity())),
                    output.downcast_ref::<UpdateItemOutput>().map(|output| units(output.consumed_capacity())),
                    output.downcast_ref::<TransactWriteItemsOutput>().map(|output| units(output.consumed_capacity())),
                ];
                used.into_iter().flatten().for_each(|units| self.calls.used(units));
                Answered::Ok
            }
            Some(Err(error)) if error.is_timeout_error() => Answered::Timeout,
            Some(Err(error)) if error.is_connector_error() => Answered::NoConnection,
            // A write whose condition did not hold; of a transaction, also one that met another.
            Some(Err(error))
                if error.as_operation_error().is_some_and(|error| {
                    error.downcast_ref().is_some_and(PutItemError::is_conditional_check_failed_exception)
                        || error.downcast_ref().is_some_and(UpdateItemError::is_conditional_check_failed_exception)
                        || error.downcast_ref().is_some_and(TransactWriteItemsError::is_transaction_canceled_exception)
                }) =>
            {
                self.calls.used(REFUSED);
                Answered::Refused
            }
            Some(Err(_)) => {
                let response = context.response();
                by_status(response.map(|it| it.status().as_u16()), response.and_then(|it| it.body().bytes()))
            }
        };
        self.calls.answered(action, answered);
        Ok(())
    }
}

/// A write whose condition fails uses units too, and its answer does not say how many: those of the item that is there, of
/// which a record under 1 KB is one.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html>
const REFUSED: u64 = 1;

/// What a write used. An answer that does not tell counts as the least.
fn units<'a>(told: impl IntoIterator<Item = &'a ConsumedCapacity>) -> u64 {
    let told: f64 = told.into_iter().map(|capacity| capacity.capacity_units().unwrap_or_default()).sum();
    // Whole numbers by nature; a sum that is none is a store that does not count as DynamoDB does.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few units")]
    let whole = told.ceil().clamp(0.0, 1e9) as u64;
    whole.max(1)
}

/// What an error is, for a person who counts them: its code is at the beginning of the body, in whichever way a service
/// writes it.
fn by_status(status: Option<u16>, body: Option<&[u8]>) -> Answered {
    let body = String::from_utf8_lossy(body.unwrap_or_default());
    let says = |words: &[&str]| words.iter().any(|word| body.contains(word));
    match status {
        None => Answered::Error,
        Some(429) => Answered::Throttled,
        Some(500..) if !says(&["SlowDown"]) => Answered::ServerError,
        _ if says(&["Throttl", "ThroughputExceeded", "RequestLimitExceeded", "SlowDown"]) => Answered::Throttled,
        Some(403) => Answered::Denied,
        _ if says(&[
            "AccessDenied",
            "UnrecognizedClient",
            "ExpiredToken",
            "InvalidClientTokenId",
            "InvalidSignature",
        ]) =>
        {
            Answered::Denied
        }
        Some(404) => Answered::Missing,
        _ if says(&["NonExistentQueue", "QueueDoesNotExist", "ResourceNotFound", "NoSuchKey"]) => Answered::Missing,
        _ => Answered::Error,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use aws_sdk_dynamodb::types::AttributeValue;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        task::JoinSet,
    };

    use super::*;
    use crate::aws::Aws;

    #[test]
    fn errors_are_told_apart_by_what_somebody_would_do_about_them() {
        let cases = [
            (400, r#"{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException"}"#, Answered::Throttled),
            (
                400,
                r#"{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"}"#,
                Answered::Throttled,
            ),
            (503, "<Error><Code>SlowDown</Code></Error>", Answered::Throttled),
            (500, "{}", Answered::ServerError),
            (403, "", Answered::Denied),
            (400, r#"{"__type":"com.amazon.coral.service#AccessDeniedException"}"#, Answered::Denied),
            (400, r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist"}"#, Answered::Missing),
            (400, r#"{"__type":"com.amazon.coral.validate#ValidationException"}"#, Answered::Error),
        ];
        for (status, body, expected) in cases {
            assert_eq!(by_status(Some(status), Some(body.as_bytes())), expected, "{status} {body}");
        }
        assert_eq!(by_status(None, None), Answered::Error);
    }

    /// Answers each request with the next of these, and closes.
    async fn answering(answers: &'static [(&'static str, &'static str)]) -> (Aws, JoinSet<()>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("binds");
        let aws = Aws::new(&crate::aws::local(&format!("http://{}", listener.local_addr().expect("bound"))));
        let mut server = JoinSet::new();
        server.spawn(async move {
            for (status, body) in answers {
                let (mut stream, _) = listener.accept().await.expect("a client");
                let mut request = Vec::new();
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    stream.read_buf(&mut request).await.expect("a request");
                }
                let length = body.len();
                let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
                stream.write_all((head + body).as_bytes()).await.expect("a client that reads");
            }
        });
        (aws, server)
    }

    #[tokio::test]
    async fn a_request_is_counted_by_what_was_answered_and_a_write_by_what_it_used() {
        let (aws, _server) = answering(&[
            ("200 OK", r#"{"ConsumedCapacity":{"TableName":"t","CapacityUnits":3.0}}"#),
            ("400 Bad Request", r#"{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"}"#),
            ("500 Internal Server Error", "{}"),
            ("200 OK", "{}"),
        ])
        .await;
        let dynamodb = aws.dynamodb();
        let put = || dynamodb.put_item().table_name("t").item("pk", AttributeValue::S("k".into())).send();
        assert!(put().await.is_ok() && put().await.is_err());
        let update = dynamodb.update_item().table_name("t").key("pk", AttributeValue::S("k".into())).send();
        assert!(update.await.is_ok(), "tried again");
        let counted = [
            (("dynamodb:PutItem".to_owned(), "ok"), 1),
            (("dynamodb:PutItem".to_owned(), "refused"), 1),
            (("dynamodb:UpdateItem".to_owned(), "ok"), 1),
            (("dynamodb:UpdateItem".to_owned(), "server_error"), 1),
        ];
        assert_eq!(aws.calls.by_answer(), BTreeMap::from(counted));
        assert_eq!(aws.calls.totals(), (4, 3 + 1 + 1));
    }

    #[tokio::test]
    async fn what_was_not_sent_is_no_request_and_what_was_not_answered_is_told_so() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("binds");
        let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
        drop(listener);
        let aws = Aws::new(&crate::aws::local(&endpoint));
        let url = format!("{endpoint}/0/q");
        let once = crate::aws::one_attempt(std::time::Duration::from_secs(1));
        let receive = aws.sqs_client().receive_message().queue_url(url).customize().config_override(once);
        assert!(receive.send().await.is_err());
        assert_eq!(aws.calls.by_answer(), BTreeMap::from([(("sqs:ReceiveMessage".to_owned(), "no_connection"), 1)]));
        let nowhere =
            Aws::new(&aws_config::SdkConfig::builder().behavior_version(aws_config::BehaviorVersion::latest()).build());
        assert!(nowhere.sqs_client().receive_message().queue_url("http://127.0.0.1/0/q").send().await.is_err());
        assert_eq!(nowhere.calls.by_answer(), BTreeMap::new());
    }

    #[test]
    fn units_are_those_that_were_told_and_at_least_one() {
        let told = |units| ConsumedCapacity::builder().capacity_units(units).build();
        assert_eq!(units([&told(3.0), &told(2.0)]), 5);
        assert_eq!(units([&told(0.5)]), 1);
        assert_eq!(units(None), 1);
        assert_eq!(units([&told(f64::NAN)]), 1);
    }
}
