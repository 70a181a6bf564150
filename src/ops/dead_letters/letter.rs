//! One dead letter: why it is there, what the guard knows of its work, and what becomes of it when it is put back.
//!
//! Deciding is pure, and errs towards the worker, which decides again under a claim: a message is taken for done only if its
//! record says so of this very payload.

use std::time::Duration;

use serde::Serialize;

use crate::{
    clock::Millis,
    config::{Envelope, KeySource, S3Payload},
    guard::{GuardError, Pk, Record, Status, StepState},
    key::{self, Key},
    message::{Message, Note, RESERVED_ATTRIBUTES, envelope},
};

use super::DeadLetters;

/// The reason code of what SQS moved by itself, after too many receives.
const MOVED: &str = "moved_by_sqs";

/// The reason code of what came without a reason, and was not moved by SQS: somebody else sent it.
const UNEXPLAINED: &str = "unexplained";

/// The step that remembers in a record that, and when, its work was forced to run again: of what a record says, steps alone
/// outlive every claim.
pub(super) const FORCED: &str = "dlq redrive --force-rerun";

/// A message of a dead-letter queue, and what is known of its work.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Letter {
    /// The message, as it came.
    pub message: Message,
    /// The primary key of its work: the one that its failure noted, or else the one that its message has.
    pub pk: Option<Pk>,
    /// What the guard knows of that.
    pub known: Known,
    /// What the payload is, as records have it; `None` if that cannot be told from the message alone.
    fingerprint: Option<String>,
    /// Its key is SQS's own id, which another message does not have.
    key_is_lost: bool,
}

/// What the guard knows of a letter's work.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Known {
    /// This record.
    Record(Box<Record>),
    /// There is no record: it was never claimed, or long ago.
    Nothing,
    /// Its key cannot be told, for this reason.
    NoKey(String),
    /// The queue has no guard.
    Unguarded,
    /// The guard could not be asked.
    Unknown(String),
}

/// What becomes of a letter that is put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fate {
    /// It goes back to its queue and runs again: from the beginning, but for steps that are recorded.
    RunsAgain,
    /// It goes back to its queue, and whether it runs is for the record to say, which somebody holds or could not be read.
    GoesBack,
    /// It goes back to its queue, where its undo is gone on with, which is half done; then it is dead-lettered again.
    IsUndoneFirst,
    /// Its work is done: it is deleted here.
    IsDone,
    /// Its work is done, and is forced to run once more.
    IsForced,
    /// It is another copy of a failure that was put back: it is deleted here.
    IsCopy,
    /// It is deleted here, and goes nowhere.
    #[serde(rename = "deleted")]
    IsDeleted,
    /// It stays: another letter of its work is forced to run once more.
    AnotherIsForced,
    /// It stays: its key was SQS's own id of it, which SQS has replaced. Put back it would begin as other work.
    KeyIsLost,
    /// It stays: it came from another queue.
    IsOfOthers,
}

impl Fate {
    /// In a word or two, to count by.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::RunsAgain => "runs again",
            Self::GoesBack => "goes back",
            Self::IsUndoneFirst => "is undone first",
            Self::IsDone => "was done",
            Self::IsForced => "is forced to run again",
            Self::IsCopy => "was a copy",
            Self::IsDeleted => "deleted",
            Self::AnotherIsForced => "another of its work is forced",
            Self::KeyIsLost => "its key is lost",
            Self::IsOfOthers => "came from another queue",
        }
    }

    /// Whether it goes to its queue.
    #[must_use]
    pub fn is_put_back(self) -> bool {
        matches!(self, Self::RunsAgain | Self::GoesBack | Self::IsUndoneFirst | Self::IsForced)
    }

    /// Whether it stays where it is.
    #[must_use]
    pub fn stays(self) -> bool {
        matches!(self, Self::AnotherIsForced | Self::KeyIsLost | Self::IsOfOthers)
    }
}

