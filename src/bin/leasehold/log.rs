//! The log of a command: to standard output, one JSON object a line, or text for people.
//!
//! Owns how a line looks and what is quiet by default. Must be started once, before the first line.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use anyhow::Context as _;
use leasehold::{
    WorkerError,
    config::{LogFormat, Problem},
};
use person::Person;
use tracing_subscriber::{
    EnvFilter, Layer as _,
    filter::{FilterExt as _, LevelFilter, filter_fn},
    fmt,
    layer::SubscriberExt as _,
    registry,
    util::SubscriberInitExt as _,
};

mod backlog;
mod person;

/// What has much to say that concerns nobody, by the beginnings of crates' names: the SDK and its HTTP client, and the
/// embedded engine, whose DynamoDB warns of every conditional write that is refused. What the SDK finds of region and
/// credentials is told by whoever needs them, without a page of structures. A filter that names one of these crates has
/// the last word on it.
const QUIET: &str = "aws=warn,aws_config=error,dynoxide=error,h2=warn,hyper=warn,rustack=warn,rustls=warn";

/// Starts the log. Without a format it is text on a terminal, and JSON elsewhere.
///
/// # Errors
/// The filter cannot be read, or there is no thread to be had that writes.
pub(crate) fn start(filter: &str, format: Option<LogFormat>) -> anyhow::Result<()> {
    let filter = self::filter(filter)?;
    backlog::start().context("no thread for the log can be had")?;
    let on_terminal = io::stdout().is_terminal();
    // A line that cannot be written has nobody to be told to. Telling standard error instead would panic in the middle of
    // the work where that is closed too, as it is when both went to a reader that has gone. Each line says what it is about,
    // so that the spans around it would say it twice: they are left out before anybody spends time on them.
    let log = fmt::layer().log_internal_errors(false).with_writer(|| backlog::Line);
    let log = match format {
        Some(LogFormat::Text) => log.with_ansi(on_terminal).event_format(Person).boxed(),
        None if on_terminal => log.with_ansi(on_terminal).event_format(Person).boxed(),
        _ => log.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
    };
    let no_spans = filter_fn(|of| !of.is_span()).with_max_level_hint(LevelFilter::TRACE);
    let subscriber = registry().with(log.with_filter(filter.and(no_spans)));
    #[cfg(feature = "otel")]
    let subscriber = subscriber.with(crate::otel::start()?);
    subscriber.init();
    #[cfg(feature = "otel")]
    crate::otel::tell();
    Ok(())
}

/// Writes a line that is made already, between those of the log.
pub(crate) fn line(text: &str) {
    backlog::line(text);
}

/// Waits until what was logged is written, but not for longer than this.
pub(crate) fn flush(longest: Duration) {
    backlog::flush(longest);
}

/// What is logged, by a filter of `LEASEHOLD_LOG`.
///
/// # Errors
/// It cannot be read.
pub(crate) fn filter(filter: &str) -> Result<EnvFilter, WorkerError> {
    let refuse = |what: String, instead: &str| {
        WorkerError::Configuration(vec![Problem::new(what, format!("LEASEHOLD_LOG={instead}"))])
    };
    if let Some(word) = filter.split(',').map(str::trim).find(|part| is_no_level(part)) {
        let what =
            format!("LEASEHOLD_LOG: {word:?} is no level, and nothing but a target of that name would be logged");
        return Err(refuse(what, nearest_level(word)));
    }
    EnvFilter::try_new(format!("{QUIET},{filter}")).map_err(|error| {
        let what = format!("LEASEHOLD_LOG is {filter:?}, which is no filter: {error}");
        refuse(what, "info,leasehold=debug")
    })
}

/// A word that would be taken for a target, and is none that there is: `warning`, `verbose`.
fn is_no_level(part: &str) -> bool {
    let is_word = part.chars().all(|c| c.is_ascii_alphabetic());
    is_word && !part.is_empty() && part != "leasehold" && part.parse::<LevelFilter>().is_err()
}

fn nearest_level(word: &str) -> &'static str {
    let word = word.to_lowercase();
    let levels = ["error", "warn", "info", "debug", "trace", "off"];
    let near = |level: &&str| word.starts_with(*level) || strsim::osa_distance(&word, level) <= 2;
    levels.into_iter().find(near).unwrap_or("info")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_would_silence_the_log_and_is_refused_with_one_that_is() {
        for (text, instead) in [
            ("loud", "info"),
            ("warning", "warn"),
            ("info,verbose", "info"),
            ("DEBG", "debug"),
            ("a=loud", "info,leasehold=debug"),
        ] {
            let Err(WorkerError::Configuration(problems)) = filter(text) else { panic!("{text} is taken") };
            assert_eq!(problems[0].mend, format!("LEASEHOLD_LOG={instead}"), "{text}");
        }
        for text in
            ["info", "WARN", "off", "info,leasehold=debug", "leasehold", "leasehold::worker", "info,aws_config=warn"]
        {
            assert!(filter(text).is_ok(), "{text}");
        }
    }
}
