//! A worker that is killed with SIGKILL, or stands still for longer than its leases, just before or just after each of its
//! calls; and another that takes over.

use std::collections::BTreeSet;

use rustix::process::Signal;

use crate::{
    bench::Bench,
    cases::check_all,
    proxy::{Fault, Hold, Proxy},
};

/// Where the call is when the worker dies.
#[derive(Debug, Clone, Copy)]
enum At {
    /// On its way, and lost.
    Lost,
    /// On its way, and it arrives when the worker is dead.
    Late,
    /// Done; its reply finds nobody.
    Done,
}

impl At {
    /// What stops a call there, until it is let go.
    fn held_by(&self, hold: &Hold) -> Fault {
        match self {
            Self::Lost | Self::Late => Fault::HoldRequest(hold.clone()),
            Self::Done => Fault::HoldReply(hold.clone()),
        }
    }
}

/// The key of work that succeeds, and of work that fails for good.
const GOOD: &str = "1";
const POISON: &str = "9";

/// The n-th call of an operation, where it is at the kill, what the message is, and what must come of it: how often the
/// handler is run, and how many copies are dead-lettered.
type Point = (&'static str, u64, At, &'static str, usize, usize);

const POINTS: [Point; 17] = [
    ("ReceiveMessage", 1, At::Done, GOOD, 1, 0),
    ("PutItem", 1, At::Lost, GOOD, 1, 0),
    ("PutItem", 1, At::Late, GOOD, 1, 0),
    ("PutItem", 1, At::Done, GOOD, 1, 0),
    // The handler has come to its end, and nobody knows.
    ("UpdateItem", 1, At::Lost, GOOD, 2, 0),
    ("UpdateItem", 1, At::Late, GOOD, 1, 0),
    ("UpdateItem", 1, At::Done, GOOD, 1, 0),
    ("DeleteMessage", 1, At::Lost, GOOD, 1, 0),
    ("DeleteMessage", 1, At::Late, GOOD, 1, 0),
    ("DeleteMessage", 1, At::Done, GOOD, 1, 0),
    ("UpdateItem", 1, At::Lost, POISON, 2, 1),
    ("UpdateItem", 1, At::Done, POISON, 1, 1),
    ("SendMessage", 1, At::Lost, POISON, 1, 1),
    ("SendMessage", 1, At::Done, POISON, 1, 2),
    // The mark that the copy was sent.
    ("UpdateItem", 2, At::Lost, POISON, 1, 2),
    ("UpdateItem", 2, At::Done, POISON, 1, 1),
    ("DeleteMessage", 1, At::Lost, POISON, 1, 1),
];

#[derive(Debug, Clone, Copy)]
enum Kind {
    Standard,
    Fifo,
}

impl Kind {
    /// How many copies of a failure come of so many that are sent: a FIFO queue takes its id for a second one.
    fn copies(self, sent: usize) -> usize {
        match self {
            Self::Standard => sent,
            Self::Fifo => sent.min(1),
        }
    }

    /// With a message for this key.
    async fn bench(self, key: &str) -> Bench {
        match self {
            Self::Standard => {
                let bench = Bench::new().await;
                bench.send([key]).await;
                bench
            }
            Self::Fifo => {
                let bench = Bench::with_groups().await;
                bench.send_to_group("group", key).await;
                bench
            }
        }
    }
}

const HANDLER: &str = "$begin; case $LEASEHOLD_IDEMPOTENCY_KEY in *9) exit 65;; esac; $end";

