//! Both ends of the wire. At the near end, above the faults, stands what a worker does and is answered; at the far end,
//! beneath them, what was really applied.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use leasehold::{
    guard::{
        Amend, Change, Claim, Claimed, Commit, Committed, Control, ControlKey, Guard, GuardError, Pk, Record,
        TableFacts, TakeOver, Written,
    },
    message::ReceiptHandle,
    queue::{Broker, Outgoing, Queue, QueueAddress, QueueError, QueueFacts, Receive, Received},
    testing::{FaultyBroker, FaultyGuard, MemoryQueue},
};
use tokio::time::Instant;

use super::{life::Life, promise::Write, world::World};

/// A worker's end of all its wires.
#[derive(Debug, Clone)]
struct Near {
    world: Arc<World>,
    life: Arc<Life>,
}

impl Near {
    /// Makes one call. A crashed worker's calls reach nobody; one that has returned makes none (rule D3).
    async fn call<T, E: Display>(
        &self,
        what: &str,
        subject: &str,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        if self.life.has_crashed() {
            return std::future::pending().await;
        }
        if self.life.has_returned() {
            self.world.trace.violated(format_args!("rule D3: {} calls {what} {subject} after its end", self.life.who));
        }
        let sent = Instant::now();
        let answer = call.await;
        let took = sent.elapsed();
        if let Err(error) = &answer {
            self.world.trace.note(&self.life.who, format_args!("{what} {subject}: {error}, after {took:?}"));
        } else if took > Duration::from_secs(4) {
            self.world.trace.note(&self.life.who, format_args!("{what} {subject}: answered after {took:?}"));
        }
        answer
    }
}

#[derive(Debug)]
pub(crate) struct NearBroker {
    inner: FaultyBroker,
    near: Near,
}

impl NearBroker {
    pub(crate) fn new(inner: FaultyBroker, world: &Arc<World>, life: &Arc<Life>) -> Self {
        Self { inner, near: Near { world: Arc::clone(world), life: Arc::clone(life) } }
    }
}

#[async_trait]
impl Broker for NearBroker {
    async fn open(&self, address: &QueueAddress) -> Result<Arc<dyn Queue>, QueueError> {
        let inner = self.near.call("open", "", self.inner.open(address)).await?;
        Ok(Arc::new(NearQueue { inner, near: self.near.clone(), kept: Mutex::default() }))
    }
}

#[derive(Debug)]
struct NearQueue {
    inner: Arc<dyn Queue>,
    near: Near,
    /// Locked for single look-ups.
    kept: Mutex<BTreeMap<ReceiptHandle, Kept>>,
}

/// What a worker knows of a delivery at the best.
#[derive(Debug)]
struct Kept {
    until: Instant,
    /// A visibility change is sent and not answered.
    on_the_wire: bool,
}

