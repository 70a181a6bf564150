//! The word of operators on a queue, which all of its workers read: it is paused, it goes on.
//!
//! Owns what can be said and under which key it stands in the table. One item for each queue, beside the records and
//! never mistaken for one. The last word holds; adapters only carry it.

use std::time::Duration;

use super::{GuardError, Pk, UNFINISHED_TTL};
use crate::{
    clock::{Millis, Seconds},
    key,
};

/// Changes when an item of this version would be misread by a reader of the one before.
pub(crate) const VERSION: u32 = 1;

/// How long the item of a queue that goes on is kept: any worker that has not seen the resume by then is long gone.
const RESUMED_TTL: Duration = UNFINISHED_TTL;

/// What operators have said about a queue. By default nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Control {
    /// The pause that holds; `None` if the queue is to be worked on.
    pub paused: Option<Paused>,
    /// When somebody last said that it goes on. It also ends what a worker has paused by itself, for which the worker
    /// compares it with what it saw before: *later* is news. Not *other*, for reads may go back in time.
    pub resumed_at: Option<Millis>,
}

/// A pause, which ends by a word alone.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Paused {
    /// Since when, by the clock of whoever said so.
    pub at: Millis,
    /// Who said so.
    pub by: String,
    /// Why, in their words.
    pub why: Option<String>,
}

impl Control {
    /// The most bytes of each text: it is told in logs, and whoever polls pays for its size.
    pub const LONGEST_TEXT: usize = 1024;

    /// What cannot be kept is refused.
    pub fn check(&self) -> Result<(), GuardError> {
        let Some(Paused { by, why, .. }) = &self.paused else { return Ok(()) };
        for (name, text) in [("by", by.as_str()), ("why", why.as_deref().unwrap_or_default())] {
            if text.len() > Self::LONGEST_TEXT {
                let (length, most) = (text.len(), Self::LONGEST_TEXT);
                return Err(GuardError::Refused(format!("{name} has {length} bytes, and {most} are the most")));
            }
        }
        Ok(())
    }

    /// When the table may forget it. Never while it pauses: a queue must not begin to be worked on by itself.
    pub(crate) fn expires_at(&self) -> Option<Seconds> {
        match self {
            Self { paused: None, resumed_at: Some(at) } => Some((*at + RESUMED_TTL).seconds()),
            _ => None,
        }
    }
}

/// Where the word on a queue stands: by namespace, and by the name that the queue has in SQS, in which deployments
/// meet that have names of their own for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlKey(Pk);

impl ControlKey {
    /// Of a queue by its [name in SQS](crate::queue::QueueAddress::queue_name).
    #[must_use]
    pub fn new(namespace: Option<&str>, queue: &str) -> Self {
        Self(key::control_pk(namespace, queue))
    }

    /// As a primary key.
    #[must_use]
    pub fn pk(&self) -> &Pk {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paused(by: usize, why: Option<usize>) -> Control {
        let paused = Paused { at: Millis(1_000), by: "b".repeat(by), why: why.map(|length| "w".repeat(length)) };
        Control { paused: Some(paused), resumed_at: Some(Millis(500)) }
    }

    #[test]
    fn a_pause_never_expires_and_a_resume_does_after_thirty_days() {
        let resumed = Control { paused: None, resumed_at: Some(Millis(1_500)) };
        assert_eq!(resumed.expires_at(), Some(Seconds(2 + 30 * 24 * 60 * 60)));
        assert_eq!(paused(1, None).expires_at(), None);
    }

    #[test]
    fn texts_that_are_too_long_are_refused_by_name() {
        let most = Control::LONGEST_TEXT;
        assert!(paused(most, Some(most)).check().is_ok() && Control::default().check().is_ok());
        for (control, name) in [(paused(most + 1, None), "by"), (paused(0, Some(most + 1)), "why")] {
            let refused = control.check();
            assert!(matches!(&refused, Err(GuardError::Refused(what)) if what.starts_with(name)), "{refused:?}");
        }
    }
}
