//! The queue port: what the worker needs of SQS, and no more.
//!
//! Adapters are [`memory`] and [`sqs`]. They answer in the meanings below and never in an SDK's words; whatever
//! batching a protocol allows happens inside them, so that one call here is one message for its caller.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::message::{Message, ReceiptHandle};

mod accepted;
pub mod memory;
mod moving;
mod outgoing;
pub mod sqs;

pub use accepted::attribute_problem;
pub use moving::{Depth, Move, MoveStatus, MoveTask};
pub use outgoing::Outgoing;

/// AWS's longest visibility timeout, counted from the receive.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html>
pub const LONGEST_VISIBILITY: Duration = Duration::from_secs(12 * 60 * 60);

/// The most messages one receive can bring, and the most entries of one batch.
pub const BATCH: usize = 10;

/// The most bytes of one message, and of all messages of one batch: body and attributes (names, types, values).
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html>
pub const LARGEST_MESSAGE: usize = 1024 * 1024;

/// The most message attributes of one message.
pub const MOST_ATTRIBUTES: usize = 10;

/// One queue.
///
/// # Contract
/// - Every call ends: an adapter MUST bound each with a timeout of its own.
/// - Calls are independent. An adapter MAY gather calls that come close together into one batch, MUST answer each by its
///   own entry's verdict, and MUST NOT let one bad entry fail another.
/// - An adapter MAY send a delete or a send again by itself when that is harmless. It MUST NOT send a receive twice, for
///   an answer that is lost takes its messages with it, nor a visibility change whose outcome is unknown, for it could
///   arrive after a later one.
/// - Dropping a call's future MUST NOT undo or repeat what was sent; the outcome is then unknown.
#[async_trait]
pub trait Queue: fmt::Debug + Send + Sync + 'static {
    /// Waits for messages and takes up to `ask.max` of them; none within `ask.wait` is an empty answer.
    ///
    /// Messages are [unpacked](Message::unpacked). On a FIFO queue, order inside a group is the order in the answer.
    ///
    /// # Cancel safety
    /// Not cancel safe: messages that the queue hands to a dropped call stay hidden for a whole visibility timeout.
    async fn receive(&self, ask: &Receive) -> Result<Vec<Received>, QueueError>;

    /// Deletes the message. `Ok` proves nothing: SQS also answers so for a handle that was superseded, and keeps the
    /// message.
    async fn delete(&self, handle: &ReceiptHandle) -> Result<(), QueueError>;

    /// Makes the message visible `timeout` from now (whole seconds; zero is at once). `Ok` is no proof of ownership: an
    /// old handle can shorten the timeout of a later receive.
    async fn change_visibility(&self, handle: &ReceiptHandle, timeout: Duration) -> Result<(), QueueError>;

    /// Sends a message, once or more.
    async fn send(&self, message: &Outgoing) -> Result<(), QueueError>;

    /// Looks the queue's settings up.
    async fn facts(&self) -> Result<QueueFacts, QueueError>;

    /// Looks up how many messages there are. For tools; a worker never asks.
    async fn depth(&self) -> Result<Depth, QueueError> {
        Err(QueueError::Unsupported("this queue does not count its messages".to_owned()))
    }

    /// Looks up the URLs of the queues whose redrive policies name this one. For tools.
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ListDeadLetterSourceQueues.html>
    async fn sources(&self) -> Result<Vec<String>, QueueError> {
        Err(QueueError::Unsupported("this queue does not tell whose dead-letter queue it is".to_owned()))
    }
}

/// Where queues come from: an AWS account, an embedded engine, or memory.
#[async_trait]
pub trait Broker: fmt::Debug + Send + Sync + 'static {
    /// Finds a queue. [`QueueError::Missing`] where there is none.
    async fn open(&self, address: &QueueAddress) -> Result<Arc<dyn Queue>, QueueError>;

    /// Where such a queue is looked for, in words, for whom it is not found; `None` if there is but one place.
    fn looks_in(&self, address: &QueueAddress) -> Option<String> {
        let _ = address;
        None
    }

    /// Begins to move all messages of a dead-letter queue. [`QueueError::Unsupported`] where the service has no such tasks,
    /// or not for these queues: the first must be one that a redrive policy names. A queue has one task at a time.
    async fn start_move(&self, task: &Move) -> Result<(), QueueError> {
        Err(QueueError::Unsupported(format!("no task can move {}", task.from)))
    }

    /// The latest move from the queue of this ARN, which runs or has ended; `None` if there was none.
    async fn latest_move(&self, from: &str) -> Result<Option<MoveTask>, QueueError> {
        let _ = from;
        Ok(None)
    }

    /// Tells a move that runs, from the queue of this ARN, to stop. What it has moved stays moved.
    async fn cancel_move(&self, from: &str, handle: &str) -> Result<(), QueueError> {
        Err(QueueError::Unsupported(format!("no task {handle} moves {from}")))
    }
}

/// How a queue is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueAddress {
    /// By its name, in the account and region of the credentials.
    Name(String),
    /// By its URL, in any region and account.
    Url(String),
    /// By its ARN, as redrive policies do, in any region and account.
    Arn(String),
}

impl QueueAddress {
    /// The queue's name in SQS: what stands last in a URL or an ARN.
    #[must_use]
    pub fn queue_name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Url(url) => url.rsplit('/').next().unwrap_or_default(),
            Self::Arn(arn) => arn.rsplit(':').next().unwrap_or_default(),
        }
    }
}

