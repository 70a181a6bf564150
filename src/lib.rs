//! Leasehold.
pub mod clock;
pub mod config;
pub mod guard;
pub mod key;
pub mod message;
pub mod queue;
pub mod settle;
pub mod testing;
#[cfg(feature = "demo")]
pub mod embedded;
