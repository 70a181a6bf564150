//! Which record is meant: by a queue and a key, or by its primary key.
//!
//! Reads, and writes nothing. A key that can be read in two ways is looked up in both, and never guessed.

use leasehold::{
    Key,
    config::KeySource,
    guard::{Pk, Record},
    ops::{Ops, OpsError},
};

use super::change::refused;
use crate::{Ended, usage, words::plain};

#[derive(Debug, clap::Args)]
pub(super) struct Meant {
    /// A name from LEASEHOLD_QUEUES
    #[arg(value_name = "QUEUE", required_unless_present = "pk")]
    pub(super) queue: Option<String>,

    /// The key of the work; one of several parts in their order
    #[arg(value_name = "KEY", required_unless_present = "pk", conflicts_with = "pk", num_args = 1..=MOST_PARTS, allow_negative_numbers = true)]
    pub(super) key: Vec<String>,

    /// The record's primary key instead, as log lines and dead letters show it
    #[arg(long, value_name = "PK", value_parser = primary_key)]
    pub(super) pk: Option<String>,
}

/// Each part that can be a number is looked up both ways, so that few are many records.
const MOST_PARTS: usize = 6;

/// The record that is meant.
#[derive(Debug)]
pub(super) struct Found {
    /// By its name in the configuration, if it is known there.
    pub(super) queue: Option<String>,
    /// Where the record is, or where it would be: several only if there is none.
    pub(super) pks: Vec<Pk>,
    pub(super) record: Option<Record>,
}

/// What DynamoDB takes as a key, and is a record's: others begin with `#`.
fn primary_key(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 2048 || text.starts_with('#') || !text.contains('#') {
        return Err("a record's primary key reads operation#key or namespace/operation#key".to_owned());
    }
    Ok(text.to_owned())
}

pub(super) async fn find(ops: &Ops, meant: &Meant) -> anyhow::Result<Found> {
    let (queue, pks) = match (&meant.pk, &meant.queue) {
        (Some(pk), queue) => by_primary_key(ops, Pk(pk.clone()), queue.as_deref())?,
        (None, Some(queue)) => (Some(queue.clone()), by_key(ops, queue, &meant.key)?),
        (None, None) => return Err(usage("name a queue and a key, or say --pk")),
    };
    let mut records = Vec::new();
    for pk in &pks {
        records.extend(ops.record(pk).await.map_err(refused)?);
    }
    match records.len() {
        0 => Ok(Found { queue, pks, record: None }),
        1 => Ok(Found { queue, pks: records.iter().map(|record| record.pk.clone()).collect(), record: records.pop() }),
        n => {
            let pks = records.into_iter().map(|record| record.pk).collect::<Vec<_>>();
            Err(usage(&format!(
                "there are {n} records that this can mean, of a text and of a number: say {}",
                either(&pks)
            )))
        }
    }
}

fn by_primary_key(ops: &Ops, pk: Pk, queue: Option<&str>) -> anyhow::Result<(Option<String>, Vec<Pk>)> {
    let mut of = ops.queues_of(&pk);
    let queue = match queue {
        None => of.next().map(str::to_owned),
        Some(queue) => {
            ops.queue(queue).map_err(refused)?;
            if !of.any(|known| known == queue) {
                return Err(usage(&format!("no key of the queue {queue} has the primary key {}", plain(&pk.0))));
            }
            Some(queue.to_owned())
        }
    };
    drop(of);
    Ok((queue, vec![pk]))
}

/// The first is that of texts alone.
fn by_key(ops: &Ops, queue: &str, parts: &[String]) -> anyhow::Result<Vec<Pk>> {
    if parts.iter().any(String::is_empty) {
        return Err(usage("a part of the key is empty, and no message has such a key"));
    }
    let mut readings = Key::readings(parts);
    // All other sources give texts.
    if !matches!(ops.queue(queue).map_err(refused)?.key, None | Some(KeySource::Pointers(_))) {
        readings.truncate(1);
    }
    readings.iter().map(|key| ops.pk(queue, key)).collect::<Result<_, OpsError>>().map_err(refused)
}

/// Primary keys as options to copy.
pub(super) fn either(pks: &[Pk]) -> String {
    let options: Vec<_> = pks.iter().map(|pk| format!("--pk {}", shell_words::quote(&plain(&pk.0)))).collect();
    options.join(" or ")
}

impl Found {
    /// That there is no record, and what may be the reason.
    pub(super) fn none(&self, ops: &Ops, meant: &Meant) -> Ended {
        let pks: Vec<_> = self.pks.iter().map(|pk| plain(&pk.0)).collect();
        let told = format!(
            "there is no record of {}: nothing has run under this key, or it is forgotten by now",
            pks.join(", nor of ")
        );
        let configured = self.queue.as_deref().and_then(|queue| ops.queue(queue).ok()?.key.as_ref());
        let hint = match configured {
            Some(KeySource::Pointers(pointers)) if meant.pk.is_none() && pointers.len() != meant.key.len() => {
                format!("; its keys have {} parts, {}", pointers.len(), pointers.join(" "))
            }
            _ => String::new(),
        };
        Ended { code: 1, told: told + &hint }
    }
}
