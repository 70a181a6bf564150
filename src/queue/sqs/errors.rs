//! What SQS and its SDK say, by meaning.
//!
//! Owns every error code and text that the queue adapter knows. An error that nobody knows is read so that nothing is
//! taken for done or for undone without proof: *no answer* before a reply was read, else by its HTTP status.

use std::error::Error;

use aws_sdk_sqs::{
    config::http::HttpResponse,
    error::{BuildError, ProvideErrorMetadata, SdkError},
    types::BatchResultErrorEntry,
};

use crate::{causes::NoCredentials, queue::QueueError};

/// A [`QueueError`] that can be the answer of every entry of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) meaning: Meaning,
    /// What was said, for the log.
    pub(super) said: String,
}

/// The variants of [`QueueError`], and what is told apart in one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    HandleLost,
    TwelveHours,
    Throttled,
    Unavailable,
    NoAnswer,
    Denied,
    /// [`QueueError::Denied`], for want of credentials that hold.
    NoCredentials,
    Missing,
    Refused,
    Unsupported,
}

impl Fault {
    pub(super) fn new(meaning: Meaning, said: impl Into<String>) -> Self {
        Self { meaning, said: said.into() }
    }

    /// Whether the same call may well succeed later.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self.meaning, Meaning::Throttled | Meaning::Unavailable | Meaning::NoAnswer)
    }

    /// Whether it can be the fault of a single entry, although it was the answer to a whole batch. Nothing was done then.
    pub(super) fn may_be_one_entrys(&self) -> bool {
        matches!(self.meaning, Meaning::HandleLost | Meaning::TwelveHours | Meaning::Refused)
    }
}

impl From<Fault> for QueueError {
    fn from(Fault { meaning, said }: Fault) -> Self {
        match meaning {
            Meaning::HandleLost => Self::HandleLost,
            Meaning::TwelveHours => Self::TwelveHours,
            Meaning::Throttled => Self::Throttled(Some(said.into())),
            Meaning::Unavailable => Self::Unavailable(Some(said.into())),
            Meaning::NoAnswer => Self::NoAnswer(Some(said.into())),
            Meaning::Denied => Self::Denied(Some(said.into())),
            Meaning::NoCredentials => Self::Denied(Some(Box::new(NoCredentials(said)))),
            Meaning::Missing => Self::Missing,
            Meaning::Refused => Self::Refused(said),
            Meaning::Unsupported => Self::Unsupported(said),
        }
    }
}

impl<E> From<SdkError<E, HttpResponse>> for Fault
where
    E: ProvideErrorMetadata + Error + 'static,
{
    fn from(error: SdkError<E, HttpResponse>) -> Self {
        let status = error.raw_response().map(|response| response.status().as_u16());
        match &error {
            SdkError::ServiceError(service) => {
                let (code, message) = (service.err().code(), service.err().message());
                Self::new(by_code(code, message, by_status(status)), told(code, message, status))
            }
            SdkError::ResponseError(_) => {
                // The reply cannot be read, so only its status can say that nothing was done.
                let meaning = match by_status(status) {
                    Meaning::Refused => Meaning::NoAnswer,
                    meaning => meaning,
                };
                Self::new(meaning, chain(&error))
            }
            SdkError::TimeoutError(_) => Self::new(Meaning::NoAnswer, chain(&error)),
            SdkError::ConstructionFailure(_) => {
                let said = chain(&error);
                Self::new(before_sending(&said).unwrap_or(Meaning::Refused), said)
            }
            _ => {
                let said = chain(&error);
                Self::new(before_sending(&said).unwrap_or(Meaning::NoAnswer), said)
            }
        }
    }
}

/// A field that the API requires was not given; nothing was sent.
impl From<BuildError> for Fault {
    fn from(error: BuildError) -> Self {
        Self::new(Meaning::Refused, error.to_string())
    }
}

impl From<&BatchResultErrorEntry> for Fault {
    fn from(entry: &BatchResultErrorEntry) -> Self {
        let otherwise = if entry.sender_fault { Meaning::Refused } else { Meaning::Unavailable };
        let (code, message) = (Some(entry.code()), entry.message());
        Self::new(by_code(code, message, otherwise), told(code, message, None))
    }
}

