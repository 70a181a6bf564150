//! Dead letters by why they are dead: copies of one failure are one failure.
//!
//! Values only, made of letters that were looked at.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Known, Letter};
use crate::clock::Millis;

/// All letters of one reason code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Group {
    /// The reason code; `moved_by_sqs` for what SQS moved after too many receives, without any reason.
    pub code: String,
    /// How many messages.
    pub messages: u64,
    /// How many failures: of one there can be several copies.
    pub failures: u64,
    /// When the first of them died, as far as that is known.
    pub oldest: Option<Millis>,
    /// When the last of them died.
    pub newest: Option<Millis>,
    /// What their records say, and of how many letters: `RUNNING`, `DEAD` and the rest, `no record`, `no key`, `no guard`,
    /// `unknown`.
    pub records: BTreeMap<&'static str, u64>,
    /// What the last one says, for a person.
    pub says: Option<String>,
    /// The primary key of that one.
    pub pk: Option<String>,
}

impl Group {
    /// The letters by their reason, most messages first.
    #[must_use]
    pub fn of(letters: &[Letter]) -> Vec<Self> {
        let mut by_code: BTreeMap<&str, Vec<&Letter>> = BTreeMap::new();
        for letter in letters {
            by_code.entry(letter.code()).or_default().push(letter);
        }
        let mut groups: Vec<Self> = by_code.into_iter().map(|(code, letters)| Self::new(code, &letters)).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.messages));
        groups
    }

    fn new(code: &str, letters: &[&Letter]) -> Self {
        let (named, unnamed): (Vec<_>, Vec<_>) = letters.iter().partition(|letter| letter.failure_id().is_some());
        let failures: BTreeSet<_> = named.iter().filter_map(|letter: &&&Letter| letter.failure_id()).collect();
        let mut records = BTreeMap::new();
        for letter in letters {
            *records.entry(letter.known.word()).or_default() += 1;
        }
        let last = letters.iter().max_by_key(|letter| letter.at());
        Self {
            code: code.to_owned(),
            messages: letters.len() as u64,
            failures: (failures.len() + unnamed.len()) as u64,
            oldest: letters.iter().filter_map(|letter| letter.at()).min(),
            newest: letters.iter().filter_map(|letter| letter.at()).max(),
            records,
            says: last.and_then(|letter| letter.says()).map(str::to_owned),
            pk: last.and_then(|letter| letter.pk.as_ref()).map(|pk| pk.0.clone()),
        }
    }
}

impl Known {
    /// In a word or two, to count by.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Record(record) => record.status.as_str(),
            Self::Nothing => "no record",
            Self::NoKey(_) => "no key",
            Self::Unguarded => "no guard",
            Self::Unknown(_) => "unknown",
        }
    }
}
