//! From variables to a [`Config`], with all problems at once.
//!
//! The only place that reads the environment; settings are read once. Takes each variable that it knows out of the set;
//! what is left over is judged at the end: a misspelt name must never be a setting that is silently not made.

use std::{collections::BTreeMap, ffi::OsString, fmt, path::PathBuf};

use super::{
    Config, PREFIX, Problem, QueueConfig, SETTINGS, Scope, Setting, ValueError, settings::Apply, variable,
    variable_part,
};

mod leftover;
#[cfg(test)]
mod tests;

/// Something that is probably not meant so, and does no harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning(String);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Config {
    /// From the process's environment, as [`from_vars`](Self::from_vars). A variable of ours that is not Unicode is a
    /// problem.
    pub fn from_env() -> Result<(Self, Vec<Warning>), Vec<Problem>> {
        from_os_vars(std::env::vars_os(), Queues::Required)
    }

    /// From variables, of which those that do not begin with `LEASEHOLD_` are ignored. What was read fits together:
    /// [`check`](Self::check) finds nothing in it. If anything is wrong, everything that is wrong comes back.
    pub fn from_vars(vars: impl IntoIterator<Item = (String, String)>) -> Result<(Self, Vec<Warning>), Vec<Problem>> {
        read(vars, Queues::Required, Vec::new())
    }

    /// As [`from_env`](Self::from_env), for tools that can do without queues: where `LEASEHOLD_QUEUES` is not set there
    /// are none, and that is no problem.
    pub fn from_env_for_tools() -> Result<(Self, Vec<Warning>), Vec<Problem>> {
        from_os_vars(std::env::vars_os(), Queues::Optional)
    }

    /// As [`from_vars`](Self::from_vars), for [tools](Self::from_env_for_tools).
    pub fn from_vars_for_tools(
        vars: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(Self, Vec<Warning>), Vec<Problem>> {
        read(vars, Queues::Optional, Vec::new())
    }
}

/// Which signals the OpenTelemetry SDK is to send, by the variables that all its SDKs have. What else they say it reads
/// itself.
/// <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Otlp {
    /// Spans.
    pub traces: bool,
    /// Metrics.
    pub metrics: bool,
    /// A protocol is asked for that is not `http/protobuf`, the one that is spoken.
    pub other_protocol: bool,
}

impl Otlp {
    /// From the process's environment.
    #[must_use]
    pub fn from_env() -> Self {
        let vars: BTreeMap<_, _> =
            std::env::vars_os().filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?))).collect();
        Self::from_vars(|name| vars.get(name).cloned())
    }

    fn from_vars(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: String| variable(&name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let is = |name: &str, word: &str| set(name.to_owned()).is_some_and(|value| value.eq_ignore_ascii_case(word));
        let sends = |signal: &str| {
            let endpoint = set(format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"));
            let endpoint = endpoint.or_else(|| set("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned()));
            endpoint.is_some() && !is("OTEL_SDK_DISABLED", "true") && !is(&format!("OTEL_{signal}_EXPORTER"), "none")
        };
        let protocols = ["", "TRACES_", "METRICS_"].map(|signal| format!("OTEL_EXPORTER_OTLP_{signal}PROTOCOL"));
        let other_protocol = protocols.into_iter().filter_map(set).any(|protocol| protocol != "http/protobuf");
        Self { traces: sends("TRACES"), metrics: sends("METRICS"), other_protocol }
    }
}

/// Whether there must be queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queues {
    Required,
    Optional,
}

/// The variables of this process that begin with `LEASEHOLD_`, for whoever reads a [`Config`] from them and more. One
/// that is not Unicode is a problem.
pub fn variables() -> Result<BTreeMap<String, String>, Vec<Problem>> {
    let (good, problems) = of_ours(std::env::vars_os());
    if problems.is_empty() { Ok(good) } else { Err(problems) }
}

fn from_os_vars(
    vars: impl IntoIterator<Item = (OsString, OsString)>,
    queues: Queues,
) -> Result<(Config, Vec<Warning>), Vec<Problem>> {
    let (good, problems) = of_ours(vars);
    read(good, queues, problems)
}

fn of_ours(vars: impl IntoIterator<Item = (OsString, OsString)>) -> (BTreeMap<String, String>, Vec<Problem>) {
    let (mut good, mut problems) = (BTreeMap::new(), Vec::new());
    for (name, value) in vars {
        let shown = name.to_string_lossy().into_owned();
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) if name.starts_with(PREFIX) => {
                good.insert(name, value);
            }
            _ if shown.starts_with(PREFIX) => {
                problems.push(Problem::new(format!("{shown} is not Unicode"), format!("unset {shown}")));
            }
            _ => {}
        }
    }
    (good, problems)
}