#[tokio::test(flavor = "multi_thread")]
async fn t1_a_kill_around_any_call_repeats_at_most_what_nobody_knew_of() {
    check_all(POINTS.map(|point| (Kind::Standard, point)), check).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t5_a_kill_around_any_call_frees_its_group_and_repeats_at_most_what_nobody_knew_of() {
    check_all(POINTS.map(|point| (Kind::Fifo, point)), check).await;
}

async fn check((kind, (of, nth, at, key, runs, copies)): (Kind, Point)) {
    let bench = kind.bench(key).await;
    let hold = Hold::new();
    let fault = at.held_by(&hold);
    let proxy = Proxy::before(bench.engine.endpoint()).await.with(of, fault, move |call| call == nth);
    let settings = bench.settings(HANDLER).short_leases();
    let doomed = settings.clone().behind(&proxy).start();
    hold.holds(1).await;
    doomed.signal(Signal::KILL);
    assert_eq!(doomed.ends().await.killed_by, Some(Signal::KILL.as_raw()));
    match at {
        At::Late => hold.release(),
        At::Lost => drop(proxy),
        At::Done => {}
    }

    let mut heir = settings.start();
    heir.says("\"receiving\"").await;
    let status = if key == POISON { "DEAD" } else { "DONE" };
    let is_over = async || bench.statuses().await.values().eq([status]) && bench.messages().await == 0;
    let notes = bench.dead_letters_until("it is settled", is_over).await;
    let ended = heir.stops().await;
    let log = ended.log.join("\n");
    ended.clean_report();
    let calls = bench.calls();
    assert_eq!(calls.len(), runs, "{calls:?}\n{log}");
    assert!(calls.iter().all(|call| call.ends_with(" 1")), "a crash is no failure: {calls:?}");
    let fences: Vec<u64> = calls.iter().filter_map(|call| call.split(' ').nth(1)?.parse().ok()).collect();
    assert!(fences.len() == runs && fences.is_sorted_by(|a, b| a < b), "{calls:?}");
    let failures: BTreeSet<_> = notes.iter().map(|note| note["failure_id"].to_string()).collect();
    assert!(notes.len() == kind.copies(copies) && failures.len() == copies.min(1), "{notes:?}\n{log}");
    assert_eq!((bench.effects().len(), bench.lines("overlaps").len()), (1, 0));
}

/// Those at which a call that is on its way arrives when another has long taken over, or its reply is read then.
fn standstills() -> impl Iterator<Item = (Kind, Point)> {
    let late = POINTS.into_iter().filter(|(.., at, _, _, _)| !matches!(at, At::Late));
    let late = late.map(|(of, nth, at, key, runs, copies)| match at {
        At::Lost => (of, nth, At::Late, key, runs, copies),
        at => (of, nth, at, key, runs, copies),
    });
    late.flat_map(|point| [(Kind::Standard, point), (Kind::Fifo, point)])
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_a_standstill_around_any_call_undoes_nothing_of_what_another_did_meanwhile() {
    check_all(standstills(), check_standstill).await;
}

async fn check_standstill((kind, (of, nth, at, key, runs, copies)): (Kind, Point)) {
    let bench = kind.bench(key).await;
    let hold = Hold::new();
    let fault = at.held_by(&hold);
    // A slow test lets the worker try again before it stands still.
    let proxy = Proxy::before(bench.engine.endpoint()).await.with(of, fault, move |call| call >= nth);
    let settings = bench.settings(HANDLER).short_leases();
    let frozen = settings.clone().behind(&proxy).start();
    hold.holds(1).await;
    frozen.signal(Signal::STOP);
    let mut heir = settings.start();
    heir.says("\"receiving\"").await;
    let status = if key == POISON { "DEAD" } else { "DONE" };
    let is_over = async || bench.statuses().await.values().eq([status]) && bench.messages().await == 0;
    let mut notes = bench.dead_letters_until("it is settled", is_over).await;
    // What was on its way arrives, and then its sender goes on.
    hold.release();
    frozen.signal(Signal::CONT);
    let frozen = frozen.stops().await;
    notes.extend(bench.dead_letters_until("all is as it was", is_over).await);
    let log = [frozen.log.join("\n"), heir.stops().await.log.join("\n")].join("\n\n");
    frozen.clean_report();
    assert_eq!(bench.calls().len(), runs, "{:?}\n{log}", bench.calls());
    let failures: BTreeSet<_> = notes.iter().map(|note| note["failure_id"].to_string()).collect();
    assert_eq!(failures.len(), copies.min(1), "{notes:?}\n{log}");
    assert_eq!((bench.effects().len(), bench.lines("overlaps").len()), (1, 0), "{log}");
}