/// By code, and by text where one code means several things.
///
/// Codes come with and without a prefix (`AWS.SimpleQueueService.NonExistentQueue`, `KMS.AccessDeniedException`,
/// `com.amazonaws.sqs#QueueDoesNotExist`) and `Exception` at the end; both are taken off first.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/CommonErrors.html>
fn by_code(code: Option<&str>, text: Option<&str>, otherwise: Meaning) -> Meaning {
    let full = code.unwrap_or_default();
    let text = text.unwrap_or_default();
    let bare = full.rsplit(['.', '#']).next().unwrap_or(full);
    if is_about_the_clock(bare, text) {
        return Meaning::Unavailable;
    }
    match bare.strip_suffix("Exception").unwrap_or(bare) {
        "ReceiptHandleIsInvalid" | "MessageNotInflight" | "InvalidIdFormat" => Meaning::HandleLost,
        "InvalidParameterValue" | "ValidationError" | "Validation" => by_text(text),
        "NonExistentQueue" | "QueueDoesNotExist" | "ResourceNotFound" => Meaning::Missing,
        // What only resembles SQS says the latter ones of what it does not have.
        "UnsupportedOperation" | "InvalidAction" | "UnknownOperation" | "NotImplemented" => Meaning::Unsupported,
        "AccessDenied" | "NotAuthorized" | "OptInRequired" => Meaning::Denied,
        "AuthFailure"
        | "ExpiredToken"
        | "IncompleteSignature"
        | "InvalidAccessKeyId"
        | "InvalidClientTokenId"
        | "InvalidSecurity"
        | "InvalidSignature"
        | "MissingAuthenticationToken"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClient" => Meaning::NoCredentials,
        "OverLimit"
        | "RequestThrottled"
        | "RequestLimitExceeded"
        | "SlowDown"
        | "Throttled"
        | "Throttling"
        | "TooManyRequests" => Meaning::Throttled,
        "InternalError" | "InternalFailure" | "InternalServerError" | "ServiceUnavailable" => Meaning::Unavailable,
        // It did not get through whole, which is said with a status in the 400s and is no word on the request.
        "RequestTimeout" | "RequestAborted" => Meaning::NoAnswer,
        // The queue's key cannot be used, until somebody mends that: disabled, being deleted, of the wrong kind.
        "Disabled" | "InvalidKeyUsage" | "InvalidState" | "NotFound" if full.contains("KMS") => Meaning::Denied,
        "KmsDisabled" | "KmsInvalidKeyUsage" | "KmsInvalidState" | "KmsNotFound" | "KmsAccessDenied"
        | "KmsOptInRequired" => Meaning::Denied,
        "KmsThrottled" => Meaning::Throttled,
        _ => otherwise,
    }
}

/// `InvalidParameterValue` by its text, which names the parameter and the reason.
///
/// - "Value … for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.", on a delete from a FIFO
///   queue: <https://github.com/aws/aws-sdk-js/issues/1279>.
/// - "Value … for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for visibility
///   timeout change.": <https://github.com/aws/aws-sdk-js-v3/issues/2983>.
/// - "Value 43200 for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message is beyond
///   the limit [43200 seconds]": <https://github.com/localstack/localstack/issues/3956>. The same parameter out of range
///   says "Must be between 0 and 43200" and is an error of ours.
fn by_text(text: &str) -> Meaning {
    if text.contains("Total VisibilityTimeout") {
        Meaning::TwelveHours
    } else if text.contains("parameter ReceiptHandle is invalid") || text.contains("not available for visibility") {
        Meaning::HandleLost
    } else {
        Meaning::Refused
    }
}

/// Whether the request was dated too far from AWS's own time, which some services tell as a wrong signature: "Signature
/// expired: … is now earlier than …", "Signature not yet current: …". The SDK corrects its clock by what it hears, so
/// that a later request may well pass. <https://github.com/awslabs/aws-sdk-rust/issues/1033>
fn is_about_the_clock(code: &str, text: &str) -> bool {
    matches!(code, "RequestExpired" | "RequestTimeTooSkewed" | "RequestInTheFuture")
        || text.contains("Signature expired")
        || text.contains("Signature not yet current")
}

