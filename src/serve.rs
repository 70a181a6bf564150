//! The endpoints of a worker, over plain HTTP/1: one tells how it is, at the other apps and programs record steps.
//!
//! Owns the listeners and every connection: all of them end when the future of [`serve`] or [`serve_steps`] is dropped. What
//! is told is in `health`, `live`, `metrics` and `page`, and in `steps`. Whoever can reach its address may ask how the worker
//! is, for there is no authentication; by default that is this machine. Web pages of others may not (`visitors`). Nothing that a client does may hold up the worker, or memory: it gets one answer, in a
//! time, and no more.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt::Display,
    io::{self, ErrorKind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Extension, Router,
    http::{HeaderValue, StatusCode, header},
    middleware::{from_fn, map_response},
    response::Response,
};
use futures_util::future::BoxFuture;
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{
    net::{TcpListener, TcpStream, ToSocketAddrs},
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};

use crate::{
    handler::remote::Runs,
    seldom::{Seldom, seldom},
    status::{History, Overview, Status},
};

pub(crate) use metrics::{Exporter, exporter};

mod health;
mod live;
mod metrics;
mod page;
mod steps;
mod visitors;
#[cfg(test)]
mod tests;

/// What connections are for, and how they are bounded.
#[derive(Clone, Copy)]
struct Purpose {
    /// In the log.
    what: &'static str,
    /// How long one lives, from its first byte to its last: one request and one answer.
    time: Duration,
    /// So many at once. Beyond it the oldest is cut off for the newest, for a client that dawdles must not make a live worker
    /// look dead.
    most: usize,
}

/// Some probes, a scraper, a few people. Probes give up after a second or a few.
const HEALTH: Purpose = Purpose { what: "health", time: Duration::from_secs(5), most: 64 };

/// A step is written once its table answers, which takes as long as the longest call of some tries on a bad day; who is cut
/// off asks again. To so many at once come those of the runs.
const STEPS: Purpose = Purpose { what: "steps", time: Duration::from_secs(30), most: 64 };

/// The most bytes of a request's head; hyper takes no less than half of it.
const LARGEST_HEAD: usize = 16 * 1024;

/// Before the next connection is taken where one could not be had for want of descriptors or memory.
const OUT_OF_RESOURCES: Duration = Duration::from_secs(1);

const PATHS: &str = "\
/         the status page, for people
/live     200 while the worker does its work or pauses on purpose, 503 when it hangs
/ready    200 while it receives from every queue, 503 and why when it does not
/status   all that is known of the worker, as JSON
/events   the same every second, as a stream
/metrics  what it counts, for Prometheus
";

/// Listens.
pub(crate) async fn bind(address: impl ToSocketAddrs + Display + Copy) -> io::Result<TcpListener> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
    TcpListener::bind(address).await.map_err(named)
}

/// A worker that tells of itself.
pub(crate) trait Tells: Send + Sync {
    /// In short, for probes.
    fn status(&self) -> Status;
    /// All that is known.
    fn overview(&self) -> Overview;
    /// What has passed.
    fn history(&self) -> History;
    /// Waits until it is in another phase. Cancel safe.
    fn moves_on(&self) -> BoxFuture<'_, ()>;
    /// Somebody looks, until what comes back is dropped.
    fn looks(&self) -> Box<dyn Send + Sync>;
}

/// Tells how the worker is, until it is dropped.
pub(crate) async fn serve(listener: TcpListener, worker: Arc<dyn Tells>, exporter: Exporter) -> Infallible {
    let router = router(worker, exporter.clone());
    tokio::select! {
        // Neither ends; which is looked at first makes no difference.
        biased;
        never = answer_all(listener, router, HEALTH) => never,
        () = exporter.keep_up() => unreachable!("it goes on for ever"),
    }
}

/// Lets runs be asked, of which there are so many at once, until it is dropped.
pub(crate) async fn serve_steps(listener: TcpListener, runs: Arc<Runs>, at_once: usize) -> Infallible {
    // One that is being answered, and one of a client that has lost its patience and asks again.
    let most = STEPS.most.saturating_add(at_once.saturating_mul(2));
    let router = steps::routes(runs).layer(map_response(not_to_be_stored));
    answer_all(listener, router, Purpose { most, ..STEPS }).await
}

async fn answer_all(listener: TcpListener, router: Router, purpose: Purpose) -> Infallible {
    let mut connections = Connections { purpose, tasks: JoinSet::new(), oldest_first: VecDeque::new() };
    let seldom = Seldom::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let lasting = Lasting::default();
                connections.add(answer(stream, router.clone(), purpose, lasting.clone()), lasting);
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                seldom!(seldom, "accept", warn, %error, "nobody can connect for the worker's {} at the moment", purpose.what);
                sleep(OUT_OF_RESOURCES).await;
            }
        }
    }
}

/// Every path there is.
fn router(worker: Arc<dyn Tells>, exporter: Exporter) -> Router {
    Router::new()
        .merge(page::routes())
        .merge(live::routes(Arc::clone(&worker)))
        .fallback(async || (StatusCode::NOT_FOUND, PATHS))
        .layer(from_fn(visitors::admit))
        // Whatever asks for these is answered: probes know no names to ask by, a Prometheus knows its targets by names that
        // nobody told here, and none of these answers has a key or a text of a message in it.
        .merge(health::routes(worker))
        .merge(exporter.routes())
        .layer(map_response(not_to_be_stored))
}

/// An old answer is worse than none.
async fn not_to_be_stored(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Says of a connection that its answer lasts, and bounds itself.
#[derive(Debug, Clone, Default)]
struct Lasting(Arc<AtomicBool>);

impl Lasting {
    fn lasts(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One request, one answer.
async fn answer(stream: TcpStream, router: Router, purpose: Purpose, lasting: Lasting) {
    let router = router.layer(Extension(lasting.clone()));
    let mut connection = pin!(
        http1::Builder::new()
            .keep_alive(false)
            .max_buf_size(LARGEST_HEAD)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    let mut answered = timeout(purpose.time, &mut connection).await;
    if answered.is_err() && lasting.0.load(Ordering::Relaxed) {
        answered = Ok(connection.await);
    }
    match answered {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a request for the worker's {} was not answered", purpose.what),
        Err(_) => tracing::debug!("a request for the worker's {} took too long", purpose.what),
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
struct Connections {
    purpose: Purpose,
    tasks: JoinSet<()>,
    oldest_first: VecDeque<(AbortHandle, Lasting)>,
}

impl Connections {
    fn add(&mut self, connection: impl Future<Output = ()> + Send + 'static, lasting: Lasting) {
        while let Some(ended) = self.tasks.try_join_next() {
            if let Err(error) = ended
                && error.is_panic()
            {
                tracing::error!(%error, "a request for the worker's {} was not answered", self.purpose.what);
            }
        }
        self.oldest_first.retain(|(connection, _)| !connection.is_finished());
        // Those that last have a limit of their own, and are not what a client dawdles with.
        let is_short = |(_, lasting): &(AbortHandle, Lasting)| !lasting.0.load(Ordering::Relaxed);
        if self.oldest_first.iter().filter(|one| is_short(one)).count() >= self.purpose.most
            && let Some(oldest) = self.oldest_first.iter().position(is_short)
            && let Some((oldest, _)) = self.oldest_first.remove(oldest)
        {
            oldest.abort();
        }
        self.oldest_first.push_back((self.tasks.spawn(connection), lasting));
    }
}
