//! What a program is told of its run, as variables.
//!
//! Pure. A program with too large an environment, or with a NUL in it, is not started at all, which must not look like a
//! program that is not there.

use std::collections::BTreeMap;

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

/// Linux takes 128 KiB in one variable and some megabytes in all. The names that are left out are enough for many times
/// what one message can have.
const ROOM: Room = Room { attributes: usize::MAX, bytes: 64 * 1024, omitted: 16 * 1024 };

/// The most of recorded results that goes along: what is larger can be asked for.
const MOST_OF_STEPS: usize = 64 * 1024;

/// The variables of one run, at the wall-clock time `now`.
pub(super) fn variables(
    message: &Message,
    cx: &JobContext,
    told: Option<&Told>,
    now: Millis,
) -> BTreeMap<String, String> {
    let key = cx.key().map(|key| ("IDEMPOTENCY_KEY", key.to_owned()));
    let trace = message.trace_header.as_ref().map(|header| ("TRACE_HEADER", header.clone()));
    let facts = outside::facts(message, cx, now).into_iter().chain(outside::sns_facts(message)).chain(key).chain(trace);
    let mut variables: BTreeMap<_, _> = facts.map(|(name, value)| (format!("LEASEHOLD_{name}"), value)).collect();
    let (attributes, omitted) = outside::attributes(message, ROOM, |name, value| {
        let name = name.to_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        (!value.contains('\0')).then(|| (format!("LEASEHOLD_ATTRIBUTE_{name}"), value.to_owned()))
    });
    variables.extend(attributes);
    variables.extend(omitted.map(|names| ("LEASEHOLD_ATTRIBUTES_OMITTED".to_owned(), names)));
    if let Some(Told { url, token, steps }) = told {
        let told = [("JOB_URL", url), ("JOB_TOKEN", token), ("STEPS", steps)];
        let told = told.into_iter().filter(|(_, value)| value.len() <= MOST_OF_STEPS);
        variables.extend(told.map(|(name, value)| (format!("LEASEHOLD_{name}"), value.clone())));
    }
    let Carried { traceparent, tracestate, xray } = trace::carried(message);
    let traces = [("TRACEPARENT", traceparent), ("TRACESTATE", tracestate), ("_X_AMZN_TRACE_ID", xray)];
    variables.extend(traces.into_iter().filter_map(|(name, trace)| Some((name.to_owned(), trace?))));
    // No program can be given one; SQS takes none in a message, but a queue of somebody else's may.
    variables.retain(|_, value| !value.contains('\0'));
    variables
}
