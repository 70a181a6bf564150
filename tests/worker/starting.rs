//! Everything that is looked at before the first receive (rule R5).

use std::time::Duration;

use leasehold::{
    Handler, HandlerResult, JobContext, Raw, Shutdown, WorkerError,
    guard::{TableFacts, TableKey},
    handler,
    queue::DeduplicationScope,
    testing::{Failure, Fault, MemoryQueueSettings, TestBed},
};
use tokio::time::{Instant, sleep};

use crate::bench::{Book, worker};

async fn nothing(_: &Raw, _: &JobContext) -> HandlerResult {
    Ok(())
}

/// What is told of a worker that must not start.
async fn refusal(worker: leasehold::Worker) -> Vec<String> {
    match worker.run(Shutdown::when(sleep(Duration::from_secs(60)))).await {
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
        ..TableFacts::default()
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

#[tokio::test(start_paused = true)]
async fn r5_available_starts_the_good_queues_and_the_others_when_they_are_mended() {
    let (bed, book) = (TestBed::new(&["good"]), Book::new());
    let vars = [
        ("LEASEHOLD_QUEUES", "good,absent"),
        ("LEASEHOLD_KEY", "/id"),
        ("LEASEHOLD_START", "available"),
        ("LEASEHOLD_ABSENT_OPERATION", "other"),
    ];
    bed.send("good", r#"{"id":"a"}"#);
    let worker = bed.worker(&vars).queue("good", book.clone()).queue("absent", book.clone());
    let health = worker.health();
    let mend = async {
        sleep(Duration::from_secs(30)).await;
        let status = health.status();
        bed.add("absent", 100);
        bed.send("absent", r#"{"id":"b"}"#);
        sleep(Duration::from_secs(45)).await;
        (status, health.status())
    };
    let (report, (status, mended)) = tokio::join!(worker.run(Shutdown::when(sleep(Duration::from_secs(90)))), mend);
    assert_eq!(report.unwrap().done, 2);
    assert!(!status.is_ready() && status.problems.iter().any(|what| what.contains("absent")), "{status:?}");
    assert_eq!(status.queues.keys().collect::<Vec<_>>(), ["good"]);
    assert!(mended.is_ready() && mended.queues.len() == 2, "{mended:?}");
    assert!((59..=72).contains(&book.began("b")[0]), "looked at again after a minute: {:?}", book.began("b"));
}

#[tokio::test(start_paused = true)]
async fn r5_available_does_not_start_without_any_good_queue() {
    let bed = TestBed::new(&[]);
    let vars = [("LEASEHOLD_QUEUES", "a,b"), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_START", "available")];
    let problems = refusal(bed.worker(&vars).queue("a", handler(nothing)).queue("b", handler(nothing))).await;
    assert_eq!(problems.len(), 2, "{problems:#?}");
}

#[tokio::test(start_paused = true)]
async fn r5_available_starts_what_needs_no_table_without_one() {
    let (bed, book) = (TestBed::new(&["free", "guarded"]), Book::new());
    bed.guard_faults.always("facts", Fault::Fail(Failure::Missing));
    bed.send("free", r#"{"id":"a"}"#);
    let vars = [
        ("LEASEHOLD_QUEUES", "free,guarded"),
        ("LEASEHOLD_KEY", "/id"),
        ("LEASEHOLD_START", "available"),
        ("LEASEHOLD_FREE_GUARD", "none"),
    ];
    let worker = bed.worker(&vars).queue("free", book.clone()).queue("guarded", book.clone());
    let report = worker.run(bed.until_idle()).await.unwrap();
    assert_eq!(report.done, 1);
}

#[tokio::test(start_paused = true)]
async fn r5_a_key_from_ids_that_the_queue_does_not_give_or_does_not_keep_apart_is_refused() {
    let bed = TestBed::new(&["plain", "usual.fifo"]);
    let high_throughput = MemoryQueueSettings {
        deduplication_scope: DeduplicationScope::MessageGroup,
        redrive: Some(("usual-dlq.fifo".into(), 5)),
        ..MemoryQueueSettings::default()
    };
    bed.broker.create("fast.fifo", high_throughput);
    for (queue, key, mended) in [
        ("plain", "dedup-id", Some("_KEY=/order_id")),
        ("plain", "group-id,dedup-id", Some("_KEY=/order_id")),
        ("fast.fifo", "dedup-id", Some("_KEY=group-id,dedup-id")),
        ("fast.fifo", "group-id,dedup-id", None),
        ("usual.fifo", "dedup-id", None),
    ] {
        let vars = [("LEASEHOLD_QUEUES", queue), ("LEASEHOLD_KEY", key)];
        let worker = bed.worker(&vars).queue(queue, handler(nothing));
        match mended {
            Some(mended) => {
                let problems = refusal(worker).await;
                assert!(matches!(&problems[..], [problem] if problem.contains(mended)), "{queue} {key}: {problems:?}");
            }
            None => drop(worker.run(Shutdown::when(sleep(Duration::from_secs(1)))).await.expect("it starts")),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r5_a_dead_letter_queue_that_is_not_there_is_told_before_the_first_receive() {
    let bed = TestBed::new(&["jobs"]);
    let elsewhere = MemoryQueueSettings { redrive: Some(("gone".into(), 5)), ..MemoryQueueSettings::default() };
    bed.broker.create("moved", elsewhere);
    for (queue, dead_letter) in [("moved", "redrive-policy"), ("jobs", "gone")] {
        let vars = [("LEASEHOLD_QUEUES", queue), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_DEAD_LETTER", dead_letter)];
        let problems = refusal(bed.worker(&vars).queue(queue, handler(nothing))).await;
        let told = matches!(&problems[..], [problem] if problem.contains("gone") && problem.contains("DEAD_LETTER"));
        assert!(told, "{queue}: {problems:#?}");
        assert!(!bed.queue_faults(queue).calls().contains_key("receive"));
    }
}
