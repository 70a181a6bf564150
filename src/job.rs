//! The life of a message, from its body to a [`Settlement`].
//!
//! [`job`] is the path: decode, derive the key, claim, run, record. It writes the guard and keeps its own claim alive;
//! it never touches the queue, which acts on the settlement elsewhere. It holds nothing when it returns, except what it
//! has reported as still running.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};
use tracing::Instrument as _;

use crate::{
    bodies::Bodies,
    clock::{Clock, Millis},
    config::{OutagePolicy, QueueConfig},
    guard::{
        Failure, Guard, Owner, Pk, Status,
        execution::ExecutionLease,
        outage::{Absences, Circuit},
    },
    handler::{
        Cancelled, ErasedHandler, JobContext, Work,
        context::Elsewhere,
        remote::Runs,
        steps::{Part, Recorder, Steps},
    },
    key::KeyHash,
    lease::{Term, Visibility, keep},
    message::{About, Delivery, Message},
    seldom::{Seldom, seldom},
    settle::{Deleted, Held, Settlement},
    telemetry::{HandlerEnd, LeaseKind, Meters},
    trace,
};

use claim::{claim, record_afterwards};
use decide::{Ended, Limits, Next};
use open::{Opened, identify, open};
use outcome::{confirm, give_back, with_commit};
use undo::{fail_for_good, go_on_undoing};

mod body;
mod claim;
pub(crate) mod decide;
mod envelope;
mod open;
mod outcome;
mod run;
mod running;
mod slot;
mod stuck;
mod undo;

pub(crate) use body::Away as BodiesAway;
pub(crate) use envelope::Told;
pub(crate) use running::Watch;
pub(crate) use slot::{Slot, Slots};
pub(crate) use stuck::Stuck;

/// What all jobs of one queue share.
pub(crate) struct Jobs {
    /// The queue's name in the configuration.
    pub(crate) name: Arc<str>,
    pub(crate) config: QueueConfig,
    pub(crate) namespace: Option<String>,
    pub(crate) key_hash: KeyHash,
    pub(crate) clock_skew: Duration,
    /// How long deliveries and claims are.
    pub(crate) visibility: Visibility,
    pub(crate) handler: Arc<dyn ErasedHandler>,
    pub(crate) guard: Option<Arc<dyn Guard>>,
    /// Where bodies are that are not in their messages; `None` where this build knows no such place.
    pub(crate) bodies: Option<Arc<dyn Bodies>>,
    pub(crate) bodies_away: BodiesAway,
    pub(crate) clock: Clock,
    /// A name for this worker, for a person who reads a record.
    pub(crate) worker: String,
    /// The guard's store.
    pub(crate) store: Arc<Circuit>,
    /// What does the work.
    pub(crate) there: Arc<Circuit>,
    /// What bodies are fetched from.
    pub(crate) bodies_there: Arc<Circuit>,
    pub(crate) absences: Absences,
    /// Where what does the work elsewhere can ask about a run under a claim; `None` where nobody does.
    pub(crate) remote: Option<Arc<Runs>>,
    pub(crate) stuck: Stuck,
    /// What runs and what failed lately, for those who look on.
    pub(crate) watch: Watch,
    pub(crate) meters: Meters,
    pub(crate) envelope_told: Told,
    /// Records whose lease ends further ahead than any can: as they were first seen, and when.
    pub(crate) absurd: Mutex<BTreeMap<Pk, (Owner, Millis, Instant)>>,
    /// What an outage would log with each message.
    pub(crate) seldom: Arc<Seldom>,
}

