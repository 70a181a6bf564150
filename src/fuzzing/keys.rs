//! Where a key is found, and the key and the fingerprint of a body.

use super::BETWEEN;
use crate::{
    key::{FingerprintSource, Key, KeyHash, KeySource, pk},
    message::Message,
};

/// A value of the setting `KEY`, and a body.
pub fn keys(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (source, body) = text.split_once(BETWEEN).unwrap_or(("/id", &text));
    let message = Message { body: body.to_owned(), ..Message::default() };
    fingerprints(&message);
    let Ok(source) = source.parse::<KeySource>() else { return };
    assert_eq!(source.to_string().parse(), Ok(source.clone()));
    let derived = source.derive(&message);
    if let KeySource::Pointers(pointers) = &source {
        let print = FingerprintSource::Pointers(pointers.clone()).of(&message);
        assert!(print.is_some_and(|print| print.len() == 64));
        // Another reader of JSON finds the same there.
        if let ([pointer], Ok(value)) = (pointers.as_slice(), serde_json::from_str::<serde_json::Value>(body)) {
            match value.pointer(pointer) {
                Some(serde_json::Value::String(text)) => {
                    assert_eq!(derived.as_ref().ok(), Some(Key::from(text)).filter(|key| !key.is_missing()).as_ref());
                }
                Some(serde_json::Value::Bool(value)) => assert_eq!(derived.as_ref().ok(), Some(&Key::from(*value))),
                Some(serde_json::Value::Number(_)) => assert!(derived.is_ok()),
                None | Some(_) => assert!(derived.is_err()),
            }
        }
    }
    match derived {
        Ok(key) => {
            for hash in [KeyHash::Long, KeyHash::Always] {
                let pk = pk(Some("n"), "q", &key, hash).map(|pk| pk.0).unwrap_or_default();
                assert!(pk.starts_with("n/q#") && pk.len() <= 1024 && !pk.contains(char::is_control), "{pk:?}");
            }
        }
        Err(error) => drop(error.to_string()),
    }
}

/// A body has the fingerprint of what any other reader of JSON writes of it, unless that reader rounds numbers.
fn fingerprints(message: &Message) {
    let print = |message: &Message| FingerprintSource::Body.of(message);
    let Ok(value) = serde_json::from_str::<serde_json::Value>(&message.body) else { return };
    if !message.body.contains(|c: char| c.is_ascii_digit()) {
        let rewritten = Message { body: format!(" {value:#}\n"), ..Message::default() };
        assert_eq!(print(message), print(&rewritten));
    }
}
