//! A guard in memory: for tests, simulations and the test kit.
//!
//! Owns one map of records and carries out the pure code of `claim.rs`, `change.rs`, `amend.rs` and `transaction.rs`, nothing else; each
//! call is one atomic step. It never fails by itself, never loses a reply and never sweeps an expired record: faults
//! are put in front of it by [`crate::testing`].

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;

use super::{
    Amend, Change, Claim, Claimed, Commit, Committed, Control, ControlKey, Guard, GuardError, Item, LARGEST_RECORD, Pk,
    Record, TableFacts, TakeOver, Value, Written,
};
use tables::Tables;

mod tables;

/// A table of records in memory. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryGuard {
    /// A lock, for it is held for a few straight lines and never across an await.
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    records: BTreeMap<Pk, Stored>,
    history: Vec<(&'static str, Record)>,
    calls: BTreeMap<&'static str, u64>,
    facts: Option<TableFacts>,
    business: Tables,
}

#[derive(Debug)]
enum Stored {
    Known(Box<Record>),
    /// No record: what operators have said about a queue.
    Control(Control),
    /// Of a version that this one cannot read.
    Foreign,
}

impl MemoryGuard {
    /// The record of a key, as it is now.
    #[must_use]
    pub fn record(&self, pk: &Pk) -> Option<Record> {
        self.table().found(pk).ok().flatten().cloned()
    }

    /// All records that this version can read, in the order of their keys.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let table = self.table();
        table.records.values().filter_map(Stored::known).cloned().collect()
    }

    /// Puts a record there, whatever is there. Not part of the history.
    pub fn put(&self, record: Record) {
        self.table().records.insert(record.pk.clone(), Stored::Known(Box::new(record)));
    }

    /// Puts a record there that only a later version can read, as one meets in a rolling deploy.
    pub fn put_foreign(&self, pk: Pk) {
        self.table().records.insert(pk, Stored::Foreign);
    }

    /// Takes a record away, as DynamoDB's sweep does some time after `expires_at`.
    pub fn sweep(&self, pk: &Pk) {
        self.table().records.remove(pk);
    }

    /// Every write of a record that was applied, in order: its name (`claim`, `take_over`, `confirm_with`, `amend`, or a [`Change::name`]) and the record
    /// that it made.
    #[must_use]
    pub fn history(&self) -> Vec<(&'static str, Record)> {
        self.table().history.clone()
    }

    /// How often each operation was called, refused calls included.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<&'static str, u64> {
        self.table().calls.clone()
    }

    /// What [`Guard::facts`] answers from now on, instead of a table as it should be.
    pub fn set_facts(&self, facts: TableFacts) {
        self.table().facts = Some(facts);
    }

    /// Adds an empty table for a handler's own items, or empties it: its name, and the names of its key's attributes. For
    /// [`confirm_with`](crate::JobContext::confirm_with), which makes puts, deletes and checks here, under conditions of
    /// `attribute_exists(..)` and `attribute_not_exists(..)`, joined by `AND`; anything else it refuses.
    pub fn add_table(&self, name: &str, key: &[&str]) {
        self.table().business.add(name, key);
    }

    /// Puts an item into one of those tables, whatever is there.
    ///
    /// # Errors
    /// There is no such table, or its key is not in the item; the text says which.
    pub fn put_item(&self, table: &str, item: Item) -> Result<(), String> {
        self.table().business.put(table, item)
    }

    /// An item of one of those tables, by its key.
    pub fn item<V: Into<Value>>(&self, table: &str, key: impl IntoIterator<Item = (&'static str, V)>) -> Option<Item> {
        let key = key.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        self.table().business.item(table, &key)
    }

    /// All items of one of those tables, in the order of their keys.
    #[must_use]
    pub fn items(&self, table: &str) -> Vec<Item> {
        self.table().business.items(table)
    }

    /// A panic while the lock is held cannot leave the table half-changed: a record is complete before it is put in.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, name: &'static str) -> MutexGuard<'_, Table> {
        let mut table = self.table();
        *table.calls.entry(name).or_default() += 1;
        table
    }
}

impl Stored {
    fn known(&self) -> Option<&Record> {
        match self {
            Self::Known(record) => Some(record),
            Self::Control(_) | Self::Foreign => None,
        }
    }
}

