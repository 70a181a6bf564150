//! Making the table, for development, demonstrations and tests.
//!
//! Owns the one shape that a guard's table has; production tables come from `infra/`. Must never change a table that is
//! already there, but for switching TTL on.

use std::time::Duration;

use aws_sdk_dynamodb::{
    Client,
    operation::create_table::CreateTableError,
    types::{
        AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TableStatus,
        TimeToLiveSpecification,
    },
};
use tokio::time::{Instant, sleep};

use super::{DynamoDbGuard, GuardError, errors::meaning, within_timeout};

/// How long a new table may take to become active; on AWS it is some seconds.
const ACTIVE_WITHIN: Duration = Duration::from_secs(60);

/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Makes a table as the guard needs it: string key `pk`, billed on demand, TTL on `expires_at`; and waits until it can
/// be written to. A table of that name that is there already is taken as it is, and gets the TTL if it has none.
pub async fn create_table(client: &Client, name: &str) -> Result<(), GuardError> {
    let refused = |error: aws_sdk_dynamodb::error::BuildError| GuardError::Refused(error.to_string());
    let key = KeySchemaElement::builder().attribute_name("pk").key_type(KeyType::Hash).build().map_err(refused)?;
    let attribute = AttributeDefinition::builder()
        .attribute_name("pk")
        .attribute_type(ScalarAttributeType::S)
        .build()
        .map_err(refused)?;
    let create = client
        .create_table()
        .table_name(name)
        .key_schema(key)
        .attribute_definitions(attribute)
        .billing_mode(BillingMode::PayPerRequest);
    match within_timeout(create.send()).await {
        Err(error) if !error.as_service_error().is_some_and(CreateTableError::is_resource_in_use_exception) => {
            return Err(meaning(error));
        }
        _ => wait_until_active(client, name).await?,
    }
    if DynamoDbGuard::new(client.clone(), name.to_owned()).ttl_attribute().await?.is_none() {
        switch_ttl_on(client, name).await?;
    }
    Ok(())
}

async fn wait_until_active(client: &Client, name: &str) -> Result<(), GuardError> {
    let latest = Instant::now() + ACTIVE_WITHIN;
    loop {
        // A table that was just made may not be found yet: describing is eventually consistent.
        match within_timeout(client.describe_table().table_name(name).send()).await.map_err(meaning) {
            Ok(described) if described.table().and_then(|table| table.table_status()) == Some(&TableStatus::Active) => {
                return Ok(());
            }
            Ok(_) | Err(GuardError::Missing) if Instant::now() < latest => sleep(LOOK_EVERY).await,
            Ok(_) => return Err(GuardError::Unavailable(None)),
            Err(error) => return Err(error),
        }
    }
}

async fn switch_ttl_on(client: &Client, name: &str) -> Result<(), GuardError> {
    let ttl = TimeToLiveSpecification::builder()
        .attribute_name("expires_at")
        .enabled(true)
        .build()
        .map_err(|error| GuardError::Refused(error.to_string()))?;
    let update = client.update_time_to_live().table_name(name).time_to_live_specification(ttl);
    within_timeout(update.send()).await.map_err(meaning)?;
    Ok(())
}
