//! The conditional writes: for each, the condition, what it makes of the record, and how its own lost reply is told.
//!
//! All values are absolute, never increments, so that a write that is applied twice makes the same record. Adapters
//! must carry out [`Change::applies_to`] and [`Change::apply`] to the letter, in one atomic write.

use crate::clock::{Millis, Seconds};

use super::{Failure, Fence, Owner, Pk, Record, Status, Step, UNFINISHED_TTL, Undoing};

/// Which message a record is claimed for, and by which worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The queue's name.
    pub queue: String,
    /// SQS's id of the message.
    pub message_id: String,
    /// When the message was sent.
    pub sent_at: Option<Millis>,
    /// A name for the worker, for a person.
    pub worker: String,
}

/// A claim: everything that a new record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The key.
    pub pk: Pk,
    /// The token of this claim.
    pub owner: Owner,
    /// The claimer's wall clock, read before sending.
    pub now: Millis,
    /// How long the owner may run it.
    pub lease_until: Millis,
    /// What the payload is; `None` if it is not compared.
    pub fingerprint: Option<String>,
    /// Which message it is claimed for, and by whom.
    pub source: Source,
}

impl Claim {
    /// Whether the claim may replace `found` without looking at it: there is none, or an expired one (rule G1).
    #[must_use]
    pub fn applies_to(&self, found: Option<&Record>) -> bool {
        found.is_none_or(|record| record.is_expired(self.now) && record.fence < self.record().fence)
    }

    /// The record that the claim makes.
    #[must_use]
    pub fn record(&self) -> Record {
        Record {
            pk: self.pk.clone(),
            status: Status::Running,
            owner: self.owner.clone(),
            fence: Fence::after(None, self.now),
            lease_until: self.lease_until,
            not_before: None,
            failures: 0,
            takeovers: 0,
            last_error: None,
            failure_id: None,
            dead_at: None,
            copied: false,
            undo: None,
            fingerprint: self.fingerprint.clone(),
            source: self.source.clone(),
            created_at: self.now,
            updated_at: self.now,
            steps: std::collections::BTreeMap::new(),
            expires_at: (self.now + UNFINISHED_TTL).seconds(),
        }
    }
}

/// A claim of a record that exists, if it is still the one that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeOver {
    /// Who claims it, and for which message.
    pub claim: Claim,
    /// What the record said when it was seen. The write requires its owner, fence, status and `lease_until`.
    pub seen: Box<Record>,
    /// What of the record lives on.
    pub kind: TakeOverKind,
}

/// What of a record lives on when it is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOverKind {
    /// Everything: the former owner had given it back.
    Resume,
    /// Everything, and the takeover is counted: the former owner's lease had ended.
    AfterLapse,
    /// As after a lapse, but nothing runs: the record becomes RELEASED until `not_before`, so that a message that kills
    /// its worker and the others that worker held part ways (rule G6).
    Park {
        /// When it may be claimed.
        not_before: Millis,
    },
    /// Finished steps only; counts begin at zero and the fingerprint is replaced (rule G11).
    Anew,
    /// Nothing: it was DONE or DEAD, and expired.
    Fresh,
}

impl TakeOver {
    /// Whether `found` is still the record that was seen.
    #[must_use]
    pub fn applies_to(&self, found: &Record) -> bool {
        let seen = &self.seen;
        (&found.owner, found.fence, found.status, found.lease_until)
            == (&seen.owner, seen.fence, seen.status, seen.lease_until)
    }

