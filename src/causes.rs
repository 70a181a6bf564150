//! Errors as people need them in a log: with everything that led to them.
//!
//! Each of our errors says what it means, and its source what was met; one without the other helps nobody.

use std::{error::Error, iter::successors};

/// The error and all its causes, on one line.
pub(crate) fn in_full(error: &(dyn Error + 'static)) -> String {
    let causes = successors(error.source(), |&error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
