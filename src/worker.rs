//! The worker: built, checked, run, drained, and what it reports at the end.
//!
//! [`Worker::run`] is the one way in. It owns every task that is started here or below, and no call to AWS is made after
//! it returns. What happens to one message is in [`job`](crate::job) and [`settle`](crate::settle); here is who is at
//! work, and until when.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    config::{Config, DRAIN_RESERVE, DurationText, Problem, Warning},
    guard::Guard,
    handler::{ErasedHandler, Handler},
    queue::Broker,
    shutdown::Shutdown,
};

use lanes::Hall;
use poll::Pulse;
use report::Tally;

pub use report::StopReport;
pub use status::{Pause, Phase, QueueStatus, Status};

mod check;
mod configured;
pub(crate) mod lanes;
mod poll;
mod report;
mod status;

/// A worker being built. Nothing is checked and nothing is called before [`run`](Self::run), which tells every problem at
/// once.
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    config: Result<Config, Vec<Problem>>,
    warnings: Vec<Warning>,
    handlers: BTreeMap<String, Arc<dyn ErasedHandler>>,
    problems: Vec<Problem>,
    adapters: Option<(Arc<dyn Broker>, Arc<dyn Guard>)>,
    aws: Option<aws_config::SdkConfig>,
    clock: Option<Clock>,
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
            aws: None,
            clock: None,
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

    /// Uses another clock than the machine's. For tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
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
    pub async fn run(self, shutdown: impl Into<Shutdown>) -> Result<StopReport, WorkerError> {
        let shutdown = shutdown.into();
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
    #[error("{}", told(.0))]
    Configuration(Vec<Problem>),
    /// AWS could not be reached. Exit code 69.
    #[error("not started: {0}")]
    Unavailable(String),
}

fn told(problems: &[Problem]) -> String {
    let mut text = match problems.len() {
        1 => "there is a problem with the configuration:".to_owned(),
        n => format!("there are {n} problems with the configuration:"),
    };
    for problem in problems {
        text.push_str(&format!("\n- {problem}"));
    }
    text
}

/// A worker whose checks have passed.
struct Checked {
    halls: Vec<Arc<Hall>>,
    tally: Arc<Tally>,
    drain: CancellationToken,
    halt: CancellationToken,
    guard: Option<Arc<dyn Guard>>,
    clock: Clock,
    drain_timeout: Duration,
    cancel_grace: Duration,
}

async fn run(checked: Checked, shutdown: &Shutdown) -> StopReport {
    let mut tending = JoinSet::new();
    let pulse = Arc::new(Pulse::new(checked.clock.clone()));
    tending.spawn({
        let pulse = Arc::clone(&pulse);
        async move { pulse.beat().await }
    });
    tend_circuits(&checked, &mut tending);
    let mut queues = JoinSet::new();
    for hall in &checked.halls {
        tracing::info!(queue = &*hall.jobs.name, visibility = ?hall.jobs.visibility, "receiving");
        queues.spawn(work_a_queue(Arc::clone(hall), Arc::clone(&pulse)));
    }
    shutdown.draining().cancelled().await;
    drain(&checked, shutdown, &mut queues).await;
    tending.shutdown().await;
    let stuck: usize = checked.halls.iter().map(|hall| hall.jobs.stuck.count()).sum();
    checked.tally.count(|report| report.stuck = stuck.try_into().unwrap_or(u64::MAX));
    let report = checked.tally.report();
    let StopReport { done, suppressed, dead, dropped, failed, released, left, stuck } = report;
    tracing::info!(done, suppressed, dead, dropped, failed, released, left, stuck, "stopped");
    report
}

