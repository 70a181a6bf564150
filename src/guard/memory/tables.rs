//! Business tables in memory: as much of DynamoDB's writes as tests of handlers need beside the guard.
//!
//! Knows puts, deletes and checks under conditions that ask whether attributes are there. Anything else is refused with
//! where it can be tested, never carried out in part.

use std::collections::BTreeMap;

use super::super::{
    Commit, Committed, GuardError,
    transaction::{Item, ItemAction, ItemWrite, Value},
};

/// Tables by their names.
#[derive(Debug, Default)]
pub(super) struct Tables(BTreeMap<String, Table>);

#[derive(Debug)]
struct Table {
    /// The names of the key's attributes.
    key: Vec<String>,
    items: BTreeMap<Vec<Value>, Item>,
}

/// Where what this cannot do is done.
const ELSEWHERE: &str =
    "the guard in memory cannot; test it on the embedded engine (feature `demo`, `leasehold::embedded`)";

impl Tables {
    pub(super) fn add(&mut self, name: &str, key: &[&str]) {
        let key = key.iter().map(|&name| name.to_owned()).collect();
        self.0.insert(name.to_owned(), Table { key, items: BTreeMap::new() });
    }

    /// Puts an item there, whatever is there; `Err` says what is wrong with it.
    pub(super) fn put(&mut self, name: &str, item: Item) -> Result<(), String> {
        let table = self.0.get_mut(name).ok_or_else(|| no_table(name))?;
        let key = table.key_in(&item)?;
        table.items.insert(key, item);
        Ok(())
    }

    pub(super) fn item(&self, name: &str, key: &Item) -> Option<Item> {
        let table = self.0.get(name)?;
        table.items.get(&table.key_in(key).ok()?).cloned()
    }

    pub(super) fn items(&self, name: &str) -> Vec<Item> {
        self.0.get(name).map(|table| table.items.values().cloned().collect()).unwrap_or_default()
    }

    /// The first write whose condition does not hold; `None` if all can be made.
    pub(super) fn refusal(&self, commit: &Commit) -> Result<Option<Committed>, GuardError> {
        let refused = |index, what| GuardError::Refused(format!("{}: {what}", commit.place(index)));
        let mut taken = Vec::new();
        let mut refusal = None;
        for (index, write) in commit.writes.iter().enumerate() {
            let (table, key) = self.place(write).map_err(|what| refused(index, what))?;
            let item = table.items.get(&key);
            let holds = holds(write, item).map_err(|what| refused(index, what))?;
            if !holds && refusal.is_none() {
                refusal = Some(Committed::Condition { index, item: item.cloned() });
            }
            let place = (write.table_name(), key);
            if taken.contains(&place) {
                return Err(refused(index, "another write has the same item".to_owned()));
            }
            taken.push(place);
        }
        Ok(refusal)
    }

    /// Makes the writes, which [`refusal`](Self::refusal) has found possible.
    pub(super) fn apply(&mut self, commit: &Commit) {
        for write in &commit.writes {
            let Some(table) = self.0.get_mut(write.table_name()) else { continue };
            let Ok(key) = table.key_in(write.action.item()) else { continue };
            match &write.action {
                ItemAction::Put(item) => drop(table.items.insert(key, item.clone())),
                ItemAction::Delete(_) => drop(table.items.remove(&key)),
                ItemAction::Update { .. } | ItemAction::Check(_) => {}
            }
        }
    }

    fn place(&self, write: &ItemWrite) -> Result<(&Table, Vec<Value>), String> {
        let name = write.table_name();
        let table = self.0.get(name).ok_or_else(|| no_table(name))?;
        let item = write.action.item();
        if !matches!(write.action, ItemAction::Put(_)) && item.len() != table.key.len() {
            return Err(format!("the key of {name:?} is {:?}", table.key));
        }
        Ok((table, table.key_in(item)?))
    }
}

fn no_table(name: &str) -> String {
    format!("there is no table {name:?} in memory; add it with MemoryGuard::add_table")
}

impl Table {
    fn key_in(&self, item: &Item) -> Result<Vec<Value>, String> {
        let value = |name: &String| match item.get(name) {
            Some(value @ (Value::S(_) | Value::N(_) | Value::B(_))) => Ok(value.clone()),
            Some(_) => Err(format!("the key's attribute {name:?} is no text, number or bytes")),
            None => Err(format!("the key's attribute {name:?} is missing")),
        };
        self.key.iter().map(value).collect()
    }
}

