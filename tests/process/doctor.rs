//! `leasehold doctor`: what it tells of a setup that fits, of one that does not, and of none at all.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TimeToLiveSpecification,
};
use aws_sdk_sqs::types::QueueAttributeName;
use leasehold::{aws, embedded::Engine};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    bench::Bench,
    worker::{Ended, Settings},
};

async fn ends(settings: &Settings, args: &[&str]) -> Ended {
    args.iter().fold(settings.clone().command("doctor"), |settings, arg| settings.arg(arg)).start().ends().await
}

#[track_caller]
fn told(ended: &Ended, code: i32) -> String {
    assert_eq!(ended.code, Some(code), "{:?} {}", ended.log, ended.stderr);
    ended.log.join("\n")
}

fn json(ended: &Ended, code: i32) -> Value {
    serde_json::from_str(&told(ended, code)).expect("JSON")
}

fn codes(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().expect("findings");
    findings.iter().map(|finding| finding["check"].as_str().expect("a code")).collect()
}

/// Sets how long dead letters are kept, and leaves room in them for their reason, which on the engine is to be had from the
/// queue alone.
async fn keep_dead_letters(bench: &Bench, seconds: &str) {
    let sqs = aws_sdk_sqs::Client::new(&aws::local(bench.engine.endpoint()));
    for (name, attribute, value) in [
        ("jobs-dlq", QueueAttributeName::MessageRetentionPeriod, seconds),
        ("jobs", QueueAttributeName::MaximumMessageSize, "200000"),
    ] {
        let url = sqs.get_queue_url().queue_name(name).send().await.expect("a queue").queue_url.expect("a URL");
        sqs.set_queue_attributes().queue_url(url).attributes(attribute, value).send().await.expect("is set");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fits_is_said_in_one_line_and_nothing_is_changed() {
    let bench = Bench::new().await;
    keep_dead_letters(&bench, "1209600").await;
    bench.send(["a"]).await;
    let settings = bench.settings("exit 0");
    let said = told(&ends(&settings, &[]).await, 0);
    assert!(said.ends_with("checks passed; 0 errors, 0 warnings, 0 notes") && said.lines().count() == 1, "{said}");
    assert_eq!(bench.messages().await, 1);
    assert_eq!(bench.statuses().await.len(), 0, "no record");
    bench.until("it has sent nothing to the dead-letter queue", async || true).await;
    assert_eq!(bench.receives_of_the_message().await, 1, "it has received nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_told_with_why_and_the_line_that_mends_it() {
    let bench = Bench::new().await;
    keep_dead_letters(&bench, "3600").await;
    let settings = bench.settings("exit 0").set("LEASEHOLD_DONE_TTL", "1d").set("LEASEHOLD_WAIT_TIME", "20s");
    let said = told(&ends(&settings, &["--stop-timeout", "20s", "--p99", "jobs=90s"]).await, 1);
    for part in [
        "queue jobs\n  error [",
        "error [done_ttl]: \"done\" is remembered for 1d",
        "    why: A duplicate that comes after",
        "    mend: LEASEHOLD_JOBS_DONE_TTL=4d",
        "error [dead_letter_retention]",
        "/jobs-dlq --attributes MessageRetentionPeriod=1209600",
        "warning [visibility]",
        "as given",
        "note [wait_time]",
        "mend: LEASEHOLD_DRAIN_TIMEOUT=15s",
        "p99 of handler time of jobs: 90s (given)",
        "checks passed; 3 errors, 1 warning, 2 notes",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let report = json(&ends(&settings, &["--json"]).await, 1);
    assert_eq!(codes(&report), ["done_ttl", "dead_letter_retention", "wait_time"]);
    assert_eq!((&report["reached"], &report["create"]), (&true.into(), &serde_json::json!([])));
    assert_eq!(report["findings"][0]["subject"], serde_json::json!({ "kind": "queue", "name": "jobs" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_worker_is_asked_how_long_handlers_take() {
    let bench = Bench::new().await;
    keep_dead_letters(&bench, "1209600").await;
    let worker = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = worker.local_addr().expect("an address").to_string();
    let answers = async move {
        let body = r#"{"phase":"running","queues":{"jobs":{"handler_p99_ms":90000},"other":{"handler_p99_ms":1}}}"#;
        let (mut stream, _) = worker.accept().await.expect("somebody asks");
        let mut request = [0; 1024];
        let read = stream.read(&mut request).await.expect("a request");
        assert!(request[..read].starts_with(b"GET /ready "), "{request:?}");
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.expect("is heard");
    };
    let settings = bench.settings("exit 0").set("LEASEHOLD_HTTP_ADDR", &address);
    let (ended, ()) = tokio::join!(ends(&settings, &["--json"]), answers);
    let report = json(&ended, 0);
    assert_eq!(report["p99"], serde_json::json!({ "jobs": { "ms": 90000, "source": "measured" } }));
    assert_eq!(codes(&report), ["visibility", "drain"]);
}

/// Notes its arguments, each with a zero behind it, and prints what the AWS CLI would print.
const AWS: &str = r#"#!/bin/sh
calls="$(dirname "$0")/calls"; n=$(ls "$calls" | wc -l)
printf '%s\0' "$@" > "$calls/$(printf %03d "$n")"
name=""; previous=""
for word in "$@"; do case $previous in --queue-name) name=$word;; --queue-url) name=${word##*/};; esac; previous=$word; done
case $2 in
create-queue) echo "$ENDPOINT/000000000000/$name";;
get-queue-attributes) echo "arn:aws:sqs:us-east-1:000000000000:$name";;
esac
"#;

/// Runs lines in a shell, where `aws` is a program that only notes what it is asked for; then does that. Answers with the
/// variables that are exported.
async fn carry_out(engine: &Engine, lines: &[String]) -> Vec<(String, String)> {
    let folder = TempDir::new().expect("a folder");
    let (aws, calls) = (folder.path().join("aws"), folder.path().join("calls"));
    fs::create_dir(&calls).expect("a folder");
    fs::write(&aws, AWS).expect("is written");
    fs::set_permissions(&aws, fs::Permissions::from_mode(0o755)).expect("may be run");
    let script = format!("set -eu\n{}\nenv\n", lines.join("\n"));
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", folder.path().display());
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(&script).env_clear().env("PATH", path).env("ENDPOINT", engine.endpoint());
    let output = shell.output().expect("a shell");
    assert!(output.status.success() && output.stderr.is_empty(), "{script}\n{output:?}");
    do_calls(engine, &calls).await;
    let exported = String::from_utf8(output.stdout).expect("text");
    let variables = exported.lines().filter(|line| line.starts_with("LEASEHOLD_"));
    variables.filter_map(|line| line.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

async fn do_calls(engine: &Engine, folder: &Path) {
    let account = aws::local(engine.endpoint());
    let (sqs, dynamodb) = (aws_sdk_sqs::Client::new(&account), aws_sdk_dynamodb::Client::new(&account));
    let mut calls: Vec<_> = fs::read_dir(folder).expect("calls").map(|entry| entry.expect("a call").path()).collect();
    calls.sort();
    for call in calls {
        let words = fs::read_to_string(call).expect("words");
        let words: Vec<_> = words.split('\0').collect();
        let of = |option: &str| words.iter().skip_while(|word| **word != option).nth(1).copied().expect("a value");
        match words[..2] {
            ["sqs", "create-queue"] => {
                let mut create = sqs.create_queue().queue_name(of("--queue-name"));
                for (name, value) in attributes(of("--attributes")) {
                    create = create.attributes(QueueAttributeName::from(name.as_str()), value);
                }
                create.send().await.expect("a queue");
            }
            ["dynamodb", "create-table"] => {
                assert_eq!(of("--key-schema"), "AttributeName=pk,KeyType=HASH");
                assert_eq!(of("--attribute-definitions"), "AttributeName=pk,AttributeType=S");
                let key = KeySchemaElement::builder().attribute_name("pk").key_type(KeyType::Hash);
                let attribute = AttributeDefinition::builder().attribute_name("pk");
                let attribute = attribute.attribute_type(ScalarAttributeType::S).build().expect("complete");
                let create = dynamodb.create_table().table_name(of("--table-name"));
                let create = create.billing_mode(BillingMode::from(of("--billing-mode")));
                let create = create.key_schema(key.build().expect("complete")).attribute_definitions(attribute);
                create.send().await.expect("a table");
            }
            ["dynamodb", "update-time-to-live"] => {
                assert_eq!(of("--time-to-live-specification"), "Enabled=true,AttributeName=expires_at");
                let ttl = TimeToLiveSpecification::builder().enabled(true).attribute_name("expires_at");
                let update = dynamodb.update_time_to_live().table_name(of("--table-name"));
                update.time_to_live_specification(ttl.build().expect("complete")).send().await.expect("is on");
            }
            ["dynamodb", "wait"] | ["sqs", "get-queue-attributes"] => {}
            _ => panic!("{words:?}"),
        }
    }
}

/// In short or as JSON.
fn attributes(text: &str) -> Vec<(String, String)> {
    if text.starts_with('{') {
        let map: serde_json::Map<String, Value> = serde_json::from_str(text).expect(text);
        return map.into_iter().map(|(name, value)| (name, value.as_str().expect("text").to_owned())).collect();
    }
    let pairs = text.split(',').map(|pair| pair.split_once('=').expect(text));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The lines of a report in text that make what is not there.
fn lines_to_copy(said: &str) -> Vec<String> {
    let lines = said.lines().skip_while(|line| *line != "To make what is not there:").skip(2);
    lines.take_while(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_nothing_gets_the_lines_that_make_everything() {
    for (args, name) in [([].as_slice(), "payments"), (&["orders.fifo"], "orders.fifo")] {
        let engine = Engine::start().await.expect("an engine");
        let bare = Settings::new(engine.endpoint(), &std::env::temp_dir());
        let said = told(&ends(&bare, args).await, 1);
        let made = lines_to_copy(&said);
        assert_eq!(made.len(), 9, "{said}");
        let variables = carry_out(&engine, &made).await;
        assert_eq!(variables.len(), 3, "{variables:?}");
        let settings = variables.iter().fold(bare, |settings, (variable, value)| settings.set(variable, value));
        let report = json(&ends(&settings, &["--json"]).await, 0);
        // On AWS new queues take messages of 1 MiB; here they take less, and one more byte cannot be had.
        assert_eq!(codes(&report), ["dead_letter_size"], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_missing_is_made() {
    let bench = Bench::new().await;
    keep_dead_letters(&bench, "1209600").await;
    let settings = bench.settings("exit 0").set("LEASEHOLD_TABLE", "another").set("LEASEHOLD_QUEUES", "jobs,more");
    let settings = settings.set("LEASEHOLD_KEY", "/id").set("LEASEHOLD_HANDLER", "exec:true");
    let report = json(&ends(&settings, &["--json"]).await, 1);
    assert_eq!(codes(&report), ["queue", "table"]);
    let made: Vec<String> = serde_json::from_value(report["create"].clone()).expect("lines");
    assert_eq!(carry_out(&bench.engine, &made).await, [], "nothing to export: it is");
    told(&ends(&settings, &[]).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_reached_or_not_understood_ends_with_its_own_code() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0");
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let away = settings.clone().set("AWS_ENDPOINT_URL", format!("http://{nowhere}"));
    let report = json(&ends(&away, &["--json"]).await, 69);
    assert_eq!((&report["reached"], codes(&report)), (&false.into(), vec!["unreachable", "unreachable"]));
    for (wrong, line) in [
        (settings.clone(), ["jbos"].as_slice()),
        (settings.clone().set("LEASEHOLD_JOBS_MAX_ATTEMPTS", "0"), &[]),
        (settings.clone().unset("AWS_REGION"), &[]),
    ] {
        let ended = ends(&wrong, line).await;
        assert_eq!(told(&ended, 78), "");
        assert!(ended.stderr.contains("problem with the configuration"), "{}", ended.stderr);
    }
    for line in [["--p99", "soon"], ["--p99", "jbos=1s"], ["--stop-timeout", "x"]] {
        let ended = ends(&settings, &line).await;
        assert_eq!(told(&ended, 64), "", "{line:?}");
        assert!(ended.stderr.contains(line[0]), "{line:?}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_credentials_that_is_said_once_and_nothing_of_rights() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0").unset("AWS_ACCESS_KEY_ID").unset("AWS_SECRET_ACCESS_KEY");
    let settings = settings.set("AWS_CONFIG_FILE", "/nowhere").set("AWS_SHARED_CREDENTIALS_FILE", "/nowhere");
    let report = json(&ends(&settings, &["--json"]).await, 1);
    assert_eq!(codes(&report), ["credentials"], "{report}");
    assert!(report["findings"][0]["mend"].as_str().is_some_and(|mend| mend.starts_with("aws sso login")), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn text_from_outside_does_not_reach_the_terminal_as_it_is() {
    let engine = Engine::start().await.expect("an engine");
    let settings = Settings::new(engine.endpoint(), &std::env::temp_dir());
    let said = told(&ends(&settings, &["http://127.0.0.1/\u{1b}]0;x\u{7}/a"]).await, 1);
    assert!(!said.chars().any(|c| c.is_control() && c != '\n'), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn help_says_what_is_checked_and_how_it_ends() {
    let settings = Settings::new("http://127.0.0.1:9", &std::env::temp_dir());
    let help = told(&ends(&settings, &["--help"]).await, 0);
    for part in ["dead_letter_retention", "--p99 payments=20s", "WorkerPolicy", "  69  ", "findings", "not documented"]
    {
        assert!(help.contains(part), "{part}");
    }
}
