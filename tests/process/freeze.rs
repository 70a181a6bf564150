//! A worker that stands still (SIGSTOP) for longer than its leases, and goes on afterwards.

use rustix::process::Signal;

use crate::{
    bench::{Bench, Pipe},
    proxy::{Call, Fault, Hold, Proxy},
    worker::{Settings, Worker, report},
};

/// Handlers of a frozen worker say that they have begun and then wait to be let go, or for ever.
const HANDLER: &str = r#"$begin; case "$ROLE" in waits) echo >begun; $wait;; hangs) exec 3>begun; echo >&3; exec sleep 300;; slow) echo >heir; $wait;; esac; $end"#;

struct Frozen {
    bench: Bench,
    proxy: Proxy,
    worker: Worker,
    settings: Settings,
    begun: Pipe,
}

/// A worker in whose handler time stops.
async fn frozen(role: &str) -> Frozen {
    let bench = Bench::new().await;
    let mut begun = bench.pipe("begun");
    bench.send(["a"]).await;
    let proxy = Proxy::before(bench.engine.endpoint()).await;
    let settings = bench.settings(HANDLER).short_leases();
    let worker = settings.clone().set("ROLE", role).behind(&proxy).start();
    begun.is_written_to().await;
    worker.signal(Signal::STOP);
    Frozen { bench, proxy, worker, settings, begun }
}

impl Frozen {
    /// Calls that would touch the message.
    fn touches(&self) -> Vec<Call> {
        let touches = |call: &Call| call.operation.starts_with("Delete") || call.operation.starts_with("Change");
        self.proxy.calls().into_iter().filter(touches).collect()
    }

    /// The fences of the runs, in order.
    fn fences(&self) -> Vec<u64> {
        self.bench.calls().iter().filter_map(|call| call.split(' ').nth(1)?.parse().ok()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l5_a_worker_that_stood_still_leaves_alone_what_another_has_done() {
    let mut frozen = frozen("hangs").await;
    let mut heir = frozen.settings.start();
    heir.says("\"deleted\"").await;
    let touches = frozen.touches().len();
    frozen.worker.signal(Signal::CONT);
    // Its handler is ended.
    frozen.begun.is_let_go().await;
    frozen.worker.says("left to its visibility timeout").await;
    assert_eq!(frozen.touches().len(), touches, "{:?}", frozen.touches());
    let fences = frozen.fences();
    assert!(fences.len() == 2 && fences[0] < fences[1], "{fences:?}");
    let Frozen { bench, worker, .. } = frozen;
    assert_eq!(worker.stops().await.clean_report(), report([("left", 1)]));
    assert_eq!(heir.stops().await.clean_report(), report([("done", 1)]));
    assert_eq!(bench.statuses().await.into_values().collect::<Vec<_>>(), ["DONE"]);
    assert_eq!((bench.effects().len(), bench.lines("ended").len(), bench.messages().await), (1, 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_a_worker_that_stood_still_changes_nothing_of_what_another_runs() {
    let mut frozen = frozen("hangs").await;
    let mut running = frozen.bench.pipe("heir");
    let heir = frozen.settings.clone().set("ROLE", "slow").start();
    running.is_written_to().await;
    let touches = frozen.touches().len();
    frozen.worker.signal(Signal::CONT);
    frozen.begun.is_let_go().await;
    frozen.worker.says("left to its visibility timeout").await;
    assert_eq!(frozen.touches().len(), touches, "{:?}", frozen.touches());
    let depth = frozen.bench.engine.depth("jobs").await.expect("a queue");
    assert_eq!((depth.in_flight, depth.visible), (1, 0), "the other has it");
    assert_eq!(frozen.bench.statuses().await.into_values().collect::<Vec<_>>(), ["RUNNING"]);
    // Stopped first: what it might still do, it would have done before the other's end.
    let Frozen { bench, worker, .. } = frozen;
    assert_eq!(worker.stops().await.clean_report(), report([("left", 1)]));
    bench.lets_go();
    bench.until("all is done", async || bench.messages().await == 0).await;
    assert_eq!(heir.stops().await.clean_report(), report([("done", 1)]));
    assert_eq!((bench.effects().len(), bench.lines("ended").len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_what_ended_while_its_worker_stood_still_counts_where_nobody_took_over() {
    let frozen = frozen("waits").await;
    let Frozen { bench, worker, .. } = frozen;
    let is_visible = async || bench.engine.depth("jobs").await.is_ok_and(|depth| depth.visible == 1);
    bench.until("its lease is over", is_visible).await;
    bench.lets_go();
    bench.until("its handler has ended", async || bench.lines("ended").len() == 1).await;
    worker.signal(Signal::CONT);
    bench.until("it is settled", async || bench.messages().await == 0).await;
    let ended = worker.stops().await;
    let counts = ended.clean_report();
    assert_eq!(counts.get("done"), Some(&1), "{counts:?}");
    assert_eq!(bench.statuses().await.into_values().collect::<Vec<_>>(), ["DONE"]);
    assert_eq!((bench.calls().len(), bench.lines("ended").len()), (1, 1), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_what_came_while_the_worker_stood_still_is_not_run() {
    let bench = Bench::new().await;
    bench.send(["a"]).await;
    let hold = Hold::new();
    let proxy = Proxy::before(bench.engine.endpoint()).await;
    let proxy = proxy.with("ReceiveMessage", Fault::HoldReply(hold.clone()), |call| call == 1);
    let mut worker = bench.settings(HANDLER).short_leases().behind(&proxy).start();
    hold.holds(1).await;
    worker.signal(Signal::STOP);
    hold.release();
    let is_visible = async || bench.engine.depth("jobs").await.is_ok_and(|depth| depth.visible == 1);
    bench.until("its lease is over", is_visible).await;
    worker.signal(Signal::CONT);
    worker.says("left to its visibility timeout").await;
    assert_eq!(bench.calls().len(), 0, "not run under a lease that is over");
    worker.says("\"deleted\"").await;
    assert_eq!(worker.stops().await.clean_report(), report([("done", 1), ("left", 1)]));
    assert_eq!((bench.calls().len(), bench.messages().await), (1, 0));
}
