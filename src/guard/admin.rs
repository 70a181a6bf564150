//! What must be so of a table that is to be a guard.
//!
//! Owns the names that the table must have, and says what is wrong in words that a person can act on. Reads nothing itself.

use crate::config::Problem;

use super::TableFacts;

/// The hash key's name.
pub(crate) const KEY: &str = "pk";

/// The attribute that TTL reads.
pub(crate) const TTL: &str = "expires_at";

/// A line that makes a table. TTL is a second one, and its absence is told once the table is there.
pub(crate) fn creation(table: &str) -> String {
    format!(
        "aws dynamodb create-table --table-name {table} --billing-mode PAY_PER_REQUEST \
         --attribute-definitions AttributeName={KEY},AttributeType=S --key-schema AttributeName={KEY},KeyType=HASH"
    )
}

/// What is wrong with a table.
pub(crate) fn problems(table: &str, facts: &TableFacts) -> Vec<Problem> {
    [unfit_key(table, facts), other_ttl(table, facts)].into_iter().flatten().collect()
}

/// A key that is not that of records.
pub(crate) fn unfit_key(table: &str, facts: &TableFacts) -> Option<Problem> {
    let key = &facts.key;
    if key.hash == KEY && key.is_string && key.range.is_none() {
        return None;
    }
    let range = key.range.as_ref().map(|range| format!(" and a sort key {range:?}")).unwrap_or_default();
    let kind = if key.is_string { "a string" } else { "not a string" };
    Some(Problem::new(
        format!("the table {table:?} has the key {:?} ({kind}){range}; it must be {KEY:?}, a string, alone", key.hash),
        "LEASEHOLD_TABLE=leasehold-guard # and make that, as infra/queue.yaml does",
    ))
}

/// A TTL that reads another attribute than that of records.
pub(crate) fn other_ttl(table: &str, facts: &TableFacts) -> Option<Problem> {
    let attribute = facts.ttl.as_ref().ok()?.as_ref().filter(|attribute| *attribute != TTL)?;
    Some(Problem::new(
        format!("TTL of the table {table:?} reads {attribute:?}; it must read {TTL:?}, or records are never swept"),
        // DynamoDB changes no attribute, and takes no second change within an hour.
        // https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_UpdateTimeToLive.html
        format!(
            "{} # wait until that is done, up to an hour, and then: {}",
            set_ttl(table, false, attribute),
            ttl(table)
        ),
    ))
}

/// What is probably not meant so of a table.
pub(crate) fn warning(table: &str, facts: &TableFacts) -> Option<Problem> {
    let what = match &facts.ttl {
        Ok(Some(_)) => return None,
        Ok(None) => format!("TTL of the table {table:?} is off: records are never swept, and the table grows"),
        Err(why) => format!("could not look at TTL of the table {table:?}: {why}"),
    };
    Some(Problem::new(what, ttl(table)))
}

/// A table that is not there.
pub(crate) fn absent(table: &str) -> Problem {
    let what = format!("there is no table {table:?}: LEASEHOLD_TABLE names another, infra/queue.yaml makes one");
    Problem::new(what, creation(table))
}

/// A line that switches TTL on.
pub(crate) fn ttl(table: &str) -> String {
    set_ttl(table, true, TTL)
}

fn set_ttl(table: &str, enabled: bool, attribute: &str) -> String {
    // Anybody may have called an attribute anything.
    let attribute = shell_words::quote(attribute);
    format!(
        "aws dynamodb update-time-to-live --table-name {table} --time-to-live-specification \
         Enabled={enabled},AttributeName={attribute}"
    )
}