fn read(
    vars: impl IntoIterator<Item = (String, String)>,
    queues: Queues,
    problems: Vec<Problem>,
) -> Result<(Config, Vec<Warning>), Vec<Problem>> {
    let ours = vars
        .into_iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.to_owned(), value.trim().to_owned())));
    let mut reading = Reading { vars: ours.collect(), queues, problems };
    let config = reading.config();
    let (misspelt, warnings) = leftover::judge(&reading.vars, &config);
    reading.problems.extend(misspelt);
    if reading.problems.is_empty() { Ok((config, warnings)) } else { Err(reading.problems) }
}

/// The variables of this process that are settings of ours, by name: none of a child's business.
pub(crate) fn settings_of_ours() -> impl Iterator<Item = OsString> {
    std::env::vars_os().map(|(name, _)| name).filter(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()))
}

/// Whether this process runs under Lambda, which says where its invocations are to be had.
/// <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-custom.html>
#[cfg(feature = "lambda")]
pub(crate) fn is_lambda() -> bool {
    std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some()
}

/// Who runs this process, by the name that the system's login set; `None` where it set none, as in most containers.
#[must_use]
pub fn user() -> Option<String> {
    ["USER", "LOGNAME"]
        .into_iter()
        .filter_map(std::env::var_os)
        .map(|name| name.to_string_lossy().trim().to_owned())
        .find(|name| !name.is_empty())
}

/// The endpoints that the AWS SDK is told to use, each with its variable.
/// <https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html>
pub(crate) fn aws_endpoints() -> Vec<(&'static str, String)> {
    let set = |name| Some((name, std::env::var_os(name)?.to_string_lossy().into_owned()));
    let services = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SQS", "AWS_ENDPOINT_URL_DYNAMODB"];
    let s3 = cfg!(feature = "s3").then_some(S3_ENDPOINT);
    services.into_iter().chain(s3).filter_map(set).collect()
}

const S3_ENDPOINT: &str = "AWS_ENDPOINT_URL_S3";

/// Whether the SDK is told to use an endpoint of its own for S3.
#[cfg(feature = "s3")]
pub(crate) fn has_s3_endpoint() -> bool {
    std::env::var_os(S3_ENDPOINT).is_some()
}

/// Where a task of ECS asks its agent to be protected, if this is one.
/// <https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection-endpoint.html>
pub(crate) fn ecs_agent_uri() -> Option<String> {
    uri("ECS_AGENT_URI")
}

/// Where a container of ECS asks what it is, if this is one.
/// <https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-metadata-endpoint-v4.html>
pub(crate) fn ecs_metadata_uri() -> Option<String> {
    uri("ECS_CONTAINER_METADATA_URI_V4")
}

fn uri(variable: &str) -> Option<String> {
    std::env::var_os(variable)?.into_string().ok().filter(|uri| !uri.is_empty())
}

/// Where the system looks for programs that are named without a path.
pub(crate) fn search_path() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

/// Variables that are not read yet, by name without the prefix, and the problems so far.
struct Reading {
    vars: BTreeMap<String, String>,
    queues: Queues,
    problems: Vec<Problem>,
}

impl Reading {
    /// Takes out all variables that there are settings for. Values that could not be read have their defaults; what
    /// then does or does not fit together with them is not told.
    fn config(&mut self) -> Config {
        let mut config = Config::default();
        self.names(&mut config);
        let before = self.problems.len();
        let grace_is_set = self.vars.contains_key("CANCEL_GRACE");
        for setting in of_scope(&[Scope::Process]) {
            self.take(setting.name, setting, |value| to_process(setting, &mut config, value));
        }
        let conflicts = if self.problems.len() == before { config.check_process() } else { Vec::new() };
        // Settings for all queues go to one queue of which the others are copies, so that each is read once.
        let mut common = QueueConfig::new("");
        for setting in of_scope(&[Scope::Queue]) {
            self.take(setting.name, setting, |value| to_queue(setting, &mut common, value));
        }
        let sound = self.problems.len() == before;
        self.problems.extend(conflicts);
        let mut readable = Vec::new();
        for name in config.queues.keys().cloned().collect::<Vec<_>>() {
            let QueueConfig { address, operation, .. } = QueueConfig::new(&name);
            let mut queue = QueueConfig { address, operation, ..common.clone() };
            if self.queue(&name, &mut queue) {
                readable.push(name.clone());
            }
            config.queues.insert(name, queue);
        }
        if !grace_is_set {
            config.fit_cancel_grace();
        }
        for name in readable.iter().filter(|_| sound) {
            self.problems.extend(config.check_queue(name, &config.queues[name]));
        }
        self.problems.extend(config.check_addresses());
        config
    }

