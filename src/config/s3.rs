//! What is done with bodies that are in S3, and how the buckets that they may be in are written.
//!
//! Looks at names only. Whether a bucket is there is not looked up before a body is fetched from it.

use std::{collections::BTreeSet, fmt, str::FromStr};

use super::{Problem, QueueConfig, ValueError, variable};
use crate::message::Pointer;

/// What is done with a body that is in S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum S3Payload {
    /// It is fetched.
    Fetch,
    /// It is fetched, and its object is deleted once its work is done and its message deleted.
    FetchDelete,
    /// Nothing: the handler gets the pointer to it.
    Pass,
}

/// Names of buckets; one at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Buckets(BTreeSet<String>);

impl S3Buckets {
    /// Whether a bucket is one of them.
    #[must_use]
    pub fn contains(&self, bucket: &str) -> bool {
        self.0.contains(bucket)
    }
}

impl FromStr for S3Buckets {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        if names.iter().all(|name| Pointer::can_be_bucket(name)) {
            return Ok(Self(names.into_iter().map(str::to_owned).collect()));
        }
        let what = format!("{text:?} is no list of buckets: names with commas between them, as S3 has them");
        let mended: Vec<&str> = names.into_iter().map(nearest).filter(|name| Pointer::can_be_bucket(name)).collect();
        let instead = if mended.is_empty() { "payments-bodies".to_owned() } else { mended.join(",") };
        Err(ValueError::new(what, instead))
    }
}

/// What was meant by `s3://bucket/prefix` or by `arn:aws:s3:::bucket`.
fn nearest(name: &str) -> &str {
    let bare = name.trim_start_matches("s3://").trim_start_matches("arn:aws:s3:::");
    bare.split('/').next().unwrap_or_default()
}

impl fmt::Display for S3Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(String::as_str).collect();
        f.write_str(&names.join(","))
    }
}

impl QueueConfig {
    /// What is wrong with these settings in a build that cannot fetch from S3. Without any the queue may well never meet
    /// a body that is there.
    pub(crate) fn needs_s3(&self, name: &str) -> Option<Problem> {
        let (payload, buckets) = (variable(name, "S3_PAYLOAD"), variable(name, "S3_BUCKETS"));
        let set = match (self.s3_payload, &self.s3_buckets) {
            (S3Payload::Pass, _) | (S3Payload::Fetch, None) => return None,
            (S3Payload::FetchDelete, _) => format!("{payload} is fetch-delete"),
            (_, Some(set)) => format!("{buckets} is {set}"),
        };
        let what = format!(
            "{set}, and this program was built without the feature `s3`; the `leasehold` command has it with \
             cargo build --release --features cli,s3"
        );
        Some(Problem::new(what, "cargo add leasehold --features s3"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_read_as_they_are_written_and_each_refusal_says_what_was_meant() {
        let buckets: S3Buckets = "bodies, other.bodies-2".parse().expect("two names");
        assert_eq!(buckets.to_string(), "bodies,other.bodies-2");
        assert!(buckets.contains("bodies") && buckets.contains("other.bodies-2") && !buckets.contains("odies"));
        for (text, instead) in [
            ("s3://bodies/prefix", "bodies"),
            ("arn:aws:s3:::bodies,other", "bodies,other"),
            ("bodies,,other", "bodies,other"),
            ("*", "payments-bodies"),
            ("bodies*", "payments-bodies"),
            ("", "payments-bodies"),
        ] {
            assert_eq!(text.parse::<S3Buckets>().expect_err(text).instead, instead, "{text}");
            assert!(instead.parse::<S3Buckets>().is_ok());
        }
    }

    #[test]
    fn r5_settings_of_bodies_in_s3_are_refused_by_a_build_that_cannot_fetch_them() {
        let problem = |payload, buckets: Option<&str>| {
            let mut queue = QueueConfig::new("jobs");
            queue.s3_payload = payload;
            queue.s3_buckets = buckets.map(|names| names.parse::<S3Buckets>().expect("names"));
            queue.needs_s3("jobs")
        };
        for (payload, buckets, named) in [
            (S3Payload::Fetch, Some("bodies"), "LEASEHOLD_JOBS_S3_BUCKETS is bodies"),
            (S3Payload::FetchDelete, Some("bodies"), "LEASEHOLD_JOBS_S3_PAYLOAD is fetch-delete"),
            (S3Payload::FetchDelete, None, "LEASEHOLD_JOBS_S3_PAYLOAD is fetch-delete"),
        ] {
            let problem = problem(payload, buckets).expect(named);
            assert!(problem.what.starts_with(named) && problem.what.contains("--features cli,s3"), "{}", problem.what);
        }
        for (payload, buckets) in [(S3Payload::Fetch, None), (S3Payload::Pass, None), (S3Payload::Pass, Some("bodies"))]
        {
            assert_eq!(problem(payload, buckets), None, "{payload}");
        }
    }
}
