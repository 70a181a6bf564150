//! What the rest of the crate knows of its configuration: plain values with the documented defaults.
//!
//! Owns what a setting means and, in [`Config::check`], what fits together. The table of settings and how their values
//! are written have modules of their own, and only `env` reads the environment. Nothing here looks at AWS.

use std::{collections::BTreeMap, time::Duration};

use url::Url;

pub use crate::key::{FingerprintSource, KeyHash, KeySource};
use crate::queue::QueueAddress;
pub use duration::DurationText;
pub use env::{Otlp, Warning, user, variables};
pub use explain::Explained;
pub use http::{HandlerHeader, HttpAddr, PermanentStatus};
pub use problem::Problem;
pub(crate) use problem::told;
pub use rate::Rate;
pub use retention::LONGEST_RETENTION;
pub use s3::{S3Buckets, S3Payload};
pub use settings::{SETTINGS, Scope, Setting, table};
pub use steps_addr::StepsAddr;
pub use syntax::ValueError;

mod check;
mod duration;
pub(crate) mod env;
pub(crate) mod explain;
pub(crate) mod http;
mod problem;
mod rate;
pub(crate) mod retention;
mod s3;
mod settings;
mod steps_addr;
mod syntax;
#[cfg(test)]
mod tests;

/// How long before `drain_timeout` the last handler is cancelled, beside its cancel grace: time to write what it
/// leaves, to give its message back and to flush deletes, before whoever stops us kills the process.
pub const DRAIN_RESERVE: Duration = Duration::from_secs(3);

/// Everything that can be configured. [`Config::from_env`] and [`Config::from_vars`] make it from variables; in code:
///
/// ```
/// use leasehold::config::{Config, QueueConfig};
/// let mut payments = QueueConfig::new("payments");
/// payments.concurrency = 50;
/// let mut config = Config::default();
/// config.queues.insert("payments".to_owned(), payments);
/// assert!(config.check().is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The DynamoDB table of the records, by name or ARN.
    pub table: String,
    /// Keeps apart what shares a table, such as environments.
    pub namespace: Option<String>,
    /// By how much the wall clocks of two workers may differ.
    pub clock_skew: Duration,
    /// When primary keys hold a hash of the key.
    pub key_hash: KeyHash,
    /// From the first signal to the end of the process.
    pub drain_timeout: Duration,
    /// How long a cancelled handler may take to come to its end.
    pub cancel_grace: Duration,
    /// Whether a task of ECS keeps itself from being scaled in while it has long work in hand.
    pub scale_in_protection: ScaleInProtection,
    /// How long AWS may be unreachable at the start.
    pub start_timeout: Duration,
    /// What to do at the start when something is wrong with some of the queues.
    pub start: Start,
    /// Handlers at once over all queues; `None` without a limit.
    pub total_concurrency: Option<usize>,
    /// Where health is told; `None` is nowhere in a library program and [`HttpAddr::DEFAULT`] in `leasehold run`.
    pub http_addr: Option<HttpAddr>,
    /// Where apps and programs record steps. Needs the feature `serve`.
    pub steps_addr: StepsAddr,
    /// What is logged, as a filter of `tracing`: `info`, `info,leasehold=debug`.
    pub log: String,
    /// How it is written; `None` is text on a terminal and JSON elsewhere.
    pub log_format: Option<LogFormat>,
    /// The namespace under which metrics are written to the log for CloudWatch; `None` writes none. Read by `leasehold run`
    /// and under Lambda; a library program makes an [`Emf`](crate::telemetry::emf::Emf) itself.
    pub emf_namespace: Option<String>,
    /// The queues, by the names that settings, logs and handlers use.
    pub queues: BTreeMap<String, QueueConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            table: "leasehold".to_owned(),
            namespace: None,
            clock_skew: Duration::from_secs(2),
            key_hash: KeyHash::Long,
            drain_timeout: Duration::from_secs(25),
            cancel_grace: Duration::from_secs(2),
            scale_in_protection: ScaleInProtection::Off,
            start_timeout: Duration::from_secs(60),
            start: Start::Strict,
            total_concurrency: None,
            http_addr: None,
            steps_addr: StepsAddr::default(),
            log: "info".to_owned(),
            log_format: None,
            emf_namespace: None,
            queues: BTreeMap::new(),
        }
    }
}

impl Config {
    /// What a drain lets handlers run on for, before they are cancelled.
    pub(crate) fn run_on(&self) -> Duration {
        self.drain_timeout.saturating_sub(self.cancel_grace + DRAIN_RESERVE)
    }
}

