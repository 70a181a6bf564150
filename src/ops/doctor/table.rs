//! The guard's table.
//!
//! Pure.

use super::{
    Ask, Finding, Severity, Subject,
    checks::{COULD_NOT_LOOK, REPLICAS, TABLE, TABLE_KEY, TTL, UNREACHABLE},
    cli,
    look::TableLook,
    rights,
    sheet::Sheet,
};
use crate::{
    causes::in_full,
    guard::{GuardError, Replication, TableFacts, admin},
};

/// Everything about the table.
pub(super) fn judge(sheet: &mut Sheet, table: &str, look: &TableLook, ask: &Ask) {
    if look.no_credentials().is_some() {
        return;
    }
    sheet.note(looked_at(table, look));
    if let Ok(facts) = &look.facts {
        for (check, problem) in [(&TABLE_KEY, admin::unfit_key(table, facts)), (&TTL, admin::other_ttl(table, facts))] {
            sheet.note(problem.map(|problem| check.error(subject(table), problem.what, problem.mend)));
        }
        sheet.note(ttl(table, facts));
        sheet.note(replicas(table, facts, ask));
    }
    let resource = resource(table, look.facts.as_ref().ok());
    for tried in &look.rights {
        sheet.note(rights::on_table(subject(table), &resource, tried));
    }
}

fn subject(table: &str) -> Subject {
    Subject::Table(table.to_owned())
}

/// The table's ARN, or what a policy can name it by.
fn resource(table: &str, facts: Option<&TableFacts>) -> String {
    match facts {
        Some(facts) if !facts.arn.is_empty() => facts.arn.clone(),
        _ if table.starts_with("arn:") => table.to_owned(),
        _ => format!("arn:aws:dynamodb:*:*:table/{table}"),
    }
}

fn looked_at(table: &str, look: &TableLook) -> Option<Finding> {
    let subject = subject(table);
    match &look.facts {
        Ok(_) => None,
        Err(GuardError::Missing) => Some(TABLE.error(subject, admin::absent(table).what, None)),
        Err(error @ GuardError::Denied(_)) => {
            let why = in_full(error);
            let found =
                format!("the table {table:?}: {why}; dynamodb:PutItem was not tried, for that would write into it");
            Some(COULD_NOT_LOOK.warning(subject, found, cli::allow("dynamodb:DescribeTable", &resource(table, None))))
        }
        Err(error) if error.is_transient() => {
            Some(UNREACHABLE.error(subject, format!("the table {table:?}: {}", in_full(error)), None))
        }
        Err(error) => Some(TABLE.error(subject, in_full(error), "LEASEHOLD_TABLE=leasehold".to_owned())),
    }
}

/// TTL that is off, or not to be looked at; one on another attribute is worse, and told apart.
fn ttl(table: &str, facts: &TableFacts) -> Option<Finding> {
    let problem = admin::warning(table, facts)?;
    Some(match (&facts.ttl, &facts.replication) {
        (Err(_), _) => {
            let allow = cli::allow("dynamodb:DescribeTimeToLive", &resource(table, Some(facts)));
            COULD_NOT_LOOK.warning(subject(table), problem.what, allow)
        }
        // Which of a table's features go with strong consistency has changed since it came, so there is no line to copy.
        // https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/V2globaltables_HowItWorks.html
        (_, Replication::Strong(_)) => TTL.note(
            subject(table),
            format!("{}; a strongly consistent global table may have none", problem.what),
            None,
        ),
        _ => TTL.warning(subject(table), problem.what, problem.mend),
    })
}

fn replicas(table: &str, facts: &TableFacts, ask: &Ask) -> Option<Finding> {
    let Replication::Eventual(regions) = &facts.replication else { return None };
    let found = format!(
        "the table is a global table with replicas in {}, which are eventually consistent: workers of one region alone may \
         write to it",
        regions.join(", ")
    );
    let severity = if ask.one_writer_region { Severity::Note } else { Severity::Error };
    let mend = "LEASEHOLD_TABLE=<a table of this region alone>; or --one-writer-region, if that is so";
    Some(REPLICAS.found(severity, subject(table), found, Some(mend.to_owned())))
}
