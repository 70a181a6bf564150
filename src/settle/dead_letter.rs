//! The dead-letter attribute: why a copy is in the DLQ, carried by the copy itself.
//!
//! Owns the attribute's name, its JSON and the rule for what it displaces. A note that cannot be read is left where it
//! is and told, never lost. Also sends copies and marks records; when, and what then, is decided in `settle.rs`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::{
    clock::Millis,
    guard::{Change, Failure, Guard, Pk, Written},
    lease::Lease,
    message::{Attribute, AttributeValue, Message, RESERVED_ATTRIBUTES},
    queue::{LARGEST_MESSAGE, MOST_ATTRIBUTES, Outgoing, Queue, QueueError, attribute_problem},
    seldom::seldom,
    settle::Desk,
};

/// The name of the one message attribute that a dead-lettered copy carries.
pub const ATTRIBUTE: &str = "leasehold";

/// Why a message was dead-lettered: what its copy carries, as JSON, in the [attribute](ATTRIBUTE) of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Note {
    /// A short stable code, to group by.
    pub code: String,
    /// A text for a person.
    pub message: String,
    /// Names one failure: copies with the same id are copies of the same failure.
    pub failure_id: String,
    /// Failed attempts.
    pub failures: u32,
    /// Claims of a record whose lease had ended.
    pub takeovers: u32,
    /// How often the message was received.
    pub receive_count: u32,
    /// The fencing token of the last claim; zero without a record.
    pub fence: u64,
    /// The last step that was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What `undo` answered: `kept` or `undone`; `incomplete` if it did not come to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// The primary key of the record, by which a redrive finds it: message ids do not survive the DLQ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pk: Option<String>,
    /// The name of the queue the message came from.
    pub queue: String,
    /// The id that the message had there.
    pub message_id: String,
    /// When it was dead-lettered.
    pub dead_at: Millis,
    /// Message attributes that this one displaced, since SQS takes ten at the most, or that it would not take at all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) displaced: BTreeMap<String, Displaced>,
}

impl Note {
    /// Whether it was to be undone and is not: a person has to see to it.
    pub(crate) fn is_half_undone(&self) -> bool {
        self.undo.as_deref() == Some(INCOMPLETE)
    }

    /// Of work without a record; what a record knows is added to it.
    pub(crate) fn new(failure: Failure, failure_id: String, queue: &str, message: &Message, dead_at: Millis) -> Self {
        Self {
            code: failure.code,
            message: failure.text,
            failure_id,
            receive_count: message.receive_count,
            queue: queue.to_owned(),
            message_id: message.id.clone(),
            dead_at,
            ..Self::default()
        }
    }
}

/// An attribute that travels inside the note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Displaced {
    #[serde(rename = "type")]
    data_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<Vec<u8>>,
}

/// What stands for the answer of an undo that did not come to its end.
pub(crate) const INCOMPLETE: &str = "incomplete";

/// A message whose work has failed for good.
#[derive(Debug)]
pub(crate) struct DeadLetter {
    pub(crate) note: Note,
    /// The record that says DEAD, to be marked when the copy is sent; `None` for work without a record.
    pub(crate) record: Option<Pk>,
    /// It has failed now; else its record said so before.
    pub(crate) failed_now: bool,
}

impl DeadLetter {
    /// Whether it is a new failure. What is kept in its queue comes round again, and where no record says so, it can be told
    /// by its receives alone.
    pub(crate) fn is_news(&self, goes_to: &DeadLetters, receive_count: u32) -> bool {
        let is_kept = matches!(goes_to, DeadLetters::Keep);
        self.failed_now && (self.record.is_some() || !is_kept || receive_count <= 1)
    }
}

/// Where copies of what has failed for good go.
#[derive(Debug)]
pub(crate) enum DeadLetters {
    /// To this queue.
    Queue(Target),
    /// Nowhere: the original stays in its queue until SQS drops it.
    Keep,
    /// Nowhere: the original is deleted.
    Drop,
}

/// A dead-letter queue.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) fifo: bool,
}

/// Pauses between tries to send a copy: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// Tries to mark a record. A mark that is missing costs a second copy if the original comes back, and no more.
const MARK_TRIES: u32 = 3;