    /// The fence that the takeover gives the record.
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence::after(Some(self.seen.fence), self.claim.now)
    }

    /// The status that the takeover gives the record: one that is being undone goes on being undone.
    #[must_use]
    pub fn status(&self) -> Status {
        match (self.kind, self.seen.status) {
            (TakeOverKind::Resume | TakeOverKind::AfterLapse | TakeOverKind::Park { .. }, Status::Failed) => {
                Status::Failed
            }
            (TakeOverKind::Park { .. }, _) => Status::Released,
            _ => Status::Running,
        }
    }

    /// Until when the new owner may run it; a parked record is nobody's, and its lease has ended.
    #[must_use]
    pub fn lease_until(&self) -> Millis {
        match self.kind {
            TakeOverKind::Park { .. } => self.claim.now,
            _ => self.claim.lease_until,
        }
    }

    /// Takeovers of the run, and of `undo`, as the record then counts them.
    #[must_use]
    pub fn takeovers(&self) -> (u32, Option<Undoing>) {
        let counted = matches!(self.kind, TakeOverKind::AfterLapse | TakeOverKind::Park { .. });
        match (counted, self.seen.status) {
            (true, Status::Failed) => {
                let mut undo = self.seen.undo.clone().unwrap_or_default();
                undo.takeovers += 1;
                (self.seen.takeovers, Some(undo))
            }
            (true, _) => (self.seen.takeovers + 1, self.seen.undo.clone()),
            (false, _) => (self.seen.takeovers, self.seen.undo.clone()),
        }
    }

    /// Makes the change.
    pub fn apply(&self, record: &mut Record) {
        let fresh = self.claim.record();
        let (takeovers, undo) = self.takeovers();
        let kept = std::mem::replace(record, fresh);
        record.status = self.status();
        record.fence = self.fence();
        record.lease_until = self.lease_until();
        if let TakeOverKind::Park { not_before } = self.kind {
            record.not_before = Some(not_before);
        }
        match self.kind {
            TakeOverKind::Fresh => {}
            TakeOverKind::Anew => {
                record.created_at = kept.created_at;
                record.steps = kept.steps;
            }
            TakeOverKind::Resume | TakeOverKind::AfterLapse | TakeOverKind::Park { .. } => {
                record.created_at = kept.created_at;
                record.steps = kept.steps;
                record.failures = kept.failures;
                record.takeovers = takeovers;
                record.last_error = kept.last_error;
                record.failure_id = kept.failure_id;
                record.undo = undo;
                record.fingerprint = kept.fingerprint;
            }
        }
    }
}

/// A change of a record by its owner; [`Change::Copied`] alone is anybody's who dead-letters that failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The owner goes on: RUNNING or FAILED.
    Renew {
        /// Who.
        owner: Owner,
        /// When, by the owner's clock.
        now: Millis,
        /// The new end of the lease.
        lease_until: Millis,
    },
    /// A step is recorded: RUNNING or FAILED.
    Step {
        /// Who.
        owner: Owner,
        /// When, by the owner's clock.
        now: Millis,
        /// The step's name.
        name: String,
        /// What is recorded of it.
        step: Step,
    },
    /// RUNNING becomes DONE.
    Confirm {
        /// Who.
        owner: Owner,
        /// When, by the owner's clock.
        now: Millis,
        /// How long "done" is remembered.
        expires_at: Seconds,
    },
    /// RUNNING becomes RELEASED; FAILED stays FAILED.
    Release {
        /// Who.
        owner: Owner,
        /// When, by the owner's clock.
        now: Millis,
        /// Nobody may claim it before this; `None` is at once.
        not_before: Option<Millis>,
        /// Failed attempts, this one included if it counts.
        failures: u32,
        /// Why it failed, if it did.
        error: Option<Failure>,
    },
    /// RUNNING becomes FAILED: it has failed for good and will be undone.
    Fail {
        /// Who.
        owner: Owner,
        /// When, by the owner's clock.
        now: Millis,
        /// Failed attempts, this one included.
        failures: u32,
        /// Why it failed.
        error: Failure,
        /// Names the failure.
        failure_id: String,
    },
    /// RUNNING or FAILED becomes DEAD, its copy not yet sent.
    Bury {
        /// Who.
        owner: Owner,
        /// When, by the owner's clock.
        now: Millis,
        /// Failed attempts, this one included.
        failures: u32,
        /// Why it failed.
        error: Failure,
        /// Names the failure.
        failure_id: String,
        /// How long "dead" is remembered.
        expires_at: Seconds,
    },
    /// The copy of DEAD work has been sent.
    Copied {
        /// Which failure.
        failure_id: String,
        /// When, by the sender's clock.
        now: Millis,
    },
}

