//! `leasehold guard`: what it shows of a record, what it writes, and when it writes nothing.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold::{
    aws::{self, Aws},
    clock::{Clock, Millis},
    guard::{
        Amend, Claim, Failure, Fence, Guard, Owner, Pk, Record, Source, Status, Step, StepState, Written,
        dynamodb::DynamoDbGuard,
    },
};
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    proxy::{Fault, Hold, Proxy},
    worker::{Ended, Settings},
};

/// Runs a command line.
async fn ends(settings: &Settings, line: &[&str]) -> Ended {
    line.iter().fold(settings.clone().command("guard"), |settings, arg| settings.arg(arg)).start().ends().await
}

#[track_caller]
fn told(ended: &Ended, code: i32) -> String {
    assert_eq!(ended.code, Some(code), "{:?} {}", ended.log, ended.stderr);
    ended.log.join("\n")
}

#[track_caller]
fn json_of(ended: &Ended, code: i32) -> Value {
    let told = told(ended, code);
    serde_json::from_str(&told).unwrap_or_else(|error| panic!("{told}: {error}"))
}

fn table(bench: &Bench) -> DynamoDbGuard {
    DynamoDbGuard::new(Aws::new(&aws::local(bench.engine.endpoint())).dynamodb(), "leasehold".to_owned())
}

async fn record(bench: &Bench, pk: &str) -> Option<Record> {
    table(bench).read(&Pk(pk.to_owned())).await.expect("an answer")
}

