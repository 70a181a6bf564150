//! The drain: from the first word to stop to the moment when nothing of the worker is left (rules D1 to D3).
//!
//! Owns the phases and their deadlines. What a lane does with what it has in hand is the lane's.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout, timeout_at},
};

use crate::{
    config::{DRAIN_RESERVE, DurationText},
    shutdown::Shutdown,
};

use super::{hall::Hall, site::Site};

/// Rules D1 to D3: no new receive; handlers run on for a while, are cancelled, and have a last while to write down what
/// came of them; then the process can go.
pub(super) async fn drain(site: &Site, halls: &[Arc<Hall>], shutdown: &Shutdown, queues: &mut JoinSet<()>) {
    let (drain_timeout, cancel_grace) = (site.config.drain_timeout, site.config.cancel_grace);
    let gone_by = Instant::now() + drain_timeout;
    let run_on = site.config.run_on();
    let halt_at = Instant::now() + run_on;
    tracing::info!("draining: no new messages; handlers may run on for {}", DurationText(run_on));
    site.drain.cancel();
    tokio::select! {
        // Each arm only waits.
        biased;
        () = ended(queues) => return,
        () = shutdown.stopping_now().cancelled() => {
            tracing::warn!("told to stop now: handlers are cancelled, and polls are not waited for");
            halls.iter().for_each(|hall| hall.polled.cancel());
        }
        () = sleep_until(halt_at) => tracing::warn!("the drain's time is used up: handlers are cancelled"),
    }
    site.halt.cancel();
    let settling = DRAIN_RESERVE.saturating_sub(LEAVING);
    let last = (Instant::now() + cancel_grace + settling).min(gone_by - LEAVING);
    if timeout_at(last - settling, ended(queues)).await.is_ok() {
        return;
    }
    // Nor are polls waited for now. One that is still parked may be handed what is given back, which costs that message a
    // receive; but then it has ended, and gives the message back in its turn.
    halls.iter().for_each(|hall| hall.polled.cancel());
    if timeout_at(last, ended(queues)).await.is_err() {
        tracing::error!("not everything could be settled in time: what is left comes back at its timeout");
        halls.iter().for_each(|hall| hall.gone.cancel());
        // A lane that does not even end now has users' code on its thread.
        let _ = timeout(ABORT, ended(queues)).await;
        queues.shutdown().await;
    }
}

/// This much of the reserve is for the way out, where settling takes all of its time: tasks that are cut off, the report,
/// the end of the runtime. Whoever stops us counts to the end of the process.
const LEAVING: Duration = Duration::from_secs(1);

/// How long tasks that are cut off may take to be gone.
const ABORT: Duration = Duration::from_millis(500);

async fn ended(queues: &mut JoinSet<()>) {
    while queues.join_next().await.is_some() {}
}
