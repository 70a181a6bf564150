//! What a queue hands out: the message, and the delivery that owns its receipt handle.
//!
//! A [`Message`] is data and may be read by anybody; a `Delivery` is the right to settle it, and settling consumes
//! it. Nothing here calls a queue.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use tokio::time::Instant;

use crate::{
    clock::Millis,
    lease::{Lease, Term},
    settle::dead_letter,
    telemetry::InHand,
};

pub(crate) use about::{About, MALFORMED};

pub use dead_letter::{ATTRIBUTE as DEAD_LETTER_ATTRIBUTE, Note};
pub use envelope::Sns;
pub(crate) use pointer::Fetched;
pub use pointer::{NotAPointer, Pointer, RESERVED_ATTRIBUTES};

mod about;
pub(crate) mod envelope;
mod pointer;

/// What was received, before it is decoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// SQS's id of the message. It changes when a producer sends the same work again, and on every redrive.
    pub id: String,
    /// The body, as it came; for handlers of a queue with `ENVELOPE=sns`, as it was published.
    pub body: String,
    /// The message attributes, without Leasehold's own.
    pub attributes: BTreeMap<String, Attribute>,
    /// How often the message was received, this time included. Counts deliveries, not attempts.
    pub receive_count: u32,
    /// When the message was sent, by SQS's clock.
    pub sent_at: Option<Millis>,
    /// The message group id, on FIFO queues and on fair standard queues.
    pub group: Option<String>,
    /// The deduplication id, on FIFO queues.
    pub deduplication_id: Option<String>,
    /// The X-Ray trace header (`AWSTraceHeader`).
    pub trace_header: Option<String>,
    /// What an earlier failure left in the message's dead-letter attribute: this message comes from a redrive.
    pub dead_letter: Option<Note>,
    /// The ARN of the queue that SQS itself moved this message from, if it was received from a dead-letter queue. Copies
    /// that a worker sent have none.
    pub moved_from: Option<String>,
    /// What SNS says of it, on a queue with `ENVELOPE=sns`.
    pub sns: Option<Sns>,
}

impl Message {
    /// A message attribute as text; `None` if it is absent or binary.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        match &self.attributes.get(name)?.value {
            AttributeValue::Text(text) => Some(text),
            AttributeValue::Binary(_) => None,
        }
    }

    /// Takes Leasehold's own attribute out of the attributes and puts back those that it displaced. For queue adapters:
    /// to be called once on every message that was received.
    #[must_use]
    pub fn unpacked(mut self) -> Self {
        dead_letter::unpack(&mut self);
        self
    }
}

/// One message attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// `String`, `Number` or `Binary`, or one of these with a label of the sender's own, as in `Number.int`. From SNS also
    /// `String.Array`, a list as JSON.
    pub data_type: String,
    /// Its value.
    pub value: AttributeValue,
}

impl Attribute {
    /// An attribute of type `String`.
    #[must_use]
    pub fn text(value: impl Into<String>) -> Self {
        Self { data_type: "String".into(), value: AttributeValue::Text(value.into()) }
    }
}

/// The value of a message attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// Of a `String` or a `Number`.
    Text(String),
    /// Of a `Binary`.
    Binary(Vec<u8>),
}

/// What SQS calls a receipt handle: names one receive of one message. Opaque, and of no use once superseded.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiptHandle(Arc<str>);

impl ReceiptHandle {
    /// From what the queue said.
    #[must_use]
    pub fn new(handle: impl Into<Arc<str>>) -> Self {
        Self(handle.into())
    }

    /// As the queue wants it back.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Shortened: a handle is several hundred characters of noise in a log.
impl fmt::Debug for ReceiptHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceiptHandle({:.12})", &*self.0)
    }
}

/// One receive of one message: the right to settle it. Settling consumes it.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) message: Arc<Message>,
    pub(crate) handle: ReceiptHandle,
    /// Until when SQS hides the message from others, as far as we know.
    pub(crate) lease: Lease,
    /// How long there is for it here, whatever its leases say.
    pub(crate) term: Term,
    /// SQS gives the message to nobody but the dead-letter queue after this receive (rule T6).
    pub(crate) is_last: bool,
    /// Locked for single lines.
    pub(crate) about: Mutex<About>,
    /// Runs of this delivery that failed without a record to count them: one that waited in place has more than one.
    pub(crate) failed: AtomicU32,
    /// The message with its body from elsewhere, once that is fetched: a delivery that waits in place for a moment does not
    /// fetch it again. What was received stays beside it, for that is what is dead-lettered. Locked for single lines.
    pub(crate) fetched: Mutex<Option<Fetched>>,
    /// When it was received.
    pub(crate) received: Instant,
    /// A run of it has begun.
    pub(crate) begun: AtomicBool,
    /// Counts it until it is settled.
    #[expect(dead_code, reason = "it counts by being there")]
    pub(crate) in_hand: InHand,
}

impl Delivery {
    /// Which attempt a run is, where no record counts them.
    pub(crate) fn attempt(&self) -> u32 {
        self.message.receive_count.saturating_add(self.failed.load(Ordering::Relaxed))
    }

    /// Puts down a body that was fetched, for it is large; it is fetched again when it is needed.
    pub(crate) fn put_down_its_body(&self) {
        if let Some(fetched) = self.fetched().as_mut() {
            fetched.message = None;
        }
    }

    /// Lets go of a body that was fetched, for settling may take a while; where it came from stays.
    pub(crate) fn let_go_of_its_body(&self) -> Option<Pointer> {
        self.fetched().take().map(|fetched| fetched.pointer)
    }

    pub(crate) fn about(&self) -> MutexGuard<'_, About> {
        self.about.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fetched(&self) -> MutexGuard<'_, Option<Fetched>> {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
