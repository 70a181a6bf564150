//! The summary: what came of everything that was sent, counted and judged.
//!
//! Pure. Everything in it is measured after the workers have stopped: in the table's records, in the dead-letter queue,
//! in the bank's books and in the embedded engine's count of requests. Nothing is taken from what a worker says of itself,
//! for one of them may have been killed.

use std::collections::{BTreeMap, BTreeSet};

use leasehold::{
    Key, Message,
    guard::{Pk, Record, Status},
    key::{self, KeyHash},
};
use serde::Serialize;

use super::{bank::Account, work::QUEUE};

/// What was found at the end.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Messages that were sent.
    pub(crate) sent: u64,
    /// Each payment's body, by which its message is known everywhere: body to payment.
    pub(crate) payments: BTreeMap<String, String>,
    pub(crate) records: Vec<Record>,
    /// What is in the dead-letter queue.
    pub(crate) dead_letters: Vec<Message>,
    /// Messages that are still in the queue.
    pub(crate) left: u64,
    pub(crate) accounts: BTreeMap<String, Account>,
    pub(crate) beats: u64,
    /// Requests of the workers, by operation.
    pub(crate) api_calls: BTreeMap<String, u64>,
    /// From the first send to the last settlement.
    pub(crate) seconds: f64,
    pub(crate) naive_bank: bool,
    /// Whether a worker was killed in mid-work.
    pub(crate) killed: bool,
}

/// What `--json` prints.
///
/// Everything but `seconds` is a count. Percentages of the options show in none of them: what was sent is counted too.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// Messages sent, duplicates included.
    pub(crate) sent: u64,
    /// Payments sent: `done`, `dead` and `lost` are counts of these.
    pub(crate) keys: u64,
    /// Payments whose record says that they took effect.
    pub(crate) done: u64,
    /// Payments of which there is a copy in the dead-letter queue, and which are not done.
    pub(crate) dead: u64,
    /// Payments that are neither.
    pub(crate) lost: u64,
    /// Calls of the bank.
    pub(crate) calls: u64,
    pub(crate) max_calls_per_key: u64,
    /// Calls for a payment that the bank had been called for before.
    pub(crate) repeated_calls: u64,
    /// Calls that moved money.
    pub(crate) effects: u64,
    pub(crate) max_effects_per_key: u64,
    /// How many payments had so many effects.
    pub(crate) effects_per_key: BTreeMap<u64, u64>,
    /// Messages that left the queue and neither took effect nor were dead-lettered: their payment was settled before.
    pub(crate) suppressed: u64,
    /// Claims of a record whose lease had ended.
    pub(crate) takeovers: u64,
    /// Renewals of a claim's lease.
    pub(crate) beats: u64,
    /// Requests of the workers to SQS and DynamoDB, by operation; a batch is one.
    pub(crate) api_calls: BTreeMap<String, u64>,
    /// All of these, for each message that was sent.
    pub(crate) calls_per_message: f64,
    /// Writes that recorded a step: those are the handler's choice, and come on top of the two that a guard needs.
    pub(crate) step_writes: u64,
    /// `calls_per_message` without the writes of steps.
    pub(crate) calls_per_message_without_steps: f64,
    /// Why payments are dead.
    pub(crate) dead_reasons: BTreeMap<String, u64>,
    /// Messages in the dead-letter queue: more than `dead` where an unreadable message had a duplicate.
    pub(crate) dead_letters: u64,
    /// Messages still in the queue.
    pub(crate) left: u64,
    /// Whether a worker was killed in mid-work.
    pub(crate) killed: bool,
    /// From the first send to the last settlement.
    pub(crate) seconds: f64,
    /// What was promised and is not so; empty if all is well.
    pub(crate) broken: Vec<String>,
}

