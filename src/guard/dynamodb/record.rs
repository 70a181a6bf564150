//! A record as a DynamoDB item, and back.
//!
//! Owns the names and types of the attributes (ARCHITECTURE.md lists them). An attribute without a value is absent, never `NULL`.
//! An item of another version, or with an attribute that is not what it should be, is [`GuardError::Foreign`] and says
//! what and where; attributes that are not known are left alone.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::super::{
    Failure, Fence, GuardError, Owner, Pk, Record, Source, Status, Step, StepState, UndoAnswer, Undoing,
    record::VERSION,
};
use crate::clock::{Millis, Seconds};

/// A DynamoDB item, or a map in one.
pub(crate) type Item = BTreeMap<String, AttributeValue>;

/// The attributes that a record may lack.
pub(super) const OPTIONAL: &[&str] =
    &["not_before", "last_error", "failure_id", "dead_at", "copied", "undo", "fingerprint", "sent_at"];

pub(super) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(super) fn number(value: impl Into<u64>) -> AttributeValue {
    AttributeValue::N(value.into().to_string())
}

/// The item of a record.
pub(crate) fn to_item(record: &Record) -> Item {
    let Source { queue, message_id, sent_at, worker } = &record.source;
    let steps = record.steps.iter().map(|(name, step)| (name.clone(), step_to_value(step)));
    let millis = |at: Millis| number(at.0);
    map_of([
        ("pk", Some(text(&record.pk.0))),
        ("v", Some(number(VERSION))),
        ("status", Some(text(record.status.as_str()))),
        ("owner", Some(text(&record.owner.0))),
        ("fence", Some(number(record.fence.0))),
        ("lease_until", Some(millis(record.lease_until))),
        ("not_before", record.not_before.map(millis)),
        ("failures", Some(number(record.failures))),
        ("takeovers", Some(number(record.takeovers))),
        ("last_error", record.last_error.as_ref().map(failure_to_value)),
        ("failure_id", record.failure_id.as_ref().map(text)),
        ("dead_at", record.dead_at.map(millis)),
        ("copied", record.copied.then_some(AttributeValue::Bool(true))),
        ("undo", record.undo.as_ref().map(undo_to_value)),
        ("fingerprint", record.fingerprint.as_ref().map(text)),
        ("queue", Some(text(queue))),
        ("message_id", Some(text(message_id))),
        ("sent_at", sent_at.map(millis)),
        ("worker", Some(text(worker))),
        ("created_at", Some(millis(record.created_at))),
        ("updated_at", Some(millis(record.updated_at))),
        ("steps", Some(AttributeValue::M(steps.collect()))),
        ("expires_at", Some(number(record.expires_at.0))),
    ])
}

pub(super) fn step_to_value(step: &Step) -> AttributeValue {
    to_map([
        ("state", Some(text(step.state.as_str()))),
        ("gen", Some(number(step.generation))),
        ("result", step.result.as_ref().map(text)),
        ("at", Some(number(step.at.0))),
    ])
}

pub(super) fn failure_to_value(failure: &Failure) -> AttributeValue {
    to_map([("code", Some(text(&failure.code))), ("text", Some(text(&failure.text)))])
}

pub(super) fn undo_to_value(undo: &Undoing) -> AttributeValue {
    to_map([
        ("failures", Some(number(undo.failures))),
        ("takeovers", Some(number(undo.takeovers))),
        ("answer", undo.answer.map(|answer| text(answer.as_str()))),
    ])
}

