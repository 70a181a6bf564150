//! A queue is drained by an app, which is a socket of this test.

use std::collections::BTreeSet;

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::{
    bench::{Bench, SOON},
    worker::{Settings, report},
};

/// In milliseconds, with the visibility timeout of these tests.
const LEASE_AND_SKEW: u64 = 6_000 + 2_000;

/// An app that is asked by hand: each request waits for its reply.
struct App {
    listener: TcpListener,
    url: String,
}

struct Request {
    stream: BufReader<TcpStream>,
    head: Vec<String>,
}

impl App {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/jobs", listener.local_addr().expect("an address"));
        Self { listener, url }
    }

    fn settings(&self, bench: &Bench) -> Settings {
        bench.settings("").set("LEASEHOLD_JOBS_HANDLER", &self.url).set("LEASEHOLD_BACKOFF", "1s..2s")
    }

    /// The next request. A probe connects and sends nothing.
    async fn request(&self) -> Request {
        let next = async {
            loop {
                let (stream, _) = self.listener.accept().await.expect("a connection");
                if let Some(request) = Request::read(BufReader::new(stream)).await {
                    return request;
                }
            }
        };
        timeout(SOON, next).await.expect("soon")
    }
}

impl Request {
    async fn read(mut stream: BufReader<TcpStream>) -> Option<Self> {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            match stream.read_line(&mut line).await.expect("can be read") {
                0 => return None,
                2 => return Some(Self { stream, head }),
                _ => head.push(line.trim_end().to_owned()),
            }
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The fence, which is a time in milliseconds unless runs follow each other faster.
    fn fence(&self) -> u64 {
        self.header("x-leasehold-fence").expect("a fence").parse().expect("a number")
    }

    /// Answers with a status and headers, and closes.
    async fn answer(mut self, answer: &str) {
        let length: u64 = self.header("content-length").expect("a length").parse().expect("a number");
        (&mut self.stream).take(length).read_to_end(&mut Vec::new()).await.expect("a body");
        let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        self.stream.write_all(answer.as_bytes()).await.expect("is written");
    }

    /// Waits until the worker has closed the connection.
    async fn let_go(mut self) {
        // What is left of the request, and then the end, or a reset.
        let _ = timeout(SOON, self.stream.read_to_end(&mut Vec::new())).await.expect("is closed soon");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t1_an_app_drains_a_queue_and_its_duplicates_once_whatever_proxy_there_is() {
    let (bench, app) = (Bench::new().await, App::new().await);
    bench.send(0..5).await;
    let settings = app.settings(&bench).set("LEASEHOLD_JOBS_HANDLER_HEADER", "Authorization: Bearer s3cret");
    // A proxy that is not there, for everything but SQS and the table.
    let settings = settings.set("http_proxy", "http://127.0.0.1:1").set("NO_PROXY", "127.0.0.1");
    let by_name = app.url.replace("127.0.0.1", "localhost");
    let mut worker = settings.set("LEASEHOLD_JOBS_HANDLER", by_name).start();
    let mut keys = BTreeSet::new();
    for _ in 0..5 {
        let request = app.request().await;
        assert_eq!(request.header("authorization"), Some("Bearer s3cret"));
        keys.insert(request.header("idempotency-key").expect("a key").to_owned());
        request.answer("204 No Content").await;
    }
    worker.says_times("\"deleted\"", 5).await;
    bench.send(0..5).await;
    worker.says_times("\"deleted\"", 5).await;
    let ended = worker.stops().await;
    assert!(!ended.log.join("\n").contains("s3cret"));
    assert_eq!(ended.clean_report(), report([("done", 5), ("suppressed", 5)]));
    assert_eq!(keys, (0..5).map(|key| format!("\"jobs#{key}\"")).collect());
    assert_eq!(bench.messages().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_that_is_not_there_burns_nothing_and_work_goes_on_when_it_appears() {
    let bench = Bench::new().await;
    bench.send(["a"]).await;
    let App { listener, url } = App::new().await;
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let settings = bench.settings("").set("LEASEHOLD_JOBS_HANDLER", &url).set("LEASEHOLD_BACKOFF", "1s..2s");
    let mut worker = settings.start();
    worker.says("still away").await;
    let app = App { listener: TcpListener::bind(address).await.expect("the same port"), url };
    let request = app.request().await;
    assert_eq!(request.header("x-leasehold-attempt"), Some("1"));
    request.answer("503 No\r\nRetry-After: 1").await;
    let request = app.request().await;
    assert_eq!(request.header("x-leasehold-attempt"), Some("1"), "no attempt was used");
    request.answer("200 OK").await;
    worker.says("\"deleted\"").await;
    assert_eq!(worker.stops().await.clean_report().get("failed"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_work_that_an_app_has_not_answered_when_the_worker_stops_is_not_given_back_at_once() {
    let (bench, app) = (Bench::new().await, App::new().await);
    bench.send(["a"]).await;
    let settings = app.settings(&bench).set("LEASEHOLD_VISIBILITY_TIMEOUT", "6s").set("LEASEHOLD_CANCEL_GRACE", "1s");
    let settings = settings.set("LEASEHOLD_DRAIN_TIMEOUT", "6s");
    let worker = settings.start();
    let request = app.request().await;
    let first = request.fence();
    let ended = worker.stops().await;
    request.let_go().await;
    assert_eq!(ended.clean_report(), report([("left", 1)]));
    assert_eq!(bench.statuses().await.into_values().collect::<Vec<_>>(), ["RELEASED"]);
    let mut worker = settings.start();
    let request = app.request().await;
    assert_eq!(request.header("x-leasehold-attempt"), Some("1"), "a stop is no attempt");
    assert!(request.fence() - first >= LEASE_AND_SKEW, "{}", request.fence() - first);
    request.answer("200 OK").await;
    worker.says("\"deleted\"").await;
    worker.stops().await.clean_report();
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_work_that_outlasts_its_time_in_an_app_counts_as_failed_and_waits_for_the_lease() {
    let (bench, app) = (Bench::new().await, App::new().await);
    bench.send(["a"]).await;
    let settings = app.settings(&bench).set("LEASEHOLD_VISIBILITY_TIMEOUT", "6s").set("LEASEHOLD_CANCEL_GRACE", "1s");
    let mut worker = settings.set("LEASEHOLD_HANDLER_TIMEOUT", "1s").start();
    let request = app.request().await;
    let first = request.fence();
    worker.says("timed_out").await;
    request.let_go().await;
    let request = app.request().await;
    assert_eq!(request.header("x-leasehold-attempt"), Some("2"));
    assert!(request.fence() - first >= LEASE_AND_SKEW, "{}", request.fence() - first);
    request.answer("422 No\r\nX-Leasehold-Reason: declined").await;
    worker.says("\"declined\"").await;
    worker.stops().await.clean_report();
}
