//! What a worker does, gathered for those who ask while it does it.
//!
//! Reads what is there and changes nothing of it. Of the past it keeps samples (`history`), which cost the same whether
//! somebody looks or not.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::{
    clock::{Clock, millis},
    config::OutagePolicy,
    guard::outage::{Circuit, Told},
    status::{DepthStatus, History as HistoryStatus, Overview, Pause, Phase, QueueStatus, Status},
    telemetry::{Calls, Gauge, Telemetry},
};

use super::{
    hall::Hall,
    history::{Cost, Costs, History, STEP},
    poll::RETRY,
    pulse::Pulse,
};

mod overview;

/// What is known of a worker, from its start on.
pub(crate) struct Board {
    /// Held for single look-ups and changes, and while somebody is told.
    known: Mutex<Known>,
    made: Instant,
    viewers: AtomicUsize,
    /// Somebody looks, after nobody did.
    looked_at: Notify,
    /// It is in another phase now.
    moved_on: Notify,
}

#[derive(Default)]
struct Known {
    phase: Phase,
    problems: Vec<String>,
    queues: Vec<History>,
    costs: Costs,
    running: Option<Running>,
    gone_by: Option<Instant>,
    depths: BTreeMap<String, DepthStatus>,
    told_at: Option<SocketAddr>,
}

/// What there is of a worker once its checks have passed.
pub(super) struct Running {
    pub(super) worker: String,
    pub(super) clock: Clock,
    pub(super) pulse: Arc<Pulse>,
    pub(super) store: Arc<Circuit>,
    pub(super) calls: Calls,
    gauges: Gauges,
}

struct Gauges {
    ready: Gauge,
    calls_per_message: Gauge,
    units_per_message: Gauge,
}

impl Running {
    pub(super) fn new(
        (worker, clock): (String, Clock),
        (pulse, store): (Arc<Pulse>, Arc<Circuit>),
        (calls, telemetry): (Calls, &Telemetry),
    ) -> Self {
        let [ready, calls_per_message, units_per_message] = telemetry.worker_gauges();
        Self { worker, clock, pulse, store, calls, gauges: Gauges { ready, calls_per_message, units_per_message } }
    }
}

/// Between two looks into the queues: SQS's own numbers are some seconds old.
const LOOK: Duration = Duration::from_secs(10);

/// The process stands still for so long that it should be killed.
const HANGS: Duration = Duration::from_secs(30);

impl Default for Board {
    fn default() -> Self {
        let (viewers, looked_at, moved_on) = (AtomicUsize::new(0), Notify::new(), Notify::new());
        Self { known: Mutex::default(), made: Instant::now(), viewers, looked_at, moved_on }
    }
}

impl Board {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn enters(&self, phase: Phase) {
        self.known().phase = phase;
        self.moved_on.notify_waiters();
    }

    /// How it is can be asked there.
    #[cfg(feature = "serve")]
    pub(super) fn told_at(&self, address: SocketAddr) {
        self.known().told_at = Some(address);
    }

    /// From now on it drains, and is gone by then.
    pub(super) fn drains(&self, gone_by: Instant) {
        let mut known = self.known();
        known.phase = Phase::Draining;
        known.gone_by = Some(gone_by);
        drop(known);
        self.moved_on.notify_waiters();
    }

    /// What keeps the worker, or some of its queues, from starting.
    pub(super) fn problems(&self, problems: Vec<String>) {
        self.known().problems = problems;
    }

    pub(super) fn runs(&self, running: Running) {
        self.known().running = Some(running);
    }

    pub(super) fn works_on(&self, hall: Arc<Hall>) {
        self.known().queues.push(History::of(hall));
    }

    /// For how long the oldest handler of all queues has run.
    pub(super) fn oldest_run(&self) -> Option<Duration> {
        self.known().queues.iter().filter_map(|queue| queue.hall.jobs.watch.oldest()).max()
    }

    /// Takes samples, for ever.
    pub(super) async fn sample(&self) {
        loop {
            sleep(STEP).await;
            let is_ready = self.status().is_ready();
            let mut known = self.known();
            known.queues.iter_mut().for_each(History::sample);
            let cost = known.cost();
            known.costs.sample(cost);
            let per_message = known.costs.per_message(cost);
            if let Some(Running { gauges, .. }) = &known.running {
                gauges.ready.set(f64::from(u8::from(is_ready)));
                if let Some((calls, units)) = per_message {
                    gauges.calls_per_message.set(calls);
                    gauges.units_per_message.set(units);
                }
            }
        }
    }

