//! The test kit: queues and a guard in memory, and faults on request.

mod planted;

#[cfg(feature = "planted")]
pub use planted::plant;
pub use planted::Planted;
pub(crate) use planted::planted;
