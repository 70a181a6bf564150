//! Waiting for a probe whose time has come, by those who cannot wait for the end of a pause.

use tokio::time::Instant;

use super::{Circuit, Ends, Phase};

impl Circuit {
    /// Waits for the answer of a probe that is due, and not for one that is yet to come. Cancel safe.
    pub(crate) async fn probed(&self) {
        // No probe ends an operator's pause.
        if self.ends == Ends::Resume {
            return;
        }
        self.until(|state| match state.phase {
            Phase::Open { probe_at } => probe_at > Instant::now(),
            Phase::CatchingUp => false,
            Phase::Closed | Phase::Trial => true,
        })
        .await;
    }
}
