//! Raw bytes over real sockets, as probes and worse send them.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
};

use super::*;
use crate::status::{Pause, Phase, QueueStatus};

mod page;
mod visitors;

/// Longer than anything here takes; every read of a test ends.
const SOON: Duration = Duration::from_secs(40);

/// An endpoint that ends with the test.
struct Endpoint {
    address: SocketAddr,
    serving: JoinSet<std::convert::Infallible>,
}

impl Endpoint {
    async fn telling(status: impl Fn() -> Status + Send + Sync + 'static) -> Self {
        Self::of(Worker::of(Box::new(status), Arc::default())).await
    }

    async fn of(worker: impl Into<Arc<Worker>>) -> Self {
        let worker = worker.into();
        let listener = bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, worker, exporter().1));
        Self { address, serving }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends these bytes and nothing more, and reads until the other side closes.
    async fn says(&self, bytes: &str) -> Reply {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        rest(stream).await
    }

    async fn get(&self, path: &str) -> Reply {
        self.says(&format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")).await
    }
}

/// A worker of which only this is known.
struct Worker {
    status: Box<dyn Fn() -> Status + Send + Sync>,
    looking: Arc<()>,
    moves_on: Notify,
}

impl Worker {
    fn of(status: Box<dyn Fn() -> Status + Send + Sync>, looking: Arc<()>) -> Self {
        Self { status, looking, moves_on: Notify::new() }
    }
}

impl Tells for Worker {
    fn status(&self) -> Status {
        (self.status)()
    }

    fn overview(&self) -> Overview {
        let Status { phase, problems, stalled_ms, .. } = self.status();
        Overview {
            ready: true,
            live: true,
            phase,
            problems,
            worker: "1-abc".into(),
            version: "1",
            now: 1,
            up_ms: 1,
            drain_left_ms: None,
            stalled_ms,
            circuits: Vec::new(),
            calls: BTreeMap::new(),
            write_units: 0,
            calls_per_message: None,
            write_units_per_message: None,
            queues: BTreeMap::new(),
        }
    }

    fn history(&self) -> History {
        History::default()
    }

    fn moves_on(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.moves_on.notified())
    }

    fn looks(&self) -> Box<dyn Send + Sync> {
        Box::new(Arc::clone(&self.looking))
    }
}

/// What comes back until the other side closes, by which means ever.
async fn rest(mut stream: TcpStream) -> Reply {
    let mut bytes = Vec::new();
    match timeout(SOON, stream.read_to_end(&mut bytes)).await.expect("is closed") {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => Reply(String::from_utf8(bytes).unwrap()),
    }
}

#[derive(Debug)]
struct Reply(String);

impl Reply {
    fn status(&self) -> u16 {
        self.0.split(' ').nth(1).unwrap_or_else(|| panic!("no answer: {self:?}")).parse().unwrap()
    }

    fn head(&self) -> String {
        self.0.split("\r\n\r\n").next().unwrap().to_ascii_lowercase()
    }

    fn body(&self) -> &str {
        self.0.split_once("\r\n\r\n").unwrap().1
    }

