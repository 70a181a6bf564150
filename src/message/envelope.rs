//! What SNS puts around a message on its way into a queue where raw delivery is off, and taking the message out of it.
//!
//! Pure. Also tells by its form what a body is, so that a failure can say what is set up wrongly. Nothing that a body asks
//! for is done, and no address in it is called. A large body is gone through once, and the text in it copied once.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{Attribute, AttributeValue, Message};
use crate::clock::Millis;

/// What SNS says of a message that it brought.
/// <https://docs.aws.amazon.com/sns/latest/dg/http-notification-json.html>
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sns {
    /// The ARN of the topic that the message was published to.
    pub topic_arn: String,
    /// SNS's id of the message, the same in all queues of the topic. It changes when a producer publishes the same work
    /// again.
    pub message_id: String,
    /// The subject, if it was published with one.
    pub subject: Option<String>,
    /// When the message was published, by SNS's clock; `None` where that cannot be read.
    pub published_at: Option<Millis>,
    /// Its place in the topic's order, on FIFO topics.
    pub sequence_number: Option<String>,
}

/// What a body is, as far as its form tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// What SNS puts around a message.
    Notification,
    /// SNS asks whether the queue is to be subscribed to a topic.
    Subscription,
    /// SNS says that the queue is no longer subscribed to a topic.
    Unsubscription,
    /// What S3 sends once, when a bucket's notifications are set up.
    /// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html>
    S3Test,
    /// <https://docs.aws.amazon.com/eventbridge/latest/ref/overiew-event-structure.html>
    EventBridge,
    /// Anything else that is JSON.
    Json,
    /// Anything that is not.
    Text,
}

impl Form {
    /// Of this body. Goes through all of it.
    pub(crate) fn of(body: &str) -> Self {
        match Members::of(body) {
            Some(members) => members.form(),
            None if serde_json::from_str::<IgnoredAny>(body).is_ok() => Self::Json,
            None => Self::Text,
        }
    }

    /// Whether this body may be a notification, at a glance: SNS writes its type first.
    pub(crate) fn may_be_notification(body: &str) -> bool {
        /// More than `{`, the name and the value, with room for white space.
        const GLANCE: usize = 64;
        let start = body.get(..body.floor_char_boundary(GLANCE)).unwrap_or_default();
        start.starts_with('{') && start.contains("\"Type\"") && start.contains("\"Notification\"")
    }

    /// What can be done about one that nothing could be made of.
    pub(crate) fn advice(self) -> Option<&'static str> {
        match self {
            Self::Subscription => Some(
                "open its SubscribeURL or call sns:ConfirmSubscription if that is wanted, for Leasehold never does; then it can be purged",
            ),
            Self::Unsubscription => {
                Some("subscribe again if that was not wanted, for the topic sends nothing more; then it can be purged")
            }
            Self::S3Test => Some("S3 sends it once, when notifications are set up, and it can be purged"),
            Self::EventBridge => Some("what its source sent is under /detail"),
            Self::Notification | Self::Json | Self::Text => None,
        }
    }
}

/// As a part of a sentence: *the body is* this.
impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Notification => "an SNS notification",
            Self::Subscription => "an SNS subscription confirmation",
            Self::Unsubscription => "an SNS unsubscribe confirmation",
            Self::S3Test => "an S3 test event",
            Self::EventBridge => "an EventBridge event",
            Self::Json => "other JSON",
            Self::Text => "plain text",
        })
    }
}

/// Why no message can be taken out of a body. It never will be: a permanent error.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvelopeError {
    /// It is something else.
    #[error("the body is no SNS notification, but {0}")]
    Other(Form),
    /// It is one, and not as SNS makes them.
    #[error("the SNS notification is broken: {0}")]
    Broken(String),
}

