//! A table that is throttled for longer than any lease lasts.

use std::time::Duration;

use crate::{
    bench::{Bench, SHORT_AND_LONG},
    cases::check_all,
    proxy::{Fault, Proxy, Refusal, Switch},
};

const KEYS: usize = 24;

/// Five leases, and longer than the pauses of all that waits.
const LONG: Duration = Duration::from_secs(15);

/// More calls of the guard than a worker makes meanwhile that waits between them.
const A_STORM: usize = 600;

/// Which calls of the table come through.
#[derive(Debug, Clone, Copy)]
enum Through {
    None,
    EveryFourth,
}

#[tokio::test(flavor = "multi_thread")]
async fn g8_a_table_that_is_throttled_for_long_costs_no_attempt_and_is_not_stormed() {
    check_all([Through::None, Through::EveryFourth], check).await;
}

async fn check(through: Through) {
    let bench = Bench::new().await;
    let throttled = Switch::default();
    let (is_on, code) = (throttled.clone(), "ProvisionedThroughputExceededException");
    let refuse = Fault::Refuse(Refusal::aws(400, code));
    let proxy = Proxy::before(bench.engine.endpoint()).await;
    let proxy = proxy
        .with("DynamoDB*", refuse, move |call| is_on.is_on() && (matches!(through, Through::None) || call % 4 != 0));
    let mut worker = bench.settings(SHORT_AND_LONG).short_leases().behind(&proxy).start();
    bench.send(0..KEYS).await;
    worker.says_times("\"deleted\"", 3).await;
    let before = proxy.calls().len();
    throttled.set(true);
    worker.runs_for(LONG).await;
    throttled.set(false);
    let calls = proxy.calls().split_off(before);
    let of_table = calls.iter().filter(|call| ["PutItem", "UpdateItem"].contains(&call.operation.as_str())).count();
    bench.until_done(KEYS).await;
    let ended = worker.stops().await;
    let log = ended.log.join("\n");
    ended.clean_report();
    assert!(of_table < A_STORM && calls.len() < 2 * A_STORM, "{of_table} of {}\n{log}", calls.len());
    assert!(log.contains("throttled"), "{log}");
    // What the worker could not keep its claim of is run again, and nothing that came to its end is.
    let succeeded = bench.succeeded();
    assert!(bench.statuses().await.keys().eq(&succeeded), "{succeeded:?}\n{log}");
    assert!(bench.calls().iter().all(|call| call.ends_with(" 1")), "no attempt: {:?}\n{log}", bench.calls());
    assert_eq!((bench.effects().len(), bench.lines("overlaps").len()), (KEYS, 0), "{log}");
    assert_eq!(proxy.idle_faults(), [""; 0]);
}
