//! What does not fit together around a worker, why it matters, and the line that mends it.
//!
//! Owns what is asked and how it is told. `look` collects facts; judging them is pure, in a module for
//! each thing that is judged, by what `fit` and the settings' own checks say wherever a worker judges the
//! same. A check that could not be made is told as such, never as passed.

use std::{collections::BTreeMap, fmt, time::Duration};

use futures_util::future::{join, join_all};
use serde::Serialize;

use self::{
    look::{Examined, TableLook},
    queue::Asked,
    sheet::Sheet,
};
use super::{Ops, OpsError};
use crate::{
    config::{Config, GuardMode, Problem, QueueConfig},
    queue::QueueAddress,
};

pub use checks::{CHECKS, Check};

mod checks;
mod cli;
mod create;
mod dead_letters;
mod look;
mod queue;
mod rights;
mod sheet;
mod table;
#[cfg(test)]
mod tests;
mod whole;

/// How long ECS waits between the signal and the kill, unless the container's `stopTimeout` says otherwise.
/// <https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_ContainerDefinition.html>
pub const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// What is to be looked at, and what only the asker knows.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ask {
    /// These queues only, by their names in the configuration, or where that has none, as SQS knows them. Empty is all.
    pub queues: Vec<String>,
    /// The p99 of handler time, by queue. Without it nothing is said of what depends on it.
    pub p99: BTreeMap<String, P99>,
    /// How long whoever stops the worker waits before it is killed.
    pub stop_timeout: Duration,
    /// Of a global table: workers of one region alone write to it.
    pub one_writer_region: bool,
}

impl Default for Ask {
    fn default() -> Self {
        Self { queues: Vec::new(), p99: BTreeMap::new(), stop_timeout: STOP_TIMEOUT, one_writer_region: false }
    }
}

/// How long ninety-nine of a hundred handlers take at the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct P99 {
    /// That long.
    #[serde(rename = "ms", serialize_with = "millis")]
    pub time: Duration,
    /// Who says so.
    pub source: P99Source,
}

/// Where a p99 comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum P99Source {
    /// Whoever asks.
    Given,
    /// A running worker.
    Measured,
}

fn millis<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.as_millis().try_into().unwrap_or(u64::MAX))
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Severity {
    /// A worker does not start, or work is lost, or may take effect twice.
    Error,
    /// It works, and something will go wrong on a bad day; or it could not be looked at.
    Warning,
    /// Worth knowing; it may well be meant so.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "name")]
#[non_exhaustive]
pub enum Subject {
    /// The process and its settings.
    Worker,
    /// A queue and its dead-letter queue, by its name in the configuration.
    Queue(String),
    /// The guard's table.
    Table(String),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker => f.write_str("worker"),
            Self::Queue(name) => write!(f, "queue {name}"),
            Self::Table(name) => write!(f, "table {name}"),
        }
    }
}

/// One thing that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Which check found it, by its [code](Check::code).
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub subject: Subject,
    /// What was found. It may hold text from outside: never hand it raw to a terminal.
    pub found: String,
    /// Why it matters.
    pub why: &'static str,
    /// A line to copy that mends it: a command of the AWS CLI, a variable, or a statement for a policy. `None` where nothing
    /// is to be mended, or [`Report::create`] alone has the lines.
    pub mend: Option<String>,
}

/// What came of looking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// What does not fit, by subject, the worst first.
    pub findings: Vec<Finding>,
    /// How many checks found nothing.
    pub passed: usize,
    /// Lines for a shell that make what is not there, in order; then the variables for a worker that has none.
    pub create: Vec<String>,
    /// The p99 that was judged by, by queue.
    pub p99: BTreeMap<String, P99>,
    /// Whether anything at AWS answered at all, were it only to refuse the credentials.
    pub reached: bool,
}

