//! One thing that can be away, and the pause that follows from it.
//!
//! A circuit opens at an outage, stays open while a probe fails, and says how it ends. It stands for the guard's store, the
//! handlers of a queue, bodies in S3, a queue that denies deletes, a burst of permanent failures, and an operator's word.
//! It never looks at messages.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    clock::Clock,
    seldom::{Seldom, seldom},
};

pub(crate) use ends::{Ends, Told};

#[cfg(feature = "lambda")]
mod due;
mod ends;

/// Calls in a row that came to nothing, before it is an outage (rule G8): a single one says nothing about the others.
pub(super) const UNANSWERED_IN_A_ROW: u32 = 3;

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
    ends: Ends,
    clock: Clock,
    /// Locked for single looks and changes, never across an await.
    state: Mutex<State>,
    /// How often it has opened since the start.
    opened: AtomicU64,
    /// Wakes those who wait for a change in the order in which they came; a `watch` channel wakes them in a random one,
    /// and a simulated run must replay.
    changed: Notify,
    /// What its being away would log again and again.
    pub(crate) seldom: Seldom,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// What opened it.
    cause: String,
    unanswered: u32,
    /// Times in a row that it opened without a success in between.
    openings: u32,
    /// Finished work that is not yet written down.
    unwritten: usize,
    /// That it is away was logged, and not only at `debug`.
    is_told: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
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
    pub(crate) fn new(what: impl Into<String>, ends: Ends, clock: Clock) -> Self {
        Self {
            what: what.into(),
            ends,
            clock,
            state: Mutex::default(),
            opened: AtomicU64::new(0),
            changed: Notify::new(),
            seldom: Seldom::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        let before = state.phase;
        change(&mut state);
        // Phases are waited for, and while it catches up, that all is written. Each success of work comes through here, and
        // must not wake those who wait for an outage.
        let is_news = state.phase != before || state.phase == Phase::CatchingUp;
        drop(state);
        if is_news {
            self.changed.notify_waiters();
        }
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

    /// Neither open nor on trial.
    pub(crate) fn is_closed(&self) -> bool {
        self.state().phase == Phase::Closed
    }

    pub(crate) fn is_trial(&self) -> bool {
        self.state().phase == Phase::Trial
    }

    /// How often it has opened since the start; a trial that failed is the same outage.
    pub(crate) fn times_opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// What it pauses, why, and how that ends; `None` while it is closed.
    pub(crate) fn told(&self) -> Option<Told> {
        let state = self.state();
        let ends = match state.phase {
            Phase::Closed => return None,
            Phase::Open { .. } if self.ends == Ends::Resume => self.ends.told().to_owned(),
            Phase::Open { probe_at } => {
                let left = probe_at.saturating_duration_since(Instant::now());
                format!("a probe in {} s; {}", left.as_secs(), self.ends.told())
            }
            Phase::CatchingUp => "it is back: finished work is written first, for some seconds".to_owned(),
            Phase::Trial => format!("a probe has passed; {}", self.ends.told()),
        };
        Some(Told { what: self.what.clone(), cause: state.cause.clone(), ends })
    }

    /// It works.
    pub(crate) fn succeeded(&self) {
        // An open circuit is closed by its probe alone: a success may be that of a call from before the outage.
        self.close(|phase| !phase.is_open());
    }

    /// Closes it from a phase in which that may be: one that it may have left a moment ago.
    fn close(&self, may: impl FnOnce(Phase) -> bool) {
        let (mut before, mut is_told) = (Phase::Closed, false);
        self.change(|state| {
            if may(state.phase) {
                (before, is_told) = (state.phase, state.is_told);
                *state = State { unwritten: state.unwritten, ..State::default() };
            }
        });
        match (before, is_told) {
            (Phase::Closed, _) => {}
            // As seldom as what it ends.
            (_, true) => tracing::info!(circuit = self.what, "back; going on"),
            (_, false) => tracing::debug!(circuit = self.what, "back; going on"),
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
            if state.phase == Phase::Closed {
                self.opened.fetch_add(1, Ordering::Relaxed);
            }
            let pause =
                self.clock.backoff(PAUSE, state.openings + 1).max(retry_after.unwrap_or_default().min(LONGEST_WORD));
            state.openings += 1;
            state.phase = Phase::Open { probe_at: Instant::now() + pause };
            cause.clone_into(&mut state.cause);
            opened = Some(pause);
        });
        let Some(pause) = opened else { return };
        let (circuit, ends, pause) = (&self.what, self.ends.told(), pause.as_millis());
        if self.ends == Ends::Resume {
            tracing::warn!(circuit, cause, "paused: no new messages are received; {ends}");
            return self.is_told();
        }
        // What comes and goes all the time is told now and then.
        if seldom!(
            self.seldom,
            "away",
            error,
            circuit,
            cause,
            "away: no new messages are received; a probe in {pause} ms; {ends}"
        ) {
            self.is_told();
        }
    }

    fn is_told(&self) {
        self.change(|state| state.is_told = state.phase != Phase::Closed);
    }

    /// Somebody's word that it is back.
    pub(crate) fn resume(&self) {
        self.close(|_| true);
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
        self.change(|state| {
            state.phase = Phase::CatchingUp;
            state.unanswered = 0;
        });
        let _ = timeout(CATCH_UP, self.until(|state| state.unwritten == 0)).await;
        self.close(|phase| phase == Phase::CatchingUp);
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
            let probed = async {
                sleep_until(probe_at).await;
                probe().await
            };
            let answer = tokio::select! {
                // Somebody's word ends the pause, and then what a probe finds says nothing. It holds nothing.
                biased;
                () = self.closed() => continue,
                answer = probed => answer,
            };
            match answer {
                Ok(()) if proves => self.catch_up().await,
                Ok(()) => {
                    let circuit = &self.what;
                    seldom!(self.seldom, "trial", info, circuit, "the probe passed; letting a little through");
                    self.change(|state| state.phase = Phase::Trial);
                }
                Err(cause) => {
                    if seldom!(self.seldom, "still away", warn, circuit = self.what, cause, "still away") {
                        self.is_told();
                    }
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

#[cfg(test)]
mod tests;
