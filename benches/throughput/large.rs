//! A queue of messages too large for the embedded engine, which takes 256 KiB: as much of SQS's protocol as a worker
//! without a guard needs.
//!
//! Hands each message out once, forgets it when it is deleted, and counts calls as the engine does.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Json, Router, http::HeaderMap};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet, time::sleep};

use crate::{engine::body, subject::QUEUE};

/// What is left to be handed out, and what was called.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    /// Locked for single changes.
    state: Mutex<State>,
    messages: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct State {
    handed_out: usize,
    calls: BTreeMap<String, u64>,
}

impl Desk {
    /// Serves until what comes back last is dropped; the endpoint comes back before it.
    pub(crate) async fn open(
        messages: usize,
        bytes: usize,
    ) -> anyhow::Result<(Arc<Self>, String, JoinSet<io::Result<()>>)> {
        let desk = Arc::new(Self { messages, bytes, ..Self::default() });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let (answers, url) = (Arc::clone(&desk), format!("{endpoint}/000000000000/{QUEUE}"));
        let router = Router::new().fallback(async move |headers: HeaderMap, ask: String| {
            let action = headers.get("x-amz-target").and_then(|target| target.to_str().ok()?.split('.').next_back());
            Json(answers.answer(action.unwrap_or_default(), &ask, &url).await)
        });
        let router = router.layer(axum::extract::DefaultBodyLimit::disable());
        let mut served = JoinSet::new();
        served.spawn(async move { axum::serve(listener, router).await });
        Ok((desk, endpoint, served))
    }

    pub(crate) fn calls(&self) -> BTreeMap<String, u64> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).calls.clone()
    }

    async fn answer(&self, action: &str, ask: &str, url: &str) -> Value {
        let ask: Value = serde_json::from_str(ask).unwrap_or_default();
        let most = ask["MaxNumberOfMessages"].as_u64().unwrap_or(1) as usize;
        let numbers = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            *state.calls.entry(format!("sqs:{action}")).or_default() += 1;
            let from = state.handed_out;
            if action == "ReceiveMessage" {
                state.handed_out = (from + most).min(self.messages);
            }
            from..state.handed_out
        };
        match action {
            "GetQueueUrl" => json!({"QueueUrl": url}),
            "GetQueueAttributes" => json!({"Attributes": {
                "QueueArn": format!("arn:aws:sqs:us-east-1:000000000000:{QUEUE}"),
                "VisibilityTimeout": "30",
                "MessageRetentionPeriod": "345600",
            }}),
            "ReceiveMessage" if numbers.is_empty() => {
                sleep(Duration::from_secs(1)).await;
                json!({})
            }
            "ReceiveMessage" => json!({"Messages": numbers.map(|n| json!({
                "MessageId": n.to_string(),
                "ReceiptHandle": n.to_string(),
                "Body": body(n, self.bytes),
                "Attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1700000000000"},
            })).collect::<Vec<_>>()}),
            // Every entry was done.
            _ => json!({"Successful": ask["Entries"].as_array().into_iter().flatten().map(|entry| {
                json!({"Id": entry["Id"]})
            }).collect::<Vec<_>>(), "Failed": []}),
        }
    }
}
