//! Everything that is looked at before the first receive, and told at once (rule R5).
//!
//! Owns the way from settings to what a worker runs on. Looks, and never changes anything at AWS; what is wrong stops the
//! start, what cannot be reached is asked again until `START_TIMEOUT`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    aws::{self, Aws},
    clock::Clock,
    config::{Config, DeadLetter, GuardMode, Problem, QueueConfig, VisibilityTimeout},
    guard::{
        Guard, GuardError,
        dynamodb::DynamoDbGuard,
        outage::{Absences, Circuit, WatchedGuard},
    },
    handler::ErasedHandler,
    job::{Jobs, Stuck},
    lease::Tick,
    queue::{Broker, Queue, QueueAddress, QueueError, QueueFacts},
    settle::{
        Desk,
        dead_letter::{DeadLetters, Target},
    },
};

use super::{
    Checked, Tally, Worker, WorkerError,
    lanes::{Hall, SETTLING},
};

/// Between two looks at what could not be reached: short, for a worker that is not ready does nothing else.
const RETRY: Duration = Duration::from_secs(1);

pub(super) async fn check(worker: Worker) -> Result<Checked, WorkerError> {
    let (config, handlers) = settings(&worker)?;
    for warning in &worker.warnings {
        tracing::warn!("{warning}");
    }
    let clock = worker.clock.clone().unwrap_or_else(Clock::system);
    let (broker, guard) = match (worker.adapters, worker.aws) {
        (Some(adapters), _) => adapters,
        (None, Some(sdk)) => adapters(&Aws::new(&sdk), &config),
        (None, None) => adapters(&Aws::new(&aws::load().await), &config),
    };
    let until = Instant::now() + config.start_timeout;
    loop {
        match look(&config, &*broker, &*guard).await {
            Ok(seen) => return Ok(build(&config, handlers, guard, &clock, seen)),
            Err(WorkerError::Unavailable(what)) if Instant::now() + RETRY < until => {
                tracing::warn!("not ready: {what}");
                sleep(RETRY).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn adapters(aws: &Aws, config: &Config) -> (Arc<dyn Broker>, Arc<dyn Guard>) {
    (Arc::new(aws.sqs()), Arc::new(DynamoDbGuard::new(aws.dynamodb(), config.table.clone())))
}

type Handlers = BTreeMap<String, Arc<dyn ErasedHandler>>;

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
    for (name, queue) in &config.queues {
        problems.extend(keyed(name, queue, worker.handlers.get(name).map(|handler| &**handler)));
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
            format!("the queue {name:?} has no handler"),
            format!(
                ".queue({name:?}, ..) in code; for `leasehold run`, {}=exec:./handle-{name}",
                crate::config::variable(name, "HANDLER")
            ),
        )),
        Some(handler) if handler.has_key() && queue.key.is_some() => Some(Problem::new(
            format!("the key of {name:?} is set in code and by a variable"),
            format!("unset {variable}, or LEASEHOLD_KEY where that is the one, and set it for the other queues"),
        )),
        Some(handler) if !handler.has_key() && queue.key.is_none() && queue.guard == GuardMode::Claim => {
            Some(Problem::new(
                format!("the queue {name:?} has no idempotency key"),
                format!("{variable}=/order_id, or .key(|payload| ..) in code, or GUARD=none for an idempotent handler"),
            ))
        }
        Some(_) => None,
    }
}

/// A queue as it was found.
struct Seen {
    queue: Arc<dyn Queue>,
    facts: Option<QueueFacts>,
    dead_letters: DeadLetters,
}

/// Looks at every queue and the table, and tells all that is wrong at once.
async fn look(config: &Config, broker: &dyn Broker, guard: &dyn Guard) -> Result<BTreeMap<String, Seen>, WorkerError> {
    let mut problems = Vec::new();
    let mut seen = BTreeMap::new();
    let mut away = Vec::new();
    for (name, queue) in &config.queues {
        match look_at_queue(name, queue, broker, &mut problems).await {
            Ok(Some(found)) => {
                seen.insert(name.clone(), found);
            }
            Ok(None) => {}
            Err(error) => away.push(format!("the queue {:?} ({}): {}", name, queue.address, with_causes(&error))),
        }
    }
    if config.queues.values().any(|queue| queue.guard == GuardMode::Claim) {
        match guard.facts().await {
            Ok(facts) => problems.extend(crate::guard::admin::problems(&config.table, &facts)),
            Err(GuardError::Missing) => problems.push(Problem::new(
                format!("there is no table {:?}", config.table),
                "create it from infra/queue.yaml, or name another: LEASEHOLD_TABLE=..",
            )),
            Err(error @ GuardError::Denied(_)) => {
                tracing::warn!("could not look at the table {:?}: {}", config.table, with_causes(&error));
            }
            Err(error) => away.push(format!("the table {:?}: {}", config.table, with_causes(&error))),
        }
    }
    if !problems.is_empty() {
        return Err(WorkerError::Configuration(problems));
    }
    if away.is_empty() { Ok(seen) } else { Err(WorkerError::Unavailable(away.join("; "))) }
}

fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
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
        Err(error) => return wrong_address(error, &config.address, &variable("URL"), problems),
    };
    let facts = match queue.facts().await {
        Ok(facts) => Some(facts),
        Err(error @ QueueError::Denied(_)) => {
            tracing::warn!(
                queue = name,
                "could not look at the queue: {}; whether it is FIFO is taken from its name, and its redrive policy is \
                 taken to be none",
                with_causes(&error)
            );
            None
        }
        Err(error) => return wrong_address(error, &config.address, &variable("URL"), problems),
    };
    let remembers = config.guard == GuardMode::Claim;
    if let Some(facts) = facts.as_ref().filter(|facts| remembers && facts.retention > config.done_ttl) {
        problems.push(Problem::new(
            format!(
                "\"done\" is remembered for {:?}, but the queue {name:?} keeps messages for {:?}: a late duplicate would \
                 run again",
                config.done_ttl, facts.retention
            ),
            format!("{}={}s", variable("DONE_TTL"), facts.retention.as_secs()),
        ));
    }
    let policy = facts.as_ref().and_then(|facts| facts.redrive.as_ref());
    let target = match (&config.dead_letter, policy) {
        (DeadLetter::Keep, _) if facts.as_ref().is_some_and(|facts| facts.fifo) => {
            problems.push(Problem::new(
                format!("{name:?} is a FIFO queue: a message that failed for good and is kept blocks its group"),
                format!("{}=keep-fifo, if that is meant", variable("DEAD_LETTER")),
            ));
            return Ok(None);
        }
        (DeadLetter::Keep | DeadLetter::KeepFifo, _) => {
            return Ok(Some(Seen { queue, facts, dead_letters: DeadLetters::Keep }));
        }
        (DeadLetter::Drop, _) => return Ok(Some(Seen { queue, facts, dead_letters: DeadLetters::Drop })),
        (DeadLetter::Queue(address), _) => address.clone(),
        (DeadLetter::RedrivePolicy, Some(policy)) => QueueAddress::Arn(policy.dead_letter_arn.clone()),
        (DeadLetter::RedrivePolicy, None) => {
            problems.push(Problem::new(
                format!("the queue {name:?} has no dead-letter queue: nobody would see what fails for good"),
                format!("{}=<a queue's name or URL>, or keep, or drop", variable("DEAD_LETTER")),
            ));
            return Ok(None);
        }
    };
    match broker.open(&target).await {
        Ok(dead) => {
            let fifo = target.to_string().ends_with(".fifo");
            let dead_letters = DeadLetters::Queue(Target { queue: dead, fifo });
            Ok(Some(Seen { queue, facts, dead_letters }))
        }
        Err(error) => wrong_address(error, &target, &variable("DEAD_LETTER"), problems),
    }
}

