//! What a crash may leave, point by point and with each kind of guard: ARCHITECTURE.md has the table in words.
//!
//! The first worker stops at a point, and another takes its place. What it then made of one message is counted as its
//! user sees it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{
    Handler, HandlerError, HandlerResult, JobContext, Raw, ResultExt, Shutdown, Worker,
    guard::{Pk, Record, Status},
    testing::{Failure, Fault, Faults, TestBed},
};
use tokio::time::sleep;

use crate::bench::{apart, crashes_after};

const SECOND: Duration = Duration::from_secs(1);

/// What the worker has of a guard.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Claim,
    /// `GUARD_OUTAGE=open`, and the store is away all the time.
    OpenAndAway,
    None,
}

/// Where the first run stops, if its worker does not stop in a call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Begun,
    /// After an effect outside of steps.
    Mailed,
    /// After the effect of the step, in the step. Without a guard there are no steps, and it is an effect under the key.
    Charged,
    /// After the step.
    Recorded,
}

/// Which runs stop, and where.
#[derive(Debug, Clone, Copy)]
enum Stops {
    Never,
    First(Place),
    Always(Place),
}

/// Where the first worker stops.
#[derive(Debug, Clone, Copy)]
enum At {
    /// In a call, before it is carried out.
    Before(&'static str),
    /// In a call that is carried out and not answered.
    After(&'static str),
    Run(Place),
}

/// How runs end.
#[derive(Debug, Clone, Copy)]
enum End {
    Well,
    /// The first fails.
    FailsOnce,
    FailsForGood,
}

/// What came of one message: runs, effects outside of steps, calls for the other effect, copies, and what the last run was
/// told of its number.
type Seen = [usize; 5];

/// A handler with two effects, and all that is seen of it.
#[derive(Debug, Clone)]
struct Teller {
    mode: Mode,
    end: End,
    stops: Stops,
    log: Arc<Mutex<Log>>,
}

#[derive(Debug, Default)]
struct Log {
    attempts: Vec<u32>,
    mails: usize,
    charges: Vec<String>,
}

impl Teller {
    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().unwrap()
    }

    async fn reaches(&self, place: Place) {
        let stops = match self.stops {
            Stops::Never => false,
            Stops::First(at) => at == place && self.log().attempts.len() == 1,
            Stops::Always(at) => at == place,
        };
        if stops {
            std::future::pending::<()>().await;
        }
    }

    async fn charge(&self, key: String) -> HandlerResult {
        self.log().charges.push(key);
        self.reaches(Place::Charged).await;
        Ok(())
    }

    fn worker(&self, bed: &TestBed) -> Worker {
        let guard = if self.mode == Mode::None { "none" } else { "claim" };
        let outage = if self.mode == Mode::OpenAndAway { "open" } else { "pause" };
        let vars = [
            ("LEASEHOLD_QUEUES", "jobs"),
            ("LEASEHOLD_KEY", "/id"),
            ("LEASEHOLD_VISIBILITY_TIMEOUT", "30s"),
            ("LEASEHOLD_BACKOFF", "10s..60s"),
            ("LEASEHOLD_DRAIN_TIMEOUT", "10s"),
            ("LEASEHOLD_GUARD", guard),
            ("LEASEHOLD_GUARD_OUTAGE", outage),
        ];
        bed.worker(&vars).queue("jobs", self.clone())
    }

    /// A worker, with faults of its own; the store is away for it, if the mode says so.
    fn life(&self, bed: &TestBed) -> (Worker, [Faults; 3]) {
        let (worker, faults) = apart(bed, self.worker(bed));
        if self.mode == Mode::OpenAndAway {
            for operation in ["claim", "probe"] {
                faults[2].always(operation, Fault::Fail(Failure::Denied));
            }
        }
        (worker, faults)
    }

    /// What is seen when another worker has done the rest. Whatever happened, nothing is lost, and what is called again
    /// downstream is called under the same key.
    async fn seen_after(&self, bed: &TestBed) -> Seen {
        let (heir, _) = self.life(bed);
        heir.run(bed.until_idle()).await.unwrap();
        let copies: Vec<_> = bed.dead("jobs").into_iter().map(|(_, note)| note.expect("a reason").failure_id).collect();
        let log = self.log();
        let (keys, failures): (BTreeSet<_>, BTreeSet<_>) = (log.charges.iter().collect(), copies.iter().collect());
        assert!(keys.len() == 1 && failures.len() <= 1, "{keys:?} {failures:?}");
        assert_eq!(
            failures.len(),
            usize::from(matches!(self.end, End::FailsForGood)),
            "it is lost, or dead without a cause"
        );
        let last = log.attempts.last().map_or(0, |attempt| *attempt as usize);
        [log.attempts.len(), log.mails, log.charges.len(), copies.len(), last]
    }
}

impl Handler for Teller {
    type Payload = Raw;