impl Change {
    /// The owner that the change requires.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        match self {
            Self::Renew { owner, .. }
            | Self::Step { owner, .. }
            | Self::Confirm { owner, .. }
            | Self::Release { owner, .. }
            | Self::Fail { owner, .. }
            | Self::Bury { owner, .. } => Some(owner),
            Self::Copied { .. } => None,
        }
    }

    /// The statuses that the change may start from (rule G2).
    #[must_use]
    pub fn from(&self) -> &'static [Status] {
        match self {
            Self::Renew { .. } | Self::Step { .. } | Self::Release { .. } | Self::Bury { .. } => {
                &[Status::Running, Status::Failed]
            }
            Self::Confirm { .. } | Self::Fail { .. } => &[Status::Running],
            Self::Copied { .. } => &[Status::Dead],
        }
    }

    /// Whether the change's condition holds.
    #[must_use]
    pub fn applies_to(&self, found: &Record) -> bool {
        let same_failure = match self {
            Self::Copied { failure_id, .. } => found.failure_id.as_ref() == Some(failure_id),
            _ => true,
        };
        self.owner().is_none_or(|owner| found.owner == *owner) && self.from().contains(&found.status) && same_failure
    }

    /// Whether a record whose condition no longer holds shows that this very change was made (rule G3).
    #[must_use]
    pub fn is_made_in(&self, found: &Record) -> bool {
        if self.owner().is_some_and(|owner| found.owner != *owner) {
            return false;
        }
        match self {
            Self::Renew { lease_until, .. } => self.applies_to(found) && found.lease_until >= *lease_until,
            Self::Step { name, step, .. } => found.steps.get(name) == Some(step),
            Self::Confirm { .. } => found.status == Status::Done,
            Self::Release { failures, not_before, .. } => {
                found.status == Status::Released && found.failures == *failures && found.not_before == *not_before
            }
            Self::Fail { failure_id, .. } => {
                matches!(found.status, Status::Failed | Status::Dead) && found.failure_id.as_ref() == Some(failure_id)
            }
            Self::Bury { failure_id, .. } => {
                found.status == Status::Dead && found.failure_id.as_ref() == Some(failure_id)
            }
            Self::Copied { failure_id, .. } => found.copied && found.failure_id.as_ref() == Some(failure_id),
        }
    }

    /// Makes the change.
    pub fn apply(&self, record: &mut Record) {
        match self {
            Self::Renew { lease_until, .. } => record.lease_until = *lease_until,
            Self::Step { name, step, .. } => {
                record.steps.insert(name.clone(), step.clone());
            }
            Self::Confirm { .. } => record.status = Status::Done,
            Self::Release { now, not_before, failures, error, .. } => {
                if record.status == Status::Running {
                    record.status = Status::Released;
                }
                record.lease_until = *now;
                record.not_before = *not_before;
                record.failures = *failures;
                if error.is_some() {
                    record.last_error.clone_from(error);
                }
            }
            Self::Fail { failures, error, failure_id, .. } => {
                record.status = Status::Failed;
                record.failures = *failures;
                record.last_error = Some(error.clone());
                record.failure_id = Some(failure_id.clone());
            }
            Self::Bury { now, failures, error, failure_id, .. } => {
                record.status = Status::Dead;
                record.failures = *failures;
                record.last_error = Some(error.clone());
                record.failure_id = Some(failure_id.clone());
                record.dead_at = Some(*now);
                record.copied = false;
            }
            Self::Copied { .. } => record.copied = true,
        }
        record.updated_at = self.now();
        if let Some(expires_at) = self.expires_at() {
            record.expires_at = expires_at;
        }
    }

    /// When the change is made, by its maker's clock.
    #[must_use]
    pub fn now(&self) -> Millis {
        match self {
            Self::Renew { now, .. }
            | Self::Step { now, .. }
            | Self::Confirm { now, .. }
            | Self::Release { now, .. }
            | Self::Fail { now, .. }
            | Self::Bury { now, .. }
            | Self::Copied { now, .. } => *now,
        }
    }

    /// When the record expires after the change; `None` leaves it as it is.
    #[must_use]
    pub fn expires_at(&self) -> Option<Seconds> {
        match self {
            Self::Confirm { expires_at, .. } | Self::Bury { expires_at, .. } => Some(*expires_at),
            Self::Copied { .. } => None,
            Self::Renew { .. } | Self::Step { .. } | Self::Release { .. } | Self::Fail { .. } => {
                Some((self.now() + UNFINISHED_TTL).seconds())
            }
        }
    }
}
