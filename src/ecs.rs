//! The manners of a task of Amazon ECS: who it is, and protection from being scaled in while it has long work in hand (rule
//! D4).
//!
//! Both are asked of ECS's agent, at addresses that it gives its containers. Nothing here may hold up the work, a beat or the
//! drain: it is asked beside them, every call is bounded, and what is refused is counted and gone without.

use std::time::Duration;

use hyper::Method;
use url::Url;

use crate::{clock::Clock, config::env, telemetry::ProtectionResult};

use agent::{AskError, Reply};
use answer::{Answer, Request};

pub(crate) use protection::{Rules, keep};
pub(crate) use task::Task;

mod agent;
mod answer;
mod protection;
mod task;
#[cfg(test)]
mod tests;

/// Longest call for protection. The agent's own of ECS ends after four seconds:
/// <https://github.com/aws/amazon-ecs-agent/blob/master/ecs-agent/tmds/handlers/taskprotection/v1/handlers/handlers.go>.
const CALL: Duration = Duration::from_secs(5);

/// Where ECS's agent lets a task protect itself:
/// <https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection-endpoint.html>.
#[derive(Debug)]
pub(crate) struct Agent {
    state: Url,
    clock: Clock,
}

impl Agent {
    /// The one of this task.
    ///
    /// # Errors
    /// There is none, in words.
    pub(crate) fn of_this_task(clock: Clock) -> Result<Self, String> {
        let uri = env::ecs_agent_uri().ok_or("ECS_AGENT_URI is not set, as it is in tasks of ECS")?;
        Self::at(&uri, clock)
    }

    fn at(uri: &str, clock: Clock) -> Result<Self, String> {
        Ok(Self { state: agent::url(uri, "/task-protection/v1/state")?, clock })
    }

    /// Asks for protection, or for its end.
    ///
    /// # Cancel safety
    /// Dropped, what was asked for may be done or not.
    pub(crate) async fn ask(&self, request: Request) -> Answer {
        let answered = agent::ask(&self.state, Method::PUT, request.body(), CALL).await;
        match answered {
            Ok(Reply { status, body }) => answer::read(request, status, &body, self.clock.wall()),
            Err(error) => Answer::Not {
                result: ProtectionResult::NoAnswer,
                may_be_done: matches!(error, AskError::Unanswered(_)),
                why: error.to_string(),
            },
        }
    }
}