impl Report {
    /// How many findings are that bad.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

impl Ops {
    /// Looks at queues, dead-letter queues and the table, tries what the worker must be allowed to do, and judges all of it
    /// together with the settings.
    ///
    /// Changes no message and no record. Rights are tried by calls that can do nothing: a delete and a visibility change
    /// with a made-up handle, a send of a message that SQS takes for three reasons not, a change of a record that is not
    /// there, and, where the table is seen to fit, the guard's own [probe](crate::guard::Guard::probe), which writes its
    /// reserved item `#probe`. Receiving is not tried. In which order AWS looks at rights and at requests is not documented for these: a right that is found missing
    /// is missing, and one that is not found missing may be all the same.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), leasehold::ops::OpsError> {
    /// use leasehold::ops::{Ops, doctor::Ask};
    /// let (ops, _warnings) = Ops::from_env().await?;
    /// for finding in ops.doctor(&Ask::default()).await?.findings {
    ///     eprintln!("{}: {:?}", finding.check, finding.found); // `{:?}`: it may hold text from outside
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`OpsError::Configuration`] for a queue that the configuration does not have, or that has no such name in SQS. What
    /// cannot be reached, or not be looked at, is in the report.
    ///
    /// # Cancel safety
    /// Dropped, it has only looked.
    pub async fn doctor(&self, ask: &Ask) -> Result<Report, OpsError> {
        let config = self.chosen(ask)?;
        let asked: Vec<_> = config.queues.iter().map(|(name, queue)| Asked::new(name, queue, &config, ask)).collect();
        let guarded = asked.is_empty() || config.queues.values().any(|queue| queue.guard == GuardMode::Claim);
        let look_at_table = async { if guarded { Some(TableLook::take(self, &config).await) } else { None } };
        let look_at_queues = join_all(asked.iter().map(|asked| Examined::take(self, asked)));
        let (examined, table) = join(look_at_queues, look_at_table).await;

        Ok(judge(&self.config, &asked, ask, &examined, table.as_ref()))
    }

    /// The configuration, with the queues that are asked for. Where it has none, they are taken by their names in SQS, with
    /// settings by default.
    fn chosen(&self, ask: &Ask) -> Result<Config, OpsError> {
        let mut config = self.config.clone();
        if config.queues.is_empty() {
            for name in &ask.queues {
                let address = name.parse::<QueueAddress>().map_err(|error| {
                    OpsError::Configuration(vec![Problem::new(
                        error.what,
                        format!("leasehold doctor {}", error.instead),
                    )])
                })?;
                let name = address.queue_name().to_owned();
                let queue = QueueConfig { address, ..QueueConfig::new(&name) };
                config.queues.insert(name, queue);
            }
        } else if !ask.queues.is_empty() {
            for name in &ask.queues {
                self.queue(name)?;
            }
            config.queues.retain(|name, _| ask.queues.contains(name));
        }
        Ok(config)
    }
}

/// Everything that is to be said of what was found. `whole` is the configuration as it is.
fn judge(whole: &Config, asked: &[Asked<'_>], ask: &Ask, examined: &[Examined], table: Option<&TableLook>) -> Report {
    let mut sheet = Sheet::default();
    let pairs: Vec<_> = asked.iter().zip(examined).collect();
    whole::judge(&mut sheet, whole, ask);
    let no_credentials = examined.iter().find_map(Examined::no_credentials);
    whole::judge_credentials(&mut sheet, no_credentials.or_else(|| table?.no_credentials()));
    for (asked, examined) in &pairs {
        queue::judge(&mut sheet, asked, examined);
    }
    whole::judge_together(&mut sheet, whole, &pairs);
    if let Some(table) = table {
        table::judge(&mut sheet, &whole.table, table, ask);
        whole::judge_places(&mut sheet, &whole.table, table, &pairs);
    }
    let reached = examined.iter().any(Examined::answered) || table.is_some_and(TableLook::answered);
    let create = create::lines(whole, &pairs, table.filter(|table| table.is_absent()));
    let p99 = asked.iter().filter_map(|asked| Some((asked.name.to_owned(), asked.p99?))).collect();
    sheet.report(create, p99, reached)
}
