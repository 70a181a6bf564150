//! What concerns no single queue: settings, the stop, and what two queues have in common.
//!
//! Pure.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Ask, Finding, Subject,
    checks::{
        CREDENTIALS, DEAD_LETTER_WORKED_ON, PLACE, QUEUES, SAME_QUEUE, SETTINGS, SHARED_DEAD_LETTER_QUEUE,
        SHARED_OPERATION, STOP_TIMEOUT,
    },
    cli::Place,
    look::{Examined, TableLook},
    queue::Asked,
    sheet::Sheet,
};
use crate::{
    config::{Config, DRAIN_RESERVE, DurationText as Text, variable},
    queue::usual_dead_letter_name,
};

/// How much earlier than the kill a drain is to end: the process has to end too.
const BEFORE_THE_KILL: Duration = Duration::from_secs(5);

/// A queue beside what was found of it.
pub(super) type Of<'a> = (&'a Asked<'a>, &'a Examined);

/// Settings.
pub(super) fn judge(sheet: &mut Sheet, config: &Config, ask: &Ask) {
    sheet.note(queues(config, ask));
    let problems = if config.queues.is_empty() { Vec::new() } else { config.check() };
    let s3 = config.queues.iter().filter_map(|(name, queue)| queue.needs_s3(name).filter(|_| !cfg!(feature = "s3")));
    let problems: Vec<_> = problems.into_iter().chain(s3).collect();
    if problems.is_empty() {
        sheet.note(None);
    }
    for problem in problems {
        sheet.note(Some(SETTINGS.error(Subject::Worker, problem.what, problem.mend)));
    }
    sheet.note(stop_timeout(config, ask.stop_timeout));
}

fn queues(config: &Config, ask: &Ask) -> Option<Finding> {
    config.queues.is_empty().then(|| {
        let mend = |names: &str| format!("LEASEHOLD_QUEUES={names}");
        if ask.queues.is_empty() {
            QUEUES.error(Subject::Worker, "LEASEHOLD_QUEUES is not set: there is no queue to look at", mend("payments"))
        } else {
            let found = "LEASEHOLD_QUEUES is not set: queues are judged with settings as they are by default";
            QUEUES.note(Subject::Worker, found, mend(&ask.queues.join(",")))
        }
    })
}

fn stop_timeout(config: &Config, stop: Duration) -> Option<Finding> {
    let drain = config.drain_timeout;
    if drain < stop {
        return None;
    }
    let found = format!(
        "LEASEHOLD_DRAIN_TIMEOUT is {}, and the worker is killed {} after the signal (stopTimeout)",
        Text(drain),
        Text(stop)
    );
    let shorter = stop.saturating_sub(BEFORE_THE_KILL);
    let mend = if shorter > config.cancel_grace.saturating_add(DRAIN_RESERVE) {
        format!("LEASEHOLD_DRAIN_TIMEOUT={}", Text(shorter))
    } else {
        let seconds = drain.saturating_add(BEFORE_THE_KILL).as_secs();
        format!("\"stopTimeout\": {seconds} # in the container's definition")
    };
    Some(STOP_TIMEOUT.error(Subject::Worker, found, mend))
}

/// Whether AWS knows who asks. `said` is what it, or whoever was to have the credentials, said of them.
pub(super) fn judge_credentials(sheet: &mut Sheet, said: Option<String>) {
    let mend = "aws sso login # or `aws configure`, or AWS_PROFILE; a worker has them from a role: of its ECS task \
                (taskRoleArn), its EC2 instance or its EKS service account. `aws sts get-caller-identity` shows whose they are";
    let found = |said| format!("no valid credentials: {said}; nothing that they are needed for was judged");
    sheet.note(said.map(|said| CREDENTIALS.error(Subject::Worker, found(said), mend.to_owned())));
}

/// What two queues have in common.
pub(super) fn judge_together(sheet: &mut Sheet, config: &Config, queues: &[Of<'_>]) {
    if queues.len() > 1 {
        for found in [same_queue(queues), shared_operation(config, queues), shared_dead_letters(queues)] {
            let is_fine = found.is_empty();
            found.into_iter().for_each(|finding| sheet.note(Some(finding)));
            if is_fine {
                sheet.note(None);
            }
        }
    }
    let worked_on: BTreeMap<&str, &str> = queues.iter().filter_map(|of| Some((arn(of)?, of.0.name))).collect();
    for of in queues {
        if let Some(dead) = dead_letter_arn(of) {
            sheet.note(worked_on.get(dead).map(|by| dead_letters_worked_on(of.0, by)));
        }
    }
}

fn arn<'a>((_, examined): &Of<'a>) -> Option<&'a str> {
    examined.queue.facts().map(|facts| facts.arn.as_str())
}

