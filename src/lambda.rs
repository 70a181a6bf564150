//! The same worker under AWS Lambda: the event source mapping of SQS receives and deletes, an invocation brings a batch.
//!
//! A batch is answered with the ids of exactly those records that are to come again. Acts on settlements in its own way: it
//! deletes nothing, and never waits, for time is paid and short. Every record is to come again until it is known that it is
//! not, so that what is cut off is never lost. Nothing runs and no call is made between two invocations.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Write as _},
    sync::Arc,
};

use lambda_runtime::{LambdaEvent, service_fn};
use tokio::sync::Mutex;

pub use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};

use crate::{
    clock::Millis,
    config::{Problem, env},
    telemetry::emf::Emf,
    worker::{Checked, Worker, WorkerError, hall::Hall, site::Site},
};

use batch::{Batch, Share};
use record::Record;
use time::Time;

mod batch;
mod record;
mod suits;
mod time;

/// Works on the queues of `worker` as a Lambda function, for as long as Lambda keeps this environment.
///
/// The function needs an event source mapping for each queue, with `ReportBatchItemFailures`. Everything is looked at once,
/// before the first invocation, as [`Worker::run`] does; what is found is kept as long as the environment is.
///
/// # Errors
/// The configuration is wrong or AWS cannot be reached, and Lambda then starts another environment; this is not Lambda; or
/// Lambda's own interface failed.
///
/// # Cancel safety
/// Not cancel safe: dropped, it leaves what it had in hand to the queue's visibility timeout.
pub async fn run(worker: Worker) -> Result<(), LambdaError> {
    if !env::is_lambda() {
        return Err(LambdaError::NotLambda);
    }
    let function = Function::new(worker).await?;
    let answer = async |event: LambdaEvent<SqsEvent>| {
        let (event, context) = event.into_parts();
        function.answer(event, Millis(context.deadline)).await.map_err(lambda_runtime::Error::from)
    };
    lambda_runtime::run(service_fn(answer)).await.map_err(LambdaError::Runtime)
}

/// Why a function did not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LambdaError {
    /// The program was not started by Lambda.
    #[error("this is not Lambda: AWS_LAMBDA_RUNTIME_API is not set; `Worker::run` runs the same worker elsewhere")]
    NotLambda,
    /// The worker could not start.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// Lambda's interface did not answer as it should.
    #[error("Lambda's runtime interface failed: {0}")]
    Runtime(#[source] lambda_runtime::Error),
}

/// An event that was not answered, since it is none of SQS's. Nothing of it was run.
#[derive(Debug, thiserror::Error)]
#[error(
    "record {0} of the event has no messageId, no receiptHandle or no eventSourceARN: the function must be invoked by an \
     event source mapping of an SQS queue"
)]
pub struct NotFromSqs(pub(crate) usize);

/// A worker that answers events: what [`run`] runs, for programs that bring a Lambda runtime of their own, and for tests.
pub struct Function {
    site: Arc<Site>,
    /// By the names that the queues have in SQS.
    halls: BTreeMap<String, Arc<Hall>>,
    /// When operators' word on each queue was last looked at. An invocation at a time: two would share one circuit's probes.
    heeded: Mutex<BTreeMap<String, Millis>>,
    /// What was counted and is not written yet, where CloudWatch is to read it.
    emf: Option<Emf>,
}

impl Function {
    /// Looks at everything that a start depends on.
    ///
    /// # Errors
    /// As [`Worker::run`]; also settings that cannot be kept under Lambda.
    pub async fn new(worker: Worker) -> Result<Self, WorkerError> {
        let emf = worker.config().and_then(|config| config.emf_namespace.as_ref()).map(Emf::new);
        let worker = emf.iter().fold(worker, |worker, emf| worker.recorder(Arc::new(emf.clone())));
        let Checked { site, halls, .. } = worker.checked(suits::suit).await?;
        let at_sqs = |hall: &Hall| hall.jobs.config.address.queue_name().to_owned();
        let halls = halls.into_iter().map(|hall| (at_sqs(&hall), hall)).collect();
        Ok(Self { site, halls, heeded: Mutex::default(), emf })
    }

