//! A dead-letter queue as an operator meets it: what is in it and why, and what becomes of each message that is put back.
//!
//! Owns the way from a queue's name to both of its ends. Looking at messages is receiving them: SQS knows no other way, so
//! whatever is looked at is hidden meanwhile, and given back as soon as it was seen.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    config::{DeadLetter, GuardMode, KeyHash, Problem, QueueConfig, variable},
    guard::Guard,
    message::Message,
    queue::{Broker, Depth, Queue, QueueAddress, QueueError, QueueFacts, usual_dead_letter_name},
};

use super::{Ops, OpsError};
use reading::{Next, Reading};

pub use all_at_once::Moving;
pub use groups::{Group, Groups};
pub use letter::{Fate, Known, Letter};
pub use reading::Ending;
pub use redrive::{BrokenOff, Choice, Outcome, Put, Redrive, Redriven};

mod all_at_once;
mod groups;
mod letter;
mod pass;
mod reading;
mod redrive;

/// One queue and its dead-letter queue.
#[derive(Debug)]
pub struct DeadLetters {
    name: String,
    config: QueueConfig,
    namespace: Option<String>,
    key_hash: KeyHash,
    table: String,
    source: End,
    dead: End,
    broker: Arc<dyn Broker>,
    /// `None` for a queue without a guard.
    guard: Option<Arc<dyn Guard>>,
    clock: Clock,
    clock_skew: Duration,
    /// Other queues of the configuration, by the names that it has for them, and where their dead letters go.
    others: BTreeMap<String, DeadLetter>,
}

/// A queue that was found.
#[derive(Debug)]
struct End {
    queue: Arc<dyn Queue>,
    facts: QueueFacts,
}

/// What a look has come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Looked {
    /// How many messages were looked at, those included that were not meant.
    pub at: usize,
    /// How it ended.
    pub ending: Ending,
    /// About how many others are there that were not seen, by SQS's own count.
    pub unseen: u64,
}

impl Ops {
    /// Finds a queue's dead-letter queue: the one that `DEAD_LETTER` names, or that of the queue's own redrive policy.
    ///
    /// # Errors
    /// [`OpsError::Configuration`] where there is none, or no such queue; [`OpsError::Queue`] where AWS says so.
    pub async fn dead_letters(&self, queue: &str) -> Result<DeadLetters, OpsError> {
        let config = self.queue(queue)?;
        let source = self.open(&config.address).await?;
        let address = match (&config.dead_letter, &source.facts.redrive) {
            (DeadLetter::Queue(address), _) => address.clone(),
            (DeadLetter::RedrivePolicy, Some(policy)) => QueueAddress::Arn(policy.dead_letter_arn.clone()),
            (DeadLetter::RedrivePolicy, None) => {
                let usual = usual_dead_letter_name(config.address.queue_name());
                return Err(none(queue, "has no redrive policy", &format!("DEAD_LETTER={usual}")));
            }
            (DeadLetter::Keep | DeadLetter::KeepFifo, _) => {
                return Err(none(queue, "keeps what fails for good in the queue itself", "DEAD_LETTER=<a queue>"));
            }
            (DeadLetter::Drop, _) => return Err(none(queue, "drops what fails for good", "DEAD_LETTER=<a queue>")),
        };
        let dead = self.open(&address).await?;
        let others = self.config.queues.iter().filter(|(other, _)| *other != queue);
        Ok(DeadLetters {
            name: queue.to_owned(),
            config: config.clone(),
            namespace: self.config.namespace.clone(),
            key_hash: self.config.key_hash,
            table: self.config.table.clone(),
            source,
            dead,
            broker: Arc::clone(&self.broker),
            guard: (config.guard == GuardMode::Claim).then(|| Arc::clone(&self.guard)),
            clock: self.clock.clone(),
            clock_skew: self.config.clock_skew,
            others: others.map(|(other, config)| (other.clone(), config.dead_letter.clone())).collect(),
        })
    }

