//! A worker that is killed with SIGKILL, or stands still for longer than its leases, just before or just after each of its
//! calls; and another that takes over.
//!
//! The machine dies or stands still, so to speak: a handler that runs then does nothing more either.

use std::{collections::BTreeSet, fs};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::{
    bench::Bench,
    cases::check_all,
    proxy::{Fault, Hold, Proxy, Switch},
    worker::Worker,
};
use points::{At, CLAIMED, FLAKY, GOOD, Guard, Kind, LONG, POISON, Point, UNGUARDED};

mod points;

#[tokio::test(flavor = "multi_thread")]
async fn t1_a_kill_around_any_call_repeats_at_most_what_nobody_knew_of() {
    check_all(CLAIMED.map(|point| Case(Kind::Standard, Guard::Claim, point)), check_kill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t5_a_kill_around_any_call_frees_its_group_and_repeats_at_most_what_nobody_knew_of() {
    check_all(CLAIMED.map(|point| Case(Kind::Fifo, Guard::Claim, point)), check_kill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_without_a_guard_a_kill_around_any_call_repeats_what_was_not_deleted_and_loses_nothing() {
    check_all(in_both_kinds(Guard::None, UNGUARDED), check_kill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_a_standstill_around_any_call_undoes_nothing_of_what_another_did_meanwhile() {
    check_all(standstills(Guard::Claim, CLAIMED), check_standstill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_without_a_guard_a_standstill_around_any_call_repeats_what_was_not_deleted_and_loses_nothing() {
    check_all(standstills(Guard::None, UNGUARDED), check_standstill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g4_a_program_that_outlives_its_worker_has_the_key_alone_until_the_lease_and_the_skew_are_over() {
    let bench = Bench::new().await;
    bench.send(["a"]).await;
    let settings = bench.settings("$begin; $wait; $end").short_leases();
    let doomed = settings.start();
    bench.poll("it runs", async || bench.calls().len() == 1).await;
    doomed.signal(Signal::KILL);
    doomed.ends().await;
    // Another message of that key can be received at once.
    bench.send(["a"]).await;
    let heir = settings.start();
    bench.poll("another runs it", async || bench.calls().len() == 2).await;
    bench.lets_go();
    bench.until_done(1).await;
    bench.poll("both have ended", async || bench.lines("ended").len() == 2).await;
    heir.stops().await.clean_report();
    // A first fence is the time of its claim, in milliseconds.
    let fences: Vec<u64> = bench.calls().iter().filter_map(|call| call.split(' ').nth(1)?.parse().ok()).collect();
    assert!(fences[1] - fences[0] >= 3_000 + 200, "{fences:?}");
    assert_eq!((bench.effects().len(), bench.lines("overlaps").len()), (1, 1), "beside the program that lives on");
}

fn in_both_kinds(guard: Guard, points: impl IntoIterator<Item = Point>) -> impl Iterator<Item = Case> {
    points.into_iter().flat_map(move |point| [Kind::Standard, Kind::Fifo].map(|kind| Case(kind, guard, point)))
}

/// Those at which a call that is on its way arrives when another has taken over, or its reply is read then. Beats and
/// back-offs on a standard queue only: with a handle that is over, a FIFO queue refuses them.
fn standstills(guard: Guard, points: impl IntoIterator<Item = Point>) -> impl Iterator<Item = Case> {
    let points = points.into_iter().filter(|(.., at, _, _, _)| *at != At::Late);
    let points = points.map(|(of, nth, at, key, attempts, copies)| {
        (of, nth, if at == At::Lost { At::Late } else { at }, key, attempts, copies)
    });
    let is_played = |Case(kind, _, (.., key, _, _)): &Case| *kind == Kind::Standard || matches!(*key, GOOD | POISON);
    in_both_kinds(guard, points).filter(is_played)
}

#[derive(Debug, Clone, Copy)]
struct Case(Kind, Guard, Point);

impl Case {
    /// Whether what arrives late makes the message visible while another runs it. AWS may take an old handle for that on a
    /// standard queue.
    fn is_delivered_again(&self) -> bool {
        matches!(self, Self(Kind::Standard, _, (_, _, At::Stale, FLAKY, _, _)))
    }

    /// The attempts that runs are told, and how many of them begin beside another: only without a record, and only where
    /// the message is delivered again.
    fn runs(&self) -> (Vec<u32>, usize) {
        let Self(_, guard, (.., attempts, _)) = self;
        let beside: &[u32] = if *guard == Guard::None && self.is_delivered_again() { &[3] } else { &[] };
        ([attempts, beside].concat(), beside.len())
    }
}

async fn check_kill(case: Case) {
    let stage = Stage::new(case).await;
    let Case(.., (.., at, _, _, _)) = case;
    let doomed = stage.worker_in_call().await;
    doomed.signal(Signal::KILL);
    assert_eq!(doomed.ends().await.killed_by, Some(Signal::KILL.as_raw()));
    stage.first_is_gone();
    if at == At::Late {
        stage.hold.release();
    }
    let mut heir = stage.heir().await;
    if at == At::Stale {
        stage.arrives_in_a_run(&mut heir).await;
        stage.bench.lets_go();
    }
    let notes = stage.until_it_is_over().await;
    let ended = heir.stops().await;
    let log = ended.log.join("\n");
    ended.clean_report();
    stage.check_runs(&log);
    assert_eq!(notes.len(), case.0.copies(case.2.5), "{notes:?}\n{log}");
    stage.check_notes(&notes, &log);
}

async fn check_standstill(case: Case) {
    let stage = Stage::new(case).await;
    let Case(.., (.., at, _, _, _)) = case;
    let frozen = stage.worker_in_call().await;
    frozen.stands_still();
    stage.first_is_gone();
    let mut heir = stage.heir().await;
    let (frozen, notes) = if at == At::Stale {
        stage.arrives_in_a_run(&mut heir).await;
        frozen.signal(Signal::CONT);
        // Stopped first: what it might still do, it has done before the other's end.
        let frozen = frozen.stops().await;
        stage.bench.lets_go();
        (frozen, stage.until_it_is_over().await)
    } else {
        let mut notes = stage.until_it_is_over().await;
        // What was on its way arrives, and then its sender goes on.
        stage.hold.release();
        frozen.signal(Signal::CONT);
        let frozen = frozen.stops().await;
        notes.extend(stage.until_it_is_over().await);
        (frozen, notes)
    };
    let log = [frozen.log.join("\n"), heir.stops().await.log.join("\n")].join("\n\n");
    frozen.clean_report();
    stage.check_runs(&log);
    stage.check_notes(&notes, &log);
}

/// One message, and two workers for it, one after the other.
struct Stage {
    case: Case,
    bench: Bench,
    proxy: Proxy,
    /// Where the call is held.
    hold: Hold,
    /// Where it comes by when it has arrived late.
    arrived: Hold,
    /// The first worker runs. A slow test lets it try again before it is stopped.
    first: Switch,
}

impl Stage {
    async fn new(case: Case) -> Self {
        let Case(kind, _, (of, nth, at, key, _, _)) = case;
        let bench = kind.bench(key).await;
        let (hold, arrived, first) = (Hold::new(), Hold::new(), Switch::default());
        first.set(true);
        let held = |switch: &Switch| {
            let switch = switch.clone();
            move |call| call >= nth && switch.is_on()
        };
        let mut proxy = Proxy::before(bench.engine.endpoint()).await;
        proxy = proxy.with(of, at.held_by(kind, &hold), held(&first));
        if at == At::Stale {
            proxy = proxy.with(of, Fault::HoldReply(arrived.clone()), held(&first));
        }
        Self { case, bench, proxy, hold, arrived, first }
    }

    /// The first worker, when its call is held.
    async fn worker_in_call(&self) -> Worker {
        let settings = self.case.1.settings(&self.bench).set("HANGS", "yes");
        let worker = settings.behind(&self.proxy).start();
        self.hold.holds(1).await;
        worker
    }

    /// It is stopped, and so is its handler.
    fn first_is_gone(&self) {
        self.first.set(false);
        let Case(.., (.., key, _, _)) = self.case;
        if key == LONG {
            let run = self.bench.path(&format!("running/jobs#{key}"));
            let leader = fs::read_to_string(&run).expect("it runs");
            let leader = leader.trim().parse().ok().and_then(Pid::from_raw).expect("a process id");
            kill_process_group(leader, Signal::KILL).expect("it runs");
            // Nobody may be there to reap it, and then it looks as though it ran.
            fs::remove_file(run).expect("is removed");
        }
    }

    /// The second worker, which receives.
    async fn heir(&self) -> Worker {
        let Case(_, guard, (.., at, _, _, _)) = self.case;
        let settings = guard.settings(&self.bench);
        let settings = match at {
            // Its first beat is late enough for the message to be delivered again before.
            At::Stale => settings.set("WAITS", "yes").set("LEASEHOLD_VISIBILITY_TIMEOUT", "6s").behind(&self.proxy),
            At::Lost | At::Late | At::Done => settings,
        };
        let mut heir = settings.start();
        heir.says("\"receiving\"").await;
        heir
    }

    /// What the first worker had sent arrives while the second runs the work.
    async fn arrives_in_a_run(&self, heir: &mut Worker) {
        let Self { case, bench, proxy, .. } = self;
        bench.poll("another runs it", async || bench.calls().len() == 2).await;
        let deliveries = proxy.handles().len();
        self.hold.release();
        self.arrived.holds(1).await;
        self.arrived.release();
        if case.is_delivered_again() {
            bench.poll("it is delivered again", async || proxy.handles().len() > deliveries).await;
            match case.1 {
                Guard::Claim => heir.says(r#""outcome":"held""#).await,
                Guard::None => bench.poll("another run begins", async || bench.calls().len() == 3).await,
            }
        }
    }

    /// Waits for it, and takes the notes of what is dead-lettered.
    async fn until_it_is_over(&self) -> Vec<Value> {
        let Case(_, guard, (.., key, _, _)) = self.case;
        self.bench.dead_letters_until("it is settled", async || guard.is_over(&self.bench, key).await).await
    }

    fn check_runs(&self, log: &str) {
        let (calls, (attempts, overlaps)) = (self.bench.calls(), self.case.runs());
        let numbers = |which: usize| -> Vec<u64> {
            calls.iter().filter_map(|call| call.split(' ').nth(which)?.parse().ok()).collect()
        };
        let told = attempts.iter().map(|attempt| u64::from(*attempt));
        assert!(numbers(2).into_iter().eq(told), "{calls:?}, not {attempts:?}\n{log}");
        let fences = numbers(1);
        match self.case.1 {
            Guard::Claim => assert!(fences.is_sorted_by(|a, b| a < b) && !fences.contains(&0), "{calls:?}"),
            Guard::None => assert!(fences.iter().all(|fence| *fence == 0), "{calls:?}"),
        }
        assert_eq!((self.bench.effects().len(), self.bench.lines("overlaps").len()), (1, overlaps), "{log}");
    }

    /// All copies are of one failure.
    fn check_notes(&self, notes: &[Value], log: &str) {
        let failures: BTreeSet<_> = notes.iter().map(|note| note["failure_id"].to_string()).collect();
        assert_eq!(failures.len(), self.case.2.5.min(1), "{notes:?}\n{log}");
        assert!(!failures.contains("null"), "{notes:?}\n{log}");
    }
}
