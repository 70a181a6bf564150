//! The life of a message, in every way that it can end (rules T1 to T6).

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{
    HandlerError, HandlerResult, JobContext, Raw, Shutdown, StopReport,
    guard::{Pk, Status},
    handler,
    testing::{Failure, Fault, TestBed},
};
use tokio::time::{Instant, sleep, timeout};

use crate::bench::{Book, worker};

/// Works everything off and gives back the report; a day of paused time is a hang.
async fn work_off(bed: &TestBed, book: &Book, vars: &[(&str, &str)]) -> StopReport {
    let run = worker(bed, book, vars).run(bed.until_idle());
    timeout(Duration::from_secs(24 * 60 * 60), run).await.expect("the queue is never empty").unwrap()
}

fn bed() -> (TestBed, Book) {
    (TestBed::new(&["jobs"]), Book::new())
}

fn status(bed: &TestBed, id: &str) -> Option<Status> {
    bed.guard.record(&Pk(format!("jobs#{id}"))).map(|record| record.status)
}

fn codes(bed: &TestBed) -> Vec<String> {
    bed.dead("jobs").into_iter().map(|(_, note)| note.expect("a reason").code).collect()
}

#[tokio::test(start_paused = true)]
async fn t1_a_message_is_done_once_and_its_duplicate_is_deleted_without_a_run() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a"}"#);
    bed.send("jobs", r#"{"id":"a"}"#);
    let report = work_off(&bed, &book, &[]).await;
    assert_eq!((report.done, report.suppressed), (1, 1));
    assert_eq!(book.runs("a").len(), 1);
    assert_eq!(status(&bed, "a"), Some(Status::Done));
}

#[tokio::test(start_paused = true)]
async fn t1_done_is_recorded_before_the_message_is_deleted() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a"}"#);
    bed.queue_faults("jobs").next("delete", Fault::Fail(Failure::Throttled));
    let report = work_off(&bed, &book, &[]).await;
    assert_eq!(book.runs("a").len(), 1, "the second delivery finds done");
    assert_eq!(report.suppressed, 1);
}

