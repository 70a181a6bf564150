//! Stopping: what was begun ends or is given back, in time (rules D1 to D3).

use std::time::Duration;

use leasehold::{
    CancelCause, Shutdown,
    guard::{Pk, Status},
    testing::{Fault, TestBed},
};
use tokio::time::{Instant, sleep};

use crate::bench::{Book, after, worker};

fn bed() -> (TestBed, Book) {
    (TestBed::new(&["jobs"]), Book::new())
}

fn status(bed: &TestBed, id: &str) -> Status {
    bed.guard.record(&Pk(format!("jobs#{id}"))).unwrap().status
}

#[tokio::test(start_paused = true)]
async fn d1_a_handler_that_ends_in_time_is_waited_for_and_its_message_deleted() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":15000}"#);
    let start = Instant::now();
    let report = worker(&bed, &book, &[]).run(after(1)).await.unwrap();
    assert_eq!((report.done, report.released), (1, 0));
    assert!(start.elapsed() < Duration::from_secs(16));
    assert!(bed.queue("jobs").is_empty());
}

#[tokio::test(start_paused = true)]
async fn d1_no_receive_is_sent_after_the_signal_and_what_parked_polls_bring_is_made_visible() {
    let (bed, book) = bed();
    let queue = bed.queue("jobs");
    let late = {
        let bed = bed.clone();
        async move {
            sleep(Duration::from_millis(5500)).await;
            let sent = bed.queue_faults("jobs").calls()["receive"];
            bed.send("jobs", r#"{"id":"a"}"#);
            sent
        }
    };
    let (report, sent) = tokio::join!(worker(&bed, &book, &[]).run(after(5)), late);
    assert_eq!(report.unwrap().released, 1);
    assert_eq!(bed.queue_faults("jobs").calls()["receive"], sent);
    assert!(book.runs("a").is_empty());
    assert_eq!(queue.visible(), 1);
}

#[tokio::test(start_paused = true)]
async fn d1_what_does_not_end_in_time_is_cancelled_and_given_back_record_first() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":200000}"#);
    let start = Instant::now();
    let report = worker(&bed, &book, &[]).run(after(1)).await.unwrap();
    assert_eq!((report.released, status(&bed, "a")), (1, Status::Released));
    assert_eq!(book.runs("a")[0].cancelled, Some(CancelCause::Shutdown));
    assert!(start.elapsed() < Duration::from_secs(26), "{:?}", start.elapsed());
    assert_eq!(bed.queue("jobs").visible(), 1);
    let record = bed.guard.record(&Pk("jobs#a".into())).unwrap();
    assert_eq!(
        (record.failures, record.takeovers, record.not_before),
        (0, 0, None),
        "an interruption counts for nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn d1_a_second_signal_does_not_wait() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":200000}"#);
    let shutdown = Shutdown::new();
    let signals = async {
        sleep(Duration::from_secs(1)).await;
        shutdown.drain();
        sleep(Duration::from_secs(1)).await;
        shutdown.now();
    };
    let start = Instant::now();
    let (report, ()) = tokio::join!(worker(&bed, &book, &[]).run(shutdown.clone()), signals);
    assert_eq!(report.unwrap().released, 1);
    assert!(start.elapsed() < Duration::from_secs(3), "neither for handlers nor for polls: {:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn d3_the_worker_is_gone_in_time_even_if_nothing_answers_any_more_and_calls_nobody_afterwards() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":3000}"#);
    for operation in ["confirm", "renew", "release"] {
        bed.guard_faults.always(operation, Fault::Hang);
    }
    bed.queue_faults("jobs").always("receive", Fault::DelayReply(Duration::from_secs(100)));
    let start = Instant::now();
    worker(&bed, &book, &[]).run(after(2)).await.unwrap();
    assert!(start.elapsed() <= Duration::from_secs(27), "{:?}", start.elapsed());
    let calls = (bed.guard_faults.calls(), bed.queue_faults("jobs").calls());
    sleep(Duration::from_secs(3600)).await;
    assert_eq!((bed.guard_faults.calls(), bed.queue_faults("jobs").calls()), calls);
}

