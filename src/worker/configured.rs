//! What a worker that was given its configuration says of it, and takes of it: some of the queues.
//!
//! For whoever must know the configuration before the worker runs, as the command does. Nothing here asks AWS.

use super::{Worker, WorkerError, check};
use crate::config::{Config, Problem, Warning};

impl Worker {
    /// The configuration, unless something is wrong with it, which [`run`](Self::run) tells.
    #[must_use]
    pub fn config(&self) -> Option<&Config> {
        self.config.as_ref().ok()
    }

    /// What the configuration has that is probably not meant so; [`run`](Self::run) logs it.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Everything that is wrong and can be told without asking AWS. [`run`](Self::run) refuses to start for the same
    /// reasons, and for what it finds there.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        match check::settings(self) {
            Err(WorkerError::Configuration(problems)) => problems,
            Ok(_) | Err(WorkerError::Unavailable(_)) => Vec::new(),
        }
    }

    /// Works on these of the configured queues only. A name that is none of them is a problem.
    pub fn only(mut self, names: &[String]) -> Self {
        let Ok(config) = &mut self.config else { return self };
        let unknown: Vec<_> = names.iter().filter(|name| !config.queues.contains_key(*name)).collect();
        if unknown.is_empty() {
            config.queues.retain(|name, _| names.contains(name));
        }
        let known = config.queues.keys().map(String::as_str).collect::<Vec<_>>().join(",");
        self.problems.extend(unknown.into_iter().map(|name| {
            let what = format!("there is no queue {name:?} to work on alone: LEASEHOLD_QUEUES names {known}");
            Problem::new(what, format!("--only {known}"))
        }));
        self
    }
}
