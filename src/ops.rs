//! Tools for operators: what failed for good and why, putting it back, the record of a key, and what does not fit together.
//!
//! The `dlq`, `guard` and `doctor` commands are made of this, and so can a team's own tools be. Owns what these tools are
//! given: a configuration, and where queues and records are. Asks AWS only when it is called, and changes nothing that its
//! caller did not ask it to.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    aws::{self, Aws},
    clock::{Clock, Millis},
    config::{Config, Problem, QueueConfig, Warning},
    guard::{Guard, GuardError, Record, dynamodb::DynamoDbGuard},
    queue::{Broker, QueueError},
};

pub mod dead_letters;
pub mod doctor;
mod records;

pub use records::StepNames;

/// Tools on the queues and the table of one configuration.
///
/// ```no_run
/// # async fn example() -> Result<(), leasehold::ops::OpsError> {
/// use leasehold::ops::Ops;
/// let (ops, _warnings) = Ops::from_env().await?;
/// println!("{}", ops.config().table);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Ops {
    config: Config,
    broker: Arc<dyn Broker>,
    guard: Arc<dyn Guard>,
    clock: Clock,
}

impl Ops {
    /// On AWS, configured as the workers are: by `LEASEHOLD_…` variables and by the SDK's own. `LEASEHOLD_QUEUES` may be
    /// unset. Also says what is probably not meant so.
    ///
    /// # Errors
    /// [`OpsError::Configuration`] with everything that is wrong with the variables.
    pub async fn from_env() -> Result<(Self, Vec<Warning>), OpsError> {
        let (config, warnings) = Config::from_env_for_tools().map_err(OpsError::Configuration)?;
        Ok((Self::new(config, &aws::load().await)?, warnings))
    }

    /// On AWS, with this configuration.
    ///
    /// # Errors
    /// [`OpsError::Configuration`] for a region or an endpoint with which no call could be made.
    pub fn new(config: Config, sdk: &aws_config::SdkConfig) -> Result<Self, OpsError> {
        let problems = aws::problems(sdk);
        if !problems.is_empty() {
            return Err(OpsError::Configuration(problems));
        }
        let aws = Aws::new(sdk);
        let guard = Arc::new(DynamoDbGuard::new(aws.dynamodb(), config.table.clone()));
        Ok(Self::with_adapters(config, Arc::new(aws.sqs()), guard, Clock::system()))
    }

    /// On other queues and another guard than AWS's: those of the [test kit](crate::testing), or your own.
    #[must_use]
    pub fn with_adapters(config: Config, broker: Arc<dyn Broker>, guard: Arc<dyn Guard>, clock: Clock) -> Self {
        Self { config, broker, guard, clock }
    }

    /// What they work with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What tells them the time.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A queue's settings by its name in the configuration.
    ///
    /// # Errors
    /// [`OpsError::Configuration`] where the configuration has no such queue.
    pub fn queue(&self, name: &str) -> Result<&QueueConfig, OpsError> {
        self.config.queues.get(name).ok_or_else(|| {
            let known: Vec<_> = self.config.queues.keys().map(String::as_str).collect();
            let problem = if known.is_empty() {
                Problem::new("LEASEHOLD_QUEUES is not set", format!("LEASEHOLD_QUEUES={name}, as the workers have it"))
            } else {
                let what = format!("LEASEHOLD_QUEUES names no queue {name:?}, but {}", known.join(", "));
                Problem::new(what, format!("one of {}", known.join(", ")))
            };
            OpsError::Configuration(vec![problem])
        })
    }
}

impl fmt::Debug for Ops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ops").field("broker", &self.broker).field("guard", &self.guard).finish_non_exhaustive()
    }
}

/// Why a tool did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpsError {
    /// What was asked for does not fit the configuration, or that is wrong by itself. Nothing was done.
    #[error("{}", crate::config::told(.0))]
    Configuration(Vec<Problem>),
    /// A queue did not do it.
    #[error("the queue {queue}")]
    Queue {
        /// Which.
        queue: String,
        /// What it answered.
        #[source]
        error: QueueError,
    },
    /// The guard's table did not do it.
    #[error("the table {table:?}")]
    Guard {
        /// Which.
        table: String,
        /// What it answered.
        #[source]
        error: GuardError,
    },
    /// A worker runs it, or may still run it. Wait, or stop that worker; nothing was written.
    #[error("held by the worker {worker:?} until {}, {}s from now; wait until then, or stop that worker", .until.utc(), .left.as_secs_f64().ceil())]
    Held {
        /// Which.
        worker: String,
        /// The end of its lease and of the clock skew.
        until: Millis,
        /// How long that is from now.
        left: Duration,
    },
    /// The record is no longer the one that was looked at. Nothing was written.
    #[error("the record changed meanwhile, and nothing is written")]
    Changed {
        /// What it says now; `None` if it is gone.
        now: Option<Box<Record>>,
    },
    /// The record is no longer the one that was looked at, and a first try of the write was not answered: it may have been
    /// written, and something wrote after it.
    #[error("it may have been written, and something wrote after it")]
    Overtaken {
        /// What it says now; `None` if it is gone.
        now: Option<Box<Record>>,
    },
    /// The work failed for good and is not undone to the end: a new run beside steps of which some are undone would do
    /// some of the work. Nothing was written.
    #[error(
        "undo is not finished: the next message goes on with it; to give it up, have the work run again with all of its \
         steps"
    )]
    Undoing,
    /// The record was done or dead and has expired: it counts as none (rule G4), and the next message runs the work from its
    /// beginning. Nothing was written.
    #[error("the record expired {} and counts as none: the next message runs the work from its beginning", .at.utc())]
    Expired {
        /// When.
        at: Millis,
    },
    /// A word on a step would change nothing, or cannot be recorded. Nothing was written.
    #[error("the step {name:?} {why}")]
    Step {
        /// Which.
        name: String,
        /// What is wrong, to be read after the step's name.
        why: String,
    },
    /// The record has steps, and none of that name. Nothing was written.
    #[error("the step {name:?} is not there; there is {}", .known.iter().map(|known| format!("{known:?}")).collect::<Vec<_>>().join(", "))]
    NoSuchStep {
        /// Which.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The queue has `GUARD=none`: there is no record of its work.
    #[error("the queue {queue} has GUARD=none: there is no record of its work")]
    Unguarded {
        /// Which.
        queue: String,
    },
}

impl OpsError {
    pub(crate) fn of_queue(queue: &str, error: QueueError) -> Self {
        Self::Queue { queue: queue.to_owned(), error }
    }

    /// Whether the same may well succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Configuration(_)
            | Self::Changed { .. }
            | Self::Overtaken { .. }
            | Self::Undoing
            | Self::Expired { .. }
            | Self::NoSuchStep { .. }
            | Self::Step { .. }
            | Self::Unguarded { .. } => false,
            Self::Held { .. } => true,
            Self::Queue { error, .. } => error.is_transient(),
            Self::Guard { error, .. } => error.is_transient(),
        }
    }
}
