//! Claiming a key: the conditional writes that lead to a claim of ours, or to a settlement without one.
//!
//! Answers each refusal by what the record in the way says, a few times at the most. Runs nothing.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Jobs,
    decide::{self, Found, View},
    open::Identity,
    outcome::later,
};
use crate::{
    causes::in_full,
    clock::Millis,
    guard::{
        Claim, Claimed, Failure, Guard, GuardError, Owner, Pk, Record, Source, Status, TakeOver, TakeOverKind,
        execution::{ExecutionLease, Owned},
    },
    message::{Delivery, Message},
    queue::LONGEST_VISIBILITY,
    seldom::seldom,
    settle::{Delayed, Deleted, Held, Settlement},
    telemetry::Verdict,
    testing::{Planted, planted},
};

/// Calls of one claim, each answering to what the last one found.
const CLAIM_TRIES: u32 = 4;

/// Claims the key, or says how to settle without it.
pub(super) async fn claim(
    jobs: &Jobs,
    guard: &Arc<dyn Guard>,
    pk: &Pk,
    identity: &Identity,
    delivery: &Delivery,
) -> Result<ExecutionLease, Settlement> {
    let mut found: Option<(Box<Record>, TakeOverKind)> = None;
    for _ in 0..CLAIM_TRIES {
        let sent = jobs.clock.now();
        let length = delivery.term.claim(jobs.visibility.in_force(), sent);
        let claim = jobs.new_claim(pk, identity, &delivery.message, (sent.wall, length));
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
                let verdict = match kind {
                    Some(TakeOverKind::Park { .. }) => Verdict::Parked,
                    Some(TakeOverKind::AfterLapse) => Verdict::TakenOver,
                    _ => Verdict::Mine,
                };
                jobs.meters.verdict(verdict);
                if verdict != Verdict::Mine {
                    jobs.meters.takeovers.one();
                }
                if let Some(TakeOverKind::Park { not_before }) = kind {
                    let (queue, takeovers) = (&*jobs.name, record.takeovers);
                    tracing::warn!(queue, %pk, takeovers, "its worker died again; it waits for a while");
                    return Err(Settlement::Held { until: not_before, why: Held::BackingOff });
                }
                if kind == Some(TakeOverKind::AfterLapse) {
                    let (queue, takeovers) = (&*jobs.name, record.takeovers);
                    tracing::info!(queue, %pk, takeovers, "taken over: its former worker died, or lost its lease");
                }
                let guard = (Arc::clone(guard), Arc::clone(&jobs.store));
                let done_ttl = jobs.config.done_ttl;
                let lease = delivery.term.lease(&jobs.clock, sent, length);
                return Ok(ExecutionLease::new(guard, jobs.clock.clone(), *record, lease, done_ttl));
            }
            // Swept, or given up, between the refusal and the takeover: there is nothing in the way any more.
            Ok(Claimed::Refused(None)) => {}
            Ok(Claimed::Refused(Some(record))) => {
                let kind = jobs.look_at(&record, identity, delivery)?;
                found = Some((record, kind));
            }
        }
    }
    // Others claim it all the time: one of them has it.
    jobs.meters.verdict(Verdict::Held);
    Err(Settlement::Held { until: jobs.clock.wall() + jobs.visibility.in_force() / 2, why: Held::Running })
}

/// Asks a second time, with the very same claim, when the first may have been applied: its record then shows our token
/// (rule G3), and the key is not held by a claim that nobody knows of.
async fn insisted<F>(jobs: &Jobs, ask: impl Fn() -> F) -> Result<Claimed, GuardError>
where
    F: Future<Output = Result<Claimed, GuardError>>,
{
    match ask().await {
        Err(GuardError::NoAnswer(_) | GuardError::Unavailable(_)) if !jobs.store.is_open() => ask().await,
        answer => answer,
    }
}

/// Unknown is a verdict of its own: nothing runs, nothing is deleted, nothing is dead-lettered (rules G1, G8).
fn no_verdict(jobs: &Jobs, delivery: &Delivery, pk: &Pk, error: &GuardError) -> Settlement {
    jobs.meters.verdict(Verdict::Unknown);
    if jobs.store.is_open() {
        return Settlement::Outage;
    }
    let (queue, error) = (&*jobs.name, in_full(error));
    seldom!(jobs.seldom, "no verdict", warn, queue, %pk, error, "the guard gave no verdict; nothing is run");
    let until = jobs.clock.wall() + jobs.backoff(delivery.message.receive_count);
    later(delivery, until, Delayed::NoVerdict)
}