/// Takes one delivery from its body to a settlement.
///
/// # Cancel safety
/// Dropped, it is a crash: the claim lapses, and what was not recorded may run again.
pub(crate) async fn job(jobs: &Jobs, delivery: &Delivery, slot: &Slot) -> Settlement {
    let message = &delivery.message;
    *delivery.about() = About::default();
    let opened = match open(jobs, delivery).await {
        Ok(opened) => opened,
        Err(unopened) => return unopened.settlement(jobs, message),
    };
    let identity = match identify(jobs, &opened) {
        Ok(identity) => identity,
        Err(failure) => return jobs.unrecorded(message, failure),
    };
    if let Some(pk) = &identity.pk {
        trace::key(&pk.0);
        delivery.about().pk = Some(pk.0.clone());
    }
    if jobs.stuck.holds(&run_name(identity.pk.as_ref(), message)) {
        return Settlement::Held { until: jobs.clock.wall() + jobs.visibility.in_force(), why: Held::Stuck };
    }
    let (Some(guard), Some(pk)) = (&jobs.guard, &identity.pk) else {
        return unguarded(jobs, delivery, slot, opened, identity.pk.as_ref()).await;
    };
    match claim(jobs, guard, pk, &identity, delivery).instrument(trace::claim()).await {
        Ok(claim) => {
            let claim = Arc::new(claim);
            let renew = async |length| {
                let late = claim.lease.is_late();
                let beat = claim.renew(length).await;
                jobs.meters.beat(LeaseKind::Execution, beat.into(), late);
                beat
            };
            let work = pin!(guarded(jobs, delivery, slot, opened, &claim));
            let settlement = keep(&claim.lease, None, renew, work).await;
            if claim.lease.is_over() {
                jobs.meters.lost(LeaseKind::Execution);
            }
            settlement
        }
        Err(Settlement::Outage) if jobs.config.guard_outage == OutagePolicy::Open => {
            let settlement = unguarded(jobs, delivery, slot, opened, Some(pk)).await;
            match settlement {
                Settlement::Delete(Deleted::Done) => {
                    record_afterwards(jobs, guard, pk, &identity, delivery).await.unwrap_or(settlement)
                }
                settlement => settlement,
            }
        }
        Err(settlement) => settlement,
    }
}

/// What a run goes by in this process. Without a key it is the message.
fn run_name(pk: Option<&Pk>, message: &Message) -> Pk {
    pk.cloned().unwrap_or_else(|| Pk(format!("message {}", message.id)))
}

/// Runs under a claim, and writes down what came of it. The claim is kept meanwhile.
async fn guarded(
    jobs: &Jobs,
    delivery: &Delivery,
    slot: &Slot,
    opened: Opened,
    claim: &Arc<ExecutionLease>,
) -> Settlement {
    if claim.claimed.status == Status::Failed {
        return go_on_undoing(jobs, delivery, slot, opened, claim).await;
    }
    if let Some(failure) = decide::spent(&claim.claimed, jobs.config.max_attempts, jobs.config.max_takeovers) {
        return fail_for_good(jobs, delivery, slot, opened, claim, (failure, claim.claimed.failures)).await;
    }
    let attempt = claim.claimed.failures + 1;
    delivery.about().attempt = Some(attempt);
    let cx = jobs.guarded_context(Arc::clone(&opened.message), claim, (Part::Work, attempt), &delivery.term);
    let (ended, _unwritten) =
        jobs.run_guarded(Arc::clone(&opened.work), Arc::clone(&cx), claim, (delivery, slot)).await;
    match jobs.next(ended, &claim.pk.0, attempt, delivery.is_last) {
        Next::Confirm => {
            cx.notice_vanished_steps();
            confirm(delivery, claim).await
        }
        Next::Bury(failure) => fail_for_good(jobs, delivery, slot, opened, claim, (failure, attempt)).await,
        next => give_back(jobs, delivery, claim, next, attempt).await,
    }
}

/// Runs without a claim: the queue has no guard, or its store is away and the policy is `open`. The delivery's lease
/// decides (rule L2), and deliveries count as attempts.
async fn unguarded(
    jobs: &Jobs,
    delivery: &Delivery,
    slot: &Slot,
    Opened { message, work }: Opened,
    pk: Option<&Pk>,
) -> Settlement {
    let attempt = delivery.attempt();
    delivery.about().attempt = Some(attempt);
    if attempt > jobs.config.max_attempts && attempt > delivery.message.receive_count {
        // An attempt that may still have run when it failed could not be buried then.
        let failure = Failure::new("attempts", format!("{} attempts failed", attempt - 1));
        return jobs.unrecorded(&delivery.message, failure);
    }
    let steps = match (&jobs.guard, pk) {
        (Some(_), Some(pk)) => {
            let queue = &*jobs.name;
            seldom!(jobs.seldom, "unguarded", warn, queue, %pk, "run without a guard: its store is away, and GUARD_OUTAGE is open");
            Steps::Unrecorded { pk: pk.0.clone() }
        }
        _ => Steps::Refused,
    };
    let cx = jobs.context(message, pk, 0, (attempt, &delivery.term), steps);
    let bounds = run::Bounds::new(&delivery.lease, &delivery.term, slot);
    let (ended, task) = jobs.run(work, cx, bounds, delivery).await;
    let name = run_name(pk, &delivery.message);
    if let Some(task) = task {
        jobs.stuck.watch(&jobs.name, name.clone(), task);
    }
    match jobs.next(ended, &name.0, attempt, delivery.is_last) {
        Next::Confirm => Settlement::Delete(Deleted::Done),
        Next::Bury(failure) => jobs.unrecorded(&delivery.message, failure),
        next => {
            let again = jobs.again(delivery, &delivery.lease, next, attempt);
            if let Some(why) = again.failure {
                delivery.failed.fetch_add(1, Ordering::Relaxed);
                jobs.attempt_failed(delivery, &name.0, attempt, &why, &again.settlement);
            }
            again.settlement
        }
    }
}

