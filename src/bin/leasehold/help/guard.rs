//! What `leasehold guard --help` and its commands' `--help` say below the options.
//!
//! Says nothing that is not so elsewhere: what a change makes of a record is in the library, `guard/amend.rs`.

const COMMANDS: &str = "\
Examples:
  What is known of the payment p1, and why it is not done:

    leasehold guard get payments p1

  It was mended: run it again, and its finished steps too:

    leasehold guard reset payments p1 --steps-again

  Somebody did it by hand:

    leasehold guard done payments p1";

const WHICH: &str = "\
Which record:
  By the queue's name in LEASEHOLD_QUEUES and the key, whose parts stand in the
  order of LEASEHOLD_<QUEUE>_KEY. A part that can be a number, or true or false,
  is looked up as that and as a text. Or by the primary key, which log lines
  and dead letters show:

    leasehold guard get orders eu 4711
    leasehold guard get --pk 'prod/orders#eu#n:4711'

  The second needs nothing but the table. A queue with GUARD=none has no
  records.";

const GET_EXAMPLES: &str = "\
Examples:
  leasehold guard get payments p1
  leasehold guard get payments p1 --json | jq .last_error.code
  leasehold guard get --pk 'payments#p1'";

const RECORD_JSON: &str = "\
JSON, one object:
  pk, queue, message_id, sent_at, worker
               the primary key; which message it last ran for, and who last
               wrote it: a worker, or a person as user@host
  status       RUNNING, RELEASED, FAILED, DONE, DEAD; null without a record
  fence        the fencing token of the latest claim
  failures, takeovers, last_error {code, text}, failure_id, copied, undo
  lease_until, not_before, dead_at, created_at, updated_at
               milliseconds since 1970
  expires_at   seconds since 1970
  fingerprint  of the payload
  steps        by name: state (started, done, undone), generation, at, and
               result, if one was kept";

const RESET_EXAMPLES: &str = "\
Examples:
  What failed for good, or is done, may run again:

    leasehold guard reset payments p1

  The same with all steps, each under a new downstream key, so that a payment
  provider does not replay its old answer:

    leasehold guard reset payments p1 --steps-again

  The step charge is in doubt. It was found to have taken effect, with this
  result; or it was found not to have:

    leasehold guard reset payments p1 --step charge --done --result '{\"id\":1}'
    leasehold guard reset payments p1 --step charge --again

  It waits, and is known to have ended: do not wait. What was begun may still
  run otherwise, and the next run is beside it:

    leasehold guard reset payments p1 --now

  What would change:

    leasehold guard reset payments p1 --dry-run";

const DONE_EXAMPLES: &str = "\
Examples:
  leasehold guard done payments p1
  leasehold guard done payments p1 --ttl 90d --yes
  leasehold guard done --pk 'payments#p1' --dry-run --json";

const CHANGES: &str = "\
How it is changed:
  In one write, and only if nobody has written the record since it was shown: if
  a worker or somebody else has, that is told, and nothing is written; or, where
  a first try was not answered, that it may have been. While a worker runs the
  work, nothing is written: wait until the time that is told, or stop that
  worker. One that was given up on cannot write into the record afterwards,
  whenever it wakes up. What may still run elsewhere is waited for, --now apart.

  Only records are changed. Messages stay where they are, in the queue and in
  its dead-letter queue.";

const CHANGE_JSON: &str = "\
JSON, one object:
  pk       the primary key
  written  whether it is changed; null where that is not known, for a first try
           was not answered and something wrote after it
  before   the record as it was, as `leasehold guard get --json` prints it
  after    as it is now; with --dry-run, as it would be";

const ENVIRONMENT: &str = "\
Environment:
  LEASEHOLD_QUEUES, LEASEHOLD_TABLE, LEASEHOLD_NAMESPACE, LEASEHOLD_KEY_HASH,
  LEASEHOLD_CLOCK_SKEW, and of the queue OPERATION, KEY, GUARD and DONE_TTL, as
  for `leasehold run`, and AWS's own. Needs dynamodb:GetItem, and to change
  something PutItem and UpdateItem: OperatorPolicy in infra/queue.yaml.";

const GET_EXIT_CODES: &str = "\
Exit codes:
  0   it is shown
  64  the command line is wrong, or means several records
  69  the table does not answer
  78  LEASEHOLD_QUEUES has no such queue, there is no such table, or no access
      to it; with a line that mends it
  1   there is no record; or anything else";

const CHANGE_EXIT_CODES: &str = "\
Exit codes:
  0   it is changed, or with --dry-run would be
  64  the command line is wrong, means several records, or there is no terminal
      to ask on and no --yes
  69  the table does not answer
  78  LEASEHOLD_QUEUES has no such queue, there is no such table, or no access
      to it; with a line that mends it
  1   nothing is written: there is no record, a worker runs it, it changed
      meanwhile, the answer was no; or anything else";

/// Below the commands of `leasehold guard`.
pub(crate) fn guard() -> String {
    [COMMANDS, WHICH, CHANGES, ENVIRONMENT].join("\n\n")
}

/// Below the options of `leasehold guard get`.
pub(crate) fn guard_get() -> String {
    [GET_EXAMPLES, WHICH, RECORD_JSON, ENVIRONMENT, GET_EXIT_CODES].join("\n\n")
}

/// Below the options of `leasehold guard reset`.
pub(crate) fn guard_reset() -> String {
    [RESET_EXAMPLES, WHICH, CHANGES, CHANGE_JSON, ENVIRONMENT, CHANGE_EXIT_CODES].join("\n\n")
}

/// Below the options of `leasehold guard done`.
pub(crate) fn guard_done() -> String {
    [DONE_EXAMPLES, WHICH, CHANGES, CHANGE_JSON, ENVIRONMENT, CHANGE_EXIT_CODES].join("\n\n")
}
