//! Leasehold.

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
