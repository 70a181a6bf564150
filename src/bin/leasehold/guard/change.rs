//! A change of a record: what is there, what will be, a question, and the write.
//!
//! Relies on the library to write nothing if the record is no longer the one that was shown.

use std::{process::ExitCode, time::Duration};

use leasehold::{
    Problem,
    clock::Millis,
    guard::{Amend, GuardError, Record},
    ops::{Ops, OpsError},
    queue::LONGEST_VISIBILITY,
};
use serde_json::{Value, json};

use super::{Change, find::Found, print, show, view};
use crate::{
    Ended,
    words::{self, access, age, confirm, plain},
};

/// Shows, asks, and writes. `means` is what follows for messages of the key.
pub(super) async fn carry_out(
    ops: &Ops,
    found: &Found,
    plan: Result<Amend, OpsError>,
    means: &str,
    change: &Change,
) -> anyhow::Result<ExitCode> {
    let before = found.record.as_ref();
    if !change.json {
        print(&standing(ops, found, before))?;
    }
    let plan = plan.map_err(refused)?;
    let told = |written: Option<bool>, now: Option<&Record>| {
        let pk = &plan.record.pk;
        json!({
            "pk": pk,
            "written": written,
            "before": show::as_json(pk, before),
            "after": show::as_json(pk, now),
        })
    };
    if !change.json {
        print(&format!("\nThis will change:\n{}\n{means}", show::difference(before, &plan.record, view(ops))))?;
    }
    if change.dry_run {
        return end(change, &told(Some(false), Some(&plan.record)), "Nothing is written.", ExitCode::SUCCESS);
    }
    if !change.yes && !confirm("Change it?")? {
        return end(change, &Value::Null, "Nothing is written.", ExitCode::FAILURE);
    }
    match ops.amend(&plan).await {
        Ok(()) => end(change, &told(Some(true), Some(&plan.record)), "It is changed.", ExitCode::SUCCESS),
        Err(OpsError::Changed { now }) => {
            let words = format!(
                "\nIt changed meanwhile, and nothing is written. It now is:\n{}",
                standing(ops, found, now.as_deref())
            );
            end(change, &told(Some(false), now.as_deref()), &words, ExitCode::FAILURE)
        }
        Err(OpsError::Overtaken { now }) => {
            let words = format!(
                "\nA first try was not answered: it may have been written, and something wrote after it. It now is:\n{}",
                standing(ops, found, now.as_deref())
            );
            end(change, &told(None, now.as_deref()), &words, ExitCode::FAILURE)
        }
        Err(error) => Err(refused(error).context("not changed, as far as is known; `leasehold guard get` shows it")),
    }
}

fn standing(ops: &Ops, found: &Found, record: Option<&Record>) -> String {
    let Some(record) = record else {
        let pks: Vec<_> = found.pks.iter().map(|pk| plain(&pk.0)).collect();
        return format!("There is no record of {}.", pks.join(", "));
    };
    show::page(record, view(ops)).trim_end().to_owned()
}

fn end(change: &Change, json: &Value, words: &str, code: ExitCode) -> anyhow::Result<ExitCode> {
    if change.json {
        print(&words::json(&json.to_string()))?;
    } else {
        print(words)?;
    }
    Ok(code)
}

/// It may end well later, but for a script it is an answer and not an outage.
fn held(worker: &str, until: Millis, left: Duration) -> Ended {
    let (worker, until) = (plain(worker), until.utc());
    let then = if left > LONGEST_VISIBILITY + Duration::from_secs(3600) {
        "no lease is that long: a clock was wrong, and with the next messages a worker takes it over by itself"
    } else {
        "wait until then, or stop that worker"
    };
    Ended { code: 1, told: format!("held by worker {worker} until {until}, {} from now; {then}", age(left)) }
}

/// An error as what a person can mend, or try again.
pub(super) fn refused(error: OpsError) -> anyhow::Error {
    let problem = match error {
        OpsError::Guard { table, error: GuardError::Missing } => Problem::new(
            format!("there is no table {table:?}, in which the records are kept"),
            "LEASEHOLD_TABLE=<the table of the workers>, AWS_REGION=<its region>",
        ),
        OpsError::Guard { table, error: error @ GuardError::Denied(_) } => {
            let right = format!("dynamodb:GetItem, PutItem and UpdateItem on {table}");
            let mend = access(error.lacks_credentials(), &right);
            Problem::new(format!("the table {table:?}: {:#}", anyhow::Error::new(error)), mend)
        }
        OpsError::Held { worker, until, left } => return held(&worker, until, left).into(),
        error @ OpsError::Undoing => {
            return Ended { code: 1, told: format!("{error}: --steps-again") }.into();
        }
        error @ OpsError::NoSuchStep { .. } => {
            return Ended { code: 1, told: format!("{error}; --done --new is for one that is not there yet") }.into();
        }
        error => return error.into(),
    };
    OpsError::Configuration(vec![problem]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_a_key_and_what_then_to_do_is_told_on_one_plain_line() {
        let told = |seconds| held("w\u{1b}[2J\n", Millis(0), Duration::from_secs(seconds)).told;
        let named = r"held by worker w\u{1b}[2J\n until 1970-01-01T00:00:00Z, ";
        assert_eq!(told(43), format!("{named}43 s from now; wait until then, or stop that worker"));
        assert!(told(14 * 3600).contains("14 hours from now; no lease is that long"), "{}", told(14 * 3600));
    }
}
