//! The app behind the HTTP handlers, and its book: who was called, who was done, and what must not have been.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http_body_util::{BodyExt, Collected, Empty};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet, time::sleep};

use crate::load::{Kind, Work};

/// Half as long again as the visibility timeout.
const SLOW: Duration = Duration::from_millis(4_500);

/// What was seen of one piece of work.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) begun: u64,
    pub(crate) done: u64,
    refused: bool,
    running: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Book {
    /// By id.
    pub(crate) calls: BTreeMap<u64, Calls>,
    /// Work that was begun while it ran.
    pub(crate) overlaps: BTreeSet<u64>,
    /// FIFO work that was begun before what stands before it had ended.
    pub(crate) too_early: BTreeSet<u64>,
    /// The last place of each group that has ended.
    ended: BTreeMap<u64, u64>,
}

pub(crate) struct App {
    pub(crate) address: SocketAddr,
    pub(crate) book: Arc<Mutex<Book>>,
    _serves: JoinSet<()>,
}

impl App {
    pub(crate) async fn open() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, book) = (listener.local_addr()?, Arc::<Mutex<Book>>::default());
        let mut serves = JoinSet::new();
        serves.spawn(serve(listener, Arc::clone(&book)));
        Ok(Self { address, book, _serves: serves })
    }
}

async fn serve(listener: TcpListener, book: Arc<Mutex<Book>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let book = Arc::clone(&book);
        connections.spawn(async move {
            let service = service_fn(|request| answer(request, &book));
            // One whose worker was killed breaks, and what it was running is dropped.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>, book: &Mutex<Book>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let mut response = Response::new(Empty::new());
    let body = request.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
    let Ok(work) = serde_json::from_slice::<Work>(&body) else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    };
    let run = Run::begin(book, &work);
    if work.kind == Kind::Slow {
        sleep(SLOW).await;
    }
    *response.status_mut() = run.end(&work);
    Ok(response)
}

pub(crate) fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One call, running until it is dropped.
struct Run<'a> {
    book: &'a Mutex<Book>,
    id: u64,
}

impl<'a> Run<'a> {
    fn begin(book: &'a Mutex<Book>, work: &Work) -> Self {
        let mut pages = lock(book);
        let calls = pages.calls.entry(work.id).or_default();
        calls.begun += 1;
        if std::mem::replace(&mut calls.running, true) {
            pages.overlaps.insert(work.id);
        }
        if let Some((group, place)) = work.place
            && pages.ended.get(&group).copied().unwrap_or_default() + 1 < place
        {
            pages.too_early.insert(work.id);
        }
        Self { book, id: work.id }
    }

    /// How it answers.
    fn end(self, work: &Work) -> StatusCode {
        let mut pages = lock(self.book);
        let calls = pages.calls.entry(self.id).or_default();
        let status = match work.kind {
            Kind::Poison => StatusCode::UNPROCESSABLE_ENTITY,
            Kind::Failing if !std::mem::replace(&mut calls.refused, true) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::NO_CONTENT,
        };
        calls.done += u64::from(status.is_success());
        if let Some((group, place)) = work.place
            && status != StatusCode::INTERNAL_SERVER_ERROR
        {
            let ended = pages.ended.entry(group).or_default();
            *ended = place.max(*ended);
        }
        status
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        lock(self.book).calls.entry(self.id).or_default().running = false;
    }
}
