//! Every call that a worker makes while it runs, under every fault: the promise holds each time.
//!
//! A case has an engine, a proxy and a worker of its own; the cases of one call run side by side.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    bench::Bench,
    cases::check_all,
    proxy::{Entries, Fault, Hold, Proxy, Refusal},
};

/// Keys that end in 9 never succeed, those that end in 1 succeed at the second attempt, and the others take long enough
/// to need a beat.
const HANDLER: &str = r#"$begin; case $LEASEHOLD_IDEMPOTENCY_KEY in *9) exit 65;; *1) sleep 0.2; [ "$LEASEHOLD_ATTEMPT" = 1 ] && exit 1;; *) sleep 2.2;; esac; $end"#;

/// Within the time of every call.
const BRIEF: Duration = Duration::from_millis(400);

/// Past the time of the guard's calls, of deletes and of visibility changes, and past the end of the leases.
const LONG: Duration = Duration::from_millis(3500);

/// What there is to do, so that the call in question is made.
#[derive(Debug, Clone, Copy)]
enum Load {
    /// One message at a time.
    Alone,
    /// Five at a time, which are beaten, deleted and delayed in batches where the machine is quick enough.
    Together,
    /// One that fails for good, beside another.
    Poison,
    /// Five that fail for good at once.
    MuchPoison,
}

impl Load {
    fn messages(self) -> &'static [u32] {
        match self {
            Self::Alone => &[0, 1, 0, 1],
            Self::Together => &[0, 2, 3, 4, 1, 0, 2],
            Self::Poison => &[9, 0],
            Self::MuchPoison => &[9, 19, 29, 39, 49],
        }
    }

    fn concurrency(self) -> &'static str {
        match self {
            Self::Alone => "1",
            Self::Together | Self::Poison | Self::MuchPoison => "5",
        }
    }
}

/// A fault of one call.
#[derive(Debug)]
struct Case {
    of: &'static str,
    fault: Fault,
    load: Load,
}

impl Case {
    /// Whether the fault strikes this call of its operation. One that a worker waits for longer than for all else together
    /// strikes once.
    fn strikes(&self) -> fn(u64) -> bool {
        let is_long = matches!(self.fault, Fault::Hang | Fault::NeverReply);
        match self.of {
            "ReceiveMessage" | "SendMessage" if is_long => |call| call == 1,
            _ => |call| matches!(call, 1 | 2 | 5),
        }
    }
}

/// What can happen to any call.
fn anywhere() -> Vec<Fault> {
    vec![
        Fault::Refuse(Refusal::THROTTLED),
        Fault::Refuse(Refusal::INTERNAL),
        Fault::Refuse(Refusal::UNAVAILABLE),
        Fault::Refuse(Refusal::EXPIRED),
        Fault::LoseRequest,
        Fault::LoseReply,
        Fault::CutReply,
        Fault::Hang,
        Fault::NeverReply,
        Fault::DelayRequest(LONG),
        Fault::DelayReply(BRIEF),
    ]
}

