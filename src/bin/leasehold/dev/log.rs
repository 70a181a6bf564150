//! The log of `dev`, for a person who watches: a line for each message's outcome, and what else happens.
//!
//! Made from the library's own events, one at a time. Must never fail because nobody reads.

use std::{
    fmt::{Debug, Write as _},
    io::{self, IsTerminal, Write},
    time::Duration,
};

use leasehold::WorkerError;
use tokio::time::Instant;
use tracing::{Event, Level, Subscriber, field::Field};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
    util::SubscriberInitExt,
};

use crate::log;

/// Starts the log, on standard output.
///
/// # Errors
/// The filter cannot be read.
pub(super) fn start(filter: &str) -> Result<(), WorkerError> {
    let people = People { begun: Instant::now(), colour: io::stdout().is_terminal() };
    // Fails where a log is started already, which then is as good.
    let _ = tracing_subscriber::registry().with(people.with_filter(log::filter(filter)?)).try_init();
    Ok(())
}

struct People {
    begun: Instant,
    colour: bool,
}

impl<S: Subscriber> Layer<S> for People {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut said = Said::default();
        event.record(&mut said);
        let text = self.line(*event.metadata().level(), event.metadata().target(), said);
        let at = self.begun.elapsed().as_secs_f64();
        let _ = writeln!(io::stdout(), "{}  {text}", self.paint(2, &format!("{at:>7.1}s")));
    }
}

/// What an event carries.
#[derive(Debug, Default)]
struct Said {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl tracing::field::Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.to_owned(),
            name => self.fields.push((name, value.to_owned())),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

impl Said {
    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(field, _)| *field == name)
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let index = self.fields.iter().position(|(field, _)| *field == name)?;
        Some(self.fields.remove(index).1)
    }

    fn millis(&mut self, name: &str) -> Option<Duration> {
        self.take(name)?.parse().ok().map(Duration::from_millis)
    }
}

impl People {
    fn line(&self, level: Level, target: &str, mut said: Said) -> String {
        let message = std::mem::take(&mut said.message);
        match (target, message.as_str()) {
            ("leasehold::outcome", _) => self.outcome(level, &message, said),
            (target, text) if target.starts_with("leasehold::handler") && said.has("stream") => {
                format!("{} {text}", self.paint(2, "|"))
            }
            // What is away, or paused, and why, as a sentence.
            (_, text) => match said.take("circuit") {
                Some(what) => {
                    let cause = said.take("cause").map(|cause| format!(" ({cause})")).unwrap_or_default();
                    self.other(level, &format!("{what}: {text}{cause}"), &said)
                }
                None => self.other(level, text, &said),
            },
        }
    }

    fn outcome(&self, level: Level, text: &str, mut said: Said) -> String {
        let id = said.take("message_id").unwrap_or_default();
        let mut work = said.take("pk").unwrap_or_else(|| format!("message {id}"));
        if let Some(group) = said.take("group") {
            let _ = write!(work, " (group {group})");
        }
        let took = said.millis("took_ms").unwrap_or_default().as_secs_f64();
        let again = match said.millis("wait_ms") {
            Some(Duration::ZERO) => "again at once".to_owned(),
            Some(wait) => format!("again in {wait:?}"),
            None => "again at its timeout".to_owned(),
        };
        let attempt = said.take("attempt").unwrap_or_default();
        let (colour, outcome) = match said.take("outcome").unwrap_or_default().as_str() {
            "done" => (32, format!("done in {took:.2} s")),
            "suppressed" => (36, "a duplicate: not run, for its work was settled before".to_owned()),
            "failed" if level == Level::DEBUG => (33, again),
            _ if text == "the attempt failed" => {
                (33, format!("attempt {attempt} failed; {again}: {}", reason(&mut said)))
            }
            "not_yet" => (33, format!("{again}: not yet, says its handler")),
            "held" => (36, format!("{again}: another message of its work is in hand")),
            "unavailable" => (33, format!("{again}: its handler is not there")),
            "left" => (33, format!("{text}: {}", said.take("why").unwrap_or_default().replace('_', " "))),
            "dead_lettered" | "dropped" | "kept" => (31, format!("{text}: {}", reason(&mut said))),
            other => (33, format!("{again}: {}", other.replace('_', " "))),
        };
        format!("{work}  {}", self.paint(colour, &outcome))
    }