fn dead_letter_arn<'a>((_, examined): &Of<'a>) -> Option<&'a str> {
    let dead = examined.dead_letters.as_ref().filter(|_| examined.destination.is_ok())?;
    dead.queue.facts().map(|facts| facts.arn.as_str())
}

/// The names of those that have something in common, by what that is.
fn in_common<'a, T: Ord>(queues: &[Of<'a>], of: impl Fn(&Of<'a>) -> Option<T>) -> Vec<(T, Vec<&'a str>)> {
    let mut names: BTreeMap<T, Vec<&'a str>> = BTreeMap::new();
    for queue in queues {
        if let Some(common) = of(queue) {
            names.entry(common).or_default().push(queue.0.name);
        }
    }
    names.into_iter().filter(|(_, names)| names.len() > 1).collect()
}

fn last(names: &[&str]) -> Subject {
    Subject::Queue(names.last().copied().unwrap_or_default().to_owned())
}

fn same_queue(queues: &[Of<'_>]) -> Vec<Finding> {
    let same = in_common(queues, arn);
    let tell = |(arn, names): (&str, Vec<&str>)| {
        let variable = variable(names.last().copied().unwrap_or_default(), "NAME");
        let found = format!("{} are one and the same queue: {arn}", names.join(" and "));
        SAME_QUEUE.error(last(&names), found, format!("{variable}=<another queue>"))
    };
    same.into_iter().map(tell).collect()
}

fn shared_operation(config: &Config, queues: &[Of<'_>]) -> Vec<Finding> {
    let shared = in_common(queues, |(asked, _)| asked.is_guarded().then_some(asked.config.operation.as_str()));
    let tell = |(operation, names): (&str, Vec<&str>)| {
        let own = names.last().copied().unwrap_or_default();
        let namespace = config.namespace.as_ref().map(|name| format!(" in namespace {name}")).unwrap_or_default();
        let found =
            format!("{} have one operation, {operation}{namespace}: their keys are shared", names.join(" and "));
        SHARED_OPERATION.note(last(&names), found, format!("{}={own}", variable(own, "OPERATION")))
    };
    shared.into_iter().map(tell).collect()
}

fn shared_dead_letters(queues: &[Of<'_>]) -> Vec<Finding> {
    let shared = in_common(queues, dead_letter_arn);
    let tell = |(arn, names): (&str, Vec<&str>)| {
        let found = format!("{} have one dead-letter queue: {arn}", names.join(" and "));
        SHARED_DEAD_LETTER_QUEUE.note(last(&names), found, None)
    };
    shared.into_iter().map(tell).collect()
}

fn dead_letters_worked_on(asked: &Asked<'_>, by: &str) -> Finding {
    if by == asked.name {
        let usual = usual_dead_letter_name(asked.config.address.queue_name());
        let found = "its dead-letter queue is the queue itself";
        return DEAD_LETTER_WORKED_ON.error(asked.subject(), found, asked.line("DEAD_LETTER", usual));
    }
    let others: Vec<_> = asked.whole.queues.keys().map(String::as_str).filter(|name| *name != by).collect();
    let found = format!("its dead-letter queue is worked on by {by}");
    DEAD_LETTER_WORKED_ON.warning(asked.subject(), found, format!("LEASEHOLD_QUEUES={}", others.join(",")))
}

/// Whether queues and the table are in one region and account.
pub(super) fn judge_places(sheet: &mut Sheet, table: &str, look: &TableLook, queues: &[Of<'_>]) {
    let Some(there) = look.facts.as_ref().ok().and_then(|facts| Place::of(&facts.arn)) else { return };
    for of in queues.iter().filter(|(asked, _)| asked.is_guarded()) {
        let Some(here) = arn(of).and_then(Place::of) else { continue };
        sheet.note((here != there).then(|| {
            let found = format!(
                "the queue is in region {}, account {}, and the table {table:?} in region {}, account {}",
                here.region, here.account, there.region, there.account
            );
            let mend = format!("AWS_REGION={}, or another LEASEHOLD_TABLE", here.region);
            PLACE.warning(of.0.subject(), found, mend)
        }));
    }
}
