//! What a handler's failure means: try again, not now, not there, or never.
//!
//! Any error can be one, and means *try again* until a word is added. What then happens to the message is not decided here.

use std::{borrow::Cow, error::Error, fmt, time::Duration};

type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// What a handler returns.
pub type HandlerResult<T = ()> = Result<T, HandlerError>;

/// Why a handler did not finish, and what follows from it.
///
/// Not itself an [`Error`], as `anyhow::Error` is not, so that `?` turns any error into one. Any error is a retry unless
/// it says otherwise.
#[must_use = "an error means something only where it is returned"]
pub struct HandlerError {
    pub(crate) verdict: Verdict,
    pub(crate) reason: Cow<'static, str>,
    pub(crate) definite: bool,
    /// What it says is not for a handler to change: it tells of what the handler cannot know.
    pub(crate) fixed: bool,
    source: BoxError,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A failed attempt: again after the back-off, or after this.
    Retry(Option<Duration>),
    /// Again after this; no attempt is used.
    NotYet(Duration),
    /// What does the work is not there; no attempt is used, and the queue pauses.
    Unavailable(Option<Duration>),
    /// It can never succeed.
    Permanent,
    /// It could not go on for reasons that are not its own (the lease ended, the store is down); no attempt is used.
    Interrupted,
}

impl HandlerError {
    /// A failed attempt, from a text or from any error.
    pub fn new(source: impl Into<BoxError>) -> Self {
        Self {
            verdict: Verdict::Retry(None),
            reason: Cow::Borrowed("error"),
            definite: false,
            fixed: false,
            source: source.into(),
        }
    }

    pub(crate) fn interrupted(source: impl Into<BoxError>) -> Self {
        Self { verdict: Verdict::Interrupted, reason: Cow::Borrowed("interrupted"), fixed: true, ..Self::new(source) }
    }

    /// The work can never succeed: it is dead-lettered, with the reason.
    pub fn permanent(self) -> Self {
        self.said(Verdict::Permanent)
    }

    /// The last word counts, but for what is fixed: an interruption of a step stays one, whatever the handler says of its
    /// errors, and what is in doubt stays in doubt.
    fn said(self, verdict: Verdict) -> Self {
        if self.fixed { self } else { Self { verdict, ..self } }
    }

    /// It stays what it is.
    pub(crate) fn fixed(self) -> Self {
        Self { fixed: true, ..self }
    }

    #[cfg(feature = "http")]
    pub(crate) fn with(self, verdict: Verdict) -> Self {
        Self { verdict, ..self }
    }

    /// A failed attempt, to be repeated after `delay` instead of after the back-off. At most 12 hours.
    pub fn retry_after(self, delay: Duration) -> Self {
        self.said(Verdict::Retry(Some(delay)))
    }

    /// Come back in `delay`, without using an attempt: a rate limit, a maintenance window, data that is still on its way.
    pub fn not_yet(self, delay: Duration) -> Self {
        self.said(Verdict::NotYet(delay))
    }

    /// What does the work is not there. Uses no attempt, and the queue pauses until it is back; but a key that meets
    /// this again and again while others succeed has failed.
    pub fn unavailable(self) -> Self {
        self.said(Verdict::Unavailable(None))
    }

    /// A short stable code: what dead letters are grouped by. `error` without it.
    pub fn reason(self, code: impl Into<Cow<'static, str>>) -> Self {
        if self.fixed { self } else { Self { reason: code.into(), ..self } }
    }

    /// Inside a step: the refusal is final, so the next attempt uses a new downstream key. Payment providers replay a
    /// stored refusal under the same key.
    pub fn definite(self) -> Self {
        Self { definite: true, ..self }
    }

