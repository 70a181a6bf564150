//! What operators write into a record: that its work may run again, that it is done, how a step ended.
//!
//! Pure: the record as it is to be, and the one that was looked at, without which nothing is written. Each gives the
//! record an owner that is nobody and a higher fence, so that a former owner's late write changes nothing (rule G2). The
//! record's own rules bind workers, not operators: this is the only way out of DONE before it expires.

use std::time::Duration;

use crate::clock::{Millis, Seconds};

use super::{
    Claim, Fence, GuardError, LARGEST_RECORD, Owner, Pk, Record, Source, Status, Step, StepState, UNFINISHED_TTL,
    UndoAnswer, Written,
};

/// A record in place of the one that was seen, as long as nobody has written it since.
///
/// What a later version keeps in it beside what this one knows stays as it is; of a step, if the step stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amend {
    /// What was seen; `None` if there was no record.
    pub seen: Option<Box<Record>>,
    /// What the record is to be.
    pub record: Record,
}

/// Who amends a record, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    /// A new random token, as of a claim: the record's, until somebody claims it.
    pub owner: Owner,
    /// By the operator's clock, read before sending.
    pub now: Millis,
    /// A name for a person: `ann@laptop`.
    pub name: String,
}

/// What becomes of finished steps when work may run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishedSteps {
    /// They stay finished, but for those that `undo` has undone.
    Keep,
    /// They run again, each in a new generation and under a new downstream key (rule S1).
    Repeat,
}

/// What becomes of `not_before`, until when nobody may run the work, when it may run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotBefore {
    /// It holds: it may be more than a back-off. What was begun may still run until then (rule D2), and a record does not
    /// say which it is.
    Keep,
    /// The next message runs the work at once, beside whatever may still run.
    Clear,
}

/// How a step ended, as far as somebody has found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepWord {
    /// It took effect, with this result as JSON, in place of another that was recorded.
    Done(String),
    /// One that was started did not take effect: it runs again under the same downstream key. One that was done runs again
    /// under a new one.
    Again,
}

/// So many steps at the most are compared, and so many changed, one by one. DynamoDB takes an expression of 4 KB with 300
/// operators, and a record can have thousands of steps.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-expression-parameters>
const MOST_STEPS: usize = 20;

impl Amend {
    /// The work may run again, as if nothing had been tried: the next message of the key runs it, whatever its payload.
    #[must_use]
    pub fn reset(seen: &Record, steps: FinishedSteps, not_before: NotBefore, by: &Operator) -> Self {
        let mut record = by.sign(seen);
        record.status = Status::Released;
        record.lease_until = by.now;
        record.not_before = seen.waits_until(by.now).filter(|_| not_before == NotBefore::Keep);
        (record.failures, record.takeovers) = (0, 0);
        record.last_error = None;
        record.fingerprint = None;
        record.forget_failure();
        record.expires_at = (by.now + UNFINISHED_TTL).seconds();
        if seen.was_undone() || steps == FinishedSteps::Repeat {
            record.renew_steps();
        }
        Self { seen: Some(Box::new(seen.clone())), record }
    }

    /// The work took effect, by hand, and is remembered until `expires_at`. Where there is no record, or one that counts
    /// as none because it has expired, it makes one, of this queue.
    #[must_use]
    pub fn done(pk: &Pk, seen: Option<&Record>, queue: &str, expires_at: Seconds, by: &Operator) -> Self {
        let lasting = seen.filter(|record| !record.is_expired(by.now));
        let mut record = lasting.map_or_else(|| by.first(pk, seen.map(|record| record.fence), queue), |r| by.sign(r));
        record.status = Status::Done;
        record.lease_until = by.now;
        record.not_before = None;
        record.forget_failure();
        record.expires_at = expires_at;
        Self { seen: seen.cloned().map(Box::new), record }
    }

