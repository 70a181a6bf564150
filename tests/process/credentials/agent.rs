//! The endpoint of a container's agent, which hands out credentials in the mood that it is told to be in.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header::AUTHORIZATION,
};
use leasehold::clock::{Clock, Millis};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{KEY, LIFE};
use crate::{
    stand_in::{ANY, StandIn},
    worker::Settings,
};

/// What the worker proves itself with to the endpoint.
const TOKEN: &str = "a-token-of-the-agent";

/// How the endpoint answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Well,
    /// After this time.
    Slow(Duration),
    Fails,
    Silent,
}

#[derive(Debug)]
struct State {
    mood: Mood,
    /// When the last set was handed out, and how many were.
    handed_out: Option<(Instant, usize)>,
}

/// The endpoint. Ends when dropped.
pub(super) struct Agent {
    served: StandIn,
    state: Arc<Mutex<State>>,
}

impl Agent {
    pub(super) async fn new() -> Self {
        let state = Arc::new(Mutex::new(State { mood: Mood::Well, handed_out: None }));
        let of_all = Arc::clone(&state);
        let served = StandIn::at(ANY, move |request| answer(request, Arc::clone(&of_all))).await;
        Self { served, state }
    }

    /// The credentials of these settings come from here alone.
    pub(super) fn credit(&self, settings: Settings) -> Settings {
        let settings = settings.unset("AWS_ACCESS_KEY_ID").unset("AWS_SECRET_ACCESS_KEY");
        let uri = format!("http://{}/role", self.served.address);
        settings.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri).set("AWS_CONTAINER_AUTHORIZATION_TOKEN", TOKEN)
    }

    pub(super) fn is(&self, mood: Mood) {
        self.state.lock().expect("not poisoned").mood = mood;
    }

    pub(super) fn handed_out(&self) -> (Instant, usize) {
        self.state.lock().expect("not poisoned").handed_out.expect("one at least")
    }
}

async fn answer(request: Request<Incoming>, state: Arc<Mutex<State>>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let reply = |status: u16, body: String| Response::builder().status(status).body(Full::from(body)).expect("a reply");
    if request.headers().get(AUTHORIZATION).is_none_or(|token| token != TOKEN) {
        return Ok(reply(403, json!({"code": "AccessDenied", "message": "no token"}).to_string()));
    }
    let mood = state.lock().expect("not poisoned").mood;
    match mood {
        Mood::Well => {}
        Mood::Slow(time) => sleep(time).await,
        Mood::Fails => return Ok(reply(500, "the agent is out of order".to_owned())),
        Mood::Silent => std::future::pending().await,
    }
    let mut state = state.lock().expect("not poisoned");
    state.handed_out = Some((Instant::now(), state.handed_out.map_or(0, |(_, sets)| sets) + 1));
    // Whole seconds are written, rounded down, and so they are meant.
    let ends = Millis((Clock::system().now().wall + LIFE).0 / 1000 * 1000);
    Ok(reply(
        200,
        json!({
            "AccessKeyId": format!("{KEY}{}", ends.0), "SecretAccessKey": "secret", "Token": "token",
            "Expiration": ends.utc(),
        })
        .to_string(),
    ))
}