/// As a worker leaves it behind that claimed the key an hour ago, with a step that is done and one in doubt.
fn left_behind(pk: &str, status: Status) -> Record {
    let now = Clock::system().wall();
    let at = Millis(now.0 - 3_700_000);
    let claim = Claim {
        pk: Pk(pk.to_owned()),
        owner: Owner("of a worker".into()),
        now: at,
        lease_until: at + Duration::from_secs(30),
        fingerprint: None,
        source: Source { queue: "jobs".into(), message_id: "m1".into(), sent_at: Some(at), worker: "w1".into() },
    };
    let step = |state, result: Option<&str>| Step { state, generation: 1, result: result.map(Into::into), at };
    Record {
        status,
        failures: 3,
        last_error: Some(Failure::new("http_422", "no such account\u{1b}[2J")),
        failure_id: Some("f1".into()),
        dead_at: Some(at),
        steps: [
            ("charge".to_owned(), step(StepState::Done, Some(r#"{"id":1}"#))),
            ("mail".to_owned(), step(StepState::Started, None)),
        ]
        .into(),
        expires_at: (now + Duration::from_secs(86_400 * 9 + 3600)).seconds(),
        ..claim.record()
    }
}

async fn put(bench: &Bench, record: Record) {
    let written = table(bench).amend(&Amend { seen: None, record }).await.expect("an answer");
    assert_eq!(written, Written::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_key_is_looked_at_and_reset_and_nothing_is_written_unasked() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0").set("USER", "ann");
    let dead = left_behind("jobs#p1", Status::Dead);
    put(&bench, dead.clone()).await;

    let shown = ends(&settings, &["get", "jobs", "p1"]).await;
    let page = told(&shown, 0);
    assert_eq!(shown.stderr, "");
    for line in [
        "  key         jobs#p1",
        "  status      failed for good 61 minutes ago (",
        "not known to be dead-lettered yet; remembered for 9 days more (until ",
        "  attempts    3 failed, 0 takeovers",
        r"  last error  http_422: no such account\u{1b}[2J",
        "  message     m1 of the queue jobs, sent 61 minutes ago (",
        "  by          w1",
        "  step        charge: done 61 minutes ago (",
        r#"generation 1, result {"id":1}"#,
        "  step        mail: in doubt: started 61 minutes ago (",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }

    // Nobody to ask.
    let unasked = ends(&settings, &["reset", "jobs", "p1"]).await;
    assert!(told(&unasked, 64).contains("released: the next message"), "{:?}", unasked.log);
    assert!(unasked.stderr.contains("--yes"), "{}", unasked.stderr);
    let dry = told(&ends(&settings, &["reset", "jobs", "p1", "--dry-run", "--steps-again"]).await, 0);
    for line in ["This will change:", "last error  none", "charge: undone", "Nothing is written."] {
        assert!(dry.contains(line), "{line}\n{dry}");
    }
    assert_eq!(record(&bench, "jobs#p1").await.as_ref(), Some(&dead));

    let reset = told(&ends(&settings, &["reset", "jobs", "p1", "--yes"]).await, 0);
    assert!(reset.ends_with("It is changed."), "{reset}");
    let now = record(&bench, "jobs#p1").await.expect("a record");
    assert_eq!((now.status, now.failures, &now.last_error, &now.steps), (Status::Released, 0, &None, &dead.steps));
    assert!(now.fence > dead.fence && now.owner != dead.owner && now.source.worker.starts_with("ann@"), "{now:?}");
    let page = told(&ends(&settings, &["get", "jobs", "p1"]).await, 0);
    assert!(page.contains("status      released: the next message runs it"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_was_reset_is_run_once_more_by_a_worker() {
    let bench = Bench::new().await;
    let settings = bench.settings("$bank; exit 0");
    let run = async || {
        bench.send(["p1"]).await;
        let worker = settings.start();
        bench.until_done(1).await;
        worker.stops().await.clean_report()
    };
    run().await;
    assert!(told(&ends(&settings, &["get", "jobs", "p1"]).await, 0).contains("status      done "));
    run().await;
    assert_eq!(bench.calls().len(), 1);
    told(&ends(&settings, &["reset", "jobs", "p1", "--yes"]).await, 0);
    run().await;
    assert_eq!(bench.calls().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_by_hand_is_remembered_as_long_as_somebody_says() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0");
    let now = Clock::system().wall();
    for (key, options, days) in [("p1", ["--yes"].as_slice(), 30), ("p2", &["--yes", "--ttl", "60d"], 60)] {
        let line = [["done", "jobs", key].as_slice(), options].concat();
        let said = told(&ends(&settings, &line).await, 0);
        let none = format!("There is no record of jobs#{key}.");
        assert!(said.contains(&none) && said.contains("deleted without a run"), "{said}");
        let record = record(&bench, &format!("jobs#{key}")).await.expect("a record");
        let left = Millis(record.expires_at.0 * 1000).since(now).as_secs_f64() / 86_400.0;
        assert!(record.status == Status::Done && (left - f64::from(days)).abs() < 0.1, "{record:?}");
        assert_eq!(record.source.queue, "jobs");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_a_step_in_doubt_is_settled_by_somebodys_word() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0");
    let steps = async |pk: &str| {
        let record = record(&bench, pk).await.expect("a record");
        (record.status, record.steps.get("mail").map(|step| (step.state, step.result.clone())))
    };
    put(&bench, left_behind("jobs#p1", Status::Dead)).await;
    let line = ["reset", "jobs", "p1", "--step", "mail", "--done", "--result", r#"{"id":2}"#, "--yes"];
    let said = told(&ends(&settings, &line).await, 0);
    assert!(said.contains("  step        mail: done less than 1 s ago") && said.contains("reset it too"), "{said}");
    assert_eq!(steps("jobs#p1").await, (Status::Dead, Some((StepState::Done, Some(r#"{"id":2}"#.into())))));
    put(&bench, left_behind("jobs#p2", Status::Dead)).await;
    let said = told(&ends(&settings, &["reset", "jobs", "p2", "--step", "mail", "--again", "--yes"]).await, 0);
    assert!(said.contains("  step        mail: not recorded"), "{said}");
    assert_eq!(steps("jobs#p2").await, (Status::Dead, None));
    for (line, why) in [
        (["reset", "jobs", "p2", "--step", "chagre", "--again", "--yes"].as_slice(), r#"there is "charge""#),
        (&["reset", "jobs", "p2", "--step", "x", "--done", "--result", "{", "--yes"], "no JSON"),
    ] {
        let ended = ends(&settings, line).await;
        told(&ended, 1);
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_work_that_waits_goes_on_waiting_unless_somebody_says_now() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0");
    let mut waits = left_behind("jobs#p1", Status::Released);
    waits.not_before = Some(Clock::system().wall() + Duration::from_secs(600));
    put(&bench, waits.clone()).await;
    let not_before = async || record(&bench, "jobs#p1").await.expect("a record").not_before;
    let said = told(&ends(&settings, &["reset", "jobs", "p1", "--yes"]).await, 0);
    assert!(said.contains("It may not run before ") && said.contains("--now does not wait"), "{said}");
    assert!(said.contains("status      released, may run again in 9 minutes"), "{said}");
    assert_eq!(not_before().await, waits.not_before);
    let said = told(&ends(&settings, &["reset", "jobs", "p1", "--now", "--yes"]).await, 0);
    assert!(said.contains("runs it BESIDE that") && said.contains("released: the next message runs it"), "{said}");
    assert_eq!(not_before().await, None);
    let said = told(&ends(&settings, &["reset", "jobs", "p1", "--yes"]).await, 0);
    assert!(!said.contains("BESIDE") && !said.contains("may not run before"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_what_is_not_undone_to_the_end_is_reset_only_with_all_steps() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0");
    put(&bench, left_behind("jobs#p1", Status::Failed)).await;
    let plain = ends(&settings, &["reset", "jobs", "p1", "--yes"]).await;
    told(&plain, 1);
    assert!(
        plain.stderr.contains("undo is not finished") && plain.stderr.contains("--steps-again"),
        "{}",
        plain.stderr
    );
    let said = told(&ends(&settings, &["reset", "jobs", "p1", "--steps-again", "--yes"]).await, 0);
    assert!(said.contains("charge: undone") && said.contains("Its undo is not finished, and is given up"), "{said}");
    assert_eq!(record(&bench, "jobs#p1").await.map(|record| record.status), Some(Status::Released));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_on_a_step_can_be_mended_and_says_what_it_leaves_out() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0");
    put(&bench, left_behind("jobs#p1", Status::Dead)).await;
    let result = async |step: &str| {
        let record = record(&bench, "jobs#p1").await.expect("a record");
        record.steps.get(step).and_then(|step| step.result.clone())
    };
    let said = told(&ends(&settings, &["reset", "jobs", "p1", "--step", "mail", "--done", "--yes"]).await, 0);
    assert!(said.contains("The result is recorded as null"), "{said}");
    let line = ["reset", "jobs", "p1", "--step", "mail", "--done", "--result", "7", "--yes"];
    let said = told(&ends(&settings, &line).await, 0);
    assert!(said.contains("result 7") && !said.contains("recorded as null"), "{said}");
    assert_eq!(result("mail").await.as_deref(), Some("7"));
    let new = ["reset", "jobs", "p1", "--step", "refund", "--done", "--result", "1", "--yes"];
    let strange = ends(&settings, &new).await;
    told(&strange, 1);
    assert!(strange.stderr.contains(r#""charge", "mail""#) && strange.stderr.contains("--new"), "{}", strange.stderr);
    told(&ends(&settings, &[new.as_slice(), &["--new"]].concat()).await, 0);
    assert_eq!(result("refund").await.as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_later_release_has_written_beside_stays() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0");
    let account = aws_sdk_dynamodb::Client::new(&aws::local(bench.engine.endpoint()));
    put(&bench, left_behind("jobs#p1", Status::Dead)).await;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let update = account.update_item().table_name("leasehold").key("pk", text("jobs#p1"));
    let update = update.update_expression("SET later = :later, steps.charge.later = :later");
    update.expression_attribute_values(":later", text("unknown")).send().await.expect("is written");
    for line in [
        ["reset", "jobs", "p1", "--step", "mail", "--again", "--yes"].as_slice(),
        &["reset", "jobs", "p1", "--yes"],
        &["done", "jobs", "p1", "--yes"],
    ] {
        told(&ends(&settings, line).await, 0);
        let get = account.get_item().table_name("leasehold").key("pk", text("jobs#p1"));
        let item = get.send().await.expect("an answer").item.expect("a record");
        let charge = item["steps"].as_m().expect("steps")["charge"].as_m().expect("a step");
        assert_eq!([&item["later"], &charge["later"]], [&text("unknown"); 2], "{line:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn done_that_is_forgotten_early_says_when() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0");
    let bare = Settings::new(bench.engine.endpoint(), &std::env::temp_dir());
    put(&bench, left_behind("mails#p1", Status::Dead)).await;
    let done = async |settings: &Settings, of: &[&str], ttl| {
        told(&ends(settings, &[&["done"], of, &["--dry-run", "--ttl", ttl]].concat()).await, 0)
    };
    let said = done(&settings, &["jobs", "p1"], "29d").await;
    assert!(said.contains("That is forgotten 2") && said.contains("sooner than 30d (its DONE_TTL)"), "{said}");
    let said = done(&settings, &["jobs", "p1"], "30d").await;
    assert!(!said.contains("forgotten"), "{said}");
    let said = done(&bare, &["--pk", "mails#p1"], "13d").await;
    assert!(said.contains("sooner than 14d (a queue can keep messages"), "{said}");
    assert!(!done(&bare, &["--pk", "mails#p1"], "14d").await.contains("forgotten"));
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_what_changed_since_it_was_shown_is_shown_again_and_left_alone() {
    let bench = Bench::new().await;
    let hold = Hold::new();
    let proxy =
        Proxy::before(bench.engine.endpoint()).await.with("UpdateItem", Fault::HoldRequest(hold.clone()), |_| true);
    let settings = bench.settings("exit 0");
    put(&bench, left_behind("jobs#p1", Status::Dead)).await;
    let line = ["reset", "jobs", "p1", "--yes"];
    let slow = line.iter().fold(settings.clone().behind(&proxy).command("guard"), |settings, arg| settings.arg(arg));
    let slow = slow.start();
    hold.holds(1).await;
    told(&ends(&settings, &["done", "jobs", "p1", "--yes"]).await, 0);
    let done = record(&bench, "jobs#p1").await;
    hold.release();
    let said = told(&slow.ends().await, 1);
    let (_, now) = said.split_once("It changed meanwhile, and nothing is written. It now is:").expect(&said);
    assert!(now.contains("status      done "), "{said}");
    assert_eq!(record(&bench, "jobs#p1").await, done);
    assert_eq!(done.map(|record| record.status), Some(Status::Done));
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_what_may_have_been_written_is_not_called_unwritten() {
    let bench = Bench::new().await;
    let hold = Hold::new();
    let proxy = Proxy::before(bench.engine.endpoint()).await;
    let proxy = proxy.with("UpdateItem", Fault::LoseReply, |number| number == 1);
    let proxy = proxy.with("UpdateItem", Fault::HoldRequest(hold.clone()), |number| number == 2);
    let settings = bench.settings("exit 0");
    put(&bench, left_behind("jobs#p1", Status::Dead)).await;
    let line = ["reset", "jobs", "p1", "--yes", "--json"];
    let slow = line.iter().fold(settings.clone().behind(&proxy).command("guard"), |settings, arg| settings.arg(arg));
    let slow = slow.start();
    hold.holds(1).await;
    assert_eq!(record(&bench, "jobs#p1").await.map(|record| record.status), Some(Status::Released), "it was written");
    told(&ends(&settings, &["done", "jobs", "p1", "--yes"]).await, 0);
    hold.release();
    let json = json_of(&slow.ends().await, 1);
    assert_eq!((&json["written"], &json["after"]["status"]), (&Value::Null, &json!("DONE")));
    assert!(json.get("written").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn g4_what_a_worker_runs_is_left_to_it() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0");
    let mut running = left_behind("jobs#p1", Status::Running);
    running.lease_until = Clock::system().wall() + Duration::from_secs(600);
    put(&bench, running.clone()).await;
    let page = told(&ends(&settings, &["get", "jobs", "p1"]).await, 0);
    assert!(page.contains("running since 61 minutes (") && page.contains("its lease ends in 9 minutes ("), "{page}");
    for line in [
        ["reset", "jobs", "p1", "--yes"].as_slice(),
        &["done", "jobs", "p1", "--yes"],
        &["reset", "jobs", "p1", "--step", "mail", "--again", "--yes"],
    ] {
        let ended = ends(&settings, line).await;
        assert!(told(&ended, 1).contains("running since"), "{:?}", ended.log);
        assert!(ended.stderr.contains("held by worker w1 until "), "{}", ended.stderr);
        assert!(ended.stderr.contains("stop that worker"), "{}", ended.stderr);
    }
    assert_eq!(record(&bench, "jobs#p1").await, Some(running));
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_a_number_is_found_as_number_and_as_text_and_never_guessed() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0").set("LEASEHOLD_JOBS_KEY", "/tenant,/id");
    put(&bench, left_behind("jobs#eu#n:7", Status::Dead)).await;
    assert!(told(&ends(&settings, &["get", "jobs", "eu", "7"]).await, 0).contains("key         jobs#eu#n:7\n"));
    put(&bench, left_behind("jobs#eu#7", Status::Done)).await;
    let both = ends(&settings, &["reset", "jobs", "eu", "7", "--yes"]).await;
    told(&both, 64);
    assert!(both.stderr.contains("--pk 'jobs#eu#7' or --pk 'jobs#eu#n:7'"), "{}", both.stderr);
    let one = told(&ends(&settings, &["get", "--pk", "jobs#eu#7"]).await, 0);
    assert!(one.contains("status      done "), "{one}");

    let neither = ends(&settings, &["done", "jobs", "us", "-7", "--yes"]).await;
    told(&neither, 64);
    assert!(neither.stderr.contains("--pk 'jobs#us#-7' or --pk 'jobs#us#n:-7'"), "{}", neither.stderr);
    told(&ends(&settings, &["done", "--pk", "jobs#us#n:-7", "--yes"]).await, 0);
    assert_eq!(record(&bench, "jobs#us#n:-7").await.map(|record| record.source.queue), Some("jobs".to_owned()));
    let short = ends(&settings, &["get", "jobs", "us"]).await;
    told(&short, 1);
    assert!(short.stderr.contains("jobs#us: nothing has run") && short.stderr.contains("2 parts"), "{}", short.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_read_json_and_need_no_queue_for_a_primary_key() {
    let bench = Bench::new().await;
    let settings = Settings::new(bench.engine.endpoint(), &std::env::temp_dir());
    let none = json_of(&ends(&settings, &["get", "--pk", "jobs#p1", "--json"]).await, 1);
    assert_eq!(none, json!({"pk": "jobs#p1", "status": null}));
    put(&bench, left_behind("jobs#p1", Status::Dead)).await;
    let shown = json_of(&ends(&settings, &["get", "--pk", "jobs#p1", "--json"]).await, 0);
    assert_eq!((&shown["status"], &shown["last_error"]["code"]), (&json!("DEAD"), &json!("http_422")));
    assert_eq!(shown["steps"]["charge"]["result"], json!({"id": 1}));
    let dry = json_of(&ends(&settings, &["done", "--pk", "jobs#p1", "--dry-run", "--json"]).await, 0);
    assert_eq!((&dry["written"], &dry["after"]["status"]), (&json!(false), &json!("DONE")));
    let reset = json_of(&ends(&settings, &["reset", "--pk", "jobs#p1", "--yes", "--json"]).await, 0);
    assert_eq!((&reset["written"], &reset["before"]), (&json!(true), &shown));
    assert_eq!(reset["after"], json_of(&ends(&settings, &["get", "--pk", "jobs#p1", "--json"]).await, 0));
    let unsaid = ends(&settings, &["done", "--pk", "jobs#p2", "--yes", "--json"]).await;
    told(&unsaid, 64);
    assert!(unsaid.stderr.contains("LEASEHOLD_QUEUES"), "{}", unsaid.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_ends_with_a_code_and_a_line_that_helps() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0");
    for (changed, line, code, helps) in [
        (None, ["get", "jobs", "p1"].as_slice(), 1, "there is no record of jobs#p1"),
        (None, &["reset", "jobs", "p1", "--yes"], 1, "there is no record of jobs#p1"),
        (Some(("LEASEHOLD_GUARD", "none")), &["get", "jobs", "p1"], 1, "GUARD=none"),
        (None, &["get", "jbos", "p1"], 78, "one of jobs"),
        (Some(("LEASEHOLD_TABLE", "no-table")), &["get", "jobs", "p1"], 78, "LEASEHOLD_TABLE="),
        (Some(("LEASEHOLD_CLOCK_SKEW", "x")), &["get", "jobs", "p1"], 78, "LEASEHOLD_CLOCK_SKEW"),
        (None, &["get", "jobs", ""], 64, "empty"),
        (None, &["get", "jobs"], 64, "<KEY>"),
        (None, &["get", "--pk", "#probe"], 64, "operation#key"),
        (None, &["get", "jobs", "--pk", "mails#p1"], 64, "no key of the queue jobs"),
        (None, &["done", "jobs", "p1", "--json"], 64, "--dry-run"),
        (None, &["reset", "jobs", "p1", "--step", "x"], 64, "--done"),
        (None, &["reset", "jobs", "p1", "--again"], 64, "--step"),
        (None, &["reset", "jobs", "p1", "--step", "x", "--again", "--steps-again"], 64, "--steps-again"),
        (None, &["done", "jobs", "p1", "--ttl", "30"], 64, "30s"),
    ] {
        let settings = changed.iter().fold(settings.clone(), |settings, (name, value)| settings.set(name, *value));
        let ended = ends(&settings, line).await;
        assert_eq!(told(&ended, code), "", "{line:?}");
        assert!(ended.stderr.contains(helps), "{line:?}: {}", ended.stderr);
    }
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let away = settings.set("AWS_ENDPOINT_URL", format!("http://{nowhere}"));
    told(&ends(&away, &["get", "jobs", "p1"]).await, 69);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_a_later_version_is_neither_shown_nor_replaced() {
    let bench = Bench::new().await;
    put(&bench, Record { fence: Fence(7), ..left_behind("jobs#p1", Status::Done) }).await;
    let client = aws_sdk_dynamodb::Client::new(&aws::local(bench.engine.endpoint()));
    let later = aws_sdk_dynamodb::types::AttributeValue::N("99".into());
    let update = client.update_item().table_name("leasehold").update_expression("SET v = :v");
    let key = aws_sdk_dynamodb::types::AttributeValue::S("jobs#p1".into());
    update.key("pk", key).expression_attribute_values(":v", later).send().await.expect("is updated");
    for line in [["get", "jobs", "p1"].as_slice(), &["done", "jobs", "p1", "--yes"]] {
        let ended = ends(&bench.settings("exit 0"), line).await;
        told(&ended, 1);
        assert!(ended.stderr.contains("version 99"), "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_from_outside_reaches_a_terminal_as_it_is() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0");
    let bad = "\u{1b}[2J\u{9b}2J\r\u{61c}\u{202e}";
    let mut dead = left_behind("jobs#p1", Status::Dead);
    dead.last_error = Some(Failure::new("x", bad));
    dead.steps.insert(bad.to_owned(), dead.steps["charge"].clone());
    put(&bench, dead).await;
    let is_raw =
        |text: &str| text.contains(|c: char| c != '\n' && (c.is_control() || bad.contains(c)) && !c.is_ascii_graphic());
    for (line, code) in [
        (["get", "jobs", "p1"].as_slice(), 0),
        (&["get", "jobs", "p1", "--json"], 0),
        (&["reset", "jobs", "p1", "--yes", "--json"], 0),
        (&["reset", "jobs", "p1", "--step", "strange", "--done", "--yes"], 1),
        (&["get", bad, "p1"], 78),
        (&["get", "jobs", bad], 1),
    ] {
        let ended = ends(&settings, line).await;
        let said = told(&ended, code);
        assert!(!is_raw(&said) && !is_raw(&ended.stderr), "{line:?}: {said:?} {:?}", ended.stderr);
        if line.contains(&"--json") {
            let json = json_of(&ended, code);
            let record = if json.get("last_error").is_some() { &json } else { &json["before"] };
            assert_eq!(record["last_error"]["text"], bad);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn help_says_which_record_is_meant_and_how_it_ends() {
    let settings = Settings::new("http://127.0.0.1:9", &std::env::temp_dir());
    for (line, parts) in [
        (["--help"].as_slice(), ["get", "reset", "done", "GUARD=none"].as_slice()),
        (&["get", "--help"], &["--pk", "expires_at", "  69  "]),
        (
            &["reset", "--help"],
            &["--steps-again", "--now", "beside it", "--new", "downstream key", "--dry-run", "meanwhile", "  78  "],
        ),
        (&["done", "--help"], &["--ttl", "DONE_TTL", "  64  "]),
    ] {
        let help = told(&ends(&settings, line).await, 0);
        for part in parts {
            assert!(help.contains(part), "{line:?}: {part}");
        }
    }
}
