//! Putting dead letters back one by one, and deleting them: each is settled here only when it is safe in its queue.
//!
//! Sent first, deleted then: whatever breaks off between the two leaves two messages of one piece of work, which the guard
//! makes one, and a FIFO queue too for five minutes, for what is sent again has the same deduplication id. What has died
//! since the beginning is left, so that work that fails at once does not go round for ever.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Millis,
    config::{KeySource, Rate},
    guard::{Amend, Failure, FinishedSteps, GuardError, NotBefore, Operator, Owner, Step, StepState, Written},
    key::sha256,
    message::Note,
    queue::{BATCH, Outgoing, QueueError},
    settle::dead_letter::pack,
};

use super::{
    DeadLetters, Ending, Fate, Letter, OpsError,
    letter::FORCED,
    pass::{Act, Pass},
};

/// Which letters are meant. By default all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// Those with one of these reason codes; none is any.
    pub codes: Vec<String>,
    /// Those with one of these primary keys; none is any.
    pub pks: Vec<String>,
    /// Those that have been dead for so long.
    pub older_than: Option<Duration>,
    /// At most so many of them.
    pub limit: Option<usize>,
}

impl Choice {
    /// Whether it is all of them.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether some have to be looked for among others.
    pub(super) fn is_filter(&self) -> bool {
        Self { limit: None, ..self.clone() } != Self::default()
    }

    /// How many to receive at once, when so many were found: no more than are wanted, unless they have to be looked for.
    pub(super) fn at_once(&self, found: usize) -> usize {
        if self.is_filter() { BATCH } else { self.limit.unwrap_or(usize::MAX).saturating_sub(found).clamp(1, BATCH) }
    }

    /// Whether a letter is meant, its number apart.
    #[must_use]
    pub fn takes(&self, letter: &Letter, now: Millis) -> bool {
        let is_one_of = |names: &[String], name: Option<&str>| {
            names.is_empty() || name.is_some_and(|name| names.iter().any(|one| one == name))
        };
        let age = letter.at().map_or(Duration::ZERO, |at| now.since(at));
        is_one_of(&self.codes, Some(letter.code()))
            && is_one_of(&self.pks, letter.pk.as_ref().map(|pk| pk.0.as_str()))
            && self.older_than.is_none_or(|least| age >= least)
    }
}

/// How letters are put back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redrive {
    /// Which.
    pub choice: Choice,
    /// How many in a second; `None` is as fast as it goes.
    pub rate: Option<Rate>,
    /// Work that is done runs once more, all of its steps included, by this person's word (`ann@laptop`): its record is
    /// reset just before, and remembers that. Done again, it forces nothing that was forced since it died.
    pub force_rerun_by: Option<String>,
    /// Changes nothing, and tells what would become of each.
    pub dry_run: bool,
}

/// What became of one letter.
#[derive(Debug)]
#[non_exhaustive]
pub struct Put<'a> {
    /// Which.
    pub letter: &'a Letter,
    /// What was to become of it.
    pub fate: Fate,
    /// What came of that.
    pub outcome: Outcome,
}

/// What came of putting a letter back, or of deleting it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// It is done, or would be.
    Done,
    /// It stays in the dead-letter queue.
    Stays,
    /// It is in its queue again, and could not be deleted here: the next redrive finds a copy of what it put back.
    SentAndStays(OpsError),
    /// It stays, for it could not be sent, or nobody knows whether it was.
    Failed(OpsError),
}

/// What a redrive or a purge has come to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Redriven {
    /// Letters by what became of them, for those that it did become of.
    pub done: BTreeMap<&'static str, u64>,
    /// Letters that stay, by why.
    pub stay: BTreeMap<&'static str, u64>,
    /// Letters that were not meant, or have died since the beginning.
    pub others: u64,
    /// How it ended.
    pub ending: Ending,
    /// About how many others are there that were not seen, by SQS's own count.
    pub unseen: u64,
}

impl Redriven {
    /// How many went back to their queue, and were deleted here.
    #[must_use]
    pub fn put_back(&self) -> u64 {
        let back = [Fate::RunsAgain, Fate::GoesBack, Fate::IsUndoneFirst, Fate::IsForced];
        back.iter().filter_map(|fate| self.done.get(fate.word())).sum()
    }

    /// How many were deleted, and went nowhere.
    #[must_use]
    pub fn deleted(&self) -> u64 {
        self.done.values().sum::<u64>() - self.put_back()
    }

    /// Whether it went to its end, and everything that is still there was meant to stay.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let is_at_its_end = matches!(self.ending, Ending::All | Ending::Enough | Ending::Dying);
        is_at_its_end && ![FAILED, NOT_DELETED].iter().any(|trouble| self.stay.contains_key(trouble))
    }
}

