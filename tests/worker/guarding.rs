//! Who may run a key, and who may not (rules G1 to G12).

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{
    Handler, HandlerError, JobContext, Shutdown,
    clock::Millis,
    guard::{Claim, Owner, Pk, Record, Source, Status},
    handler,
    testing::{Failure, Fault, TestBed},
};
use tokio::time::sleep;

use crate::bench::{Book, worker};

/// A record of another worker's run of the job `id`, whose lease ends this long after now.
fn another_runs(bed: &TestBed, id: &str, lease: Duration) -> Record {
    let now = bed.broker.clock().wall();
    let claim = Claim {
        pk: Pk(format!("jobs#{id}")),
        owner: Owner("another".into()),
        now,
        lease_until: now + lease,
        fingerprint: None,
        source: Source::default(),
    };
    bed.guard.put(claim.record());
    claim.record()
}

fn record(bed: &TestBed, id: &str) -> Record {
    bed.guard.record(&Pk(format!("jobs#{id}"))).unwrap()
}

/// Which of an id's runs had a claim.
fn under_a_claim(book: &Book, id: &str) -> Vec<bool> {
    book.runs(id).iter().map(|run| run.fence > 0).collect()
}

fn bed() -> (TestBed, Book) {
    (TestBed::new(&["jobs"]), Book::new())
}

fn after(time: Duration) -> Shutdown {
    Shutdown::when(sleep(time))
}

#[tokio::test(start_paused = true)]
async fn g4_a_lapsed_claim_is_taken_over_only_when_the_skew_has_passed_too() {
    let (bed, book) = bed();
    let theirs = another_runs(&bed, "a", Duration::from_secs(20));
    bed.send("jobs", r#"{"id":"a"}"#);
    let report = worker(&bed, &book, &[("LEASEHOLD_CLOCK_SKEW", "5s")]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, book.runs("a").len()), (1, 1));
    assert!(book.began("a")[0] >= 25, "{:?}", book.began("a"));
    let ours = record(&bed, "a");
    assert_eq!((ours.status, ours.takeovers), (Status::Done, 1));
    assert!(ours.fence > theirs.fence);
}

