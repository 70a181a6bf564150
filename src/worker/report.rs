//! What a worker did, as it says at the end.

use std::sync::Arc;

use crate::telemetry::Outcome;

use super::hall::Hall;

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

impl StopReport {
    /// Of all queues.
    pub(super) fn of(halls: &[Arc<Hall>]) -> Self {
        let sum = |outcomes: &[Outcome]| halls.iter().map(|hall| hall.jobs.meters.outcomes_of(outcomes)).sum();
        let stuck: usize = halls.iter().map(|hall| hall.jobs.stuck.count()).sum();
        use Outcome::{
            BodyAway, DeadLettered, Done, Dropped, Failed, Held, Interrupted, Kept, Left, NoVerdict, NotYet,
            Suppressed, Unavailable,
        };
        Self {
            done: sum(&[Done]),
            suppressed: sum(&[Suppressed]),
            dead: sum(&[DeadLettered]),
            dropped: sum(&[Dropped]),
            failed: sum(&[Failed, Kept]),
            released: sum(&[NotYet, Unavailable, Interrupted, NoVerdict, BodyAway, Held]),
            left: sum(&[Left]),
            stuck: stuck.try_into().unwrap_or(u64::MAX),
        }
    }
}
