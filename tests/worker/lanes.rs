//! Lanes: a FIFO group in hand is one unit, in order and in one slot (what rule T5 builds on).

use std::time::Duration;

use leasehold::{
    Shutdown, StopReport,
    queue::Outgoing,
    testing::{Fault, TestBed},
};
use tokio::time::sleep;

use crate::bench::{Book, worker};

const QUEUE: &str = "jobs.fifo";

fn bed() -> (TestBed, Book) {
    (TestBed::new(&[QUEUE]), Book::new())
}

fn send(bed: &TestBed, group: &str, id: &str, rest: &str) {
    bed.queue(QUEUE).put(Outgoing {
        body: format!(r#"{{"id":"{id}"{rest}}}"#),
        group: Some(group.to_owned()),
        deduplication_id: Some(id.to_owned()),
        ..Outgoing::default()
    });
}

async fn work_off(bed: &TestBed, book: &Book, vars: &[(&str, &str)], shutdown: Shutdown) -> StopReport {
    let mut all = vec![
        ("LEASEHOLD_QUEUES", QUEUE),
        ("LEASEHOLD_KEY", "/id"),
        ("LEASEHOLD_VISIBILITY_TIMEOUT", "30s"),
        ("LEASEHOLD_BACKOFF", "10s..60s"),
    ];
    all.extend(vars);
    bed.worker(&all).queue(QUEUE, book.clone()).run(shutdown).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn t5_messages_of_a_group_run_one_after_the_other_and_groups_side_by_side() {
    let (bed, book) = bed();
    for id in ["a1", "a2", "a3"] {
        send(&bed, "a", id, r#","millis":5000"#);
        send(&bed, "b", &id.replace('a', "b"), r#","millis":5000"#);
    }
    assert_eq!(work_off(&bed, &book, &[], bed.until_idle()).await.done, 6);
    for group in ["a", "b"] {
        let began: Vec<_> = (1..=3).map(|n| book.began(&format!("{group}{n}"))[0]).collect();
        assert_eq!(began, [0, 5, 10], "group {group}");
    }
}

#[tokio::test(start_paused = true)]
async fn t5_a_group_in_hand_takes_one_slot() {
    let (bed, book) = bed();
    for group in ["a", "b", "c"] {
        for n in 1..=2 {
            send(&bed, group, &format!("{group}{n}"), r#","millis":10000"#);
        }
    }
    assert_eq!(work_off(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "2")], bed.until_idle()).await.done, 6);
    let mut firsts: Vec<_> = ["a1", "b1", "c1"].iter().map(|id| book.began(id)[0]).collect();
    firsts.sort_unstable();
    assert_eq!(firsts[..2], [0, 0]);
    assert!(firsts[2] >= 10, "{firsts:?}");
}

#[tokio::test(start_paused = true)]
async fn t5_what_stands_behind_a_long_head_is_kept_by_its_beat() {
    let (bed, book) = bed();
    send(&bed, "a", "a1", r#","millis":200000"#);
    send(&bed, "a", "a2", "");
    assert_eq!(work_off(&bed, &book, &[], bed.until_idle()).await.done, 2);
    assert_eq!(bed.queue(QUEUE).calls()["receive"].entries, 2);
}

#[tokio::test(start_paused = true)]
async fn t5_nothing_runs_ahead_of_a_head_that_failed() {
    let (bed, book) = bed();
    send(&bed, "a", "a1", r#","first":["fail","fail"]"#);
    send(&bed, "a", "a2", "");
    assert_eq!(work_off(&bed, &book, &[], bed.until_idle()).await.done, 2);
    let last = book.runs("a1").last().unwrap().ended.unwrap();
    assert!(book.runs("a2")[0].began >= last, "{:?}", book.runs("a2"));
}

#[tokio::test(start_paused = true)]
async fn t5_a_head_that_is_dead_lettered_frees_its_group() {
    let (bed, book) = bed();
    send(&bed, "a", "a1", r#","first":["fail_for_good"]"#);
    send(&bed, "a", "a2", "");
    let report = work_off(&bed, &book, &[], bed.until_idle()).await;
    assert_eq!((report.dead, report.done), (1, 1));
    assert_eq!(book.began("a2"), [0]);
    let dead = bed.queue(&TestBed::dead_letter_name(QUEUE)).messages().remove(0);
    assert_eq!((dead.group.as_deref(), dead.deduplication_id), (Some("a"), dead.dead_letter.map(|n| n.failure_id)));
}

#[tokio::test(start_paused = true)]
async fn t5_a_drain_keeps_the_order_of_a_group() {
    let (bed, book) = bed();
    send(&bed, "a", "a1", r#","millis":200000"#);
    send(&bed, "a", "a2", "");
    let drained = Shutdown::when(sleep(Duration::from_secs(1)));
    assert_eq!(work_off(&bed, &book, &[], drained).await.released, 2);
    assert!(book.runs("a2").is_empty());
    assert_eq!(work_off(&bed, &book, &[], bed.until_idle()).await.done, 2);
    assert!(book.runs("a2")[0].began >= book.runs("a1").last().unwrap().ended.unwrap());
}

#[tokio::test(start_paused = true)]
async fn groups_on_a_standard_queue_are_not_mistaken_for_fifo() {
    let (bed, book) = (TestBed::new(&["jobs"]), Book::new());
    for id in ["a1", "a2", "a3"] {
        bed.queue("jobs").put(Outgoing {
            body: format!(r#"{{"id":"{id}","millis":5000}}"#),
            group: Some("tenant".to_owned()),
            ..Outgoing::default()
        });
    }
    worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert!(["a1", "a2", "a3"].iter().all(|id| book.began(id) == [0]));
}

#[tokio::test(start_paused = true)]
async fn t5_what_stands_behind_is_kept_also_while_its_head_is_settled() {
    let (bed, book) = bed();
    send(&bed, "a", "a1", r#","millis":17000"#);
    send(&bed, "a", "a2", "");
    bed.queue_faults(QUEUE).next("delete", Fault::DelayReply(Duration::from_secs(20)));
    assert_eq!(work_off(&bed, &book, &[], bed.until_idle()).await.done, 2);
    assert_eq!(bed.queue(QUEUE).calls()["receive"].entries, 2);
}