impl Summary {
    pub(crate) fn of(found: Found) -> Self {
        let (done, copies) = (done(&found), copies(&found));
        let dead: BTreeMap<_, _> = copies.iter().filter(|(payment, _)| !done.contains(*payment)).collect();
        let keys = found.payments.values().collect::<BTreeSet<_>>().len();
        let effects = |payment: &str| found.accounts.get(payment).map_or(0, |account| account.effects);
        let requests: u64 = found.api_calls.values().sum();
        let step_writes = found.records.iter().map(|record| count(record.steps.len())).sum();
        let accounts = found.accounts.values();
        let mut summary = Self {
            sent: found.sent,
            keys: count(keys),
            done: count(done.len()),
            dead: count(dead.len()),
            lost: count(keys - done.len() - dead.len()),
            calls: accounts.clone().map(|account| account.calls).sum(),
            max_calls_per_key: accounts.clone().map(|account| account.calls).max().unwrap_or_default(),
            repeated_calls: accounts.clone().map(|account| account.calls.saturating_sub(1)).sum(),
            effects: accounts.clone().map(|account| account.effects).sum(),
            max_effects_per_key: accounts.map(|account| account.effects).max().unwrap_or_default(),
            effects_per_key: tally(found.payments.values().collect::<BTreeSet<_>>().into_iter().map(|p| effects(p))),
            suppressed: found.sent.saturating_sub(count(done.len() + found.dead_letters.len()) + found.left),
            takeovers: found.records.iter().map(|record| u64::from(record.takeovers)).sum(),
            beats: found.beats,
            calls_per_message: per(requests, found.sent),
            step_writes,
            calls_per_message_without_steps: per(requests.saturating_sub(step_writes), found.sent),
            dead_reasons: tally(dead.into_values().map(|code| (*code).to_owned())),
            dead_letters: count(found.dead_letters.len()),
            left: found.left,
            killed: found.killed,
            seconds: hundredths(found.seconds),
            ..Self::default()
        };
        let without_effect = count(done.iter().filter(|payment| effects(payment) == 0).count());
        summary.broken = summary.judge(without_effect, found.naive_bank);
        summary.api_calls = found.api_calls;
        summary
    }

    /// What was promised and is not so.
    fn judge(&self, without_effect: u64, naive_bank: bool) -> Vec<String> {
        let twice =
            self.effects_per_key.iter().filter(|(effects, _)| **effects > 1).map(|(_, payments)| payments).sum();
        let why = if naive_bank { ": the bank does not know Idempotency-Key" } else { "" };
        let rules = [
            (twice, format!("took effect more than once{why}")),
            (self.lost, format!("neither done nor dead-lettered; {} messages are still in the queue", self.left)),
            (without_effect, "recorded as done without an effect".to_owned()),
        ];
        rules.into_iter().filter(|(broken, _)| *broken > 0).map(|(n, what)| format!("{} {what}", payments(n))).collect()
    }
}

