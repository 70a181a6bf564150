//! What an app's reply means. Its status and its headers decide; its body is only the text of a failure.
//!
//! Pure. An unknown word is never taken for "done", and whatever an app says of time or reasons is bounded or ignored.

use std::time::{Duration, UNIX_EPOCH};

use reqwest::{
    StatusCode,
    header::{HeaderMap, RETRY_AFTER},
};

use crate::{
    clock::Millis,
    config::PermanentStatus,
    handler::{HandlerError, HandlerResult, error::Verdict, outside::NOT_YET_DELAY},
};

const OUTCOME: &str = "x-leasehold-outcome";
const REASON: &str = "x-leasehold-reason";

/// What an app can say of its work, and how it is written.
const WORDS: [(&str, Outcome); 5] = [
    ("done", Outcome::Done),
    ("retry", Outcome::Retry),
    ("permanent", Outcome::Permanent),
    ("not-yet", Outcome::NotYet),
    ("unavailable", Outcome::Unavailable),
];

/// The shortest wait that an app can ask for: "at once" would be a tight loop through the queue.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// The longest reason that is kept, in bytes: what dead letters are grouped by.
const LONGEST_REASON: usize = 64;

/// How much of the body is told, in bytes: a record keeps less, a log line no more than this.
const LONGEST_TEXT: usize = 1024;

/// How much is told of where a redirect leads, in bytes.
const LONGEST_LOCATION: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Retry,
    Permanent,
    NotYet,
    Unavailable,
    /// It has said something that has no meaning.
    Unknown,
    /// What is between us and the app did not hear from it.
    Unanswered,
}

/// A reply without its body.
#[derive(Debug)]
pub(crate) struct Head {
    outcome: Outcome,
    status: StatusCode,
    word: String,
    reason: String,
    location: String,
    retry_after: Option<Duration>,
}

impl Head {
    /// Of a reply that came at the wall-clock time `now`.
    pub(crate) fn of(status: StatusCode, headers: &HeaderMap, permanent: &PermanentStatus, now: Millis) -> Self {
        let text = |name: &str| {
            let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
            values.map(|value| value.trim().to_owned()).collect::<Vec<_>>().join(", ")
        };
        let word = text(OUTCOME);
        let outcome = if headers.contains_key(OUTCOME) {
            let known = WORDS.iter().find(|(known, _)| word.eq_ignore_ascii_case(known));
            known.map_or(Outcome::Unknown, |(_, outcome)| *outcome)
        } else {
            by_status(status, permanent)
        };
        Self {
            outcome,
            status,
            word,
            reason: text(REASON),
            location: text("location"),
            retry_after: retry_after(headers, now),
        }
    }

    /// Whether the work's end is known. After a 504 it may still run.
    pub(crate) fn is_an_answer(&self) -> bool {
        match self.outcome {
            Outcome::Unanswered => false,
            Outcome::Unknown => self.status != StatusCode::GATEWAY_TIMEOUT,
            _ => true,
        }
    }

    /// What it means, told with as much of the body as was read.
    pub(crate) fn verdict(self, body: &[u8]) -> HandlerResult {
        let failure = || HandlerError::new(self.text(body)).reason(self.code());
        match self.outcome {
            Outcome::Done => Ok(()),
            Outcome::Permanent => Err(failure().permanent()),
            Outcome::NotYet => Err(failure().not_yet(self.retry_after.unwrap_or(NOT_YET_DELAY))),
            Outcome::Unavailable => Err(failure().with(Verdict::Unavailable(self.retry_after))),
            Outcome::Retry | Outcome::Unanswered => Err(failure().with(Verdict::Retry(self.retry_after))),
            Outcome::Unknown => {
                let words = WORDS.map(|(word, _)| word).join(", ");
                let text = format!(
                    "X-Leasehold-Outcome is {:?}, and it can be: {words}",
                    shortened(&self.word, LONGEST_REASON)
                );
                Err(HandlerError::new(text).reason("bad_outcome").with(Verdict::Retry(self.retry_after)))
            }
        }
    }

    /// The app's own reason, as a short code; else the status.
    fn code(&self) -> String {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let words = self.reason.split(|c| !allowed(c)).filter(|word| !word.is_empty());
        let code = words.collect::<Vec<_>>().join("_");
        let code = shortened(&code, LONGEST_REASON);
        if code.is_empty() { format!("http_{}", self.status.as_u16()) } else { code.to_owned() }
    }

