//! Everything that is looked at before the first receive, and told at once (rule R5).
//!
//! Owns the way from settings to what a worker runs on. Looks, and never changes anything at AWS; what is wrong stops the
//! start, what cannot be reached is asked again until `START_TIMEOUT`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::{join, join_all};
use tokio::time::{Instant, sleep};

#[cfg(feature = "s3")]
use crate::bodies::Bodies;
use crate::{
    aws::{self, Aws},
    causes::in_full,
    clock::Clock,
    config::{Config, GuardMode, Problem, QueueConfig, Start},
    ecs::Task,
    fit::{self, Destination},
    guard::{GuardError, TableFacts, admin, dynamodb::DynamoDbGuard},
    handler::ErasedHandler,
    queue::{Broker, Queue, QueueAddress, QueueError, QueueFacts},
    seldom::seldom,
    settle::dead_letter::{DeadLetters, Target},
    telemetry::Calls,
};

use super::{
    Checked, Worker, WorkerError,
    hall::Hall,
    site::{Adapters, Handlers, Site},
};

/// Between two looks at what could not be reached: short, for a worker that is not ready does nothing else.
const RETRY: Duration = Duration::from_secs(1);

/// Between two looks at queues that were not started while others were (`START=available`).
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Looks until all is well, or as well as `START` asks for, and puts together what has passed.
pub(super) async fn check(worker: Worker) -> Result<Checked, WorkerError> {
    let (config, handlers) = settings(&worker)?;
    for warning in &worker.warnings {
        tracing::warn!("{warning}");
    }
    let clock = worker.clock.clone().unwrap_or_else(Clock::system);
    worker.telemetry.describe();
    let calls = Calls::new(worker.telemetry.clone());
    // Other adapters are of tests, where nothing may depend on the machine.
    let task = if worker.adapters.is_none() { Task::of_this_process().await } else { None };
    let (broker, guard, from_s3) = match (worker.adapters, worker.aws) {
        (Some((broker, guard)), _) => (broker, guard, None),
        (None, Some(sdk)) => adapters(&sdk, &config, calls.clone())?,
        (None, None) => adapters(&aws::load().await, &config, calls.clone())?,
    };
    let adapters = (broker, guard, worker.bodies.or(from_s3));
    let until = Instant::now() + config.start_timeout;
    let (about, counted) = ((clock, task), (worker.telemetry, calls));
    let site = Site::new(config, handlers, adapters, about, worker.board, worker.remote, counted);
    let all: Vec<String> = site.config.queues.keys().cloned().collect();
    loop {
        let seen = look(&site, &all).await;
        let available = site.config.start == Start::Available && !seen.good.is_empty();
        if available || seen.is_faultless() {
            let missing = seen.tell_missing(&site, &all);
            let halls = site.halls(seen.good);
            return Ok(Checked { site: Arc::new(site), halls, missing });
        }
        if !seen.wrong.is_empty() {
            return Err(WorkerError::Configuration(seen.wrong.into_iter().map(|(_, problem)| problem).collect()));
        }
        let what = seen.away.into_iter().map(|(_, what)| what).collect::<Vec<_>>().join("; ");
        if Instant::now() + RETRY >= until {
            return Err(WorkerError::Unavailable(what));
        }
        seldom!(site.seldom, "not ready", warn, "not ready: {what}");
        site.board.problems(vec![what]);
        sleep(RETRY).await;
    }
}

/// Looks every minute at the queues that were not started, until some of them can be; `missing` are then the others.
///
/// # Cancel safety
/// Dropped, it has only looked.
pub(super) async fn come_late(site: &Site, missing: &mut Vec<String>) -> Vec<Arc<Hall>> {
    if missing.is_empty() {
        return std::future::pending().await;
    }
    loop {
        sleep(LOOK_AGAIN).await;
        let seen = look(site, missing).await;
        let still_missing = seen.tell_missing(site, missing);
        if !seen.good.is_empty() {
            *missing = still_missing;
            return site.halls(seen.good);
        }
    }
}

/// AWS's. What can be seen to be wrong with its settings is not found out by waiting for an answer.
fn adapters(sdk: &aws_config::SdkConfig, config: &Config, calls: Calls) -> Result<Adapters, WorkerError> {
    let problems = aws::problems(sdk);
    if !problems.is_empty() {
        return Err(WorkerError::Configuration(problems));
    }
    let aws = Aws::counted(sdk, calls);
    #[cfg(feature = "s3")]
    let bodies: Option<Arc<dyn Bodies>> = Some(Arc::new(aws.bodies()));
    #[cfg(not(feature = "s3"))]
    let bodies = None;
    Ok((Arc::new(aws.sqs()), Arc::new(DynamoDbGuard::new(aws.dynamodb(), config.table.clone())), bodies))
}

