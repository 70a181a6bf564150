//! The commit of a run: "done" together with the handler's writes, sent until it is known what came of it.
//!
//! Remembers how far it came, because nothing that the run does later may contradict it. Decides nothing about that.

use std::{sync::PoisonError, time::Duration};

use tokio::time::sleep;

use super::{
    super::{Commit, Committed, GuardError, ItemWrite},
    ExecutionLease, RETRY,
};
use crate::{
    causes::in_full,
    testing::{Planted, planted},
};

/// How far the commit of a run came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing is written, and nothing on its way.
    #[default]
    Open,
    /// It was sent, and what came of it is not known.
    Unknown,
    /// It is made: the work is done.
    Made,
}

/// Why a commit was not made, or is not known to be.
#[derive(Debug)]
pub(crate) enum NotMade {
    /// One was made before in this run.
    Repeated,
    /// One was sent before in this run, and it is not known what came of it.
    Unknown(Option<GuardError>),
    /// Nothing was sent, or nothing that may still be written: the lease is over.
    LeaseOver,
    /// Nothing is written, for this reason.
    Refused(GuardError),
}

/// So often a commit is sent again. A beat of our own, or a writer of the same items, is in its way for some
/// milliseconds; the pauses come to a few seconds together.
const TRIES: u32 = 5;

impl ExecutionLease {
    /// How far the commit of this run came.
    pub(crate) fn commit_progress(&self) -> Progress {
        *self.commit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_progress(&self, progress: Progress) {
        *self.commit.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    /// Commits these writes together with "done" (rule G12). Every try is the same request, under the same token.
    ///
    /// # Cancel safety
    /// Dropped, it is not known what came of it, and that is remembered.
    pub(crate) async fn commit(&self, writes: Vec<ItemWrite>) -> Result<Committed, NotMade> {
        {
            let mut progress = self.commit.lock().unwrap_or_else(PoisonError::into_inner);
            match *progress {
                Progress::Made => return Err(NotMade::Repeated),
                Progress::Unknown => return Err(NotMade::Unknown(None)),
                Progress::Open => *progress = Progress::Unknown,
            }
        }
        let (pk, token) = (self.pk.clone(), self.clock.token());
        let writes = if planted(Planted::CommitWithoutWrites) { Vec::new() } else { writes };
        let commit = Commit { pk, confirm: self.confirmation(), writes, token };
        let (answer, may_be_written) = self.send(&commit).await;
        self.set_progress(match &answer {
            Ok(Committed::Applied) => Progress::Made,
            // Nothing of this owner's can be written any more.
            Ok(Committed::Refused(_)) => Progress::Open,
            // An earlier try that is stuck on its way may still arrive, and then find nothing against it.
            _ if may_be_written => Progress::Unknown,
            _ => Progress::Open,
        });
        answer
    }

    /// Sends it until there is an answer, a few times; and whether one of the tries without one may have been made.
    async fn send(&self, commit: &Commit) -> (Result<Committed, NotMade>, bool) {
        let mut may_be_written = false;
        let mut pauses = 0;
        loop {
            if self.lease.is_over() {
                let not_made = if may_be_written { NotMade::Unknown(None) } else { NotMade::LeaseOver };
                return (Err(not_made), may_be_written);
            }
            let error = match self.guard.confirm_with(commit).await {
                Ok(committed) => return (Ok(committed), may_be_written),
                Err(error) => error,
            };
            may_be_written |= matches!(error, GuardError::NoAnswer(_) | GuardError::Unavailable(_));
            if !passes(&error) || pauses == TRIES {
                let not_made = if may_be_written { NotMade::Unknown(Some(error)) } else { NotMade::Refused(error) };
                return (Err(not_made), may_be_written);
            }
            pauses += 1;
            tracing::debug!(pk = %self.pk, error = in_full(&error), "not committed yet; sent again");
            let pause: Duration = self.clock.backoff(RETRY, pauses);
            sleep(pause.min(self.lease.left())).await;
        }
    }
}

/// Whether the same request may meet something else in a moment.
fn passes(error: &GuardError) -> bool {
    error.is_transient() && !matches!(error, GuardError::Denied(_) | GuardError::Missing)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::{
        guard::memory::MemoryGuard,
        testing::{Fault, Faults},
    };

    const LEASE: Duration = Duration::from_secs(10);

    /// A claim of ten seconds, and the table `t`.
    async fn claimed() -> (ExecutionLease, MemoryGuard, Faults) {
        let (claim, _, table, faults) = super::super::claimed(LEASE).await;
        table.add_table("t", &["id"]);
        (claim, table, faults)
    }

    fn write() -> Vec<ItemWrite> {
        vec![ItemWrite::put("t", [("id", "i")])]
    }

    #[tokio::test(start_paused = true)]
    async fn g12_under_a_lease_that_is_over_nothing_is_sent() {
        let (claim, table, faults) = claimed().await;
        advance(LEASE).await;
        let answer = claim.commit(write()).await;
        assert!(matches!(answer, Err(NotMade::LeaseOver)), "{answer:?}");
        assert_eq!((faults.calls().get("confirm_with"), table.items("t").len()), (None, 0));
        assert_eq!(claim.commit_progress(), Progress::Open);
    }

    #[tokio::test(start_paused = true)]
    async fn g12_a_commit_is_not_sent_again_when_its_lease_ends_meanwhile() {
        let (claim, _, faults) = claimed().await;
        faults.always("confirm_with", Fault::Hang);
        let answer = claim.commit(write()).await;
        assert!(matches!(answer, Err(NotMade::Unknown(_))), "{answer:?}");
        assert!(faults.calls()["confirm_with"] <= 2, "{:?}", faults.calls());
        assert_eq!(claim.commit_progress(), Progress::Unknown);
        let again = claim.commit(write()).await;
        assert!(matches!(again, Err(NotMade::Unknown(None))), "another could be taken for the first: {again:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn g12_a_condition_that_fails_after_a_try_without_answer_leaves_open_what_that_makes() {
        let (claim, table, faults) = claimed().await;
        faults.next("confirm_with", Fault::Hang);
        let there = vec![ItemWrite::check("t", [("id", "i")], "attribute_exists(id)")];
        let answer = claim.commit(there.clone()).await;
        assert!(matches!(answer, Ok(Committed::Condition { index: 0, .. })), "{answer:?}");
        assert_eq!(claim.commit_progress(), Progress::Unknown);

        let (claim, ..) = claimed().await;
        assert!(matches!(claim.commit(there).await, Ok(Committed::Condition { .. })));
        assert_eq!((claim.commit_progress(), table.items("t").len()), (Progress::Open, 0));
        assert!(matches!(claim.commit(write()).await, Ok(Committed::Applied)));
        assert!(matches!(claim.commit(write()).await, Err(NotMade::Repeated)));
    }
}
