//! Bodies in memory, which are to answer as S3 does.
#![expect(clippy::expect_used, reason = "helpers of tests, which clippy takes for production code here")]

use async_trait::async_trait;
use leasehold::{bodies::Bodies, message::Pointer, testing::MemoryBodies};

use crate::bodies::{BodiesFixture, bodies_contract};

#[async_trait]
impl BodiesFixture for MemoryBodies {
    fn bodies(&self) -> &dyn Bodies {
        self
    }

    fn bucket(&self) -> &str {
        "bodies"
    }

    async fn put(&self, key: &str, body: &[u8]) {
        MemoryBodies::put(self, &Pointer::new("bodies", key).expect("good"), body);
    }
}

bodies_contract!(in_memory, MemoryBodies::default());
