//! What must hold between settings, whoever made them: variables or code.
//!
//! Pure: it knows the limits of AWS and our own rules, and not what a queue or a table really looks like. Each problem
//! names every setting that takes part in it and gives a line that mends it.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use super::{
    Backoff, Config, DRAIN_RESERVE, DeadLetter, DurationText as Text, GuardMode, HandlerHeader, PREFIX, Problem,
    QueueConfig, S3Payload, ValueError, VisibilityTimeout, variable,
};
use crate::queue::{LONGEST_VISIBILITY, QueueAddress};

/// The longest that one poll may wait.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html>
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// The most messages of one queue that SQS lets be received and not deleted.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html>
const MOST_IN_FLIGHT: usize = 120_000;

/// The longest namespace and operation, in bytes: escaped, both fit beside a hashed key within what is never hashed.
const LONGEST_NAME: usize = 128;

/// DynamoDB counts its TTL, and SQS its visibility timeout, in seconds.
const SECOND: Duration = Duration::from_secs(1);

/// A condition, what is wrong where it does not hold, and a line that mends it.
type Rule = (bool, String, String);

impl Config {
    /// Everything that does not fit together; empty if all is well.
    #[must_use]
    pub fn check(&self) -> Vec<Problem> {
        let mut problems = broken([(
            !self.queues.is_empty(),
            "there is no queue to work on".to_owned(),
            format!("{PREFIX}QUEUES=payments,emails"),
        )]);
        problems.extend(self.check_process());
        for (name, queue) in &self.queues {
            problems.extend(self.check_queue(name, queue));
        }
        problems.extend(self.check_addresses());
        problems
    }

    /// Makes the cancel grace no longer than a quarter of the shortest visibility timeout: the default is for the default
    /// ones, and nobody who shortens leases for a test should have to know of it.
    pub(super) fn fit_cancel_grace(&mut self) {
        let floors = self.queues.values().map(|queue| queue.visibility_timeout.floor);
        let quarter = floors.filter(|floor| *floor >= SECOND).min().unwrap_or(Duration::MAX) / 4;
        self.cancel_grace = self.cancel_grace.min(quarter);
    }

    /// What concerns no single queue.
    pub(super) fn check_process(&self) -> Vec<Problem> {
        let least_drain = self.cancel_grace.saturating_add(DRAIN_RESERVE);
        let namespace_length = self.namespace.as_ref().map_or(1, String::len);
        // A single queue's poll and its handlers can take turns.
        let least_total = if self.queues.len() > 1 { 2 * self.queues.len() } else { 1 };
        let mut problems = broken([
            (
                is_table(&self.table),
                format!("{PREFIX}TABLE is {:?}, which is neither a DynamoDB table's name nor an ARN", self.table),
                format!("{PREFIX}TABLE=leasehold"),
            ),
            (
                (1..=LONGEST_NAME).contains(&namespace_length),
                format!("{PREFIX}NAMESPACE must have 1 to {LONGEST_NAME} bytes, and has {namespace_length}"),
                format!("{PREFIX}NAMESPACE=production"),
            ),
            (
                self.drain_timeout > least_drain,
                format!(
                    "{PREFIX}DRAIN_TIMEOUT is {}, and must be longer than {PREFIX}CANCEL_GRACE ({}) and {} to settle in",
                    Text(self.drain_timeout),
                    Text(self.cancel_grace),
                    Text(DRAIN_RESERVE),
                ),
                format!(
                    "{PREFIX}DRAIN_TIMEOUT={}",
                    Text(Config::default().drain_timeout.max(least_drain.saturating_mul(2)))
                ),
            ),
            (
                !self.start_timeout.is_zero(),
                format!("{PREFIX}START_TIMEOUT is 0s: AWS could not even be asked once"),
                format!("{PREFIX}START_TIMEOUT=60s"),
            ),
            (
                self.total_concurrency.is_none_or(|most| most >= least_total),
                format!(
                    "{PREFIX}TOTAL_CONCURRENCY is {}, and must be {least_total} at least: one for the parked poll of each \
                     queue, and as many for handlers",
                    self.total_concurrency.unwrap_or_default(),
                ),
                format!("{PREFIX}TOTAL_CONCURRENCY={}", self.queues.len().max(1) * QueueConfig::new("").concurrency),
            ),
            (!self.log.is_empty(), format!("{PREFIX}LOG is empty"), format!("{PREFIX}LOG=info")),
        ]);
        let durations = [
            ("CLOCK_SKEW", self.clock_skew),
            ("DRAIN_TIMEOUT", self.drain_timeout),
            ("CANCEL_GRACE", self.cancel_grace),
            ("START_TIMEOUT", self.start_timeout),
        ];
        problems.extend(durations.iter().filter_map(|(s, d)| writable(format!("{PREFIX}{s}"), Some(&Text(*d)))));
        problems.extend(writable(format!("{PREFIX}STEPS_ADDR"), Some(&self.steps_addr)));
        problems
    }

