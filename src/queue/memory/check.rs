//! What SQS refuses before it looks at a queue's messages.
//!
//! Each check follows the API reference of its action,
//! <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/>, and the quotas,
//! <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html>.

use std::time::Duration;

use crate::queue::{
    BATCH, LONGEST_VISIBILITY, MOST_ATTRIBUTES, Outgoing, QueueError, QueueFacts, Receive,
    accepted::{attribute_problem, is_allowed},
};

/// AWS's longest long poll.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// AWS's longest `DelaySeconds`.
const LONGEST_DELAY: Duration = Duration::from_secs(15 * 60);

/// `ReceiveMessage`.
pub(super) fn receive(ask: &Receive) -> Result<(), QueueError> {
    whole_seconds("WaitTimeSeconds", ask.wait)?;
    whole_seconds("VisibilityTimeout", ask.visibility)?;
    ensure((1..=BATCH).contains(&ask.max), "MaxNumberOfMessages must be from 1 to 10")?;
    ensure(ask.wait <= LONGEST_WAIT, "WaitTimeSeconds must be 20 at the most")?;
    ensure(ask.visibility <= LONGEST_VISIBILITY, "VisibilityTimeout must be 43200 at the most")
}

/// `SendMessage`.
pub(super) fn send(message: &Outgoing, queue: &QueueFacts) -> Result<(), QueueError> {
    ensure(!message.body.is_empty(), "the body must not be empty")?;
    ensure(message.body.chars().all(is_allowed), "the body has characters that SQS does not take")?;
    let most = queue.largest_message;
    ensure(message.size() <= most, &format!("the message is larger than {most} bytes"))?;
    ensure(message.attributes.len() <= MOST_ATTRIBUTES, "there are more than 10 message attributes")?;
    for (name, attribute) in &message.attributes {
        let problem = attribute_problem(name, attribute);
        ensure(problem.is_none(), &format!("the message attribute {name:?} {}", problem.unwrap_or_default()))?;
    }
    let delay = message.delay.unwrap_or_default();
    whole_seconds("DelaySeconds", delay)?;
    ensure(delay <= LONGEST_DELAY, "DelaySeconds must be 900 at the most")?;
    if queue.fifo {
        ensure(message.group.is_some(), "a FIFO queue requires MessageGroupId")?;
        ensure(
            message.deduplication_id.is_some() || queue.content_based_deduplication,
            "a FIFO queue without ContentBasedDeduplication requires MessageDeduplicationId",
        )?;
        ensure(delay.is_zero(), "a FIFO queue takes no DelaySeconds on a message")
    } else {
        ensure(message.deduplication_id.is_none(), "a standard queue takes no MessageDeduplicationId")
    }
}

/// SQS counts in seconds. An adapter would have to round; here a caller that relies on it is found out.
pub(super) fn whole_seconds(name: &str, duration: Duration) -> Result<(), QueueError> {
    ensure(duration.subsec_nanos() == 0, &format!("{name} must be in whole seconds"))
}

fn ensure(holds: bool, otherwise: &str) -> Result<(), QueueError> {
    if holds { Ok(()) } else { Err(QueueError::Refused(otherwise.to_owned())) }
}
