//! The wrappers: each call of a port, named, and handed to [`Faults`] as a future that owns what it needs, because a
//! request that is stuck on the wire outlives its caller.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use super::{CALL_TIMEOUT, Failure, Faults};
use crate::{
    bodies::{Bodies, BodyError},
    causes::NoCredentials,
    guard::{
        Amend, Change, Claim, Claimed, Commit, Committed, Control, ControlKey, Guard, GuardError, Pk, Record,
        TableFacts, TakeOver, Written,
    },
    message::{Pointer, ReceiptHandle},
    queue::{Broker, Depth, Move, MoveTask, Outgoing, Queue, QueueAddress, QueueError, QueueFacts, Receive, Received},
};

/// A queue whose calls go wrong.
#[derive(Debug)]
pub struct FaultyQueue {
    inner: Arc<dyn Queue>,
    name: String,
    faults: Faults,
}

impl FaultyQueue {
    /// Wraps a queue.
    #[must_use]
    pub fn new(inner: Arc<dyn Queue>, faults: Faults) -> Self {
        Self { inner, name: String::new(), faults }
    }

    /// With the name that [`super::Call::subject`] has for calls without a handle.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }
}

#[async_trait]
impl Queue for FaultyQueue {
    async fn receive(&self, ask: &Receive) -> Result<Vec<Received>, QueueError> {
        let patience = ask.wait + CALL_TIMEOUT;
        let (inner, ask) = (Arc::clone(&self.inner), ask.clone());
        self.faults.carry_out("receive", &self.name, patience, async move { inner.receive(&ask).await }).await
    }

    async fn delete(&self, handle: &ReceiptHandle) -> Result<(), QueueError> {
        let (inner, owned) = (Arc::clone(&self.inner), handle.clone());
        let call = async move { inner.delete(&owned).await };
        self.faults.carry_out("delete", handle.as_str(), CALL_TIMEOUT, call).await
    }

    async fn change_visibility(&self, handle: &ReceiptHandle, timeout: Duration) -> Result<(), QueueError> {
        let (inner, owned) = (Arc::clone(&self.inner), handle.clone());
        let call = async move { inner.change_visibility(&owned, timeout).await };
        self.faults.carry_out("change_visibility", handle.as_str(), CALL_TIMEOUT, call).await
    }

    async fn send(&self, message: &Outgoing) -> Result<(), QueueError> {
        let (inner, message) = (Arc::clone(&self.inner), message.clone());
        self.faults.carry_out("send", &self.name, CALL_TIMEOUT, async move { inner.send(&message).await }).await
    }

    async fn facts(&self) -> Result<QueueFacts, QueueError> {
        let inner = Arc::clone(&self.inner);
        self.faults.carry_out("facts", &self.name, CALL_TIMEOUT, async move { inner.facts().await }).await
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        let inner = Arc::clone(&self.inner);
        self.faults.carry_out("depth", &self.name, CALL_TIMEOUT, async move { inner.depth().await }).await
    }

    async fn sources(&self) -> Result<Vec<String>, QueueError> {
        let inner = Arc::clone(&self.inner);
        self.faults.carry_out("sources", &self.name, CALL_TIMEOUT, async move { inner.sources().await }).await
    }
}

/// A guard whose calls go wrong.
#[derive(Debug)]
pub struct FaultyGuard {
    inner: Arc<dyn Guard>,
    faults: Faults,
}

impl FaultyGuard {
    /// Wraps a guard.
    #[must_use]
    pub fn new(inner: Arc<dyn Guard>, faults: Faults) -> Self {
        Self { inner, faults }
    }
}

#[async_trait]
impl Guard for FaultyGuard {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, GuardError> {
        let (inner, owned) = (Arc::clone(&self.inner), claim.clone());
        let call = async move { inner.claim(&owned).await };
        self.faults.carry_out("claim", &claim.pk.0, CALL_TIMEOUT, call).await
    }

    async fn take_over(&self, take_over: &TakeOver) -> Result<Claimed, GuardError> {
        let (inner, owned) = (Arc::clone(&self.inner), take_over.clone());
        let call = async move { inner.take_over(&owned).await };
        self.faults.carry_out("take_over", &take_over.claim.pk.0, CALL_TIMEOUT, call).await
    }

