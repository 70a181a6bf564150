//! The whole of it: the template deployed, the real command, a program as handler; drained, killed and told to stop.

use std::{collections::BTreeMap, fs, process::Stdio, time::Duration};

use aws_sdk_sqs::types::QueueAttributeName as Fact;
use leasehold::{
    aws::{self, Aws},
    clock::Clock,
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(60);

const KEYS: usize = 6;

/// A handler that writes its message down, in one piece, for others may write at the same time.
const NOTE: &str = r#"echo "$(cat)" >> handled"#;

/// A queue and a table of their own, and a folder for handlers.
struct Stack {
    variables: BTreeMap<String, String>,
    sqs: aws_sdk_sqs::Client,
    url: String,
    folder: TempDir,
}

impl Stack {
    /// Deploys `infra/queue.yaml`; `None` where there is no LocalStack.
    async fn deploy(purpose: &str) -> Option<Self> {
        let endpoint = crate::endpoint()?;
        let name = format!("{purpose}-{}", &Clock::system().token()[..12]);
        let up = concat!(env!("CARGO_MANIFEST_DIR"), "/localstack/up");
        let (queue, table) = (format!("QueueName={name}"), format!("TableName={name}"));
        let output = Command::new(up).args([&name, &queue, &table]).output().await.expect("localstack/up can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).expect("text");
        let exports = lines.lines().filter_map(|line| line.strip_prefix("export ")?.split_once('='));
        let variables: BTreeMap<_, _> = exports.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let url = variables.iter().find(|(name, _)| name.ends_with("_URL") && name.starts_with("LEASEHOLD_"));
        let url = url.expect("the queue's URL").1.clone();
        let folder = tempfile::tempdir().expect("a folder");
        Some(Self { variables, sqs: Aws::new(&aws::local(&endpoint)).sqs_client(), url, folder })
    }

    async fn send(&self, keys: impl IntoIterator<Item = usize>) {
        for key in keys {
            let body = format!(r#"{{"id":"{key}"}}"#);
            self.sqs.send_message().queue_url(&self.url).message_body(body).send().await.expect("is sent");
        }
    }

    /// Makes a topic that brings to the queue what is published; its ARN.
    async fn topic(&self) -> String {
        let name = self.url.rsplit('/').next().expect("a name");
        let topic = self.sns(&[("Action", "CreateTopic"), ("Name", name)]).await;
        let arn = between(&topic, "<TopicArn>", "</TopicArn>").to_owned();
        let queue = arn.replace(":sns:", ":sqs:");
        let subscription = [("Protocol", "sqs"), ("Endpoint", &queue)];
        self.sns(&[&[("Action", "Subscribe"), ("TopicArn", &arn)], &subscription[..]].concat()).await;
        arn
    }

    /// A call of SNS's API, which we have no client for. LocalStack tells by the signature whose API it is, and does not
    /// check it.
    async fn sns(&self, parameters: &[(&str, &str)]) -> String {
        let body = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("Version", "2010-03-31")
            .extend_pairs(parameters)
            .finish();
        let signature =
            "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/sns/aws4_request, SignedHeaders=host, Signature=0";
        let call = reqwest::Client::new().post(&self.variables["AWS_ENDPOINT_URL"]).body(body);
        let call = call.header("Authorization", signature).header("Content-Type", "application/x-www-form-urlencoded");
        let reply = call.send().await.expect("a reply");
        let (status, text) = (reply.status(), reply.text().await.expect("a text"));
        assert!(status.is_success(), "if LocalStack has run since before it had SNS, localstack/down mends it: {text}");
        text
    }

    /// A worker whose handler is this shell script. It runs in the folder.
    fn start(&self, script: &str, settings: &[(&str, &str)]) -> Worker {
        let handler = serde_json::json!(["/bin/sh", "-c", script]).to_string();
        let mut child = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .arg("run")
            .envs(&self.variables)
            .envs([
                ("LEASEHOLD_KEY", "/id"),
                ("LEASEHOLD_HANDLER", handler.as_str()),
                ("LEASEHOLD_WAIT_TIME", "1s"),
                ("LEASEHOLD_LOG", "info,leasehold=debug"),
                ("LEASEHOLD_LOG_FORMAT", "json"),
            ])
            .envs(settings.iter().copied())
            .current_dir(self.folder.path())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the command can be run");
        let log = BufReader::new(child.stdout.take().expect("a log")).lines();
        Worker { child, log }
    }

    /// The lines that handlers wrote into a file, in order.
    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join(name)).expect("a file");
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }

    /// Messages that can be received now, and those that are hidden.
    async fn depth(&self) -> [usize; 2] {
        let counts = [Fact::ApproximateNumberOfMessages, Fact::ApproximateNumberOfMessagesNotVisible];
        let ask = self.sqs.get_queue_attributes().queue_url(&self.url).set_attribute_names(Some(counts.to_vec()));
        let facts = ask.send().await.expect("facts").attributes.expect("facts");
        counts.map(|count| facts[&count].parse().expect("a number"))
    }
}

/// A running worker; killed when dropped.
struct Worker {
    child: Child,
    log: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Waits for that many lines of its log with this text.
    async fn says(&mut self, text: &str, mut times: usize) {
        while times > 0 {
            let line = timeout(SOON, self.log.next_line()).await.expect("is said soon").expect("a log");
            times -= usize::from(line.expect("is said before its end").contains(text));
        }
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).expect("it runs");
        kill_process(id, signal).expect("is sent");
    }

    /// Tells it to stop; gives back its report.
    async fn stops(mut self) -> serde_json::Value {
        self.signal(Signal::TERM);
        let mut last = String::new();
        while let Some(line) = timeout(SOON, self.log.next_line()).await.expect("ends soon").expect("a log") {
            last = line;
        }
        assert!(timeout(SOON, self.child.wait()).await.expect("ends soon").expect("an exit code").success(), "{last}");
        serde_json::from_str(&last).expect("a report")
    }
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    text.split_once(start).and_then(|(_, rest)| rest.split_once(end)).expect("both").0
}

