//! What a worker costs at the least: loops on the same SDK that receive ten messages and delete them, and as written by
//! hand with a guard: a conditional put before the work, a conditional update after it.
//!
//! Clients are the SDK's own, with its defaults. Nothing here retries, extends, or gives anything back.

use std::sync::Arc;

use anyhow::Context;
use aws_config::SdkConfig;
use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message};
use futures_util::future::try_join_all;
use leasehold::clock::Clock;
use tokio::task::JoinSet;

use crate::subject::{Job, POLLS, QUEUE, TABLE, Work};

/// How long a claim lasts, and how long a record does, in seconds.
const LEASE: u64 = 30;
const KEPT: u64 = 30 * 24 * 60 * 60;

/// Works until all messages are deleted.
pub(crate) async fn run(config: &SdkConfig, work: &Arc<Work>, guarded: bool) -> anyhow::Result<()> {
    let sqs = aws_sdk_sqs::Client::new(config);
    let guard = guarded.then(|| Guard { client: aws_sdk_dynamodb::Client::new(config), clock: Clock::system() });
    let url = sqs.get_queue_url().queue_name(QUEUE).send().await?.queue_url.context("the queue has no URL")?;
    let mut loops = JoinSet::new();
    for _ in 0..POLLS {
        let (sqs, guard, url, work) = (sqs.clone(), guard.clone(), url.clone(), Arc::clone(work));
        loops.spawn(async move {
            loop {
                receive_and_delete(&sqs, guard.as_ref(), &url, &work).await?;
            }
        });
    }
    let failed = async { loops.join_next().await.unwrap_or(Ok(Ok(()))) };
    // The last message ends the run; loops that are parked by then hold nothing.
    tokio::select! {
        biased;
        () = work.done.cancelled() => Ok(()),
        failed = failed => failed?,
    }
}

async fn receive_and_delete(
    sqs: &aws_sdk_sqs::Client,
    guard: Option<&Guard>,
    url: &str,
    work: &Work,
) -> anyhow::Result<()> {
    let poll = sqs.receive_message().queue_url(url).max_number_of_messages(10).wait_time_seconds(10);
    let messages = poll.send().await?.messages.unwrap_or_default();
    if messages.is_empty() {
        return Ok(());
    }
    try_join_all(messages.iter().map(|message| handle(message, guard, work))).await?;
    let entry = |(n, message): (usize, &Message)| {
        let handle = message.receipt_handle.as_deref().unwrap_or_default();
        Ok(DeleteMessageBatchRequestEntry::builder().id(n.to_string()).receipt_handle(handle).build()?)
    };
    let entries = messages.iter().enumerate().map(entry).collect::<anyhow::Result<_>>()?;
    let deleted = sqs.delete_message_batch().queue_url(url).set_entries(Some(entries)).send().await?;
    anyhow::ensure!(deleted.failed.is_empty(), "messages were not deleted: {:?}", deleted.failed);
    messages.iter().for_each(|_| work.ends());
    Ok(())
}

/// Does nothing, as the handlers that it is compared with.
async fn handle(message: &Message, guard: Option<&Guard>, work: &Work) -> anyhow::Result<()> {
    let job: Job = serde_json::from_str(message.body.as_deref().unwrap_or_default())?;
    let owner = match guard {
        Some(guard) => Some(guard.claim(&job.id).await?),
        None => None,
    };
    work.begins();
    match (guard, owner) {
        (Some(guard), Some(owner)) => guard.confirm(&job.id, owner).await,
        _ => Ok(()),
    }
}

#[derive(Debug, Clone)]
struct Guard {
    client: aws_sdk_dynamodb::Client,
    clock: Clock,
}

impl Guard {
    async fn claim(&self, key: &str) -> anyhow::Result<String> {
        let (owner, now) = (self.clock.token(), self.clock.wall().seconds().0);
        self.client
            .put_item()
            .table_name(TABLE)
            .item("pk", S(key.to_owned()))
            .item("status", S("RUNNING".to_owned()))
            .item("owner", S(owner.clone()))
            .item("lease_until", N((now + LEASE).to_string()))
            .item("expires_at", N((now + KEPT).to_string()))
            .condition_expression("attribute_not_exists(pk) OR (#status = :running AND lease_until < :now)")
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":running", S("RUNNING".to_owned()))
            .expression_attribute_values(":now", N(now.to_string()))
            .send()
            .await?;
        Ok(owner)
    }

    async fn confirm(&self, key: &str, owner: String) -> anyhow::Result<()> {
        let now = self.clock.wall().seconds().0;
        self.client
            .update_item()
            .table_name(TABLE)
            .key("pk", S(key.to_owned()))
            .update_expression("SET #status = :done, expires_at = :expires")
            .condition_expression("#owner = :owner AND #status = :running")
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":owner", S(owner))
            .expression_attribute_values(":running", S("RUNNING".to_owned()))
            .expression_attribute_values(":done", S("DONE".to_owned()))
            .expression_attribute_values(":expires", N((now + KEPT).to_string()))
            .send()
            .await?;
        Ok(())
    }
}