    async fn write(&self, pk: &Pk, change: &Change) -> Result<Written, GuardError> {
        let (inner, owned_pk, owned) = (Arc::clone(&self.inner), pk.clone(), change.clone());
        let call = async move { inner.write(&owned_pk, &owned).await };
        self.faults.carry_out(change.name(), &pk.0, CALL_TIMEOUT, call).await
    }

    async fn confirm_with(&self, commit: &Commit) -> Result<Committed, GuardError> {
        let (inner, owned) = (Arc::clone(&self.inner), commit.clone());
        let call = async move { inner.confirm_with(&owned).await };
        self.faults.carry_out("confirm_with", &commit.pk.0, CALL_TIMEOUT, call).await
    }

    async fn amend(&self, amend: &Amend) -> Result<Written, GuardError> {
        let (inner, owned) = (Arc::clone(&self.inner), amend.clone());
        let call = async move { inner.amend(&owned).await };
        self.faults.carry_out("amend", &amend.record.pk.0, CALL_TIMEOUT, call).await
    }

    async fn read(&self, pk: &Pk) -> Result<Option<Record>, GuardError> {
        let (inner, owned) = (Arc::clone(&self.inner), pk.clone());
        let call = async move { inner.read(&owned).await };
        self.faults.carry_out("read", &pk.0, CALL_TIMEOUT, call).await
    }

    async fn probe(&self) -> Result<(), GuardError> {
        let inner = Arc::clone(&self.inner);
        self.faults.carry_out("probe", "", CALL_TIMEOUT, async move { inner.probe().await }).await
    }

    async fn control(&self, key: &ControlKey) -> Result<Control, GuardError> {
        let (inner, owned) = (Arc::clone(&self.inner), key.clone());
        let call = async move { inner.control(&owned).await };
        self.faults.carry_out("control", &key.pk().0, CALL_TIMEOUT, call).await
    }

    async fn set_control(&self, key: &ControlKey, control: &Control) -> Result<(), GuardError> {
        let (inner, owned_key, owned) = (Arc::clone(&self.inner), key.clone(), control.clone());
        let call = async move { inner.set_control(&owned_key, &owned).await };
        self.faults.carry_out("set_control", &key.pk().0, CALL_TIMEOUT, call).await
    }

    async fn facts(&self) -> Result<TableFacts, GuardError> {
        let inner = Arc::clone(&self.inner);
        self.faults.carry_out("facts", "", CALL_TIMEOUT, async move { inner.facts().await }).await
    }
}

/// Bodies whose calls go wrong.
#[derive(Debug)]
pub struct FaultyBodies {
    inner: Arc<dyn Bodies>,
    faults: Faults,
}

impl FaultyBodies {
    /// Wraps bodies.
    #[must_use]
    pub fn new(inner: Arc<dyn Bodies>, faults: Faults) -> Self {
        Self { inner, faults }
    }
}

#[async_trait]
impl Bodies for FaultyBodies {
    async fn get(&self, pointer: &Pointer, limit: usize) -> Result<String, BodyError> {
        let (inner, owned) = (Arc::clone(&self.inner), pointer.clone());
        let call = async move { inner.get(&owned, limit).await };
        self.faults.carry_out("get", &pointer.to_string(), CALL_TIMEOUT, call).await
    }

    async fn delete(&self, pointer: &Pointer) -> Result<(), BodyError> {
        let (inner, owned) = (Arc::clone(&self.inner), pointer.clone());
        let call = async move { inner.delete(&owned).await };
        self.faults.carry_out("delete", &pointer.to_string(), CALL_TIMEOUT, call).await
    }
}

/// A broker that opens queues whose calls go wrong, each by [`Faults`] of its own.
#[derive(Debug)]
pub struct FaultyBroker {
    inner: Arc<dyn Broker>,
    /// Locked for single look-ups.
    faults: Mutex<BTreeMap<String, Faults>>,
}

impl FaultyBroker {
    /// Wraps a broker.
    #[must_use]
    pub fn new(inner: Arc<dyn Broker>) -> Self {
        Self { inner, faults: Mutex::default() }
    }

