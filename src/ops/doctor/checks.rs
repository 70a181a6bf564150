//! The table of checks: what each is called, and why what it finds matters.
//!
//! A check that is not in it does not exist; a test plants each once.

/// One kind of thing that can be wrong.
#[derive(Debug)]
#[non_exhaustive]
pub struct Check {
    /// What scripts know it by. It does not change.
    pub code: &'static str,
    /// Why what it finds matters, in a sentence or two.
    pub why: &'static str,
}

macro_rules! checks {
    ($($name:ident = $code:literal: $why:literal;)+) => {
        $(pub(super) static $name: Check = Check { code: $code, why: $why };)+

        /// All checks, in the order in which a worker meets what they look at.
        pub static CHECKS: &[&Check] = &[$(&$name),+];
    };
}

checks! {
    SETTINGS = "settings": "A worker does not start with settings that cannot fit together.";
    QUEUES = "queues": "The variable names the queues to work on; a worker that is configured by variables does not start \
        without it.";
    QUEUE = "queue": "A worker does not start while a queue of its own cannot be used.";
    CREDENTIALS = "credentials": "AWS tells nothing before it knows who asks: nothing can be looked at, and a worker does not \
        start.";
    UNREACHABLE = "unreachable": "What does not answer cannot be judged. A worker waits for it until START_TIMEOUT, and \
        then ends.";
    COULD_NOT_LOOK = "could_not_look": "What is not looked at can be wrong in every way that is checked here, and a worker \
        takes it for granted.";
    HANDLER = "handler": "`leasehold run` needs a handler for each queue; a program of your own brings its handlers.";
    KEY = "key": "The key names the work. With one that does not, duplicates run, or different work is taken for done.";
    KEY_REDRIVE = "key_redrive": "Ids of SQS are new when a message is put back from the dead-letter queue: work that \
        was done is not recognised.";
    CONTENT_DEDUPLICATION = "content_deduplication": "SQS drops what has the body of a message of the last five minutes, \
        without a word: a real repeat, or what is put back from the dead-letter queue.";
    RETENTION = "retention": "SQS drops what it has kept for that long, also between two attempts: no last attempt, no \
        dead letter.";
    DONE_TTL = "done_ttl": "A duplicate that comes after \"done\" was forgotten runs again.";
    MAX_RECEIVE_COUNT = "max_receive_count": "Every delay, wait for another's lease, takeover and drain is a receive. At \
        the maximum SQS dead-letters the message by itself: without a reason, and although it has attempts left.";
    REDRIVE_POLICY = "redrive_policy": "What kills its workers, or is never decoded, is received for ever where nobody \
        counts; SQS moves it away after maxReceiveCount.";
    VISIBILITY = "visibility": "The visibility timeout is to be twice the p99: then hardly a handler needs a beat, and a \
        stall of a beat loses no lease.";
    HANDLER_TIMEOUT = "handler_timeout": "A handler that reaches its time budget is cancelled and counts as failed, \
        whatever it had done by then.";
    WAIT_TIME = "wait_time": "A poll must come back within half of the visibility timeout, and before a drain ends.";
    DRAIN = "drain": "What still runs at the end of a drain is cancelled and begun again elsewhere: at each deploy.";
    STOP_TIMEOUT = "stop_timeout": "A worker that is killed in its drain gives nothing back: what it had in hand waits for \
        the end of its leases, and may repeat steps.";
    DEAD_LETTER = "dead_letter": "What fails for good goes to the dead-letter queue. Without one it is seen by nobody.";
    DEAD_LETTER_KIND = "dead_letter_kind": "SQS moves messages only between queues of one kind, and a copy in a queue of \
        the other kind has no order, or one that it did not have.";
    DEAD_LETTER_RETENTION = "dead_letter_retention": "On a standard queue what SQS moves keeps the time at which it was \
        sent: where the dead-letter queue keeps no longer, it is dropped there soon, or at once.";
    DEAD_LETTER_SIZE = "dead_letter_size": "The copy is as large as the message, and the reason of its failure comes on \
        top: a queue that takes less refuses it.";
    DEAD_LETTER_PLACE = "dead_letter_place": "Queues of two regions fail apart, and SQS itself moves messages best inside \
        one account and region: a copy that cannot be sent keeps its message coming back.";
    DEAD_LETTER_WORKED_ON = "dead_letter_worked_on": "A worker takes dead letters of a queue that it works on for \
        ordinary work: they are never looked at, and can go round for ever.";
    REDRIVE_ALLOW = "redrive_allow": "The dead-letter queue does not let SQS move messages there: what reaches \
        maxReceiveCount stays where it is.";
    TWO_DEAD_LETTER_QUEUES = "two_dead_letter_queues": "What fails for good goes to the one, what SQS moves by itself to \
        the other: both need somebody who looks.";
    SHARED_DEAD_LETTER_QUEUE = "shared_dead_letter_queue": "What SQS moved there by itself does not say where it came \
        from; a redrive of all puts it into one queue.";
    SAME_QUEUE = "same_queue": "Two handlers take each other's messages.";
    SHARED_OPERATION = "shared_operation": "A key is one piece of work for both: what one has done, the other takes for \
        done.";
    ENCRYPTION = "encryption": "A worker needs kms:Decrypt to receive, and to send kms:GenerateDataKey too; whether it has \
        them is only seen by sending.";
    RIGHTS = "rights": "A worker that may not do this stands still, or runs work again and again.";
    TABLE = "table": "The table keeps work to once; a worker does not start without it.";
    TABLE_KEY = "table_key": "Records are found by the one key that the table is made with.";
    TTL = "ttl": "Records that are over are swept by their TTL. Without it the table grows for ever; on another attribute \
        it may sweep what still counts.";
    REPLICAS = "replicas": "In a global table a condition sees the writes of its own region alone: workers in two regions \
        can hold one key at once, and the work takes effect twice.";
    PLACE = "place": "A table elsewhere is another's, most often, or an outage more that stops the work.";
}
