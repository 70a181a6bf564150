//! Connections that go nowhere any more and still stand, as behind a firewall that has forgotten them, while new ones are
//! fine.

use crate::{bench::Bench, cases::check_all, proxy::Proxy};

const KEYS: usize = 24;

/// When it happens.
#[derive(Debug, Clone, Copy)]
enum When {
    /// A poll is parked, and nothing else is under way.
    Idle,
    /// Handlers run, beats are sent, and receives, claims, confirms and deletes are under way.
    Busy,
    /// The same, again and again.
    AgainAndAgain,
}

#[tokio::test(flavor = "multi_thread")]
async fn r4_connections_that_swallow_all_cost_nothing_but_time() {
    check_all([When::Idle, When::Busy, When::AgainAndAgain], check).await;
}

async fn check(when: When) {
    let bench = Bench::new().await;
    let proxy = Proxy::before(bench.engine.endpoint()).await;
    let script =
        "$begin; case $LEASEHOLD_IDEMPOTENCY_KEY in *3) sleep 4;; *[68]) sleep 2.2;; *) sleep 0.3;; esac; $end";
    let mut worker = bench.settings(script).short_leases().behind(&proxy).start();
    bench.send(0..KEYS).await;
    match when {
        When::Idle => {
            worker.says_times("\"deleted\"", KEYS).await;
            proxy.swallow();
            bench.send(KEYS..KEYS * 2).await;
        }
        When::Busy => {
            worker.says_times("\"deleted\"", 6).await;
            proxy.swallow();
        }
        When::AgainAndAgain => {
            for _ in 0..5 {
                worker.says_times("\"deleted\"", 3).await;
                proxy.swallow();
            }
        }
    }
    let keys = if matches!(when, When::Idle) { KEYS * 2 } else { KEYS };
    let is_over = async || {
        let statuses = bench.statuses().await;
        statuses.len() == keys && statuses.values().all(|status| status == "DONE") && bench.messages().await == 0
    };
    bench.until("all is done", is_over).await;
    let ended = worker.stops().await;
    let log = ended.log.join("\n");
    ended.clean_report();
    let mut succeeded = bench.lines("ended");
    succeeded.sort_unstable();
    assert!(bench.statuses().await.keys().eq(&succeeded), "{succeeded:?}\n{log}");
    assert_eq!((bench.effects().len(), bench.lines("overlaps").len()), (keys, 0), "{log}");
}
