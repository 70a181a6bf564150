//! What users write: a [`Handler`] for one kind of message.
//!
//! Handlers know their payload and the [`JobContext`] that is lent to them; they know nothing of queues, and of the
//! guard only what a step records. What is not generic over the payload sees [`ErasedHandler`] and [`Work`].

use std::{fmt, future::Future, marker::PhantomData, sync::Arc};

use futures_util::{
    FutureExt,
    future::{BoxFuture, ready},
};

use crate::{guard::UndoAnswer as Undo, key::Key, message::Message};

pub use commit::ConditionFailed;
pub use context::{CancelCause, Cancelled, JobContext};
pub use error::{HandlerError, HandlerResult, ResultExt};
pub use payload::{DecodeError, Payload, Raw};
pub use steps::StepKey;

mod commit;
pub(crate) mod context;
pub(crate) mod error;
#[cfg(unix)]
pub(crate) mod exec;
#[cfg(feature = "http")]
pub(crate) mod http;
#[cfg(any(unix, feature = "http"))]
mod outside;
mod payload;
pub(crate) mod remote;
pub(crate) mod steps;

/// Work on one kind of message. Its state lives in `self`.
pub trait Handler: Send + Sync + 'static {
    /// What a message's body is decoded into.
    type Payload: Payload;

    /// Does the work. `Ok` confirms the key and deletes the message.
    ///
    /// Every attempt repeats what is outside of [steps](JobContext::step). When the run is [cancelled] there is a short
    /// grace to come to an end; then the future is dropped.
    ///
    /// [cancelled]: JobContext::cancelled
    fn handle(&self, payload: &Self::Payload, cx: &JobContext) -> impl Future<Output = HandlerResult> + Send;

    /// Undoes what the work has done, when it has failed for good: at the end of its attempts, or by a permanent error.
    ///
    /// It is called under the same lease and with the same [steps](JobContext::step), after the verdict is recorded: the work
    /// itself does not run any more. [`JobContext::recorded`] tells what there is to undo; what it does itself is best done in
    /// steps too, for it is called again after a failure, a crash or a drain, with attempts of its own under the same limits.
    /// Then the message is dead-lettered, and tells the answer: [`Undo::Kept`] (which is the default, and right where nothing
    /// was undone) leaves finished steps finished for a redrive, [`Undo::Undone`] lets them run again, under new downstream
    /// keys. An undo that fails at its last attempt, or for good, is dead-lettered with the reason `undo_incomplete`, for a
    /// person.
    ///
    /// Not called without a guard, for [functions](handler), apps and programs.
    fn undo(&self, payload: &Self::Payload, cx: &JobContext) -> impl Future<Output = HandlerResult<Undo>> + Send {
        let _ = (payload, cx);
        async { Ok(Undo::Kept) }
    }

    /// This handler with an idempotency key of its own, instead of the one from `LEASEHOLD_<Q>_KEY`.
    fn key<F, K>(self, key: F) -> Keyed<Self>
    where
        Self: Sized,
        F: Fn(&Self::Payload) -> K + Send + Sync + 'static,
        K: Into<Key>,
    {
        Keyed { handler: self, key: Arc::new(move |payload| key(payload).into()) }
    }

    /// This handler on threads where blocking is allowed, for work that computes long or calls blocking libraries.
    ///
    /// A thread cannot be stopped from outside: one that ignores [`JobContext::cancelled`] keeps its slot until it ends.
    fn blocking(self) -> Blocking<Self>
    where
        Self: Sized,
    {
        Blocking(self)
    }

    /// How the worker sees this handler; for wrappers.
    #[doc(hidden)]
    fn traits(&self) -> Traits<'_, Self::Payload> {
        Traits::default()
    }
}

/// What wrappers add to a handler.
#[doc(hidden)]
pub struct Traits<'a, P> {
    key: Option<&'a KeyFunction<P>>,
    blocking: bool,
    probe: Option<&'a dyn Probe>,
    /// `undo` may do something.
    undoes: bool,
    /// The work is done outside of this process.
    is_outside: bool,
}

/// What does the work can be away, and can be looked for without any work.
pub(crate) trait Probe: Send + Sync {
    /// Asks whether what does the work is there. Ends in time of its own.
    fn probe(&self) -> BoxFuture<'_, HandlerResult>;
}

impl<P> Default for Traits<'_, P> {
    fn default() -> Self {
        Self { key: None, blocking: false, probe: None, undoes: true, is_outside: false }
    }
}

impl<P> fmt::Debug for Traits<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traits").field("blocking", &self.blocking).finish_non_exhaustive()
    }
}

type KeyFunction<P> = Arc<dyn Fn(&P) -> Key + Send + Sync>;

/// A handler with its key. Made by [`Handler::key`].
#[must_use = "a handler does nothing until a worker has it"]
pub struct Keyed<H: Handler> {
    handler: H,
    key: KeyFunction<H::Payload>,
}

impl<H: Handler + fmt::Debug> fmt::Debug for Keyed<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keyed").field(&self.handler).finish()
    }
}

impl<H: Handler> Handler for Keyed<H> {
    type Payload = H::Payload;

    async fn handle(&self, payload: &H::Payload, cx: &JobContext) -> HandlerResult {
        self.handler.handle(payload, cx).await
    }