impl Letter {
    pub(super) async fn known(from: &DeadLetters, message: Message) -> Self {
        let derived = derive(from, &message);
        let lost = matches!(derived, Err(NoPk::Lost(_)));
        let (pk, known) = match (derived, &from.guard) {
            (derived, None) => (derived.ok(), Known::Unguarded),
            (Err(NoPk::Lost(why) | NoPk::Other(why)), Some(_)) => (None, Known::NoKey(why)),
            (Ok(pk), Some(guard)) => {
                let known = match guard.read(&pk).await {
                    Ok(Some(record)) => Known::Record(Box::new(record)),
                    Ok(None) => Known::Nothing,
                    Err(GuardError::Missing) => Known::Unknown(format!("there is no table {:?}", from.table)),
                    Err(error) => Known::Unknown(crate::causes::in_full(&error)),
                };
                (Some(pk), known)
            }
        };
        let fingerprint = opened(from, &message).and_then(|opened| from.config.fingerprint.of(&opened));
        Self { message, pk, known, fingerprint, key_is_lost: lost }
    }

    /// What the worker noted when it sent this copy; `None` for what SQS moved, and for what is not ours. What was put back
    /// and then moved by SQS still carries the note of its former failure, which is not why it is here.
    #[must_use]
    pub fn note(&self) -> Option<&Note> {
        self.message.dead_letter.as_ref().filter(|_| !self.was_moved())
    }

    /// The record of its work, if there is one.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        match &self.known {
            Known::Record(record) => Some(record),
            _ => None,
        }
    }

    /// Whether SQS moved it by itself, after too many receives.
    #[must_use]
    pub fn was_moved(&self) -> bool {
        self.message.moved_from.is_some()
    }

    /// A short stable code for why it is here. A copy that had no room for its reason has that of its record.
    #[must_use]
    pub fn code(&self) -> &str {
        match (self.note(), self.buried()) {
            (Some(note), _) => &note.code,
            (None, Some(record)) => record.last_error.as_ref().map_or(UNEXPLAINED, |error| &error.code),
            (None, None) if self.was_moved() => MOVED,
            (None, None) => UNEXPLAINED,
        }
    }

    /// The same for a person, if anything is known.
    #[must_use]
    pub fn says(&self) -> Option<&str> {
        let last_error = || {
            // A record that is DEAD tells of a failure before SQS moved this: nobody has claimed it since.
            let of_moved = self.record().filter(|record| self.was_moved() && record.status != Status::Dead);
            of_moved.or(self.buried())?.last_error.as_ref()
        };
        let text = self.note().map(|note| note.message.as_str());
        text.or_else(|| last_error().map(|error| error.text.as_str())).filter(|text| !text.is_empty())
    }

    /// Names the failure, of which there may be several copies.
    #[must_use]
    pub fn failure_id(&self) -> Option<&str> {
        self.note().map(|note| note.failure_id.as_str()).or_else(|| self.buried()?.failure_id.as_deref())
    }

    /// Since when it is dead, as far as that is known: SQS keeps the time of sending of what it moves.
    #[must_use]
    pub fn at(&self) -> Option<Millis> {
        self.note().map(|note| note.dead_at).or(self.message.sent_at)
    }

    /// Steps that are recorded, and so do not run again.
    #[must_use]
    pub fn finished_steps(&self) -> Vec<&str> {
        let steps = self.record().into_iter().flat_map(|record| &record.steps);
        steps.filter(|(_, step)| step.state == StepState::Done).map(|(name, _)| name.as_str()).collect()
    }

    /// When it came here, by SQS's clock; of what SQS moved from a standard queue, when it was sent there.
    pub(super) fn came_at(&self) -> Option<Millis> {
        self.message.sent_at.or(self.at())
    }

    /// Whether its work was forced to run again since it is here: then it has been, by this letter or by another.
    fn is_forced_already(&self, record: &Record, skew: Duration) -> bool {
        let forced = record.steps.get(FORCED).map(|step| step.at + skew);
        forced.is_some_and(|at| self.came_at().is_none_or(|came| came <= at))
    }

    /// The record of this very failure. Without a note, only one that SQS did not move can be a copy of ours, and only one
    /// of the very payload that the record is of: another that has the same key is another failure, which no record knows.
    fn buried(&self) -> Option<&Record> {
        let record = self.record().filter(|record| record.status == Status::Dead)?;
        let is_a_copy = self.message.dead_letter.is_none() && !self.was_moved();
        (is_a_copy && self.fingerprint.is_some() && self.fingerprint == record.fingerprint).then_some(record)
    }

    /// What becomes of it when it is put back.
    pub(super) fn fate(&self, from: &DeadLetters, force: bool, now: Millis) -> Fate {
        if !self.is_of(from) {
            return Fate::IsOfOthers;
        }
        if self.key_is_lost {
            return Fate::KeyIsLost;
        }
        let Some(record) = self.record() else {
            let is_unknown = matches!(self.known, Known::Unknown(_));
            return if is_unknown { Fate::GoesBack } else { Fate::RunsAgain };
        };
        match record.status {
            Status::Done if record.is_expired(now) => Fate::RunsAgain,
            Status::Done if !self.is_work_of(record) => Fate::GoesBack,
            Status::Done if force && !self.is_forced_already(record, from.clock_skew) => Fate::IsForced,
            Status::Done => Fate::IsDone,
            Status::Dead if record.is_half_undone() => Fate::IsUndoneFirst,
            Status::Dead | Status::Released => Fate::RunsAgain,
            Status::Running if record.lease_until < now => Fate::RunsAgain,
            Status::Running | Status::Failed => Fate::GoesBack,
        }
    }

    /// Whether a record is of this work, and not of another that has the same key.
    fn is_work_of(&self, record: &Record) -> bool {
        let noted = self.message.dead_letter.as_ref().and_then(|note| note.pk.as_ref());
        let is_noted = noted == Some(&record.pk.0);
        is_noted || record.fingerprint.is_none() || record.fingerprint == self.fingerprint
    }

    /// Several queues can have one dead-letter queue. What SQS moved tells from where, whatever it carries. A copy tells by
    /// the name that its worker has for the queue, and by its key; here the queue can have another name, so that one of the
    /// two is enough where no other queue has that name.
    fn is_of(&self, from: &DeadLetters) -> bool {
        if let Some(arn) = &self.message.moved_from {
            return *arn == from.source.facts.arn;
        }
        let Some(note) = self.note() else { return true };
        if note.queue == from.name {
            return true;
        }
        let is_foreign = |pk: &String| {
            let (namespace, operation) = (from.namespace.as_deref(), from.config.operation.as_str());
            !key::belongs(&Pk(pk.clone()), namespace, operation)
        };
        !from.others.contains_key(&note.queue)
            && (note.queue == from.source.name() || !note.pk.as_ref().is_some_and(is_foreign))
    }
}

