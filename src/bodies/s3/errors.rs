//! What S3's errors mean.
//!
//! Decided by error code, and by HTTP status for codes that are not known. Work fails for good by a few of the meanings,
//! and none of these may be guessed: what nobody knows is *unavailable* or *no answer*.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html>

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};

use super::BodyError;

/// The meaning of an error.
pub(super) fn meaning<E>(error: SdkError<E>) -> BodyError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let SdkError::ServiceError(answer) = &error else { return unanswered(error) };
    let (meta, status) = (answer.err().meta(), answer.raw().status().as_u16());
    let code = meta.code().unwrap_or_default();
    let said = format!("{code}: {}", meta.message().unwrap_or("no reason given"));
    by_code(code, status, said)
}

fn by_code(code: &str, status: u16, said: String) -> BodyError {
    let cause = |said: String| Some(format!("{said} (HTTP {status})").into());
    match (code, status) {
        ("NoSuchKey", _) => BodyError::Missing,
        ("NoSuchBucket", _) => BodyError::NoBucket,
        // Archived, and nobody has restored it; or no bucket or key that there could be.
        ("InvalidObjectState" | "InvalidBucketName" | "KeyTooLongError", _) => BodyError::Refused(said),
        ("SlowDown" | "Throttling" | "ThrottlingException" | "RequestLimitExceeded" | "KMS.ThrottlingException", _)
        | (_, 429) => BodyError::Throttled(cause(said)),
        // It did not get through whole, which is said with a status in the 400s and is no word on the request.
        ("RequestTimeout", _) | (_, 408 | 502 | 504) => BodyError::NoAnswer(cause(said)),
        // Dated too far from AWS's own time. The SDK corrects its clock by what it hears.
        ("RequestTimeTooSkewed", _) => BodyError::Unavailable(cause(said)),
        // The bucket is in another region, which neither its name nor a pointer tells.
        ("PermanentRedirect" | "TemporaryRedirect" | "AuthorizationHeaderMalformed", _) | (_, 301 | 307) => {
            BodyError::Denied(cause(format!("the bucket is in another region: {said}")))
        }
        ("ExpiredToken" | "InvalidToken" | "InvalidAccessKeyId" | "SignatureDoesNotMatch", _) | (_, 401 | 403) => {
            BodyError::Denied(cause(said))
        }
        // The bucket's encryption key cannot be used, until somebody mends that.
        (code, _) if code.starts_with("KMS.") => BodyError::Denied(cause(said)),
        _ => BodyError::Unavailable(cause(said)),
    }
}

fn unanswered<E>(error: SdkError<E>) -> BodyError
where
    E: Error + Send + Sync + 'static,
{
    let mut causes = std::iter::successors(error.source(), |&error| error.source());
    if causes.any(<dyn Error>::is::<CredentialsError>) {
        return BodyError::Denied(Some(error.into()));
    }
    match error {
        // The request could not even be built; another build of it would not be better, but no word of S3 says so.
        SdkError::ConstructionFailure(_) => BodyError::Unavailable(Some(error.into())),
        // A timeout, a connection that broke, or an answer that could not be read.
        _ => BodyError::NoAnswer(Some(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_fails_for_good_by_codes_that_are_known_and_by_nothing_else() {
        for (code, status, meaning) in [
            ("NoSuchKey", 404, "Missing"),
            ("NoSuchBucket", 404, "NoBucket"),
            ("InvalidObjectState", 403, "Refused"),
            ("InvalidBucketName", 400, "Refused"),
            ("KeyTooLongError", 400, "Refused"),
            ("AccessDenied", 403, "Denied"),
            ("AllAccessDisabled", 403, "Denied"),
            ("ExpiredToken", 400, "Denied"),
            ("InvalidToken", 400, "Denied"),
            ("SignatureDoesNotMatch", 403, "Denied"),
            ("RequestTimeTooSkewed", 403, "Unavailable"),
            ("PermanentRedirect", 301, "Denied"),
            ("AuthorizationHeaderMalformed", 400, "Denied"),
            ("KMS.DisabledException", 400, "Denied"),
            ("KMS.ThrottlingException", 400, "Throttled"),
            ("SlowDown", 503, "Throttled"),
            ("ServiceUnavailable", 503, "Unavailable"),
            ("InternalError", 500, "Unavailable"),
            ("RequestTimeout", 400, "NoAnswer"),
            // A gateway, a proxy, or what a later S3 says.
            ("", 404, "Unavailable"),
            ("NotFound", 404, "Unavailable"),
            ("", 400, "Unavailable"),
            ("NewCode", 400, "Unavailable"),
            ("", 429, "Throttled"),
            ("", 502, "NoAnswer"),
            ("", 504, "NoAnswer"),
            ("", 401, "Denied"),
        ] {
            let found = format!("{:?}", by_code(code, status, String::new()));
            assert!(found.starts_with(meaning), "{code} {status}: {found}");
        }
    }
}
