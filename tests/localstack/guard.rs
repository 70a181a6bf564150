//! The guard port's contract on LocalStack, whose DynamoDB is AWS's own DynamoDB Local.

#[macro_use]
#[path = "../contract/guard/suite/mod.rs"]
mod suite;
#[path = "../contract/guard/dynamodb.rs"]
mod dynamodb;
#[macro_use]
#[path = "../contract/guard/expressions.rs"]
mod expressions;

guard_contract!(
    on_localstack,
    match crate::endpoint() {
        Some(endpoint) => super::dynamodb::DynamoDbFixture::at(&endpoint, ()).await,
        None => return,
    }
);

expressions_contract!(
    expressions_on_localstack,
    match crate::endpoint() {
        Some(endpoint) => super::dynamodb::DynamoDbFixture::at(&endpoint, ()).await,
        None => return,
    }
);
