//! Business writes that are committed together with "done": what may be asked for, and what came of it.
//!
//! Owns the values and the limits, without any SDK type. Expressions are DynamoDB's own and go to it as they are; an
//! adapter says which it can carry out. Must never let a write of a handler touch the guard's own records.

use std::collections::BTreeMap;

use super::{Change, GuardError, LARGEST_RECORD, Pk, Record, Written};

pub use value::{Item, Value, from_item, item};

mod value;

/// One write to an item of a business table, with the condition that it needs.
///
/// Condition and update are expressions of DynamoDB's:
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.html>. Names that begin with `#` and
/// values that begin with `:` are given beside them.
///
/// ```
/// use leasehold::guard::ItemWrite;
///
/// let grant = ItemWrite::put("grants", [("grant_id", "g-1")]).when("attribute_not_exists(grant_id)");
/// let balance = ItemWrite::update("balances", [("account", "a-7")], "SET #c = #c + :granted")
///     .name("#c", "cents")
///     .value(":granted", 500);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a write does nothing until it is committed"]
pub struct ItemWrite {
    /// The table's name or ARN. It must be of the same account and region as the guard's.
    pub table: String,
    /// What is done to the item.
    pub action: ItemAction,
    /// What must hold of the item as it is; nothing else is written either if it does not.
    pub condition: Option<String>,
    /// What the placeholders of names stand for.
    pub names: BTreeMap<String, String>,
    /// What the placeholders of values stand for.
    pub values: BTreeMap<String, Value>,
}

/// What a write does to its item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemAction {
    /// Puts this item in place of whatever is there.
    Put(Item),
    /// Changes the item of this key, or makes it.
    Update {
        /// All attributes of its primary key.
        key: Item,
        /// What is changed, as an update expression.
        update: String,
    },
    /// Deletes the item of this key.
    Delete(Item),
    /// Leaves the item of this key as it is, and requires the condition of it.
    Check(Item),
}

impl ItemWrite {
    /// Puts an item, in place of whatever is there: add [`when`](Self::when) `attribute_not_exists(<its key>)` where it
    /// must be new.
    pub fn put<K: Into<String>, V: Into<Value>>(
        table: impl Into<String>,
        item: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        Self::of(table, ItemAction::Put(collected(item)))
    }

    /// Changes the item of this key by an update expression; makes it if it is not there.
    pub fn update<K: Into<String>, V: Into<Value>>(
        table: impl Into<String>,
        key: impl IntoIterator<Item = (K, V)>,
        update: impl Into<String>,
    ) -> Self {
        Self::of(table, ItemAction::Update { key: collected(key), update: update.into() })
    }

    /// Deletes the item of this key. That there is none is no error.
    pub fn delete<K: Into<String>, V: Into<Value>>(
        table: impl Into<String>,
        key: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        Self::of(table, ItemAction::Delete(collected(key)))
    }

    /// Writes nothing, and requires `condition` of the item of this key.
    pub fn check<K: Into<String>, V: Into<Value>>(
        table: impl Into<String>,
        key: impl IntoIterator<Item = (K, V)>,
        condition: impl Into<String>,
    ) -> Self {
        Self::of(table, ItemAction::Check(collected(key))).when(condition)
    }

    fn of(table: impl Into<String>, action: ItemAction) -> Self {
        let (names, values) = (BTreeMap::new(), BTreeMap::new());
        Self { table: table.into(), action, condition: None, names, values }
    }

    /// Requires this of the item as it is. A second one is required too.
    pub fn when(mut self, condition: impl Into<String>) -> Self {
        let condition = condition.into();
        self.condition = Some(match self.condition {
            Some(first) => format!("({first}) AND ({condition})"),
            None => condition,
        });
        self
    }

    /// What a placeholder that begins with `#` stands for: reserved words, and names with other signs than letters.
    pub fn name(mut self, placeholder: impl Into<String>, attribute: impl Into<String>) -> Self {
        self.names.insert(placeholder.into(), attribute.into());
        self
    }

    /// What a placeholder that begins with `:` stands for.
    pub fn value(mut self, placeholder: impl Into<String>, value: impl Into<Value>) -> Self {
        self.values.insert(placeholder.into(), value.into());
        self
    }

    /// The table's name, also where it is given by its ARN.
    #[must_use]
    pub fn table_name(&self) -> &str {
        self.table.rsplit_once("table/").map_or(&self.table, |(_, name)| name)
    }

    /// Whether both are certain to mean one item. Two puts may, without being told from here: which attributes are the
    /// key is the table's.
    fn is_of_the_same_item(&self, other: &Self) -> bool {
        let same = match (&self.action, &other.action) {
            (ItemAction::Put(one), ItemAction::Put(two)) => one == two,
            (ItemAction::Put(item), keyed) | (keyed, ItemAction::Put(item)) => {
                keyed.item().iter().all(|(name, value)| item.get(name) == Some(value))
            }
            (one, two) => one.item() == two.item(),
        };
        same && self.table_name() == other.table_name()
    }

