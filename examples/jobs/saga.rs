//! A saga: reserve, charge, ship; and undo what was done when it fails for good.
//!
//! Each part is a step, so that a worker that dies goes on where it was. When the work has failed for good, `undo` is called
//! under the same lease, as often as it takes: it reads what was recorded, and compensates in steps of its own. It answers
//! `Undone`, so that a redrive does it all again, under new keys.
//!
//! What it cannot promise: a refund of what nobody can ask for. A step under way at the last attempt is not recorded; here the
//! provider is asked by the step's key, and one that knows no keys leaves a person to find out. Nor isolation. Between a charge and its refund somebody can see the charge. And what an undo cannot
//! undo at its last attempt is dead-lettered as `undo_incomplete`, for a person.

use std::sync::Arc;

use leasehold::{Handler, HandlerResult, JobContext, ResultExt, StepKey, Undo};
use serde::Deserialize;

use super::outside::Outside;

pub(crate) const MESSAGE: &str = r#"{"order_id":"o-1","sku":"sold-out"}"#;

#[derive(Debug, Deserialize)]
pub(crate) struct Ordered {
    order_id: String,
    sku: String,
}

pub(crate) fn key(ordered: &Ordered) -> String {
    ordered.order_id.clone()
}

pub(crate) struct Order(pub(crate) Arc<Outside>);

impl Order {
    /// Asks whether there is anything under that key.
    fn knows(&self, key: Option<StepKey>) -> bool {
        key.is_some_and(|key| self.0.knows(key.as_str()))
    }
}

impl Handler for Order {
    type Payload = Ordered;

    async fn handle(&self, ordered: &Ordered, cx: &JobContext) -> HandlerResult {
        let call = |what, key: StepKey| async move { self.0.with_key(what, key.as_str()).await };
        let _: String = cx.step("reserve", |key| call("reserve", key)).await?;
        let _: String = cx.step("charge", |key| call("charge", key)).await?;
        if ordered.sku == "sold-out" {
            return Err("nothing left to ship").permanent().reason("sold_out");
        }
        let _: String = cx.step("ship", |key| call("ship", key)).await?;
        Ok(())
    }

    async fn undo(&self, _: &Ordered, cx: &JobContext) -> HandlerResult<Undo> {
        let call = |what, key: StepKey| async move { self.0.with_key(what, key.as_str()).await };
        // The other way round. An answer can have been lost at the last attempt: then nothing is recorded, and who was called
        // knows by the step's key whether it took effect.
        if cx.recorded::<String>("charge")?.is_some() || self.knows(cx.step_key("charge")) {
            let _: String = cx.step("refund", |key| call("refund", key)).await?;
        }
        if cx.recorded::<String>("reserve")?.is_some() || self.knows(cx.step_key("reserve")) {
            let _: String = cx.step("unreserve", |key| call("unreserve", key)).await?;
        }
        Ok(Undo::Undone)
    }
}
