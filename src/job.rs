//! The life of a message, from its body to a [`Settlement`].
//!
//! [`job`] is the path: decode, derive the key, claim, run, record. It writes the guard and keeps its own claim alive;
//! it never touches the queue, which acts on the settlement elsewhere. It holds nothing when it returns, except what it
//! has reported as still running.

use std::{
    any::Any,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::{Clock, Millis},
    config::{OutagePolicy, QueueConfig},
    guard::{
        Claim, Claimed, Failure, Guard, GuardError, Owner, Pk, Record, Source, Status, TakeOver, TakeOverKind,
        execution::{ExecutionLease, Owned},
        outage::{Absences, Circuit},
    },
    handler::{Cancelled, ErasedHandler, HandlerResult, JobContext, Work, steps::Steps},
    key::{self, KeyHash},
    lease::keep,
    message::{Delivery, Message},
    settle::{
        Delayed, Deleted, Held, Left, Settlement,
        dead_letter::{DeadLetter, Note},
    },
    testing::{Planted, planted},
};

use decide::{Ended, Found, Limits, Next, View};

pub(crate) mod decide;
mod run;

pub(crate) use run::Slot;

/// What all jobs of one queue share.
pub(crate) struct Jobs {
    /// The queue's name in the configuration.
    pub(crate) name: String,
    pub(crate) config: QueueConfig,
    pub(crate) namespace: Option<String>,
    pub(crate) key_hash: KeyHash,
    pub(crate) clock_skew: Duration,
    pub(crate) cancel_grace: Duration,
    /// The visibility timeout in force; claims are as long.
    pub(crate) visibility: Duration,
    pub(crate) handler: Arc<dyn ErasedHandler>,
    pub(crate) guard: Option<Arc<dyn Guard>>,
    pub(crate) clock: Clock,
    /// A name for this worker, for a person who reads a record.
    pub(crate) worker: String,
    /// The guard's store.
    pub(crate) store: Arc<Circuit>,
    /// What does the work.
    pub(crate) there: Arc<Circuit>,
    pub(crate) absences: Absences,
    pub(crate) stuck: Stuck,
    /// Records whose lease ends further ahead than any can: as they were first seen, and when.
    pub(crate) absurd: Mutex<BTreeMap<Pk, (Owner, Millis, Instant)>>,
    /// Cancels what runs: the drain's time is used up.
    pub(crate) halt: CancellationToken,
}

/// What one message is about. Derived once, from the bytes received (rule G10).
struct Identity {
    pk: Option<Pk>,
    fingerprint: Option<String>,
}

/// Takes one delivery from its body to a settlement.
///
/// # Cancel safety
/// Dropped, it is a crash: the claim lapses, and what was not recorded may run again.
pub(crate) async fn job(jobs: &Jobs, delivery: &Delivery, slot: &Slot) -> Settlement {
    let message = &delivery.message;
    let work = match decode(jobs, message) {
        Ok(work) => work,
        Err(failure) => return jobs.unrecorded(message, failure),
    };
    let identity = match identify(jobs, &*work, message) {
        Ok(identity) => identity,
        Err(failure) => return jobs.unrecorded(message, failure),
    };
    if jobs.stuck.holds(&run_name(identity.pk.as_ref(), message)) {
        return Settlement::Held { until: jobs.clock.wall() + jobs.visibility, why: Held::Stuck };
    }
    let (Some(guard), Some(pk)) = (&jobs.guard, &identity.pk) else {
        return unguarded(jobs, delivery, slot, work, identity.pk.as_ref()).await;
    };
    match claim(jobs, guard, pk, &identity, delivery).await {
        Ok(claim) => {
            let claim = Arc::new(claim);
            let renew = |length| claim.renew(length);
            keep(&claim.lease, None, renew, guarded(jobs, delivery, slot, work, &claim)).await
        }
        Err(Settlement::Outage) if jobs.config.guard_outage == OutagePolicy::Open => {
            let settlement = unguarded(jobs, delivery, slot, work, Some(pk)).await;
            if matches!(settlement, Settlement::Delete(Deleted::Done)) {
                record_afterwards(jobs, guard, pk, &identity, delivery).await;
            }
            settlement
        }
        Err(settlement) => settlement,
    }
}

