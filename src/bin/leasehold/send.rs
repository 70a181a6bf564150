//! `leasehold send`: messages from arguments, a file or standard input, into a queue of SQS or of `leasehold dev`.
//!
//! Owns which queue a name means, what options fit together, and what an end is worth as an exit code. The settings of
//! handlers do not concern it: it needs no configuration where the queue's own name is given.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context;
use leasehold::{
    Config, Problem, WorkerError,
    aws::{self, Aws},
    config::{ValueError, variables},
    queue::{Broker, Queue, QueueAddress, QueueError},
};
use tokio::signal::ctrl_c;
use tokio_util::sync::CancellationToken;

use crate::{Ended, exit, local};

use options::{Input, is_fifo};
use sending::{Cut, Form, Sent, told};
use show::Show;
use source::Source;

mod attribute;
mod options;
mod sending;
mod show;
mod source;

pub(crate) use options::{Args, HELP};

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Err(problem) = args.check(io::stdin().is_terminal()) {
        show::usage(&problem);
        return Ok(exit::USAGE.into());
    }
    let address = address(&args)?;
    if let Err(problem) = args.check_for(&address) {
        show::usage(&problem);
        return Ok(exit::USAGE.into());
    }
    let source = match args.input() {
        Input::Arguments(bodies) => Source::arguments(bodies),
        Input::Standard => Source::standard_input(args.whole),
        Input::File(path) => {
            let open = Source::file(&path, args.whole).await;
            open.with_context(|| format!("{} cannot be read", path.display()))?
        }
    };
    let queue = open(&args, &address).await?;
    let form = Form { outgoing: args.outgoing(), fifo: is_fifo(&address), repeat: args.repeat };
    let (show, enough) = (Show::new(args.json, source.unit()), CancellationToken::new());
    let sending =
        sending::send(&queue, source, &form, &enough, |number, why| show.failed(number, why), |n| show.sent(n));
    let sent = tokio::select! {
        // The work is the arm that ends. A second Ctrl-C drops what is on the wire: whether that arrives is unknown.
        biased;
        sent = sending => sent,
        () = told_twice(&enough, &show) => return Ok(ExitCode::FAILURE),
    };
    show.ended(&args.queue, &sent)?;
    verdict(sent, &address, &args)
}

/// Tells that it is enough at the first Ctrl-C, and ends at the second.
async fn told_twice(enough: &CancellationToken, show: &Show) {
    for told in ["Ctrl-C: what is on the wire is waited for (again: it is not)", "Ctrl-C: stopped"] {
        if ctrl_c().await.is_err() {
            return std::future::pending().await;
        }
        enough.cancel();
        show.event(told);
    }
}

/// A configured queue's address by its name there, or else what is a name, a URL or an ARN itself.
fn address(args: &Args) -> Result<QueueAddress, WorkerError> {
    let vars = variables().map_err(WorkerError::Configuration)?;
    let configured = if vars.contains_key("LEASEHOLD_QUEUES") {
        let (config, _) = Config::from_vars(vars).map_err(WorkerError::Configuration)?;
        config.queues.get(&args.queue).map(|queue| queue.address.clone())
    } else {
        None
    };
    let address = match configured {
        Some(address) => address,
        None => args.queue.parse().map_err(|error: ValueError| {
            let mend = format!("leasehold send {} …", error.instead);
            WorkerError::Configuration(vec![Problem::new(error.what, mend)])
        })?,
    };
    Ok(if args.endpoint_url.as_ref().is_some_and(local::is_here) { local::address(&address) } else { address })
}

async fn open(args: &Args, address: &QueueAddress) -> Result<Arc<dyn Queue>, Ended> {
    let sdk = match &args.endpoint_url {
        Some(endpoint) => aws::at(endpoint.as_str()).await,
        None => aws::load().await,
    };
    if let Some(problem) = aws::problems(&sdk).into_iter().next() {
        return Err(Ended { code: exit::CONFIGURATION, told: problem.to_string() });
    }
    let broker = Aws::new(&sdk).sqs();
    broker.open(address).await.map_err(|error| match (&error, broker.looks_in(address)) {
        (QueueError::Missing, Some(place)) if args.endpoint_url.is_none() => missing(address, &format!(" in {place}")),
        _ => not_usable(&error, address, args),
    })
}

fn missing(address: &QueueAddress, place: &str) -> Ended {
    let what = format!("there is no queue {address}{place}, or the credentials may not see it");
    let mend =
        "its URL instead, in whatever region and account it is; AWS_REGION and AWS_PROFILE as for every AWS tool";
    Ended { code: exit::CONFIGURATION, told: Problem::new(what, mend).to_string() }
}

/// A queue that cannot be sent to, whatever the message.
fn not_usable(error: &QueueError, address: &QueueAddress, args: &Args) -> Ended {
    let place = args.endpoint_url.as_ref().map(|endpoint| format!(" at {endpoint}")).unwrap_or_default();
    let is_here = args.endpoint_url.as_ref().is_some_and(local::is_here);
    let (what, mend) = match error {
        error if error.is_transient() => {
            let told = format!("the queue {address}{place} does not answer: {}", told(error));
            return Ended { code: exit::UNAVAILABLE, told };
        }
        QueueError::Missing if is_here => {
            let name = address.queue_name();
            (format!("there is no queue {name}{place}"), format!("leasehold dev {name}"))
        }
        QueueError::Missing => return missing(address, &place),
        error => (
            format!("the queue {address}{place} cannot be used: {}", told(error)),
            format!(
                "AWS_REGION and AWS_PROFILE as for every AWS tool; --endpoint-url http://127.0.0.1:{} for `leasehold dev`",
                local::PORT
            ),
        ),
    };
    Ended { code: exit::CONFIGURATION, told: Problem::new(what, mend).to_string() }
}

/// What the end is worth.
fn verdict(sent: Sent, address: &QueueAddress, args: &Args) -> anyhow::Result<ExitCode> {
    match sent.cut {
        Some(Cut::Wrong(error) | Cut::Away(error)) => Err(not_usable(&error, address, args).into()),
        Some(Cut::Unreadable(error)) => Err(anyhow::Error::new(error).context("no more could be read")),
        Some(Cut::Told) => Ok(ExitCode::FAILURE),
        None if sent.failed > 0 => Ok(ExitCode::FAILURE),
        None => Ok(ExitCode::SUCCESS),
    }
}
