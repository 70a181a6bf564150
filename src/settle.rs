//! Acting on a settlement.
pub mod dead_letter;
