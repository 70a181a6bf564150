//! What handlers outside of this process answer: an app's reply, a program's end.
//!
//! Nothing is sent or run: what came is read as if it had been.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use futures_util::FutureExt;
use reqwest::{
    StatusCode,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use crate::{
    clock::Millis,
    config::PermanentStatus,
    handler::{
        error::{HandlerResult, Verdict},
        exec::{
            self,
            said::{KEPT, Said},
        },
        http::reply::Head,
    },
};

/// A reply to [`HttpHandler`](crate::HttpHandler): the status on the first line, headers on the next, a line without any, the
/// body.
pub fn replies(data: &[u8]) {
    let (head, body) = split_at(data, b"\n\n");
    let mut lines = head.split(|byte| *byte == b'\n');
    let status = lines.next().and_then(|line| StatusCode::from_bytes(line).ok());
    let Some(status) = status else { return };
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = split_at(line, b": ");
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    let head = Head::of(status, &headers, &PermanentStatus::default(), Millis(1_800_000_000_500));
    let answered = head.is_an_answer();
    let verdict = head.verdict(body);
    if verdict.is_ok() {
        let said =
            headers.get("x-leasehold-outcome").map(|word| word.as_bytes().trim_ascii().eq_ignore_ascii_case(b"done"));
        assert!(said.unwrap_or(status.is_success()) && answered, "{status} {headers:?}");
    }
    has_sense(&verdict, 2048);
}

/// A program of [`ExecHandler`](crate::ExecHandler): two bytes of its wait status, and what it wrote to standard error.
pub fn programs(data: &[u8]) {
    let Some((&[low, high], said)) = data.split_first_chunk() else { return };
    // Nothing dumps core that was not ended by a signal.
    let low = if low & 0x7f == 0 { 0 } else { low };
    let status = ExitStatus::from_raw(u16::from_le_bytes([low, high]).into());
    let mut stderr = Said::default();
    assert!(stderr.listen("stderr", Some(said)).now_or_never().is_some(), "all of it is there");
    let verdict = exec::verdict(status, &stderr);
    assert_eq!(verdict.is_ok(), status.success());
    // Its last line is told twice, and what is no text takes three bytes for one.
    has_sense(&verdict, 6 * KEPT + 200);
}

/// A failure has a short code and a text that is bounded, and does not come back at once or for reasons that are not its own.
fn has_sense(verdict: &HandlerResult, longest: usize) {
    let Err(error) = verdict else { return };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    assert!(!error.code().is_empty() && error.code().len() <= 64 && error.code().bytes().all(allowed), "{error:?}");
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() <= longest, "{} bytes: {text}", text.len());
    assert_ne!(error.verdict, Verdict::Interrupted);
    assert!(error.retry_delay().is_none_or(|delay| delay >= Duration::from_secs(1)), "{error:?}");
}

fn split_at<'a>(data: &'a [u8], by: &[u8]) -> (&'a [u8], &'a [u8]) {
    let at = data.windows(by.len()).position(|window| window == by);
    at.map_or((data, &[]), |at| (&data[..at], &data[at + by.len()..]))
}
