//! Workers that are killed with SIGKILL, and a network that loses and delays.

use std::{collections::BTreeMap, time::Duration};

use rustix::process::Signal;

use crate::{
    bench::Bench,
    proxy::{Entries, Fault, Proxy, Refusal},
};

/// Calls of the bank under keys that were called more than once.
fn repeated(calls: BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    calls.into_iter().filter(|(_, calls)| *calls > 1).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_what_a_killed_worker_had_begun_is_taken_over_under_the_same_keys() {
    let bench = Bench::new().await;
    let mut begun = bench.pipe("begun");
    bench.send(0..20).await;
    // Of the worker that is killed, handlers have their effect and then hang; they end by themselves soon after it.
    let settings =
        bench.settings("$bank; [ -z \"$HANG\" ] && exit 0; exec 3>begun; echo >&3; exec sleep 4").short_leases();
    let doomed = settings.clone().set("HANG", "yes").start();
    for _ in 0..5 {
        begun.is_written_to().await;
    }
    // Killed while the other starts, for its handlers must not come to their end.
    let mut heir = settings.start();
    doomed.signal(Signal::KILL);
    drop(doomed);
    heir.says_times("\"deleted\"", 20).await;
    let report = heir.stops().await.clean_report();
    assert_eq!(report.get("done"), Some(&20), "{report:?}");
    let repeated = repeated(bench.calls_by_key());
    assert!(repeated.len() == 5 && repeated.values().all(|calls| *calls == 2), "{repeated:?}");
    assert_eq!((bench.effects().len(), bench.messages().await), (20, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_behind_a_bad_network_do_all_work_once_although_one_is_killed() {
    const KEYS: usize = 60;
    let bench = Bench::new().await;
    bench.send(0..KEYS).await;
    bench.send(0..KEYS / 3).await;
    let (briefly, long) = (Duration::from_millis(300), Duration::from_millis(700));
    let proxy = Proxy::before(bench.engine.endpoint())
        .await
        .with("PutItem", Fault::LoseReply, |call| call % 7 == 3)
        .with("PutItem", Fault::Refuse(Refusal::THROTTLED), |call| call % 11 == 5)
        .with("UpdateItem", Fault::LoseReply, |call| call % 5 == 2)
        .with("UpdateItem", Fault::DelayReply(briefly), |call| call % 9 == 4)
        .with("ReceiveMessage", Fault::LoseReply, |call| call == 3)
        .with("DeleteMessage", Fault::LoseReply, |call| call % 4 == 1)
        .with("DeleteMessage", Fault::Refuse(Refusal::THROTTLED), |call| call % 5 == 2)
        .with("DeleteMessageBatch", Fault::RefuseEntries(Entries::FIRST), |call| call % 2 == 1)
        .with("ChangeMessageVisibility", Fault::DelayRequest(long), |call| call % 2 == 0)
        .with("ChangeMessageVisibility", Fault::Refuse(Refusal::THROTTLED), |call| call % 3 == 0)
        .with("ChangeMessageVisibilityBatch", Fault::RefuseEntries(Entries::FIRST), |call| call % 2 == 1);
    // Every fifth handler is longer than its leases, and needs beats.
    let settings =
        bench.settings("$bank; case $LEASEHOLD_IDEMPOTENCY_KEY in *[37]) sleep 4;; *) sleep 0.1;; esac; exit 0");
    let settings = settings.short_leases().set("LEASEHOLD_CONCURRENCY", "8").behind(&proxy);
    let (mut doomed, heir) = (settings.start(), settings.start());
    doomed.says_times("\"deleted\"", 8).await;
    doomed.signal(Signal::KILL);
    drop(doomed);
    bench.until("all is done", async || bench.effects().len() == KEYS && bench.messages().await == 0).await;
    heir.stops().await.clean_report();
    let statuses = bench.statuses().await;
    assert!(statuses.len() == KEYS && statuses.values().all(|status| status == "DONE"), "{statuses:?}");
    assert!(statuses.keys().eq(&bench.effects()), "effects are under the records' keys");
    // Only what the killed worker had in hand was called again.
    let repeated = repeated(bench.calls_by_key());
    assert!(repeated.len() <= 8 && repeated.values().all(|calls| *calls == 2), "{repeated:?}");
    assert_eq!(proxy.idle_faults(), [""; 0], "{:?}", bench.engine.calls());
}

#[tokio::test(flavor = "multi_thread")]
async fn t5_a_killed_worker_and_failures_leave_groups_in_their_order() {
    const GROUPS: [&str; 3] = ["a", "b", "c"];
    let bench = Bench::with_groups().await;
    bench.send_to_groups(&GROUPS, 6).await;
    // Every second message fails at first.
    let script =
        "$bank; case $LEASEHOLD_IDEMPOTENCY_KEY-$LEASEHOLD_ATTEMPT in *[135]-1) exit 1;; esac; sleep 0.2; exit 0";
    let settings = bench.settings(script).short_leases();
    let (mut doomed, heir) = (settings.start(), settings.start());
    doomed.says_times("\"deleted\"", 4).await;
    doomed.signal(Signal::KILL);
    drop(doomed);
    bench.until("all is done", async || bench.effects().len() == 18 && bench.messages().await == 0).await;
    heir.stops().await.clean_report();
    let calls = bench.calls();
    for group in GROUPS {
        let of_group = calls.iter().filter(|call| call.starts_with(&format!("jobs#{group}")));
        let called: Vec<_> = of_group.filter_map(|call| call.split(' ').next()).collect();
        assert!(called.len() >= 9 && called.is_sorted(), "{called:?}");
    }
}
