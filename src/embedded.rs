//! The embedded engine: SQS and DynamoDB in this process, for `leasehold demo`, `leasehold dev` and hermetic tests.
//!
//! Owns one loopback port, which the system picks unless it is told; requests are told apart by `X-Amz-Target`, so one
//! `AWS_ENDPOINT_URL` serves both. Relies on rustack for SQS, called in process, and on dynoxide for DynamoDB, which
//! only serves a listener of its own and is reached through a second loopback port that nobody else is told of.
//! Must never be part of a production build, listen beyond loopback, or touch the process (no signal handlers, no
//! environment, no files). Nothing of it survives [`Engine::stop`] or a drop: all state is in memory.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Either;
use hyper::body::Incoming;
use hyper::http::uri::InvalidUri;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::{self, Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustack_sqs_core::config::SqsConfig;
use rustack_sqs_core::handler::RustackSqsHandler;
use rustack_sqs_core::provider::RustackSqs;
use rustack_sqs_http::body::SqsResponseBody;
use rustack_sqs_http::service::{SqsHttpConfig, SqsHttpService};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use crate::queue::Depth;

mod queues;

/// How long [`Engine::stop`] lets requests finish. A parked long poll may have up to 20 s to go and is cut off.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Pause after a failed `accept`: it fails when descriptors run out, which trying again at once does not mend.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// SQS and DynamoDB in this process, on one loopback port. Stops when dropped.
///
/// Any AWS client in any language can talk to it: endpoint [`Engine::endpoint`], region `us-east-1`, any credentials
/// (signatures are not checked). It needs the Tokio runtime it was started on to be running.
///
/// # Where it differs from AWS
///
/// SQS:
/// - Not there: `StartMessageMoveTask`, more than one message of a FIFO group per receive, `ReceiveRequestAttemptId`,
///   `MessageGroupId` on standard queues, `AWSTraceHeader`, bodies over 256 KiB, the 12-hour cap, retention, limits on
///   messages in flight, any look at a message's attributes (SQS refuses reserved names, empty values and the like), and
///   the query protocol of SDKs from before the end of 2023.
/// - A handle that is lost, deleted or made up is `MessageNotInflight` to a visibility change, and success to a delete,
///   which then deletes nothing; on AWS it works on a standard queue when nobody has received the message since.
/// - Timeouts and delays are looked at on a receive, or else once a second: a parked poll wakes up to a second late, and
///   until then a lapsed handle can still be extended. A poll whose client has gone swallows no message.
/// - A message's receive count starts again in its dead-letter queue. `maxReceiveCount` must be a JSON number.
/// - A negative visibility timeout ends the queue: it answers `InternalError` from then on.
///
/// DynamoDB: never throttles or conflicts, changes to a table are there at once, and items past their time to live stay
/// until deleted.
#[derive(Debug)]
pub struct Engine {
    endpoint: String,
    front: Arc<Front>,
    queues: Arc<RustackSqs>,
    shutdown: CancellationToken,
    /// The front's accept loop, which owns its connections, and dynoxide's server. Aborted on drop.
    tasks: JoinSet<()>,
}

/// The embedded engine could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No loopback port could be had.
    #[error("could not listen on a loopback port")]
    Listen(#[source] io::Error),
    /// The in-memory database behind DynamoDB could not be opened.
    #[error("could not open the in-memory database")]
    Database(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The embedded SQS refused what was asked of it.
    #[error("the embedded SQS refused: {0}")]
    Queue(String),
}

impl Engine {
    /// Starts both services, empty, on a port that the system picks. They answer as soon as this returns.
    ///
    /// # Errors
    ///
    /// When no loopback port or no in-memory database can be had.
    pub async fn start() -> Result<Self, EngineError> {
        Self::start_on(0).await
    }

    /// As [`start`](Self::start), on this port; 0 is one that the system picks.
    ///
    /// # Errors
    ///
    /// When the port is taken, or no in-memory database can be had.
    pub async fn start_on(port: u16) -> Result<Self, EngineError> {
        let (listener, address) = listen(port).await?;
        let (dynamodb_listener, dynamodb_address) = listen(0).await?;
        let dynamodb_uri = format!("http://{dynamodb_address}/")
            .parse()
            .map_err(|error| EngineError::Listen(io::Error::other::<InvalidUri>(error)))?;
        let database = dynoxide::Database::memory().map_err(|error| EngineError::Database(error.into()))?;

        let queues = Arc::new(RustackSqs::new(SqsConfig {
            host: address.ip().to_string(),
            port: address.port(),
            ..SqsConfig::default()
        }));
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let front = Arc::new(Front {
            sqs: SqsHttpService::new(Arc::new(RustackSqsHandler::new(Arc::clone(&queues))), SqsHttpConfig::default()),
            dynamodb: Client::builder(TokioExecutor::new()).build(connector),
            dynamodb_uri,
            calls: Mutex::default(),
        });

        let shutdown = CancellationToken::new();
        let front_ended = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&front), shutdown.clone(), front_ended.clone().drop_guard()));
        tasks.spawn(async move {
            let ended = front_ended.cancelled_owned();
            if let Err(error) = dynoxide::server::serve_with_shutdown(dynamodb_listener, database, ended).await {
                tracing::error!(error, "embedded DynamoDB ended");
            }
        });
        Ok(Self { endpoint: format!("http://{address}"), front, queues, shutdown, tasks })
    }

    /// The endpoint of both services, `http://127.0.0.1:PORT`: what `AWS_ENDPOINT_URL` is set to.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Requests received so far by IAM action name (`sqs:ReceiveMessage`, `dynamodb:PutItem`): refused and retried ones
    /// included, as AWS would count and bill them. A batch is one call, and a long poll counts when it arrives.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.front.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops accepting, lets requests in hand finish for about a second, then cuts off what is left.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        let all_ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_GRACE, all_ended).await.is_err() {
            self.tasks.shutdown().await;
        }
        // Waits for the queues' own tasks, which rustack spawns.
        if tokio::time::timeout(STOP_GRACE, self.queues.shutdown_all()).await.is_err() {
            tracing::warn!("a queue of the embedded engine did not stop in time");
        }
    }
}

