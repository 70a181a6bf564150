//! The guard in DynamoDB, wherever that is: a table of its own for each test.

#![expect(clippy::expect_used, reason = "helpers of tests, which clippy takes for production code here")]

use async_trait::async_trait;
use aws_sdk_dynamodb::{
    Client, Config,
    config::{BehaviorVersion, Credentials, Region},
    types::{AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType},
};
use leasehold::guard::{
    Guard, Item, Pk, Value,
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

impl<Backend> DynamoDbFixture<Backend> {
    pub(crate) fn guard_in_dynamodb(&self) -> DynamoDbGuard {
        self.guard.clone()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
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

    async fn business_table(&self) -> String {
        let name = format!("{}-business", self.table);
        let hash = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash).build();
        let id = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S).build();
        let create = self.client.create_table().table_name(&name).key_schema(hash.expect("a key"));
        let create = create.attribute_definitions(id.expect("an attribute")).billing_mode(BillingMode::PayPerRequest);
        create.send().await.expect("a table");
        name
    }

    async fn put_item(&self, table: &str, item: Item) {
        let item = item.into_iter().map(|(name, value)| match value {
            Value::S(text) => (name, AttributeValue::S(text)),
            other => panic!("{name} is {other:?}"),
        });
        self.client.put_item().table_name(table).set_item(Some(item.collect())).send().await.expect("an item");
    }

    async fn item(&self, table: &str, id: &str) -> Option<Item> {
        let key = AttributeValue::S(id.to_owned());
        let get = self.client.get_item().table_name(table).key("id", key).consistent_read(true);
        let item = get.send().await.expect("an answer").item?;
        let text = |value: AttributeValue| value.as_s().expect("a text").clone().into();
        Some(item.into_iter().map(|(name, value)| (name, text(value))).collect())
    }
}
