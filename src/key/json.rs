//! JSON without losing anything: structure is opened level by level, and a number stays the text that it was.
//!
//! Relies on [`RawValue`], because `serde_json::Value` rounds numbers unless a feature is on that would change the
//! crates of everybody who links us. Each level is read once more for every level above it, so depth is bounded. Must
//! never panic, whatever the body is.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer as _,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Error, value::RawValue};

/// The deepest nesting that has a canonical form: that of serde_json itself, so what is deeper decodes nowhere either.
const DEEPEST: usize = 128;

/// One level of a JSON text.
pub(super) enum Node<'a> {
    Null,
    Bool(bool),
    /// As it stands in the text.
    Number(&'a str),
    Text(String),
    Array(Vec<&'a RawValue>),
    /// Sorted by name; of members with the same name the last.
    Object(BTreeMap<String, &'a RawValue>),
}

/// A whole body, its syntax checked.
pub(super) fn parse(text: &str) -> Result<&RawValue, Error> {
    serde_json::from_str(text)
}

/// Opens one level. Fails where escapes stand for no text: `"\ud800"` alone.
pub(super) fn open(raw: &RawValue) -> Result<Node<'_>, Error> {
    let text = raw.get();
    Ok(match text.as_bytes().first() {
        Some(b'{') => Node::Object(serde_json::from_str(text)?),
        Some(b'[') => Node::Array(serde_json::from_str(text)?),
        Some(b'"') => Node::Text(serde_json::from_str(text)?),
        Some(b'n') => Node::Null,
        Some(b't' | b'f') => Node::Bool(text == "true"),
        _ => Node::Number(text),
    })
}

/// What stands at a JSON pointer (RFC 6901); `None` if nothing does.
pub(super) fn find<'a>(root: &'a RawValue, pointer: &str) -> Result<Option<&'a RawValue>, Error> {
    let mut here = root;
    for token in pointer.split('/').skip(1) {
        let next = match here.get().as_bytes().first() {
            Some(b'{') => member(here, &token.replace("~1", "/").replace("~0", "~"))?,
            Some(b'[') => match (open(here)?, index(token)) {
                (Node::Array(items), Some(index)) => items.get(index).copied(),
                _ => None,
            },
            _ => None,
        };
        let Some(next) = next else { return Ok(None) };
        here = next;
    }
    Ok(Some(here))
}

/// One member of an object, the last of that name; the others are only passed over. Every message's key is looked for.
fn member<'a>(object: &'a RawValue, name: &str) -> Result<Option<&'a RawValue>, Error> {
    struct Named<'n>(&'n str);
    impl<'de> Visitor<'de> for Named<'_> {
        type Value = Option<&'de RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Self::Value, M::Error> {
            let mut found = None;
            while let Some(Name(name)) = members.next_key()? {
                if name == self.0 {
                    found = Some(members.next_value()?);
                } else {
                    members.next_value::<IgnoredAny>()?;
                }
            }
            Ok(found)
        }
    }
    serde_json::Deserializer::from_str(object.get()).deserialize_map(Named(name))
}

/// A member's name, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// An array index as RFC 6901 has it: digits only, no zero before others.
fn index(token: &str) -> Option<usize> {
    let plain = token.bytes().all(|byte| byte.is_ascii_digit()) && (token == "0" || !token.starts_with('0'));
    plain.then(|| token.parse().ok())?
}

/// Writes the canonical form: names sorted, no space, texts by what they mean, numbers as they stand. `None` where there
/// is none: too deep, or an escape that stands for no text.
pub(super) fn canonical(raw: &RawValue, out: &mut Vec<u8>) -> Option<()> {
    write(raw, DEEPEST, out)
}

fn write(raw: &RawValue, depth: usize, out: &mut Vec<u8>) -> Option<()> {
    match open(raw).ok()? {
        Node::Object(members) => {
            let depth = depth.checked_sub(1)?;
            out.push(b'{');
            for (position, (name, value)) in members.into_iter().enumerate() {
                separate(position, out);
                serde_json::to_writer(&mut *out, &name).ok()?;
                out.push(b':');
                write(value, depth, out)?;
            }
            out.push(b'}');
        }
        Node::Array(items) => {
            let depth = depth.checked_sub(1)?;
            out.push(b'[');
            for (position, value) in items.into_iter().enumerate() {
                separate(position, out);
                write(value, depth, out)?;
            }
            out.push(b']');
        }
        Node::Text(text) => serde_json::to_writer(out, &text).ok()?,
        Node::Null | Node::Bool(_) | Node::Number(_) => out.extend_from_slice(raw.get().as_bytes()),
    }
    Some(())
}

fn separate(position: usize, out: &mut Vec<u8>) {
    if position > 0 {
        out.push(b',');
    }
}
