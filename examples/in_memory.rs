//! A worker on queues and a guard in memory: `cargo run --example in_memory`.
//!
//! Three messages ask for two payments, and the first receipt cannot be sent. What is printed: each payment is charged
//! once, although one was asked for twice and the other needed two attempts.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use leasehold::{Handler, HandlerResult, JobContext, StepKey, testing::TestBed};
use serde::Deserialize;

/// What a message's body holds.
#[derive(Debug, Deserialize)]
struct Payment {
    payment_id: String,
    cents: u64,
}

/// The handler, with what it needs.
#[derive(Debug, Default)]
struct Payments {
    bank: Bank,
    mail: Mail,
}

impl Handler for Payments {
    type Payload = Payment;

    async fn handle(&self, payment: &Payment, cx: &JobContext) -> HandlerResult {
        println!("{}: attempt {}", payment.payment_id, cx.attempt());
        // What a step has done is recorded: the attempt after a failure goes on behind it.
        cx.step("charge", async |key| self.bank.charge(payment, &key)).await?;
        cx.step("receipt", async |_| self.mail.receipt(payment)).await?;
        Ok(())
    }
}

/// Charges. A real one would hand the key on, so that a charge whose reply was lost is not made again.
#[derive(Debug, Default)]
struct Bank(Mutex<BTreeMap<String, u64>>);

impl Bank {
    fn charge(&self, payment: &Payment, key: &StepKey) -> HandlerResult {
        println!("{}: charged {} cents under the key {key}", payment.payment_id, payment.cents);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(payment.payment_id.clone()).or_default() +=
            payment.cents;
        Ok(())
    }
}

/// Sends receipts, but not the first.
#[derive(Debug, Default)]
struct Mail(AtomicBool);

impl Mail {
    fn receipt(&self, payment: &Payment) -> HandlerResult {
        if !self.0.swap(true, Ordering::Relaxed) {
            println!("{}: the mail server hangs up", payment.payment_id);
            return Err("the mail server hung up")?;
        }
        println!("{}: receipt sent", payment.payment_id);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let bed = TestBed::new(&["payments"]);
    bed.send("payments", r#"{"payment_id": "p-1", "cents": 1200}"#);
    bed.send("payments", r#"{"payment_id": "p-1", "cents": 1200}"#);
    bed.send("payments", r#"{"payment_id": "p-2", "cents": 340}"#);

    // On AWS: `Worker::from_env().queue(..).run(shutdown_signal()?)`.
    let worker = bed.worker(&[("LEASEHOLD_QUEUES", "payments"), ("LEASEHOLD_BACKOFF", "1s")]);
    let payments = Payments::default().key(|payment| payment.payment_id.clone());
    let report = worker.queue("payments", payments).run(bed.until_idle()).await?;

    println!("done: {}, suppressed: {}, failed attempts: {}", report.done, report.suppressed, report.failed);
    Ok(())
}
