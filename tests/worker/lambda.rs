//! The same worker under Lambda: what becomes of each record of a batch, and which come again. A message is received as the
//! mapping does it, and what is not returned is deleted as the mapping does it.

use std::{sync::Arc, time::Duration};

use leasehold::{
    CancelCause, Worker, WorkerError,
    clock::Millis,
    guard::{Control, ControlKey, Guard, Paused},
    lambda::{Function, SqsEvent},
    queue::{Outgoing, Queue, Receive, Received},
    testing::{Failure, Fault, MemoryQueue, MemoryQueueSettings, TestBed},
};
use serde_json::{Value, json};
use tokio::time::{Instant, advance};
use tracing::{Instrument as _, Level, info_span};

use crate::bench::{Book, Log, worker};

/// What the queue hides messages for, and what an invocation may take.
const VISIBILITY: Duration = Duration::from_secs(180);
const TIMEOUT: Duration = Duration::from_secs(30);

struct Lambda {
    bed: TestBed,
    book: Book,
    function: Function,
    queue: &'static str,
}

impl Lambda {
    async fn new(vars: &[(&str, &str)]) -> Self {
        Self::on("jobs", 100, vars).await
    }

    /// With a queue that moves a message after so many receives.
    async fn on(queue: &'static str, max_receive_count: u32, vars: &[(&str, &str)]) -> Self {
        let (bed, book) = (TestBed::new(&[]), Book::new());
        bed.add(queue, max_receive_count);
        let redrive = Some((TestBed::dead_letter_name(queue), max_receive_count));
        bed.broker.create(queue, MemoryQueueSettings { redrive, visibility: VISIBILITY, ..Default::default() });
        let mut all = vec![("LEASEHOLD_JOBS_NAME", queue)];
        all.extend(vars);
        let function = started(worker(&bed, &book, &all)).await;
        Self { bed, book, function, queue }
    }

    fn queue(&self) -> Arc<MemoryQueue> {
        self.bed.queue(self.queue)
    }

    fn send(&self, id: &str, rest: &str) -> String {
        self.send_to(id, id, rest)
    }

