//! Send a web hook: at least once, and its receiver can tell.
//!
//! Somebody else's server cannot be asked whether a call arrived. It is called until it answers, each time with the same
//! `Idempotency-Key` (<https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/>): who receives it can drop
//! what it has seen. The step keeps the number of calls small: once it has answered, it is not called again.
//!
//! What it cannot promise: that a receiver who ignores the key sees it once. Say so in your documentation.

use std::sync::Arc;

use leasehold::{Handler, HandlerResult, JobContext};
use serde::Deserialize;

use super::outside::Outside;

pub(crate) const MESSAGE: &str = r#"{"event":"order.paid","order":"o-3","url":"https://example.org/hook"}"#;

#[derive(Debug, Deserialize)]
pub(crate) struct Event {
    event: String,
    order: String,
    url: String,
}

pub(crate) fn key(event: &Event) -> String {
    format!("{} {}", event.event, event.order)
}

pub(crate) struct Notify(pub(crate) Arc<Outside>);

impl Handler for Notify {
    type Payload = Event;

    async fn handle(&self, event: &Event, cx: &JobContext) -> HandlerResult {
        tracing::debug!(event.url, "calling");
        // A real one sends `Idempotency-Key: "<key>"`, and waits no longer than `cx.deadline()`.
        cx.step("call", |key| async move { self.0.with_key("hook", key.as_str()).await }).await?;
        Ok(())
    }
}
