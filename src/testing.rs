//! The test kit: a queue and a guard in memory, and faults on request, for tests of workers and of handlers.
//!
//! - [`MemoryBroker`] is an SQS account: it makes queues, standard and FIFO, with dead-letter queues, that answer as AWS
//!   does. It lives on tokio's time, so that `#[tokio::test(start_paused = true)]` lets hours pass in no time.
//! - [`crate::guard::memory`] is the table that belongs to it.
//! - [`faults`] wraps any queue, guard or broker, in memory or not, and makes calls fail, hang, come late, or take
//!   effect without a reply, by script or by rule.
//!
//! Everything here is deterministic on a paused current-thread runtime: the same test does the same every time.

pub mod faults;

pub use crate::queue::memory::{Calls, LateChange, MemoryBroker, MemoryQueue, MemoryQueueSettings};
pub use faults::{CALL_TIMEOUT, Call, Failure, Fault, Faults, FaultyBroker, FaultyGuard, FaultyQueue};