    /// A step ended so; status and counts stay. `None` if that would change nothing that a run looks at: the step is done
    /// with this very result already, or runs again anyway.
    ///
    /// Steps of work that was undone become undone here and now, where whoever runs the work next would else have made
    /// them so, this word on one of them included.
    #[must_use]
    pub fn step(seen: &Record, name: &str, word: &StepWord, by: &Operator) -> Option<Self> {
        let mut record = by.sign(seen);
        if seen.was_undone() {
            record.renew_steps();
            record.undo.iter_mut().for_each(|undo| undo.answer = None);
        }
        let recorded = record.steps.get(name);
        let step = |state, generation, result| Step { state, generation, result, at: by.now };
        let (state, generation) = recorded.map_or((None, 1), |step| (Some(step.state), step.generation));
        let next = match (word, state) {
            (StepWord::Done(result), Some(StepState::Done))
                if recorded.is_some_and(|step| step.result.as_ref() == Some(result)) =>
            {
                return None;
            }
            (StepWord::Done(result), Some(StepState::Undone)) => {
                Some(step(StepState::Done, generation.saturating_add(1), Some(result.clone())))
            }
            (StepWord::Done(result), _) => Some(step(StepState::Done, generation, Some(result.clone()))),
            (StepWord::Again, Some(StepState::Done)) => Some(step(StepState::Undone, generation, None)),
            // What follows an undone step is of the next generation: the one that was started.
            (StepWord::Again, Some(StepState::Started)) if generation > 1 => {
                Some(step(StepState::Undone, generation - 1, None))
            }
            (StepWord::Again, Some(StepState::Started)) => None,
            (StepWord::Again, Some(StepState::Undone) | None) => return None,
        };
        match next {
            Some(step) => record.steps.insert(name.to_owned(), step),
            None => record.steps.remove(name),
        };
        if !matches!(record.status, Status::Done | Status::Dead) {
            record.expires_at = (by.now + UNFINISHED_TTL).seconds();
        }
        Some(Self { seen: Some(Box::new(seen.clone())), record })
    }

    /// Refuses what no operator may write: over an owner whose lease has not ended by the operator's own clock, or a
    /// record that a former owner could still change.
    pub fn check(&self) -> Result<(), GuardError> {
        let (record, pk) = (&self.record, &self.record.pk);
        let refused = |why: &str| Err(GuardError::Refused(format!("an amendment of {pk}: {why}")));
        if record.size() > LARGEST_RECORD {
            return Err(GuardError::TooLarge);
        }
        let Some(seen) = &self.seen else { return Ok(()) };
        if seen.pk != record.pk {
            return refused("of another key");
        }
        if seen.owner == record.owner || seen.fence >= record.fence {
            return refused("with the owner, or not past the fence, of what was seen");
        }
        if seen.held_until(Duration::ZERO).is_some_and(|until| until > record.updated_at) {
            return refused("an owner runs it");
        }
        Ok(())
    }

    /// Whether nobody has written the record since it was seen: whoever writes changes its owner, or `updated_at`.
    ///
    /// The same owner can write twice in one millisecond. Then its lease tells, or the number of steps, or how far each of
    /// them came, unless there are more than 20.
    #[must_use]
    pub fn applies_to(&self, found: Option<&Record>) -> bool {
        let (seen, found) = match (self.seen.as_deref(), found) {
            (Some(seen), Some(found)) => (seen, found),
            (seen, found) => return seen.is_none() && found.is_none(),
        };
        let pinned = |record: &Record| (record.fence, record.status, record.lease_until, record.updated_at);
        let as_far = |(name, step): (&String, &Step)| {
            found.steps.get(name).is_some_and(|now| (now.state, now.generation) == (step.state, step.generation))
        };
        (&seen.owner, pinned(seen), seen.steps.len()) == (&found.owner, pinned(found), found.steps.len())
            && Self::compared_steps(seen).is_none_or(|mut steps| steps.all(as_far))
    }

    /// The steps whose state and generation must be as they were; `None` if they are too many.
    pub(super) fn compared_steps(seen: &Record) -> Option<impl Iterator<Item = (&String, &Step)>> {
        (seen.steps.len() <= MOST_STEPS).then(|| seen.steps.iter())
    }