/// How many there are of each.
fn tally<K: Ord>(items: impl Iterator<Item = K>) -> BTreeMap<K, u64> {
    let mut tally = BTreeMap::new();
    for item in items {
        *tally.entry(item).or_default() += 1;
    }
    tally
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

pub(super) fn payments(count: u64) -> String {
    if count == 1 { "1 payment".to_owned() } else { format!("{count} payments") }
}

/// SQS gives none when it dead-letters a message by itself.
const NO_REASON: &str = "receive_count";

/// Payments whose record says DONE.
fn done(found: &Found) -> BTreeSet<&str> {
    let done: BTreeSet<_> =
        found.records.iter().filter(|record| record.status == Status::Done).map(|record| &record.pk).collect();
    let is_done = |payment: &&str| pk_of(payment).is_some_and(|pk| done.contains(&pk));
    found.payments.values().map(String::as_str).filter(is_done).collect()
}

fn pk_of(payment: &str) -> Option<Pk> {
    key::pk(None, QUEUE, &Key::from(payment), KeyHash::Long)
}

/// Payments that have a copy in the dead-letter queue, and why.
fn copies(found: &Found) -> BTreeMap<&str, &str> {
    let copies = found.dead_letters.iter().filter_map(|message| {
        let code = message.dead_letter.as_ref().map_or(NO_REASON, |note| note.code.as_str());
        Some((found.payments.get(&message.body)?.as_str(), code))
    });
    copies.collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts of a demonstration are far below 2^52")]
fn per(count: u64, messages: u64) -> f64 {
    hundredths(count as f64 / messages.max(1) as f64)
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use leasehold::{
        clock::{Millis, Seconds},
        guard::{Failure, Fence, Owner, Source, Step, StepState},
        message::Note,
    };

    use super::*;

    fn record(payment: &str, status: Status, takeovers: u32, steps: &[&str]) -> Record {
        let step = Step { state: StepState::Done, generation: 1, result: None, at: Millis(1) };
        Record {
            pk: pk_of(payment).unwrap(),
            status,
            owner: Owner("o".into()),
            fence: Fence(1),
            lease_until: Millis(1),
            not_before: None,
            failures: 0,
            takeovers,
            last_error: None::<Failure>,
            failure_id: None,
            dead_at: None,
            copied: false,
            undo: None,
            fingerprint: None,
            source: Source::default(),
            created_at: Millis(1),
            updated_at: Millis(1),
            steps: steps.iter().map(|name| ((*name).to_owned(), step.clone())).collect(),
            expires_at: Seconds(1),
        }
    }

    /// Three payments in five messages: `a` was taken over, `b` is dead, `c` is what a test makes of it.
    fn found(status_of_c: Status) -> Found {
        let note: Note = serde_json::from_str(r#"{"code":"account_closed"}"#).unwrap();
        let mut dead = Message::default();
        (dead.body, dead.dead_letter) = ("body of b".to_owned(), Some(note));
        Found {
            sent: 5,
            payments: ["a", "b", "c"].map(|id| (format!("body of {id}"), id.to_owned())).into(),
            records: vec![
                record("a", Status::Done, 1, &["charge", "receipt"]),
                record("b", Status::Dead, 0, &[]),
                record("c", status_of_c, 0, &["charge"]),
            ],
            dead_letters: vec![dead],
            accounts: BTreeMap::from([
                ("a".into(), Account { calls: 2, effects: 1 }),
                ("b".into(), Account { calls: 1, effects: 0 }),
                ("c".into(), Account { calls: 1, effects: 1 }),
            ]),
            api_calls: BTreeMap::from([("sqs:ReceiveMessage".into(), 3), ("dynamodb:UpdateItem".into(), 10)]),
            ..Found::default()
        }
    }

    #[test]
    fn all_is_well_when_each_payment_is_done_once_or_dead_with_a_copy() {
        let summary = Summary::of(found(Status::Done));
        assert_eq!((summary.keys, summary.done, summary.dead, summary.lost), (3, 2, 1, 0));
        assert_eq!((summary.calls, summary.max_calls_per_key, summary.repeated_calls), (4, 2, 1));
        assert_eq!((summary.effects, summary.max_effects_per_key), (2, 1));
        assert_eq!(summary.effects_per_key, BTreeMap::from([(0, 1), (1, 2)]));
        assert_eq!((summary.suppressed, summary.takeovers, summary.step_writes), (2, 1, 3));
        assert_eq!((summary.calls_per_message, summary.calls_per_message_without_steps), (2.6, 2.0));
        assert_eq!(summary.dead_reasons, BTreeMap::from([("account_closed".to_owned(), 1)]));
        assert_eq!(summary.broken, [""; 0]);
    }

    #[test]
    fn a_payment_that_is_neither_done_nor_dead_lettered_is_lost() {
        for status in [Status::Released, Status::Running, Status::Dead] {
            let summary = Summary::of(found(status));
            assert_eq!(summary.lost, 1, "{status:?} without a copy in the dead-letter queue");
            assert_eq!(summary.broken.len(), 1, "{:?}", summary.broken);
        }
    }

    #[test]
    fn a_second_effect_breaks_the_promise_and_a_naive_bank_is_told_why() {
        let mut twice = found(Status::Done);
        twice.accounts.insert("a".into(), Account { calls: 2, effects: 2 });
        let told = Summary::of(Found { naive_bank: true, ..twice });
        assert_eq!(told.max_effects_per_key, 2);
        assert_eq!(told.broken, ["1 payment took effect more than once: the bank does not know Idempotency-Key"]);
    }

    #[test]
    fn done_without_an_effect_breaks_the_promise() {
        let mut skipped = found(Status::Done);
        skipped.accounts.remove("c");
        assert_eq!(Summary::of(skipped).broken, ["1 payment recorded as done without an effect"]);
    }
}
