//! Where a worker tells its health: the setting's address, or what its program proposes.
//!
//! Opened before anything is looked at, so that a worker that waits for AWS can say what it waits for.

use std::{convert::Infallible, io, net::SocketAddr};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, pending},
};

use crate::config::{HttpAddr, Problem};

use super::{Worker, WorkerError};

/// Answers until it is dropped.
pub(super) type Endpoint = BoxFuture<'static, Infallible>;

/// Opens it, if there is to be one.
pub(super) async fn open(worker: &Worker) -> Result<Endpoint, WorkerError> {
    // What is wrong with the settings is told by the checks.
    let Ok(config) = &worker.config else { return Ok(pending().boxed()) };
    match (config.http_addr, worker.health_at) {
        (Some(HttpAddr::At(address)), _) => told_at(worker, address).await.map_err(|error| {
            let what = format!("LEASEHOLD_HTTP_ADDR is {address}, where health cannot be told: {error}");
            let mut problems = worker.problems();
            problems.push(Problem::new(what, "LEASEHOLD_HTTP_ADDR=off"));
            WorkerError::Configuration(problems)
        }),
        (None, Some(proposed)) => Ok(proposed_at(worker, proposed).await),
        (Some(HttpAddr::Off), _) | (None, None) => Ok(pending().boxed()),
    }
}

/// At the proposed address, or at another port where it is taken, as by another worker on the machine.
async fn proposed_at(worker: &Worker, proposed: SocketAddr) -> Endpoint {
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

#[cfg(feature = "serve")]
async fn told_at(worker: &Worker, address: SocketAddr) -> io::Result<Endpoint> {
    let listener = crate::serve::bind(address).await?;
    let address = listener.local_addr()?;
    tracing::info!("health is told at http://{address}/ready");
    let health = worker.health();
    Ok(crate::serve::serve(listener, move || health.status()).boxed())
}

#[cfg(not(feature = "serve"))]
async fn told_at(_: &Worker, _: SocketAddr) -> io::Result<Endpoint> {
    Err(io::Error::other("this program was built without Leasehold's feature `serve`"))
}