impl Target {
    /// Sends the copy, again and again while the delivery's lease lasts.
    pub(crate) async fn send(
        &self,
        desk: &Desk,
        message: &Message,
        note: &Note,
        lease: &Lease,
    ) -> Result<(), QueueError> {
        let mut copy = pack(message, note.clone());
        if self.fifo {
            copy.group.get_or_insert_with(|| message.id.clone());
            copy.deduplication_id = Some(note.failure_id.clone());
        }
        let mut pause = RETRY.0;
        loop {
            match self.queue.send(&copy).await {
                Err(error) if error.is_transient() && lease.left() > pause => {
                    let (queue, message_id) = (&*desk.name, &message.id);
                    seldom!(desk.seldom, "not sent", warn, queue, message_id, %error, "the copy is not sent yet");
                    sleep(pause / 2 + desk.clock.part_of(pause / 2)).await;
                    pause = (pause * 2).min(RETRY.1);
                }
                // Too large, most likely: a dead-letter queue can have a lower limit than SQS. The record has the reason.
                Err(QueueError::Refused(why)) if copy.attributes.contains_key(ATTRIBUTE) => {
                    tracing::warn!(queue = &*desk.name, message_id = %message.id, why, "the copy is refused; sent without its reason");
                    copy = Outgoing { group: copy.group, deduplication_id: copy.deduplication_id, ..bare(message) };
                }
                answer => return answer,
            }
        }
    }
}

/// Marks a DEAD record: its copy is sent (rule T3).
pub(crate) async fn mark_copied(guard: &dyn Guard, desk: &Desk, pk: &Pk, failure_id: &str) {
    let change = Change::Copied { failure_id: failure_id.to_owned(), now: desk.clock.wall() };
    for attempt in 1..=MARK_TRIES {
        match guard.write(pk, &change).await {
            // Refused: begun anew by a redrive meanwhile, or swept.
            Ok(Written::Applied | Written::Refused(_)) => return,
            Err(error) if error.is_transient() && attempt < MARK_TRIES => {
                sleep(desk.clock.backoff(RETRY, 1)).await;
            }
            Err(error) => {
                let queue = &*desk.name;
                seldom!(desk.seldom, "not marked", warn, queue, %pk, %error, "the record is not marked as copied; a second copy may be made");
                return;
            }
        }
    }
}

/// The copy that goes to the DLQ: the message as it came, and the note where there is room for it.
pub(crate) fn pack(message: &Message, mut note: Note) -> Outgoing {
    let mut copy = Outgoing::from(message);
    // One of the same name that is not ours; and any that SQS would not take, for it would refuse the copy for it. Such
    // come from services that take more, or out of a note that somebody else has written.
    let is_odd = |name: &str, attribute: &Attribute| name == ATTRIBUTE || attribute_problem(name, attribute).is_some();
    let odd = copy.attributes.extract_if(.., |name, attribute| is_odd(name, attribute));
    note.displaced.extend(odd.map(|(name, attribute)| (name, attribute.into())));
    while copy.attributes.len() >= MOST_ATTRIBUTES {
        let Some(name) = displaceable(&copy) else { break };
        note.displaced.extend(copy.attributes.remove_entry(&name).map(|(name, attribute)| (name, attribute.into())));
    }
    let Ok(json) = serde_json::to_string(&note) else { return bare(message) };
    // SQS takes only what XML does. Of what it does not take, JSON escapes all but these by itself.
    let json = json.replace('\u{fffe}', "\\ufffe").replace('\u{ffff}', "\\uffff");
    copy.attributes.insert(ATTRIBUTE.to_owned(), Attribute::text(json));
    if copy.size() <= LARGEST_MESSAGE { copy } else { bare(message) }
}

/// The copy where there is no room for the note: what SQS takes of the message.
fn bare(message: &Message) -> Outgoing {
    let mut copy = Outgoing::from(message);
    copy.attributes.retain(|name, attribute| attribute_problem(name, attribute).is_none());
    while copy.attributes.len() > MOST_ATTRIBUTES {
        let Some(name) = displaceable(&copy) else { break };
        copy.attributes.remove(&name);
    }
    let kept = copy.attributes.len();
    tracing::warn!(
        message_id = %message.id,
        lost = message.attributes.len() - kept,
        "the copy has no room for the reason of its failure, nor for the attributes that only the reason could carry"
    );
    copy
}

/// An attribute that can travel in the note. Without the one that says that the body is in S3 the body of the copy would be
/// no pointer for whoever reads it.
fn displaceable(copy: &Outgoing) -> Option<String> {
    let others = copy.attributes.iter().filter(|(name, _)| !RESERVED_ATTRIBUTES.contains(&name.as_str()));
    let smallest = others.min_by_key(|(name, attribute)| name.len() + attribute.size());
    smallest.map(|(name, _)| name.clone())
}

