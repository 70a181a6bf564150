//! What people see of dead letters: a table of reasons, a page for each message, a line at the end; and the same as JSON.
//!
//! Bodies, reasons and keys come from outside: nothing of them reaches a terminal raw.

use leasehold::{
    clock::Millis,
    guard::{Record, Status},
    ops::dead_letters::{DeadLetters, Fate, Group, Known, Letter, Outcome, Put, Redriven, Seen},
    queue::{Depth, MoveStatus, MoveTask},
};
use serde_json::{Value, json};

use crate::words::{self, age, ago, cut, plain};

/// Columns of what is said, in the table of reasons.
const SAID: usize = 60;

/// Lines of a body, unless it is shown whole, and columns of each.
const BODY: (usize, usize) = (12, 100);

/// A dead-letter queue by name, and whose it is.
pub(super) fn dead(letters: &DeadLetters) -> String {
    format!("{} (of {})", letters.dead_letter_queue(), letters.queue())
}

pub(super) fn listed(letters: &DeadLetters, of: &[String], depth: Depth, seen: &Seen, now: Millis) -> String {
    let mut text = format!("{} (of {}): {}", letters.dead_letter_queue(), of.join(", "), messages(depth.total()));
    if let Some(oldest) = seen.letters.iter().filter_map(Letter::at).min() {
        text.push_str(&format!(", the oldest from {}", ago(now, oldest)));
    }
    let hidden = depth.in_flight + depth.delayed;
    if hidden > 0 {
        text.push_str(&format!("; {hidden} hidden, as somebody else looks at them or a moment ago did"));
    }
    text.push('\n');
    if seen.letters.is_empty() {
        return text;
    }
    let behind = depth.visible > seen.letters.len() as u64;
    if letters.is_fifo() && behind {
        text.push_str(&format!(
            "  looked at {}: what is behind others in its group cannot be seen before those are gone\n",
            seen.letters.len()
        ));
    } else if !seen.is_all {
        text.push_str(&format!("  looked at {} of them: --limit is for more\n", seen.letters.len()));
    }
    text.push_str(&table(&Group::of(&seen.letters), now));
    text
}

