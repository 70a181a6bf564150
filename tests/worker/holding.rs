//! What a worker holds and for how long when something stands still or fails: polls, slots of the process, starts of a
//! rate, and the brake (rules R4, R6, G8).

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold::{
    CancelCause, JobContext, Raw, ResultExt,
    guard::{Control, ControlKey, Guard, Paused},
    handler,
    testing::{Failure, Fault, TestBed},
};
use tokio::time::sleep;

use crate::bench::{Book, after, worker};

fn bed() -> (TestBed, Book) {
    (TestBed::new(&["jobs"]), Book::new())
}

fn send(bed: &TestBed, ids: Range<usize>, rest: &str) {
    for id in ids {
        bed.send("jobs", format!(r#"{{"id":"{id}"{rest}}}"#));
    }
}

/// How many receives are sent in ten minutes, from a time on.
async fn polls_in_ten_minutes(bed: &TestBed, from: u64) -> u64 {
    let faults = bed.queue_faults("jobs");
    sleep(Duration::from_secs(from)).await;
    let before = faults.calls()["receive"];
    sleep(Duration::from_secs(600)).await;
    faults.calls()["receive"] - before
}

#[tokio::test(start_paused = true)]
async fn r6_slow_answers_leave_no_more_polls_behind_than_before() {
    let (bed, book) = bed();
    send(&bed, 0..1000, r#","millis":1000"#);
    // Slower than an extra poll may be, and not than the constant one.
    bed.queue_faults("jobs").always("receive", Fault::DelayReply(Duration::from_secs(3)));
    let look = async {
        sleep(Duration::from_secs(300)).await;
        bed.queue_faults("jobs").clear();
        polls_in_ten_minutes(&bed, 60).await
    };
    let run = worker(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "100")]).run(after(1000));
    let (report, polls) = tokio::join!(run, look);
    assert_eq!(report.unwrap().done, 1000);
    assert!(polls <= 61, "{polls} polls in ten idle minutes");
}

#[tokio::test(start_paused = true)]
async fn r6_pollers_that_die_are_replaced_one_for_one() {
    let (bed, book) = bed();
    send(&bed, 0..1000, r#","millis":1000"#);
    let faults = bed.queue_faults("jobs");
    faults.always("receive", Fault::DelayReply(Duration::from_millis(200)));
    faults.decide_with(|call| {
        assert!(call.operation != "receive" || !(5..15).contains(&call.number), "an adapter that panics");
        None
    });
    let look = polls_in_ten_minutes(&bed, 200);
    let run = worker(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "100")]).run(after(900));
    let (report, polls) = tokio::join!(run, look);
    assert_eq!(report.unwrap().done, 1000);
    assert!((30..=61).contains(&polls), "{polls} polls in ten idle minutes");
}

