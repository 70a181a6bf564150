//! How fast a worker takes messages, and when it holds back on purpose: polls that adapt (rule R6), a visibility timeout
//! that follows the handlers (L3), rates, limits over all queues, and the brake.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold::{
    Health, JobContext, QueueStatus, Raw, ResultExt,
    guard::{Control, ControlKey, Guard, Paused},
    handler,
    testing::{Failure, Fault, MemoryQueueSettings, TestBed},
};
use tokio::time::{Instant, sleep};

use crate::bench::{Book, after, worker};

fn bed() -> (TestBed, Book) {
    (TestBed::new(&["jobs"]), Book::new())
}

fn send(bed: &TestBed, ids: std::ops::Range<usize>, rest: &str) {
    for id in ids {
        bed.send("jobs", format!(r#"{{"id":"{id}"{rest}}}"#));
    }
}

/// When the last of the messages was done, from the book's opening.
fn last_end(book: &Book, messages: usize) -> Duration {
    (0..messages).filter_map(|id| book.runs(&id.to_string()).last()?.ended).max().unwrap()
}

/// What the worker says of its queue at that time.
async fn seen_at(health: Health, secs: u64) -> QueueStatus {
    sleep(Duration::from_secs(secs)).await;
    health.status().queues["jobs"].clone()
}

#[tokio::test(start_paused = true)]
async fn r6_one_long_poll_is_parked_on_an_idle_queue() {
    let (bed, book) = bed();
    worker(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "100")]).run(after(600)).await.unwrap();
    let polls = bed.queue("jobs").calls()["receive"].calls;
    assert!((59..=61).contains(&polls), "{polls} polls of ten seconds in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn r6_a_backlog_is_fetched_by_more_polls_at_once_as_far_as_slots_can_use_them() {
    let (bed, book) = bed();
    send(&bed, 0..1000, r#","millis":1000"#);
    bed.queue_faults("jobs").always("receive", Fault::DelayReply(Duration::from_millis(200)));
    worker(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "100")]).run(bed.until_idle()).await.unwrap();
    // One poll at a time would fetch fifty messages a second.
    let took = last_end(&book, 1000);
    assert!((10..=15).contains(&took.as_secs()), "{took:?}");
    let polls = bed.queue("jobs").calls()["receive"].calls;
    assert!(polls <= 100 + 30, "{polls} polls for 1000 messages");
}

#[tokio::test(start_paused = true)]
async fn r6_polls_are_few_again_when_the_backlog_is_gone() {
    let (bed, book) = bed();
    send(&bed, 0..1000, "");
    let faults = bed.queue_faults("jobs");
    faults.always("receive", Fault::DelayReply(Duration::from_millis(50)));
    let look = async {
        sleep(Duration::from_secs(60)).await;
        let before = faults.calls()["receive"];
        sleep(Duration::from_secs(600)).await;
        faults.calls()["receive"] - before
    };
    let (_, polls) = tokio::join!(worker(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "200")]).run(after(700)), look);
    assert!(polls <= 61, "{polls} polls in ten idle minutes");
}

#[tokio::test(start_paused = true)]
async fn r1_slots_do_not_wait_for_each_other_longer_than_a_receive_is_worth() {
    let (bed, book) = bed();
    // Sixteen slots that are always busy, each for a tenth of a second.
    for id in 0..1600 {
        bed.send("jobs", format!(r#"{{"id":"{id}","millis":{}}}"#, 60 + id * 7919 % 81));
    }
    worker(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "16")]).run(bed.until_idle()).await.unwrap();
    let (took, receives) = (last_end(&book, 1600), bed.queue("jobs").calls()["receive"].calls);
    assert!(took < Duration::from_secs(13), "{took:?}, where ten seconds are the least");
    assert!(receives <= 1600 / 5 + 10, "{receives} receives for 1600 messages");
}

