//! SQS through its SDK, on the embedded engine.
#![expect(clippy::expect_used, reason = "helpers of tests, which clippy takes for production code here")]

use std::sync::Arc;

use async_trait::async_trait;
use leasehold::{
    embedded::Engine,
    queue::{Broker, Queue},
};

use crate::{
    queue::{Differences, QueueFixture, queue_contract},
    sqs::Sqs,
};

struct Embedded {
    sqs: Sqs,
    /// Ends with the test.
    _engine: Engine,
}

async fn embedded() -> Embedded {
    let engine = Engine::start().await.expect("an engine");
    Embedded { sqs: Sqs::at(engine.endpoint(), String::new()), _engine: engine }
}

#[async_trait]
impl QueueFixture for Embedded {
    /// As told at [`Engine`].
    fn differences(&self) -> Differences {
        Differences {
            largest_message: 256 * 1024,
            ignores_late_delete_on_standard: true,
            refuses_change_with_a_superseded_handle: true,
            accepts_delete_with_a_made_up_handle: true,
            accepts_late_delete_on_fifo: true,
            refuses_group_on_standard: true,
            ignores_attempt_ids: true,
            one_message_per_group: true,
            moves_nothing: true,
            tells_no_sources: true,
            drops_the_trace_header: true,
            // All of them: it looks at none.
            takes_attributes: &[
                "empty text",
                "empty bytes",
                "reserved name",
                "dot at the end",
                "long name",
                "unknown type",
                "no number",
                "no XML",
            ],
            ..Differences::default()
        }
    }

    fn broker(&self) -> &dyn Broker {
        &self.sqs.broker
    }

    async fn standard(&self) -> Arc<dyn Queue> {
        self.sqs.standard().await
    }

    async fn fifo(&self) -> Arc<dyn Queue> {
        self.sqs.fifo().await
    }

    async fn fifo_by_group(&self) -> Arc<dyn Queue> {
        self.sqs.fifo_by_group().await
    }

    async fn with_dead_letters(&self, max_receive_count: u32) -> (Arc<dyn Queue>, Arc<dyn Queue>) {
        self.sqs.with_dead_letters(max_receive_count).await
    }

    async fn fifo_with_dead_letters(&self, max_receive_count: u32) -> (Arc<dyn Queue>, Arc<dyn Queue>) {
        self.sqs.fifo_with_dead_letters(max_receive_count).await
    }
}

queue_contract!(on_the_embedded_engine, embedded().await);
