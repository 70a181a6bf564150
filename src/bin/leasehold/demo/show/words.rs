//! The words of the opening and of the summary.
//!
//! Pure: from options and counts to text. Says nothing that is not in the counts.

use super::super::{
    args::Args,
    stream::Counts,
    summary::{Summary, payments},
    work::{Place, QUEUE, SETTINGS, TABLE},
};
use crate::words::row;

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
    let bank = if args.naive_bank {
        "naive: does not know Idempotency-Key"
    } else {
        "replays its answer to an Idempotency-Key that it has seen, as payment providers do"
    };
    let mut text =
        format!("{}  SQS, DynamoDB, a worker and a bank, all in this process\n\n", ink.strong("leasehold demo"));
    text.push_str(&row("stream", &stream(args)));
    text.push_str(&row("bank", bank));
    text.push_str(&row("worker", &settings()));
    text.push_str(&row("", &ink.dim("shorter than in production, so that a crash is over in seconds")));
    if args.crash {
        text.push_str(&row("crash", "a second worker, a process of its own, is killed in mid-work"));
    }
    text
}

fn stream(args: &Args) -> String {
    let (mix, counts) = (args.mix(), Counts::of(args.mix(), args.messages));
    if args.endless {
        return format!(
            "until Ctrl-C, 50 messages a second: {} % duplicates, {} % slow, {} % poison, {} % failing",
            mix.duplicates, mix.slow, mix.poison, mix.transient
        );
    }
    format!(
        "{} messages, {}: {} slow ({} s), {} poison, {} failing at first",
        counts.messages,
        payments(counts.payments.into()),
        counts.slow,
        mix.slow_ms / 1000,
        counts.poison,
        counts.transient
    )
}

/// What a command wants to be run with, so that it looks into this process.
pub(crate) fn variables(place: &Place) -> String {
    format!(
        "export AWS_ENDPOINT_URL={} AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local \
         LEASEHOLD_QUEUES={QUEUE} LEASEHOLD_TABLE={TABLE} LEASEHOLD_PAYMENTS_KEY=/payment_id",
        place.endpoint
    )
}

/// The timings that differ most from what people will have.
fn settings() -> String {
    let shown = ["VISIBILITY_TIMEOUT", "BACKOFF", "CLOCK_SKEW", "CONCURRENCY"];
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
    line("lost", summary.lost.to_string(), &left(summary));
    line("suppressed", summary.suppressed.to_string(), "messages deleted without a run, their payment being settled");
    line("takeovers", summary.takeovers.to_string(), "leases that had ended without a word, taken over");
    line("beats", summary.beats.to_string(), "renewals of leases, while payments took long");
    line("bank", summary.calls.to_string(), &bank(args, summary));
    line("effects", summary.effects.to_string(), &effects(summary));
    line("requests", summary.api_calls.values().sum::<u64>().to_string(), &requests(summary));
    for operations in ["dynamodb", "sqs"].iter().flat_map(|service| wrapped(&operations(summary, service))) {
        line("", String::new(), &ink.dim(&operations));
    }
    line("time", format!("{:.1}", summary.seconds), "seconds");
    text.push('\n');
    text.push_str(&verdict(args, summary, ink));
    text
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
        n => format!("{n} for each of {payments} payments"),
    })
}

fn left(summary: &Summary) -> String {
    if summary.left == 0 {
        String::new()
    } else {
        format!("payments; {} messages are still in the queue", summary.left)
    }
}

/// A service's operations, the most frequent first.
fn operations(summary: &Summary, service: &str) -> Vec<String> {
    let of_service =
        |(action, calls): (&String, &u64)| Some((*calls, action.strip_prefix(service)?.get(1..)?.to_owned()));
    let mut operations: Vec<_> = summary.api_calls.iter().filter_map(of_service).collect();
    operations.sort_by(|one, other| other.cmp(one));
    operations.into_iter().map(|(calls, operation)| format!("{calls} {operation}")).collect()
}

