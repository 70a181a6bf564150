//! The record of one key: what is known of its work, and how large that may grow.
//!
//! Owns what the fields mean, without any storage format. Which status may follow which is in `change.rs` and `claim.rs`.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::clock::{Millis, Seconds};

/// The record's primary key: namespace, operation and key, joined so that different parts never become one string.
/// Made by [`crate::key`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pk(pub String);

impl fmt::Display for Pk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A random token, new for each claim. Whoever does not hold it cannot change the record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(pub String);

/// The fencing token: grows at every claim of a key, so that a downstream system can refuse a former owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u64);

impl Fence {
    /// The fence of a claim made at `now` on a record whose fence is `old`.
    #[must_use]
    pub fn after(old: Option<Self>, now: Millis) -> Self {
        Self(old.map_or(0, |old| old.0.saturating_add(1)).max(now.0))
    }
}

/// Where a key's work stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// An owner runs it, until `lease_until` at the longest.
    Running,
    /// Nobody runs it; it may be claimed from `not_before` on.
    Released,
    /// It has failed for good and is being undone.
    Failed,
    /// It took effect.
    Done,
    /// It has failed for good; a copy of its message is or will be dead-lettered.
    Dead,
}

impl Status {
    /// As it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Released => "RELEASED",
            Self::Failed => "FAILED",
            Self::Done => "DONE",
            Self::Dead => "DEAD",
        }
    }

    /// From what is stored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Running, Self::Released, Self::Failed, Self::Done, Self::Dead].into_iter().find(|s| s.as_str() == text)
    }
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A short stable code, to group by.
    pub code: String,
    /// A text for a person.
    pub text: String,
}

/// How many bytes of a failure's code are kept; one that is longer is no code.
const LONGEST_CODE: usize = 64;

/// How many bytes of an error's text are kept: enough to recognise it, little enough for a record under 1 KB, which is
/// what DynamoDB bills as one write.
const LONGEST_TEXT: usize = 256;

impl Failure {
    /// With code and text shortened to what a record keeps.
    #[must_use]
    pub fn new(code: impl Into<String>, text: impl fmt::Display) -> Self {
        Self { code: shortened(code.into(), LONGEST_CODE), text: shortened(text.to_string(), LONGEST_TEXT) }
    }

    /// The same with a hint at the end of its text, of which rather the beginning is shortened.
    #[must_use]
    pub(crate) fn hinting(self, hint: impl fmt::Display) -> Self {
        let hint = format!("; {hint}");
        let text = shortened(self.text, LONGEST_TEXT.saturating_sub(hint.len()));
        Self { text: text + &hint, ..self }
    }
}

fn shortened(mut text: String, longest: usize) -> String {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest));
        text.push('…');
    }
    text
}

/// What is recorded of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// How far it came.
    pub state: StepState,
    /// Its generation, from 1; part of the downstream key from 2 on.
    pub generation: u32,
    /// Its result as JSON; `None` also for one that was too large to keep.
    pub result: Option<String>,
    /// When it was recorded.
    pub at: Millis,
}

/// How far a step came. Within a generation it only goes forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepState {
    /// It was begun; whether it took effect is not known.
    Started,
    /// It took effect.
    Done,
    /// It took effect and was undone, or was refused for good: the next one is of a new generation.
    Undone,
}

impl StepState {
    /// As it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Done => "done",
            Self::Undone => "undone",
        }
    }

    /// From what is stored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == text)
    }

    /// In the order in which a step goes through them.
    pub(crate) const ALL: [Self; 3] = [Self::Started, Self::Done, Self::Undone];
}

/// What `undo` answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoAnswer {
    /// What was done stays done, also for a redrive.
    Kept,
    /// What was done is undone: a redrive does it again.
    Undone,
}

impl UndoAnswer {
    /// As it is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Undone => "undone",
        }
    }

    /// From what is stored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Kept, Self::Undone].into_iter().find(|s| s.as_str() == text)
    }
}

