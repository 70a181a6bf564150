//! Gathers calls that come close together into one batch, and answers each by its own entry's verdict.
//!
//! Owns the waiting, the entry ids and what is sent once more. A batch is a future that its callers share: whichever of
//! them is polled drives it for all. So there is no task that somebody must end, no caller whose going strands the
//! others, and nothing is sent once the last of them is gone. Must never answer an entry by another's verdict.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use aws_sdk_sqs::types::BatchResultErrorEntry;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared, join_all},
};
use tokio::sync::Notify;

use super::errors::{Fault, Meaning};
use crate::{
    clock::Clock,
    queue::{BATCH, LARGEST_MESSAGE},
};

/// How long a batch stays open, unless its call says otherwise, when no other is under way: long enough for the calls that one event sets off at once,
/// such as a beat's tick, and nothing that a lone call would notice.
const LONE_LINGER: Duration = Duration::from_millis(1);

/// How long a batch stays open while another is under way, which is when more calls are likely to come. About the time
/// of one round trip, so that it costs no more than waiting for the other to return.
const LINGER: Duration = Duration::from_millis(10);

/// Pause before a call is sent once more, doubled each time; the upper half of it is jitter.
const BACKOFF: Duration = Duration::from_millis(200);

/// What came of one entry.
pub(super) type Verdict = Result<(), Fault>;

/// One API call that can be made for several entries at once.
#[async_trait]
pub(super) trait BatchCall: Send + Sync + 'static {
    /// What one caller asks for.
    type Entry: Clone + Send + Sync + 'static;

    /// How often an entry is sent at the most, while its fault is one that passes. One for calls that must not be sent
    /// again when their outcome is unknown.
    const TRIES: u32;

    /// How long a batch stays open: when no other is under way, and while another is.
    const LINGER: (Duration, Duration) = (LONE_LINGER, LINGER);

    /// An entry's share of the batch's size limit, in bytes.
    fn size(entry: &Self::Entry) -> usize;

    /// Sends several. The ids are the positions, as text.
    async fn batch(&self, entries: &[(String, Self::Entry)]) -> Result<Listed, Fault>;

    /// Sends one, by the API call for one.
    async fn single(&self, entry: &Self::Entry) -> Verdict;
}

/// The two lists of a batch's reply. An entry in neither has no verdict.
#[derive(Debug)]
pub(super) struct Listed {
    /// The ids of those that were done.
    pub(super) successful: Vec<String>,
    /// Those that were not, with why.
    pub(super) failed: Vec<BatchResultErrorEntry>,
}

/// The calls of one kind to one queue.
pub(super) struct Batcher<C: BatchCall> {
    shared: Arc<Inner<C>>,
    /// The batch that still takes entries. Held weakly: it belongs to its callers. A lock, for joining is a few straight
    /// lines and never waits.
    open: Mutex<Option<Open<C>>>,
}

struct Inner<C> {
    call: C,
    clock: Clock,
    /// Batches that were sent and have not returned.
    under_way: AtomicUsize,
}

type Batch = BoxFuture<'static, Arc<[Verdict]>>;

struct Open<C: BatchCall> {
    seats: Arc<Seats<C>>,
    batch: WeakShared<Batch>,
}

impl<C: BatchCall> Batcher<C> {
    pub(super) fn new(call: C, clock: Clock) -> Self {
        Self { shared: Arc::new(Inner { call, clock, under_way: AtomicUsize::new(0) }), open: Mutex::new(None) }
    }

    /// Sends `entry`, with others if there are any, and answers what came of it.
    ///
    /// # Cancel safety
    /// Dropping it before the batch is sent takes the entry out. Afterwards the outcome is unknown; the others of the
    /// batch get their answers all the same.
    pub(super) async fn call(&self, entry: C::Entry) -> Verdict {
        let (seat, batch) = self.join(entry);
        let verdicts = batch.await;
        verdicts.get(seat.position).cloned().unwrap_or_else(|| Err(no_verdict()))
    }

    fn join(&self, entry: C::Entry) -> (Seat<C>, Shared<Batch>) {
        let mut open = lock(&self.open);
        if let Some((seats, batch)) = open.as_ref().and_then(|open| Some((&open.seats, open.batch.upgrade()?)))
            && let Some(position) = seats.take(&entry)
        {
            return (Seat { seats: Arc::clone(seats), position }, batch);
        }
        let seats = Arc::new(Seats::with(entry));
        let batch = gather(Arc::clone(&self.shared), Arc::clone(&seats)).boxed().shared();
        *open = batch.downgrade().map(|batch| Open { seats: Arc::clone(&seats), batch });
        (Seat { seats, position: 0 }, batch)
    }
}

impl<C: BatchCall> fmt::Debug for Batcher<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").field("under_way", &self.shared.under_way).finish_non_exhaustive()
    }
}

