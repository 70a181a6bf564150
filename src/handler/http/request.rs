//! What an app is told of its run, as headers.
//!
//! Pure. Whatever a sender has written into keys, names and values comes out as visible ASCII, and as so little of it that
//! a request is never refused for its size, which could look as if the app were not there.

use std::fmt::Write as _;

use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde::de::IgnoredAny;

use crate::{
    clock::Millis,
    handler::{
        JobContext,
        outside::{self, Room},
        remote::Told,
    },
    message::Message,
    trace::{self, Carried},
};

/// Each attribute goes out twice, under our name and under that of `sqsd`, so these come to some 4 KiB in 20 fields. With
/// our other headers, and room for those of the settings, that stays below what the strictest of common servers take:
/// 8 KiB in all (Tomcat, Jetty), 8,190 bytes a field and 100 fields (gunicorn, Apache). No queue takes more than ten.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html>
const ROOM: Room = Room { attributes: 10, bytes: 2 * 1024, omitted: 512 };

/// The most of recorded results that goes along. With the rest that leaves some room below those 8 KiB; what is larger can be
/// asked for.
const MOST_OF_STEPS: usize = 768;

/// The headers of one run, at the wall-clock time `now`, over those of the settings.
pub(super) fn headers(
    mut headers: HeaderMap,
    message: &Message,
    cx: &JobContext,
    told: Option<&Told>,
    now: Millis,
) -> HeaderMap {
    let mut add = |name: &str, value: &str| {
        // Neither can fail: names are made of what names are made of, and values are encoded.
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            headers.insert(name, value);
        }
    };
    add(CONTENT_TYPE.as_str(), content_type(&message.body));
    // Said of an empty body too: some servers refuse a POST without it.
    add(CONTENT_LENGTH.as_str(), &message.body.len().to_string());
    if let Some(key) = cx.key() {
        add("idempotency-key", &quoted(key));
    }
    for (name, value) in outside::facts(message, cx, now) {
        let value = encoded(&value);
        add(&header(name), &value);
        match name {
            "QUEUE" => add("x-aws-sqsd-queue", &value),
            "MESSAGE_ID" => add("x-aws-sqsd-msgid", &value),
            "RECEIVE_COUNT" => add("x-aws-sqsd-receive-count", &value),
            _ => {}
        }
    }
    let mut room = ROOM;
    for (name, value) in outside::sns_facts(message) {
        let (name, value) = (header(name), encoded(&value));
        // It takes the room of attributes, which go out twice.
        room.bytes = room.bytes.saturating_sub((name.len() + value.len()).div_ceil(2));
        add(&name, &value);
    }
    let (attributes, omitted) = outside::attributes(message, room, |name, value| Some((plain(name), encoded(value))));
    for (name, value) in &attributes {
        add(&format!("x-leasehold-attribute-{name}"), value);
        add(&format!("x-aws-sqsd-attr-{name}"), value);
    }
    if let Some(names) = omitted {
        add("x-leasehold-attributes-omitted", &encoded(&names));
    }
    let Carried { traceparent, tracestate, xray } = trace::carried(message);
    for (name, trace) in [("traceparent", traceparent), ("tracestate", tracestate), ("x-amzn-trace-id", xray)] {
        if let Some(trace) = trace {
            add(name, &trace);
        }
    }
    if let Some(Told { url, token, steps }) = told {
        add("x-leasehold-job-url", url);
        add("x-leasehold-job-token", token);
        let steps = encoded(steps);
        if steps.len() <= MOST_OF_STEPS {
            add("x-leasehold-steps", &steps);
        }
    }
    if let Some(token) = headers.get_mut("x-leasehold-job-token") {
        token.set_sensitive(true);
    }
    headers
}

/// The header of a fact.
fn header(fact: &str) -> String {
    format!("x-leasehold-{}", fact.to_lowercase().replace('_', "-"))
}

fn content_type(body: &str) -> &'static str {
    let is_json = serde_json::from_str::<IgnoredAny>(body).is_ok();
    if is_json { "application/json" } else { "text/plain; charset=utf-8" }
}

/// A name as every server hands it on: gunicorn and nginx drop headers with an underscore, and nginx those with a dot,
/// without a word.
fn plain(name: &str) -> String {
    name.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

/// Percent-encoded where it is not visible ASCII: plain text is as it was, and decoding gives back all of it.
fn encoded(text: &str) -> String {
    let last = text.len().saturating_sub(1);
    let mut encoded = String::with_capacity(text.len());
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'!'..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            // At the ends it would be taken for padding.
            b' ' if index != 0 && index != last => encoded.push(' '),
            // Writing to a string cannot fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

/// A string of RFC 8941. What is not ASCII is percent-encoded; `%` itself stays, because a key has it only where it is
/// escaped already, and an ASCII key is to be the same text here as in a table or a log.
/// <https://www.rfc-editor.org/rfc/rfc8941#name-strings>
fn quoted(key: &str) -> String {
    let mut quoted = String::with_capacity(key.len() + 2);
    quoted.push('"');
    for byte in key.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => drop(write!(quoted, "%{byte:02X}")),
        }
    }
    quoted.push('"');
    quoted
}