impl NearQueue {
    fn kept<T>(&self, look: impl FnOnce(&mut BTreeMap<ReceiptHandle, Kept>) -> T) -> T {
        look(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Rule L6: one change at a time, and none after the lease's end.
    fn may_change(&self, handle: &ReceiptHandle) {
        let wrong = self.kept(|kept| {
            let kept = kept.get_mut(handle)?;
            let beside = kept.on_the_wire.then_some("while another is on the wire");
            let late = (Instant::now() > kept.until).then_some("after its lease's end");
            kept.on_the_wire = true;
            beside.or(late)
        });
        if let Some(wrong) = wrong {
            let (who, handle) = (&self.near.life.who, handle.as_str());
            self.near.world.trace.violated(format_args!("rule L6: {who} changes the visibility of {handle} {wrong}"));
        }
    }

    fn changed(&self, handle: &ReceiptHandle, until: Option<Instant>) {
        self.kept(|kept| {
            if let Some(kept) = kept.get_mut(handle) {
                kept.on_the_wire = false;
                if Instant::now() < kept.until {
                    kept.until = until.map_or(kept.until, |until| until.max(kept.until));
                }
            }
        });
    }
}

#[async_trait]
impl Queue for NearQueue {
    async fn receive(&self, ask: &Receive) -> Result<Vec<Received>, QueueError> {
        let received = self.near.call("receive", "", self.inner.receive(ask)).await?;
        let until = Instant::now() + ask.visibility;
        for received in &received {
            self.kept(|kept| kept.insert(received.handle.clone(), Kept { until, on_the_wire: false }));
        }
        Ok(received)
    }

    async fn delete(&self, handle: &ReceiptHandle) -> Result<(), QueueError> {
        self.near.call("delete", handle.as_str(), self.inner.delete(handle)).await
    }

    async fn change_visibility(&self, handle: &ReceiptHandle, timeout: Duration) -> Result<(), QueueError> {
        self.may_change(handle);
        let until = Instant::now() + timeout;
        let what = format!("{} for {timeout:?}", handle.as_str());
        let answer = self.near.call("hide", &what, self.inner.change_visibility(handle, timeout)).await;
        self.changed(handle, answer.is_ok().then_some(until));
        answer
    }

    async fn send(&self, message: &Outgoing) -> Result<(), QueueError> {
        self.near.call("copy", &message.body, self.inner.send(message)).await
    }

    async fn facts(&self) -> Result<QueueFacts, QueueError> {
        self.near.call("facts", "", self.inner.facts()).await
    }
}

#[derive(Debug)]
pub(crate) struct NearGuard {
    inner: FaultyGuard,
    near: Near,
}

impl NearGuard {
    pub(crate) fn new(inner: FaultyGuard, world: &Arc<World>, life: &Arc<Life>) -> Self {
        Self { inner, near: Near { world: Arc::clone(world), life: Arc::clone(life) } }
    }
}

#[async_trait]
impl Guard for NearGuard {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, GuardError> {
        self.near.call("claim", &claim.pk.0, self.inner.claim(claim)).await
    }
    async fn take_over(&self, take_over: &TakeOver) -> Result<Claimed, GuardError> {
        self.near.call("take over", &take_over.claim.pk.0, self.inner.take_over(take_over)).await
    }
    async fn write(&self, pk: &Pk, change: &Change) -> Result<Written, GuardError> {
        self.near.call(change.name(), &pk.0, self.inner.write(pk, change)).await
    }
    async fn confirm_with(&self, commit: &Commit) -> Result<Committed, GuardError> {
        self.near.call("commit", &commit.pk.0, self.inner.confirm_with(commit)).await
    }
    async fn amend(&self, amend: &Amend) -> Result<Written, GuardError> {
        self.near.call("amend", &amend.record.pk.0, self.inner.amend(amend)).await
    }
    async fn read(&self, pk: &Pk) -> Result<Option<Record>, GuardError> {
        self.near.call("read", "", self.inner.read(pk)).await
    }
    async fn probe(&self) -> Result<(), GuardError> {
        self.near.call("probe", "", self.inner.probe()).await
    }
    async fn control(&self, key: &ControlKey) -> Result<Control, GuardError> {
        self.near.call("control", &key.pk().0, self.inner.control(key)).await
    }
    async fn set_control(&self, key: &ControlKey, control: &Control) -> Result<(), GuardError> {
        self.near.call("set control", &key.pk().0, self.inner.set_control(key, control)).await
    }
    async fn facts(&self) -> Result<TableFacts, GuardError> {
        self.near.call("facts", "", self.inner.facts()).await
    }
}

#[derive(Debug)]
pub(crate) struct FarBroker {
    pub(crate) world: Arc<World>,
    pub(crate) life: Arc<Life>,
}

#[async_trait]
impl Broker for FarBroker {
    async fn open(&self, address: &QueueAddress) -> Result<Arc<dyn Queue>, QueueError> {
        let inner = self.world.broker.open(address).await?;
        let address = address.to_string();
        let queue = self.world.broker.queue(address.rsplit(':').next().unwrap_or_default());
        let name = address.rsplit(':').next().unwrap_or_default().to_owned();
        Ok(Arc::new(FarQueue { inner, queue, name, world: Arc::clone(&self.world), life: Arc::clone(&self.life) }))
    }
}

struct FarQueue {
    inner: Arc<dyn Queue>,
    /// The same, to look into.
    queue: Arc<MemoryQueue>,
    name: String,
    world: Arc<World>,
    life: Arc<Life>,
}

impl fmt::Debug for FarQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FarQueue").field(&self.queue).finish()
    }
}

impl FarQueue {
    fn tag(&self, id: &str) -> String {
        self.world.plan.line_named(&self.name).map_or_else(|| id.to_owned(), |line| line.tag(id))
    }

    fn note(&self, what: impl Display) {
        self.world.trace.note(&self.life.who, format_args!("    > {what}"));
    }
}

