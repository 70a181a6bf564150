//! Errors as people need them in a log: with everything that led to them.
//!
//! Each of our errors says what it means, and its source what was met; one without the other helps nobody.

use std::{error::Error, iter::successors};

/// The error and all its causes, on one line.
pub(crate) fn in_full(error: &(dyn Error + 'static)) -> String {
    let causes = successors(error.source(), |&error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Stands among the causes of a refusal that is about who asks and not about what they may: there are no credentials, or
/// they are wrong, or have expired. Holds what was said. Adapters put it there, by code.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoCredentials(pub(crate) String);

impl NoCredentials {
    /// Whether it is among the causes of an error.
    pub(crate) fn is_behind(error: &(dyn Error + 'static)) -> bool {
        successors(Some(error), |&error| error.source()).any(<dyn Error>::is::<Self>)
    }
}
