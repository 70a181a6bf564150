//! What the tests here share: a handler whose behaviour is in the payload, and a book of what it did.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use leasehold::{
    CancelCause, Handler, HandlerError, HandlerResult, JobContext, ResultExt, Shutdown, Worker,
    testing::{Faults, FaultyBroker, FaultyGuard, TestBed},
};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout};
use tracing::{Dispatch, subscriber::NoSubscriber};

/// What a message asks of the handler.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Job {
    pub(crate) id: String,
    /// How long it takes.
    #[serde(default)]
    pub(crate) millis: u64,
    /// What it does on its first runs, in turn; after that it succeeds.
    #[serde(default)]
    pub(crate) first: Vec<Act>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Act {
    Fail,
    FailForGood,
    Panic,
    NotYet,
    Unavailable,
    Hang,
    /// Takes the step `charge`, then fails.
    ChargeThenFail,
}

/// One run, as the book has it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) fence: u64,
    /// Since the book was opened.
    pub(crate) began: Duration,
    /// `None` while it runs, or if it was cut off.
    pub(crate) ended: Option<Duration>,
    pub(crate) cancelled: Option<CancelCause>,
}

#[derive(Debug, Clone)]
pub(crate) struct Book {
    opened: Instant,
    runs: Arc<Mutex<Vec<Run>>>,
    charges: Arc<Mutex<Vec<String>>>,
}

impl Book {
    pub(crate) fn new() -> Self {
        Self { opened: Instant::now(), runs: Arc::default(), charges: Arc::default() }
    }

    pub(crate) fn runs(&self, id: &str) -> Vec<Run> {
        self.runs.lock().unwrap().iter().filter(|run| run.id == id).cloned().collect()
    }

    /// The seconds at which runs of an id began.
    pub(crate) fn began(&self, id: &str) -> Vec<u64> {
        self.runs(id).iter().map(|run| run.began.as_secs()).collect()
    }

    /// The downstream keys of the step `charge`, each time it really ran.
    pub(crate) fn charges(&self) -> Vec<String> {
        self.charges.lock().unwrap().clone()
    }

    /// Runs that ended by themselves, by id.
    pub(crate) fn completed(&self) -> BTreeMap<String, usize> {
        let mut completed = BTreeMap::new();
        for run in self.runs.lock().unwrap().iter().filter(|run| run.ended.is_some()) {
            *completed.entry(run.id.clone()).or_default() += 1;
        }
        completed
    }

    fn change(&self, index: usize, change: impl FnOnce(&mut Run)) {
        change(&mut self.runs.lock().unwrap()[index]);
    }

    fn begin(&self, job: &Job, cx: &JobContext) -> (usize, usize) {
        let mut runs = self.runs.lock().unwrap();
        let before = runs.iter().filter(|run| run.id == job.id).count();
        runs.push(Run {
            id: job.id.clone(),
            attempt: cx.attempt(),
            fence: cx.fence(),
            began: self.opened.elapsed(),
            ended: None,
            cancelled: None,
        });
        (runs.len() - 1, before)
    }
}

impl Handler for Book {
    type Payload = Job;

    async fn handle(&self, job: &Job, cx: &JobContext) -> HandlerResult {
        let (run, before) = self.begin(job, cx);
        let work = async {
            sleep(Duration::from_millis(job.millis)).await;
            match job.first.get(before) {
                None => Ok(()),
                Some(Act::Fail) => Err(HandlerError::new("it failed").reason("failing")),
                Some(Act::FailForGood) => Err("never").permanent().reason("hopeless"),
                Some(Act::Panic) => panic!("oh"),
                Some(Act::NotYet) => Err(HandlerError::new("later").not_yet(Duration::from_secs(7))),
                Some(Act::Unavailable) => Err("gone").unavailable(),
                Some(Act::Hang) => std::future::pending().await,
                Some(Act::ChargeThenFail) => {
                    cx.step("charge", async |key| {
                        self.charges.lock().unwrap().push(key.to_string());
                        Ok::<_, HandlerError>(())
                    })
                    .await?;
                    Err("after the charge")?
                }
            }
        };
        let result = tokio::select! {
            biased;
            result = work => result,
            cause = cx.cancelled().wait() => {
                self.change(run, |run| run.cancelled = Some(cause));
                return Err("cancelled")?;
            }
        };
        self.change(run, |run| run.ended = Some(self.opened.elapsed()));
        result
    }
}

/// A worker for the queue `jobs` with short settings that suit most tests; `vars` come on top.
pub(crate) fn worker(bed: &TestBed, book: &Book, vars: &[(&str, &str)]) -> Worker {
    let mut all = vec![
        ("LEASEHOLD_QUEUES", "jobs"),
        ("LEASEHOLD_KEY", "/id"),
        ("LEASEHOLD_VISIBILITY_TIMEOUT", "30s"),
        ("LEASEHOLD_BACKOFF", "10s..60s"),
    ];
    all.extend(vars);
    let vars: Vec<_> = all.iter().copied().collect::<BTreeMap<_, _>>().into_iter().collect();
    bed.worker(&vars).queue("jobs", book.clone())
}

/// The same worker with faults of its own: of the queue `jobs`, of its dead-letter queue, and of the guard.
pub(crate) fn apart(bed: &TestBed, worker: Worker) -> (Worker, [Faults; 3]) {
    let broker = FaultyBroker::new(Arc::new(bed.broker.clone()));
    let faults = [broker.faults("jobs"), broker.faults("jobs-dlq"), Faults::default()];
    let guard = FaultyGuard::new(Arc::new(bed.guard.clone()), faults[2].clone());
    (worker.adapters(Arc::new(broker), Arc::new(guard)), faults)
}

/// Told to stop so many seconds from now.
pub(crate) fn after(secs: u64) -> Shutdown {
    Shutdown::when(sleep(Duration::from_secs(secs)))
}

/// Runs a worker, and lets it crash after a while.
pub(crate) async fn crashes_after(time: Duration, worker: Worker) {
    timeout(time, worker.run(Shutdown::new())).await.expect_err("it runs until it crashes");
}

/// What is logged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn subscriber(&self) -> impl tracing::Subscriber + Send + Sync + 'static {
        let log = self.listening();
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || log.clone()).finish()
    }

    /// A JSON object for each line, spans included, from a level on.
    pub(crate) fn json(&self, level: tracing::Level) -> impl tracing::Subscriber + Send + Sync + 'static {
        let log = self.listening();
        let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_max_level(level);
        subscriber.with_writer(move || log.clone()).finish()
    }

    /// While a process has one subscriber only, what another test is the first to log is judged by that test's thread, which
    /// may have none, and is then logged nowhere. So there is always another.
    fn listening(&self) -> Self {
        static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));
        LazyLock::force(&ANOTHER);
        self.clone()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
