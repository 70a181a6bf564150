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
    message::{Delivery, Fetched, MALFORMED, Message, Pointer},
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
    let Some(pointer) = message.pointer().map_err(|error| {
        delivery.about().is_unreadable(error.to_string());
        Failure::new(MALFORMED, error)
    })?
    else {
        // It proves nothing of S3, but that it is worth while to receive.
        if jobs.bodies_there.is_trial() {
            jobs.bodies_there.succeeded();
        }
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
        () = delivery.term.halt.cancelled() => {
            return Err(Unopened::Later(later(delivery, jobs.clock.wall(), Delayed::Interrupted)));
        }
        () = delivery.lease.ends_within(Duration::ZERO) => {
            return Err(Unopened::Later(Settlement::Leave(Left::LeaseOver)));
        }
    };
    let error = match answer {
        Ok(body) => {
            jobs.answered(pointer);
            return Ok(body);
        }
        Err(error) => error,
    };
    let Some(failure) = for_good(pointer, &error) else { return Err(jobs.away(delivery, pointer, &error)) };
    jobs.answered(pointer);
    Err(failure.into())
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
    /// What it never answers for may be that one message's fault, and must not keep others waiting for ever.
    pub(crate) async fn probe_bodies(&self) -> Result<(), String> {
        let Some((pointer, probes)) = self.bodies_away.next_probe() else { return Ok(()) };
        let Some(bodies) = &self.bodies else { return Ok(()) };
        match bodies.get(&pointer, 0).await {
            Err(error) if error.is_transient() && probes % PROBES != 0 => Err(in_full(&error)),
            _ => Ok(()),
        }
    }

    /// S3 has answered for a body, whatever it was.
    fn answered(&self, pointer: &Pointer) {
        self.bodies_away.answered(pointer.bucket());
        self.bodies_there.succeeded();
    }

    /// Nothing is known of the work: it is neither an attempt nor a failure, and is never dead-lettered for it.
    fn away(&self, delivery: &Delivery, pointer: &Pointer, error: &BodyError) -> Unopened {
        let (queue, message_id, bucket) = (&*self.name, &delivery.message.id, pointer.bucket());
        let error_text = in_full(error);
        let (is_news, is_outage) = self.bodies_away.missed(message_id, pointer, self.bodies_there.is_trial());
        if is_outage {
            self.bodies_there.open(&format!("a body in the bucket {bucket} cannot be fetched: {error_text}"), None);
        }
        if is_news {
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
pub(crate) struct Away(Mutex<Missed>);

#[derive(Debug, Default)]
struct Missed {
    /// Buckets that were told: each once, and not with every message.
    told: BTreeSet<String>,
    /// Messages whose body was not to be had since S3 last answered for one.
    messages: BTreeSet<String>,
    /// How many of them are new since the last outage was told, and how many others failed once more on trial.
    new: usize,
    again: usize,
    /// What was last looked for in vain, and how often it was probed for.
    last: Option<(Pointer, u32)>,
}

/// More at once than a worker has buckets; senders can name any number. And of messages so many times ten.
const REMEMBERED: usize = 100;

/// So many messages in a row without their bodies are an outage (rule G8). One alone may be its sender's fault, however
/// often it comes: a bucket that this worker may not read.
const OUTAGE: usize = 3;

/// Those that are known to have none may come first on a trial; so many times they do not count.
const KNOWN: usize = 10;

/// Each so many probes in vain, messages are tried all the same: some minutes.
const PROBES: u32 = 10;

impl Away {
    fn lock(&self) -> MutexGuard<'_, Missed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether that is news of its bucket, and whether it makes an outage.
    fn missed(&self, message_id: &str, pointer: &Pointer, on_trial: bool) -> (bool, bool) {
        let mut missed = self.lock();
        missed.last = Some((pointer.clone(), 0));
        if missed.messages.len() >= 10 * REMEMBERED {
            missed.messages.clear();
        }
        if missed.messages.insert(message_id.to_owned()) {
            missed.new += 1;
        } else if on_trial {
            missed.again += 1;
        }
        let is_outage = missed.new >= OUTAGE || missed.again >= KNOWN;
        if is_outage {
            (missed.new, missed.again) = (0, 0);
        }
        let is_news = missed.told.len() < REMEMBERED && missed.told.insert(pointer.bucket().to_owned());
        (is_news, is_outage)
    }

    fn next_probe(&self) -> Option<(Pointer, u32)> {
        self.lock().last.as_mut().map(|(pointer, probes)| {
            *probes = probes.saturating_add(1);
            (pointer.clone(), *probes)
        })
    }

    fn answered(&self, bucket: &str) {
        let was_told = {
            let mut missed = self.lock();
            missed.messages.clear();
            (missed.new, missed.again) = (0, 0);
            missed.told.remove(bucket)
        };
        if was_told {
            tracing::info!(bucket, "S3 answers for bodies again");
        }
    }
}
