//! Told to stop at every moment of a worker's first seconds: nothing is lost, and nothing stays hidden.

use std::{collections::BTreeMap, time::Duration};

use rustix::process::Signal;
use tokio::{
    task::JoinSet,
    time::{Instant, interval},
};

use crate::{
    bench::Bench,
    proxy::{Fault, Hold, Proxy},
    worker::Settings,
};

/// From the start on, the moments at which workers are told.
const STEP: Duration = Duration::from_millis(50);
const MOMENTS: u32 = 41;

/// Workers start this far apart, so that a slow machine starts few at once.
const APART: Duration = Duration::from_millis(100);

/// More than the workers can do by then.
const KEYS: usize = 160;

/// What was sent when "draining" was said, or just before it, arrives within this.
const ON_THE_WAY: Duration = Duration::from_millis(400);

const DRAIN: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread")]
async fn d1_a_signal_at_any_moment_loses_nothing_and_hides_nothing() {
    let bench = Bench::new().await;
    bench.send(0..KEYS).await;
    // What is not given back stays hidden for longer than this takes.
    let settings =
        bench.settings("$begin; [ -n \"$QUICK\" ] || sleep 1; $end").set("LEASEHOLD_VISIBILITY_TIMEOUT", "90s");
    let slowly = settings.clone().set("LEASEHOLD_CONCURRENCY", "2").set("LEASEHOLD_DRAIN_TIMEOUT", "12s");
    let (mut workers, mut starts) = (JoinSet::new(), interval(APART));
    for moment in 0..MOMENTS {
        starts.tick().await;
        workers.spawn(told_after(STEP * moment, bench.engine.endpoint().to_owned(), slowly.clone()));
    }
    let mut done = 0;
    for report in workers.join_all().await {
        assert!(report.keys().all(|count| ["done", "released"].contains(&count.as_str())), "{report:?}");
        done += report.get("done").copied().unwrap_or_default();
    }
    let depth = bench.engine.depth("jobs").await.expect("a queue");
    assert_eq!((depth.in_flight, depth.delayed), (0, 0), "{done} are done");
    assert!(done > 0 && depth.visible > 0 && depth.visible + done == KEYS as u64, "{done} are done, {depth:?}");

    let mut heir = settings.set("QUICK", "yes").start();
    heir.says_times("\"deleted\"", depth.visible.try_into().expect("few")).await;
    assert_eq!(heir.stops().await.clean_report(), crate::worker::report([("done", depth.visible)]));
    let calls = bench.calls_by_key();
    assert!(calls.len() == KEYS && calls.values().all(|calls| *calls == 1), "{calls:?}");
    assert_eq!((bench.lines("ended").len(), bench.messages().await), (KEYS, 0));
}

/// Starts a worker, tells it to stop after this time, and looks at how it ends. Gives back its report; it is empty if it was
/// told before it had one to make.
async fn told_after(time: Duration, endpoint: String, settings: Settings) -> BTreeMap<String, u64> {
    let proxy = Proxy::before(&endpoint).await;
    let mut worker = settings.behind(&proxy).start();
    worker.runs_for(time).await;
    let told = Instant::now();
    let ended = worker.stops().await;
    let took = told.elapsed();
    if ended.killed_by == Some(Signal::TERM.as_raw()) {
        // Before it could listen; then it has not begun either.
        assert!(ended.log.is_empty() && proxy.calls().is_empty(), "{time:?}: {:?} {:?}", ended.log, proxy.calls());
        return BTreeMap::new();
    }
    assert!(took < DRAIN, "{time:?}: {took:?}");
    let receives = proxy.calls().into_iter().filter(|call| call.operation == "ReceiveMessage");
    let Some(draining) = ended.said_at("draining") else {
        // Told during the checks.
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{time:?}");
        assert_eq!(receives.count(), 0, "{time:?}: {:?}", ended.log);
        return BTreeMap::new();
    };
    let report = ended.clean_report();
    let late: Vec<_> = receives.filter(|call| call.at > draining + ON_THE_WAY).collect();
    assert!(late.is_empty(), "{time:?}: received after {draining:?}: {late:?}");
    // Every call was awaited before the report.
    let last_said_at = ended.last_said_at().expect("a report");
    let late: Vec<_> = proxy.calls().into_iter().filter(|call| call.at > last_said_at).collect();
    assert!(late.is_empty(), "{time:?}: called after {last_said_at:?}: {late:?}");
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_a_signal_during_the_checks_ends_them_at_once() {
    // Queue and table are looked at side by side: with a call of each held, no other is on its way.
    for (of_queue, of_table) in [
        ("GetQueueUrl", "DescribeTable"),
        ("GetQueueAttributes", "DescribeTable"),
        ("GetQueueAttributes", "DescribeTimeToLive"),
    ] {
        let bench = Bench::new().await;
        let hold = Hold::new();
        let proxy = Proxy::before(bench.engine.endpoint()).await;
        let proxy = proxy.with(of_queue, Fault::HoldRequest(hold.clone()), |_| true);
        let proxy = proxy.with(of_table, Fault::HoldRequest(hold.clone()), |_| true);
        let worker = bench.settings("exit 0").behind(&proxy).start();
        hold.holds(2).await;
        let calls = proxy.calls().len();
        check_at_once(worker).await;
        assert_eq!(proxy.calls().len(), calls, "{of_queue}, {of_table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_a_signal_while_aws_is_out_of_reach_ends_the_wait_at_once() {
    let bench = Bench::new().await;
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let mut worker = bench.settings("exit 0").set("AWS_ENDPOINT_URL", format!("http://{nowhere}")).start();
    worker.says("not ready").await;
    check_at_once(worker).await;
}

/// Tells a worker that has nothing in hand to stop: it is gone long before any call would time out.
async fn check_at_once(worker: crate::worker::Worker) {
    let told = Instant::now();
    let ended = worker.stops().await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{:?}", ended.log);
    assert!(told.elapsed() < Duration::from_secs(3), "{:?}", told.elapsed());
}
