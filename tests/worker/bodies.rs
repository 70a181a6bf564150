//! Bodies that are in S3: fetched before the key is derived, once for each delivery (rules G10, T3, T4, T6, D1 and D3).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{
    Handler, JobContext, Message, Raw, Shutdown, Worker, WorkerError,
    guard::{Claim, Owner, Pk, Source, Status},
    handler,
    message::{Attribute, DEAD_LETTER_ATTRIBUTE, Pointer},
    queue::Outgoing,
    testing::{Failure, Fault, TestBed},
};
use tokio::time::{Instant, sleep};

use crate::bench::{Book, worker};

const FETCH_DELETE: [(&str, &str); 2] = [("LEASEHOLD_S3_PAYLOAD", "fetch-delete"), ("LEASEHOLD_S3_BUCKETS", "bodies")];

const QUEUE: &str = "groups.fifo";

fn at(key: &str) -> Pointer {
    Pointer::new("bodies", key).unwrap()
}

fn bed() -> (TestBed, Book) {
    let bed = TestBed::new(&["jobs"]);
    bed.bodies.create("bodies");
    (bed, Book::new())
}

/// Sends what an extended client library sends for a body at `key`.
fn send_pointer(bed: &TestBed, key: &str) {
    bed.queue("jobs").put(pointer_to(key)).unwrap();
}

fn pointer_to(key: &str) -> Outgoing {
    let place = serde_json::json!({ "s3BucketName": "bodies", "s3Key": key });
    let body = serde_json::json!(["software.amazon.payloadoffloading.PayloadS3Pointer", place]).to_string();
    let size = Attribute { data_type: "Number".into(), ..Attribute::text("300000") };
    let attributes = [("ExtendedPayloadSize".to_owned(), size), ("colour".to_owned(), Attribute::text("red"))].into();
    Outgoing { body, attributes, ..Outgoing::default() }
}

fn send_large(bed: &TestBed, key: &str, body: &str) {
    bed.bodies.put(&at(key), body);
    send_pointer(bed, key);
}

/// A queue with groups.
fn groups() -> (TestBed, Book) {
    let bed = TestBed::new(&[QUEUE]);
    bed.bodies.create("bodies");
    (bed, Book::new())
}

fn send_to_group(bed: &TestBed, group: &str, key: &str, body: &str) {
    bed.bodies.put(&at(key), body);
    let deduplication_id = Some(format!("{group} {key}"));
    bed.queue(QUEUE).put(Outgoing { group: Some(group.to_owned()), deduplication_id, ..pointer_to(key) });
}

