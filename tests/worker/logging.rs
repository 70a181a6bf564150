//! The log: one line for each outcome, at the level of who must act; no flood; nothing of a body.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold::{
    Handler, HandlerError, HandlerResult, JobContext, Raw, Shutdown, StopReport, Worker,
    testing::{Failure, Fault, Faults, TestBed},
};
use proptest::{prelude::*, sample::select};
use serde_json::Value;
use tokio::time::sleep;
use tracing::Level;

use crate::bench::{Book, Log, worker};

/// Runs a worker, and gives its log from a level on: an object for each line.
async fn logged(level: Level, worker: Worker, shutdown: Shutdown) -> (StopReport, Vec<Value>) {
    let log = Log::default();
    let told = tracing::subscriber::set_default(log.json(level));
    let report = worker.run(shutdown).await.expect("the configuration is right");
    drop(told);
    (report, log.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

fn after(secs: u64) -> Shutdown {
    Shutdown::when(sleep(Duration::from_secs(secs)))
}

fn outcomes(lines: &[Value]) -> Vec<&Value> {
    lines.iter().filter(|line| line["target"] == "leasehold::outcome").collect()
}

/// The outcomes by name and level, each with how often it was told.
fn counted(lines: &[Value]) -> BTreeMap<String, usize> {
    let mut counted = BTreeMap::new();
    for line in outcomes(lines) {
        let (outcome, level) = (line["outcome"].as_str().expect("a name"), line["level"].as_str().expect("a level"));
        *counted.entry(format!("{outcome} {level}")).or_default() += 1;
    }
    counted
}

fn counts<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    counts.map(|(name, count)| (name.to_owned(), count)).into()
}

/// Of everything that the report counts there is one line, and no other.
fn one_line_each(report: &StopReport, lines: &[Value]) {
    let StopReport { done, suppressed, dead, dropped, failed, released, left, .. } = report;
    let all = done + suppressed + dead + dropped + failed + released + left;
    assert_eq!(outcomes(lines).len() as u64, all, "{report:?} {:#?}", outcomes(lines));
}

/// A handler that logs.
struct Talks;

impl Handler for Talks {
    type Payload = Raw;

    async fn handle(&self, _: &Raw, _: &JobContext) -> HandlerResult {
        tracing::info!("at work");
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_logs_says_what_it_is_about_and_no_other_span_is_paid_for() {
    let bed = TestBed::new(&["jobs"]);
    bed.send("jobs", r#"{"id":"a"}"#);
    for (guard, about) in [("claim", ("leasehold.key", "jobs#a")), ("none", ("leasehold.queue", "jobs"))] {
        let mut vars = vec![("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_GUARD", guard)];
        vars.extend((guard == "claim").then_some(("LEASEHOLD_KEY", "/id")));
        if guard == "none" {
            bed.send("jobs", r#"{"id":"b"}"#);
        }
        let (report, lines) = logged(Level::INFO, bed.worker(&vars).queue("jobs", Talks), after(30)).await;
        assert_eq!(report.done, 1);
        let said = lines.iter().find(|line| line["message"] == "at work").expect("it is logged");
        let spans = said["spans"].as_array().expect("spans");
        assert_eq!((spans.len(), &spans[0]["name"]), (1, &"handle".into()), "{said}");
        assert_eq!((&spans[0][about.0], &spans[0]["leasehold.attempt"]), (&about.1.into(), &1.into()), "{said}");
        assert!(spans[0]["messaging.message.id"].is_string(), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_outcome_is_one_line_at_the_level_of_who_must_act() {
    let (bed, book) = (TestBed::new(&["jobs"]), Book::new());
    for body in [
        r#"{"id":"done"}"#,
        r#"{"id":"done"}"#,
        r#"{"id":"fails","first":["fail","panic"]}"#,
        r#"{"id":"hopeless","first":["fail_for_good"]}"#,
        r#"{"id":"later","first":["not_yet"]}"#,
        r#"{"id":7}"#,
        r#"{"id":"cut","millis":7200000}"#,
    ] {
        bed.send("jobs", body);
    }
    let vars = [("LEASEHOLD_HANDLER_TIMEOUT", "3h")];
    let (report, lines) = logged(Level::DEBUG, worker(&bed, &book, &vars), after(300)).await;
    let mut counted = counted(&lines);
    // Of two duplicates one may come while the other runs.
    counted.remove("held DEBUG");
    let expected = [
        ("dead_lettered WARN", 2),
        ("done DEBUG", 3),
        ("failed WARN", 2),
        ("interrupted INFO", 1),
        ("not_yet DEBUG", 1),
        ("suppressed DEBUG", 1),
    ];
    assert_eq!(counted, counts(expected), "{lines:#?}");
    one_line_each(&report, &lines);
    let line = |outcome| {
        let all = outcomes(&lines);
        all.into_iter().find(|line| line["outcome"] == outcome).expect("a line").clone()
    };
    let failed = line("failed");
    assert_eq!(
        (&failed["queue"], &failed["pk"], &failed["attempt"]),
        (&"jobs".into(), &"jobs#fails".into(), &1.into())
    );
    assert_eq!((&failed["code"], &failed["error"]), (&"failing".into(), &"it failed".into()));
    assert!(failed["wait_ms"].as_u64().is_some_and(|wait| (5_000..=10_000).contains(&wait)), "{failed}");
    let (cut, dead) = (line("interrupted"), line("dead_lettered"));
    assert!(cut["took_ms"].as_u64().is_some_and(|took| took >= 290_000), "{cut}");
    assert!(dead["failure_id"].is_string() && dead["message_id"].is_string(), "{dead}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_waited_for_in_place_is_told_once_and_when_it_failed() {
    // On a last receive everything waits in place; in a group, what has others behind it.
    for queue in ["last", "group.fifo"] {
        let (bed, book) = (TestBed::new(&[]), Book::new());
        bed.add(queue, if queue == "last" { 1 } else { 100 });
        for id in ["a", "b"] {
            bed.send(queue, format!(r#"{{"id":"{id}","first":["unavailable","fail"]}}"#));
        }
        let vars = [("LEASEHOLD_QUEUES", queue), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_BACKOFF", "10s..60s")];
        let (report, lines) = logged(Level::DEBUG, bed.worker(&vars).queue(queue, book), bed.until_idle()).await;
        assert_eq!(report.done + report.dead, 2, "{report:?}");
        let counted = counted(&lines);
        let failed = counted.get("failed WARN").copied().unwrap_or_default();
        assert_eq!(failed, if queue == "last" { 0 } else { 2 }, "{counted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_can_mend_but_a_person_is_an_error() {
    let (bed, book) = (TestBed::new(&["jobs"]), Book::new());
    bed.send("jobs", r#"{"id":"a","first":["fail_for_good"]}"#);
    bed.queue_faults("jobs-dlq").always("send", Fault::Fail(Failure::Denied));
    let (report, lines) = logged(Level::DEBUG, worker(&bed, &book, &[]), after(20)).await;
    let told = outcomes(&lines);
    assert_eq!((told[0]["level"].as_str(), told[0]["outcome"].as_str()), (Some("ERROR"), Some("kept")), "{told:#?}");
    assert!(told[0]["cause"].as_str().is_some_and(|cause| cause.contains("denied")), "{told:#?}");
    one_line_each(&report, &lines);
    // That deletes are denied is one error, however many it concerns.
    let (bed, book) = (TestBed::new(&["jobs"]), Book::new());
    (0..20).for_each(|id| drop(bed.send("jobs", format!(r#"{{"id":"{id}"}}"#))));
    bed.queue_faults("jobs").always("delete", Fault::Fail(Failure::Denied));
    let (report, lines) = logged(Level::DEBUG, worker(&bed, &book, &[]), after(20)).await;
    let errors: Vec<_> = lines.iter().filter(|line| line["level"] == "ERROR").collect();
    assert!(errors.len() == 1 && errors[0].to_string().contains("sqs:DeleteMessage"), "{errors:#?}");
    one_line_each(&report, &lines);
}

/// Takes a minute and a half, unless it is away.
struct Slow {
    is_away: Arc<AtomicBool>,
}

impl Handler for Slow {
    type Payload = Raw;

    async fn handle(&self, _: &Raw, cx: &JobContext) -> HandlerResult {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(HandlerError::new("refused").unavailable());
        }
        tokio::select! {
            biased;
            cause = cx.cancelled().wait() => Err(HandlerError::new(format!("{cause:?}"))),
            () = sleep(Duration::from_secs(90)) => Ok(()),
        }
    }
}

/// An outage of an hour, and what a worker with so many deliveries in hand says of it from `info` on.
async fn lines_of_an_hour(
    in_hand: usize,
    vars: &[(&str, &str)],
    outage: fn(&TestBed, bool),
    is_handler: bool,
) -> Vec<Value> {
    let bed = TestBed::new(&[]);
    bed.add("jobs", 1000);
    let (away, concurrency) = (Arc::new(AtomicBool::new(false)), in_hand.to_string());
    let work = Slow { is_away: Arc::clone(&away) };
    let mut all = vec![("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_CONCURRENCY", &concurrency)];
    all.extend(vars);
    let worker = bed.worker(&all).queue("jobs", work);
    (0..in_hand).for_each(|id| drop(bed.send("jobs", format!(r#"{{"id":"{id}"}}"#))));
    let weather = {
        let bed = bed.clone();
        async move {
            sleep(Duration::from_secs(5)).await;
            outage(&bed, true);
            away.store(is_handler, Ordering::Relaxed);
            // And work goes on to come.
            for minute in 0..60 {
                drop(bed.send("jobs", format!(r#"{{"id":"new-{minute}"}}"#)));
                sleep(Duration::from_secs(60)).await;
            }
            outage(&bed, false);
            away.store(false, Ordering::Relaxed);
            sleep(Duration::from_secs(2 * 3600)).await;
        }
    };
    let (report, lines) = logged(Level::INFO, worker, Shutdown::when(weather)).await;
    assert_eq!((report.done as usize, bed.queue("jobs").len()), (in_hand + 60, 0), "{report:?} {lines:#?}");
    lines
}

fn all_fail(faults: &Faults, is_away: bool) {
    faults.clear();
    if is_away {
        faults.decide_with(|_| Some(Fault::Fail(Failure::NoAnswer)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_an_hour_logs_a_few_lines_however_much_is_in_hand() {
    /// What starts, stops, is away and back; and of a few kinds of lines, six in an hour each.
    const MOST: usize = 40;
    let of_table = |bed: &TestBed, is_away| all_fail(&bed.guard_faults, is_away);
    let of_queue = |bed: &TestBed, is_away| all_fail(&bed.queue_faults("jobs"), is_away);
    type Outage = (&'static str, &'static [(&'static str, &'static str)], fn(&TestBed, bool), bool);
    let outages: [Outage; 4] = [
        ("the table", &[], of_table, false),
        ("the table, and the policy is open", &[("LEASEHOLD_GUARD_OUTAGE", "open")], of_table, false),
        ("the queue", &[], of_queue, false),
        ("the handler", &[], |_, _| {}, true),
    ];
    for (what, vars, outage, is_handler) in outages {
        let few = lines_of_an_hour(2, vars, outage, is_handler).await;
        let many = lines_of_an_hour(20, vars, outage, is_handler).await;
        assert!((2..=MOST).contains(&many.len()), "{what}: {} lines: {many:#?}", many.len());
        assert!(
            many.len() <= few.len() + 5,
            "{what}: {} lines with 2 in hand, {} with 20: {many:#?}",
            few.len(),
            many.len()
        );
    }
}

/// In a body wherever nothing is made of it but the work: never in the log.
const MARKER: &str = "4929-MARKER-1234";

fn bodies() -> impl Strategy<Value = String> {
    let member = select(vec!["first", "millis", "id", "card", "Type", "TopicArn", "Message"]);
    let value = select(vec![
        format!("\"{MARKER}\""),
        format!("[\"{MARKER}\"]"),
        format!("{{\"{MARKER}\":1}}"),
        format!("\"\\u0000{MARKER}\\n\""),
        "[\"fail\"]".to_owned(),
        "[\"fail_for_good\"]".to_owned(),
        "[\"panic\"]".to_owned(),
        "\"Notification\"".to_owned(),
        "5".to_owned(),
    ]);
    let object = prop::collection::vec((member, value), 0..5).prop_map(|members| {
        let members: Vec<_> = members.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", members.join(","))
    });
    let broken = (object.clone(), 0..60_usize).prop_map(|(text, end)| {
        let end = text.floor_char_boundary(end);
        format!("{}{MARKER}", &text[..end])
    });
    prop_oneof![object, broken]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_of_a_body_is_ever_logged_and_of_its_key_a_hash(
        bodies in prop::collection::vec(bodies(), 1..6),
        envelope in select(vec!["raw", "sns"]),
        guard in select(vec!["claim", "none"]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let lines = runtime.block_on(async {
            let (bed, book) = (TestBed::new(&["jobs"]), Book::new());
            for body in bodies {
                bed.send("jobs", body);
            }
            let vars = [("LEASEHOLD_KEY_HASH", "always"), ("LEASEHOLD_ENVELOPE", envelope), ("LEASEHOLD_GUARD", guard)];
            logged(Level::TRACE, worker(&bed, &book, &vars), after(60)).await.1
        });
        prop_assert!(lines.len() > 3);
        for line in lines {
            prop_assert!(!line.to_string().contains("MARKER"), "{line:#}");
        }
    }
}
