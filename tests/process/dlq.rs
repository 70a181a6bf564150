//! `leasehold dlq`: what is dead is seen, understood, put back and deleted, as somebody at a terminal or a script would.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    worker::{Ended, Settings},
};

/// Fails for good, unless the bench's folder has a file `mended`; fails with another code, is killed, or is no program's
/// fault, by what the key ends in.
const HANDLER: &str = "$begin; case $LEASEHOLD_IDEMPOTENCY_KEY in *7) [ -e mended ] || { echo 'card \u{1b}[31mdeclined' >&2; exit 65; };; *8) exit 3;; esac; $end";

async fn dead(bench: &Bench, keys: usize) -> Settings {
    let settings = bench.settings(HANDLER).set("LEASEHOLD_MAX_ATTEMPTS", "1");
    bench.send(0..keys).await;
    let worker = settings.start();
    bench.poll("all is settled", async || bench.messages().await == 0).await;
    worker.stops().await.clean_report();
    settings
}

async fn run(settings: &Settings, line: &str) -> Ended {
    line.split(' ').fold(settings.clone().command("dlq"), Settings::arg).start().ends().await
}

#[track_caller]
fn told(ended: &Ended, code: i32) -> String {
    assert_eq!(ended.code, Some(code), "{:?} {}", ended.log, ended.stderr);
    ended.log.join("\n")
}

