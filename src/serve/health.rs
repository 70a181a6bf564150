//! `/live` and `/ready`: whether to kill the process, and whether it takes work.
//!
//! Owns paths and statuses. Both tell the whole status, so that a person who asks sees why, and how each pause ends; what
//! it means is decided by [`Status`].

use axum::{
    Router,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Serialize;

use crate::status::Status;

/// What is told: the two verdicts, and the rest of the status beside them.
#[derive(Serialize)]
struct Told<'a> {
    ready: bool,
    live: bool,
    #[serde(flatten)]
    status: &'a Status,
}

pub(super) fn routes(status: impl Fn() -> Status + Clone + Send + Sync + 'static) -> Router {
    let of_live = status.clone();
    Router::new()
        .route("/live", get(async move || tell(&of_live(), Status::is_live)))
        .route("/ready", get(async move || tell(&status(), Status::is_ready)))
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
