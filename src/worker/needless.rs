//! Bodies that nobody needs any more: their objects are deleted behind the messages that named them.
//!
//! Owns those deletes, which hold no slot, and their number. None is insisted on: an object that stays costs its storage
//! until a lifecycle rule of its bucket ends it, and nothing else.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::{
    bodies::Bodies,
    causes::in_full,
    config::S3Payload,
    message::Pointer,
    seldom::{Seldom, seldom},
    settle::{Deleted, Landed, Settled},
};

use super::hall::Hall;

impl Hall {
    /// Whether nothing can need the body of a message any more. Not so if the message may come again, for then the next
    /// delivery has to find out from the body that its work is done. Nor of what is suppressed: that can be a duplicate of
    /// work that failed for good, whose copy has the same pointer.
    pub(super) fn needs_its_body_no_more(&self, settled: &Settled) -> bool {
        self.jobs.config.s3_payload == S3Payload::FetchDelete
            && matches!(settled, Settled::Deleted(Deleted::Done, Landed::Surely))
    }
}

/// The deletes of one queue's bodies.
pub(super) struct Needless {
    queue: Arc<str>,
    bodies: Option<Arc<dyn Bodies>>,
    seldom: Arc<Seldom>,
    deletes: JoinSet<()>,
}

/// So many at once: at S3's usual tens of milliseconds, some thousands in a second. Beyond, S3 does not keep up.
const AT_ONCE: usize = 100;

impl Needless {
    pub(super) fn new(queue: Arc<str>, bodies: Option<Arc<dyn Bodies>>, seldom: Arc<Seldom>) -> Self {
        Self { queue, bodies, seldom, deletes: JoinSet::new() }
    }

    /// Begins to delete these.
    pub(super) fn delete(&mut self, pointers: Vec<Pointer>) {
        let Some(bodies) = &self.bodies else { return };
        for pointer in pointers {
            while self.deletes.try_join_next().is_some() {}
            let (queue, bodies, seldom) = (Arc::clone(&self.queue), Arc::clone(bodies), Arc::clone(&self.seldom));
            if self.deletes.len() >= AT_ONCE {
                seldom!(seldom, "too many", warn, queue = &*queue, %pointer, "its body is not deleted: {AT_ONCE} deletes are under way");
                continue;
            }
            self.deletes.spawn(async move {
                match bodies.delete(&pointer).await {
                    Ok(()) => tracing::debug!(queue = &*queue, %pointer, "its body is deleted"),
                    Err(error) => {
                        let (queue, error) = (&*queue, in_full(&error));
                        seldom!(seldom, "body not deleted", warn, queue, %pointer, error, "its body is not deleted");
                    }
                }
            });
        }
    }

    /// Waits until all have ended. Cancel safe.
    pub(super) async fn ended(&mut self) {
        while self.deletes.join_next().await.is_some() {}
    }

    /// Cuts off what has not ended.
    pub(super) async fn cut_off(&mut self) {
        if !self.deletes.is_empty() {
            tracing::warn!(queue = &*self.queue, "{} bodies are not deleted: the worker stops", self.deletes.len());
        }
        self.deletes.shutdown().await;
    }
}
