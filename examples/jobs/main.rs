//! Five jobs and a saga, each written so that doing it twice has one effect: `cargo run --all-features --example jobs -- charge`.
//!
//! Each is a page of its own in this folder, with why it is done this way and what it cannot promise. What runs here is a
//! worker on SQS and DynamoDB in this process, which gets each message twice. The tests run the same pages, kill their worker
//! in the middle, and count what happened outside.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod balance;
mod charge;
mod email;
mod outside;
mod record;
mod saga;
mod tables;
mod webhook;

use std::{error::Error, sync::Arc, time::Duration};

use leasehold::{
    Handler, Shutdown, Worker,
    aws::{self, Aws},
    embedded::Engine,
    guard::dynamodb::create_table,
    queue::{Broker, Outgoing, QueueAddress},
};
use outside::Outside;

const QUEUE: &str = "jobs";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let job = std::env::args().nth(1).unwrap_or_default();
    let outside = Arc::<Outside>::default();
    let body = match job.as_str() {
        "charge" => charge::MESSAGE,
        "email" => email::MESSAGE,
        "balance" => balance::MESSAGE,
        "record" => record::MESSAGE,
        "webhook" => webhook::MESSAGE,
        "saga" => saga::MESSAGE,
        _ => return Err("which one? charge, email, balance, record, webhook or saga")?,
    };
    let engine = Engine::start().await?;
    let sdk = aws::local(engine.endpoint());
    let aws = Aws::new(&sdk);
    engine.create_queue("jobs-dlq", None).await?;
    engine.create_queue(QUEUE, Some(("jobs-dlq", 100))).await?;
    create_table(&aws.dynamodb(), "leasehold").await?;
    for (table, key) in [balance::TABLES[0], balance::TABLES[1], record::TABLE] {
        tables::make(&aws.dynamodb(), table, key).await?;
    }
    let queue = aws.sqs().open(&QueueAddress::Name(QUEUE.to_owned())).await?;
    for _ in 0..2 {
        queue.send(&Outgoing { body: body.to_owned(), ..Outgoing::default() }).await?;
    }
    println!("sent twice: {body}\n");

    let worker = |vars: &[(&str, &str)]| {
        let vars = [("LEASEHOLD_QUEUES", QUEUE), ("LEASEHOLD_WAIT_TIME", "1s")].iter().chain(vars);
        Worker::from_vars(vars.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))).aws(&sdk)
    };
    let until_idle = {
        let (engine, queue) = (Arc::new(engine), QUEUE);
        Shutdown::when(async move {
            while engine.depth(queue).await.is_ok_and(|depth| depth.total() > 0) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    };
    let report = match job.as_str() {
        "charge" => worker(&[]).queue(QUEUE, charge::Charge(outside).key(charge::key)).run(until_idle).await?,
        "email" => worker(&[]).queue(QUEUE, email::Welcome(outside).key(email::key)).run(until_idle).await?,
        "balance" => worker(&[]).queue(QUEUE, balance::Grant.key(balance::key)).run(until_idle).await?,
        "record" => {
            let invoice = record::Invoices(aws.dynamodb());
            worker(&[("LEASEHOLD_GUARD", "none")]).queue(QUEUE, invoice).run(until_idle).await?
        }
        "webhook" => worker(&[]).queue(QUEUE, webhook::Notify(outside).key(webhook::key)).run(until_idle).await?,
        _ => worker(&[]).queue(QUEUE, saga::Order(outside).key(saga::key)).run(until_idle).await?,
    };
    println!("\ndone: {}, suppressed: {}, dead-lettered: {}", report.done, report.suppressed, report.dead);
    Ok(())
}
