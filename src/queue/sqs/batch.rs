//! Gathers calls that come close together into one batch, and answers each by its own entry's verdict.
//!
//! Owns the waiting, the entry ids and what is sent once more. A batch is a future that its callers share: whichever of
//! them is polled drives it for all. So there is no task that somebody must end, no caller whose going strands the
//! others, and nothing is sent once the last of them is gone. An entry with its final verdict is answered at once, while
//! others are still tried again. Must never answer an entry by another's verdict.

use std::{
    fmt,
    pin::pin,
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
use tokio::sync::{Notify, oneshot};

use super::errors::{Fault, Meaning};
use crate::{
    clock::Clock,
    queue::{BATCH, LARGEST_MESSAGE},
};

/// How long a batch stays open, unless its call says otherwise, when no other is under way: long enough for the calls that
/// one event sets off at once, such as a beat's tick, and nothing that a lone call would notice.
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

/// Ends when all of its entries are answered.
type Batch = BoxFuture<'static, ()>;

struct Open<C: BatchCall> {
    seats: Arc<Seats<C>>,
    batch: WeakShared<Batch>,
}

impl<C: BatchCall> Batcher<C> {
    pub(super) fn new(call: C, clock: Clock) -> Self {
        Self { shared: Arc::new(Inner { call, clock, under_way: AtomicUsize::new(0) }), open: Mutex::new(None) }
    }

    /// Sends `entry`, with others if there are any, and answers what came of it as soon as that will not change.
    ///
    /// # Cancel safety
    /// Dropping it before the batch is sent takes the entry out. Afterwards the outcome is unknown, and the entry is not
    /// sent again; the others of the batch get their answers all the same.
    pub(super) async fn call(&self, entry: C::Entry) -> Verdict {
        let (waiting, mut answer) = Waiting::new(entry);
        let (_seat, batch) = self.join(waiting);
        // Biased: an answer that is there needs no batch any more. What loses is only our share in driving the batch,
        // which those who still wait for theirs go on with.
        let heard = tokio::select! {
            biased;
            heard = &mut answer => heard.ok(),
            () = batch => answer.try_recv().ok(),
        };
        heard.unwrap_or_else(|| Err(no_verdict()))
    }

    fn join(&self, waiting: Waiting<C::Entry>) -> (Seat<C>, Shared<Batch>) {
        let mut open = lock(&self.open);
        let waiting = match open.as_ref().and_then(|open| Some((&open.seats, open.batch.upgrade()?))) {
            None => waiting,
            Some((seats, batch)) => match seats.take(waiting) {
                Ok(position) => return (Seat { seats: Arc::clone(seats), position }, batch),
                Err(waiting) => waiting,
            },
        };
        let seats = Arc::new(Seats::with(waiting));
        let batch = drive(Arc::clone(&self.shared), Arc::clone(&seats)).boxed().shared();
        *open = batch.downgrade().map(|batch| Open { seats: Arc::clone(&seats), batch });
        (Seat { seats, position: 0 }, batch)
    }
}

impl<C: BatchCall> fmt::Debug for Batcher<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").field("under_way", &self.shared.under_way).finish_non_exhaustive()
    }
}

/// Sends a batch, and is polled once more whenever a caller leaves: the wake that it left on may have been the one that
/// every other caller waits for.
async fn drive<C: BatchCall>(shared: Arc<Inner<C>>, seats: Arc<Seats<C>>) {
    let mut work = pin!(gather(shared, &seats));
    loop {
        // Biased, for it does not matter which is looked at first, and chance must not decide.
        tokio::select! {
            biased;
            () = &mut work => return,
            () = seats.left.notified() => {}
        }
    }
}

/// Waits until the batch is full or has lingered, then sends it.
async fn gather<C: BatchCall>(shared: Arc<Inner<C>>, seats: &Seats<C>) {
    let linger = if shared.under_way.load(Ordering::Relaxed) == 0 { C::LINGER.0 } else { C::LINGER.1 };
    // Biased: a full batch goes, whether it has lingered or not. What loses is only a wait.
    tokio::select! {
        biased;
        () = seats.full.notified() => {}
        () = tokio::time::sleep(linger) => {}
    }
    let _under_way = UnderWay::count(&shared.under_way);
    carry_out(&shared.call, &shared.clock, seats.close()).await;
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

/// One entry, and the caller that waits for what comes of it.
struct Waiting<E> {
    entry: E,
    /// `None` once it is answered.
    answer: Option<oneshot::Sender<Verdict>>,
}

impl<E> Waiting<E> {
    fn new(entry: E) -> (Self, oneshot::Receiver<Verdict>) {
        let (answer, heard) = oneshot::channel();
        (Self { entry, answer: Some(answer) }, heard)
    }

    /// Answers, unless the fault is one that passes and the entry can be sent again.
    fn hear(&mut self, verdict: Verdict, tries_left: u32) {
        let is_final = tries_left == 0 || !verdict.as_ref().is_err_and(Fault::is_transient);
        if is_final && let Some(answer) = self.answer.take() {
            // Refused where the caller has gone: then nobody asks.
            let _ = answer.send(verdict);
        }
    }

    /// Whether it is to be sent again: it has no answer yet, and somebody waits for one.
    fn waits(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| !answer.is_closed())
    }
}

