//! What is known of a delivery's work by now, for the one line of the log that tells its outcome.
//!
//! Written by the job, read where the delivery is settled. Nothing of the body is in it, but what its key is made of.

use super::Note;

/// The code of a body that cannot be read. What a decoder says of it may quote it.
pub(crate) const MALFORMED: &str = "malformed";

/// What is known of a delivery's work.
#[derive(Debug, Default)]
pub(crate) struct About {
    pub(crate) pk: Option<String>,
    pub(crate) attempt: Option<u32>,
    /// Why the attempt failed, or the work for good: a code, and a text.
    pub(crate) code: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) failure_id: Option<String>,
    /// It has failed for good, was to be undone, and is not.
    pub(crate) is_half_undone: bool,
    /// Why it is settled otherwise than its run would have it.
    pub(crate) cause: Option<String>,
    /// What is wrong with a body, in words that hold nothing of it.
    unreadable: Option<String>,
}

impl About {
    /// A body cannot be read, which can be told in these words.
    pub(crate) fn is_unreadable(&mut self, told: String) {
        self.unreadable = Some(told);
    }

    /// The attempt failed.
    pub(crate) fn failed(&mut self, code: &str, text: &str) {
        self.error = if code == MALFORMED { self.unreadable.take() } else { Some(text.to_owned()) };
        self.code = Some(code.to_owned());
    }

    /// The work has failed for good.
    pub(crate) fn buried(&mut self, note: &Note) {
        self.failed(&note.code, &note.message);
        self.failure_id = Some(note.failure_id.clone());
        self.is_half_undone = note.is_half_undone();
    }
}
