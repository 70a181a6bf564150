//! A message to be sent, and how large it is for SQS.
//!
//! What SQS takes is checked elsewhere (`accepted`); here is what there is.

use std::{collections::BTreeMap, time::Duration};

use crate::message::{Attribute, Message};

/// One message to be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// The body.
    pub body: String,
    /// The message attributes, at most [`MOST_ATTRIBUTES`](super::MOST_ATTRIBUTES).
    pub attributes: BTreeMap<String, Attribute>,
    /// The message group id; required by FIFO queues.
    pub group: Option<String>,
    /// The deduplication id; required by FIFO queues without content-based deduplication.
    pub deduplication_id: Option<String>,
    /// The X-Ray trace header.
    pub trace_header: Option<String>,
    /// How long SQS hides the message at first. Not on FIFO queues.
    pub delay: Option<Duration>,
}

impl Outgoing {
    /// The message's size as SQS counts it: body, and name, type and value of each attribute.
    #[must_use]
    pub fn size(&self) -> usize {
        self.body.len() + self.attributes.iter().map(|(name, attribute)| name.len() + attribute.size()).sum::<usize>()
    }
}

impl Attribute {
    /// What it adds to a message's size, its name apart.
    pub(crate) fn size(&self) -> usize {
        use crate::message::AttributeValue::{Binary, Text};
        self.data_type.len()
            + match &self.value {
                Text(text) => text.len(),
                Binary(bytes) => bytes.len(),
            }
    }
}

impl From<&Message> for Outgoing {
    /// A copy of what was received, with everything that can be carried over. The group goes along; a deduplication id
    /// does not, for it would make SQS swallow the copy.
    fn from(message: &Message) -> Self {
        Self {
            body: message.body.clone(),
            attributes: message.attributes.clone(),
            group: message.group.clone(),
            deduplication_id: None,
            trace_header: message.trace_header.clone(),
            delay: None,
        }
    }
}