type Row<E> = Vec<Option<Waiting<E>>>;

/// The entries of one batch.
struct Seats<C: BatchCall> {
    /// `None` once the batch is closed; an entry is `None` when its caller has gone.
    entries: Mutex<Option<Row<C::Entry>>>,
    /// Told when nothing more will fit.
    full: Notify,
    /// Told when a caller has left.
    left: Notify,
}

impl<C: BatchCall> Seats<C> {
    fn with(waiting: Waiting<C::Entry>) -> Self {
        Self { entries: Mutex::new(Some(vec![Some(waiting)])), full: Notify::new(), left: Notify::new() }
    }

    /// The position that an entry got, or the entry back if it does not fit: then the batch has waited long enough.
    fn take(&self, waiting: Waiting<C::Entry>) -> Result<usize, Waiting<C::Entry>> {
        let mut entries = lock(&self.entries);
        let Some(entries) = entries.as_mut() else { return Err(waiting) };
        let taken = entries.iter().flatten().map(|waiting| C::size(&waiting.entry)).sum::<usize>();
        if entries.len() == BATCH || taken + C::size(&waiting.entry) > LARGEST_MESSAGE {
            self.full.notify_one();
            return Err(waiting);
        }
        entries.push(Some(waiting));
        if entries.len() == BATCH {
            self.full.notify_one();
        }
        Ok(entries.len() - 1)
    }

    /// What is left to be sent, each with its position.
    fn close(&self) -> Vec<(usize, Waiting<C::Entry>)> {
        let entries = lock(&self.entries).take().unwrap_or_default();
        entries.into_iter().enumerate().filter_map(|(position, waiting)| Some((position, waiting?))).collect()
    }
}

/// One caller's place in a batch.
struct Seat<C: BatchCall> {
    seats: Arc<Seats<C>>,
    position: usize,
}

/// A caller that goes before the batch is sent takes its entry along: nothing is to be sent for it any more. Whenever it
/// goes, it has let go of the batch by then, and somebody else must drive it.
impl<C: BatchCall> Drop for Seat<C> {
    fn drop(&mut self) {
        if let Some(entry) = lock(&self.seats.entries).as_mut().and_then(|entries| entries.get_mut(self.position)) {
            *entry = None;
        }
        self.seats.left.notify_one();
    }
}

/// Sends the entries, and those with a passing fault again, as often as the call allows.
async fn carry_out<C: BatchCall>(call: &C, clock: &Clock, mut left: Vec<(usize, Waiting<C::Entry>)>) {
    for attempt in 1..=C::TRIES {
        if attempt > 1 && !left.is_empty() {
            tokio::time::sleep(backoff(clock, attempt)).await;
            left.retain(|(_, waiting)| waiting.waits());
        }
        if left.is_empty() {
            break;
        }
        send(call, &mut left, C::TRIES - attempt).await;
        left.retain(|(_, waiting)| waiting.waits());
    }
}

/// The pause before the `attempt`-th try of a call that is sent again.
pub(super) fn backoff(clock: &Clock, attempt: u32) -> Duration {
    clock.backoff((BACKOFF, Duration::MAX), attempt.saturating_sub(1))
}

/// Sends the entries once. If the batch as a whole is refused for what may be a single entry's fault, nothing of it was
/// done, and each is sent by itself, so that the bad one harms no other.
async fn send<C: BatchCall>(call: &C, entries: &mut [(usize, Waiting<C::Entry>)], tries_left: u32) {
    if entries.len() > 1 {
        let named: Vec<_> =
            entries.iter().map(|(position, waiting)| (position.to_string(), waiting.entry.clone())).collect();
        match call.batch(&named).await {
            Ok(listed) => {
                entries.iter_mut().for_each(|(position, of)| of.hear(listed.verdict(*position), tries_left));
                return;
            }
            Err(fault) if fault.may_be_one_entrys() => {
                tracing::debug!(said = fault.said, "a batch was refused as a whole; sending its entries one by one");
            }
            Err(fault) => {
                entries.iter_mut().for_each(|(_, waiting)| waiting.hear(Err(fault.clone()), tries_left));
                return;
            }
        }
    }
    let singles = entries.iter_mut().map(|(_, waiting)| async move {
        let verdict = call.single(&waiting.entry).await;
        waiting.hear(verdict, tries_left);
    });
    join_all(singles).await;
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