/// Takes the note out of a message's attributes, and puts back what it displaced.
pub(crate) fn unpack(message: &mut Message) {
    let Some(json) = message.attribute(ATTRIBUTE) else { return };
    // Every note of ours names its failure. One that does not is somebody else's JSON, of which all would be lost.
    match serde_json::from_str::<Note>(json) {
        Ok(note) if note.failure_id.is_empty() => {
            tracing::warn!(message_id = %message.id, "the attribute {ATTRIBUTE:?} is not one of ours; ignored");
        }
        Ok(mut note) => {
            message.attributes.remove(ATTRIBUTE);
            message
                .attributes
                .extend(std::mem::take(&mut note.displaced).into_iter().map(|(name, d)| (name, d.into())));
            message.dead_letter = Some(note);
        }
        Err(error) => {
            tracing::warn!(message_id = %message.id, %error, "the attribute {ATTRIBUTE:?} is not one of ours; ignored");
        }
    }
}

impl From<Attribute> for Displaced {
    fn from(attribute: Attribute) -> Self {
        let (text, bytes) = match attribute.value {
            AttributeValue::Text(text) => (Some(text), None),
            AttributeValue::Binary(bytes) => (None, Some(bytes)),
        };
        Self { data_type: attribute.data_type, text, bytes }
    }
}

