//! Real connections. The app is a socket that reads one request after another and answers each with the bytes it was given.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
    time::Instant,
};

use super::*;
use crate::{
    clock::Millis,
    handler::{CancelCause, error::Verdict},
    message::{Attribute, AttributeValue, Sns},
};

/// Far more than anything here takes, on the slowest machine.
const SOON: Duration = Duration::from_secs(20);

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// What the app does when it has answered.
#[derive(Debug, Clone, Copy)]
enum Then {
    Close,
    /// Reads on, for the next request.
    Serve,
    /// Writes zeros as long as they are read.
    Flood,
}

#[derive(Debug, PartialEq)]
enum Saw {
    Request {
        head: Vec<String>,
        body: String,
    },
    /// A connection has ended, after so many zeros.
    End(usize),
}

struct App {
    address: SocketAddr,
    seen: UnboundedReceiver<Saw>,
    connections: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

impl App {
    async fn answering(answer: impl Into<Vec<u8>>, then: Then) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (tell, seen) = unbounded_channel();
        let (address, answer) = (listener.local_addr().expect("an address"), answer.into());
        let (mut serving, connections) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        let accepted = Arc::clone(&connections);
        serving.spawn(async move {
            let mut each = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                each.spawn(serve(stream, answer.clone(), then, tell.clone()));
            }
        });
        Self { address, seen, connections, _serving: serving }
    }

    fn handler(&self) -> HttpHandler {
        HttpHandler::new(&format!("http://{}/jobs?secret=s", self.address)).expect("a handler")
    }

    async fn saw(&mut self) -> Saw {
        timeout(SOON, self.seen.recv()).await.expect("soon").expect("something")
    }

    async fn request(&mut self) -> (Vec<String>, String) {
        match self.saw().await {
            Saw::Request { head, body } => (head, body),
            end => panic!("no request, but {end:?}"),
        }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(stream: TcpStream, answer: Vec<u8>, then: Then, tell: UnboundedSender<Saw>) {
    let mut stream = BufReader::new(stream);
    let mut zeros = 0;
    while let Some(request) = read(&mut stream).await {
        let _ = tell.send(request);
        let _ = stream.write_all(&answer).await;
        match then {
            Then::Close => return,
            Then::Serve => {}
            Then::Flood => {
                while stream.write_all(&[0; 64 * 1024]).await.is_ok() {
                    zeros += 64 * 1024;
                }
            }
        }
    }
    let _ = tell.send(Saw::End(zeros));
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Saw> {
    let mut head: Vec<String> = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        match line.strip_suffix("\r\n").expect("a line ends in CR LF") {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let mut body = vec![0; length.parse().expect("a number")];
    stream.read_exact(&mut body).await.expect("a body");
    Some(Saw::Request { head, body: String::from_utf8(body).expect("a text") })
}

fn message(body: impl Into<String>) -> Message {
    Message { id: "m-1".to_owned(), body: body.into(), receive_count: 2, ..Message::default() }
}

/// One run: what came of it, and whether the work may still be under way.
async fn run(handler: &HttpHandler, message: &Message) -> (HandlerResult, bool) {
    let cx = JobContext::of(message);
    let result = timeout(SOON, handler.handle(&Raw(Arc::new(message.clone())), &cx)).await.expect("ends soon");
    (result, cx.elsewhere.may_run())
}

async fn run_against(answer: &str, then: Then) -> (Verdict, String, bool) {
    let app = App::answering(answer, then).await;
    let (result, may_run) = run(&app.handler(), &message("{}")).await;
    let error = result.expect_err(answer);
    assert!(!error.to_string().contains("secret"), "{error}");
    (error.verdict, error.code().to_owned(), may_run)
}

fn with_status(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")
}

#[tokio::test]
async fn an_app_gets_body_and_facts() {
    let mut app = App::answering(OK, Then::Serve).await;
    let mut message = message("{\"id\": 1}");
    message.group = Some("g".to_owned());
    message.deduplication_id = Some("d".to_owned());
    message.sent_at = Some(Millis(1_700_000_000_900));
    message.trace_header = Some("Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1".to_owned());
    let mut add = |name: &str, value| message.attributes.insert(name.to_owned(), value);
    add("Order_Id", Attribute::text("7 % of é "));
    add("bytes", Attribute { data_type: "Binary".into(), value: AttributeValue::Binary(vec![0, 255]) });
    add("traceparent", Attribute::text("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
    let header = "Authorization: Bearer s3cret".parse().expect("a header");
    let handler = app.handler().with_header(&header).expect("a header");
    assert!(!format!("{handler:?}").contains("s3cret"));
    assert!(run(&handler, &message).await.0.is_ok());
    let (head, body) = app.request().await;
    assert_eq!(body, "{\"id\": 1}");
    let (deadline, mut told): (Vec<_>, Vec<_>) = head.into_iter().partition(|line| line.contains("-deadline: "));
    told.sort();
    let expected = format!(
        "POST /jobs?secret=s HTTP/1.1\n\
         accept: */*\n\
         authorization: Bearer s3cret\n\
         content-length: 9\n\
         content-type: application/json\n\
         host: {}\n\
         idempotency-key: \"payments#k-1\"\n\
         traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n\
         user-agent: leasehold/{}\n\
         x-amzn-trace-id: Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1\n\
         x-aws-sqsd-attr-bytes: 00ff\n\
         x-aws-sqsd-attr-order-id: 7 %25 of %C3%A9%20\n\
         x-aws-sqsd-attr-traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n\
         x-aws-sqsd-msgid: m-1\n\
         x-aws-sqsd-queue: payments\n\
         x-aws-sqsd-receive-count: 2\n\
         x-leasehold-attempt: 3\n\
         x-leasehold-attribute-bytes: 00ff\n\
         x-leasehold-attribute-order-id: 7 %25 of %C3%A9%20\n\
         x-leasehold-attribute-traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n\
         x-leasehold-deduplication-id: d\n\
         x-leasehold-fence: 42\n\
         x-leasehold-group-id: g\n\
         x-leasehold-message-id: m-1\n\
         x-leasehold-queue: payments\n\
         x-leasehold-receive-count: 2\n\
         x-leasehold-sent-at: 1700000000",
        app.address,
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(told.join("\n"), expected);
    let deadline: u64 = deadline[0].trim_start_matches("x-leasehold-deadline: ").parse().expect("a number");
    let left = deadline.saturating_sub(Clock::system().wall().0 / 1000);
    assert!((290..=300).contains(&left), "{left}");
}

#[tokio::test]
async fn what_sns_says_reaches_an_app_and_what_sns_cannot_have_said_does_not() {
    let mut app = App::answering(OK, Then::Serve).await;
    let handler = app.handler();
    let mut message = message("");
    let sns = Sns {
        topic_arn: "arn:aws:sns:eu-central-1:123456789012:orders".to_owned(),
        message_id: "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324".to_owned(),
        subject: Some("50 % f\u{fc}r Zo\u{eb}".to_owned()),
        published_at: Some(Millis(1_335_920_046_655)),
        sequence_number: Some("10000000000000003000".to_owned()),
    };
    message.sns = Some(sns);
    assert!(run(&handler, &message).await.0.is_ok());
    let of_sns = |head: Vec<String>| head.into_iter().filter(|line| line.contains("-sns-")).collect::<Vec<_>>();
    let mut told = of_sns(app.request().await.0);
    told.sort();
    let expected = [
        "x-leasehold-sns-message-id: 22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
        "x-leasehold-sns-published-at: 1335920046",
        "x-leasehold-sns-sequence-number: 10000000000000003000",
        "x-leasehold-sns-subject: 50 %25 f%C3%BCr Zo%C3%AB",
        "x-leasehold-sns-topic-arn: arn:aws:sns:eu-central-1:123456789012:orders",
    ];
    assert_eq!(told, expected);
    let forged = Sns {
        topic_arn: "a\r\nEvil: 1".to_owned(),
        message_id: "m".repeat(65),
        subject: Some("\u{1f600}".repeat(101)),
        sequence_number: Some("\0".to_owned()),
        ..Sns::default()
    };
    message.sns = Some(forged);
    assert!(run(&handler, &message).await.0.is_ok());
    assert_eq!(of_sns(app.request().await.0), [""; 0]);
}

#[tokio::test]
async fn a_body_that_is_not_json_is_text() {
    let mut app = App::answering(OK, Then::Serve).await;
    let handler = app.handler();
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    for (body, is_json) in
        [("{}", true), (" 7 ", true), (deep.as_str(), true), ("", false), ("{}{}", false), ("é", false)]
    {
        assert!(run(&handler, &message(body)).await.0.is_ok());
        let (head, told) = app.request().await;
        let content_type = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
        assert!(head.contains(&format!("content-type: {content_type}")), "{head:?}");
        assert_eq!(told, body);
    }
}

#[tokio::test]
async fn t4_hostile_keys_and_attributes_break_no_request_and_smuggle_no_header() {
    let mut app = App::answering(OK, Then::Serve).await;
    let mut message = message("x".repeat(1024 * 1024));
    message.id = "m\r\nEvil: 1".to_owned();
    message.group = Some("\0".to_owned());
    message.trace_header = Some("t\r\n\r\n".repeat(1000));
    let mut add = |name: &str, value: &str| message.attributes.insert(name.to_owned(), Attribute::text(value));
    add("a", "1\r\nEvil: 1\r\n\r\n");
    add("a-b", "first");
    add("a_b", "second");
    add("b\r\nEvil: 1", "\0\u{7f}\u{1f600}");
    add("c-large", &"é".repeat(128 * 1024));
    add("s-omitted", "not that one");
    add("traceparent", "");
    add(&"n".repeat(200 * 1024), "");
    let mut cx = JobContext::of(&message);
    cx.key = Some("p#\"\\\r\nEvil: 1\0é%25".to_owned());
    let handled = timeout(SOON, app.handler().handle(&Raw(Arc::new(message.clone())), &cx)).await.expect("ends soon");
    assert!(handled.is_ok());
    let (head, body) = app.request().await;
    assert_eq!(body.len(), 1024 * 1024);
    let has = |line: &str| assert!(head.iter().any(|told| told == line), "{line} in {head:#?}");
    has("idempotency-key: \"p#\\\"\\\\%0D%0AEvil: 1%00%C3%A9%25\"");
    has("x-leasehold-message-id: m%0D%0AEvil: 1");
    has("x-leasehold-group-id: %00");
    has("x-leasehold-attribute-a: 1%0D%0AEvil: 1%0D%0A%0D%0A");
    has("x-leasehold-attribute-a-b: first");
    has("x-leasehold-attribute-b--evil--1: %00%7F%F0%9F%98%80");
    has("x-leasehold-attribute-s-omitted: not that one");
    has("x-leasehold-attribute-traceparent: ");
    has(&format!("x-leasehold-attributes-omitted: a_b,c-large,{}", "n".repeat(256)));
    let names: Vec<_> = head[1..].iter().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
    assert!(!names.contains(&"traceparent") && !names.contains(&"x-amzn-trace-id"), "{names:?}");
    assert!(names.iter().all(|name| !name.starts_with("evil")), "{names:?}");
}

/// What came through SNS, as long as it can be.
fn longest_sns() -> Sns {
    Sns {
        topic_arn: "a".repeat(384),
        message_id: "m".repeat(64),
        subject: Some("\u{1f600}".repeat(100)),
        published_at: Some(Millis(u64::MAX)),
        sequence_number: Some("9".repeat(64)),
    }
}

#[tokio::test]
async fn headers_stay_below_what_servers_take_however_many_attributes_there_are() {
    let mut app = App::answering(OK, Then::Serve).await;
    let handler = app.handler();
    let mut message = message("");
    message.attributes.extend((0..500).map(|i| (format!("{i:0>200}"), Attribute::text("é".repeat(i + 100)))));
    let mut cx = JobContext::of(&message);
    cx.key = Some("k".repeat(1024));
    let full = (0..10).map(|i| (i.to_string(), Attribute::text("x".repeat(200)))).collect();
    for (attributes, sns) in [(message.attributes, None), (full, Some(longest_sns()))] {
        message = Message { attributes, sns, ..self::message("") };
        assert!(handler.handle(&Raw(Arc::new(message.clone())), &cx).await.is_ok());
        let (head, _) = app.request().await;
        let size: usize = head.iter().map(|line| line.len() + 2).sum();
        assert!((4 * 1024..7 * 1024).contains(&size) && head.len() < 50, "{size} bytes in {} lines", head.len());
    }
    message = self::message("");
    message.attributes.extend((0..500).map(|i| (i.to_string(), Attribute::text(""))));
    assert!(run(&handler, &message).await.0.is_ok());
    assert!(app.request().await.0.len() < 50);
}

#[test]
fn recorded_results_go_along_as_far_as_servers_take_them_and_the_token_is_not_shown() {
    let attributes = (0..10).map(|i| (i.to_string(), Attribute::text("x".repeat(200)))).collect();
    let message = Message { attributes, sns: Some(longest_sns()), ..message("") };
    let mut cx = JobContext::of(&message);
    cx.key = Some("k".repeat(1024));
    let told = |steps: &str| {
        let (url, token) = (format!("http://{}:65535/jobs/{}", "h".repeat(253), "0".repeat(32)), "7".repeat(32));
        let told = Told { url, token, steps: steps.to_owned() };
        request::headers(HeaderMap::new(), &message, &cx, Some(&told), Millis(0))
    };
    let full = told(&format!("{{\"a\":\"{}\"}}", "x".repeat(760)));
    assert_eq!(full["x-leasehold-steps"].len(), 768);
    let size: usize = full.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    assert!(size < 7 * 1024 + 512, "{size}");
    assert!(!format!("{full:?}").contains(&"7".repeat(32)));
    assert!(!told(&"x".repeat(769)).contains_key("x-leasehold-steps"));
    assert_eq!(told("{\"é\":\n\"%\"}")["x-leasehold-steps"], "{\"%C3%A9\":%0A\"%25\"}");
}

#[tokio::test]
async fn d2_a_reply_ends_the_work_and_its_absence_does_not() {
    let retry = Verdict::Retry(None);
    for (status, verdict, code, may_run) in [
        ("500 No", retry, "http_500", false),
        ("422 No", Verdict::Permanent, "http_422", false),
        ("503 No", Verdict::Unavailable(None), "http_503", false),
        ("504 No", retry, "http_504", true),
    ] {
        assert_eq!(run_against(&with_status(status), Then::Serve).await, (verdict, code.to_owned(), may_run));
    }
    let endless = "HTTP/1.1 200 OK\r\nX: ".to_owned() + &"x".repeat(2 * 1024 * 1024);
    for answer in ["", "HTTP/1.1 200 OK\r\nContent-Le", "SSH-2.0-OpenSSH_9\r\n", "\0\0\0\0", "HTTP/1.1 2", &endless] {
        let expected = (retry, "no_reply".to_owned(), true);
        assert_eq!(run_against(answer, Then::Close).await, expected, "{answer:.40}");
    }
}

#[tokio::test]
async fn the_settings_statuses_fail_for_good_and_only_they() {
    let status = |status| async move {
        let app = App::answering(with_status(status), Then::Serve).await;
        let handler = app.handler().with_permanent_status("404".parse().expect("statuses"));
        run(&handler, &message("")).await.0.expect_err(status).verdict
    };
    assert_eq!(status("404 No").await, Verdict::Permanent);
    assert_eq!(status("422 No").await, Verdict::Retry(None));
}

#[tokio::test]
async fn a_redirect_is_a_failure_and_nobody_is_sent_anything() {
    let elsewhere = App::answering(OK, Then::Serve).await;
    for status in [301, 302, 303, 307, 308] {
        let redirect =
            format!("HTTP/1.1 {status} Go\r\nLocation: http://{}/\r\nContent-Length: 0\r\n\r\n", elsewhere.address);
        let (verdict, code, _) = run_against(&redirect, Then::Serve).await;
        assert_eq!((verdict, code), (Verdict::Retry(None), format!("http_{status}")));
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn an_app_that_is_not_there_was_sent_nothing_and_is_probed_without_a_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let handler = HttpHandler::new(&format!("http://{address}/jobs?secret=s")).expect("a handler");
    let (result, may_run) = run(&handler, &message("")).await;
    let error = result.expect_err("refused");
    assert_eq!((error.is_unavailable(), error.code(), may_run), (true, "unavailable", false));
    let text = error.to_string();
    assert!(text.contains("refused") && text.contains(&address.to_string()) && !text.contains("secret"), "{text}");
    assert!(handler.probe().await.is_err_and(|error| error.is_unavailable()));

    let mut app = App::answering(OK, Then::Serve).await;
    assert!(app.handler().probe().await.is_ok());
    assert_eq!(app.saw().await, Saw::End(0));
    let by_name = HttpHandler::new(&format!("http://localhost:{}/", app.address.port())).expect("a handler");
    assert!(by_name.probe().await.is_ok());
}

#[tokio::test]
async fn a_server_without_tls_is_not_there_for_https() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let handler = HttpHandler::new(&format!("https://{address}/")).expect("a system with certificates");
    let answers = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.write_all(OK.as_bytes()).await.expect("is written");
    };
    let message = message("");
    let ((result, may_run), ()) = tokio::join!(run(&handler, &message), answers);
    assert!(result.is_err_and(|error| error.is_unavailable()) && !may_run);
}

#[tokio::test]
async fn of_an_endless_reply_little_is_read_and_its_connection_closed() {
    let mut app = App::answering("HTTP/1.1 422 No\r\n\r\nnot a payment\n", Then::Flood).await;
    let error = run(&app.handler(), &message("")).await.0.expect_err("422");
    assert!(error.is_permanent() && error.to_string().starts_with("422 Unprocessable Entity: not a payment\n"));
    assert!(error.to_string().len() < MOST_OF_A_REPLY);
    app.request().await;
    let Saw::End(zeros) = app.saw().await else { panic!("another request") };
    assert!(zeros < 64 * 1024 * 1024, "what fits into buffers, and no more: {zeros}");
}

#[tokio::test]
async fn a_body_that_never_ends_does_not_hold_what_is_decided() {
    let began = Instant::now();
    let part = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nand so";
    let app = App::answering(part, Then::Serve).await;
    assert!(run(&app.handler(), &message("")).await.0.is_ok());
    let app = App::answering(part.replace("200 OK", "500 No"), Then::Serve).await;
    let error = run(&app.handler(), &message("")).await.0.expect_err("500");
    assert_eq!(error.to_string(), "500 Internal Server Error: and so");
    assert!(began.elapsed() < SOON);
}

#[tokio::test]
async fn told_to_stop_a_run_does_not_wait_for_a_body() {
    let app = App::answering("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", Then::Serve).await;
    let message = message("");
    let cx = JobContext::of(&message);
    cx.cancelled.cancel(CancelCause::Shutdown);
    let began = Instant::now();
    assert!(app.handler().handle(&Raw(Arc::new(message)), &cx).await.is_ok(), "what was decided counts");
    assert!(began.elapsed() < BODY, "{:?}", began.elapsed());
}

#[tokio::test]
async fn d2_a_dropped_run_closes_its_connection_and_its_work_may_still_run() {
    let mut app = App::answering("", Then::Serve).await;
    let message = message("");
    let cx = Arc::new(JobContext::of(&message));
    let mut runs = JoinSet::new();
    let (handler, lent) = (app.handler(), Arc::clone(&cx));
    runs.spawn(async move { handler.handle(&Raw(Arc::new(message)), &lent).await });
    app.request().await;
    runs.shutdown().await;
    assert_eq!(app.saw().await, Saw::End(0));
    assert!(cx.elsewhere.may_run());
}

#[tokio::test]
async fn a_connection_is_used_again_and_closed_when_it_idles() {
    let mut app = App::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Then::Serve).await;
    let handler = app.handler();
    for _ in 0..3 {
        assert!(run(&handler, &message("")).await.0.is_ok());
        app.request().await;
    }
    assert_eq!(app.connections(), 1);
    let began = Instant::now();
    assert_eq!(app.saw().await, Saw::End(0));
    assert!(began.elapsed() < Duration::from_secs(5), "before Node closes it: {:?}", began.elapsed());
}

#[tokio::test]
async fn an_app_that_closes_each_connection_after_its_reply_breaks_nothing() {
    let app = App::answering(OK, Then::Close).await;
    let handler = app.handler();
    for _ in 0..50 {
        let (result, _) = run(&handler, &message("{}")).await;
        assert!(result.is_ok(), "{result:?}");
    }
}

#[test]
fn what_cannot_be_sent_to_or_sent_is_refused_at_once() {
    for url in ["", "127.0.0.1:80", "ftp://a/", "http://me:s3cret@a/"] {
        let error = HttpHandler::new(url).expect_err(url).to_string();
        assert!(error.contains("http://") && !error.contains("s3cret"), "{error}");
    }
    let handler = HttpHandler::new("http://a/").expect("a handler");
    for (name, value) in
        [("Host", "s3cret"), ("a b", "s3cret"), ("A", "s3cret\r\nEvil: 1"), ("Idempotency-Key", "s3cret")]
    {
        let header = HandlerHeader { name: name.to_owned(), value: value.to_owned() };
        let error = handler.clone().with_header(&header).expect_err(name).to_string();
        assert!(!error.contains("s3cret"), "{error}");
    }
}
