//! Whether a queue's key names its work on that queue: what cannot be right, and what its ids do not do.
//!
//! Only keys from SQS's own ids depend on the queue. Nothing here looks at AWS.

use crate::{
    config::{DurationText, KeySource, Problem, QueueConfig, variable},
    queue::{DeduplicationScope, QueueFacts},
};

/// A key that cannot name the work on this queue.
pub(crate) fn unfit(name: &str, config: &QueueConfig, facts: &QueueFacts) -> Option<Problem> {
    let key = config.key.as_ref()?;
    let variable = variable(name, "KEY");
    match key {
        KeySource::DeduplicationId | KeySource::GroupAndDeduplicationId if !facts.fifo => Some(Problem::new(
            format!("{variable} is {key}, and {name:?} is no FIFO queue: its messages have no deduplication id"),
            format!("{variable}=/order_id"),
        )),
        KeySource::DeduplicationId if facts.deduplication_scope == DeduplicationScope::MessageGroup => {
            Some(Problem::new(
                format!(
                    "{variable} is {key}, and on {name:?} an id is one message's only within its group \
                     (DeduplicationScope=messageGroup): of two groups with one id, one would be taken for a duplicate"
                ),
                format!("{variable}={}", KeySource::GroupAndDeduplicationId),
            ))
        }
        _ => None,
    }
}

/// What a key that is one of SQS's ids does not do.
pub(crate) fn warnings(name: &str, config: &QueueConfig, facts: &QueueFacts) -> Vec<String> {
    [of_content(name, config, facts), of_redrive(name, config, facts)].into_iter().flatten().collect()
}

/// A key that a hash of the body may stand in for.
pub(crate) fn of_content(name: &str, config: &QueueConfig, facts: &QueueFacts) -> Option<String> {
    let key = config.key.as_ref().filter(|key| is_deduplication(key) && facts.content_based_deduplication)?;
    Some(format!(
        "{} is {key}, which on this queue can be a hash of the body: two messages with equal bodies are one \
         piece of work for {}, not for SQS's five minutes",
        variable(name, "KEY"),
        DurationText(config.done_ttl)
    ))
}

/// A key that a message loses when SQS moves it.
pub(crate) fn of_redrive(name: &str, config: &QueueConfig, facts: &QueueFacts) -> Option<String> {
    let is_an_id = |key: &&KeySource| is_deduplication(key) || **key == KeySource::MessageId;
    let key = config.key.as_ref().filter(is_an_id).filter(|_| facts.redrive.is_some())?;
    Some(format!(
        "{} is {key}, which does not survive what SQS itself moves to the dead-letter queue: put back, it \
         has another key and begins anew; a key from the body or an attribute survives",
        variable(name, "KEY")
    ))
}

fn is_deduplication(key: &KeySource) -> bool {
    matches!(key, KeySource::DeduplicationId | KeySource::GroupAndDeduplicationId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::RedrivePolicy;

    fn facts(content_based_deduplication: bool, redrive: bool) -> QueueFacts {
        QueueFacts {
            content_based_deduplication,
            redrive: redrive.then(|| RedrivePolicy { dead_letter_arn: String::new(), max_receive_count: 5 }),
            ..QueueFacts::example("q.fifo")
        }
    }

    #[test]
    fn what_ids_do_not_do_is_told_and_nothing_of_keys_from_the_payload() {
        for (key, of_content, of_redrive) in [
            ("dedup-id", true, true),
            ("group-id,dedup-id", true, true),
            ("message-id", false, true),
            ("/id", false, false),
            ("attr:order", false, false),
        ] {
            let config = QueueConfig { key: key.parse().ok(), ..QueueConfig::new("q.fifo") };
            let told = |part: &str, facts| warnings("q", &config, &facts).iter().any(|told| told.contains(part));
            assert_eq!(told("equal bodies", facts(true, true)), of_content, "{key}");
            assert_eq!(told("does not survive", facts(true, true)), of_redrive, "{key}");
            assert!(warnings("q", &config, &facts(false, false)).is_empty(), "{key}");
        }
    }
}
