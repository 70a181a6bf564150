//! What this process has used, as Linux tells it.

use std::fs;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// What a subject used for its messages.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// From the beginning of the work to its end.
    pub(crate) seconds: f64,
    /// CPU of all threads meanwhile, user and system.
    pub(crate) cpu_micros: f64,
    /// The most memory that was ever resident, in kilobytes.
    pub(crate) peak_kb: u64,
    /// From the start of the process to the first message in hand.
    pub(crate) first_ms: u64,
    /// The same from the start of the work, without the process's own.
    pub(crate) first_ms_of_work: f64,
}

/// CPU of this process so far, in microseconds. Of threads that still are: none ends here while it is measured.
pub(crate) fn cpu_micros() -> anyhow::Result<f64> {
    let mut nanos = 0;
    for task in fs::read_dir("/proc/self/task").context("the benchmarks need Linux")? {
        // Runs for so long, waited for so long, ran so often: https://docs.kernel.org/scheduler/sched-stats.html
        let stat = fs::read_to_string(task?.path().join("schedstat"))?;
        nanos += stat.split_whitespace().next().context("an empty schedstat")?.parse::<u64>()?;
    }
    Ok(nanos as f64 / 1000.0)
}

/// The most memory that was ever resident, in kilobytes.
pub(crate) fn peak_kb() -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("the benchmarks need Linux")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