pub(super) fn map_of<const N: usize>(attributes: [(&str, Option<AttributeValue>); N]) -> Item {
    attributes.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

pub(super) fn to_map<const N: usize>(attributes: [(&str, Option<AttributeValue>); N]) -> AttributeValue {
    AttributeValue::M(map_of(attributes).into_iter().collect())
}

/// The record that an item is.
pub(crate) fn from_item(item: impl IntoIterator<Item = (String, AttributeValue)>) -> Result<Record, GuardError> {
    let mut item = Map::at("a record", item);
    let pk = Pk(item.text("pk")?);
    item.path = pk.0.clone();
    item.version(VERSION)?;
    Ok(Record {
        status: item.word("status", Status::parse)?,
        owner: Owner(item.text("owner")?),
        fence: Fence(item.number("fence")?),
        lease_until: Millis(item.number("lease_until")?),
        not_before: item.optional("not_before", Map::number)?.map(Millis),
        failures: item.count("failures")?,
        takeovers: item.count("takeovers")?,
        last_error: item.optional("last_error", Map::failure)?,
        failure_id: item.optional("failure_id", Map::text)?,
        dead_at: item.optional("dead_at", Map::number)?.map(Millis),
        copied: item.optional("copied", Map::flag)?.unwrap_or_default(),
        undo: item.optional("undo", Map::undo)?,
        fingerprint: item.optional("fingerprint", Map::text)?,
        source: Source {
            queue: item.text("queue")?,
            message_id: item.text("message_id")?,
            sent_at: item.optional("sent_at", Map::number)?.map(Millis),
            worker: item.text("worker")?,
        },
        created_at: Millis(item.number("created_at")?),
        updated_at: Millis(item.number("updated_at")?),
        steps: item.steps()?,
        expires_at: Seconds(item.number("expires_at")?),
        pk,
    })
}

/// A map that is being read, and where it stands.
pub(super) struct Map {
    path: String,
    values: Item,
}

impl Map {
    pub(super) fn at(path: &str, values: impl IntoIterator<Item = (String, AttributeValue)>) -> Self {
        Self { path: path.to_owned(), values: values.into_iter().collect() }
    }

    /// Checked before anything else is read: what another version means by the rest is not known.
    pub(super) fn version(&mut self, ours: u32) -> Result<(), GuardError> {
        match self.number("v")? {
            version if version == u64::from(ours) => Ok(()),
            version => Err(self.foreign(&format!("version {version}, this one reads {ours}"))),
        }
    }

    fn foreign(&self, what: &str) -> GuardError {
        GuardError::Foreign(format!("{}: {what}", self.path))
    }

    /// Takes a value out and reads it; what `read` cannot read, and what is absent, is foreign.
    fn take<T>(
        &mut self,
        name: &str,
        kind: &str,
        read: impl FnOnce(AttributeValue) -> Option<T>,
    ) -> Result<T, GuardError> {
        let value = self.values.remove(name).ok_or_else(|| self.foreign(&format!("{name} is missing")))?;
        read(value).ok_or_else(|| self.foreign(&format!("{name} is not {kind}")))
    }

    pub(super) fn optional<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Self, &str) -> Result<T, GuardError>,
    ) -> Result<Option<T>, GuardError> {
        if self.values.contains_key(name) { read(self, name).map(Some) } else { Ok(None) }
    }

    pub(super) fn text(&mut self, name: &str) -> Result<String, GuardError> {
        self.take(name, "a string", |value| match value {
            AttributeValue::S(text) => Some(text),
            _ => None,
        })
    }

    fn word<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, GuardError> {
        let word = self.text(name)?;
        parse(&word).ok_or_else(|| self.foreign(&format!("{name} is {word:?}, which is not known")))
    }

    pub(super) fn number(&mut self, name: &str) -> Result<u64, GuardError> {
        self.take(name, "a whole number", |value| match value {
            AttributeValue::N(number) => number.parse().ok(),
            _ => None,
        })
    }

    fn count(&mut self, name: &str) -> Result<u32, GuardError> {
        let count = self.number(name)?;
        u32::try_from(count).map_err(|_| self.foreign(&format!("{name} is {count}, which is no count")))
    }

    fn flag(&mut self, name: &str) -> Result<bool, GuardError> {
        self.take(name, "true or false", |value| match value {
            AttributeValue::Bool(flag) => Some(flag),
            _ => None,
        })
    }

    pub(super) fn map(&mut self, name: &str) -> Result<Self, GuardError> {
        let path = format!("{}: {name}", self.path);
        self.take(name, "a map", |value| match value {
            AttributeValue::M(values) => Some(Self { path, values: values.into_iter().collect() }),
            _ => None,
        })
    }

    fn failure(&mut self, name: &str) -> Result<Failure, GuardError> {
        let mut map = self.map(name)?;
        Ok(Failure { code: map.text("code")?, text: map.text("text")? })
    }

    fn undo(&mut self, name: &str) -> Result<Undoing, GuardError> {
        let mut map = self.map(name)?;
        let answer = map.optional("answer", |map, name| map.word(name, UndoAnswer::parse))?;
        Ok(Undoing { failures: map.count("failures")?, takeovers: map.count("takeovers")?, answer })
    }

    fn steps(&mut self) -> Result<BTreeMap<String, Step>, GuardError> {
        let mut steps = self.map("steps")?;
        let names: Vec<_> = steps.values.keys().cloned().collect();
        names.into_iter().map(|name| steps.step(&name).map(|step| (name, step))).collect()
    }

    fn step(&mut self, name: &str) -> Result<Step, GuardError> {
        let mut map = self.map(name)?;
        Ok(Step {
            state: map.word("state", StepState::parse)?,
            generation: map.count("gen")?,
            result: map.optional("result", Map::text)?,
            at: Millis(map.number("at")?),
        })
    }
}

#[cfg(test)]
mod tests;
