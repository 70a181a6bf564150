//! What must fit together: settings, queues and the table, as far as they could be looked at.
//!
//! Pure, and shared by all who judge: a worker before it starts, and `doctor`. Owns what is wrong and the line that mends
//! it; what is done about it is theirs. What concerns settings alone is in [`Config::check`](crate::config::Config::check).

use crate::{
    causes::in_full,
    config::{DeadLetter, DurationText, Problem, QueueConfig, variable},
    queue::{QueueAddress, QueueError, QueueFacts, usual_dead_letter_name},
};

pub(crate) mod keys;

/// Where what fails for good is to go.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// Nowhere: it stays.
    Keep,
    /// Nowhere: it is deleted.
    Drop,
    /// To this queue.
    Queue(QueueAddress),
}

/// Where a queue's dead letters go, by its settings and its redrive policy. `None` is a queue that could not be looked at.
pub(crate) fn destination(
    name: &str,
    config: &QueueConfig,
    facts: Option<&QueueFacts>,
) -> Result<Destination, Problem> {
    let variable = variable(name, "DEAD_LETTER");
    match (&config.dead_letter, facts.and_then(|facts| facts.redrive.as_ref())) {
        (DeadLetter::Keep, _) if facts.is_some_and(|facts| facts.fifo) => Err(Problem::new(
            format!("{name:?} is a FIFO queue: a message that failed for good and is kept blocks its group"),
            format!("{variable}=keep-fifo, if that is meant"),
        )),
        (DeadLetter::Keep | DeadLetter::KeepFifo, _) => Ok(Destination::Keep),
        (DeadLetter::Drop, _) => Ok(Destination::Drop),
        (DeadLetter::Queue(address), _) => Ok(Destination::Queue(address.clone())),
        (DeadLetter::RedrivePolicy, Some(policy)) => {
            Ok(Destination::Queue(QueueAddress::Arn(policy.dead_letter_arn.clone())))
        }
        (DeadLetter::RedrivePolicy, None) => Err(Problem::new(
            format!(
                "the queue {name:?} has no dead-letter queue: nobody would see what fails for good. It is one that \
                 exists, by name or URL; `keep` and `drop` do without"
            ),
            format!("{variable}={}", usual_dead_letter_name(config.address.queue_name())),
        )),
    }
}

/// Whether "done" is forgotten while the queue may still have a duplicate.
pub(crate) fn forgotten_early(name: &str, config: &QueueConfig, facts: &QueueFacts) -> Option<Problem> {
    (facts.retention > config.done_ttl).then(|| {
        Problem::new(
            format!(
                "\"done\" is remembered for {}, but the queue {name:?} keeps messages for {}: a late duplicate would \
                 run again",
                DurationText(config.done_ttl),
                DurationText(facts.retention)
            ),
            format!("{}={}", variable(name, "DONE_TTL"), DurationText(facts.retention)),
        )
    })
}

/// A queue that has no key, and whose handler knows none either.
pub(crate) fn unkeyed(name: &str) -> Problem {
    Problem::new(
        format!(
            "the queue {name:?} has no idempotency key: what names its work in the body, or in code \
             .key(|payload| ..); a handler that is idempotent by nature can have {}=none",
            variable(name, "GUARD")
        ),
        format!("{}=/order_id", variable(name, "KEY")),
    )
}

/// A queue that is not found, or not to be used. `variable` is where its address comes from, `place` where it was looked
/// for.
pub(crate) fn unusable(error: &QueueError, address: &QueueAddress, place: Option<String>, variable: &str) -> Problem {
    match error {
        QueueError::Missing => {
            let place = place.map(|place| format!(" in {place}")).unwrap_or_default();
            let what = format!("there is no queue {address}{place}, or the credentials may not see it");
            Problem::new(what, format!("{variable}=<its URL, in whatever region and account it is>"))
        }
        error => Problem::new(
            format!("the queue {address} cannot be used: {}", in_full(error)),
            format!("check the credentials' policy and region, or {variable}=<another queue>"),
        ),
    }
}
