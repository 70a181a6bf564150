//! The table of settings: the one place that says what can be configured.
//!
//! It drives reading, the hints for misspelt names, `--help` and the README's table. A setting that is not in it does
//! not exist.

use std::{collections::BTreeMap, fmt::Display, str::FromStr, time::Duration};

use super::{Config, DurationText, PREFIX, QueueConfig, ValueError, http, syntax};
use crate::queue::QueueAddress;

/// One setting.
#[derive(Debug)]
#[non_exhaustive]
pub struct Setting {
    /// Its name, after `LEASEHOLD_` and, for a queue's own, the queue's name.
    pub name: &'static str,
    /// What it is a setting of.
    pub scope: Scope,
    /// What its values look like.
    pub kind: &'static str,
    /// The value that it has unless it is set, as it would be written; `None` if none.
    pub default: Option<&'static str>,
    /// What it means, in a sentence.
    pub doc: &'static str,
    pub(super) apply: Apply,
}

/// What a setting is a setting of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// The process: `LEASEHOLD_TABLE`.
    Process,
    /// A queue, `LEASEHOLD_PAYMENTS_CONCURRENCY`; `LEASEHOLD_CONCURRENCY` is the default for all.
    Queue,
    /// One queue and never all: `LEASEHOLD_PAYMENTS_URL`.
    EachQueue,
}

/// Where a value goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Apply {
    Process(fn(&mut Config, &str) -> Result<(), ValueError>),
    Queue(fn(&mut QueueConfig, &str) -> Result<(), ValueError>),
}

