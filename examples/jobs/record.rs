//! Create a record: its own id is the guard.
//!
//! An invoice has a number, and is one item. Put under `attribute_not_exists`, it is there once, however often the message
//! comes, and for as long as it lives. There is nothing for a guard to add: `GUARD=none`, one write for a message instead of
//! three.
//!
//! What it cannot promise: that what follows from it happens once. What else is to be done (a mail, a booking) is done in both
//! cases below, and must bear it.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use leasehold::{
    Handler, HandlerResult, JobContext, guard,
    unique::{Inserted, put_new},
};
use serde::{Deserialize, Serialize};

pub(crate) const MESSAGE: &str = r#"{"invoice":"2026-0815","cents":4900}"#;

/// Table of the business, and its key.
pub(crate) const TABLE: (&str, &str) = ("invoices", "invoice");

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Invoice {
    invoice: String,
    cents: u64,
}

pub(crate) struct Invoices(pub(crate) aws_sdk_dynamodb::Client);

impl Handler for Invoices {
    type Payload = Invoice;

    async fn handle(&self, invoice: &Invoice, _: &JobContext) -> HandlerResult {
        match put_new(&self.0, TABLE.0, TABLE.1, guard::item(invoice)?).await? {
            Inserted::New => println!("invoice {}: made", invoice.invoice),
            Inserted::ThereAlready(_) => println!("invoice {}: there already", invoice.invoice),
        }
        Ok(())
    }
}
