//! Both leases, and what happens when one of them ends (rules L1 to L10).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use leasehold::{
    CancelCause, Handler, HandlerResult, JobContext, Raw, Shutdown,
    guard::{Pk, Status},
    handler,
    testing::{Failure, Fault, Faults, TestBed},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::bench::{Book, Log, crashes_after, worker};

fn bed() -> (TestBed, Book) {
    (TestBed::new(&["jobs"]), Book::new())
}

fn after(secs: u64) -> Shutdown {
    Shutdown::when(sleep(Duration::from_secs(secs)))
}

#[tokio::test(start_paused = true)]
async fn l4_a_handler_inside_its_lease_costs_two_writes_and_no_beat() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":14000}"#);
    worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    let calls = bed.guard.calls().into_iter().filter(|(what, _)| *what != "control").collect::<Vec<_>>();
    assert_eq!(calls, [("claim", 1), ("confirm", 1), ("facts", 1)]);
    assert!(!bed.queue("jobs").calls().contains_key("change_visibility"));
}

#[tokio::test(start_paused = true)]
async fn l4_a_long_handler_keeps_its_message_and_its_claim_and_runs_once() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":3600000}"#);
    let report = worker(&bed, &book, &[("LEASEHOLD_HANDLER_TIMEOUT", "2h")]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, book.runs("a").len()), (1, 1));
    let beats = bed.queue("jobs").calls()["change_visibility"].calls;
    assert!((190..=260).contains(&beats), "one each 15 to 18 s of an hour: {beats}");
    assert_eq!(bed.queue("jobs").calls()["receive"].entries, 1);
}

#[tokio::test(start_paused = true)]
async fn l4_beats_that_fail_are_tried_again_inside_what_remains() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":60000}"#);
    for _ in 0..3 {
        bed.queue_faults("jobs").next("change_visibility", Fault::Fail(Failure::Throttled));
        bed.guard_faults.next("renew", Fault::Fail(Failure::Throttled));
    }
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, book.runs("a").len()), (1, 1));
    assert_eq!(bed.queue("jobs").calls()["receive"].entries, 1);
}

#[tokio::test(start_paused = true)]
async fn l1_with_a_guard_a_lost_delivery_does_not_stop_the_run_and_the_next_delivery_finds_done() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":60000}"#);
    bed.queue_faults("jobs").always("change_visibility", Fault::Fail(Failure::HandleLost));
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((book.completed()["a"], book.runs("a").len()), (1, 1));
    assert_eq!((report.done, report.suppressed), (1, 1));
    assert!(bed.queue("jobs").is_empty());
}

#[tokio::test(start_paused = true)]
async fn l1_a_claim_that_cannot_be_renewed_cancels_the_run_before_another_may_begin() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":100000}"#);
    bed.guard_faults.always("renew", Fault::Fail(Failure::Throttled));
    worker(&bed, &book, &[]).run(after(40)).await.unwrap();
    let run = &book.runs("a")[0];
    assert_eq!(run.cancelled, Some(CancelCause::LeaseLost));
    let record = bed.guard.history().into_iter().find(|(what, _)| *what == "release").unwrap().1;
    assert_eq!((record.status, record.failures), (Status::Released, 0), "interrupted is written, and not counted");
}

#[tokio::test(start_paused = true)]
async fn l2_without_a_guard_a_lost_delivery_cancels_the_run() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":100000}"#);
    bed.queue_faults("jobs").always("change_visibility", Fault::Fail(Failure::HandleLost));
    worker(&bed, &book, &[("LEASEHOLD_GUARD", "none")]).run(after(25)).await.unwrap();
    assert_eq!(book.runs("a")[0].cancelled, Some(CancelCause::LeaseLost));
}

#[tokio::test(start_paused = true)]
async fn l6_no_visibility_change_is_sent_after_the_lease_has_ended() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":40000,"first":["fail"]}"#);
    let changes = Arc::new(Mutex::new(Vec::new()));
    bed.queue_faults("jobs").decide_with({
        let (changes, begun) = (Arc::clone(&changes), Instant::now());
        move |call| {
            (call.operation == "change_visibility").then(|| {
                changes.lock().unwrap().push((call.subject.clone(), begun.elapsed()));
                Fault::Fail(Failure::Throttled)
            })
        }
    });
    worker(&bed, &book, &[]).run(after(45)).await.unwrap();
    assert_eq!(book.completed()["a"], 1);
    let changes = changes.lock().unwrap();
    let of_the_run: Vec<_> = changes.iter().filter(|(handle, _)| *handle == changes[0].0).map(|(_, at)| *at).collect();
    assert!((3..=20).contains(&of_the_run.len()), "beats are tried again: {of_the_run:?}");
    assert!(of_the_run.iter().all(|at| *at < Duration::from_secs(30)), "{of_the_run:?}");
    assert!(!bed.queue("jobs").calls().contains_key("change_visibility"));
}

