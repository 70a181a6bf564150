//! Where a worker can be asked: for its health, and by apps and programs for their steps.
//!
//! Opened before anything is looked at, so that a worker that waits for AWS can say what it waits for. Nothing is opened that
//! nobody would ask: steps are recorded only for handlers outside of this process, under a guard.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, pending, select},
};

use crate::{
    config::{GuardMode, HttpAddr, Problem, QueueConfig, StepsAddr},
    handler::remote::Runs,
};

#[cfg(feature = "serve")]
use crate::status::{History, Overview, Status};

use super::{Worker, WorkerError};

/// Answers until it is dropped.
pub(super) type Endpoint = BoxFuture<'static, Infallible>;

/// Opens all that there are to be.
pub(super) async fn open(worker: &mut Worker) -> Result<Endpoint, WorkerError> {
    let health = health(worker).await?;
    let steps = steps(worker).await?;
    Ok(select(health, steps).map(|ended| ended.factor_first().0).boxed())
}

async fn health(worker: &mut Worker) -> Result<Endpoint, WorkerError> {
    // What is wrong with the settings is told by the checks.
    let Ok(config) = &worker.config else { return Ok(pending().boxed()) };
    let (http_addr, health_at) = (config.http_addr, worker.health_at);
    match (http_addr, health_at) {
        (Some(HttpAddr::At(address)), _) => told_at(worker, address).await.map_err(|error| {
            let what = format!("LEASEHOLD_HTTP_ADDR is {address}, where health cannot be told: {error}");
            refused(worker, Problem::new(what, "LEASEHOLD_HTTP_ADDR=off"))
        }),
        (None, Some(proposed)) => Ok(proposed_at(worker, proposed).await),
        (Some(HttpAddr::Off), _) | (None, None) => Ok(pending().boxed()),
    }
}

/// Where steps are recorded. From here on the worker's handlers can tell.
async fn steps(worker: &mut Worker) -> Result<Endpoint, WorkerError> {
    let Ok(config) = &worker.config else { return Ok(pending().boxed()) };
    let asks = |(name, queue): (&String, &QueueConfig)| {
        queue.guard == GuardMode::Claim && worker.handlers.get(name).is_some_and(|handler| handler.is_outside())
    };
    let StepsAddr::At { host, port } = config.steps_addr.clone() else { return Ok(pending().boxed()) };
    let at_once = config.queues.iter().filter(|queue| asks(*queue)).map(|(_, queue)| queue.concurrency);
    let at_once = at_once.fold(0, usize::saturating_add);
    if at_once == 0 {
        return Ok(pending().boxed());
    }
    let Some(opened) = asked_at(host, port, at_once).await.transpose() else { return Ok(pending().boxed()) };
    let (runs, endpoint) = opened.map_err(|error| {
        let what = format!("LEASEHOLD_STEPS_ADDR is {}, where no steps can be recorded: {error}", config.steps_addr);
        refused(worker, Problem::new(what, format!("LEASEHOLD_STEPS_ADDR={}", StepsAddr::default())))
    })?;
    worker.remote = Some(runs);
    Ok(endpoint)
}

/// That, and whatever else is wrong.
fn refused(worker: &Worker, problem: Problem) -> WorkerError {
    let mut problems = worker.problems();
    problems.push(problem);
    WorkerError::Configuration(problems)
}

#[cfg(feature = "serve")]
async fn asked_at(host: String, port: u16, at_once: usize) -> io::Result<Option<(Arc<Runs>, Endpoint)>> {
    let asked = StepsAddr::At { host: host.clone(), port }.to_string();
    let listener = crate::serve::bind(asked.as_str()).await?;
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    // Told by the name that was set, for that is how apps find this machine.
    let runs = Runs::new(format!("http://{}", StepsAddr::At { host, port: listener.local_addr()?.port() }), secret);
    tracing::debug!(?runs, "steps of apps and programs are recorded");
    Ok(Some((Arc::clone(&runs), crate::serve::serve_steps(listener, runs, at_once).boxed())))
}

/// Without that feature they have no steps, which is no mistake.
#[cfg(not(feature = "serve"))]
async fn asked_at(_: String, _: u16, _: usize) -> io::Result<Option<(Arc<Runs>, Endpoint)>> {
    Ok(None)
}

/// At the proposed address, or at another port where it is taken, as by another worker on the machine.
async fn proposed_at(worker: &mut Worker, proposed: SocketAddr) -> Endpoint {
    let error = match told_at(worker, proposed).await {
        Ok(endpoint) => return endpoint,
        Err(error) => error,
    };
    tracing::warn!("health is told at another port: {error}; LEASEHOLD_HTTP_ADDR names an address, or off");
    let any = SocketAddr::new(proposed.ip(), 0);
    told_at(worker, any).await.unwrap_or_else(|error| {
        tracing::warn!("health is not told: {error}");
        pending().boxed()
    })
}

/// From here on what the worker counts is told too.
#[cfg(feature = "serve")]
async fn told_at(worker: &mut Worker, address: SocketAddr) -> io::Result<Endpoint> {
    let listener = crate::serve::bind(address).await?;
    let address = listener.local_addr()?;
    tracing::info!("the worker tells how it is at http://{address}/");
    worker.board.told_at(address);
    let (recorder, exporter) = crate::serve::exporter();
    worker.telemetry = worker.telemetry.clone().and(recorder);
    Ok(crate::serve::serve(listener, Arc::new(worker.health()), exporter).boxed())
}

#[cfg(feature = "serve")]
impl crate::serve::Tells for super::Health {
    fn status(&self) -> Status {
        self.status()
    }

    fn overview(&self) -> Overview {
        self.overview()
    }

    fn history(&self) -> History {
        self.history()
    }

    fn moves_on(&self) -> BoxFuture<'_, ()> {
        self.moves_on().boxed()
    }

    fn looks(&self) -> Box<dyn Send + Sync> {
        Box::new(self.looks())
    }
}

#[cfg(not(feature = "serve"))]
async fn told_at(_: &mut Worker, _: SocketAddr) -> io::Result<Endpoint> {
    Err(io::Error::other("this program was built without Leasehold's feature `serve`"))
}
