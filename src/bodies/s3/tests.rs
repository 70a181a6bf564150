//! What the adapter makes of answers, and of none, on real sockets.

use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering},
    sync::{Arc, Mutex},
};

use aws_config::SdkConfig;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::Notify,
    task::JoinSet,
    time::Instant,
};

use super::*;
use crate::aws::{self, Aws};

/// What is answered to one request.
#[derive(Debug, Clone)]
enum Answer {
    /// A status, and an error code.
    Error(u16, &'static str),
    /// An object.
    Body(Vec<u8>),
    /// So many bytes are promised; these come, and then the connection ends.
    Broken(usize, &'static [u8]),
    /// So many bytes are promised; these come, and then nothing.
    Stalled(usize, &'static [u8]),
    /// Nothing is answered.
    Hang,
}

struct Server {
    endpoint: String,
    requests: Arc<AtomicUsize>,
    /// The request lines.
    lines: Arc<Mutex<Vec<String>>>,
    /// An answer was begun that does not end.
    hangs: Arc<Notify>,
    _task: JoinSet<io::Result<()>>,
}

/// Answers requests in turn, the last answer again and again. Each connection is closed after its answer.
async fn server(answers: Vec<Answer>) -> Server {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("binds");
    let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
    let (requests, lines, hangs) =
        (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<String>>>::default(), Arc::<Notify>::default());
    let (counted, kept, told) = (Arc::clone(&requests), Arc::clone(&lines), Arc::clone(&hangs));
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await?;
            let mut buffer = vec![0; 16 * 1024];
            let read = stream.read(&mut buffer).await?;
            let head = String::from_utf8_lossy(&buffer[..read]).into_owned();
            let (Some(line), 1..) = (head.lines().next(), read) else { continue };
            kept.lock().expect("whole").push(line.to_owned());
            let which = counted.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
            let (sent, ends) = spoken(&answers[which]);
            stream.write_all(&sent).await?;
            if ends {
                stream.shutdown().await?;
            } else {
                open.push(stream);
                told.notify_one();
            }
        }
    });
    Server { endpoint, requests, lines, hangs, _task: task }
}

/// The bytes of an answer, and whether the connection ends with it.
fn spoken(answer: &Answer) -> (Vec<u8>, bool) {
    let head = |status: u16, length: usize| {
        format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n").into_bytes()
    };
    match answer {
        Answer::Error(status, code) => {
            let text = format!("<Error><Code>{code}</Code><Message>so it is</Message></Error>");
            ([head(*status, text.len()), text.into_bytes()].concat(), true)
        }
        Answer::Body(body) => ([head(200, body.len()), body.clone()].concat(), true),
        Answer::Broken(promised, body) => ([head(200, *promised), body.to_vec()].concat(), true),
        Answer::Stalled(promised, body) => ([head(200, *promised), body.to_vec()].concat(), false),
        Answer::Hang => (Vec::new(), false),
    }
}

fn pointer() -> Pointer {
    Pointer::new("bodies", "a/1").expect("good")
}

fn adapter(sdk: &SdkConfig) -> S3Bodies {
    // Paused clocks go with a clock of their own.
    S3Bodies::new(Aws::new(sdk).s3(), Clock::simulated(1, 0))
}

async fn get(server: &Server) -> Result<String, BodyError> {
    adapter(&aws::local(&server.endpoint)).get(&pointer(), LIMIT).await
}

const LIMIT: usize = 1_000_000;

fn kind<T>(answer: &Result<T, BodyError>) -> String {
    match answer {
        Ok(_) => "Ok".to_owned(),
        Err(error) => format!("{error:?}").split(['(', ' ']).next().unwrap_or_default().to_owned(),
    }
}

#[tokio::test]
async fn an_object_is_asked_for_by_its_path_and_read_whole() {
    let server = server(vec![Answer::Body("h\u{e9}llo ".repeat(50_000).into_bytes())]).await;
    let body = get(&server).await.expect("a body");
    assert_eq!(body.len(), 350_000);
    let lines = server.lines.lock().expect("whole").clone();
    assert_eq!(lines, ["GET /bodies/a/1?x-id=GetObject HTTP/1.1"]);
}

