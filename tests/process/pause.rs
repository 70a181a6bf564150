//! `leasehold pause` and `resume`: what they say, what then stands in the table, and how they end.

use leasehold::{
    aws::{self, Aws},
    guard::{Control, ControlKey, Guard, dynamodb::DynamoDbGuard},
};
use serde_json::Value;

use crate::{
    bench::Bench,
    worker::{Ended, Settings},
};

/// What stands in the table for a queue by its name in SQS.
async fn said(bench: &Bench, namespace: Option<&str>, queue: &str) -> Control {
    let guard = DynamoDbGuard::new(Aws::new(&aws::local(bench.engine.endpoint())).dynamodb(), "leasehold".to_owned());
    guard.control(&ControlKey::new(namespace, queue)).await.expect("an answer")
}

/// Runs a command line.
async fn ends(settings: &Settings, line: &[&str]) -> Ended {
    let (command, args) = line.split_first().expect("a command");
    args.iter().fold(settings.clone().command(command), |settings, arg| settings.arg(arg)).start().ends().await
}

#[track_caller]
fn told(ended: &Ended, code: i32) -> String {
    assert_eq!(ended.code, Some(code), "{:?} {}", ended.log, ended.stderr);
    ended.log.join("\n")
}

fn json(ended: &Ended) -> Vec<Value> {
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    ended.log.iter().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_paused_listed_and_resumed_by_its_name_in_sqs() {
    let bench = Bench::new().await;
    let settings = bench
        .settings("exit 0")
        .set("LEASEHOLD_QUEUES", "work,other")
        .set("LEASEHOLD_WORK_NAME", "jobs")
        .set("LEASEHOLD_KEY", "/id")
        .unset("LEASEHOLD_JOBS_KEY")
        .unset("LEASEHOLD_JOBS_HANDLER")
        .set("LEASEHOLD_NAMESPACE", "prod")
        .set("USER", "ann");
    let paused = told(&ends(&settings, &["pause", "work", "--why", "the bank is down"]).await, 0);
    assert_eq!(paused, "work (jobs in SQS): paused; was not paused");
    let control = said(&bench, Some("prod"), "jobs").await;
    let pause = control.paused.expect("a pause");
    assert!(pause.by.starts_with("ann@") && pause.why.as_deref() == Some("the bank is down"), "{pause:?}");
    assert_eq!(said(&bench, None, "jobs").await, Control::default(), "of another namespace");

    let standing = format!("paused since {} by {}: the bank is down", pause.at.utc(), pause.by);
    let listed = told(&ends(&settings, &["pause"]).await, 0);
    assert_eq!(listed, format!("other: not paused\nwork (jobs in SQS): {standing}"));
    let again = told(&ends(&settings, &["pause", "--all"]).await, 0);
    assert_eq!(again, format!("other: paused; was not paused\nwork (jobs in SQS): paused; was {standing}"));

    let resumed = told(&ends(&settings, &["resume", "--all"]).await, 0);
    assert!(resumed.starts_with("other: goes on; was paused since ") && resumed.lines().count() == 2, "{resumed}");
    let control = said(&bench, Some("prod"), "jobs").await;
    assert!(control.paused.is_none() && control.resumed_at.is_some_and(|at| at >= pause.at), "{control:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_list_of_queues_their_names_in_sqs_are_enough_and_scripts_read_json() {
    let bench = Bench::new().await;
    let settings = Settings::new(bench.engine.endpoint(), &std::env::temp_dir());
    let paused = json(&ends(&settings, &["pause", "jobs", "emails.fifo", "--json"]).await);
    assert_eq!(paused.len(), 2);
    assert_eq!((&paused[0]["queue"], &paused[0]["name"]), (&"jobs".into(), &"jobs".into()));
    assert_eq!((&paused[0]["before"]["paused"], &paused[0]["paused"]["why"]), (&Value::Null, &Value::Null));
    let by = paused[0]["paused"]["by"].as_str().expect("somebody");
    assert!(by.starts_with("uid ") && by.contains('@'), "nobody logged in here: {by}");

    let resumed = json(&ends(&settings, &["resume", "jobs", "--json"]).await);
    assert_eq!((&resumed[0]["paused"], &resumed[0]["before"]["paused"]), (&Value::Null, &paused[0]["paused"]));
    assert!(resumed[0]["resumed_at"].as_u64() >= paused[0]["paused"]["at"].as_u64());
    assert!(said(&bench, None, "emails.fifo").await.paused.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_said_ends_with_a_code_and_a_line_that_mends_it() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0");
    for (line, mend) in [
        (["pause", "jbos"].as_slice(), "leasehold pause jobs"),
        (&["pause", "--all", "--json"], "LEASEHOLD_TABLE="),
        (&["resume", "jobs"], "LEASEHOLD_TABLE="),
    ] {
        let ended = ends(&settings.clone().set("LEASEHOLD_TABLE", "no-table"), line).await;
        assert_eq!(told(&ended, 78), "");
        assert!(ended.stderr.contains(mend), "{line:?}: {}", ended.stderr);
    }
    let nowhere = ends(&settings.clone().unset("AWS_REGION"), &["pause", "jobs"]).await;
    told(&nowhere, 78);
    assert!(nowhere.stderr.contains("AWS_REGION="), "{}", nowhere.stderr);
    let unguarded = ends(&settings.clone().set("LEASEHOLD_GUARD", "none"), &["pause", "jobs"]).await;
    told(&unguarded, 78);
    assert!(unguarded.stderr.contains("GUARD=none"), "{}", unguarded.stderr);
    told(&ends(&settings.clone().unset("LEASEHOLD_QUEUES"), &["pause"]).await, 78);
    for line in [
        ["resume", "--json"].as_slice(),
        &["pause", "--why", "x"],
        &["pause", "a", "--all"],
        &["resume", "a", "--why", "x"],
    ] {
        let ended = ends(&settings, line).await;
        assert_eq!(told(&ended, 64), "", "{line:?}");
        assert!(ended.stderr.contains("--"), "{line:?}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_out_of_reach_ends_with_69_and_names_what_is_left() {
    let bench = Bench::new().await;
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let settings = bench.settings("exit 0").set("AWS_ENDPOINT_URL", format!("http://{nowhere}"));
    let ended = ends(&settings, &["pause", "jobs"]).await;
    assert_eq!(told(&ended, 69), "");
    assert!(ended.stderr.contains("not paused, as far as is known: jobs"), "{}", ended.stderr);
    assert!(ended.stderr.contains("refused"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn help_says_what_happens_and_how_it_ends() {
    let settings = Settings::new("http://127.0.0.1:9", &std::env::temp_dir());
    let help = told(&ends(&settings, &["pause", "--help"]).await, 0);
    for part in ["leasehold resume", "5 seconds", "GUARD=none", "  69  ", "LEASEHOLD_TABLE", "resumed_at"] {
        assert!(help.contains(part), "{part}");
    }
    assert!(told(&ends(&settings, &["resume", "--help"]).await, 0).contains("  78  "));
}
