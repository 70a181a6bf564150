//! One generic suite per port, run on every adapter that needs nothing but this process. `tests/localstack` runs them on
//! LocalStack.

mod guard;
mod queue;
#[cfg(feature = "demo")]
mod queue_embedded;
mod queue_in_memory;
#[cfg(feature = "demo")]
mod sqs;