#[tokio::test(start_paused = true)]
async fn l7_beats_stop_short_of_twelve_hours_and_the_run_goes_on_under_its_claim() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":46800000}"#);
    // When visibility was changed, and under which receipt handle.
    let changes = Arc::new(Mutex::new(Vec::new()));
    bed.queue_faults("jobs").decide_with({
        let (changes, begun) = (Arc::clone(&changes), Instant::now());
        move |call| {
            if call.operation == "change_visibility" {
                changes.lock().unwrap().push((call.subject.clone(), begun.elapsed()));
            }
            None
        }
    });
    let vars = [("LEASEHOLD_HANDLER_TIMEOUT", "20h"), ("LEASEHOLD_VISIBILITY_TIMEOUT", "10m")];
    let report = worker(&bed, &book, &vars).run(bed.until_idle()).await.unwrap();
    assert_eq!((book.completed()["a"], book.runs("a").len()), (1, 1));
    assert_eq!((report.done, report.suppressed), (1, 1), "the delivery that came after twelve hours finds done");
    assert!(bed.queue("jobs").is_empty());
    let changes = changes.lock().unwrap();
    let (hours, minutes) = (|h: u64| Duration::from_secs(h * 3600), |m: u64| Duration::from_secs(m * 60));
    let (beats, later): (Vec<_>, Vec<_>) = changes.iter().partition(|(handle, _)| *handle == changes[0].0);
    let (last, next) = (beats.last().unwrap().1, later[0].1);
    assert!(last >= hours(12) - minutes(12) && last < hours(12) - minutes(1), "{last:?}");
    assert!(next >= hours(12) - minutes(2) && next < hours(12), "SQS was not asked for more than it allows: {next:?}");
}

/// A handler that blocks its thread until it is let go, whatever its cancellation says.
struct Stubborn {
    began: Arc<Notify>,
    gate: Mutex<mpsc::Receiver<()>>,
}