/// What can be said without asking AWS: settings, handlers, keys.
pub(super) fn settings(worker: &Worker) -> Result<(Config, Handlers), WorkerError> {
    let mut problems = worker.problems.clone();
    let config = match &worker.config {
        Ok(config) => config,
        Err(found) => {
            problems.extend(found.iter().cloned());
            return Err(WorkerError::Configuration(problems));
        }
    };
    problems.extend(config.check());
    let knows_s3 = worker.bodies.is_some() || cfg!(feature = "s3");
    for (name, queue) in &config.queues {
        problems.extend(keyed(name, queue, worker.handlers.get(name).map(|handler| &**handler)));
        problems.extend(queue.needs_s3(name).filter(|_| !knows_s3));
    }
    for name in worker.handlers.keys().filter(|name| !config.queues.contains_key(*name)) {
        let known: Vec<_> = config.queues.keys().map(String::as_str).chain([name.as_str()]).collect();
        problems.push(Problem::new(
            format!("a handler is given for the queue {name:?}, which LEASEHOLD_QUEUES does not name"),
            format!("LEASEHOLD_QUEUES={}", known.join(",")),
        ));
    }
    if problems.is_empty() {
        Ok((config.clone(), worker.handlers.clone()))
    } else {
        Err(WorkerError::Configuration(problems))
    }
}

fn keyed(name: &str, queue: &QueueConfig, handler: Option<&dyn ErasedHandler>) -> Option<Problem> {
    let variable = crate::config::variable(name, "KEY");
    match handler {
        None => Some(Problem::new(
            format!("the queue {name:?} has no handler: a URL or a program, or in code .queue({name:?}, ..)"),
            format!("{}=exec:./handle-{name}", crate::config::variable(name, "HANDLER")),
        )),
        Some(handler) if handler.has_key() && queue.key.is_some() => Some(Problem::new(
            format!("the key of {name:?} is set in code and by a variable"),
            format!("unset {variable} LEASEHOLD_KEY"),
        )),
        Some(handler) if !handler.has_key() && queue.key.is_none() && queue.guard == GuardMode::Claim => {
            Some(fit::unkeyed(name))
        }
        Some(_) => None,
    }
}

/// What a look has found.
#[derive(Default)]
struct Looked {
    good: BTreeMap<String, Seen>,
    /// What somebody has to mend, and the queue that it keeps from starting; `None` is the table, and keeps all that are
    /// guarded.
    wrong: Vec<(Option<String>, Problem)>,
    /// What could not be reached, in the same way.
    away: Vec<(Option<String>, String)>,
}

impl Looked {
    fn is_faultless(&self) -> bool {
        self.wrong.is_empty() && self.away.is_empty()
    }

    /// Which of the queues cannot be started, loudly.
    fn tell_missing(&self, site: &Site, asked: &[String]) -> Vec<String> {
        let wrong = self.wrong.iter().map(|(_, problem)| problem.to_string());
        let told: Vec<String> = wrong.chain(self.away.iter().map(|(_, what)| what.clone())).collect();
        if !told.is_empty() {
            let all = told.join("; ");
            seldom!(site.seldom, "missing", error, "looked at again in a minute: {all}");
        }
        site.board.problems(told);
        asked.iter().filter(|name| !self.good.contains_key(*name)).cloned().collect()
    }
}

/// A queue as it was found.
pub(super) struct Seen {
    pub(super) queue: Arc<dyn Queue>,
    pub(super) facts: Option<QueueFacts>,
    pub(super) dead_letters: DeadLetters,
}