/// Users' code runs here (a codec, a key function), so a panic is caught: it is the message's failure, not ours.
fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| format!("panicked: {}", panic_text(&*panic)))
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text")
}

fn decode(jobs: &Jobs, message: &Message) -> Result<Arc<dyn Work>, Failure> {
    match caught(|| Arc::clone(&jobs.handler).decode(message)) {
        Ok(Ok(work)) => Ok(work),
        Ok(Err(error)) => Err(Failure::new("malformed", error)),
        Err(panic) => Err(Failure::new("malformed", format!("decoding {panic}"))),
    }
}

fn identify(jobs: &Jobs, work: &dyn Work, message: &Message) -> Result<Identity, Failure> {
    let no_key = |text: String| Failure::new("no_key", text);
    let fingerprint = jobs.config.fingerprint.of(message);
    // Message and deduplication ids do not survive the DLQ: what the failure noted is the key it was claimed under.
    let noted = message.dead_letter.as_ref().and_then(|note| note.pk.clone()).map(Pk);
    if let Some(pk) = noted.filter(|pk| key::belongs(pk, jobs.namespace.as_deref(), &jobs.config.operation)) {
        return Ok(Identity { pk: Some(pk), fingerprint });
    }
    let key = match (caught(|| work.key()), &jobs.config.key) {
        (Err(panic), _) => return Err(no_key(format!("the key function {panic}"))),
        (Ok(Some(key)), _) => key,
        (Ok(None), Some(source)) => source.derive(message).map_err(|error| no_key(error.to_string()))?,
        (Ok(None), None) => return Ok(Identity { pk: None, fingerprint }),
    };
    let pk = key::pk(jobs.namespace.as_deref(), &jobs.config.operation, &key, jobs.key_hash)
        .ok_or_else(|| no_key("the message has no key: the key function returned nothing, or an empty text".into()))?;
    Ok(Identity { pk: Some(pk), fingerprint })
}

/// What a run goes by in this process. Without a key it is the message.
fn run_name(pk: Option<&Pk>, message: &Message) -> Pk {
    pk.cloned().unwrap_or_else(|| Pk(format!("message {}", message.id)))
}

/// Calls of one claim, each answering to what the last one found.
const CLAIM_TRIES: u32 = 4;

/// Claims the key, or says how to settle without it.
async fn claim(
    jobs: &Jobs,
    guard: &Arc<dyn Guard>,
    pk: &Pk,
    identity: &Identity,
    delivery: &Delivery,
) -> Result<ExecutionLease, Settlement> {
    let mut found: Option<(Box<Record>, TakeOverKind)> = None;
    for _ in 0..CLAIM_TRIES {
        let sent = jobs.clock.now();
        let claim = jobs.new_claim(pk, identity, &delivery.message, sent.wall);
        let (answer, kind) = match found.take() {
            None => (insisted(jobs, || guard.claim(&claim)).await, None),
            Some((seen, kind)) => {
                let take_over = TakeOver { claim, seen, kind };
                (insisted(jobs, || guard.take_over(&take_over)).await, Some(kind))
            }
        };
        match answer {
            Err(error) => return Err(no_verdict(jobs, delivery, pk, &error)),
            Ok(Claimed::Mine(record)) => {
                if let Some(TakeOverKind::Park { not_before }) = kind {
                    tracing::warn!(%pk, takeovers = record.takeovers, "its worker died again; it waits for a while");
                    return Err(Settlement::Held { until: not_before, why: Held::BackingOff });
                }
                let guard = (Arc::clone(guard), Arc::clone(&jobs.store));
                return Ok(ExecutionLease::new(guard, jobs.clock.clone(), *record, sent, jobs.visibility));
            }
            // Swept, or given up, between the refusal and the takeover: there is nothing in the way any more.
            Ok(Claimed::Refused(None)) => {}
            Ok(Claimed::Refused(Some(record))) => match jobs.look_at(&record, identity, delivery) {
                Found::TakeOver(kind) => found = Some((record, kind)),
                verdict => return Err(jobs.in_the_way(&record, verdict, delivery)),
            },
        }
    }
    // Others claim it all the time: one of them has it.
    Err(Settlement::Held { until: jobs.clock.wall() + jobs.visibility / 2, why: Held::Running })
}