/// Counts of `undo`, and its answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Undoing {
    /// Runs of `undo` that failed.
    pub failures: u32,
    /// Takeovers while it was being undone.
    pub takeovers: u32,
    /// What `undo` answered; `None` while it has not.
    pub answer: Option<UndoAnswer>,
}

/// The version of the record that this code writes and reads.
pub(crate) const VERSION: u32 = 1;

/// One key's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The primary key.
    pub pk: Pk,
    /// Where the work stands.
    pub status: Status,
    /// The token of the latest claim.
    pub owner: Owner,
    /// The fencing token of the latest claim.
    pub fence: Fence,
    /// Until when the owner may run it.
    pub lease_until: Millis,
    /// Nobody may claim it before this.
    pub not_before: Option<Millis>,
    /// Attempts that failed.
    pub failures: u32,
    /// Claims of a record whose lease had ended.
    pub takeovers: u32,
    /// Why the latest attempt failed.
    pub last_error: Option<Failure>,
    /// Names one failure for good; all copies of the message carry it.
    pub failure_id: Option<String>,
    /// When it failed for good.
    pub dead_at: Option<Millis>,
    /// Whether a copy of the message is known to be dead-lettered.
    pub copied: bool,
    /// How far `undo` came.
    pub undo: Option<Undoing>,
    /// What the payload was; `None` if it is not compared.
    pub fingerprint: Option<String>,
    /// Which message it was last claimed for, and by whom.
    pub source: super::Source,
    /// When the record was first written.
    pub created_at: Millis,
    /// When it was last written.
    pub updated_at: Millis,
    /// What its steps recorded.
    pub steps: BTreeMap<String, Step>,
    /// When DynamoDB may sweep it.
    pub expires_at: Seconds,
}

impl Record {
    /// DONE or DEAD and past its time, whether swept or not: as good as absent (rule G4).
    #[must_use]
    pub fn is_expired(&self, now: Millis) -> bool {
        matches!(self.status, Status::Done | Status::Dead) && self.expires_at.is_past(now)
    }

    /// Whether it has failed for good and is not undone to the end: some of what it did may be undone, and some not.
    #[must_use]
    pub fn is_half_undone(&self) -> bool {
        let has_no_answer = self.undo.as_ref().is_some_and(|undo| undo.answer.is_none());
        self.status == Status::Failed || (self.status == Status::Dead && has_no_answer)
    }

    /// Whether a claim by `owner` made this, so that its refusal is only a lost reply (rule G3): the token of a claim
    /// is in no other.
    #[must_use]
    pub fn is_claimed_by(&self, owner: &Owner) -> bool {
        self.owner == *owner
    }

    /// About how many bytes the record takes in DynamoDB, with room for what later claims and the end of the work will
    /// write into it: a record that steps have filled must still be finished. Errs on the large side.
    #[must_use]
    pub fn size(&self) -> usize {
        /// Names of all attributes, values of those that do not vary by much, the longest failure, and some room for a
        /// worker or a queue with a longer name; measured on a full record.
        const FIXED: usize = 1000;
        FIXED
            + self.pk.0.len()
            + self.fingerprint.as_ref().map_or(0, String::len)
            + self.source.queue.len()
            + self.source.message_id.len()
            + self.source.worker.len()
            + self.steps.iter().map(|(name, step)| name.len() + step.size()).sum::<usize>()
    }
}

impl Step {
    /// Whether this may be recorded where `earlier` is: of a later generation, or as far or further in the same one. A
    /// write that was stuck on its way must not turn a step that is done into one that was only started.
    #[must_use]
    pub fn follows(&self, earlier: &Self) -> bool {
        (self.generation, self.state) >= (earlier.generation, earlier.state)
    }

    /// About how many bytes the step takes in DynamoDB, its name apart; errs on the large side.
    #[must_use]
    pub fn size(&self) -> usize {
        const FIXED: usize = 80;
        FIXED + self.result.as_ref().map_or(0, String::len)
    }
}
