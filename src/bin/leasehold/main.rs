//! The `leasehold` command: arguments, the runtime, exit codes.
//!
//! A command does its work in a file of its own and answers with an exit code, or with an error that is told here. What
//! can be said of a worker is said by the library; nothing is decided here.

#[cfg(not(unix))]
compile_error!("the leasehold command needs Unix signals and process groups");

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, Subcommand};
use leasehold::{WorkerError, guard::GuardError, ops::OpsError};
use tokio::runtime::Runtime;

mod config;
#[cfg(feature = "demo")]
mod demo;
#[cfg(feature = "demo")]
mod dev;
mod dlq;
mod doctor;
mod guard;
mod handlers;
mod health;
mod help;
mod local;
mod log;
#[cfg(feature = "otel")]
mod otel;
mod pause;
mod run;
mod send;
mod words;

/// An SQS worker that makes each piece of work take effect once, although every message can be delivered twice.
#[derive(Debug, Parser)]
#[command(version, after_long_help = help::command())]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(after_long_help = help::run())]
    Run(run::Args),
    #[command(after_long_help = help::pause())]
    Pause(pause::PauseArgs),
    #[command(after_long_help = help::resume())]
    Resume(pause::ResumeArgs),
    #[command(after_long_help = help::doctor())]
    Doctor(doctor::Args),
    Dlq(Box<dlq::Args>),
    #[command(after_long_help = help::guard())]
    Guard(Box<guard::Args>),
    #[command(after_long_help = config::HELP)]
    Config(config::Args),
    #[command(after_long_help = send::HELP)]
    Send(Box<send::Args>),
    #[command(after_long_help = health::HELP)]
    Health(health::Args),
    #[cfg(feature = "demo")]
    #[command(after_long_help = dev::HELP)]
    Dev(dev::Args),
    #[cfg(feature = "demo")]
    Demo(demo::Args),
}

/// Exit codes of `sysexits.h`, as supervisors and scripts know them; 1 is everything else.
mod exit {
    pub(crate) const USAGE: u8 = 64;
    pub(crate) const UNAVAILABLE: u8 = 69;
    pub(crate) const CONFIGURATION: u8 = 78;
}

/// An error that has an exit code of its own.
#[derive(Debug, thiserror::Error)]
#[error("{told}")]
struct Ended {
    code: u8,
    told: String,
}

/// The command was not used as it can be.
fn usage(problem: &str) -> anyhow::Error {
    Ended { code: exit::USAGE, told: problem.to_owned() }.into()
}

/// How long tasks that are left over may take to be dropped, and with them the programs they run; then the last spans and
/// metrics to be sent; and then the last lines of the log to be written. A thread that ignores its cancellation is not waited for any longer, nor is a log that nobody
/// reads.
const LAST_MOMENT: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => {
            // Standard output for `--help`, standard error for the rest; one that is closed is nobody to tell.
            let _ = error.print();
            return if error.use_stderr() { exit::USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow::Error::new(error).context("no threads can be had")),
    };
    let outcome = runtime.block_on(async {
        match command {
            Command::Run(args) => run::run(args).await,
            Command::Pause(args) => pause::pause(args).await,
            Command::Resume(args) => pause::resume(args).await,
            Command::Doctor(args) => doctor::run(args).await,
            Command::Dlq(args) => dlq::run(*args).await,
            Command::Guard(args) => guard::run(*args).await,
            Command::Config(args) => config::run(&args),
            Command::Send(args) => send::run(*args).await,
            Command::Health(args) => health::run(args).await,
            #[cfg(feature = "demo")]
            Command::Dev(args) => dev::run(args).await,
            #[cfg(feature = "demo")]
            Command::Demo(args) => demo::run(args).await,
        }
    });
    runtime.shutdown_timeout(LAST_MOMENT);
    #[cfg(feature = "otel")]
    otel::flush(LAST_MOMENT);
    log::flush(LAST_MOMENT);
    outcome.unwrap_or_else(|error| failed(&error))
}

/// Tells an error to whoever reads standard error, and what it is to whoever started the process.
fn failed(error: &anyhow::Error) -> ExitCode {
    // Errors have words from outside in them, and lines of their own.
    let _ = writeln!(io::stderr(), "leasehold: {}", words::plain_lines(&format!("{error:#}")));
    if let Some(Ended { code, .. }) = error.downcast_ref() {
        return (*code).into();
    }
    match error.downcast_ref::<WorkerError>() {
        Some(WorkerError::Configuration(_)) => exit::CONFIGURATION.into(),
        Some(WorkerError::Unavailable(_)) => exit::UNAVAILABLE.into(),
        _ if error.downcast_ref().is_some_and(GuardError::is_transient) => exit::UNAVAILABLE.into(),
        _ if error.downcast_ref().is_some_and(OpsError::is_transient) => exit::UNAVAILABLE.into(),
        _ if matches!(error.downcast_ref(), Some(OpsError::Configuration(_))) => exit::CONFIGURATION.into(),
        _ => ExitCode::FAILURE,
    }
}
