//! The port for bodies that are not in their messages: what the path needs of S3, and no more.
//!
//! Adapters are [`memory`] and, with the feature `s3`, `s3`. They answer in the meanings below and never in an SDK's
//! words. What an answer means for a message is decided in the path; nothing here knows of messages.

use std::fmt;

use async_trait::async_trait;

use crate::message::Pointer;

pub mod memory;
#[cfg(feature = "s3")]
pub mod s3;

/// The largest body that is fetched, in bytes. It is held in memory for as long as its handler runs, beside what the
/// handler makes of it, and there are about as many of them as `CONCURRENCY` allows. The libraries that put bodies into S3
/// go up to 2 GB; what is so large is better named in a message by its sender, and read by the handler in parts.
pub const LARGEST_BODY: usize = 256 * 1024 * 1024;

/// Where bodies are.
///
/// # Contract
/// - Every call ends: an adapter MUST bound each with a timeout of its own, the reading of a body included.
/// - An adapter MAY send both calls again by itself, a few times, when that can help.
/// - A body MUST be whole. One that broke off is [no answer](BodyError::NoAnswer).
/// - Of a body that is larger than the limit, an adapter MUST NOT keep more than the limit in memory.
/// - [`BodyError::Missing`], [`BodyError::NoBucket`] and [`BodyError::Refused`] MUST be the store's own word: work fails
///   for good by them. What an adapter does not know is [`BodyError::Unavailable`] or [`BodyError::NoAnswer`].
/// - Dropping a call's future MUST be harmless.
#[async_trait]
pub trait Bodies: fmt::Debug + Send + Sync + 'static {
    /// The body that the pointer names, of at most `limit` bytes.
    async fn get(&self, pointer: &Pointer, limit: usize) -> Result<String, BodyError>;

    /// Deletes the object that the pointer names. One that is not there is deleted.
    async fn delete(&self, pointer: &Pointer) -> Result<(), BodyError>;
}

/// Why a body could not be had, or not be deleted, by meaning.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The bucket has no object of that key.
    #[error("there is no such object")]
    Missing,
    /// There is no such bucket.
    #[error("there is no such bucket")]
    NoBucket,
    /// It is larger than the limit.
    #[error("it is larger than {limit} bytes")]
    TooLarge {
        /// The limit that it exceeds.
        limit: usize,
    },
    /// It is not UTF-8, so it was no message's body.
    #[error("it is not UTF-8")]
    NotText,
    /// The credentials do not allow the call, are missing, or have expired; or the bucket cannot be used from here. So it
    /// stays until somebody mends it.
    #[error("access denied")]
    Denied(#[source] Option<Cause>),
    /// The store was told too much at once.
    #[error("throttled")]
    Throttled(#[source] Option<Cause>),
    /// The store answered that it could not do it, or was not reached.
    #[error("the store could not do it")]
    Unavailable(#[source] Option<Cause>),
    /// No answer came, or not all of it.
    #[error("no answer came")]
    NoAnswer(#[source] Option<Cause>),
    /// It can never be had in this way: it is archived, for one.
    #[error("the store refuses the request: {0}")]
    Refused(String),
}

/// What an adapter met, kept for the log.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

impl BodyError {
    /// Whether the same call may well succeed in a moment.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Throttled(_) | Self::Unavailable(_) | Self::NoAnswer(_))
    }
}
