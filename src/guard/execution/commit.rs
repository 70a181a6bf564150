//! The commit of a run: "done" together with the handler's writes, sent until it is known what came of it.
//!
//! Remembers how far it came, because nothing that the run does later may contradict it. Decides nothing about that.

use std::{sync::PoisonError, time::Duration};

use tokio::time::sleep;

use super::{
    super::{Commit, Committed, GuardError, ItemWrite},
    ExecutionLease, RETRY,
};
use crate::causes::in_full;

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