    async fn handle(&self, _: &Raw, cx: &JobContext) -> HandlerResult {
        self.log().attempts.push(cx.attempt());
        self.reaches(Place::Begun).await;
        self.log().mails += 1;
        self.reaches(Place::Mailed).await;
        if self.mode == Mode::None {
            self.charge(cx.key().expect("there is a KEY").to_owned()).await?;
        } else {
            cx.step("charge", |key| self.charge(key.to_string())).await?;
        }
        self.reaches(Place::Recorded).await;
        match self.end {
            End::FailsOnce if self.log().attempts.len() == 1 => Err(HandlerError::new("it failed")),
            End::FailsForGood => Err("never").permanent(),
            End::Well | End::FailsOnce => Ok(()),
        }
    }
}

/// A queue with one message, and what handles it.
fn stage(mode: Mode, end: End, stops: Stops) -> (TestBed, Teller) {
    let bed = TestBed::new(&["jobs"]);
    bed.send("jobs", r#"{"id":"a"}"#);
    (bed, Teller { mode, end, stops, log: Arc::default() })
}

fn record(bed: &TestBed) -> Option<Record> {
    bed.guard.record(&Pk("jobs#a".into()))
}

/// Lets the first worker crash there, and looks at what is left.
async fn crash(mode: Mode, end: End, at: At) -> (TestBed, Seen) {
    let (call, applied, stops) = match at {
        At::Before(call) => (Some(call), false, Stops::Never),
        At::After(call) => (Some(call), true, Stops::Never),
        At::Run(place) => (None, false, Stops::First(place)),
    };
    let (bed, teller) = stage(mode, end, stops);
    let (doomed, [queue, copies, guard]) = teller.life(&bed);
    let faults = match call {
        Some("receive" | "delete" | "change_visibility") => queue,
        Some("send") => copies,
        _ => guard,
    };
    if let Some(call) = call {
        faults.next(call, Fault::Stop { applied });
    }
    crashes_after(5 * SECOND, doomed).await;
    assert_eq!(faults.pending(), 0, "{at:?} is never reached");
    let seen = teller.seen_after(&bed).await;
    (bed, seen)
}

async fn check<const N: usize>(mode: Mode, end: End, points: [(At, Seen); N]) {
    for (at, expected) in points {
        let (bed, seen) = crash(mode, end, at).await;
        assert_eq!(seen, expected, "{mode:?}, {end:?}, {at:?}");
        let status = match end {
            _ if mode != Mode::Claim => None,
            End::Well | End::FailsOnce => Some(Status::Done),
            End::FailsForGood => Some(Status::Dead),
        };
        assert_eq!(record(&bed).map(|record| record.status), status, "{mode:?}, {end:?}, {at:?}");
    }
}

use At::{After, Before, Run};
use Place::{Begun, Charged, Mailed, Recorded};

#[tokio::test(start_paused = true)]
async fn g1_under_a_claim_a_crash_repeats_what_no_record_says_and_counts_no_attempt() {
    let points = [
        (After("receive"), [1, 1, 1, 0, 1]),
        (Before("claim"), [1, 1, 1, 0, 1]),
        (After("claim"), [1, 1, 1, 0, 1]),
        (Run(Begun), [2, 1, 1, 0, 1]),
        (Run(Mailed), [2, 2, 1, 0, 1]),
        (Run(Charged), [2, 2, 2, 0, 1]),
        (Before("step"), [2, 2, 2, 0, 1]),
        (After("step"), [2, 2, 1, 0, 1]),
        (Run(Recorded), [2, 2, 1, 0, 1]),
        (Before("confirm"), [2, 2, 1, 0, 1]),
        (After("confirm"), [1, 1, 1, 0, 1]),
        (Before("delete"), [1, 1, 1, 0, 1]),
        (After("delete"), [1, 1, 1, 0, 1]),
    ];
    check(Mode::Claim, End::Well, points).await;
}

#[tokio::test(start_paused = true)]
async fn g6_under_a_claim_a_failure_counts_from_its_record_on() {
    let points = [
        (Before("release"), [2, 2, 1, 0, 1]),
        (After("release"), [2, 2, 1, 0, 2]),
        (Before("change_visibility"), [2, 2, 1, 0, 2]),
        (After("change_visibility"), [2, 2, 1, 0, 2]),
    ];
    check(Mode::Claim, End::FailsOnce, points).await;
}

#[tokio::test(start_paused = true)]
async fn t3_under_a_claim_what_has_failed_for_good_runs_once_and_a_crash_may_cost_a_second_copy() {
    let points = [
        (Before("fail"), [2, 2, 1, 1, 1]),
        (After("fail"), [1, 1, 1, 1, 1]),
        (Before("bury"), [1, 1, 1, 1, 1]),
        (After("bury"), [1, 1, 1, 1, 1]),
        (Before("send"), [1, 1, 1, 1, 1]),
        (After("send"), [1, 1, 1, 2, 1]),
        (Before("copied"), [1, 1, 1, 2, 1]),
        (After("copied"), [1, 1, 1, 1, 1]),
        (Before("delete"), [1, 1, 1, 1, 1]),
        (After("delete"), [1, 1, 1, 1, 1]),
    ];
    check(Mode::Claim, End::FailsForGood, points).await;
}

/// Without a record a crash is the same with either.
async fn check_without_a_record(mode: Mode) {
    let points = [
        (After("receive"), [1, 1, 1, 0, 2]),
        (Run(Begun), [2, 1, 1, 0, 2]),
        (Run(Mailed), [2, 2, 1, 0, 2]),
        (Run(Charged), [2, 2, 2, 0, 2]),
        (Run(Recorded), [2, 2, 2, 0, 2]),
        (Before("delete"), [2, 2, 2, 0, 2]),
        (After("delete"), [1, 1, 1, 0, 1]),
    ];
    check(mode, End::Well, points).await;
    let points = [(Before("change_visibility"), [2, 2, 2, 0, 2]), (After("change_visibility"), [2, 2, 2, 0, 2])];
    check(mode, End::FailsOnce, points).await;
    let points = [
        (Before("send"), [2, 2, 2, 1, 2]),
        (After("send"), [2, 2, 2, 2, 2]),
        (Before("delete"), [2, 2, 2, 2, 2]),
        (After("delete"), [1, 1, 1, 1, 1]),
    ];
    check(mode, End::FailsForGood, points).await;
}

#[tokio::test(start_paused = true)]
async fn g8_with_the_policy_open_and_the_store_away_a_crash_before_the_delete_repeats_the_run() {
    check_without_a_record(Mode::OpenAndAway).await;
}

#[tokio::test(start_paused = true)]
async fn g12_without_a_guard_a_crash_before_the_delete_repeats_the_run() {
    check_without_a_record(Mode::None).await;
}

#[tokio::test(start_paused = true)]
async fn g8_what_ran_without_a_guard_is_not_repeated_after_a_crash_if_the_store_was_back_at_its_end() {
    let (bed, teller) = stage(Mode::OpenAndAway, End::Well, Stops::Never);
    let (doomed, [queue, _, guard]) = apart(&bed, teller.worker(&bed));
    guard.next("claim", Fault::Fail(Failure::Denied));
    queue.next("delete", Fault::Stop { applied: false });
    crashes_after(5 * SECOND, doomed).await;
    assert_eq!((queue.pending(), record(&bed).map(|record| record.status)), (0, Some(Status::Done)));
    teller.worker(&bed).run(bed.until_idle()).await.unwrap();
    assert_eq!(teller.log().attempts.len(), 1);
}

/// The first run goes on for ever, from this place on; its worker is told to stop and gives it up.
async fn drained(mode: Mode, place: Place) -> (TestBed, Seen) {
    let (bed, teller) = stage(mode, End::Well, Stops::First(place));
    let (told, _) = teller.life(&bed);
    let report = told.run(Shutdown::when(sleep(SECOND))).await.unwrap();
    assert_eq!((report.released, bed.queue("jobs").visible()), (1, 1), "{mode:?}, {place:?}: at once for others");
    let seen = teller.seen_after(&bed).await;
    (bed, seen)
}

/// The first run goes on for ever, from this place on; the lease that allows it cannot be kept.
async fn lost(mode: Mode, place: Place) -> (TestBed, Seen) {
    let (bed, teller) = stage(mode, End::Well, Stops::First(place));
    let (loses, [queue, _, guard]) = teller.life(&bed);
    if mode == Mode::Claim {
        guard.always("renew", Fault::Fail(Failure::Throttled));
    } else {
        queue.always("change_visibility", Fault::Fail(Failure::HandleLost));
    }
    crashes_after(31 * SECOND, loses).await;
    let seen = teller.seen_after(&bed).await;
    (bed, seen)
}

/// What was not finished is begun again, as after a crash; under a claim it is known to be no crash.
fn check_given_up(mode: Mode, place: Place, (bed, seen): &(TestBed, Seen)) {
    let charges = match place {
        Begun | Mailed => 1,
        Charged => 2,
        Recorded => {
            if mode == Mode::Claim {
                1
            } else {
                2
            }
        }
    };
    let (mails, attempt) = (if place == Begun { 1 } else { 2 }, if mode == Mode::Claim { 1 } else { 2 });
    assert_eq!(*seen, [2, mails, charges, 0, attempt], "{mode:?}, {place:?}");
    let counts = record(bed).map(|record| (record.failures, record.takeovers));
    assert_eq!(counts, (mode == Mode::Claim).then_some((0, 0)), "{mode:?}, {place:?}");
}

const MODES: [Mode; 3] = [Mode::Claim, Mode::OpenAndAway, Mode::None];
const PLACES: [Place; 4] = [Begun, Mailed, Charged, Recorded];

#[tokio::test(start_paused = true)]
async fn d1_a_run_that_outlasts_a_drain_is_begun_again_at_once_and_repeats_what_no_record_says() {
    for (mode, place) in MODES.into_iter().flat_map(|mode| PLACES.map(|place| (mode, place))) {
        check_given_up(mode, place, &drained(mode, place).await);
    }
}

#[tokio::test(start_paused = true)]
async fn l1_a_run_that_loses_its_lease_is_begun_again_and_repeats_what_no_record_says() {
    for (mode, place) in MODES.into_iter().flat_map(|mode| PLACES.map(|place| (mode, place))) {
        check_given_up(mode, place, &lost(mode, place).await);
    }
}

#[tokio::test(start_paused = true)]
async fn g12_without_a_record_what_kills_its_workers_is_moved_by_sqs_at_the_maximum_of_receives() {
    for mode in [Mode::OpenAndAway, Mode::None] {
        let bed = TestBed::new(&[]);
        bed.add("jobs", 3);
        bed.send("jobs", r#"{"id":"a"}"#);
        let log = Arc::default();
        for _ in 0..4 {
            let teller = Teller { mode, end: End::Well, stops: Stops::Always(Mailed), log: Arc::clone(&log) };
            crashes_after(31 * SECOND, teller.life(&bed).0).await;
        }
        assert_eq!(log.lock().unwrap().attempts, [1, 2, 3], "{mode:?}");
        assert_eq!(bed.dead("jobs"), [(r#"{"id":"a"}"#.to_owned(), None)], "{mode:?}: without a reason");
    }
}
