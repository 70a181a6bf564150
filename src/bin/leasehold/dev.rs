//! `leasehold dev`: SQS and DynamoDB in this process, with the queues of the environment and the handlers of the user.
//!
//! The worker is the real one, wired as `run` does. Everything is in memory, on loopback, and gone at the end. Must never
//! talk to AWS, whatever the environment says.

use std::process::ExitCode;

use anyhow::Context;
use leasehold::{
    Worker, WorkerError,
    aws::{self, Aws},
    config::{LogFormat, variables},
    embedded::{Engine, EngineError},
    guard::dynamodb::create_table,
    shutdown_signal,
};
use tokio::signal::{ctrl_c, unix};

use crate::{handlers::with_handlers, local, log as run_log};

use settings::Settings;

mod log;
mod settings;
mod words;

/// Receives after which the embedded SQS dead-letters a message by itself.
const MAX_RECEIVE_COUNT: u32 = 25;

pub(crate) const HELP: &str = "\
Examples:
  A queue, and a program that is run for each message:

    leasehold dev payments --key /id --handler 'exec:cat'

  An app that takes messages by HTTP, with Flask, Rails, Express or another:

    leasehold dev payments --key /id --handler http://127.0.0.1:5000/payments

  The queues and handlers of the environment, as `leasehold run` has them:

    leasehold dev

  Only queues and a table, for an app that polls by itself:

    leasehold dev payments

Exit codes:
  0   told to stop, and stopped cleanly
  64  the command line is wrong
  78  the configuration is wrong; every problem is on standard error, with a
      line that mends it
  1   anything else, such as a port that is taken";

/// Work on your queues with your handlers, with nothing else installed
///
/// SQS and DynamoDB run embedded in this process, on a loopback port; any AWS client can talk to them. The queues of the
/// environment, or the one that is named, are made with their dead-letter queues and the guard's table, and the real
/// worker runs the handlers. A queue that is set by URL or ARN has the last part of it as its name. State is in memory and
/// gone at the end. For development only: nothing here is checked for who asks.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The queue, if not all of LEASEHOLD_QUEUES; one whose name ends in .fifo is a FIFO queue
    pub(crate) queue: Option<String>,

    /// What names the work: a JSON pointer, or what else LEASEHOLD_<QUEUE>_KEY takes
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// What handles messages, as LEASEHOLD_<QUEUE>_HANDLER has it: exec:program args, or an app's URL
    #[arg(long, value_name = "HANDLER")]
    pub(crate) handler: Option<String>,

    /// The port for SQS and DynamoDB; 0 is any that is free
    #[arg(long, value_name = "PORT", default_value_t = local::PORT)]
    pub(crate) port: u16,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let vars = variables().map_err(WorkerError::Configuration)?;
    let settings = Settings::new(vars, &args).map_err(WorkerError::Configuration)?;
    if settings.config.log_format == Some(LogFormat::Json) {
        run_log::start(&settings.config.log, settings.config.log_format)?;
    } else {
        log::start(&settings.config.log)?;
    }
    let handled: Vec<_> = settings.config.queues.iter().filter(|(_, queue)| queue.handler.is_some()).collect();
    let handled: Vec<_> = handled.into_iter().map(|(name, _)| name.clone()).collect();
    let worker = with_handlers(Worker::new(settings.config.clone()).only(&handled))?;
    let problems = worker.problems();
    if !handled.is_empty() && !problems.is_empty() {
        return Err(WorkerError::Configuration(problems).into());
    }
    let shutdown = shutdown_signal()?;
    let engine = set_up(&settings, args.port).await?;
    words::tell(&settings, engine.endpoint())?;
    if handled.is_empty() {
        until_told().await?;
    } else {
        worker.aws(&aws::local(engine.endpoint())).run(shutdown).await?;
    }
    engine.stop().await;
    Ok(ExitCode::SUCCESS)
}

/// The engine, with everything that the settings name.
async fn set_up(settings: &Settings, port: u16) -> anyhow::Result<Engine> {
    let engine = Engine::start_on(port).await.map_err(|error| match error {
        EngineError::Listen(cause) => {
            let what = format!(
                "port {port} cannot be had, perhaps by another `leasehold dev`; --port 0 takes any that is free"
            );
            anyhow::Error::new(cause).context(what)
        }
        error => error.into(),
    })?;
    for (name, dead_letters) in settings.queues() {
        let dead_letters = dead_letters.as_deref().map(|dead| (dead, MAX_RECEIVE_COUNT));
        engine.create_queue(&name, dead_letters).await?;
    }
    let aws = Aws::new(&aws::local(engine.endpoint()));
    create_table(&aws.dynamodb(), &settings.config.table).await.context("the table could not be made")?;
    Ok(engine)
}

/// Waits for SIGINT or SIGTERM, where no worker does.
async fn until_told() -> anyhow::Result<()> {
    let mut terminate = unix::signal(unix::SignalKind::terminate())?;
    tokio::select! {
        // Each arm only waits.
        biased;
        told = ctrl_c() => told?,
        _ = terminate.recv() => {}
    }
    Ok(())
}
