//! A queue's dead-letter queue: whether it is there, and whether what is sent or moved there is kept for somebody to see.
//!
//! Pure.

use std::time::Duration;

use super::{
    Finding, Severity,
    checks::{
        DEAD_LETTER, DEAD_LETTER_KIND, DEAD_LETTER_PLACE, DEAD_LETTER_RETENTION, DEAD_LETTER_SIZE, DONE_TTL,
        ENCRYPTION, REDRIVE_ALLOW, TWO_DEAD_LETTER_QUEUES,
    },
    cli::{self, Place},
    create,
    look::{Examined, Look},
    queue::{Asked, looked_at, resource},
    rights,
    sheet::Sheet,
};
use crate::{
    config::{DeadLetter, DurationText as Text, Problem, retention::LONGEST_RETENTION, variable},
    queue::{LARGEST_MESSAGE, QueueFacts, RedriveAllow, usual_dead_letter_name},
};

/// What a copy may carry beside the message: the reason, with what the handler said.
const NOTE: usize = 4 * 1024;

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A queue, and that to which its dead letters go.
type Pair<'a> = (&'a Asked<'a>, &'a QueueFacts, &'a QueueFacts);

const OF_BOTH: [fn(Pair<'_>) -> Option<Finding>; 8] =
    [kind, retention, size, place, redrive_allow, two, done_ttl, encryption];

/// Everything about a queue's dead letters.
pub(super) fn judge(sheet: &mut Sheet, asked: &Asked<'_>, examined: &Examined) {
    match (&examined.queue, &examined.destination) {
        (Look::Seen(facts), Err(problem)) => return sheet.note(Some(none(asked, facts, problem, examined))),
        // A worker does not start then: the redrive policy is not shown to it, and nothing else names one.
        (Look::Denied(_), Err(Problem { what, mend, .. })) => {
            return sheet.note(Some(DEAD_LETTER.error(asked.subject(), what.clone(), mend.clone())));
        }
        // Nothing is to be said of the dead letters of a queue that is not there.
        (_, Err(_)) => return,
        (_, Ok(_)) => sheet.note(None),
    }
    let Some(dead) = &examined.dead_letters else { return };
    if matches!(dead.queue, Look::NoCredentials(_)) {
        return;
    }
    sheet.note(looked_at(asked, "the dead-letter queue", &dead.address, &dead.queue));
    for tried in &dead.rights {
        sheet.note(rights::on_queue(asked.subject(), &resource(&dead.address, &dead.queue), tried));
    }
    if let (Some(facts), Some(dead)) = (examined.queue.facts(), dead.queue.facts()) {
        OF_BOTH.iter().for_each(|check| sheet.note(check((asked, facts, dead))));
    }
}

/// None, where there is to be one.
fn none(asked: &Asked<'_>, facts: &QueueFacts, problem: &Problem, examined: &Examined) -> Finding {
    let usual = examined.dead_letters.as_ref().filter(|_| asked.config.dead_letter == DeadLetter::RedrivePolicy);
    let mend = match usual {
        Some(dead) => named(asked, facts, matches!(dead.queue, Look::Absent(_))),
        None => problem.mend.clone(),
    };
    DEAD_LETTER.error(asked.subject(), problem.what.clone(), mend)
}

/// A line that names the dead-letter queue of the usual name, beside the queue, in its redrive policy; and makes that first.
fn named(asked: &Asked<'_>, facts: &QueueFacts, make: bool) -> String {
    let (before, own) = facts.arn.rsplit_once(':').unwrap_or_default();
    let usual = usual_dead_letter_name(own);
    let policy = cli::redrive_policy(&format!("{before}:{usual}"), asked.good_receives(facts.fifo));
    let set = cli::set(facts, &[("RedrivePolicy", policy)]);
    if make { format!("{}{} && {set}", create::dead_letters(&usual), cli::region_option(&facts.arn)) } else { set }
}

/// A line that has dead letters go where SQS moves them; or, if that is what is wrong, to a queue of their own.
fn back(asked: &Asked<'_>, facts: &QueueFacts, dead: &QueueFacts) -> String {
    if facts.redrive.is_some() && !is_the_policys(facts, dead) {
        asked.line("DEAD_LETTER", "redrive-policy")
    } else {
        named(asked, facts, true)
    }
}

/// Whether it is SQS, too, that moves messages there.
fn is_the_policys(facts: &QueueFacts, dead: &QueueFacts) -> bool {
    facts.redrive.as_ref().is_some_and(|policy| policy.dead_letter_arn == dead.arn)
}

fn kind((asked, facts, dead): Pair<'_>) -> Option<Finding> {
    let told = |fifo| if fifo { "FIFO" } else { "standard" };
    (facts.fifo != dead.fifo).then(|| {
        let found =
            format!("the queue is {}, and its dead-letter queue {} {}", told(facts.fifo), dead.arn, told(dead.fifo));
        let severity = if is_the_policys(facts, dead) { Severity::Error } else { Severity::Warning };
        DEAD_LETTER_KIND.found(severity, asked.subject(), found, Some(back(asked, facts, dead)))
    })
}

/// What we copy is sent anew; what SQS moves is as old there as it was, on standard queues.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/setting-up-dead-letter-queue-retention.html>
fn retention((asked, facts, dead): Pair<'_>) -> Option<Finding> {
    let severity = match dead.retention.cmp(&facts.retention) {
        std::cmp::Ordering::Less if !facts.fifo => Severity::Error,
        std::cmp::Ordering::Equal if facts.fifo => return None,
        std::cmp::Ordering::Greater => return None,
        _ => Severity::Warning,
    };
    let found = format!(
        "the queue keeps messages for {}, and its dead-letter queue {} for {}: it is to keep them longer",
        Text(facts.retention),
        dead.arn,
        Text(dead.retention)
    );
    let keep = |facts, time: Duration| cli::set(facts, &[("MessageRetentionPeriod", time.as_secs().to_string())]);
    let mend = if dead.retention < LONGEST_RETENTION {
        keep(dead, LONGEST_RETENTION)
    } else {
        // Nothing is kept longer than that, so that the queue itself has to keep less. Then SQS drops what is older, and so
        // the line does not stand alone.
        let less = LONGEST_RETENTION.saturating_sub(A_DAY);
        let line = keep(facts, less);
        format!("once the queue has no messages older than {}, for they are dropped then: {line}", Text(less))
    };
    Some(DEAD_LETTER_RETENTION.found(severity, asked.subject(), found, Some(mend)))
}

fn size((asked, facts, dead): Pair<'_>) -> Option<Finding> {
    let wanted = facts.largest_message.saturating_add(NOTE).min(LARGEST_MESSAGE);
    if dead.largest_message >= wanted {
        return None;
    }
    let found = format!(
        "the queue takes messages of {} bytes, and its dead-letter queue {} of {}",
        facts.largest_message, dead.arn, dead.largest_message
    );
    let mend = cli::set(dead, &[("MaximumMessageSize", LARGEST_MESSAGE.to_string())]);
    let severity = if dead.largest_message < facts.largest_message { Severity::Error } else { Severity::Note };
    Some(DEAD_LETTER_SIZE.found(severity, asked.subject(), found, Some(mend)))
}

fn place((asked, facts, dead): Pair<'_>) -> Option<Finding> {
    let (Some(here), Some(there)) = (Place::of(&facts.arn), Place::of(&dead.arn)) else { return None };
    (here != there).then(|| {
        let found = format!(
            "the queue is in region {}, account {}, and its dead-letter queue {} in region {}, account {}",
            here.region, here.account, dead.arn, there.region, there.account
        );
        DEAD_LETTER_PLACE.warning(asked.subject(), found, back(asked, facts, dead))
    })
}

/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-dead-letter-queues.html>
fn redrive_allow((asked, facts, dead): Pair<'_>) -> Option<Finding> {
    let may = match &dead.redrive_allow {
        RedriveAllow::All => true,
        RedriveAllow::Nobody => false,
        RedriveAllow::These(arns) => arns.contains(&facts.arn),
    };
    (is_the_policys(facts, dead) && !may).then(|| {
        let mut arns = match &dead.redrive_allow {
            RedriveAllow::These(arns) => arns.clone(),
            RedriveAllow::All | RedriveAllow::Nobody => Vec::new(),
        };
        arns.push(facts.arn.clone());
        let policy = serde_json::json!({ "redrivePermission": "byQueue", "sourceQueueArns": arns }).to_string();
        let found = format!("the redrive allow policy of {} does not name {}", dead.arn, facts.arn);
        REDRIVE_ALLOW.error(asked.subject(), found, cli::set(dead, &[("RedriveAllowPolicy", policy)]))
    })
}

fn two((asked, facts, dead): Pair<'_>) -> Option<Finding> {
    let policy = facts.redrive.as_ref().filter(|policy| policy.dead_letter_arn != dead.arn)?;
    let found = format!(
        "{} is {}, and the redrive policy names {}",
        variable(asked.name, "DEAD_LETTER"),
        dead.arn,
        policy.dead_letter_arn
    );
    Some(TWO_DEAD_LETTER_QUEUES.note(asked.subject(), found, asked.line("DEAD_LETTER", "redrive-policy")))
}

/// A message can be put back when it has been in both queues for as long as they keep it.
fn done_ttl((asked, facts, dead): Pair<'_>) -> Option<Finding> {
    let (ttl, together) = (asked.config.done_ttl, facts.retention + dead.retention);
    // A shorter one still is told of the queue alone.
    (asked.is_guarded() && ttl < together && ttl >= facts.retention).then(|| {
        let found = format!(
            "\"done\" is remembered for {}, and a message can be {} old when it is put back from the dead-letter queue",
            Text(ttl),
            Text(together)
        );
        DONE_TTL.warning(asked.subject(), found, asked.line("DONE_TTL", Text(together)))
    })
}

/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-key-management.html>
fn encryption((asked, _, dead): Pair<'_>) -> Option<Finding> {
    let grant = cli::allow_key(&["kms:Decrypt", "kms:GenerateDataKey"], dead)?;
    let key = dead.kms_key.as_deref().unwrap_or_default();
    let found = format!("the dead-letter queue {} is encrypted with the key {key}", dead.arn);
    Some(ENCRYPTION.note(asked.subject(), found, grant))
}