/// How one queue is worked on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueConfig {
    /// Which queue it is.
    pub address: QueueAddress,
    /// What handles its messages; `None` where a handler is given in code.
    pub handler: Option<HandlerSpec>,
    /// What is sent along to an HTTP handler: credentials, most often.
    pub handler_headers: Vec<HandlerHeader>,
    /// Whether a program that handles messages gets the worker's AWS credentials.
    pub handler_credentials: HandlerCredentials,
    /// Replies of an HTTP handler that say that the work can never succeed.
    pub permanent_status: PermanentStatus,
    /// Handlers at once.
    pub concurrency: usize,
    /// How many messages may be begun in a second; `None` without a limit.
    pub rate: Option<Rate>,
    /// How long a received message stays hidden unless it is extended.
    pub visibility_timeout: VisibilityTimeout,
    /// A handler's time budget.
    pub handler_timeout: Duration,
    /// How long one poll waits for a first message, in whole seconds, at most 20.
    pub wait_time: Duration,
    /// After this many failed attempts the work has failed for good.
    pub max_attempts: u32,
    /// After this many takeovers the work has failed for good.
    pub max_takeovers: u32,
    /// How long a failed attempt waits for the next.
    pub backoff: Backoff,
    /// Whether a record keeps the work to once.
    pub guard: GuardMode,
    /// What to do while the table cannot be used.
    pub guard_outage: OutagePolicy,
    /// Where the key is found; `None` where the handler knows.
    pub key: Option<KeySource>,
    /// What the keys are keys of: the same key under another operation is other work.
    pub operation: String,
    /// What of the payload must be the same under the same key.
    pub fingerprint: FingerprintSource,
    /// How long "done" is remembered.
    pub done_ttl: Duration,
    /// Where work goes that has failed for good.
    pub dead_letter: DeadLetter,
    /// What its messages come wrapped in.
    pub envelope: Envelope,
    /// What is done with a body that is in S3, where the message has a pointer to it.
    pub s3_payload: S3Payload,
    /// The only buckets that bodies are fetched from; `None` is any that the credentials allow.
    pub s3_buckets: Option<S3Buckets>,
}

impl QueueConfig {
    /// The queue of that name in the account and region of the credentials, with the defaults; the name is also the
    /// operation.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            address: QueueAddress::Name(name.clone()),
            handler: None,
            handler_headers: Vec::new(),
            handler_credentials: HandlerCredentials::Hide,
            permanent_status: PermanentStatus::default(),
            concurrency: 20,
            rate: None,
            visibility_timeout: VisibilityTimeout {
                floor: Duration::from_secs(30),
                ceiling: Duration::from_secs(2 * 60),
            },
            handler_timeout: Duration::from_secs(5 * 60),
            wait_time: Duration::from_secs(10),
            max_attempts: 5,
            max_takeovers: 10,
            backoff: Backoff { base: Duration::from_secs(10), cap: Duration::from_secs(15 * 60) },
            guard: GuardMode::Claim,
            guard_outage: OutagePolicy::Pause,
            key: None,
            operation: name,
            fingerprint: FingerprintSource::Body,
            done_ttl: Duration::from_secs(30 * 24 * 60 * 60),
            dead_letter: DeadLetter::RedrivePolicy,
            envelope: Envelope::Raw,
            s3_payload: S3Payload::Fetch,
            s3_buckets: None,
        }
    }
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormat {
    /// One JSON object on each line.
    Json,
    /// For people.
    Text,
}

/// Whether a task of ECS keeps itself from being scaled in while a handler runs longer than a drain would let it (rule D4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScaleInProtection {
    /// It does not.
    Off,
    /// It does, for a while at a time.
    On,
}

/// What to do at the start when something is wrong with some of the queues (rule R5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// Start none of them.
    Strict,
    /// Start the others, and look at these every minute.
    Available,
}

/// What handles messages outside of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandlerSpec {
    /// An app that is sent a `POST` for each message.
    Http {
        /// Where to: an absolute `http` or `https` URL.
        url: Url,
    },
    /// A program that is run for each message, without a shell.
    Exec {
        /// The program, by path or as found in `PATH`.
        program: String,
        /// Its arguments.
        args: Vec<String>,
    },
}

/// Whether a program that handles messages gets the worker's AWS credentials, as far as they are in variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandlerCredentials {
    /// It does not.
    Hide,
    /// It does.
    Pass,
}

/// The bounds within which the visibility timeout follows what handlers take (rule L3); fixed where they are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VisibilityTimeout {
    /// The shortest, in whole seconds.
    pub floor: Duration,
    /// The longest, in whole seconds: it bounds how long a crash can hide a message.
    pub ceiling: Duration,
}

/// The waits between attempts: the first, doubled at each failure up to the cap (rule T2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first.
    pub base: Duration,
    /// The longest.
    pub cap: Duration,
}

/// What keeps work to once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardMode {
    /// A record, claimed before the handler runs.
    Claim,
    /// Nothing: the handler is idempotent by nature.
    None,
}

/// What to do while the table cannot be used (rule G8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutagePolicy {
    /// Take nothing new until it can be used again.
    Pause,
    /// Run unguarded.
    Open,
}

/// Where work goes that has failed for good (rule T3).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadLetter {
    /// To the dead-letter queue that the queue's own redrive policy names.
    RedrivePolicy,
    /// To this queue.
    Queue(QueueAddress),
    /// Nowhere: it stays in its queue, hidden as long as the back-off's cap, until SQS expires it.
    Keep,
    /// As [`Keep`](Self::Keep), on a FIFO queue, where it blocks its message group all that time.
    KeepFifo,
    /// Nowhere: it is deleted.
    Drop,
}

/// What the messages of a queue come wrapped in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Envelope {
    /// Nothing: bodies are handed on as they are.
    Raw,
    /// What SNS puts around a message for subscriptions without raw delivery: the message in it is handed on.
    Sns,
}

/// What all variables begin with.
const PREFIX: &str = "LEASEHOLD_";

/// The variable of a queue's setting.
#[must_use]
pub fn variable(queue: &str, setting: &str) -> String {
    format!("{PREFIX}{}_{setting}", variable_part(queue))
}

/// A queue's name as a part of variables' names.
fn variable_part(queue: &str) -> String {
    queue.to_uppercase().replace(['-', '.'], "_")
}
