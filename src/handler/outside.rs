//! What handlers outside of this process are told, whether it is a program or an app: the facts of a run, and of the
//! message's attributes as much as there is room for.
//!
//! Pure. Everything that a sender can choose is bounded here; how it is written is for each kind of handler to say.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use tokio::time::Instant;

use crate::{
    clock::Millis,
    message::{AttributeValue, Message},
};

use super::JobContext;

/// When work comes again that is not to be done yet, of which nobody said when. Half a minute is neither polling nor
/// forgetting.
pub(super) const NOT_YET_DELAY: Duration = Duration::from_secs(30);

/// The longest name of an attribute, in characters that are one byte each.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html>
const LONGEST_NAME: usize = 256;

/// What is told of one run, at the wall-clock time `now`, but for its idempotency key. Times are in whole seconds.
pub(super) fn facts(message: &Message, cx: &JobContext, now: Millis) -> Vec<(&'static str, String)> {
    let deadline = now + cx.deadline().saturating_duration_since(Instant::now());
    let seconds = |at: Millis| (at.0 / 1000).to_string();
    let mut facts = vec![
        ("QUEUE", cx.queue().to_owned()),
        ("FENCE", cx.fence().to_string()),
        ("ATTEMPT", cx.attempt().to_string()),
        ("DEADLINE", seconds(deadline)),
        ("MESSAGE_ID", message.id.clone()),
        ("RECEIVE_COUNT", message.receive_count.to_string()),
    ];
    facts.extend(message.group.clone().map(|group| ("GROUP_ID", group)));
    facts.extend(message.sent_at.map(|at| ("SENT_AT", seconds(at))));
    facts
}

/// What SNS says of a message, if it is known. Anybody who may send to the queue can have written it: what is longer than SNS
/// makes it is left out.
pub(super) fn sns_facts(message: &Message) -> Vec<(&'static str, String)> {
    /// A topic's ARN is its name, up to 256 characters, and less than half as much before it.
    /// <https://docs.aws.amazon.com/sns/latest/api/API_CreateTopic.html>
    const LONGEST_ARN: usize = 384;
    /// A message's id has 36 characters, and a sequence number 20.
    const LONGEST_ID: usize = 64;
    /// In characters, which may take several bytes each.
    /// <https://docs.aws.amazon.com/sns/latest/api/API_Publish.html>
    const LONGEST_SUBJECT: usize = 100;
    let Some(sns) = &message.sns else { return Vec::new() };
    let plain = |text: &str, longest| text.len() <= longest && text.bytes().all(|byte| byte.is_ascii_graphic());
    let arn = Some(&sns.topic_arn).filter(|arn| plain(arn, LONGEST_ARN));
    let id = Some(&sns.message_id).filter(|id| plain(id, LONGEST_ID));
    let number = sns.sequence_number.as_ref().filter(|number| plain(number, LONGEST_ID));
    let subject = sns.subject.as_ref().filter(|subject| subject.chars().nth(LONGEST_SUBJECT).is_none());
    [
        ("SNS_TOPIC_ARN", arn.cloned()),
        ("SNS_MESSAGE_ID", id.cloned()),
        ("SNS_SUBJECT", subject.cloned()),
        ("SNS_PUBLISHED_AT", sns.published_at.map(|at| (at.0 / 1000).to_string())),
        ("SNS_SEQUENCE_NUMBER", number.cloned()),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

/// How much of a message's attributes is told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// So many attributes.
    pub(super) attributes: usize,
    /// So many bytes of them together, names and values as they are written.
    pub(super) bytes: usize,
    /// So many bytes of the names that were left out.
    pub(super) omitted: usize,
}

/// The attributes as they are written, and the names of those that were left out, by commas; `None` if none was.
///
/// `write` gives an attribute its name and its value, or nothing if it cannot be told. Of two with one name the second is
/// left out. Binary values are in hexadecimal.
pub(super) fn attributes(
    message: &Message,
    room: Room,
    write: impl Fn(&str, &str) -> Option<(String, String)>,
) -> (BTreeMap<String, String>, Option<String>) {
    let (mut told, mut omitted) = (BTreeMap::new(), Vec::new());
    let mut left = room.bytes;
    for (name, attribute) in &message.attributes {
        let written = match &attribute.value {
            AttributeValue::Text(text) => write(name, text),
            AttributeValue::Binary(bytes) => write(name, &hexadecimal(bytes)),
        };
        let fits = written.and_then(|(written, value)| {
            let rest = left.checked_sub(written.len() + value.len())?;
            (told.len() < room.attributes && !told.contains_key(&written)).then_some((written, value, rest))
        });
        match fits {
            Some((written, value, rest)) => {
                left = rest;
                told.insert(written, value);
            }
            None => omitted.push(name.as_str()),
        }
    }
    (told, (!omitted.is_empty()).then(|| names(&omitted, room.omitted)))
}

/// A name that no queue takes is cut: one that was displaced by our own attribute comes out of a text that anybody can
/// have written. The last are left out where there is no room for all.
fn names(omitted: &[&str], room: usize) -> String {
    let mut names = String::new();
    for name in omitted {
        let name = &name[..name.floor_char_boundary(LONGEST_NAME)];
        if names.len() + 1 + name.len() > room {
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