    /// Asks SQS how much there is in each queue, now and then while somebody looks, for ever.
    pub(super) async fn look_into_queues(&self) {
        loop {
            while self.viewers.load(Ordering::Relaxed) == 0 {
                self.known().depths.clear();
                self.looked_at.notified().await;
            }
            let halls: Vec<_> = self.known().queues.iter().map(|queue| Arc::clone(&queue.hall)).collect();
            for hall in halls {
                // What cannot be seen is not told; nobody has to act on that.
                let depth = hall.desk.queue.depth().await.ok();
                let mut known = self.known();
                let name = hall.jobs.name.to_string();
                match depth {
                    Some(depth) => {
                        let (visible, in_flight, delayed) = (depth.visible, depth.in_flight, depth.delayed);
                        known.depths.insert(name, DepthStatus { visible, in_flight, delayed });
                    }
                    None => drop(known.depths.remove(&name)),
                }
            }
            sleep(LOOK).await;
        }
    }
}

impl Known {
    fn cost(&self) -> Cost {
        let (calls, units) = self.running.as_ref().map_or((0, 0), |running| running.calls.totals());
        Cost { calls, units, settled: self.queues.iter().map(History::settled).sum() }
    }
}

impl Board {
    fn status(&self) -> Status {
        let known = self.known();
        let queues = known.queues.iter().map(|queue| (queue.hall.jobs.name.to_string(), of(&queue.hall)));
        let pulse = known.running.as_ref().map(|running| &running.pulse);
        Status {
            phase: known.phase,
            problems: known.problems.clone(),
            stalled_ms: pulse.and_then(|pulse| pulse.worst()).map(millis),
            hangs: pulse.is_some_and(|pulse| pulse.stands_still_for() > HANGS),
            queues: queues.collect::<BTreeMap<_, _>>(),
        }
    }
}

/// Tells how a worker is, at any time from its making on. Clones are of the same worker.
#[derive(Clone)]
pub struct Health(pub(super) Arc<Board>);

impl Health {
    /// How it is now, in short: what probes ask.
    #[must_use]
    pub fn status(&self) -> Status {
        self.0.status()
    }

    /// How it is now, with all that is known: what people ask.
    #[must_use]
    pub fn overview(&self) -> Overview {
        self.0.overview()
    }

    /// How it was in the last quarter of an hour.
    #[must_use]
    pub fn history(&self) -> HistoryStatus {
        self.0.history()
    }

    /// Where it can be asked, once that is open: [`HTTP_ADDR`](crate::config::Config::http_addr) with the port that was had.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.known().told_at
    }

    /// Waits until it is in another phase: from its start to work, from work to its drain. Cancel safe; what has changed
    /// before is not told.
    pub async fn moves_on(&self) {
        self.0.moved_on.notified().await;
    }

    /// Somebody looks, until what comes back is dropped: meanwhile the worker asks SQS every ten seconds how much there is in
    /// its queues, at one call for each.
    #[must_use]
    pub fn looks(&self) -> Viewer {
        if self.0.viewers.fetch_add(1, Ordering::Relaxed) == 0 {
            self.0.looked_at.notify_one();
        }
        Viewer(Arc::clone(&self.0))
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Health").field(&self.status()).finish()
    }
}

/// Somebody who looks at a worker.
pub struct Viewer(Arc<Board>);

impl Drop for Viewer {
    fn drop(&mut self) {
        self.0.viewers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Viewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Viewer")
    }
}

fn of(hall: &Hall) -> QueueStatus {
    let open = hall.jobs.guard.is_some() && hall.jobs.config.guard_outage == OutagePolicy::Open;
    QueueStatus {
        guard: hall.jobs.config.guard.to_string(),
        guard_outage: hall.jobs.config.guard_outage.to_string(),
        slots: hall.jobs.config.concurrency,
        free_slots: hall.slots.free(),
        visibility_timeout: hall.jobs.visibility.in_force().as_secs(),
        handler_p99_ms: hall.jobs.visibility.p99().map(millis),
        polled_ms_ago: hall.polls.back_since().map(millis),
        polls_come_back: hall.polls.come_back(),
        pauses: told(hall, Circuit::is_open).chain(failing(hall)).collect(),
        trials: told(hall, Circuit::is_trial).collect(),
        unguarded: open.then(|| hall.jobs.store.told().map(pause)).flatten(),
    }
}

/// What the queue's circuits say that are in that state.
fn told(hall: &Hall, state: fn(&Circuit) -> bool) -> impl Iterator<Item = Pause> {
    hall.circuits().filter(move |circuit| state(circuit)).filter_map(Circuit::told).map(pause)
}

/// Receives that fail are no pause on purpose, but bring as little.
fn failing(hall: &Hall) -> Option<Pause> {
    let ends = format!("asked again by itself, at least every {} s", RETRY.1.as_secs());
    Some(Pause { what: format!("receiving from {}", hall.jobs.name), cause: hall.polls.failure()?, ends })
}

fn pause(Told { what, cause, ends }: Told) -> Pause {
    Pause { what, cause, ends }
}