impl Jobs {
    /// The queue's name at SQS.
    pub(crate) fn at_sqs(&self) -> &str {
        self.config.address.queue_name()
    }

    async fn run(
        &self,
        work: Arc<dyn Work>,
        cx: Arc<JobContext>,
        bounds: run::Bounds<'_>,
        delivery: &Delivery,
    ) -> run::Over {
        if !bounds.allow_a_begin() {
            return (Ended::Interrupted { still_running: false }, None);
        }
        let begun = Instant::now();
        self.meters.started.one();
        if !delivery.begun.swap(true, Ordering::Relaxed) {
            self.meters.to_start.record(begun.duration_since(delivery.received));
        }
        let seen = self.watch.begins(&cx, bounds.lease);
        let mut over = run::run(work, cx, self.handler.is_blocking(), bounds).await;
        drop(seen);
        if delivery.term.excuses(begun, self.config.handler_timeout) {
            over.0 = over.0.excused();
        }
        self.meters.handled(HandlerEnd::from(&over.0), begun.elapsed());
        // A term that is bounded is as long as it is: no lease follows what handlers take.
        if !matches!(over.0, Ended::Interrupted { .. }) && !delivery.term.is_bounded() {
            self.visibility.took(begun.elapsed());
        }
        over
    }

    /// Runs under a claim, and writes the steps that have ended. What comes with the end is to be kept until what came of it
    /// is written: after an outage that is waited for before anything new is taken, or that could be the same work once more.
    async fn run_guarded(
        &self,
        work: Arc<dyn Work>,
        cx: Arc<JobContext>,
        claim: &ExecutionLease,
        (delivery, slot): (&Delivery, &Slot),
    ) -> (Ended, impl Sized) {
        let bounds = run::Bounds::new(&claim.lease, &delivery.term, slot);
        let (mut ended, task) = self.run(work, cx, bounds, delivery).await;
        if let Some(task) = task {
            self.stuck.watch(&self.name, claim.pk.clone(), task);
        }
        if claim.has_unwritten_steps() {
            // The store used up the run's time, and outages do not count (rule G6).
            ended = ended.excused();
        }
        ended = with_commit(claim, ended);
        let unwritten = self.store.unwritten();
        // What has finished is written first, so that giving the claim back never hides a step that took effect.
        claim.flush().await;
        (ended, unwritten)
    }

    fn guarded_context(
        &self,
        message: Arc<Message>,
        claim: &Arc<ExecutionLease>,
        (part, attempt): (Part, u32),
        term: &Term,
    ) -> Arc<JobContext> {
        let steps = Steps::Recorded(Recorder::new(Arc::clone(claim), self.clock.clone(), part));
        self.context(message, Some(&claim.pk), claim.fence.0, (attempt, term), steps)
    }

    fn context(
        &self,
        message: Arc<Message>,
        pk: Option<&Pk>,
        fence: u64,
        (attempt, term): (u32, &Term),
        steps: Steps,
    ) -> Arc<JobContext> {
        let (deadline, _) = watch::channel(Instant::now() + term.budget(self.config.handler_timeout));
        Arc::new(JobContext {
            queue: Arc::clone(&self.name),
            message,
            key: pk.map(|pk| pk.0.clone()),
            fence,
            attempt,
            deadline,
            cancelled: Cancelled::default(),
            remote: self.remote.clone().filter(|_| matches!(steps, Steps::Recorded(_))),
            steps,
            elsewhere: Elsewhere::default(),
        })
    }

    fn next(&self, ended: Ended, key: &str, attempt: u32, is_last: bool) -> Next {
        let absent = matches!(&ended, Ended::Returned(Err(error)) if error.is_unavailable());
        let own_absence = absent && self.absences.is_the_keys_own(key);
        if let (true, false, Ended::Returned(Err(error))) = (absent, own_absence, &ended) {
            self.there.open(&error.to_string(), error.retry_delay());
        } else if matches!(ended, Ended::Returned(_)) && !absent {
            self.absences.succeeded(key);
            self.there.succeeded();
        }
        // Without a guard only what ran and failed is dead-lettered on its last receive, and this did.
        let limits = Limits { attempt, max_attempts: self.config.max_attempts, is_last, own_absence };
        decide::next(ended, limits)
    }
}
