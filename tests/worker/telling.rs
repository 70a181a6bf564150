//! What a worker tells of itself: false alarms and false peace, and numbers that are what happened.

use std::time::Duration;

use leasehold::{
    guard::{Control, ControlKey, Guard as _, Paused},
    status::{Overview, Sample},
    testing::{Failure, Fault, TestBed},
};
use tokio::time::sleep;

use crate::bench::{Book, after, apart, crashes_after, worker};

const MINUTE: Duration = Duration::from_secs(60);

fn bed() -> (TestBed, Book) {
    (TestBed::new(&["jobs"]), Book::new())
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_never_comes_back_is_no_life_however_well_the_other_queue_does() {
    let (bed, book) = (TestBed::new(&["jobs", "others"]), Book::new());
    bed.queue_faults("jobs").next("receive", Fault::Stop { applied: false });
    let vars = [("LEASEHOLD_QUEUES", "jobs,others")];
    let worker = worker(&bed, &book, &vars).queue("others", book.clone());
    let health = worker.health();
    let look = async {
        let mut lives = Vec::new();
        for _ in 0..2 {
            sleep(Duration::from_secs(35)).await;
            lives.push(health.status().is_live());
        }
        lives
    };
    let (_, lives) = tokio::join!(worker.run(after(80)), look);
    assert_eq!(lives, [true, false], "dead when it is late, and not before");
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_one_that_is_busy_for_hours_and_one_that_waits_are_alive() {
    let hour = 60 * MINUTE;
    let long = format!(r#"{{"id":"a","millis":{}}}"#, hour.as_millis());
    let cases: [(&str, &[(&str, &str)]); 5] = [
        ("idle", &[]),
        ("all slots taken", &[("LEASEHOLD_CONCURRENCY", "1"), ("LEASEHOLD_HANDLER_TIMEOUT", "2h")]),
        ("the table is away", &[]),
        ("paused by an operator", &[]),
        ("the queue answers with errors", &[]),
    ];
    for (case, vars) in cases {
        let (bed, book) = bed();
        match case {
            "all slots taken" => drop(bed.send("jobs", &long)),
            "the table is away" => {
                bed.send("jobs", r#"{"id":"a"}"#);
                bed.guard_faults
                    .decide_with(|call| (call.operation != "facts").then_some(Fault::Fail(Failure::Denied)));
            }
            "paused by an operator" => {
                let paused = Paused { at: bed.broker.clock().wall(), by: "me".into(), why: None };
                let control = Control { paused: Some(paused), resumed_at: None };
                bed.guard.set_control(&ControlKey::new(None, "jobs"), &control).await.unwrap();
            }
            "the queue answers with errors" => {
                bed.queue_faults("jobs").always("receive", Fault::Fail(Failure::Throttled));
            }
            _ => {}
        }
        let worker = worker(&bed, &book, vars);
        let health = worker.health();
        let look = async {
            for _ in 0..50 {
                sleep(MINUTE).await;
                let status = health.status();
                assert!(status.is_live(), "{case}: {status:?}");
                assert_eq!(status.stalled_ms, None, "{case}");
            }
        };
        tokio::join!(async { worker.run(after(51 * 60)).await.unwrap() }, look);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_alive_unready_and_says_how_long_it_may_take() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":60000}"#);
    let worker = worker(&bed, &book, &[]);
    let health = worker.health();
    let look = async {
        sleep(Duration::from_secs(15)).await;
        (health.status(), health.overview())
    };
    let (_, (status, told)) = tokio::join!(worker.run(after(10)), look);
    assert!(status.is_live() && !status.is_ready());
    assert_eq!((told.drain_left_ms, told.queues["jobs"].running_total), (Some(20_000), 1));
}

/// What is told after half an hour of all kinds of work.
async fn all_kinds() -> (Overview, Vec<Sample>, TestBed, Overview) {
    let (bed, book) = bed();
    for body in [
        r#"{"id":"done"}"#,
        r#"{"id":"done"}"#,
        r#"{"id":"again","first":["fail","fail"]}"#,
        r#"{"id":"never","first":["fail_for_good"]}"#,
        r#"{"id":"later","first":["not_yet"]}"#,
        r#"{"id":"long","millis":40000}"#,
        "{",
    ] {
        bed.send("jobs", body);
    }
    let worker = worker(&bed, &book, &[]);
    let health = worker.health();
    let look = async {
        sleep(Duration::from_secs(31)).await;
        let in_the_midst = health.overview();
        sleep(10 * MINUTE).await;
        (in_the_midst, health.overview(), health.history())
    };
    let (_, (in_the_midst, told, mut history)) = tokio::join!(worker.run(after(700)), look);
    (told, history.queues.remove("jobs").unwrap(), bed, in_the_midst)
}

#[tokio::test(start_paused = true)]
async fn every_delivery_ends_in_one_outcome_and_failures_are_told_with_what_follows() {
    let (told, _, _bed, in_the_midst) = all_kinds().await;
    let jobs = &told.queues["jobs"];
    let of = |outcome: &str| jobs.outcomes[outcome];
    assert_eq!((of("done"), of("suppressed"), of("held")), (4, 1, 1), "{:?}", jobs.outcomes);
    assert_eq!((of("failed"), of("dead_lettered"), of("not_yet"), of("left")), (2, 2, 1, 0), "{:?}", jobs.outcomes);
    assert_eq!(jobs.received, jobs.outcomes.values().sum::<u64>(), "{:?}", jobs.outcomes);
    assert_eq!((jobs.in_hand, jobs.running_total, jobs.started), (0, 0, 9), "of which one is an undo");
    assert_eq!(jobs.failed_by_code, [("failing".to_owned(), 2)].into());
    assert_eq!(jobs.dead_by_code, [("hopeless".to_owned(), 1), ("malformed".to_owned(), 1)].into());
    assert!(jobs.beats["delivery"]["renewed"] > 0 && jobs.beats["execution"]["renewed"] > 0, "{:?}", jobs.beats);
    assert_eq!((jobs.late_beats, jobs.takeovers, jobs.leases_lost["execution"]), (0, 0, 0));
    let told: Vec<_> = jobs.failures.iter().map(|failure| (failure.code.as_str(), failure.permanent)).collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told.contains(&("hopeless", true)) && told.contains(&("failing", false)), "{told:?}");
    let again = jobs.failures.iter().find(|failure| failure.attempt == 1 && failure.code == "failing").unwrap();
    assert!(again.follows.starts_with("again in ") && again.error == "it failed", "{again:?}");
    assert_eq!(again.key.as_deref(), Some("jobs#again"));
    assert_eq!(jobs.failures.iter().find(|failure| failure.code == "hopeless").unwrap().follows, "dead-lettered");
    // While it ran.
    let run = &in_the_midst.queues["jobs"].running[0];
    assert_eq!((run.key.as_deref(), run.attempt, run.undo), (Some("jobs#long"), 1, false));
    assert!((30_000..=31_000).contains(&run.age_ms) && run.lease_left_ms > 10_000 && run.past_p99, "{run:?}");
}

#[tokio::test(start_paused = true)]
async fn samples_of_the_past_add_up_to_what_happened() {
    let (told, samples, ..) = all_kinds().await;
    let outcomes = &told.queues["jobs"].outcomes;
    let sum = |of: fn(&Sample) -> u64| samples.iter().map(of).sum::<u64>();
    assert_eq!(sum(|sample| sample.done), outcomes["done"]);
    assert_eq!(sum(|sample| sample.failed), outcomes["failed"]);
    assert_eq!(sum(|sample| sample.dead), outcomes["dead_lettered"]);
    assert_eq!(sum(|sample| sample.suppressed), outcomes["suppressed"]);
    assert!(samples.iter().any(|sample| sample.in_flight == 1) && samples.len() <= 180, "{}", samples.len());
    assert!(samples.windows(2).all(|two| two[1].at - two[0].at == 5_000));
}

#[tokio::test(start_paused = true)]
async fn queues_are_looked_into_only_while_somebody_looks() {
    let (bed, book) = bed();
    let (worker, [queue, ..]) = apart(&bed, worker(&bed, &book, &[]));
    let health = worker.health();
    let calls = || queue.calls().get("depth").copied().unwrap_or_default();
    let look = async {
        sleep(10 * MINUTE).await;
        assert_eq!((calls(), health.overview().queues["jobs"].depth), (0, None));
        let viewers = [health.looks(), health.looks()];
        sleep(MINUTE).await;
        let asked = calls();
        assert!((5..=7).contains(&asked), "{asked} in a minute, for all who look");
        assert_eq!(health.overview().queues["jobs"].depth.unwrap().visible, 0);
        drop(viewers);
        sleep(10 * MINUTE).await;
        assert!(calls() <= asked + 1, "nobody looks any more");
        assert_eq!(health.overview().queues["jobs"].depth, None, "and an old number is none");
    };
    tokio::join!(async { worker.run(after(22 * 60)).await.unwrap() }, look);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_cannot_be_looked_into_is_told_without() {
    let (bed, book) = bed();
    let (worker, [queue, ..]) = apart(&bed, worker(&bed, &book, &[]));
    queue.always("depth", Fault::Fail(Failure::Denied));
    let health = worker.health();
    let look = async {
        let _viewer = health.looks();
        sleep(MINUTE).await;
        assert!(health.status().is_ready());
        assert_eq!(health.overview().queues["jobs"].depth, None);
    };
    tokio::join!(async { worker.run(after(90)).await.unwrap() }, look);
}

#[tokio::test(start_paused = true)]
async fn a_takeover_a_lost_lease_and_an_outage_are_counted() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":1000}"#);
    crashes_after(Duration::from_millis(500), worker(&bed, &book, &[])).await;
    let heir = worker(&bed, &book, &[]);
    let health = heir.health();
    let look = async {
        sleep(2 * MINUTE).await;
        let took_over = health.overview();
        bed.guard_faults.decide_with(|_| Some(Fault::Fail(Failure::Denied)));
        bed.send("jobs", r#"{"id":"b","millis":120000}"#);
        sleep(MINUTE).await;
        (took_over, health.overview())
    };
    let (_, (took_over, away)) = tokio::join!(heir.run(after(200)), look);
    let jobs = &took_over.queues["jobs"];
    assert_eq!((jobs.takeovers, jobs.outcomes["done"]), (1, 1), "{jobs:?}");
    assert!(took_over.circuits.is_empty() && took_over.ready);
    assert_eq!((away.circuits[0].state, away.ready, away.live), ("open", false, true));
    assert!(away.circuits[0].what.contains("table") && away.circuits[0].ends.contains("probe"), "{:?}", away.circuits);
}
