//! When to stop, in two stages: a plain future could say only one.
//!
//! The worker only listens; who tells it is the caller's business. Nothing here ends a process.

use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use tokio_util::sync::CancellationToken;

/// When a worker is to stop: first drain, then now. Clones are the same.
#[derive(Clone, Default)]
pub struct Shutdown {
    drain: CancellationToken,
    now: CancellationToken,
    source: Arc<Mutex<Option<Source>>>,
}

/// Ends when both stages have been told, or never. Polled by the worker, so that no task is needed for it.
type Source = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Shutdown {
    /// One that is told by [`drain`](Self::drain) and [`now`](Self::now).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// First stage: take nothing new, finish what runs, within `DRAIN_TIMEOUT`.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Second stage: do not wait for what runs; cancel it and give it back.
    pub fn now(&self) {
        self.drain.cancel();
        self.now.cancel();
    }

    /// Drains when `signal` ends. It is polled while a worker runs.
    pub fn when(signal: impl Future<Output = ()> + Send + 'static) -> Self {
        let shutdown = Self::new();
        let drain = shutdown.drain.clone();
        shutdown.polled(async move {
            signal.await;
            drain.cancel();
        })
    }

    fn polled(self, source: impl Future<Output = ()> + Send + 'static) -> Self {
        self.source().replace(Box::pin(source));
        self
    }

    /// Held for one line; what is taken out is whole or absent.
    fn source(&self) -> std::sync::MutexGuard<'_, Option<Source>> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls what tells the stages; never ends. For one worker: the first that asks.
    pub(crate) async fn listen(&self) {
        let source = self.source().take();
        if let Some(source) = source {
            source.await;
        }
        std::future::pending::<()>().await;
    }

    pub(crate) fn draining(&self) -> &CancellationToken {
        &self.drain
    }

    pub(crate) fn stopping_now(&self) -> &CancellationToken {
        &self.now
    }
}

/// A token drains; it has no second stage.
impl From<CancellationToken> for Shutdown {
    fn from(drain: CancellationToken) -> Self {
        Self { drain, ..Self::default() }
    }
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown")
            .field("drain", &self.drain.is_cancelled())
            .field("now", &self.now.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// SIGTERM or SIGINT drains, a second one stops now. The signals are caught from when this returns.
///
/// # Errors
/// The operating system refuses the signal handlers.
#[cfg(unix)]
pub fn shutdown_signal() -> io::Result<Shutdown> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let shutdown = Shutdown::new();
    let told = (shutdown.drain.clone(), shutdown.now.clone());
    Ok(shutdown.polled(async move {
        for stage in [told.0, told.1] {
            tokio::select! {
                // Both arms are cancel safe: a signal that arrives meanwhile is kept for the next turn.
                biased;
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            stage.cancel();
        }
    }))
}
