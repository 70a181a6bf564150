//! What people see of letters that were put back or deleted: a line for each, a summary at the end; and the same as JSON.
//!
//! Reasons and keys come from outside: nothing of them reaches a terminal raw, as JSON neither.

use leasehold::{
    ops::dead_letters::{DeadLetters, Ending, Outcome, Put, Redriven},
    queue::{MoveStatus, MoveTask},
};
use serde::Serialize;
use serde_json::json;

use super::show::dead;
use crate::words::{self, plain};

pub(super) fn put_json(put: &Put<'_>) -> String {
    let (outcome, error) = match &put.outcome {
        Outcome::Done => ("done", None),
        Outcome::Stays => ("stays", None),
        Outcome::SentAndStays(error) => ("sent_and_stays", Some(error)),
        Outcome::Failed(error) => ("failed", Some(error)),
        _ => ("unknown", None),
    };
    let told = json!({
        "message_id": put.letter.message.id,
        "pk": put.letter.pk,
        "code": put.letter.code(),
        "fate": put.fate,
        "outcome": outcome,
        "error": error.map(in_full),
    });
    line(&told).unwrap_or_default()
}

/// A line of a dry run.
pub(super) fn put(put: &Put<'_>) -> String {
    format!("  {:<24}  {}  {}\n", put.fate.word(), plain(name(put)), plain(put.letter.code()))
}

fn name<'a>(put: &'a Put<'_>) -> &'a str {
    put.letter.pk.as_ref().map_or(put.letter.message.id.as_str(), |pk| pk.0.as_str())
}

/// A line for what a person has to know at once.
pub(super) fn trouble(put: &Put<'_>) -> Option<String> {
    let what = match &put.outcome {
        Outcome::SentAndStays(error) => format!("is in its queue, and could not be deleted here: {}", in_full(error)),
        Outcome::Failed(error) => format!("stays, for it could not be settled: {}", in_full(error)),
        _ => return None,
    };
    Some(format!("{} {}", plain(name(put)), plain(&what)))
}

fn in_full(error: &leasehold::ops::OpsError) -> String {
    anyhow::Chain::new(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

pub(super) fn moved(letters: &DeadLetters, task: &MoveTask, json: bool) -> serde_json::Result<String> {
    let (dead, queue) = (dead(letters), letters.queue());
    if json {
        let (status, moved) = (format!("{:?}", task.status).to_lowercase(), task.moved);
        let told = json!({"status": status, "moved": moved, "of": task.of, "failure": task.failure});
        return line(&told);
    }
    let count = messages(task.moved);
    Ok(match task.status {
        MoveStatus::Completed => format!("SQS put {count} of {dead} back into {queue}\n"),
        MoveStatus::Failed => {
            let why = task.failure.as_deref().unwrap_or("it does not say why");
            format!(
                "SQS put {count} of {dead} back into {queue}, and failed then: {}\nOne by one: leasehold dlq redrive {queue} --one-by-one\n",
                plain(why)
            )
        }
        _ => format!("SQS put {count} of {dead} back into {queue}, and was stopped; the rest is where it was\n"),
    })
}

/// What was done to letters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Did {
    PutBack,
    Delete,
}

pub(super) fn ended(
    letters: &DeadLetters,
    redriven: &Redriven,
    did: Did,
    dry_run: bool,
    json: bool,
) -> serde_json::Result<String> {
    if json {
        return line(redriven);
    }
    let at_least = if dry_run && redriven.ending == Ending::Behind { "at least " } else { "" };
    let would_be = if dry_run { " would be" } else { "" };
    let (back, deleted) = (redriven.put_back(), redriven.deleted());
    let mut text = format!("{}: {at_least}", dead(letters));
    text.push_str(&match did {
        Did::PutBack if deleted > 0 => format!("{}{would_be} put back, {deleted} deleted\n", messages(back)),
        Did::PutBack => format!("{}{would_be} put back\n", messages(back)),
        Did::Delete => format!("{}{would_be} deleted\n", messages(deleted)),
    });
    for (word, count) in &redriven.done {
        text.push_str(&format!("  {count:>6}  {word}\n"));
    }
    let staying: u64 = redriven.stay.values().sum();
    if staying > 0 {
        text.push_str(&format!(
            "{} here:\n",
            if staying == 1 { "1 stays".to_owned() } else { format!("{staying} stay") }
        ));
        for (word, count) in &redriven.stay {
            text.push_str(&format!("  {count:>6}  {word}\n"));
        }
    }
    if redriven.others > 0 {
        text.push_str(&format!("{} not meant, or died only now\n", many_are(redriven.others)));
    }
    if let Some(why) = why_not_all(redriven.ending, redriven.unseen) {
        text.push_str(&format!("{why}\n"));
    }
    Ok(text)
}

/// What is to be said of an end that was not that of the queue.
pub(super) fn why_not_all(ending: Ending, unseen: u64) -> Option<String> {
    Some(match ending {
        Ending::All | Ending::Enough => return None,
        Ending::Stopped => "It was stopped: the same again goes on".to_owned(),
        Ending::BrokenOff => "It was broken off: the same again goes on".to_owned(),
        Ending::Hidden => format!(
            "By SQS's count {unseen} more are there, hidden as somebody looks at them or a moment ago did: the same again \
             in two minutes"
        ),
        Ending::Behind => {
            format!("By SQS's count {unseen} more are behind others in their group, and not seen before those are gone")
        }
        Ending::Dying => "Others arrive all the time, and are left for the next time".to_owned(),
        Ending::TooMany => "The rest was not looked at: as many are held as SQS lets one hold".to_owned(),
        _ => "The end was not reached".to_owned(),
    })
}

/// A line of JSON for a script, or for a terminal: what JSON leaves as it is and could steer one is escaped, which is the
/// same to whoever reads it as JSON.
pub(super) fn line(told: &impl Serialize) -> serde_json::Result<String> {
    Ok(words::json(&serde_json::to_string(told)?) + "\n")
}

fn many_are(count: u64) -> String {
    if count == 1 { "1 is".to_owned() } else { format!("{count} are") }
}

pub(super) fn messages(count: u64) -> String {
    many(count, "message")
}

pub(super) fn many(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_on_a_terminal_steers_nothing_and_says_the_same() {
        let text = "a\u{1b}\u{9b}2J\u{202e}\u{7f}\\ü😀\"";
        let told = line(&text).expect("JSON");
        assert_eq!(told, "\"a\\u001b\\u009b2J\\u202e\\u007f\\\\ü😀\\\"\"\n");
        assert_eq!(serde_json::from_str::<String>(&told).expect("JSON"), text);
    }
}
