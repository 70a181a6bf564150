//! How values of settings are written: reading and writing are inverse, and each refusal says what to write instead.
//!
//! Looks at one value at a time; whether values fit together is for [`check`](super::check).

use std::{fmt, str::FromStr};

use super::{
    DeadLetter, Envelope, FingerprintSource, GuardMode, HandlerCredentials, HandlerSpec, KeyHash, KeySource, LogFormat,
    OutagePolicy, S3Payload, ScaleInProtection, Start, http,
};
use crate::queue::QueueAddress;

/// A value that a setting does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; write, for example, {instead}")]
#[non_exhaustive]
pub struct ValueError {
    /// What is wrong with it.
    pub what: String,
    /// A value that is taken, as near to what was meant as can be told.
    pub instead: String,
}

impl ValueError {
    pub(crate) fn new(what: impl Into<String>, instead: impl Into<String>) -> Self {
        Self { what: what.into(), instead: instead.into() }
    }
}

/// Enums that are written as one word.
macro_rules! words {
    ($($type:ident { $($variant:ident = $word:literal),+ $(,)? })+) => { $(
        impl FromStr for $type {
            type Err = ValueError;

            fn from_str(text: &str) -> Result<Self, ValueError> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(no_such_word(text, &[$($word),+])),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $word),+ })
            }
        }
    )+ };
}
words! {
    Envelope { Raw = "raw", Sns = "sns" }
    HandlerCredentials { Hide = "hide", Pass = "pass" }
    GuardMode { Claim = "claim", None = "none" }
    KeyHash { Long = "long", Always = "always" }
    LogFormat { Json = "json", Text = "text" }
    OutagePolicy { Pause = "pause", Open = "open" }
    S3Payload { Fetch = "fetch", FetchDelete = "fetch-delete", Pass = "pass" }
    ScaleInProtection { Off = "off", On = "on" }
    Start { Strict = "strict", Available = "available" }
}

fn no_such_word(text: &str, words: &[&str]) -> ValueError {
    let written = text.to_lowercase();
    let nearest = words.iter().min_by_key(|word| strsim::osa_distance(&written, word)).copied().unwrap_or_default();
    ValueError::new(format!("{text:?} is not {}", words.join(" or ")), nearest)
}

/// `/order_id`, or several with commas between them.
fn pointers(text: &str) -> Result<Vec<String>, ValueError> {
    text.split(',')
        .map(str::trim)
        .map(|pointer| is_pointer(pointer).then(|| pointer.to_owned()))
        .collect::<Option<_>>()
        .ok_or_else(|| {
            let what = format!("{text:?} is no list of JSON pointers: each begins with / and has ~ only in ~0 and ~1");
            ValueError::new(what, text.split(',').map(nearest_pointer).collect::<Vec<_>>().join(","))
        })
}

fn is_pointer(text: &str) -> bool {
    text.starts_with('/') && text.split('~').skip(1).all(|after| after.starts_with(['0', '1']))
}

/// What was meant by `order_id`, `$.order.id` or `/a~b`.
fn nearest_pointer(text: &str) -> String {
    let text = text.trim();
    match text {
        _ if is_pointer(text) => text.to_owned(),
        "" | "$" => "/id".to_owned(),
        _ if text.starts_with('/') => text.replace('~', "~0"),
        _ => format!("/{}", text.trim_start_matches(['$', '.']).replace('~', "~0").replace('.', "/")),
    }
}