/// The message as it was published: its text as the body, with the attributes that it was published with, which win over
/// those of the same name that the queue has. All else is what the queue says.
pub(crate) fn open(message: &Message) -> Result<Message, EnvelopeError> {
    let members = Members::of(&message.body).filter(|members| members.form() == Form::Notification);
    let members = members.ok_or_else(|| EnvelopeError::Other(Form::of(&message.body)))?;
    let mut attributes = message.attributes.clone();
    attributes.extend(members.attributes()?);
    let sns = Sns {
        topic_arn: members.required("TopicArn")?,
        message_id: members.required("MessageId")?,
        subject: members.text("Subject")?,
        published_at: members.text("Timestamp")?.and_then(|text| Millis::from_rfc_3339(&text)),
        sequence_number: members.text("SequenceNumber")?,
    };
    // Each by name, for a copy of the whole message would copy its body too.
    Ok(Message {
        id: message.id.clone(),
        body: members.required("Message")?,
        attributes,
        receive_count: message.receive_count,
        sent_at: message.sent_at,
        group: message.group.clone(),
        deduplication_id: message.deduplication_id.clone(),
        trace_header: message.trace_header.clone(),
        dead_letter: message.dead_letter.clone(),
        moved_from: message.moved_from.clone(),
        sns: Some(sns),
    })
}

/// The members of an object in their order, values as they stand in the text.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Of a text that is an object and nothing else.
    fn of(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    fn form(&self) -> Form {
        let is = |name: &str, value: &str| matches!(self.text(name), Ok(Some(text)) if text == value);
        let has = |names: &[&str]| names.iter().all(|name| self.0.iter().any(|(member, _)| member == name));
        if has(&["Type", "TopicArn"]) {
            let types = [
                ("Notification", Form::Notification),
                ("SubscriptionConfirmation", Form::Subscription),
                ("UnsubscribeConfirmation", Form::Unsubscription),
            ];
            types.into_iter().find(|(name, _)| is("Type", name)).map_or(Form::Json, |(_, form)| form)
        } else if is("Event", "s3:TestEvent") {
            Form::S3Test
        } else if has(&["version", "id", "detail-type", "source", "detail"]) {
            Form::EventBridge
        } else {
            Form::Json
        }
    }

    /// A member that is a text, if it is there and not null.
    fn text(&self, name: &str) -> Result<Option<String>, EnvelopeError> {
        let read = |raw: &RawValue| serde_json::from_str(raw.get());
        self.one(name)?.map(read).transpose().map_err(|_| EnvelopeError::Broken(format!("its {name} is no text")))
    }

    fn required(&self, name: &str) -> Result<String, EnvelopeError> {
        self.text(name)?.ok_or_else(|| EnvelopeError::Broken(format!("it has no {name}")))
    }

    /// Two that say different things cannot both be believed, and which of them others believe is not known.
    fn one(&self, name: &str) -> Result<Option<&'a RawValue>, EnvelopeError> {
        let mut found = self.0.iter().filter(|(member, _)| member == name).map(|(_, value)| *value);
        let value = found.next().filter(|value| value.get() != "null");
        if found.next().is_some() {
            return Err(EnvelopeError::Broken(format!("it has more than one {name}")));
        }
        Ok(value)
    }

    /// What is in `MessageAttributes`.
    /// <https://docs.aws.amazon.com/sns/latest/dg/sns-message-attributes.html>
    fn attributes(&self) -> Result<BTreeMap<String, Attribute>, EnvelopeError> {
        let broken = || EnvelopeError::Broken("its MessageAttributes are no object".to_owned());
        let members = match self.one("MessageAttributes")? {
            Some(raw) => Members::of(raw.get()).ok_or_else(broken)?,
            None => return Ok(BTreeMap::new()),
        };
        let mut attributes = BTreeMap::new();
        for (name, raw) in members.0 {
            let broken = |what: String| EnvelopeError::Broken(format!("its attribute {name:?} {what}"));
            let attribute = attribute(raw).map_err(broken)?;
            if attributes.insert(name.clone().into_owned(), attribute).is_some() {
                return Err(broken("is there more than once".to_owned()));
            }
        }
        Ok(attributes)
    }
}

/// One attribute. Lists (`String.Array`) stay the JSON text that they are.
fn attribute(raw: &RawValue) -> Result<Attribute, String> {
    let members = Members::of(raw.get()).ok_or("is no object")?;
    let text = |name: &str| members.required(name).map_err(|_| format!("has no {name} that is a text"));
    let (data_type, value) = (text("Type")?, text("Value")?);
    let value = if data_type.split('.').next() == Some("Binary") {
        AttributeValue::Binary(STANDARD.decode(value).map_err(|_| "is Binary, and not in Base64")?)
    } else {
        AttributeValue::Text(value)
    };
    Ok(Attribute { data_type, value })
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members = Vec::new();
                while let Some((Name(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Object).map(Self)
    }
}

/// A member's name, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests;
