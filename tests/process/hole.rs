//! Connections that go nowhere any more and still stand, as behind a firewall that has forgotten them, while new ones are
//! fine.

use crate::{
    bench::{Bench, SHORT_AND_LONG},
    cases::check_all,
    proxy::Proxy,
};

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
    let mut worker = bench.settings(SHORT_AND_LONG).short_leases().behind(&proxy).start();
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
    bench.until_done(keys).await;
    let ended = worker.stops().await;
    let log = ended.log.join("\n");
    ended.clean_report();
    let succeeded = bench.succeeded();
    assert!(bench.statuses().await.keys().eq(&succeeded), "{succeeded:?}\n{log}");
    assert_eq!((bench.effects().len(), bench.lines("overlaps").len()), (keys, 0), "{log}");
}
