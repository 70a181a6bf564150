//! Bodies in S3, by the AWS SDK.
//!
//! Relies on a client whose single attempts are bounded, and which does not retry: an object is read long after the SDK
//! takes its call for done, so what is tried again, and until when, is said here. Never lists, and never asks for more than
//! the one object.

use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_s3::Client;
use tokio::time::{sleep, timeout};

use super::{Bodies, BodyError};
use crate::{clock::Clock, message::Pointer};

mod errors;
#[cfg(test)]
mod tests;

/// Attempts of one call, the first included: what is throttled or broke off is mostly well at the next. What is not, is
/// tried again when its message comes again.
const TRIES: u32 = 3;

/// Pauses between two attempts: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// The longest that a body may stand still while it is read. What has not moved for so long does not move again.
const STALL: Duration = Duration::from_secs(10);

/// The whole of reading a body, all attempts included. The [largest](super::LARGEST_BODY) comes through in it at 1 MiB a
/// second.
const GET: Duration = Duration::from_secs(5 * 60);

/// The whole of a delete, all attempts included. Nobody waits for it but a drain.
const DELETE: Duration = Duration::from_secs(15);

/// Buckets in S3.
#[derive(Debug, Clone)]
pub struct S3Bodies {
    client: Client,
    clock: Clock,
}

impl S3Bodies {
    /// By this client, best that of [`Aws`](crate::aws::Aws).
    #[must_use]
    pub fn new(client: Client, clock: Clock) -> Self {
        Self { client, clock }
    }

    /// Calls until it is answered, or as often as it may.
    async fn tried<T, F>(&self, whole: Duration, call: impl Fn() -> F) -> Result<T, BodyError>
    where
        F: Future<Output = Result<T, BodyError>>,
    {
        let tries = async {
            for attempt in 1..TRIES {
                match call().await {
                    Err(error) if error.is_transient() => sleep(self.clock.backoff(PAUSE, attempt)).await,
                    answer => return answer,
                }
            }
            call().await
        };
        timeout(whole, tries).await.unwrap_or_else(|late| Err(BodyError::NoAnswer(Some(late.into()))))
    }

    async fn read(&self, pointer: &Pointer, limit: usize) -> Result<String, BodyError> {
        let asked = self.client.get_object().bucket(pointer.bucket()).key(pointer.key());
        let object = asked.send().await.map_err(errors::meaning)?;
        let told = object.content_length().and_then(|length| usize::try_from(length).ok());
        if told.is_some_and(|length| length > limit) {
            return Err(BodyError::TooLarge { limit });
        }
        let (mut stream, mut body) = (object.body, Vec::with_capacity(told.unwrap_or_default()));
        let stands_still = || BodyError::NoAnswer(Some(format!("nothing came for {} s", STALL.as_secs()).into()));
        while let Some(part) = timeout(STALL, stream.next()).await.map_err(|_| stands_still())? {
            // A connection that broke, or a checksum that does not fit.
            let part = part.map_err(|error| BodyError::NoAnswer(Some(error.into())))?;
            if body.len() + part.len() > limit {
                return Err(BodyError::TooLarge { limit });
            }
            body.extend_from_slice(&part);
        }
        if told.is_some_and(|length| length != body.len()) {
            return Err(BodyError::NoAnswer(Some("the body broke off".into())));
        }
        String::from_utf8(body).map_err(|_| BodyError::NotText)
    }
}

#[async_trait]
impl Bodies for S3Bodies {
    async fn get(&self, pointer: &Pointer, limit: usize) -> Result<String, BodyError> {
        self.tried(GET, || self.read(pointer, limit)).await
    }

    async fn delete(&self, pointer: &Pointer) -> Result<(), BodyError> {
        let call = || async {
            let asked = self.client.delete_object().bucket(pointer.bucket()).key(pointer.key());
            asked.send().await.map(drop).map_err(errors::meaning)
        };
        match self.tried(DELETE, call).await {
            Err(BodyError::Missing) => Ok(()),
            answer => answer,
        }
    }
}