/// Tells an address that is wrong from one that cannot be reached.
fn wrong_address<T>(
    error: QueueError,
    address: &QueueAddress,
    variable: &str,
    problems: &mut Vec<Problem>,
) -> Result<Option<T>, QueueError> {
    if error.is_transient() {
        return Err(error);
    }
    problems.push(match error {
        QueueError::Missing => {
            Problem::new(format!("there is no queue {address}"), format!("{variable}=<the queue's URL>"))
        }
        error => Problem::new(
            format!("the queue {address} cannot be used: {}", with_causes(&error)),
            format!("check the credentials' policy and region, or {variable}=<another queue>"),
        ),
    });
    Ok(None)
}

/// Puts together what has passed.
fn build(
    config: &Config,
    mut handlers: Handlers,
    guard: Arc<dyn Guard>,
    clock: &Clock,
    seen: BTreeMap<String, Seen>,
) -> Checked {
    let (drain, halt, tally) = (CancellationToken::new(), CancellationToken::new(), Arc::new(Tally::default()));
    let store = Arc::new(Circuit::new("the guard's table", clock.clone()));
    let watched: Arc<dyn Guard> = Arc::new(WatchedGuard::new(Arc::clone(&guard), Arc::clone(&store)));
    let worker = format!("{}-{}", std::process::id(), clock.token().get(..6).unwrap_or_default());
    let halls = seen
        .into_iter()
        .filter_map(|(name, seen)| {
            let queue = config.queues.get(&name)?.clone();
            let facts = seen.facts.as_ref();
            let visibility = visibility(queue.visibility_timeout, facts);
            let guard = (queue.guard == GuardMode::Claim).then(|| Arc::clone(&watched));
            let there = Arc::new(Circuit::new(format!("the handler of {name}"), clock.clone()));
            let jobs = Jobs {
                name: name.as_str().into(),
                namespace: config.namespace.clone(),
                key_hash: config.key_hash,
                clock_skew: config.clock_skew,
                cancel_grace: config.cancel_grace,
                visibility,
                handler: handlers.remove(&name)?,
                guard: guard.clone(),
                clock: clock.clone(),
                worker: worker.clone(),
                store: Arc::clone(&store),
                there,
                absences: Absences::default(),
                stuck: Stuck::default(),
                absurd: Default::default(),
                halt: halt.clone(),
                config: queue,
            };
            let desk = Desk {
                queue: seen.queue,
                guard,
                clock: clock.clone(),
                dead_letters: seen.dead_letters,
                longest_backoff: jobs.config.backoff.cap,
            };
            let concurrency = jobs.config.concurrency;
            Some(Arc::new(Hall {
                wait_time: super::poll::wait_time(&name, jobs.config.wait_time, visibility, config.drain_timeout),
                fifo: facts.map_or_else(|| jobs.config.address.to_string().ends_with(".fifo"), |facts| facts.fifo),
                max_receive_count: facts
                    .and_then(|facts| facts.redrive.as_ref())
                    .map(|policy| policy.max_receive_count),
                slots: Arc::new(Semaphore::new(concurrency)),
                gathering: tokio::sync::Mutex::default(),
                settling: Arc::new(Semaphore::new(SETTLING)),
                places: Arc::new(Semaphore::new(concurrency.div_ceil(2))),
                tick: Tick::for_leases_of(visibility),
                intake: Arc::new(Circuit::new(format!("deletes from {name}"), clock.clone())),
                drain: drain.clone(),
                polled: CancellationToken::new(),
                gone: CancellationToken::new(),
                tally: Arc::clone(&tally),
                jobs,
                desk,
            }))
        })
        .collect();
    Checked {
        halls,
        tally,
        drain,
        halt,
        guard: Some(guard),
        clock: clock.clone(),
        drain_timeout: config.drain_timeout,
        cancel_grace: config.cancel_grace,
    }
}

/// In a range, the queue's own timeout is where it starts (rule L3).
fn visibility(range: VisibilityTimeout, facts: Option<&QueueFacts>) -> Duration {
    facts.map_or(range.floor, |facts| facts.visibility.clamp(range.floor, range.ceiling))
}
