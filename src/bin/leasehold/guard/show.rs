//! A record for people, and for scripts.
//!
//! Pure: from a record and the time to text. Anybody may have written what stands in a table, so nothing of it is handed to
//! a terminal as it is. The owner's token is never told: whoever holds it could write as that owner.

use std::time::Duration;

use leasehold::{
    clock::{Millis, Seconds},
    guard::{Pk, Record, Status, Step, StepState, UndoAnswer},
};
use serde_json::{Map, Value, json};

use crate::words::{age, ago, cut, plain, row};

/// When people look, and by how much the clocks of workers may differ from theirs.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub(super) now: Millis,
    pub(super) skew: Duration,
}

/// So much of a step's result is shown; all of it is in JSON.
const RESULT_WIDTH: usize = 60;

/// What is said of one thing. `of` tells rows with the same name apart.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    name: &'static str,
    of: String,
    words: String,
}

/// All that a record says.
pub(super) fn page(record: &Record, view: View) -> String {
    told(&view.rows(record))
}

/// What of a record a plan changes: what it will say, and what it will say no more.
pub(super) fn difference(before: Option<&Record>, after: &Record, view: View) -> String {
    // They change each time, and tell nobody what is meant.
    let matters = |row: &Row| !matches!(row.name, "by" | "fence" | "written");
    let before = before.map(|record| view.rows(record)).unwrap_or_default();
    let after = view.rows(after);
    let changed = after.iter().filter(|row| matters(row) && !before.contains(row)).cloned();
    let is_gone = |row: &&Row| !after.iter().any(|other| (other.name, &other.of) == (row.name, &row.of));
    let gone = before.iter().filter(is_gone).map(|row| {
        let words = if row.of.is_empty() { "none".to_owned() } else { format!("{}: not recorded", plain(&row.of)) };
        Row { words, ..row.clone() }
    });
    told(&changed.chain(gone).collect::<Vec<_>>())
}

fn told(rows: &[Row]) -> String {
    rows.iter().map(|one| row(one.name, &plain(&one.words))).collect()
}

impl View {
    fn rows(self, record: &Record) -> Vec<Row> {
        let source = &record.source;
        let mut rows = Vec::new();
        let mut say = |name, words: String| rows.push(Row { name, of: String::new(), words });
        say("key", record.pk.0.clone());
        say("status", self.status(record));
        say("attempts", format!("{} failed, {} takeovers", record.failures, record.takeovers));
        if let Some(error) = &record.last_error {
            say("last error", format!("{}: {}", error.code, error.text));
        }
        if let Some(undo) = &record.undo {
            let none = if record.status == Status::Failed { "no answer yet" } else { "no answer" };
            let answer = undo.answer.map_or(none, UndoAnswer::as_str);
            say("undo", format!("{answer}; {} failed, {} takeovers", undo.failures, undo.takeovers));
        }
        if source.message_id.is_empty() {
            say("message", format!("none, of the queue {}", source.queue));
        } else {
            let sent = source.sent_at.map(|at| format!(", sent {}", self.moment(at))).unwrap_or_default();
            say("message", format!("{} of the queue {}{sent}", source.message_id, source.queue));
        }
        say("by", source.worker.clone());
        say("fence", record.fence.0.to_string());
        say("written", format!("first {}, last {}", self.moment(record.created_at), self.moment(record.updated_at)));
        let mut steps: Vec<_> = record.steps.iter().collect();
        steps.sort_by_key(|(name, step)| (step.at, *name));
        let step_row = |(name, step): (&String, &Step)| Row {
            name: "step",
            of: name.clone(),
            words: format!("{name}: {}", self.step(step)),
        };
        rows.extend(steps.into_iter().map(step_row));
        rows
    }

    /// `3 hours ago (2026-11-29T21:44:10Z)`.
    fn moment(self, at: Millis) -> String {
        format!("{} ({})", ago(self.now, at), at.utc())
    }

