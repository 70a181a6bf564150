//! What runs at the moment and what failed lately, for those who look on; and how both are counted.
//!
//! Costs a run one entry in a map and holds nothing of it alive: what is told is read from the run when somebody asks.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::time::Instant;

use super::{Jobs, decide::Ended};
use crate::{
    clock::{Millis, millis},
    guard::Failure,
    handler::JobContext,
    lease::{Beat, Lease, View},
    message::{Delivery, Message},
    settle::{Left, Settlement},
    status::{FailureStatus, RunStatus},
    telemetry::{Beaten, HandlerEnd},
};

/// So many runs are told of; the oldest, for they are what somebody looks for.
const TOLD: usize = 100;

/// So many failures are kept.
const FAILURES: usize = 50;

/// The longest error text that is kept, in characters: more is in the log.
const LONGEST_ERROR: usize = 500;

/// What runs, by the order in which it began; and what failed lately, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Held for single changes, and while somebody is told.
    runs: Mutex<(u64, BTreeMap<u64, Run>)>,
    /// Held for single changes.
    failures: Mutex<VecDeque<FailureStatus>>,
}

#[derive(Debug)]
struct Run {
    cx: Weak<JobContext>,
    begun: Instant,
    lease: View,
}

impl Watch {
    fn runs(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Run>)> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failures(&self) -> MutexGuard<'_, VecDeque<FailureStatus>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run begins, and is over when what comes back is dropped.
    pub(super) fn begins(&self, cx: &Arc<JobContext>, lease: &Lease) -> Seen<'_> {
        let mut runs = self.runs();
        runs.0 += 1;
        let number = runs.0;
        runs.1.insert(number, Run { cx: Arc::downgrade(cx), begun: Instant::now(), lease: lease.view() });
        Seen { watch: self, number }
    }

    /// How many run.
    pub(crate) fn count(&self) -> usize {
        self.runs().1.len()
    }

    /// For how long the oldest of them has run.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.runs().1.values().next().map(|run| run.begun.elapsed())
    }

    /// What runs, the oldest first.
    pub(crate) fn running(&self, p99: Option<Duration>) -> Vec<RunStatus> {
        let runs = self.runs();
        runs.1.values().take(TOLD).filter_map(|run| run.told(p99)).collect()
    }

    pub(crate) fn failed(&self, mut failure: FailureStatus) {
        if let Some((end, _)) = failure.error.char_indices().nth(LONGEST_ERROR) {
            failure.error.truncate(end);
            failure.error.push('…');
        }
        let mut failures = self.failures();
        failures.truncate(FAILURES - 1);
        failures.push_front(failure);
    }

    /// What failed lately, the newest first.
    pub(crate) fn recent_failures(&self) -> Vec<FailureStatus> {
        self.failures().iter().cloned().collect()
    }
}

impl Run {
    fn told(&self, p99: Option<Duration>) -> Option<RunStatus> {
        let cx = self.cx.upgrade()?;
        let age = self.begun.elapsed();
        let (left, length) = self.lease.left_of();
        Some(RunStatus {
            key: cx.key.clone(),
            message_id: cx.message.id.clone(),
            attempt: cx.attempt,
            undo: cx.is_undo(),
            age_ms: millis(age),
            lease_left_ms: millis(left),
            lease_ms: millis(length),
            past_p99: p99.is_some_and(|p99| age > p99),
            step: cx.last_step(),
        })
    }
}

/// A run that is told of until this is dropped.
pub(super) struct Seen<'a> {
    watch: &'a Watch,
    number: u64,
}

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        self.watch.runs().1.remove(&self.number);
    }
}