/// Looks at these queues and the table, all at once, and finds all that is wrong.
async fn look(site: &Site, names: &[String]) -> Looked {
    let (config, mut looked) = (&site.config, Looked::default());
    let asked = || config.queues.iter().filter(|(name, _)| names.contains(name));
    let queues = join_all(asked().map(async |(name, queue)| {
        let mut problems = Vec::new();
        let found = look_at_queue(name, queue, &*site.broker, &mut problems).await;
        (name, queue, found, problems)
    }));
    let table = async {
        let has_records = asked().any(|(_, queue)| queue.guard == GuardMode::Claim);
        if has_records { Some(site.guard.facts().await) } else { None }
    };
    let (queues, table) = join(queues, table).await;
    for (name, queue, found, problems) in queues {
        let is_good = problems.is_empty();
        looked.wrong.extend(problems.into_iter().map(|problem| (Some(name.clone()), problem)));
        match found {
            Ok(Some(seen)) if is_good => drop(looked.good.insert(name.clone(), seen)),
            Ok(_) => {}
            Err(error) => {
                let what = format!("the queue {name:?} ({}): {}", queue.address, in_full(&error));
                looked.away.push((Some(name.clone()), what));
            }
        }
    }
    if let Some(facts) = table {
        judge_table(site, facts, &mut looked);
    }
    looked
}

fn judge_table(site: &Site, facts: Result<TableFacts, GuardError>, looked: &mut Looked) {
    let table = &site.config.table;
    let before = (looked.wrong.len(), looked.away.len());
    match facts {
        Ok(facts) => {
            if let Some(warning) = admin::warning(table, &facts) {
                tracing::warn!("{}", warning.what);
            }
            let problems = admin::problems(table, &facts);
            looked.wrong.extend(problems.into_iter().map(|problem| (None, problem)));
        }
        Err(GuardError::Missing) => {
            looked.wrong.push((None, admin::absent(table)));
        }
        Err(error @ GuardError::Denied(_)) => {
            tracing::warn!("could not look at the table {table:?}: {}", in_full(&error));
        }
        Err(error) => looked.away.push((None, format!("the table {table:?}: {}", in_full(&error)))),
    }
    if (looked.wrong.len(), looked.away.len()) != before {
        looked.good.retain(|name, _| site.config.queues.get(name).is_some_and(|queue| queue.guard == GuardMode::None));
    }
}

/// Looks at one queue: `None` if something is wrong with it, an error if it could not be reached.
async fn look_at_queue(
    name: &str,
    config: &QueueConfig,
    broker: &dyn Broker,
    problems: &mut Vec<Problem>,
) -> Result<Option<Seen>, QueueError> {
    let variable = |setting| crate::config::variable(name, setting);
    let queue = match broker.open(&config.address).await {
        Ok(queue) => queue,
        Err(error) => return wrong_address(error, broker, &config.address, &variable("URL"), problems),
    };
    let facts = match queue.facts().await {
        Ok(facts) => Some(facts),
        Err(error @ QueueError::Denied(_)) => {
            tracing::warn!(
                queue = name,
                "could not look at the queue: {}; whether it is FIFO is taken from its name, and its redrive policy is \
                 taken to be none",
                in_full(&error)
            );
            None
        }
        Err(error) => return wrong_address(error, broker, &config.address, &variable("URL"), problems),
    };
    let remembers = config.guard == GuardMode::Claim;
    let looked_at = facts.as_ref();
    problems.extend(looked_at.filter(|_| remembers).and_then(|facts| fit::forgotten_early(name, config, facts)));
    problems.extend(looked_at.and_then(|facts| fit::keys::unfit(name, config, facts)));
    let target = match fit::destination(name, config, looked_at) {
        Ok(Destination::Keep) => return Ok(Some(Seen { queue, facts, dead_letters: DeadLetters::Keep })),
        Ok(Destination::Drop) => return Ok(Some(Seen { queue, facts, dead_letters: DeadLetters::Drop })),
        Ok(Destination::Queue(address)) => address,
        Err(problem) => {
            problems.push(problem);
            return Ok(None);
        }
    };
    match broker.open(&target).await {
        Ok(dead) => {
            let fifo = target.to_string().ends_with(".fifo");
            let dead_letters = DeadLetters::Queue(Target { queue: dead, fifo });
            Ok(Some(Seen { queue, facts, dead_letters }))
        }
        Err(error) => wrong_address(error, broker, &target, &variable("DEAD_LETTER"), problems),
    }
}

/// Tells an address that is wrong from one that cannot be reached.
fn wrong_address<T>(
    error: QueueError,
    broker: &dyn Broker,
    address: &QueueAddress,
    variable: &str,
    problems: &mut Vec<Problem>,
) -> Result<Option<T>, QueueError> {
    if error.is_transient() {
        return Err(error);
    }
    problems.push(fit::unusable(&error, address, broker.looks_in(address), variable));
    Ok(None)
}
