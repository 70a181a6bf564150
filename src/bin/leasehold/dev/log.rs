//! The log of `dev`, for a person who watches: a line for each message's outcome, and what else happens.
//!
//! Made from the library's own events. Knows, while a message is in hand, which key it has and when it came; holds nothing
//! of it afterwards. Must never fail because nobody reads.

use std::{
    collections::BTreeMap,
    fmt::{Debug, Write as _},
    io::{self, IsTerminal, Write},
    sync::{Mutex, PoisonError},
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
    let people = People { begun: Instant::now(), colour: io::stdout().is_terminal(), in_hand: Mutex::default() };
    // Fails where a log is started already, which then is as good.
    let _ = tracing_subscriber::registry().with(people.with_filter(log::filter(filter)?)).try_init();
    Ok(())
}

struct People {
    begun: Instant,
    colour: bool,
    /// By message id: the key, and when it came. A lock, for it is held for one look-up.
    in_hand: Mutex<BTreeMap<String, (String, Instant)>>,
}

impl<S: Subscriber> Layer<S> for People {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut said = Said::default();
        event.record(&mut said);
        if let Some(text) = self.line(*event.metadata().level(), event.metadata().target(), said) {
            let at = self.begun.elapsed().as_secs_f64();
            let _ = writeln!(io::stdout(), "{}  {text}", self.paint(2, &format!("{at:>7.1}s")));
        }
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
}

impl People {
    /// `None` for what is only noted, or told by another event.
    fn line(&self, level: Level, target: &str, mut said: Said) -> Option<String> {
        let message = std::mem::take(&mut said.message);
        match (target, message.as_str()) {
            ("leasehold::job", "received") => {
                self.received(said);
                None
            }
            ("leasehold::worker::lanes", "deleted" | "comes again later" | "left to its visibility timeout") => {
                self.outcome(&message, said)
            }
            ("leasehold::job" | "leasehold::job::outcome", "the attempt failed") => {
                let work = said.take("pk").or_else(|| said.take("key")).unwrap_or_default();
                let attempt = said.take("attempt").unwrap_or_default();
                Some(format!("{work}  {}: {}", self.paint(33, &format!("attempt {attempt} failed")), reason(&mut said)))
            }
            ("leasehold::settle", "failed for good: dead-lettered" | "failed for good: dropped") => {
                let work = self.work(&said.take("message_id").unwrap_or_default());
                Some(format!("{work}  {}: {}", self.paint(31, &message), reason(&mut said)))
            }
            (target, text) if target.starts_with("leasehold::handler") && said.has("stream") => {
                Some(format!("{} {text}", self.paint(2, "|")))
            }
            // What is away, or paused, and why, as a sentence.
            (_, text) => Some(match said.take("circuit") {
                Some(what) => {
                    let cause = said.take("cause").map(|cause| format!(" ({cause})")).unwrap_or_default();
                    self.other(level, &format!("{what}: {text}{cause}"), &said)
                }
                None => self.other(level, text, &said),
            }),
        }
    }

    fn received(&self, mut said: Said) {
        if let Some(id) = said.take("message_id") {
            let mut work = said.take("pk").unwrap_or_else(|| format!("message {id}"));
            if let Some(group) = said.take("group") {
                let _ = write!(work, " (group {group})");
            }
            self.in_hand().insert(id, (work, Instant::now()));
        }
    }

    fn outcome(&self, message: &str, mut said: Said) -> Option<String> {
        let id = said.take("message_id").unwrap_or_default();
        let (why, wait) = (said.take("why").unwrap_or_default(), said.take("wait").unwrap_or_default());
        let again = if wait == "0ns" { "again at once".to_owned() } else { format!("again in {wait}") };
        let work = self.work(&id);
        let took = self.in_hand().remove(&id).map(|(_, since)| format!(" in {:.2} s", since.elapsed().as_secs_f64()));
        let (colour, outcome) = match (message, why.as_str()) {
            ("deleted", "Done") => (32, format!("done{}", took.unwrap_or_default())),
            ("deleted", "Suppressed") => (36, "a duplicate: not run, for its work was settled before".to_owned()),
            // Told with its reason.
            ("deleted", _) => return None,
            ("comes again later", "Failed") => (33, again),
            ("comes again later", "NotYet") => (33, format!("{again}: not yet, says its handler")),
            ("comes again later", "Held") => (36, format!("{again}: another message of its work is in hand")),
            ("comes again later", "Unavailable") => (33, format!("{again}: its handler is not there")),
            ("comes again later", why) => (33, format!("{again}: {}", in_words(why))),
            (text, why) => (33, format!("{text}: {}", in_words(why))),
        };
        Some(format!("{work}  {}", self.paint(colour, &outcome)))
    }

