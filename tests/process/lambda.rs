//! `examples/lambda` as Lambda runs it: the real process, asked through the runtime interface on loopback, with queues and a
//! table on the embedded engine. Messages are received here as the mapping does it, and what is not returned is deleted.

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName as Fact};
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
};
use leasehold::{aws, embedded::Engine, guard::dynamodb::create_table};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    sync::{
        Mutex, OnceCell,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::{
    bench::SOON,
    stand_in::{ANY, StandIn},
};

/// What an invocation may take here: much for what ends by itself, little for what has to be cut off.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(3);

/// The example, built for this test: what lies about may be older than the sources.
async fn bootstrap() -> PathBuf {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    let build = async || {
        let folder = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().expect("a folder");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--locked", "--all-features", "--example", "bootstrap"]).arg("--quiet");
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().await.expect("cargo runs");
        assert!(built.success(), "the example is built");
        folder.join("examples/bootstrap")
    };
    BUILT.get_or_init(build).await.clone()
}

/// Lambda's runtime interface.
/// <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>
struct Interface {
    served: StandIn,
    /// What is asked for next: the event, and the deadline.
    events: UnboundedSender<(Value, u64)>,
    told: UnboundedReceiver<Told>,
}

/// What the function tells the interface.
#[derive(Debug, PartialEq)]
enum Told {
    /// It asks for an invocation.
    Next,
    /// It answers one: at `response`, `error` or the like.
    Answer(String, Value),
}

impl Interface {
    async fn new() -> Self {
        let (events, asked) = unbounded_channel();
        let (tell, told) = unbounded_channel();
        let asked = Arc::new(Mutex::new(asked));
        let served = StandIn::at(ANY, move |request| answer(request, Arc::clone(&asked), tell.clone())).await;
        Self { served, events, told }
    }

    async fn hears(&mut self) -> Told {
        timeout(SOON, self.told.recv()).await.expect("it says something soon").expect("it is served")
    }
}

async fn answer(
    request: Request<Incoming>,
    asked: Arc<Mutex<UnboundedReceiver<(Value, u64)>>>,
    tell: UnboundedSender<Told>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().trim_start_matches("/2018-06-01/runtime/").to_owned();
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let response = Response::builder();
    if path != "invocation/next" {
        let value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        // Nobody listens to a function whose test is over.
        let _ = tell.send(Told::Answer(path, value));
        return Ok(response.status(202).body(Full::default()).expect("a response"));
    }
    let _ = tell.send(Told::Next);
    let Some((event, deadline)) = asked.lock().await.recv().await else { std::future::pending().await };
    let response = response
        .header("lambda-runtime-aws-request-id", "8476a536-e9f4-11e8-9739-2dfe598c3fcd")
        .header("lambda-runtime-deadline-ms", deadline)
        .header("lambda-runtime-invoked-function-arn", "arn:aws:lambda:us-east-1:000000000000:function:payments");
    Ok(response.body(Full::from(event.to_string())).expect("a response"))
}

/// An account with some queues, and the function.
struct Function {
    interface: Interface,
    sqs: aws_sdk_sqs::Client,
    child: Child,
    /// What it wrote.
    lines: UnboundedReceiver<String>,
    seen: Vec<String>,
    _reading: JoinSet<()>,
    _engine: Engine,
}

/// A message, and the queue that it was received from.
type Received = (&'static str, Message);

impl Function {
    /// With these queues, and variables beside what it needs. It is ready when this returns.
    async fn new(queues: &[&str], vars: &[(&str, &str)]) -> Self {
        let mut function = Self::starting(queues, vars).await;
        assert_eq!(function.interface.hears().await, Told::Next);
        function
    }

    async fn starting(queues: &[&str], vars: &[(&str, &str)]) -> Self {
        let engine = Engine::start().await.expect("an engine");
        let account = aws::local(engine.endpoint());
        let (sqs, dynamodb) = (aws_sdk_sqs::Client::new(&account), aws_sdk_dynamodb::Client::new(&account));
        create_table(&dynamodb, "leasehold").await.expect("a table");
        for name in queues {
            let dead = name.replace(".fifo", "") + "-dlq" + if name.ends_with(".fifo") { ".fifo" } else { "" };
            make(&sqs, &dead, None).await;
            make(&sqs, name, Some(&dead)).await;
        }
        let (program, interface) = (bootstrap().await, Interface::new().await);
        let at = interface.served.address.to_string();
        let mut child = Command::new(program)
            .env_clear()
            .envs([
                ("AWS_LAMBDA_RUNTIME_API", at.as_str()),
                ("AWS_LAMBDA_FUNCTION_NAME", "payments"),
                ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256"),
                ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
                ("AWS_ENDPOINT_URL", engine.endpoint()),
                ("AWS_REGION", "us-east-1"),
                ("AWS_ACCESS_KEY_ID", "test"),
                ("AWS_SECRET_ACCESS_KEY", "test"),
                ("LEASEHOLD_QUEUES", &queues.join(",")),
                ("LEASEHOLD_CLOCK_SKEW", "200ms"),
                ("LEASEHOLD_BACKOFF", "1s..2s"),
                ("LEASEHOLD_LOG", "info,leasehold=debug"),
            ])
            .envs(vars.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a process");
        let (said, lines) = unbounded_channel();
        let mut out = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut reading = JoinSet::new();
        reading.spawn(async move {
            while let Ok(Some(line)) = out.next_line().await {
                let _ = said.send(line);
            }
        });
        Self { interface, sqs, child, lines, seen: Vec::new(), _reading: reading, _engine: engine }
    }

    /// Sends a payment, in a group on a FIFO queue.
    async fn pays(&self, queue: &str, group: &str, id: &str, cents: u64) {
        self.sends(queue, group, &json!({"payment_id": id, "cents": cents, "card": "tok_visa"}).to_string()).await;
    }

    async fn sends(&self, queue: &str, group: &str, body: &str) {
        let mut send = self.sqs.send_message().queue_url(self.url(queue).await).message_body(body);
        if queue.ends_with(".fifo") {
            send = send.message_group_id(group).message_deduplication_id(body);
        }
        send.send().await.expect("is sent");
    }

    async fn url(&self, queue: &str) -> String {
        self.sqs.get_queue_url().queue_name(queue).send().await.expect("it is there").queue_url.expect("a URL")
    }

    /// Receives so many, as the mapping does: one after another, for the embedded engine hands out one of a group at a time.
    async fn receives(&self, queue: &'static str, count: usize) -> Vec<Received> {
        let (url, until, mut received) = (self.url(queue).await, Instant::now() + SOON, Vec::new());
        while received.len() < count {
            assert!(Instant::now() < until, "{} of {count} received", received.len());
            let poll = self.sqs.receive_message().queue_url(&url).wait_time_seconds(1).max_number_of_messages(10);
            let poll = poll.message_system_attribute_names(MessageSystemAttributeName::All).visibility_timeout(120);
            let messages = poll.send().await.expect("a poll").messages.unwrap_or_default();
            received.extend(messages.into_iter().map(|message| (queue, message)));
        }
        received
    }

    /// One invocation: the bodies of those that come again, in the answer's order.
    async fn invoked(&mut self, batch: &[Received], time: Duration) -> Vec<String> {
        let (records, deadline) = (batch.iter().map(record).collect::<Vec<_>>(), now() + time);
        self.asks(json!({ "Records": records }), deadline);
        let Told::Answer(path, answer) = self.interface.hears().await else { panic!("no answer") };
        assert!(now() < deadline, "it is answered in time");
        assert!(path.ends_with("/response"), "{path}: {answer}");
        assert_eq!(self.interface.hears().await, Told::Next);
        let failures = answer["batchItemFailures"].as_array().expect("a list").iter();
        let returned: Vec<_> = failures.map(|failure| failure["itemIdentifier"].as_str().expect("an id")).collect();
        let id = |message: &Message| message.message_id.clone().expect("an id");
        for (queue, message) in batch.iter().filter(|(_, message)| !returned.contains(&id(message).as_str())) {
            let delete = self.sqs.delete_message().queue_url(self.url(queue).await);
            delete.set_receipt_handle(message.receipt_handle.clone()).send().await.expect("is deleted");
        }
        let body =
            |id_of: &&str| batch.iter().find(|(_, message)| id(message) == *id_of).map(|(_, message)| name(message));
        returned.iter().map(|id| body(id).expect("of this batch")).collect()
    }

    fn asks(&self, event: Value, deadline: Duration) {
        let deadline = u64::try_from(deadline.as_millis()).expect("a time");
        self.interface.events.send((event, deadline)).expect("it is served");
    }

    /// Waits for a line with this text.
    async fn says(&mut self, text: &str) -> String {
        loop {
            match timeout(SOON, self.lines.recv()).await {
                Ok(Some(line)) if line.contains(text) => return line,
                Ok(Some(line)) => self.seen.push(line),
                _ => panic!("{text:?} was not said, but:\n{}", self.seen.join("\n")),
            }
        }
    }

    /// The reasons of what is dead-lettered from a queue.
    async fn dead(&self, queue: &'static str, count: usize) -> Vec<String> {
        let (url, until, mut codes) = (self.url(queue).await, Instant::now() + SOON, Vec::new());
        while codes.len() < count {
            assert!(Instant::now() < until, "dead-lettered: {codes:?}");
            let poll = self.sqs.receive_message().queue_url(&url).wait_time_seconds(1).max_number_of_messages(10);
            let messages = poll.message_attribute_names("leasehold").send().await.expect("a poll").messages;
            for copy in messages.unwrap_or_default() {
                let note = copy.message_attributes.and_then(|mut all| all.remove("leasehold")).expect("a reason");
                let note: Value = serde_json::from_str(&note.string_value.expect("a text")).expect("JSON");
                codes.push(note["code"].as_str().expect("a code").to_owned());
            }
        }
        codes.sort();
        codes
    }
}

async fn make(sqs: &aws_sdk_sqs::Client, name: &str, dead: Option<&str>) {
    let mut create = sqs.create_queue().queue_name(name);
    if let Some(dead) = dead {
        let policy =
            format!(r#"{{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:{dead}","maxReceiveCount":100}}"#);
        create = create.attributes(Fact::RedrivePolicy, policy).attributes(Fact::VisibilityTimeout, "120");
    }
    if name.ends_with(".fifo") {
        create = create.attributes(Fact::FifoQueue, "true");
    }
    create.send().await.expect("a queue");
}

#[expect(clippy::disallowed_methods, reason = "Lambda's deadline is on the wall clock")]
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

fn name(message: &Message) -> String {
    let body = message.body.as_deref().unwrap_or_default();
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    value["payment_id"].as_str().unwrap_or(body).to_owned()
}

/// A record as Lambda makes it of a message.
/// <https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html>
fn record((queue, message): &Received) -> Value {
    let system = message.attributes.iter().flatten();
    let system: serde_json::Map<_, _> = system.map(|(name, value)| (name.to_string(), json!(value))).collect();
    json!({
        "messageId": message.message_id, "receiptHandle": message.receipt_handle, "body": message.body,
        "attributes": system, "messageAttributes": {}, "md5OfBody": message.md5_of_body, "eventSource": "aws:sqs",
        "eventSourceARN": format!("arn:aws:sqs:us-east-1:000000000000:{queue}"), "awsRegion": "us-east-1",
    })
}

const NONE: [&str; 0] = [];

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_answered_with_exactly_what_is_to_come_again() {
    let mut function = Function::new(&["payments"], &[]).await;
    for (id, cents) in [("good", 1), ("empty", 0), ("broken", 1), ("panic", 1), ("twin", 1), ("twin", 1)] {
        function.pays("payments", "", id, cents).await;
    }
    function.sends("payments", "", "no JSON").await;
    let batch = function.receives("payments", 7).await;
    let mut returned = function.invoked(&batch, LONG).await;
    returned.sort();
    assert_eq!(returned, ["broken", "panic"]);
    assert_eq!(function.dead("payments-dlq", 2).await, ["empty_payment", "malformed"]);
    function.says("answered").await;
    assert_eq!(function.seen.iter().filter(|line| line.contains("charge for") && line.contains("twin")).count(), 1);
    // What failed is hidden for its back-off, and not for the queue's timeout of two minutes.
    let again = function.receives("payments", 2).await;
    let mut returned = function.invoked(&again, LONG).await;
    returned.sort();
    assert_eq!(returned, ["broken", "panic"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn t5_a_group_stops_at_its_first_failure_and_another_queue_of_the_same_batch_goes_on() {
    let mut function = Function::new(&["payments", "refunds.fifo"], &[]).await;
    for (group, id) in [("a", "a1"), ("b", "b1"), ("a", "a2-broken"), ("a", "a3"), ("b", "b2")] {
        function.pays("refunds.fifo", group, id, 1).await;
    }
    function.pays("payments", "", "p1", 1).await;
    // The engine hands out one of a group at a time, so the rest of each is made of what a receive would bring.
    let mut batch = function.receives("payments", 1).await;
    let refunds = function.receives("refunds.fifo", 2).await;
    let like = |group: &str, id: &str| {
        let is_of = |message: &Message| name(message).starts_with(group);
        let (queue, mut message) =
            refunds.iter().find(|(_, message)| is_of(message)).expect("one of the group").clone();
        message.message_id = Some(format!("id-of-{id}"));
        message.receipt_handle = Some(format!("handle-of-{id}"));
        message.body = Some(json!({"payment_id": id, "cents": 1, "card": "tok_visa"}).to_string());
        (queue, message)
    };
    let others = [("a", "a2-broken"), ("b", "b2"), ("a", "a3")].map(|(group, id)| like(group, id));
    batch.extend(refunds.iter().cloned().chain(others));
    let returned = function.invoked(&batch, LONG).await;
    assert_eq!(returned, ["a2-broken", "a3"]);
    function.says("answered").await;
    assert!(
        !function.seen.iter().any(|line| line.contains("charge for") && line.contains("a3")),
        "{:?}",
        function.seen
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_a_run_that_outlasts_its_invocation_is_cancelled_and_the_answer_is_in_time() {
    let mut function = Function::new(&["payments"], &[]).await;
    function.pays("payments", "", "slow", 1).await;
    let batch = function.receives("payments", 1).await;
    assert_eq!(function.invoked(&batch, SHORT).await, ["slow"]);
    let line = function.says("timed_out").await;
    assert!(line.contains("WARN"), "{line}");
    assert_eq!(function.invoked(&[], LONG).await, NONE, "it goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_for_cloudwatch_are_written_with_each_answer_and_once() {
    let mut function = Function::new(&["payments"], &[("LEASEHOLD_EMF_NAMESPACE", "Shop/Prod")]).await;
    for ids in [["a", "b"], ["c", "broken"]] {
        for id in ids {
            function.pays("payments", "", id, 1).await;
        }
        let batch = function.receives("payments", 2).await;
        function.invoked(&batch, LONG).await;
    }
    let mut settled = Vec::new();
    while settled.len() < 3 {
        let line = function.says(r#""leasehold.messages.settled""#).await;
        let line: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Namespace"], "Shop/Prod");
        assert_eq!(line["queue"], "payments");
        // Nobody samples anything between two invocations: what is not known is not told as 0.
        assert!(line["leasehold.slots"].is_null() && line["leasehold.ready"].is_null(), "{line}");
        settled
            .push((line["outcome"].as_str().expect("a name").to_owned(), line["leasehold.messages.settled"].clone()));
    }
    settled[1..].sort_by(|(one, _), (other, _)| one.cmp(other));
    let expected = [("done", 2), ("done", 1), ("failed", 1)];
    assert_eq!(settled, expected.map(|(outcome, count)| (outcome.to_owned(), Value::from(count))));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_a_queue_that_the_function_does_not_know_come_again_and_the_log_says_why() {
    let mut function = Function::new(&["payments"], &[]).await;
    function.pays("payments", "", "p1", 1).await;
    let mut batch = function.receives("payments", 1).await;
    batch[0].0 = "others";
    let records = json!({ "Records": [record(&batch[0])] });
    function.asks(records, now() + LONG);
    let Told::Answer(_, answer) = function.interface.hears().await else { panic!("no answer") };
    assert_eq!(answer["batchItemFailures"][0]["itemIdentifier"].as_str(), batch[0].1.message_id.as_deref());
    assert_eq!(function.interface.hears().await, Told::Next);
    let line = function.says("names no queue").await;
    assert!(line.contains("LEASEHOLD_QUEUES=payments,others"), "{line}");
    // What is not of SQS is no batch at all.
    function.asks(json!({"Records": [{"EventSource": "aws:sns", "Sns": {"Message": "hello"}}]}), now() + LONG);
    let Told::Answer(path, answer) = function.interface.hears().await else { panic!("no answer") };
    assert!(
        path.ends_with("/error") && answer["errorMessage"].to_string().contains("event source mapping"),
        "{answer}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r5_a_function_that_cannot_start_says_all_that_is_wrong_and_ends() {
    let mut function =
        Function::starting(&["payments"], &[("LEASEHOLD_RATE", "5"), ("LEASEHOLD_TABLE", "others")]).await;
    let line = function.says("cannot be kept under Lambda").await;
    assert!(line.contains("ERROR"), "{line}");
    let status = timeout(SOON, function.child.wait()).await.expect("ends soon").expect("a status");
    assert_eq!(status.code(), Some(1));
    let mut function = Function::starting(&["payments"], &[("LEASEHOLD_TABLE", "others")]).await;
    function.says("others").await;
    assert_eq!(function.child.wait().await.expect("a status").code(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn elsewhere_than_under_lambda_it_says_so_and_ends() {
    let program = bootstrap().await;
    let output = Command::new(program)
        .env_clear()
        .envs([("LEASEHOLD_QUEUES", "payments"), ("AWS_REGION", "us-east-1")])
        .output()
        .await
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("AWS_LAMBDA_RUNTIME_API"), "{output:?}");
}