/// After a run that the policy `open` let through: tries to record "done", so that a duplicate that comes when the store
/// is back finds it. Best effort, and told when it fails. Work that had failed for good is still to be undone, which takes
/// this message: it is then settled so, and not deleted.
pub(super) async fn record_afterwards(
    jobs: &Jobs,
    guard: &Arc<dyn Guard>,
    pk: &Pk,
    identity: &Identity,
    delivery: &Delivery,
) -> Option<Settlement> {
    let recorded = match claim(jobs, guard, pk, identity, delivery).await {
        Ok(claim) if claim.claimed.status == Status::Failed => {
            tracing::error!(queue = &*jobs.name, %pk, "ran without a guard, and its record says that it has failed for good and is being undone");
            let until = jobs.clock.wall() + jobs.backoff(1);
            let undo = claim.claimed.undo.clone().unwrap_or_default();
            // If it cannot be written, the claim lapses.
            drop(claim.write(&claim.release_undone(claim.claimed.failures, until, undo)).await);
            return Some(later(delivery, until, Delayed::Interrupted));
        }
        Ok(claim) => {
            let written = claim.write(&claim.confirmation()).await;
            matches!(written, Ok(Owned::Applied | Owned::Done))
        }
        Err(settlement) => matches!(settlement, Settlement::Delete(Deleted::Suppressed)),
    };
    if !recorded {
        let queue = &*jobs.name;
        seldom!(jobs.seldom, "not recorded", warn, queue, %pk, "ran without a guard, and \"done\" could not be recorded: a duplicate will run again");
    }
    None
}

impl Jobs {
    fn new_claim(&self, pk: &Pk, identity: &Identity, message: &Message, (now, length): (Millis, Duration)) -> Claim {
        Claim {
            pk: pk.clone(),
            owner: Owner(self.clock.token()),
            now,
            lease_until: now + length,
            fingerprint: identity.fingerprint.clone(),
            source: Source {
                queue: self.name.to_string(),
                message_id: message.id.clone(),
                sent_at: message.sent_at,
                worker: self.worker.clone(),
            },
        }
    }

    /// What a record that is in the way means for a delivery: it can be taken over, or this is how to settle.
    fn look_at(&self, record: &Record, identity: &Identity, delivery: &Delivery) -> Result<TakeOverKind, Settlement> {
        let now = self.clock.wall();
        let view = View {
            message: &delivery.message,
            fingerprint: identity.fingerprint.as_deref(),
            now,
            skew: self.clock_skew,
            max_takeovers: self.config.max_takeovers,
            unchanged_for: self.unchanged_for(record, now),
            lease: self.visibility.in_force(),
            park: self.backoff(record.takeovers),
        };
        let found = decide::found(record, &view);
        if let Some(verdict) = found.verdict() {
            self.meters.verdict(verdict);
        }
        Err(match found {
            Found::TakeOver(kind) => return Ok(kind),
            Found::Done => Settlement::Delete(Deleted::Suppressed),
            Found::Dead if record.copied => Settlement::Delete(Deleted::Suppressed),
            Found::Dead => self.dead_letter(&delivery.message, record, None, false),
            Found::OtherPayload => {
                let text = format!("the key {} was used before with another payload", record.pk);
                self.unrecorded(&delivery.message, Failure::new("key_reused", text))
            }
            Found::Held { .. } if planted(Planted::HeldIsDeleted) => Settlement::Delete(Deleted::Suppressed),
            Found::Held { until, why } => Settlement::Held { until, why },
        })
    }

    /// How long this process has seen the record unchanged, if its lease ends further ahead than any can.
    fn unchanged_for(&self, record: &Record, now: Millis) -> Duration {
        /// Clocks that are so wrong are few; more records than this are not worth remembering.
        const REMEMBERED: usize = 1_000;
        let mut absurd = self.absurd.lock().unwrap_or_else(PoisonError::into_inner);
        if record.lease_until < now + LONGEST_VISIBILITY {
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
}