impl Jobs {
    /// An attempt has failed, and that is written down; the message comes again.
    pub(super) fn attempt_failed(
        &self,
        delivery: &Delivery,
        key: &str,
        attempt: u32,
        why: &Failure,
        then: &Settlement,
    ) {
        delivery.about().failed(&why.code, &why.text);
        self.meters.failures.one(&why.code);
        let now = self.clock.wall();
        let in_seconds = |until: Millis| until.since(now).as_secs();
        let follows = match then {
            Settlement::Delay { until, .. } | Settlement::RetryInPlace { until, .. } => {
                format!("again in {} s", in_seconds(*until))
            }
            Settlement::Leave(Left::StillRunning { until }) => {
                format!("again in {} s, when what may still run has lost its lease", in_seconds(*until))
            }
            _ => "again later".to_owned(),
        };
        self.note_failure(&delivery.message, Some(key), attempt, (why, false), follows);
    }

    /// Work has failed for good, and what is to become of its message is decided.
    pub(crate) fn died(&self, message: &Message, key: Option<&str>, attempts: u32, why: &Failure, follows: &str) {
        self.meters.dead.one(&why.code);
        self.note_failure(message, key, attempts, (why, true), follows.to_owned());
    }

    fn note_failure(
        &self,
        message: &Message,
        key: Option<&str>,
        attempt: u32,
        (why, permanent): (&Failure, bool),
        follows: String,
    ) {
        self.watch.failed(FailureStatus {
            at: self.clock.wall().0,
            key: key.map(str::to_owned),
            message_id: message.id.clone(),
            attempt,
            code: why.code.clone(),
            error: why.text.clone(),
            permanent,
            follows,
        });
    }
}

impl From<Beat> for Beaten {
    fn from(beat: Beat) -> Self {
        match beat {
            Beat::Renewed => Self::Renewed,
            Beat::Transient => Self::Transient,
            Beat::Lost => Self::Lost,
            Beat::Final => Self::Final,
        }
    }
}

impl From<&Ended> for HandlerEnd {
    fn from(ended: &Ended) -> Self {
        match ended {
            Ended::Returned(Ok(())) => Self::Ok,
            Ended::Returned(Err(_)) | Ended::Unanswered(_) => Self::Error,
            Ended::TimedOut { .. } => Self::TimedOut,
            Ended::Interrupted { .. } => Self::Interrupted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Clock, message::Message};

    #[tokio::test(start_paused = true)]
    async fn a_run_is_told_of_while_it_lasts_with_what_is_left_of_its_lease() {
        let (watch, clock) = (Watch::default(), Clock::simulated(1, 0));
        let cx = Arc::new(JobContext::of(&Message { id: "m-1".into(), ..Message::default() }));
        let lease = Lease::new(clock.clone(), clock.now(), Duration::from_secs(30));
        let seen = watch.begins(&cx, &lease);
        tokio::time::advance(Duration::from_secs(10)).await;
        let younger = watch.begins(&cx, &lease);
        assert_eq!(watch.oldest(), Some(Duration::from_secs(10)));
        drop(younger);
        let told = watch.running(Some(Duration::from_secs(9)));
        let run = &told[0];
        assert_eq!(
            (told.len(), run.message_id.as_str(), run.attempt, run.key.as_deref()),
            (1, "m-1", 3, Some("payments#k-1"))
        );
        assert_eq!((run.age_ms, run.lease_left_ms, run.lease_ms, run.past_p99), (10_000, 20_000, 30_000, true));
        assert!(!watch.running(Some(Duration::from_secs(11)))[0].past_p99 && !watch.running(None)[0].past_p99);
        lease.lose();
        assert_eq!(watch.running(None)[0].lease_left_ms, 0);
        drop(seen);
        assert_eq!((watch.count(), watch.oldest()), (0, None));
    }

    #[test]
    fn only_so_many_failures_are_kept_and_only_so_much_of_what_they_say() {
        let watch = Watch::default();
        for attempt in 0..120 {
            let error = "é".repeat(LONGEST_ERROR + 1);
            let (key, message_id, code, follows) = (None, String::new(), String::new(), String::new());
            watch.failed(FailureStatus { at: 0, key, message_id, attempt, code, error, permanent: false, follows });
        }
        let kept = watch.recent_failures();
        assert_eq!((kept.len(), kept[0].attempt), (FAILURES, 119));
        assert_eq!(kept[0].error.chars().count(), LONGEST_ERROR + 1, "and an ellipsis");
    }
}