/// As many of them in a line as fit.
fn wrapped(items: &[String]) -> Vec<String> {
    const WIDTH: usize = 74;
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut().filter(|line| line.len() + item.len() + 2 <= WIDTH) {
            Some(line) => line.push_str(&format!(", {item}")),
            None => lines.push(item.clone()),
        }
    }
    lines
}

fn bank(args: &Args, summary: &Summary) -> String {
    match (summary.repeated_calls, args.naive_bank) {
        (0, _) => "calls, none of them repeated".to_owned(),
        (n, true) => format!("calls, {n} of them repeated, and this bank cannot know"),
        (n, false) => format!("calls, {n} of them repeated, and known by their Idempotency-Key"),
    }
}

fn requests(summary: &Summary) -> String {
    format!(
        "to SQS and DynamoDB, {:.2} a message; {:.2} without the writes of steps",
        summary.calls_per_message, summary.calls_per_message_without_steps
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
    if args.naive_bank && summary.killed && summary.max_effects_per_key > 1 {
        text.push_str(
            "  The killed worker had charged and could no longer record it: whoever took over could not know.\n  \
             No worker can close this gap alone. A bank that honours Idempotency-Key does: run without\n  \
             --naive-bank.\n",
        );
    } else if args.naive_bank && !args.crash {
        text.push_str("  Nothing crashed, so the bank was not put to the test: add --crash.\n");
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(text: &str) -> Args {
        Cli::parse_from(std::iter::once("demo").chain(text.split_whitespace())).args
    }

    fn summary() -> Summary {
        Summary {
            sent: 10,
            keys: 8,
            effects: 7,
            effects_per_key: BTreeMap::from([(0, 1), (1, 7)]),
            dead_reasons: BTreeMap::from([("malformed".to_owned(), 1)]),
            api_calls: BTreeMap::from([("sqs:ReceiveMessage".into(), 3), ("dynamodb:PutItem".into(), 10)]),
            ..Summary::default()
        }
    }

    #[test]
    fn what_was_promised_and_is_not_so_is_the_verdict() {
        let broken = Summary { broken: vec!["1 payment neither done".into()], lost: 1, left: 2, ..summary() };
        let text = closing(&args(""), &broken, Ink::Plain);
        assert!(text.contains("✗ 1 payment neither done.") && !text.contains('✓'), "{text}");
        assert!(text.contains("2 messages are still in the queue"), "{text}");
        assert!(closing(&args(""), &summary(), Ink::Plain).contains("✓ No payment was lost"));
    }

    #[test]
    fn a_naive_bank_is_explained_when_it_was_found_out_and_also_when_it_was_not() {
        let twice = Summary { killed: true, max_effects_per_key: 2, ..summary() };
        assert!(
            closing(&args("--naive-bank --crash"), &twice, Ink::Plain).contains("No worker can close this gap alone")
        );
        assert!(closing(&args("--naive-bank"), &summary(), Ink::Plain).contains("add --crash"));
    }

    #[test]
    fn lines_fit_a_terminal_of_a_hundred_columns() {
        for options in ["--crash", "--naive-bank --crash", "--messages 100000", "--endless"] {
            let args = args(options);
            let api_calls = (0..3).map(|n| (format!("sqs:{n}ChangeMessageVisibility"), 12_345)).collect();
            let summary =
                Summary { calls: 123_456, repeated_calls: 1_234, killed: true, left: 9, api_calls, ..summary() };
            let text = opening(&args, Ink::Plain) + &closing(&args, &summary, Ink::Plain);
            for line in text.lines() {
                assert!(line.chars().count() <= 100, "{line}");
            }
        }
    }

    #[test]
    fn without_colours_there_are_none() {
        let text = opening(&args("--crash"), Ink::Plain) + &closing(&args("--crash"), &summary(), Ink::Plain);
        assert!(!text.contains('\u{1b}'));
        assert!(closing(&args(""), &summary(), Ink::Colour).contains("\u{1b}[32m✓\u{1b}[0m"));
    }
}
