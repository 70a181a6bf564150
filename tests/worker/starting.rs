//! Everything that is looked at before the first receive (rule R5).

use leasehold::{
    Handler, HandlerResult, JobContext, Raw, Shutdown, WorkerError,
    guard::{TableFacts, TableKey},
    handler,
    testing::{Failure, Fault, MemoryQueueSettings, TestBed},
};
use tokio::time::Instant;

use crate::bench::{Book, worker};

async fn nothing(_: &Raw, _: &JobContext) -> HandlerResult {
    Ok(())
}

/// What is told of a worker that must not start.
async fn refusal(worker: leasehold::Worker) -> Vec<String> {
    match worker.run(Shutdown::new()).await {
        Err(WorkerError::Configuration(problems)) => problems.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn r5_all_problems_of_settings_and_handlers_are_told_at_once() {
    let bed = TestBed::new(&["payments", "emails", "orders"]);
    let vars = [("LEASEHOLD_QUEUES", "payments,emails,orders"), ("LEASEHOLD_PAYMENTS_KEY", "/id")];
    let worker = bed
        .worker(&vars)
        .queue("payments", handler(nothing).key(|m| m.0.body.clone()))
        .queue("emails", handler(nothing))
        .queue("oders", handler(nothing));
    let problems = refusal(worker).await;
    assert_eq!(problems.len(), 4, "{problems:#?}");
    for (problem, part) in problems.iter().zip(["LEASEHOLD_EMAILS_KEY", "no handler", "in code and by", "oders"]) {
        assert!(problems.iter().any(|problem| problem.contains(part)), "{part}: {problem}");
    }
}

#[tokio::test(start_paused = true)]
async fn r5_all_problems_of_queues_and_table_are_told_at_once() {
    let bed = TestBed::new(&["good"]);
    bed.broker.create("alone", MemoryQueueSettings::default());
    let kept = MemoryQueueSettings { redrive: Some(("good-dlq".into(), 5)), ..MemoryQueueSettings::default() };
    bed.broker.create("kept", kept);
    let vars =
        [("LEASEHOLD_QUEUES", "good,alone,absent,kept"), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_KEPT_DONE_TTL", "1h")];
    bed.guard.set_facts(TableFacts {
        key: TableKey { hash: "id".into(), is_string: true, range: None },
        ttl: Ok(Some("ttl".into())),
    });
    let mut worker = bed.worker(&vars);
    for name in ["good", "alone", "absent", "kept"] {
        worker = worker.queue(name, handler(nothing));
    }
    let problems = refusal(worker).await;
    for part in
        ["\"alone\" has no dead-letter", "no queue absent", "LEASEHOLD_KEPT_DONE_TTL", "the key \"id\"", "TTL of"]
    {
        assert!(problems.iter().any(|problem| problem.contains(part)), "{part}: {problems:#?}");
    }
    assert_eq!(problems.len(), 5, "{problems:#?}");
}

#[tokio::test(start_paused = true)]
async fn r5_what_cannot_be_looked_at_is_a_warning_and_the_worker_starts() {
    let (bed, book) = (TestBed::new(&["jobs"]), Book::new());
    bed.send("jobs", r#"{"id":"a"}"#);
    bed.queue_faults("jobs").always("facts", Fault::Fail(Failure::Denied));
    bed.guard_faults.always("facts", Fault::Fail(Failure::Denied));
    let report = worker(&bed, &book, &[("LEASEHOLD_DEAD_LETTER", "jobs-dlq")]).run(bed.until_idle()).await.unwrap();
    assert_eq!(report.done, 1);
}

#[tokio::test(start_paused = true)]
async fn r5_what_cannot_be_reached_is_tried_until_the_start_timeout() {
    let (bed, book) = (TestBed::new(&["jobs"]), Book::new());
    bed.queue_faults("jobs").always("facts", Fault::Fail(Failure::Unavailable));
    let start = Instant::now();
    let error = worker(&bed, &book, &[("LEASEHOLD_START_TIMEOUT", "30s")]).run(Shutdown::new()).await.unwrap_err();
    assert!(matches!(&error, WorkerError::Unavailable(what) if what.contains("jobs")), "{error}");
    assert!((28..=30).contains(&start.elapsed().as_secs()));
}

#[tokio::test(start_paused = true)]
async fn r5_what_is_reached_in_time_starts() {
    let (bed, book) = (TestBed::new(&["jobs"]), Book::new());
    bed.send("jobs", r#"{"id":"a"}"#);
    for _ in 0..5 {
        bed.guard_faults.next("facts", Fault::Fail(Failure::NoAnswer));
    }
    let report = worker(&bed, &book, &[]).run(bed.until_idle()).await.unwrap();
    assert_eq!(report.done, 1);
}

#[tokio::test(start_paused = true)]
async fn d3_a_stop_before_the_start_ends_at_once() {
    let (bed, book) = (TestBed::new(&["jobs"]), Book::new());
    bed.queue_faults("jobs").always("facts", Fault::Fail(Failure::Unavailable));
    let shutdown = Shutdown::new();
    shutdown.drain();
    let report = worker(&bed, &book, &[]).run(shutdown).await.unwrap();
    assert_eq!(report, leasehold::StopReport::default());
}
