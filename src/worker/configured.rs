//! What a worker that was given its configuration says of it, and takes of it: some of the queues.
//!
//! For whoever must know the configuration before the worker runs, as the command does. Checks nothing but names.

use super::Worker;
use crate::config::{Config, Problem};

impl Worker {
    /// The configuration, unless something is wrong with it, which [`run`](Self::run) tells.
    #[must_use]
    pub fn config(&self) -> Option<&Config> {
        self.config.as_ref().ok()
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
