//! The guard's conditions and changes as DynamoDB expressions.
//!
//! Owns their texts. Every attribute is written `#name`, because `status`, `owner` and others are reserved words, and
//! every status `:RUNNING`: both are filled in from the text itself. Must say exactly what [`Change::applies_to`],
//! [`Change::apply`] and their like say of a record; the contract suite compares the two.

use aws_sdk_dynamodb::types::AttributeValue;

use super::{
    super::{
        Amend, Change, Failure, Owner, Record, Status, Step, StepState, TakeOver, TakeOverKind, Undoing,
        record::VERSION,
    },
    record::{self, Item, number, text},
};
use crate::clock::{Millis, Seconds};

/// A claim's condition (rule G1).
pub(super) const CLAIMABLE: &str = "attribute_not_exists(#pk) \
     OR (#v = :v AND #status IN (:DONE, :DEAD) AND #expires_at <= :now_s AND #fence < :fence)";

/// Of takeovers and amendments: it is still the record that was seen.
const AS_SEEN: &str = "#v = :v AND #owner = :seen_owner AND #fence = :seen_fence AND #status = :seen_status \
                       AND #lease_until = :seen_lease_until";

/// The SDK's own maps: built for each write, so that another kind would be copied for each.
#[expect(clippy::disallowed_types, reason = "the SDK takes nothing else; never iterated by us")]
type Map<V> = std::collections::HashMap<String, V>;

/// A condition, with the names and values that it and an update with it refer to.
#[derive(Debug)]
pub(super) struct Expressions {
    pub(super) condition: String,
    pub(super) names: Map<String>,
    values: Map<AttributeValue>,
}

/// More names, and more values, than most writes have.
const MOST: usize = 14;

impl Default for Expressions {
    fn default() -> Self {
        Self { condition: String::new(), names: Map::with_capacity(MOST), values: Map::with_capacity(MOST) }
    }
}

impl Expressions {
    pub(super) fn when(condition: &str) -> Self {
        Self::default().and(condition)
    }

    /// That it is still the record that was seen (rule G1).
    fn as_seen(seen: &Record) -> Self {
        Self::when(AS_SEEN)
            .with(":seen_owner", text(&seen.owner.0))
            .with(":seen_fence", number(seen.fence.0))
            .with(":seen_status", text(seen.status.as_str()))
            .with(":seen_lease_until", number(seen.lease_until.0))
    }

    /// That nobody has written it since, as [`Amend::applies_to`] tells.
    fn unwritten_since(seen: &Record) -> Self {
        let when = Self::as_seen(seen)
            .and("#updated_at = :seen_updated_at")
            .with(":seen_updated_at", number(seen.updated_at.0))
            .and("size(#steps) = :seen_steps")
            .with(":seen_steps", number(seen.steps.len() as u64));
        let steps = Amend::compared_steps(seen).into_iter().flatten().enumerate();
        steps.fold(when, |when, (n, (name, step))| {
            when.naming(&format!("#seen_{n}"), name)
                .and(&format!("#steps.#seen_{n}.#state = :state_{n} AND #steps.#seen_{n}.#gen = :gen_{n}"))
                .with(&format!(":state_{n}"), text(step.state.as_str()))
                .with(&format!(":gen_{n}"), number(step.generation))
        })
    }

    /// Requires this too.
    fn and(mut self, condition: &str) -> Self {
        for placeholder in placeholders(condition, '#') {
            if !self.names.contains_key(placeholder) {
                self.names.insert(placeholder.to_owned(), placeholder[1..].to_owned());
            }
        }
        for placeholder in placeholders(condition, ':') {
            match Status::parse(&placeholder[1..]) {
                Some(status) => self = self.with(placeholder, text(status.as_str())),
                None if placeholder == ":v" => self = self.with(":v", number(VERSION)),
                None => {}
            }
        }
        if !self.condition.is_empty() {
            self.condition.push_str(" AND ");
        }
        self.condition.push_str(condition);
        self
    }

    /// Gives a value to a placeholder.
    pub(super) fn with(mut self, placeholder: &str, value: AttributeValue) -> Self {
        self.values.insert(placeholder.to_owned(), value);
        self
    }