fn said<const N: usize>(codes: [&'static str; N]) -> Vec<Fault> {
    codes.map(|code| Fault::Refuse(Refusal::aws(400, code))).to_vec()
}

/// What SQS says of a queue.
fn of_queues() -> Vec<Fault> {
    said(["QueueDoesNotExist", "KmsThrottled", "KmsDisabled"])
}

/// What SQS says of a handle.
fn of_handles() -> Vec<Fault> {
    said(["ReceiptHandleIsInvalid", "InvalidParameterValue"])
}

/// What DynamoDB says of a table.
fn of_tables() -> Vec<Fault> {
    said(["ProvisionedThroughputExceededException", "ResourceNotFoundException", "TransactionConflictException"])
}

/// What SQS says of single entries.
fn of_entries() -> Vec<Fault> {
    let entries = |which, code, sender_fault| Fault::RefuseEntries(Entries { which, code, sender_fault });
    vec![
        entries(|entry| entry == 0, "InternalError", false),
        entries(|entry| entry % 2 == 1, "RequestThrottled", true),
        entries(|_| true, "ReceiptHandleIsInvalid", true),
        entries(|_| true, "ServiceUnavailable", false),
    ]
}

async fn check(case: Case) {
    let bench = Bench::new().await;
    let proxy = Proxy::before(bench.engine.endpoint()).await;
    let mut proxy = proxy.with(case.of, case.fault.clone(), case.strikes());
    let burials = Hold::new();
    if matches!(case.load, Load::MuchPoison) {
        proxy = proxy.with("UpdateItem", Fault::HoldReply(burials.clone()), |call| call <= 5);
    }
    let messages = case.load.messages();
    bench.send(messages).await;
    let settings = bench.settings(HANDLER).short_leases().set("LEASEHOLD_CONCURRENCY", case.load.concurrency());
    let worker = settings.behind(&proxy).start();
    if matches!(case.load, Load::MuchPoison) {
        burials.holds(5).await;
        burials.release();
    }
    let keys: BTreeSet<_> = messages.iter().collect();
    let is_over = async || {
        let statuses = bench.statuses().await;
        let is_final = |status: &String| status == "DONE" || status == "DEAD";
        statuses.len() == keys.len() && statuses.values().all(is_final) && bench.messages().await == 0
    };
    let copies = bench.dead_letters_until("all is settled", is_over).await;
    let ended = worker.stops().await;
    let report = ended.clean_report();
    let log = ended.log.join("\n");
    let (dead, done): (Vec<_>, Vec<_>) = bench.statuses().await.into_iter().partition(|(key, _)| key.ends_with('9'));
    let all = |records: &[(String, String)], expected| records.iter().all(|(_, status)| status == expected);
    assert!(all(&dead, "DEAD") && all(&done, "DONE"), "{dead:?} {done:?}\n{log}");
    // What came to its end is not run again, and no two runs of it were under way at once.
    let mut succeeded = bench.lines("ended");
    succeeded.sort_unstable();
    assert!(done.iter().map(|(key, _)| key).eq(&succeeded), "{succeeded:?} {report:?}\n{log}");
    assert_eq!(bench.lines("overlaps"), [""; 0], "{log}");
    assert_eq!(bench.effects().len(), keys.len());
    let failures: BTreeSet<_> = copies.iter().map(|note| note["failure_id"].to_string()).collect();
    assert!(failures.len() == dead.len() && !failures.contains("null"), "{copies:?}\n{log}");
    let settled: u64 = ["done", "suppressed", "dead"].iter().filter_map(|count| report.get(*count)).sum();
    assert!(settled >= messages.len() as u64, "{report:?}\n{log}");
    assert_eq!(proxy.idle_faults(), [""; 0], "{report:?}\n{log}");
}

async fn sweep(calls: impl IntoIterator<Item = (&'static str, Load, Vec<Fault>)>) {
    let case = |of, load| move |fault| Case { of, fault, load };
    let cases = calls.into_iter().flat_map(|(of, load, faults)| faults.into_iter().map(case(of, load)));
    check_all(cases, check).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r4_receives_and_dead_letters_under_every_fault() {
    sweep([
        ("ReceiveMessage", Load::Together, [anywhere(), of_queues()].concat()),
        ("SendMessage", Load::Poison, [anywhere(), of_queues()].concat()),
        ("Send*", Load::MuchPoison, of_entries()),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_claims_and_writes_of_the_guard_under_every_fault() {
    sweep([
        ("PutItem", Load::Together, [anywhere(), of_tables()].concat()),
        ("UpdateItem", Load::Together, [anywhere(), of_tables()].concat()),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t1_deletes_under_every_fault() {
    sweep([
        ("DeleteMessage", Load::Alone, [anywhere(), of_queues(), of_handles()].concat()),
        ("Delete*", Load::Together, [anywhere(), of_entries(), of_handles()].concat()),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l4_beats_and_delays_under_every_fault() {
    sweep([
        ("ChangeMessageVisibility", Load::Alone, [anywhere(), of_queues(), of_handles()].concat()),
        ("Change*", Load::Together, [anywhere(), of_entries(), of_handles()].concat()),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l4_beats_of_two_workers_keep_handlers_that_are_longer_than_their_leases() {
    check_all([("1s", "1.5", 12), ("3s", "10", 6)], check_beats).await;
}

/// Leases and handlers of this length, so many keys, and a network on which every few beats come to nothing.
async fn check_beats((lease, handler, keys): (&'static str, &'static str, usize)) {
    let bench = Bench::new().await;
    let proxy = Proxy::before(bench.engine.endpoint())
        .await
        .with("UpdateItem", Fault::Refuse(Refusal::THROTTLED), |call| call % 5 == 1)
        .with("UpdateItem", Fault::LoseReply, |call| call % 7 == 3)
        .with("Change*", Fault::Refuse(Refusal::INTERNAL), |call| call % 5 == 1)
        .with("Change*", Fault::LoseReply, |call| call % 7 == 3);
    bench.send(0..keys).await;
    let settings = bench.settings(&format!("$begin; sleep {handler}; $end")).short_leases();
    let settings = settings.set("LEASEHOLD_VISIBILITY_TIMEOUT", lease).set("LEASEHOLD_CANCEL_GRACE", "200ms");
    let workers = [settings.clone().behind(&proxy).start(), settings.behind(&proxy).start()];
    let is_done = async || bench.statuses().await.values().filter(|status| *status == "DONE").count() == keys;
    bench.until("all is done", async || is_done().await && bench.messages().await == 0).await;
    for worker in workers {
        worker.stops().await.clean_report();
    }
    assert_eq!((bench.effects().len(), bench.statuses().await.len()), (keys, keys));
    assert_eq!(proxy.idle_faults(), [""; 0]);
}
