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

use crate::telemetry::{Answered, Calls};

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
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(action) = action((self.target)(context.request())) {
            self.calls.sent(&action);
        }
        Ok(())
    }

    /// When each is over.
    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let Some(action) = context.request().and_then(|request| action((self.target)(request))) else { return Ok(()) };
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
            Some(Err(error)) => {
                let refusal = error.as_operation_error().and_then(|error| {
                    let put =
                        error.downcast_ref::<PutItemError>().map(PutItemError::is_conditional_check_failed_exception);
                    let update = || {
                        error
                            .downcast_ref::<UpdateItemError>()
                            .map(UpdateItemError::is_conditional_check_failed_exception)
                    };
                    let transact = || {
                        let error = error.downcast_ref::<TransactWriteItemsError>()?;
                        Some(error.is_transaction_canceled_exception())
                    };
                    put.or_else(update).or_else(transact)
                });
                if refusal == Some(true) {
                    self.calls.used(REFUSED);
                    Answered::Refused
                } else {
                    by_status(
                        context.response().map(|response| response.status().as_u16()),
                        context.response().and_then(|r| r.body().bytes()),
                    )
                }
            }
        };
        self.calls.answered(&action, answered);
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
    use super::*;

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

    #[test]
    fn units_are_those_that_were_told_and_at_least_one() {
        let told = |units| ConsumedCapacity::builder().capacity_units(units).build();
        assert_eq!(units([&told(3.0), &told(2.0)]), 5);
        assert_eq!(units([&told(0.5)]), 1);
        assert_eq!(units(None), 1);
        assert_eq!(units([&told(f64::NAN)]), 1);
    }
}