/// An error has ended it early. What was put back or deleted by then is so for good, and the rest was given back.
#[derive(Debug, thiserror::Error)]
#[error("it was broken off")]
#[non_exhaustive]
pub struct BrokenOff {
    /// What it had come to.
    pub redriven: Box<Redriven>,
    /// Why.
    #[source]
    pub error: OpsError,
}

/// What is counted of letters that could not be settled, and of those that were sent and are still here.
pub(super) const FAILED: &str = "failed";
pub(super) const NOT_DELETED: &str = "sent, and not deleted";

impl DeadLetters {
    /// Puts letters back into their queue, one by one, and tells of each. Safe to break off, and to do again: work that is
    /// done by then is cleaned away, and each piece of work takes effect once. Ends early when `stop` is cancelled, after
    /// those that are on their way.
    ///
    /// # Errors
    /// [`BrokenOff`] with [`OpsError::Queue`] when nothing can be received, or several in a row cannot be sent.
    pub async fn redrive(
        &self,
        ask: &Redrive,
        stop: &CancellationToken,
        tell: impl FnMut(&Put<'_>),
    ) -> Result<Redriven, BrokenOff> {
        Pass::new(self, ask, stop, Act::PutBack, tell).run().await
    }

    /// Deletes letters for good, and tells of each. The records of their work stay as they are, so that a late duplicate
    /// still does not run.
    ///
    /// # Errors
    /// As [`redrive`](Self::redrive).
    pub async fn purge(
        &self,
        ask: &Redrive,
        stop: &CancellationToken,
        tell: impl FnMut(&Put<'_>),
    ) -> Result<Redriven, BrokenOff> {
        Pass::new(self, ask, stop, Act::Delete, tell).run().await
    }

    /// Lets work that is done run again: by its record, and only if that still is the one that was looked at.
    pub(super) async fn reset(&self, letter: &Letter, by: &str) -> Result<(), OpsError> {
        let (Some(guard), Some(record)) = (&self.guard, letter.record()) else { return Ok(()) };
        let operator = Operator { owner: Owner(self.clock.token()), now: self.clock.wall(), name: by.to_owned() };
        let mut amend = Amend::reset(record, FinishedSteps::Repeat, NotBefore::Keep, &operator);
        let forced = Step { state: StepState::Undone, generation: 1, result: None, at: operator.now };
        amend.record.steps.insert(FORCED.to_owned(), forced);
        let answer = match guard.amend(&amend).await {
            // It may have been made: the same write again tells (rule G3).
            Err(GuardError::NoAnswer(_) | GuardError::Unavailable(_)) => guard.amend(&amend).await,
            answer => answer,
        };
        match answer.map_err(|error| OpsError::Guard { table: self.table.clone(), error })? {
            Written::Applied => Ok(()),
            Written::Refused(now) => Err(OpsError::Changed { now }),
        }
    }

    /// Sends a letter back to where it came from, with what the failure noted: by that its record is found again.
    pub(super) async fn send_back(&self, letter: &Letter) -> Result<(), QueueError> {
        let message = &letter.message;
        let mut again = match self.note_for(letter) {
            Some(note) => pack(message, note),
            None => Outgoing::from(message),
        };
        if self.source.facts.fifo {
            again.group.get_or_insert_with(|| message.id.clone());
            let id = format!("{}#{}", letter.failure_id().unwrap_or_default(), message.id);
            again.deduplication_id = Some(sha256([id]));
        }
        self.source.queue.send(&again).await
    }

    /// The note that goes along, that of a former failure too: by its failure id the message begins anew on the record of
    /// that failure (rule G11), and on no other. What SQS moved by itself gets one where its key would change on the way.
    fn note_for(&self, letter: &Letter) -> Option<Note> {
        let has_own_key = self.config.key.as_ref().is_some_and(|key| *key == KeySource::MessageId);
        match (&letter.message.dead_letter, &letter.pk) {
            (Some(note), Some(pk)) if has_own_key => Some(Note { pk: Some(pk.0.clone()), ..note.clone() }),
            (Some(note), _) => Some(note.clone()),
            (None, Some(pk)) if has_own_key => {
                let failure = Failure::new(letter.code(), "put back from the dead-letter queue");
                let id = format!("moved-{}", letter.message.id);
                let mut note = Note::new(failure, id, &self.name, &letter.message, self.clock.wall());
                note.pk = Some(pk.0.clone());
                Some(note)
            }
            (None, _) => None,
        }
    }
}