#[tokio::test(start_paused = true)]
async fn t2_a_failure_is_repeated_after_a_back_off_that_doubles_and_counts_from_its_end() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":4000,"first":["fail","fail"]}"#);
    let report = work_off(&bed, &book, &[]).await;
    assert_eq!((report.done, report.failed), (1, 2));
    let runs = book.runs("a");
    let waits: Vec<_> = runs.windows(2).map(|pair| (pair[1].began - pair[0].ended.unwrap()).as_secs_f64()).collect();
    assert!((5.0..=12.0).contains(&waits[0]), "{waits:?}");
    assert!((10.0..=22.0).contains(&waits[1]), "{waits:?}");
    assert_eq!(runs.iter().map(|run| run.attempt).collect::<Vec<_>>(), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn t2_a_duplicate_does_not_jump_the_back_off() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","first":["fail"]}"#);
    let later = {
        let bed = bed.clone();
        async move {
            sleep(Duration::from_secs(1)).await;
            bed.send("jobs", r#"{"id":"a","first":["fail"]}"#);
        }
    };
    let (report, ()) = tokio::join!(work_off(&bed, &book, &[("LEASEHOLD_BACKOFF", "60s..60s")]), later);
    assert_eq!((report.done, report.suppressed), (1, 1));
    assert!(book.began("a")[1] >= 30, "{:?}", book.began("a"));
}

#[tokio::test(start_paused = true)]
async fn g6_attempts_are_capped_over_all_deliveries_and_the_last_failure_is_dead_lettered_with_its_reason() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","first":["fail","fail","fail","fail","fail"]}"#);
    let report = work_off(&bed, &book, &[("LEASEHOLD_MAX_ATTEMPTS", "3")]).await;
    assert_eq!((report.dead, book.runs("a").len()), (1, 3));
    let (body, note) = bed.dead("jobs").remove(0);
    let note = note.unwrap();
    assert_eq!((note.code.as_str(), note.failures, note.pk.as_deref()), ("failing", 3, Some("jobs#a")));
    assert!(body.contains(r#""id":"a""#));
    let record = bed.guard.record(&Pk("jobs#a".into())).unwrap();
    assert_eq!((record.status, record.copied), (Status::Dead, true));
}

#[tokio::test(start_paused = true)]
async fn t3_what_fails_for_good_is_dead_lettered_at_once_and_a_duplicate_makes_no_second_copy() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","first":["fail_for_good"]}"#);
    bed.send("jobs", r#"{"id":"a","first":["fail_for_good"]}"#);
    let report = work_off(&bed, &book, &[]).await;
    assert_eq!((report.dead, report.suppressed), (1, 1));
    assert_eq!(codes(&bed), ["hopeless"]);
    assert_eq!(book.runs("a").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn t3_the_copy_is_made_by_the_next_delivery_if_the_first_could_not() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","first":["fail_for_good"]}"#);
    bed.queue_faults("jobs-dlq").next("send", Fault::Fail(Failure::Denied));
    let report = work_off(&bed, &book, &[]).await;
    assert_eq!((report.dead, report.failed, book.runs("a").len()), (1, 1, 1));
    assert_eq!(codes(&bed), ["hopeless"]);
}

#[tokio::test(start_paused = true)]
async fn t3_a_copy_whose_reply_was_lost_is_the_same_failure() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","first":["fail_for_good"]}"#);
    bed.queue_faults("jobs-dlq").next("send", Fault::LoseReply);
    work_off(&bed, &book, &[]).await;
    let ids: Vec<_> = bed.dead("jobs").into_iter().map(|(_, note)| note.unwrap().failure_id).collect();
    assert_eq!(ids.len(), 2, "at least one copy");
    assert_eq!(ids[0], ids[1], "which the tools fold");
}

#[tokio::test(start_paused = true)]
async fn t3_without_a_dead_letter_queue_a_failure_is_kept_or_dropped_as_configured() {
    for (mode, dropped) in [("drop", 1), ("keep", 0)] {
        let (bed, book) = bed();
        bed.send("jobs", r#"{"id":"a","first":["fail_for_good"]}"#);
        let shutdown = Shutdown::when(sleep(Duration::from_secs(3600)));
        let report = worker(&bed, &book, &[("LEASEHOLD_DEAD_LETTER", mode)]).run(shutdown).await.unwrap();
        assert_eq!((report.dropped, bed.queue("jobs").len()), (dropped, 1 - dropped as usize), "{mode}");
        assert_eq!(book.runs("a").len(), 1, "{mode}: what has failed for good does not run again");
        assert!(bed.dead("jobs").is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn t4_bodies_that_do_not_decode_are_dead_lettered_without_a_claim_and_the_worker_lives() {
    let (bed, book) = bed();
    let deep = "[".repeat(100_000);
    let bodies = ["nope", "{}", r#"{"id":7}"#, r#"{"id":"\ud800"}"#, r#"{"Type":"Notification"}"#, &deep];
    for body in bodies {
        bed.send("jobs", body);
    }
    bed.send("jobs", r#"{"id":"good"}"#);
    let report = work_off(&bed, &book, &[]).await;
    assert_eq!((report.dead, report.done), (bodies.len() as u64, 1));
    assert!(codes(&bed).iter().all(|code| code == "malformed"), "{:?}", codes(&bed));
    assert_eq!(bed.guard.records().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn t3_a_message_that_cannot_be_copied_is_left_to_the_queues_own_redrive_policy() {
    let (bed, book) = (TestBed::new(&[]), Book::new());
    bed.add("jobs", 3);
    // SQS takes no empty body, so no copy of this one can be sent.
    bed.send("jobs", "");
    let report = work_off(&bed, &book, &[]).await;
    assert_eq!((report.dead, report.done), (0, 0));
    assert_eq!(bed.dead("jobs"), [(String::new(), None)]);
}

#[tokio::test(start_paused = true)]
async fn g10_a_message_without_a_key_is_dead_lettered_with_the_pointer_named() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a"}"#);
    let report = work_off(&bed, &book, &[("LEASEHOLD_KEY", "/order")]).await;
    assert_eq!(report.dead, 1);
    let note = bed.dead("jobs").remove(0).1.unwrap();
    assert_eq!(note.code, "no_key");
    assert!(note.message.contains("/order"), "{}", note.message);
}

#[tokio::test(start_paused = true)]
async fn l10_a_panic_is_a_failed_attempt_and_its_slot_comes_back() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","first":["panic","panic"]}"#);
    bed.send("jobs", r#"{"id":"b"}"#);
    let report = work_off(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "1"), ("LEASEHOLD_MAX_ATTEMPTS", "2")]).await;
    assert_eq!((report.done, report.dead), (1, 1));
    let note = bed.dead("jobs").remove(0).1.unwrap();
    assert_eq!((note.code.as_str(), note.message.as_str()), ("panicked", "the handler panicked: oh"));
}

/// An error that cannot even say what it is.
#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no words")
    }
}

impl std::error::Error for Unspeakable {}

#[tokio::test(start_paused = true)]
async fn l10_an_error_whose_text_panics_is_a_failed_attempt_like_any_panic() {
    let bed = TestBed::new(&["jobs"]);
    bed.send("jobs", r#"{"id":"a"}"#);
    let vars = [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_MAX_ATTEMPTS", "1")];
    let unspeakable = handler(async |_: &Raw, _: &JobContext| -> HandlerResult { Err(Unspeakable)? });
    let report = bed.worker(&vars).queue("jobs", unspeakable).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.dead, report.left), (1, 0));
    assert_eq!(codes(&bed), ["panicked"]);
}

#[tokio::test(start_paused = true)]
async fn l8_a_handler_past_its_budget_is_cancelled_and_has_failed() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","first":["hang"]}"#);
    let report = work_off(&bed, &book, &[("LEASEHOLD_HANDLER_TIMEOUT", "3m")]).await;
    assert_eq!((report.done, report.failed), (1, 1));
    let runs = book.runs("a");
    assert_eq!(runs[0].cancelled, Some(leasehold::CancelCause::TimedOut));
    assert!(runs[1].began >= Duration::from_secs(180));
    assert_eq!(runs[1].attempt, 2);
}

#[tokio::test(start_paused = true)]
async fn l8_a_failure_for_good_counts_also_of_a_handler_that_was_told_to_stop() {
    let bed = TestBed::new(&["jobs"]);
    bed.send("jobs", r#"{"id":"a"}"#);
    let stopped = handler(async |_: &Raw, cx: &JobContext| {
        cx.cancelled().wait().await;
        Err(HandlerError::new("never").permanent().reason("hopeless"))
    });
    let vars = [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_HANDLER_TIMEOUT", "10s")];
    let report = bed.worker(&vars).queue("jobs", stopped).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.dead, report.failed), (1, 0));
    assert_eq!(codes(&bed), ["hopeless"]);
}

#[tokio::test(start_paused = true)]
async fn g6_not_yet_uses_no_attempt() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","first":["not_yet","not_yet","not_yet"]}"#);
    let report = work_off(&bed, &book, &[("LEASEHOLD_MAX_ATTEMPTS", "1")]).await;
    assert_eq!((report.done, report.released), (1, 3));
    assert!(book.runs("a").iter().all(|run| run.attempt == 1));
    assert!(book.began("a")[1] >= 7);
}

#[tokio::test(start_paused = true)]
async fn t2_longer_than_sqs_can_delay_is_as_long_as_it_can() {
    let bed = TestBed::new(&["jobs"]);
    bed.send("jobs", r#"{"id":"a"}"#);
    let begun = Arc::new(Mutex::new(Vec::new()));
    let patient = {
        let begun = Arc::clone(&begun);
        handler(move |_: &Raw, _: &JobContext| {
            let mut begun = begun.lock().unwrap();
            begun.push(Instant::now());
            let again = begun.len() == 1;
            async move { if again { Err(HandlerError::new("later").not_yet(Duration::MAX)) } else { Ok(()) } }
        })
    };
    let vars = [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id")];
    let report = bed.worker(&vars).queue("jobs", patient).run(bed.until_idle()).await.unwrap();
    assert_eq!(report.done, 1);
    let begun = begun.lock().unwrap();
    let waited = begun[1] - begun[0];
    assert!((Duration::from_secs(11 * 3600)..=Duration::from_secs(12 * 3600 + 60)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn t6_on_its_last_receive_a_failure_is_dead_lettered_with_its_reason() {
    let (bed, book) = (TestBed::new(&[]), Book::new());
    bed.add("jobs", 1);
    bed.send("jobs", r#"{"id":"a","first":["fail"]}"#);
    let report = work_off(&bed, &book, &[]).await;
    assert_eq!(report.dead, 1);
    assert_eq!(codes(&bed), ["failing"]);
}

#[tokio::test(start_paused = true)]
async fn t6_on_its_last_receive_what_must_wait_waits_in_place() {
    let (bed, book) = (TestBed::new(&[]), Book::new());
    bed.add("jobs", 1);
    bed.send("jobs", r#"{"id":"a","first":["not_yet"],"millis":100}"#);
    let report = work_off(&bed, &book, &[]).await;
    assert_eq!((report.done, book.runs("a").len()), (1, 2));
    assert!(bed.dead("jobs").is_empty());
}

#[tokio::test(start_paused = true)]
async fn t6_a_last_receive_that_meets_a_throttled_store_waits_in_place() {
    let (bed, book) = (TestBed::new(&[]), Book::new());
    bed.add("jobs", 1);
    bed.send("jobs", r#"{"id":"a"}"#);
    for _ in 0..4 {
        bed.guard_faults.next("claim", Fault::Fail(Failure::Throttled));
    }
    let report = work_off(&bed, &book, &[]).await;
    assert_eq!((report.done, report.left), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn t6_a_last_receive_whose_run_is_interrupted_is_run_again_in_place() {
    let (bed, book) = (TestBed::new(&[]), Book::new());
    bed.add("jobs", 1);
    bed.send("jobs", r#"{"id":"a","millis":40000}"#);
    let begun = Instant::now();
    bed.guard_faults.decide_with(move |call| {
        let throttled = call.operation == "renew" && begun.elapsed() < Duration::from_secs(40);
        throttled.then_some(Fault::Fail(Failure::Throttled))
    });
    let report = work_off(&bed, &book, &[]).await;
    assert_eq!(book.runs("a")[0].cancelled, Some(leasehold::CancelCause::LeaseLost));
    assert_eq!((report.done, book.runs("a").len(), bed.dead("jobs").len()), (1, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn g6_what_is_claimed_too_late_to_be_run_is_not_received_again_at_once() {
    let (bed, book) = (TestBed::new(&[]), Book::new());
    bed.add("jobs", 100);
    bed.send("jobs", r#"{"id":"a"}"#);
    let begun = Instant::now();
    bed.guard_faults.decide_with(move |call| {
        let slow = ["claim", "take_over"].contains(&call.operation) && begun.elapsed() < Duration::from_secs(400);
        slow.then_some(Fault::DelayReply(Duration::from_secs(4)))
    });
    let report = work_off(&bed, &book, &[("LEASEHOLD_VISIBILITY_TIMEOUT", "5s")]).await;
    assert_eq!((report.done, bed.dead("jobs").len()), (1, 0));
    let receives = bed.queue("jobs").calls()["receive"].entries;
    assert!(receives <= 38, "{receives} in 400 s");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_not_there_burns_no_attempts_and_pauses_the_queue() {
    let (bed, book) = bed();
    for id in ["a", "b", "c"] {
        bed.send("jobs", format!(r#"{{"id":"{id}","first":["unavailable","unavailable","unavailable"]}}"#));
    }
    let vars = [("LEASEHOLD_MAX_ATTEMPTS", "1"), ("LEASEHOLD_CONCURRENCY", "1")];
    let report = work_off(&bed, &book, &vars).await;
    assert_eq!((report.done, report.dead), (3, 0));
    let runs = ["a", "b", "c"].map(|id| book.runs(id));
    assert!(runs.iter().all(|runs| runs.len() == 4 && runs.iter().all(|run| run.attempt == 1)), "{runs:?}");
    let mut failing: Vec<_> = runs.iter().flat_map(|runs| &runs[..3]).map(|run| run.began).collect();
    failing.sort_unstable();
    assert!(failing.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_millis(500)), "{failing:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_handler_is_never_there_while_others_succeed_has_failed() {
    let (bed, book) = bed();
    let always = ["\"unavailable\""; 60].join(",");
    bed.send("jobs", format!(r#"{{"id":"a","first":[{always}]}}"#));
    let feeding = {
        let bed = bed.clone();
        async move {
            for n in 0..200 {
                bed.send("jobs", format!(r#"{{"id":"other-{n}"}}"#));
                sleep(Duration::from_secs(2)).await;
            }
        }
    };
    let vars = [("LEASEHOLD_MAX_ATTEMPTS", "1"), ("LEASEHOLD_BACKOFF", "1s..5s")];
    let report = worker(&bed, &book, &vars).run(Shutdown::when(feeding)).await.unwrap();
    assert_eq!(report.dead, 1);
    assert!(report.done > 150, "{report:?}");
    assert_eq!(codes(&bed), ["unavailable"]);
}

#[tokio::test(start_paused = true)]
async fn t1_denied_deletes_stop_the_intake_and_heal() {
    let (bed, book) = bed();
    let faults = bed.queue_faults("jobs");
    faults.always("delete", Fault::Fail(Failure::Denied));
    for n in 0..50 {
        bed.send("jobs", format!(r#"{{"id":"{n}"}}"#));
    }
    let healing = {
        let faults = faults.clone();
        async move {
            sleep(Duration::from_secs(600)).await;
            let received = faults.calls()["receive"];
            faults.clear();
            received
        }
    };
    let vars = [("LEASEHOLD_CONCURRENCY", "5")];
    let (report, received) = tokio::join!(work_off(&bed, &book, &vars), healing);
    assert_eq!(report.done + report.suppressed, 50);
    assert!(received < 60, "{received} receives in ten minutes although nothing could be deleted");
    assert!((0..50).all(|n| book.runs(&n.to_string()).len() == 1));
}

#[tokio::test(start_paused = true)]
async fn t1_a_delete_with_a_handle_that_is_lost_ends_nothing_and_is_not_sent_again() {
    let (bed, book) = bed();
    for n in 0..30 {
        bed.send("jobs", format!(r#"{{"id":"{n}"}}"#));
    }
    let faults = bed.queue_faults("jobs");
    faults.decide_with(|call| {
        let is_lost = call.operation == "delete" && call.number % 3 == 1 && call.number <= 30;
        is_lost.then_some(Fault::Fail(Failure::HandleLost))
    });
    let report = work_off(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "5")]).await;
    assert_eq!((report.done, report.suppressed), (30, 10));
    let mut handles: Vec<_> = faults.log().into_iter().filter(|call| call.operation == "delete").collect();
    handles.sort_by(|a, b| a.subject.cmp(&b.subject));
    assert!(handles.windows(2).all(|pair| pair[0].subject != pair[1].subject), "the same handle again: {handles:?}");
}

#[tokio::test(start_paused = true)]
async fn t2_what_is_tried_again_is_the_same_message_and_nothing_is_sent() {
    let (bed, book) = bed();
    let id = bed.send("jobs", r#"{"id":"a","first":["fail","not_yet","fail"]}"#);
    let report = work_off(&bed, &book, &[]).await;
    assert_eq!((report.done, book.runs("a").len()), (1, 4));
    assert!(!bed.queue_faults("jobs").calls().contains_key("send"));
    let ids: Vec<_> = bed.guard.history().into_iter().map(|(_, record)| record.source.message_id).collect();
    assert!(ids.iter().all(|seen| Some(seen) == id.as_ref()), "{ids:?}");
}

#[tokio::test(start_paused = true)]
async fn t4_a_mebibyte_that_does_not_decode_is_dead_lettered_as_it_came() {
    let (bed, book) = bed();
    let body = "x".repeat(1024 * 1024);
    bed.send("jobs", &*body);
    bed.send("jobs", r#"{"id":"good"}"#);
    let report = work_off(&bed, &book, &[]).await;
    assert_eq!((report.dead, report.done, bed.guard.records().len()), (1, 1, 1));
    assert!(bed.dead("jobs") == [(body, None)], "there is no room for the reason");
}
