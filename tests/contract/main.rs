//! One generic suite per port, run on every adapter.

mod guard;
mod queue;
