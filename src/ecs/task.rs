//! Which task of ECS this process runs in, for logs and records.
//!
//! Asked once, before the start, for a moment only: a worker that does not know works as well.
//! <https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-metadata-endpoint-v4-response.html>

use std::time::Duration;

use hyper::Method;
use serde::Deserialize;

use crate::config::env;

use super::agent;

/// How long the start waits for the answer. The agent is on the same machine, and knows it by heart.
const LOOK: Duration = Duration::from_secs(1);

/// So much of a task's id stands in records and keeps it apart from all others; the whole is in the log's first line. The
/// beginning, by which ids, and log streams named after them, can be looked up.
const SHORT: usize = 12;

/// A task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    /// The name of its cluster.
    pub(crate) cluster: String,
    /// The last part of its ARN.
    pub(crate) id: String,
    /// The task definition's family and its revision: `payments-worker:17`.
    pub(crate) definition: String,
    /// Where it runs; Fargate always says it.
    pub(crate) availability_zone: Option<String>,
}

/// What the endpoint says, as far as it is of use.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Metadata {
    #[serde(default)]
    cluster: String,
    #[serde(rename = "TaskARN")]
    task_arn: String,
    #[serde(default)]
    family: String,
    #[serde(default)]
    revision: String,
    availability_zone: Option<String>,
}

impl Task {
    /// The one of this process, if it runs in one and that can be learnt.
    pub(crate) async fn of_this_process() -> Option<Self> {
        let uri = env::ecs_metadata_uri()?;
        match Self::look(&uri).await {
            Ok(task) => {
                let Self { cluster, id, definition, availability_zone } = &task;
                tracing::info!(cluster, task = id, definition, availability_zone, "this is a task of ECS");
                Some(task)
            }
            Err(error) => {
                tracing::warn!(error, "this is a task of ECS, and which one it is cannot be learnt");
                None
            }
        }
    }

    pub(super) async fn look(uri: &str) -> Result<Self, String> {
        let url = agent::url(uri, "/task")?;
        let reply = agent::ask(&url, Method::GET, String::new(), LOOK).await.map_err(|error| error.to_string())?;
        match reply.status {
            200 => Self::read(&reply.body),
            status => Err(format!("ECS's agent answers with status {status}")),
        }
    }

    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        let told: Metadata = serde_json::from_slice(body).map_err(|error| format!("ECS's agent answers: {error}"))?;
        let id = last_part(&told.task_arn);
        if id.is_empty() {
            return Err(format!("ECS's agent names no task: {:?}", told.task_arn));
        }
        Ok(Self {
            cluster: last_part(&told.cluster).to_owned(),
            id: id.to_owned(),
            definition: format!("{}:{}", told.family, told.revision),
            availability_zone: told.availability_zone,
        })
    }

    /// What stands for it in records.
    pub(crate) fn short(&self) -> String {
        self.id.chars().take(SHORT).collect()
    }
}

/// Of an ARN, or of a name that stands for one.
fn last_part(arn: &str) -> &str {
    arn.rsplit('/').next().unwrap_or_default()
}