/// Waits until the batch is full or has lingered, then sends it.
async fn gather<C: BatchCall>(shared: Arc<Inner<C>>, seats: Arc<Seats<C>>) -> Arc<[Verdict]> {
    let linger = if shared.under_way.load(Ordering::Relaxed) == 0 { C::LINGER.0 } else { C::LINGER.1 };
    // Biased: a full batch goes, whether it has lingered or not. What loses is only a wait.
    tokio::select! {
        biased;
        () = seats.full.notified() => {}
        () = tokio::time::sleep(linger) => {}
    }
    let _under_way = UnderWay::count(&shared.under_way);
    carry_out(&shared.call, &shared.clock, &seats.close()).await.into()
}

/// Counts a batch as under way, also if it is dropped.
struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn count(batches: &'a AtomicUsize) -> Self {
        batches.fetch_add(1, Ordering::Relaxed);
        Self(batches)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The entries of one batch.
struct Seats<C: BatchCall> {
    /// `None` once the batch is closed; an entry is `None` when its caller has gone.
    entries: Mutex<Option<Vec<Option<C::Entry>>>>,
    /// Told when nothing more will fit.
    full: Notify,
}

impl<C: BatchCall> Seats<C> {
    fn with(entry: C::Entry) -> Self {
        Self { entries: Mutex::new(Some(vec![Some(entry)])), full: Notify::new() }
    }

    /// The position that `entry` got, if it fits. If it does not, the batch has waited long enough.
    fn take(&self, entry: &C::Entry) -> Option<usize> {
        let mut entries = lock(&self.entries);
        let entries = entries.as_mut()?;
        let size = C::size(entry) + entries.iter().flatten().map(C::size).sum::<usize>();
        let fits = entries.len() < BATCH && size <= LARGEST_MESSAGE;
        if fits {
            entries.push(Some(entry.clone()));
        }
        if !fits || entries.len() == BATCH {
            self.full.notify_one();
        }
        fits.then(|| entries.len() - 1)
    }

    fn close(&self) -> Vec<Option<C::Entry>> {
        lock(&self.entries).take().unwrap_or_default()
    }
}

/// One caller's place in a batch.
struct Seat<C: BatchCall> {
    seats: Arc<Seats<C>>,
    position: usize,
}

/// A caller that goes before the batch is sent takes its entry along: nothing is to be sent for it any more.
impl<C: BatchCall> Drop for Seat<C> {
    fn drop(&mut self) {
        if let Some(entry) = lock(&self.seats.entries).as_mut().and_then(|entries| entries.get_mut(self.position)) {
            *entry = None;
        }
    }
}

/// Sends the entries, and those with a passing fault again, as often as the call allows. Answers by position.
async fn carry_out<C: BatchCall>(call: &C, clock: &Clock, entries: &[Option<C::Entry>]) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = entries.iter().map(|_| Err(no_verdict())).collect();
    for attempt in 1..=C::TRIES {
        let left: Vec<(usize, &C::Entry)> = entries
            .iter()
            .zip(&verdicts)
            .enumerate()
            .filter_map(|(position, (entry, verdict))| match verdict {
                Err(fault) if fault.is_transient() => Some((position, entry.as_ref()?)),
                _ => None,
            })
            .collect();
        if left.is_empty() {
            break;
        }
        if attempt > 1 {
            tokio::time::sleep(backoff(clock, attempt)).await;
        }
        for (position, verdict) in send(call, &left).await {
            if let Some(of_entry) = verdicts.get_mut(position) {
                *of_entry = verdict;
            }
        }
    }
    verdicts
}

/// The pause before the `attempt`-th try of a call that is sent again.
pub(super) fn backoff(clock: &Clock, attempt: u32) -> Duration {
    clock.backoff((BACKOFF, Duration::MAX), attempt.saturating_sub(1))
}

/// Sends the entries once. If the batch as a whole is refused for what may be a single entry's fault, nothing of it was
/// done, and each is sent by itself, so that the bad one harms no other.
async fn send<C: BatchCall>(call: &C, entries: &[(usize, &C::Entry)]) -> Vec<(usize, Verdict)> {
    if entries.len() > 1 {
        let named: Vec<_> = entries.iter().map(|&(position, entry)| (position.to_string(), entry.clone())).collect();
        match call.batch(&named).await {
            Ok(listed) => return entries.iter().map(|&(position, _)| (position, listed.verdict(position))).collect(),
            Err(fault) if fault.may_be_one_entrys() => {
                tracing::debug!(said = fault.said, "a batch was refused as a whole; sending its entries one by one");
            }
            Err(fault) => return entries.iter().map(|&(position, _)| (position, Err(fault.clone()))).collect(),
        }
    }
    join_all(entries.iter().map(|&(position, entry)| async move { (position, call.single(entry).await) })).await
}

impl Listed {
    fn verdict(&self, position: usize) -> Verdict {
        let id = position.to_string();
        if let Some(entry) = self.failed.iter().find(|entry| entry.id() == id) {
            return Err(entry.into());
        }
        if self.successful.contains(&id) { Ok(()) } else { Err(no_verdict()) }
    }
}

fn no_verdict() -> Fault {
    Fault::new(Meaning::NoAnswer, "the reply to the batch does not list the entry")
}

/// Nothing panics while a lock is held, and what it guards is whole at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
