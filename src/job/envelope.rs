//! What messages of a queue come wrapped in: taking them out, and telling where the setting for it is wrong.
//!
//! A copy for the DLQ is made of what was received, so nothing here changes that. A wrong setting is found at the first
//! message, which says how to mend it; whole bodies are looked at for that only once, and where one has failed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::Jobs;
use crate::{
    config::{Envelope, variable},
    guard::Failure,
    message::{
        Delivery, MALFORMED, Message,
        envelope::{self, EnvelopeError, Form},
    },
};

/// Whether it was told that envelopes are handed on as they are. Once for a queue is enough: some handlers want them.
#[derive(Debug, Default)]
pub(crate) struct Told(AtomicBool);

/// The message that was meant for the handler.
pub(super) fn take_out(jobs: &Jobs, delivery: &Delivery) -> Result<Arc<Message>, Failure> {
    let received = &delivery.message;
    match jobs.config.envelope {
        Envelope::Raw => Ok(Arc::clone(received)),
        Envelope::Sns => envelope::open(received).map(Arc::new).map_err(|error| {
            let failure = Failure::new(MALFORMED, &error);
            let failure = match error {
                EnvelopeError::Other(form @ (Form::Subscription | Form::Unsubscription)) => {
                    failure.hinting(form.advice().unwrap_or_default())
                }
                EnvelopeError::Other(_) => {
                    failure.hinting(format!("{} hands bodies on as they are", line(jobs, Envelope::Raw)))
                }
                EnvelopeError::Broken(_) => failure,
            };
            // Where an envelope is broken it is told where, and not what stands there.
            delivery.about().is_unreadable(failure.text.clone());
            failure
        }),
    }
}

/// A failure to make anything of a body, with what can be done about a body of its form.
pub(super) fn explained(jobs: &Jobs, message: &Message, failure: Failure) -> Failure {
    let form = Form::of(&message.body);
    match (form, jobs.config.envelope) {
        (Form::Notification, Envelope::Raw) => {
            failure.hinting(format!("the body is {form}: {} takes it out", line(jobs, Envelope::Sns)))
        }
        _ => match form.advice() {
            Some(advice) => failure.hinting(format!("the body is {form}: {advice}")),
            None => failure,
        },
    }
}

/// Tells once if a handler is handed what SNS puts around messages.
pub(super) fn notice(jobs: &Jobs, message: &Message) {
    if jobs.config.envelope != Envelope::Raw || !Form::may_be_notification(&message.body) {
        return;
    }
    if !jobs.envelope_told.0.swap(true, Ordering::Relaxed) && Form::of(&message.body) == Form::Notification {
        tracing::warn!(
            queue = &*jobs.name,
            "bodies are SNS notifications and handed on as they are; {} takes the messages out",
            line(jobs, Envelope::Sns)
        );
    }
}

fn line(jobs: &Jobs, envelope: Envelope) -> String {
    format!("{}={envelope}", variable(&jobs.name, "ENVELOPE"))
}
