//! Signals: a worker that is told to stop finishes what it can, gives the rest back, and is gone in time.

use std::{collections::BTreeMap, time::Duration};

use rustix::process::Signal;
use tokio::time::Instant;

use crate::{
    bench::Bench,
    cases::check_all,
    proxy::{Fault, Proxy, Refusal, Switch},
    worker::report,
};

#[tokio::test(flavor = "multi_thread")]
async fn d1_sigterm_lets_a_handler_finish_and_its_message_go() {
    let bench = Bench::new().await;
    let mut begun = bench.pipe("begun");
    bench.send(["a"]).await;
    let mut worker = bench.settings("echo >begun; $wait; $bank; exit 0").start();
    begun.is_written_to().await;
    worker.signal(Signal::TERM);
    worker.says("draining").await;
    assert!(bench.effects().is_empty(), "it still runs");
    bench.lets_go();
    assert_eq!(worker.ends().await.clean_report(), report([("done", 1)]));
    assert_eq!((bench.effects().len(), bench.messages().await), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_a_handler_longer_than_the_drain_is_killed_and_given_back() {
    let bench = Bench::new().await;
    let mut begun = bench.pipe("begun");
    bench.send(["a"]).await;
    let settings = bench.settings("exec 3>begun; trap '' TERM; sleep 300 & echo >&3; wait; sleep 300");
    let settings = settings.set("LEASEHOLD_CANCEL_GRACE", "500ms").set("LEASEHOLD_DRAIN_TIMEOUT", "4s");
    // Its polls are parked for longer than the drain lasts.
    let worker = settings.set("LEASEHOLD_WAIT_TIME", "15s").start();
    begun.is_written_to().await;
    let told = Instant::now();
    let report = worker.stops().await.clean_report();
    assert!(told.elapsed() < Duration::from_secs(4), "{:?}", told.elapsed());
    begun.is_let_go().await;
    assert_given_back(&bench, &report).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_a_second_signal_does_not_wait_for_handlers_and_a_third_changes_nothing() {
    let after: [(Signal, &[Signal]); 3] =
        [(Signal::TERM, &[Signal::INT]), (Signal::INT, &[Signal::INT]), (Signal::TERM, &[Signal::TERM; 3])];
    check_all(after, check_second_signal).await;
}

async fn check_second_signal((first, more): (Signal, &[Signal])) {
    let bench = Bench::new().await;
    let mut begun = bench.pipe("begun");
    bench.send(["a"]).await;
    // Its polls are parked for longer than it has after a second signal, and its handlers ignore being told to stop.
    let settings = bench.settings("exec 3>begun; trap '' TERM; sleep 300 & echo >&3; wait; sleep 300");
    let mut worker = settings.set("LEASEHOLD_WAIT_TIME", "15s").start();
    begun.is_written_to().await;
    worker.signal(first);
    worker.says("draining").await;
    let told = Instant::now();
    worker.signal(more[0]);
    worker.says("told to stop now").await;
    // They find a worker that has two seconds for its handlers.
    more[1..].iter().for_each(|signal| worker.signal(*signal));
    let report = worker.ends().await.clean_report();
    assert!(told.elapsed() < Duration::from_secs(10), "the drain has 25 s: {:?}", told.elapsed());
    begun.is_let_go().await;
    assert_given_back(&bench, &report).await;
}

/// The only message is released and visible. A parked poll may have been handed it once more, and has given it back as
/// well.
async fn assert_given_back(bench: &Bench, report: &BTreeMap<String, u64>) {
    assert!(report.keys().eq(["released"]), "{report:?}");
    assert_eq!(bench.statuses().await.into_values().collect::<Vec<_>>(), ["RELEASED"]);
    assert_eq!(u64::from(bench.receives_of_the_message().await), report["released"] + 1);
}

/// Calls that are not answered while a worker drains.
const UNANSWERED: [(&str, Fault); 8] = [
    ("DynamoDB*", Fault::Hang),
    ("AmazonSQS*", Fault::Hang),
    ("*", Fault::Hang),
    ("*", Fault::NeverReply),
    ("UpdateItem", Fault::NeverReply),
    ("Delete*", Fault::Hang),
    ("Change*", Fault::Hang),
    ("*", Fault::Refuse(Refusal::UNAVAILABLE)),
];

#[tokio::test(flavor = "multi_thread")]
async fn d3_a_worker_that_gets_no_answers_is_gone_in_time_all_the_same() {
    check_all(UNANSWERED, check_unanswered).await;
}

async fn check_unanswered((of, fault): (&'static str, Fault)) {
    const KEYS: usize = 12;
    const DRAIN: Duration = Duration::from_secs(7);
    let bench = Bench::new().await;
    let away = Switch::default();
    let proxy = Proxy::before(bench.engine.endpoint()).await.during(of, fault, &away);
    bench.send(0..KEYS).await;
    // The first is done at once; the others end while it drains, but for some that are too long for that.
    let script = "$begin; [ -n \"$QUICK\" ] || case $LEASEHOLD_IDEMPOTENCY_KEY in *0) ;; *[37]) exec sleep 300;; *) sleep 0.9;; esac; $end";
    let settings = bench.settings(script).short_leases().set("LEASEHOLD_CONCURRENCY", "4");
    let mut worker = settings.clone().set("LEASEHOLD_DRAIN_TIMEOUT", "7s").behind(&proxy).start();
    worker.says("\"deleted\"").await;
    away.set(true);
    let told = Instant::now();
    let ended = worker.stops().await;
    let took = told.elapsed();
    let report = ended.clean_report();
    let log = ended.log.join("\n");
    assert!(took < DRAIN, "{took:?} {report:?}\n{log}");
    let last_said_at = ended.last_said_at().expect("a report");
    let late: Vec<_> = proxy.calls().into_iter().filter(|call| call.at > last_said_at).collect();
    assert!(late.is_empty(), "called after its report: {late:?}\n{log}");

    let heir = settings.set("QUICK", "yes").start();
    bench.until_done(KEYS).await;
    heir.stops().await.clean_report();
    assert_eq!((bench.effects().len(), bench.lines("overlaps").len()), (KEYS, 0));
    assert_eq!(proxy.idle_faults(), [""; 0]);
}
