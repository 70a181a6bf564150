//! The labels of metrics that have a fixed set of values: each set is an enum, so that no key,
//! id or text becomes a label.

/// A label with a fixed set of values.
pub(crate) trait Fixed: Copy + 'static {
    /// All of them; each stands at its own index.
    const ALL: &'static [Self];
    /// In the metric.
    fn as_str(self) -> &'static str;
    /// What it means, in a sentence.
    fn doc(self) -> &'static str;
    /// Where it stands in [`ALL`](Self::ALL).
    fn index(self) -> usize;
}

macro_rules! fixed {
    ($(#[$doc:meta])* $name:ident { $(#[doc = $doc_of:literal] $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $(#[doc = $doc_of] $variant,)* }

        impl Fixed for $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            fn doc(self) -> &'static str {
                match self { $(Self::$variant => $doc_of,)* }.trim_start()
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

fixed! {
    /// What became of a delivery.
    Outcome {
        /// Its work took effect in this run, and it was deleted.
        Done = "done",
        /// Deleted without a run: its work was done, or dead-lettered, before.
        Suppressed = "suppressed",
        /// Failed for good; a copy is dead-lettered.
        DeadLettered = "dead_lettered",
        /// Failed for good, and deleted, as the configuration says.
        Dropped = "dropped",
        /// The attempt failed; it comes again.
        Failed = "failed",
        /// The handler asked for it to come later.
        NotYet = "not_yet",
        /// What does the work is not there.
        Unavailable = "unavailable",
        /// The worker stops, or a lease ended.
        Interrupted = "interrupted",
        /// Another delivery has the key, or it is not yet due.
        Held = "held",
        /// The guard gave no verdict on the key.
        NoVerdict = "no_verdict",
        /// Its body is elsewhere, and cannot be had now.
        BodyAway = "body_away",
        /// Failed for good, but no copy can be kept elsewhere.
        Kept = "kept",
        /// Left to its visibility timeout.
        Left = "left",
    }
}

fixed! {
    /// What the guard said to a claim.
    Verdict {
        /// The key is new, or due again: it runs.
        Mine = "mine",
        /// The lease of its former owner had ended: it runs.
        TakenOver = "taken_over",
        /// Its worker died repeatedly: it waits first.
        Parked = "parked",
        /// It took effect before.
        Done = "done",
        /// It has failed for good before.
        Dead = "dead",
        /// Another owner runs it.
        Held = "held",
        /// Its back-off has not passed.
        BackingOff = "backing_off",
        /// The same key came before with another payload.
        OtherPayload = "other_payload",
        /// No answer: nothing runs, nothing is deleted.
        Unknown = "unknown",
    }
}

fixed! {
    /// Which of the two leases.
    LeaseKind {
        /// On the message: its visibility timeout.
        Delivery = "delivery",
        /// On the work: its record.
        Execution = "execution",
    }
}

fixed! {
    /// What came of one beat.
    Beaten {
        /// The lease is renewed.
        Renewed = "renewed",
        /// It failed, and is tried again.
        Transient = "transient",
        /// The lease is lost.
        Lost = "lost",
        /// It cannot be extended any more.
        Final = "final",
    }
}

fixed! {
    /// What one poll brought.
    Polled {
        /// As many messages as were asked for: there is more.
        Full = "full",
        /// Fewer.
        Partial = "partial",
        /// None.
        Empty = "empty",
        /// It failed.
        Error = "error",
    }
}

fixed! {
    /// How a handler ended, as `error.type`; absent when it succeeded.
    HandlerEnd {
        /// It succeeded.
        Ok = "",
        /// It returned an error, or panicked.
        Error = "error",
        /// Its time was used up.
        TimedOut = "timeout",
        /// It was told to stop.
        Interrupted = "interrupted",
    }
}

fixed! {
    /// What can be away, or said to pause.
    Circuited {
        /// The guard's table.
        Table = "table",
        /// The handler.
        Handler = "handler",
        /// Bodies in S3.
        Bodies = "bodies",
        /// Deletes, which are denied.
        Deletes = "deletes",
        /// A burst of permanent failures.
        Brake = "brake",
        /// An operator's word.
        Operator = "operator",
    }
}

fixed! {
    /// What was answered to a request to AWS.
    Answered {
        /// What was asked for.
        Ok = "ok",
        /// The write's condition did not hold: an answer as good as any.
        Refused = "refused",
        /// Too many requests.
        Throttled = "throttled",
        /// No right to it, or credentials that are no good.
        Denied = "denied",
        /// The queue, the table or the object is not there.
        Missing = "missing",
        /// AWS failed.
        ServerError = "server_error",
        /// Another error.
        Error = "error",
        /// No answer in time.
        Timeout = "timeout",
        /// No connection.
        NoConnection = "no_connection",
    }
}

fixed! {
    /// What came of a request for protection from scaling in, or for its end.
    ProtectionResult {
        /// What was asked for.
        Ok = "ok",
        /// ECS did not do it.
        Refused = "refused",
        /// No right to it.
        Denied = "denied",
        /// Too many requests.
        Throttled = "throttled",
        /// The agent or ECS failed.
        Error = "error",
        /// No answer in time, or no connection.
        NoAnswer = "no_answer",
        /// No answer at all: a protection ended that could not be extended.
        Expired = "expired",
    }
}
