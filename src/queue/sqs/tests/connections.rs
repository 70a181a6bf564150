//! What the adapter makes of calls that get no reply, on real sockets.

use std::{
    collections::BTreeMap,
    io,
    sync::atomic::{AtomicUsize, Ordering},
};

use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_sqs::config::{Credentials, Region, SharedCredentialsProvider};
use futures_util::future::join;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::Notify,
    task::JoinSet,
};

use super::*;
use crate::aws::Aws;

/// What the server does with each request, once it has been read.
#[derive(Clone, Copy)]
enum Then {
    Hang,
    HangUp,
}

struct Server {
    endpoint: String,
    requests: Arc<AtomicUsize>,
    arrived: Arc<Notify>,
    _task: JoinSet<io::Result<()>>,
}

async fn server(then: Then) -> Server {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("binds");
    let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
    let (requests, arrived) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
    let mut task = JoinSet::new();
    let (counted, told) = (Arc::clone(&requests), Arc::clone(&arrived));
    task.spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await?;
            let mut buffer = [0; 16 * 1024];
            if stream.read(&mut buffer).await? > 0 {
                counted.fetch_add(1, Ordering::SeqCst);
                told.notify_one();
            }
            match then {
                Then::Hang => open.push(stream),
                Then::HangUp => stream.shutdown().await?,
            }
        }
    });
    Server { endpoint, requests, arrived, _task: task }
}

fn aws(endpoint: &str) -> Aws {
    let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .endpoint_url(endpoint);
    Aws::new(&config.build())
}

async fn open(aws: &Aws) -> Arc<dyn Queue> {
    // The host does not resolve, and is not asked: the endpoint is.
    let url = "http://sqs.us-east-1.localhost.invalid:4566/000000000000/q";
    aws.sqs().open(&QueueAddress::Url(url.into())).await.expect("a URL is taken as it is")
}

#[tokio::test]
async fn r4_a_receive_without_an_answer_ends_after_its_wait_and_margin_and_was_sent_once() {
    let server = server(Then::Hang).await;
    let aws = aws(&server.endpoint);
    let queue = open(&aws).await;
    let ask = Receive { wait: Duration::from_secs(20), ..ask() };
    let poll = queue.receive(&ask);
    let clock = async {
        server.arrived.notified().await;
        tokio::time::pause(); // The clock now jumps to the end of the wait.
        tokio::time::Instant::now()
    };
    let (outcome, start) = join(poll, clock).await;
    assert_eq!(kind(&outcome.map(drop)), "NoAnswer");
    let took = start.elapsed();
    let most = Duration::from_secs(20) + RECEIVE_MARGIN;
    assert!(took > most - Duration::from_secs(1) && took <= most + Duration::from_secs(1), "{took:?}");
    assert_eq!(server.requests.load(Ordering::SeqCst), 1);
    assert_eq!(aws.calls(), BTreeMap::from([("sqs:ReceiveMessage".to_owned(), 1)]));
}

#[tokio::test]
async fn l6_a_visibility_change_without_an_answer_is_not_sent_again() {
    let server = server(Then::Hang).await;
    let queue = open(&aws(&server.endpoint)).await;
    let handle = handle("h");
    let change = queue.change_visibility(&handle, Duration::from_secs(30));
    let clock = async {
        server.arrived.notified().await;
        tokio::time::pause();
    };
    let (outcome, ()) = join(change, clock).await;
    assert_eq!((kind(&outcome), server.requests.load(Ordering::SeqCst)), ("NoAnswer", 1));
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_request_leaves_the_outcome_open() {
    let server = server(Then::HangUp).await;
    let aws = aws(&server.endpoint);
    let queue = open(&aws).await;
    assert_eq!(kind(&queue.receive(&ask()).await.map(drop)), "NoAnswer");
    assert_eq!(kind(&queue.change_visibility(&handle("h"), Duration::ZERO).await), "NoAnswer");
    let (receives, changes) = ("sqs:ReceiveMessage".to_owned(), "sqs:ChangeMessageVisibility".to_owned());
    assert_eq!(aws.calls(), BTreeMap::from([(receives, 1), (changes, 1)]));
}

#[tokio::test]
async fn a_connection_that_is_refused_means_that_nothing_was_done() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("binds");
    let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let aws = aws(&endpoint);
    let queue = open(&aws).await;
    assert_eq!(kind(&queue.receive(&ask()).await.map(drop)), "Unavailable");
    assert_eq!(kind(&queue.delete(&handle("h")).await), "Unavailable");
    let tries = [("sqs:DeleteMessage", 3), ("sqs:ReceiveMessage", 1)].map(|(call, n)| (call.to_owned(), n));
    assert_eq!(aws.calls(), BTreeMap::from(tries), "a delete is tried again, a receive is not");
}

#[tokio::test]
async fn a_host_that_does_not_resolve_means_that_nothing_was_done() {
    let queue = open(&aws("http://sqs.invalid:1")).await;
    assert_eq!(kind(&queue.receive(&ask()).await.map(drop)), "Unavailable");
}

#[tokio::test]
async fn missing_credentials_and_a_missing_region_are_told_as_such() {
    let absent = aws_config::profile::ProfileFileCredentialsProvider::builder().profile_name("absent").build();
    let builder = || SdkConfig::builder().behavior_version(BehaviorVersion::latest());
    let with = || builder().region(Region::new("us-east-1"));
    let failing = with().credentials_provider(SharedCredentialsProvider::new(absent)).build();
    for config in [with().build(), failing] {
        let queue = open(&Aws::new(&config)).await;
        let answer = queue.receive(&ask()).await.map(drop);
        assert_eq!(kind(&answer), "Denied");
        assert!(answer.is_err_and(|error| error.lacks_credentials()));
    }
    let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
    let nowhere = builder().credentials_provider(SharedCredentialsProvider::new(credentials)).build();
    let queue = open(&Aws::new(&nowhere)).await;
    let error = queue.receive(&ask()).await.expect_err("has no region");
    assert_eq!(kind(&Err(error)), "Refused");
}
