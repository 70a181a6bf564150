//! What `leasehold run --help` says below the options: examples, what handlers are told and answer, signals, settings.
//!
//! Says nothing that is not so elsewhere: what handlers are told is documented at `ExecHandler` and
//! `HttpHandler`.

use super::{EXIT_CODES, settings};

const EXAMPLES: &str = "\
Examples:
  One queue, its work named by a field of the JSON body, done by a program:

    export LEASEHOLD_QUEUES=payments
    export LEASEHOLD_PAYMENTS_KEY=/payment_id
    export LEASEHOLD_PAYMENTS_HANDLER='exec:./charge --verbose'
    leasehold run

  The same, done by an app that is sent each message by HTTP:

    export LEASEHOLD_PAYMENTS_HANDLER=http://127.0.0.1:5000/payments
    leasehold run

  Two queues, of which this process works on one:

    export LEASEHOLD_QUEUES=payments,emails
    leasehold run --only emails

  What it would run with, and whether it is well while it runs:

    leasehold config
    leasehold health

  Against LocalStack:

    export AWS_ENDPOINT_URL=http://localhost:4566 AWS_REGION=us-east-1
    export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test
    leasehold run";

const PROGRAMS: &str = "\
Programs as handlers:
  exec:program args   is run for each message, without a shell, with the body on
                      its standard input

  Its exit code is the verdict:
    0   done: the work is recorded, the message deleted
    65  failed for good: dead-lettered, with the end of its standard error as
        the reason
    75  not yet: again in 30 seconds, without using an attempt
    *   any other code or a signal: a failed attempt, again after the back-off
  A program that cannot be found or started uses no attempt; its queue pauses
  until it is there.

  It is told in its environment:
    LEASEHOLD_IDEMPOTENCY_KEY       to be handed to whatever it calls: the same
                                    on every attempt
    LEASEHOLD_FENCE                 grows with every run of a key
    LEASEHOLD_ATTEMPT               from 1
    LEASEHOLD_DEADLINE              when its time is up, in seconds since 1970
    LEASEHOLD_QUEUE, LEASEHOLD_MESSAGE_ID, LEASEHOLD_RECEIVE_COUNT
    LEASEHOLD_GROUP_ID, LEASEHOLD_DEDUPLICATION_ID, LEASEHOLD_SENT_AT,
    LEASEHOLD_TRACE_HEADER          where the message has them
    LEASEHOLD_ATTRIBUTE_<NAME>      each message attribute
    LEASEHOLD_ATTRIBUTES_OMITTED    names of attributes that were too large, or
                                    not to be told apart
    LEASEHOLD_JOB_URL, LEASEHOLD_JOB_TOKEN, LEASEHOLD_STEPS
                                    where it records steps, with what, and those
                                    that are recorded
  It inherits the rest of the environment, but not the settings below, and AWS
  credentials only with LEASEHOLD_HANDLER_CREDENTIALS=pass.

  To stop it, SIGTERM is sent to its process group, and SIGKILL after
  LEASEHOLD_CANCEL_GRACE.";

const APPS: &str = "\
Apps as handlers:
  http://host:port/path, https://…   is sent each message as a POST, the body as
                                     it is

  The status of its reply is the verdict:
    2xx                      done: the work is recorded, the message deleted
    400 410 413 415 422      failed for good: dead-lettered
                             (LEASEHOLD_PERMANENT_STATUS)
    429 503, no connection   not there: uses no attempt; its queue pauses until
                             it is
    *                        a failed attempt, again after the back-off;
                             redirects are not followed
  Retry-After is honoured. X-Leasehold-Outcome (done, retry, permanent, not-yet,
  unavailable) overrides the status, and X-Leasehold-Reason names the reason.

  It is told in headers:
    Idempotency-Key   to be handed to whatever it calls: the same on every
                      attempt
    X-Leasehold-…     Queue, Fence, Attempt, Deadline, Message-Id,
                      Receive-Count, Group-Id, Deduplication-Id, Sent-At,
                      Attribute-<Name>, Attributes-Omitted; for steps
                      Job-Url, Job-Token, Steps
    X-Aws-Sqsd-…      what Elastic Beanstalk's workers know
  LEASEHOLD_HANDLER_HEADER adds headers, such as credentials.";

const SIGNALS: &str = "\
Signals:
  SIGTERM, SIGINT     take nothing new, let handlers finish, give the rest back;
                      gone within LEASEHOLD_DRAIN_TIMEOUT. A second one does not
                      wait for handlers.";

/// One line for each paragraph: it is wrapped where the terminal ends.
const HEALTH: &str = "\
Health:
  While it runs it answers at LEASEHOLD_HTTP_ADDR, 127.0.0.1:9464 unless set, off for nowhere: GET /live is 200 unless it \
hangs, GET /ready while it receives from every queue, and 503 otherwise, with why. GET /status has all that is known, \
GET /metrics what is counted, for Prometheus. `leasehold health` asks.";

/// Below the options of `leasehold run`.
pub(crate) fn run() -> String {
    [EXAMPLES, PROGRAMS, APPS, SIGNALS, HEALTH, &settings(), EXIT_CODES].join("\n\n")
}

/// What is not wrapped by whoever shows it.
#[cfg(test)]
pub(super) fn by_hand() -> Vec<String> {
    [EXAMPLES, PROGRAMS, APPS, SIGNALS].map(str::to_owned).into()
}
