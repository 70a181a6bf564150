//! `leasehold config`: what is in force and why, and what is wrong in the words of `run`.

use serde_json::Value;

use crate::command::{Leasehold, Told};

const GOOD: [(&str, &str); 3] =
    [("LEASEHOLD_QUEUES", "payments"), ("LEASEHOLD_PAYMENTS_KEY", "/id"), ("LEASEHOLD_PAYMENTS_HANDLER", "exec:cat")];

fn good_and(more: &[(&str, &str)]) -> Leasehold {
    Leasehold::new(&[&GOOD[..], more].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_setting_is_told_with_where_it_comes_from() {
    let told = good_and(&[("LEASEHOLD_BACKOFF", "1s..2s")]).run(&["config"]).await.check(0);
    let row = |name: &str| -> Vec<&str> {
        let line = told.out.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.unwrap_or_else(|| panic!("{name} in {}", told.out)).split_whitespace().skip(1).collect()
    };
    assert_eq!(row("BACKOFF"), ["1s..2s", "LEASEHOLD_BACKOFF"]);
    assert_eq!(row("KEY"), ["/id", "LEASEHOLD_PAYMENTS_KEY"]);
    assert_eq!(row("CONCURRENCY"), ["20", "default"]);
    assert_eq!(row("NAMESPACE"), ["-", "default"]);
    assert_eq!(row("HTTP_ADDR"), ["127.0.0.1:9464", "default"]);
    assert_eq!(told.err, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_gets_json_and_nobody_the_values_of_headers() {
    let leasehold = good_and(&[
        ("LEASEHOLD_QUEUES", "payments,emails"),
        ("LEASEHOLD_PAYMENTS_HANDLER_HEADER", "Authorization: Bearer s3cret"),
        ("LEASEHOLD_WAIT_TIME", "20s"),
    ]);
    let told = leasehold.run(&["config", "--json", "--only", "payments"]).await.check(0);
    let json: Value = serde_json::from_str(&told.out).expect("JSON");
    let settings = json["settings"].as_array().expect("settings");
    let header = settings.iter().find(|setting| setting["setting"] == "HANDLER_HEADER").expect("is told");
    assert_eq!(header["value"], "Authorization: (not shown)");
    assert_eq!(header["variable"], "LEASEHOLD_PAYMENTS_HANDLER_HEADER");
    assert!(!settings.iter().any(|setting| setting["queue"] == "emails"), "{json}");
    assert!(!told.out.contains("s3cret") && !told.err.contains("s3cret"));
    let warnings = json["warnings"].as_array().expect("warnings");
    assert_eq!(warnings.len(), 2, "{json}");
    assert!(told.err.contains("lowered to 15s") && told.err.contains("HANDLER_HEADER has no effect"), "{}", told.err);
}

/// Each a kind of mistake, and a line that mends it.
const WRONG: &[(&[(&str, &str)], &str)] = &[
    // None at all, misspelt, in the wrong place, empty.
    (&[("LEASEHOLD_QUEUES", " ")], "LEASEHOLD_QUEUES=payments,emails"),
    (&[("LEASEHOLD_CONCURENCY", "5")], "LEASEHOLD_CONCURRENCY=5"),
    (&[("LEASEHOLD_PAYMENTS_CONCURENCY", "5")], "LEASEHOLD_PAYMENTS_CONCURRENCY=5"),
    (&[("LEASEHOLD_PAYMENTS_TABLE", "t-1")], "LEASEHOLD_TABLE=t-1"),
    (&[("LEASEHOLD_URL", "https://sqs.eu-central-1.amazonaws.com/1/q")], "LEASEHOLD_PAYMENTS_URL=https"),
    (&[("LEASEHOLD_BACKOFF", " ")], "LEASEHOLD_BACKOFF=10s..15m"),
    // Values that cannot be read.
    (&[("LEASEHOLD_DRAIN_TIMEOUT", "soon")], "LEASEHOLD_DRAIN_TIMEOUT=30s"),
    (&[("LEASEHOLD_WAIT_TIME", "10")], "LEASEHOLD_WAIT_TIME=10s"),
    (&[("LEASEHOLD_CONCURRENCY", "many")], "LEASEHOLD_CONCURRENCY=20"),
    (&[("LEASEHOLD_RATE", "fast")], "LEASEHOLD_RATE="),
    (&[("LEASEHOLD_PAYMENTS_KEY", "order_id")], "LEASEHOLD_PAYMENTS_KEY=/order_id"),
    (&[("LEASEHOLD_PAYMENTS_HANDLER", "./handle")], "LEASEHOLD_PAYMENTS_HANDLER=exec:./handle"),
    (&[("LEASEHOLD_PAYMENTS_HANDLER", "http://me:pw@app/")], "LEASEHOLD_PAYMENTS_HANDLER=http://app/"),
    (&[("LEASEHOLD_HANDLER_HEADER", "s3cret")], "LEASEHOLD_HANDLER_HEADER='Authorization: Bearer <token>'"),
    (&[("LEASEHOLD_PERMANENT_STATUS", "503")], "LEASEHOLD_PERMANENT_STATUS=400,410,413,415,422"),
    (&[("LEASEHOLD_GUARD", "calim")], "LEASEHOLD_GUARD=claim"),
    (&[("LEASEHOLD_PAYMENTS_ENVELOPE", "sqs")], "LEASEHOLD_PAYMENTS_ENVELOPE=sns"),
    (&[("LEASEHOLD_LOG_FORMAT", "xml")], "LEASEHOLD_LOG_FORMAT="),
    (&[("LEASEHOLD_LOG", "info,=loud=")], "LEASEHOLD_LOG=info"),
    (&[("LEASEHOLD_LOG", "warning")], "LEASEHOLD_LOG=warn"),
    (&[("LEASEHOLD_HTTP_ADDR", ":8080")], "LEASEHOLD_HTTP_ADDR=127.0.0.1:8080"),
    (&[("LEASEHOLD_PAYMENTS_URL", "payments")], "LEASEHOLD_PAYMENTS_URL=https://"),
    (&[("LEASEHOLD_QUEUES", "pay ments")], "LEASEHOLD_QUEUES=pay-ments"),
    (&[("LEASEHOLD_QUEUES", "payments,payments")], "LEASEHOLD_QUEUES=payments"),
    // Values that do not fit together.
    (&[("LEASEHOLD_CANCEL_GRACE", "20s"), ("LEASEHOLD_DRAIN_TIMEOUT", "1m")], "LEASEHOLD_CANCEL_GRACE=7500ms"),
    (&[("LEASEHOLD_DRAIN_TIMEOUT", "4s")], "LEASEHOLD_DRAIN_TIMEOUT="),
    (&[("LEASEHOLD_VISIBILITY_TIMEOUT", "2m..30s")], "LEASEHOLD_PAYMENTS_VISIBILITY_TIMEOUT=30s..2m"),
    (&[("LEASEHOLD_WAIT_TIME", "30s")], "LEASEHOLD_PAYMENTS_WAIT_TIME=10s"),
    (&[("LEASEHOLD_PAYMENTS_DEAD_LETTER", "payments")], "LEASEHOLD_PAYMENTS_DEAD_LETTER=redrive-policy"),
    (&[("LEASEHOLD_TABLE", "no/table")], "LEASEHOLD_TABLE=leasehold"),
    // What a worker needs, and no variable gives.
    (&[("LEASEHOLD_QUEUES", "emails")], "LEASEHOLD_EMAILS_HANDLER=exec:./handle-emails"),
    (&[("LEASEHOLD_QUEUES", "payments,e"), ("LEASEHOLD_E_HANDLER", "exec:cat")], "LEASEHOLD_E_KEY=/order_id"),
];

#[tokio::test(flavor = "multi_thread")]
async fn r5_wrong_settings_of_every_kind_end_with_78_and_a_line_that_mends_them() {
    for (variables, mend) in WRONG {
        let wrong = good_and(variables);
        let told = wrong.run(&["config"]).await.check(78);
        assert!(told.err.contains(mend), "{variables:?}: {mend} in {}", told.err);
        assert!(told.out.is_empty() && !told.err.contains("s3cret") && !told.err.contains("pw@"), "{}", told.err);
        assert_eq!(wrong.run(&["run"]).await.check(78).err, told.err, "run tells the same");
        mends(&wrong, &told).await;
    }
}

/// Does what is told, where it can be done as it stands, until nothing is wrong.
async fn mends(wrong: &Leasehold, told: &Told) {
    let mut mended = wrong.clone();
    let mut last = Told { code: told.code, out: String::new(), err: told.err.clone() };
    for _ in 0..4 {
        for line in last.err.lines().filter_map(|line| line.strip_prefix("    ")) {
            match line.strip_prefix("unset ") {
                Some(name) => drop(mended.variables.remove(name)),
                None => mended.variables.extend(assignments(line)),
            }
        }
        // What has another name is not to be set under this one any more.
        let misnamed = last.err.lines().filter_map(|line| line.strip_prefix("- ")?.split_once(" is not a setting; "));
        misnamed.for_each(|(name, _)| drop(mended.variables.remove(name)));
        last = mended.run(&["config"]).await;
        if last.code == Some(0) {
            return;
        }
    }
    panic!("what is told does not mend it:\n{}\n{}", told.err, last.err);
}

fn assignments(line: &str) -> Vec<(String, String)> {
    let words = line.split([';', ',']).flat_map(|part| shell_words::split(part).unwrap_or_default());
    let whole = shell_words::split(line).unwrap_or_default();
    // A list has commas of its own; a choice of several lines is told in words, with commas between them.
    let choice = line.contains(", or ") || line.contains("; for ");
    let words: Vec<String> = if choice { words.collect() } else { whole };
    words
        .iter()
        .filter_map(|word| word.split_once('='))
        .filter(|(name, _)| name.starts_with("LEASEHOLD_"))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_problems_are_told_at_once() {
    let told = good_and(&[
        ("LEASEHOLD_CONCURRENCY", "0"),
        ("LEASEHOLD_TABEL", "t-1"),
        ("LEASEHOLD_PAYMENTS_KEY", "id"),
        ("LEASEHOLD_LOG", "=="),
    ])
    .run(&["config"])
    .await
    .check(78);
    assert!(told.err.contains("there are 3 problems"), "{}", told.err);
    let only = good_and(&[]).run(&["config", "--only", "payment"]).await.check(78);
    assert!(only.err.contains("--only payments"), "{}", only.err);
}