    async fn open(&self, address: &QueueAddress) -> Result<End, OpsError> {
        let failed = |error| OpsError::of_queue(address.queue_name(), error);
        let queue = self.broker.open(address).await.map_err(failed)?;
        let facts = queue.facts().await.map_err(failed)?;
        Ok(End { queue, facts })
    }
}

fn none(queue: &str, why: &str, setting: &str) -> OpsError {
    let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
    let what = format!("the queue {queue:?} has no dead-letter queue: it {why}");
    OpsError::Configuration(vec![Problem::new(what, format!("{}={value}", variable(queue, name)))])
}

impl DeadLetters {
    /// The queue's name in the configuration.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.name
    }

    /// The dead-letter queue's name in SQS.
    #[must_use]
    pub fn dead_letter_queue(&self) -> &str {
        self.dead.name()
    }

    /// The dead-letter queue's ARN.
    #[must_use]
    pub fn arn(&self) -> &str {
        &self.dead.facts.arn
    }

    /// What would become of a letter if it were put back now, without force.
    #[must_use]
    pub fn fate(&self, letter: &Letter) -> Fate {
        letter.fate(self, false, self.clock.wall())
    }

    /// Whether it is a FIFO queue, in which what is behind another message of its group cannot be looked at before that is
    /// gone.
    #[must_use]
    pub fn is_fifo(&self) -> bool {
        self.dead.facts.fifo
    }

    /// How many messages it has, as SQS estimates it.
    ///
    /// # Errors
    /// [`OpsError::Queue`].
    pub async fn depth(&self) -> Result<Depth, OpsError> {
        self.dead.queue.depth().await.map_err(|error| self.dead.failed(error))
    }

    /// Looks at up to `at_most` messages, and at the records of their keys, and tells of those that are meant. Each counts as
    /// received once more, and is hidden from others until the look is over, or for two minutes if it is dropped. Ends
    /// early when `stop` is cancelled.
    ///
    /// # Errors
    /// [`OpsError::Queue`]; what was received by then was told, and is given back.
    pub async fn look(
        &self,
        choice: &Choice,
        at_most: usize,
        stop: &CancellationToken,
        mut tell: impl FnMut(Letter),
    ) -> Result<Looked, OpsError> {
        let mut reading = self.reading();
        let mut looked = Looked::default();
        let outcome = self.look_through(choice, at_most, stop, &mut tell, &mut reading, &mut looked).await;
        looked.unseen = reading.unseen();
        reading.give_back().await;
        looked.ending = outcome.map_err(|error| self.dead.failed(error))?;
        Ok(looked)
    }

    async fn look_through(
        &self,
        choice: &Choice,
        at_most: usize,
        stop: &CancellationToken,
        tell: &mut impl FnMut(Letter),
        reading: &mut Reading<'_>,
        looked: &mut Looked,
    ) -> Result<Ending, QueueError> {
        let limit = choice.limit.unwrap_or(usize::MAX);
        let mut found = 0;
        while found < limit && looked.at < at_most {
            let messages = match reading.next(choice.at_once(found).min(at_most - looked.at), stop).await? {
                Next::Some(messages) => messages,
                Next::End(ending) => return Ok(ending),
            };
            looked.at += messages.len();
            let now = self.clock.wall();
            for letter in self.letters(messages).await {
                if found < limit && choice.takes(&letter, now) {
                    found += 1;
                    tell(letter);
                }
            }
        }
        Ok(Ending::Enough)
    }

    fn reading(&self) -> Reading<'_> {
        Reading::begin(&*self.dead.queue, self.is_fifo(), &self.clock)
    }

    /// With what the guard knows of each, which is asked for all at once.
    async fn letters(&self, messages: Vec<Message>) -> Vec<Letter> {
        join_all(messages.into_iter().map(|message| Letter::known(self, message))).await
    }
}

impl End {
    fn name(&self) -> &str {
        self.facts.arn.rsplit(':').next().unwrap_or_default()
    }

    fn failed(&self, error: QueueError) -> OpsError {
        OpsError::of_queue(self.name(), error)
    }
}
