//! The idempotency key: what names one unit of business work, where it is found in a message, and how it becomes a
//! primary key.
//!
//! Owns the one format in which parts are joined; nobody else builds or takes apart a [`Pk`]. Different keys never
//! become one string, and a key that is not there never becomes a key that messages share. Nothing here does I/O.

use std::fmt;

pub use fingerprint::FingerprintSource;

use crate::{
    guard::Pk,
    message::Message,
    testing::{Planted, planted},
};
use json::Node;

mod fingerprint;
mod json;
#[cfg(test)]
mod tests;

/// Names one unit of business work: one payment, one e-mail of one campaign.
///
/// Made from texts, whole numbers, truth values and tuples of them, each part kept apart and typed: `("a", "b")` is not
/// `"ab"`, and `1` is not `"1"`. Other types go by way of their text, as in `Key::from(uuid.to_string())`. An empty text
/// and `None` are *no key*, and so is a tuple with such a part: a permanent error, never a key that messages share.
///
/// ```
/// use leasehold::key::Key;
/// assert_ne!(Key::from(("a", "b")), Key::from("a#b"));
/// assert!(Key::from(("tenant", None::<u64>)).is_missing());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Option<String>);

impl Key {
    /// Whether there is no key.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.0.is_none()
    }

    /// One key of several, in their order. A key that is itself of several parts stays one part: its separators are
    /// escaped and it is marked as a tuple.
    fn join(parts: impl IntoIterator<Item = Self>) -> Self {
        let parts: Option<Vec<String>> = parts.into_iter().map(|part| part.0).collect();
        Self(parts.filter(|parts| !parts.is_empty()).map(|mut parts| match parts.len() {
            1 => parts.swap_remove(0),
            _ => parts.into_iter().map(one_part).collect::<Vec<_>>().join("#"),
        }))
    }

    /// The keys that these texts can stand for, as somebody types them: each part is a text, and one that is a number or a
    /// truth value in JSON can be that too. The key of texts alone comes first. There are two to the power of such parts:
    /// take few.
    ///
    /// ```
    /// use leasehold::key::Key;
    /// assert_eq!(Key::readings(&["a", "7"]), [Key::from(("a", "7")), Key::from(("a", 7))]);
    /// ```
    #[must_use]
    pub fn readings<T: AsRef<str>>(parts: &[T]) -> Vec<Self> {
        let mut readings = vec![Vec::new()];
        for part in parts.iter().map(AsRef::as_ref) {
            let typed = json::parse(part).ok().filter(|raw| raw.get() == part).and_then(|raw| json::open(raw).ok());
            let typed = match typed {
                Some(Node::Number(text)) => Some(Self::number(text)),
                Some(Node::Bool(value)) => Some(Self::from(value)),
                _ => None,
            };
            let of_part = |part: Self| {
                readings.iter().map(move |before| [before.as_slice(), std::slice::from_ref(&part)].concat())
            };
            readings = of_part(part.into()).chain(typed.into_iter().flat_map(of_part)).collect();
        }
        readings.into_iter().map(Self::join).collect()
    }

    fn number(text: impl fmt::Display) -> Self {
        Self(Some(format!("n:{}", Escaped(&text.to_string()))))
    }
}

fn one_part(part: String) -> String {
    if part.contains('#') { format!("t:{}", Escaped(&part)) } else { part }
}

