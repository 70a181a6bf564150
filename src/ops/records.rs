//! The record of one key: what it says, and what an operator can make of it.
//!
//! Owns which record is meant, and what to answer whoever may not write it. What is written is in `guard/amend.rs`. Writing
//! takes two steps, so that somebody can look in between: a plan, and then [`Ops::amend`], which writes nothing if the
//! record is no longer the one that the plan was made of.

use std::time::Duration;

use tokio::time::sleep;

use super::{Ops, OpsError};
use crate::{
    clock::Millis,
    config::{GuardMode, Problem, QueueConfig},
    guard::{Amend, FinishedSteps, GuardError, NotBefore, Operator, Owner, Pk, Record, StepWord, Written},
    key::{self, Key},
};

/// Which steps a word can be about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepNames {
    /// Those of the record; any where it has none yet. A name that is misspelt would say of the step that was meant nothing.
    Recorded,
    /// Any: a step that the record does not know, too.
    Any,
}

/// The longest name of a step that an operator can name, in bytes. Names stand in the code of handlers, and are words.
const LONGEST_STEP_NAME: usize = 255;

/// How often an amendment is sent, where it is not answered or the table is busy.
const TRIES: u32 = 3;

/// How long after the first try comes the second; the third comes twice as long after that.
const BEFORE_NEXT_TRY: Duration = Duration::from_millis(100);

/// Looking at records and amending them.
///
/// ```
/// # use std::sync::Arc;
/// use leasehold::{Config, HandlerResult, JobContext, Key, Raw, guard::{FinishedSteps, NotBefore}, handler, ops::Ops};
/// use leasehold::testing::TestBed;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let bed = TestBed::new(&["payments"]);
/// let vars = [("LEASEHOLD_QUEUES", "payments"), ("LEASEHOLD_KEY", "/id")];
/// let run = async || {
///     bed.send("payments", r#"{"id":"p1"}"#);
///     let worker = bed.worker(&vars).queue("payments", handler(async |_: &Raw, _: &JobContext| Ok(())));
///     worker.run(bed.until_idle()).await
/// };
/// assert_eq!(run().await?.done, 1);
/// assert_eq!(run().await?.suppressed, 1); // done before
///
/// let config = Config::from_vars(vars.map(|(name, value)| (name.into(), value.into()))).map_err(|_| "settings")?.0;
/// let clock = bed.broker.clock().clone();
/// let ops = Ops::with_adapters(config, Arc::new(bed.broker.clone()), Arc::new(bed.guard.clone()), clock);
/// let record = ops.record(&ops.pk("payments", &Key::from("p1"))?).await?.ok_or("no record")?;
/// let amend = ops.reset(&record, FinishedSteps::Keep, NotBefore::Keep, "ann@laptop")?;
/// ops.amend(&amend).await?; // fails if the record is another by now
/// assert_eq!(run().await?.done, 1); // once more
/// # Ok(())
/// # }
/// ```
impl Ops {
    /// The primary key of a key in a queue, by the queue's name in the configuration.
    ///
    /// # Errors
    /// [`OpsError::Configuration`] for an unknown queue or no key, [`OpsError::Unguarded`] where there are no records.
    pub fn pk(&self, queue: &str, key: &Key) -> Result<Pk, OpsError> {
        let QueueConfig { guard, operation, .. } = self.queue(queue)?;
        if *guard == GuardMode::None {
            return Err(OpsError::Unguarded { queue: queue.to_owned() });
        }
        key::pk(self.config.namespace.as_deref(), operation, key, self.config.key_hash).ok_or_else(|| {
            let problem = Problem::new("the key is empty, and no message has such a key", "a key as messages have it");
            OpsError::Configuration(vec![problem])
        })
    }

    /// The queues of the configuration whose keys have such a primary key, by their names there: several where they share
    /// an operation.
    pub fn queues_of(&self, pk: &Pk) -> impl Iterator<Item = &str> {
        let namespace = self.config.namespace.as_deref();
        let is_its = move |queue: &QueueConfig| key::belongs(pk, namespace, &queue.operation);
        self.config.queues.iter().filter(move |(_, queue)| is_its(queue)).map(|(name, _)| name.as_str())
    }

    /// What the record says, strongly consistent; `None` if there is none.
    ///
    /// # Errors
    /// [`OpsError::Guard`].
    pub async fn record(&self, pk: &Pk) -> Result<Option<Record>, OpsError> {
        self.guard.read(pk).await.map_err(|error| self.guard_error(error))
    }

    /// A plan: the work may run again with the next message of its key, as if nothing had been tried, and whatever that
    /// message's payload is. Makes no message.
    ///
    /// Work that waits goes on waiting, unless `not_before` is cleared: what was begun may still run until then.
    ///
    /// # Errors
    /// [`OpsError::Held`] while a worker runs it, [`OpsError::Expired`] where it runs again anyway,
    /// [`OpsError::Undoing`] where it is not undone to the end, and its steps are to be kept: some of what they did may be
    /// undone.
    pub fn reset(
        &self,
        seen: &Record,
        steps: FinishedSteps,
        not_before: NotBefore,
        by: &str,
    ) -> Result<Amend, OpsError> {
        self.lasts(seen)?;
        self.not_held(seen)?;
        if seen.is_half_undone() && steps == FinishedSteps::Keep {
            return Err(OpsError::Undoing);
        }
        Ok(Amend::reset(seen, steps, not_before, &self.operator(by)))
    }

