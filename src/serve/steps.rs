//! Where apps and programs record steps: one run after its URL, for whoever has its token.
//!
//! Owns paths, statuses and what is written in bodies; what a question means is for the run to say. Every answer that is no
//! good news is JSON: `error`, a code; `what` is wrong; how to `mend` it; whether the work fails for good (`permanent`).

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Path, Request, State, rejection::PathRejection},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::handler::{
    remote::{Ask, Failure, Follows, LARGEST_RESULT, Line, NotHere, Refusal, Runs},
    steps::Kind,
};

/// Asking for more time than this is a mistake: no message can be kept from others for longer than 12 hours.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html>
const MOST_TIME: f64 = 12.0 * 60.0 * 60.0;

/// The longest name of a call, in bytes: any random number that is large enough, however it is written.
const LONGEST_CALL: usize = 64;

pub(super) fn routes(runs: Arc<Runs>) -> Router {
    Router::new()
        .route("/jobs/{run}", get(facts))
        .route("/jobs/{run}/deadline", post(more_time))
        .route("/jobs/{run}/steps/{step}", post(begin).put(done).delete(failed))
        .fallback(async || Bad::no_path(StatusCode::NOT_FOUND))
        .method_not_allowed_fallback(async || Bad::no_path(StatusCode::METHOD_NOT_ALLOWED))
        .with_state(runs)
}

type In<T> = Result<Path<T>, PathRejection>;

async fn facts(State(runs): State<Arc<Runs>>, path: In<String>, headers: HeaderMap) -> Result<Response, Bad> {
    let Path(run) = path?;
    put(&find(&runs, &run, &headers)?, Ask::Facts).await
}

async fn more_time(State(runs): State<Arc<Runs>>, path: In<String>, request: Request) -> Result<Response, Bad> {
    const EXAMPLE: &str = r#"{"at_least": 60}"#;
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wanted {
        at_least: f64,
    }
    let Path(run) = path?;
    let line = find(&runs, &run, request.headers())?;
    let Wanted { at_least } = read(request.into_body(), EXAMPLE).await?;
    if !(at_least > 0.0 && at_least <= MOST_TIME) {
        return Err(Bad::malformed(format!("{at_least} seconds are not between 0 and {MOST_TIME}"), EXAMPLE));
    }
    put(&line, Ask::TimeLeft { at_least: Duration::from_secs_f64(at_least) }).await
}

async fn begin(State(runs): State<Arc<Runs>>, path: In<(String, String)>, request: Request) -> Result<Response, Bad> {
    const EXAMPLE: &str =
        r#"{"once": true, "call": "5f3a9c"} with a call of 1 to 64 bytes, either of them, or nothing"#;
    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Wanted {
        once: bool,
        call: Option<String>,
    }
    let Path((run, step)) = path?;
    let line = find(&runs, &run, request.headers())?;
    let Wanted { once, call } = read(request.into_body(), EXAMPLE).await?;
    if let Some(length) = call.as_ref().map(String::len).filter(|length| !(1..=LONGEST_CALL).contains(length)) {
        return Err(Bad::malformed(format!("a call of {length} bytes"), EXAMPLE));
    }
    let kind = if once { Kind::Once } else { Kind::Repeatable };
    put(&line, Ask::Begin { step, kind, call }).await
}

/// A step took effect, so it is recorded, with whatever of its result can be kept.
async fn done(State(runs): State<Arc<Runs>>, path: In<(String, String)>, request: Request) -> Result<Response, Bad> {
    let Path((run, step)) = path?;
    let line = find(&runs, &run, request.headers())?;
    let is_kept = match request.uri().query() {
        None => true,
        Some("result=none") => false,
        Some(_) => {
            return Err(Bad::malformed("there is no such query", "PUT {url}/steps/{name}, or with ?result=none"));
        }
    };
    let body = collect(request.into_body()).await?.filter(|_| is_kept);
    put(&line, Ask::Done { step, result: body.as_deref().and_then(result) }).await
}

/// The body as JSON; `None` if it is none.
fn result(body: &[u8]) -> Option<String> {
    let body = if body.is_empty() { b"null" } else { body };
    serde_json::from_slice(body).ok().map(|json: &RawValue| json.get().to_owned())
}

