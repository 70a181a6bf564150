//! What `leasehold doctor --help` says below the options.
//!
//! The checks come from the library's own table.

use std::fmt::Write;

use leasehold::ops::doctor::CHECKS;

const EXAMPLES: &str = "\
Examples:
  Everything that a worker with these variables would use:

    leasehold doctor

  A queue that nothing is configured for yet, or that is not there yet:

    leasehold doctor payments

  With what only you know: handlers of one queue take up to 20 s, of the others
  up to 2 s, and Kubernetes kills after 60 s:

    leasehold doctor --p99 2s --p99 payments=20s --stop-timeout 60s

  Before a deploy, in a script; only errors fail it:

    leasehold doctor --json > findings.json || jq -r '
      .findings[] | select(.severity == \"error\")
      | .found, .mend' findings.json";

const NOTES: &str = "\
What it does:
  It asks SQS and DynamoDB for settings, and tries rights with calls that can do
  nothing: a delete and a visibility change with a made-up handle, a send of a
  message that SQS cannot take, a change of a record that is not there. One item
  is written: #probe, with which workers probe the table, and only if the table
  is seen to be one for them. Nothing is received. A right
  that is found missing is missing; in which order AWS looks at rights and at
  requests is not documented, so one that is not found missing may be so.

  What may not be looked at is told as such, and the rest is judged.

  The p99 of handler time is what --p99 says, or what a worker at
  LEASEHOLD_HTTP_ADDR (127.0.0.1:9464 unless set) has measured. Without either,
  what depends on it is not judged.

Severities:
  error    a worker does not start, or work is lost, or may take effect twice
  warning  it works, and will not on a bad day; or it could not be looked at
  note     worth knowing; it may well be meant so";

const JSON: &str = "\
JSON, one object:
  findings   check, severity, subject (kind and name), found, why, and mend: a
             line to copy, or null
  passed     how many checks found nothing
  create     lines for a shell that make what is not there, in order
  p99        ms and source (given, measured), by queue
  reached    whether anything answered at all";

const ENVIRONMENT: &str = "\
Environment:
  As for `leasehold run`, and AWS's own. Needs the rights of a worker:
  WorkerPolicy in infra/queue.yaml.";

const EXIT_CODES: &str = "\
Exit codes:
  0   no errors; there may be warnings and notes
  1   errors were found
  64  the command line is wrong
  69  nothing could be reached
  78  the variables are wrong; every problem is on standard error, with a line
      that mends it";

/// Below the options of `leasehold doctor`.
pub(crate) fn doctor() -> String {
    let mut checks = "Checks:".to_owned();
    for check in CHECKS {
        // Writing to a string cannot fail.
        let _ = write!(checks, "\n  {}\n      {}\n", check.code, check.why);
    }
    format!("{}\n\n{}", by_hand(), checks.trim_end())
}

/// What is not wrapped.
pub(super) fn by_hand() -> String {
    [EXAMPLES, NOTES, JSON, ENVIRONMENT, EXIT_CODES].join("\n\n")
}