fn by_status(status: Option<u16>) -> Meaning {
    match status {
        Some(401 | 403) => Meaning::Denied,
        Some(429) => Meaning::Throttled,
        // A gateway between us and SQS passed the request on and got no answer to it, or a request did not arrive whole.
        None | Some(200..=299 | 408 | 502 | 504) => Meaning::NoAnswer,
        Some(500..) => Meaning::Unavailable,
        Some(_) => Meaning::Refused,
    }
}

/// Why a request never left, told from the texts of a chain of errors: their types are private to the SDK. `None` if it
/// may have left, which is also the answer for texts that a later SDK words in another way.
fn before_sending(chain: &str) -> Option<Meaning> {
    const CREDENTIALS: [&str; 3] = ["credential", "access token", "auth scheme"];
    const CONNECTING: [&str; 3] = ["(Connect)", "dns error", "HTTP connect timeout"];
    let names_one_of = |texts: &[&str]| texts.iter().any(|text| chain.contains(text));
    if chain.contains("Missing Region") {
        Some(Meaning::Refused)
    } else if names_one_of(&CREDENTIALS) {
        // Their source is asked again at the next call.
        Some(if chain.contains("timed out") { Meaning::Unavailable } else { Meaning::NoCredentials })
    } else if names_one_of(&CONNECTING) {
        Some(Meaning::Unavailable)
    } else {
        None
    }
}

/// What a reply said, in one line.
fn told(code: Option<&str>, message: Option<&str>, status: Option<u16>) -> String {
    let code = code.unwrap_or("an error without a code");
    let status = status.map_or_else(String::new, |status| format!(" (HTTP {status})"));
    let clock = if is_about_the_clock(code, message.unwrap_or_default()) {
        "this machine's clock and that of AWS are too far apart: "
    } else {
        ""
    };
    match message {
        Some(message) => format!("{clock}{code}: {message}{status}"),
        None => format!("{clock}{code}{status}"),
    }
}

