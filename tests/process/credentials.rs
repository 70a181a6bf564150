//! Credentials that end while the worker runs, from an endpoint as a container's agent has it, which is slow, fails, or
//! never answers: <https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html>.

use std::time::Duration;

use agent::{Agent, Mood};
use hyper::{header::AUTHORIZATION, http::request::Parts};
use leasehold::clock::{Clock, Millis};

use crate::{
    bench::Bench,
    cases::check_all,
    proxy::{Fault, Proxy},
};

mod agent;

/// What the access keys here begin with; the moment of their end follows, in milliseconds.
const KEY: &str = "ASIATEST";

/// Of each set of credentials, in whole seconds.
const LIFE: Duration = Duration::from_secs(24);

/// What is left of it when troubles end in time. The SDK by itself uses nothing that has less than five seconds left, or
/// ten at times.
const SPARE: Duration = Duration::from_secs(3);

/// Whether a request is signed with credentials that are over.
pub(crate) fn have_expired(head: &Parts) -> bool {
    let signed = head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let ends = signed.split_once(KEY).and_then(|(_, rest)| rest.split_once('/')?.0.parse().ok());
    Millis(ends.expect("a key of these")) <= Clock::system().now().wall
}

/// What the endpoint is like, and whether its troubles end before the credentials do.
type Case = (Mood, bool);

#[tokio::test(flavor = "multi_thread")]
async fn r4_credentials_whose_successors_are_late_hold_to_their_end_and_the_worker_heals_by_itself() {
    let slow = Mood::Slow(Duration::from_secs(4));
    check_all([(slow, true), (Mood::Fails, true), (Mood::Fails, false), (Mood::Silent, false)], check).await;
}

async fn check((mood, ends_in_time): Case) {
    let (bench, agent) = (Bench::new().await, Agent::new().await);
    let proxy = Proxy::before(bench.engine.endpoint()).await.with("*", Fault::RefuseExpired, |_| true);
    let script = "$begin; $wait; $end";
    let settings = bench.settings(script).short_leases().set("LEASEHOLD_VISIBILITY_TIMEOUT", "10s");
    let mut worker = agent.credit(settings).behind(&proxy).start();
    worker.says("\"receiving\"").await;
    bench.poll("a first renewal, by which all is well", async || agent.handed_out().1 >= 2).await;
    let since = agent.handed_out().0;
    agent.is(mood);
    // Needs beats all the time.
    bench.send(["a"]).await;
    if ends_in_time {
        worker.runs_for((LIFE - SPARE).saturating_sub(since.elapsed())).await;
    } else {
        worker.runs_for(LIFE.saturating_sub(since.elapsed())).await;
        worker.says_times("loading credentials", 2).await;
    }
    agent.is(Mood::Well);
    bench.lets_go();
    bench.send(["b", "c"]).await;
    bench.until_done(3).await;
    let ended = worker.stops().await;
    let log = ended.log.join("\n");
    ended.clean_report();
    assert_eq!((bench.effects().len(), bench.lines("overlaps").len(), bench.lines("ended").len()), (3, 0, 3), "{log}");
    if ends_in_time {
        assert_eq!(bench.calls().len(), 3, "{log}");
        for told in ["the poll failed", "away", "access denied", "no answer", "cannot be extended"] {
            assert!(!log.contains(told), "{told}: {log}");
        }
    }
}