    /// The status and what the body says, or the reason where it says nothing.
    fn text(&self, body: &[u8]) -> String {
        let body = String::from_utf8_lossy(body);
        let said = if body.trim().is_empty() { &self.reason } else { body.trim() };
        let shown = shortened(said, LONGEST_TEXT);
        let cut = if shown.len() < said.len() { "…" } else { "" };
        let status = self.status_in_words();
        if shown.is_empty() { status } else { format!("{status}: {shown}{cut}") }
    }

    /// With the header that overrode it, and with where a redirect leads: most often to the URL that the handler should
    /// have, with a slash at its end.
    fn status_in_words(&self) -> String {
        let reason = self.status.canonical_reason().unwrap_or_default();
        let mut text = format!("{} {reason}", self.status.as_u16()).trim_end().to_owned();
        if self.status.is_redirection() && !self.location.is_empty() {
            let location = shortened(&self.location, LONGEST_LOCATION);
            text.push_str(&format!(" to {location}, and redirects are not followed"));
        }
        if !self.word.is_empty() {
            text.push_str(&format!(" with X-Leasehold-Outcome: {}", self.word));
        }
        text
    }
}

fn by_status(status: StatusCode, permanent: &PermanentStatus) -> Outcome {
    match status {
        _ if status.is_success() => Outcome::Done,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Outcome::Unavailable,
        _ if permanent.has(status.as_u16()) => Outcome::Permanent,
        StatusCode::GATEWAY_TIMEOUT => Outcome::Unanswered,
        _ => Outcome::Retry,
    }
}

/// In seconds, or a date; what is neither is ignored. Bounded from above by whoever acts on it.
/// <https://www.rfc-editor.org/rfc/rfc9110#name-retry-after>
fn retry_after(headers: &HeaderMap, now: Millis) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Digits that are no number are too many of them.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        let at = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
        (Millis(0) + at).since(now)
    };
    Some(wait.max(SHORTEST_WAIT))
}

