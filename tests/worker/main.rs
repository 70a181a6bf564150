//! The worker on queues and a guard in memory, with a paused clock. Each test carries the number of the rule it proves.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests, which clippy takes for production code here"
)]

mod amending;
mod api;
mod bench;
mod bodies;
mod carrying;
mod committing;
mod crashes;
mod edges;
mod envelopes;
mod guarding;
mod holding;
mod jobs;
#[cfg(feature = "lambda")]
mod lambda;
mod lanes;
mod leases;
mod life;
mod logging;
mod once;
mod pacing;
mod receiving;
mod redriving;
mod remote;
mod sequences;
mod simulation;
mod starting;
mod steps;
mod stopping;
mod telling;
mod undoing;
