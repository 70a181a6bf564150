//! Increment a balance: reshaped, so that it is no increment.
//!
//! "Add 500" done twice adds 1000. "Grant g-7 of 500 is given" done twice is given once: the grant has an id, and its item is
//! put under `attribute_not_exists`, in one transaction with the addition and with "done" in the guard's record. All three
//! are written or none.
//!
//! What it cannot promise: anything outside of DynamoDB. And a balance that many jobs change at once makes transactions
//! conflict; they are tried again.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use leasehold::{Handler, HandlerResult, JobContext, guard::ItemWrite};
use serde::Deserialize;

pub(crate) const MESSAGE: &str = r#"{"grant_id":"g-7","account":"a-1","cents":500}"#;

/// Tables of the business, and their keys.
pub(crate) const TABLES: [(&str, &str); 2] = [("grants", "grant_id"), ("balances", "account")];

#[derive(Debug, Deserialize)]
pub(crate) struct Granted {
    grant_id: String,
    account: String,
    cents: u64,
}

pub(crate) fn key(granted: &Granted) -> String {
    granted.grant_id.clone()
}

pub(crate) struct Grant;

impl Handler for Grant {
    type Payload = Granted;

    async fn handle(&self, granted: &Granted, cx: &JobContext) -> HandlerResult {
        let grant = [("grant_id", granted.grant_id.as_str()), ("account", granted.account.as_str())];
        let given = cx
            .confirm_with([
                // Outlives the guard's record, so that not even a duplicate next year adds again.
                ItemWrite::put("grants", grant).when("attribute_not_exists(grant_id)"),
                ItemWrite::update("balances", [("account", granted.account.as_str())], "ADD cents :cents")
                    .value(":cents", granted.cents),
            ])
            .await;
        match given {
            // Given by a run whose record is gone: there is nothing left to do.
            Err(error) if error.condition().is_some_and(|failed| failed.index == 0) => Ok(()),
            given => given.inspect(|()| println!("{} cents granted to {}", granted.cents, granted.account)),
        }
    }
}
