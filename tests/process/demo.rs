//! `leasehold demo` as a process: what it prints, how it ends, and that it would show a broken promise.

use std::{process::Stdio, time::Duration};

use serde_json::Value;
use tokio::{process::Command, time::timeout};

/// Some seconds, but a slow payment and its duplicates take long on a machine that has much else to do.
const AT_LAST: Duration = Duration::from_secs(120);

/// What a demonstration printed, and its exit code.
struct Shown {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Shown {
    /// The one JSON object.
    fn summary(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {:?} {}", self.out, self.err))
    }

    #[track_caller]
    fn check(&self, code: i32, counts: &[(&str, u64)]) -> Value {
        let summary = self.summary();
        assert_eq!(self.code, Some(code), "{summary} {}", self.err);
        for (name, count) in counts {
            assert_eq!(summary[name], *count, "{name} in {summary}");
        }
        summary
    }
}

async fn demo(args: &str) -> Shown {
    let process = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .arg("demo")
        .args(args.split_whitespace())
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(AT_LAST, process).await.expect("ends").expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("is text");
    Shown { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn number(summary: &Value, name: &str) -> u64 {
    summary[name].as_u64().unwrap_or_else(|| panic!("{name} in {summary}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_stream_is_done_once_each_and_the_requests_for_it_are_counted() {
    let shown = demo("--json --messages 60 --duplicates 0 --slow 0 --poison 0 --transient 0").await;
    let summary = shown.check(
        0,
        &[
            ("sent", 60),
            ("keys", 60),
            ("done", 60),
            ("dead", 0),
            ("lost", 0),
            ("effects", 60),
            ("max_effects_per_key", 1),
            ("suppressed", 0),
            ("step_writes", 120),
        ],
    );
    assert!(number(&summary, "calls") >= 60, "{summary}");
    // A busy machine adds retries and beats, which are requests too; what a handler's steps and the guard need is the
    // least.
    let requests = &summary["api_calls"];
    assert!(number(requests, "dynamodb:PutItem") >= 60, "{requests}");
    assert!(number(requests, "dynamodb:UpdateItem") >= 180, "{requests}");
    let per_message = summary["calls_per_message"].as_f64().expect("a number");
    assert!((4.2..8.0).contains(&per_message), "two writes, two steps, and some of a receive and a delete: {summary}");
    let operations = requests.as_object().expect("counts").keys();
    let ours: Vec<_> =
        operations.filter(|name| ["Send", "Create", "Scan"].iter().any(|own| name.contains(own))).collect();
    assert!(ours.is_empty(), "what the demonstration does itself is not the worker's: {ours:?}");
    assert!(shown.err.is_empty(), "{}", shown.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_poison_and_failures_come_out_as_they_must() {
    let shown = demo("--json --messages 50 --duplicates 20 --slow 3 --poison 10 --transient 10").await;
    // 40 payments: 4 poison, half of them unreadable; 4 that fail at first; 1 that is slow.
    let summary = shown.check(
        0,
        &[
            ("sent", 50),
            ("keys", 40),
            ("done", 36),
            ("dead", 4),
            ("lost", 0),
            ("effects", 36),
            ("max_effects_per_key", 1),
        ],
    );
    assert_eq!(summary["dead_reasons"]["malformed"], 2);
    assert_eq!(summary["dead_reasons"]["account_closed"], 2);
    let dead_letters = number(&summary, "dead_letters");
    assert!(dead_letters >= 4, "{summary}");
    assert_eq!(number(&summary, "suppressed"), 50 - 36 - dead_letters);
    assert!(number(&summary, "beats") >= 1, "the slow one needs a beat: {summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_costs_calls_and_no_effects() {
    let shown = demo("--json --messages 80 --slow 0 --transient 0 --crash").await;
    let summary = shown.check(0, &[("sent", 80), ("keys", 64), ("lost", 0), ("max_effects_per_key", 1)]);
    assert_eq!(summary["killed"], true);
    assert_eq!(number(&summary, "done") + number(&summary, "dead"), 64);
    assert!(number(&summary, "takeovers") >= 1, "{summary}");
    assert!(
        number(&summary, "max_calls_per_key") >= 2,
        "an effect whose record was lost is asked for again: {summary}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_naive_bank_shows_what_remains_after_a_crash() {
    let shown = demo("--json --messages 80 --slow 0 --transient 0 --crash --naive-bank").await;
    let summary = shown.check(1, &[("lost", 0)]);
    assert_eq!(summary["killed"], true);
    assert!(number(&summary, "max_effects_per_key") >= 2, "{summary}");
    let broken = summary["broken"][0].as_str().unwrap_or_default();
    assert!(broken.contains("more than once") && broken.contains("Idempotency-Key"), "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn for_people_the_verdict_stands_at_the_end() {
    let shown = demo("--messages 20 --slow 0 --transient 0 --poison 0").await;
    assert_eq!(shown.code, Some(0), "{} {}", shown.out, shown.err);
    assert!(shown.out.starts_with("leasehold demo"), "{}", shown.out);
    assert!(shown.out.contains("visibility timeout 4s"), "{}", shown.out);
    assert!(shown.out.trim_end().ends_with("No payment was lost, and none had more than one effect."), "{}", shown.out);
    assert!(!shown.out.contains('\u{1b}'), "colours are for terminals");
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_make_no_sense_end_with_64() {
    for args in ["--messages 0", "--duplicates 91", "--slow 101", "--slow 50 --poison 51", "--endless --messages 9"] {
        let shown = demo(args).await;
        assert_eq!(shown.code, Some(64), "{args}: {}", shown.err);
        assert!(shown.out.is_empty() && shown.err.contains("--"), "{args}: {}", shown.err);
    }
}
