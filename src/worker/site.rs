//! What the queues of one worker share, and how each is put together.
//!
//! Made once, after the settings have passed; queues that were not there at the start are put together later, on the same.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    bodies::Bodies,
    clock::Clock,
    config::{
        Config, DurationText, GuardMode, QueueConfig,
        explain::{WHY_LOWERED, longest_wait},
        retention,
    },
    ecs::Task,
    fit,
    guard::{
        ControlKey, Guard,
        outage::{Absences, Circuit, Ends, WatchedGuard},
    },
    handler::{ErasedHandler, remote::Runs},
    job::{BodiesAway, Jobs, Slots, Stuck, Told, Watch},
    lease::{Term, Tick, Visibility},
    queue::{BATCH, Broker},
    seldom::Seldom,
    settle::Desk,
    telemetry::{Calls, Meters, Telemetry},
};

use super::{
    board::{Board, Running},
    brake::Brake,
    check::Seen,
    control::Word,
    hall::{Hall, SETTLING},
    pace::Pace,
    pulse::{Polls, Pulse},
};

/// Where queues and records are, and bodies that are not in their messages.
pub(super) type Adapters = (Arc<dyn Broker>, Arc<dyn Guard>, Option<Arc<dyn Bodies>>);

/// The handlers, by the names of their queues.
pub(super) type Handlers = BTreeMap<String, Arc<dyn ErasedHandler>>;

/// What the queues of one worker share.
pub(crate) struct Site {
    pub(crate) config: Config,
    handlers: Handlers,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) guard: Arc<dyn Guard>,
    bodies: Option<Arc<dyn Bodies>>,
    /// The guard, with its answers told to `store`.
    watched: Arc<dyn Guard>,
    pub(super) store: Arc<Circuit>,
    pub(crate) clock: Clock,
    /// A name for this worker, for a person who reads a record.
    worker: String,
    /// Places for running handlers over all queues, if that is limited.
    total: Option<Arc<Semaphore>>,
    pub(super) board: Arc<Board>,
    /// Where handlers outside of this process can ask about their runs, if they can.
    remote: Option<Arc<Runs>>,
    pub(super) telemetry: Telemetry,
    calls: Calls,
    pub(super) drain: CancellationToken,
    pub(super) halt: CancellationToken,
    /// What is looked at again and again before all queues have started.
    pub(super) seldom: Seldom,
}

/// More polls of one queue at once bring nothing: what they fetch would wait for the network, not for SQS.
const MOST_POLLERS: usize = 64;

impl Site {
    pub(super) fn new(
        config: Config,
        handlers: Handlers,
        (broker, guard, bodies): Adapters,
        (clock, task): (Clock, Option<Task>),
        board: Arc<Board>,
        remote: Option<Arc<Runs>>,
        (telemetry, calls): (Telemetry, Calls),
    ) -> Self {
        let store = Arc::new(Circuit::new("the guard's table", Ends::Probe, clock.clone()));
        Self {
            watched: Arc::new(WatchedGuard::new(Arc::clone(&guard), Arc::clone(&store))),
            worker: name(&clock, task.as_ref()),
            total: config.total_concurrency.map(|total| Arc::new(Semaphore::new(total))),
            telemetry,
            calls,
            drain: CancellationToken::new(),
            halt: CancellationToken::new(),
            seldom: Seldom::default(),
            config,
            handlers,
            broker,
            guard,
            bodies,
            store,
            clock,
            board,
            remote,
        }
    }

    /// What the board tells of the worker itself.
    pub(super) fn told(&self, pulse: Arc<Pulse>) -> Running {
        let store = Arc::clone(&self.store);
        Running::new((self.worker.clone(), self.clock.clone()), (pulse, store), (self.calls.clone(), &self.telemetry))
    }

    /// Puts together the queues that were found good.
    pub(super) fn halls(&self, seen: BTreeMap<String, Seen>) -> Vec<Arc<Hall>> {
        seen.into_iter().filter_map(|(name, seen)| self.hall(&name, seen)).map(Arc::new).collect()
    }