    /// The record that it makes of the one that is there.
    #[must_use]
    pub fn made_of(&self, found: Option<&Record>) -> Record {
        let mut made = self.record.clone();
        if let (Some(found), Some(changes)) = (found, self.changed_steps()) {
            made.steps.clone_from(&found.steps);
            for (name, step) in changes {
                match step {
                    Some(step) => made.steps.insert(name.clone(), step.clone()),
                    None => made.steps.remove(name),
                };
            }
        }
        made
    }

    /// The steps that become others, or are no more; `None` if they are too many, or the record is new: then the steps are
    /// replaced as a whole.
    pub(super) fn changed_steps(&self) -> Option<Vec<(&String, Option<&Step>)>> {
        let (before, after) = (&self.seen.as_deref()?.steps, &self.record.steps);
        let gone = before.keys().filter(|name| !after.contains_key(*name)).map(|name| (name, None));
        let next = after.iter().filter(|(name, step)| before.get(*name) != Some(step));
        let changed: Vec<_> = next.map(|(name, step)| (name, Some(step))).chain(gone).collect();
        (changed.len() <= MOST_STEPS).then_some(changed)
    }

    /// What a refusal by `found` means: a record with our own token is this write, whose reply was lost (rule G3).
    #[must_use]
    pub fn answer(&self, found: Option<Record>) -> Written {
        match found {
            Some(record) if record.is_claimed_by(&self.record.owner) => Written::Applied,
            other => Written::Refused(other.map(Box::new)),
        }
    }
}

impl Operator {
    /// A record that lives on under the operator's hand.
    fn sign(&self, seen: &Record) -> Record {
        let source = Source { worker: self.name.clone(), ..seen.source.clone() };
        let fence = Fence::after(Some(seen.fence), self.now);
        Record { owner: self.owner.clone(), fence, source, updated_at: self.now, ..seen.clone() }
    }

    /// A record of work that no worker has begun, or none that counts: as of a claim that is given back at once.
    fn first(&self, pk: &Pk, fence: Option<Fence>, queue: &str) -> Record {
        let claim = Claim {
            pk: pk.clone(),
            owner: self.owner.clone(),
            now: self.now,
            lease_until: self.now,
            fingerprint: None,
            source: Source { queue: queue.to_owned(), worker: self.name.clone(), ..Source::default() },
        };
        Record { status: Status::Released, fence: Fence::after(fence, self.now), ..claim.record() }
    }
}

impl Record {
    /// Until when an owner may run it, `skew` after its lease (rule G4); `None` if it is nobody's.
    #[must_use]
    pub fn held_until(&self, skew: Duration) -> Option<Millis> {
        matches!(self.status, Status::Running | Status::Failed).then(|| self.lease_until + skew)
    }

    /// Until when nobody may run what was given back: a back-off, or the time for which what was begun may still run (rule
    /// D2). `None` if that is over, or there is nothing to wait for.
    #[must_use]
    pub fn waits_until(&self, now: Millis) -> Option<Millis> {
        self.not_before.filter(|at| matches!(self.status, Status::Released | Status::Failed) && *at > now)
    }

    /// What its steps did is undone, although they are still recorded as done.
    fn was_undone(&self) -> bool {
        self.undo.as_ref().and_then(|undo| undo.answer) == Some(UndoAnswer::Undone)
    }

    /// It is not dead, and was not undone.
    fn forget_failure(&mut self) {
        (self.failure_id, self.dead_at, self.copied, self.undo) = (None, None, false, None);
    }

    /// Finished steps run again, in a new generation. One that is in doubt stays in doubt.
    pub(super) fn renew_steps(&mut self) {
        for step in self.steps.values_mut().filter(|step| step.state == StepState::Done) {
            step.state = StepState::Undone;
            step.result = None;
        }
    }
}

#[cfg(test)]
mod tests;