    /// What concerns one queue.
    pub(super) fn check_queue(&self, name: &str, queue: &QueueConfig) -> Vec<Problem> {
        let mut problems = broken(self.lease_rules(name, queue));
        problems.extend(broken(limit_rules(name, queue)));
        problems.extend(broken(dead_letter_rules(name, queue)));
        problems.extend(broken([bucket_rule(name, queue)]));
        problems.extend(misaddressed(name, &queue.address));
        problems.extend(writable(variable(name, "HANDLER"), queue.handler.as_ref()));
        problems.extend(queue.handler_headers.iter().filter_map(|header| unsendable(name, header)));
        problems.extend(writable(variable(name, "PERMANENT_STATUS"), Some(&queue.permanent_status)));
        problems.extend(writable(variable(name, "KEY"), queue.key.as_ref()));
        problems.extend(writable(variable(name, "FINGERPRINT"), Some(&queue.fingerprint)));
        problems.extend(writable(variable(name, "DEAD_LETTER"), Some(&queue.dead_letter)));
        problems.extend(writable(variable(name, "VISIBILITY_TIMEOUT"), Some(&queue.visibility_timeout)));
        problems.extend(writable(variable(name, "BACKOFF"), Some(&queue.backoff)));
        let durations =
            [("HANDLER_TIMEOUT", queue.handler_timeout), ("WAIT_TIME", queue.wait_time), ("DONE_TTL", queue.done_ttl)];
        problems.extend(durations.iter().filter_map(|(setting, d)| writable(variable(name, setting), Some(&Text(*d)))));
        problems
    }

    fn lease_rules(&self, name: &str, queue: &QueueConfig) -> [Rule; 7] {
        let VisibilityTimeout { floor, ceiling } = queue.visibility_timeout;
        let (visibility, wait) = (variable(name, "VISIBILITY_TIMEOUT"), variable(name, "WAIT_TIME"));
        let timeout = variable(name, "HANDLER_TIMEOUT");
        let mended = format!("{visibility}=30s..2m");
        let is = format!("{visibility} is {}", queue.visibility_timeout);
        [
            (floor >= SECOND, format!("{is}, and must be 1s at least"), mended.clone()),
            (ceiling <= LONGEST_VISIBILITY, format!("{is}, and SQS hides no message longer than 12h"), mended.clone()),
            (is_whole(floor) && is_whole(ceiling), format!("{is}, and SQS takes whole seconds"), mended),
            (
                floor <= ceiling,
                format!("{is}: it begins above its end"),
                format!("{visibility}={}", VisibilityTimeout { floor: ceiling, ceiling: floor }),
            ),
            (
                floor < SECOND || self.cancel_grace.saturating_mul(2) < floor,
                format!(
                    "{PREFIX}CANCEL_GRACE is {}, and must be less than half of the shortest {visibility} ({}): \
                     a handler is cancelled that long before its lease ends",
                    Text(self.cancel_grace),
                    Text(floor),
                ),
                format!("{PREFIX}CANCEL_GRACE={}", Text(floor / 4)),
            ),
            (
                queue.wait_time <= LONGEST_WAIT && is_whole(queue.wait_time),
                format!("{wait} is {}, and SQS takes whole seconds up to 20s", Text(queue.wait_time)),
                format!("{wait}=10s"),
            ),
            (
                queue.guard != GuardMode::None || queue.handler_timeout <= LONGEST_VISIBILITY,
                format!(
                    "{timeout} is {}, and with {}=none a handler has no longer than SQS hides its message, 12h",
                    Text(queue.handler_timeout),
                    variable(name, "GUARD"),
                ),
                format!("{timeout}=5m"),
            ),
        ]
    }

    /// Two queues by one address would take each other's messages.
    pub(super) fn check_addresses(&self) -> Vec<Problem> {
        let mut names: BTreeMap<String, &str> = BTreeMap::new();
        let mut problems = Vec::new();
        for (name, queue) in &self.queues {
            let address = queue.address.to_string();
            if let Some(other) = names.insert(address.clone(), name) {
                let moved = if address == *name { other } else { name };
                problems.push(Problem::new(
                    format!("the queues {other:?} and {name:?} are one and the same: {address}"),
                    format!("unset {}", variable(moved, setting_of(&queue.address))),
                ));
            }
        }
        problems
    }
}

fn limit_rules(name: &str, queue: &QueueConfig) -> [Rule; 7] {
    let zero = |setting: &str, value: u32, default: u32| {
        let variable = variable(name, setting);
        (value > 0, format!("{variable} is 0, and must be 1 at least"), format!("{variable}={default}"))
    };
    let Backoff { base, cap } = queue.backoff;
    let (concurrency, backoff) = (variable(name, "CONCURRENCY"), variable(name, "BACKOFF"));
    let (timeout, ttl) = (variable(name, "HANDLER_TIMEOUT"), variable(name, "DONE_TTL"));
    let operation = variable(name, "OPERATION");
    let length = queue.operation.len();
    [
        (
            (1..=MOST_IN_FLIGHT).contains(&queue.concurrency),
            format!("{concurrency} is {}, and must be 1 to {MOST_IN_FLIGHT}", queue.concurrency),
            format!("{concurrency}=20"),
        ),
        zero("MAX_ATTEMPTS", queue.max_attempts, 5),
        zero("MAX_TAKEOVERS", queue.max_takeovers, 10),
        (
            !base.is_zero() && base <= cap && cap <= LONGEST_VISIBILITY,
            format!("{backoff} is {}, and must begin above 0s, not above its end, and end within 12h", queue.backoff),
            format!("{backoff}=10s..15m"),
        ),
        (!queue.handler_timeout.is_zero(), format!("{timeout} is 0s: no handler could run"), format!("{timeout}=5m")),
        (
            queue.done_ttl >= SECOND,
            format!("{ttl} is {}, and must be 1s at least", Text(queue.done_ttl)),
            format!("{ttl}=30d"),
        ),
        (
            (1..=LONGEST_NAME).contains(&length),
            format!("{operation} must have 1 to {LONGEST_NAME} bytes, and has {length}"),
            format!("{operation}=payments"),
        ),
    ]
}