    fn other(&self, level: Level, message: &str, said: &Said) -> String {
        let mut text = match level {
            Level::ERROR => self.paint(31, "error: "),
            Level::WARN => self.paint(33, "warning: "),
            _ => String::new(),
        };
        text.push_str(message);
        for (name, value) in &said.fields {
            // Writing to a string cannot fail.
            let _ = write!(text, " {}{}", self.paint(2, &format!("{name}=")), indented(value));
        }
        text
    }

    fn paint(&self, code: u8, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// A failure's code and text, and what else came in its way.
fn reason(said: &mut Said) -> String {
    let parts = ["code", "error", "cause"].into_iter().filter_map(|name| said.take(name));
    indented(&parts.collect::<Vec<_>>().join(": "))
}

/// Further lines stand under the first.
fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n            ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTCOME: &str = "leasehold::outcome";

    fn people() -> People {
        People { begun: Instant::now(), colour: false }
    }

    fn line(level: Level, target: &str, message: &str, fields: &[(&'static str, &str)]) -> String {
        let fields = fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        people().line(level, target, Said { message: message.to_owned(), fields })
    }

    #[tokio::test]
    async fn a_message_is_told_by_its_work() {
        let done = [("message_id", "m"), ("pk", "payments#1"), ("outcome", "done"), ("took_ms", "1500")];
        assert_eq!(line(Level::DEBUG, OUTCOME, "deleted", &done), "payments#1  done in 1.50 s");
        let again = [("message_id", "g"), ("pk", "payments#2"), ("group", "tenant-7"), ("outcome", "suppressed")];
        let told = line(Level::DEBUG, OUTCOME, "deleted", &again);
        assert!(told.starts_with("payments#2 (group tenant-7)  a duplicate"), "{told}");
        let later = [("message_id", "n"), ("outcome", "no_verdict"), ("wait_ms", "2000")];
        assert_eq!(line(Level::DEBUG, OUTCOME, "comes again later", &later), "message n  again in 2s: no verdict");
    }

    #[tokio::test]
    async fn when_a_message_comes_again_is_told_in_words() {
        for (level, outcome, wait, told) in [
            (Level::INFO, "interrupted", "0", "message m  again at once: interrupted"),
            (Level::DEBUG, "failed", "2000", "message m  again in 2s"),
            (Level::WARN, "failed", "2000", "message m  attempt 3 failed; again in 2s: exit_1: no luck"),
            (Level::DEBUG, "unavailable", "1000", "message m  again in 1s: its handler is not there"),
        ] {
            let fields = [("message_id", "m"), ("outcome", outcome), ("wait_ms", wait), ("attempt", "3")];
            let fields = fields.into_iter().chain([("code", "exit_1"), ("error", "no luck")]).collect::<Vec<_>>();
            let text = if level == Level::WARN { "the attempt failed" } else { "comes again later" };
            assert_eq!(line(level, OUTCOME, text, &fields), told);
        }
        let left = [("message_id", "m"), ("outcome", "left"), ("why", "claim_lost")];
        let told = line(Level::INFO, OUTCOME, "left to its visibility timeout", &left);
        assert_eq!(told, "message m  left to its visibility timeout: claim lost");
    }

    #[tokio::test]
    async fn what_else_happens_is_told_with_its_fields_and_further_lines_below() {
        let dead = [
            ("message_id", "m"),
            ("outcome", "dead_lettered"),
            ("code", "exit_65"),
            ("error", "exit status: 65\nstack"),
        ];
        let told = line(Level::WARN, OUTCOME, "failed for good: dead-lettered", &dead);
        assert_eq!(told, "message m  failed for good: dead-lettered: exit_65: exit status: 65\n            stack");
        let away = [("circuit", "the handler of payments"), ("cause", "refused")];
        let told = line(Level::WARN, "leasehold::guard::outage", "still away", &away);
        assert_eq!(told, "warning: the handler of payments: still away (refused)");
        let other = line(Level::INFO, "leasehold::worker", "receiving", &[("queue", "payments")]);
        assert_eq!(other, "receiving queue=payments");
    }
}
