//! What is asked of ECS's agent for protection, and what its answers mean.
//!
//! Pure. A refusal may come with status 200: `failure` says why ECS did not do it, `error` why it was not even asked to.
//! <https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection-endpoint.html>

use std::time::Duration;

use serde::Deserialize;

use crate::{clock::Millis, telemetry::ProtectionResult};

/// How long a protection holds that is not extended: a worker that is gone, or hangs, is in the way of a deploy for no longer.
/// ECS takes whole minutes, from one to 2,880.
pub(super) const EXPIRES_IN: Duration = Duration::from_secs(5 * 60);

/// The longest text of a refusal that is told, in characters.
const LONGEST_REASON: usize = 300;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// To be protected, or to be so for longer.
    Protect,
    /// To be so no more.
    Release,
}

impl Request {
    pub(super) fn body(self) -> String {
        match self {
            Self::Protect => {
                format!(r#"{{"ProtectionEnabled":true,"ExpiresInMinutes":{}}}"#, EXPIRES_IN.as_secs() / 60)
            }
            Self::Release => r#"{"ProtectionEnabled":false}"#.to_owned(),
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done.
    Done {
        /// For so long the protection holds, if ECS says it: that is believed, if it is less than what was asked for.
        left: Option<Duration>,
    },
    /// It is not.
    Not {
        /// How it is counted.
        result: ProtectionResult,
        /// In words.
        why: String,
        /// Nobody knows: the request was sent, and not answered.
        may_be_done: bool,
    },
}

#[derive(Debug, Default, Deserialize)]
struct Reply {
    protection: Option<Protected>,
    failure: Option<Failure>,
    error: Option<Refusal>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Protected {
    protection_enabled: bool,
    expiration_date: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    reason: Option<String>,
    detail: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Refusal {
    code: Option<String>,
    message: Option<String>,
}

/// What a reply means that came at the wall-clock time `now`.
pub(super) fn read(request: Request, status: u16, body: &[u8], now: Millis) -> Answer {
    let not = |result, what: &str, more: Option<&str>| {
        let why = [what, more.unwrap_or_default()].into_iter().filter(|text| !text.is_empty());
        let why = why.collect::<Vec<_>>().join(": ").chars().take(LONGEST_REASON).collect();
        // What ECS did not finish, or the agent lost sight of, may be done.
        Answer::Not { result, why, may_be_done: status >= 500 }
    };
    let reply: Reply = serde_json::from_slice(body).unwrap_or_default();
    if let Some(Refusal { code, message }) = reply.error {
        let code = code.unwrap_or_default();
        return not(result_of(status, &code), &code, message.as_deref());
    }
    if let Some(Failure { reason, detail }) = reply.failure {
        return not(ProtectionResult::Refused, reason.as_deref().unwrap_or("no reason"), detail.as_deref());
    }
    match reply.protection {
        Some(protected) if status == 200 && protected.protection_enabled == (request == Request::Protect) => {
            let until = protected.expiration_date.as_deref().and_then(Millis::from_rfc_3339);
            Answer::Done { left: until.map(|until| until.since(now)) }
        }
        Some(_) if status == 200 => not(ProtectionResult::Refused, "ECS left it as it was", None),
        _ => not(result_of(status, ""), &format!("status {status}"), std::str::from_utf8(body).ok()),
    }
}

/// The agent itself allows so many requests a second, and answers others with 429; ECS has a code for the same.
fn result_of(status: u16, code: &str) -> ProtectionResult {
    match status {
        429 => ProtectionResult::Throttled,
        _ if code.contains("Throttl") => ProtectionResult::Throttled,
        _ if code.starts_with("AccessDenied") => ProtectionResult::Denied,
        401 | 403 => ProtectionResult::Denied,
        400..500 => ProtectionResult::Refused,
        _ => ProtectionResult::Error,
    }
}