    async fn undo(&self, payload: &H::Payload, cx: &JobContext) -> HandlerResult<Undo> {
        self.handler.undo(payload, cx).await
    }

    fn traits(&self) -> Traits<'_, H::Payload> {
        Traits { key: Some(&self.key), ..self.handler.traits() }
    }
}

/// A handler on threads where blocking is allowed. Made by [`Handler::blocking`].
#[derive(Debug)]
#[must_use = "a handler does nothing until a worker has it"]
pub struct Blocking<H>(H);

impl<H: Handler> Handler for Blocking<H> {
    type Payload = H::Payload;

    async fn handle(&self, payload: &H::Payload, cx: &JobContext) -> HandlerResult {
        self.0.handle(payload, cx).await
    }

    async fn undo(&self, payload: &H::Payload, cx: &JobContext) -> HandlerResult<Undo> {
        self.0.undo(payload, cx).await
    }

    fn traits(&self) -> Traits<'_, H::Payload> {
        Traits { blocking: true, ..self.0.traits() }
    }
}

/// A function as a handler: `handler(send_email)`, or `handler(async |email: &Email, cx: &JobContext| ..)`.
pub fn handler<P, F>(function: F) -> FnHandler<F, P>
where
    P: Payload,
    F: for<'a> HandlerFn<'a, P>,
{
    FnHandler { function, payload: PhantomData }
}

/// A function as a handler. Made by [`handler`].
#[must_use = "a handler does nothing until a worker has it"]
pub struct FnHandler<F, P> {
    function: F,
    payload: PhantomData<fn(&P)>,
}

impl<F, P> fmt::Debug for FnHandler<F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FnHandler").field(&std::any::type_name::<F>()).finish()
    }
}

impl<P: Payload, F: for<'a> HandlerFn<'a, P>> Handler for FnHandler<F, P> {
    type Payload = P;

    async fn handle(&self, payload: &P, cx: &JobContext) -> HandlerResult {
        self.function.call(payload, cx).await
    }

    fn traits(&self) -> Traits<'_, P> {
        Traits { undoes: false, ..Traits::default() }
    }
}

/// `async fn(&P, &JobContext) -> HandlerResult` whose future is `Send`. Implemented for functions and closures.
pub trait HandlerFn<'a, P: 'a>: Send + Sync + 'static {
    #[doc(hidden)]
    type Future: Future<Output = HandlerResult> + Send + 'a;

    #[doc(hidden)]
    fn call(&self, payload: &'a P, cx: &'a JobContext) -> Self::Future;
}

impl<'a, P: 'a, F, R> HandlerFn<'a, P> for F
where
    F: Fn(&'a P, &'a JobContext) -> R + Send + Sync + 'static,
    R: Future<Output = HandlerResult> + Send + 'a,
{
    type Future = R;

    fn call(&self, payload: &'a P, cx: &'a JobContext) -> R {
        self(payload, cx)
    }
}

/// A handler without its payload type.
pub(crate) trait ErasedHandler: Send + Sync {
    fn has_key(&self) -> bool;
    fn is_blocking(&self) -> bool;
    fn undoes(&self) -> bool;
    fn is_outside(&self) -> bool;
    fn probe(&self) -> BoxFuture<'_, HandlerResult>;
    fn decode(self: Arc<Self>, message: &Arc<Message>) -> Result<Arc<dyn Work>, DecodeError>;
}

/// One decoded message with its handler. Decoded once; the key is derived from it once (rule G10).
pub(crate) trait Work: Send + Sync {
    fn key(&self) -> Option<Key>;
    fn handle<'a>(&'a self, cx: &'a JobContext) -> BoxFuture<'a, HandlerResult>;
    fn undo<'a>(&'a self, cx: &'a JobContext) -> BoxFuture<'a, HandlerResult<Undo>>;
}

struct Decoded<H: Handler> {
    handler: Arc<H>,
    payload: H::Payload,
}

impl<H: Handler> ErasedHandler for H {
    fn has_key(&self) -> bool {
        self.traits().key.is_some()
    }

    fn is_blocking(&self) -> bool {
        self.traits().blocking
    }

    fn undoes(&self) -> bool {
        self.traits().undoes
    }

    fn is_outside(&self) -> bool {
        self.traits().is_outside
    }

    fn probe(&self) -> BoxFuture<'_, HandlerResult> {
        self.traits().probe.map_or_else(|| ready(Ok(())).boxed(), Probe::probe)
    }

    fn decode(self: Arc<Self>, message: &Arc<Message>) -> Result<Arc<dyn Work>, DecodeError> {
        let payload = H::Payload::decode_shared(message)?;
        Ok(Arc::new(Decoded { handler: self, payload }))
    }
}

impl<H: Handler> Work for Decoded<H> {
    fn key(&self) -> Option<Key> {
        self.handler.traits().key.map(|key| key(&self.payload))
    }

    fn handle<'a>(&'a self, cx: &'a JobContext) -> BoxFuture<'a, HandlerResult> {
        Box::pin(self.handler.handle(&self.payload, cx))
    }

    fn undo<'a>(&'a self, cx: &'a JobContext) -> BoxFuture<'a, HandlerResult<Undo>> {
        Box::pin(self.handler.undo(&self.payload, cx))
    }
}
