//! An SQS worker that makes each piece of work take effect once, although every message can be delivered twice.
//!
//! # The promise
//!
//! At least once, nothing lost by our own hand: a message leaves its queue only when its work is done or a copy of it, with
//! the reason, is dead-lettered. With a guard: runs of one key never overlap under a valid lease; a done key never runs
//! again while its record lasts; a recorded step never runs again. Every attempt repeats the handler outside its
//! [steps](JobContext::step); a crash, a lost lease or a lost reply may repeat the steps that were under way, with the same
//! downstream key. Exceptions are somebody's word: settings (`drop`, `keep`, `open`), retention, an operator.
//!
//! # The life of a message
//!
//! ```text
//! receive ─► decode, derive key ─► claim ─► run, heartbeat around it ─► confirm ─► delete
//!              │ malformed            │ done before ──────────────────────────────► delete
//!              │                      │ held by another ───► delay to the end of its lease
//!              ▼                      │ store unreachable ─► outage policy of the queue
//!          dead-letter                ▼
//!                                   run ends:  failed for good ─► record it ─► dead-letter
//!                                              failed          ─► count, release, delay (back-off)
//!                                              not yet, handler not there, interrupted ─► release, delay, not counted
//!                                              lease lost      ─► start nothing new; write only what is finished
//! ```
//!
//! # Reading the source
//!
//! `job.rs` is that path and ends in a settlement; `settle.rs` acts on settlements; `worker.rs` says who is at work, and
//! until when. Then the two ports, `queue.rs` and `guard.rs`, and what implements them. `ARCHITECTURE.md` has the map.

pub mod aws;
pub mod clock;
pub mod config;
#[cfg(feature = "demo")]
pub mod embedded;
pub mod guard;
mod handler;
mod job;
pub mod key;
mod lease;
pub mod message;
pub mod queue;
pub mod settle;
mod shutdown;
pub mod testing;
mod worker;

pub use config::{Config, Problem};
#[cfg(unix)]
pub use handler::exec::ExecHandler;
pub use handler::{
    Blocking, CancelCause, Cancelled, DecodeError, FnHandler, Handler, HandlerError, HandlerFn, HandlerResult,
    JobContext, Keyed, Payload, Raw, ResultExt, StepKey, handler,
};
pub use key::Key;
pub use message::Message;
pub use shutdown::Shutdown;
#[cfg(unix)]
pub use shutdown::shutdown_signal;
pub use worker::{StopReport, Worker, WorkerError};

/// The README's Rust is compiled and its tests are run with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// What must not compile, each beside what does.
#[cfg(doctest)]
#[doc = include_str!("../tests/rejected.md")]
mod rejected {}
