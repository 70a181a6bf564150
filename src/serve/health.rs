//! `/live` and `/ready`: whether to kill the process, and whether it takes work.
//!
//! Owns paths and statuses. Both tell the whole status, so that a person who asks sees why, and how each pause ends; what
//! it means is decided by [`Status`].

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Serialize;
use tokio::time::sleep;

use super::Tells;
use crate::status::Status;

/// What is told: the two verdicts, and the rest of the status beside them.
#[derive(Serialize)]
struct Told<'a> {
    ready: bool,
    live: bool,
    #[serde(flatten)]
    status: &'a Status,
}

/// A process that was stopped and goes on looks as if it stood still, until its tasks have had their turn: it is given this
/// long before it is told to be dead.
const ANOTHER_LOOK: Duration = Duration::from_secs(1);

pub(super) fn routes(worker: Arc<dyn Tells>) -> Router {
    let of_live = Arc::clone(&worker);
    Router::new()
        .route("/live", get(async move || tell(&looked_at_twice(&*of_live).await, Status::is_live)))
        .route("/ready", get(async move || tell(&looked_at_twice(&*worker).await, Status::is_ready)))
}

async fn looked_at_twice(worker: &dyn Tells) -> Status {
    let status = worker.status();
    if !status.hangs {
        return status;
    }
    sleep(ANOTHER_LOOK).await;
    worker.status()
}

fn tell(status: &Status, verdict: fn(&Status) -> bool) -> Response {
    let code = if verdict(status) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let told = Told { ready: status.is_ready(), live: status.is_live(), status };
    match serde_json::to_string_pretty(&told) {
        // With a line's end, for people at a terminal.
        Ok(text) => (code, [(header::CONTENT_TYPE, "application/json")], text + "\n").into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