fn grouped(bed: &TestBed, book: &Book, vars: &[(&str, &str)]) -> Worker {
    let mut all = vec![("LEASEHOLD_QUEUES", QUEUE), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_VISIBILITY_TIMEOUT", "30s")];
    all.extend(vars);
    bed.worker(&all).queue(QUEUE, book.clone())
}

fn fetched(bed: &TestBed) -> u64 {
    bed.body_faults.calls().get("get").copied().unwrap_or_default()
}

fn after(seconds: u64) -> Shutdown {
    Shutdown::when(sleep(Duration::from_secs(seconds)))
}

fn dead_message(bed: &TestBed) -> Message {
    let mut dead = bed.queue("jobs-dlq").messages();
    assert_eq!(dead.len(), 1);
    dead.remove(0)
}

fn redrive(bed: &TestBed) {
    let dead = dead_message(bed);
    let mut copy = Outgoing::from(&dead);
    let note = serde_json::to_string(dead.dead_letter.as_ref().unwrap()).unwrap();
    copy.attributes.insert(DEAD_LETTER_ATTRIBUTE.into(), Attribute::text(note));
    bed.queue("jobs").put(copy).unwrap();
}

/// A handler that keeps what it was given.
fn keeping(seen: &Arc<Mutex<Vec<Message>>>) -> impl Handler + use<> {
    let seen = Arc::clone(seen);
    handler(move |Raw(message): &Raw, _: &JobContext| {
        seen.lock().unwrap().push(message.as_ref().clone());
        async { Ok(()) }
    })
}

#[tokio::test(start_paused = true)]
async fn g10_key_and_fingerprint_are_those_of_the_fetched_body() {
    let (bed, book) = bed();
    send_large(&bed, "1", r#"{"id":"a","note":"one"}"#);
    send_large(&bed, "2", r#"{"note":"one","id":"a"}"#);
    bed.send("jobs", r#"{"id":"a","note":"one"}"#).unwrap();
    send_large(&bed, "3", r#"{"id":"a","note":"two"}"#);
    let report = worker(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "1")]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.suppressed, report.dead), (1, 2, 1));
    assert_eq!((book.runs("a").len(), fetched(&bed)), (1, 3));
    assert_eq!(bed.guard.record(&Pk("jobs#a".into())).unwrap().status, Status::Done);
    assert_eq!(bed.dead("jobs")[0].1.as_ref().unwrap().code, "key_reused");
    assert_eq!(bed.bodies.keys("bodies"), ["1", "2", "3"], "nothing is deleted unless told");
}

#[tokio::test(start_paused = true)]
async fn a_handler_sees_the_message_as_if_it_had_come_whole_and_with_pass_as_it_came() {
    for (word, expected) in [("fetch", "hello"), ("pass", "PayloadS3Pointer")] {
        let (bed, _) = bed();
        send_large(&bed, "1", "hello");
        let seen = Arc::default();
        let worker = bed.worker(&[
            ("LEASEHOLD_QUEUES", "jobs"),
            ("LEASEHOLD_KEY", "message-id"),
            ("LEASEHOLD_S3_PAYLOAD", word),
        ]);
        let report = worker.queue("jobs", keeping(&seen)).run(bed.until_idle()).await.unwrap();
        assert_eq!((report.done, fetched(&bed)), (1, u64::from(word == "fetch")), "{word}");
        let message = seen.lock().unwrap().remove(0);
        assert!(message.body.contains(expected), "{}", message.body);
        assert_eq!(message.attribute("colour"), Some("red"));
        assert_eq!(message.attribute("ExtendedPayloadSize").is_some(), word == "pass");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_fetched_once_for_a_delivery_also_when_it_waits_in_place() {
    let (bed, book) = bed();
    let now = bed.broker.clock().wall();
    let theirs = Claim {
        pk: Pk("jobs#a".into()),
        owner: Owner("another".into()),
        now,
        lease_until: now + Duration::from_millis(500),
        fingerprint: None,
        source: Source::default(),
    };
    bed.guard.put(theirs.record());
    send_large(&bed, "1", r#"{"id":"a"}"#);
    let report = worker(&bed, &book, &[("LEASEHOLD_CLOCK_SKEW", "1s")]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.released), (1, 0));
    assert_eq!(bed.queue("jobs").calls()["receive"].entries, 1);
    assert_eq!((bed.guard.calls()["claim"], fetched(&bed)), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_body_is_put_down_for_a_longer_wait_and_fetched_again() {
    for (vars, fetches) in [(&[][..], 3 + 1), (&FETCH_DELETE, 2)] {
        let (bed, book) = groups();
        send_to_group(&bed, "g", "a", r#"{"id":"a","first":["fail","fail"]}"#);
        send_to_group(&bed, "g", "b", r#"{"id":"b"}"#);
        let report = grouped(&bed, &book, vars).run(bed.until_idle()).await.unwrap();
        assert_eq!((report.done, bed.queue(QUEUE).calls()["receive"].entries), (2, 2));
        assert_eq!(fetched(&bed), fetches, "kept only where it may be deleted meanwhile");
    }
}

#[tokio::test(start_paused = true)]
async fn g8_an_outage_of_s3_pauses_the_queue_instead_of_using_up_receives() {
    // What is denied may be one message's own, and is tried with others now and then.
    for (failure, max_receive_count, most) in [(Failure::Unavailable, 4, 60), (Failure::Denied, 40, 300)] {
        let bed = TestBed::new(&[]);
        bed.add("jobs", max_receive_count);
        let book = Book::new();
        for n in 0..300 {
            send_large(&bed, &n.to_string(), &format!(r#"{{"id":"{n}"}}"#));
        }
        bed.body_faults.always("get", Fault::Fail(failure));
        let heals = async {
            sleep(Duration::from_secs(600)).await;
            bed.body_faults.clear();
            bed.queue("jobs").calls()["receive"].entries
        };
        let run = worker(&bed, &book, &[]).run(bed.until_idle());
        let (report, receives) = tokio::join!(run, heals);
        assert_eq!((report.unwrap().done, bed.dead("jobs").len()), (300, 0), "{failure:?}");
        assert!(receives <= most, "{failure:?}: {receives} receives in ten minutes");
    }
}

#[tokio::test(start_paused = true)]
async fn g8_bodies_that_never_come_do_not_keep_others_waiting_for_ever() {
    let (bed, book) = bed();
    bed.body_faults.decide_with(|call| call.subject.ends_with("/never").then_some(Fault::Fail(Failure::Unavailable)));
    (0..5).for_each(|_| send_large(&bed, "never", "{}"));
    let later = async {
        sleep(Duration::from_secs(20)).await;
        send_large(&bed, "1", r#"{"id":"a"}"#);
        bed.send("jobs", r#"{"id":"b"}"#).unwrap();
    };
    let (report, ()) = tokio::join!(worker(&bed, &book, &[]).run(after(900)), later);
    assert_eq!((report.unwrap().done, book.runs("a").len(), book.runs("b").len()), (2, 1, 1));
    assert!(book.began("b")[0] > 60, "S3 is asked before: {:?}", book.began("b"));
}

#[tokio::test(start_paused = true)]
async fn g8_one_message_without_its_body_is_no_outage_however_often_it_is_tried() {
    let (bed, book) = groups();
    bed.body_faults.decide_with(|call| call.subject.ends_with("/denied").then_some(Fault::Fail(Failure::Denied)));
    send_to_group(&bed, "g", "denied", r#"{"id":"a"}"#);
    send_to_group(&bed, "g", "behind", r#"{"id":"b"}"#);
    let others = async {
        for n in 0..60 {
            sleep(Duration::from_secs(5)).await;
            send_to_group(&bed, &n.to_string(), &n.to_string(), &format!(r#"{{"id":"{n}"}}"#));
        }
    };
    let (report, ()) = tokio::join!(grouped(&bed, &book, &[]).run(after(301)), others);
    assert_eq!(report.unwrap().done, 60);
    let late = (0..60).find(|n| book.began(&n.to_string())[0] > 5 * (n + 1) + 1);
    assert_eq!(late, None);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_that_waits_needs_no_body_that_was_deleted_meanwhile() {
    let (bed, book) = groups();
    send_to_group(&bed, "a", "same", r#"{"id":"x","millis":20000}"#);
    send_to_group(&bed, "b", "same", r#"{"id":"x","millis":20000}"#);
    send_to_group(&bed, "b", "other", r#"{"id":"y"}"#);
    let report = grouped(&bed, &book, &FETCH_DELETE).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.suppressed, report.dead), (2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn g8_messages_with_bodies_of_their_own_run_on_beside_those_whose_bucket_is_denied() {
    let (bed, book) = bed();
    bed.body_faults.always("get", Fault::Fail(Failure::Denied));
    for n in 0..200 {
        bed.send("jobs", format!(r#"{{"id":"{n}"}}"#)).unwrap();
        if n % 10 == 0 {
            send_large(&bed, &n.to_string(), "{}");
        }
    }
    worker(&bed, &book, &[]).run(after(30)).await.unwrap();
    assert_eq!((0..200).filter(|n| !book.runs(&n.to_string()).is_empty()).count(), 200);
}

#[tokio::test(start_paused = true)]
async fn t3_a_dead_letter_keeps_the_pointer_so_that_a_redrive_finds_the_body() {
    let (bed, book) = bed();
    send_large(&bed, "1", r#"{"id":"a","first":["fail_for_good"]}"#);
    worker(&bed, &book, &FETCH_DELETE).run(bed.until_idle()).await.unwrap();
    let dead = dead_message(&bed);
    assert_eq!(dead.pointer(), Ok(Some(at("1"))));
    assert_eq!(dead.dead_letter.as_ref().unwrap().code, "hopeless");
    assert_eq!(bed.bodies.keys("bodies"), ["1"], "the copy needs it");
    redrive(&bed);
    let report = worker(&bed, &book, &FETCH_DELETE).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, book.runs("a").len()), (1, 2));
    assert_eq!(bed.bodies.keys("bodies"), [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_deleted_behind_its_message_and_not_for_a_duplicate_or_before_the_message() {
    let (bed, book) = bed();
    for (key, id) in [("1", "a"), ("2", "a"), ("3", "b")] {
        send_large(&bed, key, &format!(r#"{{"id":"{id}"}}"#));
    }
    // The adapter has given up on this message: it comes again, and needs its body.
    bed.queue_faults("jobs").next("delete", Fault::Fail(Failure::Unavailable));
    let report = worker(&bed, &book, &FETCH_DELETE).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.suppressed, report.dead), (2, 2, 0));
    let left = bed.bodies.keys("bodies");
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(!left.contains(&"3".to_owned()), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn l1_work_that_is_done_under_its_claim_alone_keeps_the_body_for_the_next_delivery() {
    let (bed, book) = bed();
    send_large(&bed, "1", r#"{"id":"a","millis":100000}"#);
    // The delivery is lost to another receive, so that the handle of the first deletes nothing, and SQS says that it did.
    bed.queue_faults("jobs").next("change_visibility", Fault::Fail(Failure::HandleLost));
    let report = worker(&bed, &book, &FETCH_DELETE).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.suppressed, report.dead), (1, 1, 0));
    assert_eq!((book.runs("a").len(), bed.bodies.keys("bodies").len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_keeps_the_body_for_the_next() {
    let (bed, book) = bed();
    send_large(&bed, "1", r#"{"id":"a","first":["fail","unavailable","not_yet","panic"]}"#);
    let report = worker(&bed, &book, &FETCH_DELETE).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, book.runs("a").len()), (1, 5));
    assert_eq!(bed.bodies.keys("bodies"), [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_had_now_delays_its_message_and_is_no_attempt() {
    for failure in [Failure::Denied, Failure::Throttled, Failure::Unavailable, Failure::NoAnswer] {
        let (bed, book) = bed();
        send_large(&bed, "1", r#"{"id":"a"}"#);
        bed.body_faults.always("get", Fault::Fail(failure));
        let heals = async {
            sleep(Duration::from_secs(1800)).await;
            assert_eq!((bed.queue("jobs").len(), bed.dead("jobs").len()), (1, 0), "{failure:?}");
            bed.body_faults.clear();
            fetched(&bed)
        };
        let run = worker(&bed, &book, &[("LEASEHOLD_MAX_ATTEMPTS", "1")]).run(bed.until_idle());
        let (report, tries) = tokio::join!(run, heals);
        let report = report.unwrap();
        assert_eq!((report.done, report.dead, report.failed), (1, 0, 0), "{failure:?}");
        assert_eq!(report.released, tries, "{failure:?}");
        assert!((20..100).contains(&tries), "it backs off: {tries}");
        assert_eq!((book.runs("a")[0].attempt, bed.guard.history().len()), (1, 2), "{failure:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn t6_on_its_last_receive_a_message_waits_in_place_for_its_body() {
    let bed = TestBed::new(&[]);
    bed.add("jobs", 1);
    let book = Book::new();
    send_large(&bed, "1", r#"{"id":"a"}"#);
    bed.body_faults.always("get", Fault::Fail(Failure::Unavailable));
    let heals = async {
        sleep(Duration::from_secs(300)).await;
        bed.body_faults.clear();
    };
    let run = worker(&bed, &book, &[]).run(bed.until_idle());
    let (report, ()) = tokio::join!(run, heals);
    let report = report.unwrap();
    assert_eq!((report.done, report.left, bed.dead("jobs").len()), (1, 0, 0));
    assert_eq!(bed.queue("jobs").calls()["receive"].entries, 1);
}

#[tokio::test(start_paused = true)]
async fn t4_a_body_that_can_never_be_had_is_dead_lettered_with_the_reason_and_nothing_is_claimed() {
    let not_text: &[u8] = &[0xff, 0xfe];
    for (code, put, vars) in [
        ("payload_missing", None, &[][..]),
        ("payload_not_text", Some(not_text), &[]),
        ("payload_bucket", Some(b"{}"), &[("LEASEHOLD_S3_BUCKETS", "others")]),
        ("malformed", Some(b"no JSON"), &[]),
    ] {
        let (bed, book) = bed();
        if let Some(body) = put {
            bed.bodies.put(&at("1"), body);
        }
        send_pointer(&bed, "1");
        let report = worker(&bed, &book, vars).run(bed.until_idle()).await.unwrap();
        assert_eq!((report.dead, bed.guard.history().len()), (1, 0), "{code}");
        let dead = dead_message(&bed);
        let note = dead.dead_letter.clone().unwrap();
        assert_eq!(note.code, code);
        assert_eq!(dead.pointer(), Ok(Some(at("1"))), "{code}");
        if code == "payload_bucket" {
            assert_eq!(fetched(&bed), 0, "a bucket that is not named is not even asked");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_body_that_comes_back_is_found_by_a_redrive() {
    let (bed, book) = bed();
    send_pointer(&bed, "1");
    worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    let note = dead_message(&bed).dead_letter.unwrap();
    assert_eq!(note.code, "payload_missing");
    assert!(note.message.contains("s3://bodies/1") && note.message.contains("earlier delivery"), "{}", note.message);
    bed.bodies.put(&at("1"), r#"{"id":"a"}"#);
    redrive(&bed);
    assert_eq!(worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap().done, 1);
}

#[tokio::test(start_paused = true)]
async fn t4_the_attribute_with_a_body_that_is_no_pointer_is_malformed() {
    let (bed, book) = bed();
    let attributes = BTreeMap::from([("SQSLargePayloadSize".to_owned(), Attribute::text("1"))]);
    bed.queue("jobs").put(Outgoing { body: r#"{"id":"a"}"#.into(), attributes, ..Outgoing::default() });
    worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!(bed.dead("jobs")[0].1.as_ref().unwrap().code, "malformed");
    assert!(book.runs("a").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_build_that_cannot_fetch_says_so_and_what_to_do() {
    let (bed, _) = bed();
    send_large(&bed, "1", "hello");
    let vars = [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "message-id")];
    let worker = Worker::from_vars(vars.map(|(name, value)| (name.to_owned(), value.to_owned())))
        .adapters(Arc::new(bed.broker.clone()), Arc::new(bed.guard.clone()))
        .clock(bed.broker.clock().clone())
        .queue("jobs", keeping(&Arc::default()));
    worker.run(bed.until_idle()).await.unwrap();
    let note = bed.dead("jobs")[0].1.clone().unwrap();
    assert_eq!(note.code, "payload_in_s3");
    assert!(note.message.contains("feature `s3`") && note.message.contains("S3_PAYLOAD=pass"), "{}", note.message);
}

#[tokio::test(start_paused = true)]
async fn r5_fetch_delete_without_buckets_is_refused() {
    let (bed, book) = bed();
    let run = worker(&bed, &book, &[FETCH_DELETE[0]]).run(after(60)).await;
    let Err(WorkerError::Configuration(problems)) = run else { panic!("{run:?}") };
    assert_eq!(problems.len(), 1);
    assert!(problems[0].what.contains("any object deleted"), "{}", problems[0].what);
    assert_eq!(problems[0].mend, "LEASEHOLD_JOBS_S3_BUCKETS=payments-bodies");
}

#[tokio::test(start_paused = true)]
async fn l4_a_delivery_is_kept_while_its_body_comes_slowly() {
    let (bed, book) = bed();
    send_large(&bed, "1", r#"{"id":"a"}"#);
    bed.body_faults.next("get", Fault::DelayReply(Duration::from_secs(200)));
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, fetched(&bed)), (1, 1));
    assert_eq!(bed.queue("jobs").calls()["receive"].entries, 1);
}

#[tokio::test(start_paused = true)]
async fn l2_a_fetch_ends_with_its_delivery() {
    let (bed, book) = bed();
    send_large(&bed, "1", r#"{"id":"a"}"#);
    bed.body_faults.next("get", Fault::DelayReply(Duration::from_secs(200)));
    bed.queue_faults("jobs").next("change_visibility", Fault::Fail(Failure::HandleLost));
    let started = Instant::now();
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.left), (1, 1));
    assert!(started.elapsed() < Duration::from_secs(45), "nothing is left to wait for: {:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn d1_a_drain_during_a_fetch_that_never_answers_ends_in_time_and_gives_the_message_back() {
    let (bed, book) = bed();
    send_large(&bed, "1", r#"{"id":"a"}"#);
    bed.body_faults.always("get", Fault::Stop { applied: false });
    let started = Instant::now();
    let report = worker(&bed, &book, &[]).run(after(5)).await.unwrap();
    assert!(started.elapsed() <= Duration::from_secs(5 + 25), "{:?}", started.elapsed());
    assert_eq!((report.released, bed.queue("jobs").visible()), (1, 1));
    assert!(book.runs("a").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_being_deleted_holds_no_slot() {
    let (bed, book) = bed();
    for key in ["a", "b", "c"] {
        send_large(&bed, key, &format!(r#"{{"id":"{key}"}}"#));
    }
    // Longer than a poll is parked, which a drain waits for in any case.
    bed.body_faults.always("delete", Fault::Delay(Duration::from_secs(15)));
    let vars: Vec<_> = FETCH_DELETE.into_iter().chain([("LEASEHOLD_CONCURRENCY", "1")]).collect();
    let report = worker(&bed, &book, &vars).run(bed.until_idle()).await.unwrap();
    assert_eq!(report.done, 3);
    assert!(["a", "b", "c"].iter().all(|id| book.began(id)[0] < 10), "none waits for another's delete");
    assert_eq!(bed.bodies.keys("bodies"), [] as [&str; 0], "a drain waits for them");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_deleted_is_left_and_its_work_is_done() {
    let (bed, book) = bed();
    send_large(&bed, "1", r#"{"id":"a"}"#);
    bed.body_faults.always("delete", Fault::Fail(Failure::Denied));
    let report = worker(&bed, &book, &FETCH_DELETE).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.failed, bed.dead("jobs").len()), (1, 0, 0));
    assert_eq!(bed.bodies.keys("bodies"), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn d3_no_delete_of_a_body_outlives_the_run() {
    let (bed, book) = bed();
    send_large(&bed, "1", r#"{"id":"a"}"#);
    bed.body_faults.always("delete", Fault::Delay(Duration::from_secs(600)));
    let started = Instant::now();
    let report = worker(&bed, &book, &FETCH_DELETE).run(after(5)).await.unwrap();
    assert_eq!(report.done, 1);
    assert!(started.elapsed() <= Duration::from_secs(5 + 25), "{:?}", started.elapsed());
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(bed.bodies.keys("bodies"), ["1"], "it is cut off");
}
