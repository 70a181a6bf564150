//! Entry points of the fuzz targets in `fuzz/`: each takes any bytes, has the crate decode them, and panics where what came of
//! it breaks a rule.
//!
//! The same functions are run by a plain test, on mutations of the seeds in `fuzz/seeds`. Inputs are text where they can be,
//! so that a seed is written by hand.

pub use keys::keys;
pub use messages::messages;
pub use records::records;
pub use replies::{programs, replies};
pub use settings::settings;

mod keys;
mod messages;
mod records;
mod replies;
mod settings;
#[cfg(test)]
mod tests;

/// What stands between the parts of an input.
const BETWEEN: &str = "\n--\n";
