//! The guard port's contract, on the guard in memory and on the embedded engine. LocalStack has a test binary of its
//! own.

#[macro_use]
mod suite;
#[cfg(feature = "demo")]
mod dynamodb;
#[cfg(feature = "demo")]
#[macro_use]
mod expressions;
mod memory;

guard_contract!(in_memory, super::memory::MemoryFixture::default());

#[cfg(feature = "demo")]
guard_contract!(embedded, super::embedded_engine().await);
#[cfg(feature = "demo")]
expressions_contract!(expressions_embedded, super::embedded_engine().await);

#[cfg(feature = "demo")]
#[expect(clippy::expect_used, reason = "a helper of tests, which clippy takes for production code here")]
async fn embedded_engine() -> dynamodb::DynamoDbFixture<leasehold::embedded::Engine> {
    let engine = leasehold::embedded::Engine::start().await.expect("an engine");
    let endpoint = engine.endpoint().to_owned();
    dynamodb::DynamoDbFixture::at(&endpoint, engine).await
}
