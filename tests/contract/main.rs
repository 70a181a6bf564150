//! One generic suite per port, run on every adapter that needs nothing but this process. `tests/localstack` runs them on
//! LocalStack.

mod bodies;
#[cfg(feature = "s3")]
mod bodies_in_a_stand_in;
mod bodies_in_memory;
mod guard;
mod queue;
#[cfg(feature = "demo")]
mod queue_embedded;
mod queue_in_memory;
#[cfg(feature = "demo")]
mod sqs;
