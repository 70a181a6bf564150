//! The guard in memory.

use async_trait::async_trait;
use leasehold::guard::{Guard, Pk, memory::MemoryGuard};

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
}
