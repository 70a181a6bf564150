//! The guard port.