#[async_trait]
impl Queue for FarQueue {
    async fn receive(&self, ask: &Receive) -> Result<Vec<Received>, QueueError> {
        let received = self.inner.receive(ask).await?;
        for received in &received {
            self.note(format_args!("hands out {} {}", received.handle.as_str(), received.message.body));
            self.world.saw(self.tag(&received.message.id), received.handle.clone());
            self.world.promise.groups.received(&self.tag(&received.message.id));
        }
        Ok(received)
    }

    async fn delete(&self, handle: &ReceiptHandle) -> Result<(), QueueError> {
        let before = self.queue.messages();
        let answer = self.inner.delete(handle).await;
        let after = self.queue.messages();
        for gone in before.iter().filter(|message| !after.iter().any(|left| left.id == message.id)) {
            self.note(format_args!("deletes {} {}", handle.as_str(), gone.body));
            self.world.promise.deleted(&self.tag(&gone.id));
        }
        answer
    }

    async fn change_visibility(&self, handle: &ReceiptHandle, timeout: Duration) -> Result<(), QueueError> {
        let answer = self.inner.change_visibility(handle, timeout).await;
        self.note(format_args!("hides {} for {timeout:?}: {answer:?}", handle.as_str()));
        answer
    }

    async fn send(&self, message: &Outgoing) -> Result<(), QueueError> {
        self.note(format_args!("dead-letters {}", message.body));
        self.inner.send(message).await?;
        self.world.promise.copied(message);
        Ok(())
    }

    async fn facts(&self) -> Result<QueueFacts, QueueError> {
        self.inner.facts().await
    }
}

#[derive(Debug)]
pub(crate) struct FarGuard {
    pub(crate) world: Arc<World>,
    pub(crate) life: Arc<Life>,
}

impl FarGuard {
    /// Carries out a write and shows the promise what it changed. The guard in memory answers in one go, so nothing
    /// comes between the looks before and after.
    async fn shown<T>(&self, pk: &Pk, write: Write<'_>, call: impl Future<Output = T>) -> T {
        let before = self.world.guard.record(pk);
        let answer = call.await;
        if let Some(after) = self.world.guard.record(pk).filter(|after| before.as_ref() != Some(after)) {
            let (status, fence, until) = (after.status.as_str(), after.fence.0, after.lease_until);
            let what = match write {
                Write::Claim => "claims",
                Write::TakeOver(_) => "takes over",
                Write::Change(change) => change.name(),
            };
            let what =
                format_args!("    > {what} {pk}: {status} fence {fence} until {until} failures {}", after.failures);
            self.world.trace.note(&self.life.who, what);
            self.world.promise.wrote(self.life.worker, before.as_ref(), &after, write);
        }
        answer
    }
}

#[async_trait]
impl Guard for FarGuard {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, GuardError> {
        self.shown(&claim.pk, Write::Claim, self.world.guard.claim(claim)).await
    }
    async fn take_over(&self, take_over: &TakeOver) -> Result<Claimed, GuardError> {
        let call = self.world.guard.take_over(take_over);
        self.shown(&take_over.claim.pk, Write::TakeOver(take_over), call).await
    }
    async fn write(&self, pk: &Pk, change: &Change) -> Result<Written, GuardError> {
        self.shown(pk, Write::Change(change), self.world.write(pk, change)).await
    }
    async fn confirm_with(&self, commit: &Commit) -> Result<Committed, GuardError> {
        let call = self.world.guard.confirm_with(commit);
        self.shown(&commit.pk, Write::Change(&commit.confirm), call).await
    }
    async fn amend(&self, amend: &Amend) -> Result<Written, GuardError> {
        self.world.guard.amend(amend).await
    }
    async fn read(&self, pk: &Pk) -> Result<Option<Record>, GuardError> {
        self.world.guard.read(pk).await
    }
    async fn probe(&self) -> Result<(), GuardError> {
        self.world.guard.probe().await
    }
    async fn control(&self, key: &ControlKey) -> Result<Control, GuardError> {
        self.world.guard.control(key).await
    }
    async fn set_control(&self, key: &ControlKey, control: &Control) -> Result<(), GuardError> {
        self.world.guard.set_control(key, control).await
    }
    async fn facts(&self) -> Result<TableFacts, GuardError> {
        self.world.guard.facts().await
    }
}
