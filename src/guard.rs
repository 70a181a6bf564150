//! The guard port: the record that says who may run a key, and the conditional writes that change it.
//!
//! Adapters are [`memory`] and [`dynamodb`]. What a write requires, what it makes of a record, and how it is recognised
//! when its own reply was lost is pure code, shared by all of them: [`Claim`], [`TakeOver`], [`Change`] and [`Commit`], and
//! [`Amend`] of operators. An adapter only carries it out.

use std::{fmt, time::Duration};

use async_trait::async_trait;

use crate::causes::NoCredentials;

pub use amend::{Amend, FinishedSteps, NotBefore, Operator, StepWord};
pub use change::Change;
pub use claim::{Claim, Source, TakeOver, TakeOverKind};
pub use control::{Control, ControlKey, Paused};
pub use record::{Failure, Fence, Owner, Pk, Record, Status, Step, StepState, UndoAnswer, Undoing};
pub use transaction::{Commit, Committed, Item, ItemAction, ItemWrite, MOST_WRITES, Value, from_item, item};

pub(crate) mod admin;
pub(crate) mod amend;
pub(crate) mod change;
pub(crate) mod claim;
pub(crate) mod control;
pub mod dynamodb;
pub(crate) mod execution;
pub mod memory;
pub(crate) mod outage;
#[cfg(test)]
mod properties;
pub(crate) mod record;
pub(crate) mod transaction;

/// One table of records.
///
/// # Contract
/// - Every call ends: an adapter MUST bound each with a timeout of its own.
/// - Each call but `read`, `facts` and those of controls is one atomic conditional write, by `applies_to` and `apply` (of an amendment `made_of`) of what it is given,
///   to the letter. On refusal the record that refused comes back from that same write,
///   never from a second read.
/// - An adapter MAY send a write again, but for an amendment: of that its caller says whether it was written. A refusal that
///   shows what this very write would have made (rule G3) MUST be answered as success: [`Claim::answer`],
///   [`Change::answer`], [`Commit::answer`] and [`Amend::answer`] tell.
/// - What [`TakeOver::check`], [`Change::check`], [`Commit::check`], [`Amend::check`] or [`Control::check`] refuses MUST NOT be
///   sent.
/// - A record of an unknown version or shape MUST be [`GuardError::Foreign`], never a verdict. So MUST a control, whose
///   item of an unknown version MUST NOT be replaced either.
/// - Dropping a call's future MUST NOT undo what was sent; the outcome is then unknown.
#[async_trait]
pub trait Guard: fmt::Debug + Send + Sync + 'static {
    /// Writes a new record, if there is none or only an expired DONE or DEAD one with a lower fence (rule G1).
    async fn claim(&self, claim: &Claim) -> Result<Claimed, GuardError>;

    /// Takes a record over, if it is still the one that was seen. What comes back is the record as it now is: its steps
    /// may have grown since it was seen.
    async fn take_over(&self, take_over: &TakeOver) -> Result<Claimed, GuardError>;

    /// Changes a record under the condition that belongs to the change (rule G2).
    async fn write(&self, pk: &Pk, change: &Change) -> Result<Written, GuardError>;

    /// Confirms a record and makes a handler's writes, all together or none (rule G12). A refusal by our own record goes
    /// before one by a handler's condition. A guard MAY know no transactions: this is then refused, as here.
    async fn confirm_with(&self, commit: &Commit) -> Result<Committed, GuardError> {
        let text = format!("this guard knows no transactions, and {} is to be confirmed in one", commit.pk);
        Err(GuardError::Refused(text))
    }

    /// Makes a record what an operator wants it to be, if nobody has written it since it was seen. What is kept in it beside
    /// what this version knows MUST stay.
    async fn amend(&self, amend: &Amend) -> Result<Written, GuardError>;

    /// Reads a record, strongly consistent. For tools; no verdict rests on it.
    async fn read(&self, pk: &Pk) -> Result<Option<Record>, GuardError>;

    /// A real conditional write on a reserved key: proves that the next claim has a chance (rule G8).
    async fn probe(&self) -> Result<(), GuardError>;

    /// Reads what operators have said about a queue: nothing, if there is no item. It MAY be a word from some moments
    /// ago.
    async fn control(&self, queue: &ControlKey) -> Result<Control, GuardError>;

    /// Says this about a queue, in place of whatever was said before. Saying it twice is saying it once.
    async fn set_control(&self, queue: &ControlKey, control: &Control) -> Result<(), GuardError>;

    /// Looks the table's settings up.
    async fn facts(&self) -> Result<TableFacts, GuardError>;
}