/// All settings, in the order in which they are told of.
pub static SETTINGS: &[Setting] = &[
    process(
        "QUEUES",
        "names",
        None,
        "The queues to work on. Required. Their own settings carry their names in upper case, `-` and `.` as `_`.",
        queues,
    ),
    process("TABLE", "name or ARN", Some("leasehold"), "The DynamoDB table of the records.", |c, v| {
        text(&mut c.table, v)
    }),
    process("NAMESPACE", "text", None, "Keeps apart what shares a table, such as environments.", |c, v| {
        text(c.namespace.get_or_insert_default(), v)
    }),
    process("CLOCK_SKEW", "duration", Some("2s"), "By how much the clocks of two workers may differ.", |c, v| {
        duration(&mut c.clock_skew, v)
    }),
    process("KEY_HASH", "`long` or `always`", Some("long"), "When primary keys hold a hash of the key.", |c, v| {
        value(&mut c.key_hash, v)
    }),
    process("DRAIN_TIMEOUT", "duration", Some("25s"), "From the first signal to the end of the process.", |c, v| {
        duration(&mut c.drain_timeout, v)
    }),
    process(
        "CANCEL_GRACE",
        "duration",
        Some("2s"),
        "How long a cancelled handler may take to end. Unless set, no longer than a quarter of any visibility timeout.",
        |c, v| duration(&mut c.cancel_grace, v),
    ),
    process(
        "SCALE_IN_PROTECTION",
        "`off` or `on`",
        Some("off"),
        "On ECS: while a handler runs longer than a drain would let it, the task is kept from being scaled in.",
        |c, v| value(&mut c.scale_in_protection, v),
    ),
    process("START_TIMEOUT", "duration", Some("60s"), "How long AWS may be unreachable at the start.", |c, v| {
        duration(&mut c.start_timeout, v)
    }),
    process(
        "START",
        "`strict` or `available`",
        Some("strict"),
        "Where something is wrong with a queue: start none, or the others and look at this one every minute.",
        |c, v| value(&mut c.start, v),
    ),
    process("TOTAL_CONCURRENCY", "number", None, "Handlers at once over all queues.", |c, v| {
        let mut most = 100;
        number(&mut most, v)?;
        set(&mut c.total_concurrency, Ok(Some(most)))
    }),
    process(
        "HTTP_ADDR",
        "address or `off`",
        None,
        "Where it tells how it is. Unless set, `127.0.0.1:9464` for `leasehold run` and nowhere for a library program.",
        |c, v| some(&mut c.http_addr, v),
    ),
    process(
        "STEPS_ADDR",
        "`host:port` or `off`",
        Some("127.0.0.1:0"),
        "Where apps and programs record steps, of queues with a guard. Port 0 is one that the system picks.",
        |c, v| value(&mut c.steps_addr, v),
    ),
    process("LOG", "filter", Some("info"), "What is logged: a level, or `info,leasehold=debug`.", |c, v| {
        text(&mut c.log, v)
    }),
    process(
        "LOG_FORMAT",
        "`json` or `text`",
        None,
        "How it is written: `text` on a terminal and `json` elsewhere, unless set.",
        |c, v| value(c.log_format.get_or_insert(super::LogFormat::Json), v),
    ),
    process(
        "EMF_NAMESPACE",
        "name",
        None,
        "Writes metrics to the log each minute, under Lambda with each answer, in CloudWatch's embedded format, under this name.",
        |c, v| set(&mut c.emf_namespace, syntax::cloudwatch_namespace(v).map(Some)),
    ),
    each_queue(
        "URL",
        "URL or ARN",
        None,
        "The queue's URL or ARN, in any region and account, in place of a name.",
        |q, v| set(&mut q.address, syntax::queue_url_or_arn(v)),
    ),
    each_queue(
        "NAME",
        "name",
        None,
        "The queue's name in SQS, in the region and account of the credentials: the one in `QUEUES` unless set.",
        |q, v| set(&mut q.address, syntax::queue_name(v).map(QueueAddress::Name)),
    ),
    queue(
        "HANDLER",
        "URL, `exec:…` or JSON array",
        None,
        "What handles messages: `http://…`, `exec:program args` split as by a shell, or `[\"program\",\"arg\"]`.",
        |q, v| some(&mut q.handler, v),
    ),
    queue(
        "HANDLER_HEADER",
        "`Name: value`",
        None,
        "A header that goes along to an HTTP handler, or several, one a line. Never shown.",
        |q, v| set(&mut q.handler_headers, http::headers(v)),
    ),
    queue(
        "HANDLER_CREDENTIALS",
        "`hide` or `pass`",
        Some("hide"),
        "Whether a program gets the worker's AWS credentials, as far as they are in variables.",
        |q, v| value(&mut q.handler_credentials, v),
    ),
    queue(
        "PERMANENT_STATUS",
        "statuses",
        Some("400,410,413,415,422"),
        "Replies of an HTTP handler that fail for good.",
        |q, v| value(&mut q.permanent_status, v),
    ),
    queue("CONCURRENCY", "number", Some("20"), "Handlers at once.", |q, v| number(&mut q.concurrency, v)),
    queue("RATE", "number", None, "How many messages may be begun in a second: `50`, `0.5`.", |q, v| {
        some(&mut q.rate, v)
    }),
    queue(
        "VISIBILITY_TIMEOUT",
        "duration or range",
        Some("30s..2m"),
        "How long a message stays hidden unless extended. In a range it follows twice the p99 of handler time.",
        |q, v| value(&mut q.visibility_timeout, v),
    ),
    queue("HANDLER_TIMEOUT", "duration", Some("5m"), "A handler's time budget.", |q, v| {
        duration(&mut q.handler_timeout, v)
    }),
    queue("WAIT_TIME", "duration", Some("10s"), "How long one poll waits for a first message, up to 20s.", |q, v| {
        duration(&mut q.wait_time, v)
    }),
    queue(
        "MAX_ATTEMPTS",
        "number",
        Some("5"),
        "After this many failed attempts the work has failed for good.",
        |q, v| number(&mut q.max_attempts, v),
    ),
    queue("MAX_TAKEOVERS", "number", Some("10"), "After this many takeovers the work has failed for good.", |q, v| {
        number(&mut q.max_takeovers, v)
    }),
    queue(
        "BACKOFF",
        "duration or range",
        Some("10s..15m"),
        "The wait after the first failed attempt, and the longest.",
        |q, v| value(&mut q.backoff, v),
    ),
    queue("GUARD", "`claim` or `none`", Some("claim"), "`none` for handlers that are idempotent by nature.", |q, v| {
        value(&mut q.guard, v)
    }),
    queue(
        "GUARD_OUTAGE",
        "`pause` or `open`",
        Some("pause"),
        "While the table cannot be used: take nothing new, or run unguarded.",
        |q, v| value(&mut q.guard_outage, v),
    ),
    queue(
        "KEY",
        "JSON pointers, `attr:NAME`, `dedup-id`, `group-id,dedup-id` or `message-id`",
        None,
        "What names the work: `/order_id`, `/tenant,/order_id`. Required with a guard, here or in code.",
        |q, v| some(&mut q.key, v),
    ),
    each_queue("OPERATION", "text", None, "What the keys are keys of: the name in `QUEUES` unless set.", |q, v| {
        text(&mut q.operation, v)
    }),
    queue(
        "FINGERPRINT",
        "`body`, JSON pointers or `off`",
        Some("body"),
        "What of the payload must be the same under the same key.",
        |q, v| value(&mut q.fingerprint, v),
    ),
    queue("DONE_TTL", "duration", Some("30d"), "How long \"done\" is remembered.", |q, v| duration(&mut q.done_ttl, v)),
    queue(
        "DEAD_LETTER",
        "name, URL, ARN, or a word",
        Some("redrive-policy"),
        "Where work goes that has failed for good: a queue, in any region and account, `redrive-policy`, `keep`, `keep-fifo`, or `drop`.",
        |q, v| value(&mut q.dead_letter, v),
    ),
    queue(
        "ENVELOPE",
        "`raw` or `sns`",
        Some("raw"),
        "`sns` for what comes from an SNS topic without raw delivery: handlers get the message that was published.",
        |q, v| value(&mut q.envelope, v),
    ),
    queue(
        "S3_PAYLOAD",
        "`fetch`, `fetch-delete` or `pass`",
        Some("fetch"),
        "What is done with a body that is in S3: fetch it, and delete it there after its message, or pass the pointer.",
        |q, v| value(&mut q.s3_payload, v),
    ),
    queue(
        "S3_BUCKETS",
        "names",
        None,
        "The only buckets that bodies are fetched from. Required with `fetch-delete`.",
        |q, v| some(&mut q.s3_buckets, v),
    ),
];

