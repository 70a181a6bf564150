//! `leasehold send`: what arrives, in which order, and what is told of what does not.

use std::{collections::BTreeSet, fs, time::Duration};

use futures_util::future::try_join_all;
use leasehold::{
    Message,
    aws::{self, Aws},
    message::{Attribute, AttributeValue},
    queue::{BATCH, Broker, QueueAddress, Receive},
};
use rustix::process::Signal;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    time::timeout,
};

use crate::{
    bench::{Bench, SOON},
    command::Leasehold,
};

const TO_JOBS: [&str; 3] = ["send", "jobs", "--endpoint-url"];

/// Arguments for sending to the bench's queue.
fn to_jobs<'a>(bench: &'a Bench, more: &[&'a str]) -> Vec<&'a str> {
    [&TO_JOBS[..], &[bench.engine.endpoint()], more].concat()
}

/// Takes messages out of a queue, in the order in which it gives them, until there are none.
async fn received(bench: &Bench, queue: &str) -> Vec<Message> {
    let aws = Aws::new(&aws::local(bench.engine.endpoint()));
    let queue = aws.sqs().open(&QueueAddress::Name(queue.to_owned())).await.expect("a queue");
    let ask = Receive { max: BATCH, wait: Duration::ZERO, visibility: Duration::from_secs(60), attempt_id: None };
    let mut messages = Vec::new();
    loop {
        let received = queue.receive(&ask).await.expect("a poll");
        if received.is_empty() {
            return messages;
        }
        try_join_all(received.iter().map(|received| queue.delete(&received.handle))).await.expect("are deleted");
        messages.extend(received.into_iter().map(|received| received.message));
    }
}

fn bodies(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.body.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_arrive_with_their_attributes_as_often_as_asked() {
    let bench = Bench::new().await;
    let args = to_jobs(&bench, &["one", "{\"id\": 2}", "--repeat", "2", "-a", "tenant=7", "-a", "mode=a=b"]);
    let told = Leasehold::default().run(&args).await.check(0);
    assert_eq!((told.out.as_str(), told.err.as_str()), ("sent 4 messages to jobs", ""));
    let messages = received(&bench, "jobs").await;
    assert!(messages.iter().all(|m| (m.attribute("tenant"), m.attribute("mode")) == (Some("7"), Some("a=b"))));
    let mut bodies = bodies(&messages);
    bodies.sort_unstable();
    assert_eq!(bodies, ["one", "one", "{\"id\": 2}", "{\"id\": 2}"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_of_every_type_arrive() {
    let bench = Bench::new().await;
    let trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1";
    let args = ["x", "-a", "n:Number.int=-7", "-a", "b:Binary.png=00ff", "--trace-header", trace];
    Leasehold::default().run(&to_jobs(&bench, &args)).await.check(0);
    let message = received(&bench, "jobs").await.remove(0);
    let number = Attribute { data_type: "Number.int".into(), value: AttributeValue::Text("-7".into()) };
    let bytes = Attribute { data_type: "Binary.png".into(), value: AttributeValue::Binary(vec![0, 255]) };
    assert_eq!(message.attributes, [("b".to_owned(), bytes), ("n".to_owned(), number)].into());
    let wrong = Leasehold::default().run(&to_jobs(&bench, &["x", "-a", "AWS.a=b"])).await.check(64);
    assert!(wrong.err.contains("reserved"), "{}", wrong.err);
    // The engine has no fair queues, and says so.
    let fair = Leasehold::default().run(&to_jobs(&bench, &["x", "--group", "tenant-7"])).await.check(1);
    assert!(fair.err.contains("MessageGroupId"), "{}", fair.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_a_file_and_of_standard_input_are_messages_in_batches() {
    let bench = Bench::new().await;
    let lines: String = (0..500).map(|n| format!("{{\"id\":{n}}}\n")).collect();
    let file = bench.path("messages.jsonl");
    fs::write(&file, &lines).expect("is written");
    let args = to_jobs(&bench, &["--json", "--file", file.to_str().expect("a path")]);
    let told = Leasehold::default().run(&args).await.check(0);
    let summary: Value = serde_json::from_str(&told.out).expect("JSON");
    assert_eq!((&summary["sent"], &summary["failed"], &summary["next"]), (&500.into(), &0.into(), &Value::Null));
    let calls = bench.engine.calls();
    assert!(calls["sqs:SendMessageBatch"] < 100, "500 messages in batches of ten: {calls:?}");
    assert_eq!(received(&bench, "jobs").await.iter().map(|m| m.body.clone()).collect::<BTreeSet<_>>().len(), 500);

    Leasehold::default().reads(&to_jobs(&bench, &["-"]), b"a\n\nb").await.check(0);
    // Nothing given is standard input too, where nobody types.
    Leasehold::default().reads(&to_jobs(&bench, &["--whole"]), b"{\n}\n").await.check(0);
    let messages = received(&bench, "jobs").await;
    assert_eq!(bodies(&messages).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(["a", "b", "{\n}\n"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fifo_queue_gets_its_messages_in_order_and_those_that_are_alike_too() {
    let bench = Bench::new().await;
    bench.engine.create_queue("orders.fifo", None).await.expect("a queue");
    let to_orders = ["send", "orders.fifo", "--endpoint-url", bench.engine.endpoint()];
    let lines: Vec<String> = (0..40).map(|n| (n / 2).to_string()).collect();
    let grouped = [&to_orders[..], &["--group", "g"]].concat();
    Leasehold::default().reads(&grouped, lines.join("\n").as_bytes()).await.check(0);
    let messages = received(&bench, "orders.fifo").await;
    assert_eq!(bodies(&messages), lines);
    assert!(messages.iter().all(|message| message.group.as_deref() == Some("g")));

    let told = Leasehold::default().run(&[&to_orders[..], &["a"]].concat()).await.check(64);
    assert!(told.err.contains("leasehold send orders.fifo --group"), "{}", told.err);
    let twice = [&grouped[..], &["a", "--dedup-id", "1", "--repeat", "2"]].concat();
    Leasehold::default().run(&twice).await.check(0);
    assert_eq!(received(&bench, "orders.fifo").await.len(), 1, "SQS keeps the first of one id");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_cannot_be_sent_is_named_and_the_others_arrive() {
    let bench = Bench::new().await;
    let too_large = "x".repeat(1024 * 1024 + 1);
    let input = [b"a\n".as_slice(), b"\xff\n", too_large.as_bytes(), b"\n", b"b\n"].concat();
    let told = Leasehold::default().reads(&to_jobs(&bench, &[]), &input).await.check(1);
    assert_eq!(told.out, "sent 2 messages to jobs, 2 not");
    assert!(told.err.contains("line 2 was not sent: it is not UTF-8"), "{}", told.err);
    assert!(told.err.contains("line 3 was not sent: it is larger than"), "{}", told.err);
    assert_eq!(received(&bench, "jobs").await.len(), 2);
    // What SQS itself refuses, one among others: the engine takes no more than 256 KiB.
    let refused = format!("a\n{}\nb\n", "x".repeat(300_000));
    let told = Leasehold::default().reads(&to_jobs(&bench, &[]), refused.as_bytes()).await.check(1);
    assert!(told.err.contains("line 2 was not sent: ") && told.err.contains("262144"), "{}", told.err);
    assert_eq!(bodies(&received(&bench, "jobs").await).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_found_by_its_name_in_the_settings() {
    let bench = Bench::new().await;
    for address in
        [("LEASEHOLD_WORK_NAME", "jobs"), ("LEASEHOLD_WORK_URL", "https://sqs.eu-central-1.amazonaws.com/1/jobs")]
    {
        let leasehold = Leasehold::new(&[("LEASEHOLD_QUEUES", "work"), address]);
        leasehold.run(&["send", "work", "a", "--endpoint-url", bench.engine.endpoint()]).await.check(0);
        assert_eq!(received(&bench, "jobs").await.len(), 1, "{address:?}");
    }
    let wrong = Leasehold::new(&[("LEASEHOLD_QUEUES", "work"), ("LEASEHOLD_WORK_NAME", "no name")]);
    let told = wrong.run(&["send", "work", "a", "--endpoint-url", bench.engine.endpoint()]).await.check(78);
    assert!(told.err.contains("LEASEHOLD_WORK_NAME=no-name"), "{}", told.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_without_sending_says_why_and_its_code_what() {
    let bench = Bench::new().await;
    let endpoint = bench.engine.endpoint();
    let run = async |args: &[&str], code| Leasehold::default().run(args).await.check(code).err;
    let missing = run(&["send", "nope", "a", "--endpoint-url", endpoint], 78).await;
    assert!(missing.contains("there is no queue nope") && missing.contains("leasehold dev nope"), "{missing}");
    // A URL is not looked up: that it leads nowhere is met by the first message, and told once.
    let url = format!("{endpoint}/000000000000/nope");
    let account = Leasehold::new(&[
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
    ]);
    let lost = account.run(&["send", &url, "a", "b", "c"]).await.check(78).err;
    assert_eq!(lost.matches("there is no queue").count(), 1, "{lost}");
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let away = run(&["send", "jobs", "a", "--endpoint-url", &format!("http://{nowhere}")], 69).await;
    assert!(away.contains("does not answer") && away.contains("refused"), "{away}");
    let keyless = Leasehold::new(&[("AWS_REGION", "us-east-1")]).run(&["send", "jobs", "a"]).await.check(78).err;
    assert!(keyless.contains("--endpoint-url http://127.0.0.1:4567"), "{keyless}");
    run(&["send", "no such name", "a", "--endpoint-url", endpoint], 78).await;
    run(&["send", "jobs", "a", "--endpoint-url", "nowhere"], 64).await;
    run(&["send", "jobs", "a", "-", "--endpoint-url", endpoint], 64).await;
    run(&["send", "jobs", "a", "--delay", "1h", "--endpoint-url", endpoint], 64).await;
    run(&["send", "jobs", "--file", "no/such/file", "--endpoint-url", endpoint], 1).await;
    assert_eq!(received(&bench, "jobs").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_it_with_how_far_it_came() {
    let bench = Bench::new().await;
    let mut sending = Leasehold::default().start(&to_jobs(&bench, &[]));
    let stdin = sending.stdin.as_mut().expect("a pipe");
    stdin.write_all(b"a\nb\nc\nhalf a li").await.expect("is read");
    bench.until("they arrive", async || bench.messages().await == 3).await;
    sending.signal(Signal::INT);
    assert!(sending.complains().await.starts_with("Ctrl-C"), "while its input is open");
    let told = sending.says("sent").await;
    assert_eq!(told, "sent 3 messages to jobs; what was not tried begins at line 4");
    assert_eq!(sending.ends().await.code, Some(1));
}

/// What a request for the queue is signed with.
async fn signed_with(variables: &[(&str, &str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let args = ["send", "jobs", "a", "--endpoint-url", &endpoint];
    let leasehold = Leasehold::new(variables);
    let answered = async {
        let (stream, _) = timeout(SOON, listener.accept()).await.expect("asks soon").expect("a connection");
        let (mut stream, mut request) = (BufReader::new(stream), String::new());
        while stream.read_line(&mut request).await.expect("a header") > 2 {}
        let body = r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist"}"#;
        let reply = format!("HTTP/1.1 400 Bad Request\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(reply.as_bytes()).await.expect("is read");
        request
    };
    let (request, told) = tokio::join!(answered, leasehold.run(&args));
    told.check(78);
    let credential = request.split_once("Credential=").unwrap_or_else(|| panic!("{request}")).1;
    let mut parts = credential.split('/');
    format!("{} {}", parts.next().unwrap_or_default(), parts.nth(1).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_is_asked_with_local_keys_and_region_unless_the_environment_has_some() {
    let keys = [("AWS_ACCESS_KEY_ID", "AKIDOWN"), ("AWS_SECRET_ACCESS_KEY", "secret")];
    assert_eq!(signed_with(&[]).await, "local us-east-1");
    assert_eq!(signed_with(&keys).await, "AKIDOWN us-east-1");
    assert_eq!(signed_with(&[("AWS_REGION", "eu-west-1")]).await, "local eu-west-1");
}