    fn status(self, record: &Record) -> String {
        let worker = &record.source.worker;
        let lease = record.lease_until;
        let is_held = record.held_until(self.skew).is_some_and(|until| until > self.now);
        let ends = if lease > self.now { "ends" } else { "ended" };
        match record.status {
            Status::Running if is_held => {
                let since = self.claimed_at(record);
                let (age, utc) = (age(self.now.since(since)), since.utc());
                format!("running since {age} ({utc}), by worker {worker}; its lease {ends} {}", self.moment(lease))
            }
            Status::Running => {
                let ended = self.moment(lease);
                format!(
                    "not running: its worker died, or lost its lease, which ended {ended}; the next message takes it over"
                )
            }
            Status::Released => match record.not_before.filter(|at| *at > self.now) {
                Some(at) => format!("released, may run again {}", self.moment(at)),
                None => "released: the next message runs it".to_owned(),
            },
            Status::Failed if is_held => {
                format!("failed for good, is being undone by worker {worker}; its lease {ends} {}", self.moment(lease))
            }
            Status::Failed => "failed for good, not yet undone".to_owned(),
            Status::Done => format!("done {}, {}", self.moment(record.updated_at), self.remembered(record)),
            Status::Dead => {
                let at = self.moment(record.dead_at.unwrap_or(record.updated_at));
                let copy = if record.copied { "is dead-lettered" } else { "is not known to be dead-lettered yet" };
                format!("failed for good {at}; its copy {copy}; {}", self.remembered(record))
            }
        }
    }

    /// A fence is the moment of its claim, unless the fence before it was in the future.
    fn claimed_at(self, record: &Record) -> Millis {
        Some(Millis(record.fence.0))
            .filter(|at| (record.created_at..=self.now).contains(at))
            .unwrap_or(record.created_at)
    }

    fn remembered(self, record: &Record) -> String {
        let Seconds(seconds) = record.expires_at;
        let end = Millis(seconds.saturating_mul(1000));
        let utc = end.utc();
        if record.is_expired(self.now) {
            format!("and forgotten {} ({utc}): it counts as no record", ago(self.now, end))
        } else {
            format!("remembered for {} more (until {utc})", age(end.since(self.now)))
        }
    }

    fn step(self, step: &Step) -> String {
        let generation = step.generation;
        let at = self.moment(step.at);
        match (step.state, &step.result) {
            (StepState::Done, Some(result)) => {
                format!("done {at}, generation {generation}, result {}", cut(result, RESULT_WIDTH))
            }
            (StepState::Done, None) => format!("done {at}, generation {generation}, its result could not be kept"),
            (StepState::Started, _) => {
                format!("in doubt: started {at}, generation {generation}, and not known to have ended")
            }
            (StepState::Undone, _) => {
                format!("undone {at}, runs again as generation {}", u64::from(generation) + 1)
            }
        }
    }
}

/// A record as scripts read it: moments in milliseconds since 1970, but `expires_at`, which is in seconds as in the table.
/// `status` is `null` where there is none.
pub(super) fn as_json(pk: &Pk, record: Option<&Record>) -> Value {
    let Some(record) = record else { return json!({"pk": pk, "status": null}) };
    let steps: Map<_, _> = record.steps.iter().map(|(name, step)| (name.clone(), step_as_json(step))).collect();
    json!({
        "pk": record.pk,
        "status": record.status.as_str(),
        "fence": record.fence,
        "lease_until": record.lease_until,
        "not_before": record.not_before,
        "failures": record.failures,
        "takeovers": record.takeovers,
        "last_error": record.last_error,
        "failure_id": record.failure_id,
        "dead_at": record.dead_at,
        "copied": record.copied,
        "undo": record.undo.as_ref().map(|undo| json!({
            "failures": undo.failures,
            "takeovers": undo.takeovers,
            "answer": undo.answer.map(UndoAnswer::as_str),
        })),
        "fingerprint": record.fingerprint,
        "queue": record.source.queue,
        "message_id": record.source.message_id,
        "sent_at": record.source.sent_at,
        "worker": record.source.worker,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "expires_at": record.expires_at,
        "steps": steps,
    })
}

/// Without `result` where none was kept; as text where it is no JSON, which no worker writes.
fn step_as_json(step: &Step) -> Value {
    let mut told = json!({"state": step.state.as_str(), "generation": step.generation, "at": step.at});
    if let Some(result) = &step.result {
        told["result"] = serde_json::from_str(result).unwrap_or_else(|_| Value::from(result.as_str()));
    }
    told
}

#[cfg(test)]
mod tests;
