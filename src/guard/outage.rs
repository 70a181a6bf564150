//! The circuit: one way to notice that a whole store or handler is away, to pause, and to find out that it is back.
//!
//! A circuit opens at an outage, stays open while a probe fails, and every pause of it ends by itself. Three things use
//! it: the guard's store, the handlers of a queue, and a queue that denies deletes. It never looks at messages.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::clock::Clock;

pub(crate) use absences::Absences;

use super::{
    Change, Claim, Claimed, Control, ControlKey, Guard, GuardError, Pk, Record, Severity, TableFacts, TakeOver, Written,
};

mod absences;

/// Calls in a row that came to nothing, before it is an outage (rule G8): a single one says nothing about the others.
const UNANSWERED_IN_A_ROW: u32 = 3;

/// The first pause before a probe, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The longest pause that somebody's own word can ask for: what is away for longer is looked for meanwhile.
pub(crate) const LONGEST_WORD: Duration = Duration::from_secs(15 * 60);

/// How long after an outage finished work may keep new work waiting: longer than a call that the outage swallowed.
const CATCH_UP: Duration = Duration::from_secs(10);

/// The longest pause between two tries of a write meanwhile.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(500);

/// The state of one thing that can be away.
#[derive(Debug)]
pub(crate) struct Circuit {
    what: String,
    clock: Clock,
    /// Locked for single looks and changes, never across an await.
    state: Mutex<State>,
    /// Wakes those who wait for a change in the order in which they came; a `watch` channel wakes them in a random one,
    /// and a simulated run must replay.
    changed: Notify,
}

#[derive(Debug, Clone, Copy)]
struct State {
    phase: Phase,
    unanswered: u32,
    /// Times in a row that it opened without a success in between.
    openings: u32,
    /// Finished work that is not yet written down.
    unwritten: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Closed,
    Open {
        probe_at: Instant,
    },
    /// A probe passed. What is finished is written before anything new is taken (rule L1).
    CatchingUp,
    /// A probe passed, but only real work can show that it is back: a little is let through.
    Trial,
}

