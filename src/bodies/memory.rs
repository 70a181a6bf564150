//! Buckets in memory, for tests and the test kit.
//!
//! Answers as S3 does and never fails by itself: faults are put in front of it by [`crate::testing`].

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;

use super::{Bodies, BodyError};
use crate::message::Pointer;

/// Buckets in memory. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct MemoryBodies {
    /// A lock, for it is held for single look-ups and never across an await.
    buckets: Arc<Mutex<Buckets>>,
}

type Buckets = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

impl MemoryBodies {
    /// Makes a bucket that has nothing in it, unless it is there.
    pub fn create(&self, bucket: impl Into<String>) {
        self.buckets().entry(bucket.into()).or_default();
    }

    /// Puts an object there, and makes its bucket if there is none.
    pub fn put(&self, pointer: &Pointer, body: impl Into<Vec<u8>>) {
        self.buckets().entry(pointer.bucket().to_owned()).or_default().insert(pointer.key().to_owned(), body.into());
    }

    /// The keys of a bucket's objects.
    #[must_use]
    pub fn keys(&self, bucket: &str) -> Vec<String> {
        self.buckets().get(bucket).map(|objects| objects.keys().cloned().collect()).unwrap_or_default()
    }

    fn buckets(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Bodies for MemoryBodies {
    async fn get(&self, pointer: &Pointer, limit: usize) -> Result<String, BodyError> {
        let buckets = self.buckets();
        let objects = buckets.get(pointer.bucket()).ok_or(BodyError::NoBucket)?;
        let body = objects.get(pointer.key()).ok_or(BodyError::Missing)?;
        if body.len() > limit {
            return Err(BodyError::TooLarge { limit });
        }
        String::from_utf8(body.clone()).map_err(|_| BodyError::NotText)
    }

    async fn delete(&self, pointer: &Pointer) -> Result<(), BodyError> {
        self.buckets().get_mut(pointer.bucket()).ok_or(BodyError::NoBucket)?.remove(pointer.key());
        Ok(())
    }
}
