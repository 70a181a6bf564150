//! Where each value that is in force comes from, and what settings come to together.
//!
//! Pure: over the variables that a [`Config`] was read from, and the table of settings. Must never show what is secret.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Config, DRAIN_RESERVE, DurationText, GuardMode, HandlerSpec, PREFIX, QueueConfig, S3Payload, Scope, Setting, env,
    variable,
};

/// One setting as it is in force, and why it is so.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Explained {
    /// Whose setting it is; `None` is the process.
    pub queue: Option<String>,
    /// Its name in [`SETTINGS`](super::SETTINGS).
    pub setting: &'static str,
    /// Its value as it is written; `None` where it has none. Of headers there are the names only.
    pub value: Option<String>,
    /// The variable that it comes from; `None` is the default.
    pub variable: Option<String>,
}

impl Config {
    /// Every setting of the process and of each queue, in the order of [`SETTINGS`](super::SETTINGS). `vars` are those that it was read
    /// from.
    #[must_use]
    pub fn explain(&self, vars: &BTreeMap<String, String>) -> Vec<Explained> {
        let of_process = env::of_scope(&[Scope::Process]).map(|setting| {
            let mut explained = explained(None, setting, &[own(setting)], vars);
            if setting.name == "CANCEL_GRACE" {
                explained.value = Some(DurationText(self.cancel_grace).to_string());
            }
            explained
        });
        let of_queues = self.queues.iter().flat_map(|(name, queue)| {
            env::of_scope(&[Scope::Queue, Scope::EachQueue])
                .filter(|setting| is_in_force(setting, name, vars))
                .map(|setting| of_queue(name, queue, setting, vars))
        });
        of_process.chain(of_queues).collect()
    }

    /// What settings come to that nobody wrote so: values that are lowered to fit, and settings that have no effect.
    /// `explained` is what [`explain`](Self::explain) says.
    #[must_use]
    pub fn notes(&self, explained: &[Explained]) -> Vec<String> {
        let lowered = self.queues.iter().filter_map(|(name, queue)| self.lowered_wait(name, queue));
        let idle = explained.iter().filter_map(|setting| {
            let (name, own) = (setting.queue.as_deref()?, setting.variable.as_deref()?);
            // A default for all may well be meant for other queues.
            let is_own = own == variable(name, setting.setting);
            let why = without_effect(self.queues.get(name)?, setting.setting).filter(|_| is_own)?;
            Some(format!("{own} has no effect: {why}"))
        });
        lowered.chain(idle).collect()
    }

    fn lowered_wait(&self, name: &str, queue: &QueueConfig) -> Option<String> {
        let shortest = queue.visibility_timeout.floor;
        let most = longest_wait(shortest, self.drain_timeout);
        (queue.wait_time > most).then(|| {
            format!(
                "WAIT_TIME of {name:?} ({}) is lowered to {} where the visibility timeout is {}: {WHY_LOWERED}",
                DurationText(queue.wait_time),
                DurationText(most),
                DurationText(shortest),
            )
        })
    }
}

/// The longest that a poll may wait: a reply that comes near the end of the visibility timeout brings messages that are
/// already over (rule R4); one that comes after the drain has to be aborted, and hides what it brings for a whole timeout
/// (rule D1).
pub(crate) fn longest_wait(visibility: Duration, drain_timeout: Duration) -> Duration {
    let most = (visibility / 2).min(drain_timeout.saturating_sub(DRAIN_RESERVE));
    Duration::from_secs(most.as_secs())
}

/// Why a wait time is lowered.
pub(crate) const WHY_LOWERED: &str =
    "a poll must come back within half of the visibility timeout, and before a drain ends";

fn own(setting: &Setting) -> String {
    format!("{PREFIX}{}", setting.name)
}

/// Of a queue's two addresses the one that is set, or else the name.
fn is_in_force(setting: &Setting, queue: &str, vars: &BTreeMap<String, String>) -> bool {
    let has_url = vars.contains_key(&variable(queue, "URL"));
    match setting.name {
        "URL" => has_url,
        "NAME" => !has_url,
        _ => true,
    }
}

fn of_queue(name: &str, queue: &QueueConfig, setting: &'static Setting, vars: &BTreeMap<String, String>) -> Explained {
    let mut variables = vec![variable(name, setting.name)];
    if setting.scope == Scope::Queue {
        variables.push(own(setting));
    }
    let mut explained = explained(Some(name), setting, &variables, vars);
    match setting.name {
        "NAME" | "OPERATION" if explained.variable.is_none() => explained.value = Some(name.to_owned()),
        "HANDLER_HEADER" => {
            let shown = queue.handler_headers.iter().map(|header| format!("{header:?}")).collect::<Vec<_>>();
            explained.value = (!shown.is_empty()).then(|| shown.join(", "));
        }
        _ => {}
    }
    explained
}

/// The first of the variables that is set decides.
fn explained(
    queue: Option<&str>,
    setting: &'static Setting,
    variables: &[String],
    vars: &BTreeMap<String, String>,
) -> Explained {
    let set = variables.iter().find_map(|variable| Some((variable, vars.get(variable)?)));
    let value = set.map(|(_, value)| value.trim()).or(setting.default);
    Explained {
        queue: queue.map(str::to_owned),
        setting: setting.name,
        value: value.map(str::to_owned),
        variable: set.map(|(variable, _)| variable.clone()),
    }
}