async fn failed(State(runs): State<Arc<Runs>>, path: In<(String, String)>, request: Request) -> Result<Response, Bad> {
    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Known {
        refused: bool,
        not_begun: bool,
    }
    let Path((run, step)) = path?;
    let line = find(&runs, &run, request.headers())?;
    let Known { refused, not_begun } =
        read(request.into_body(), r#"{"refused": true} or {"not_begun": true}, or nothing"#).await?;
    let how = match (refused, not_begun) {
        (_, true) => Failure::NotBegun,
        (true, false) => Failure::Refused,
        (false, false) => Failure::Unknown,
    };
    put(&line, Ask::Failed { step, how }).await
}

/// Finds the run that the token of `Authorization: Bearer …` is for.
fn find(runs: &Runs, run: &str, headers: &HeaderMap) -> Result<Line, Bad> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (scheme, token) = given.split_once(' ').unwrap_or_default();
    let token = if scheme.eq_ignore_ascii_case("bearer") { token.trim() } else { "" };
    runs.find(run, token).map_err(|error| match error {
        NotHere::Gone => Bad::gone(),
        NotHere::Stranger => Bad::stranger(),
    })
}

async fn put(line: &Line, ask: Ask) -> Result<Response, Bad> {
    match line.ask(ask).await {
        Some(Ok(Some(json))) => Ok(([(header::CONTENT_TYPE, "application/json")], json + "\n").into_response()),
        Some(Ok(None)) => Ok(StatusCode::NO_CONTENT.into_response()),
        Some(Err(refusal)) => Err(Bad::from(refusal)),
        None => Err(Bad::gone()),
    }
}

/// A small JSON object; an empty body is an empty one.
async fn read<T: DeserializeOwned>(body: Body, example: &'static str) -> Result<T, Bad> {
    let bytes = collect(body).await?.unwrap_or_default();
    let bytes = if bytes.is_empty() { b"{}" } else { bytes.as_slice() };
    serde_json::from_slice(bytes).map_err(|error| Bad::malformed(error.to_string(), example))
}

/// A whole body; `None` if it is larger than any result can be. It is read to its end all the same: a client that is still
/// sending when the connection closes would not see the answer.
async fn collect(body: Body) -> Result<Option<Vec<u8>>, Bad> {
    let (mut pieces, mut bytes, mut fits) = (body.into_data_stream(), Vec::new(), true);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| Bad::malformed(error.to_string(), "send the whole body"))?;
        fits = fits && bytes.len() + piece.len() <= LARGEST_RESULT;
        if fits {
            bytes.extend_from_slice(&piece);
        } else {
            bytes = Vec::new();
        }
    }
    Ok(fits.then_some(bytes))
}

/// No good news.
struct Bad {
    status: StatusCode,
    told: Told,
}

#[derive(Serialize)]
struct Told {
    error: String,
    what: String,
    mend: &'static str,
    permanent: bool,
}

impl Bad {
    fn new(status: StatusCode, error: &str, what: impl Into<String>, mend: &'static str) -> Self {
        Self { status, told: Told { error: error.to_owned(), what: what.into(), mend, permanent: false } }
    }

    fn no_path(status: StatusCode) -> Self {
        const PATHS: &str = "GET {url}; POST, PUT or DELETE {url}/steps/{name}; POST {url}/deadline";
        Self::new(status, "no_such_path", "there is no such path, or it is asked in another way", PATHS)
    }

    fn gone() -> Self {
        Self::new(StatusCode::GONE, "gone", "this run is over, or is not of this worker", "do nothing more for it")
    }

    fn stranger() -> Self {
        const MEND: &str = "send Authorization: Bearer and the token that came with this run";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "that is not the token of this run", MEND)
    }

    fn malformed(what: impl Into<String>, mend: &'static str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", what, mend)
    }
}

impl From<PathRejection> for Bad {
    fn from(error: PathRejection) -> Self {
        Self::malformed(error.body_text(), "percent-encode the step's name, as UTF-8")
    }
}

impl From<Refusal> for Bad {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.follows {
            Follows::NotKept => StatusCode::PAYLOAD_TOO_LARGE,
            Follows::Interruption | Follows::Failure | Follows::Nothing => StatusCode::CONFLICT,
        };
        let permanent = matches!(refusal.follows, Follows::Failure | Follows::NotKept);
        Self { status, told: Told { permanent, ..Self::new(status, &refusal.code, refusal.what, refusal.mend).told } }
    }
}

impl IntoResponse for Bad {
    fn into_response(self) -> Response {
        let text = serde_json::to_string(&self.told).unwrap_or_default() + "\n";
        let mut response = (self.status, [(header::CONTENT_TYPE, "application/json")], text).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        }
        response
    }
}