    /// At least how many bytes it takes in DynamoDB.
    fn size(&self) -> usize {
        value::size(self.action.item())
    }

    fn fault(&self) -> Option<String> {
        let item = self.action.item();
        if self.table.is_empty() {
            return Some("it names no table".to_owned());
        }
        if item.is_empty() {
            return Some("its item or key has no attributes".to_owned());
        }
        if let Some(name) = self.names.keys().find(|name| !name.starts_with('#')) {
            return Some(format!("a placeholder of a name begins with #, and {name:?} does not"));
        }
        if let Some(value) = self.values.keys().find(|value| !value.starts_with(':')) {
            return Some(format!("a placeholder of a value begins with :, and {value:?} does not"));
        }
        (self.size() > LARGEST_RECORD).then(|| "its item is larger than 400 KB".to_owned())
    }
}

impl ItemAction {
    /// The item that is put; the key of any other action.
    #[must_use]
    pub fn item(&self) -> &Item {
        match self {
            Self::Put(item) | Self::Update { key: item, .. } | Self::Delete(item) | Self::Check(item) => item,
        }
    }
}

fn collected<K: Into<String>, V: Into<Value>>(item: impl IntoIterator<Item = (K, V)>) -> Item {
    item.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

/// So many writes fit beside ours: DynamoDB takes 100 in a transaction.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html>
pub const MOST_WRITES: usize = 99;

/// How many bytes all items of a transaction may have together (the same page).
const LARGEST_TRANSACTION: usize = 4 * 1024 * 1024;

/// A confirm and business writes, which happen together or not at all (rule G12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The record's key.
    pub pk: Pk,
    /// The [`Change::Confirm`] of the record.
    pub confirm: Change,
    /// What is written with it.
    pub writes: Vec<ItemWrite>,
    /// Names this request, 1 to 36 signs: sent again under the same token within ten minutes, it is not made twice.
    /// <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html>
    pub token: String,
}

impl Commit {
    /// Refuses what no store could write, with what is wrong and where. What only the tables know, their keys above
    /// all, is left to the store.
    pub fn check(&self) -> Result<(), GuardError> {
        let refused = |what: String| Err(GuardError::Refused(what));
        if !matches!(self.confirm, Change::Confirm { .. }) {
            return refused(format!("a {} with business writes: only a confirm can have them", self.confirm.name()));
        }
        if self.writes.len() > MOST_WRITES {
            let count = self.writes.len();
            return refused(format!("{count} writes: beside the record, a transaction takes {MOST_WRITES}"));
        }
        for (index, write) in self.writes.iter().enumerate() {
            if let Some(fault) = write.fault() {
                return refused(format!("{}: {fault}", self.place(index)));
            }
            if let Some(first) = self.writes[..index].iter().position(|earlier| earlier.is_of_the_same_item(write)) {
                let text = format!(
                    "{}: write {first} has the same item, and a transaction takes one write of each",
                    self.place(index)
                );
                return refused(text);
            }
        }
        let size: usize = self.writes.iter().map(ItemWrite::size).sum();
        if size > LARGEST_TRANSACTION {
            return refused(format!("the writes have {size} bytes together, and a transaction takes 4 MB"));
        }
        Ok(())
    }

    /// Refuses a write to the table of the guard: its records are changed by the guard alone.
    pub fn check_tables(&self, guards: &str) -> Result<(), GuardError> {
        match self.writes.iter().position(|write| write.table_name() == guards) {
            Some(index) => {
                let text =
                    format!("{}: that table is the guard's own; keep business items in another", self.place(index));
                Err(GuardError::Refused(text))
            }
            None => Ok(()),
        }
    }

    /// What a refusal by our own record means (rule G3): DONE by our owner is this very commit, whose reply was lost.
    #[must_use]
    pub fn answer(&self, found: Option<Record>) -> Committed {
        match self.confirm.answer(found) {
            Written::Applied => Committed::Applied,
            Written::Refused(record) => Committed::Refused(record),
        }
    }

    /// Names one of the writes, for a person.
    #[must_use]
    pub fn place(&self, index: usize) -> String {
        let table = self.writes.get(index).map_or("?", |write| write.table.as_str());
        format!("write {index} (table {table:?})")
    }
}

/// What came of a commit.
#[derive(Debug, Clone, PartialEq)]
pub enum Committed {
    /// Everything is written, and the record is DONE.
    Applied,
    /// Nothing is written, because the record is not ours to confirm; this is what it says, if it still exists.
    Refused(Option<Box<Record>>),
    /// Nothing is written, because the condition of one of the writes does not hold.
    Condition {
        /// Which of the writes, from 0.
        index: usize,
        /// The item that is there, if there is one.
        item: Option<Item>,
    },
}

#[cfg(test)]
mod tests;
