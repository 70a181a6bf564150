//! `leasehold demo`: everything in one process, nothing else installed.

use std::process::ExitCode;

/// See it work, with nothing else installed
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("the demonstration is not in this version")
}
