//! From what was received to what its handler takes, and to the key that names it.
//!
//! Users' code runs here (a codec, a key function), so panics are caught: they are the message's failure, not ours. What
//! fails here never will be well, and never has a claim (rule T4); what only cannot be opened yet is told apart.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use tracing::Span;

use super::{Jobs, body, envelope};
use crate::{
    guard::{Failure, Pk},
    handler::Work,
    key,
    message::{Delivery, MALFORMED, Message},
    settle::Settlement,
    trace,
};

/// A message as its handler sees it. A copy for the DLQ is always made of what was received.
pub(super) struct Opened {
    pub(super) message: Arc<Message>,
    pub(super) work: Arc<dyn Work>,
}

/// What one message is about. Derived once, from the bytes that the handler gets (rule G10).
pub(super) struct Identity {
    pub(super) pk: Option<Pk>,
    pub(super) fingerprint: Option<String>,
}

/// Why a message is not opened.
pub(super) enum Unopened {
    /// It never will be.
    Failed(Failure),
    /// It cannot be opened now, which says nothing about its work.
    Later(Settlement),
}

impl From<Failure> for Unopened {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Unopened {
    pub(super) fn settlement(self, jobs: &Jobs, received: &Message) -> Settlement {
        match self {
            Self::Failed(failure) => jobs.unrecorded(received, failure),
            Self::Later(settlement) => settlement,
        }
    }
}

/// Opens a message: what the handler takes is in its body, or in what that is wrapped in, and may have to be fetched.
pub(super) async fn open(jobs: &Jobs, delivery: &Delivery) -> Result<Opened, Unopened> {
    let message = envelope::take_out(jobs, delivery)?;
    if !Arc::ptr_eq(&message, &delivery.message) {
        // Published by somebody who knows nothing of the queue.
        trace::link(&Span::current(), &message);
    }
    let message = body::whole(jobs, delivery, message).await?;
    let malformed = |text: String| envelope::explained(jobs, &message, Failure::new(MALFORMED, text));
    let failed = |text: String, told: String| {
        delivery.about().is_unreadable(malformed(told).text);
        malformed(text)
    };
    let work = caught(|| {
        let decoded = Arc::clone(&jobs.handler).decode(&message);
        decoded.map_err(|error| failed(error.to_string(), error.without_the_body()))
    });
    let work = work.unwrap_or_else(|panic| Err(failed(format!("decoding {panic}"), "decoding panicked".into())))?;
    Ok(Opened { message, work })
}

/// The key that names the work, and what tells it from other work under the same key.
pub(super) fn identify(jobs: &Jobs, opened: &Opened) -> Result<Identity, Failure> {
    let identity = derive(jobs, opened).map_err(|failure| envelope::explained(jobs, &opened.message, failure))?;
    envelope::notice(jobs, &opened.message);
    Ok(identity)
}

fn derive(jobs: &Jobs, Opened { message, work }: &Opened) -> Result<Identity, Failure> {
    let no_key = |text: String| Failure::new("no_key", text);
    // Only a record compares it, and a large body takes a while to hash.
    let fingerprint = jobs.guard.as_ref().and_then(|_| jobs.config.fingerprint.of(message));
    // Message and deduplication ids do not survive the DLQ: what the failure noted is the key it was claimed under.
    let noted = message.dead_letter.as_ref().and_then(|note| note.pk.clone()).map(Pk);
    if let Some(pk) = noted.filter(|pk| key::belongs(pk, jobs.namespace.as_deref(), &jobs.config.operation)) {
        return Ok(Identity { pk: Some(pk), fingerprint });
    }
    let key = match (caught(|| work.key()), &jobs.config.key) {
        (Err(panic), _) => return Err(no_key(format!("the key function {panic}"))),
        (Ok(Some(key)), _) => key,
        (Ok(None), Some(source)) => source.derive(message).map_err(|error| no_key(error.to_string()))?,
        (Ok(None), None) => return Ok(Identity { pk: None, fingerprint }),
    };
    let pk = key::pk(jobs.namespace.as_deref(), &jobs.config.operation, &key, jobs.key_hash)
        .ok_or_else(|| no_key("the message has no key: the key function returned nothing, or an empty text".into()))?;
    Ok(Identity { pk: Some(pk), fingerprint })
}

fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| format!("panicked: {}", panic_text(&*panic)))
}

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text")
}