impl Circuit {
    pub(crate) fn new(what: impl Into<String>, clock: Clock) -> Self {
        let state = State { phase: Phase::Closed, unanswered: 0, openings: 0, unwritten: 0 };
        Self { what: what.into(), clock, state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_waiters();
    }

    /// Waits for a state. Cancel safe.
    async fn until(&self, is_it: impl Fn(&State) -> bool) {
        loop {
            // Listens before it looks, so that no change falls between the two.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if is_it(&self.state()) {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state().phase.is_open()
    }

    pub(crate) fn is_trial(&self) -> bool {
        self.state().phase == Phase::Trial
    }

    /// It works.
    pub(crate) fn succeeded(&self) {
        let before = self.state().phase;
        // An open circuit is closed by its probe alone: a success may be that of a call from before the outage.
        if !before.is_open() {
            self.close(before);
        }
    }

    fn close(&self, before: Phase) {
        self.change(|state| *state = State { phase: Phase::Closed, unanswered: 0, openings: 0, ..*state });
        if before != Phase::Closed {
            tracing::info!(circuit = self.what, "back; going on");
        }
    }

    /// A call came to nothing; several in a row are an outage.
    pub(crate) fn unanswered(&self, cause: &str) {
        let mut outage = false;
        self.change(|state| {
            state.unanswered += 1;
            outage = state.unanswered >= UNANSWERED_IN_A_ROW;
        });
        if outage {
            self.open(cause, None);
        }
    }

    /// It is away. `retry_after` is its own word on when to try again, believed up to [`LONGEST_WORD`].
    pub(crate) fn open(&self, cause: &str, retry_after: Option<Duration>) {
        let mut opened = None;
        self.change(|state| {
            if matches!(state.phase, Phase::Open { .. }) {
                return;
            }
            let pause =
                self.clock.backoff(PAUSE, state.openings + 1).max(retry_after.unwrap_or_default().min(LONGEST_WORD));
            state.openings += 1;
            state.phase = Phase::Open { probe_at: Instant::now() + pause };
            opened = Some(pause);
        });
        if let Some(pause) = opened {
            tracing::error!(
                circuit = self.what,
                cause,
                "away: no new messages are received; a probe in {} ms and from then on ends this",
                pause.as_millis()
            );
        }
    }

    /// Waits until it is not open. Cancel safe.
    pub(crate) async fn closed(&self) {
        self.until(|state| !state.phase.is_open()).await;
    }

    /// Waits for a pause before a write is tried again, but no longer than to the probe that ends an outage. Cancel safe.
    pub(crate) async fn pause_or_probe(&self, pause: Duration) {
        let phase = self.state().phase;
        match phase {
            Phase::Open { .. } => {
                let probed = self.until(|state| !matches!(state.phase, Phase::Open { .. }));
                let _ = timeout(pause, probed).await;
            }
            Phase::CatchingUp => sleep(pause.min(CATCH_UP_PAUSE)).await,
            Phase::Closed | Phase::Trial => sleep(pause).await,
        }
    }

    /// Says that finished work is being written, until what comes back is dropped.
    pub(crate) fn unwritten(&self) -> Unwritten<'_> {
        self.change(|state| state.unwritten += 1);
        Unwritten(self)
    }

    /// Lets finished work be written first, and then closes; not if it has opened again meanwhile.
    async fn catch_up(&self) {
        self.change(|state| *state = State { phase: Phase::CatchingUp, unanswered: 0, ..*state });
        let _ = timeout(CATCH_UP, self.until(|state| state.unwritten == 0)).await;
        let phase = self.state().phase;
        if phase == Phase::CatchingUp {
            self.close(phase);
        }
    }

    /// Waits until it is not on trial. Cancel safe.
    pub(crate) async fn tried(&self) {
        self.until(|state| state.phase != Phase::Trial).await;
    }

    /// Probes whenever it is open, for ever. `proves` says whether a passed probe proves that work will pass; else the
    /// circuit is on trial first.
    pub(crate) async fn tend<P, F>(&self, proves: bool, probe: P)
    where
        P: Fn() -> F,
        F: Future<Output = Result<(), String>>,
    {
        loop {
            self.until(|state| matches!(state.phase, Phase::Open { .. })).await;
            let phase = self.state().phase;
            let Phase::Open { probe_at } = phase else { continue };
            sleep_until(probe_at).await;
            match probe().await {
                Ok(()) if proves => self.catch_up().await,
                Ok(()) => {
                    tracing::info!(circuit = self.what, "the probe passed; letting a little through");
                    self.change(|state| state.phase = Phase::Trial);
                }
                Err(cause) => {
                    tracing::warn!(circuit = self.what, cause, "still away");
                    self.change(|state| {
                        state.phase =
                            Phase::Open { probe_at: Instant::now() + self.clock.backoff(PAUSE, state.openings + 1) };
                        state.openings += 1;
                    });
                }
            }
        }
    }
}

impl Phase {
    fn is_open(self) -> bool {
        matches!(self, Self::Open { .. } | Self::CatchingUp)
    }
}

/// Finished work that is being written.
#[derive(Debug)]
pub(crate) struct Unwritten<'a>(&'a Circuit);

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.unwritten -= 1);
    }
}

/// A guard whose answers are told to a circuit.
#[derive(Debug)]
pub(crate) struct WatchedGuard {
    guard: Arc<dyn Guard>,
    circuit: Arc<Circuit>,
}

impl WatchedGuard {
    pub(crate) fn new(guard: Arc<dyn Guard>, circuit: Arc<Circuit>) -> Self {
        Self { guard, circuit }
    }

    fn told<T>(&self, answer: Result<T, GuardError>) -> Result<T, GuardError> {
        match &answer {
            Ok(_) => self.circuit.succeeded(),
            Err(error) => match error.severity() {
                Severity::ThisKey => {}
                Severity::Unanswered => self.circuit.unanswered(&error.to_string()),
                Severity::Outage => self.circuit.open(&error.to_string(), None),
            },
        }
        answer
    }
}

#[async_trait]
impl Guard for WatchedGuard {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, GuardError> {
        self.told(self.guard.claim(claim).await)
    }