impl FromStr for KeySource {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "dedup-id" => Ok(Self::DeduplicationId),
            _ if text.split(',').map(str::trim).eq(["group-id", "dedup-id"]) => Ok(Self::GroupAndDeduplicationId),
            "message-id" => Ok(Self::MessageId),
            _ => match text.strip_prefix("attr:").map(str::trim) {
                Some("") => Err(ValueError::new("attr: names no attribute", "attr:order-id")),
                Some(name) => Ok(Self::Attribute(name.to_owned())),
                None => Ok(Self::Pointers(pointers(text).map_err(|error| {
                    ValueError::new(
                        format!("{}; nor is it attr:NAME, dedup-id, group-id,dedup-id or message-id", error.what),
                        error.instead,
                    )
                })?)),
            },
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pointers(pointers) => f.write_str(&pointers.join(",")),
            Self::Attribute(name) => write!(f, "attr:{name}"),
            Self::DeduplicationId => f.write_str("dedup-id"),
            Self::GroupAndDeduplicationId => f.write_str("group-id,dedup-id"),
            Self::MessageId => f.write_str("message-id"),
        }
    }
}

impl FromStr for FingerprintSource {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "body" => Ok(Self::Body),
            "off" => Ok(Self::Off),
            _ => Ok(Self::Pointers(pointers(text).map_err(|error| {
                let is_meant_off = ["none", "no", "false"].contains(&text.to_lowercase().as_str());
                let instead = if is_meant_off { "off".to_owned() } else { error.instead };
                ValueError::new(format!("{}; nor is it body or off", error.what), instead)
            })?)),
        }
    }
}

impl fmt::Display for FingerprintSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body => f.write_str("body"),
            Self::Pointers(pointers) => f.write_str(&pointers.join(",")),
            Self::Off => f.write_str("off"),
        }
    }
}

impl FromStr for HandlerSpec {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        const EXAMPLE: &str = "exec:./handle-payment --verbose";
        let refuse = |what: String| ValueError::new(what, EXAMPLE);
        let mut words = if let Some(line) = text.strip_prefix("exec:") {
            shell_words::split(line).map_err(|error| refuse(format!("{text:?} does not split into words: {error}")))?
        } else if text.starts_with('[') {
            serde_json::from_str(text).map_err(|_| refuse(format!("{text:?} is no JSON array of texts")))?
        } else if text.starts_with("http://") || text.starts_with("https://") {
            return http::handler_url(text).map(|url| Self::Http { url });
        } else {
            // A password may stand before an @.
            let shown = if text.contains('@') { "that".to_owned() } else { format!("{text:?}") };
            let what =
                format!("{shown} is no handler: http://host:port/path, exec:program args, or [\"program\",\"arg\"]");
            return Err(ValueError::new(what, nearest_handler(text).unwrap_or_else(|| EXAMPLE.to_owned())));
        };
        if words.iter().any(|word| word.contains('\0')) {
            return Err(refuse("no program can be given a NUL character".to_owned()));
        }
        if words.first().is_none_or(String::is_empty) {
            return Err(refuse(format!("{text:?} names no program")));
        }
        Ok(Self::Exec { program: words.remove(0), args: words })
    }
}

/// What was meant by `127.0.0.1:8080/jobs`, `HTTP://app/` or `./handle --fast`.
fn nearest_handler(text: &str) -> Option<String> {
    let authority = text.split('/').next().unwrap_or_default();
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let of_web = ["https", "http"].into_iter().find(|scheme| {
        let written = text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
        written && text[scheme.len()..].starts_with([':', '/'])
    });
    // A URL with a password is not told.
    let url = |text: String| http::handler_url(&text).ok().map(|url| url.to_string());
    match of_web {
        Some(scheme) => url(format!("{scheme}://{}", text[scheme.len()..].trim_start_matches([':', '/']))),
        None if has_port => url(format!("http://{text}")),
        None if text.contains("://") => None,
        None => Some(format!("exec:{text}")).filter(|line| line.parse::<HandlerSpec>().is_ok()),
    }
}

impl fmt::Display for HandlerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { url } => url.fmt(f),
            Self::Exec { program, args } => {
                write!(f, "exec:{}", shell_words::join(std::iter::once(program).chain(args)))
            }
        }
    }
}

/// The longest name of a queue, its suffix included.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html>
const LONGEST_NAME: usize = 80;

