//! SQS through its SDK, on LocalStack.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold::{
    clock::Clock,
    queue::{Broker, Queue},
};

use crate::{
    queue::{Differences, QueueFixture, queue_contract},
    sqs::Sqs,
};

struct LocalStack(Sqs);

#[async_trait]
impl QueueFixture for LocalStack {
    /// Its 12-hour cap is not that of AWS either, but no behaviour takes that long.
    fn differences(&self) -> Differences {
        Differences {
            deletes_with_a_superseded_handle: true,
            // "Shorter than 256 bytes", it says.
            longest_attribute_name: 255,
            takes_attributes: &["empty bytes", "no number"],
            takes_changes_with_old_handles_on_fifo: true,
            hands_followers_out_beside_their_head: true,
            ignores_attempt_ids: true,
            ..Differences::default()
        }
    }

    fn broker(&self) -> &dyn Broker {
        &self.0.broker
    }

    async fn standard(&self) -> Arc<dyn Queue> {
        self.0.standard().await
    }

    async fn fifo(&self) -> Arc<dyn Queue> {
        self.0.fifo().await
    }

    async fn fifo_by_group(&self) -> Arc<dyn Queue> {
        self.0.fifo_by_group().await
    }

    async fn with_dead_letters(&self, max_receive_count: u32) -> (Arc<dyn Queue>, Arc<dyn Queue>) {
        self.0.with_dead_letters(max_receive_count).await
    }

    async fn fifo_with_dead_letters(&self, max_receive_count: u32) -> (Arc<dyn Queue>, Arc<dyn Queue>) {
        self.0.fifo_with_dead_letters(max_receive_count).await
    }
}

/// With names that no other test has, since a long poll can outlive the queue that it was sent to.
fn localstack() -> Option<LocalStack> {
    Some(LocalStack(Sqs::at(&crate::endpoint()?, format!("{}-", Clock::system().token()))))
}

queue_contract!(
    on_localstack,
    match localstack() {
        Some(fixture) => fixture,
        None => return,
    }
);
