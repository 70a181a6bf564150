//! The probes that end a pause: the guard's is a real write; a handler's or a queue's only says that a try is worth it.
//!
//! They run beside the work and are dropped with it. What a pause means is for the [`Circuit`](crate::guard::outage).

use std::sync::Arc;

use tokio::{task::JoinSet, time::sleep};

use crate::{
    causes::in_full,
    config::ScaleInProtection,
    ecs::{self, Agent, Rules},
};

use super::{control, hall::Hall, pulse::Pulse, site::Site};

/// Tends the circuit of the guard's store.
pub(crate) fn tend_store(site: &Site, tending: &mut JoinSet<()>) {
    let (guard, store) = (Arc::clone(&site.guard), Arc::clone(&site.store));
    tending.spawn(async move {
        store.tend(true, || async { guard.probe().await.map_err(|error| in_full(&error)) }).await;
    });
}

/// Keeps what those see who ask for more than the moment.
pub(super) fn tend_board(site: &Site, pulse: &Arc<Pulse>, tending: &mut JoinSet<()>) {
    site.board.runs(site.told(Arc::clone(pulse)));
    let (sampled, looked_into) = (Arc::clone(&site.board), Arc::clone(&site.board));
    tending.spawn(async move { sampled.sample().await });
    tending.spawn(async move { looked_into.look_into_queues().await });
}

/// Keeps the task from being scaled in while it has long work in hand, if that is asked for and this is a task of ECS. What
/// comes back ends with the drain, whose first second it may take for its last word.
pub(super) fn protect(site: &Arc<Site>) -> JoinSet<()> {
    let mut protecting = JoinSet::new();
    if site.config.scale_in_protection == ScaleInProtection::Off {
        return protecting;
    }
    match Agent::of_this_task(site.clock.clone()) {
        Ok(agent) => {
            let site = Arc::clone(site);
            protecting.spawn(async move {
                let longest = site.config.queues.values().map(|queue| queue.handler_timeout).max().unwrap_or_default();
                let rules = Rules::new(site.config.run_on(), longest);
                let meters = site.telemetry.protection();
                let (ask, oldest) = (|request| agent.ask(request), || site.board.oldest_run());
                ecs::keep(ask, oldest, (rules, site.clock.clone()), &meters, &site.drain).await;
            });
        }
        Err(why) => {
            tracing::warn!(why, "LEASEHOLD_SCALE_IN_PROTECTION is on, and there is nobody to ask for protection");
        }
    }
    protecting
}

/// Tends a queue's own circuits.
pub(crate) fn tend_queue(hall: &Arc<Hall>, tending: &mut JoinSet<()>) {
    let (handler, there) = (Arc::clone(&hall.jobs.handler), Arc::clone(&hall.jobs.there));
    tending.spawn(async move {
        there.tend(false, || async { handler.probe().await.map_err(|error| error.to_string()) }).await;
    });
    let bodies = Arc::clone(hall);
    tending.spawn(async move {
        let jobs = &bodies.jobs;
        jobs.bodies_there.tend(false, || jobs.probe_bodies()).await;
    });
    if hall.word.is_some() {
        let hall = Arc::clone(hall);
        tending.spawn(async move {
            loop {
                sleep(control::LOOK).await;
                hall.heed_operators().await;
            }
        });
    }
    for circuit in [&hall.intake, &hall.brake.circuit] {
        let circuit = Arc::clone(circuit);
        tending.spawn(async move { circuit.tend(false, || async { Ok(()) }).await });
    }
}
