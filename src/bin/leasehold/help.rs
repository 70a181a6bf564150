//! What `--help` says below the options: examples, exit codes, and the settings from the library's own table.
//!
//! Says nothing that is not so elsewhere: what a handler is told is documented at `ExecHandler` and `HttpHandler`.

use std::fmt::Write;

use leasehold::config::{SETTINGS, Scope, Setting};

const EXIT_CODES: &str = "\
Exit codes:
  0   all is done, or the worker was told to stop and has stopped cleanly
  64  the command line is wrong
  69  AWS could not be reached; `run` tries for LEASEHOLD_START_TIMEOUT
  78  the configuration is wrong; every problem is on standard error, with a line that mends it
  1   anything else";

const RUN_EXAMPLES: &str = "\
Examples:
  One queue, its work named by a field of the JSON body, done by a program:

    export LEASEHOLD_QUEUES=payments
    export LEASEHOLD_PAYMENTS_KEY=/payment_id
    export LEASEHOLD_PAYMENTS_HANDLER='exec:./charge --verbose'
    leasehold run

  The same, done by an app that listens on this machine:

    export LEASEHOLD_PAYMENTS_HANDLER=http://127.0.0.1:8080/jobs
    leasehold run

  Two queues, of which this process works on one:

    export LEASEHOLD_QUEUES=payments,emails
    leasehold run --only emails

  Against LocalStack:

    export AWS_ENDPOINT_URL=http://localhost:4566 AWS_REGION=us-east-1
    export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test
    leasehold run";

const HANDLERS: &str = "\
Handlers:
  http://host:port/path   is sent a POST for each message, with the body as it is.

  The status of its reply is the verdict:
    2xx                     done: the work is recorded, the message deleted
    400, 410, 413, 415, 422 failed for good: dead-lettered, with the reply's body as the reason
    429, 503, no connection not there: no attempt is used, the queue pauses until it is; Retry-After counts
    *                       anything else: a failed attempt, again after Retry-After or the back-off
  X-Leasehold-Outcome: done, retry, permanent, not-yet or unavailable in a reply overrides its status;
  X-Leasehold-Reason is the code of the failure.
  It is told in headers what a program is told in its environment: Idempotency-Key, X-Leasehold-Fence, -Attempt,
  -Deadline, -Message-Id, -Receive-Count, -Group-Id, -Sent-At, -Attribute-<Name>, -Attributes-Omitted.

  exec:program args       is run for each message, without a shell, with the body on its standard input.

  Its exit code is the verdict:
    0   done: the work is recorded, the message deleted
    65  failed for good: dead-lettered, with the end of its standard error as the reason
    75  not yet: again in 30 seconds, without using an attempt
    *   any other code or a signal: a failed attempt, again after the back-off
  A program that cannot be found or started uses no attempt; its queue pauses until it is there.

  It is told in its environment:
    LEASEHOLD_IDEMPOTENCY_KEY       to be handed to whatever it calls: the same on every attempt
    LEASEHOLD_FENCE                 grows with every run of a key
    LEASEHOLD_ATTEMPT               from 1
    LEASEHOLD_DEADLINE              when its time is up, in seconds since 1970
    LEASEHOLD_MESSAGE_ID, LEASEHOLD_RECEIVE_COUNT, LEASEHOLD_GROUP_ID, LEASEHOLD_SENT_AT
    LEASEHOLD_ATTRIBUTE_<NAME>      each message attribute
    LEASEHOLD_ATTRIBUTES_OMITTED    names of attributes that were too large, or not to be told apart
  It inherits the rest of the environment, but neither the settings below nor AWS credentials.

  To stop it, SIGTERM is sent to its process group, and SIGKILL after LEASEHOLD_CANCEL_GRACE. An app is not told.";

const SIGNALS: &str = "\
Signals:
  SIGTERM, SIGINT     take nothing new, let handlers finish, give the rest back; gone within
                      LEASEHOLD_DRAIN_TIMEOUT. A second one does not wait for handlers.";