    fn send_to(&self, group: &str, id: &str, rest: &str) -> String {
        let group = self.queue.ends_with(".fifo").then(|| group.to_owned());
        let deduplication_id = group.is_some().then(|| self.queue().messages().len().to_string());
        let body = format!(r#"{{"id":"{id}"{rest}}}"#);
        self.queue().put(Outgoing { body, group, deduplication_id, ..Outgoing::default() }).unwrap()
    }

    async fn receive(&self) -> Vec<Received> {
        let ask = Receive { max: 10, wait: Duration::ZERO, visibility: VISIBILITY, attempt_id: None };
        self.queue().receive(&ask).await.unwrap()
    }

    /// One invocation with what is visible, which may take so long: the ids that come again.
    async fn invoked_for(&self, timeout: Duration) -> Vec<String> {
        let batch = self.receive().await;
        self.invoked_with(batch, timeout).await
    }

    async fn invoked(&self) -> Vec<String> {
        self.invoked_for(TIMEOUT).await
    }

    async fn invoked_with(&self, batch: Vec<Received>, timeout: Duration) -> Vec<String> {
        let (begun, deadline) = (Instant::now(), self.bed.broker.clock().wall() + timeout);
        let answer = self.function.answer(event(self.queue, &batch), deadline).await.unwrap();
        assert!(begun.elapsed() < timeout, "it is answered in time");
        let returned: Vec<_> = answer.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect();
        for received in batch.iter().filter(|received| !returned.contains(&received.message.id)) {
            self.queue().delete(&received.handle).await.unwrap();
        }
        returned
    }

    /// How long until the next message is visible.
    async fn hidden_for(&self) -> Duration {
        let begun = Instant::now();
        while self.queue().visible() == 0 {
            assert!(begun.elapsed() < VISIBILITY * 2, "it is never visible");
            advance(Duration::from_millis(500)).await;
        }
        begun.elapsed()
    }
}

async fn started(worker: Worker) -> Function {
    Function::new(worker).await.unwrap()
}

fn event(queue: &str, batch: &[Received]) -> SqsEvent {
    let records: Vec<_> = batch
        .iter()
        .map(|Received { message, handle }| {
            let mut system = json!({
                "ApproximateReceiveCount": message.receive_count.to_string(),
                "SentTimestamp": message.sent_at.unwrap_or_default().0.to_string(),
            });
            if let Some(group) = &message.group {
                system["MessageGroupId"] = json!(group);
            }
            json!({
                "messageId": message.id, "receiptHandle": handle.as_str(), "body": message.body, "attributes": system,
                "messageAttributes": {}, "eventSourceARN": format!("arn:aws:sqs:us-east-1:000000000000:{queue}"),
            })
        })
        .collect();
    serde_json::from_value(json!({ "Records": records })).unwrap()
}

const NONE: [String; 0] = [];

#[tokio::test(start_paused = true)]
async fn what_is_done_or_was_done_before_is_not_returned_and_nothing_is_deleted() {
    let lambda = Lambda::new(&[]).await;
    lambda.send("a", "");
    lambda.send("b", "");
    let batch = lambda.receive().await;
    assert_eq!(lambda.invoked_with(batch.clone(), TIMEOUT).await, NONE);
    assert_eq!(lambda.queue().calls()["delete"].calls, 2, "the mapping's");
    assert_eq!(lambda.invoked_with(batch, TIMEOUT).await, NONE);
    assert_eq!(lambda.book.completed().values().sum::<usize>(), 2);
    assert!(!lambda.queue().calls().contains_key("change_visibility"), "no beat, no delay");
}

#[tokio::test(start_paused = true)]
async fn t2_a_failed_attempt_is_returned_and_hidden_for_its_back_off() {
    let lambda = Lambda::new(&[]).await;
    let failing = lambda.send("a", r#","first":["fail"]"#);
    lambda.send("b", "");
    assert_eq!(lambda.invoked().await, [failing]);
    let hidden = lambda.hidden_for().await;
    assert!((5..=11).contains(&hidden.as_secs()), "{hidden:?}");
    advance(Duration::from_secs(6)).await;
    assert_eq!(lambda.invoked().await, NONE);
    assert_eq!(lambda.book.runs("a")[1].attempt, 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_due_or_has_nobody_to_do_it_is_returned_and_counts_as_no_attempt() {
    let lambda = Lambda::new(&[]).await;
    let later = lambda.send("a", r#","first":["not_yet"]"#);
    assert_eq!(lambda.invoked().await, std::slice::from_ref(&later));
    let hidden = lambda.hidden_for().await.as_secs();
    assert!((6..=8).contains(&hidden), "{hidden}");
    assert_eq!(lambda.invoked().await, NONE);
    let absent = lambda.send("b", r#","first":["unavailable"]"#);
    assert_eq!(lambda.invoked().await, [absent]);
    assert_eq!(lambda.book.runs("a")[1].attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn each_record_is_a_span_below_the_invocation_and_all_of_it_is_told_there() {
    let lambda = Lambda::new(&[]).await;
    let mut ids = vec![
        lambda.send("a", r#","millis":5000"#),
        lambda.send("a", r#","millis":5000"#),
        lambda.send("b", r#","first":["fail"]"#),
    ];
    let log = Log::default();
    let told = tracing::subscriber::set_default(log.json(Level::DEBUG));
    lambda.invoked().instrument(info_span!("invocation")).await;
    drop(told);
    let lines: Vec<Value> = log.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let mut seen = Vec::new();
    for line in lines.iter().filter(|line| line["target"] == "leasehold::outcome") {
        let spans = line["spans"].as_array().expect("spans");
        assert_eq!(spans.len(), 2, "{line}");
        assert_eq!((&spans[0]["name"], &spans[1]["name"]), (&json!("invocation"), &json!("process")), "{line}");
        assert_eq!(spans[1]["messaging.message.id"], line["message_id"], "{line}");
        seen.push(line["message_id"].as_str().expect("an id").to_owned());
    }
    seen.sort();
    ids.sort();
    assert_eq!(seen, ids, "each once: {lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn l10_a_panic_is_that_records_failure_and_no_other_one_s() {
    let lambda = Lambda::new(&[]).await;
    lambda.send("a", "");
    let panics = lambda.send("b", r#","first":["panic"]"#);
    lambda.send("c", "");
    assert_eq!(lambda.invoked().await, [panics]);
}

#[tokio::test(start_paused = true)]
async fn t3_what_has_failed_for_good_is_copied_with_its_reason_and_not_returned() {
    let lambda = Lambda::new(&[]).await;
    lambda.send("a", r#","first":["fail_for_good"]"#);
    lambda.queue().put(Outgoing { body: "no JSON".to_owned(), ..Outgoing::default() });
    assert_eq!(lambda.invoked().await, NONE);
    let mut codes: Vec<_> = lambda.bed.dead("jobs").into_iter().map(|(_, note)| note.unwrap().code).collect();
    codes.sort();
    assert_eq!(codes, ["hopeless", "malformed"]);
}

#[tokio::test(start_paused = true)]
async fn t3_what_cannot_be_copied_is_returned_and_hidden_for_long() {
    let lambda = Lambda::new(&[]).await;
    let failed = lambda.send("a", r#","first":["fail_for_good"]"#);
    lambda.bed.queue_faults("jobs-dlq").always("send", Fault::Fail(Failure::Denied));
    assert_eq!(lambda.invoked().await, [failed]);
    assert!(lambda.hidden_for().await >= Duration::from_secs(50));
}

#[tokio::test(start_paused = true)]
async fn g7_a_key_that_another_environment_holds_is_returned_and_hidden_to_the_end_of_its_lease() {
    let lambda = Lambda::new(&[]).await;
    lambda.send("a", r#","millis":20000"#);
    let other = started(worker(&lambda.bed, &lambda.book, &[])).await;
    let first = lambda.receive().await;
    let second = lambda.send("a", r#","millis":20000"#);
    let deadline = lambda.bed.broker.clock().wall() + TIMEOUT;
    let running = other.answer(event("jobs", &first), deadline);
    let held = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        lambda.invoked().await
    };
    let (answer, held) = tokio::join!(running, held);
    assert!(answer.unwrap().batch_item_failures.is_empty());
    assert_eq!(held, [second]);
    // It ends with its invocation, which began a second before and is answered now, at 20 s.
    let hidden = lambda.hidden_for().await.as_secs();
    assert!((10..=15).contains(&hidden), "{hidden}");
    assert_eq!(lambda.invoked().await, NONE);
    assert_eq!(lambda.book.runs("a").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn g7_a_duplicate_in_the_same_batch_is_looked_at_again_behind_its_twin() {
    let lambda = Lambda::new(&[]).await;
    lambda.send("a", r#","millis":5000"#);
    lambda.send("a", r#","millis":5000"#);
    assert_eq!(lambda.invoked().await, NONE);
    assert_eq!(lambda.book.runs("a").len(), 1);
    // Of one that failed, the twin waits for the same back-off.
    let mut twins = [lambda.send("b", r#","first":["fail"]"#), lambda.send("b", r#","first":["fail"]"#)];
    let mut returned = lambda.invoked().await;
    twins.sort();
    returned.sort();
    assert_eq!((returned, lambda.book.runs("b").len()), (twins.to_vec(), 1));
}

#[tokio::test(start_paused = true)]
async fn t5_a_group_stops_at_its_first_failure_and_the_others_go_on() {
    let lambda = Lambda::on("jobs.fifo", 100, &[]).await;
    lambda.send_to("a", "a1", "");
    let failing = lambda.send_to("a", "a2", r#","first":["fail"]"#);
    lambda.send_to("b", "b1", r#","millis":3000"#);
    let behind = [lambda.send_to("a", "a3", ""), lambda.send_to("a", "a4", "")];
    lambda.send_to("b", "b2", "");
    assert_eq!(lambda.invoked().await, [vec![failing], behind.to_vec()].concat());
    assert!(lambda.book.runs("a3").is_empty() && lambda.book.runs("a4").is_empty());
    assert!(lambda.book.runs("b2")[0].began >= lambda.book.runs("b1")[0].ended.unwrap());
    // All of the group comes together when its head is due, in order.
    let due = Instant::now();
    while !lambda.queue().is_empty() {
        advance(Duration::from_secs(1)).await;
        assert_eq!(lambda.invoked().await, NONE);
        assert!(due.elapsed() <= Duration::from_secs(12), "it comes again when its head is due");
    }
    let ended = |id| lambda.book.runs(id).last().unwrap().ended.unwrap();
    assert!(ended("a2") <= ended("a3") && ended("a3") <= ended("a4"));
}

#[tokio::test(start_paused = true)]
async fn t5_a_head_that_is_dead_lettered_frees_its_group_here_too() {
    let lambda = Lambda::on("jobs.fifo", 100, &[]).await;
    lambda.send_to("a", "a1", r#","first":["fail_for_good"]"#);
    lambda.send_to("a", "a2", "");
    assert_eq!(lambda.invoked().await, NONE);
    assert_eq!((lambda.bed.dead("jobs.fifo").len(), lambda.book.runs("a2").len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn l8_a_run_that_uses_up_an_invocation_has_failed_and_is_cancelled_before_the_answer() {
    let lambda = Lambda::new(&[]).await;
    let hangs = lambda.send("a", r#","first":["hang"]"#);
    assert_eq!(lambda.invoked().await, [hangs]);
    assert_eq!(lambda.book.runs("a")[0].cancelled, Some(CancelCause::TimedOut));
    advance(VISIBILITY).await;
    lambda.invoked().await;
    assert_eq!(lambda.book.runs("a")[1].attempt, 2, "it was counted");
}

#[tokio::test(start_paused = true)]
async fn l8_what_began_late_in_an_invocation_is_interrupted_and_not_counted() {
    let lambda = Lambda::new(&[("LEASEHOLD_CONCURRENCY", "1")]).await;
    lambda.send("a", r#","millis":20000"#);
    let late = lambda.send("b", r#","millis":20000"#);
    let never = lambda.send("c", "");
    assert_eq!(lambda.invoked().await, [late, never]);
    assert!(lambda.book.runs("c").is_empty(), "there was no time for it");
    assert_eq!(lambda.queue().visible(), 2, "others can have them at once");
    assert_eq!(lambda.invoked_for(TIMEOUT * 2).await, NONE);
    assert_eq!(lambda.book.runs("b").last().unwrap().attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn d3_an_answer_goes_out_in_time_whatever_aws_does() {
    let lambda = Lambda::new(&[]).await;
    let stays = lambda.send("a", "");
    lambda.bed.guard_faults.always("confirm", Fault::Hang);
    assert_eq!(lambda.invoked().await, [stays], "its confirm is not written");
    lambda.bed.guard_faults.clear();
    lambda.send("b", "");
    assert_eq!(lambda.invoked().await, NONE, "another is not harmed");
}

#[tokio::test(start_paused = true)]
async fn l5_nothing_is_begun_when_there_is_no_time_or_the_delivery_is_over() {
    let lambda = Lambda::new(&[]).await;
    let id = lambda.send("a", "");
    assert_eq!(lambda.invoked_for(Duration::from_millis(1)).await, std::slice::from_ref(&id));
    let batch = lambda.receive().await;
    let mut late = event("jobs", &batch);
    late.records[0].attributes.insert("ApproximateReceiveCount".into(), "1".into());
    let received = lambda.bed.broker.clock().wall();
    late.records[0].attributes.insert("ApproximateFirstReceiveTimestamp".into(), received.0.to_string());
    advance(VISIBILITY - Duration::from_secs(2)).await;
    let calls = lambda.queue().calls()["change_visibility"];
    let answer = lambda.function.answer(late, lambda.bed.broker.clock().wall() + TIMEOUT).await.unwrap();
    assert_eq!(answer.batch_item_failures[0].item_identifier, id);
    assert!(lambda.book.runs("a").is_empty());
    assert_eq!(lambda.queue().calls()["change_visibility"], calls, "it may be somebody else's");
}

#[tokio::test(start_paused = true)]
async fn g8_while_the_table_is_away_nothing_runs_and_all_is_hidden_for_a_while() {
    let lambda = Lambda::new(&[]).await;
    let ids = [lambda.send("a", ""), lambda.send("b", "")];
    lambda.bed.guard_faults.decide_with(|_| Some(Fault::Fail(Failure::Denied)));
    assert_eq!(lambda.invoked().await, ids);
    assert_eq!(lambda.queue().visible(), 0);
    let claims = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&claims);
    lambda.bed.guard_faults.decide_with(move |call| {
        counted.fetch_add(usize::from(call.operation == "claim"), std::sync::atomic::Ordering::Relaxed);
        Some(Fault::Fail(Failure::Denied))
    });
    advance(Duration::from_secs(60)).await;
    assert_eq!(lambda.invoked().await.len(), 2);
    assert_eq!(claims.load(std::sync::atomic::Ordering::Relaxed), 0, "a probe tells, and not each record");
    lambda.bed.guard_faults.clear();
    advance(Duration::from_secs(60)).await;
    assert_eq!(lambda.invoked().await, NONE, "the probe that was due has passed first");
}

#[tokio::test(start_paused = true)]
async fn g8_with_the_policy_open_the_batch_runs_unguarded() {
    let lambda = Lambda::new(&[("LEASEHOLD_GUARD_OUTAGE", "open")]).await;
    lambda.send("a", "");
    lambda.bed.guard_faults.decide_with(|_| Some(Fault::Fail(Failure::Denied)));
    assert_eq!(lambda.invoked().await, NONE);
    assert_eq!(lambda.book.runs("a")[0].fence, 0);
}

#[tokio::test(start_paused = true)]
async fn g12_without_a_guard_a_run_ends_with_its_invocation_too() {
    let lambda = Lambda::new(&[("LEASEHOLD_GUARD", "none")]).await;
    lambda.send("a", "");
    let hangs = lambda.send("b", r#","first":["hang"]"#);
    assert_eq!(lambda.invoked().await, [hangs]);
    assert!(lambda.book.runs("b")[0].cancelled.is_some());
}

#[tokio::test(start_paused = true)]
async fn t6_on_its_last_receive_a_failure_is_copied_and_what_must_wait_is_left_and_told() {
    let lambda = Lambda::on("jobs", 1, &[]).await;
    lambda.send("a", r#","first":["fail"]"#);
    let later = lambda.send("b", r#","first":["not_yet"]"#);
    assert_eq!(lambda.invoked().await, [later]);
    let dead = lambda.bed.dead("jobs");
    assert_eq!(dead[0].1.as_ref().unwrap().code, "failing");
    assert!(!lambda.queue().calls().contains_key("change_visibility"), "nothing is given back");
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_is_returned_unrun_until_it_goes_on() {
    let lambda = Lambda::new(&[]).await;
    let id = lambda.send("a", "");
    let (key, clock) = (ControlKey::new(None, "jobs"), lambda.bed.broker.clock().clone());
    let paused = Some(Paused { at: clock.wall(), by: "a test".to_owned(), why: None });
    lambda.bed.guard.set_control(&key, &Control { paused, resumed_at: None }).await.unwrap();
    assert_eq!(lambda.invoked().await, [id]);
    assert!(lambda.book.runs("a").is_empty());
    lambda.bed.guard.set_control(&key, &Control { paused: None, resumed_at: Some(clock.wall()) }).await.unwrap();
    advance(Duration::from_secs(20)).await;
    assert_eq!(lambda.invoked().await, NONE);
}

#[tokio::test(start_paused = true)]
async fn records_of_a_queue_that_nobody_knows_are_returned_and_the_others_run() {
    let lambda = Lambda::new(&[]).await;
    lambda.send("a", "");
    let batch = lambda.receive().await;
    let mut both = event("jobs", &batch);
    let mut stranger = both.records[0].clone();
    stranger.message_id = Some("stranger".to_owned());
    stranger.event_source_arn = Some("arn:aws:sqs:us-east-1:000000000000:others".to_owned());
    both.records.insert(0, stranger);
    let answer = lambda.function.answer(both, lambda.bed.broker.clock().wall() + TIMEOUT).await.unwrap();
    let returned: Vec<_> = answer.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str()).collect();
    assert_eq!((returned, lambda.book.runs("a").len()), (vec!["stranger"], 1));
    let none = serde_json::from_value(json!({"Records": [{"body": "of somebody else"}]})).unwrap();
    assert!(lambda.function.answer(none, Millis(0)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn r5_what_cannot_be_kept_under_lambda_is_told_with_all_other_problems() {
    let bed = TestBed::new(&["jobs"]);
    let worker = worker(&bed, &Book::new(), &[("LEASEHOLD_RATE", "5")]).queue("others", Book::new());
    let Err(WorkerError::Configuration(problems)) = Function::new(worker).await else { panic!("it starts") };
    let told = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(told.contains("LEASEHOLD_JOBS_RATE cannot be kept") && told.contains("\"others\""), "{told}");
}
