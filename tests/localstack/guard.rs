//! The guard port's contract on LocalStack, whose DynamoDB is AWS's own DynamoDB Local.

#[macro_use]
#[path = "../contract/guard/suite/mod.rs"]
mod suite;
#[path = "../contract/guard/dynamodb.rs"]
mod dynamodb;

guard_contract!(on_localstack, super::dynamodb::DynamoDbFixture::at("http://127.0.0.1:4566", ()).await);
