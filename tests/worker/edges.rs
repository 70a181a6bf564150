//! The ends of what queues can be set to: the longest delays, the shortest retention and visibility timeouts, a single
//! receive, twelve hours (rules L1, L2, L3, L7, T2, T6).

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{
    HandlerError, JobContext, Raw, ResultExt, Shutdown, StopReport, handler,
    queue::Outgoing,
    testing::{MemoryQueueSettings, TestBed},
};
use tokio::time::{Instant, sleep};

use crate::bench::{Book, worker};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

/// The longest that SQS hides a message at first.
const LONGEST_DELAY: Duration = Duration::from_secs(15 * MINUTE);

/// The queue `jobs`, with these settings and a dead-letter queue.
fn bed(settings: MemoryQueueSettings) -> (TestBed, Book) {
    let bed = TestBed::new(&["jobs"]);
    let redrive = settings.redrive.or_else(|| Some((TestBed::dead_letter_name("jobs"), 100)));
    bed.broker.create("jobs", MemoryQueueSettings { redrive, ..settings });
    (bed, Book::new())
}

fn with_retention(retention: u64) -> MemoryQueueSettings {
    MemoryQueueSettings { retention: Duration::from_secs(retention), ..MemoryQueueSettings::default() }
}

fn after(secs: u64) -> Shutdown {
    Shutdown::when(sleep(Duration::from_secs(secs)))
}

fn receives(bed: &TestBed) -> (u64, u64) {
    let calls = bed.queue("jobs").calls()["receive"];
    (calls.calls, calls.entries)
}