/// What stands before both services: tells requests apart and counts them.
#[derive(Debug)]
struct Front {
    sqs: SqsHttpService<RustackSqsHandler>,
    /// Its pooled connections end when this is dropped.
    dynamodb: Client<HttpConnector, Incoming>,
    dynamodb_uri: Uri,
    /// A lock, for it is held for one look-up and never across an await.
    calls: Mutex<BTreeMap<String, u64>>,
}

impl Front {
    /// An error closes the connection, which clients see as a failed send and retry.
    async fn answer(
        self: Arc<Self>,
        mut request: Request<Incoming>,
    ) -> Result<Response<Either<SqsResponseBody, Incoming>>, legacy::Error> {
        let target = request.headers().get("x-amz-target");
        let target = target.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (version, operation) = target.split_once('.').unwrap_or_default();
        let dynamodb = version.starts_with("DynamoDB");
        if !operation.is_empty() {
            self.count(if dynamodb { "dynamodb" } else { "sqs" }, operation);
        }

        if dynamodb {
            *request.uri_mut() = self.dynamodb_uri.clone();
            return Ok(self.dynamodb.request(request).await?.map(Either::Right));
        }
        // Also without a target: rustack then says which header is missing.
        let Ok(response) = self.sqs.call(request).await;
        Ok(response.map(Either::Left))
    }

    fn count(&self, service: &str, operation: &str) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        *calls.entry(format!("{service}:{operation}")).or_default() += 1;
    }
}

async fn listen(port: u16) -> Result<(TcpListener, SocketAddr), EngineError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(EngineError::Listen)?;
    let address = listener.local_addr().map_err(EngineError::Listen)?;
    Ok((listener, address))
}

