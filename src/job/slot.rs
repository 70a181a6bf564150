//! A place for one running handler: in its queue, and in the process where that has a limit of its own.
//!
//! Held by the lane and by the run, so that it is free when the run is really over.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One place for a running handler. Clones are the same place.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    permits: Arc<(OwnedSemaphorePermit, Option<OwnedSemaphorePermit>)>,
}

/// A place in its queue alone, while nothing runs: that of the process is for other queues meanwhile.
#[derive(Debug)]
pub(crate) struct Rest(OwnedSemaphorePermit);

impl Slot {
    /// Gives up the place in the process. `None` if a run still has it.
    pub(crate) fn rest(self) -> Option<Rest> {
        Arc::into_inner(self.permits).map(|(of_queue, _)| Rest(of_queue))
    }
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
        self.take_again(Rest(of_queue)).await
    }

    /// Waits for a place in the process beside that in the queue, in line.
    ///
    /// # Cancel safety
    /// Dropped, it leaves the line, and the place in the queue is free.
    pub(crate) async fn take_again(&self, Rest(of_queue): Rest) -> Option<Slot> {
        let of_process = match &self.of_process {
            Some(process) => Some(Arc::clone(process).acquire_owned().await.ok()?),
            None => None,
        };
        Some(Slot { permits: Arc::new((of_queue, of_process)) })
    }

    /// A place, if one is free.
    pub(crate) fn try_take(&self) -> Option<Slot> {
        let of_queue = Arc::clone(&self.of_queue).try_acquire_owned().ok()?;
        let of_process = match &self.of_process {
            Some(process) => Some(Arc::clone(process).try_acquire_owned().ok()?),
            None => None,
        };
        Some(Slot { permits: Arc::new((of_queue, of_process)) })
    }

    /// How many are free in the queue.
    pub(crate) fn free(&self) -> usize {
        self.of_queue.available_permits()
    }
}
