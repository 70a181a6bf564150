//! What DynamoDB's errors mean.
//!
//! Decided by error code, and by HTTP status for codes that are not known; by text only where AWS has no code of its
//! own. Must never turn silence into "nothing was written".
//!
//! <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html>,
//! <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/CommonErrors.html>

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::{
    error::{ProvideErrorMetadata, SdkError},
    types::error::ConditionalCheckFailedException,
};

use super::{super::Record, GuardError, record};
use crate::causes::NoCredentials;

/// What a conditional write answers: `Ok` if it was made, else the record that stood in its way, if there is one.
pub(super) type Answer<T> = Result<T, Option<Record>>;

/// Reads the record that refused a write. Without one there was none: an `UpdateItem` on a key that is absent.
pub(super) fn stood_in_the_way<T>(
    pk: &str,
    refusal: &ConditionalCheckFailedException,
) -> Result<Answer<T>, GuardError> {
    let Some(item) = refusal.item().filter(|item| !item.is_empty()) else {
        tracing::debug!(pk, "refused, and no record came back");
        return Ok(Err(None));
    };
    Ok(Err(Some(record::from_item(item.clone())?)))
}

/// The meaning of an error, the refusal of a condition apart.
pub(super) fn meaning<E>(error: SdkError<E>) -> GuardError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let SdkError::ServiceError(answer) = &error else { return unanswered(error) };
    let (meta, status) = (answer.err().meta(), answer.raw().status().as_u16());
    let said = meta.message().unwrap_or("no reason given");
    match (meta.code().unwrap_or_default(), status) {
        (
            "ProvisionedThroughputExceededException" | "RequestLimitExceeded" | "ThrottlingException" | "Throttling",
            _,
        ) => GuardError::Throttled(Some(error.into())),
        // The SDK does not try a transaction's conflict again, and it need not: it is this key's delay.
        ("TransactionConflictException" | "ReplicatedWriteConflictException", _) => GuardError::Conflict,
        // An earlier try of the same transaction is not at its end yet; or it was taken for another, because the SDK writes
        // the members of maps in any order. A token belongs to one commit, so that earlier try alone can be meant.
        ("TransactionInProgressException" | "IdempotentParameterMismatchException", _) => {
            GuardError::NoAnswer(Some(error.into()))
        }
        ("ResourceNotFoundException", _) => GuardError::Missing,
        (
            "UnrecognizedClientException"
            | "ExpiredTokenException"
            | "ExpiredToken"
            | "InvalidClientTokenId"
            | "InvalidSignatureException"
            | "SignatureDoesNotMatch"
            | "IncompleteSignatureException"
            | "MissingAuthenticationTokenException"
            | "MissingAuthenticationToken",
            _,
        ) => without_credentials(&error),
        // The last is dated too far from AWS's own time: nothing will work before a clock is set.
        ("AccessDeniedException" | "RequestExpired", _) => GuardError::Denied(Some(error.into())),
        // It did not get through whole, which is said with a status in the 400s and is no word on the request.
        ("RequestTimeout" | "RequestTimeoutException" | "RequestAbortedException", _) | (_, 408) => {
            GuardError::NoAnswer(Some(error.into()))
        }
        (_, 429) => GuardError::Throttled(Some(error.into())),
        ("ValidationException", _) if is_about_size(said) => GuardError::TooLarge,
        (_, 401 | 403) => GuardError::Denied(Some(error.into())),
        (_, 500..) => GuardError::Unavailable(Some(error.into())),
        (code, _) => GuardError::Refused(format!("{code}: {said}")),
    }
}

/// DynamoDB has no code for an item that is too large: `PutItem` says "Item size has exceeded the maximum allowed
/// size", `UpdateItem` "Item size to update has exceeded the maximum allowed size". Expressions have a size limit too,
/// told in much the same words.
pub(super) fn is_about_size(said: &str) -> bool {
    said.contains("Item size") && said.contains("exceeded the maximum allowed size")
}

fn unanswered<E>(error: SdkError<E>) -> GuardError
where
    E: Error + Send + Sync + 'static,
{
    if comes_from_credentials(&error) {
        return without_credentials(&error);
    }
    match error {
        // The request could not even be built.
        SdkError::ConstructionFailure(_) => GuardError::Refused(told(&error)),
        // A timeout, a connection that broke, or an answer that could not be read: it may have been written. A refused
        // connection or a name that does not resolve wrote nothing, but for the table as a whole (rule G8) it is the
        // same silence, and the SDK's earlier tries of this call may have got through.
        _ => GuardError::NoAnswer(Some(error.into())),
    }
}

fn without_credentials(error: &(dyn Error + 'static)) -> GuardError {
    GuardError::Denied(Some(Box::new(NoCredentials(told(error)))))
}

/// Whether no credentials could be had; the SDK counts that among failures to dispatch.
fn comes_from_credentials(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(<dyn Error>::is::<CredentialsError>)
}

/// An error and all its causes on one line.
pub(super) fn told(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}
