//! The engine's process: SQS and DynamoDB with a table and one queue that is full before anybody is told where it is.
//!
//! Says its endpoint in its first line, and for every line that it reads the calls since then, as JSON. Ends with its
//! standard input.

use std::{
    collections::BTreeMap,
    io::{BufRead, stdin},
};

use anyhow::Context;
use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use futures_util::{StreamExt, TryStreamExt, stream};
use leasehold::{
    aws::{self, Aws},
    embedded::Engine,
    guard::dynamodb::create_table,
    queue::BATCH,
};

use crate::{
    large::Desk,
    subject::{QUEUE, TABLE},
};

/// Batches on their way at once while the queue is filled.
const SENDERS: usize = 8;

/// The largest message that the embedded engine takes.
const LARGEST: usize = 256 * 1024;

pub(crate) async fn serve(messages: usize, bytes: usize) -> anyhow::Result<()> {
    if bytes > LARGEST {
        let (desk, endpoint, _served) = Desk::open(messages, bytes).await?;
        println!("{endpoint}");
        return tell(|| desk.calls());
    }
    let engine = Engine::start().await?;
    let aws = Aws::new(&aws::local(engine.endpoint()));
    engine.create_queue(QUEUE, None).await?;
    create_table(&aws.dynamodb(), TABLE).await?;
    fill(&aws.sqs_client(), messages, bytes).await?;
    let before = engine.calls();
    println!("{}", engine.endpoint());
    tell(|| {
        let mut calls = engine.calls();
        for (call, count) in &before {
            calls.entry(call.clone()).and_modify(|now| *now -= count);
        }
        calls.retain(|_, count| *count > 0);
        calls
    })
}

/// Says the calls for every line that it reads, until the last.
fn tell(calls: impl Fn() -> BTreeMap<String, u64>) -> anyhow::Result<()> {
    // On a thread where that is allowed: the engine goes on.
    tokio::task::block_in_place(|| {
        for line in stdin().lock().lines() {
            line?;
            println!("{}", serde_json::to_string(&calls())?);
        }
        anyhow::Ok(())
    })
}

async fn fill(client: &aws_sdk_sqs::Client, messages: usize, bytes: usize) -> anyhow::Result<()> {
    let url = client.get_queue_url().queue_name(QUEUE).send().await?.queue_url.context("the queue has no URL")?;
    let batches = (0..messages).step_by(BATCH).map(|first| first..(first + BATCH).min(messages));
    let sends = batches.map(|batch| async {
        let entry = |n: usize| {
            let entry = SendMessageBatchRequestEntry::builder().id(n.to_string()).message_body(body(n, bytes));
            Ok(entry.build()?)
        };
        let entries = batch.map(entry).collect::<anyhow::Result<_>>()?;
        let sent = client.send_message_batch().queue_url(&url).set_entries(Some(entries)).send().await?;
        anyhow::ensure!(sent.failed.is_empty(), "messages were not taken: {:?}", sent.failed);
        Ok(())
    });
    stream::iter(sends).buffer_unordered(SENDERS).try_collect().await
}

/// A payment, more or less.
pub(crate) fn body(n: usize, bytes: usize) -> String {
    let head = format!(r#"{{"id":"payment-{n:08}","cents":{n},"note":""#);
    let fill = "x".repeat(bytes.saturating_sub(head.len() + 2));
    format!(r#"{head}{fill}"}}"#)
}
