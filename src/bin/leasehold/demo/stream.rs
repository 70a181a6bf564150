//! The stream: which payments there are, what each has in store for the worker, and in which order their messages are
//! sent.
//!
//! Pure, and the same for the same mix: what happens to a payment is written in its own body, so that every attempt in
//! every process meets it alike. Knows nothing of queues.

use serde::{Deserialize, Serialize};

/// One payment, as its message says it. Names what is to be done, and what will get in the way of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Payment {
    pub(crate) payment_id: String,
    pub(crate) cents: u32,
    /// How long the fraud check takes, before anything is charged.
    pub(crate) check_ms: u64,
    /// The bank refuses it, now and for ever.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) account_closed: bool,
    /// So many attempts find the mail server busy, after the charge.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) mail_busy: u32,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What a stream is made of. Percentages are of the messages for duplicates, and of the payments for the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mix {
    pub(crate) duplicates: u32,
    pub(crate) slow: u32,
    pub(crate) poison: u32,
    pub(crate) transient: u32,
    /// How long the slow ones take, in milliseconds.
    pub(crate) slow_ms: u64,
}

/// How many there are of what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) messages: u32,
    pub(crate) payments: u32,
    pub(crate) slow: u32,
    /// Half of them refused by the bank, half with a body that nobody can read.
    pub(crate) poison: u32,
    pub(crate) transient: u32,
}

impl Counts {
    /// A part that is asked for has at least one payment, as long as there are any left.
    pub(crate) fn of(mix: Mix, messages: u32) -> Self {
        let part = |percent: u32, whole: u32| {
            let exact = (u64::from(whole) * u64::from(percent) + 50) / 100;
            u32::try_from(exact).unwrap_or(whole).max(u32::from(percent > 0)).min(whole)
        };
        let payments = (messages - part(mix.duplicates, messages)).max(1);
        let mut left = payments;
        let mut take = |percent| {
            let taken = part(percent, payments).min(left);
            left -= taken;
            taken
        };
        let (poison, transient, slow) = (take(mix.poison), take(mix.transient), take(mix.slow));
        Self { messages, payments, slow, poison, transient }
    }
}

/// A message that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Planned {
    /// Whose message it is. A duplicate has the very same body.
    pub(crate) payment_id: String,
    pub(crate) body: String,
}

/// Some messages, in the order in which they are to be sent.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) messages: Vec<Planned>,
    /// How many payments they are for.
    pub(crate) payments: u32,
}

/// A duplicate follows its original within so many messages: some meet it while it runs, some when it is done.
const NEAR: usize = 100;

impl Plan {
    /// Messages of payments that are numbered from `first` on.
    pub(crate) fn new(mix: Mix, messages: u32, first: u32, chance: &mut fastrand::Rng) -> Self {
        let counts = Counts::of(mix, messages);
        let mut originals: Vec<_> =
            (0..counts.payments).map(|nth| planned(first + nth, Fate::of(nth, counts), mix, chance)).collect();
        chance.shuffle(&mut originals);
        // Originals stand so far apart that there is room between them.
        let mut places: Vec<(usize, &Planned)> = (0..).step_by(NEAR).zip(&originals).collect();
        for _ in counts.payments..counts.messages {
            let (place, original) = places[chance.usize(..originals.len())];
            places.push((place + chance.usize(1..NEAR * NEAR), original));
        }
        places.sort_by_key(|(place, _)| *place);
        let messages = places.into_iter().map(|(_, message)| message.clone()).collect();
        Self { messages, payments: counts.payments }
    }
}

/// What is in store for a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Plain,
    Slow,
    Transient,
    Refused,
    Unreadable,
}

impl Fate {
    /// Deals out what there is, in order; the messages are shuffled afterwards.
    fn of(nth: u32, counts: Counts) -> Self {
        let Counts { poison, transient, slow, .. } = counts;
        match nth {
            n if n < poison && n % 2 == 1 => Self::Unreadable,
            n if n < poison => Self::Refused,
            n if n < poison + transient => Self::Transient,
            n if n < poison + transient + slow => Self::Slow,
            _ => Self::Plain,
        }
    }
}

fn planned(number: u32, fate: Fate, mix: Mix, chance: &mut fastrand::Rng) -> Planned {
    let payment_id = format!("pay-{number:06}");
    if fate == Fate::Unreadable {
        // Cut off in mid-transfer: it is not JSON.
        return Planned { body: format!(r#"{{"payment_id":"{payment_id}","cents":"#), payment_id };
    }
    let payment = Payment {
        payment_id: payment_id.clone(),
        cents: chance.u32(100..100_000),
        check_ms: if fate == Fate::Slow { mix.slow_ms } else { chance.u64(10..60) },
        account_closed: fate == Fate::Refused,
        mail_busy: if fate == Fate::Transient { chance.u32(1..=2) } else { 0 },
    };
    // A struct of texts and numbers always has a JSON text.
    Planned { payment_id, body: serde_json::to_string(&payment).unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    const MIX: Mix = Mix { duplicates: 20, slow: 2, poison: 1, transient: 5, slow_ms: 6_000 };

    fn plan(mix: Mix, messages: u32) -> Plan {
        Plan::new(mix, messages, 1, &mut fastrand::Rng::with_seed(7))
    }

    fn bodies(plan: &Plan) -> BTreeSet<&str> {
        plan.messages.iter().map(|message| message.body.as_str()).collect()
    }

    #[test]
    fn a_plan_has_just_what_was_asked_for() {
        let plan = plan(MIX, 2_000);
        let bodies = bodies(&plan);
        assert_eq!((plan.messages.len(), plan.payments, bodies.len()), (2_000, 1_600, 1_600));
        let readable: Vec<Payment> = bodies.iter().filter_map(|body| serde_json::from_str(body).ok()).collect();
        assert_eq!(bodies.len() - readable.len(), 8);
        assert_eq!(readable.iter().filter(|payment| payment.account_closed).count(), 8);
        assert_eq!(readable.iter().filter(|payment| payment.mail_busy > 0).count(), 80);
        assert_eq!(readable.iter().filter(|payment| payment.check_ms == 6_000).count(), 32);
    }

    #[test]
    fn duplicates_are_the_same_payment_and_follow_soon() {
        let plan = plan(MIX, 2_000);
        let mut seen: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
        for (place, message) in plan.messages.iter().enumerate() {
            let (first, body) = *seen.entry(&message.payment_id).or_insert((place, &message.body));
            assert_eq!(message.body, body);
            assert!(place - first <= 2 * NEAR, "{place} follows {first}");
        }
    }

    #[test]
    fn the_same_mix_makes_the_same_stream() {
        assert_eq!(plan(MIX, 300).messages, plan(MIX, 300).messages);
    }

    #[test]
    fn what_is_asked_for_is_there_even_in_a_small_stream() {
        let counts = Counts::of(MIX, 10);
        assert_eq!(counts, Counts { messages: 10, payments: 8, slow: 1, poison: 1, transient: 1 });
        let none = Mix { duplicates: 0, slow: 0, poison: 0, transient: 0, ..MIX };
        assert_eq!(Counts::of(none, 1), Counts { messages: 1, payments: 1, ..Counts::default() });
        let all_poison = Mix { poison: 100, ..none };
        assert_eq!(Counts::of(all_poison, 10).poison, 10);
    }
}