#[tokio::test]
async fn what_is_well_at_the_next_attempt_is_well() {
    for first in [
        Answer::Error(503, "SlowDown"),
        Answer::Error(500, "InternalError"),
        Answer::Error(400, "RequestTimeout"),
        Answer::Broken(100, b"he"),
        Answer::Broken(100, b""),
    ] {
        let server = server(vec![first.clone(), Answer::Body(b"hello".to_vec())]).await;
        assert_eq!(get(&server).await.expect("a body"), "hello", "{first:?}");
        assert_eq!(server.requests.load(Ordering::SeqCst), 2, "{first:?}");
    }
}

#[tokio::test]
async fn each_answer_has_its_meaning_and_only_what_may_pass_is_tried_again() {
    for (answer, meaning, requests) in [
        (Answer::Error(404, "NoSuchKey"), "Missing", 1),
        (Answer::Error(404, "NoSuchBucket"), "NoBucket", 1),
        (Answer::Error(403, "AccessDenied"), "Denied", 1),
        (Answer::Error(403, "InvalidObjectState"), "Refused", 1),
        (Answer::Error(301, "PermanentRedirect"), "Denied", 1),
        (Answer::Error(404, "Nobody"), "Unavailable", 3),
        (Answer::Error(503, "SlowDown"), "Throttled", 3),
        (Answer::Error(500, "InternalError"), "Unavailable", 3),
        (Answer::Broken(100, b"he"), "NoAnswer", 3),
        (Answer::Body(vec![0xff]), "NotText", 1),
        // What is too large is not read.
        (Answer::Stalled(LIMIT + 1, b""), "TooLarge", 1),
    ] {
        let server = server(vec![answer.clone()]).await;
        assert_eq!(kind(&get(&server).await), meaning, "{answer:?}");
        assert_eq!(server.requests.load(Ordering::SeqCst), requests, "{answer:?}");
    }
}

#[tokio::test]
async fn what_never_answers_or_stands_still_ends_in_time() {
    for answer in [Answer::Hang, Answer::Stalled(100, b"he")] {
        let server = server(vec![answer.clone()]).await;
        let clock = async {
            server.hangs.notified().await;
            tokio::time::pause(); // The clock now jumps from one timeout to the next.
            Instant::now()
        };
        let (outcome, start) = futures_util::future::join(get(&server), clock).await;
        tokio::time::resume();
        assert_eq!(kind(&outcome), "NoAnswer", "{answer:?}");
        assert!(start.elapsed() <= Duration::from_secs(60), "{answer:?} {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_no_answer() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("binds");
    let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let answer = adapter(&aws::local(&endpoint)).get(&pointer(), LIMIT).await;
    assert_eq!(kind(&answer), "NoAnswer");
}

#[tokio::test]
async fn missing_credentials_are_denied_access() {
    let server = server(vec![Answer::Body(Vec::new())]).await;
    let mut sdk = aws::local(&server.endpoint).to_builder();
    sdk.set_credentials_provider(Some(aws_credential_types::provider::SharedCredentialsProvider::new(NoCredentials)));
    let answer = adapter(&sdk.build()).get(&pointer(), LIMIT).await;
    assert_eq!(kind(&answer), "Denied", "{answer:?}");
    assert_eq!(server.requests.load(Ordering::SeqCst), 0);
}

#[derive(Debug)]
struct NoCredentials;

impl aws_credential_types::provider::ProvideCredentials for NoCredentials {
    fn provide_credentials<'a>(&'a self) -> aws_credential_types::provider::future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        use aws_credential_types::provider::{error::CredentialsError, future};
        future::ProvideCredentials::ready(Err(CredentialsError::not_loaded("none are set")))
    }
}

#[tokio::test]
async fn a_delete_is_one_call_and_of_what_is_not_there_it_is_done() {
    for (answer, meaning) in [
        (Answer::Error(404, "NoSuchKey"), "Ok"),
        (Answer::Error(403, "AccessDenied"), "Denied"),
        (Answer::Body(Vec::new()), "Ok"),
    ] {
        let server = server(vec![answer.clone()]).await;
        let aws = Aws::new(&aws::local(&server.endpoint));
        assert_eq!(kind(&aws.bodies().delete(&pointer()).await), meaning, "{answer:?}");
        let lines = server.lines.lock().expect("whole").clone();
        assert_eq!(lines, ["DELETE /bodies/a/1?x-id=DeleteObject HTTP/1.1"]);
        assert_eq!(aws.calls(), [("s3:DeleteObject".to_owned(), 1)].into());
    }
}