    /// A plan: how a step ended is known now. The way out for a step that is in doubt (rule S2).
    ///
    /// # Errors
    /// [`OpsError::Held`] while a worker runs it, [`OpsError::Expired`], [`OpsError::Step`] where the word would change
    /// nothing, or where the name or the result can be none, and [`OpsError::NoSuchStep`].
    pub fn step(
        &self,
        seen: &Record,
        name: &str,
        names: StepNames,
        word: &StepWord,
        by: &str,
    ) -> Result<Amend, OpsError> {
        self.lasts(seen)?;
        self.not_held(seen)?;
        let refused = |why: String| Err(OpsError::Step { name: name.to_owned(), why });
        if name.is_empty() {
            return refused("has no name".into());
        }
        if name.len() > LONGEST_STEP_NAME {
            return refused(format!("has a name of {} bytes, of {LONGEST_STEP_NAME} at the most", name.len()));
        }
        if let StepWord::Done(result) = word
            && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(result)
        {
            return refused(format!("would have a result that is no JSON: {error}"));
        }
        let is_strange = !seen.steps.is_empty() && !seen.steps.contains_key(name);
        if is_strange && (names == StepNames::Recorded || *word == StepWord::Again) {
            let known = seen.steps.keys().cloned().collect();
            return Err(OpsError::NoSuchStep { name: name.to_owned(), known });
        }
        if let Some(amend) = Amend::step(seen, name, word, &self.operator(by)) {
            return Ok(amend);
        }
        match (seen.steps.get(name), word) {
            (Some(_), StepWord::Done(_)) => refused("is done already, with this result".into()),
            (Some(_), StepWord::Again) => refused("is undone, and runs again anyway".into()),
            (None, _) => refused("is not there, nor is any: it runs anyway".into()),
        }
    }

    /// A plan: the work took effect, by hand, so that messages of the key are deleted without a run. `ttl` is for how long
    /// that is remembered; `None` is the `DONE_TTL` of the queue. `queue` is the one that a new record tells of.
    ///
    /// # Errors
    /// [`OpsError::Held`] while a worker runs it, [`OpsError::Configuration`] for an unknown queue.
    pub fn done(
        &self,
        queue: &str,
        pk: &Pk,
        seen: Option<&Record>,
        ttl: Option<Duration>,
        by: &str,
    ) -> Result<Amend, OpsError> {
        seen.map_or(Ok(()), |seen| self.not_held(seen))?;
        let ttl = ttl.map_or_else(|| self.queue(queue).map(|queue| queue.done_ttl), Ok)?;
        let by = self.operator(by);
        Ok(Amend::done(pk, seen, queue, (by.now + ttl).seconds(), &by))
    }

    /// Writes what was planned, if the record is still exactly the one that it was made of.
    ///
    /// # Errors
    /// [`OpsError::Changed`] if it is another by now, and nothing is written; [`OpsError::Overtaken`] if it is another and
    /// that cannot be said; [`OpsError::Guard`], after which a transient one may have been written: look at the record, or
    /// write the same plan again.
    ///
    /// # Cancel safety
    /// Dropped, it may have been written.
    pub async fn amend(&self, amend: &Amend) -> Result<(), OpsError> {
        let (mut was_unknown, mut tries) = (false, 1);
        let answer = loop {
            let answer = self.guard.amend(amend).await;
            let is_unknown = matches!(answer, Err(GuardError::NoAnswer(_) | GuardError::Unavailable(_)));
            let is_busy = matches!(answer, Err(GuardError::Throttled(_) | GuardError::Conflict));
            was_unknown |= is_unknown;
            if tries == TRIES || !(is_unknown || is_busy) {
                break answer;
            }
            // It may have been made: the same write again tells (rule G3).
            sleep(BEFORE_NEXT_TRY * tries).await;
            tries += 1;
        };
        match answer.map_err(|error| self.guard_error(error))? {
            Written::Applied => Ok(()),
            // Whoever wrote after it took a higher fence: one that is no higher was never after it.
            Written::Refused(now) if was_unknown && now.as_ref().is_none_or(|now| now.fence > amend.record.fence) => {
                Err(OpsError::Overtaken { now })
            }
            Written::Refused(now) => Err(OpsError::Changed { now }),
        }
    }

    fn operator(&self, by: &str) -> Operator {
        Operator { owner: Owner(self.clock.token()), now: self.clock.wall(), name: by.to_owned() }
    }

    /// What no worker heeds any more would only mislead: its steps are of work that is forgotten.
    fn lasts(&self, seen: &Record) -> Result<(), OpsError> {
        let at = Millis(seen.expires_at.0.saturating_mul(1000));
        if seen.is_expired(self.clock.wall()) { Err(OpsError::Expired { at }) } else { Ok(()) }
    }

    fn not_held(&self, seen: &Record) -> Result<(), OpsError> {
        let now = self.clock.wall();
        match seen.held_until(self.config.clock_skew).filter(|until| *until > now) {
            None => Ok(()),
            Some(until) => Err(OpsError::Held { worker: seen.source.worker.clone(), until, left: until.since(now) }),
        }
    }

    fn guard_error(&self, error: GuardError) -> OpsError {
        OpsError::Guard { table: self.config.table.clone(), error }
    }
}

#[cfg(test)]
mod tests;