impl Table {
    fn found(&self, pk: &Pk) -> Result<Option<&Record>, GuardError> {
        match self.records.get(pk) {
            None => Ok(None),
            Some(Stored::Known(record)) => Ok(Some(record)),
            Some(Stored::Control(_)) => Err(GuardError::Foreign(format!("{pk}: no record"))),
            Some(Stored::Foreign) => Err(GuardError::Foreign(format!("{pk}: another version"))),
        }
    }

    fn control(&self, key: &ControlKey) -> Result<Control, GuardError> {
        match self.records.get(key.pk()) {
            None => Ok(Control::default()),
            Some(Stored::Control(control)) => Ok(control.clone()),
            Some(_) => Err(GuardError::Foreign(format!("{}: another version", key.pk()))),
        }
    }

    fn store(&mut self, name: &'static str, record: Record) -> Result<(), GuardError> {
        if record.size() > LARGEST_RECORD {
            return Err(GuardError::TooLarge);
        }
        self.history.push((name, record.clone()));
        self.records.insert(record.pk.clone(), Stored::Known(Box::new(record)));
        Ok(())
    }
}

#[async_trait]
impl Guard for MemoryGuard {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, GuardError> {
        let mut table = self.call("claim");
        let found = table.found(&claim.pk)?;
        if !claim.applies_to(found) {
            return Ok(claim.answer(found.cloned()));
        }
        let record = claim.record();
        table.store("claim", record.clone())?;
        Ok(Claimed::Mine(Box::new(record)))
    }

    async fn take_over(&self, take_over: &TakeOver) -> Result<Claimed, GuardError> {
        let mut table = self.call("take_over");
        take_over.check()?;
        let mut record = match table.found(&take_over.claim.pk)? {
            Some(found) if take_over.applies_to(found) => found.clone(),
            other => return Ok(take_over.claim.answer(other.cloned())),
        };
        take_over.apply(&mut record);
        table.store("take_over", record.clone())?;
        Ok(Claimed::Mine(Box::new(record)))
    }

    async fn write(&self, pk: &Pk, change: &Change) -> Result<Written, GuardError> {
        let mut table = self.call(change.name());
        change.check()?;
        let mut record = match table.found(pk)? {
            Some(found) if change.applies_to(found) => found.clone(),
            other => return Ok(change.answer(other.cloned())),
        };
        change.apply(&mut record);
        table.store(change.name(), record)?;
        Ok(Written::Applied)
    }

    async fn confirm_with(&self, commit: &Commit) -> Result<Committed, GuardError> {
        let mut table = self.call("confirm_with");
        commit.check()?;
        commit.check_tables(table.facts.clone().unwrap_or_default().name())?;
        let mut record = match table.found(&commit.pk)? {
            Some(found) if commit.confirm.applies_to(found) => found.clone(),
            other => return Ok(commit.answer(other.cloned())),
        };
        if let Some(refusal) = table.business.refusal(commit)? {
            return Ok(refusal);
        }
        commit.confirm.apply(&mut record);
        table.store("confirm_with", record)?;
        table.business.apply(commit);
        Ok(Committed::Applied)
    }

    async fn amend(&self, amend: &Amend) -> Result<Written, GuardError> {
        let mut table = self.call("amend");
        amend.check()?;
        let found = table.found(&amend.record.pk)?;
        if !amend.applies_to(found) {
            return Ok(amend.answer(found.cloned()));
        }
        let record = amend.made_of(found);
        table.store("amend", record)?;
        Ok(Written::Applied)
    }

    async fn read(&self, pk: &Pk) -> Result<Option<Record>, GuardError> {
        Ok(self.call("read").found(pk)?.cloned())
    }

    async fn probe(&self) -> Result<(), GuardError> {
        drop(self.call("probe"));
        Ok(())
    }

    async fn control(&self, key: &ControlKey) -> Result<Control, GuardError> {
        self.call("control").control(key)
    }

    async fn set_control(&self, key: &ControlKey, control: &Control) -> Result<(), GuardError> {
        let mut table = self.call("set_control");
        control.check()?;
        table.control(key)?;
        table.records.insert(key.pk().clone(), Stored::Control(control.clone()));
        Ok(())
    }

    async fn facts(&self) -> Result<TableFacts, GuardError> {
        let table = self.call("facts");
        Ok(table.facts.clone().unwrap_or_default())
    }
}
