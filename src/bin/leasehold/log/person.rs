//! The log as a person at a terminal reads it: when, how bad, what; then the facts, dimmed.
//!
//! Times are UTC, as everywhere. Where it is written to a file there are no colours.

use std::fmt::{self, Debug, Write as _};

use leasehold::clock::Clock;
use tracing::{Event, Level, Subscriber, field::Field};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use crate::words;

/// How a line looks.
pub(super) struct Person;

/// What an event carries: its message, and the rest as it is written.
#[derive(Default)]
struct Said {
    message: String,
    facts: String,
}

impl tracing::field::Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            // What programs say is in it, and must not move the cursor.
            "message" => self.message = words::plain_lines(value),
            // Plain where it is one word. Writing to a string cannot fail.
            name if value.is_empty() || value.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"') => {
                let _ = write!(self.facts, " {name}={value:?}");
            }
            name => {
                let _ = write!(self.facts, " {name}={value}");
            }
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

impl<S, N> FormatEvent<S, N> for Person
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut said = Said::default();
        event.record(&mut said);
        let now = Clock::system().wall().utc().to_string();
        let colour = writer.has_ansi_escapes();
        writer.write_str(&line(time_of(&now), *event.metadata().level(), &said, colour))
    }
}

/// `12:03:04` of a date and time.
fn time_of(utc: &str) -> &str {
    utc.split(['T', ' ']).nth(1).and_then(|time| time.get(..8)).unwrap_or(utc)
}

fn line(time: &str, level: Level, Said { message, facts }: &Said, colour: bool) -> String {
    let paint = |code: &str, text: &str| {
        if colour && !text.is_empty() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    };
    let (code, name) = match level {
        Level::ERROR => ("31", "error"),
        Level::WARN => ("33", "warn "),
        Level::INFO => ("32", "info "),
        Level::DEBUG => ("34", "debug"),
        _ => ("35", "trace"),
    };
    format!("{} {} {message}{}\n", paint("2", time), paint(code, name), paint("2", facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_message_first_and_colours_only_where_they_are_seen() {
        let said = Said { message: "deleted".into(), facts: " queue=jobs".into() };
        assert_eq!(line("12:03:04", Level::WARN, &said, false), "12:03:04 warn  deleted queue=jobs\n");
        let coloured = line("12:03:04", Level::ERROR, &said, true);
        assert_eq!(
            coloured,
            "\u{1b}[2m12:03:04\u{1b}[0m \u{1b}[31merror\u{1b}[0m deleted\u{1b}[2m queue=jobs\u{1b}[0m\n"
        );
        assert_eq!(time_of(&Clock::system().wall().utc().to_string()).len(), 8);
    }
}
