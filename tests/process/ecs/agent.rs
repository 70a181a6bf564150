//! A stand-in of ECS's agent, as far as a task asks it what it is and to be protected, in the mood that it is told to be in.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response,
    body::{Bytes, Incoming},
};
use leasehold::clock::Clock;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    stand_in::{ANY, StandIn},
    worker::Settings,
};

/// Of the cluster `production`.
pub(super) const TASK: &str = "158d1c8083dd49d6b527399fd6414f5c";

/// How it answers requests for protection, and for its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    /// Does it, for this time.
    Grants(Duration),
    /// ECS does not, which the body says.
    Refuses,
    /// With this status and code.
    Error(u16, &'static str),
    /// Too many requests for the agent itself.
    TooMany,
    /// Not at all.
    Silent,
}

#[derive(Debug)]
struct State {
    mood: Mood,
    asked: Vec<(Instant, Value)>,
}

/// The agent. Ends when dropped.
pub(super) struct Agent {
    served: StandIn,
    state: Arc<Mutex<State>>,
}

impl Agent {
    pub(super) async fn new(mood: Mood) -> Self {
        let state = Arc::new(Mutex::new(State { mood, asked: Vec::new() }));
        let of_all = Arc::clone(&state);
        let served = StandIn::at(ANY, move |request| answer(request, Arc::clone(&of_all))).await;
        Self { served, state }
    }

    /// These settings are of a worker in its task.
    pub(super) fn has(&self, settings: Settings) -> Settings {
        let at = self.served.address;
        settings
            .set("LEASEHOLD_SCALE_IN_PROTECTION", "on")
            .set("ECS_AGENT_URI", format!("http://{at}/api/0123"))
            .set("ECS_CONTAINER_METADATA_URI_V4", format!("http://{at}/v4/0123"))
    }

    pub(super) fn is(&self, mood: Mood) {
        self.state.lock().expect("not poisoned").mood = mood;
    }

    /// What it was asked for, and when.
    pub(super) fn asked(&self) -> Vec<(Instant, Value)> {
        self.state.lock().expect("not poisoned").asked.clone()
    }
}

async fn answer(request: Request<Incoming>, state: Arc<Mutex<State>>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let reply = |status: u16, body: Value| {
        Ok(Response::builder().status(status).body(Full::from(body.to_string())).expect("a reply"))
    };
    let (head, body) = request.into_parts();
    let arn = format!("arn:aws:ecs:us-west-2:111122223333:task/production/{TASK}");
    match (head.method, head.uri.path()) {
        (Method::GET, "/v4/0123/task") => {
            let cluster = "arn:aws:ecs:us-west-2:111122223333:cluster/production";
            let task = json!({
                "Cluster": cluster, "TaskARN": arn, "Family": "payments", "Revision": "17", "AvailabilityZone": "us-west-2d",
                "DesiredStatus": "RUNNING", "Containers": [{"Name": "worker"}],
            });
            return reply(200, task);
        }
        (Method::PUT, "/api/0123/task-protection/v1/state") => {}
        _ => return reply(404, json!({"error": {"Code": "ResourceNotFoundException", "Message": "no such path"}})),
    }
    let asked: Value = serde_json::from_slice(&body.collect().await?.to_bytes()).expect("JSON");
    let enabled = asked["ProtectionEnabled"].as_bool().expect("it must be there");
    let mood = {
        let mut state = state.lock().expect("not poisoned");
        state.asked.push((Instant::now(), asked));
        state.mood
    };
    match mood {
        Mood::Grants(time) => {
            let until = enabled.then(|| (Clock::system().now().wall + time).utc());
            reply(200, json!({"protection": {"ExpirationDate": until, "ProtectionEnabled": enabled, "TaskArn": arn}}))
        }
        Mood::Refuses => reply(200, json!({"failure": {"Arn": arn, "Detail": null, "Reason": "TASK_NOT_VALID"}})),
        Mood::Error(status, code) => {
            reply(status, json!({"requestID": "r-1", "error": {"Arn": arn, "Code": code, "Message": "not now"}}))
        }
        Mood::TooMany => Ok(Response::builder().status(429).body(Full::from("too many")).expect("a reply")),
        Mood::Silent => std::future::pending().await,
    }
}
