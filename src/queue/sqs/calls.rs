//! The API calls that are gathered: deletes, visibility changes and sends, for one entry and for several.
//!
//! Owns their timeouts and how often each is sent. Relies on [`batch`](super::batch) for everything else.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_sdk_sqs::types::{ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry};

use super::{
    batch::{BatchCall, Listed, Verdict},
    convert,
    errors::Fault,
};
use crate::{aws, message::ReceiptHandle, queue::Outgoing};

/// Longest wait for the answer to a delete or a visibility change. SQS answers in some tens of milliseconds, and a beat
/// has a lease to keep: what takes longer is better tried again or given up.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);

/// Longest wait for the answer to a send, whose request can be a megabyte.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a delete is tried. A message that is not deleted comes again and is found done, so this only has to outlast
/// a hiccup.
const DELETE_TRIES: u32 = 3;

/// How long a batch of deletes stays open. Nobody waits for a delete: "done" is recorded, and the slot is free. A message
/// that is deleted together with nine others costs a tenth of a request.
const DELETE_LINGER: Duration = Duration::from_millis(50);

/// How often a send is tried. A copy too many of a dead letter is folded by the tools; one that is missing is lost.
const SEND_TRIES: u32 = 3;

/// One queue, as the SDK wants it.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) client: aws_sdk_sqs::Client,
    pub(super) url: String,
}

/// `DeleteMessage`. Harmless to repeat: a message that is gone is deleted with success.
#[derive(Debug)]
pub(super) struct Delete(pub(super) Target);

#[async_trait]
impl BatchCall for Delete {
    type Entry = ReceiptHandle;
    const TRIES: u32 = DELETE_TRIES;
    const LINGER: (Duration, Duration) = (DELETE_LINGER, DELETE_LINGER);

    fn size(_: &ReceiptHandle) -> usize {
        0
    }

    async fn batch(&self, entries: &[(String, ReceiptHandle)]) -> Result<Listed, Fault> {
        let entries = entries
            .iter()
            .map(|(id, handle)| {
                DeleteMessageBatchRequestEntry::builder().id(id).receipt_handle(handle.as_str()).build()
            })
            .collect::<Result<_, _>>()?;
        let Target { client, url } = &self.0;
        let call = client.delete_message_batch().queue_url(url).set_entries(Some(entries));
        let reply = call.customize().config_override(aws::one_attempt(SETTLE_TIMEOUT)).send().await?;
        let successful = reply.successful.into_iter().map(|entry| entry.id).collect();
        Ok(Listed { successful, failed: reply.failed })
    }

    async fn single(&self, handle: &ReceiptHandle) -> Verdict {
        let Target { client, url } = &self.0;
        let call = client.delete_message().queue_url(url).receipt_handle(handle.as_str());
        call.customize().config_override(aws::one_attempt(SETTLE_TIMEOUT)).send().await?;
        Ok(())
    }
}

/// `ChangeMessageVisibility`. Sent once: one whose outcome is unknown could arrive after a later one (rule L6).
#[derive(Debug)]
pub(super) struct ChangeVisibility(pub(super) Target);

/// A handle, and in how many seconds its message becomes visible.
pub(super) type Visibility = (ReceiptHandle, i32);

#[async_trait]
impl BatchCall for ChangeVisibility {
    type Entry = Visibility;
    const TRIES: u32 = 1;

    fn size(_: &Visibility) -> usize {
        0
    }

    async fn batch(&self, entries: &[(String, Visibility)]) -> Result<Listed, Fault> {
        let entries = entries
            .iter()
            .map(|(id, (handle, seconds))| {
                ChangeMessageVisibilityBatchRequestEntry::builder()
                    .id(id)
                    .receipt_handle(handle.as_str())
                    .visibility_timeout(*seconds)
                    .build()
            })
            .collect::<Result<_, _>>()?;
        let Target { client, url } = &self.0;
        let call = client.change_message_visibility_batch().queue_url(url).set_entries(Some(entries));
        let reply = call.customize().config_override(aws::one_attempt(SETTLE_TIMEOUT)).send().await?;
        let successful = reply.successful.into_iter().map(|entry| entry.id).collect();
        Ok(Listed { successful, failed: reply.failed })
    }

    async fn single(&self, (handle, seconds): &Visibility) -> Verdict {
        let Target { client, url } = &self.0;
        let call = client
            .change_message_visibility()
            .queue_url(url)
            .receipt_handle(handle.as_str())
            .visibility_timeout(*seconds);
        call.customize().config_override(aws::one_attempt(SETTLE_TIMEOUT)).send().await?;
        Ok(())
    }
}

/// `SendMessage`. Repeated while it fails or is not answered: the contract is once or more.
#[derive(Debug)]
pub(super) struct Send(pub(super) Target);

#[async_trait]
impl BatchCall for Send {
    type Entry = Arc<Outgoing>;
    const TRIES: u32 = SEND_TRIES;

    fn size(message: &Arc<Outgoing>) -> usize {
        message.size()
    }

    async fn batch(&self, entries: &[(String, Arc<Outgoing>)]) -> Result<Listed, Fault> {
        let entries = entries.iter().map(|(id, message)| convert::entry(id, message)).collect::<Result<_, _>>()?;
        let Target { client, url } = &self.0;
        let call = client.send_message_batch().queue_url(url).set_entries(Some(entries));
        let reply = call.customize().config_override(aws::one_attempt(SEND_TIMEOUT)).send().await?;
        let successful = reply.successful.into_iter().map(|entry| entry.id).collect();
        Ok(Listed { successful, failed: reply.failed })
    }

    async fn single(&self, message: &Arc<Outgoing>) -> Verdict {
        let Target { client, url } = &self.0;
        let call = client
            .send_message()
            .queue_url(url)
            .message_body(&message.body)
            .set_message_attributes(Some(convert::attributes(message)?))
            .set_message_system_attributes(convert::trace_header(message)?)
            .set_message_group_id(message.group.clone())
            .set_message_deduplication_id(message.deduplication_id.clone())
            .set_delay_seconds(message.delay.map(convert::seconds));
        call.customize().config_override(aws::one_attempt(SEND_TIMEOUT)).send().await?;
        Ok(())
    }
}
