//! Leasehold.
pub mod aws;
pub mod clock;
pub mod guard;
pub mod message;
pub mod queue;
pub mod settle;
pub mod testing;
#[cfg(feature = "demo")]
pub mod embedded;
