//! Sequences of events that have broken workers like this one, each as a test of its own.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy takes for production code here"
)]

use std::{
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use leasehold::{
    CancelCause, Handler, HandlerResult, JobContext, Shutdown, StopReport, Worker,
    guard::{Pk, Record, Status},
    testing::{Failure, Fault, Faults, TestBed},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{JoinSet, spawn_blocking, yield_now},
    time::{Instant, advance, sleep, timeout},
};

use crate::bench::{self, Book, Job, crashes_after, worker};

const SECOND: Duration = Duration::from_secs(1);

/// A worker with faults of its own: of its queue, of its dead-letter queue, and of the guard.
fn apart(bed: &TestBed, book: &Book, vars: &[(&str, &str)]) -> (Worker, [Faults; 3]) {
    bench::apart(bed, worker(bed, book, vars))
}

fn bed() -> (TestBed, Book) {
    (TestBed::new(&["jobs"]), Book::new())
}

fn record(bed: &TestBed, id: &str) -> Record {
    bed.guard.record(&Pk(format!("jobs#{id}"))).expect("it was claimed")
}

#[tokio::test(start_paused = true)]
async fn t3_a_crash_between_dead_and_its_copy_leaves_copies_of_one_failure_when_two_deliveries_race() {
    let (bed, book) = bed();
    let alone = [("LEASEHOLD_CONCURRENCY", "1")];
    let body = r#"{"id":"a","first":["fail_for_good"]}"#;
    let [first, _] = [(); 2].map(|()| bed.send("jobs", body).expect("it is sent"));
    let (dying, [_, copies, _]) = apart(&bed, &book, &alone);
    copies.next("send", Fault::Stop { applied: false });
    crashes_after(5 * SECOND, dying).await;
    assert_eq!((record(&bed, "a").status, record(&bed, "a").copied), (Status::Dead, false));
    assert_eq!(bed.dead("jobs"), []);

    assert!(bed.queue("jobs").redeliver(&first));
    let (one, [_, slow, _]) = apart(&bed, &book, &alone);
    let (two, _) = apart(&bed, &book, &alone);
    slow.next("send", Fault::Delay(5 * SECOND));
    let (one, two) = tokio::join!(one.run(bed.until_idle()), two.run(bed.until_idle()));
    assert_eq!(one.unwrap().dead + two.unwrap().dead, 2, "both find that there is no copy yet");
    let ids: Vec<_> = bed.dead("jobs").into_iter().map(|(_, note)| note.expect("a reason").failure_id).collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(ids[0], ids[1], "tools fold copies of one failure");
    assert_eq!((book.runs("a").len(), record(&bed, "a").copied), (1, true));
}

#[tokio::test(start_paused = true)]
async fn t3_a_crash_between_the_copy_and_its_mark_makes_a_second_copy_and_loses_none() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","first":["fail_for_good"]}"#);
    let (dying, [_, copies, _]) = apart(&bed, &book, &[]);
    copies.next("send", Fault::Stop { applied: true });
    crashes_after(5 * SECOND, dying).await;
    let (next, _) = apart(&bed, &book, &[]);
    next.run(bed.until_idle()).await.unwrap();
    assert_eq!((bed.dead("jobs").len(), book.runs("a").len(), record(&bed, "a").copied), (2, 1, true));
}

