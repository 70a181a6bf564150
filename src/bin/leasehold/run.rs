//! `leasehold run`: the worker, configured by the environment, with the handlers that it names.
//!
//! Owns the order of the start. What is wrong is told by the worker, all at once; of AWS, what can be said without asking it
//! is told here.

use std::process::ExitCode;

use leasehold::{Worker, config::HttpAddr, shutdown_signal};

use crate::{handlers::with_handlers, log};

/// Work on the queues until told to stop
///
/// Receives messages, runs a program or calls an app for each, and makes sure that each piece of work takes effect once.
/// Configured by environment variables. SIGTERM or SIGINT drains: nothing new is taken, what runs may finish, the rest is
/// given back; a second one stops at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Work on these of the configured queues only
    #[arg(long, value_name = "QUEUE", value_delimiter = ',')]
    only: Vec<String>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    // First of all, so that a signal during the start stops the worker and does not kill the process.
    let shutdown = shutdown_signal()?;
    let mut worker = Worker::from_env();
    if !args.only.is_empty() {
        worker = worker.only(&args.only);
    }
    // Without a configuration there is nothing to log but its problems, and they come back as the error.
    if let Some(config) = worker.config() {
        log::start(&config.log, config.log_format)?;
    }
    with_handlers(worker)?.health_at(HttpAddr::DEFAULT).run(shutdown).await?;
    Ok(ExitCode::SUCCESS)
}