fn table(groups: &[Group], now: Millis) -> String {
    let mut rows = vec![["REASON", "MESSAGES", "FAILURES", "DIED", "RECORDS", "THE LAST ONE SAYS"].map(str::to_owned)];
    for group in groups {
        let died = match (group.oldest, group.newest) {
            (Some(oldest), Some(newest)) if age(now.since(oldest)) != age(now.since(newest)) => {
                format!("{} to {}", age(now.since(oldest)), ago(now, newest))
            }
            (Some(oldest), _) => ago(now, oldest),
            (None, _) => "-".to_owned(),
        };
        let records: Vec<_> = match group.records.len() {
            1 => group.records.keys().map(|word| (*word).to_owned()).collect(),
            _ => group.records.iter().map(|(word, count)| format!("{count} {word}")).collect(),
        };
        let says = group.says.as_deref().map_or_else(|| "-".to_owned(), |says| cut(&plain(says), SAID));
        rows.push([
            plain(&group.code),
            group.messages.to_string(),
            group.failures.to_string(),
            died,
            records.join(", "),
            says,
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for [reason, messages, failures, died, records, says] in &rows {
        let [w0, w1, w2, w3, w4, _] = widths;
        let line = format!("  {reason:<w0$}  {messages:>w1$}  {failures:>w2$}  {died:<w3$}  {records:<w4$}  {says}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

pub(super) fn listed_json(
    letters: &DeadLetters,
    of: &[String],
    depth: Depth,
    seen: &Seen,
) -> serde_json::Result<String> {
    let told = json!({
        "dead_letter_queue": letters.dead_letter_queue(),
        "arn": letters.arn(),
        "queues": of,
        "depth": depth,
        "looked_at": seen.letters.len(),
        "is_all": seen.is_all,
        "oldest": seen.letters.iter().filter_map(Letter::at).min(),
        "groups": Group::of(&seen.letters),
    });
    Ok(words::json(&serde_json::to_string(&told)?) + "\n")
}

pub(super) fn letter(letters: &DeadLetters, letter: &Letter, number: usize, full: bool, now: Millis) -> String {
    let mut text = format!("{number}. {}", plain(letter.code()));
    if let Some(says) = letter.says() {
        text.push_str(&format!(": {}", plain(says)));
    }
    text.push('\n');
    let mut row = |name: &str, words: &str| text.push_str(&format!("   {name:<9} {words}\n"));
    row("died", &died(letter, now));
    if let Some(pk) = &letter.pk {
        row("key", &plain(&pk.0));
    }
    row("record", &record(letter, now));
    if let Some(group) = &letter.message.group {
        row("group", &plain(group));
    }
    if !letter.message.attributes.is_empty() {
        let names: Vec<_> = letter.message.attributes.keys().map(|name| plain(name)).collect();
        row("with", &format!("attributes {}", names.join(", ")));
    }
    row("put back", &fate(letters.fate(letter), letter));
    row("body", &format!("{} bytes", letter.message.body.len()));
    text.push_str(&body(&letter.message.body, full));
    text
}

fn died(letter: &Letter, now: Millis) -> String {
    let at =
        letter.at().map_or_else(|| "nobody knows when".to_owned(), |at| format!("{} ({})", ago(now, at), at.utc()));
    let message = format!("message {}", plain(&letter.message.id));
    match letter.note() {
        Some(note) => format!(
            "{at}, after {} and {} of the queue {}; {message}",
            many(u64::from(note.failures), "failed attempt"),
            many(u64::from(note.receive_count), "receive"),
            plain(&note.queue),
        ),
        None if letter.was_moved() => {
            let received = many(u64::from(letter.message.receive_count), "time");
            format!("sent {at}; moved by SQS; received {received} by now; {message}")
        }
        None => format!("sent {at}; {message}"),
    }
}

fn record(letter: &Letter, now: Millis) -> String {
    match &letter.known {
        Known::Record(record) => known(record, letter, now),
        Known::Nothing => "none: it was never run, or that is long ago".to_owned(),
        Known::NoKey(why) => format!("none: {}", plain(why)),
        Known::Unguarded => "none: the queue has no guard".to_owned(),
        Known::Unknown(why) => format!("not known: {}", plain(why)),
        _ => "not known".to_owned(),
    }
}

fn known(record: &Record, letter: &Letter, now: Millis) -> String {
    let since = ago(now, record.updated_at);
    let mut text = match record.status {
        Status::Running if record.lease_until < now => {
            format!("a worker died with it: its lease ended {}", ago(now, record.lease_until))
        }
        Status::Running => format!("runs now; its lease ends {}", ago(now, record.lease_until)),
        Status::Released => format!("waits to be run again, since {since}"),
        Status::Failed => format!("is being undone, since {since}"),
        Status::Done => format!("was done {since}"),
        Status::Dead => format!("failed for good {since}"),
    };
    if record.takeovers > 0 {
        text.push_str(&format!("; taken over {}", many(u64::from(record.takeovers), "time")));
    }
    if let Some(error) = record.last_error.as_ref().filter(|_| letter.note().is_none()) {
        text.push_str(&format!("; last failed with {}: {}", plain(&error.code), plain(&error.text)));
    }
    text
}

fn fate(fate: Fate, letter: &Letter) -> String {
    let finished: Vec<_> = letter.finished_steps().into_iter().map(plain).collect();
    let text = match fate {
        Fate::RunsAgain if finished.is_empty() => "it runs again, from the beginning",
        Fate::RunsAgain => return format!("it runs again; finished and not repeated: {}", finished.join(", ")),
        Fate::GoesBack => "it goes back, and its record says whether it runs",
        Fate::IsDone => "it is cleaned away: its work is done by now",
        Fate::KeyIsLost => "it stays: SQS has replaced the id that was its key; send it anew",
        Fate::IsOfOthers => "it stays: it came from another queue",
        other => other.word(),
    };
    text.to_owned()
}

fn body(text: &str, full: bool) -> String {
    let pretty = serde_json::from_str::<Value>(text).ok().and_then(|value| serde_json::to_string_pretty(&value).ok());
    let pretty = pretty.unwrap_or_else(|| text.to_owned());
    let lines: Vec<&str> = pretty.lines().collect();
    let most = if full { lines.len() } else { BODY.0 };
    let width = if full { usize::MAX } else { BODY.1 };
    let mut shown: String =
        lines.iter().take(most).map(|line| format!("     {}\n", cut(&plain(line), width))).collect();
    if lines.len() > most {
        shown.push_str(&format!("     … {} more; --full shows all\n", many((lines.len() - most) as u64, "line")));
    }
    shown
}

pub(super) fn letter_json(letters: &DeadLetters, letter: &Letter, now: Millis) -> serde_json::Result<String> {
    let known = match &letter.known {
        Known::NoKey(why) | Known::Unknown(why) => Some(why),
        _ => None,
    };
    let record = letter.record().map(|record| {
        json!({
            "status": record.status.as_str(), "failures": record.failures, "takeovers": record.takeovers,
            "lease_until": record.lease_until, "updated_at": record.updated_at, "fence": record.fence,
            "last_error": record.last_error,
        })
    });
    let message = &letter.message;
    let told = json!({
        "code": letter.code(),
        "says": letter.says(),
        "failure_id": letter.failure_id(),
        "died_at": letter.at(),
        "age_seconds": letter.at().map(|at| now.since(at).as_secs()),
        "moved_by_sqs_from": message.moved_from,
        "note": letter.note(),
        "pk": letter.pk,
        "record": record,
        "record_not_known": known,
        "finished_steps": letter.finished_steps(),
        "put_back": letters.fate(letter),
        "message_id": message.id,
        "group": message.group,
        "receive_count": message.receive_count,
        "attributes": message.attributes.keys().collect::<Vec<_>>(),
        "body": message.body,
    });
    Ok(words::json(&serde_json::to_string(&told)?) + "\n")
}

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
    words::json(&told.to_string()) + "\n"
}

/// A line for what a person has to know at once.
pub(super) fn trouble(put: &Put<'_>) -> Option<String> {
    let what = match &put.outcome {
        Outcome::SentAndStays(error) => format!("is in its queue, and could not be deleted here: {}", in_full(error)),
        Outcome::Failed(error) => format!("stays, for it could not be settled: {}", in_full(error)),
        _ => return None,
    };
    let name = put.letter.pk.as_ref().map_or(put.letter.message.id.as_str(), |pk| pk.0.as_str());
    Some(format!("{} {}", plain(name), plain(&what)))
}

fn in_full(error: &leasehold::ops::OpsError) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

pub(super) fn moved(letters: &DeadLetters, task: &MoveTask, json: bool) -> serde_json::Result<String> {
    let (dead, queue) = (dead(letters), letters.queue());
    if json {
        let (status, moved) = (format!("{:?}", task.status).to_lowercase(), task.moved);
        let told = json!({"status": status, "moved": moved, "of": task.of, "failure": task.failure});
        return Ok(words::json(&serde_json::to_string(&told)?) + "\n");
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

pub(super) fn ended(letters: &DeadLetters, redriven: &Redriven, what: &str, json: bool) -> serde_json::Result<String> {
    if json {
        return Ok(words::json(&serde_json::to_string(redriven)?) + "\n");
    }
    let mut text = format!("{}: {} {what}\n", dead(letters), messages(redriven.done.values().sum()));
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
    if redriven.is_stopped {
        text.push_str("It was stopped: the same again goes on\n");
    }
    Ok(text)
}

fn many_are(count: u64) -> String {
    if count == 1 { "1 is".to_owned() } else { format!("{count} are") }
}

fn messages(count: u64) -> String {
    many(count, "message")
}

fn many(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