    fn hall(&self, name: &str, seen: Seen) -> Option<Hall> {
        let queue = self.config.queues.get(name)?.clone();
        let (asked, most) = (queue.wait_time, longest_wait(queue.visibility_timeout.floor, self.config.drain_timeout));
        if asked > most {
            let (asked, most) = (DurationText(asked), DurationText(most));
            tracing::warn!(queue = name, "WAIT_TIME is lowered from {asked} to {most}: {WHY_LOWERED}");
        }
        let handler = Arc::clone(self.handlers.get(name)?);
        let facts = seen.facts.as_ref();
        for warning in facts.map(|facts| fit::keys::warnings(name, &queue, facts)).unwrap_or_default() {
            tracing::warn!(queue = name, "{warning}");
        }
        if let Some(short) = facts.and_then(|facts| retention::too_short(name, &queue, facts.retention)) {
            tracing::warn!(queue = name, "{short}");
        }
        let guard = (queue.guard == GuardMode::Claim).then(|| Arc::clone(&self.watched));
        let circuit = |what: String, ends| Arc::new(Circuit::new(what, ends, self.clock.clone()));
        let seldom: Arc<Seldom> = Arc::default();
        let desk = Desk {
            name: name.into(),
            seldom: Arc::clone(&seldom),
            queue: seen.queue,
            guard: guard.clone(),
            clock: self.clock.clone(),
            dead_letters: seen.dead_letters,
            longest_backoff: queue.backoff.cap,
        };
        let (portion, pollers) = self.polls(queue.concurrency);
        let range = queue.visibility_timeout;
        let own = facts.map(|facts| facts.visibility);
        Some(Hall {
            drain_timeout: self.config.drain_timeout,
            #[cfg(feature = "lambda")]
            facts: facts.cloned(),
            fifo: facts.map_or_else(|| queue.address.to_string().ends_with(".fifo"), |facts| facts.fifo),
            max_receive_count: facts.and_then(|facts| facts.redrive.as_ref()).map(|policy| policy.max_receive_count),
            slots: Slots::new(queue.concurrency, self.total.clone()),
            portion,
            pollers,
            polls: Polls::default(),
            pace: queue.rate.map(Pace::new),
            gathering: tokio::sync::Mutex::default(),
            settling: Semaphore::new(SETTLING),
            places: Semaphore::new(queue.concurrency.div_ceil(2)),
            resting: Semaphore::new(queue.concurrency),
            tick: Tick::new(),
            intake: circuit(format!("deletes from {name}"), Ends::Work),
            brake: Brake::new(name, self.clock.clone()),
            word: self.word(&queue),
            paused: circuit(format!("intake of {name}"), Ends::Resume),
            drain: self.drain.clone(),
            term: Term::open(self.halt.clone(), self.config.cancel_grace),
            polled: CancellationToken::new(),
            gone: CancellationToken::new(),
            desk,
            jobs: Jobs {
                name: name.into(),
                namespace: self.config.namespace.clone(),
                key_hash: self.config.key_hash,
                clock_skew: self.config.clock_skew,
                visibility: Visibility::new(name.into(), range.floor, range.ceiling, own),
                remote: self.remote.clone().filter(|_| handler.is_outside()),
                handler,
                guard,
                bodies: self.bodies.clone(),
                bodies_away: BodiesAway::default(),
                clock: self.clock.clone(),
                worker: self.worker.clone(),
                store: Arc::clone(&self.store),
                there: circuit(format!("the handler of {name}"), Ends::Work),
                bodies_there: circuit(format!("the bodies of {name} in S3"), Ends::Work),
                absences: Absences::default(),
                stuck: Stuck::default(),
                watch: Watch::default(),
                meters: Meters::new(&self.telemetry, name, queue.address.queue_name()),
                envelope_told: Told::default(),
                absurd: Mutex::default(),
                seldom,
                config: queue,
            },
        })
    }

    /// Where operators' word on a queue is, if there is a table at all.
    fn word(&self, queue: &QueueConfig) -> Option<Word> {
        let key = ControlKey::new(self.config.namespace.as_deref(), queue.address.queue_name());
        let has_table = self.config.queues.values().any(|queue| queue.guard == GuardMode::Claim);
        has_table.then(|| Word::new(Arc::clone(&self.guard), key))
    }

    /// How many messages a receive of a queue may bring, and how many polls there may be at once. Parked polls hold slots;
    /// where all queues share a limit, those of one may hold no more than half of its part, so that no idle queue starves
    /// a busy one.
    fn polls(&self, concurrency: usize) -> (usize, usize) {
        let part = self.config.total_concurrency.map(|total| total / (2 * self.config.queues.len().max(1)));
        let most = part.map_or(concurrency, |part| part.clamp(1, concurrency));
        let portion = BATCH.min(most);
        (portion, (most.div_ceil(portion)).clamp(1, MOST_POLLERS))
    }
}

/// By its task, if it runs in one of ECS: process ids are all alike there.
fn name(clock: &Clock, task: Option<&Task>) -> String {
    let task = task.map(|task| task.short() + "/").unwrap_or_default();
    format!("{task}{}-{}", std::process::id(), clock.token().get(..6).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{guard::memory::MemoryGuard, testing::MemoryBroker};

    fn polls(concurrency: usize, total: Option<usize>, queues: usize) -> (usize, usize) {
        let mut config = Config { total_concurrency: total, ..Config::default() };
        config.queues.extend((0..queues).map(|n| (n.to_string(), QueueConfig::new("q"))));
        let adapters: Adapters = (Arc::new(MemoryBroker::default()), Arc::new(MemoryGuard::default()), None);
        let site = Site::new(
            config,
            Handlers::new(),
            adapters,
            (Clock::simulated(1, 0), None),
            Arc::default(),
            None,
            Default::default(),
        );
        site.polls(concurrency)
    }

    #[tokio::test(start_paused = true)]
    async fn r6_polls_are_as_many_as_slots_can_use_and_never_hold_more_than_half_of_a_total() {
        assert_eq!(polls(1, None, 1), (1, 1));
        assert_eq!(polls(20, None, 3), (10, 2));
        assert_eq!(polls(100_000, None, 1), (10, MOST_POLLERS));
        assert_eq!(polls(20, Some(20), 2), (5, 1));
        assert_eq!(polls(20, Some(2), 2), (1, 1));
        assert_eq!(polls(1_000, Some(400), 2), (10, 10));
    }
}