fn shortened(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    const NOW: Millis = Millis(1_800_000_000_500);

    fn verdict(status: u16, headers: &[(&str, &str)], body: &str) -> HandlerResult {
        head(status, headers).verdict(body.as_bytes())
    }

    fn head(status: u16, headers: &[(&str, &str)]) -> Head {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
            map.append(name.parse::<HeaderName>().expect("a name"), value);
        }
        Head::of(StatusCode::from_u16(status).expect("a status"), &map, &PermanentStatus::default(), NOW)
    }

    fn failure(status: u16, headers: &[(&str, &str)]) -> (Verdict, String) {
        let error = verdict(status, headers, "").expect_err("a failure");
        (error.verdict, error.code().to_owned())
    }

    const fn secs(secs: u64) -> Option<Duration> {
        Some(Duration::from_secs(secs))
    }

    #[test]
    fn the_status_is_the_verdict() {
        for status in [200, 201, 202, 204, 299] {
            assert!(verdict(status, &[], "").is_ok(), "{status}");
        }
        let permanent = [400, 410, 413, 415, 422].map(|status| (status, Verdict::Permanent));
        let away = [429, 503].map(|status| (status, Verdict::Unavailable(None)));
        let failed = [300, 301, 302, 307, 401, 404, 409, 418, 500, 502, 504, 599].map(|s| (s, Verdict::Retry(None)));
        for (status, expected) in permanent.into_iter().chain(away).chain(failed) {
            assert_eq!(failure(status, &[]), (expected, format!("http_{status}")));
        }
    }

    #[test]
    fn an_outcome_overrides_every_status() {
        for status in [200, 302, 422, 500, 503, 504] {
            let say = |word| verdict(status, &[("x-leasehold-outcome", word)], "").map_err(|error| error.verdict);
            assert!(say("done").is_ok() && say(" DONE ").is_ok(), "{status}");
            assert_eq!(say("retry"), Err(Verdict::Retry(None)));
            assert_eq!(say("permanent"), Err(Verdict::Permanent));
            assert_eq!(say("not-yet"), Err(Verdict::NotYet(NOT_YET_DELAY)));
            assert_eq!(say("unavailable"), Err(Verdict::Unavailable(None)));
        }
        let later = |word| failure(200, &[("x-leasehold-outcome", word), ("retry-after", "90")]).0;
        assert_eq!(later("retry"), Verdict::Retry(secs(90)));
        assert_eq!(later("not-yet"), Verdict::NotYet(Duration::from_secs(90)));
        assert_eq!(later("unavailable"), Verdict::Unavailable(secs(90)));
        assert_eq!(later("permanent"), Verdict::Permanent);
    }

    #[test]
    fn an_unknown_outcome_is_a_failure_that_names_the_words_whatever_the_status() {
        let long = "x".repeat(10_000);
        for (status, word) in [(200, "ok"), (200, ""), (204, "done?"), (422, "dönе"), (503, "not_yet"), (200, &long)]
        {
            let error = verdict(status, &[("x-leasehold-outcome", word)], "").expect_err(word);
            assert_eq!((error.verdict, error.code()), (Verdict::Retry(None), "bad_outcome"));
            let text = error.to_string();
            assert!(text.ends_with("done, retry, permanent, not-yet, unavailable") && text.len() < 200, "{text}");
        }
        let twice = [("x-leasehold-outcome", "done"), ("x-leasehold-outcome", "retry")];
        assert_eq!(failure(200, &twice).1, "bad_outcome");
    }

    #[test]
    fn d2_only_a_504_without_an_outcome_leaves_open_whether_the_work_still_runs() {
        assert!(!head(504, &[]).is_an_answer());
        assert!(!head(504, &[("x-leasehold-outcome", "what")]).is_an_answer());
        assert!(head(504, &[("x-leasehold-outcome", "retry")]).is_an_answer());
        for status in [200, 301, 422, 429, 500, 502, 503] {
            assert!(head(status, &[]).is_an_answer(), "{status}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_whatever_else_is_ignored() {
        let wait = |text| match failure(503, &[("retry-after", text)]).0 {
            Verdict::Unavailable(wait) => wait,
            other => panic!("{other:?}"),
        };
        assert_eq!(wait("120"), secs(120));
        assert_eq!(wait("0"), secs(1), "not a tight loop");
        assert_eq!(wait("99999999999999999999999999"), secs(u64::MAX));
        // NOW is half a second past 08:00:00.
        assert_eq!(wait("Fri, 15 Jan 2027 08:01:00 GMT"), Some(Duration::from_millis(59_500)));
        assert_eq!(wait("Friday, 15-Jan-27 08:01:00 GMT"), Some(Duration::from_millis(59_500)));
        assert_eq!(wait("Wed, 21 Oct 2015 07:28:00 GMT"), secs(1), "long ago");
        for text in ["", "-5", "1.5", "+7", "soon", "Fri, 15 Jan 99999 08:01:00 GMT", "\u{662}"] {
            assert_eq!(wait(text), None, "{text}");
        }
        assert_eq!(failure(500, &[("retry-after", "7")]).0, Verdict::Retry(secs(7)));
    }

    #[test]
    fn a_failure_tells_where_a_redirect_leads_and_what_overrode_the_status() {
        let text = |status, headers: &[(&str, &str)]| verdict(status, headers, "").expect_err("no").to_string();
        let moved = text(308, &[("location", "http://127.0.0.1:5000/charges/")]);
        assert_eq!(moved, "308 Permanent Redirect to http://127.0.0.1:5000/charges/, and redirects are not followed");
        assert!(text(302, &[("location", &"x".repeat(9000))]).len() < LONGEST_LOCATION + 100);
        assert_eq!(text(500, &[("location", "/x")]), "500 Internal Server Error", "that is no redirect");
        let away = text(200, &[("x-leasehold-outcome", "unavailable")]);
        assert_eq!(away, "200 OK with X-Leasehold-Outcome: unavailable");
    }

    #[test]
    fn a_reason_becomes_a_short_code_and_the_body_the_text() {
        let error = |reason: &str, body: &str| verdict(422, &[("x-leasehold-reason", reason)], body).expect_err("no");
        assert_eq!(error("card_declined", "").code(), "card_declined");
        assert_eq!(error(" Card declined: „no\"! ", "").code(), "Card_declined_no");
        assert_eq!(error("é ☃", "").code(), "http_422");
        assert_eq!(error(&"x".repeat(500), "").code().len(), LONGEST_REASON);
        assert_eq!(error("declined", " no such card\n").to_string(), "422 Unprocessable Entity: no such card");
        assert_eq!(error("declined, sorry", "").to_string(), "422 Unprocessable Entity: declined, sorry");
        assert_eq!(verdict(500, &[], "").expect_err("no").to_string(), "500 Internal Server Error");
        let long = verdict(499, &[], &"é".repeat(4000)).expect_err("no").to_string();
        assert!(long.starts_with("499: éé") && long.ends_with("é…") && long.len() < LONGEST_TEXT + 20, "{long:.20}");
        let broken = head(500, &[]).verdict(b"caf\xe9 \xff").expect_err("no").to_string();
        assert_eq!(broken, "500 Internal Server Error: caf\u{fffd} \u{fffd}");
    }
}
