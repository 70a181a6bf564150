//! The worker: built, checked, run, drained, and what it reports at the end.
//!
//! [`Worker::run`] is the one way in. It owns every task that is started here or below, and no call to AWS is made after
//! it returns. What happens to one message is in [`job`](crate::job) and [`settle`](crate::settle); here is who is at
//! work, and until when.

use std::{collections::BTreeMap, fmt, net::SocketAddr, sync::Arc};

use tokio::{task::JoinSet, time::Instant};

use crate::{
    bodies::Bodies,
    clock::Clock,
    config::{Config, Problem, Warning},
    guard::Guard,
    handler::{ErasedHandler, Handler, remote::Runs},
    queue::Broker,
    shutdown::Shutdown,
    status::Phase,
    telemetry::Telemetry,
};

use board::Board;
use drain::drain;
use hall::Hall;
use pulse::Pulse;
use site::Site;
use work::work_a_queue;

pub use board::{Health, Viewer};
pub use report::StopReport;

mod board;
mod brake;
mod check;
mod configured;
pub(crate) mod control;
mod drain;
mod endpoint;
pub(crate) mod hall;
mod history;
pub(crate) mod lanes;
mod needless;
mod outcome;
mod pace;
pub(crate) mod poll;
mod pulse;
mod report;
pub(crate) mod site;
pub(crate) mod tending;
mod work;

/// A worker being built. Nothing is checked and nothing is called before [`run`](Self::run), which tells every problem at
/// once.
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    config: Result<Config, Vec<Problem>>,
    warnings: Vec<Warning>,
    handlers: BTreeMap<String, Arc<dyn ErasedHandler>>,
    problems: Vec<Problem>,
    adapters: Option<(Arc<dyn Broker>, Arc<dyn Guard>)>,
    bodies: Option<Arc<dyn Bodies>>,
    aws: Option<aws_config::SdkConfig>,
    clock: Option<Clock>,
    board: Arc<Board>,
    health_at: Option<SocketAddr>,
    telemetry: Telemetry,
    remote: Option<Arc<Runs>>,
}

impl Worker {
    /// A worker that is configured by the environment, which is read now: [`LEASEHOLD_*`](crate#configuration), and for
    /// AWS the SDK's own variables.
    pub fn from_env() -> Self {
        Self::configured(Config::from_env())
    }

    /// As [`from_env`](Self::from_env), with these instead of the environment's `LEASEHOLD_*`.
    pub fn from_vars(vars: impl IntoIterator<Item = (String, String)>) -> Self {
        Self::configured(Config::from_vars(vars))
    }

    /// A worker that is configured in code. AWS is found by the SDK's own variables, unless [`aws`](Self::aws) says
    /// otherwise.
    pub fn new(config: Config) -> Self {
        Self::configured(Ok((config, Vec::new())))
    }

    fn configured(config: Result<(Config, Vec<Warning>), Vec<Problem>>) -> Self {
        let (config, warnings) = match config {
            Ok((config, warnings)) => (Ok(config), warnings),
            Err(problems) => (Err(problems), Vec::new()),
        };
        Self {
            config,
            warnings,
            handlers: BTreeMap::new(),
            problems: Vec::new(),
            adapters: None,
            bodies: None,
            aws: None,
            clock: None,
            board: Arc::default(),
            health_at: None,
            telemetry: Telemetry::default(),
            remote: None,
        }
    }

    /// Gives a queue its handler. `name` is one that the configuration has: every queue there needs one handler, and a
    /// handler needs its queue.
    pub fn queue(mut self, name: impl Into<String>, handler: impl Handler) -> Self {
        let name = name.into();
        if self.handlers.insert(name.clone(), Arc::new(handler)).is_some() {
            let what = format!("the queue {name:?} was given two handlers");
            self.problems.push(Problem::new(what, format!("call .queue({name:?}, ..) once")));
        }
        self
    }

    /// Uses this SDK configuration instead of the one from the environment: credentials, region, endpoint.
    pub fn aws(mut self, config: &aws_config::SdkConfig) -> Self {
        self.aws = Some(config.clone());
        self
    }

    /// Uses other queues and another guard than AWS's: those of the [test kit](crate::testing), or your own.
    pub fn adapters(mut self, broker: Arc<dyn Broker>, guard: Arc<dyn Guard>) -> Self {
        self.adapters = Some((broker, guard));
        self
    }

    /// Fetches bodies that are not in their messages from here, and not from S3.
    pub fn bodies(mut self, bodies: Arc<dyn Bodies>) -> Self {
        self.bodies = Some(bodies);
        self
    }

    /// Uses another clock than the machine's. For tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Tells this recorder too what the worker counts, beside the one that the program has installed for the [`metrics`] facade.
    /// What is counted is in [`METRICS`](crate::telemetry::METRICS).
    pub fn recorder(mut self, recorder: Arc<dyn metrics::Recorder + Send + Sync>) -> Self {
        self.telemetry = self.telemetry.and(recorder);
        self
    }

    /// What tells how this worker is, while it starts, runs and drains.
    #[must_use]
    pub fn health(&self) -> Health {
        Health(Arc::clone(&self.board))
    }