/// What came of a claim or a takeover.
#[derive(Debug, Clone, PartialEq)]
pub enum Claimed {
    /// The record is ours; this is what it now says.
    Mine(Box<Record>),
    /// The record is not ours; this is what it says, if it still exists.
    Refused(Option<Box<Record>>),
}

/// What came of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum Written {
    /// The record is as the change makes it.
    Applied,
    /// The condition does not hold; this is the record, if it still exists.
    Refused(Option<Box<Record>>),
}

/// A table's settings, as far as they matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFacts {
    /// Its ARN.
    pub arn: String,
    /// The hash key's name and whether it is a string; the sort key's name, if there is one.
    pub key: TableKey,
    /// The attribute that TTL reads; `None` if TTL is off; `Err` with why, if it could not be looked at.
    pub ttl: Result<Option<String>, String>,
    /// Whether it is kept in several regions.
    pub replication: Replication,
}

impl TableFacts {
    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.arn.rsplit_once("table/").map_or(&self.arn, |(_, name)| name)
    }
}

impl Default for TableFacts {
    /// A table as it should be.
    fn default() -> Self {
        Self {
            arn: "arn:aws:dynamodb:us-east-1:000000000000:table/leasehold".to_owned(),
            key: TableKey { hash: admin::KEY.to_owned(), is_string: true, range: None },
            ttl: Ok(Some(admin::TTL.to_owned())),
            replication: Replication::Alone,
        }
    }
}

/// Whether a table is one of a global table's replicas, and what its conditional writes see of the others.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/V2globaltables_HowItWorks.html>
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replication {
    /// It has no replicas.
    #[default]
    Alone,
    /// A condition is looked at in the writer's region, and replicas learn of the write later. The regions.
    Eventual(Vec<String>),
    /// A condition sees the writes of all regions. The regions.
    Strong(Vec<String>),
}

/// A table's key schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableKey {
    /// The hash key's name.
    pub hash: String,
    /// Whether the hash key is a string.
    pub is_string: bool,
    /// The sort key's name, if there is one.
    pub range: Option<String>,
}

/// Why a guard call gave no verdict. Each is the verdict *unknown*: nothing is run, deleted or dead-lettered for it.
/// Also where the last try wrote nothing, an earlier try of the same call may have; sending it again tells (rule G3).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The caller was told to slow down.
    #[error("throttled")]
    Throttled(#[source] Option<Cause>),
    /// Another transaction, or another region, is at the record.
    #[error("the record is part of another transaction")]
    Conflict,
    /// The store answered that it could not do it: it may have been written all the same, for what answers is not what
    /// stores.
    #[error("the store could not do it")]
    Unavailable(#[source] Option<Cause>),
    /// No answer came, or the store was not even reached: it may have been written.
    #[error("no answer came")]
    NoAnswer(#[source] Option<Cause>),
    /// The credentials do not allow the call, are missing, or have expired.
    #[error("access denied")]
    Denied(#[source] Option<Cause>),
    /// There is no such table.
    #[error("the table does not exist")]
    Missing,
    /// The record would grow past DynamoDB's 400 KB.
    #[error("the record would be larger than 400 KB")]
    TooLarge,
    /// The record is not one that this version can read.
    #[error("the record cannot be read by this version: {0}")]
    Foreign(String),
    /// The request can never succeed.
    #[error("the store refuses the request: {0}")]
    Refused(String),
}

/// What an adapter met, kept for the log.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// How bad an error is for the table as a whole (rule G8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Severity {
    /// This key's delay, and nobody else's.
    ThisKey,
    /// This key's delay too, but an outage if several calls in a row meet it and none succeeds between them.
    Unanswered,
    /// An outage at once: nothing will work before somebody mends it.
    Outage,
}

impl GuardError {
    /// What the error says about the table.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Self::Denied(_) | Self::Missing => Severity::Outage,
            Self::NoAnswer(_) | Self::Unavailable(_) | Self::Throttled(_) => Severity::Unanswered,
            Self::Conflict | Self::TooLarge | Self::Foreign(_) | Self::Refused(_) => Severity::ThisKey,
        }
    }

    /// Whether access is denied for want of credentials: there are none, or they are wrong, or have expired. A right that is
    /// missing is something else.
    #[must_use]
    pub fn lacks_credentials(&self) -> bool {
        NoCredentials::is_behind(self)
    }

    /// Whether the same write may well succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        !matches!(self, Self::TooLarge | Self::Foreign(_) | Self::Refused(_))
    }
}

/// How long a record that is neither DONE nor DEAD outlives its last write (rule G4).
pub const UNFINISHED_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// DynamoDB's largest item.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html#limits-items>
pub const LARGEST_RECORD: usize = 400 * 1024;