/// Asks a second time, with the very same claim, when no answer came: if the first was applied, its record shows our
/// token (rule G3), and the key is not held by a claim that nobody knows of.
async fn insisted<F>(jobs: &Jobs, ask: impl Fn() -> F) -> Result<Claimed, GuardError>
where
    F: Future<Output = Result<Claimed, GuardError>>,
{
    match ask().await {
        Err(GuardError::NoAnswer(_)) if !jobs.store.is_open() => ask().await,
        answer => answer,
    }
}

/// Unknown is a verdict of its own: nothing runs, nothing is deleted, nothing is dead-lettered (rules G1, G8).
fn no_verdict(jobs: &Jobs, delivery: &Delivery, pk: &Pk, error: &GuardError) -> Settlement {
    if jobs.store.is_open() {
        return Settlement::Outage;
    }
    tracing::warn!(%pk, %error, "the guard gave no verdict; nothing is run");
    let until = jobs.clock.wall() + jobs.backoff(delivery.message.receive_count);
    later(delivery, until, Delayed::NoVerdict)
}

/// Runs under a claim, and writes down what came of it. The claim is kept meanwhile.
async fn guarded(
    jobs: &Jobs,
    delivery: &Delivery,
    slot: &Slot,
    work: Arc<dyn Work>,
    claim: &Arc<ExecutionLease>,
) -> Settlement {
    if let Some(failure) = decide::spent(&claim.claimed, jobs.config.max_attempts, jobs.config.max_takeovers) {
        return bury(jobs, delivery, claim, failure, claim.claimed.failures).await;
    }
    let attempt = claim.claimed.failures + 1;
    let cx = jobs.context(delivery, Some(&claim.pk), claim.fence.0, attempt, {
        Steps::recorded(Arc::clone(claim), jobs.clock.clone())
    });
    let bounds = run::Bounds { lease: &claim.lease, grace: jobs.cancel_grace, halt: &jobs.halt, slot };
    let (ended, task) = run::run(work, cx, jobs.handler.is_blocking(), bounds).await;
    if let Some(task) = task {
        jobs.stuck.watch(claim.pk.clone(), task);
    }
    // After an outage this is waited for before anything new is taken, or that could be the same work once more.
    let _unwritten = jobs.store.unwritten();
    // What has finished is written first, so that giving the claim back never hides a step that took effect.
    claim.flush().await;
    let next = jobs.next(ended, &claim.pk.0, attempt, delivery.is_last);
    match next {
        Next::Confirm => confirm(jobs, claim).await,
        Next::Bury(failure) => bury(jobs, delivery, claim, failure, attempt).await,
        next => give_back(jobs, delivery, claim, next, attempt).await,
    }
}

async fn confirm(jobs: &Jobs, claim: &ExecutionLease) -> Settlement {
    if planted(Planted::ConfirmAfterDelete) {
        return Settlement::Delete(Deleted::Done);
    }
    match claim.insist(&claim.confirmation(jobs.config.done_ttl)).await {
        Ok(Owned::Applied | Owned::Done) => Settlement::Delete(Deleted::Done),
        Ok(Owned::Lost(record)) => {
            tracing::warn!(pk = %claim.pk, "the work ended after another worker had taken over; what it recorded counts");
            let done = record.is_some_and(|record| record.status == Status::Done);
            if done { Settlement::Delete(Deleted::Suppressed) } else { Settlement::Leave(Left::ClaimLost) }
        }
        Err(error) => unwritten(claim, &error),
    }
}

