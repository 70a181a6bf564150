//! A long-lived worker among others that are killed, under mixed load: what it holds stays flat, and the books balance.
//!
//! SQS and DynamoDB are the embedded engine, in this process; workers are the real `leasehold run`. Handlers that are apps are
//! here too, and count. One worker lives from the first message to the last and is looked at every few seconds in `/proc`;
//! the others are killed with SIGKILL or stopped, at random, and started again. Exit code 1 if anything grew or was lost.
#![expect(clippy::print_stdout, reason = "a program that people and scripts read")]

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context;
use clap::Parser;
use leasehold::{
    aws::{self, Aws},
    embedded::Engine,
    guard::dynamodb::create_table,
};
use tokio::time::{Instant, sleep, timeout};

use crate::{app::App, books::Books, load::Load, watch::Watch, workers::Workers};

mod app;
mod books;
mod load;
mod watch;
mod workers;

/// How workers are soaked.
#[derive(Debug, Parser)]
struct Args {
    /// How long messages are sent.
    #[arg(long, env = "SOAK_SECONDS", default_value_t = 600)]
    seconds: u64,
    /// What is sent, and who is killed when, follows from this number.
    #[arg(long, env = "SOAK_SEED", default_value_t = 1)]
    seed: u64,
    /// Cargo says it to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The queues: with an app as handler, in order, and with a program.
const QUEUES: [&str; 3] = ["jobs", "orders.fifo", "tasks"];
const DEAD_LETTERS: [&str; 3] = ["jobs-dlq", "orders-dlq.fifo", "tasks-dlq"];
const TABLE: &str = "leasehold";

/// SQS dead-letters nothing by itself here: every dead letter is a worker's.
const MAX_RECEIVE_COUNT: u32 = 1000;

/// Nothing has moved for so long: what is left is lost. Longer than leases and back-offs of several takeovers.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/soak");
    std::fs::create_dir_all(&folder)?;
    let engine = Engine::start().await?;
    for (queue, dead_letters) in QUEUES.into_iter().zip(DEAD_LETTERS) {
        engine.create_queue(dead_letters, None).await?;
        engine.create_queue(queue, Some((dead_letters, MAX_RECEIVE_COUNT))).await?;
    }
    let aws = Aws::new(&aws::local(engine.endpoint()));
    create_table(&aws.dynamodb(), TABLE).await?;
    let app = App::open().await?;
    let effects = folder.join("effects");
    std::fs::write(&effects, "")?;
    println!("{} s of load with seed {}; samples and logs are in {}", args.seconds, args.seed, folder.display());

    let mut workers = Workers::start(&engine, &app, &folder)?;
    let mut watch = Watch::of(&workers.long_lived, Duration::from_secs((args.seconds / 120).max(1)));
    let mut load = Load::open(&aws, args.seed).await?;
    let ends_at = Instant::now() + Duration::from_secs(args.seconds);
    tokio::try_join!(load.send(&engine, ends_at), workers.harass(args.seed, ends_at), watch.until(ends_at),)?;
    let left = settled(&engine).await?;
    workers.stop().await?;

    let flat = told(watch.told(&folder)?);
    let books = Books::drawn_up(&aws, load, Arc::clone(&app.book), &effects, left, workers.killed).await?;
    let balanced = told(books.told());
    engine.stop().await;
    Ok(if flat && balanced { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says the figures and what is wrong with them; whether nothing is.
fn told((text, wrong): (String, Vec<String>)) -> bool {
    println!("{text}");
    wrong.iter().for_each(|wrong| println!("WRONG: {wrong}"));
    wrong.is_empty()
}

/// Waits until the queues are empty, or nothing has moved for too long; how many messages are left.
async fn settled(engine: &Engine) -> anyhow::Result<u64> {
    let (mut least, mut since) = (u64::MAX, Instant::now());
    loop {
        let left = depth(engine).await?;
        if left < least {
            (least, since) = (left, Instant::now());
        }
        if left == 0 || since.elapsed() > PATIENCE {
            return Ok(left);
        }
        sleep(Duration::from_millis(200)).await;
    }
}

async fn depth(engine: &Engine) -> anyhow::Result<u64> {
    let mut total = 0;
    for queue in QUEUES {
        total += engine.depth(queue).await?.total();
    }
    Ok(total)
}

/// So long may a worker take to stop.
const STOPS_WITHIN: Duration = Duration::from_secs(30);

/// Waits for a process that was told to stop, and for exit code 0.
async fn stops(child: &mut tokio::process::Child, name: &str) -> anyhow::Result<()> {
    let status = timeout(STOPS_WITHIN, child.wait()).await.with_context(|| format!("{name} does not stop"))??;
    anyhow::ensure!(status.success(), "{name} ended with {status}; its log says more");
    Ok(())
}