#[tokio::test(start_paused = true)]
async fn r4_receives_that_are_never_answered_are_told() {
    let (bed, book) = bed();
    let faults = bed.queue_faults("jobs");
    faults.always("receive", Fault::Hang);
    let worker = worker(&bed, &book, &[]);
    let health = worker.health();
    let look = async {
        sleep(Duration::from_secs(60)).await;
        let sick = health.status();
        faults.clear();
        sleep(Duration::from_secs(40)).await;
        (sick, health.status())
    };
    let (_, (sick, healed)) = tokio::join!(worker.run(after(110)), look);
    assert!(sick.is_live() && !sick.is_ready(), "{sick:?}");
    assert!(sick.queues["jobs"].pauses[0].what.contains("receiving"), "{sick:?}");
    assert!(healed.is_ready(), "{healed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_single_poll_that_is_not_answered_says_nothing_of_those_that_were_answered_since() {
    let (bed, book) = bed();
    bed.queue_faults("jobs").next("receive", Fault::Hang);
    let worker = worker(&bed, &book, &[]);
    let health = worker.health();
    let look = async {
        sleep(Duration::from_millis(11_500)).await;
        // Answers the poll that took the other's place, which the adapter gives up at 15 s.
        bed.send("jobs", r#"{"id":"a"}"#);
        sleep(Duration::from_secs(5)).await;
        health.status()
    };
    let (_, status) = tokio::join!(worker.run(after(30)), look);
    assert!(status.is_ready(), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_brake_lets_a_trickle_through_also_where_there_were_many_polls() {
    let bed = TestBed::new(&["jobs"]);
    send(&bed, 0..8000, "");
    bed.queue_faults("jobs").always("receive", Fault::DelayReply(Duration::from_millis(200)));
    let bad_deploy = Arc::new(AtomicBool::new(false));
    let deployed = Arc::clone(&bad_deploy);
    let handler = handler(move |_: &Raw, _: &JobContext| {
        let bad = deployed.load(Ordering::Relaxed);
        async move { if bad { Err("a field is missing").permanent() } else { Ok(()) } }
    });
    let vars = [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_CONCURRENCY", "200")];
    let look = async {
        sleep(Duration::from_secs(4)).await;
        let polls = bed.queue_faults("jobs").calls()["receive"];
        bad_deploy.store(true, Ordering::Relaxed);
        // What was on the wire has come, and the first probe has not.
        sleep(Duration::from_millis(450)).await;
        let before = bed.dead("jobs").len();
        sleep(Duration::from_secs(10)).await;
        (polls, bed.dead("jobs").len() - before)
    };
    let (_, (polls, dead)) = tokio::join!(bed.worker(&vars).queue("jobs", handler).run(after(20)), look);
    assert!(polls > 100, "many at once: {polls} polls in four seconds");
    assert!((3..=15).contains(&dead), "{dead} in ten seconds, three at each probe");
}

#[tokio::test(start_paused = true)]
async fn a_trial_is_polled_for_without_breaks_while_nothing_comes() {
    let (bed, book) = bed();
    send(&bed, 0..20, r#","first":["fail_for_good"]"#);
    let worker = worker(&bed, &book, &[]);
    let health = worker.health();
    let look = async {
        let polls = polls_in_ten_minutes(&bed, 60).await;
        (polls, health.status().queues["jobs"].trials.len())
    };
    let (_, (polls, trials)) = tokio::join!(worker.run(after(700)), look);
    assert_eq!(trials, 1, "still on trial");
    assert!((59..=61).contains(&polls), "{polls} polls in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_in_its_queue_does_not_put_the_brake_on_each_time_it_comes_round() {
    for guard in ["claim", "none"] {
        let (bed, book) = bed();
        for id in 0..150 {
            let rest = if id % 3 == 0 { r#","first":["fail_for_good","fail_for_good","fail_for_good"]"# } else { "" };
            send(&bed, id..id + 1, rest);
        }
        let malformed = 15;
        (0..malformed).for_each(|_| drop(bed.send("jobs", "{")));
        (150..250).for_each(|id| send(&bed, id..id + 1, ""));
        let worker = worker(&bed, &book, &[("LEASEHOLD_DEAD_LETTER", "keep"), ("LEASEHOLD_GUARD", guard)]);
        let health = worker.health();
        let look = async {
            let mut braked = 0;
            for _ in 0..100 {
                sleep(Duration::from_secs(1)).await;
                let queue = &health.status().queues["jobs"];
                braked += queue.pauses.len() + queue.trials.len();
            }
            braked
        };
        let (_, braked) = tokio::join!(worker.run(after(110)), look);
        assert_eq!(braked, 0, "seconds with the brake on, GUARD={guard}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_keeps_no_slot_from_what_waits_in_place() {
    let (bed, book) = (TestBed::new(&[]), Book::new());
    bed.add("jobs", 1);
    send(&bed, 0..1, r#","first":["not_yet"]"#);
    send(&bed, 1..9, "");
    let vars = [("LEASEHOLD_RATE", "0.01"), ("LEASEHOLD_CONCURRENCY", "1")];
    worker(&bed, &book, &vars).run(after(60)).await.unwrap();
    assert!(matches!(book.began("0")[..], [0, 5..=11]), "{:?}", book.began("0"));
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_kept_after_a_poll_that_was_parked_for_long() {
    let (bed, book) = bed();
    let feed = async {
        sleep(Duration::from_millis(35_500)).await;
        send(&bed, 0..40, "");
    };
    tokio::join!(worker(&bed, &book, &[("LEASEHOLD_RATE", "5")]).run(after(60)), feed).0.unwrap();
    let began: Vec<_> = (0..40).map(|id| book.runs(&id.to_string())[0].began).collect();
    let in_first_second = began.iter().filter(|at| **at < Duration::from_millis(36_450)).count();
    assert!(in_first_second <= 10, "{in_first_second} began: a burst of five, and five a second");
    assert!(began.iter().max().unwrap().as_secs() <= 44, "{began:?}");
}

#[tokio::test(start_paused = true)]
async fn g8_what_waits_for_the_store_holds_no_place_of_the_process_that_another_queue_needs() {
    let (bed, book) = (TestBed::new(&["jobs", "other"]), Book::new());
    send(&bed, 0..40, "");
    bed.guard_faults.decide_with(|call| (call.operation != "facts").then_some(Fault::Hang));
    let other = async {
        sleep(Duration::from_secs(30)).await;
        for id in 0..40 {
            bed.send("other", format!(r#"{{"id":"other-{id}","millis":1000}}"#));
        }
        sleep(Duration::from_secs(60)).await;
        let done = book.completed().keys().filter(|id| id.starts_with("other")).count();
        bed.guard_faults.clear();
        sleep(Duration::from_secs(60)).await;
        (done, book.completed().len())
    };
    let vars = [
        ("LEASEHOLD_QUEUES", "jobs,other"),
        ("LEASEHOLD_TOTAL_CONCURRENCY", "4"),
        ("LEASEHOLD_OTHER_GUARD", "none"),
        ("LEASEHOLD_CONCURRENCY", "4"),
    ];
    let worker = worker(&bed, &book, &vars).queue("other", book.clone());
    let (_, (others, all)) = tokio::join!(worker.run(after(200)), other);
    assert_eq!((others, all), (40, 80));
}

#[tokio::test(start_paused = true)]
async fn a_read_from_before_a_pause_does_not_end_it_and_an_item_that_is_gone_does() {
    let (bed, book) = bed();
    let key = ControlKey::new(None, "jobs");
    let say = async |control| bed.guard.set_control(&key, &control).await.unwrap();
    let paused = || {
        let paused = Paused { at: bed.broker.clock().wall(), by: "ann@desk".into(), why: None };
        Control { paused: Some(paused), resumed_at: None }
    };
    let operator = async {
        sleep(Duration::from_secs(2)).await;
        say(paused()).await;
        // The worker looks every five seconds.
        sleep(Duration::from_secs(20)).await;
        send(&bed, 0..5, "");
        say(Control::default()).await;
        sleep(Duration::from_secs(5)).await;
        say(paused()).await;
        sleep(Duration::from_secs(20)).await;
        let meanwhile = book.completed().len();
        say(Control::default()).await;
        sleep(Duration::from_secs(11)).await;
        (meanwhile, book.completed().len())
    };
    let (_, completed) = tokio::join!(worker(&bed, &book, &[]).run(after(120)), operator);
    assert_eq!(completed, (0, 5));
}

#[tokio::test(start_paused = true)]
async fn r6_no_more_polls_wait_for_a_backlog_than_slots_can_use() {
    let (bed, book) = bed();
    send(&bed, 0..2000, "");
    bed.queue_faults("jobs").always("receive", Fault::DelayReply(Duration::from_millis(20)));
    let run = worker(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "20")]).run(after(60));
    assert_eq!(run.await.unwrap().done, 2000);
    let polls = bed.queue_faults("jobs").calls()["receive"];
    assert!(polls <= 200 + 15, "{polls} polls for 2000 messages and a minute");
}

#[tokio::test(start_paused = true)]
async fn r6_extra_polls_are_not_parked_on_a_queue_that_is_empty_again() {
    let (bed, book) = bed();
    send(&bed, 0..1000, "");
    bed.queue_faults("jobs").always("receive", Fault::DelayReply(Duration::from_millis(200)));
    let worker = worker(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "200")]);
    let health = worker.health();
    let look = async {
        while !bed.queue("jobs").is_empty() {
            sleep(Duration::from_millis(100)).await;
        }
        sleep(Duration::from_secs(2)).await;
        health.status().queues["jobs"].free_slots
    };
    let (_, free) = tokio::join!(worker.run(after(60)), look);
    assert_eq!(free, 190, "ten are parked with the one poll");
}

#[tokio::test(start_paused = true)]
async fn r4_a_wait_time_is_lowered_to_fit_a_short_visibility_timeout() {
    let (bed, book) = bed();
    let vars = [("LEASEHOLD_VISIBILITY_TIMEOUT", "10s"), ("LEASEHOLD_WAIT_TIME", "20s")];
    worker(&bed, &book, &vars).run(after(600)).await.unwrap();
    let polls = bed.queue("jobs").calls()["receive"].calls;
    assert!(polls >= 100, "{polls} polls in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn l3_a_run_that_was_interrupted_says_nothing_of_handler_time() {
    let (bed, book) = bed();
    send(&bed, 0..1, r#","first":["hang"]"#);
    bed.guard_faults.always("renew", Fault::Fail(Failure::Throttled));
    let worker = worker(&bed, &book, &[]);
    let health = worker.health();
    let look = async {
        sleep(Duration::from_secs(31)).await;
        (book.runs("0")[0].cancelled, health.status().queues["jobs"].handler_p99_ms)
    };
    let (_, seen) = tokio::join!(worker.run(after(32)), look);
    assert_eq!(seen, (Some(CancelCause::LeaseLost), None));
}

#[tokio::test(start_paused = true)]
async fn r6_large_bodies_are_not_fetched_by_many_polls_at_once() {
    for (bytes, rounds) in [(1024 * 1024 - 100, 5), (100, 3)] {
        let (bed, book) = bed();
        send(&bed, 0..50, &format!(r#","fill":"{}""#, "x".repeat(bytes)));
        bed.queue_faults("jobs").always("receive", Fault::DelayReply(Duration::from_secs(1)));
        let vars = [("LEASEHOLD_CONCURRENCY", "200"), ("LEASEHOLD_GUARD", "none")];
        worker(&bed, &book, &vars).run(after(10)).await.unwrap();
        let last = (0..50).filter_map(|id| book.began(&id.to_string()).first().copied()).max();
        assert_eq!((book.completed().len(), last), (50, Some(rounds)), "{bytes} bytes");
    }
}
