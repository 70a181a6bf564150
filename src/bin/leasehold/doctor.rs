//! `leasehold doctor`: what does not fit, why it matters, and the line that mends it.
//!
//! Owns what is asked for, a running worker's word on how long handlers take, and how it is told. What is looked at and
//! judged is [`Ops::doctor`]'s business.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Write},
    process::ExitCode,
    str::FromStr,
    time::Duration,
};

use anyhow::Context;
use leasehold::{
    config::DurationText,
    ops::{
        Ops,
        doctor::{Ask, Finding, P99, P99Source, Report, Severity},
    },
    queue::QueueAddress,
};
use serde::Deserialize;

use crate::{
    exit, health,
    words::{json, plain},
};

/// Tell what does not fit: queues, dead-letter queues, table, rights, settings
///
/// Looks at everything that a worker with these variables would use, tries what it must be allowed to do by calls that can
/// do nothing, and judges it together. Each finding comes with why it matters and a line that mends it. Changes nothing, but for the item #probe in the
/// table.
///
/// Where queues or the table are not there, it prints the lines that make them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names from LEASEHOLD_QUEUES; where that is not set, names in SQS. All of LEASEHOLD_QUEUES unless named
    #[arg(value_name = "QUEUE")]
    queues: Vec<String>,

    /// How long 99 of 100 handlers take at the most, of all queues or of one. Unless given, a running worker is asked
    #[arg(long, value_name = "[QUEUE=]DURATION")]
    p99: Vec<GivenP99>,

    /// How long whoever stops the worker waits before it kills it: `stopTimeout` of ECS,
    /// `terminationGracePeriodSeconds` of Kubernetes
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    stop_timeout: DurationText,

    /// The table is a global table, and workers of one region alone write to it
    #[arg(long)]
    one_writer_region: bool,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// `30s`, or `payments=30s`.
#[derive(Debug, Clone)]
struct GivenP99 {
    queue: Option<String>,
    time: Duration,
}

impl FromStr for GivenP99 {
    type Err = leasehold::config::ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (queue, time) = match text.split_once('=') {
            Some((queue, time)) => (Some(queue.to_owned()), time),
            None => (None, text),
        };
        let DurationText(time) = time.parse()?;
        Ok(Self { queue, time })
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (ops, warnings) = Ops::from_env().await?;
    for warning in warnings {
        let _ = writeln!(io::stderr(), "leasehold: {warning}");
    }
    let known = &ops.config().queues;
    let names: Vec<String> = match args.queues.as_slice() {
        [] => known.keys().cloned().collect(),
        // By whatever address, a queue that is configured nowhere goes by its name in SQS.
        named if known.is_empty() => named.iter().map(|named| name_in_sqs(named)).collect(),
        named => named.to_vec(),
    };
    if let Some(stranger) = args.p99.iter().filter_map(|given| given.queue.as_ref()).find(|name| !names.contains(name))
    {
        // Standard error that is closed leaves nobody to tell.
        let _ =
            writeln!(io::stderr(), "error: --p99 names {stranger:?}, which is none of the queues that are looked at");
        return Ok(exit::USAGE.into());
    }
    let mut ask = Ask::default();
    ask.p99 = p99(&names, &args.p99).await;
    ask.queues = args.queues;
    ask.stop_timeout = args.stop_timeout.0;
    ask.one_writer_region = args.one_writer_region;
    let report = ops.doctor(&ask).await?;
    let text = if args.json { json(&serde_json::to_string_pretty(&report)?) + "\n" } else { told(&report) };
    io::stdout().write_all(text.as_bytes()).context("standard output")?;
    Ok(if !report.reached {
        exit::UNAVAILABLE.into()
    } else if report.count(Severity::Error) > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn name_in_sqs(address: &str) -> String {
    address.parse::<QueueAddress>().map_or_else(|_| address.to_owned(), |address| address.queue_name().to_owned())
}

/// As given, for one queue before for all; else as a running worker has measured it.
async fn p99(queues: &[String], given: &[GivenP99]) -> BTreeMap<String, P99> {
    let of = |name: Option<&str>| given.iter().rev().find(|given| given.queue.as_deref() == name);
    let of_queue = |name: &str| of(Some(name)).or_else(|| of(None)).map(|given| given.time);
    let mut p99 = BTreeMap::new();
    for name in queues {
        p99.extend(of_queue(name).map(|time| (name.clone(), P99 { time, source: P99Source::Given })));
    }
    if queues.iter().all(|name| p99.contains_key(name)) {
        return p99;
    }
    for (name, time) in measured().await {
        let measured = P99 { time, source: P99Source::Measured };
        if queues.contains(&name) {
            p99.entry(name).or_insert(measured);
        }
    }
    p99
}

/// What the worker at `LEASEHOLD_HTTP_ADDR` has measured, if there is one and it has.
async fn measured() -> Vec<(String, Duration)> {
    #[derive(Deserialize)]
    struct Worker {
        queues: BTreeMap<String, Queue>,
    }
    #[derive(Deserialize)]
    struct Queue {
        handler_p99_ms: Option<u64>,
    }
    let Some(text) = health::of_running_worker().await else { return Vec::new() };
    let Ok(worker) = serde_json::from_str::<Worker>(&text) else { return Vec::new() };
    let times = worker.queues.into_iter();
    times.filter_map(|(name, queue)| Some((name, Duration::from_millis(queue.handler_p99_ms?)))).collect()
}

/// For a person. Names and errors come from outside. Writing to a string cannot fail.
fn told(report: &Report) -> String {
    let mut text = String::new();
    let mut subject = None;
    for finding in &report.findings {
        if subject != Some(&finding.subject) {
            let _ = writeln!(text, "{}", plain(&finding.subject.to_string()));
            subject = Some(&finding.subject);
        }
        let Finding { severity, check, found, why, mend, .. } = finding;
        let _ = writeln!(text, "  {severity} [{check}]: {}", plain(found));
        let _ = writeln!(text, "    why: {why}");
        if let Some(mend) = mend {
            let _ = writeln!(text, "    mend: {}", plain(mend));
        }
        text.push('\n');
    }
    if !report.create.is_empty() {
        text.push_str("To make what is not there:\n\n");
        for line in &report.create {
            let _ = writeln!(text, "{}", plain(line));
        }
        text.push('\n');
    }
    for (queue, P99 { time, source }) in &report.p99 {
        let source = match source {
            P99Source::Measured => "measured by the running worker",
            _ => "given",
        };
        let _ = writeln!(text, "p99 of handler time of {}: {} ({source})", plain(queue), DurationText(*time));
    }
    let counts = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Note, "note")]
        .map(|(severity, word)| counted(report.count(severity), word));
    let _ = writeln!(text, "{} passed; {}", counted(report.passed, "check"), counts.join(", "));
    text
}

fn counted(number: usize, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}
