//! What `leasehold dlq --help` and its commands say below the options.
//!
//! Says nothing that is not so elsewhere: what becomes of a message is in `leasehold::ops::dead_letters`.

const LS: &str = "\
Examples:
  What is dead, in all queues of LEASEHOLD_QUEUES:

    leasehold dlq ls

  With nothing configured, by the queue's name in SQS:

    leasehold dlq ls payments-production

  The reasons of one queue, for a script:

    leasehold dlq ls payments --json | jq -r '.groups[] | .code, .messages'

Columns:
  REASON    the reason code; moved_by_sqs is what SQS moved after
            maxReceiveCount receives, unexplained what came from elsewhere
  MESSAGES  how many there are
  FAILURES  how many failures they are copies of
  DIED      since when; of what SQS moved it is known only when it was sent
  RECORDS   what the guard's records of their keys say: DEAD as it should be,
            DONE where the work was done since, RUNNING or RELEASED where SQS
            moved a message that a worker had, or that waited";

const LS_JSON: &str = "\
JSON, one object a line:
  dead_letter_queue, arn, queues   which, and of which queues
  depth        visible, in_flight, delayed: SQS's estimate
  looked_at    messages that were looked at; is_all: no others were there
  ending       how it ended, as below; unseen: about how many others are there
  oldest       when the oldest died, in milliseconds since 1970
  groups       code, messages, failures, oldest, newest, records, says, pk";

const PEEK: &str = "\
Examples:
  leasehold dlq peek payments
  leasehold dlq peek payments --reason http_422 --limit 3 --full
  leasehold dlq peek payments --key order-17

  Mend a payload: send what it should have been, which begins anew, and let the
  next redrive clean the old one away:

    leasehold dlq peek payments --key order-17 --json |
      jq -c '.body | fromjson | .amount = 500' |
      leasehold send payments

  What is looked at counts as received once more, also where it is only looked
  through for others (up to 10,000). It is hidden from other commands meanwhile;
  for two minutes at the most if this one is killed.

  JSON bodies are shown a member a line, each as it was sent.";

const PEEK_JSON: &str = "\
JSON, one object a line:
  code, says, failure_id     why it is dead
  died_at, age_seconds       since when
  note                       all that its worker noted; null for what SQS moved,
                             also where that carries one of a former failure
  moved_by_sqs_from          the ARN of the queue that SQS moved it from
  pk, record, finished_steps what the guard knows
  put_back                   runs_again, goes_back, is_done, key_is_lost or
                             is_of_others: what a redrive would do
  message_id, group, receive_count, attributes, body";

const REDRIVE: &str = "\
Examples:
  All of them, which SQS does by itself:

    leasehold dlq redrive payments --rate 50

  After the handler is mended, those of one reason; first what would happen:

    leasehold dlq redrive payments --reason card_declined --dry-run
    leasehold dlq redrive payments --reason card_declined

  One piece of work:

    leasehold dlq redrive payments --key order-17";

