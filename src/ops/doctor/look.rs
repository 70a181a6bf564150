//! Facts, and which rights there are: all calls to AWS that `doctor` makes.
//!
//! Owns what is asked, and what of an answer is "not there", "not allowed" or "not reached". Must change nothing but the item
//! that workers probe the table with, and that only in a table that fits; and judge nothing.

use std::{sync::Arc, time::Duration};

use super::{super::Ops, queue::Asked};
use crate::{
    causes::in_full,
    config::{Config, DeadLetter, GuardMode, Problem, variable},
    fit::{self, Destination},
    guard::{Change, ControlKey, GuardError, TableFacts, admin},
    key::{self, Key, KeyHash},
    message::{Attribute, AttributeValue, ReceiptHandle},
    queue::{Outgoing, Queue, QueueAddress, QueueError, QueueFacts, usual_dead_letter_name},
};

/// A queue, as far as it could be looked at.
#[derive(Debug)]
pub(super) enum Look {
    Seen(Box<QueueFacts>),
    /// It is there, and its settings are not shown.
    Denied(String),
    /// Nobody was asked, or nobody answers: there are no credentials that hold. What was said.
    NoCredentials(String),
    /// There is none.
    Absent(Problem),
    /// It cannot be used at all.
    Unusable(Problem),
    /// No answer.
    Away(String),
}

impl Look {
    pub(super) fn facts(&self) -> Option<&QueueFacts> {
        match self {
            Self::Seen(facts) => Some(facts),
            _ => None,
        }
    }

    fn answered(&self) -> bool {
        !matches!(self, Self::Away(_))
    }
}

