//! What `leasehold pause --help` and `leasehold resume --help` say below the options.
//!
//! Says nothing that is not so elsewhere: what a worker makes of it is in `worker/control.rs`.

const PAUSE_EXAMPLES: &str = "\
Examples:
  What is paused, of the queues in LEASEHOLD_QUEUES:

    leasehold pause

  Two queues, or all:

    leasehold pause payments emails --why 'the bank is down, OPS-1234'
    leasehold pause --all

  From anywhere, with nothing configured but the table, by the queue's name in
  SQS:

    LEASEHOLD_TABLE=leasehold leasehold pause payments-production

  Go on:

    leasehold resume payments";

const PAUSE_NOTES: &str = "\
What happens:
  Every worker of the queue stops receiving from it within 5 seconds, and a
  worker that starts later does not begin. A long poll that is already under way
  may still bring messages. Handlers that run finish, and what they made is
  recorded. Messages stay in the queue: watch its retention. The worker says in
  its log and at /ready that it is paused, by whom and why; /live stays good, so
  that nobody restarts it.

  A pause has no end of its own. Pausing again replaces who and why. A worker
  that cannot read the table keeps to what it knew last.

  Workers and this command meet by table (LEASEHOLD_TABLE), namespace
  (LEASEHOLD_NAMESPACE) and the queue's name in SQS, whatever LEASEHOLD_QUEUES
  calls it. A worker whose queues all have GUARD=none has no table and hears
  nothing: stop it.";

const RESUME_EXAMPLES: &str = "\
Examples:
  leasehold resume payments
  leasehold resume --all
  leasehold resume payments --json | jq .before.paused.by";

const OPERATORS_JSON: &str = "\
JSON, one object a line:
  queue        the name that it was called by
  name         its name in SQS
  paused       null, or at (milliseconds since 1970), by, why
  resumed_at   when it was last told to go on, or null
  before       paused and resumed_at as they were; absent when nothing was
               said";

const OPERATORS_ENVIRONMENT: &str = "\
Environment:
  LEASEHOLD_QUEUES, LEASEHOLD_<QUEUE>_NAME, LEASEHOLD_<QUEUE>_URL,
  LEASEHOLD_TABLE, LEASEHOLD_NAMESPACE as for `leasehold run`, and AWS's own.
  Needs dynamodb:GetItem and dynamodb:PutItem: OperatorPolicy in
  infra/queue.yaml.";

const OPERATORS_EXIT_CODES: &str = "\
Exit codes:
  0   it was said of every queue, or listed
  64  the command line is wrong
  69  the table does not answer; standard error names the queues that are left:
      say it again
  78  LEASEHOLD_QUEUES has no such queue, there is no such table, or no access
      to it; with a line that mends it
  1   anything else, such as what a later version has said of the queue";

/// Below the options of `leasehold pause`.
pub(crate) fn pause() -> String {
    [PAUSE_EXAMPLES, PAUSE_NOTES, OPERATORS_JSON, OPERATORS_ENVIRONMENT, OPERATORS_EXIT_CODES].join("\n\n")
}

/// Below the options of `leasehold resume`.
pub(crate) fn resume() -> String {
    [RESUME_EXAMPLES, OPERATORS_JSON, OPERATORS_ENVIRONMENT, OPERATORS_EXIT_CODES].join("\n\n")
}