    /// The faults of the queue of this name, opened or not; its `open` is among them.
    pub fn faults(&self, queue: &str) -> Faults {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.entry(queue.to_owned()).or_default().clone()
    }

    fn faults_of(&self, arn: &str) -> Faults {
        self.faults(QueueAddress::Arn(arn.to_owned()).queue_name())
    }
}

#[async_trait]
impl Broker for FaultyBroker {
    async fn open(&self, address: &QueueAddress) -> Result<Arc<dyn Queue>, QueueError> {
        let name = address.queue_name();
        let faults = self.faults(name);
        let (inner, owned) = (Arc::clone(&self.inner), address.clone());
        let queue = faults.carry_out("open", name, CALL_TIMEOUT, async move { inner.open(&owned).await }).await?;
        Ok(Arc::new(FaultyQueue::new(queue, faults).named(name)))
    }

    fn looks_in(&self, address: &QueueAddress) -> Option<String> {
        self.inner.looks_in(address)
    }

    async fn start_move(&self, task: &Move) -> Result<(), QueueError> {
        let (inner, owned) = (Arc::clone(&self.inner), task.clone());
        let call = async move { inner.start_move(&owned).await };
        self.faults_of(&task.from).carry_out("start_move", &task.from, CALL_TIMEOUT, call).await
    }

    async fn latest_move(&self, from: &str) -> Result<Option<MoveTask>, QueueError> {
        let (inner, owned) = (Arc::clone(&self.inner), from.to_owned());
        let call = async move { inner.latest_move(&owned).await };
        self.faults_of(from).carry_out("latest_move", from, CALL_TIMEOUT, call).await
    }

    async fn cancel_move(&self, from: &str, handle: &str) -> Result<(), QueueError> {
        let (inner, owned) = (Arc::clone(&self.inner), (from.to_owned(), handle.to_owned()));
        let call = async move { inner.cancel_move(&owned.0, &owned.1).await };
        self.faults_of(from).carry_out("cancel_move", handle, CALL_TIMEOUT, call).await
    }
}

/// What stands in a log where an adapter would have the service's own words.
const PLAYED: &str = "played by the test kit";

impl From<Failure> for QueueError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Throttled => Self::Throttled(Some(PLAYED.into())),
            Failure::Unavailable | Failure::Conflict => Self::Unavailable(Some(PLAYED.into())),
            Failure::NoAnswer => Self::NoAnswer(Some(PLAYED.into())),
            Failure::Denied => Self::Denied(Some(PLAYED.into())),
            Failure::NoCredentials => Self::Denied(Some(Box::new(NoCredentials(PLAYED.to_owned())))),
            Failure::Missing => Self::Missing,
            Failure::HandleLost => Self::HandleLost,
            Failure::TwelveHours => Self::TwelveHours,
        }
    }
}

impl From<Failure> for GuardError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Throttled => Self::Throttled(Some(PLAYED.into())),
            Failure::Unavailable => Self::Unavailable(Some(PLAYED.into())),
            Failure::Conflict => Self::Conflict,
            Failure::NoAnswer => Self::NoAnswer(Some(PLAYED.into())),
            Failure::Denied => Self::Denied(Some(PLAYED.into())),
            Failure::NoCredentials => Self::Denied(Some(Box::new(NoCredentials(PLAYED.to_owned())))),
            Failure::Missing => Self::Missing,
            Failure::HandleLost | Failure::TwelveHours => Self::Refused(PLAYED.to_owned()),
        }
    }
}

impl From<Failure> for BodyError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Throttled => Self::Throttled(Some(PLAYED.into())),
            Failure::Unavailable | Failure::Conflict => Self::Unavailable(Some(PLAYED.into())),
            Failure::NoAnswer => Self::NoAnswer(Some(PLAYED.into())),
            Failure::Denied | Failure::NoCredentials => Self::Denied(Some(PLAYED.into())),
            Failure::Missing => Self::Missing,
            Failure::HandleLost | Failure::TwelveHours => Self::Refused(PLAYED.to_owned()),
        }
    }
}
