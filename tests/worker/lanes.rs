//! Lanes: a FIFO group in hand is one unit, in order and in one slot (what rule T5 builds on).

use std::time::Duration;

use leasehold::{
    Shutdown, StopReport,
    guard::{Control, ControlKey, Guard, Paused},
    message::{Attribute, DEAD_LETTER_ATTRIBUTE},
    queue::{DeduplicationScope, Outgoing},
    testing::{Failure, Fault, MemoryQueueSettings, TestBed},
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

/// Says what an operator says; it is heard some seconds later.
async fn pause(bed: &TestBed, holds: bool) {
    let paused = holds.then(|| Paused { at: bed.broker.clock().wall(), by: "a test".to_owned(), why: None });
    let control = Control { paused, resumed_at: None };
    bed.guard.set_control(&ControlKey::new(None, QUEUE), &control).await.unwrap();
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

#[tokio::test(start_paused = true)]
async fn t5_what_stands_behind_a_head_that_backs_off_loses_no_receive_to_it() {
    for guard in ["claim", "none"] {
        let (bed, book) = bed();
        send(&bed, "a", "a1", r#","first":["fail","not_yet","unavailable","fail"]"#);
        send(&bed, "a", "a2", "");
        let report = work_off(&bed, &book, &[("LEASEHOLD_GUARD", guard)], bed.until_idle()).await;
        assert_eq!((report.done, report.failed), (2, 2), "GUARD={guard}");
        assert_eq!(bed.queue(QUEUE).calls()["receive"].entries, 2, "GUARD={guard}");
        assert_eq!(book.runs("a1").len(), 5, "GUARD={guard}");
        assert!(book.runs("a2")[0].began >= book.runs("a1")[4].ended.unwrap(), "GUARD={guard}");
    }
}

#[tokio::test(start_paused = true)]
async fn t5_a_group_that_rests_leaves_its_slot_to_others() {
    let (bed, book) = bed();
    send(&bed, "a", "a1", r#","first":["fail"]"#);
    send(&bed, "a", "a2", "");
    send(&bed, "b", "b1", "");
    let vars = [("LEASEHOLD_CONCURRENCY", "1"), ("LEASEHOLD_BACKOFF", "60s")];
    assert_eq!(work_off(&bed, &book, &vars, bed.until_idle()).await.done, 3);
    assert!(book.began("b1")[0] < 5, "{:?}", book.began("b1"));
    assert!(book.began("a1")[1] >= 30, "{:?}", book.began("a1"));
}

#[tokio::test(start_paused = true)]
async fn t5_groups_that_find_no_place_to_rest_are_given_back_in_order() {
    let (bed, book) = bed();
    let groups = (b'a'..b'm').map(|group| char::from(group).to_string());
    for group in groups.clone() {
        send(&bed, &group, &format!("{group}1"), r#","first":["fail","fail"]"#);
        send(&bed, &group, &format!("{group}2"), "");
    }
    let run = work_off(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "4")], bed.until_idle());
    let look = async {
        sleep(Duration::from_secs(4)).await;
        (bed.queue(QUEUE).in_flight(), bed.queue(QUEUE).visible())
    };
    let (report, (in_flight, visible)) = tokio::join!(run, look);
    assert_eq!(report.done, 24);
    // Four groups rest with both of theirs; of the others the head is delayed, and hides what was given back.
    assert_eq!((in_flight, visible), (12 + 4, 8));
    for group in groups {
        let (head, next) = (book.runs(&format!("{group}1")), book.runs(&format!("{group}2")));
        assert_eq!((head.len(), next.len()), (3, 1));
        assert!(next[0].began >= head[2].ended.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn t5_a_group_keeps_its_place_to_rest_while_its_queue_is_paused() {
    let (bed, book) = bed();
    let pauses = async {
        for (group, rest) in [("a", ""), ("b", ""), ("c", r#","millis":30000"#)] {
            send(&bed, group, &format!("{group}1"), &format!(r#"{rest},"first":["fail"]"#));
            send(&bed, group, &format!("{group}2"), "");
            // By then a poll has both slots, and brings both.
            sleep(Duration::from_secs(3)).await;
        }
        pause(&bed, true).await;
        sleep(Duration::from_secs(29)).await;
        let look = (bed.queue(QUEUE).in_flight(), bed.queue(QUEUE).visible());
        pause(&bed, false).await;
        look
    };
    let vars = [("LEASEHOLD_CONCURRENCY", "2"), ("LEASEHOLD_WAIT_TIME", "1s"), ("LEASEHOLD_BACKOFF", "24s..60s")];
    let run = work_off(&bed, &book, &vars, Shutdown::when(sleep(Duration::from_secs(120))));
    let (report, look) = tokio::join!(run, pauses);
    assert_eq!(report.done, 6);
    // Two groups rest, though their wait was over when the third failed; of that the head is delayed.
    assert_eq!(look, (4 + 1, 1));
}

#[tokio::test(start_paused = true)]
async fn t5_without_a_guard_attempts_in_place_are_counted() {
    let (bed, book) = bed();
    send(&bed, "a", "a1", r#","first":["fail","fail","fail","fail"]"#);
    send(&bed, "a", "a2", "");
    let vars = [("LEASEHOLD_GUARD", "none"), ("LEASEHOLD_MAX_ATTEMPTS", "3")];
    let report = work_off(&bed, &book, &vars, bed.until_idle()).await;
    assert_eq!((report.dead, report.done), (1, 1));
    assert_eq!(book.runs("a1").iter().map(|run| run.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(bed.dead(QUEUE)[0].1.as_ref().map(|note| note.code.clone()).as_deref(), Some("failing"));
}

#[tokio::test(start_paused = true)]
async fn t5_a_drain_gives_a_resting_group_back_in_order() {
    for guard in ["claim", "none"] {
        let (bed, book) = bed();
        send(&bed, "a", "a1", r#","first":["fail"]"#);
        send(&bed, "a", "a2", "");
        let vars = [("LEASEHOLD_GUARD", guard), ("LEASEHOLD_BACKOFF", "60s")];
        let drained = Shutdown::when(sleep(Duration::from_secs(5)));
        let report = work_off(&bed, &book, &vars, drained).await;
        assert_eq!((report.failed, report.released), (1, 1), "the back-off goes on in the queue");
        assert_eq!((bed.queue(QUEUE).in_flight(), bed.queue(QUEUE).visible()), (1, 1));
        assert_eq!(work_off(&bed, &book, &vars, bed.until_idle()).await.done, 2);
        assert!(book.began("a1")[1] >= 30, "GUARD={guard}: {:?}", book.began("a1"));
        assert!(book.runs("a2")[0].began >= book.runs("a1")[1].ended.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn t5_a_head_whose_key_another_group_runs_waits_with_those_behind_it() {
    let (bed, book) = bed();
    send(&bed, "a", "same", r#","millis":25000"#);
    let second = Outgoing {
        body: r#"{"id":"same","millis":25000}"#.to_owned(),
        group: Some("b".to_owned()),
        deduplication_id: Some("another".to_owned()),
        ..Outgoing::default()
    };
    bed.queue(QUEUE).put(second);
    send(&bed, "b", "b2", "");
    let report = work_off(&bed, &book, &[], bed.until_idle()).await;
    assert_eq!((report.done, report.suppressed), (2, 1));
    assert_eq!(bed.queue(QUEUE).calls()["receive"].entries, 3);
    assert!(book.runs("b2")[0].began >= book.runs("same")[0].ended.unwrap());
}

#[tokio::test(start_paused = true)]
async fn t5_without_a_record_nothing_runs_behind_a_head_whose_delete_is_not_known_to_have_landed() {
    for (guard, heads) in [("claim", 1), ("none", 2)] {
        let (bed, book) = bed();
        send(&bed, "a", "a1", "");
        send(&bed, "a", "a2", "");
        bed.queue_faults(QUEUE).next("delete", Fault::Fail(Failure::Unavailable));
        work_off(&bed, &book, &[("LEASEHOLD_GUARD", guard)], bed.until_idle()).await;
        assert_eq!((book.runs("a1").len(), book.runs("a2").len()), (heads, 1), "GUARD={guard}");
        let last = book.runs("a1").last().unwrap().ended.unwrap();
        assert!(book.runs("a2")[0].began >= last, "GUARD={guard}: no order of effects but the sender's");
    }
}

#[tokio::test(start_paused = true)]
async fn d1_what_stands_behind_a_head_whose_delete_is_not_known_to_have_landed_loses_no_receive_to_a_drain() {
    let (bed, book) = bed();
    send(&bed, "a", "a1", r#","millis":5000"#);
    send(&bed, "a", "a2", "");
    bed.queue_faults(QUEUE).next("delete", Fault::ApplyThenFail(Failure::NoAnswer));
    let drained = Shutdown::when(sleep(Duration::from_secs(1)));
    let report = work_off(&bed, &book, &[("LEASEHOLD_GUARD", "none")], drained).await;
    assert_eq!((report.done, report.released), (1, 1));
    assert_eq!((bed.queue(QUEUE).visible(), bed.queue(QUEUE).calls()["receive"].entries), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn t6_a_drain_does_not_let_go_of_a_group_on_its_last_receive() {
    for guard in ["claim", "none"] {
        let (bed, book) = (TestBed::new(&[]), Book::new());
        bed.add(QUEUE, 1);
        (1..=4).for_each(|n| send(&bed, "a", &format!("a{n}"), r#","millis":3000"#));
        let drained = Shutdown::when(sleep(Duration::from_secs(1)));
        let report = work_off(&bed, &book, &[("LEASEHOLD_GUARD", guard)], drained).await;
        assert_eq!((report.done, report.left), (4, 0), "GUARD={guard}");
        assert!(bed.dead(QUEUE).is_empty() && bed.queue(QUEUE).is_empty(), "GUARD={guard}");
    }
}

#[tokio::test(start_paused = true)]
async fn r4_a_poll_of_a_fifo_queue_that_was_not_answered_is_asked_for_the_same_again() {
    let (bed, book) = bed();
    (1..=3).for_each(|n| send(&bed, "a", &format!("a{n}"), ""));
    bed.queue_faults(QUEUE).next("receive", Fault::ApplyThenFail(Failure::NoAnswer));
    assert_eq!(work_off(&bed, &book, &[], bed.until_idle()).await.done, 3);
    assert!(book.began("a1")[0] < 5, "not after a whole timeout: {:?}", book.began("a1"));
    assert_eq!(bed.queue(QUEUE).calls()["receive"].entries, 6, "the three, and the same three again");
}

#[tokio::test(start_paused = true)]
async fn r4_polls_of_a_fifo_queue_that_are_not_answered_back_off_and_heal() {
    let (bed, book) = bed();
    (1..=3).for_each(|n| send(&bed, "a", &format!("a{n}"), ""));
    bed.queue_faults(QUEUE).always("receive", Fault::LoseReply);
    let heals = async {
        sleep(Duration::from_secs(600)).await;
        let polls = bed.queue(QUEUE).calls()["receive"].calls;
        bed.queue_faults(QUEUE).clear();
        polls
    };
    let (report, polls) = tokio::join!(work_off(&bed, &book, &[], bed.until_idle()), heals);
    assert_eq!(report.done, 3);
    assert!(polls <= 100, "{polls} polls in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn r4_a_poll_that_was_not_answered_is_not_asked_for_again_while_the_queue_is_paused() {
    let (bed, book) = bed();
    send(&bed, "a", "a1", "");
    bed.queue_faults(QUEUE).always("receive", Fault::Fail(Failure::NoAnswer));
    let polls = || bed.queue_faults(QUEUE).calls()["receive"];
    let pauses = async {
        sleep(Duration::from_secs(10)).await;
        pause(&bed, true).await;
        sleep(Duration::from_secs(60)).await;
        let before = polls();
        sleep(Duration::from_secs(120)).await;
        assert_eq!(polls(), before);
        bed.queue_faults(QUEUE).clear();
        pause(&bed, false).await;
    };
    let vars = [("LEASEHOLD_VISIBILITY_TIMEOUT", "1h")];
    let (report, ()) = tokio::join!(work_off(&bed, &book, &vars, bed.until_idle()), pauses);
    assert_eq!(report.done, 1);
}

#[tokio::test(start_paused = true)]
async fn g10_ids_of_groups_are_kept_apart_on_a_high_throughput_queue_and_survive_our_dead_letters() {
    let (bed, book) = bed();
    let high_throughput = MemoryQueueSettings {
        deduplication_scope: DeduplicationScope::MessageGroup,
        redrive: Some((TestBed::dead_letter_name(QUEUE), 100)),
        ..MemoryQueueSettings::default()
    };
    bed.broker.create(QUEUE, high_throughput);
    for group in ["a", "b"] {
        let body = format!(r#"{{"id":"{group}","first":["fail_for_good"]}}"#);
        let (group, deduplication_id) = (Some(group.to_owned()), Some("1".to_owned()));
        bed.queue(QUEUE).put(Outgoing { body, group, deduplication_id, ..Outgoing::default() });
    }
    let vars = [("LEASEHOLD_KEY", "group-id,dedup-id")];
    assert_eq!(work_off(&bed, &book, &vars, bed.until_idle()).await.dead, 2);
    let dead = bed.queue(&TestBed::dead_letter_name(QUEUE)).messages();
    let keys: Vec<_> = dead.iter().filter_map(|dead| dead.dead_letter.as_ref()?.pk.clone()).collect();
    assert_eq!(keys, ["jobs.fifo#a#1", "jobs.fifo#b#1"]);
    for dead in &dead {
        // As SQS puts it back: with all of its attributes, and with the copy's own deduplication id.
        let mut redriven = Outgoing { deduplication_id: dead.deduplication_id.clone(), ..Outgoing::from(dead) };
        let note = serde_json::to_string(dead.dead_letter.as_ref().unwrap()).unwrap();
        redriven.attributes.insert(DEAD_LETTER_ATTRIBUTE.to_owned(), Attribute::text(note));
        bed.queue(QUEUE).put(redriven);
    }
    assert_eq!(work_off(&bed, &book, &vars, bed.until_idle()).await.done, 2);
    assert_eq!(bed.guard.records().len(), 2, "no record under another key");
}

#[tokio::test(start_paused = true)]
async fn t1_a_delete_that_comes_too_late_for_a_fifo_queue_is_refused_and_the_next_delivery_is_deleted() {
    let (bed, book) = bed();
    send(&bed, "a", "a1", r#","millis":60000"#);
    bed.queue_faults(QUEUE).always("change_visibility", Fault::Fail(Failure::HandleLost));
    let report = work_off(&bed, &book, &[], bed.until_idle()).await;
    assert_eq!((report.done, report.suppressed, book.runs("a1").len()), (1, 1, 1));
    assert_eq!(bed.queue_faults(QUEUE).calls()["delete"], 2);
}
