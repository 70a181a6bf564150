//! What Leasehold costs beside a bare loop on the same SDK: messages a second, CPU and API calls a message, memory.
//!
//! Every measurement has an engine and a subject, each in a process of its own (this binary, started again with a role),
//! so that CPU and memory are the subject's alone. Rounds go through all subjects in turn, and medians are told: what
//! else the machine does meets all of them alike. Relies on Linux's `/proc`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that people and scripts read")]

use anyhow::Context;
use clap::{Parser, Subcommand};
use leasehold::clock::Clock;

use crate::{processes::measure, report::Report, subject::Subject};

mod bare;
mod engine;
mod large;
mod processes;
mod report;
mod subject;
mod usage;

/// Measures Leasehold beside a bare loop on the same SDK, on the embedded engine.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// How often everything is measured.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only subjects whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Times as many messages as usual.
    #[arg(long, default_value_t = 1)]
    scale: usize,
    /// Cargo says it to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Serves a queue that is full, until standard input ends.
    #[command(hide = true)]
    Engine { messages: usize, bytes: usize },
    /// Works the queue off, and tells what that took.
    #[command(hide = true)]
    Subject { name: Subject, endpoint: String, messages: usize, started: u64 },
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match args.role {
        Some(Role::Engine { messages, bytes }) => {
            tokio::runtime::Runtime::new()?.block_on(engine::serve(messages, bytes))
        }
        Some(Role::Subject { name, endpoint, messages, started }) => {
            // One thread for everybody: what is compared is the work, not how it spreads.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let measured = runtime.block_on(subject::run(name, &endpoint, messages, started))?;
            println!("{}", serde_json::to_string(&measured)?);
            Ok(())
        }
        None => compare(&args),
    }
}

fn compare(args: &Args) -> anyhow::Result<()> {
    let wanted = |subject: &Subject| args.only.as_ref().is_none_or(|part| subject.name().contains(part.as_str()));
    let subjects: Vec<_> = Subject::ALL.into_iter().filter(wanted).collect();
    anyhow::ensure!(!subjects.is_empty(), "no subject is called so");
    anyhow::ensure!(args.rounds > 0, "--rounds takes a number from 1 on");
    let clock = Clock::system();
    let mut report = Report::default();
    for round in 1..=args.rounds {
        for subject in &subjects {
            eprintln!("round {round} of {}: {}", args.rounds, subject.name());
            let measured = measure(*subject, args.scale, &clock).with_context(|| subject.name())?;
            report.add(*subject, measured);
        }
    }
    println!("{report}");
    println!("{}", report.json());
    Ok(())
}
