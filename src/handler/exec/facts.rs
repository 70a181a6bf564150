//! What a program is told of its run, as variables.
//!
//! Pure. Everything that a sender can choose is bounded here, because a program with too large an environment is not
//! started at all, which must not look like a program that is not there.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use tokio::time::Instant;

use crate::{
    clock::Millis,
    handler::JobContext,
    message::{AttributeValue, Message},
};

/// The most bytes of all attributes together, names and values as they are handed on. Linux takes 128 KiB in one
/// variable and some megabytes in all.
const ATTRIBUTES: usize = 64 * 1024;

/// The longest name of an attribute, in characters that are one byte each.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html>
const LONGEST_NAME: usize = 256;

/// The most bytes of the names that were left out: enough for many times what one message can have.
const OMITTED: usize = 16 * 1024;

/// The variables of one run, at the wall-clock time `now`.
pub(super) fn variables(message: &Message, cx: &JobContext, now: Millis) -> BTreeMap<String, String> {
    let deadline = now + cx.deadline().saturating_duration_since(Instant::now());
    let mut facts = BTreeMap::from(
        [
            ("QUEUE", cx.queue().to_owned()),
            ("FENCE", cx.fence().to_string()),
            ("ATTEMPT", cx.attempt().to_string()),
            ("DEADLINE", Duration::from_millis(deadline.0).as_secs().to_string()),
            ("MESSAGE_ID", message.id.clone()),
            ("RECEIVE_COUNT", message.receive_count.to_string()),
        ]
        .map(|(name, value)| (format!("LEASEHOLD_{name}"), value)),
    );
    let optional = [("IDEMPOTENCY_KEY", cx.key()), ("GROUP_ID", message.group.as_deref())];
    facts.extend(
        optional.into_iter().filter_map(|(name, value)| Some((format!("LEASEHOLD_{name}"), value?.to_owned()))),
    );
    facts.extend(attributes(message));
    // No program can be given one; SQS takes none in a message, but a queue of somebody else's may.
    facts.retain(|_, value| !value.contains('\0'));
    facts
}

fn attributes(message: &Message) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let mut omitted = Vec::new();
    let mut room = ATTRIBUTES;
    for (name, attribute) in &message.attributes {
        let variable =
            format!("LEASEHOLD_ATTRIBUTE_{}", name.to_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
        let value = match &attribute.value {
            AttributeValue::Text(text) => text.clone(),
            AttributeValue::Binary(bytes) => hexadecimal(bytes),
        };
        match room.checked_sub(variable.len() + value.len()) {
            Some(left) if !variables.contains_key(&variable) && !value.contains('\0') => {
                room = left;
                variables.insert(variable, value);
            }
            _ => omitted.push(name.as_str()),
        }
    }
    if !omitted.is_empty() {
        variables.insert("LEASEHOLD_ATTRIBUTES_OMITTED".to_owned(), names(&omitted));
    }
    variables
}

/// By commas. A name that no queue takes is cut: one that was displaced by our own attribute comes out of a text that
/// anybody can have written. The last are left out where there is no room for all.
fn names(omitted: &[&str]) -> String {
    let mut names = String::new();
    for name in omitted {
        let name = &name[..name.floor_char_boundary(LONGEST_NAME)];
        if names.len() + 1 + name.len() > OMITTED {
            break;
        }
        if !names.is_empty() {
            names.push(',');
        }
        names.push_str(name);
    }
    names
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
