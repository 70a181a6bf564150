//! Tables of the business, which no worker makes by itself.

use aws_sdk_dynamodb::{
    Client,
    types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType},
};

/// Makes a table of the business's own.
pub(crate) async fn make(dynamodb: &Client, name: &str, key: &str) -> Result<(), Box<dyn std::error::Error>> {
    let kind = ScalarAttributeType::S;
    dynamodb
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(AttributeDefinition::builder().attribute_name(key).attribute_type(kind).build()?)
        .key_schema(KeySchemaElement::builder().attribute_name(key).key_type(KeyType::Hash).build()?)
        .send()
        .await?;
    Ok(())
}
