//! The guard in DynamoDB, wherever that is: a table of its own for each test.

#![expect(clippy::expect_used, reason = "helpers of tests, which clippy takes for production code here")]

use async_trait::async_trait;
use aws_sdk_dynamodb::{
    Client, Config,
    config::{BehaviorVersion, Credentials, Region},
    types::AttributeValue,
};
use leasehold::guard::{
    Guard, Pk,
    dynamodb::{DynamoDbGuard, create_table},
};

use super::suite::GuardFixture;

pub(crate) struct DynamoDbFixture<Backend> {
    client: Client,
    table: String,
    guard: DynamoDbGuard,
    /// Kept for as long as the test runs.
    _backend: Backend,
}

impl<Backend: Send + Sync> DynamoDbFixture<Backend> {
    /// A new table at the endpoint.
    pub(crate) async fn at(endpoint: &str, backend: Backend) -> Self {
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .endpoint_url(endpoint)
            .credentials_provider(Credentials::for_tests());
        let client = Client::from_conf(config.build());
        let table = format!("guard-{}", leasehold::clock::Clock::system().token());
        create_table(&client, &table).await.expect("a table");
        let guard = DynamoDbGuard::new(client.clone(), table.clone());
        Self { client, table, guard, _backend: backend }
    }
}

#[async_trait]
impl<Backend: Send + Sync> GuardFixture for DynamoDbFixture<Backend> {
    fn guard(&self) -> &dyn Guard {
        &self.guard
    }

    async fn make_foreign(&self, pk: &Pk) {
        let update = self.client.update_item().table_name(&self.table).key("pk", AttributeValue::S(pk.0.clone()));
        let update =
            update.update_expression("SET v = :v").expression_attribute_values(":v", AttributeValue::N("99".into()));
        update.send().await.expect("an item");
    }
}