/// Why a setting does nothing beside the others of its queue.
fn without_effect(queue: &QueueConfig, setting: &str) -> Option<&'static str> {
    let is_program = matches!(queue.handler, Some(HandlerSpec::Exec { .. }));
    let is_app = matches!(queue.handler, Some(HandlerSpec::Http { .. }));
    match setting {
        "HANDLER_HEADER" | "PERMANENT_STATUS" if is_program => Some("the handler is a program, not an app"),
        "HANDLER_CREDENTIALS" if is_app => Some("the handler is an app, not a program"),
        "GUARD_OUTAGE" | "FINGERPRINT" | "DONE_TTL" | "MAX_TAKEOVERS" if queue.guard == GuardMode::None => {
            Some("the queue has no guard")
        }
        "S3_BUCKETS" if queue.s3_payload == S3Payload::Pass => Some("no body is fetched"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::SETTINGS, *};

    fn read(lines: &[&str]) -> (Config, BTreeMap<String, String>) {
        let vars: BTreeMap<String, String> = lines
            .iter()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let (config, _) = Config::from_vars(vars.clone()).expect("good variables");
        (config, vars)
    }

    fn find(all: &[Explained], queue: Option<&str>, setting: &str) -> (Option<String>, Option<String>) {
        let mut found = all.iter().filter(|e| e.queue.as_deref() == queue && e.setting == setting);
        let one = found.next().unwrap_or_else(|| panic!("{setting} of {queue:?}"));
        assert!(found.next().is_none(), "{setting} of {queue:?} is told once");
        (one.value.clone(), one.variable.clone())
    }

    fn from(value: &str, variable: &str) -> (Option<String>, Option<String>) {
        (Some(value.to_owned()), Some(variable.to_owned()))
    }

    #[test]
    fn each_value_is_told_with_the_variable_that_decided() {
        let (config, vars) = read(&[
            "LEASEHOLD_QUEUES=payments,pay-outs",
            "LEASEHOLD_BACKOFF=1s..5s",
            "LEASEHOLD_PAYMENTS_BACKOFF= 2s..6s ",
            "LEASEHOLD_PAY_OUTS_URL=http://127.0.0.1:4566/000000000000/out",
        ]);
        let all = config.explain(&vars);
        let (payments, outs) = (Some("payments"), Some("pay-outs"));
        assert_eq!(find(&all, payments, "BACKOFF"), from("2s..6s", "LEASEHOLD_PAYMENTS_BACKOFF"));
        assert_eq!(find(&all, outs, "BACKOFF"), from("1s..5s", "LEASEHOLD_BACKOFF"));
        assert_eq!(find(&all, None, "TABLE"), (Some("leasehold".into()), None));
        assert_eq!(find(&all, None, "NAMESPACE"), (None, None));
        assert_eq!(find(&all, payments, "NAME"), (Some("payments".into()), None));
        assert_eq!(find(&all, outs, "OPERATION"), (Some("pay-outs".into()), None));
        assert_eq!(find(&all, outs, "URL"), from("http://127.0.0.1:4566/000000000000/out", "LEASEHOLD_PAY_OUTS_URL"));
        assert!(!all.iter().any(|e| e.queue.as_deref() == outs && e.setting == "NAME"), "it has a URL");
        for setting in SETTINGS.iter().filter(|setting| setting.name != "URL") {
            let queue = (setting.scope != Scope::Process).then_some("payments");
            find(&all, queue, setting.name);
        }
    }

    #[test]
    fn values_of_headers_are_never_told() {
        let (config, vars) = read(&[
            "LEASEHOLD_QUEUES=payments",
            "LEASEHOLD_PAYMENTS_HANDLER=http://127.0.0.1:8080/",
            "LEASEHOLD_HANDLER_HEADER=Authorization: Bearer s3cret\nX-Tenant: s3cret",
        ]);
        let all = config.explain(&vars);
        assert_eq!(
            find(&all, Some("payments"), "HANDLER_HEADER"),
            from("Authorization: (not shown), X-Tenant: (not shown)", "LEASEHOLD_HANDLER_HEADER")
        );
        assert!(!format!("{all:?}").contains("s3cret"));
    }

    #[test]
    fn what_is_lowered_and_what_has_no_effect_is_noted() {
        let (config, vars) = read(&[
            "LEASEHOLD_QUEUES=a,b",
            "LEASEHOLD_A_WAIT_TIME=20s",
            "LEASEHOLD_A_GUARD=none",
            "LEASEHOLD_A_DONE_TTL=1d",
            "LEASEHOLD_A_HANDLER=exec:cat",
            "LEASEHOLD_PERMANENT_STATUS=404",
            "LEASEHOLD_A_PERMANENT_STATUS=422",
            "LEASEHOLD_B_HANDLER=http://127.0.0.1:8080/",
            "LEASEHOLD_B_HANDLER_CREDENTIALS=pass",
            "LEASEHOLD_B_S3_PAYLOAD=pass",
            "LEASEHOLD_B_S3_BUCKETS=bodies",
        ]);
        let notes = config.notes(&config.explain(&vars)).join("\n");
        assert!(notes.contains("WAIT_TIME of \"a\" (20s) is lowered to 15s"), "{notes}");
        assert!(notes.contains("LEASEHOLD_A_DONE_TTL has no effect: the queue has no guard"), "{notes}");
        assert!(notes.contains("LEASEHOLD_A_PERMANENT_STATUS has no effect: the handler is a program"), "{notes}");
        assert!(notes.contains("LEASEHOLD_B_HANDLER_CREDENTIALS has no effect: the handler is an app"), "{notes}");
        assert!(notes.contains("LEASEHOLD_B_S3_BUCKETS has no effect: no body is fetched"), "{notes}");
        assert_eq!(notes.lines().count(), 5, "{notes}");
        let (plain, vars) = read(&["LEASEHOLD_QUEUES=a"]);
        assert_eq!(plain.notes(&plain.explain(&vars)), [] as [String; 0]);
    }
}
