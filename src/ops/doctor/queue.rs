//! One queue: its settings, what SQS tells of it, and what the worker may do with it.
//!
//! Pure. Every check is a function that finds something or nothing.

use std::time::Duration;

use super::{
    Ask, Finding, P99, P99Source, Severity, Subject,
    checks::{
        CONTENT_DEDUPLICATION, COULD_NOT_LOOK, DONE_TTL, DRAIN, ENCRYPTION, HANDLER, HANDLER_TIMEOUT, KEY, KEY_REDRIVE,
        MAX_RECEIVE_COUNT, QUEUE, REDRIVE_POLICY, RETENTION, UNREACHABLE, VISIBILITY, WAIT_TIME,
    },
    cli, dead_letters,
    look::{Examined, Look},
    rights,
    sheet::Sheet,
};
use crate::{
    config::{
        Config, DRAIN_RESERVE, DurationText as Text, GuardMode, QueueConfig, VisibilityTimeout,
        explain::{WHY_LOWERED, longest_wait},
        retention, variable,
    },
    fit,
    queue::{LONGEST_VISIBILITY, QueueAddress, QueueFacts},
};

/// A queue and what is known of it before it is looked at.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) name: &'a str,
    pub(super) config: &'a QueueConfig,
    pub(super) whole: &'a Config,
    pub(super) p99: Option<P99>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(name: &'a str, config: &'a QueueConfig, whole: &'a Config, ask: &Ask) -> Self {
        Self { name, config, whole, p99: ask.p99.get(name).copied() }
    }

    pub(super) fn subject(&self) -> Subject {
        Subject::Queue(self.name.to_owned())
    }

    /// A line that sets one of the queue's settings.
    pub(super) fn line(&self, setting: &str, value: impl std::fmt::Display) -> String {
        format!("{}={value}", variable(self.name, setting))
    }

    pub(super) fn is_guarded(&self) -> bool {
        self.config.guard == GuardMode::Claim
    }

    /// How many receives a message may need at the least: each attempt can be put off, interrupted and taken over, and a
    /// follower in a FIFO group is received and given back for failures of its head.
    pub(super) fn least_receives(&self, fifo: bool) -> u32 {
        let each = if fifo { FIFO_RECEIVES } else { RECEIVES };
        self.config.max_attempts.saturating_mul(each).min(cli::LARGEST_RECEIVE_COUNT)
    }

    /// What `maxReceiveCount` is best set to: out of the way of all that counts by itself.
    pub(super) fn good_receives(&self, fifo: bool) -> u32 {
        self.least_receives(fifo).max(GOOD_RECEIVES)
    }
}

/// Receives for each attempt, at the least.
const RECEIVES: u32 = 4;

/// The same on a FIFO queue.
const FIFO_RECEIVES: u32 = 10;

/// What `maxReceiveCount` is where nothing asks for more.
const GOOD_RECEIVES: u32 = 100;