/// Gives the claim back, and says when the message is to come again.
async fn give_back(jobs: &Jobs, delivery: &Delivery, claim: &ExecutionLease, next: Next, attempt: u32) -> Settlement {
    let now = jobs.clock.wall();
    let (failure, until, settlement) = match next {
        Next::Retry { failure, delay } => {
            let until = now + possible(delay.unwrap_or_else(|| jobs.backoff(attempt)));
            (Some(failure), Some(until), later(delivery, until, Delayed::Failed))
        }
        Next::NotYet(delay) => {
            let until = now + possible(delay);
            (None, Some(until), later(delivery, until, Delayed::NotYet))
        }
        Next::Unavailable(delay) => {
            let until = now + possible(delay.unwrap_or_else(|| jobs.backoff(1)));
            (None, None, later(delivery, until, Delayed::Unavailable))
        }
        Next::StillRunning(failure) if !planted(Planted::ReleaseOfRunning) => {
            let free = claim.lease.end().unwrap_or(now).max(now) + jobs.clock_skew;
            (failure, Some(free), after_what_still_runs(delivery, free))
        }
        _ => (None, None, later(delivery, jobs.after_an_interruption(), Delayed::Interrupted)),
    };
    let why = failure.clone();
    match claim.insist(&claim.release(until, failure)).await {
        Ok(Owned::Applied) => {
            if let Some(why) = why {
                tracing::warn!(pk = %claim.pk, attempt, code = why.code, error = why.text, "the attempt failed");
            }
            settlement
        }
        Ok(Owned::Done) => Settlement::Delete(Deleted::Done),
        Ok(Owned::Lost(_)) => Settlement::Leave(Left::ClaimLost),
        Err(error) => unwritten(claim, &error),
    }
}

/// Records that the work has failed for good; the copy follows (rule T3).
async fn bury(jobs: &Jobs, delivery: &Delivery, claim: &ExecutionLease, failure: Failure, failures: u32) -> Settlement {
    let id = claim.claimed.failure_id.clone().filter(|_| claim.claimed.status == Status::Failed);
    let id = id.unwrap_or_else(|| failure_id(&[&claim.pk.0, &claim.fence.0.to_string()]));
    let change = claim.burial(failure.clone(), failures, id.clone(), jobs.config.done_ttl);
    match claim.insist(&change).await {
        Ok(Owned::Applied) => {
            let record = Record { failures, last_error: Some(failure), failure_id: Some(id), ..claim.claimed.clone() };
            jobs.dead_letter(&delivery.message, &record, claim.last_step())
        }
        Ok(Owned::Done) => Settlement::Delete(Deleted::Done),
        Ok(Owned::Lost(_)) => Settlement::Leave(Left::ClaimLost),
        Err(error) => unwritten(claim, &error),
    }
}

fn unwritten(claim: &ExecutionLease, error: &GuardError) -> Settlement {
    tracing::error!(pk = %claim.pk, %error, "what came of the run cannot be recorded; the next delivery finds its steps");
    Settlement::Leave(Left::Unwritten)
}

/// Runs without a claim: the queue has no guard, or its store is away and the policy is `open`. The delivery's lease
/// decides (rule L2), and deliveries count as attempts.
async fn unguarded(jobs: &Jobs, delivery: &Delivery, slot: &Slot, work: Arc<dyn Work>, pk: Option<&Pk>) -> Settlement {
    let attempt = delivery.message.receive_count;
    let steps = match (&jobs.guard, pk) {
        (Some(_), Some(pk)) => {
            tracing::warn!(%pk, "run without a guard: its store is away, and GUARD_OUTAGE is open");
            Steps::Unrecorded { pk: pk.0.clone() }
        }
        _ => Steps::Refused,
    };
    let cx = jobs.context(delivery, pk, 0, attempt, steps);
    let bounds = run::Bounds { lease: &delivery.lease, grace: jobs.cancel_grace, halt: &jobs.halt, slot };
    let (ended, task) = run::run(work, cx, jobs.handler.is_blocking(), bounds).await;
    let name = run_name(pk, &delivery.message);
    if let Some(task) = task {
        jobs.stuck.watch(name.clone(), task);
    }
    let now = jobs.clock.wall();
    match jobs.next(ended, &name.0, attempt, delivery.is_last) {
        Next::Confirm => Settlement::Delete(Deleted::Done),
        Next::Bury(failure) => jobs.unrecorded(&delivery.message, failure),
        Next::Retry { failure, delay } => {
            tracing::warn!(key = %name, attempt, code = failure.code, error = failure.text, "the attempt failed");
            let delay = possible(delay.unwrap_or_else(|| jobs.backoff(attempt)));
            later(delivery, now + delay, Delayed::Failed)
        }
        Next::NotYet(delay) => later(delivery, now + possible(delay), Delayed::NotYet),
        Next::Unavailable(delay) => {
            let delay = possible(delay.unwrap_or_else(|| jobs.backoff(1)));
            later(delivery, now + delay, Delayed::Unavailable)
        }
        Next::StillRunning(_) => after_what_still_runs(delivery, now + jobs.visibility),
        Next::Interrupted => later(delivery, jobs.after_an_interruption(), Delayed::Interrupted),
    }
}