    /// The queues, and whether their names can be told apart in variables.
    fn names(&mut self, config: &mut Config) {
        let Some(setting) = SETTINGS.iter().find(|setting| setting.name == "QUEUES") else { return };
        let is_empty = self.vars.get(setting.name).is_some_and(String::is_empty);
        if is_empty || self.queues == Queues::Required && !self.vars.contains_key(setting.name) {
            self.vars.remove(setting.name);
            let how = if is_empty { "set, and empty" } else { "not set" };
            let problem = Problem::new(format!("{PREFIX}QUEUES is {how}"), format!("{PREFIX}QUEUES=payments,emails"));
            self.problems.push(problem);
        }
        self.take(setting.name, setting, |value| to_process(setting, config, value));
        let mut taken: BTreeMap<String, &str> = BTreeMap::new();
        for name in config.queues.keys() {
            let part = variable_part(name);
            let ambiguous = of_scope(&[Scope::Queue, Scope::EachQueue])
                .map(|setting| format!("{part}_{}", setting.name))
                .find(|variable| SETTINGS.iter().any(|setting| setting.name == variable));
            if let Some(variable) = ambiguous {
                let what =
                    format!("the queue {name:?} cannot have that name here: {PREFIX}{variable} is a setting itself");
                self.problems.push(Problem::new(what, renamed(config, name)));
            }
            if let Some(other) = taken.insert(part.clone(), name) {
                let what = format!("the queues {other:?} and {name:?} would both have the variables {PREFIX}{part}_…");
                self.problems.push(Problem::new(what, renamed(config, name)));
            }
        }
    }

    /// One queue's own settings; whether all of them could be read.
    fn queue(&mut self, name: &str, queue: &mut QueueConfig) -> bool {
        let before = self.problems.len();
        let part = variable_part(name);
        if ["URL", "NAME"].iter().all(|setting| self.vars.contains_key(&format!("{part}_{setting}"))) {
            let (url, name) = (variable(name, "URL"), variable(name, "NAME"));
            self.problems
                .push(Problem::new(format!("{url} and {name} are both set: keep one"), format!("unset {name}")));
        }
        for setting in of_scope(&[Scope::Queue, Scope::EachQueue]) {
            self.take(&format!("{part}_{}", setting.name), setting, |value| to_queue(setting, queue, value));
        }
        self.problems.len() == before
    }

    /// Takes a variable out and applies it, if it is there.
    fn take(&mut self, name: &str, setting: &Setting, apply: impl FnOnce(&str) -> Result<(), ValueError>) {
        let Some(value) = self.vars.remove(name) else { return };
        let variable = format!("{PREFIX}{name}");
        let unset = format!("unset {variable}");
        let assign = |value: &str| format!("{variable}={}", shell_words::quote(value));
        let problem = if value.is_empty() {
            Problem::new(format!("{variable} is set, and empty"), setting.default.map_or(unset, assign))
        } else if let Err(error) = apply(&value) {
            Problem::new(format!("{variable}: {}", error.what), assign(&error.instead))
        } else {
            return;
        };
        self.problems.push(problem);
    }
}

pub(super) fn of_scope(scopes: &'static [Scope]) -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|setting| scopes.contains(&setting.scope))
}

fn to_process(setting: &Setting, config: &mut Config, value: &str) -> Result<(), ValueError> {
    match setting.apply {
        Apply::Process(apply) => apply(config, value),
        Apply::Queue(_) => Ok(()),
    }
}

fn to_queue(setting: &Setting, queue: &mut QueueConfig, value: &str) -> Result<(), ValueError> {
    match setting.apply {
        Apply::Queue(apply) => apply(queue, value),
        Apply::Process(_) => Ok(()),
    }
}

/// A line that gives one queue another name in settings, and leaves it the one that it has in SQS.
fn renamed(config: &Config, name: &str) -> String {
    let other = format!("{}-2", variable_part(name).to_lowercase());
    let names: Vec<&str> = config.queues.keys().map(|n| if n == name { other.as_str() } else { n.as_str() }).collect();
    format!("{PREFIX}QUEUES={} {}={name}", names.join(","), variable(&other, "NAME"))
}
