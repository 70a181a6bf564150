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

/// Letters by their reason, as they come: of each no more is kept than is told.
#[derive(Debug, Clone, Default)]
pub struct Groups(BTreeMap<String, Folded>);

/// One reason.
#[derive(Debug, Clone, Default)]
struct Folded {
    messages: u64,
    failures: BTreeSet<String>,
    unnamed: u64,
    oldest: Option<Millis>,
    newest: Option<Millis>,
    records: BTreeMap<&'static str, u64>,
    says: Option<String>,
    pk: Option<String>,
}

impl Groups {
    /// Counts a letter.
    pub fn add(&mut self, letter: &Letter) {
        self.0.entry(letter.code().to_owned()).or_default().add(letter);
    }

    /// The reasons, most messages first.
    #[must_use]
    pub fn told(self) -> Vec<Group> {
        let mut groups: Vec<_> = self.0.into_iter().map(|(code, folded)| folded.told(code)).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.messages));
        groups
    }
}

impl Folded {
    fn add(&mut self, letter: &Letter) {
        self.messages += 1;
        match letter.failure_id() {
            Some(id) => drop(self.failures.insert(id.to_owned())),
            None => self.unnamed += 1,
        }
        *self.records.entry(letter.known.word()).or_default() += 1;
        let at = letter.at();
        if at >= self.newest {
            self.says = letter.says().map(str::to_owned);
            self.pk = letter.pk.as_ref().map(|pk| pk.0.clone());
        }
        self.newest = self.newest.max(at);
        self.oldest = self.oldest.into_iter().chain(at).min();
    }

    fn told(self, code: String) -> Group {
        Group {
            code,
            messages: self.messages,
            failures: self.failures.len() as u64 + self.unnamed,
            oldest: self.oldest,
            newest: self.newest,
            records: self.records,
            says: self.says,
            pk: self.pk,
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
