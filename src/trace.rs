//! The spans of a delivery, and how its trace goes on: from its producer, and to what does the work.
//!
//! Names and fields are OpenTelemetry's for messaging, in the version that [`SEMANTIC_CONVENTIONS`] names. One span for each
//! run, at `info`, so that what a handler logs can be told apart; what is around it and in it, at `debug`, for a subscriber that
//! writes fields down takes longer for those of a delivery than everything else here for its message. All have one target, by
//! which they are filtered. A producer's context is a link and no parent, as the conventions have it: a message can be delivered
//! again for days, and each delivery is a trace of its own.
//!
//! [`SEMANTIC_CONVENTIONS`]: crate::telemetry::SEMANTIC_CONVENTIONS

use tracing::{Span, field::Empty};

use crate::message::Message;

pub(crate) use context::Context;

mod context;

/// The target of all spans here.
const TARGET: &str = "leasehold::trace";

/// One delivery, from its receive to its settlement.
pub(crate) fn process(queue: &str, at_sqs: &str, message: &Message) -> Span {
    let span = tracing::debug_span!(
        target: TARGET,
        "process",
        otel.name = format_args!("process {at_sqs}"),
        otel.kind = "consumer",
        otel.status_code = Empty,
        messaging.system = "aws_sqs",
        messaging.operation.name = "process",
        messaging.operation.type = "process",
        messaging.destination.name = at_sqs,
        messaging.message.id = message.id,
        leasehold.queue = queue,
        leasehold.key = Empty,
        leasehold.outcome = Empty,
        error.type = Empty,
        trace_id = Empty,
    );
    link(&span, message);
    span
}

/// Notes a producer's context, where the message carries one.
pub(crate) fn link(span: &Span, message: &Message) {
    if span.is_disabled() {
        return;
    }
    if let Some(producer) = Context::of_producer(message) {
        span.record("trace_id", producer.trace_id.as_str());
        #[cfg(feature = "otel")]
        tracing_opentelemetry::OpenTelemetrySpanExt::add_link(span, producer.remote());
    }
}

/// The work has this key.
pub(crate) fn key(key: &str) {
    Span::current().record("leasehold.key", key);
}

/// What became of the delivery, and why it failed if it did.
pub(crate) fn outcome(outcome: &str, error: Option<&str>) {
    let span = Span::current();
    span.record("leasehold.outcome", outcome);
    if let Some(error) = error {
        span.record("error.type", error);
        span.record("otel.status_code", "ERROR");
    }
}

/// The claim of a key.
pub(crate) fn claim() -> Span {
    tracing::debug_span!(target: TARGET, "claim")
}

/// One run of a handler, or of its undo: what it logs is about this work. Each field is paid for by every message where
/// spans are written down, so the queue is told where the key does not begin with what is called so.
pub(crate) fn handler(queue: &str, message: &Message, key: Option<&str>, attempt: u32, is_undo: bool) -> Span {
    tracing::info_span!(
        target: TARGET,
        "handle",
        otel.name = is_undo.then_some("undo"),
        leasehold.queue = key.is_none().then_some(queue),
        leasehold.key = key,
        leasehold.attempt = attempt,
        messaging.message.id = message.id,
        trace_id = Context::of_producer(message).map(|producer| producer.trace_id),
    )
}

/// One step of a run, its record included.
pub(crate) fn step(name: &str) -> Span {
    tracing::debug_span!(target: TARGET, "step", otel.name = format_args!("step {name}"), leasehold.step = name)
}

/// What came of a run is written, until it is.
pub(crate) fn record(change: &'static str) -> Span {
    tracing::debug_span!(target: TARGET, "record", otel.name = format_args!("record {change}"))
}

/// The copy of what has failed for good is sent.
pub(crate) fn dead_letter() -> Span {
    tracing::debug_span!(target: TARGET, "dead-letter")
}

/// A delivery is settled.
pub(crate) fn settle(at_sqs: &str) -> Span {
    tracing::debug_span!(
        target: TARGET,
        "settle",
        otel.name = format_args!("settle {at_sqs}"),
        otel.kind = "client",
        messaging.system = "aws_sqs",
        messaging.operation.name = "settle",
        messaging.operation.type = "settle",
        messaging.destination.name = at_sqs,
    )
}

/// What an app or a program is told of the trace that its run is in.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) traceparent: Option<String>,
    pub(crate) tracestate: Option<String>,
    /// X-Ray's header, where the producer has sent one.
    pub(crate) xray: Option<String>,
}

/// The context of this run's own span, where spans are recorded; and else the producer's, as it came.
pub(crate) fn carried(message: &Message) -> Carried {
    let producers_xray = message.trace_header.as_deref().filter(|header| context::is_xray(header));
    #[cfg(feature = "otel")]
    if let Some(own) = Context::of_current_span() {
        return Carried {
            traceparent: Some(own.to_traceparent()),
            xray: producers_xray.map(|_| own.to_xray()),
            tracestate: own.state,
        };
    }
    let w3c = Context::w3c_of(message);
    Carried {
        traceparent: w3c.as_ref().and_then(|_| message.attribute("traceparent")).map(str::to_owned),
        tracestate: w3c.and_then(|context| context.state),
        xray: producers_xray.map(str::to_owned),
    }
}
