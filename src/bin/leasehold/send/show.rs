//! What people see of a sending: failures as they come, progress when it takes long, and a line at the end.
//!
//! The end goes to standard output, everything else to standard error, and progress is drawn on a terminal only.

use std::{
    fmt,
    io::{self, Write},
};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use super::sending::{Cut, Sent};
use crate::words::{json, plain_lines};

/// From so many messages on there is progress to see.
const MANY: u64 = 200;

/// Tells of options that do not fit together. Standard error that is closed leaves nobody to tell.
pub(super) fn usage(problem: &str) {
    let _ = writeln!(io::stderr(), "error: {problem}\n\nFor more information, try '--help'.");
}

pub(super) struct Show {
    json: bool,
    /// What numbers count.
    unit: &'static str,
    bar: ProgressBar,
}

impl Show {
    pub(super) fn new(json: bool, unit: &'static str) -> Self {
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("{elapsed:>6}  {human_pos} sent · {rate}") {
            let rate = |state: &ProgressState, text: &mut dyn fmt::Write| {
                // One that cannot be written is not shown.
                let _ = write!(text, "{:.0}/s", state.per_sec());
            };
            bar.set_style(style.with_key("rate", rate));
        }
        Self { json, unit, bar }
    }

    pub(super) fn sent(&self, sent: u64) {
        if sent >= MANY {
            self.bar.set_position(sent);
        }
    }

    pub(super) fn failed(&self, number: u64, why: &str) {
        self.event(&format!("{} {number} was not sent: {why}", self.unit));
    }

    pub(super) fn event(&self, what: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr(), "{}", plain_lines(what));
        });
    }

    pub(super) fn ended(&self, queue: &str, sent: &Sent) -> io::Result<()> {
        let seconds = self.bar.elapsed().as_secs_f64();
        self.bar.finish_and_clear();
        let next = matches!(sent.cut, Some(Cut::Told | Cut::Away(_))).then_some(sent.last + 1);
        if self.json {
            let told = serde_json::json!({
                "queue": queue, "sent": sent.sent, "failed": sent.failed, "next": next, "seconds": seconds,
            });
            return writeln!(io::stdout(), "{}", json(&told.to_string()));
        }
        let messages = if sent.sent == 1 { "message" } else { "messages" };
        let mut text = format!("sent {} {messages} to {queue}", sent.sent);
        if sent.failed > 0 {
            text.push_str(&format!(", {} not", sent.failed));
        }
        if sent.sent >= MANY {
            text.push_str(&format!(", in {seconds:.1} s"));
        }
        if let Some(next) = next.filter(|_| self.unit == "line") {
            text.push_str(&format!("; what was not tried begins at line {next}"));
        }
        writeln!(io::stdout(), "{text}")
    }
}