/// The parts as a primary key holds them: escaped, typed and joined by `#`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("(no key)"))
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self((!text.is_empty()).then(|| Escaped(text).to_string()))
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&String> for Key {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<bool> for Key {
    fn from(value: bool) -> Self {
        Self(Some(format!("b:{value}")))
    }
}

/// `None` is no key.
impl<T: Into<Self>> From<Option<T>> for Key {
    fn from(key: Option<T>) -> Self {
        key.map_or(Self(None), Into::into)
    }
}

macro_rules! key_from_numbers {
    ($($number:ty),+) => { $(
        impl From<$number> for Key {
            fn from(number: $number) -> Self {
                Self::number(number)
            }
        }
    )+ };
}
key_from_numbers!(u64, u32, i64, i32);

macro_rules! key_from_tuples {
    ($(($($part:ident),+)),+) => { $(
        impl<$($part: Into<Key>),+> From<($($part,)+)> for Key {
            fn from(parts: ($($part,)+)) -> Self {
                #[expect(non_snake_case, reason = "each part goes by the name of its type")]
                let ($($part,)+) = parts;
                Self::join([$($part.into()),+])
            }
        }
    )+ };
}
key_from_tuples!((A, B), (A, B, C), (A, B, C, D));

/// A text without the characters that mean something in a primary key, and without control characters, which no
/// terminal should be handed. What stands for nothing at all is a lone `%`, which no escaped text contains.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        if self.0.is_empty() {
            return f.write_char('%');
        }
        let mut plain_from = 0;
        let is_escaped = |c: char| matches!(c, '%' | '#' | '/' | ':') || c.is_control();
        for (at, text) in self.0.match_indices(is_escaped) {
            f.write_str(&self.0[plain_from..at])?;
            text.bytes().try_for_each(|byte| write!(f, "%{byte:02X}"))?;
            plain_from = at + text.len();
        }
        f.write_str(&self.0[plain_from..])
    }
}

/// Where the key of a message is found (rule G10).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySource {
    /// In the body, at one or more JSON pointers (RFC 6901): texts, numbers and truth values. A number is its text as
    /// the body has it, so that `1.0` is not `1` and no digit is lost.
    Pointers(Vec<String>),
    /// In a message attribute of type `String` or `Number`, as text.
    Attribute(String),
    /// The deduplication id, which only messages of FIFO queues have.
    ///
    /// What SQS itself has moved to a dead-letter queue comes back with another. Where it is a hash of the body
    /// (content-based deduplication), equal bodies are one piece of work for as long as "done" is remembered.
    DeduplicationId,
    /// The message group id and the deduplication id, for FIFO queues on which an id is one message's only within its
    /// group (`DeduplicationScope=messageGroup`, as high-throughput FIFO has it).
    GroupAndDeduplicationId,
    /// SQS's id of the message: another one for the same work if a producer sends it again.
    MessageId,
}

/// Why a message has no key. It never will: a permanent error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The body is not JSON, so that no pointer leads anywhere.
    #[error("no key: the body is not JSON")]
    NotJson(#[source] serde_json::Error),
    /// What stands at the pointer is no key.
    #[error("no key: {pointer} is {found}")]
    NoKey {
        /// Where it was looked for.
        pointer: String,
        /// What was found: `missing`, `null`, `empty`, `an object`, `an array`.
        found: &'static str,
    },
    /// The message has no such attribute, or it is empty or binary.
    #[error("no key: the message has no attribute {0:?} with a text")]
    NoAttribute(String),
    /// The message has no deduplication id.
    #[error("no key: the message has no deduplication id; only FIFO queues give one")]
    NoDeduplicationId,
    /// The message has no id, which SQS always gives.
    #[error("no key: the message has no id")]
    NoMessageId,
}

impl KeySource {
    /// The key of a message, from its bytes as they were received.
    pub fn derive(&self, message: &Message) -> Result<Key, KeyError> {
        if planted(Planted::KeyedByMessage) {
            return Ok(message.id.as_str().into());
        }
        let present = |text: Option<&str>| Some(Key::from(text)).filter(|key| !key.is_missing());
        match self {
            Self::Pointers(pointers) => from_body(&message.body, pointers),
            Self::Attribute(name) => {
                present(message.attribute(name)).ok_or_else(|| KeyError::NoAttribute(name.clone()))
            }
            Self::DeduplicationId => present(message.deduplication_id.as_deref()).ok_or(KeyError::NoDeduplicationId),
            Self::GroupAndDeduplicationId => {
                let key = Key::from((message.group.as_deref(), message.deduplication_id.as_deref()));
                Some(key).filter(|key| !key.is_missing()).ok_or(KeyError::NoDeduplicationId)
            }
            Self::MessageId => present(Some(&message.id)).ok_or(KeyError::NoMessageId),
        }
    }
}