/// A namespace in CloudWatch: up to 255 of some characters, and none of AWS's own.
/// <https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricData.html>
pub(super) fn cloudwatch_namespace(written: &str) -> Result<String, ValueError> {
    let may_be = |c: char| c.is_ascii_alphanumeric() || " .-_/#".contains(c);
    let name = written.trim();
    if name.is_empty() || name.len() > 255 || name.starts_with("AWS/") || !name.chars().all(may_be) {
        return Err(ValueError::new(format!("{written:?} is no namespace of yours in CloudWatch"), "leasehold"));
    }
    Ok(name.to_owned())
}

/// A queue's name as SQS takes it.
pub(super) fn queue_name(text: &str) -> Result<String, ValueError> {
    let stem = text.strip_suffix(".fifo").unwrap_or(text);
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !stem.is_empty() && stem.chars().all(allowed) && text.len() <= LONGEST_NAME {
        return Ok(text.to_owned());
    }
    let what = format!(
        "{text:?} is no queue name: letters, digits, - and _, at most {LONGEST_NAME}, and .fifo at the end of a FIFO queue's"
    );
    let mended: String = stem.chars().map(|c| if allowed(c) { c } else { '-' }).take(LONGEST_NAME - 5).collect();
    let mended = if mended.trim_matches('-').is_empty() { "payments".to_owned() } else { mended };
    Err(ValueError::new(what, if stem == text { mended } else { format!("{mended}.fifo") }))
}

/// A queue's URL or its ARN: what finds it in any region and account.
pub(super) fn queue_url_or_arn(text: &str) -> Result<QueueAddress, ValueError> {
    if text.starts_with("arn:") { queue_arn(text) } else { queue_url(text) }
}

/// A queue's URL.
fn queue_url(text: &str) -> Result<QueueAddress, ValueError> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let whole = rest.is_some_and(|rest| {
        rest.split_once('/').is_some_and(|(host, path)| !host.is_empty() && !path.is_empty() && !path.ends_with('/'))
    });
    if whole && !text.contains(char::is_whitespace) {
        return Ok(QueueAddress::Url(text.to_owned()));
    }
    let example = "https://sqs.eu-central-1.amazonaws.com/123456789012/payments";
    Err(ValueError::new(format!("{text:?} is no queue URL: https://host/account/name"), example))
}

impl FromStr for QueueAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text.contains("://") {
            queue_url(text)
        } else if text.starts_with("arn:") {
            queue_arn(text)
        } else {
            queue_name(text).map(Self::Name)
        }
    }
}

fn queue_arn(text: &str) -> Result<QueueAddress, ValueError> {
    let parts: Vec<&str> = text.split(':').collect();
    match parts.as_slice() {
        ["arn", _, "sqs", region, account, name]
            if !region.is_empty() && !account.is_empty() && queue_name(name).is_ok() =>
        {
            Ok(QueueAddress::Arn(text.to_owned()))
        }
        _ => {
            let what = format!("{text:?} is no queue's ARN: arn:aws:sqs:region:account:name");
            let name = parts.last().and_then(|name| queue_name(name).ok());
            Err(ValueError::new(what, name.unwrap_or_else(|| "payments".to_owned())))
        }
    }
}

impl FromStr for DeadLetter {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "redrive-policy" => Ok(Self::RedrivePolicy),
            "keep" => Ok(Self::Keep),
            "keep-fifo" => Ok(Self::KeepFifo),
            "drop" => Ok(Self::Drop),
            _ => text.parse().map(Self::Queue),
        }
    }
}

impl fmt::Display for DeadLetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RedrivePolicy => f.write_str("redrive-policy"),
            Self::Queue(address) => address.fmt(f),
            Self::Keep => f.write_str("keep"),
            Self::KeepFifo => f.write_str("keep-fifo"),
            Self::Drop => f.write_str("drop"),
        }
    }
}
