//! Replies, whole and broken ones, in the shape that AWS gives them.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use hyper::{
    Response, StatusCode,
    body::{Body, Bytes, Frame, SizeHint},
    header::{CONTENT_TYPE, HeaderValue},
};
use serde_json::{Value, json};

use super::Refusal;

/// Breaks the connection.
#[derive(Debug, thiserror::Error)]
#[error("lost")]
pub(super) struct Lost;

/// The body of a reply.
#[derive(Debug)]
pub(super) struct Reply {
    length: usize,
    left: Bytes,
    breaks: Breaks,
}

/// Whether the connection breaks after what is left.
#[derive(Debug, PartialEq, Eq)]
enum Breaks {
    Never,
    /// What is left must reach the client first.
    Soon,
    Now,
}

impl Reply {
    pub(super) fn whole(body: Bytes) -> Self {
        Self { length: body.len(), left: body, breaks: Breaks::Never }
    }

    /// The receipt handles in it.
    pub(super) fn handles(&self) -> Vec<String> {
        let reply: Value = serde_json::from_slice(&self.left).unwrap_or_default();
        let messages = reply["Messages"].as_array().into_iter().flatten();
        messages.filter_map(|message| Some(message["ReceiptHandle"].as_str()?.to_owned())).collect()
    }

    /// Promises as much as before, and breaks half way.
    pub(super) fn cut(&mut self) {
        self.left.truncate(self.length / 2);
        self.breaks = Breaks::Soon;
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Lost;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Lost>>> {
        if !self.left.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.left)))));
        }
        match self.breaks {
            Breaks::Never => Poll::Ready(None),
            Breaks::Soon => {
                // The connection sends what it has when there is nothing more to be had at once.
                self.breaks = Breaks::Now;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Breaks::Now => Poll::Ready(Some(Err(Lost))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty() && self.breaks == Breaks::Never
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length.try_into().unwrap_or(u64::MAX))
    }
}

/// As AWS's JSON protocol says it; a gateway says it in HTML.
pub(super) fn refusal(refusal: &Refusal, by_sqs: bool) -> Response<Reply> {
    let Some(code) = refusal.code else {
        return reply(refusal.status, "text/html", "<html><body>Service Unavailable</body></html>".into());
    };
    let service = if by_sqs { "com.amazonaws.sqs" } else { "com.amazonaws.dynamodb.v20120810" };
    let body = json!({"__type": format!("{service}#{code}"), "message": "made by a test"});
    reply(refusal.status, "application/x-amz-json-1.0", body.to_string())
}

/// The reply to a batch, with these answers to what was not in it. SQS lists both kinds, also where one is empty.
pub(super) fn with_refused(reply_to_rest: Option<Response<Reply>>, mut refused: Vec<Value>) -> Response<Reply> {
    let body = match reply_to_rest {
        Some(reply) if !reply.status().is_success() => return reply,
        Some(reply) => reply.into_body().left,
        None => Bytes::new(),
    };
    let mut listed: Value = serde_json::from_slice(&body).unwrap_or_else(|_| json!({}));
    if let Some(failed) = listed["Failed"].as_array_mut() {
        refused.append(failed);
    }
    listed["Failed"] = refused.into();
    if listed["Successful"].is_null() {
        listed["Successful"] = json!([]);
    }
    reply(200, "application/x-amz-json-1.0", listed.to_string())
}

fn reply(status: u16, content_type: &'static str, body: String) -> Response<Reply> {
    let mut reply = Response::new(Reply::whole(body.into()));
    *reply.status_mut() = StatusCode::from_u16(status).expect("a status");
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}