fn json_lines(ended: &Ended) -> Vec<Value> {
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended.log.iter().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_dead_is_listed_by_reason_and_shown_with_its_record_and_no_control_characters() {
    let bench = Bench::new().await;
    let settings = dead(&bench, 30).await;
    let listed = told(&run(&settings, "ls").await, 0);
    assert!(listed.starts_with("jobs-dlq (of jobs): 6 messages, the oldest from "), "{listed}");
    let rows: Vec<Vec<&str>> = listed.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert!(rows[0].starts_with(&["REASON", "MESSAGES", "FAILURES", "DIED", "RECORDS"]), "{listed}");
    assert!(rows[1..].iter().any(|row| row.starts_with(&["exit_65", "3", "3"])), "{listed}");
    assert!(rows[1..].iter().any(|row| row.starts_with(&["exit_3", "3", "3"])), "{listed}");
    assert!(listed.contains("DEAD") && listed.contains("card \\u{1b}[31mdeclined"), "{listed}");

    let by_script = json_lines(&run(&settings, "ls jobs --json").await).remove(0);
    let groups: Vec<_> = by_script["groups"].as_array().expect("groups").iter().map(|group| &group["code"]).collect();
    assert_eq!(by_script["depth"], json!({"visible": 6, "in_flight": 0, "delayed": 0}));
    assert_eq!((by_script["is_all"].clone(), groups.len()), (json!(true), 2));

    let peeked = told(&run(&settings, "peek jobs --key 17").await, 0);
    for line in
        ["1. exit_65: exit status: 65: card", "key       jobs#17", "failed for good", "it runs again", r#""id": "17""#]
    {
        assert!(peeked.contains(line), "{line}: {peeked}");
    }
    assert!(!peeked.contains('\u{1b}'), "{peeked}");
    assert_eq!(json_lines(&run(&settings, "peek jobs --reason exit_3 --json").await).len(), 3);
    assert_eq!(told(&run(&settings, "peek jobs --reason other").await, 0), "jobs-dlq (of jobs): no such message");
    assert_eq!(bench.engine.depth("jobs-dlq").await.expect("a depth").visible, 6, "nothing is hidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_handler_is_mended_those_of_one_reason_go_back_and_take_effect_once() {
    let bench = Bench::new().await;
    let settings = dead(&bench, 30).await;
    let dry = told(&run(&settings, "redrive jobs --reason exit_65 --dry-run").await, 0);
    assert!(dry.contains("3 messages would be put back") && dry.contains("3  runs again"), "{dry}");
    let lines: Vec<Vec<&str>> = dry.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(lines.contains(&vec!["runs", "again", "jobs#17", "exit_65"]), "{dry}");
    assert_eq!(bench.messages().await, 0);

    std::fs::write(bench.path("mended"), "").expect("is written");
    let lines = json_lines(&run(&settings, "redrive jobs --reason exit_65 --json").await);
    let fates: Vec<_> = lines[..3].iter().map(|line| (&line["fate"], &line["outcome"])).collect();
    assert_eq!(fates, [(&json!("runs_again"), &json!("done")); 3]);
    assert_eq!((&lines[3]["done"], &lines[3]["others"]), (&json!({"runs again": 3}), &json!(3)));
    let worker = settings.start();
    bench.poll("all is settled", async || bench.messages().await == 0).await;
    worker.stops().await.clean_report();
    assert_eq!(bench.succeeded().len(), 27, "all but those that end in 8: {:?}", bench.succeeded());
    assert!(bench.calls_by_key().iter().all(|(key, calls)| *calls == 1 + usize::from(key.ends_with('7'))));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_go_back_one_by_one_where_the_service_has_no_task_for_it() {
    let bench = Bench::new().await;
    let settings = dead(&bench, 20).await;
    let ended = run(&settings, "redrive jobs").await;
    assert!(told(&ended, 0).contains("4 messages put back"), "{:?}", ended.log);
    assert!(ended.stderr.contains("One by one: ") && ended.stderr.contains("not yet implemented"), "{}", ended.stderr);
    assert_eq!(bench.messages().await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_and_sigterm_finish_what_is_under_way_and_hide_nothing() {
    let bench = Bench::new().await;
    let settings = dead(&bench, 60).await;
    let line = ["redrive", "jobs", "--one-by-one", "--rate", "2", "--json"];
    let mut put = 0;
    for signal in [Signal::INT, Signal::TERM] {
        let command = line.iter().fold(settings.clone().command("dlq"), |settings, arg| settings.arg(arg));
        let mut redriving = command.start();
        redriving.says("runs_again").await;
        redriving.signal(signal);
        let ended = redriving.ends().await;
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains("what is under way is finished"), "{}", ended.stderr);
        let last: Value = serde_json::from_str(ended.log.last().expect("a line")).expect("JSON");
        put += last["done"]["runs again"].as_u64().expect("a number");
        assert_eq!((&last["ending"], bench.messages().await as u64), (&json!("stopped"), put));
        assert_eq!(bench.engine.depth("jobs-dlq").await.expect("a depth").visible, 12 - put);
    }
    assert!(
        told(&run(&settings, "redrive jobs --one-by-one").await, 0).contains(&format!("{} messages put", 12 - put))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_the_same_again_says_that_some_are_hidden_yet() {
    let bench = Bench::new().await;
    let settings = dead(&bench, 20).await;
    let line = ["redrive", "jobs", "--one-by-one", "--rate", "0.1", "--json"];
    let mut redriving = line.iter().fold(settings.clone().command("dlq"), |settings, arg| settings.arg(arg)).start();
    redriving.says("runs_again").await;
    redriving.signal(Signal::KILL);
    redriving.ends().await;
    let again = told(&run(&settings, "redrive jobs --one-by-one").await, 1);
    assert!(again.contains("0 messages put back") && again.contains("3 more are there, hidden"), "{again}");
    let listed = told(&run(&settings, "ls jobs").await, 0);
    assert_eq!(listed, "jobs-dlq (of jobs): 3 messages; 3 hidden, as somebody else looks at them or a moment ago did");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_shown_as_it_was_sent_and_that_it_was_received_is_said() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 65");
    bench.send([r#"a","z":12345678901234567890123,"a":1.10,"a":"\u202e"#]).await;
    let worker = settings.start();
    bench.poll("it is settled", async || bench.messages().await == 0).await;
    worker.stops().await.clean_report();
    let peeked = run(&settings, "peek jobs").await;
    let shown = told(&peeked, 0);
    let body =
        ["{", r#"  "id": "a","#, r#"  "z": 12345678901234567890123,"#, r#"  "a": 1.10,"#, r#"  "a": "\u202e""#, "}"];
    let body: Vec<_> = body.iter().map(|line| format!("     {line}")).collect();
    assert!(shown.ends_with(&body.join("\n")), "{shown}");
    assert!(peeked.stderr.contains("Looked at 1 message, which counts as one more receive"), "{}", peeked.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_cannot_be_listed_keeps_no_other_from_it() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0").set("LEASEHOLD_QUEUES", "gone,jobs").set("LEASEHOLD_GONE_KEY", "/id");
    let listed = run(&settings, "ls").await;
    assert_eq!(told(&listed, 1), "jobs-dlq (of jobs): 0 messages");
    assert!(listed.stderr.contains("LEASEHOLD_GONE_URL=<its URL>"), "{}", listed.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_effect_has_to_be_forced_and_said_twice() {
    let bench = Bench::new().await;
    let settings = dead(&bench, 8).await;
    // Done by now, by hand.
    told(
        &["done", "jobs", "7", "--yes"]
            .iter()
            .fold(settings.clone().command("guard"), |s, arg| s.arg(arg))
            .start()
            .ends()
            .await,
        0,
    );
    let refused = run(&settings, "redrive jobs --force-rerun").await;
    assert!(told(&refused, 64).is_empty() && refused.stderr.contains("--yes"), "{}", refused.stderr);
    let forced = told(&run(&settings, "redrive jobs --force-rerun --yes").await, 0);
    assert!(forced.contains("1  is forced to run again"), "{forced}");
    std::fs::write(bench.path("mended"), "").expect("is written");
    let worker = settings.start();
    bench.poll("all is settled", async || bench.messages().await == 0).await;
    worker.stops().await.clean_report();
    assert_eq!(bench.calls_by_key()["jobs#7"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_asks_and_deletes_what_was_meant() {
    let bench = Bench::new().await;
    let settings = dead(&bench, 20).await;
    let refused = run(&settings, "purge jobs").await;
    assert!(told(&refused, 64).is_empty() && refused.stderr.contains("--yes"), "{}", refused.stderr);
    assert!(
        told(&run(&settings, "purge jobs --reason exit_3 --dry-run").await, 0).contains("2 messages would be deleted")
    );
    assert_eq!(bench.engine.depth("jobs-dlq").await.expect("a depth").visible, 4);
    let lines = json_lines(&run(&settings, "purge jobs --reason exit_3 --limit 1 --yes --json").await);
    assert_eq!((&lines[0]["fate"], &lines[0]["outcome"]), (&json!("deleted"), &json!("done")));
    assert_eq!((&lines[1]["done"], &lines[1]["ending"]), (&json!({"deleted": 1}), &json!("enough")));
    let purged = told(&run(&settings, "purge jobs --reason exit_3 --yes").await, 0);
    assert!(purged.contains("1 message deleted"), "{purged}");
    assert_eq!(bench.engine.depth("jobs-dlq").await.expect("a depth").visible, 2);
    assert_eq!(bench.statuses().await["jobs#8"], "DEAD", "a late duplicate does not run");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said_with_what_mends_it() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0");
    for (settings, line, code, says) in [
        (settings.clone(), "peek other", 78, "LEASEHOLD_QUEUES names no queue \"other\", but jobs"),
        (settings.clone().unset("LEASEHOLD_QUEUES"), "ls", 78, "name a queue as SQS does: leasehold dlq ls payments"),
        (settings.clone().unset("LEASEHOLD_QUEUES"), "ls other", 78, "LEASEHOLD_OTHER_URL=<its URL>"),
        (settings.clone().set("LEASEHOLD_JOBS_DEAD_LETTER", "drop"), "ls jobs", 78, "drops what fails for good"),
        (settings.clone(), "redrive jobs --rate none", 64, "--rate"),
        (settings.clone().set("AWS_ENDPOINT_URL", "http://127.0.0.1:1"), "ls", 69, "the queue jobs"),
    ] {
        let ended = run(&settings, line).await;
        assert_eq!(ended.code, Some(code), "{line}: {}", ended.stderr);
        assert!(ended.stderr.contains(says), "{line}: {}", ended.stderr);
    }
    assert_eq!(told(&run(&settings.unset("LEASEHOLD_QUEUES"), "ls jobs").await, 0), "jobs-dlq (of jobs): 0 messages");
}