    /// Whether it says that the work can never succeed.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.verdict == Verdict::Permanent
    }

    pub(crate) fn is_unavailable(&self) -> bool {
        matches!(self.verdict, Verdict::Unavailable(_))
    }

    /// The delay that it asks for itself.
    pub(crate) fn retry_delay(&self) -> Option<Duration> {
        match self.verdict {
            Verdict::Retry(delay) | Verdict::Unavailable(delay) => delay,
            Verdict::NotYet(delay) => Some(delay),
            Verdict::Permanent | Verdict::Interrupted => None,
        }
    }

    /// The code given with [`reason`](Self::reason).
    #[must_use]
    pub fn code(&self) -> &str {
        &self.reason
    }

    /// The error it was made from, if it is an `E`.
    #[must_use]
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.source.downcast_ref()
    }
}

impl<E: Into<BoxError>> From<E> for HandlerError {
    fn from(source: E) -> Self {
        Self::new(source)
    }
}

/// The error with all its causes, since most wrap the one that says what happened.
impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)?;
        let mut cause = self.source.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({}): {self}", self.verdict, self.reason)
    }
}

/// [`HandlerError`]'s words on a `Result`, so that `?` can follow.
pub trait ResultExt<T, E>: Sized {
    /// [`HandlerError::permanent`].
    fn permanent(self) -> HandlerResult<T>;
    /// Permanent if the error passes `test`.
    fn permanent_if(self, test: impl FnOnce(&E) -> bool) -> HandlerResult<T>;
    /// [`HandlerError::retry_after`].
    fn retry_after(self, delay: Duration) -> HandlerResult<T>;
    /// [`HandlerError::not_yet`].
    fn not_yet(self, delay: Duration) -> HandlerResult<T>;
    /// [`HandlerError::unavailable`].
    fn unavailable(self) -> HandlerResult<T>;
    /// [`HandlerError::definite`].
    fn definite(self) -> HandlerResult<T>;
    /// [`HandlerError::reason`].
    fn reason(self, code: impl Into<Cow<'static, str>>) -> HandlerResult<T>;
}

impl<T, E: Into<HandlerError>> ResultExt<T, E> for Result<T, E> {
    fn permanent(self) -> HandlerResult<T> {
        self.map_err(|error| error.into().permanent())
    }

    fn permanent_if(self, test: impl FnOnce(&E) -> bool) -> HandlerResult<T> {
        self.map_err(|error| {
            let permanent = test(&error);
            let error = error.into();
            if permanent { error.permanent() } else { error }
        })
    }

    fn retry_after(self, delay: Duration) -> HandlerResult<T> {
        self.map_err(|error| error.into().retry_after(delay))
    }

    fn not_yet(self, delay: Duration) -> HandlerResult<T> {
        self.map_err(|error| error.into().not_yet(delay))
    }

    fn unavailable(self) -> HandlerResult<T> {
        self.map_err(|error| error.into().unavailable())
    }

    fn definite(self) -> HandlerResult<T> {
        self.map_err(|error| error.into().definite())
    }

    fn reason(self, code: impl Into<Cow<'static, str>>) -> HandlerResult<T> {
        self.map_err(|error| error.into().reason(code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_mark_takes_anything_and_means_a_retry() {
        fn number() -> HandlerResult<u32> {
            Ok("x".parse::<u32>()?)
        }
        fn text() -> HandlerResult {
            Err("no @ in the address")?
        }
        assert!(number().is_err_and(|error| error.verdict == Verdict::Retry(None)));
        assert!(text().is_err_and(|error| error.to_string() == "no @ in the address"));
    }

    #[test]
    fn words_add_up() {
        let error = Err::<(), _>("declined").permanent().reason("card_declined").definite().unwrap_err();
        assert!(error.is_permanent() && error.definite && error.code() == "card_declined");
        let interrupted =
            HandlerError::interrupted("the run is to stop").permanent().reason("x").retry_after(Duration::ZERO);
        assert_eq!((interrupted.verdict, interrupted.code()), (Verdict::Interrupted, "interrupted"));
        assert!(!Err::<(), _>("timeout").permanent_if(|e| *e == "declined").unwrap_err().is_permanent());
    }
}