#[tokio::test(start_paused = true)]
async fn g7_a_message_whose_key_is_held_costs_few_receives_and_is_never_dead_lettered_for_it() {
    let (bed, book) = bed();
    another_runs(&bed, "a", Duration::from_secs(600));
    bed.send("jobs", r#"{"id":"a"}"#);
    worker(&bed, &book, &[("LEASEHOLD_MAX_ATTEMPTS", "1")]).run(bed.until_idle()).await.unwrap();
    let received = bed.queue("jobs").calls()["receive"].entries;
    assert!(received <= 3, "{received} receives while another ran the key for ten minutes");
    assert_eq!(book.runs("a").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn g7_what_is_held_for_a_moment_waits_in_place() {
    let (bed, book) = bed();
    another_runs(&bed, "a", Duration::from_millis(500));
    bed.send("jobs", r#"{"id":"a"}"#);
    let report = worker(&bed, &book, &[("LEASEHOLD_CLOCK_SKEW", "1s")]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.released), (1, 0));
    assert_eq!(bed.queue("jobs").calls()["receive"].entries, 1);
}

#[tokio::test(start_paused = true)]
async fn g6_from_the_second_takeover_on_the_work_waits_and_at_the_limit_it_is_buried() {
    let (bed, book) = bed();
    let mut theirs = another_runs(&bed, "a", Duration::ZERO);
    theirs.takeovers = 1;
    bed.guard.put(theirs);
    let mut killer = another_runs(&bed, "b", Duration::ZERO);
    killer.takeovers = 3;
    bed.guard.put(killer);
    bed.send("jobs", r#"{"id":"a"}"#);
    bed.send("jobs", r#"{"id":"b"}"#);
    let vars = [("LEASEHOLD_MAX_TAKEOVERS", "3"), ("LEASEHOLD_BACKOFF", "20s..20s")];
    let report = worker(&bed, &book, &vars).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.dead), (1, 1));
    assert!(book.began("a")[0] >= 10, "it is parked first: {:?}", book.began("a"));
    assert!(book.runs("b").is_empty());
    assert_eq!(bed.dead("jobs")[0].1.as_ref().unwrap().code, "takeovers");
    assert_eq!(record(&bed, "a").takeovers, 2);
}

#[tokio::test(start_paused = true)]
async fn g4_a_lease_that_ends_absurdly_late_is_taken_over_when_it_stays_unchanged() {
    let (bed, book) = bed();
    another_runs(&bed, "a", Duration::from_secs(30 * 24 * 3600));
    bed.send("jobs", r#"{"id":"a"}"#);
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!(report.done, 1);
    assert!((30..600).contains(&book.began("a")[0]), "{:?}", book.began("a"));
}

#[tokio::test(start_paused = true)]
async fn g9_the_same_key_with_another_payload_is_a_permanent_error_that_leaves_the_record_alone() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","note":"one"}"#);
    worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    let before = record(&bed, "a");
    bed.send("jobs", r#"{"id":"a","note":"two"}"#);
    bed.send("jobs", r#"{ "note" : "one", "id":"a" }"#);
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.dead, report.suppressed, report.done), (1, 1, 0));
    assert_eq!(bed.dead("jobs")[0].1.as_ref().unwrap().code, "key_reused");
    assert_eq!(record(&bed, "a"), before);
}

#[tokio::test(start_paused = true)]
async fn g4_a_done_record_past_its_time_is_as_good_as_absent() {
    let (bed, book) = bed();
    let mut done = another_runs(&bed, "a", Duration::ZERO);
    done.status = Status::Done;
    done.expires_at = bed.broker.clock().wall().seconds();
    bed.guard.put(done);
    bed.send("jobs", r#"{"id":"a"}"#);
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.suppressed), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn g11_a_redriven_message_begins_anew_also_when_it_was_mended() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","note":"broken","first":["charge_then_fail","fail_for_good"]}"#);
    worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    let dead = bed.queue("jobs-dlq").messages().remove(0);
    let note = dead.dead_letter.clone().unwrap();
    let mut copy = leasehold::queue::Outgoing::from(&dead);
    copy.body = r#"{"id":"a","note":"mended"}"#.into();
    copy.attributes.insert(
        leasehold::message::DEAD_LETTER_ATTRIBUTE.into(),
        leasehold::message::Attribute::text(serde_json::to_string(&note).unwrap()),
    );
    bed.queue("jobs").put(copy);
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!(report.done, 1);
    let record = record(&bed, "a");
    assert_eq!((record.status, record.failures, record.steps.len()), (Status::Done, 0, 1), "finished steps are kept");
    assert_eq!(book.charges(), ["jobs#a/charge"]);
}

#[tokio::test(start_paused = true)]
async fn g11_a_message_sent_after_the_failure_begins_anew_and_one_sent_before_is_a_duplicate() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","first":["fail_for_good"]}"#);
    bed.send("jobs", r#"{"id":"a","first":["fail_for_good"]}"#);
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.dead, report.suppressed), (1, 1));
    sleep(Duration::from_secs(10)).await;
    bed.send("jobs", r#"{"id":"a","first":["fail_for_good"]}"#);
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!(report.done, 1);
}

#[tokio::test(start_paused = true)]
async fn g1_unknown_is_no_verdict_and_nothing_runs_is_deleted_or_dead_lettered() {
    let failures = [Failure::Throttled, Failure::Unavailable, Failure::Conflict, Failure::Denied, Failure::Missing];
    for failure in failures {
        let (bed, book) = bed();
        bed.send("jobs", r#"{"id":"a"}"#);
        bed.guard_faults.always("claim", Fault::Fail(failure));
        bed.guard_faults.always("probe", Fault::Fail(failure));
        let report = worker(&bed, &book, &[]).run(after(Duration::from_secs(3600))).await.unwrap();
        assert_eq!((report.done, report.dead, bed.queue("jobs").len()), (0, 0, 1), "{failure:?}");
        assert!(book.runs("a").is_empty(), "{failure:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn g3_a_claim_whose_reply_was_lost_is_recognised_and_the_work_runs_once() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a"}"#);
    bed.guard_faults.next("claim", Fault::LoseReply);
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.released, record(&bed, "a").takeovers), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn g3_a_claim_that_was_applied_although_the_store_answered_with_an_error_is_recognised() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a"}"#);
    bed.guard_faults.next("claim", Fault::ApplyThenFail(Failure::Unavailable));
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.released, record(&bed, "a").takeovers), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn g3_a_confirm_whose_replies_are_all_lost_is_done() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a"}"#);
    for _ in 0..4 {
        bed.guard_faults.next("confirm", Fault::LoseReply);
    }
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, book.runs("a").len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn g8_an_outage_pauses_polling_keeps_what_is_in_hand_and_ends_with_a_probe() {
    let (bed, book) = bed();
    for id in 0..100 {
        bed.send("jobs", format!(r#"{{"id":"{id}"}}"#));
    }
    for operation in ["claim", "probe"] {
        bed.guard_faults.always(operation, Fault::Fail(Failure::Denied));
    }
    let healing = {
        let (bed, received) = (bed.clone(), bed.queue("jobs"));
        async move {
            sleep(Duration::from_secs(200)).await;
            let received = received.calls()["receive"].entries;
            bed.guard_faults.clear();
            received
        }
    };
    let work = worker(&bed, &book, &[]).run(bed.until_idle());
    let (report, received) = tokio::join!(work, healing);
    assert_eq!(report.unwrap().done, 100);
    assert!(received <= 20, "{received} messages were received although nothing could be claimed");
    let entries = bed.queue("jobs").calls()["receive"].entries;
    assert_eq!(entries, 100, "what is in hand is kept: no message costs a second receive");
}

#[tokio::test(start_paused = true)]
async fn g8_what_is_in_hand_is_given_back_when_an_outage_lasts() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a"}"#);
    for operation in ["claim", "probe"] {
        bed.guard_faults.always(operation, Fault::Fail(Failure::Denied));
    }
    let look = {
        let queue = bed.queue("jobs");
        async move {
            sleep(Duration::from_secs(290)).await;
            let kept = queue.in_flight();
            sleep(Duration::from_secs(20)).await;
            (kept, queue.visible())
        }
    };
    let (_, seen) = tokio::join!(worker(&bed, &book, &[]).run(after(Duration::from_secs(400))), look);
    assert_eq!(seen, (1, 1));
}

#[tokio::test(start_paused = true)]
async fn g8_finished_work_whose_confirm_cannot_be_written_is_kept_and_runs_only_once() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a"}"#);
    for operation in ["confirm", "renew", "probe"] {
        bed.guard_faults.always(operation, Fault::Fail(Failure::Unavailable));
    }
    let healing = {
        let bed = bed.clone();
        async move {
            sleep(Duration::from_secs(3 * 3600)).await;
            assert_eq!((bed.queue("jobs").in_flight(), bed.queue("jobs").len()), (1, 1));
            bed.guard_faults.clear();
        }
    };
    let (report, ()) = tokio::join!(worker(&bed, &book, &[]).run(bed.until_idle()), healing);
    assert_eq!((report.unwrap().done, book.runs("a").len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn g8_with_the_policy_open_work_runs_without_a_guard_and_its_steps_are_not_recorded() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","first":["charge_then_fail"]}"#);
    bed.guard_faults.next("claim", Fault::Fail(Failure::Denied));
    let vars = [("LEASEHOLD_GUARD_OUTAGE", "open")];
    let report = worker(&bed, &book, &vars).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.failed, report.done), (1, 1));
    assert_eq!(under_a_claim(&book, "a"), [false, true]);
    assert_eq!(book.charges(), ["jobs#a/charge"]);
    let record = record(&bed, "a");
    assert_eq!((record.status, record.steps.len()), (Status::Done, 0));
}

#[tokio::test(start_paused = true)]
async fn g8_with_the_policy_open_done_is_recorded_also_where_an_earlier_attempt_left_its_record() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","first":["fail"]}"#);
    bed.guard_faults
        .decide_with(|call| (call.operation == "claim" && call.number == 2).then_some(Fault::Fail(Failure::Denied)));
    let vars = [("LEASEHOLD_GUARD_OUTAGE", "open")];
    let report = worker(&bed, &book, &vars).run(bed.until_idle()).await.unwrap();
    assert_eq!(report.done, 1);
    assert_eq!(under_a_claim(&book, "a"), [true, false], "the second run is the one without a guard");
    assert_eq!(record(&bed, "a").status, Status::Done);
}

#[tokio::test(start_paused = true)]
async fn g8_with_the_policy_open_an_outage_stops_no_intake() {
    let (bed, book) = bed();
    for id in 0..50 {
        bed.send("jobs", format!(r#"{{"id":"{id}"}}"#));
    }
    for operation in ["claim", "probe"] {
        bed.guard_faults.always(operation, Fault::Fail(Failure::Denied));
    }
    let vars = [("LEASEHOLD_GUARD_OUTAGE", "open")];
    let report = worker(&bed, &book, &vars).run(after(Duration::from_secs(60))).await.unwrap();
    assert_eq!(report.done, 50);
    assert!((0..50).all(|id| under_a_claim(&book, &id.to_string()) == [false]));
}

#[tokio::test(start_paused = true)]
async fn t6_a_last_receive_waits_in_hand_for_the_end_of_an_outage_however_long() {
    let (bed, book) = (TestBed::new(&[]), Book::new());
    bed.add("jobs", 1);
    bed.send("jobs", r#"{"id":"a"}"#);
    for operation in ["claim", "probe"] {
        bed.guard_faults.always(operation, Fault::Fail(Failure::Denied));
    }
    let healing = async {
        sleep(Duration::from_secs(3600)).await;
        bed.guard_faults.clear();
    };
    let (report, ()) = tokio::join!(worker(&bed, &book, &[]).run(bed.until_idle()), healing);
    assert_eq!((report.unwrap().done, bed.dead("jobs").len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn g12_without_a_guard_deliveries_are_attempts_and_no_record_is_written() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","first":["fail"]}"#);
    bed.send("jobs", r#"{"id":"b","first":["fail","fail"]}"#);
    let vars = [("LEASEHOLD_GUARD", "none"), ("LEASEHOLD_MAX_ATTEMPTS", "2")];
    let report = worker(&bed, &book, &vars).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.dead), (1, 1));
    assert!(bed.guard.records().is_empty());
    assert_eq!(book.runs("a").iter().map(|run| run.attempt).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn g2_a_former_owner_changes_nothing() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":100000}"#);
    // The worker's renewals get lost, and somebody takes the record over before its run ends.
    bed.guard_faults.always("renew", Fault::Fail(Failure::Throttled));
    let thief = {
        let bed = bed.clone();
        async move {
            sleep(Duration::from_secs(29)).await;
            let mut theirs = record(&bed, "a");
            theirs.status = Status::Running;
            theirs.owner = Owner("another".into());
            theirs.fence.0 += 1;
            theirs.lease_until = Millis(theirs.lease_until.0 + 3_600_000);
            bed.guard.put(theirs.clone());
            sleep(Duration::from_secs(60)).await;
            assert_eq!(record(&bed, "a"), theirs);
        }
    };
    let run = worker(&bed, &book, &[]).run(after(Duration::from_secs(80)));
    let (report, ()) = tokio::join!(run, thief);
    assert_eq!(report.unwrap().done, 0);
    assert_eq!(book.runs("a")[0].cancelled, Some(leasehold::CancelCause::LeaseLost));
}

#[tokio::test(start_paused = true)]
async fn g2_a_run_whose_work_another_has_finished_meanwhile_is_deleted_as_a_duplicate() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":10000}"#);
    let other = async {
        sleep(Duration::from_secs(5)).await;
        let mut theirs = record(&bed, "a");
        theirs.status = Status::Done;
        theirs.owner = Owner("another".into());
        theirs.fence.0 += 1;
        bed.guard.put(theirs);
    };
    let (report, ()) = tokio::join!(worker(&bed, &book, &[]).run(bed.until_idle()), other);
    let report = report.unwrap();
    assert_eq!((report.done, report.suppressed, report.left), (0, 1, 0));
    assert_eq!(bed.queue("jobs").calls()["receive"].entries, 1);
}

#[tokio::test(start_paused = true)]
async fn g6_a_failure_that_another_version_began_to_undo_is_buried_under_its_own_failure_id() {
    let (bed, book) = bed();
    let mut failed = another_runs(&bed, "a", Duration::ZERO);
    failed.status = Status::Failed;
    failed.failure_id = Some("theirs".into());
    bed.guard.put(failed);
    bed.send("jobs", r#"{"id":"a"}"#);
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.dead, book.runs("a").len()), (1, 0));
    assert_eq!(bed.dead("jobs")[0].1.as_ref().unwrap().failure_id, "theirs");
}

#[tokio::test(start_paused = true)]
async fn two_workers_and_a_hundred_duplicates_run_each_key_once() {
    let (bed, book) = bed();
    for id in 0..25 {
        for _ in 0..4 {
            bed.send("jobs", format!(r#"{{"id":"{id}","millis":1500}}"#));
        }
    }
    let vars = [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_VISIBILITY_TIMEOUT", "30s")];
    let one = bed.worker_with(&vars, bed.broker.clock().skewed(1, 0)).queue("jobs", book.clone());
    let two = bed.worker_with(&vars, bed.broker.clock().skewed(2, 900)).queue("jobs", book.clone());
    let (one, two) = tokio::join!(one.run(bed.until_idle()), two.run(bed.until_idle()));
    assert_eq!(one.unwrap().done + two.unwrap().done, 25);
    assert!((0..25).all(|id| book.runs(&id.to_string()).len() == 1));
}

#[tokio::test(start_paused = true)]
async fn g8_a_store_that_answers_nothing_but_errors_is_away_too_and_burns_no_receives() {
    for failure in [Failure::Unavailable, Failure::Throttled] {
        let (bed, book) = (TestBed::new(&[]), Book::new());
        bed.add("jobs", 3);
        for id in 0..60 {
            bed.send("jobs", format!(r#"{{"id":"{id}"}}"#));
        }
        for operation in ["claim", "probe"] {
            bed.guard_faults.always(operation, Fault::Fail(failure));
        }
        let healing = async {
            sleep(Duration::from_secs(3600)).await;
            bed.guard_faults.clear();
        };
        let (report, ()) = tokio::join!(worker(&bed, &book, &[]).run(bed.until_idle()), healing);
        assert_eq!((report.unwrap().done, bed.dead("jobs").len()), (60, 0), "{failure:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn g1_a_delivery_of_a_done_key_costs_one_conditional_call() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a"}"#);
    worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    let before = bed.guard_faults.log().len();
    for _ in 0..3 {
        bed.send("jobs", r#"{"id":"a"}"#);
    }
    assert_eq!(worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap().suppressed, 3);
    let mut calls: Vec<_> = bed.guard_faults.log().drain(before..).map(|call| call.operation).collect();
    calls.retain(|call| !["facts", "control"].contains(call));
    assert_eq!(calls, ["claim"; 3]);
}

#[tokio::test(start_paused = true)]
async fn g1_a_record_that_is_swept_between_refusal_and_takeover_is_claimed_once_more() {
    let (bed, book) = bed();
    another_runs(&bed, "a", Duration::ZERO);
    sleep(Duration::from_secs(3)).await;
    bed.send("jobs", r#"{"id":"a"}"#);
    bed.guard_faults.next("take_over", Fault::Delay(Duration::from_secs(1)));
    let swept = async {
        sleep(Duration::from_millis(500)).await;
        bed.guard.sweep(&Pk("jobs#a".into()));
    };
    let (report, ()) = tokio::join!(worker(&bed, &book, &[]).run(bed.until_idle()), swept);
    assert_eq!(report.unwrap().done, 1);
    assert_eq!(bed.queue("jobs").calls()["receive"].entries, 1);
    let writes: Vec<_> = bed.guard.history().into_iter().map(|(name, _)| name).collect();
    assert_eq!(writes, ["claim", "confirm"]);
}

#[tokio::test(start_paused = true)]
async fn g3_a_renewal_whose_reply_is_lost_ends_nothing() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":120000}"#);
    bed.guard_faults
        .decide_with(|call| (call.operation == "renew" && call.number % 2 == 1).then_some(Fault::LoseReply));
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, book.runs("a").len(), record(&bed, "a").takeovers), (1, 1, 0));
    assert!(bed.guard_faults.calls()["renew"] >= 4);
}

#[tokio::test(start_paused = true)]
async fn g6_attempts_are_counted_over_all_workers() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","first":["fail","fail","fail","fail","fail"]}"#);
    let vars = [("LEASEHOLD_MAX_ATTEMPTS", "3"), ("LEASEHOLD_BACKOFF", "60s..60s")];
    let mut lives = Vec::new();
    for _ in 0..5 {
        worker(&bed, &book, &vars).run(after(Duration::from_secs(5))).await.unwrap();
        lives.push(book.runs("a").len());
        sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(lives, [1, 2, 3, 3, 3], "each worker makes one attempt, and none is made after the third");
    assert_eq!(bed.dead("jobs")[0].1.as_ref().unwrap().failures, 3);
}

/// A payload that can be changed although it is lent.
#[derive(serde::Deserialize)]
struct Changing {
    id: Mutex<String>,
}

#[tokio::test(start_paused = true)]
async fn g10_a_handler_that_changes_its_payload_changes_no_key() {
    let bed = TestBed::new(&["jobs"]);
    bed.send("jobs", r#"{"id":"a"}"#);
    let keys = Arc::new(Mutex::new(Vec::new()));
    let handler = handler({
        let keys = Arc::clone(&keys);
        move |payload: &Changing, cx: &JobContext| {
            "changed".clone_into(&mut payload.id.lock().unwrap());
            let mut keys = keys.lock().unwrap();
            keys.push(cx.key().unwrap_or_default().to_owned());
            let again = keys.len() == 1;
            async move { if again { Err(HandlerError::new("it failed")) } else { Ok(()) } }
        }
    });
    let handler = handler.key(|payload: &Changing| payload.id.lock().unwrap().clone());
    let worker = bed.worker(&[("LEASEHOLD_QUEUES", "jobs")]).queue("jobs", handler);
    assert_eq!(worker.run(bed.until_idle()).await.unwrap().done, 1);
    assert_eq!(*keys.lock().unwrap(), ["jobs#a", "jobs#a"]);
    let records: Vec<_> = bed.guard.records().into_iter().map(|record| (record.pk.0, record.status)).collect();
    assert_eq!(records, [("jobs#a".to_owned(), Status::Done)]);
}

#[tokio::test(start_paused = true)]
async fn g8_without_a_record_duplicates_run_side_by_side() {
    for mode in [("LEASEHOLD_GUARD_OUTAGE", "open"), ("LEASEHOLD_GUARD", "none")] {
        let (bed, book) = bed();
        for operation in ["claim", "probe"] {
            bed.guard_faults.always(operation, Fault::Fail(Failure::Denied));
        }
        for _ in 0..2 {
            bed.send("jobs", r#"{"id":"a","millis":5000}"#);
        }
        let report = worker(&bed, &book, &[mode]).run(bed.until_idle()).await.unwrap();
        assert_eq!((report.done, book.began("a")), (2, vec![0, 0]), "{mode:?}");
    }
}