    /// Tells its health at this address, unless `LEASEHOLD_HTTP_ADDR` says otherwise: `/live` and `/ready`. Where the address
    /// is taken, it is told at another port, and a warning says which. Needs the feature `serve`.
    pub fn health_at(mut self, address: SocketAddr) -> Self {
        self.health_at = Some(address);
        self
    }

    /// Looks at everything as before a start, for whoever gets deliveries otherwise than by polls. What does not suit it is
    /// a problem, beside all others.
    #[cfg(feature = "lambda")]
    pub(crate) async fn checked(
        mut self,
        suits: impl FnOnce(&mut Config) -> Vec<Problem>,
    ) -> Result<Checked, WorkerError> {
        if let Ok(config) = &mut self.config {
            self.problems.extend(suits(config));
        }
        check::check(self).await
    }

    /// Works until told to stop, then drains, and is gone before `DRAIN_TIMEOUT`.
    ///
    /// The first stage of `shutdown` drains: nothing new is received, and what runs may go on for `DRAIN_TIMEOUT` less
    /// `CANCEL_GRACE` and [`DRAIN_RESERVE`](crate::config::DRAIN_RESERVE). Then, or at the second stage, handlers are
    /// cancelled, and their messages given back. No call to AWS is made after this has returned.
    ///
    /// # Errors
    /// The configuration is wrong, or AWS could not be reached within `START_TIMEOUT`. While running, no trouble with AWS
    /// ends the worker.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropped, it leaves messages hidden until their timeout, and claims until their lease ends.
    pub async fn run(mut self, shutdown: impl Into<Shutdown>) -> Result<StopReport, WorkerError> {
        let shutdown = shutdown.into();
        let endpoints = endpoint::open(&mut self).await?;
        let work = async {
            let checked = tokio::select! {
                // Nothing is in hand yet, so a stop during the checks may drop them.
                biased;
                () = shutdown.draining().cancelled() => return Ok(StopReport::default()),
                checked = check::check(self) => checked?,
            };
            Ok(run(checked, &shutdown).await)
        };
        tokio::select! {
            // The signals are only listened to; the work is the arm that ends.
            biased;
            () = shutdown.listen() => Ok(StopReport::default()),
            report = work => report,
            // Never end; they answer until the work has ended.
            never = endpoints => match never {},
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("queues", &self.handlers.keys()).finish_non_exhaustive()
    }
}

/// Why a worker did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// Everything that is wrong with the environment, the handlers, the queues and the table. Exit code 78.
    #[error("{}", crate::config::told(.0))]
    Configuration(Vec<Problem>),
    /// AWS could not be reached. Exit code 69.
    #[error("not started: {0}")]
    Unavailable(String),
}

/// A worker whose checks have passed.
pub(crate) struct Checked {
    pub(crate) site: Arc<Site>,
    pub(crate) halls: Vec<Arc<Hall>>,
    /// Queues that were not started, because something is wrong with them.
    pub(crate) missing: Vec<String>,
}

async fn run(checked: Checked, shutdown: &Shutdown) -> StopReport {
    let Checked { site, halls: first, mut missing } = checked;
    let mut tending = JoinSet::new();
    let pulse = Arc::new(Pulse::new(site.clock.clone()));
    tending.spawn({
        let pulse = Arc::clone(&pulse);
        async move { pulse.beat().await }
    });
    tending::tend_store(&site, &mut tending);
    tending::tend_board(&site, &pulse, &mut tending);
    let mut protecting = tending::protect(&site);
    let (mut halls, mut queues) = (Vec::new(), JoinSet::new());
    let mut open = |hall: Arc<Hall>, halls: &mut Vec<Arc<Hall>>, queues: &mut JoinSet<()>| {
        let visibility = hall.jobs.visibility.in_force();
        let (guard, guard_outage) = (hall.jobs.config.guard, hall.jobs.config.guard_outage);
        tracing::info!(queue = &*hall.jobs.name, ?visibility, %guard, %guard_outage, "receiving");
        tending::tend_queue(&hall, &mut tending);
        site.board.works_on(Arc::clone(&hall));
        queues.spawn(work_a_queue(Arc::clone(&hall), Arc::clone(&pulse)));
        halls.push(hall);
    };
    for hall in first {
        open(hall, &mut halls, &mut queues);
    }
    site.board.enters(Phase::Running);
    loop {
        let late = tokio::select! {
            // A look at what was missing holds nothing.
            biased;
            () = shutdown.draining().cancelled() => break,
            late = check::come_late(&site, &mut missing) => late,
        };
        for hall in late {
            open(hall, &mut halls, &mut queues);
        }
    }
    site.board.drains(Instant::now() + site.config.drain_timeout);
    drain(&site, &halls, shutdown, &mut queues).await;
    // Ends by itself, within a second of the drain's beginning.
    while protecting.join_next().await.is_some() {}
    tending.shutdown().await;
    let report = StopReport::of(&halls);
    let StopReport { done, suppressed, dead, dropped, failed, released, left, stuck } = report;
    tracing::info!(done, suppressed, dead, dropped, failed, released, left, stuck, "stopped");
    report
}
