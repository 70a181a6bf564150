//! Credentials that end while the worker runs, from an endpoint as a container's agent has it, which is slow, fails, or
//! never answers: <https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html>.

use std::{
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header::AUTHORIZATION,
    http::request::Parts,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use leasehold::clock::{Clock, Millis};
use serde_json::json;
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    bench::Bench,
    cases::check_all,
    proxy::{Fault, Proxy},
    worker::Settings,
};

/// What the access keys here begin with; the moment of their end follows, in milliseconds.
const KEY: &str = "ASIATEST";

/// What the worker proves itself with to the endpoint.
const TOKEN: &str = "a-token-of-the-agent";

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

/// How the endpoint answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    /// After this time.
    Slow(Duration),
    Fails,
    Silent,
}

#[derive(Debug)]
struct State {
    mood: Mood,
    /// When the last set was handed out, and how many were.
    handed_out: Option<(Instant, usize)>,
}

/// The endpoint. Ends when dropped.
struct Agent {
    url: String,
    state: Arc<Mutex<State>>,
    _serving: JoinSet<()>,
}

impl Agent {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/role", listener.local_addr().expect("an address"));
        let state = Arc::new(Mutex::new(State { mood: Mood::Well, handed_out: None }));
        let (mut serving, of_all) = (JoinSet::new(), Arc::clone(&state));
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&of_all);
                let service = service_fn(move |request| answer(request, Arc::clone(&state)));
                let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                // One that the worker has given up on is no error here.
                connections.spawn(async move { drop(serving.await) });
            }
        });
        Self { url, state, _serving: serving }
    }

    /// The credentials of these settings come from here alone.
    fn credit(&self, settings: Settings) -> Settings {
        let settings = settings.unset("AWS_ACCESS_KEY_ID").unset("AWS_SECRET_ACCESS_KEY");
        settings.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", &self.url).set("AWS_CONTAINER_AUTHORIZATION_TOKEN", TOKEN)
    }

    fn is(&self, mood: Mood) {
        self.state.lock().expect("not poisoned").mood = mood;
    }

    fn handed_out(&self) -> (Instant, usize) {
        self.state.lock().expect("not poisoned").handed_out.expect("one at least")
    }
}

async fn answer(request: Request<Incoming>, state: Arc<Mutex<State>>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let reply = |status: u16, body: String| Response::builder().status(status).body(Full::from(body)).expect("a reply");
    if request.headers().get(AUTHORIZATION).is_none_or(|token| token != TOKEN) {
        return Ok(reply(403, json!({"code": "AccessDenied", "message": "no token"}).to_string()));
    }
    let mood = state.lock().expect("not poisoned").mood;
    match mood {
        Mood::Well => {}
        Mood::Slow(time) => sleep(time).await,
        Mood::Fails => return Ok(reply(500, "the agent is out of order".to_owned())),
        Mood::Silent => std::future::pending().await,
    }
    let mut state = state.lock().expect("not poisoned");
    state.handed_out = Some((Instant::now(), state.handed_out.map_or(0, |(_, sets)| sets) + 1));
    // Whole seconds are written, rounded down, and so they are meant.
    let ends = Millis((Clock::system().now().wall + LIFE).0 / 1000 * 1000);
    Ok(reply(
        200,
        json!({
            "AccessKeyId": format!("{KEY}{}", ends.0), "SecretAccessKey": "secret", "Token": "token",
            "Expiration": ends.utc(),
        })
        .to_string(),
    ))
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
    let script = "$begin; until [ -e go ]; do sleep 0.1; done; $end";
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
    fs::write(bench.path("go"), "").expect("is written");
    bench.send(["b", "c"]).await;
    let all_done = async || {
        let statuses = bench.statuses().await;
        statuses.len() == 3 && statuses.values().all(|status| status == "DONE") && bench.messages().await == 0
    };
    bench.until("all is done", all_done).await;
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
