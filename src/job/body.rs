//! The body of a message that is in S3: fetched before its key is derived, once for each delivery.
//!
//! What cannot be had now is tried again later and counts as nobody's failure; what can never be had is the message's. The
//! delivery is kept meanwhile by whoever runs the job.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{Jobs, open::Unopened, outcome::later};
use crate::{
    bodies::{BodyError, LARGEST_BODY},
    causes::in_full,
    config::S3Payload,
    guard::Failure,
    message::{Delivery, Fetched, Message, Pointer},
    settle::{Delayed, Left, Settlement},
};

/// The message with its body, wherever that is.
///
/// # Cancel safety
/// Dropped, it has read at the most.
pub(super) async fn whole(jobs: &Jobs, delivery: &Delivery, message: Arc<Message>) -> Result<Arc<Message>, Unopened> {
    if jobs.config.s3_payload == S3Payload::Pass {
        return Ok(message);
    }
    let Some(pointer) = message.pointer().map_err(|error| Failure::new("malformed", error))? else {
        // It proves nothing of S3, but that a queue with such messages is worth receiving from.
        jobs.bodies_there.succeeded();
        return Ok(message);
    };
    if let Some(whole) = delivery.fetched().as_ref().and_then(|fetched| fetched.message.clone()) {
        return Ok(whole);
    }
    let body = fetch(jobs, delivery, &pointer).await?;
    let whole = Arc::new(message.made_whole(body));
    *delivery.fetched() = Some(Fetched { pointer, message: Some(Arc::clone(&whole)) });
    Ok(whole)
}

async fn fetch(jobs: &Jobs, delivery: &Delivery, pointer: &Pointer) -> Result<String, Unopened> {
    if jobs.config.s3_buckets.as_ref().is_some_and(|buckets| !buckets.contains(pointer.bucket())) {
        let text = format!("the body is at {pointer}, a bucket that S3_BUCKETS does not name");
        return Err(Failure::new("payload_bucket", text).into());
    }
    let Some(bodies) = &jobs.bodies else {
        let text = format!(
            "the body is at {pointer}, and this program was built without the feature `s3`: build it with that, or set \
             S3_PAYLOAD=pass for handlers that fetch it themselves"
        );
        return Err(Failure::new("payload_in_s3", text).into());
    };
    let answer = tokio::select! {
        // A body that is there counts. What is dropped has only been read.
        biased;
        answer = bodies.get(pointer, LARGEST_BODY) => answer,
        () = jobs.halt.cancelled() => {
            return Err(Unopened::Later(later(delivery, jobs.clock.wall(), Delayed::Interrupted)));
        }
        () = delivery.lease.ends_within(Duration::ZERO) => {
            return Err(Unopened::Later(Settlement::Leave(Left::LeaseOver)));
        }
    };
    match answer {
        Ok(body) => {
            jobs.bodies_there.succeeded();
            jobs.bodies_away.is_back(pointer.bucket());
            Ok(body)
        }
        Err(error) => Err(for_good(pointer, &error).map_or_else(|| jobs.away(delivery, pointer, &error), Into::into)),
    }
}

/// The failure of a message whose body can never be had; `None` where it may still be.
fn for_good(pointer: &Pointer, error: &BodyError) -> Option<Failure> {
    let (code, text) = match error {
        BodyError::Missing => (
            "payload_missing",
            format!(
                "the body is not at {pointer} any more: an earlier delivery that did the work may have had it deleted, or a \
                 lifecycle rule of the bucket"
            ),
        ),
        BodyError::NoBucket => ("payload_missing", format!("the body is at {pointer}, and there is no such bucket")),
        BodyError::TooLarge { limit } => (
            "payload_too_large",
            format!("the body at {pointer} is larger than {limit} bytes, the most that is fetched"),
        ),
        BodyError::NotText => {
            ("payload_not_text", format!("what is at {pointer} is not UTF-8, and so no message's body"))
        }
        BodyError::Refused(_) => ("payload_refused", format!("the body at {pointer} cannot be had: {error}")),
        BodyError::Denied(_) | BodyError::Throttled(_) | BodyError::Unavailable(_) | BodyError::NoAnswer(_) => {
            return None;
        }
    };
    Some(Failure::new(code, text))
}

impl Jobs {
    /// Whether it is worth a try to receive again: S3 answers for what it last did not answer for, whatever that answer is.
    /// One message's bucket may be denied for ever, and must not keep others waiting.
    pub(crate) async fn probe_bodies(&self) -> Result<(), String> {
        let last = self.bodies_away.buckets().last.clone();
        let (Some(bodies), Some(pointer)) = (&self.bodies, last) else { return Ok(()) };
        match bodies.get(&pointer, 0).await {
            Err(error) if error.is_transient() => Err(in_full(&error)),
            _ => Ok(()),
        }
    }

    /// Nothing is known of the work: it is neither an attempt nor a failure, and is never dead-lettered for it.
    fn away(&self, delivery: &Delivery, pointer: &Pointer, error: &BodyError) -> Unopened {
        let (queue, message_id, bucket) = (&*self.name, &delivery.message.id, pointer.bucket());
        let error_text = in_full(error);
        // Any of them alone may be its sender's: a bucket that this worker may not read.
        self.bodies_there.unanswered(&format!("a body in the bucket {bucket} cannot be fetched: {error_text}"));
        if self.bodies_away.is_news(pointer) {
            let needs = match error {
                BodyError::Denied(_) => {
                    "; it takes s3:GetObject on the bucket's objects, and s3:ListBucket on the bucket to tell an object that is not there from one that is denied"
                }
                _ => "",
            };
            tracing::error!(
                queue,
                message_id,
                bucket,
                error = error_text,
                "a body cannot be fetched: messages with bodies there wait, and are tried again with growing pauses{needs}"
            );
        } else {
            tracing::debug!(
                queue,
                message_id,
                bucket,
                error = error_text,
                "a body cannot be fetched; tried again later"
            );
        }
        let until = self.clock.wall() + self.backoff(delivery.message.receive_count);
        Unopened::Later(later(delivery, until, Delayed::BodyAway))
    }
}

/// Bodies that cannot be fetched now.
#[derive(Debug, Default)]
pub(crate) struct Away(Mutex<Buckets>);

#[derive(Debug, Default)]
struct Buckets {
    /// Those that were told: each once, and not with every message.
    told: BTreeSet<String>,
    /// What was last looked for in vain.
    last: Option<Pointer>,
}

/// More at once than a worker has buckets; senders can name any number.
const REMEMBERED: usize = 100;

impl Away {
    fn buckets(&self) -> MutexGuard<'_, Buckets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether that is news of its bucket.
    fn is_news(&self, pointer: &Pointer) -> bool {
        let mut buckets = self.buckets();
        buckets.last = Some(pointer.clone());
        buckets.told.len() < REMEMBERED && buckets.told.insert(pointer.bucket().to_owned())
    }

    fn is_back(&self, bucket: &str) {
        if self.buckets().told.remove(bucket) {
            tracing::info!(bucket, "bodies can be fetched again");
        }
    }
}
