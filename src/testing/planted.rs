//! Faults planted on purpose, so that the proofs can be shown to fail.
//!
//! Without the feature `planted` every question here is answered *no* at compile time.

/// A fault of the worker's own, to be found by a suite or by the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Planted {
    /// A beat on the wire is not awaited before a delay is sent (rule L6).
    BeatNotAwaited,
    /// The message is deleted before "done" is written (rule T1).
    ConfirmAfterDelete,
    /// What may still run is given back at once (rule D2).
    ReleaseOfRunning,
    /// A lease that has ended is taken over without waiting for the clock skew (rule G4).
    TakeoverWithoutSkew,
    /// A failure is recorded as DEAD and copied in one write, before the copy is sent (rule T3).
    DeadWithoutCopyFlag,
    /// What stands behind a head runs although the head is to come again (rule T5).
    FollowersRunAhead,
    /// Without a guard, what stands behind a head runs although the head is not known to be deleted (rule T5).
    UndeletedHeadFreesGroup,
    /// A head that failed is delayed and its followers are given back, although its group could rest (rule T5).
    HeadDoesNotRest,
    /// The messages of a FIFO group that one receive brings run side by side (rule T5).
    GroupInPieces,
    /// One failed attempt more than allowed is made (rule G6).
    OneAttemptMore,
    /// A failure that says *not yet* counts as an attempt (rule T2).
    NotYetCounts,
    /// A run goes on when the lease that allowed it has ended (rule L2).
    RunOutlivesLease,
    /// A message whose key another message runs is deleted as a duplicate (rule G7).
    HeldIsDeleted,
    /// What is recorded of steps is not looked at after a takeover (rule S1).
    StepsForgotten,
    /// The key that a step hands downstream is another one for each claim (rule S1).
    StepKeyOfTheClaim,
    /// "Done" is committed without the writes that belong to it (rule G12).
    CommitWithoutWrites,
    /// Work is undone although its failure is not recorded (rule S3).
    UndoneWithoutVerdict,
    /// A step that may run only once begins without a word in its record (rule S2).
    OnceWithoutStart,
    /// A message is deleted although no copy of it could be dead-lettered (rule T3).
    DeletedWithoutCopy,
    /// Any duplicate of dead work begins it anew (rule G11).
    DuplicateBeginsAnew,
    /// The key is the message's id (rule G10).
    KeyedByMessage,
    /// The same fence is handed out by every takeover (rule G2).
    FenceStandsStill,
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Planted>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault in everything that this thread runs from now on; `None` takes it out again.
#[cfg(feature = "planted")]
pub fn plant(fault: Option<Planted>) {
    PLANTED.set(fault);
}

#[cfg(feature = "planted")]
pub(crate) fn planted(fault: Planted) -> bool {
    PLANTED.get() == Some(fault)
}

#[cfg(not(feature = "planted"))]
pub(crate) const fn planted(_: Planted) -> bool {
    false
}