const REDRIVE_NOTES: &str = "\
What becomes of each message, one by one:
  runs again   it goes back to its queue and begins anew: no failure counts, any
               payload passes, finished steps are not repeated
  goes back    the same, and its record, which somebody holds or could not be
               read, says whether it runs
  is undone first
               its undo was left half done (undo_incomplete): it is gone on
               with, and then the message is dead-lettered again; what is put
               back after that runs
  was done     its work is done by now: it is deleted here, and does not run
  was a copy   another copy of the same failure goes back: it is deleted here
  another of its work is forced
               it stays: with --force-rerun one message of each work goes back
  its key is lost
               it stays: its key was its deduplication id, which SQS replaces in
               the dead-letter queue, and its failure noted no key. Put back it
               would be other work. Send it anew
  came from another queue
               it stays: several queues share the dead-letter queue. Or its
               worker has other names than you: set LEASEHOLD_QUEUES, OPERATION
               and LEASEHOLD_NAMESPACE as that has them

  Work that dies again meanwhile is left for the next time. Messages of a FIFO
  group go back in order, and none ahead of one that could not be sent.

  Stop it with Ctrl-C at any time, or lose it, and do the same again: what was
  sent and not deleted yet is found as done or as a copy. Without a guard
  (GUARD=none) such a message can run twice. --force-rerun, too, makes no more
  than one more effect however often it is done again: the record remembers it.

  After a kill some are hidden yet, for two minutes: it says so, and the exit
  code is 1. On a FIFO queue what is behind others in its group is seen when
  those are gone: a dry run tells of the first, and where those stay so does the
  rest.

  SQS's own task (StartMessageMoveTask) is used for all at once, with this queue
  as its destination. It goes on if this command is killed; the same command
  watches it again, and Ctrl-C tells SQS to stop it. It moves what was done too,
  which a worker then deletes. It is not used where it would change keys
  (KEY=message-id, dedup-id), where DEAD_LETTER names a queue of your own, where
  other queues have the same dead-letter queue or that cannot be looked up
  (sqs:ListDeadLetterSourceQueues), below one in a second, and where the
  endpoint has none.";

const PURGE: &str = "\
Examples:
  leasehold dlq purge payments --reason malformed --dry-run
  leasehold dlq purge payments --reason malformed
  leasehold dlq purge payments --older-than 7d --yes

  Nothing is sent anywhere. To have work counted as done instead, say so of its
  record: leasehold guard done payments order-17";

const PUT_JSON: &str = "\
JSON, one object a line:
  message_id, pk, code     which
  fate                     runs_again, goes_back, is_done, is_forced, is_copy,
                           deleted (by purge), another_is_forced, key_is_lost,
                           is_of_others
  outcome, error           done, stays, sent_and_stays or failed, and why
  At the end, also after an error: done and stay (counts by what became of
  them), others, ending, unseen (about how many more there are). Of a task of
  SQS: status, moved, of, failure.";

const ENDINGS: &str = "\
Endings:
  all         everything was seen
  enough      the limit was reached
  stopped     by Ctrl-C or SIGTERM
  hidden      others are there that somebody looks at, or that a killed command
              did: they are back in two minutes
  behind      others are there, behind one of their FIFO group that stays
  dying       nothing came any more but what has died since the beginning
  too_many    as many are held as SQS lets one hold
  broken_off  by an error";

const ENVIRONMENT: &str = "\
Environment:
  LEASEHOLD_QUEUES, LEASEHOLD_TABLE, LEASEHOLD_NAMESPACE and the settings of
  each queue as for `leasehold run`: KEY, OPERATION, ENVELOPE and FINGERPRINT
  say which record a message has. AWS's own. Needs OperatorPolicy in
  infra/queue.yaml.";

const EXIT_CODES: &str = "\
Exit codes:
  0   all that was meant is done, or shown
  64  the command line is wrong, or there is no terminal to ask on
  69  AWS does not answer; the same again goes on
  78  there is no such queue, it has no dead-letter queue, or no access to it;
      with a line that mends it
  1   some could not be put back or were not seen, it was stopped or declined,
      or anything else";

pub(crate) fn dlq_ls() -> String {
    [LS, LS_JSON, ENDINGS, ENVIRONMENT, EXIT_CODES].join("\n\n")
}

pub(crate) fn dlq_peek() -> String {
    [PEEK, PEEK_JSON, ENVIRONMENT, EXIT_CODES].join("\n\n")
}

pub(crate) fn dlq_redrive() -> String {
    [REDRIVE, REDRIVE_NOTES, PUT_JSON, ENDINGS, ENVIRONMENT, EXIT_CODES].join("\n\n")
}

pub(crate) fn dlq_purge() -> String {
    [PURGE, PUT_JSON, ENDINGS, ENVIRONMENT, EXIT_CODES].join("\n\n")
}