impl From<Displaced> for Attribute {
    fn from(displaced: Displaced) -> Self {
        let value = match displaced.bytes {
            Some(bytes) => AttributeValue::Binary(bytes),
            None => AttributeValue::Text(displaced.text.unwrap_or_default()),
        };
        Self { data_type: displaced.data_type, value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_with(attributes: usize) -> Message {
        let attributes = (0..attributes).map(|i| (format!("a{i}"), Attribute::text(format!("v{i}")))).collect();
        Message { id: "m1".into(), body: "{}".into(), attributes, ..Message::default() }
    }

    fn back(copy: Outgoing) -> Message {
        Message { attributes: copy.attributes, body: copy.body, ..message_with(0) }.unpacked()
    }

    fn note() -> Note {
        Note { code: "declined".into(), failure_id: "f1".into(), ..Note::default() }
    }

    fn typed(data_type: &str, value: AttributeValue) -> Attribute {
        Attribute { data_type: data_type.into(), value }
    }

    #[test]
    fn t3_a_copy_carries_its_reason_and_comes_back_as_it_was_even_with_ten_attributes() {
        for count in [0, 9, 10] {
            let message = message_with(count);
            let copy = pack(&message, note());
            assert!(copy.attributes.len() <= MOST_ATTRIBUTES);
            let back = back(copy);
            assert_eq!(back.attributes, message.attributes);
            assert_eq!(back.dead_letter.map(|note| note.code), Some("declined".to_owned()));
        }
    }

    #[test]
    fn t3_a_displaced_attribute_of_any_kind_comes_back_byte_for_byte() {
        let all_bytes: Vec<u8> = (0..=255).collect();
        for displaced in [
            typed("String.custom", AttributeValue::Text("\u{fffd}\t\r\n\"\\ 世界 🦀".into())),
            typed("Number.int", AttributeValue::Text("-007.50".into())),
            typed("Binary.png", AttributeValue::Binary(all_bytes)),
            typed("Binary", AttributeValue::Binary(vec![0])),
        ] {
            for name in ["odd", ATTRIBUTE] {
                let mut message = message_with(9);
                // Larger than the odd one, which is then what has to go.
                message.attributes.values_mut().for_each(|value| *value = Attribute::text("x".repeat(1000)));
                message.attributes.insert(name.into(), displaced.clone());
                let copy = pack(&message, note());
                assert!(copy.attributes.keys().all(|kept| kept != "odd"), "{:?}", copy.attributes.keys());
                assert_eq!(copy.attributes.len(), MOST_ATTRIBUTES);
                assert_eq!(back(copy).attributes, message.attributes, "{name}: {displaced:?}");
            }
        }
    }

    #[test]
    fn t3_what_sqs_would_not_take_keeps_no_copy_from_being_sent() {
        let mut message = message_with(2);
        let mut add = |name: &str, attribute| message.attributes.insert(name.to_owned(), attribute);
        add("empty", Attribute::text(""));
        add("control", Attribute::text("\0\u{1b}\u{fffe}"));
        add("none", typed("Binary", AttributeValue::Binary(Vec::new())));
        add("AWS.reserved", Attribute::text("x"));
        add(&"n".repeat(300), Attribute::text("x"));
        let copy = pack(&message, note());
        assert_eq!(copy.attributes.keys().collect::<Vec<_>>(), ["a0", "a1", ATTRIBUTE]);
        assert!(copy.attributes.iter().all(|(name, attribute)| attribute_problem(name, attribute).is_none()));
        assert_eq!(back(copy).attributes, message.attributes);
    }

    #[test]
    fn t3_a_copy_is_as_large_as_a_message_can_be_and_then_goes_without_its_reason() {
        let room = LARGEST_MESSAGE - pack(&message_with(0), note()).size();
        for (more, has_reason) in [(0, true), (1, false)] {
            // Three bytes a character, and what is left over.
            let length = room + more + 2;
            let body = "世".repeat(length / 3) + &"x".repeat(length % 3);
            let copy = pack(&Message { body, ..message_with(0) }, note());
            assert_eq!(copy.attributes.contains_key(ATTRIBUTE), has_reason);
            assert!(copy.size() <= LARGEST_MESSAGE, "{}", copy.size());
        }
    }

    #[test]
    fn t3_a_copy_of_a_pointer_is_a_pointer_whatever_else_it_carries() {
        let mut message = message_with(MOST_ATTRIBUTES - 1);
        message.body =
            r#"["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"bodies","s3Key":"k"}]"#.into();
        for name in RESERVED_ATTRIBUTES {
            // One that sorts before it, so that it is the last of all.
            let mut pointer = message.clone();
            pointer.attributes = pointer.attributes.into_iter().map(|(n, a)| (n.to_uppercase(), a)).collect();
            pointer.attributes.insert(name.into(), Attribute::text("3".repeat(5)));
            let copy = pack(&pointer, note());
            assert!(copy.attributes.contains_key(name) && copy.attributes.contains_key(ATTRIBUTE), "{name}");
            assert_eq!(back(copy).attributes, pointer.attributes, "{name}");
        }
    }

    #[test]
    fn t3_a_copy_without_room_for_the_reason_goes_without_it() {
        let message = Message { body: "x".repeat(LARGEST_MESSAGE - 10), ..message_with(0) };
        assert_eq!(pack(&message, Note::default()), Outgoing::from(&message));
    }

    #[test]
    fn t3_a_copy_without_room_for_the_reason_keeps_no_attribute_for_which_sqs_would_refuse_it() {
        let mut message = Message { body: "x".repeat(LARGEST_MESSAGE - 200), ..message_with(MOST_ATTRIBUTES + 2) };
        message.attributes.insert("empty".to_owned(), Attribute::text(""));
        let copy = pack(&message, note());
        assert_eq!(copy.attributes.len(), MOST_ATTRIBUTES);
        assert!(copy.attributes.iter().all(|(name, attribute)| attribute_problem(name, attribute).is_none()));
        assert!(copy.size() <= LARGEST_MESSAGE && copy.body == message.body);
    }

    #[test]
    fn t3_a_reason_with_characters_that_sqs_does_not_take_is_copied_and_read_back() {
        let reason = "\u{1b}[31mno \u{fffe}\u{ffff}\0".to_owned();
        let copy = pack(&message_with(0), Note { message: reason.clone(), ..note() });
        let AttributeValue::Text(json) = &copy.attributes[ATTRIBUTE].value else { panic!("a text") };
        assert!(!json.contains(|c| c < ' ' || matches!(c, '\u{fffe}' | '\u{ffff}')), "{json:?}");
        assert_eq!(back(copy).dead_letter.map(|note| note.message), Some(reason));
    }

    #[test]
    fn an_attribute_that_is_not_ours_stays_where_it_is() {
        for theirs in [
            Attribute::text("something else"),
            Attribute::text("{}"),
            Attribute::text(r#"{"code":"EUR","message":"of another program","failures":1}"#),
            Attribute::text(r#"{"failure_id":7}"#),
            typed("Binary", AttributeValue::Binary(br#"{"failure_id":"f1"}"#.to_vec())),
        ] {
            let mut message = message_with(0);
            message.attributes.insert(ATTRIBUTE.into(), theirs);
            let unpacked = message.clone().unpacked();
            assert_eq!(unpacked, message);
            assert_eq!(back(pack(&message, note())).attributes, message.attributes, "a copy does not lose it");
        }
    }
}
