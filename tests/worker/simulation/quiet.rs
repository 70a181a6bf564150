//! What must hold when nothing goes wrong any more and nothing is under way.

use std::collections::BTreeSet;

use leasehold::{guard::Status, message::Message};

use super::{bank::Bank, handler::Order, plan::UNREACHED, promise::Promise, world::LEDGER};

/// Looks at everything that is left.
pub(crate) fn check(promise: &Promise, bank: &Bank, queue: &[Message], dead: &[Message]) {
    nothing_vanished(promise, queue, dead);
    done_took_effect_once(promise, bank);
    commits_are_all_or_nothing(promise);
    innocents_are_not_dead(promise, dead);
    promise.groups.check(promise);
}

/// Invariant 1: done, or dead-lettered, or in an operator's hands.
fn nothing_vanished(promise: &Promise, queue: &[Message], dead: &[Message]) {
    let state = promise.state();
    for message in queue {
        promise.trace.violated(format_args!("invariant 1: {} {} is never settled", message.id, message.body));
    }
    for (id, sent) in &state.sent {
        let kept = state.mended.contains(&sent.body) || dead.iter().chain(queue).any(|kept| kept.body == sent.body);
        if !kept && !promise.is_done(&state, &sent.body) {
            promise.trace.violated(format_args!("invariant 1: {id} {} has vanished", sent.body));
        }
    }
}

/// Invariant 5: each step has one effect at the most, and one exactly where its key is done.
fn done_took_effect_once(promise: &Promise, bank: &Bank) {
    let effects = bank.effects();
    for ((pk, step), keys) in &effects {
        // Each but one has been undone since.
        let refunds = effects.get(&(pk.clone(), "refund".to_owned())).map_or(0, BTreeSet::len);
        let allowed = if step == "charge" {
            1 + refunds
        } else if refunds > 0 {
            keys.len()
        } else {
            1
        };
        if keys.len() > allowed {
            promise.trace.violated(format_args!("invariant 5: {step} of {pk} took effect as each of {keys:?}"));
        }
    }
    for record in promise.guard.records().iter().filter(|record| record.status == Status::Done) {
        for (step, recorded) in &record.steps {
            let key = (record.pk.clone(), step.clone());
            if recorded.state == leasehold::guard::StepState::Done && !bank.effects().contains_key(&key) {
                promise
                    .trace
                    .violated(format_args!("invariant 5: {step} of {} is recorded, without effect", record.pk));
            }
        }
    }
}

/// Invariant 13: of work that commits, exactly what is done has its entry, and one.
fn commits_are_all_or_nothing(promise: &Promise) {
    let entries = promise.guard.items(LEDGER);
    for record in promise.guard.records() {
        let commits = promise.plan.script_of(&record.pk.0).is_some_and(|script| script.commits);
        let count = entries.iter().filter(|entry| entry.get("key") == Some(&record.pk.0.as_str().into())).count();
        let expected = usize::from(commits && record.status == Status::Done);
        if count != expected {
            let (pk, status) = (&record.pk, record.status);
            promise.trace.violated(format_args!("invariant 13: {pk} is {status:?}, and has {count} entries"));
        }
    }
}

/// Invariant 7.
fn innocents_are_not_dead(promise: &Promise, dead: &[Message]) {
    for message in dead {
        let Some(note) = &message.dead_letter else {
            promise.trace.met("moved by SQS");
            if promise.plan.max_receive_count == UNREACHED {
                promise.trace.violated(format_args!("invariant 7: SQS itself moved {}", message.body));
            }
            continue;
        };
        let Some(script) = Order::of(&message.body).map(|order| &promise.plan.scripts[order.key()]) else { continue };
        let explained = match note.code.as_str() {
            "takeovers" | "key_reused" => true,
            // Its worker died in the middle of it, or lost its lease.
            "step_in_doubt" => script.once,
            "undo_incomplete" => {
                script.once || ["takeovers", "key_reused"].iter().any(|code| note.message.starts_with(code))
            }
            "timed_out" => promise.plan.can_slow(script),
            _ => false,
        };
        if script.is_innocent() && !explained {
            let code = &note.code;
            promise.trace.violated(format_args!("invariant 7: {} is innocent, and dead of {code}", message.body));
        }
    }
}