    /// Answers one event within its deadline, in milliseconds since the Unix epoch: which records are to come again. What
    /// comes of one record is nothing to the others, but that a FIFO group stops at the first that is to come again.
    ///
    /// # Errors
    /// It is no event of SQS's.
    ///
    /// # Cancel safety
    /// Dropped, it is a crash: the batch comes again when its visibility timeout ends.
    pub async fn answer(&self, event: SqsEvent, deadline: Millis) -> Result<SqsBatchResponse, NotFromSqs> {
        let records = record::read(event)?;
        let ids: Vec<String> = records.iter().map(|record| record.received.message.id.clone()).collect();
        let mut heeded = self.heeded.lock().await;
        let time = Time::until(deadline, &self.site.clock, self.site.config.cancel_grace);
        let done = Batch::new(&self.site, time).work_off(self.shares(records), &mut heeded).await;
        let mut response = SqsBatchResponse::default();
        let mut returned: Vec<&String> = Vec::new();
        for (_, id) in ids.iter().enumerate().filter(|(number, _)| !done.contains(number)) {
            if !returned.contains(&id) {
                returned.push(id);
                response.add_failure(id);
            }
        }
        self.tell(ids.len(), returned.len());
        Ok(response)
    }

    /// What the batch brings of each queue. Records of one that nobody knows here are told and come again: the mapping is
    /// wrong, or the configuration, and a message must not be lost for that.
    fn shares(&self, records: Vec<Record>) -> Vec<Share> {
        let (mut shares, mut unknown) = (BTreeMap::<String, Share>::new(), Vec::new());
        for (place, record) in records.into_iter().enumerate() {
            let name = record.queue_name().to_owned();
            match self.halls.get(&name) {
                Some(hall) => {
                    let share = Share { hall: Arc::clone(hall), records: Vec::new() };
                    shares.entry(name).or_insert(share).records.push((place, record));
                }
                None if unknown.contains(&record.arn) => {}
                None => {
                    tracing::error!("{}", self.unknown(&record.arn, &name));
                    unknown.push(record.arn);
                }
            }
        }
        shares.into_values().collect()
    }

    fn unknown(&self, arn: &str, name: &str) -> Problem {
        let queues = &self.site.config.queues;
        if let Some((ours, _)) = queues.iter().find(|(_, queue)| queue.address.queue_name() == name) {
            let what =
                format!("a batch of {arn} comes again: the queue {ours:?} was not started, for the reason told then");
            return Problem::new(what, "LEASEHOLD_START=strict");
        }
        let known: Vec<_> = queues.keys().map(String::as_str).chain([name]).collect();
        let what =
            format!("a batch of {arn} comes again: LEASEHOLD_QUEUES names no queue that is called {name:?} in SQS");
        Problem::new(what, format!("LEASEHOLD_QUEUES={}", known.join(",")))
    }

    /// Tells of an invocation before its answer, after which the environment may stand still.
    fn tell(&self, records: usize, returned: usize) {
        let stuck: usize = self.halls.values().map(|hall| hall.jobs.stuck.count()).sum();
        tracing::debug!(records, returned, stuck, "answered");
        if stuck > 0 {
            tracing::error!(stuck, "handlers that ignore their cancellation go on whenever this environment does");
        }
        let lines = self.emf.iter().flat_map(|emf| emf.lines(self.site.clock.wall().0));
        let text: String = lines.map(|line| line + "\n").collect();
        // In one write, between lines of the log. Nobody can be told that nobody listens.
        let _ = io::stdout().write_all(text.as_bytes());
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("queues", &self.halls.keys()).finish_non_exhaustive()
    }
}
