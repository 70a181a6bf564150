//! What a handler knows about its run: the message, the key, the time it has, and whether it is to stop.
//!
//! Lent for one run, and good for nothing after it. The steps, which write, are in `steps.rs`.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::message::Message;

use super::{remote::Runs, steps::Steps};

/// More time than this is not told from it, and clocks would overflow.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What a handler knows about its run. Lent, not owned, and not `Clone`: nothing can be recorded after the run.
pub struct JobContext {
    pub(crate) queue: Arc<str>,
    pub(crate) message: Arc<Message>,
    pub(crate) key: Option<String>,
    pub(crate) fence: u64,
    pub(crate) attempt: u32,
    pub(crate) deadline: watch::Sender<Instant>,
    pub(crate) cancelled: Cancelled,
    pub(crate) steps: Steps,
    pub(crate) elsewhere: Elsewhere,
    /// Where what does the work elsewhere can ask about this run.
    pub(crate) remote: Option<Arc<Runs>>,
}

impl JobContext {
    /// The queue's name in the configuration.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// The message as it was received, or out of its envelope where the queue has `ENVELOPE=sns`.
    #[must_use]
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The idempotency key, to be handed downstream. `None` only without a guard, where no key is asked for.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The fencing token: greater than that of every run before of the same key. 0 without a guard.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Which attempt this is, from 1. Counts failures, not deliveries; without a guard, deliveries.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// When the run's time budget ends (`HANDLER_TIMEOUT`).
    #[must_use]
    pub fn deadline(&self) -> Instant {
        *self.deadline.borrow()
    }

    /// Asks for `by` more time than the budget gives. The leases follow by themselves, up to SQS's 12 hours.
    pub fn extend_deadline(&self, by: Duration) {
        self.deadline.send_modify(|deadline| *deadline += by.min(FOR_EVER));
    }

    /// The cancellation of this run; the one part of the context that can be cloned and kept.
    #[must_use]
    pub fn cancelled(&self) -> &Cancelled {
        &self.cancelled
    }
}

#[cfg(test)]
impl JobContext {
    /// The third attempt at a payment, with five minutes to go.
    pub(crate) fn of(message: &Message) -> Self {
        Self {
            queue: "payments".into(),
            message: Arc::new(message.clone()),
            key: Some("payments#k-1".to_owned()),
            fence: 42,
            attempt: 3,
            deadline: watch::channel(Instant::now() + Duration::from_secs(300)).0,
            cancelled: Cancelled::default(),
            steps: Steps::Refused,
            elsewhere: Elsewhere::default(),
            remote: None,
        }
    }
}

impl fmt::Debug for JobContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobContext")
            .field("message_id", &self.message.id)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// Whether work was handed over to another process that has not answered: dropping the run does not stop it there, so it
/// is not given back at once (rule D2).
#[derive(Debug, Clone, Default)]
pub(crate) struct Elsewhere(Arc<AtomicBool>);

impl Elsewhere {
    /// The work is about to be handed over.
    #[cfg(any(feature = "http", test))]
    pub(crate) fn begins(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// It was not, or its end is known.
    #[cfg(any(feature = "http", test))]
    pub(crate) fn ended(&self) {
        self.0.store(false, Ordering::Release);
    }

    pub(crate) fn may_run(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Why a run was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelCause {
    /// The lease that allows the run is about to end, or has: another worker may begin.
    LeaseLost,
    /// The run's time budget is used up; it counts as a failed attempt.
    TimedOut,
    /// The worker stops.
    Shutdown,
}

/// The cancellation of one run.
#[derive(Debug, Clone, Default)]
pub struct Cancelled {
    token: CancellationToken,
    cause: Arc<OnceLock<CancelCause>>,
}

impl Cancelled {
    /// Waits until the run is told to stop. Cancel safe.
    pub async fn wait(&self) -> CancelCause {
        self.token.cancelled().await;
        self.cause().unwrap_or(CancelCause::Shutdown)
    }

    /// Why the run was told to stop, if it was.
    #[must_use]
    pub fn cause(&self) -> Option<CancelCause> {
        self.cause.get().copied()
    }

    /// Tells the run to stop; the first cause stays.
    pub(crate) fn cancel(&self, cause: CancelCause) {
        let _ = self.cause.set(cause);
        self.token.cancel();
    }
}
