//! The words of the opening and of the summary. Pure: from options and counts to text.

use super::super::{
    args::Args,
    stream::Counts,
    summary::{Summary, payments},
    work::SETTINGS,
};

/// Whether text may carry a terminal's colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    Plain,
    Colour,
}

impl Ink {
    fn paint(self, code: u8, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Colour => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        }
    }

    fn strong(self, text: &str) -> String {
        self.paint(1, text)
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.paint(2, text)
    }

    fn good(self, text: &str) -> String {
        self.paint(32, text)
    }

    fn bad(self, text: &str) -> String {
        self.paint(31, text)
    }
}

pub(crate) fn opening(args: &Args, ink: Ink) -> String {
    let bank = if args.naive_bank { "a bank that does not know Idempotency-Key" } else { "a bank" };
    let crash = if args.crash { "; a second process, to be killed in mid-work" } else { "" };
    format!(
        "{}  SQS, DynamoDB and {bank}, all in this process{crash}\n\n{}{}{}",
        ink.strong("leasehold demo"),
        row("stream", &stream(args)),
        row("worker", &settings()),
        row("", &ink.dim("shorter than in production, so that a crash is over in seconds")),
    )
}

fn stream(args: &Args) -> String {
    let (mix, counts) = (args.mix(), Counts::of(args.mix(), args.messages));
    if args.endless {
        return format!(
            "payments until Ctrl-C, 50 messages a second: {} % duplicates, {} % slow, {} % poison, {} % fail at first",
            mix.duplicates, mix.slow, mix.poison, mix.transient
        );
    }
    format!(
        "{} messages for {}: {} slow ({} s), {} poison, {} that fail at first",
        counts.messages,
        payments(counts.payments.into()),
        counts.slow,
        mix.slow_ms / 1000,
        counts.poison,
        counts.transient
    )
}

/// The timings that differ most from what people will have.
fn settings() -> String {
    let shown = ["VISIBILITY_TIMEOUT", "BACKOFF", "CANCEL_GRACE", "CLOCK_SKEW", "CONCURRENCY"];
    let values = SETTINGS.iter().filter_map(|(name, value)| {
        let name = name.trim_start_matches("LEASEHOLD_");
        shown.contains(&name).then(|| format!("{} {value}", name.to_lowercase().replace('_', " ")))
    });
    values.collect::<Vec<_>>().join(", ")
}

pub(crate) fn closing(args: &Args, summary: &Summary, ink: Ink) -> String {
    let mut text = String::from("\n");
    let mut line = |name: &str, number: String, words: &str| {
        text.push_str(&row(name, &format!("{}  {words}", ink.strong(&format!("{number:>6}")))));
    };
    line("sent", summary.sent.to_string(), &format!("messages for {}", payments(summary.keys)));
    line("done", summary.done.to_string(), "payments");
    line("dead", summary.dead.to_string(), &each(&summary.dead_reasons, |reason, n| format!("{n} {reason}")));
    line("lost", summary.lost.to_string(), if summary.left > 0 { "still in the queue" } else { "" });
    line("suppressed", summary.suppressed.to_string(), "messages deleted without a run: their payment was settled");
    line("takeovers", summary.takeovers.to_string(), "claims whose lease had ended without a word");
    line("beats", summary.beats.to_string(), "renewals of the lease of a slow payment");
    line("bank", summary.calls.to_string(), &bank(args, summary));
    line("effects", summary.effects.to_string(), &effects(summary));
    line("requests", summary.api_calls.values().sum::<u64>().to_string(), &requests(summary));
    for service in ["dynamodb", "sqs"] {
        line("", String::new(), &ink.dim(&operations(summary, service)));
    }
    line("time", format!("{:.1}", summary.seconds), "seconds");
    text.push('\n');
    text.push_str(&verdict(args, summary, ink));
    text
}

/// A line of the page.
fn row(name: &str, words: &str) -> String {
    format!("  {}\n", format!("{name:<10}  {words}").trim_end())
}

fn each<'a, K: 'a, V: 'a>(
    counts: impl IntoIterator<Item = (&'a K, &'a V)>,
    words: impl Fn(&K, &V) -> String,
) -> String {
    counts.into_iter().map(|(key, value)| words(key, value)).collect::<Vec<_>>().join(", ")
}

fn effects(summary: &Summary) -> String {
    each(summary.effects_per_key.iter().rev(), |effects, payments| match effects {
        0 => format!("none for {payments}"),
        n => format!("{n} for each of {payments}"),
    })
}

/// A service's operations, the most frequent first.
fn operations(summary: &Summary, service: &str) -> String {
    let of_service =
        |(action, calls): (&String, &u64)| Some((action.strip_prefix(service)?.get(1..)?.to_owned(), *calls));
    let mut operations: Vec<_> = summary.api_calls.iter().filter_map(of_service).collect();
    operations.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    each(operations.iter().map(|(operation, calls)| (operation, calls)), |operation, calls| {
        format!("{calls} {operation}")
    })
}

fn bank(args: &Args, summary: &Summary) -> String {
    let called = summary.keys - summary.dead_reasons.get("malformed").copied().unwrap_or_default();
    match (summary.calls.saturating_sub(called), args.naive_bank) {
        (0, _) => "calls, none of them repeated".to_owned(),
        (n, true) => format!("calls; {n} were repeats, which this bank cannot know"),
        (n, false) => format!("calls; {n} were repeats, which the bank knew by their Idempotency-Key"),
    }
}

fn requests(summary: &Summary) -> String {
    format!(
        "to SQS and DynamoDB: {:.2} for each message, {:.2} without the {} writes of steps",
        summary.calls_per_message, summary.calls_per_message_without_steps, summary.step_writes
    )
}

fn verdict(args: &Args, summary: &Summary, ink: Ink) -> String {
    let mut text = String::new();
    for broken in &summary.broken {
        text.push_str(&format!("{} {}.\n", ink.bad("✗"), ink.strong(broken)));
    }
    if summary.broken.is_empty() {
        text = format!("{} {}\n", ink.good("✓"), ink.strong("No payment was lost, and none had more than one effect."));
    }
    if args.naive_bank && summary.max_effects_per_key > 1 {
        text.push_str(
            "  The killed worker had charged and could not record it any more; whoever took over could not know. No\n  \
             worker can close this gap alone. A bank that honours Idempotency-Key closes it: run without --naive-bank.\n",
        );
    } else if args.naive_bank && !args.crash {
        text.push_str("  Nothing crashed, so the bank was not put to the test: add --crash.\n");
    }
    text.trim_end().to_owned()
}