/// After a run that the policy `open` let through: tries to record "done", so that a duplicate that comes when the store
/// is back finds it. Best effort, and told when it fails.
async fn record_afterwards(jobs: &Jobs, guard: &Arc<dyn Guard>, pk: &Pk, identity: &Identity, delivery: &Delivery) {
    let recorded = match claim(jobs, guard, pk, identity, delivery).await {
        Ok(claim) => {
            let written = claim.write(&claim.confirmation(jobs.config.done_ttl)).await;
            matches!(written, Ok(Owned::Applied | Owned::Done))
        }
        Err(settlement) => matches!(settlement, Settlement::Delete(Deleted::Suppressed)),
    };
    if !recorded {
        tracing::warn!(%pk, "ran without a guard, and \"done\" could not be recorded: a duplicate will run again");
    }
}

impl Jobs {
    fn new_claim(&self, pk: &Pk, identity: &Identity, message: &Message, now: Millis) -> Claim {
        Claim {
            pk: pk.clone(),
            owner: Owner(self.clock.token()),
            now,
            lease_until: now + self.visibility,
            fingerprint: identity.fingerprint.clone(),
            source: Source {
                queue: self.name.clone(),
                message_id: message.id.clone(),
                sent_at: message.sent_at,
                worker: self.worker.clone(),
            },
        }
    }

    fn context(&self, delivery: &Delivery, pk: Option<&Pk>, fence: u64, attempt: u32, steps: Steps) -> Arc<JobContext> {
        let (deadline, _) = watch::channel(Instant::now() + self.config.handler_timeout);
        Arc::new(JobContext {
            message: Arc::clone(&delivery.message),
            key: pk.map(|pk| pk.0.clone()),
            fence,
            attempt,
            deadline,
            cancelled: Cancelled::default(),
            steps,
        })
    }

    fn look_at(&self, record: &Record, identity: &Identity, delivery: &Delivery) -> Found {
        let now = self.clock.wall();
        let view = View {
            message: &delivery.message,
            fingerprint: identity.fingerprint.as_deref(),
            now,
            skew: self.clock_skew,
            max_takeovers: self.config.max_takeovers,
            unchanged_for: self.unchanged_for(record, now),
            lease: self.visibility,
            park: self.backoff(record.takeovers),
        };
        decide::found(record, &view)
    }

    /// How long this process has seen the record unchanged, if its lease ends further ahead than any can.
    fn unchanged_for(&self, record: &Record, now: Millis) -> Duration {
        /// Clocks that are so wrong are few; more records than this are not worth remembering.
        const REMEMBERED: usize = 1_000;
        let mut absurd = self.absurd.lock().unwrap_or_else(PoisonError::into_inner);
        if record.lease_until < now + crate::queue::LONGEST_VISIBILITY {
            absurd.remove(&record.pk);
            return Duration::ZERO;
        }
        if absurd.len() >= REMEMBERED && !absurd.contains_key(&record.pk) {
            absurd.pop_first();
        }
        let now = Instant::now();
        let seen = absurd.entry(record.pk.clone()).or_insert_with(|| (record.owner.clone(), record.lease_until, now));
        if (&seen.0, seen.1) != (&record.owner, record.lease_until) {
            *seen = (record.owner.clone(), record.lease_until, now);
        }
        seen.2.elapsed()
    }

