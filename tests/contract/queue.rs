//! The queue port.