/// Why there is no primary key.
enum NoPk {
    /// It was SQS's own id, which is another now.
    Lost(String),
    Other(String),
}

/// The primary key, as a worker would find it (rule G10).
fn derive(from: &DeadLetters, message: &Message) -> Result<Pk, NoPk> {
    let (namespace, operation) = (from.namespace.as_deref(), from.config.operation.as_str());
    let noted = message.dead_letter.as_ref().and_then(|note| note.pk.clone()).map(Pk);
    if let Some(pk) = noted.filter(|pk| key::belongs(pk, namespace, operation)) {
        return Ok(pk);
    }
    let Some(source) = &from.config.key else {
        return Err(NoPk::Other("its key is made in code".to_owned()));
    };
    // SQS keeps the id of what it moves, and a copy of ours tells it; a deduplication id is replaced in both.
    let lost = || NoPk::Lost(format!("its key was its {source}, which is another in the dead-letter queue"));
    let derived = match (source, &message.dead_letter, &message.moved_from) {
        (KeySource::MessageId, Some(note), None) => Ok(Key::from(&note.message_id)),
        (KeySource::MessageId, None, None) => return Err(lost()),
        (KeySource::DeduplicationId | KeySource::GroupAndDeduplicationId, ..) => return Err(lost()),
        _ => source.derive(&opened(from, message).ok_or_else(|| NoPk::Other("its body is elsewhere".to_owned()))?),
    };
    let key = derived.map_err(|error| NoPk::Other(error.to_string()))?;
    key::pk(namespace, operation, &key, from.key_hash).ok_or_else(|| NoPk::Other("it has no key".to_owned()))
}

/// The message as its handler would see it, unless its body has to be fetched for that.
fn opened(from: &DeadLetters, message: &Message) -> Option<Message> {
    let opened = match from.config.envelope {
        Envelope::Raw => message.clone(),
        Envelope::Sns => envelope::open(message).ok()?,
    };
    let is_elsewhere =
        |name: &&str| opened.attributes.contains_key(*name) && from.config.s3_payload == S3Payload::Fetch;
    let is_elsewhere = RESERVED_ATTRIBUTES.iter().any(is_elsewhere);
    (!is_elsewhere).then_some(opened)
}