/// One line for each paragraph: it is wrapped where the terminal ends.
const NOTES: &str = "\
AWS_REGION, AWS_ENDPOINT_URL, credentials and profiles are read as by every AWS tool. Durations are written \
500ms, 30s, 15m, 12h, 30d. <QUEUE> is a name from LEASEHOLD_QUEUES in upper case, with - and . as _; where it is in \
brackets, the variable without it is the default for all queues.";

const PAUSE_EXAMPLES: &str = "\
Examples:
  What is paused, of the queues in LEASEHOLD_QUEUES:

    leasehold pause

  Two queues, or all:

    leasehold pause payments emails --why 'the bank is down, OPS-1234'
    leasehold pause --all

  From anywhere, with nothing configured but the table, by the queue's name in SQS:

    LEASEHOLD_TABLE=leasehold leasehold pause payments-production

  Go on:

    leasehold resume payments";

const PAUSE_NOTES: &str = "\
What happens:
  Every worker of the queue stops receiving from it within 5 seconds, and a worker that starts later does not begin. A
  long poll that is already under way may still bring messages. Handlers that run finish, and what they made is
  recorded. Messages stay in the queue: watch its retention. The worker says in its log and at /ready that it is paused,
  by whom and why; /live stays good, so that nobody restarts it.

  A pause has no end of its own. Pausing again replaces who and why. A worker that cannot read the table keeps to what it
  knew last.

  Workers and this command meet by table (LEASEHOLD_TABLE), namespace (LEASEHOLD_NAMESPACE) and the queue's name in SQS,
  whatever LEASEHOLD_QUEUES calls it. A worker whose queues all have GUARD=none has no table and hears nothing: stop it.";

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
  before       paused and resumed_at as they were; absent when nothing was said";

const OPERATORS_ENVIRONMENT: &str = "\
Environment:
  LEASEHOLD_QUEUES, LEASEHOLD_<QUEUE>_NAME, LEASEHOLD_<QUEUE>_URL, LEASEHOLD_TABLE, LEASEHOLD_NAMESPACE as for
  `leasehold run`, and AWS's own. Needs dynamodb:GetItem and dynamodb:PutItem: OperatorPolicy in infra/queue.yaml.";

const OPERATORS_EXIT_CODES: &str = "\
Exit codes:
  0   it was said of every queue, or listed
  64  the command line is wrong
  69  the table does not answer; standard error names the queues that are left: say it again
  78  there is no such queue or table, or no access to it; with a line that mends it
  1   anything else, such as what a later version has said of the queue";

/// Below the options of `leasehold`.
pub(crate) fn command() -> String {
    format!("Settings are environment variables: see `leasehold run --help`.\n\n{EXIT_CODES}")
}

/// Below the options of `leasehold run`.
pub(crate) fn run() -> String {
    [RUN_EXAMPLES, HANDLERS, SIGNALS, &settings(), EXIT_CODES].join("\n\n")
}

/// Below the options of `leasehold pause`.
pub(crate) fn pause() -> String {
    [PAUSE_EXAMPLES, PAUSE_NOTES, OPERATORS_JSON, OPERATORS_ENVIRONMENT, OPERATORS_EXIT_CODES].join("\n\n")
}

/// Below the options of `leasehold resume`.
pub(crate) fn resume() -> String {
    [RESUME_EXAMPLES, OPERATORS_JSON, OPERATORS_ENVIRONMENT, OPERATORS_EXIT_CODES].join("\n\n")
}

fn settings() -> String {
    let mut text = format!("Environment:\n  {NOTES}\n");
    for setting in SETTINGS.iter().filter(|setting| setting.is_supported()) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{}", entry(setting));
    }
    text
}

fn entry(setting: &Setting) -> String {
    let queue = match setting.scope {
        Scope::Queue => "[<QUEUE>_]",
        Scope::EachQueue => "<QUEUE>_",
        _ => "",
    };
    let default = setting.default.map(|default| format!(" [default: {default}]")).unwrap_or_default();
    let Setting { name, kind, doc, .. } = setting;
    format!("  LEASEHOLD_{queue}{name}  <{kind}>{default}\n      {doc}\n").replace('`', "")
}