/// By settings alone.
const OF_SETTINGS: [fn(&Asked<'_>) -> Option<Finding>; 4] = [handler, key, wait_time, longest_handler];

/// By how long handlers take.
const OF_TIME: [fn(&Asked<'_>, P99) -> Option<Finding>; 3] = [visibility, handler_timeout, drain];

/// By what SQS tells.
const OF_FACTS: [fn(&Asked<'_>, &QueueFacts) -> Option<Finding>; 9] = [
    unfit_key,
    key_of_content,
    key_of_redrive,
    content_deduplication,
    retention,
    done_ttl,
    max_receive_count,
    redrive_policy,
    encryption,
];

/// Everything about one queue and its dead-letter queue.
pub(super) fn judge(sheet: &mut Sheet, asked: &Asked<'_>, examined: &Examined) {
    OF_SETTINGS.iter().for_each(|check| sheet.note(check(asked)));
    if let Some(p99) = asked.p99 {
        OF_TIME.iter().for_each(|check| sheet.note(check(asked, p99)));
    }
    if matches!(examined.queue, Look::NoCredentials(_)) {
        return;
    }
    sheet.note(looked_at(asked, "the queue", &asked.config.address, &examined.queue));
    if let Some(facts) = examined.queue.facts() {
        OF_FACTS.iter().for_each(|check| sheet.note(check(asked, facts)));
    }
    let resource = resource(&asked.config.address, &examined.queue);
    for tried in &examined.rights {
        sheet.note(rights::on_queue(asked.subject(), &resource, tried));
    }
    dead_letters::judge(sheet, asked, examined);
}

/// Whether a queue is there and shows itself.
pub(super) fn looked_at(asked: &Asked<'_>, what: &str, address: &QueueAddress, look: &Look) -> Option<Finding> {
    let subject = asked.subject();
    match look {
        // What there is to be said of the credentials is said once.
        Look::Seen(_) | Look::NoCredentials(_) => None,
        Look::Denied(error) => {
            let found = format!("{what} ({address}): {error}; nothing that SQS tells of it was judged");
            let mend = cli::allow("sqs:GetQueueAttributes", &resource(address, look));
            Some(COULD_NOT_LOOK.warning(subject, found, mend))
        }
        // It may be elsewhere; and where it can be made, the report says how.
        Look::Absent(problem) | Look::Unusable(problem) => {
            Some(QUEUE.error(subject, problem.what.clone(), problem.mend.clone()))
        }
        Look::Away(error) => Some(UNREACHABLE.error(subject, format!("{what} ({address}): {error}"), None)),
    }
}

/// A queue's ARN, or what a policy can name it by.
pub(super) fn resource(address: &QueueAddress, look: &Look) -> String {
    match (look.facts(), address) {
        (Some(facts), _) => facts.arn.clone(),
        (None, QueueAddress::Arn(arn)) => arn.clone(),
        (None, address) => format!("arn:aws:sqs:*:*:{}", address.queue_name()),
    }
}

fn handler(asked: &Asked<'_>) -> Option<Finding> {
    let config = asked.config;
    config.handler.is_none().then(|| {
        let keyless = asked.is_guarded() && config.key.is_none();
        let found = format!(
            "{} is not set: the handler has to be in code{}",
            variable(asked.name, "HANDLER"),
            if keyless { ", and name the key there" } else { "" }
        );
        HANDLER.note(asked.subject(), found, asked.line("HANDLER", format_args!("'exec:./handle-{}'", asked.name)))
    })
}

/// Where the handler is in code, so may the key be.
fn key(asked: &Asked<'_>) -> Option<Finding> {
    let config = asked.config;
    let is_wanted = asked.is_guarded() && config.handler.is_some() && config.key.is_none();
    is_wanted.then(|| {
        let problem = fit::unkeyed(asked.name);
        KEY.error(asked.subject(), problem.what, problem.mend)
    })
}

fn wait_time(asked: &Asked<'_>) -> Option<Finding> {
    let most = longest_wait(asked.config.visibility_timeout.floor, asked.whole.drain_timeout);
    (asked.config.wait_time > most).then(|| {
        let variable = variable(asked.name, "WAIT_TIME");
        let found =
            format!("{variable} is {}, and is lowered to {}: {WHY_LOWERED}", Text(asked.config.wait_time), Text(most));
        WAIT_TIME.note(asked.subject(), found, asked.line("WAIT_TIME", Text(most)))
    })
}

fn longest_handler(asked: &Asked<'_>) -> Option<Finding> {
    let timeout = asked.config.handler_timeout;
    (asked.is_guarded() && timeout > LONGEST_VISIBILITY).then(|| {
        let found = format!(
            "{} is {}, and SQS hides no message for longer than 12h: then it is received again and again, and waits for \
             the lease of the run that goes on",
            variable(asked.name, "HANDLER_TIMEOUT"),
            Text(timeout)
        );
        HANDLER_TIMEOUT.warning(asked.subject(), found, asked.line("HANDLER_TIMEOUT", Text(LONGEST_VISIBILITY)))
    })
}

/// A p99, and who says so.
fn told(P99 { time, source }: P99) -> String {
    let source = match source {
        P99Source::Given => "as given",
        P99Source::Measured => "as measured by the running worker",
    };
    format!("{} ({source})", Text(time))
}

/// In whole seconds, rounded up.
fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

fn visibility(asked: &Asked<'_>, p99: P99) -> Option<Finding> {
    let range = asked.config.visibility_timeout;
    let wanted = whole_seconds(p99.time.saturating_mul(2)).min(LONGEST_VISIBILITY);
    if range.ceiling >= wanted {
        return None;
    }
    let floor = if range.floor == range.ceiling { wanted } else { range.floor };
    let found = format!(
        "{} is {range}, and the p99 of handler time is {}: the timeout is to be twice that, {}",
        variable(asked.name, "VISIBILITY_TIMEOUT"),
        told(p99),
        Text(wanted)
    );
    let mend = asked.line("VISIBILITY_TIMEOUT", VisibilityTimeout { floor, ceiling: wanted });
    Some(VISIBILITY.warning(asked.subject(), found, mend))
}

fn handler_timeout(asked: &Asked<'_>, p99: P99) -> Option<Finding> {
    let timeout = asked.config.handler_timeout;
    (p99.time >= timeout).then(|| {
        let variable = variable(asked.name, "HANDLER_TIMEOUT");
        let found = format!("{variable} is {}, and the p99 of handler time is {}", Text(timeout), told(p99));
        let mend = asked.line("HANDLER_TIMEOUT", Text(whole_seconds(p99.time.saturating_mul(2))));
        HANDLER_TIMEOUT.error(asked.subject(), found, mend)
    })
}

fn drain(asked: &Asked<'_>, p99: P99) -> Option<Finding> {
    let whole = asked.whole;
    let left = whole.drain_timeout.saturating_sub(DRAIN_RESERVE + whole.cancel_grace);
    (p99.time > left).then(|| {
        let found = format!(
            "a drain leaves handlers {} (LEASEHOLD_DRAIN_TIMEOUT {}), and their p99 is {}: some are cut off at each stop",
            Text(left),
            Text(whole.drain_timeout),
            told(p99)
        );
        DRAIN.note(asked.subject(), found, None)
    })
}

fn unfit_key(asked: &Asked<'_>, facts: &QueueFacts) -> Option<Finding> {
    let problem = fit::keys::unfit(asked.name, asked.config, facts)?;
    Some(KEY.error(asked.subject(), problem.what, problem.mend))
}

fn key_of_content(asked: &Asked<'_>, facts: &QueueFacts) -> Option<Finding> {
    let found = fit::keys::of_content(asked.name, asked.config, facts)?;
    Some(KEY.warning(asked.subject(), found, asked.line("KEY", "/order_id")))
}

fn key_of_redrive(asked: &Asked<'_>, facts: &QueueFacts) -> Option<Finding> {
    // Of one that is none at all it need not be said.
    let is_fit = fit::keys::unfit(asked.name, asked.config, facts).is_none();
    let found = fit::keys::of_redrive(asked.name, asked.config, facts).filter(|_| is_fit)?;
    Some(KEY_REDRIVE.warning(asked.subject(), found, asked.line("KEY", "/order_id")))
}

fn content_deduplication(asked: &Asked<'_>, facts: &QueueFacts) -> Option<Finding> {
    facts.content_based_deduplication.then(|| {
        let found = "content-based deduplication is on: a message without a deduplication id of its own is dropped if its \
                     body was there within 5 minutes. Producers must give ids before it is switched off";
        let mend = cli::set(facts, &[("ContentBasedDeduplication", "false".to_owned())]);
        CONTENT_DEDUPLICATION.warning(asked.subject(), found, mend)
    })
}

fn retention(asked: &Asked<'_>, facts: &QueueFacts) -> Option<Finding> {
    let kept = facts.retention;
    let (severity, found, shorter) = match retention::too_short(asked.name, asked.config, kept) {
        Some(problem) => (Severity::Error, problem.what, problem.mend),
        None if retention::is_tight(asked.config, kept) => {
            let (attempts, backoff) = (asked.config.max_attempts, asked.config.backoff);
            let found = format!(
                "the queue keeps messages for {}, more than half of which the waits between {attempts} attempts can take \
                 (BACKOFF {backoff})",
                Text(kept)
            );
            (Severity::Warning, found, asked.line("BACKOFF", QueueConfig::new("").backoff))
        }
        None => return None,
    };
    let mend = match retention::enough(asked.config) {
        Some(enough) => cli::set(facts, &[("MessageRetentionPeriod", enough.as_secs().to_string())]),
        None => shorter,
    };
    Some(RETENTION.found(severity, asked.subject(), found, Some(mend)))
}

fn done_ttl(asked: &Asked<'_>, facts: &QueueFacts) -> Option<Finding> {
    let problem = fit::forgotten_early(asked.name, asked.config, facts).filter(|_| asked.is_guarded())?;
    Some(DONE_TTL.error(asked.subject(), problem.what, problem.mend))
}

fn max_receive_count(asked: &Asked<'_>, facts: &QueueFacts) -> Option<Finding> {
    let policy = facts.redrive.as_ref()?;
    let (count, attempts, least) =
        (policy.max_receive_count, asked.config.max_attempts, asked.least_receives(facts.fifo));
    if count >= least {
        return None;
    }
    let found = format!(
        "maxReceiveCount is {count}, with {attempts} attempts ({}); it is to be {least} at the least{}",
        variable(asked.name, "MAX_ATTEMPTS"),
        if facts.fifo { ", for messages behind a failing head are received too" } else { "" },
    );
    let policy = cli::redrive_policy(&policy.dead_letter_arn, asked.good_receives(facts.fifo));
    let mend = cli::set(facts, &[("RedrivePolicy", policy)]);
    let tell = if count < attempts { Severity::Error } else { Severity::Warning };
    Some(MAX_RECEIVE_COUNT.found(tell, asked.subject(), found, Some(mend)))
}

/// Only where dead letters go elsewhere by a setting: without that it is no dead-letter queue at all.
fn redrive_policy(asked: &Asked<'_>, facts: &QueueFacts) -> Option<Finding> {
    let is_meant = fit::destination(asked.name, asked.config, Some(facts)).is_ok();
    (facts.redrive.is_none() && is_meant).then(|| {
        let found = "the queue has no redrive policy: SQS moves nothing by itself";
        if asked.is_guarded() {
            REDRIVE_POLICY.note(asked.subject(), found, None)
        } else {
            REDRIVE_POLICY.warning(asked.subject(), format!("{found}, and without a guard nobody else counts"), None)
        }
    })
}

fn encryption(asked: &Asked<'_>, facts: &QueueFacts) -> Option<Finding> {
    let grant = cli::allow_key(&["kms:Decrypt"], facts)?;
    let found = format!("the queue is encrypted with the key {}", facts.kms_key.as_deref().unwrap_or_default());
    Some(ENCRYPTION.note(asked.subject(), found, grant))
}
