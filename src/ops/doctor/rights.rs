//! What the answers to calls that can do nothing say of the right to them.

use super::{
    Finding, Severity, Subject,
    checks::{COULD_NOT_LOOK, RIGHTS},
    cli,
    look::Tried,
};
use crate::{causes::in_full, guard::GuardError, queue::QueueError};

/// A right on a queue. `resource` is its ARN, as far as it is known.
pub(super) fn on_queue(subject: Subject, resource: &str, (action, tried): &Tried<QueueError>) -> Option<Finding> {
    match tried {
        // They held a moment ago.
        Err(error) if error.lacks_credentials() => Some(unanswered(subject, action, &in_full(error))),
        Err(error @ QueueError::Denied(_)) => Some(denied(subject, resource, action, &in_full(error))),
        Err(error) if error.is_transient() => Some(unanswered(subject, action, &in_full(error))),
        // Refused, as it was meant to be, or found to be about no message.
        _ => None,
    }
}

/// A right on the table.
pub(super) fn on_table(subject: Subject, resource: &str, (action, tried): &Tried<GuardError>) -> Option<Finding> {
    match tried {
        // They held a moment ago.
        Err(error) if error.lacks_credentials() => Some(unanswered(subject, action, &in_full(error))),
        Err(error @ GuardError::Denied(_)) => Some(denied(subject, resource, action, &in_full(error))),
        Err(GuardError::Foreign(_)) | Ok(()) => None,
        Err(error) => Some(unanswered(subject, action, &in_full(error))),
    }
}

fn denied(subject: Subject, resource: &str, action: &str, error: &str) -> Finding {
    RIGHTS.error(subject, format!("{action} on {resource}: {error}"), cli::allow(action, resource))
}

fn unanswered(subject: Subject, action: &str, error: &str) -> Finding {
    let found = format!("whether {action} is allowed could not be seen: {error}");
    COULD_NOT_LOOK.found(Severity::Warning, subject, found, None)
}
