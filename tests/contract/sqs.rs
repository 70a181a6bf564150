//! Queues of SQS through its SDK, for the suite.
#![expect(clippy::expect_used, reason = "helpers of tests, which clippy takes for production code here")]

use std::sync::Arc;

use aws_sdk_sqs::types::QueueAttributeName::{
    self, ContentBasedDeduplication, DeduplicationScope, FifoQueue, FifoThroughputLimit, RedrivePolicy,
};
use leasehold::{
    aws::{self, Aws},
    queue::{Broker, Queue, QueueAddress, sqs::SqsBroker},
};

const FIFO: [(QueueAttributeName, &str); 2] = [(FifoQueue, "true"), (ContentBasedDeduplication, "true")];

/// One service at an endpoint, and the adapter that is tested.
pub(crate) struct Sqs {
    aws: Aws,
    pub(crate) broker: SqsBroker,
    /// Sets this test's queues apart from those of others.
    prefix: String,
}

impl Sqs {
    pub(crate) fn at(endpoint: &str, prefix: String) -> Self {
        let aws = Aws::new(&aws::local(endpoint));
        Self { broker: aws.sqs(), aws, prefix }
    }

    pub(crate) async fn standard(&self) -> Arc<dyn Queue> {
        self.create("standard", &[]).await
    }

    pub(crate) async fn fifo(&self) -> Arc<dyn Queue> {
        self.create("ordered.fifo", &FIFO).await
    }

    pub(crate) async fn fifo_by_group(&self) -> Arc<dyn Queue> {
        let attributes =
            [(FifoQueue, "true"), (DeduplicationScope, "messageGroup"), (FifoThroughputLimit, "perMessageGroupId")];
        self.create("many-groups.fifo", &attributes).await
    }

    pub(crate) async fn with_dead_letters(&self, max_receive_count: u32) -> (Arc<dyn Queue>, Arc<dyn Queue>) {
        self.pair(["source", "dead"], &[], max_receive_count).await
    }

    pub(crate) async fn fifo_with_dead_letters(&self, max_receive_count: u32) -> (Arc<dyn Queue>, Arc<dyn Queue>) {
        self.pair(["source.fifo", "dead.fifo"], &FIFO, max_receive_count).await
    }

    async fn pair(
        &self,
        [source, dead]: [&str; 2],
        attributes: &[(QueueAttributeName, &str)],
        max_receive_count: u32,
    ) -> (Arc<dyn Queue>, Arc<dyn Queue>) {
        let dead_letters = self.create(dead, attributes).await;
        let arn = dead_letters.facts().await.expect("facts").arn;
        let policy = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{max_receive_count}}}"#);
        let attributes: Vec<_> = attributes.iter().cloned().chain([(RedrivePolicy, policy.as_str())]).collect();
        (self.create(source, &attributes).await, dead_letters)
    }

    async fn create(&self, name: &str, attributes: &[(QueueAttributeName, &str)]) -> Arc<dyn Queue> {
        let name = format!("{}{name}", self.prefix);
        let mut create = self.aws.sqs_client().create_queue().queue_name(&name);
        for (attribute, value) in attributes {
            create = create.attributes(attribute.clone(), *value);
        }
        create.send().await.expect("a queue");
        self.broker.open(&QueueAddress::Name(name)).await.expect("the queue")
    }
}