#[tokio::test(start_paused = true)]
async fn d3_what_could_not_be_settled_in_time_is_in_the_report() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":3000}"#);
    bed.send("jobs", r#"{"id":"b","millis":3000}"#);
    bed.guard_faults.always("confirm", Fault::Hang);
    bed.queue_faults("jobs").next("receive", Fault::Delay(Duration::ZERO));
    bed.queue_faults("jobs").always("receive", Fault::DelayReply(Duration::from_secs(100)));
    let start = Instant::now();
    let report = worker(&bed, &book, &[]).run(after(2)).await.unwrap();
    assert_eq!(report.left, 2, "{report:?}");
    assert!(start.elapsed() <= Duration::from_secs(27), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn d3_an_idle_worker_stops_well_inside_its_budget() {
    let (bed, book) = bed();
    let start = Instant::now();
    worker(&bed, &book, &[]).run(after(1)).await.unwrap();
    assert!(start.elapsed() <= Duration::from_secs(11), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn t6_at_a_drain_a_last_receive_is_not_given_back_to_the_dead_letter_queue() {
    let (bed, book) = (TestBed::new(&[]), Book::new());
    bed.add("jobs", 1);
    bed.send("jobs", r#"{"id":"a","millis":200000}"#);
    let report = worker(&bed, &book, &[]).run(after(1)).await.unwrap();
    assert_eq!((report.left, report.released), (1, 0));
    assert_eq!(bed.queue("jobs").visible(), 0, "it keeps what is left of its timeout");
}

#[tokio::test(start_paused = true)]
async fn l9_beats_run_on_through_the_drain() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":50000}"#);
    let vars = [("LEASEHOLD_DRAIN_TIMEOUT", "2m"), ("LEASEHOLD_VISIBILITY_TIMEOUT", "20s")];
    let report = worker(&bed, &book, &vars).run(after(1)).await.unwrap();
    assert_eq!((report.done, bed.queue("jobs").calls()["receive"].entries), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn d1_a_parked_poll_comes_back_before_the_drain_ends_however_long_its_wait_time() {
    let (bed, book) = bed();
    let vars = [("LEASEHOLD_WAIT_TIME", "20s"), ("LEASEHOLD_DRAIN_TIMEOUT", "9s")];
    let late = async {
        sleep(Duration::from_secs(6)).await;
        bed.send("jobs", r#"{"id":"a"}"#);
    };
    let start = Instant::now();
    let (report, ()) = tokio::join!(worker(&bed, &book, &vars).run(after(1)), late);
    report.unwrap();
    assert!(start.elapsed() < Duration::from_secs(7), "{:?}: the polls were cut off", start.elapsed());
    assert_eq!(bed.queue("jobs").visible(), 1);
}

#[tokio::test(start_paused = true)]
async fn d1_a_worker_that_is_stopped_as_it_starts_leaves_no_receive_behind() {
    let (bed, book) = bed();
    worker(&bed, &book, &[]).run(Shutdown::when(sleep(Duration::from_millis(50)))).await.unwrap();
    bed.send("jobs", r#"{"id":"a"}"#);
    sleep(Duration::from_secs(20)).await;
    assert_eq!((bed.queue("jobs").visible(), bed.queue_faults("jobs").calls()["receive"]), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn d3_a_drain_drops_nothing_between_effect_and_delete() {
    let slow = |time| [Fault::Delay(time), Fault::DelayReply(time)];
    for (guard, operation) in [("claim", "confirm"), ("claim", "delete"), ("none", "delete")] {
        for fault in slow(Duration::from_secs(4)) {
            let (bed, book) = bed();
            bed.send("jobs", r#"{"id":"a","millis":1000}"#);
            let faults = if operation == "delete" { bed.queue_faults("jobs") } else { bed.guard_faults.clone() };
            faults.next(operation, fault);
            let report = worker(&bed, &book, &[("LEASEHOLD_GUARD", guard)]).run(after(2)).await.unwrap();
            assert_eq!((report.done, report.left, faults.pending()), (1, 0, 0), "{guard}, {operation}, {fault:?}");
            assert!(bed.queue("jobs").is_empty(), "{guard}, {operation}, {fault:?}");
        }
    }
}
