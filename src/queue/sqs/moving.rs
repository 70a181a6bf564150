//! Tasks that move all messages of a dead-letter queue, whose it is, and how many messages a queue has.
//!
//! Owns how they are called. A start is sent once: a second one that found the first still running would be refused, and
//! its caller told that nothing runs.

use std::time::Duration;

use aws_sdk_sqs::{
    Client,
    types::{ListMessageMoveTasksResultEntry, QueueAttributeName},
};

use super::{
    LOOK_UP_TIMEOUT,
    calls::Target,
    errors::{Fault, Meaning},
    retried,
};
use crate::{
    aws,
    clock::{Clock, Millis},
    queue::{Depth, Move, MoveStatus, MoveTask},
};

/// Longest wait for the answer to a start or a cancel, which the service looks at its queues for.
const TASK_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn start(client: &Client, task: &Move) -> Result<(), Fault> {
    let call = client
        .start_message_move_task()
        .source_arn(&task.from)
        .destination_arn(&task.to)
        .set_max_number_of_messages_per_second(task.per_second.map(|rate| i32::try_from(rate).unwrap_or(i32::MAX)));
    call.customize().config_override(aws::one_attempt(TASK_TIMEOUT)).send().await?;
    Ok(())
}

/// The latest task from that queue.
pub(super) async fn latest(client: &Client, from: &str, clock: &Clock) -> Result<Option<MoveTask>, Fault> {
    let reply = retried(clock, || async {
        let call = client.list_message_move_tasks().source_arn(from).max_results(1);
        Ok(call.customize().config_override(aws::one_attempt(LOOK_UP_TIMEOUT)).send().await?)
    })
    .await?;
    reply.results.unwrap_or_default().into_iter().next().map(task).transpose()
}

pub(super) async fn cancel(client: &Client, handle: &str) -> Result<(), Fault> {
    let call = client.cancel_message_move_task().task_handle(handle);
    call.customize().config_override(aws::one_attempt(TASK_TIMEOUT)).send().await?;
    Ok(())
}

fn task(entry: ListMessageMoveTasksResultEntry) -> Result<MoveTask, Fault> {
    let status = entry.status.unwrap_or_default();
    let Some(status) = MoveStatus::parse(&status) else {
        return Err(Fault::new(Meaning::Unavailable, format!("a move task is {status:?}, which nobody knows")));
    };
    let count = |number: i64| u64::try_from(number).unwrap_or_default();
    Ok(MoveTask {
        handle: entry.task_handle,
        status,
        to: entry.destination_arn,
        moved: count(entry.approximate_number_of_messages_moved),
        of: entry.approximate_number_of_messages_to_move.map(count),
        failure: entry.failure_reason,
        started_at: Millis(count(entry.started_timestamp)),
    })
}

pub(super) async fn depth(Target { client, url }: &Target, clock: &Clock) -> Result<Depth, Fault> {
    use QueueAttributeName::{
        ApproximateNumberOfMessages, ApproximateNumberOfMessagesDelayed, ApproximateNumberOfMessagesNotVisible,
    };
    let names =
        [ApproximateNumberOfMessages, ApproximateNumberOfMessagesNotVisible, ApproximateNumberOfMessagesDelayed];
    let reply = retried(clock, || async {
        let call = client.get_queue_attributes().queue_url(url).set_attribute_names(Some(names.to_vec()));
        Ok(call.customize().config_override(aws::one_attempt(LOOK_UP_TIMEOUT)).send().await?)
    })
    .await?;
    let told = reply.attributes.unwrap_or_default();
    let [visible, in_flight, delayed] = names.map(|name| told.get(&name).and_then(|text| text.parse().ok()));
    match (visible, in_flight, delayed) {
        (Some(visible), Some(in_flight), Some(delayed)) => Ok(Depth { visible, in_flight, delayed }),
        _ => Err(Fault::new(Meaning::Unavailable, "the queue does not tell how many messages it has")),
    }
}

/// The URLs of all queues whose redrive policies name this one. Without `MaxResults` the answer has up to a thousand, and no
/// second page: more than one is all that anybody asks.
pub(super) async fn sources(Target { client, url }: &Target, clock: &Clock) -> Result<Vec<String>, Fault> {
    let reply = retried(clock, || async {
        let call = client.list_dead_letter_source_queues().queue_url(url);
        Ok(call.customize().config_override(aws::one_attempt(LOOK_UP_TIMEOUT)).send().await?)
    })
    .await?;
    Ok(reply.queue_urls)
}
