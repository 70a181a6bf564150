//! The log of a command: to standard output, one JSON object a line, or text for people.
//!
//! Owns how a line looks and what is quiet by default. Must be started once, before the first line.

use std::io::{self, IsTerminal};

use leasehold::{
    WorkerError,
    config::{LogFormat, Problem},
};
use tracing_subscriber::{EnvFilter, fmt};

/// What has much to say that concerns nobody, by the beginnings of crates' names: the SDK and its HTTP client, and the
/// embedded engine, whose DynamoDB warns of every conditional write that is refused. A filter that names one of these
/// crates has the last word on it.
const QUIET: &str = "aws=warn,dynoxide=error,h2=warn,hyper=warn,rustack=warn,rustls=warn";

/// Starts the log. Without a format it is text on a terminal, and JSON elsewhere.
///
/// # Errors
/// The filter cannot be read.
pub(crate) fn start(filter: &str, format: Option<LogFormat>) -> Result<(), WorkerError> {
    let filter = self::filter(filter)?;
    let on_terminal = io::stdout().is_terminal();
    // A line that cannot be written has nobody to be told to. Telling standard error instead would panic in the middle of
    // the work where that is closed too, as it is when both went to a reader that has gone.
    let log = fmt().with_env_filter(filter).with_ansi(on_terminal).log_internal_errors(false);
    match format {
        Some(LogFormat::Text) => log.init(),
        None if on_terminal => log.init(),
        _ => log.json().flatten_event(true).init(),
    }
    Ok(())
}

/// What is logged, by a filter of `LEASEHOLD_LOG`.
///
/// # Errors
/// It cannot be read.
pub(crate) fn filter(filter: &str) -> Result<EnvFilter, WorkerError> {
    EnvFilter::try_new(format!("{QUIET},{filter}")).map_err(|error| {
        let what = format!("LEASEHOLD_LOG is {filter:?}, which is no filter: {error}");
        WorkerError::Configuration(vec![Problem::new(what, "LEASEHOLD_LOG=info,leasehold=debug")])
    })
}