    /// Gives an attribute's name to a placeholder that is not called after it.
    fn naming(mut self, placeholder: &str, attribute: &str) -> Self {
        self.names.insert(placeholder.to_owned(), attribute.to_owned());
        self
    }

    /// `None` if there are none: DynamoDB refuses an empty map.
    pub(super) fn values(&mut self) -> Option<Map<AttributeValue>> {
        Some(std::mem::take(&mut self.values)).filter(|values| !values.is_empty())
    }
}

/// The words of a condition that begin with `sigil`, which is one byte.
fn placeholders(condition: &str, sigil: char) -> impl Iterator<Item = &str> {
    let end =
        |word: &str| word[1..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(word.len(), |end| end + 1);
    condition.match_indices(sigil).map(move |(start, _)| &condition[start..]).map(move |word| &word[..end(word)])
}

/// An `UpdateItem`: the condition, and what it sets and removes.
#[derive(Debug, Default)]
pub(super) struct Update {
    pub(super) when: Expressions,
    /// What follows `SET` and `REMOVE`.
    sets: String,
    removes: String,
}

impl Update {
    /// Everything that the new record says replaces what the old one said; attributes that it lacks are removed. Only
    /// the steps stay as they are in the table, where they may have grown since they were seen, unless they begin
    /// again.
    pub(super) fn take_over(take_over: &TakeOver) -> Self {
        let seen = &take_over.seen;
        let mut next = seen.as_ref().clone();
        take_over.apply(&mut next);
        let mut item = record::to_item(&next);
        item.remove("pk");
        if take_over.kind != TakeOverKind::Fresh && !take_over.renews_steps() {
            item.remove("steps");
        }
        Self { when: Expressions::as_seen(seen), ..Self::default() }.replace(item)
    }

    /// An amendment of the record that was seen. What this version does not know of it stays, as with a takeover.
    pub(super) fn amend(amend: &Amend, seen: &Record) -> Self {
        let mut item = record::to_item(&amend.record);
        item.remove("pk");
        let update = Self { when: Expressions::unwritten_since(seen), ..Self::default() };
        let Some(changes) = amend.changed_steps() else { return update.replace(item) };
        item.remove("steps");
        changes.into_iter().enumerate().fold(update.replace(item), |mut update, (n, (name, step))| {
            let (placeholder, value) = (format!("#step_{n}"), format!(":step_{n}"));
            update.when = update.when.naming("#steps", "steps").naming(&placeholder, name);
            match step {
                Some(step) => {
                    next(&mut update.sets, &["#steps.", &placeholder, " = ", &value]);
                    update.with(&value, record::step_to_value(step))
                }
                None => {
                    next(&mut update.removes, &["#steps.", &placeholder]);
                    update
                }
            }
        })
    }

    /// Sets what a record says, and removes what it may say and does not.
    fn replace(self, item: Item) -> Self {
        let absent = record::OPTIONAL.iter().filter(|attribute| !item.contains_key(**attribute));
        let update = absent.fold(self, |update, attribute| update.remove(attribute));
        item.into_iter().fold(update, |update, (attribute, value)| update.set(&attribute, value))
    }

    /// A change: owner and status as [`Change::owner`] and [`Change::from`] require (rule G2), and what it sets.
    pub(super) fn change(change: &Change) -> Self {
        let mut update =
            Self::default().and("#v = :v").and(&one_of(change.from())).set_millis("updated_at", change.now());
        if let Some(Owner(owner)) = change.owner() {
            update = update.and("#owner = :me").with(":me", text(owner));
        }
        if let Some(Seconds(expires_at)) = change.expires_at() {
            update = update.set("expires_at", number(expires_at));
        }
        match change {
            Change::Renew { lease_until, .. } => {
                update.and("#lease_until <= :lease_until").set_millis("lease_until", *lease_until)
            }
            Change::Step { name, step, .. } => update.record_step(name, step),
            Change::Confirm { .. } => update.set_status(Status::Done),
            Change::Release { now, not_before, failures, error, undo, .. } => {
                update.release(*now, *not_before, *failures, error.as_ref(), undo.as_ref())
            }
            Change::Fail { failures, error, failure_id, .. } => {
                update.set_status(Status::Failed).failed_for_good(*failures, error, failure_id)
            }
            Change::Bury { now, failures, error, failure_id, undo, .. } => update
                .set_status(Status::Dead)
                .failed_for_good(*failures, error, failure_id)
                .set_millis("dead_at", *now)
                .set("copied", AttributeValue::Bool(false))
                .set_some("undo", undo.as_ref().map(record::undo_to_value)),
            Change::Copied { failure_id, .. } => update
                .and("#failure_id = :failure_id")
                .with(":failure_id", text(failure_id))
                .set("copied", AttributeValue::Bool(true)),
        }
    }

    /// The step's own entry of the map is written, so that steps do not overwrite one another; and only if it
    /// [follows](Step::follows) what stands there.
    fn record_step(self, name: &str, step: &Step) -> Self {
        let not_further = StepState::ALL.into_iter().filter(|state| *state <= step.state).map(StepState::as_str);
        let states: Vec<_> = not_further.map(|state| format!(":{state}")).collect();
        let mut update = self.and(&format!(
            "(attribute_not_exists(#steps.#step) OR #steps.#step.#gen < :gen \
             OR (#steps.#step.#gen = :gen AND #steps.#step.#state IN ({})))",
            states.join(", ")
        ));
        for state in states {
            let value = text(state.trim_start_matches(':'));
            update = update.with(&state, value);
        }
        update.when = update.when.naming("#step", name);
        next(&mut update.sets, &["#steps.#step = :step"]);
        update.with(":gen", number(step.generation)).with(":step", record::step_to_value(step))
    }

    fn release(
        self,
        now: Millis,
        not_before: Option<Millis>,
        failures: u32,
        error: Option<&Failure>,
        undo: Option<&Undoing>,
    ) -> Self {
        let update = match undo {
            // It stays FAILED.
            Some(undo) => self.set("undo", record::undo_to_value(undo)),
            None => self.set_status(Status::Released),
        };
        let update = match not_before {
            Some(not_before) => update.set_millis("not_before", not_before),
            None => update.remove("not_before"),
        };
        update
            .set_millis("lease_until", now)
            .set("failures", number(failures))
            .set_some("last_error", error.map(record::failure_to_value))
    }

    fn failed_for_good(self, failures: u32, error: &Failure, failure_id: &str) -> Self {
        self.set("failures", number(failures))
            .set("last_error", record::failure_to_value(error))
            .set("failure_id", text(failure_id))
    }

    fn set(mut self, attribute: &str, value: AttributeValue) -> Self {
        next(&mut self.sets, &["#", attribute, " = :", attribute]);
        self.when = self.when.naming(&["#", attribute].concat(), attribute);
        self.with(&[":", attribute].concat(), value)
    }

    fn set_some(self, attribute: &str, value: Option<AttributeValue>) -> Self {
        match value {
            Some(value) => self.set(attribute, value),
            None => self,
        }
    }

    fn set_millis(self, attribute: &str, at: Millis) -> Self {
        self.set(attribute, number(at.0))
    }

    fn set_status(self, status: Status) -> Self {
        self.set("status", text(status.as_str()))
    }

    fn remove(mut self, attribute: &str) -> Self {
        next(&mut self.removes, &["#", attribute]);
        self.when = self.when.naming(&["#", attribute].concat(), attribute);
        self
    }

    fn and(mut self, condition: &str) -> Self {
        self.when = self.when.and(condition);
        self
    }

    fn with(mut self, placeholder: &str, value: AttributeValue) -> Self {
        self.when = self.when.with(placeholder, value);
        self
    }

    /// The update expression.
    pub(super) fn expression(&self) -> String {
        let (sets, removes) = (&self.sets, &self.removes);
        if removes.is_empty() { format!("SET {sets}") } else { format!("SET {sets} REMOVE {removes}") }
    }
}

/// Adds to a list.
fn next(list: &mut String, parts: &[&str]) {
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.extend(parts.iter().copied());
}

fn one_of(statuses: &[Status]) -> String {
    let statuses: Vec<_> = statuses.iter().map(|status| format!(":{}", status.as_str())).collect();
    format!("#status IN ({})", statuses.join(", "))
}
