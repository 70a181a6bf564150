//! One request to ECS's agent, over a connection of its own.
//!
//! With hyper alone, which the SDK is built with anyway: no pool, no proxy, no redirect, no task that outlives the call. The
//! agent is on the same machine, and is asked now and then.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request,
    body::Bytes,
    client::conn::http1,
    header::{CONNECTION, CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};
use url::{Position, Url};

use crate::causes::in_full;

/// The most of a reply that is read. What is told of a task with ten containers takes a tenth of it.
const MOST_OF_A_REPLY: usize = 256 * 1024;

/// What came back.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

/// Why nothing came back.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// The request was not sent.
    #[error("no connection to ECS's agent: {0}")]
    NotSent(String),
    /// It was, or may have been: what it asks for may be done.
    #[error("no answer from ECS's agent: {0}")]
    Unanswered(String),
}

/// The address of a path below one of the agent's.
///
/// # Errors
/// The agent's is no address that can be asked, in words.
pub(super) fn url(base: &str, path: &str) -> Result<Url, String> {
    let url = Url::parse(&format!("{}{path}", base.trim_end_matches('/'))).ok();
    let url = url.filter(|url| url.scheme() == "http" && url.has_host());
    url.ok_or_else(|| format!("{base:?} is no address of ECS's agent, which begins with http://"))
}

/// Asks, and waits no longer than that for all of the answer.
///
/// # Cancel safety
/// Dropped, the connection is closed; the request may have been sent.
pub(super) async fn ask(url: &Url, method: Method, body: String, within: Duration) -> Result<Reply, AskError> {
    let until = Instant::now() + within;
    let late = || format!("none within {within:?}");
    let address = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
    let connected = timeout_at(until, TcpStream::connect(address)).await;
    let stream = match connected {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(AskError::NotSent(error.to_string())),
        Err(_) => return Err(AskError::NotSent(late())),
    };
    let request = Request::builder()
        .method(method)
        .uri(&url[Position::BeforePath..Position::AfterQuery])
        .header(HOST, &url[Position::BeforeHost..Position::AfterPort])
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close")
        .body(Full::from(body))
        .map_err(|error| AskError::NotSent(in_full(&error)))?;
    match timeout_at(until, exchange(stream, request)).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(error)) => Err(AskError::Unanswered(in_full(&*error))),
        Err(_) => Err(AskError::Unanswered(late())),
    }
}

async fn exchange(
    stream: TcpStream,
    request: Request<Full<Bytes>>,
) -> Result<Reply, Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let asked = async {
        let reply = sender.send_request(request).await?;
        let status = reply.status().as_u16();
        let body = Limited::new(reply.into_body(), MOST_OF_A_REPLY).collect().await?.to_bytes();
        Ok(Reply { status, body })
    };
    // One that breaks is told to whoever waits for the reply; one that ends may have brought all of it.
    let kept_up = async {
        let _ = connection.await;
        std::future::pending::<Reply>().await
    };
    tokio::select! {
        // The connection only has to be driven; what it brings is in the first arm.
        biased;
        reply = asked => reply,
        never = kept_up => Ok(never),
    }
}
