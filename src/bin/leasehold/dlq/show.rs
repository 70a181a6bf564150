//! What people see of dead letters: a table of reasons, a page for each message; and the same as JSON.
//!
//! Bodies, reasons and keys come from outside: nothing of them reaches a terminal raw.

use leasehold::{
    clock::Millis,
    guard::{Record, Status},
    ops::dead_letters::{DeadLetters, Ending, Fate, Group, Known, Letter, Looked},
    queue::Depth,
};
use serde_json::json;

use super::{
    body,
    told::{line, many, messages},
};

use crate::words::{age, ago, cut, plain};

/// Columns of what is said, in the table of reasons.
const SAID: usize = 60;

/// Lines of a body, unless it is shown whole, and columns of each.
const BODY: (usize, usize) = (12, 100);

/// A dead-letter queue by name, and whose it is.
pub(super) fn dead(letters: &DeadLetters) -> String {
    format!("{} (of {})", letters.dead_letter_queue(), letters.queue())
}

/// What a look at one dead-letter queue has brought.
pub(super) struct Listed<'a> {
    pub(super) letters: &'a DeadLetters,
    /// The names of the queues whose it is.
    pub(super) of: &'a [String],
    /// As it was before the look.
    pub(super) depth: Depth,
    pub(super) looked: Looked,
    pub(super) oldest: Option<Millis>,
    pub(super) groups: Vec<Group>,
}

impl Listed<'_> {
    pub(super) fn text(&self, now: Millis) -> String {
        let Self { letters, of, depth, looked, oldest, groups } = self;
        let mut text = format!("{} (of {}): {}", letters.dead_letter_queue(), of.join(", "), messages(depth.total()));
        if let Some(oldest) = oldest {
            let which = if looked.ending == Ending::All { "" } else { " of those looked at" };
            text.push_str(&format!(", the oldest{which} from {}", ago(now, *oldest)));
        }
        let hidden = depth.in_flight + depth.delayed;
        if hidden > 0 {
            text.push_str(&format!("; {hidden} hidden, as somebody else looks at them or a moment ago did"));
        }
        text.push('\n');
        if looked.at == 0 {
            return text;
        }
        match looked.ending {
            Ending::Behind => text.push_str(&format!(
                "  looked at {}: what is behind others in its group cannot be seen before those are gone\n",
                looked.at
            )),
            Ending::Enough => text.push_str(&format!("  looked at {} of them: --limit is for more\n", looked.at)),
            Ending::All => {}
            _ => text.push_str(&format!("  looked at {} of them\n", looked.at)),
        }
        text.push_str(&table(groups, now));
        text
    }

    pub(super) fn json(&self) -> serde_json::Result<String> {
        let Self { letters, of, depth, looked, oldest, groups } = self;
        let told = json!({
            "dead_letter_queue": letters.dead_letter_queue(),
            "arn": letters.arn(),
            "queues": of,
            "depth": depth,
            "looked_at": looked.at,
            "is_all": looked.ending == Ending::All,
            "ending": looked.ending,
            "unseen": looked.unseen,
            "oldest": oldest,
            "groups": groups,
        });
        line(&told)
    }
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
    text.push_str(&shown(&letter.message.body, full));
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
        Fate::IsUndoneFirst => "its undo is gone on with; then it is dead-lettered again, and can run again",
        Fate::GoesBack => "it goes back, and its record says whether it runs",
        Fate::IsDone => "it is cleaned away: its work is done by now",
        Fate::KeyIsLost => "it stays: SQS has replaced the id that was its key; send it anew",
        Fate::IsOfOthers => "it stays: it came from another queue",
        other => other.word(),
    };
    text.to_owned()
}

fn shown(text: &str, full: bool) -> String {
    let lines = body::lines(text);
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
    line(&told)
}