/// Whether the write's condition holds of the item that is there; `Err` if it says more than is understood here.
fn holds(write: &ItemWrite, item: Option<&Item>) -> Result<bool, String> {
    if let ItemAction::Update { update, .. } = &write.action {
        return Err(format!("the update {update:?}: {ELSEWHERE}. Where it is enough, put the whole item"));
    }
    let condition = write.condition.as_deref().unwrap_or_default();
    let unused = |placeholder: &&String| !condition.contains(placeholder.as_str());
    if let Some(unused) = write.names.keys().chain(write.values.keys()).find(unused) {
        return Err(format!("{unused} is in no expression"));
    }
    let mut holds = true;
    for part in condition.split(" AND ").map(bare).filter(|part| !part.is_empty()) {
        let (function, path) = part.strip_suffix(')').and_then(|part| part.split_once('(')).unwrap_or((part, ""));
        let placed = write.names.get(path.trim()).map(String::as_str);
        let name = placed.unwrap_or(path.trim());
        let is_path = placed.is_some() || name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let is_there = item.is_some_and(|item| item.contains_key(name));
        holds &= match function.trim() {
            _ if name.is_empty() || !is_path => return Err(format!("the condition {condition:?}: {ELSEWHERE}")),
            "attribute_exists" => is_there,
            "attribute_not_exists" => !is_there,
            _ => return Err(format!("the condition {condition:?}: {ELSEWHERE}")),
        };
    }
    Ok(holds)
}

/// Without the parentheses around all of it, which two conditions of one write get.
fn bare(mut part: &str) -> &str {
    part = part.trim();
    while let Some(inner) = part.strip_prefix('(').and_then(|part| part.strip_suffix(')')) {
        part = inner.trim();
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::{Millis, Seconds},
        guard::{Change, Owner, Pk, item},
    };

    fn tables() -> Tables {
        let mut tables = Tables::default();
        tables.add("t", &["id", "at"]);
        tables.put("t", row("a", 1)).unwrap();
        tables
    }

    fn row(id: &str, at: u64) -> Item {
        item(&serde_json::json!({"id": id, "at": at, "text": "x"})).unwrap()
    }

    fn key(id: &str, at: u64) -> [(&'static str, Value); 2] {
        [("id", Value::from(id)), ("at", Value::from(at))]
    }

    fn answer(write: ItemWrite) -> Result<Option<Committed>, GuardError> {
        let confirm = Change::Confirm { owner: Owner("me".into()), now: Millis(1), expires_at: Seconds(9) };
        tables().refusal(&Commit { pk: Pk("k".into()), confirm, writes: vec![write], token: "t".into() })
    }

    #[test]
    fn a_condition_is_whether_attributes_are_there() {
        let check = |id, condition: &str| ItemWrite::check("t", key(id, 1), condition);
        for (write, holds) in [
            (check("a", "attribute_exists(id)"), true),
            (check("a", "attribute_not_exists(id)"), false),
            (check("b", "attribute_exists(id)"), false),
            (check("b", "attribute_not_exists(id)"), true),
            (check("a", "attribute_exists(#t) AND attribute_not_exists(other)").name("#t", "text"), true),
            (check("a", "attribute_exists(id) AND attribute_exists(other)"), false),
            (check("a", "attribute_exists(id)").when("attribute_exists(other)"), false),
            (check("a", "attribute_exists(id)").when(" attribute_exists( text )"), true),
            (ItemWrite::put("t", row("a", 2)).when("attribute_not_exists(id)"), true),
        ] {
            let answer = answer(write.clone()).unwrap();
            assert_eq!(answer.is_none(), holds, "{write:?}: {answer:?}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_and_never_taken_for_true() {
        let check = |condition: &str| ItemWrite::check("t", key("a", 1), condition);
        let elsewhere = "test it on the embedded engine";
        for (write, told) in [
            (ItemWrite::update("t", key("a", 1), "SET n = n + :one").value(":one", 1), elsewhere),
            (check("n = :one").value(":one", 1), elsewhere),
            (check("attribute_exists(id) OR attribute_exists(other)"), elsewhere),
            (check("NOT attribute_exists(id)"), elsewhere),
            (check("attribute_exists(a.b)"), elsewhere),
            (check("attribute_not_exists(#unnamed)"), elsewhere),
            (check("attribute_exists()"), elsewhere),
            (check("attribute_type(id, :t)").value(":t", "S"), elsewhere),
            (check("(attribute_exists(id)"), elsewhere),
            (check("attribute_exists(id)").name("#n", "n"), "#n is in no expression"),
            (check("attribute_exists(id)").value(":v", 1), ":v is in no expression"),
            (ItemWrite::put("other", row("a", 1)), "MemoryGuard::add_table"),
            (ItemWrite::put("t", [("id", "a")]), "the key's attribute \"at\" is missing"),
            (ItemWrite::put("t", [("id", Value::from(true)), ("at", Value::from(1))]), "no text, number or bytes"),
            (ItemWrite::delete("t", row("a", 1)), "the key of \"t\" is [\"id\", \"at\"]"),
        ] {
            let answer = answer(write.clone());
            assert!(matches!(&answer, Err(GuardError::Refused(what)) if what.contains(told)), "{write:?}: {answer:?}");
        }
    }
}
