//! A queue is drained by a program.

use std::{collections::BTreeSet, fs, os::unix::fs::symlink};

use crate::{bench::Bench, worker::report};

#[tokio::test(flavor = "multi_thread")]
async fn t1_a_program_drains_a_queue_and_its_duplicates_once() {
    let bench = Bench::new().await;
    bench.send(0..20).await;
    bench.send(0..20).await;
    let mut worker = bench.settings("$bank; exit 0").start();
    worker.says_times("\"deleted\"", 40).await;
    // A duplicate that comes while its key runs is delayed, and comes again; on a slow machine there are some.
    let mut counts = worker.stops().await.clean_report();
    counts.remove("released");
    assert_eq!(counts, report([("done", 20), ("suppressed", 20)]));
    assert_eq!(bench.calls().iter().collect::<BTreeSet<_>>().len(), 20);
    assert_eq!((bench.calls().len(), bench.effects().len(), bench.messages().await), (20, 20, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_gets_the_environment_without_settings_and_credentials() {
    let bench = Bench::new().await;
    bench.send(["a"]).await;
    let settings = bench.settings("env | sort > told; exit 0");
    let mut worker = settings.set("AWS_SESSION_TOKEN", "test").set("OWN", "kept").start();
    worker.says("\"deleted\"").await;
    worker.stops().await.clean_report();
    let told = fs::read_to_string(bench.path("told")).expect("was written");
    let names: BTreeSet<_> = told.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    for kept in ["AWS_REGION", "OWN", "PATH"] {
        assert!(names.contains(kept), "{kept} in {told}");
    }
    let ours: Vec<_> = names.iter().filter(|name| name.starts_with("LEASEHOLD_")).copied().collect();
    let facts = [
        "ATTEMPT",
        "DEADLINE",
        "FENCE",
        "IDEMPOTENCY_KEY",
        "JOB_TOKEN",
        "JOB_URL",
        "MESSAGE_ID",
        "QUEUE",
        "RECEIVE_COUNT",
        "SENT_AT",
        "STEPS",
    ];
    assert_eq!(ours, facts.map(|fact| format!("LEASEHOLD_{fact}")));
    let is_secret = |name: &&&str| name.contains("KEY_ID") || name.contains("SECRET") || name.contains("TOKEN");
    // Good for this run alone.
    assert_eq!(names.iter().filter(is_secret).collect::<Vec<_>>(), [&"LEASEHOLD_JOB_TOKEN"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_gets_credentials_where_the_settings_say_so() {
    let bench = Bench::new().await;
    bench.send(["a"]).await;
    let settings = bench.settings("echo \"$AWS_ACCESS_KEY_ID\" > told; exit 0");
    let mut worker = settings.set("LEASEHOLD_JOBS_HANDLER_CREDENTIALS", "pass").start();
    worker.says("\"deleted\"").await;
    worker.stops().await.clean_report();
    assert_eq!(fs::read_to_string(bench.path("told")).expect("was written"), "test\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_says_is_in_the_log() {
    let bench = Bench::new().await;
    bench.send(["a"]).await;
    let mut worker = bench.settings("echo a word; echo another >&2; exit 0").start();
    worker.says("\"deleted\"").await;
    let log = worker.stops().await.log.join("\n");
    assert!(log.contains(r#""message":"a word","stream":"stdout""#), "{log}");
    assert!(log.contains(r#""message":"another","stream":"stderr""#), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_a_worker_that_nobody_listens_to_works_on_and_stops_cleanly() {
    let bench = Bench::new().await;
    let mut worker = bench.settings("echo a word; $bank; exit 0").start();
    worker.says("leasehold").await;
    worker.is_not_listened_to().await;
    bench.send(0..3).await;
    bench.until("all is done", async || bench.effects().len() == 3 && bench.messages().await == 0).await;
    assert_eq!(worker.stops_unheard().await, Some(0));
    assert_eq!(bench.calls().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_leaves_the_other_queues_alone() {
    let bench = Bench::new().await;
    bench.send(["a"]).await;
    // That there is no such queue as the other, nor a handler for it, does not matter then.
    let settings = bench.settings("exit 0").set("LEASEHOLD_QUEUES", "jobs,other").arg("--only").arg("jobs");
    let mut worker = settings.set("LEASEHOLD_LOG_FORMAT", "text").start();
    worker.says("deleted").await;
    let ended = worker.stops().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.log.last().is_some_and(|line| line.contains("stopped done=1")), "{:?}", ended.log);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_missing_burns_nothing_and_work_goes_on_when_it_appears() {
    let bench = Bench::new().await;
    bench.send(0..3).await;
    let program = bench.path("handle");
    let settings = bench.settings("$bank; exit 0");
    let handler = format!("exec:{} {}", program.display(), bench.path("handle.sh").display());
    let mut worker = settings.set("LEASEHOLD_JOBS_HANDLER", handler).set("LEASEHOLD_BACKOFF", "1s..2s").start();
    worker.says("still away").await;
    assert!(bench.effects().is_empty());
    symlink("/bin/sh", &program).expect("is linked");
    worker.says_times("\"deleted\"", 3).await;
    let report = worker.stops().await.clean_report();
    assert_eq!((report.get("done"), report.get("failed")), (Some(&3), None));
    assert!(bench.calls().iter().all(|call| call.ends_with(" 1")), "no attempt was used: {:?}", bench.calls());
}
