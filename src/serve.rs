//! The endpoint that tells how a worker is, over plain HTTP/1.
//!
//! Owns the listener and every connection: all of them end when the future of [`serve`] is dropped. What is told is in
//! `health`. Whoever can reach the address may ask, for there is no authentication; by default that is this machine.
//! Nothing that a client does may hold up the worker, or memory: it gets one answer, in a time, and no more.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io::{self, ErrorKind},
    net::SocketAddr,
    time::Duration,
};

use axum::{
    Router,
    http::{HeaderValue, StatusCode, header},
    middleware::map_response,
    response::Response,
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};

use crate::status::Status;

mod health;
#[cfg(test)]
mod tests;

/// How long a connection lives, from its first byte to its last: one small request and one small answer. Probes give up
/// after a second or a few.
const CONNECTION: Duration = Duration::from_secs(5);

/// Connections at once: some probes, a scraper, a few people. Beyond it the oldest is cut off for the newest, for a
/// client that dawdles must not make a live worker look dead.
const MOST_CONNECTIONS: usize = 64;

/// The most bytes of a request's head; hyper takes no less than half of it.
const LARGEST_HEAD: usize = 16 * 1024;

/// Before the next connection is taken where one could not be had for want of descriptors or memory.
const OUT_OF_RESOURCES: Duration = Duration::from_secs(1);

const PATHS: &str = "\
/live    200 while the worker does its work or pauses on purpose, 503 when it hangs
/ready   200 while it receives from every queue, 503 and why when it does not
";

/// Listens.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
    TcpListener::bind(address).await.map_err(named)
}

/// Answers, until it is dropped.
pub(crate) async fn serve(
    listener: TcpListener,
    status: impl Fn() -> Status + Clone + Send + Sync + 'static,
) -> Infallible {
    let router = router(status);
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => connections.add(answer(stream, router.clone())),
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "nobody can ask for the worker's health at the moment");
                sleep(OUT_OF_RESOURCES).await;
            }
        }
    }
}

/// Every path there is.
fn router(status: impl Fn() -> Status + Clone + Send + Sync + 'static) -> Router {
    Router::new()
        .route("/", get(async || PATHS))
        .merge(health::routes(status))
        .fallback(async || (StatusCode::NOT_FOUND, PATHS))
        .layer(map_response(not_to_be_stored))
}

/// An old answer is worse than none.
async fn not_to_be_stored(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// One request, one answer. A request's body is not read.
async fn answer(stream: TcpStream, router: Router) {
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match timeout(CONNECTION, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a question about the worker's health was not answered"),
        Err(_) => tracing::debug!("a question about the worker's health took too long"),
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::Interrupted
    )
}

/// The connections that are open, each a task of its own, so that one that panics is one alone.
#[derive(Debug, Default)]
struct Connections {
    tasks: JoinSet<()>,
    oldest_first: VecDeque<AbortHandle>,
}

impl Connections {
    fn add(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        while let Some(ended) = self.tasks.try_join_next() {
            if let Err(error) = ended
                && error.is_panic()
            {
                tracing::error!(%error, "a question about the worker's health was not answered");
            }
        }
        self.oldest_first.retain(|connection| !connection.is_finished());
        if self.oldest_first.len() >= MOST_CONNECTIONS
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            oldest.abort();
        }
        self.oldest_first.push_back(self.tasks.spawn(connection));
    }
}