/// What each key is when a handler has written it down.
fn keys() -> Vec<String> {
    (0..KEYS).map(|key| format!(r#"{{"id":"{key}"}}"#)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_drains_a_queue_of_the_template_and_each_key_is_handled_once() {
    let Some(stack) = Stack::deploy("drain").await else { return };
    stack.send((0..KEYS).chain(0..KEYS)).await;
    // One after the other: a duplicate then finds its key done, and need not wait for a lease to end.
    let mut worker = stack.start(NOTE, &[("LEASEHOLD_CONCURRENCY", "1")]);
    worker.says("\"deleted\"", 2 * KEYS).await;
    let report = worker.stops().await;
    assert!(report["done"] == KEYS && report["suppressed"] == KEYS, "{report}");
    assert_eq!(stack.lines("handled"), keys());
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_what_a_killed_worker_had_begun_is_taken_over() {
    let Some(stack) = Stack::deploy("kill").await else { return };
    stack.send(0..KEYS).await;
    let short = [
        ("LEASEHOLD_VISIBILITY_TIMEOUT", "3s"),
        ("LEASEHOLD_CLOCK_SKEW", "200ms"),
        ("LEASEHOLD_CANCEL_GRACE", "500ms"),
        ("LEASEHOLD_CONCURRENCY", "3"),
    ];
    // Its handlers end by themselves soon after it.
    let mut doomed = stack.start(r#"echo "$(cat)" >> begun; echo has begun; exec sleep 4"#, &short);
    doomed.says("has begun", 3).await;
    doomed.signal(Signal::KILL);
    let mut heir = stack.start(NOTE, &short);
    heir.says("\"deleted\"", KEYS).await;
    let report = heir.stops().await;
    assert!(report["done"] == KEYS && report["failed"] == 0, "{report}");
    // On a machine that stands still for seconds the heir loses leases as well, and begins once more.
    let mut handled = stack.lines("handled");
    handled.dedup();
    assert_eq!(handled, keys());
    assert!(stack.lines("begun").len() == 3, "{:?}", stack.lines("begun"));
    assert_eq!(stack.depth().await, [0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_what_a_worker_that_is_told_to_stop_has_not_begun_is_visible_at_once() {
    let Some(stack) = Stack::deploy("stop").await else { return };
    stack.send(0..KEYS).await;
    let settings = [("LEASEHOLD_CONCURRENCY", "2"), ("LEASEHOLD_VISIBILITY_TIMEOUT", "2m")];
    let mut worker = stack.start(r#"echo has begun; sleep 2; echo "$(cat)" >> handled"#, &settings);
    worker.says("has begun", 2).await;
    let report = worker.stops().await;
    assert!(report["done"] == 2 && report["left"] == 0, "{report}");
    assert_eq!(stack.depth().await, [KEYS - 2, 0], "{report}");
    let mut heir = stack.start(NOTE, &settings);
    heir.says("\"deleted\"", KEYS - 2).await;
    assert_eq!(heir.stops().await["done"], KEYS - 2);
    assert_eq!(stack.lines("handled"), keys());
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_what_is_published_to_a_topic_twice_is_handled_once_and_without_its_envelope() {
    let Some(stack) = Stack::deploy("sns").await else { return };
    let topic = stack.topic().await;
    let publish = [
        ("Action", "Publish"),
        ("TopicArn", &topic),
        ("Message", r#"{"id":"ä\"1"}"#),
        ("Subject", "an order"),
        ("MessageAttributes.entry.1.Name", "bytes"),
        ("MessageAttributes.entry.1.Value.DataType", "Binary"),
        ("MessageAttributes.entry.1.Value.BinaryValue", "AP9h"),
        ("MessageAttributes.entry.2.Name", "list"),
        ("MessageAttributes.entry.2.Value.DataType", "String.Array"),
        ("MessageAttributes.entry.2.Value.StringValue", r#"["a",1]"#),
    ];
    for _ in 0..2 {
        stack.sns(&publish).await;
    }
    let note = r#"echo "$(cat) $LEASEHOLD_ATTRIBUTE_BYTES $LEASEHOLD_ATTRIBUTE_LIST $LEASEHOLD_SNS_SUBJECT $LEASEHOLD_SNS_TOPIC_ARN" >> handled"#;
    let mut worker = stack.start(note, &[("LEASEHOLD_CONCURRENCY", "1"), ("LEASEHOLD_ENVELOPE", "sns")]);
    worker.says("\"deleted\"", 2).await;
    let report = worker.stops().await;
    assert!(report["done"] == 1 && report["suppressed"] == 1, "{report}");
    assert_eq!(stack.lines("handled"), [format!(r#"{{"id":"ä\"1"}} 00ff61 ["a",1] an order {topic}"#)]);
}
