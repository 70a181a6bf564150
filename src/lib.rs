//! Leasehold.
pub mod aws;
pub mod clock;
#[cfg(feature = "demo")]
pub mod embedded;
pub mod guard;
pub mod key;
pub mod message;
pub mod queue;
pub mod settle;
pub mod testing;