fn from_body(body: &str, pointers: &[String]) -> Result<Key, KeyError> {
    let root = json::parse(body).map_err(KeyError::NotJson)?;
    let parts = pointers.iter().map(|pointer| {
        let no_key = |found| Err(KeyError::NoKey { pointer: pointer.clone(), found });
        let Some(found) = json::find(root, pointer).map_err(KeyError::NotJson)? else { return no_key("missing") };
        match json::open(found).map_err(KeyError::NotJson)? {
            Node::Text(text) if text.is_empty() => no_key("empty"),
            Node::Text(text) => Ok(Key::from(text)),
            Node::Number(text) => Ok(Key::number(text)),
            Node::Bool(value) => Ok(Key::from(value)),
            Node::Null => no_key("null"),
            Node::Object(_) => no_key("an object"),
            Node::Array(_) => no_key("an array"),
        }
    });
    Ok(Key::join(parts.collect::<Result<Vec<_>, _>>()?))
}

/// When a primary key holds a hash of the key instead of the key itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyHash {
    /// When it would be longer than 1,024 bytes.
    #[default]
    Long,
    /// Always: nobody who reads the table sees the key. A hash of what can be guessed can be found by guessing.
    Always,
}

/// The longest primary key that DynamoDB takes, in bytes.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-partition-sort-keys>
const LONGEST_STORED: usize = 2048;

/// The longest primary key that is not hashed, in bytes: half is left free.
const LONGEST_PK: usize = LONGEST_STORED / 2;

/// The primary key of a key's record: `operation#part#part`, or `namespace/operation#part` with a namespace.
///
/// Different namespaces, operations and keys never have the same one, and none begins with `#`, which leaves such keys
/// to records of our own. `None` if there is no key.
#[must_use]
pub fn pk(namespace: Option<&str>, operation: &str, key: &Key, hash: KeyHash) -> Option<Pk> {
    let key = key.0.as_deref()?;
    let plain = format!("{}{key}", prefix(namespace, operation));
    let hashed = hash == KeyHash::Always || plain.len() > LONGEST_PK;
    Some(Pk(if hashed { format!("{}sha256:{}", prefix(namespace, operation), sha256([key])) } else { plain }))
}

/// The primary key of what operators say about a queue: `#control#queue`, or `#control#namespace/queue`. No record has
/// it.
pub(crate) fn control_pk(namespace: Option<&str>, queue: &str) -> Pk {
    Pk(format!("#control#{}", within(namespace, queue)))
}

/// Whether a primary key is one of this namespace and operation: what a dead-letter note names is believed only then.
/// One that no record can have is nobody's: a sender can have written the note.
pub(crate) fn belongs(pk: &Pk, namespace: Option<&str>, operation: &str) -> bool {
    pk.0.len() <= LONGEST_STORED && pk.0.starts_with(&prefix(namespace, operation))
}

/// Ends in `#`, so that no operation is the beginning of another.
fn prefix(namespace: Option<&str>, operation: &str) -> String {
    format!("{}#", within(namespace, operation))
}

fn within(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{}/{}", Escaped(namespace), Escaped(name)),
        None => Escaped(name).to_string(),
    }
}

/// The SHA-256 of pieces one after another, in hexadecimal.
pub(crate) fn sha256<T: AsRef<[u8]>>(pieces: impl IntoIterator<Item = T>) -> String {
    use sha2::{Digest as _, Sha256};
    let mut hash = Sha256::new();
    pieces.into_iter().for_each(|piece| hash.update(piece));
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or_default();
    hash.finalize().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