#[tokio::test(start_paused = true)]
async fn l3_the_visibility_timeout_follows_the_handlers_so_that_they_need_no_beats() {
    let (bed, book) = bed();
    send(&bed, 0..40, r#","millis":40000"#);
    let vars = [("LEASEHOLD_VISIBILITY_TIMEOUT", "30s..2m"), ("LEASEHOLD_CONCURRENCY", "10")];
    let worker = worker(&bed, &book, &vars);
    let health = worker.health();
    let looks = async {
        let first = seen_at(health.clone(), 39).await.visibility_timeout;
        let beats = bed.queue("jobs").calls()["change_visibility"].entries;
        let later = seen_at(health, 50).await.visibility_timeout;
        (first, beats, later)
    };
    let (report, (first, beats, later)) = tokio::join!(worker.run(bed.until_idle()), looks);
    assert_eq!((report.unwrap().done, first), (40, 30));
    assert!((80..=82).contains(&later), "twice of 40 s: {later}");
    assert!(beats >= 10, "the first ten outlast thirty seconds: {beats}");
    assert_eq!(bed.queue("jobs").calls()["change_visibility"].entries, beats, "and no other needs a beat");
}

#[tokio::test(start_paused = true)]
async fn l3_both_leases_have_the_length_that_was_in_force_when_they_began() {
    let bed = TestBed::new(&[]);
    let book = Book::new();
    bed.broker.create("jobs-dlq", MemoryQueueSettings::default());
    let (redrive, visibility) = (Some(("jobs-dlq".into(), 100)), Duration::from_secs(75));
    bed.broker.create("jobs", MemoryQueueSettings { redrive, visibility, ..MemoryQueueSettings::default() });
    bed.send("jobs", r#"{"id":"a","first":["hang"]}"#);
    let vars = [("LEASEHOLD_VISIBILITY_TIMEOUT", "30s..2m")];
    let sent = bed.broker.clock().wall();
    let look = async {
        sleep(Duration::from_secs(5)).await;
        bed.guard.records()[0].lease_until.since(sent).as_secs()
    };
    let (_, lease) = tokio::join!(worker(&bed, &book, &vars).run(after(6)), look);
    assert!((74..=76).contains(&lease), "the queue's own 75 s: {lease}");
}

#[tokio::test(start_paused = true)]
async fn no_more_messages_are_begun_in_a_second_than_the_rate_allows() {
    let (bed, book) = bed();
    send(&bed, 0..50, "");
    let start = Instant::now();
    worker(&bed, &book, &[("LEASEHOLD_RATE", "5")]).run(bed.until_idle()).await.unwrap();
    assert!((9..=11).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    for second in 0..10 {
        let begun = (0..50).filter(|id| book.began(&id.to_string())[0] == second).count();
        assert!(begun <= 6, "{begun} in second {second}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_not_used_up_by_polls_that_bring_nothing() {
    let (bed, book) = bed();
    let feed = async {
        sleep(Duration::from_secs(60)).await;
        send(&bed, 0..4, "");
        sleep(Duration::from_secs(2)).await;
        book.completed().len()
    };
    let vars = [("LEASEHOLD_RATE", "4"), ("LEASEHOLD_WAIT_TIME", "0s")];
    let (_, completed) = tokio::join!(worker(&bed, &book, &vars).run(after(70)), feed);
    assert_eq!(completed, 4);
}

#[tokio::test(start_paused = true)]
async fn a_limit_over_all_queues_is_kept_and_an_idle_queue_takes_nothing_from_a_busy_one() {
    let (bed, book) = (TestBed::new(&["jobs", "idle"]), Book::new());
    send(&bed, 0..60, r#","millis":1000"#);
    let vars =
        [("LEASEHOLD_QUEUES", "jobs,idle"), ("LEASEHOLD_TOTAL_CONCURRENCY", "8"), ("LEASEHOLD_CONCURRENCY", "20")];
    let worker = worker(&bed, &book, &vars).queue("idle", book.clone());
    worker.run(bed.until_idle()).await.unwrap();
    let runs: Vec<_> = (0..60).flat_map(|id| book.runs(&id.to_string())).collect();
    let at_once =
        |at: Duration| runs.iter().filter(|run| run.began <= at && run.ended.is_none_or(|end| end > at)).count();
    let most = runs.iter().map(|run| at_once(run.began)).max().unwrap();
    assert!(most <= 8, "{most} at once");
    // Eight at a time are 7.5 s; two of the eight are parked with the idle queue's poll at the most.
    assert!(last_end(&book, 60) < Duration::from_secs(13), "{:?}", last_end(&book, 60));
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_permanent_failures_slows_the_queue_to_a_trickle_until_successes_return() {
    let bed = TestBed::new(&["jobs"]);
    send(&bed, 0..1000, "");
    let bad_deploy = Arc::new(AtomicBool::new(true));
    let deployed = Arc::clone(&bad_deploy);
    let handler = handler(move |_: &Raw, _: &JobContext| {
        let bad = deployed.load(Ordering::Relaxed);
        async move { if bad { Err("a field is missing").permanent().reason("bad_deploy") } else { Ok(()) } }
    });
    let worker = bed.worker(&[("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_CONCURRENCY", "10")]);
    let worker = worker.queue("jobs", handler);
    let health = worker.health();
    let looks = async {
        let braked = seen_at(health.clone(), 10).await;
        let soon = bed.dead("jobs").len();
        sleep(Duration::from_secs(600)).await;
        let later = bed.dead("jobs").len();
        bad_deploy.store(false, Ordering::Relaxed);
        let mended = seen_at(health, 45).await;
        (braked, soon, later, mended)
    };
    let (report, (braked, soon, later, mended)) = tokio::join!(worker.run(bed.until_idle()), looks);
    assert!((20..=40).contains(&soon), "{soon} in ten seconds");
    assert!((soon + 20..=soon + 100).contains(&later), "{later} in ten minutes, a few every half a minute");
    let pause = &braked.pauses[0];
    assert!(pause.what.contains("brake") && pause.cause.contains("bad_deploy"), "{pause:?}");
    assert!(pause.ends.contains("resume") && pause.ends.contains("succeeds"), "{pause:?}");
    assert_eq!(mended.pauses, []);
    assert_eq!(report.unwrap().done, 1000 - later as u64);
}

async fn say(bed: &TestBed, control: Control) {
    bed.guard.set_control(&ControlKey::new(None, "jobs"), &control).await.unwrap();
}

fn paused(bed: &TestBed) -> Control {
    let paused = Paused { at: bed.broker.clock().wall(), by: "ann@desk".into(), why: Some("the bank".into()) };
    Control { paused: Some(paused), resumed_at: None }
}

fn resumed(bed: &TestBed) -> Control {
    Control { paused: None, resumed_at: Some(bed.broker.clock().wall()) }
}

#[tokio::test(start_paused = true)]
async fn an_operators_pause_is_heard_within_seconds_and_holds_until_resume() {
    let (bed, book) = bed();
    let worker = worker(&bed, &book, &[]);
    let health = worker.health();
    let operator = async {
        sleep(Duration::from_secs(30)).await;
        say(&bed, paused(&bed)).await;
        // Heard within five seconds; a poll that is parked by then may bring something for ten more.
        let pauses = seen_at(health.clone(), 16).await.pauses;
        send(&bed, 0..20, "");
        sleep(Duration::from_secs(3600)).await;
        let meanwhile = book.completed().len();
        say(&bed, resumed(&bed)).await;
        let after = seen_at(health, 6).await.pauses;
        (pauses, meanwhile, after, book.completed().len())
    };
    let (_, (pauses, meanwhile, after, completed)) = tokio::join!(worker.run(after(3700)), operator);
    assert!(pauses.len() == 1 && pauses[0].cause.contains("ann@desk") && pauses[0].cause.contains("the bank"));
    assert!(pauses[0].ends.contains("leasehold resume"), "{pauses:?}");
    assert_eq!((meanwhile, after.as_slice(), completed), (0, [].as_slice(), 20));
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_paused_before_a_worker_starts_is_not_received_from_even_once() {
    let (bed, book) = bed();
    say(&bed, paused(&bed)).await;
    send(&bed, 0..5, "");
    worker(&bed, &book, &[]).run(after(600)).await.unwrap();
    assert!(!bed.queue("jobs").calls().contains_key("receive"));
}

#[tokio::test(start_paused = true)]
async fn what_operators_say_that_cannot_be_heard_changes_nothing() {
    for failure in [Failure::Denied, Failure::NoAnswer, Failure::Missing] {
        let (bed, book) = bed();
        let outage = async {
            sleep(Duration::from_secs(20)).await;
            say(&bed, paused(&bed)).await;
            sleep(Duration::from_secs(16)).await;
            bed.guard_faults.always("control", Fault::Fail(failure));
            say(&bed, resumed(&bed)).await;
            send(&bed, 0..5, "");
            sleep(Duration::from_secs(60)).await;
            let meanwhile = book.completed().len();
            bed.guard_faults.clear();
            sleep(Duration::from_secs(10)).await;
            (meanwhile, book.completed().len())
        };
        let (_, completed) = tokio::join!(worker(&bed, &book, &[]).run(after(120)), outage);
        assert_eq!(completed, (0, 5), "{failure:?}: a pause holds; and it is heard again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_resume_releases_the_brake() {
    let (bed, book) = bed();
    send(&bed, 0..200, r#","first":["fail_for_good"]"#);
    let worker = worker(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "10")]);
    let health = worker.health();
    let operator = async {
        let braked = seen_at(health.clone(), 10).await.pauses.len();
        let before = bed.dead("jobs").len();
        say(&bed, resumed(&bed)).await;
        sleep(Duration::from_secs(6)).await;
        (braked, bed.dead("jobs").len() - before)
    };
    let (_, (braked, freed)) = tokio::join!(worker.run(after(60)), operator);
    assert_eq!(braked, 1);
    assert!(freed >= 20, "it counts from the beginning: {freed}");
}

#[tokio::test(start_paused = true)]
async fn some_poison_among_good_messages_does_not_slow_a_queue() {
    let (bed, book) = bed();
    for id in 0..400 {
        let rest = if id % 3 == 0 { r#","first":["fail_for_good"]"# } else { "" };
        send(&bed, id..id + 1, rest);
    }
    let start = Instant::now();
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, report.dead), (266, 134));
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}
