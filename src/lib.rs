//! An SQS worker that makes each piece of work take effect once, although every message can be delivered twice.
//!
//! SQS delivers at least once. A worker of this crate holds two leases for as long as a handler runs: one on the message
//! (its visibility timeout) and one on the work (a record in a DynamoDB table, the *guard*, under a key that names the
//! work). It gives both back, whatever happens.
//!
//! # The promise
//!
//! At least once, nothing lost by our own hand: a message leaves its queue only when its work is done or a copy of it, with
//! the reason, is dead-lettered. With a guard: runs of one key never overlap under a valid lease; a done key never runs
//! again while its record lasts; a recorded step never runs again; writes that are [confirmed](JobContext::confirm_with) in the
//! record's transaction happen once or not at all. Every attempt repeats the handler outside its
//! [steps](JobContext::step); a crash, a lost lease or a lost reply may repeat the steps that were under way, with the same
//! downstream key, and a step marked [*once*](JobContext::step_once) not even then. Exceptions are somebody's word: settings
//! (`drop`, `keep`, `open`), retention, an operator, [`Undo::Undone`].
//!
//! # A handler
//!
//! ```
//! use leasehold::{Handler, HandlerResult, JobContext, ResultExt, testing::TestBed};
//!
//! #[derive(serde::Deserialize)]
//! struct Payment {
//!     payment_id: String,
//!     cents: u64,
//! }
//!
//! struct Payments {
//!     bank: Bank,
//! }
//!
//! impl Handler for Payments {
//!     type Payload = Payment;
//!
//!     async fn handle(&self, payment: &Payment, cx: &JobContext) -> HandlerResult {
//!         if payment.cents == 0 {
//!             return Err("a payment of nothing").permanent().reason("empty_payment");
//!         }
//!         let charge = cx.step("charge", |key| self.bank.charge(payment.cents, key)).await?;
//!         cx.step("receipt", |key| self.bank.receipt(charge, key)).await
//!     }
//! }
//!
//! # struct Bank;
//! # impl Bank {
//! #     async fn charge(&self, cents: u64, _: leasehold::StepKey) -> std::io::Result<u64> { Ok(cents) }
//! #     async fn receipt(&self, _: u64, _: leasehold::StepKey) -> std::io::Result<()> { Ok(()) }
//! # }
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), leasehold::WorkerError> {
//! let bed = TestBed::new(&["payments"]); // queues and a table in memory
//! bed.send("payments", r#"{"payment_id":"p1","cents":500}"#);
//! bed.send("payments", r#"{"payment_id":"p1","cents":500}"#);
//! let report = bed
//!     .worker(&[("LEASEHOLD_QUEUES", "payments")])
//!     .queue("payments", Payments { bank: Bank }.key(|payment| payment.payment_id.clone()))
//!     .run(bed.until_idle())
//!     .await?;
//! assert_eq!((report.done, report.suppressed), (1, 1));
//! # Ok(())
//! # }
//! ```
//!
//! On AWS it is [`Worker::from_env`] in place of `bed.worker(..)`, and [`shutdown_signal`] in place of `bed.until_idle()`.
//! [`handler`] makes a handler of an async function. Any error is a retry, unless one of [`ResultExt`]'s words says more.
//!
//! A handler runs in a task of its own and must not block its thread; [`Handler::blocking`] is for one that does. It is
//! told to stop by [`JobContext::cancelled`] when its lease is about to end, when its time budget is used up, and when the
//! worker can wait no longer. `CANCEL_GRACE` later it is dropped where it awaits. A step that is dropped may have taken
//! effect: the next attempt runs it again, with the same key.
//!
//! # Configuration
//!
//! By environment variables, all of which begin with `LEASEHOLD_`: the README and `leasehold run --help` list them, from the
//! one table [`config::SETTINGS`]. In code, [`Worker::new`] takes a [`Config`]. [`Worker::run`] tells every problem at once.
//!
//! Features, none of them on by default: `http` has handlers that are apps in any language; `serve` tells how a worker is over
//! HTTP, counts for Prometheus, and lets apps and programs record steps; `s3` fetches bodies that are in S3; `otel` links spans to
//! their producers' and tells handlers of ours, and lets the binary send them; `lambda` runs the same handlers under AWS
//! Lambda (`lambda::run`); `cli` builds the `leasehold` binary, which runs apps and programs as handlers; `demo` embeds SQS and DynamoDB in the
//! process, for `leasehold demo` and `dev` and for tests. (`planted` and `fuzzing` are for this package's own tests.)
//!
//! # The life of a message
//!
//! ```text
//! receive ─► decode, derive key ─► claim ─► run, heartbeat around it ─► confirm ─► delete
//!              │ malformed            │ done before ──────────────────────────────► delete
//!              │                      │ held by another ───► delay to the end of its lease
//!              ▼                      │ store unreachable ─► outage policy of the queue
//!          dead-letter                ▼
//!                                   run ends:  failed for good ─► record it ─► undo ─► dead-letter
//!                                              failed          ─► count, release, delay (back-off)
//!                                              not yet, handler not there, interrupted ─► release, delay, not counted
//!                                              lease lost      ─► start nothing new; write only what is finished
//! ```
//!
//! Meanwhile the record of its key is in one of five states. Every change is one conditional write.
//!
//! | status | says | who moves it on |
//! | --- | --- | --- |
//! | `RUNNING` | its owner may run it, until `lease_until` | the owner: to `DONE`, `RELEASED`, `FAILED` or `DEAD`. When the lease has ended, a takeover: it runs again or, from the second takeover on, is `RELEASED` for a while first |
//! | `RELEASED` | nobody runs it | whoever has a message of it, from `not_before` on: to `RUNNING` |
//! | `DONE` | it took effect | nobody, until it expires; an operator ([`ops`]) |
//! | `DEAD` | it failed for good; a copy of its message is, or will be, dead-lettered | whoever sends that copy marks it; a message that was redriven, or sent later, begins anew: to `RUNNING` |
//! | `FAILED` | it failed for good and is being undone | the owner: to `DEAD`, when [`Handler::undo`] has answered or may not be tried again; given back, it stays `FAILED`. When the lease has ended, a takeover, which only goes on undoing |
//!
//! # Reading the source
//!
//! `job.rs` is the path of a message and ends in a settlement; `settle.rs` acts on settlements; `worker.rs` says who is at
//! work, and until when. The modules stand below in the order in which to read on. `ARCHITECTURE.md` has the map.

// The path of a message: from its body to a settlement, from a settlement to queue calls, and who is at work on it.
mod job;
mod settle;
mod worker;

// What the path calls: users' code, and the three ports with their contracts. Adapters are inside of their port.
mod handler;
pub mod queue;
pub mod guard;
pub mod bodies;

// What they all speak of.
pub mod message;
pub mod key;
mod lease;
mod causes;
mod seldom;

// What is around them: settings, the SDK, time and chance, the task of ECS, the stop.
pub mod config;
pub mod aws;
pub mod clock;
mod ecs;
mod shutdown;

// What they must be like to fit together.
mod fit;

// Tools for those who run it.
pub mod ops;

// The same jobs and settlements without polls.
#[cfg(feature = "lambda")]
pub mod lambda;

// How it is, for those who ask, and what it counts.
pub mod status;
pub mod telemetry;
mod trace;
#[cfg(feature = "serve")]
mod serve;

// For tests, of this crate and of others, and for the demo.
pub mod testing;
#[cfg(feature = "demo")]
pub mod embedded;
#[cfg(all(unix, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;

pub use config::{Config, Problem};
pub use guard::UndoAnswer as Undo;
pub use guard::dynamodb::unique;
#[cfg(unix)]
pub use handler::exec::ExecHandler;
#[cfg(feature = "http")]
pub use handler::http::{HttpHandler, HttpHandlerError};
pub use handler::{
    Blocking, CancelCause, Cancelled, ConditionFailed, DecodeError, FnHandler, Handler, HandlerError, HandlerFn,
    HandlerResult, JobContext, Keyed, Payload, Raw, ResultExt, StepKey, handler,
};
pub use key::Key;
pub use message::Message;
pub use shutdown::Shutdown;
#[cfg(unix)]
pub use shutdown::shutdown_signal;
pub use status::{Pause, Phase, QueueStatus, Status};
pub use worker::{Health, StopReport, Viewer, Worker, WorkerError};

/// The README's Rust, and what must not compile beside what does: compiled with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../tests/rejected.md")]
mod pages {}