impl fmt::Display for QueueAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Name(text) | Self::Url(text) | Self::Arn(text)) = self;
        f.write_str(text)
    }
}

/// What a queue's dead-letter queue is called, most often: `payments-dlq`, `payments-dlq.fifo`.
#[must_use]
pub fn usual_dead_letter_name(queue: &str) -> String {
    match queue.strip_suffix(".fifo") {
        Some(stem) => format!("{stem}-dlq.fifo"),
        None => format!("{queue}-dlq"),
    }
}

/// One long poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receive {
    /// At most this many messages, 1 to [`BATCH`].
    pub max: usize,
    /// How long the queue waits for a first message, in whole seconds, at most 20.
    pub wait: Duration,
    /// How long what is received stays hidden, in whole seconds.
    pub visibility: Duration,
    /// On FIFO queues: the same id again brings the same messages again, while none of them has changed.
    pub attempt_id: Option<String>,
}

/// One message, as one receive brought it.
#[derive(Debug, Clone)]
pub struct Received {
    /// What was sent.
    pub message: Message,
    /// What it is settled with.
    pub handle: ReceiptHandle,
}

/// A queue's settings, as far as they matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueFacts {
    /// Its ARN.
    pub arn: String,
    /// Its URL.
    pub url: String,
    /// Whether it is a FIFO queue.
    pub fifo: bool,
    /// Whether a FIFO queue takes a hash of the body where a message has no deduplication id.
    pub content_based_deduplication: bool,
    /// Among which messages a FIFO queue looks for a duplicate.
    pub deduplication_scope: DeduplicationScope,
    /// Its own visibility timeout.
    pub visibility: Duration,
    /// How long it keeps a message that nobody deletes.
    pub retention: Duration,
    /// Where it moves what was received too often; `None` without a redrive policy.
    pub redrive: Option<RedrivePolicy>,
    /// Which queues may move messages here.
    pub redrive_allow: RedriveAllow,
    /// The largest message that it takes, in bytes.
    pub largest_message: usize,
    /// The KMS key that it encrypts messages with; `None` for SQS's own encryption, which asks nothing of a worker.
    pub kms_key: Option<String>,
}

#[cfg(test)]
impl QueueFacts {
    /// Of a new queue of this name.
    pub(crate) fn example(name: &str) -> Self {
        Self {
            arn: format!("arn:aws:sqs:eu-central-1:123456789012:{name}"),
            url: format!("https://sqs.eu-central-1.amazonaws.com/123456789012/{name}"),
            fifo: name.ends_with(".fifo"),
            content_based_deduplication: false,
            deduplication_scope: DeduplicationScope::Queue,
            visibility: Duration::from_secs(30),
            retention: Duration::from_secs(4 * 24 * 60 * 60),
            redrive: None,
            redrive_allow: RedriveAllow::All,
            largest_message: LARGEST_MESSAGE,
            kms_key: None,
        }
    }
}

/// Which queues may name a queue as their dead-letter queue.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html>
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedriveAllow {
    /// All of its account and region. So it is without a policy.
    #[default]
    All,
    /// None.
    Nobody,
    /// Those of these ARNs.
    These(Vec<String>),
}

/// Among which messages a FIFO queue looks for a duplicate of what it is sent.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/high-throughput-fifo.html>
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeduplicationScope {
    /// All of the queue: one id names one message, whatever its group.
    #[default]
    Queue,
    /// Those of the message's own group, as high-throughput FIFO queues do: the same id in another group is another
    /// message.
    MessageGroup,
}

/// A queue's redrive policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedrivePolicy {
    /// The ARN of the dead-letter queue.
    pub dead_letter_arn: String,
    /// After this many receives the message is moved instead of being received once more.
    pub max_receive_count: u32,
}

/// Why a queue call did not do what was asked, by meaning.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The handle is no longer good: the message is gone, visible again, or received by another. Never use it again.
    #[error("the receipt handle is no longer valid")]
    HandleLost,
    /// The change would keep the message hidden for more than 12 hours after its receive. The lease stands as it was.
    #[error("the message cannot be hidden for more than 12 hours after its receive")]
    TwelveHours,
    /// The queue was told to slow down; nothing was done.
    #[error("throttled")]
    Throttled(#[source] Option<Cause>),
    /// The queue answered that it could not do it; nothing was done.
    #[error("the queue could not do it")]
    Unavailable(#[source] Option<Cause>),
    /// No answer came: it may have been done.
    #[error("no answer came")]
    NoAnswer(#[source] Option<Cause>),
    /// The credentials do not allow the call, are missing, or have expired.
    #[error("access denied")]
    Denied(#[source] Option<Cause>),
    /// There is no such queue.
    #[error("the queue does not exist")]
    Missing,
    /// The request can never succeed: too large, characters that SQS does not take, and the like.
    #[error("the queue refuses the request: {0}")]
    Refused(String),
    /// The service, or this kind of queue, does not have the operation.
    #[error("the service cannot do that: {0}")]
    Unsupported(String),
}

/// What an adapter met, kept for the log.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

impl QueueError {
    /// Whether access is denied for want of credentials: there are none, or they are wrong, or have expired. A right that is
    /// missing is something else.
    #[must_use]
    pub fn lacks_credentials(&self) -> bool {
        crate::causes::NoCredentials::is_behind(self)
    }

    /// Whether the same call may well succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Throttled(_) | Self::Unavailable(_) | Self::NoAnswer(_))
    }
}