impl Handler for Stubborn {
    type Payload = Raw;
    async fn handle(&self, _: &Raw, _: &JobContext) -> HandlerResult {
        self.began.notify_one();
        let _ = self.gate.lock().unwrap().recv();
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn l8_a_thread_that_ignores_its_cancellation_keeps_its_slot_and_its_key_comes_back_to_nobody() {
    let bed = TestBed::new(&["jobs"]);
    bed.send("jobs", "a");
    let began = Arc::new(Notify::new());
    let (let_go, gate) = mpsc::channel();
    let stubborn = Stubborn { began: began.clone(), gate: Mutex::new(gate) };
    let vars = [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_HANDLER_TIMEOUT", "10s"), ("LEASEHOLD_CONCURRENCY", "2")];
    let worker = bed.worker(&vars).queue("jobs", stubborn.key(|message| message.0.body.clone()).blocking());
    let shutdown = Shutdown::new();
    let story = async {
        began.notified().await;
        // A thread that blocks keeps paused time from moving by itself.
        for _ in 0..600 {
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let claims = bed.guard.history().iter().filter(|(what, _)| ["claim", "take_over"].contains(what)).count();
        let record = bed.guard.record(&Pk("jobs#a".into())).unwrap();
        drop(let_go);
        shutdown.drain();
        (claims, record)
    };
    let (report, (claims, record)) = tokio::join!(worker.run(shutdown.clone()), story);
    assert_eq!(claims, 1, "its key is not claimed again while the thread runs");
    assert_eq!((record.status, record.failures), (Status::Released, 1), "a timeout counts");
    assert!(record.not_before > Some(record.updated_at), "and nobody may run it before its lease is over");
    assert_eq!(report.unwrap().done, 0);
}

#[tokio::test(start_paused = true)]
async fn l8_more_time_can_be_asked_for() {
    let bed = TestBed::new(&["jobs"]);
    bed.send("jobs", r#"{"id":"a"}"#);
    let long = handler(async |_: &Raw, cx: &JobContext| -> HandlerResult {
        cx.extend_deadline(Duration::from_secs(600));
        sleep(Duration::from_secs(800)).await;
        Ok(())
    });
    let vars = [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id")];
    let report = bed.worker(&vars).queue("jobs", long).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.failed), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn l8_all_the_time_there_is_can_be_asked_for() {
    let bed = TestBed::new(&["jobs"]);
    bed.send("jobs", r#"{"id":"a"}"#);
    let long = handler(async |_: &Raw, cx: &JobContext| -> HandlerResult {
        cx.extend_deadline(Duration::MAX);
        sleep(Duration::from_secs(800)).await;
        Ok(())
    });
    let vars = [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id")];
    let report = bed.worker(&vars).queue("jobs", long).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.failed), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn l6_a_delay_that_is_throttled_costs_one_redelivery_and_is_not_sent_again() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":1000,"first":["fail"]}"#);
    bed.queue_faults("jobs").next("change_visibility", Fault::Fail(Failure::Throttled));
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.left), (1, 1));
    assert_eq!(bed.queue_faults("jobs").calls()["change_visibility"], 1);
    assert_eq!(book.began("a"), [0, 30]);
}

#[tokio::test(start_paused = true)]
async fn l4_slow_beats_keep_two_hundred_long_handlers() {
    let (bed, book) = bed();
    for id in 0..200 {
        bed.send("jobs", format!(r#"{{"id":"{id}","millis":120000}}"#));
    }
    bed.queue_faults("jobs").always("change_visibility", Fault::DelayReply(Duration::from_secs(4)));
    bed.guard_faults.always("renew", Fault::DelayReply(Duration::from_secs(4)));
    let report = worker(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "200")]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, bed.queue("jobs").calls()["receive"].entries), (200, 200));
    assert!((0..200).all(|id| book.runs(&id.to_string()).len() == 1));
}

#[tokio::test(start_paused = true)]
async fn l7_a_refusal_for_the_twelve_hours_stops_the_beats_and_not_the_run() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":60000}"#);
    let faults = bed.queue_faults("jobs");
    faults.always("change_visibility", Fault::Fail(Failure::TwelveHours));
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.suppressed, book.runs("a").len()), (1, 1, 1));
    let changes = calls_of(&faults, "change_visibility");
    assert!(changes.values().all(|calls| *calls == 1), "{changes:?}");
}

#[tokio::test(start_paused = true)]
async fn l4_a_handle_that_is_lost_ends_its_own_run_and_no_other() {
    let (bed, book) = bed();
    for id in 0..10 {
        bed.send("jobs", format!(r#"{{"id":"{id}","millis":50000}}"#));
    }
    let (faults, lost) = (bed.queue_faults("jobs"), Arc::new(Mutex::new(None)));
    faults.decide_with({
        let lost = Arc::clone(&lost);
        move |call| {
            let changes = call.operation == "change_visibility";
            let is_lost = changes && *lost.lock().unwrap().get_or_insert_with(|| call.subject.clone()) == call.subject;
            is_lost.then_some(Fault::Fail(Failure::HandleLost))
        }
    });
    let report = worker(&bed, &book, &[("LEASEHOLD_GUARD", "none")]).run(bed.until_idle()).await.unwrap();
    let runs: Vec<_> = (0..10).flat_map(|id| book.runs(&id.to_string())).collect();
    let cancelled = runs.iter().filter(|run| run.cancelled == Some(CancelCause::LeaseLost)).count();
    assert_eq!((report.done, runs.len(), cancelled), (10, 11, 1));
    let lost = lost.lock().unwrap().clone().unwrap();
    assert_eq!(calls_of(&faults, "change_visibility")[&lost], 1);
}

#[tokio::test(start_paused = true)]
async fn l4_a_beat_that_is_denied_is_told_as_an_error_the_first_time() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":60000}"#);
    bed.queue_faults("jobs").always("change_visibility", Fault::Fail(Failure::Denied));
    let log = Log::default();
    let told = tracing::subscriber::set_default(log.subscriber());
    worker(&bed, &book, &[]).run(after(20)).await.unwrap();
    drop(told);
    let told = log.text();
    let errors = told.lines().filter(|line| line.contains("ERROR") && line.contains("cannot be extended"));
    assert_eq!(errors.count(), 1, "{told}");
}

#[tokio::test(start_paused = true)]
async fn l10_no_beat_outlives_its_delivery_however_that_ends() {
    let (bed, book) = bed();
    // Each run is long enough for one beat.
    for end in ["fail", "fail_for_good", "panic", "not_yet", "charge_then_fail"] {
        bed.send("jobs", format!(r#"{{"id":"{end}","millis":20000,"first":["{end}"]}}"#));
    }
    for body in [r#"{"id":"a","millis":20000}"#, r#"{"id":"a","millis":20000}"#, r#"{"id":"a"}"#, "nope", "{}"] {
        bed.send("jobs", body);
    }
    worker(&bed, &book, &[]).run(after(1000)).await.unwrap();
    assert!(bed.queue("jobs").is_empty());
    let mut calls = BTreeMap::<_, Vec<_>>::new();
    for call in bed.queue_faults("jobs").log() {
        calls.entry(call.subject).or_default().push(call.operation);
    }
    calls.retain(|_, calls| calls.iter().all(|call| ["change_visibility", "delete"].contains(call)));
    let ended = |calls: &[&str]| matches!(calls, [_] | ["change_visibility", _]);
    assert!(calls.len() >= 15 && calls.values().all(|calls| ended(calls)), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn l3_a_crash_after_hours_of_beats_hides_the_message_for_one_visibility_timeout() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":36000000}"#);
    let vars = [("LEASEHOLD_HANDLER_TIMEOUT", "12h")];
    let hours = Duration::from_secs(3 * 3600);
    crashes_after(hours, worker(&bed, &book, &vars)).await;
    worker(&bed, &book, &vars).run(after(60)).await.unwrap();
    let runs = book.runs("a");
    // A whole timeout, the skew, and what spreads those that wait.
    let most = hours + Duration::from_secs(30 + 2 + 3);
    assert!(runs.len() == 2 && runs[1].began <= most, "{runs:?}");
}

/// How often an operation was called, by its subject.
fn calls_of(faults: &Faults, operation: &str) -> BTreeMap<String, usize> {
    let mut calls = BTreeMap::new();
    for call in faults.log().into_iter().filter(|call| call.operation == operation) {
        *calls.entry(call.subject).or_default() += 1;
    }
    calls
}
