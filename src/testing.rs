//! The test kit: a queue and a guard in memory, and faults on request, for tests of workers and of handlers.
//!
//! - [`MemoryBroker`] is an SQS account: it makes queues, standard and FIFO, with dead-letter queues, that answer as AWS
//!   does. It lives on tokio's time, so that `#[tokio::test(start_paused = true)]` lets hours pass in no time.
//! - [`MemoryGuard`] is the table that belongs to it.
//! - [`MemoryBodies`] are buckets for bodies that are not in their messages.
//! - [`TestBed`] puts them together, and workers on them.
//! - [`faults`] wraps any queue, guard, broker or bodies, in memory or not, and makes calls fail, hang, come late, or take
//!   effect without a reply, by script or by rule.
//!
//! Everything here is deterministic on a paused current-thread runtime: the same test does the same every time.

mod bed;
pub mod faults;
mod planted;

pub use crate::{
    bodies::memory::MemoryBodies,
    guard::memory::MemoryGuard,
    queue::memory::{Calls, LateChange, MemoryBroker, MemoryQueue, MemoryQueueSettings},
};
pub use bed::TestBed;
pub use faults::{CALL_TIMEOUT, Call, Failure, Fault, Faults, FaultyBodies, FaultyBroker, FaultyGuard, FaultyQueue};
#[doc(hidden)]
pub use planted::Planted;
#[cfg(feature = "planted")]
#[doc(hidden)]
pub use planted::plant;

pub(crate) use planted::planted;
