//! Claims and takeovers: what they require of a record and what they make of it.
//!
//! A claim looks at nothing but that the record is absent or expired; a takeover rests on a record that was seen, and
//! requires that it is still that one. Adapters must carry out `applies_to` and the record it leads to to the letter,
//! in one atomic write.

use crate::{
    clock::Millis,
    testing::{Planted, planted},
};

use super::{Claimed, Fence, GuardError, Owner, Pk, Record, Status, UNFINISHED_TTL, UndoAnswer, Undoing};

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
    /// Until when the owner may run it.
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

    /// What a refusal by `found` means: our own record is a claim, or a takeover, whose reply was lost (rule G3).
    #[must_use]
    pub fn answer(&self, found: Option<Record>) -> Claimed {
        match found {
            Some(record) if record.is_claimed_by(&self.owner) => Claimed::Mine(Box::new(record)),
            other => Claimed::Refused(other.map(Box::new)),
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
    /// The steps; counts begin at zero and the fingerprint is replaced (rule G11). Steps of work that was undone are of
    /// the past: they count as undone, so that their next run is of a new generation. Work that is half undone is undone
    /// first, to the end: it becomes FAILED, under a failure of its own.
    Anew,
    /// Nothing: it was DONE or DEAD, and expired.
    Fresh,
}

impl TakeOver {
    /// Refuses a takeover that no record may be taken by, whoever asks: what is DONE or DEAD is never taken up again
    /// before it has expired, unless DEAD work begins anew, and what is being undone is undone to the end (rules G2,
    /// G11).
    pub fn check(&self) -> Result<(), GuardError> {
        let status = self.seen.status;
        let allowed = match self.kind {
            TakeOverKind::Resume | TakeOverKind::AfterLapse | TakeOverKind::Park { .. } => {
                !matches!(status, Status::Done | Status::Dead)
            }
            TakeOverKind::Anew => !matches!(status, Status::Done | Status::Failed),
            TakeOverKind::Fresh => self.seen.is_expired(self.claim.now),
        };
        if allowed && self.seen.pk == self.claim.pk {
            return Ok(());
        }
        let (kind, pk) = (self.kind, &self.seen.pk);
        Err(GuardError::Refused(format!("a takeover {kind:?} of a record that is {} ({pk})", status.as_str())))
    }

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
        if planted(Planted::FenceStandsStill) {
            return self.seen.fence;
        }
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
            (TakeOverKind::Anew, _) if self.seen.is_half_undone() => Status::Failed,
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
                undo.takeovers = undo.takeovers.saturating_add(1);
                (self.seen.takeovers, Some(undo))
            }
            (true, _) => (self.seen.takeovers.saturating_add(1), self.seen.undo.clone()),
            (false, _) => (self.seen.takeovers, self.seen.undo.clone()),
        }
    }

    /// Whether the takeover begins a new generation of the steps that were done, because they have been undone. Such a
    /// record is DEAD, so its steps are those that were seen.
    #[must_use]
    pub fn renews_steps(&self) -> bool {
        let answer = self.seen.undo.as_ref().and_then(|undo| undo.answer);
        matches!(self.kind, TakeOverKind::Anew) && answer == Some(UndoAnswer::Undone)
    }

    /// Takes the record over.
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
                if self.renews_steps() {
                    record.renew_steps();
                }
                if record.status == Status::Failed {
                    (record.failures, record.last_error) = (kept.failures, kept.last_error);
                }
            }
            TakeOverKind::Resume | TakeOverKind::AfterLapse | TakeOverKind::Park { .. } => {
                record.created_at = kept.created_at;
                record.steps = kept.steps;
                record.failures = kept.failures;
                record.takeovers = takeovers;
                record.last_error = kept.last_error;
                record.failure_id = kept.failure_id;
                record.undo = undo;
                // An operator's reset leaves none: whatever runs next is what the key then stands for.
                record.fingerprint = kept.fingerprint.or(record.fingerprint.take());
            }
        }
    }
}