/// The name of a FIFO queue, and no other's, ends in `.fifo`; so do its URL and its ARN.
fn dead_letter_rules(name: &str, queue: &QueueConfig) -> [Rule; 2] {
    let variable = variable(name, "DEAD_LETTER");
    let address = queue.address.to_string();
    [
        (
            queue.dead_letter != DeadLetter::Keep || !address.ends_with(".fifo"),
            format!("{variable} is keep, and {address} is a FIFO queue, where what is kept blocks its message group"),
            format!("{variable}=keep-fifo"),
        ),
        (
            queue.dead_letter != DeadLetter::Queue(queue.address.clone()),
            format!("{variable} is the queue itself, {address}: what has failed for good would come back for ever"),
            format!("{variable}=redrive-policy"),
        ),
    ]
}

/// What a pointer names is its sender's choice.
fn bucket_rule(name: &str, queue: &QueueConfig) -> Rule {
    let (payload, buckets) = (variable(name, "S3_PAYLOAD"), variable(name, "S3_BUCKETS"));
    (
        queue.s3_payload != S3Payload::FetchDelete || queue.s3_buckets.is_some(),
        format!(
            "{payload} is fetch-delete, and {buckets} names no bucket: whoever sends a message could have any object \
             deleted that this worker may delete"
        ),
        format!("{buckets}=payments-bodies"),
    )
}

fn broken<const N: usize>(rules: [Rule; N]) -> Vec<Problem> {
    rules.into_iter().filter(|(holds, ..)| !holds).map(|(_, what, mend)| Problem::new(what, mend)).collect()
}

/// An address that only code can make: none that SQS has, or of another kind than it says.
fn misaddressed(name: &str, address: &QueueAddress) -> Option<Problem> {
    let mended = match address.to_string().parse::<QueueAddress>() {
        Ok(read) if read == *address => return None,
        Ok(read) => read,
        Err(error) => error.instead.parse().unwrap_or_else(|_| QueueAddress::Name(name.to_owned())),
    };
    let (variable, mended_variable) = (variable(name, setting_of(address)), variable(name, setting_of(&mended)));
    let what = format!("{variable} is {:?}, by which no queue can be found", address.to_string());
    Some(Problem::new(what, format!("{mended_variable}={mended}")))
}

/// The setting that an address comes from.
fn setting_of(address: &QueueAddress) -> &'static str {
    match address {
        QueueAddress::Url(_) | QueueAddress::Arn(_) => "URL",
        QueueAddress::Name(_) => "NAME",
    }
}

/// Whether a value that code may have made is one that the setting can have: no duration so long that clocks overflow,
/// no pointer that leads nowhere. Holds for all that were read.
fn writable<T>(variable: impl fmt::Display, value: Option<&T>) -> Option<Problem>
where
    T: FromStr<Err = ValueError> + fmt::Display + PartialEq,
{
    let value = value?;
    match value.to_string().parse::<T>() {
        Ok(read) if read == *value => None,
        Ok(read) => {
            Some(Problem::new(format!("{variable} is not what its text says: {value}"), format!("{variable}={read}")))
        }
        Err(error) => {
            Some(Problem::new(format!("{variable}: {}", error.what), format!("{variable}={}", error.instead)))
        }
    }
}

/// A header that only code can make. Its value is not told.
fn unsendable(name: &str, header: &HandlerHeader) -> Option<Problem> {
    let read = format!("{}: {}", header.name, header.value).parse::<HandlerHeader>();
    let variable = variable(name, "HANDLER_HEADER");
    let what = match read {
        Ok(read) if read == *header => return None,
        Ok(_) => format!("{variable}: the header {:?} is not written as it would be sent", header.name),
        Err(error) => format!("{variable}: {}", error.what),
    };
    Some(Problem::new(what, format!("{variable}='Authorization: Bearer <token>'")))
}

fn is_whole(duration: Duration) -> bool {
    duration.subsec_nanos() == 0
}

/// A table's name, or its ARN, which DynamoDB takes in place of a name.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html>
fn is_table(text: &str) -> bool {
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (text.starts_with("arn:") && text.contains(":table/"))
        || ((3..=255).contains(&text.len()) && text.chars().all(named))
}
