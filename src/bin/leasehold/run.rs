//! `leasehold run`: the worker, configured by the environment, with the handlers that it names.
//!
//! Owns the order of the start. What is wrong is told by the worker, all at once; of AWS, what can be said without asking it
//! is told here.

use std::{convert::Infallible, process::ExitCode, sync::Arc, time::Duration};

use leasehold::{Worker, clock::Clock, config::HttpAddr, shutdown_signal, telemetry::emf::Emf};
use tokio::time::sleep;

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
    let emf = worker.config().and_then(|config| config.emf_namespace.as_ref()).map(Emf::new);
    if let Some(emf) = emf.clone() {
        worker = worker.recorder(Arc::new(emf));
    }
    let work = with_handlers(worker)?.health_at(HttpAddr::DEFAULT).run(shutdown);
    let ended = tokio::select! {
        // The work is the arm that ends; the other writes lines and holds nothing.
        biased;
        ended = work => ended,
        never = each_minute(emf.as_ref()) => match never {},
    };
    write(emf.as_ref());
    ended?;
    Ok(ExitCode::SUCCESS)
}

async fn each_minute(emf: Option<&Emf>) -> Infallible {
    loop {
        sleep(Duration::from_secs(60)).await;
        write(emf);
    }
}

fn write(emf: Option<&Emf>) {
    let lines = emf.map(|emf| emf.lines(Clock::system().wall().0)).unwrap_or_default();
    lines.iter().for_each(|line| log::line(line));
}