/// An error and its sources, in one line.
fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let text = source.to_string();
        if !line.ends_with(&text) {
            line = format!("{line}: {text}");
        }
        next = source.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l4_codes_and_texts_have_one_meaning_each() {
        let lost = "Value AQEB for parameter ReceiptHandle is invalid. Reason: ";
        let expired = format!("{lost}The receipt handle has expired.");
        let gone = format!("{lost}Message does not exist or is not available for visibility timeout change.");
        let cap = "Value 43200 for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the \
                   message is beyond the limit [43200 seconds]";
        let range = "Value 50000 for parameter VisibilityTimeout is invalid. Reason: Must be between 0 and 43200.";
        let late = "Signature expired: 20260101T000000Z is now earlier than 20260101T001000Z";
        for (code, text, meaning) in [
            ("InvalidParameterValue", expired.as_str(), Meaning::HandleLost),
            ("InvalidParameterValueException", &gone, Meaning::HandleLost),
            ("ReceiptHandleIsInvalid", "", Meaning::HandleLost),
            ("AWS.SimpleQueueService.MessageNotInflight", "", Meaning::HandleLost),
            ("com.amazonaws.sqs#MessageNotInflight", "", Meaning::HandleLost),
            ("InvalidParameterValue", cap, Meaning::TwelveHours),
            ("InvalidParameterValue", range, Meaning::Refused),
            ("AWS.SimpleQueueService.NonExistentQueue", "", Meaning::Missing),
            ("QueueDoesNotExist", "", Meaning::Missing),
            ("AccessDenied", "", Meaning::Denied),
            ("AccessDeniedException", "", Meaning::Denied),
            ("KMS.AccessDeniedException", "", Meaning::Denied),
            ("KMS.DisabledException", "", Meaning::Denied),
            ("KmsAccessDenied", "", Meaning::Denied),
            ("ExpiredTokenException", "", Meaning::NoCredentials),
            ("InvalidClientTokenId", "", Meaning::NoCredentials),
            ("SignatureDoesNotMatch", "The request signature we calculated does not match", Meaning::NoCredentials),
            ("SignatureDoesNotMatch", late, Meaning::Unavailable),
            ("InvalidSignatureException", late, Meaning::Unavailable),
            ("RequestExpired", "", Meaning::Unavailable),
            ("RequestThrottled", "", Meaning::Throttled),
            ("ThrottlingException", "", Meaning::Throttled),
            ("KMS.ThrottlingException", "", Meaning::Throttled),
            ("OverLimit", "", Meaning::Throttled),
            ("InternalError", "", Meaning::Unavailable),
            ("RequestTimeout", "", Meaning::NoAnswer),
            ("RequestTimeoutException", "", Meaning::NoAnswer),
            ("RequestAbortedException", "", Meaning::NoAnswer),
            ("AWS.SimpleQueueService.BatchRequestTooLong", "", Meaning::Refused),
            ("InvalidMessageContents", "", Meaning::Refused),
            ("ResourceNotFoundException", "", Meaning::Missing),
            ("AWS.SimpleQueueService.UnsupportedOperation", "", Meaning::Unsupported),
            ("InvalidAction", "", Meaning::Unsupported),
        ] {
            assert_eq!(by_code(Some(code), Some(text), Meaning::Refused), meaning, "{code}: {text}");
        }
    }

    #[test]
    fn an_unknown_code_is_read_by_its_status_and_never_taken_for_done() {
        for (status, meaning) in [
            (Some(400), Meaning::Refused),
            (Some(403), Meaning::Denied),
            (Some(408), Meaning::NoAnswer),
            (Some(429), Meaning::Throttled),
            (Some(500), Meaning::Unavailable),
            (Some(503), Meaning::Unavailable),
            (Some(504), Meaning::NoAnswer),
            (Some(200), Meaning::NoAnswer),
            (None, Meaning::NoAnswer),
        ] {
            assert_eq!(by_status(status), meaning, "{status:?}");
        }
    }

    #[test]
    fn an_entry_with_an_unknown_code_is_read_by_whose_fault_it_is() {
        let entry = |ours| {
            let builder = BatchResultErrorEntry::builder().id("0").code("New").message("what").sender_fault(ours);
            Fault::from(&builder.build().expect("complete"))
        };
        assert_eq!(entry(true), Fault::new(Meaning::Refused, "New: what"));
        assert_eq!(entry(false).meaning, Meaning::Unavailable);
    }

    #[test]
    fn what_may_have_been_sent_is_not_taken_for_unsent() {
        for (chain, meaning) in [
            ("dispatch failure: io error: client error (Connect): tcp connect error", Some(Meaning::Unavailable)),
            ("dispatch failure: timeout: HTTP connect timeout occurred after 2s", Some(Meaning::Unavailable)),
            ("dispatch failure: other: the credential provider was not enabled", Some(Meaning::NoCredentials)),
            ("dispatch failure: other: credentials provider timed out after 5 seconds", Some(Meaning::Unavailable)),
            ("dispatch failure: io error: client error (SendRequest): connection reset", None),
            ("dispatch failure: timeout: HTTP read timeout occurred after 2s", None),
            ("dispatch failure: words that nobody knows yet", None),
        ] {
            assert_eq!(before_sending(chain), meaning, "{chain}");
        }
    }

    #[test]
    fn r4_a_refusal_for_want_of_credentials_is_told_from_a_right_that_is_missing() {
        for (meaning, lacks) in [(Meaning::NoCredentials, true), (Meaning::Denied, false)] {
            let error = QueueError::from(Fault::new(meaning, "ExpiredToken: it has expired"));
            assert!(matches!(error, QueueError::Denied(Some(_))) && error.lacks_credentials() == lacks, "{error:?}");
        }
    }

    #[test]
    fn r4_a_wrong_clock_is_told_as_one() {
        let line = told(Some("RequestExpired"), Some("Request has expired"), Some(400));
        assert_eq!(
            line,
            "this machine's clock and that of AWS are too far apart: RequestExpired: Request has expired (HTTP 400)"
        );
    }
}
