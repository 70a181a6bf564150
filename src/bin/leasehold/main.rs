//! The `leasehold` command.

use std::process::ExitCode;

use clap::Parser;

#[cfg(feature = "demo")]
mod demo;

/// An SQS worker that makes each piece of work take effect once.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version)]
enum Command {
    /// Show what it does, with nothing else installed.
    #[cfg(feature = "demo")]
    Demo(demo::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    match Command::parse() {
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::run(args).await,
    }
}
