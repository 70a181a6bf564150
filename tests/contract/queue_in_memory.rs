//! The queue in memory, which is to answer as AWS does: it has no differences.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold::{
    queue::{Broker, DeduplicationScope, Queue},
    testing::{MemoryBroker, MemoryQueueSettings},
};

use crate::queue::{QueueFixture, queue_contract};

#[derive(Default)]
struct Memory(MemoryBroker);

#[async_trait]
impl QueueFixture for Memory {
    fn broker(&self) -> &dyn Broker {
        &self.0
    }

    async fn standard(&self) -> Arc<dyn Queue> {
        self.0.create("standard", MemoryQueueSettings::default())
    }

    async fn fifo(&self) -> Arc<dyn Queue> {
        self.0.create("ordered.fifo", MemoryQueueSettings::default())
    }

    async fn fifo_by_group(&self) -> Arc<dyn Queue> {
        let settings = MemoryQueueSettings {
            content_based_deduplication: false,
            deduplication_scope: DeduplicationScope::MessageGroup,
            ..MemoryQueueSettings::default()
        };
        self.0.create("many-groups.fifo", settings)
    }

    async fn with_dead_letters(&self, max_receive_count: u32) -> (Arc<dyn Queue>, Arc<dyn Queue>) {
        self.pair(["source", "dead"], max_receive_count)
    }

    async fn fifo_with_dead_letters(&self, max_receive_count: u32) -> (Arc<dyn Queue>, Arc<dyn Queue>) {
        self.pair(["source.fifo", "dead.fifo"], max_receive_count)
    }
}

impl Memory {
    fn pair(&self, [source, dead]: [&str; 2], max_receive_count: u32) -> (Arc<dyn Queue>, Arc<dyn Queue>) {
        let dead_letters = self.0.create(dead, MemoryQueueSettings::default());
        let redrive = Some((dead.to_owned(), max_receive_count));
        (self.0.create(source, MemoryQueueSettings { redrive, ..MemoryQueueSettings::default() }), dead_letters)
    }
}

queue_contract!(in_memory, Memory::default(), start_paused = true);