#[tokio::test(start_paused = true)]
async fn r6_what_is_delayed_for_as_long_as_can_be_runs_then_and_costs_no_more_polls_than_an_idle_queue() {
    let queues_own = MemoryQueueSettings { delay: LONGEST_DELAY, ..MemoryQueueSettings::default() };
    for (settings, delay) in [(MemoryQueueSettings::default(), Some(LONGEST_DELAY)), (queues_own, None)] {
        let (bed, book) = bed(settings);
        bed.queue("jobs").put(Outgoing { body: r#"{"id":"a"}"#.into(), delay, ..Outgoing::default() });
        let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
        assert_eq!((report.done, book.began("a")), (1, vec![15 * MINUTE]));
        let (polls, received) = receives(&bed);
        assert!(received == 1 && polls <= 15 * MINUTE / 10 + 2, "{polls} polls in fifteen minutes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_the_retention_is_never_seen_and_harms_nothing() {
    let (bed, book) = bed(with_retention(10 * MINUTE));
    let delay = Some(LONGEST_DELAY);
    bed.queue("jobs").put(Outgoing { body: r#"{"id":"a"}"#.into(), delay, ..Outgoing::default() });
    bed.send("jobs", r#"{"id":"b"}"#);
    let report = worker(&bed, &book, &[]).run(after(20 * MINUTE)).await.unwrap();
    assert_eq!((report.done, report.dead, book.runs("a").len()), (1, 0, 0));
    assert!(bed.queue("jobs").is_empty());
}

#[tokio::test(start_paused = true)]
async fn g11_what_sqs_dropped_between_two_attempts_begins_anew_when_it_is_sent_again() {
    // The shortest that SQS takes, and waits that go beyond it.
    let (bed, book) = bed(with_retention(MINUTE));
    bed.send("jobs", r#"{"id":"a","first":["charge_then_fail"]}"#);
    let sent_again = async {
        sleep(Duration::from_secs(5 * MINUTE)).await;
        let dropped = bed.queue("jobs").is_empty();
        bed.send("jobs", r#"{"id":"a","first":["charge_then_fail"],"note":"mended"}"#);
        dropped
    };
    let vars = [("LEASEHOLD_BACKOFF", "2m..15m")];
    let run = worker(&bed, &book, &vars).run(after(10 * MINUTE));
    let (report, dropped) = tokio::join!(run, sent_again);
    assert!(dropped, "the first message is gone while it waits");
    assert_eq!((report.unwrap().done, bed.dead("jobs").len()), (1, 0));
    let attempts: Vec<_> = book.runs("a").iter().map(|run| run.attempt).collect();
    assert_eq!(attempts, [1, 1], "counts begin at zero");
    assert_eq!(book.charges().len(), 1, "finished steps are kept");
}

#[tokio::test(start_paused = true)]
async fn l3_a_queues_own_visibility_timeout_of_next_to_nothing_is_no_leases() {
    for own in [0, 1] {
        let own = Duration::from_secs(own);
        for ours in ["30s..2m", "30s"] {
            let (bed, book) = bed(MemoryQueueSettings { visibility: own, ..MemoryQueueSettings::default() });
            bed.send("jobs", r#"{"id":"a","millis":20000}"#);
            let vars = [("LEASEHOLD_VISIBILITY_TIMEOUT", ours)];
            let report = worker(&bed, &book, &vars).run(after(10 * MINUTE)).await.unwrap();
            let (polls, received) = receives(&bed);
            assert_eq!((report.done, received), (1, 1), "{ours}, and {own:?} of the queue");
            assert!(polls <= 63, "{polls} polls in ten minutes: {ours}, and {own:?} of the queue");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn l3_the_shortest_visibility_timeout_is_kept_by_beats_and_nothing_spins() {
    let (bed, book) = bed(MemoryQueueSettings { visibility: Duration::ZERO, ..MemoryQueueSettings::default() });
    bed.send("jobs", r#"{"id":"a","millis":20000}"#);
    let vars = [("LEASEHOLD_VISIBILITY_TIMEOUT", "1s")];
    let report = worker(&bed, &book, &vars).run(after(MINUTE)).await.unwrap();
    let (polls, received) = receives(&bed);
    assert_eq!((report.done, received, book.runs("a").len()), (1, 1, 1));
    let beats = bed.queue("jobs").calls()["change_visibility"].calls;
    assert!((20..=50).contains(&beats), "{beats} beats in twenty seconds");
    assert!(polls <= 120, "{polls} polls in a minute");
}

#[tokio::test(start_paused = true)]
async fn t6_a_single_receive_is_enough_for_success_and_for_a_reason() {
    for guard in ["claim", "none"] {
        let (bed, book) = (TestBed::new(&[]), Book::new());
        bed.add("jobs", 1);
        bed.send("jobs", r#"{"id":"good","millis":200000}"#);
        bed.send("jobs", r#"{"id":"bad","first":["fail"]}"#);
        bed.send("jobs", "malformed");
        let report = worker(&bed, &book, &[("LEASEHOLD_GUARD", guard)]).run(bed.until_idle()).await.unwrap();
        assert_eq!((report.done, report.dead), (1, 2), "{guard}");
        let mut codes: Vec<_> = bed.dead("jobs").into_iter().map(|(_, note)| note.unwrap().code).collect();
        codes.sort_unstable();
        assert_eq!(codes, ["failing", "malformed"], "{guard}");
        assert_eq!(receives(&bed).1, 3, "{guard}: none is received twice");
    }
}

#[tokio::test(start_paused = true)]
async fn t6_a_single_receive_that_finds_its_key_held_waits_in_place_and_is_suppressed() {
    let (bed, book) = (TestBed::new(&[]), Book::new());
    bed.add("jobs", 1);
    for _ in 0..3 {
        bed.send("jobs", r#"{"id":"a","millis":100000}"#);
    }
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.suppressed, report.dead), (1, 2, 0));
    assert_eq!((receives(&bed).1, bed.dead("jobs").len()), (3, 0));
}

/// Runs that take so long the first time, and fail then; the second fails for good at once. What `cx.attempt()` said.
async fn runs_of(first: Duration, guard: &str, backoff: &str, until: u64) -> (TestBed, StopReport, Vec<(u32, u64)>) {
    let bed = TestBed::new(&["jobs"]);
    bed.send("jobs", r#"{"id":"a"}"#);
    let (begun, runs) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let handler = handler({
        let runs = Arc::clone(&runs);
        move |_: &Raw, cx: &JobContext| {
            let mut runs = runs.lock().unwrap();
            runs.push((cx.attempt(), begun.elapsed().as_secs()));
            let (is_first, cancelled) = (runs.len() == 1, cx.cancelled().clone());
            async move {
                if is_first {
                    // What loses is only a wait.
                    tokio::select! {
                        biased;
                        cause = cancelled.wait() => Err(HandlerError::new(format!("{cause:?}"))),
                        () = sleep(first) => Err("it failed".into()),
                    }
                } else {
                    Err("never").permanent()
                }
            }
        }
    });
    let vars = [
        ("LEASEHOLD_QUEUES", "jobs"),
        ("LEASEHOLD_KEY", "/id"),
        ("LEASEHOLD_GUARD", guard),
        ("LEASEHOLD_HANDLER_TIMEOUT", "12h"),
        ("LEASEHOLD_VISIBILITY_TIMEOUT", "10m"),
        ("LEASEHOLD_WAIT_TIME", "20s"),
        ("LEASEHOLD_BACKOFF", backoff),
    ];
    let report = bed.worker(&vars).queue("jobs", handler).run(after(until)).await.unwrap();
    let runs = runs.lock().unwrap().clone();
    (bed, report, runs)
}

#[tokio::test(start_paused = true)]
async fn l2_without_a_guard_a_run_ends_with_its_delivery_at_twelve_hours_and_is_run_again() {
    let (bed, report, runs) = runs_of(Duration::MAX, "none", "1s..1s", 13 * HOUR).await;
    assert_eq!((report.dead, bed.dead("jobs").len(), runs.len()), (1, 1, 2));
    let (attempt, again) = runs[1];
    assert_eq!(attempt, 2, "deliveries are counted");
    assert!((12 * HOUR - 12 * MINUTE..=12 * HOUR + MINUTE).contains(&again), "{again}");
}

#[tokio::test(start_paused = true)]
async fn l7_a_failure_just_short_of_twelve_hours_comes_again_and_is_counted_once() {
    for guard in ["claim", "none"] {
        // It is to wait for longer than SQS can hide it then.
        let first = Duration::from_secs(12 * HOUR - 5 * MINUTE);
        let (bed, report, runs) = runs_of(first, guard, "1h..1h", 13 * HOUR + 10 * MINUTE).await;
        let attempts: Vec<_> = runs.iter().map(|(attempt, _)| *attempt).collect();
        assert_eq!(attempts, [1, 2], "{guard}");
        assert_eq!((report.dead, bed.dead("jobs").len()), (1, 1), "{guard}");
        assert_eq!(report.left, 0, "{guard}: no delay is refused for reaching past the cap");
        if guard == "claim" {
            assert!(runs[1].1 >= first.as_secs() + HOUR / 2, "the record keeps the wait: {runs:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn t2_a_back_off_of_twelve_hours_is_waited_for_although_sqs_hides_for_less() {
    for guard in ["claim", "none"] {
        let (bed, book) = bed(MemoryQueueSettings::default());
        bed.send("jobs", r#"{"id":"a","first":["fail"],"millis":60000}"#);
        let vars = [("LEASEHOLD_GUARD", guard), ("LEASEHOLD_BACKOFF", "12h..12h")];
        let report = worker(&bed, &book, &vars).run(after(12 * HOUR + 10 * MINUTE)).await.unwrap();
        assert_eq!(report.done, 1, "{guard}");
        let began = book.began("a");
        // The upper half of it is jitter.
        assert!(began.len() == 2 && (6 * HOUR..=12 * HOUR + 2 * MINUTE).contains(&began[1]), "{guard}: {began:?}");
        assert!(receives(&bed).1 <= 5, "{guard}: {:?}", receives(&bed));
        let changes = bed.queue("jobs").calls()["change_visibility"].calls;
        // Beats of two runs of a minute, and the wait.
        assert!(changes <= 10, "{guard}: {changes}");
    }
}
