//! The payload's fingerprint: tells the same work from other work under the same key (rule G9).
//!
//! Owns what "the same payload" means. Two texts of one JSON value have one fingerprint; a JSON value and bytes never
//! share one.

use super::{json, sha256};
use crate::message::Message;

/// What of a message is compared with what an earlier delivery of the same key had.
///
/// Records keep the fingerprint and not the source: when the source is changed, deliveries of keys that are already
/// recorded no longer match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FingerprintSource {
    /// The whole body.
    #[default]
    Body,
    /// What stands in the body at these JSON pointers (RFC 6901).
    Pointers(Vec<String>),
    /// Nothing: the same key is the same work, whatever the payload.
    Off,
}

impl FingerprintSource {
    /// The SHA-256 of the canonical JSON in hexadecimal, or of the body's bytes where that is not JSON, is nested deeper
    /// than 128 levels, or has escapes that stand for no text. `None` if nothing is compared.
    ///
    /// Order of members and white space do not matter, nor does the way a text is escaped; numbers are compared as they
    /// are written. A value that is absent is not the same as `null`.
    #[must_use]
    pub fn of(&self, message: &Message) -> Option<String> {
        let body = &message.body;
        let (domain, canonical) = match self {
            Self::Body => ("json:", whole(body)),
            Self::Pointers(pointers) => ("values:", values(body, pointers)),
            Self::Off => return None,
        };
        Some(match canonical {
            Some(canonical) => sha256([domain.as_bytes(), &canonical]),
            None => sha256(["bytes:", body]),
        })
    }
}

fn whole(body: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(body.len());
    json::canonical(json::parse(body).ok()?, &mut out)?;
    Some(out)
}

/// One value on each line, a line without any for one that is absent: canonical JSON has no line breaks.
fn values(body: &str, pointers: &[String]) -> Option<Vec<u8>> {
    let root = json::parse(body).ok()?;
    let mut out = Vec::new();
    for pointer in pointers {
        if let Some(value) = json::find(root, pointer).ok()? {
            json::canonical(value, &mut out)?;
        }
        out.push(b'\n');
    }
    Some(out)
}