/// Rules D1 to D3: no new receive; handlers run on for a while, are cancelled, and have a last while to write down what
/// came of them; then the process can go.
async fn drain(checked: &Checked, shutdown: &Shutdown, queues: &mut JoinSet<()>) {
    let gone_by = Instant::now() + checked.drain_timeout;
    let run_on = checked.drain_timeout.saturating_sub(checked.cancel_grace + DRAIN_RESERVE);
    let halt_at = Instant::now() + run_on;
    tracing::info!("draining: no new messages; handlers may run on for {}", DurationText(run_on));
    checked.drain.cancel();
    tokio::select! {
        // Each arm only waits.
        biased;
        () = ended(queues) => return,
        () = shutdown.stopping_now().cancelled() => {
            tracing::warn!("told to stop now: handlers are cancelled, and polls are not waited for");
            checked.halls.iter().for_each(|hall| hall.polled.cancel());
        }
        () = sleep_until(halt_at) => tracing::warn!("the drain's time is used up: handlers are cancelled"),
    }
    checked.halt.cancel();
    let last = (Instant::now() + checked.cancel_grace + DRAIN_RESERVE).min(gone_by);
    if timeout_at(last - DRAIN_RESERVE, ended(queues)).await.is_ok() {
        return;
    }
    // Nor are polls waited for now. One that is still parked may be handed what is given back, which costs that message a
    // receive; but then it has ended, and gives the message back in its turn.
    checked.halls.iter().for_each(|hall| hall.polled.cancel());
    if timeout_at(last, ended(queues)).await.is_err() {
        tracing::error!("not everything could be settled in time: what is left comes back at its timeout");
        checked.halls.iter().for_each(|hall| hall.gone.cancel());
        // A lane that does not even end now has users' code on its thread.
        let _ = timeout(ABORT, ended(queues)).await;
        queues.shutdown().await;
    }
}

/// How long tasks that are cut off may take to be gone.
const ABORT: Duration = Duration::from_millis(500);

async fn ended(queues: &mut JoinSet<()>) {
    while queues.join_next().await.is_some() {}
}

/// The probes that end a pause: the guard's is a real write; a handler's or a queue's only says that a try is worth it.
fn tend_circuits(checked: &Checked, tending: &mut JoinSet<()>) {
    if let (Some(guard), Some(hall)) = (&checked.guard, checked.halls.first()) {
        let (guard, store) = (Arc::clone(guard), Arc::clone(&hall.jobs.store));
        tending.spawn(async move {
            store.tend(true, || async { guard.probe().await.map_err(|error| error.to_string()) }).await;
        });
    }
    for hall in &checked.halls {
        let (handler, there) = (Arc::clone(&hall.jobs.handler), Arc::clone(&hall.jobs.there));
        tending.spawn(async move {
            there.tend(false, || async { handler.probe().await.map_err(|error| error.to_string()) }).await;
        });
        let intake = Arc::clone(&hall.intake);
        tending.spawn(async move { intake.tend(false, || async { Ok(()) }).await });
    }
}

/// Polls a queue and works off what comes, until the worker drains and every lane has ended.
async fn work_a_queue(hall: Arc<Hall>, pulse: Arc<Pulse>) {
    let (begun, mut lanes_begun) = mpsc::unbounded_channel();
    let mut pollers = JoinSet::new();
    for _ in 0..poll::pollers(hall.jobs.config.concurrency) {
        pollers.spawn(poll::poll(Arc::clone(&hall), Arc::clone(&pulse), begun.clone()));
    }
    let mut lanes = JoinSet::new();
    loop {
        tokio::select! {
            // Lanes that have begun come before the end of the poller that began them. Joining drops nothing.
            biased;
            Some((deliveries, slot)) = lanes_begun.recv() => {
                lanes.spawn(lanes::lane(Arc::clone(&hall), deliveries, slot));
            }
            Some(ended) = lanes.join_next() => reap(&hall, ended),
            // Told to stop now: what the polls on the wire bring is hidden for a timeout, and that is what "now" costs.
            () = hall.polled.cancelled(), if !pollers.is_empty() => pollers.shutdown().await,
            ended = pollers.join_next() => match ended {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    tracing::error!(queue = &*hall.jobs.name, %error, "a poller died; another takes its place");
                    pollers.spawn(poll::poll(Arc::clone(&hall), Arc::clone(&pulse), begun.clone()));
                }
                None => break,
            },
        }
    }
    hall.polled.cancel();
    let worked_off = async {
        while let Some(ended) = lanes.join_next().await {
            reap(&hall, ended);
        }
    };
    if hall.gone.run_until_cancelled(worked_off).await.is_none() {
        // Awaited, so that none of them calls anybody after the worker is gone.
        hall.tally.count(|report| report.left += u64::try_from(lanes.len()).unwrap_or(u64::MAX));
        lanes.shutdown().await;
    }
}

fn reap(hall: &Hall, ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        hall.tally.count(|report| report.left += 1);
        tracing::error!(queue = &*hall.jobs.name, %error, "a lane died; its messages come back at their timeout");
    }
}
