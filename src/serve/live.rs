//! `/status` and `/events`: everything that is known of the worker, once or as it changes.
//!
//! Owns the streams and how many there may be. A stream is one connection that lasts: it is bounded in number and in time,
//! not by the seconds that a request has, and its client asks again when it ends.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    http::{StatusCode, header},
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
    routing::get,
};
use futures_util::{Stream, stream::unfold};
use serde::Serialize;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until},
};

use super::{Lasting, Tells};

/// So many people look at once. Each costs a picture of the worker every second.
const STREAMS: usize = 8;

/// Between two pictures.
const STEP: Duration = Duration::from_secs(1);

/// A stream ends then, and its client asks again: one whose client has vanished without a word does not keep its place.
const LONGEST: Duration = Duration::from_secs(10 * 60);

pub(super) fn routes(worker: Arc<dyn Tells>) -> Router {
    let (streamed, streams) = (Arc::clone(&worker), Arc::new(Semaphore::new(STREAMS)));
    Router::new().route("/status", get(async move || json(&worker.overview()))).route(
        "/events",
        get(async move |Extension(lasting): Extension<Lasting>| match streams.try_acquire_owned() {
            Ok(place) => {
                lasting.lasts();
                Sse::new(events(streamed, place)).into_response()
            }
            Err(_) => {
                let what = format!("{STREAMS} are being watched already: close one, or ask for /status\n");
                (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "10")], what).into_response()
            }
        }),
    )
}

fn json(told: &impl Serialize) -> Response {
    match serde_json::to_string_pretty(told) {
        // With a line's end, for people at a terminal.
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text + "\n").into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// What has passed, and then a picture every second. Nothing is made ahead: a client that reads slowly gets fewer.
fn events(worker: Arc<dyn Tells>, place: OwnedSemaphorePermit) -> impl Stream<Item = Result<Event, Infallible>> {
    let (begun, looks) = (Instant::now(), worker.looks());
    unfold((None, (looks, place)), move |(next, held): (Option<Instant>, _)| {
        let worker = Arc::clone(&worker);
        async move {
            let Some(next) = next else {
                return Some((Ok(event("history", &worker.history())), (Some(begun), held)));
            };
            tokio::select! {
                // Either is only waited for. A phase is told at once, for the worker may be gone before the next picture.
                biased;
                () = worker.moves_on() => {}
                () = sleep_until(next) => {}
            }
            let now = Instant::now();
            (now - begun < LONGEST).then(|| (Ok(event("status", &worker.overview())), (Some(now + STEP), held)))
        }
    })
}

fn event(name: &str, told: &impl Serialize) -> Event {
    let data = serde_json::to_string(told).unwrap_or_default();
    Event::default().event(name).data(data)
}
