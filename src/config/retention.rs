//! Whether a queue keeps its messages for as long as their retries can take.
//!
//! Pure: over a queue's settings, and the retention that SQS tells of it. What is not kept is dropped by SQS without a
//! word: no attempt, no dead letter.

use std::time::Duration;

use super::{Backoff, DurationText as Text, Problem, QueueConfig, variable};

/// The longest that SQS keeps a message.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html>
pub const LONGEST_RETENTION: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// SQS's own for a new queue. What is suggested is no shorter: runs and backlog take time too.
const USUAL_RETENTION: Duration = Duration::from_secs(4 * 24 * 60 * 60);

/// What is to be told of a queue that drops messages which still have attempts to come.
pub(crate) fn too_short(name: &str, queue: &QueueConfig, retention: Duration) -> Option<Problem> {
    let waits = queue.backoff.together(queue.max_attempts);
    if waits < retention {
        return None;
    }
    let (backoff, attempts) = (variable(name, "BACKOFF"), variable(name, "MAX_ATTEMPTS"));
    let what = format!(
        "the queue {name:?} keeps messages for {}, and the waits between {} attempts ({attempts}), {backoff} {}, come to \
         as much as {}: SQS drops what fails before its last attempt, and no dead letter tells of it",
        Text(retention),
        queue.max_attempts,
        queue.backoff,
        Text(waits)
    );
    let shorter = format!("a shorter {backoff}, or fewer {attempts}");
    let mend = match enough(queue) {
        Some(enough) => format!("MessageRetentionPeriod={} on the queue; or {shorter}", enough.as_secs()),
        None => format!("{shorter}: SQS keeps no message for longer than {}", Text(LONGEST_RETENTION)),
    };
    Some(Problem::new(what, mend))
}

/// Whether the waits alone take more than half of it: runs, holds and a backlog take the rest.
pub(crate) fn is_tight(queue: &QueueConfig, retention: Duration) -> bool {
    queue.backoff.together(queue.max_attempts).saturating_mul(2) > retention
}

/// A retention that leaves room for a queue's attempts; `None` if SQS has none that long.
pub(crate) fn enough(queue: &QueueConfig) -> Option<Duration> {
    let enough = queue.backoff.together(queue.max_attempts).saturating_mul(2).max(USUAL_RETENTION);
    (enough <= LONGEST_RETENTION).then_some(enough)
}

impl Backoff {
    /// The waits before the last of so many attempts, each as long as it can be.
    fn together(self, attempts: u32) -> Duration {
        let (mut wait, mut sum) = (self.base.min(self.cap), Duration::ZERO);
        let mut left = attempts.saturating_sub(1);
        while left > 0 && wait < self.cap && !wait.is_zero() {
            sum = sum.saturating_add(wait);
            wait = wait.saturating_mul(2).min(self.cap);
            left -= 1;
        }
        sum.saturating_add(wait.saturating_mul(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn backoff(base: u64, cap: u64) -> Backoff {
        Backoff { base: secs(base), cap: secs(cap) }
    }

    #[test]
    fn t2_waits_double_up_to_the_cap_and_are_one_fewer_than_attempts() {
        for (backoff, attempts, together) in [
            (backoff(10, 900), 5, secs(10 + 20 + 40 + 80)),
            (backoff(10, 900), 1, Duration::ZERO),
            (backoff(10, 900), 0, Duration::ZERO),
            (backoff(10, 30), 5, secs(10 + 20 + 30 + 30)),
            (backoff(60, 60), 3, secs(120)),
            (backoff(1, 43_200), u32::MAX, secs(65_535 + 43_200 * (u64::from(u32::MAX) - 17))),
        ] {
            assert_eq!(backoff.together(attempts), together, "{backoff:?} {attempts}");
        }
        assert_eq!(Backoff { base: Duration::MAX, cap: Duration::MAX }.together(9), Duration::MAX);
    }

    #[test]
    fn a_retention_that_is_too_short_for_the_retries_is_told_with_what_to_set() {
        let mut queue = QueueConfig::new("jobs");
        queue.backoff = backoff(10, 900);
        assert_eq!(too_short("jobs", &queue, secs(151)), None);
        let told = too_short("jobs", &queue, secs(150)).expect("too short").to_string();
        for part in ["for 150s", "between 5 attempts", "as much as 150s", "MessageRetentionPeriod=345600"] {
            assert!(told.contains(part), "{part} in {told}");
        }
        assert!(told.contains("LEASEHOLD_JOBS_BACKOFF") && told.contains("LEASEHOLD_JOBS_MAX_ATTEMPTS"), "{told}");
        queue.backoff = backoff(43_200, 43_200);
        queue.max_attempts = 10;
        let told = too_short("jobs", &queue, DAY).expect("too short").to_string();
        assert!(told.contains("MessageRetentionPeriod=777600"), "twice the waits: {told}");
        queue.max_attempts = 100;
        let told = too_short("jobs", &queue, 14 * DAY).expect("too short").to_string();
        assert!(!told.contains("MessageRetentionPeriod") && told.contains("longer than 14d"), "{told}");
    }
}
