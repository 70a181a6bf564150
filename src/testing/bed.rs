//! Queues, a guard and faults in one place, and workers on top of them.
//!
//! Everything is in memory, on tokio's time, and shared by its clones; two beds know nothing of each other.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::sleep;

use crate::{
    clock::Clock,
    config::Config,
    guard::{Guard, memory::MemoryGuard},
    ops::{Ops, OpsError},
    queue::{Outgoing, memory::MemoryQueue, usual_dead_letter_name},
    settle::dead_letter::Note,
    shutdown::Shutdown,
    worker::Worker,
};

use super::{Faults, FaultyBodies, FaultyBroker, FaultyGuard, MemoryBodies, MemoryBroker, MemoryQueueSettings};

/// An account in memory, and workers on it.
///
/// ```
/// # use leasehold::{HandlerResult, JobContext, Raw, Handler, Shutdown, handler, testing::TestBed};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let bed = TestBed::new(&["payments"]);
/// bed.send("payments", r#"{"id":"p1"}"#);
/// bed.send("payments", r#"{"id":"p1"}"#);
/// let worker = bed
///     .worker(&[("LEASEHOLD_QUEUES", "payments"), ("LEASEHOLD_KEY", "/id")])
///     .queue("payments", handler(async |_: &Raw, _: &JobContext| Ok(())));
/// let report = worker.run(bed.until_idle()).await.expect("the configuration is right");
/// assert_eq!((report.done, report.suppressed), (1, 1));
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct TestBed {
    /// The account's queues. Queue `q` has the dead-letter queue `q-dlq`.
    pub broker: MemoryBroker,
    /// The guard's table.
    pub guard: MemoryGuard,
    /// Faults of the guard, for all workers of the bed.
    pub guard_faults: Faults,
    /// Bodies that are not in their messages.
    pub bodies: MemoryBodies,
    /// Faults of theirs, for all workers of the bed.
    pub body_faults: Faults,
    queues: Arc<FaultyBroker>,
    /// Locked for single look-ups.
    names: Arc<Mutex<Vec<String>>>,
}

/// Receives after which a message goes to the dead-letter queue by itself: out of the way of most tests.
const MAX_RECEIVE_COUNT: u32 = 100;

impl TestBed {
    /// With these queues and a dead-letter queue for each. Names that end in `.fifo` are FIFO.
    #[must_use]
    pub fn new(queues: &[&str]) -> Self {
        let broker = MemoryBroker::default();
        let bed = Self {
            queues: Arc::new(FaultyBroker::new(Arc::new(broker.clone()))),
            broker,
            guard: MemoryGuard::default(),
            guard_faults: Faults::default(),
            bodies: MemoryBodies::default(),
            body_faults: Faults::default(),
            names: Arc::default(),
        };
        for name in queues {
            bed.add(name, MAX_RECEIVE_COUNT);
        }
        bed
    }

    /// Adds a queue whose messages go to its dead-letter queue after that many receives.
    pub fn add(&self, name: &str, max_receive_count: u32) {
        let dead = Self::dead_letter_name(name);
        self.broker.create(&dead, MemoryQueueSettings::default());
        let redrive = Some((dead, max_receive_count));
        self.broker.create(name, MemoryQueueSettings { redrive, ..MemoryQueueSettings::default() });
        self.names.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
    }

    /// Faults of a queue, for all workers of the bed.
    #[must_use]
    pub fn queue_faults(&self, name: &str) -> Faults {
        self.queues.faults(name)
    }

    /// The name of a queue's dead-letter queue here.
    #[must_use]
    pub fn dead_letter_name(queue: &str) -> String {
        usual_dead_letter_name(queue)
    }

    /// One of the queues.
    #[must_use]
    pub fn queue(&self, name: &str) -> Arc<MemoryQueue> {
        self.broker.queue(name)
    }

    /// Sends a message; its id comes back. `None` if the queue refuses it, or has dropped it as a duplicate.
    pub fn send(&self, queue: &str, body: impl Into<String>) -> Option<String> {
        let group = queue.ends_with(".fifo").then(|| "group".to_owned());
        let body = body.into();
        let deduplication_id = group.is_some().then(|| body.clone());
        self.queue(queue).put(Outgoing { body, group, deduplication_id, ..Outgoing::default() })
    }

    /// What is dead-lettered from a queue: body, and the reason where a worker gave one.
    #[must_use]
    pub fn dead(&self, queue: &str) -> Vec<(String, Option<Note>)> {
        let messages = self.queue(&Self::dead_letter_name(queue)).messages();
        messages.into_iter().map(|message| (message.body, message.dead_letter)).collect()
    }

    /// A worker on this account, configured by these variables.
    pub fn worker(&self, vars: &[(&str, &str)]) -> Worker {
        self.worker_with(vars, self.broker.clock().clone())
    }

    /// As [`worker`](Self::worker), with a clock of its own.
    pub fn worker_with(&self, vars: &[(&str, &str)], clock: Clock) -> Worker {
        let guard: Arc<dyn Guard> = Arc::new(self.guard.clone());
        Worker::from_vars(vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
            .adapters(
                Arc::<FaultyBroker>::clone(&self.queues),
                Arc::new(FaultyGuard::new(guard, self.guard_faults.clone())),
            )
            .bodies(Arc::new(FaultyBodies::new(Arc::new(self.bodies.clone()), self.body_faults.clone())))
            .clock(clock)
    }

    /// Tools for operators on this account, configured by these variables.
    ///
    /// # Errors
    /// [`OpsError::Configuration`] with everything that is wrong with them.
    pub fn ops(&self, vars: &[(&str, &str)]) -> Result<Ops, OpsError> {
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let (config, _) = Config::from_vars_for_tools(vars).map_err(OpsError::Configuration)?;
        let guard = Arc::new(FaultyGuard::new(Arc::new(self.guard.clone()), self.guard_faults.clone()));
        Ok(Ops::with_adapters(config, Arc::<FaultyBroker>::clone(&self.queues), guard, self.broker.clock().clone()))
    }

    /// A shutdown that drains when every queue is empty, dead-letter queues apart.
    #[must_use]
    pub fn until_idle(&self) -> Shutdown {
        /// Between two looks, in (paused) time.
        const LOOK: Duration = Duration::from_millis(100);
        let bed = self.clone();
        Shutdown::when(async move {
            while !bed.is_idle() {
                sleep(LOOK).await;
            }
        })
    }

    fn is_idle(&self) -> bool {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).iter().all(|name| self.queue(name).is_empty())
    }
}
