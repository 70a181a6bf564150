//! A place for one running handler: in its queue, and in the process where that has a limit of its own.
//!
//! Held by the lane and by the run, so that it is free when the run is really over.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One place for a running handler. Clones are the same place.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    _permits: Arc<(OwnedSemaphorePermit, Option<OwnedSemaphorePermit>)>,
}

/// The places of one queue.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    of_queue: Arc<Semaphore>,
    of_process: Option<Arc<Semaphore>>,
}

impl Slots {
    /// So many places, each of which also takes one of the process, where that has a limit.
    pub(crate) fn new(of_queue: usize, of_process: Option<Arc<Semaphore>>) -> Self {
        Self { of_queue: Arc::new(Semaphore::new(of_queue)), of_process }
    }

    /// Waits for a place, in line. `None` never comes: nobody closes the line.
    ///
    /// # Cancel safety
    /// Dropped, it leaves the line.
    pub(crate) async fn take(&self) -> Option<Slot> {
        let of_queue = Arc::clone(&self.of_queue).acquire_owned().await.ok()?;
        let of_process = match &self.of_process {
            Some(process) => Some(Arc::clone(process).acquire_owned().await.ok()?),
            None => None,
        };
        Some(Slot { _permits: Arc::new((of_queue, of_process)) })
    }

    /// A place, if one is free.
    pub(crate) fn try_take(&self) -> Option<Slot> {
        let of_queue = Arc::clone(&self.of_queue).try_acquire_owned().ok()?;
        let of_process = match &self.of_process {
            Some(process) => Some(Arc::clone(process).try_acquire_owned().ok()?),
            None => None,
        };
        Some(Slot { _permits: Arc::new((of_queue, of_process)) })
    }

    /// How many are free in the queue.
    pub(crate) fn free(&self) -> usize {
        self.of_queue.available_permits()
    }
}
