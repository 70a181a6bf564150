//! One queue at work: its pollers, and the lanes that they begin.
//!
//! Owns them and the deletes of bodies behind them, so that none outlives the queue's work; how many polls there are follows what they bring (rule R6).

use std::sync::Arc;

use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
};

use crate::{message::Pointer, telemetry::Outcome};

use super::{
    hall::Hall,
    lanes,
    needless::Needless,
    poll::{Polled, Poller, poll},
    pulse::Pulse,
};

/// Polls a queue and works off what comes, until the worker drains and every lane has ended.
pub(super) async fn work_a_queue(hall: Arc<Hall>, pulse: Arc<Pulse>) {
    let (polled, mut from_polls) = mpsc::unbounded_channel();
    let mut pollers = JoinSet::new();
    let poller = |which| poll(Arc::clone(&hall), Arc::clone(&pulse), polled.clone(), which);
    // A queue that was paused before this worker came is not received from even once.
    if hall.drain.run_until_cancelled(hall.heed_operators()).await.is_none() {
        hall.polled.cancel();
        return;
    }
    let mut constant = pollers.spawn(poller(Poller::Constant)).id();
    let (mut lanes, mut needless) = (
        JoinSet::new(),
        Needless::new(Arc::clone(&hall.jobs.name), hall.jobs.bodies.clone(), Arc::clone(&hall.jobs.seldom)),
    );
    loop {
        tokio::select! {
            // Lanes that have begun come before the end of the poller that began them. Joining drops nothing.
            biased;
            Some(polled) = from_polls.recv() => match polled {
                Polled::Lane(deliveries, slot) => drop(lanes.spawn(lanes::lane(Arc::clone(&hall), deliveries, slot))),
                Polled::Full if pollers.len() < hall.pollers => drop(pollers.spawn(poller(Poller::Extra))),
                Polled::Full => {}
                // Beyond the most: the one that is late may not come back for a while, and ends when it does.
                Polled::Late => constant = pollers.spawn(poller(Poller::Constant)).id(),
            },
            Some(ended) = lanes.join_next() => needless.delete(reap(&hall, ended)),
            // Told to stop now: what the polls on the wire bring is hidden for a timeout, and that is what "now" costs.
            () = hall.polled.cancelled(), if !pollers.is_empty() => pollers.shutdown().await,
            ended = pollers.join_next() => match ended {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    tracing::error!(queue = &*hall.jobs.name, %error, "a poller died");
                    if error.id() == constant {
                        constant = pollers.spawn(poller(Poller::Constant)).id();
                    }
                }
                None => break,
            },
        }
    }
    hall.polled.cancel();
    let worked_off = async {
        while let Some(ended) = lanes.join_next().await {
            needless.delete(reap(&hall, ended));
        }
        needless.ended().await;
    };
    if hall.gone.run_until_cancelled(worked_off).await.is_none() {
        // Awaited, so that none of them calls anybody after the worker is gone.
        hall.jobs.meters.settled(Outcome::Left, u64::try_from(lanes.len()).unwrap_or(u64::MAX));
        lanes.shutdown().await;
        needless.cut_off().await;
    }
}

fn reap(hall: &Hall, ended: Result<Vec<Pointer>, JoinError>) -> Vec<Pointer> {
    ended.unwrap_or_else(|error| {
        hall.jobs.meters.settled(Outcome::Left, 1);
        tracing::error!(queue = &*hall.jobs.name, %error, "a lane died; its messages come back at their timeout");
        Vec::new()
    })
}