    /// What a message is about, as far as is known.
    fn work(&self, message_id: &str) -> String {
        self.in_hand().get(message_id).map_or_else(|| format!("message {message_id}"), |(work, _)| work.clone())
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

    fn in_hand(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, (String, Instant)>> {
        self.in_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A failure's code and text.
fn reason(said: &mut Said) -> String {
    let (code, text) = (said.take("code").unwrap_or_default(), said.take("error").unwrap_or_default());
    format!("{code}: {}", indented(&text))
}

/// Further lines stand under the first.
fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n            ")
}

/// `NotYet` is "not yet".
fn in_words(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.extend(c.to_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(
        people: &People,
        level: Level,
        target: &str,
        message: &str,
        fields: &[(&'static str, &str)],
    ) -> Option<String> {
        let fields = fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        people.line(level, target, Said { message: message.to_owned(), fields })
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_told_by_its_work_and_forgotten_with_its_outcome() {
        let people = People { begun: Instant::now(), colour: false, in_hand: Mutex::default() };
        let received = [("queue", "payments"), ("message_id", "m"), ("pk", "payments#1")];
        let lanes = "leasehold::worker::lanes";
        assert_eq!(line(&people, Level::DEBUG, "leasehold::job", "received", &received), None);
        tokio::time::advance(std::time::Duration::from_millis(1500)).await;
        let done = [("queue", "payments"), ("message_id", "m"), ("why", "Done")];
        let told = line(&people, Level::DEBUG, lanes, "deleted", &done);
        assert_eq!(told.as_deref(), Some("payments#1  done in 1.50 s"));
        assert!(people.in_hand().is_empty());
        let received = [("message_id", "g"), ("pk", "payments#2"), ("group", "tenant-7")];
        assert_eq!(line(&people, Level::DEBUG, "leasehold::job", "received", &received), None);
        let done = [("message_id", "g"), ("why", "Suppressed")];
        let told = line(&people, Level::DEBUG, lanes, "deleted", &done).expect("a line");
        assert!(told.starts_with("payments#2 (group tenant-7)  a duplicate"), "{told}");
        let later = [("message_id", "n"), ("why", "NoVerdict"), ("wait", "2s")];
        let told = line(&people, Level::DEBUG, lanes, "comes again later", &later);
        assert_eq!(told.as_deref(), Some("message n  again in 2s: no verdict"));
    }

    #[tokio::test]
    async fn when_a_message_comes_again_is_told_in_words() {
        let people = People { begun: Instant::now(), colour: false, in_hand: Mutex::default() };
        for (why, wait, told) in [
            ("Interrupted", "0ns", "message m  again at once: interrupted"),
            ("Failed", "2s", "message m  again in 2s"),
            ("Unavailable", "1s", "message m  again in 1s: its handler is not there"),
        ] {
            let fields = [("message_id", "m"), ("why", why), ("wait", wait)];
            let line = line(&people, Level::DEBUG, "leasehold::worker::lanes", "comes again later", &fields);
            assert_eq!(line.as_deref(), Some(told));
        }
    }

    #[tokio::test]
    async fn what_else_happens_is_told_with_its_fields_and_further_lines_below() {
        let people = People { begun: Instant::now(), colour: false, in_hand: Mutex::default() };
        let dead = [("message_id", "m"), ("code", "exit_65"), ("error", "exit status: 65\nstack"), ("failure_id", "f")];
        let told = line(&people, Level::WARN, "leasehold::settle", "failed for good: dead-lettered", &dead);
        let expected = "message m  failed for good: dead-lettered: exit_65: exit status: 65\n            stack";
        assert_eq!(told.as_deref(), Some(expected));
        let away = [("circuit", "the handler of payments"), ("cause", "refused")];
        let told = line(&people, Level::WARN, "leasehold::guard::outage", "still away", &away);
        assert_eq!(told.as_deref(), Some("warning: the handler of payments: still away (refused)"));
        let other = line(&people, Level::INFO, "leasehold::worker", "receiving", &[("queue", "payments")]);
        assert_eq!(other.as_deref(), Some("receiving queue=payments"));
    }
}