    fn json(&self) -> Value {
        serde_json::from_str(self.body()).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

fn status(phase: Phase, queue: QueueStatus) -> Status {
    Status {
        phase,
        problems: Vec::new(),
        stalled_ms: None,
        hangs: false,
        queues: BTreeMap::from([("payments".to_owned(), queue)]),
    }
}

fn receiving() -> QueueStatus {
    QueueStatus {
        guard: "claim".into(),
        guard_outage: "pause".into(),
        slots: 20,
        free_slots: 19,
        visibility_timeout: 30,
        handler_p99_ms: None,
        polled_ms_ago: Some(12),
        polls_come_back: true,
        pauses: Vec::new(),
        trials: Vec::new(),
        unguarded: None,
    }
}

fn pausing() -> QueueStatus {
    let pause = Pause { what: "an operator".into(), cause: "the bank".into(), ends: "leasehold resume".into() };
    QueueStatus { pauses: vec![pause], ..receiving() }
}

async fn well() -> Endpoint {
    Endpoint::telling(|| status(Phase::Running, receiving())).await
}

#[tokio::test]
async fn live_and_ready_are_told_apart() {
    let starting = Status {
        phase: Phase::Starting,
        problems: vec!["no table".into()],
        stalled_ms: None,
        hangs: false,
        queues: BTreeMap::new(),
    };
    let hanging = QueueStatus { polls_come_back: false, ..receiving() };
    let cases = [
        (starting, 200, 503),
        (status(Phase::Running, receiving()), 200, 200),
        (status(Phase::Running, pausing()), 200, 503),
        (status(Phase::Running, hanging), 503, 503),
        (status(Phase::Draining, receiving()), 200, 503),
    ];
    for (status, live, ready) in cases {
        let told = status.clone();
        let endpoint = Endpoint::telling(move || told.clone()).await;
        let replies = (endpoint.get("/live").await, endpoint.get("/ready").await);
        assert_eq!((replies.0.status(), replies.1.status()), (live, ready), "{status:?}");
    }
}

#[tokio::test]
async fn who_asks_sees_why_it_is_not_ready_and_how_that_ends() {
    let endpoint = Endpoint::telling(|| status(Phase::Running, pausing())).await;
    for path in ["/ready", "/live", "/ready?verbose"] {
        let reply = endpoint.get(path).await;
        assert!(reply.head().contains("content-type: application/json") && reply.body().ends_with("}\n"), "{reply:?}");
        let told = reply.json();
        assert_eq!((&told["ready"], &told["live"], &told["phase"]), (&false.into(), &true.into(), &"running".into()));
        assert_eq!(told["problems"], Value::Array(Vec::new()));
        let queue = &told["queues"]["payments"];
        assert_eq!((&queue["free_slots"], &queue["pauses"][0]["ends"]), (&19.into(), &"leasehold resume".into()));
    }
}

#[tokio::test]
async fn every_answer_is_fresh() {
    let phases = Arc::new(AtomicU32::new(0));
    let endpoint = Endpoint::telling(move || match phases.fetch_add(1, Ordering::Relaxed) {
        0 => status(Phase::Starting, receiving()),
        1 => status(Phase::Running, receiving()),
        _ => status(Phase::Draining, receiving()),
    })
    .await;
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(endpoint.get("/ready").await.status());
    }
    assert_eq!(told, [503, 200, 503]);
}

#[tokio::test]
async fn other_paths_and_methods_are_refused_and_nothing_is_stored() {
    let endpoint = well().await;
    let asked = [
        ("GET / ", 200),
        ("GET /live ", 200),
        ("GET /metric ", 404),
        ("GET /ready/ ", 404),
        ("HEAD /nothing ", 404),
        ("POST /ready ", 405),
        ("OPTIONS * ", 404),
    ];
    for (line, expected) in asked {
        let reply = endpoint.says(&format!("{line}HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")).await;
        assert_eq!(reply.status(), expected, "{line}: {reply:?}");
        assert!(reply.head().contains("cache-control: no-store"), "{line}: {reply:?}");
    }
    let reply = endpoint.get("/nothing").await;
    assert!(reply.body().contains("/live ") && reply.body().contains("/ready "), "{reply:?}");
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let endpoint = well().await;
    let (get, head) =
        (endpoint.get("/ready").await, endpoint.says("HEAD /ready HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await);
    assert_eq!((head.status(), head.body()), (200, ""));
    let length = format!("content-length: {}", get.body().len());
    assert!(get.head().contains(&length) && head.head().contains(&length), "{get:?} {head:?}");
    let old = endpoint.says("GET /live HTTP/1.0\r\n\r\n").await;
    assert_eq!(old.status(), 200);
}

#[tokio::test]
async fn one_connection_has_one_answer_however_much_is_sent() {
    let endpoint = well().await;
    let request = "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    let reply = endpoint.says(&request.repeat(100)).await;
    assert_eq!(reply.0.matches("HTTP/1.1 200").count(), 1, "{reply:?}");
    assert!(reply.head().contains("connection: close"), "{reply:?}");
}

#[tokio::test]
async fn a_body_is_not_waited_for_and_a_large_head_is_refused() {
    let endpoint = well().await;
    for method in ["GET", "POST"] {
        let promised = format!("{method} /live HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000000\r\n\r\nsome");
        let reply = endpoint.says(&promised).await;
        assert_eq!(reply.status(), if method == "GET" { 200 } else { 405 });
    }
    let large = format!("GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {}", "y".repeat(LARGEST_HEAD));
    assert_eq!(endpoint.says(&large).await.status(), 431);
    assert_eq!(endpoint.says("\u{16}\u{3}\u{1} this is no HTTP\r\n\r\n").await.status(), 400);
    assert_eq!(endpoint.get("/live").await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn who_dawdles_is_cut_off() {
    let endpoint = well().await;
    for bytes in ["", "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "] {
        let reply = endpoint.says(bytes).await;
        assert_eq!(reply.0, "", "no answer to half a question");
    }
}

#[tokio::test(start_paused = true)]
async fn who_dawdles_where_steps_are_recorded_is_cut_off_too() {
    let listener = bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(serve_steps(listener, Runs::new(format!("http://{address}"), [0; 32]), 1));
    let endpoint = Endpoint { address, serving };
    for bytes in ["", "PUT /jobs/1/steps/a HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "] {
        assert_eq!(endpoint.says(bytes).await.0, "", "no answer to half a question");
    }
    let stranger = "PUT /jobs/1/steps/a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000000\r\n\r\nsome";
    assert_eq!(endpoint.says(stranger).await.status(), 410, "whose body is not waited for");
}

#[tokio::test]
async fn beyond_the_limit_the_oldest_makes_room_for_the_newest() {
    let endpoint = well().await;
    let mut silent = Vec::new();
    for _ in 0..HEALTH.most {
        silent.push(endpoint.connect().await);
    }
    assert_eq!(endpoint.get("/live").await.status(), 200);
    let mut ends = silent.into_iter();
    assert_eq!(rest(ends.next().unwrap()).await.0, "", "the first was cut off");
    // Not one more than was needed: the others are still listened to.
    let mut second = ends.next().unwrap();
    second.write_all(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await.unwrap();
    assert_eq!(rest(second).await.status(), 200);
}

#[tokio::test]
async fn a_panic_costs_one_answer() {
    let asked = Arc::new(AtomicU32::new(0));
    let endpoint = Endpoint::telling(move || {
        assert!(asked.fetch_add(1, Ordering::Relaxed) > 0, "the first time");
        status(Phase::Running, receiving())
    })
    .await;
    assert_eq!(endpoint.get("/live").await.0, "");
    assert_eq!(endpoint.get("/live").await.status(), 200);
}

#[tokio::test]
async fn when_it_is_dropped_all_its_connections_are() {
    let mut endpoint = well().await;
    let silent = endpoint.connect().await;
    // Taken in their order: when the second is answered, the first is held.
    assert_eq!(endpoint.get("/live").await.status(), 200);
    endpoint.serving.shutdown().await;
    assert_eq!(rest(silent).await.0, "");
    assert!(TcpStream::connect(endpoint.address).await.is_err());
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let endpoint = well().await;
    let error = bind(endpoint.address).await.expect_err("is taken");
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&endpoint.address.to_string()), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_lasts_longer_than_a_request_and_ends_so_that_its_client_asks_again() {
    let looking = Arc::new(());
    let status = Box::new(|| status(Phase::Running, receiving()));
    let endpoint = Endpoint::of(Worker::of(status, Arc::clone(&looking))).await;
    let mut stream = endpoint.connect().await;
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await.unwrap();
    let begun = tokio::time::Instant::now();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let told = String::from_utf8(bytes).unwrap();
    let lasted = begun.elapsed().as_secs();
    assert!((598..=601).contains(&lasted), "{lasted} s");
    assert!(told.to_ascii_lowercase().contains("content-type: text/event-stream"), "{}", &told[..400]);
    assert_eq!(told.matches("event: history").count(), 1);
    let pictures = told.matches("event: status").count();
    assert!((550..=601).contains(&pictures), "{pictures} in ten minutes");
    assert_eq!(Arc::strong_count(&looking), 2, "nobody looks any more");
}

#[tokio::test(start_paused = true)]
async fn a_phase_is_told_at_once_and_not_only_with_the_next_second() {
    let looks = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&looks);
    let status = move || {
        let phase = if seen.fetch_add(1, Ordering::Relaxed) == 0 { Phase::Running } else { Phase::Draining };
        status(phase, receiving())
    };
    let worker = Arc::new(Worker::of(Box::new(status), Arc::default()));
    let endpoint = Endpoint::of(Arc::clone(&worker)).await;
    let mut stream = endpoint.connect().await;
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await.unwrap();
    let (mut told, begun) = (String::new(), tokio::time::Instant::now());
    while !told.contains("draining") {
        let mut part = [0; 4096];
        let length = stream.read(&mut part).await.unwrap();
        assert!(length > 0, "it ended with {told}");
        told.push_str(std::str::from_utf8(&part[..length]).unwrap());
        if told.contains("running") {
            worker.moves_on.notify_one();
        }
    }
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn streams_are_few_and_push_no_probe_out() {
    let endpoint = well().await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = endpoint.connect().await;
        stream.write_all(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await.unwrap();
        let mut head = [0; 15];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK");
        streams.push(stream);
    }
    let refused = endpoint.get("/events").await;
    assert!(refused.status() == 503 && refused.head().contains("retry-after"), "{refused:?}");
    // As many dawdlers as there may be connections: none of the streams makes room, nor counts.
    let mut silent = Vec::new();
    for _ in 0..HEALTH.most {
        silent.push(endpoint.connect().await);
    }
    assert_eq!(endpoint.get("/live").await.status(), 200);
    for mut stream in streams {
        let mut more = [0; 1];
        stream.read_exact(&mut more).await.expect("still told");
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_goes_on_after_a_standstill_is_not_told_to_be_dead_and_one_that_hangs_is() {
    let looks = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&looks);
    let endpoint = Endpoint::telling(move || {
        let hangs = seen.fetch_add(1, Ordering::Relaxed) == 0;
        Status { hangs, ..status(Phase::Running, receiving()) }
    })
    .await;
    assert_eq!((endpoint.get("/live").await.status(), looks.load(Ordering::Relaxed)), (200, 2));
    let endpoint = Endpoint::telling(|| Status { hangs: true, ..status(Phase::Running, receiving()) }).await;
    assert_eq!((endpoint.get("/live").await.status(), endpoint.get("/ready").await.status()), (503, 503));
}

#[tokio::test]
async fn all_that_is_known_is_told_and_what_is_counted() {
    let endpoint = well().await;
    let told = endpoint.get("/status").await;
    assert_eq!((told.status(), &told.json()["worker"]), (200, &"1-abc".into()));
    let (recorder, exporter) = exporter();
    let telemetry = crate::telemetry::Telemetry::default().and(recorder);
    telemetry.describe();
    let meters = crate::telemetry::Meters::new(&telemetry, "payments", "payments-prod");
    meters.settled(crate::telemetry::Outcome::Done, 3);
    meters.handled(crate::telemetry::HandlerEnd::TimedOut, Duration::from_millis(40));
    let listener = bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut serving = JoinSet::new();
    let worker = Worker::of(Box::new(|| status(Phase::Running, receiving())), Arc::default());
    serving.spawn(serve(listener, Arc::new(worker), exporter));
    let reply = Endpoint { address, serving }.get("/metrics").await;
    assert!(reply.head().contains("content-type: text/plain; version=0.0.4"), "{reply:?}");
    for line in [
        "# TYPE leasehold_messages_settled_total counter",
        r#"leasehold_messages_settled_total{queue="payments",outcome="done"} 3"#,
        r#"messaging_process_duration_seconds_bucket{queue="payments",messaging_system="aws_sqs",messaging_destination_name="payments-prod",messaging_operation_name="process",error_type="timeout",le="0.05"} 1"#,
    ] {
        assert!(reply.body().lines().any(|told| told == line), "{line} is not in {}", reply.body());
    }
    for metric in crate::telemetry::METRICS.iter().filter(|metric| metric.labels.contains(&"queue")) {
        let name = metric.prometheus_name();
        let is_there = reply.body().lines().any(|line| line.starts_with(&name));
        assert!(is_there || metric.labels.contains(&"code"), "{name} is not in {}", reply.body());
    }
}