/// What a call that could do nothing says of the right to it.
pub(super) type Tried<E> = (&'static str, Result<(), E>);

/// Everything that is to be known of one queue.
#[derive(Debug)]
pub(super) struct Examined {
    pub(super) queue: Look,
    pub(super) rights: Vec<Tried<QueueError>>,
    /// Where dead letters go. Of a queue that is not there, or names none, that of the usual name is looked at.
    pub(super) destination: Result<Destination, Problem>,
    pub(super) dead_letters: Option<DeadLetters>,
}

/// A dead-letter queue.
#[derive(Debug)]
pub(super) struct DeadLetters {
    pub(super) address: QueueAddress,
    pub(super) queue: Look,
    pub(super) rights: Vec<Tried<QueueError>>,
}

impl Examined {
    pub(super) async fn take(ops: &Ops, asked: &Asked<'_>) -> Self {
        let address = &asked.config.address;
        let (queue, opened) = look(ops, address, &variable(asked.name, "URL")).await;
        let rights = match &opened {
            Some(queue) => try_settling(&**queue).await,
            None => Vec::new(),
        };
        let destination = fit::destination(asked.name, asked.config, queue.facts());
        let target = match &destination {
            _ if matches!(queue, Look::NoCredentials(_)) => None,
            Ok(Destination::Queue(address)) => Some(address.clone()),
            Err(_) if asked.config.dead_letter == DeadLetter::RedrivePolicy => usual(address),
            _ => None,
        };
        let dead_letters = match target {
            Some(address) => Some(DeadLetters::take(ops, asked, address, destination.is_ok()).await),
            None => None,
        };
        Self { queue, rights, destination, dead_letters }
    }

    pub(super) fn answered(&self) -> bool {
        self.queue.answered()
    }

    /// What was said of the credentials, if that is why something was not seen.
    pub(super) fn no_credentials(&self) -> Option<String> {
        let looks = [Some(&self.queue), self.dead_letters.as_ref().map(|dead| &dead.queue)];
        looks.into_iter().flatten().find_map(|look| match look {
            Look::NoCredentials(said) => Some(said.clone()),
            _ => None,
        })
    }
}

/// The usual dead-letter queue of a queue, beside it.
fn usual(address: &QueueAddress) -> Option<QueueAddress> {
    let dead = usual_dead_letter_name(address.queue_name());
    match address {
        QueueAddress::Name(_) => Some(QueueAddress::Name(dead)),
        QueueAddress::Url(text) | QueueAddress::Arn(text) => {
            let before = text.strip_suffix(address.queue_name())?;
            format!("{before}{dead}").parse().ok()
        }
    }
}

impl DeadLetters {
    async fn take(ops: &Ops, asked: &Asked<'_>, address: QueueAddress, is_used: bool) -> Self {
        let (queue, opened) = look(ops, &address, &variable(asked.name, "DEAD_LETTER")).await;
        let rights = match &opened {
            Some(queue) if is_used => vec![("sqs:SendMessage", queue.send(&unsendable()).await)],
            _ => Vec::new(),
        };
        Self { address, queue, rights }
    }
}

async fn look(ops: &Ops, address: &QueueAddress, variable: &str) -> (Look, Option<Arc<dyn Queue>>) {
    let unusable = |error: &QueueError| fit::unusable(error, address, ops.broker.looks_in(address), variable);
    let opened = match ops.broker.open(address).await {
        Ok(queue) => queue,
        Err(error) if error.lacks_credentials() => return (Look::NoCredentials(in_full(&error)), None),
        Err(QueueError::Missing) => return (Look::Absent(unusable(&QueueError::Missing)), None),
        Err(error) if error.is_transient() => return (Look::Away(in_full(&error)), None),
        Err(error) => return (Look::Unusable(unusable(&error)), None),
    };
    match opened.facts().await {
        Ok(facts) => (Look::Seen(Box::new(facts)), Some(opened)),
        Err(error) if error.lacks_credentials() => (Look::NoCredentials(in_full(&error)), None),
        Err(error @ QueueError::Denied(_)) => (Look::Denied(in_full(&error)), Some(opened)),
        Err(QueueError::Missing) => (Look::Absent(unusable(&QueueError::Missing)), None),
        Err(error) if error.is_transient() => (Look::Away(in_full(&error)), None),
        Err(error) => (Look::Unusable(unusable(&error)), None),
    }
}

/// With a handle that no queue has given.
async fn try_settling(queue: &dyn Queue) -> Vec<Tried<QueueError>> {
    let nobody = ReceiptHandle::new("leasehold-doctor");
    vec![
        ("sqs:DeleteMessage", queue.delete(&nobody).await),
        ("sqs:ChangeMessageVisibility", queue.change_visibility(&nobody, Duration::ZERO).await),
    ]
}

/// A message that no queue takes, for any of three reasons: no body, a delay above the 15 minutes that SQS has, an
/// attribute without a value. Characters that SQS does not take would not do: its API reference says in some places that
/// they are refused, and in others that they are replaced.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>
pub(super) fn unsendable() -> Outgoing {
    let empty = Attribute { data_type: "String".to_owned(), value: AttributeValue::Text(String::new()) };
    Outgoing {
        attributes: [("leasehold-doctor".to_owned(), empty)].into(),
        delay: Some(Duration::from_secs(60 * 60)),
        ..Outgoing::default()
    }
}

/// Everything that is to be known of the table.
#[derive(Debug)]
pub(super) struct TableLook {
    pub(super) facts: Result<TableFacts, GuardError>,
    pub(super) rights: Vec<Tried<GuardError>>,
}

impl TableLook {
    pub(super) async fn take(ops: &Ops, config: &Config) -> Self {
        let facts = ops.guard.facts().await;
        let rights = match &facts {
            Ok(facts) if admin::problems(&config.table, facts).is_empty() => Self::try_rights(ops, config, true).await,
            // A table that cannot be seen to be ours is not written to.
            Err(error @ GuardError::Denied(_)) if !error.lacks_credentials() => {
                Self::try_rights(ops, config, false).await
            }
            // It is no worker's table: what may be done to it is nobody's business.
            _ => Vec::new(),
        };
        Self { facts, rights }
    }

    async fn try_rights(ops: &Ops, config: &Config, may_write: bool) -> Vec<Tried<GuardError>> {
        let guarded = config.queues.values().find(|queue| queue.guard == GuardMode::Claim);
        let queue = guarded.map_or("leasehold-doctor", |queue| queue.address.queue_name());
        let namespace = config.namespace.as_deref();
        let control = ops.guard.control(&ControlKey::new(namespace, queue)).await.map(drop);
        let mut rights = vec![("dynamodb:GetItem", control)];
        if may_write {
            rights.push(("dynamodb:PutItem", ops.guard.probe().await));
        }
        // Of a failure that nobody had: its condition fails, on whatever is there.
        let nobody = Change::Copied { failure_id: ops.clock.token(), now: ops.clock.wall() };
        if let Some(pk) = key::pk(namespace, "leasehold-doctor", &Key::from("nobody"), KeyHash::Long) {
            rights.push(("dynamodb:UpdateItem", ops.guard.write(&pk, &nobody).await.map(drop)));
        }
        rights
    }

    /// What was said of the credentials, if that is why nothing was seen.
    pub(super) fn no_credentials(&self) -> Option<String> {
        self.facts.as_ref().err().filter(|error| error.lacks_credentials()).map(|error| in_full(error))
    }

    pub(super) fn is_absent(&self) -> bool {
        matches!(self.facts, Err(GuardError::Missing))
    }

    /// Not what the other meaning of transient has: a table that may not be looked at has answered.
    pub(super) fn answered(&self) -> bool {
        !matches!(self.facts, Err(GuardError::NoAnswer(_) | GuardError::Unavailable(_) | GuardError::Throttled(_)))
    }
}