    /// How to settle a delivery whose key another record has.
    fn in_the_way(&self, record: &Record, verdict: Found, delivery: &Delivery) -> Settlement {
        match verdict {
            Found::Done => Settlement::Delete(Deleted::Suppressed),
            Found::Dead if record.copied => Settlement::Delete(Deleted::Suppressed),
            Found::Dead => self.dead_letter(&delivery.message, record, None),
            Found::OtherPayload => {
                let text = format!("the key {} was used before with another payload", record.pk);
                self.unrecorded(&delivery.message, Failure::new("key_reused", text))
            }
            Found::Held { until, why } => Settlement::Held { until, why },
            Found::TakeOver(_) => Settlement::Held { until: self.clock.wall() + self.visibility, why: Held::Running },
        }
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

    fn backoff(&self, n: u32) -> Duration {
        let (base, cap) = (self.config.backoff.base, self.config.backoff.cap);
        decide::backoff(base, cap, n, |most| self.clock.part_of(most))
    }

    /// At once when this worker stops, for others are there. Else what interrupted the run (a store that is slow or does
    /// not renew) is likely to meet the next one too, and each costs a receive.
    fn after_an_interruption(&self) -> Millis {
        let wait = if self.halt.is_cancelled() { Duration::ZERO } else { self.backoff(1) };
        self.clock.wall() + wait
    }

    fn note(&self, message: &Message, failure: Failure, failure_id: String) -> Note {
        Note::new(failure, failure_id, &self.name, message, self.clock.wall())
    }

    /// Work without a record has failed for good: malformed, without a key, another payload, or without a guard.
    fn unrecorded(&self, message: &Message, failure: Failure) -> Settlement {
        let id = failure_id(&[&self.name, &message.id]);
        let note = self.note(message, failure, id);
        Settlement::DeadLetter(Box::new(DeadLetter { note, record: None }))
    }

    /// A record says that its work has failed for good, and its copy is not known to be sent.
    fn dead_letter(&self, message: &Message, record: &Record, step: Option<String>) -> Settlement {
        let failure = record.last_error.clone().unwrap_or_else(|| Failure::new("error", "not recorded"));
        let mut note = self.note(message, failure, record.failure_id.clone().unwrap_or_default());
        note.failures = record.failures;
        note.takeovers = record.takeovers;
        note.fence = record.fence.0;
        note.pk = Some(record.pk.0.clone());
        note.step = step;
        Settlement::DeadLetter(Box::new(DeadLetter { note, record: Some(record.pk.clone()) }))
    }
}

/// A delay as SQS can give it.
fn possible(asked: Duration) -> Duration {
    asked.min(crate::queue::LONGEST_VISIBILITY)
}

/// Again at that time: through visibility, or on the last receive in place, for a delayed message would go to the
/// dead-letter queue without a word of ours (rule T6).
fn later(delivery: &Delivery, until: Millis, why: Delayed) -> Settlement {
    if delivery.is_last { Settlement::RetryInPlace { until, why } } else { Settlement::Delay { until, why } }
}

/// What was begun may still run until `free`: not given back, so that nobody runs it beside (rule D2); but a last receive
/// must not run out.
fn after_what_still_runs(delivery: &Delivery, free: Millis) -> Settlement {
    if delivery.is_last { later(delivery, free, Delayed::Interrupted) } else { Settlement::Leave(Left::StillRunning) }
}

/// Names one failure for good. Parts are counted, so that different parts never become one text.
fn failure_id(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Runs that ignore their cancellation. Each keeps its key and its slot until it ends, so that no second run of the key
/// begins beside it in this process, and one key cannot take all slots (rule L8).
#[derive(Debug, Default)]
pub(crate) struct Stuck(Mutex<BTreeMap<Pk, JoinSet<HandlerResult>>>);

impl Stuck {
    /// Held for a few straight lines.
    fn runs(&self) -> MutexGuard<'_, BTreeMap<Pk, JoinSet<HandlerResult>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, pk: Pk, task: JoinSet<HandlerResult>) {
        tracing::error!(%pk, "the handler ignores its cancellation; its slot is kept until it ends");
        let mut runs = self.runs();
        // Those that have ended are forgotten also when nobody asks for their key again.
        runs.retain(|_, task| task.try_join_next().is_none());
        runs.insert(pk, task);
    }

    /// Whether a run of the key still goes on; one that has ended is forgotten.
    pub(crate) fn holds(&self, pk: &Pk) -> bool {
        let mut runs = self.runs();
        let ended = runs.get_mut(pk).is_none_or(|task| task.try_join_next().is_some());
        if ended {
            runs.remove(pk);
        }
        !ended
    }

    /// How many still go on.
    pub(crate) fn count(&self) -> usize {
        let mut runs = self.runs();
        runs.retain(|_, task| task.try_join_next().is_none());
        runs.len()
    }
}