type ToProcess = fn(&mut Config, &str) -> Result<(), ValueError>;
type ToQueue = fn(&mut QueueConfig, &str) -> Result<(), ValueError>;
type Text = &'static str;

const fn process(name: Text, kind: Text, default: Option<Text>, doc: Text, apply: ToProcess) -> Setting {
    Setting { name, scope: Scope::Process, kind, default, doc, apply: Apply::Process(apply) }
}

const fn queue(name: Text, kind: Text, default: Option<Text>, doc: Text, apply: ToQueue) -> Setting {
    Setting { name, scope: Scope::Queue, kind, default, doc, apply: Apply::Queue(apply) }
}

const fn each_queue(name: Text, kind: Text, default: Option<Text>, doc: Text, apply: ToQueue) -> Setting {
    Setting { name, scope: Scope::EachQueue, kind, default, doc, apply: Apply::Queue(apply) }
}

fn set<T>(slot: &mut T, value: Result<T, ValueError>) -> Result<(), ValueError> {
    *slot = value?;
    Ok(())
}

fn value<T: FromStr<Err = ValueError>>(slot: &mut T, written: &str) -> Result<(), ValueError> {
    set(slot, written.parse())
}

fn some<T: FromStr<Err = ValueError>>(slot: &mut Option<T>, written: &str) -> Result<(), ValueError> {
    set(slot, written.parse().map(Some))
}

fn text(slot: &mut String, written: &str) -> Result<(), ValueError> {
    set(slot, Ok(written.to_owned()))
}

fn duration(slot: &mut Duration, written: &str) -> Result<(), ValueError> {
    set(slot, written.parse().map(|DurationText(duration)| duration))
}

/// A count, from one. The number that stands in the slot is the default, and a good example.
fn number<T: FromStr + Display + From<u8> + PartialEq>(slot: &mut T, written: &str) -> Result<(), ValueError> {
    let number = written.parse().ok().filter(|number| *number != T::from(0));
    let refused = || ValueError::new(format!("{written:?} is no whole number from 1, or too large"), slot.to_string());
    set(slot, number.ok_or_else(refused))
}

fn queues(config: &mut Config, written: &str) -> Result<(), ValueError> {
    let mut queues = BTreeMap::new();
    for name in written.split(',').map(str::trim) {
        let name = syntax::queue_name(name).map_err(|error| ValueError::new(error.what, mended_names(written)))?;
        if queues.insert(name.clone(), QueueConfig::new(&name)).is_some() {
            return Err(ValueError::new(format!("{name:?} is named twice"), mended_names(written)));
        }
    }
    set(&mut config.queues, Ok(queues))
}

/// Each name once, and none that SQS does not take.
fn mended_names(written: &str) -> String {
    let mut names: Vec<String> = Vec::new();
    for name in written.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let name = syntax::queue_name(name).unwrap_or_else(|error| error.instead);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() { "payments,emails".to_owned() } else { names.join(",") }
}

/// The settings as two tables in Markdown, for the README and `--help`.
#[must_use]
pub fn table() -> String {
    let rows = |of_process: bool| {
        SETTINGS
            .iter()
            .filter(move |setting| (setting.scope == Scope::Process) == of_process)
            .map(row)
            .collect::<String>()
    };
    format!(
        "| process | value | default | |\n| --- | --- | --- | --- |\n{}\n\
         | queue | value | default | |\n| --- | --- | --- | --- |\n{}",
        rows(true),
        rows(false)
    )
}

fn row(setting: &Setting) -> String {
    let Setting { name, scope, kind, default, doc, .. } = setting;
    let name = match scope {
        Scope::Process => format!("`{PREFIX}{name}`"),
        Scope::Queue => format!("`{PREFIX}[<Q>_]{name}`"),
        Scope::EachQueue => format!("`{PREFIX}<Q>_{name}`"),
    };
    let default = default.map_or_else(String::new, |default| format!("`{default}`"));
    format!("| {name} | {kind} | {default} | {doc} |\n")
}
