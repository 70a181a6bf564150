//! Charge a payment method: a step, and its key for the provider.
//!
//! The step is recorded, so that what comes after it can fail without a second charge. Between the charge and its record
//! there is a moment that no worker can close: whoever dies in it runs the step again. The provider closes it, by the key that
//! is the same at every try.
//!
//! What it cannot promise: with a provider that knows no idempotency keys, such a moment charges twice. Ask it for the charge
//! first, or let a person decide (`step_once`).

use std::sync::Arc;

use leasehold::{Handler, HandlerResult, JobContext, ResultExt};
use serde::Deserialize;

use super::outside::Outside;

pub(crate) const MESSAGE: &str = r#"{"payment_id":"p-1","cents":1200,"card":"tok_visa"}"#;

#[derive(Debug, Deserialize)]
pub(crate) struct Payment {
    payment_id: String,
    cents: u64,
    card: String,
}

/// The work has a name of its own: not that of the message, which is another when the producer sends it again.
pub(crate) fn key(payment: &Payment) -> String {
    payment.payment_id.clone()
}

pub(crate) struct Charge(pub(crate) Arc<Outside>);

impl Handler for Charge {
    type Payload = Payment;

    async fn handle(&self, payment: &Payment, cx: &JobContext) -> HandlerResult {
        if payment.cents == 0 {
            return Err("a payment of nothing").permanent().reason("empty_payment");
        }
        tracing::debug!(payment.card, payment.cents, "charging");
        let charge: String =
            cx.step("charge", |key| async move { self.0.with_key("charge", key.as_str()).await }).await?;
        // Fails more often, and a second receipt is no harm.
        cx.step("receipt", |_| self.0.without_key("receipt", &charge)).await?;
        Ok(())
    }
}