#[tokio::test(start_paused = true)]
async fn g3_a_confirm_whose_every_reply_is_lost_is_done_and_never_runs_again() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a"}"#);
    let (deaf, [_, _, guard]) = apart(&bed, &book, &[]);
    guard.always("confirm", Fault::LoseReply);
    let report = deaf.run(Shutdown::when(sleep(100 * SECOND))).await.unwrap();
    assert_eq!(report.done, 0, "it never hears that it is done");
    assert_eq!(record(&bed, "a").status, Status::Done);
    assert_eq!(bed.queue("jobs").visible(), 0, "finished work is left to its timeout, not given back");

    let (next, _) = apart(&bed, &book, &[]);
    let report = next.run(bed.until_idle()).await.unwrap();
    assert_eq!((report.suppressed, book.runs("a").len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn g2_a_former_owners_renewal_that_lands_after_the_takeover_changes_nothing() {
    let (bed, book) = bed();
    for _ in 0..2 {
        bed.send("jobs", r#"{"id":"a","millis":60000}"#);
    }
    let (former, [_, _, guard]) = apart(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "1")]);
    guard.always("renew", Fault::Hang);
    guard.next("renew", Fault::HangThenApply(25 * SECOND));
    // Its writes after the run are on the wire for as long: it still believes that it may give the claim back.
    guard.always("release", Fault::Hang);
    let (next, _) = apart(&bed, &book, &[]);
    let later = async {
        sleep(SECOND).await;
        next.run(bed.until_idle()).await
    };
    let (_, report) = tokio::join!(timeout(90 * SECOND, former.run(Shutdown::new())), later);
    assert!(report.unwrap().done >= 1);
    let runs = book.runs("a");
    assert_eq!((runs.len(), runs[0].cancelled), (2, Some(CancelCause::LeaseLost)));
    assert!(runs[1].began >= 32 * SECOND, "lease and skew are waited for: {:?}", runs[1].began);
    guard.landed().await;
    let writes = bed.guard.history();
    let takeover = writes.iter().position(|(name, _)| *name == "take_over").expect("it was taken over");
    let fence = writes[takeover].1.fence;
    assert!(writes[takeover..].iter().all(|(_, record)| record.fence == fence), "{writes:#?}");
}

#[tokio::test(start_paused = true)]
async fn g1_a_renewal_that_lands_between_look_and_takeover_is_honoured() {
    let (bed, book) = bed();
    for _ in 0..2 {
        bed.send("jobs", r#"{"id":"a","millis":60000}"#);
    }
    let (former, [_, _, faults]) = apart(&bed, &book, &[("LEASEHOLD_CONCURRENCY", "1")]);
    faults.always("renew", Fault::Hang);
    // Sent between 15 and 18 seconds after the claim; lands when the other has seen that the lease is over.
    faults.next("renew", Fault::HangThenApply(20 * SECOND));
    faults.always("release", Fault::Hang);
    let (next, [_, _, slow]) = apart(&bed, &book, &[]);
    slow.next("take_over", Fault::Delay(8 * SECOND));
    let later = async {
        sleep(SECOND).await;
        next.run(bed.until_idle()).await
    };
    let (_, report) = tokio::join!(timeout(90 * SECOND, former.run(Shutdown::new())), later);
    assert!(report.unwrap().done >= 1);
    let renewed = bed.guard.history().into_iter().find(|(name, _)| *name == "renew").expect("it has landed").1;
    let taken = bed.guard.history().into_iter().find(|(name, _)| *name == "take_over").expect("in the end").1;
    assert!(taken.updated_at >= renewed.lease_until + 2 * SECOND, "{taken:?} although {renewed:?}");
    assert_eq!(book.runs("a").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn l6_a_renewal_that_lands_after_its_own_release_changes_nothing() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":19000,"first":["fail"]}"#);
    let (slow, [_, _, guard]) = apart(&bed, &book, &[("LEASEHOLD_BACKOFF", "60s..60s")]);
    guard.next("renew", Fault::HangThenApply(10 * SECOND));
    slow.run(Shutdown::when(sleep(30 * SECOND))).await.unwrap();
    guard.landed().await;
    let writes: Vec<_> = bed.guard.history().into_iter().map(|(name, _)| name).collect();
    assert_eq!((writes, guard.calls()["renew"]), (vec!["claim", "release"], 1));
    assert_eq!((record(&bed, "a").status, record(&bed, "a").failures), (Status::Released, 1));
}

#[tokio::test(start_paused = true)]
async fn l1_a_claim_that_is_answered_after_its_lease_starts_nothing() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","millis":1000}"#);
    let (late, [_, _, guard]) = apart(&bed, &book, &[]);
    guard.next("claim", Fault::DelayReply(40 * SECOND));
    late.run(bed.until_idle()).await.unwrap();
    let runs = book.runs("a");
    assert_eq!((runs.len(), runs[0].cancelled), (1, None), "{runs:?}");
    assert_eq!(record(&bed, "a").takeovers, 0, "it was given back");
}

#[tokio::test(start_paused = true)]
async fn t6_the_last_receive_waits_in_place_while_the_guard_throttles() {
    let (bed, book) = (TestBed::new(&[]), Book::new());
    bed.add("jobs", 1);
    bed.send("jobs", r#"{"id":"a"}"#);
    let (throttled, [queue, _, guard]) = apart(&bed, &book, &[]);
    guard.decide_with(until(200 * SECOND, "claim", Fault::Fail(Failure::Throttled)));
    for _ in 0..2 {
        queue.next("change_visibility", Fault::Fail(Failure::Throttled));
    }
    let report = throttled.run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, bed.dead("jobs").len()), (1, 0));
    assert_eq!(bed.queue("jobs").calls()["receive"].entries, 1, "its only receive");
}

#[tokio::test(start_paused = true)]
async fn t6_what_fails_on_its_last_receive_is_dead_lettered_with_its_reason_although_sends_are_throttled() {
    let (bed, book) = (TestBed::new(&[]), Book::new());
    bed.add("jobs", 1);
    bed.send("jobs", r#"{"id":"a","first":["fail"]}"#);
    let (throttled, [_, copies, _]) = apart(&bed, &book, &[]);
    copies.decide_with(until(100 * SECOND, "send", Fault::Fail(Failure::Throttled)));
    let report = throttled.run(bed.until_idle()).await.unwrap();
    let dead = bed.dead("jobs");
    assert_eq!((report.dead, dead.len(), book.runs("a").len()), (1, 1, 1));
    assert_eq!(dead[0].1.as_ref().map(|note| &*note.code), Some("failing"));
}

/// A rule: calls of this operation meet this fault for so long.
fn until(
    time: Duration,
    operation: &'static str,
    fault: Fault,
) -> impl Fn(&leasehold::testing::Call) -> Option<Fault> + Send + Sync {
    let end = Instant::now() + time;
    move |call| (call.operation == operation && Instant::now() < end).then_some(fault)
}

#[tokio::test(start_paused = true)]
async fn g8_finished_work_outlives_an_outage_that_is_longer_than_its_lease() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"finishes","millis":10000}"#);
    bed.send("jobs", r#"{"id":"goes-on","millis":50000}"#);
    let (cut_off, [queue, _, guard]) = apart(&bed, &book, &[]);
    let begun = Instant::now();
    let away = move || (5 * SECOND..150 * SECOND).contains(&begun.elapsed());
    guard.decide_with(move |_| away().then_some(Fault::Hang));
    let asked = Arc::new(Mutex::new(Vec::new()));
    queue.decide_with({
        let asked = Arc::clone(&asked);
        move |call| {
            (call.operation == "receive").then(|| asked.lock().unwrap().push(begun.elapsed()));
            None
        }
    });
    let report = cut_off.run(bed.until_idle()).await.unwrap();
    assert_eq!((report.done, book.runs("finishes").len()), (2, 1), "what is finished is recorded, not repeated");
    let runs = book.runs("goes-on");
    assert_eq!((runs.len(), runs[0].cancelled), (2, Some(CancelCause::LeaseLost)));
    assert!(runs[1].began >= 150 * SECOND, "nothing runs without its verdict");
    let asked = asked.lock().unwrap().clone();
    let in_outage = asked.iter().filter(|at| (60 * SECOND..149 * SECOND).contains(*at)).count();
    assert_eq!(in_outage, 0, "no messages are taken that could not be claimed: {asked:?}");
}

#[tokio::test(start_paused = true)]
async fn l1_after_an_outage_finished_work_is_written_before_the_next_poll() {
    for late in 0..8 {
        let (bed, book) = bed();
        bed.send("jobs", r#"{"id":"a","millis":10000}"#);
        let begun = Instant::now();
        let outage = 5 * SECOND..(150 + late) * SECOND;
        bed.guard_faults.decide_with(move |_| outage.contains(&begun.elapsed()).then_some(Fault::Hang));
        let duplicate = async {
            sleep(100 * SECOND).await;
            bed.send("jobs", r#"{"id":"a","millis":10000}"#);
        };
        let (report, ()) = tokio::join!(worker(&bed, &book, &[]).run(bed.until_idle()), duplicate);
        assert_eq!((report.unwrap().done, book.runs("a").len()), (1, 1), "back {late} s later");
    }
}

/// A handler on a blocking thread that ignores its cancellation until it is let go.
#[derive(Debug, Clone)]
struct Stubborn {
    begun: UnboundedSender<()>,
    let_go: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Stubborn {
    fn new() -> (Self, UnboundedReceiver<()>, mpsc::Sender<()>) {
        let (begun, begins) = unbounded_channel();
        let (lets_go, let_go) = mpsc::channel();
        (Self { begun, let_go: Arc::new(Mutex::new(let_go)) }, begins, lets_go)
    }
}

impl Handler for Stubborn {
    type Payload = Job;

    async fn handle(&self, _: &Job, _: &JobContext) -> HandlerResult {
        self.begun.send(())?;
        // A test that has failed has dropped the sender: the thread ends with it.
        let _ = self.let_go.lock().unwrap().recv();
        Ok(())
    }
}

fn stubborn_worker(bed: &TestBed, handler: &Stubborn, vars: &[(&str, &str)]) -> Worker {
    let mut all = vec![
        ("LEASEHOLD_QUEUES", "jobs"),
        ("LEASEHOLD_KEY", "/id"),
        ("LEASEHOLD_VISIBILITY_TIMEOUT", "30s"),
        ("LEASEHOLD_HANDLER_TIMEOUT", "5s"),
    ];
    all.extend(vars);
    bed.worker(&all).queue("jobs", handler.clone().blocking())
}

/// Lets time pass by hand: while a blocking thread runs, paused time does not pass by itself. At each step another thread
/// is waited for, so that one that was let go has real time to end in, and hours do not pass meanwhile.
async fn pass(time: Duration) {
    const STEP: Duration = Duration::from_millis(250);
    let until = Instant::now() + time;
    while Instant::now() < until {
        advance(STEP).await;
        spawn_blocking(std::thread::yield_now).await.unwrap();
        for _ in 0..20 {
            yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn l8_a_stuck_thread_that_is_redelivered_to_its_own_process_is_not_run_beside_itself() {
    let bed = TestBed::new(&["jobs"]);
    let (handler, mut begins, lets_go) = Stubborn::new();
    bed.send("jobs", r#"{"id":"a"}"#);
    let mut running = JoinSet::new();
    let shutdown = Shutdown::new();
    running.spawn(stubborn_worker(&bed, &handler, &[("LEASEHOLD_CONCURRENCY", "2")]).run(shutdown.clone()));
    begins.recv().await.expect("it begins");
    pass(150 * SECOND).await;
    let receives = bed.queue("jobs").calls()["receive"].entries;
    assert!((2..=6).contains(&receives), "redelivered, and delayed each time: {receives}");
    assert!(begins.try_recv().is_err(), "a second run began beside the first");
    lets_go.send(()).unwrap();
    lets_go.send(()).unwrap();
    while !bed.queue("jobs").is_empty() {
        pass(SECOND).await;
    }
    begins.recv().await.expect("when the thread has come back, the key runs again");
    assert_eq!(record(&bed, "a").status, Status::Done);
    shutdown.drain();
    let report = running.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!((report.done, report.stuck), (1, 0));
}

/// When a second worker begins a key whose first run, begun at zero, ignores its cancellation and goes on.
async fn second_run_began(mode: (&str, &str)) -> Duration {
    let (bed, book) = bed();
    let (handler, mut begins, lets_go) = Stubborn::new();
    bed.send("jobs", r#"{"id":"a"}"#);
    let mut running = JoinSet::new();
    if mode == OPEN {
        for operation in ["claim", "probe"] {
            bed.guard_faults.always(operation, Fault::Fail(Failure::Denied));
        }
    }
    // Its one slot is taken, so what it gives back comes to the other.
    let vars = [("LEASEHOLD_CONCURRENCY", "1"), mode];
    running.spawn(stubborn_worker(&bed, &handler, &vars).run(Shutdown::new()));
    begins.recv().await.expect("it begins");
    running.spawn(worker(&bed, &book, &[mode]).run(Shutdown::new()));
    while book.runs("a").is_empty() {
        pass(SECOND).await;
    }
    drop(lets_go);
    book.runs("a")[0].began
}

const CLAIM: (&str, &str) = ("LEASEHOLD_GUARD", "claim");
const OPEN: (&str, &str) = ("LEASEHOLD_GUARD_OUTAGE", "open");
const NONE: (&str, &str) = ("LEASEHOLD_GUARD", "none");

#[tokio::test(start_paused = true)]
async fn d2_what_may_still_run_is_not_run_beside_by_another_worker_under_its_lease() {
    let began = second_run_began(CLAIM).await;
    assert!(began >= 32 * SECOND, "after {began:?}: the lease is 30 s, the skew 2 s");
}

#[tokio::test(start_paused = true)]
async fn d2_without_a_record_what_may_still_run_is_run_beside_only_when_its_delivery_is_over() {
    for mode in [OPEN, NONE] {
        let began = second_run_began(mode).await;
        assert!((30..35).contains(&began.as_secs()), "{mode:?}, after {began:?}: the timeout is 30 s");
    }
}

#[cfg(feature = "planted")]
#[tokio::test(start_paused = true)]
async fn release_of_what_still_runs_is_found() {
    let _plant = crate::simulation::Plant::of(leasehold::testing::Planted::ReleaseOfRunning);
    let began = second_run_began(CLAIM).await;
    assert!(began < 30 * SECOND, "the planted fault has no effect: {began:?}");
}

#[tokio::test(start_paused = true)]
async fn g6_a_last_attempt_that_could_not_be_buried_because_it_still_ran_is_not_followed_by_another() {
    let bed = TestBed::new(&["jobs"]);
    let (handler, mut begins, lets_go) = Stubborn::new();
    bed.send("jobs", r#"{"id":"a"}"#);
    let vars = [("LEASEHOLD_MAX_ATTEMPTS", "1")];
    let report = stuck_for(60 * SECOND, &vars, &bed, &handler, &mut begins, lets_go).await;
    assert!(begins.try_recv().is_err(), "it was run again");
    let codes: Vec<_> = bed.dead("jobs").into_iter().map(|(_, note)| note.expect("a reason").code).collect();
    assert_eq!((report.dead, codes), (1, vec!["timed_out".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn l8_without_a_guard_too_a_stuck_key_is_not_run_beside_itself_and_eats_no_second_slot() {
    let bed = TestBed::new(&["jobs"]);
    let (handler, mut begins, lets_go) = Stubborn::new();
    bed.send("jobs", r#"{"id":"a"}"#);
    let vars = [("LEASEHOLD_GUARD", "none"), ("LEASEHOLD_MAX_ATTEMPTS", "50")];
    let mut running = JoinSet::new();
    running.spawn(stubborn_worker(&bed, &handler, &vars).run(Shutdown::new()));
    begins.recv().await.expect("it begins");
    pass(200 * SECOND).await;
    assert!(begins.try_recv().is_err(), "a second run began beside the first");
    drop(lets_go);
}

#[tokio::test(start_paused = true)]
async fn t6_a_last_receive_that_is_stuck_waits_in_place_and_is_not_dead_lettered_by_the_queue() {
    for guard in ["claim", "none"] {
        let bed = TestBed::new(&[]);
        bed.add("jobs", 1);
        let (handler, mut begins, lets_go) = Stubborn::new();
        bed.send("jobs", r#"{"id":"a"}"#);
        let vars = [("LEASEHOLD_GUARD", guard)];
        let report = stuck_for(100 * SECOND, &vars, &bed, &handler, &mut begins, lets_go).await;
        assert_eq!((report.done, bed.dead("jobs").len()), (1, 0), "{guard}");
    }
}

#[tokio::test(start_paused = true)]
async fn t5_a_group_whose_head_is_stuck_rests_and_loses_no_receive_to_it() {
    for guard in ["claim", "none"] {
        let bed = TestBed::new(&["jobs.fifo"]);
        let (handler, mut begins, lets_go) = Stubborn::new();
        for id in ["a", "b"] {
            bed.send("jobs.fifo", format!(r#"{{"id":"{id}"}}"#));
        }
        let vars = [("LEASEHOLD_JOBS_NAME", "jobs.fifo"), ("LEASEHOLD_GUARD", guard)];
        let (shutdown, mut running) = (Shutdown::new(), JoinSet::new());
        running.spawn(stubborn_worker(&bed, &handler, &vars).run(shutdown.clone()));
        begins.recv().await.expect("it begins");
        pass(200 * SECOND).await;
        assert_eq!((begins.try_recv().ok(), bed.queue("jobs.fifo").in_flight()), (None, 2), "{guard}");
        drop(lets_go);
        while !bed.queue("jobs.fifo").is_empty() {
            pass(SECOND).await;
        }
        shutdown.drain();
        let report = running.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!((report.done, bed.queue("jobs.fifo").calls()["receive"].entries), (2, 2), "{guard}");
    }
}

/// A worker whose handler is stuck for so long, and then is let go and ends each run at once.
async fn stuck_for(
    time: Duration,
    vars: &[(&str, &str)],
    bed: &TestBed,
    handler: &Stubborn,
    begins: &mut UnboundedReceiver<()>,
    lets_go: mpsc::Sender<()>,
) -> StopReport {
    let mut running = JoinSet::new();
    let shutdown = Shutdown::new();
    running.spawn(stubborn_worker(bed, handler, vars).run(shutdown.clone()));
    begins.recv().await.expect("it begins");
    pass(time).await;
    drop(lets_go);
    while !bed.queue("jobs").is_empty() {
        pass(SECOND).await;
    }
    shutdown.drain();
    running.join_next().await.unwrap().unwrap().unwrap()
}