    async fn take_over(&self, take_over: &TakeOver) -> Result<Claimed, GuardError> {
        self.told(self.guard.take_over(take_over).await)
    }

    async fn write(&self, pk: &Pk, change: &Change) -> Result<Written, GuardError> {
        self.told(self.guard.write(pk, change).await)
    }

    async fn read(&self, pk: &Pk) -> Result<Option<Record>, GuardError> {
        self.told(self.guard.read(pk).await)
    }

    async fn probe(&self) -> Result<(), GuardError> {
        self.guard.probe().await
    }

    /// Tells the circuit nothing, as what follows: a look at controls proves nothing of writes, neither when it succeeds
    /// nor when it is denied, and goes on all the time.
    async fn control(&self, key: &ControlKey) -> Result<Control, GuardError> {
        self.guard.control(key).await
    }

    async fn set_control(&self, key: &ControlKey, control: &Control) -> Result<(), GuardError> {
        self.guard.set_control(key, control).await
    }

    async fn facts(&self) -> Result<TableFacts, GuardError> {
        self.guard.facts().await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::timeout;

    use super::*;
    use crate::testing::{Failure, Fault, Faults, FaultyGuard, MemoryGuard};

    fn circuit() -> Circuit {
        Circuit::new("store", Clock::simulated(1, 0))
    }

    #[tokio::test(start_paused = true)]
    async fn g8_several_unanswered_in_a_row_are_an_outage_and_a_success_between_them_is_none() {
        let circuit = circuit();
        for _ in 0..2 {
            circuit.unanswered("timeout");
        }
        circuit.succeeded();
        circuit.unanswered("timeout");
        assert!(!circuit.is_open());
        circuit.unanswered("timeout");
        circuit.unanswered("timeout");
        assert!(circuit.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn g8_only_a_probe_closes_an_open_circuit_and_pauses_between_probes_grow() {
        let circuit = circuit();
        circuit.open("denied", None);
        circuit.succeeded();
        assert!(circuit.is_open());
        let probes = Cell::new(0);
        let start = Instant::now();
        let tend = circuit.tend(true, || {
            probes.set(probes.get() + 1);
            let answer = if start.elapsed() < Duration::from_secs(120) { Err("still".into()) } else { Ok(()) };
            async { answer }
        });
        let back = timeout(Duration::from_secs(200), async {
            tokio::select! { biased; () = tend => {}, () = circuit.closed() => {} }
        });
        assert!(back.await.is_ok());
        assert!((6..=14).contains(&probes.get()), "{}", probes.get());
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_proves_nothing_puts_the_circuit_on_trial_until_work_succeeds() {
        let circuit = circuit();
        circuit.open("503", Some(Duration::from_secs(60)));
        let start = Instant::now();
        let tend = circuit.tend(false, || async { Ok(()) });
        tokio::select! { biased; () = tend => {}, () = circuit.closed() => {} }
        assert_eq!(start.elapsed().as_secs(), 60, "Retry-After is honoured");
        assert!(circuit.is_trial());
        circuit.succeeded();
        assert!(!circuit.is_trial() && !circuit.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn g8_looks_at_what_operators_say_neither_open_the_circuit_nor_count_as_success() {
        let faults = Faults::default();
        faults.decide_with(|call| match call.operation {
            "read" => Some(Fault::Fail(Failure::NoAnswer)),
            "set_control" => None,
            _ => Some(Fault::Fail(Failure::Denied)),
        });
        let circuit = Arc::new(circuit());
        let table = FaultyGuard::new(Arc::new(MemoryGuard::default()), faults);
        let guard = WatchedGuard::new(Arc::new(table), Arc::clone(&circuit));
        let (key, pk) = (ControlKey::new(None, "q"), Pk("k".into()));
        assert!(matches!(guard.control(&key).await, Err(GuardError::Denied(_))));
        assert!(!circuit.is_open());
        for _ in 0..UNANSWERED_IN_A_ROW {
            assert!(guard.set_control(&key, &Control::default()).await.is_ok());
            assert!(guard.read(&pk).await.is_err());
        }
        assert!(circuit.is_open());
    }
}
