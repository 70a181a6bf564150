//! What makes queues and a table that are not there: lines for a shell, in the order in which they are to be run.
//!
//! What they make passes the checks beside them. `infra/queue.yaml` makes the same, with alarms and policies.

use std::time::Duration;

use super::{
    cli,
    look::{DeadLetters, Examined, Look, TableLook},
    queue::Asked,
};
use crate::{
    config::{Config, DeadLetter, QueueConfig, retention as kept, variable},
    guard::admin,
    queue::{QueueAddress, usual_dead_letter_name},
};

/// Where a line has the ARN that the shell got from the line before. No name of a queue has a colon.
const FROM_THE_SHELL: &str = "arn:DLQ_ARN";

/// The name of what nobody has named yet.
const EXAMPLE: &str = "payments";

/// Everything that is not there. `table` is there only if it is not.
pub(super) fn lines(config: &Config, queues: &[(&Asked<'_>, &Examined)], table: Option<&TableLook>) -> Vec<String> {
    let mut lines: Vec<String> = queues.iter().flat_map(|(asked, examined)| of_queue(asked, examined)).collect();
    if queues.is_empty() {
        lines.extend(both(EXAMPLE, &QueueConfig::new(EXAMPLE), None));
    }
    if table.is_some() {
        lines.push(admin::creation(&config.table));
        lines.push(format!("aws dynamodb wait table-exists --table-name {}", config.table));
        lines.push(admin::ttl(&config.table));
    }
    if config.queues.is_empty() {
        lines.extend(exports(queues.iter().map(|(asked, _)| asked.name)));
    }
    lines
}

fn of_queue(asked: &Asked<'_>, examined: &Examined) -> Vec<String> {
    let dead = examined.dead_letters.as_ref();
    match (&examined.queue, &asked.config.address) {
        (Look::Absent(_), QueueAddress::Name(name)) => both(name, asked.config, dead),
        // One that something names; of one that nothing names, its finding has the line.
        _ => dead.filter(|_| examined.destination.is_ok()).and_then(alone).into_iter().collect(),
    }
}

/// A dead-letter queue that is named and not there.
fn alone(DeadLetters { address, queue, .. }: &DeadLetters) -> Option<String> {
    let region = match (queue, address) {
        (Look::Absent(_), QueueAddress::Name(_)) => String::new(),
        (Look::Absent(_), QueueAddress::Arn(arn)) => cli::region_option(arn),
        _ => return None,
    };
    Some(format!("{}{region}", dead_letters(address.queue_name())))
}

/// A queue, and its dead-letter queue if that is not there either.
fn both(name: &str, config: &QueueConfig, dead: Option<&DeadLetters>) -> Vec<String> {
    let kept = ("MessageRetentionPeriod", retention(config).as_secs().to_string());
    if !matches!(config.dead_letter, DeadLetter::RedrivePolicy | DeadLetter::Queue(_)) {
        return vec![cli::create(name, &[kept])];
    }
    let whole = Config::default();
    let asked = Asked { name, config, whole: &whole, p99: None };
    let receives = asked.good_receives(name.ends_with(".fifo"));
    let policy = |arn| ("RedrivePolicy", cli::redrive_policy(arn, receives));
    if let Some(facts) = dead.and_then(|dead| dead.queue.facts()) {
        return vec![cli::create(name, &[kept, policy(&facts.arn)])];
    }
    let dead = dead.map_or_else(|| usual_dead_letter_name(name), |dead| dead.address.queue_name().to_owned());
    // Out of the single quotes, into the variable, and back.
    let source = cli::create(name, &[kept, policy(FROM_THE_SHELL)]).replace(FROM_THE_SHELL, "'\"$DLQ_ARN\"'");
    vec![
        format!("DLQ_URL=$({} --query QueueUrl --output text)", dead_letters(&dead)),
        format!(
            "DLQ_ARN=$(aws sqs get-queue-attributes --queue-url \"$DLQ_URL\" --attribute-names QueueArn --query \
             Attributes.QueueArn --output text)"
        ),
        source,
    ]
}

/// A line that makes a dead-letter queue, which keeps what it has for as long as SQS keeps anything.
pub(super) fn dead_letters(name: &str) -> String {
    cli::create(name, &[("MessageRetentionPeriod", kept::LONGEST_RETENTION.as_secs().to_string())])
}

/// How long a new queue keeps messages: long enough for its retries, and a day less than its dead-letter queue at the most.
pub(super) fn retention(config: &QueueConfig) -> Duration {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let most = kept::LONGEST_RETENTION - DAY;
    kept::enough(config).unwrap_or(most).min(most)
}

/// What a worker is started with.
fn exports<'a>(queues: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<_> = queues.collect();
    if names.is_empty() {
        names.push(EXAMPLE);
    }
    let mut lines = vec![format!("export LEASEHOLD_QUEUES={}", names.join(","))];
    for name in names {
        lines.push(format!("export {}=/order_id", variable(name, "KEY")));
        lines.push(format!("export {}='exec:./handle-{name}'", variable(name, "HANDLER")));
    }
    lines
}
