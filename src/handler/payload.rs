//! How a body becomes what a handler takes.
//!
//! Pure: a codec sees one message and answers with a value or an error, which is always permanent (rule T4).

use std::{error::Error, fmt, sync::Arc};

use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::message::Message;

/// What a handler takes. Every `DeserializeOwned` type is one, read as JSON; [`Raw`] is the message itself; implement it
/// for a codec of your own.
pub trait Payload: Sized + Send + Sync + 'static {
    /// Decodes the message. An error dead-letters it with the reason `malformed`.
    fn decode(message: &Message) -> Result<Self, DecodeError>;

    /// As [`decode`](Self::decode), for a payload that keeps the message and so shares it.
    #[doc(hidden)]
    fn decode_shared(message: &Arc<Message>) -> Result<Self, DecodeError> {
        Self::decode(message)
    }
}

impl<T: DeserializeOwned + Send + Sync + 'static> Payload for T {
    fn decode(message: &Message) -> Result<Self, DecodeError> {
        serde_json::from_str(&message.body).map_err(DecodeError::new)
    }
}

/// The message as it came, or out of its envelope where the queue has `ENVELOPE=sns`, for handlers that decode for
/// themselves. Not `Deserialize`, on purpose: no body can be mistaken for it. Shared with the worker, so that a body of a
/// megabyte is in memory once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw(pub Arc<Message>);

impl Payload for Raw {
    fn decode(message: &Message) -> Result<Self, DecodeError> {
        Ok(Self(Arc::new(message.clone())))
    }

    fn decode_shared(message: &Arc<Message>) -> Result<Self, DecodeError> {
        Ok(Self(Arc::clone(message)))
    }
}

/// A body that is not what the handler takes. Always permanent.
#[derive(Debug)]
pub struct DecodeError(Box<dyn Error + Send + Sync>);

impl DecodeError {
    /// From a text or any error.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(source.into())
    }

    /// What is wrong, without what is in the body: for the log, where no body may be. Of JSON, where it is wrong; of a codec of
    /// somebody's own, nothing more than that it is.
    pub(crate) fn without_the_body(&self) -> String {
        let json = self.0.downcast_ref::<serde_json::Error>();
        let place = json.map(|error| {
            let what = match error.classify() {
                Category::Syntax => "it is not JSON",
                Category::Eof => "its JSON ends too early",
                Category::Data => "its JSON is not what the handler takes",
                Category::Io => "it cannot be read",
            };
            format!(": {what}, at line {} column {}", error.line(), error.column())
        });
        format!("the body does not decode{}", place.unwrap_or_default())
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the body does not decode: {}", self.0)
    }
}

impl Error for DecodeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // Its own text is in ours, so the chain goes on behind it.
        self.0.source()
    }
}