/// Serves connections until told to stop, then waits for those that are open. `ended` goes last, however this ends, so
/// that DynamoDB outlives the requests that are on their way to it.
async fn accept(listener: TcpListener, front: Arc<Front>, shutdown: CancellationToken, ended: DropGuard) {
    let mut connections = JoinSet::new();
    loop {
        // Biased: stop first, then reap, so that neither starves under load. Accepting is cancel safe.
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, Arc::clone(&front), shutdown.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "the embedded engine could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    drop(ended);
}

async fn serve(stream: TcpStream, front: Arc<Front>, shutdown: CancellationToken) {
    // Best effort: without it answers are only slower.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| Arc::clone(&front).answer(request));
    let mut connection = std::pin::pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    // Biased: a connection that has ended needs no goodbye. Nothing is thrown away: the connection is only borrowed.
    let ended = tokio::select! {
        biased;
        ended = &mut connection => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // A client that goes away in mid-request is its own business.
        tracing::debug!(%error, "a connection to the embedded engine broke");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn call(endpoint: String, target: &'static str, body: &'static str) -> u16 {
        let client = Client::builder(TokioExecutor::new()).build_http::<String>();
        let request = Request::post(endpoint)
            .header("x-amz-target", target)
            .header("content-type", "application/x-amz-json-1.0")
            .header("authorization", "AWS4-HMAC-SHA256 Credential=a, SignedHeaders=b, Signature=c")
            .header("x-amz-date", "20260101T000000Z")
            .body(body.to_owned())
            .expect("a valid request");
        client.request(request).await.map_or(0, |response| response.status().as_u16())
    }

    #[tokio::test]
    async fn one_endpoint_serves_both_and_counts_refused_calls_too() {
        let engine = Engine::start().await.expect("starts");
        let at = || engine.endpoint().to_owned();
        assert_eq!(call(at(), "AmazonSQS.CreateQueue", r#"{"QueueName":"q"}"#).await, 200);
        assert_eq!(call(at(), "DynamoDB_20120810.ListTables", "{}").await, 200);
        assert_eq!(call(at(), "DynamoDB_20120810.ListTables", "no JSON").await, 400);
        assert_eq!(call(at(), "", "{}").await, 400);
        let counted = [("dynamodb:ListTables", 2), ("sqs:CreateQueue", 1)].map(|(action, n)| (action.to_owned(), n));
        assert_eq!(engine.calls(), BTreeMap::from(counted));
    }

    #[tokio::test]
    async fn a_port_is_had_again_after_a_stop_and_not_before() {
        let first = Engine::start().await.expect("starts");
        let port = first.endpoint().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        let taken = Engine::start_on(port).await;
        assert!(matches!(&taken, Err(EngineError::Listen(error)) if error.kind() == io::ErrorKind::AddrInUse));
        let endpoint = first.endpoint().to_owned();
        first.stop().await;
        let second = Engine::start_on(port).await.expect("starts");
        assert_eq!(second.endpoint(), endpoint);
    }

    #[tokio::test]
    async fn stop_cuts_off_a_parked_poll_and_frees_the_port() {
        let engine = Engine::start().await.expect("starts");
        let at = engine.endpoint().to_owned();
        assert_eq!(call(at.clone(), "AmazonSQS.CreateQueue", r#"{"QueueName":"q"}"#).await, 200);
        let mut poll = JoinSet::new();
        let parked = r#"{"QueueUrl":"http://host/000000000000/q","WaitTimeSeconds":20}"#;
        poll.spawn(call(at.clone(), "AmazonSQS.ReceiveMessage", parked));
        while !engine.calls().contains_key("sqs:ReceiveMessage") {
            tokio::task::yield_now().await;
        }
        tokio::time::pause(); // The clock now jumps to the end of the grace.
        engine.stop().await;
        assert_eq!(poll.join_next().await.expect("spawned").expect("ends"), 0);
        assert!(TcpStream::connect(at.trim_start_matches("http://")).await.is_err());
    }
}
