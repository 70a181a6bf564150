//! The conditional writes of an owner: for each, the condition, what it makes of the record, and how its own lost reply
//! is told.
//!
//! All values are absolute, never increments, so that a write that is applied twice makes the same record; and a write
//! that was stuck on its way and arrives after later ones of the same owner changes nothing: a lease is not shortened,
//! a step does not go back. Adapters must carry out [`Change::applies_to`] and [`Change::apply`] to the letter, in one
//! atomic write.

use crate::clock::{Millis, Seconds};

use super::{Failure, GuardError, Owner, Record, Status, Step, UNFINISHED_TTL, Undoing, Written};

/// A change of a record by its owner; [`Change::Copied`] alone is anybody's who dead-letters that failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The owner goes on: RUNNING or FAILED. Never shortens the lease.
    Renew {
        /// Who.
        owner: Owner,
        /// When, by the owner's clock.
        now: Millis,
        /// The new end of the lease.
        lease_until: Millis,
    },
    /// A step is recorded: RUNNING or FAILED, where it [follows](Step::follows) what is recorded of that step.
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
    /// RUNNING becomes RELEASED. With `undo`, it is FAILED that is given back, and stays FAILED.
    Release {
        /// Who.
        owner: Owner,
        /// When, by the owner's clock.
        now: Millis,
        /// Nobody may claim it before this; `None` is at once.
        not_before: Option<Millis>,
        /// Failed attempts, this one included if it counts.
        failures: u32,
        /// Why it failed, if it did; `None` leaves the latest reason.
        error: Option<Failure>,
        /// While it is being undone: how far that came.
        undo: Option<Undoing>,
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
        /// If it was to be undone: how far that came; `None` leaves what is recorded.
        undo: Option<Undoing>,
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
    /// A short name, for counts and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Renew { .. } => "renew",
            Self::Step { .. } => "step",
            Self::Confirm { .. } => "confirm",
            Self::Release { .. } => "release",
            Self::Fail { .. } => "fail",
            Self::Bury { .. } => "bury",
            Self::Copied { .. } => "copied",
        }
    }

    /// Refuses a change that no store could write.
    pub fn check(&self) -> Result<(), GuardError> {
        match self {
            Self::Step { name, .. } if name.is_empty() => Err(GuardError::Refused("a step without a name".into())),
            _ => Ok(()),
        }
    }

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
            Self::Renew { .. } | Self::Step { .. } | Self::Bury { .. } => &[Status::Running, Status::Failed],
            Self::Confirm { .. } | Self::Fail { .. } | Self::Release { undo: None, .. } => &[Status::Running],
            Self::Release { undo: Some(_), .. } => &[Status::Failed],
            Self::Copied { .. } => &[Status::Dead],
        }
    }

    /// Whether the change's condition holds.
    #[must_use]
    pub fn applies_to(&self, found: &Record) -> bool {
        let fits = match self {
            Self::Renew { lease_until, .. } => found.lease_until <= *lease_until,
            Self::Step { name, step, .. } => found.steps.get(name).is_none_or(|recorded| step.follows(recorded)),
            Self::Copied { failure_id, .. } => found.failure_id.as_ref() == Some(failure_id),
            _ => true,
        };
        self.owner().is_none_or(|owner| found.owner == *owner) && self.from().contains(&found.status) && fits
    }

    /// What a refusal by `found` means: a record that shows this very change is a change whose reply was lost (rule
    /// G3).
    #[must_use]
    pub fn answer(&self, found: Option<Record>) -> Written {
        match found {
            Some(record) if self.is_made_in(&record) => Written::Applied,
            other => Written::Refused(other.map(Box::new)),
        }
    }

    /// Whether a record whose condition no longer holds shows that this very change was made (rule G3).
    ///
    /// A record that is DONE under our owner shows a confirm and nothing else; whoever wanted another write reads it in
    /// the refusal.
    #[must_use]
    pub fn is_made_in(&self, found: &Record) -> bool {
        if self.owner().is_some_and(|owner| found.owner != *owner) {
            return false;
        }
        match self {
            Self::Renew { lease_until, .. } => self.from().contains(&found.status) && found.lease_until >= *lease_until,
            Self::Step { name, step, .. } => found.steps.get(name) == Some(step),
            Self::Confirm { .. } => found.status == Status::Done,
            Self::Release { now, failures, not_before, undo, .. } => {
                let status = if undo.is_some() { Status::Failed } else { Status::Released };
                found.status == status
                    && (found.lease_until, found.failures, found.not_before) == (*now, *failures, *not_before)
                    && (undo.is_none() || found.undo == *undo)
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
            Self::Release { now, not_before, failures, error, undo, .. } => {
                if undo.is_some() {
                    record.undo.clone_from(undo);
                } else {
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
            Self::Bury { now, failures, error, failure_id, undo, .. } => {
                record.status = Status::Dead;
                if undo.is_some() {
                    record.undo.clone_from(undo);
                }
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
