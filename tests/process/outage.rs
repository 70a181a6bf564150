//! A service, or one call of it, that is away for a while in the middle of the work of two workers.

use crate::{
    bench::{Bench, SHORT_AND_LONG},
    cases::check_all,
    proxy::{Fault, Proxy, Refusal, Switch},
};

const KEYS: usize = 24;

/// What is away, how that shows, and what a worker says when it has noticed; that often, for the poll that was under way
/// fails in any case.
type Outage = (&'static str, Fault, &'static str, usize);

fn outages() -> Vec<Outage> {
    let (away, still_away, failed) = ("away: no new messages are received", "still away", "the poll failed");
    let gone = Refusal::aws(400, "ResourceNotFoundException");
    let no_queue = Refusal::aws(400, "QueueDoesNotExist");
    vec![
        ("DynamoDB*", Fault::Hang, still_away, 1),
        ("DynamoDB*", Fault::NeverReply, still_away, 1),
        ("DynamoDB*", Fault::LoseRequest, still_away, 1),
        ("DynamoDB*", Fault::LoseReply, still_away, 1),
        ("DynamoDB*", Fault::Refuse(Refusal::UNAVAILABLE), still_away, 1),
        ("DynamoDB*", Fault::Refuse(Refusal::EXPIRED), still_away, 1),
        ("DynamoDB*", Fault::Refuse(gone), still_away, 1),
        ("AmazonSQS*", Fault::LoseRequest, failed, 3),
        ("AmazonSQS*", Fault::LoseReply, failed, 3),
        ("AmazonSQS*", Fault::Hang, failed, 2),
        ("AmazonSQS*", Fault::Refuse(Refusal::DENIED), failed, 3),
        ("AmazonSQS*", Fault::Refuse(Refusal::UNAVAILABLE), failed, 3),
        ("AmazonSQS*", Fault::Refuse(no_queue), failed, 3),
        ("Delete*", Fault::Refuse(Refusal::DENIED), away, 2),
        ("Delete*", Fault::LoseRequest, "not deleted", 2),
        ("Change*", Fault::Refuse(Refusal::DENIED), "cannot be extended", 1),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn g8_what_was_away_for_a_while_costs_nothing_but_time() {
    check_all(outages(), check).await;
}

async fn check((of, fault, said, times): Outage) {
    let bench = Bench::new().await;
    let away = Switch::default();
    let proxy = Proxy::before(bench.engine.endpoint()).await.during(of, fault, &away);
    let settings = bench.settings(SHORT_AND_LONG).short_leases().behind(&proxy);
    bench.send(0..KEYS).await;
    let (mut one, other) = (settings.start(), settings.start());
    one.says_times("\"deleted\"", 3).await;
    away.set(true);
    proxy.cut();
    one.says_times(said, times).await;
    away.set(false);
    bench.until_done(KEYS).await;
    let (one, other) = (one.stops().await, other.stops().await);
    let (log, other_log) = (one.log.join("\n"), other.log.join("\n"));
    one.clean_report();
    other.clean_report();
    let succeeded = bench.succeeded();
    assert!(bench.statuses().await.keys().eq(&succeeded), "{succeeded:?}\n{log}\n\n{other_log}");
    assert_eq!(bench.lines("overlaps"), [""; 0], "{log}\n\n{other_log}");
    assert_eq!(proxy.idle_faults(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_again_and_again_cost_nothing_but_time() {
    let bench = Bench::new().await;
    let proxy = Proxy::before(bench.engine.endpoint()).await;
    bench.send(0..KEYS).await;
    let mut worker = bench.settings("$begin; sleep 0.3; $end").short_leases().behind(&proxy).start();
    for _ in 0..KEYS / 2 {
        worker.says("\"deleted\"").await;
        proxy.cut();
    }
    bench.until("all is done", async || bench.lines("ended").len() >= KEYS && bench.messages().await == 0).await;
    assert_eq!(worker.stops().await.clean_report().get("done"), Some(&(KEYS as u64)));
    assert_eq!((bench.lines("ended").len(), bench.lines("overlaps").len()), (KEYS, 0));
}
