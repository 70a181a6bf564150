//! Judges the variables that no setting took: a slip that must be mended, a stranger to be told of, or none of ours.
//!
//! Pure, and last: it sees only what is left over, and it never changes a setting.

use std::collections::BTreeMap;

use super::{
    super::{Config, PREFIX, Problem, Scope, variable, variable_part},
    Warning, of_scope,
};

/// What variables, by name without the prefix, most likely are.
pub(super) fn judge(left: &BTreeMap<String, String>, config: &Config) -> (Vec<Problem>, Vec<Warning>) {
    let known = known_names(config);
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    let is_a_handler = left.contains_key("MESSAGE_ID") && left.contains_key("RECEIVE_COUNT");
    let is_told = |name: &str| is_a_handler && is_told_to_programs(name);
    for (name, value) in left.iter().filter(|(name, _)| !is_of_kubernetes(name) && !is_told(name)) {
        let variable = format!("{PREFIX}{name}");
        if let Some(meant) = meant(&name.to_uppercase(), config, &known) {
            let mend = if may_be_secret(&meant) {
                format!("{meant}=\"${variable}\"")
            } else {
                format!("{meant}={}", shell_words::quote(value))
            };
            problems.push(Problem::new(format!("{variable} is not a setting; {meant} is"), mend));
        } else if let Some((queue, _)) = of_listed_queue(&name.to_uppercase(), config) {
            let what = format!("{variable} is not a setting of the queue {queue:?}");
            problems.push(Problem::new(what, format!("unset {variable}")));
        } else {
            warnings.push(Warning(format!("{variable} is ignored: {}", stranger(name))));
        }
    }
    (problems, warnings)
}

fn known_names(config: &Config) -> Vec<String> {
    let of_all = of_scope(&[Scope::Process, Scope::Queue]).map(|setting| setting.name.to_owned());
    let of_each = config.queues.keys().flat_map(|queue| {
        let part = variable_part(queue);
        of_scope(&[Scope::Queue, Scope::EachQueue]).map(move |setting| format!("{part}_{}", setting.name))
    });
    of_all.chain(of_each).collect()
}

/// The variable that was meant: in the wrong place, or nearly written as it is.
fn meant(name: &str, config: &Config, known: &[String]) -> Option<String> {
    if of_scope(&[Scope::EachQueue]).any(|setting| setting.name == name) {
        return Some(variable(config.queues.keys().next().map_or("payments", String::as_str), name));
    }
    if let Some((_, setting)) = of_listed_queue(name, config)
        && of_scope(&[Scope::Process]).any(|process| process.name == setting)
    {
        return Some(format!("{PREFIX}{setting}"));
    }
    let distance = |known: &&String| strsim::osa_distance(name, known);
    let nearest = known.iter().min_by_key(distance)?;
    (distance(&nearest) <= slips(nearest)).then(|| format!("{PREFIX}{nearest}"))
}

/// Whether its value can be a header, or a URL with a password: it is named then, and not shown. A header under a name that
/// is wrong may be taken for a handler.
fn may_be_secret(meant: &str) -> bool {
    ["HANDLER", "HANDLER_HEADER"].iter().any(|setting| meant.ends_with(setting))
}

/// The queue whose variable it would be, and what follows the queue's name.
fn of_listed_queue<'a>(name: &'a str, config: &'a Config) -> Option<(&'a str, &'a str)> {
    config.queues.keys().find_map(|queue| match name.strip_prefix(&variable_part(queue))? {
        "" => Some((queue.as_str(), "")),
        rest => Some((queue.as_str(), rest.strip_prefix('_')?)),
    })
}

/// How many slips still leave a name recognisable: in `LOG` one, in a long name three.
fn slips(name: &str) -> usize {
    (name.len() / 3).min(3)
}

fn stranger(name: &str) -> String {
    let of_queue = |setting: &str| name.strip_suffix(setting).and_then(|rest| rest.strip_suffix('_'));
    let settings = of_scope(&[Scope::Queue, Scope::EachQueue]);
    match settings.filter_map(|setting| Some((setting.name, of_queue(setting.name)?))).min_by_key(|(_, q)| q.len()) {
        Some((setting, queue)) => format!("{PREFIX}QUEUES names no queue {queue:?} to have the setting {setting}"),
        None => "there is no such setting".to_owned(),
    }
}

/// Whether a program that handles a message is told it, and so everything that it runs, such as `leasehold send`.
fn is_told_to_programs(name: &str) -> bool {
    const TOLD: [&str; 12] = [
        "ATTEMPT",
        "ATTRIBUTES_OMITTED",
        "DEADLINE",
        "DEDUPLICATION_ID",
        "FENCE",
        "GROUP_ID",
        "IDEMPOTENCY_KEY",
        "MESSAGE_ID",
        "QUEUE",
        "RECEIVE_COUNT",
        "STEPS",
        "TRACE_HEADER",
    ];
    TOLD.contains(&name) || ["ATTRIBUTE_", "JOB_", "SNS_"].iter().any(|prefix| name.starts_with(prefix))
}

/// Whether Kubernetes sets it for a service whose name begins with ours: `LEASEHOLD_PORT_9464_TCP`,
/// `LEASEHOLD_SERVICE_HOST`, `LEASEHOLD_PAYMENTS_SERVICE_PORT_HTTP`.
/// <https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables>
fn is_of_kubernetes(name: &str) -> bool {
    let name = format!("_{name}");
    let numbered = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    name.starts_with("_SERVICE_")
        || name.starts_with("_PORT_")
        || name.ends_with("_PORT")
        || name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.split("_PORT_").skip(1).any(numbered)
}
