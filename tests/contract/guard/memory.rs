//! The guard in memory.

#![expect(clippy::expect_used, reason = "helpers of tests, which clippy takes for production code here")]

use async_trait::async_trait;
use leasehold::guard::{Guard, Item, Pk, memory::MemoryGuard};

use super::suite::GuardFixture;

#[derive(Debug, Default)]
pub(crate) struct MemoryFixture {
    guard: MemoryGuard,
}

#[async_trait]
impl GuardFixture for MemoryFixture {
    fn guard(&self) -> &dyn Guard {
        &self.guard
    }

    async fn make_foreign(&self, pk: &Pk) {
        self.guard.put_foreign(pk.clone());
    }

    async fn business_table(&self) -> String {
        self.guard.add_table("business", &["id"]);
        "business".to_owned()
    }

    async fn put_item(&self, table: &str, item: Item) {
        self.guard.put_item(table, item).expect("an item of the table");
    }

    async fn item(&self, table: &str, id: &str) -> Option<Item> {
        self.guard.item(table, [("id", id)])
    }
}
