//! What a worker did, while it grows and at the end.
//!
//! Counts only: which count a delivery goes to is decided where it is settled.

use std::sync::{Mutex, PoisonError};

/// What a worker did, counted in deliveries.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct StopReport {
    /// Took effect and were deleted.
    pub done: u64,
    /// Were deleted without a run: their work was done, or dead-lettered, before.
    pub suppressed: u64,
    /// Failed for good and were dead-lettered.
    pub dead: u64,
    /// Failed for good and were deleted, because the configuration says so.
    pub dropped: u64,
    /// Failed and come again.
    pub failed: u64,
    /// Come again without having failed: not yet, held by another, interrupted.
    pub released: u64,
    /// Were left to their visibility timeout.
    pub left: u64,
    /// Handlers that ignored their cancellation and still ran at the end.
    pub stuck: u64,
}

/// The report while it grows.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<StopReport>);

impl Tally {
    /// Held for one line.
    pub(crate) fn count(&self, count: impl FnOnce(&mut StopReport)) {
        count(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn report(&self) -> StopReport {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
