//! Both leases as values: until when a delivery stays hidden, and until when a claim is ours.
//!
//! A [`Lease`] is our local view and ends at its last confirmed deadline, whatever later replies say (rule L5). It never
//! calls anybody: [`keep`] runs some work and renews a lease beside it with a call that it is given.

use std::{
    future::Future,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use crate::clock::{Clock, Millis, Moment};

pub(crate) use term::Term;
pub(crate) use visibility::Visibility;

mod term;
mod visibility;

/// A point in time on both clocks; it has come when either says so. The monotonic clock stands still while a machine is
/// suspended, the wall clock can be set back: each catches what the other misses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    instant: Instant,
    wall: Millis,
}

impl Deadline {
    pub(crate) fn after(start: Moment, length: Duration) -> Self {
        Self { instant: start.instant + length, wall: start.wall + length }
    }

    pub(crate) fn left(&self, now: Moment) -> Duration {
        self.instant.saturating_duration_since(now.instant).min(self.wall.since(now.wall))
    }

    /// On the wall clock, as it is written into a record.
    pub(crate) fn wall(&self) -> Millis {
        self.wall
    }
}

/// A lease as one worker sees it.
#[derive(Debug)]
pub(crate) struct Lease {
    clock: Clock,
    length: Duration,
    /// Past this nobody can extend it (SQS: 12 hours after the receive).
    cap: Option<Deadline>,
    /// `None` once it is known to be lost.
    end: watch::Sender<Option<Deadline>>,
    /// Its last beat failed.
    failing: AtomicBool,
}

/// What came of one beat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beat {
    /// The lease is renewed, counted from before the call was sent.
    Renewed,
    /// Perhaps next time.
    Transient,
    /// The lease is somebody else's, or nobody's.
    Lost,
    /// It cannot be renewed any more, and stands until its end.
    Final,
}

/// How often a wait for a lease's end looks at the wall clock: a suspended machine is noticed this late at the most.
const LOOK: Duration = Duration::from_secs(1);

impl Lease {
    /// A lease of `length`, counted from `start`.
    pub(crate) fn new(clock: Clock, start: Moment, length: Duration) -> Self {
        let (end, _) = watch::channel(Some(Deadline::after(start, length)));
        Self { clock, length, cap: None, end, failing: AtomicBool::new(false) }
    }

    /// With a last moment past which it cannot be extended.
    pub(crate) fn capped(mut self, cap: Deadline) -> Self {
        self.cap = Some(cap);
        self
    }

    /// How much of it is left; zero once it is over.
    pub(crate) fn left(&self) -> Duration {
        self.end.borrow().map_or(Duration::ZERO, |end| end.left(self.clock.now()))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// Where it ends on the wall clock, if it is not lost.
    pub(crate) fn end(&self) -> Option<Millis> {
        self.end.borrow().map(|end| end.wall())
    }

    /// How far an extension may reach from now on.
    pub(crate) fn reach(&self) -> Duration {
        self.length.min(self.farthest())
    }

    /// How far away a delivery's visibility may be set: to the cap, in whole seconds, for SQS counts no others.
    pub(crate) fn farthest(&self) -> Duration {
        let now = self.clock.now();
        self.cap.map_or(Duration::MAX, |cap| Duration::from_secs(cap.left(now).as_secs()))
    }

    /// Waits until no more than `margin` of it is left. Cancel safe.
    pub(crate) async fn ends_within(&self, margin: Duration) {
        let mut changes = self.end.subscribe();
        loop {
            let Some(wait) = self.left().checked_sub(margin).filter(|wait| !wait.is_zero()) else { return };
            tokio::select! {
                // Either way the loop looks again; neither arm holds anything.
                biased;
                _ = changes.changed() => {}
                () = sleep(wait.min(LOOK)) => {}
            }
        }
    }

    /// Whether a beat that is sent now is sent late: its time has long come, and no failed one came before it.
    pub(crate) fn is_late(&self) -> bool {
        !self.failing.load(Ordering::Relaxed) && self.left() < self.length.mul_f64(LATE_BEFORE_END)
    }

    /// What is left of it, for those who look on while somebody else holds it.
    pub(crate) fn view(&self) -> View {
        View { clock: self.clock.clone(), length: self.length, end: self.end.subscribe() }
    }

    /// A beat failed: that those that follow are late is not for want of time.
    pub(crate) fn fails(&self) {
        self.failing.store(true, Ordering::Relaxed);
    }

    /// Ends it now.
    pub(crate) fn lose(&self) {
        self.end.send_replace(None);
    }

    /// A beat sent at `sent` was answered. A lease that has ended meanwhile stays ended: somebody else may have begun.
    fn renewed(&self, sent: Moment, reach: Duration) {
        self.failing.store(false, Ordering::Relaxed);
        if !self.is_over() {
            self.end.send_if_modified(|end| {
                let renewed = Deadline::after(sent, reach);
                let longer = end.is_some_and(|end| end.instant < renewed.instant);
                if longer {
                    *end = Some(renewed);
                }
                longer
            });
        }
    }

    /// When the next beat comes due: well before the deadline, so that a failed one can be tried again several times.
    fn due(&self, tick: Option<Tick>) -> Option<Instant> {
        let end = (*self.end.borrow())?;
        let due = end.instant - self.length.mul_f64(BEAT_BEFORE_END);
        Some(tick.map_or(due, |tick| tick.at_or_before(due, self.length)))
    }

    /// Whether a beat now would reach so much further than the lease already does that it is worth a call. Just below the
    /// cap it never is: beats would follow each other for fractions of a second.
    fn can_grow(&self) -> bool {
        !self.is_over() && self.reach() > self.left() + self.length / LEAST_GROWTH
    }
}

/// A beat has to win this part of a lease.
const LEAST_GROWTH: u32 = 10;

/// A beat comes due when this part of the lease is left. Handlers that end before it cost no beat.
const BEAT_BEFORE_END: f64 = 0.4;

/// A beat that is sent when less than this part is left is late: whoever should have sent it was kept from it.
const LATE_BEFORE_END: f64 = 0.25;

/// A lease, seen by those who do not hold it.
#[derive(Debug)]
pub(crate) struct View {
    clock: Clock,
    length: Duration,
    end: watch::Receiver<Option<Deadline>>,
}

impl View {
    /// How much of it is left, and the whole.
    pub(crate) fn left_of(&self) -> (Duration, Duration) {
        (self.end.borrow().map_or(Duration::ZERO, |end| end.left(self.clock.now())), self.length)
    }
}

/// Shared by all deliveries of a queue, so that their beats come together and can be sent in one batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tick {
    origin: Instant,
}

impl Tick {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// For a lease of `length` it ticks ten times in it, so that a beat comes at most a tenth early.
    fn at_or_before(&self, due: Instant, length: Duration) -> Instant {
        let period = (length / 10).max(Duration::from_millis(10));
        let since = due.saturating_duration_since(self.origin);
        let beats = since.as_millis() / period.as_millis().max(1);
        self.origin + period.saturating_mul(u32::try_from(beats).unwrap_or(u32::MAX))
    }
}

/// A failed beat is tried again after this part of what is left of the lease, with jitter.
const RETRY_PART: u32 = 6;

/// The shortest such pause is this part of the whole lease, so that its end is not a storm of beats.
const SHORTEST_RETRY: u32 = 40;

/// Runs `work` and renews `lease` beside it with `beat`, each time it comes due, until `work` ends.
///
/// A beat that is on the wire when `work` ends is awaited, at most to the lease's end, so that nothing sent afterwards
/// can be overtaken by it (rule L6).
///
/// The work comes pinned: kept by value it would take its room in the caller and twice more in here, and keeps are nested.
///
/// # Cancel safety
/// Dropped, it drops `work`; a beat on the wire may still be applied.
pub(crate) async fn keep<W, B, F>(lease: &Lease, tick: Option<Tick>, beat: B, mut work: W) -> W::Output
where
    W: Future + Unpin,
    B: Fn(Duration) -> F,
    F: Future<Output = Beat>,
{
    let mut retry_at = None;
    loop {
        let Some(due) = retry_at.take().or_else(|| lease.due(tick)) else { return work.await };
        tokio::select! {
            // Finished work needs no further beat.
            biased;
            output = &mut work => return output,
            () = sleep_until(due) => {}
        }
        if !lease.can_grow() {
            return work.await;
        }
        let sent = lease.clock.now();
        let reach = lease.reach();
        let mut call = pin!(beat(reach));
        let (answer, output) = tokio::select! {
            // An answer that is there counts before the work's end does.
            biased;
            answer = &mut call => (Some(answer), None),
            output = &mut work => (None, Some(output)),
        };
        if let Some(output) = output {
            if !crate::testing::planted(crate::testing::Planted::BeatNotAwaited) {
                tokio::select! {
                    // Past the lease's end nothing more is sent for it, so nothing can be overtaken.
                    biased;
                    answer = &mut call => note(lease, answer, sent, reach),
                    () = lease.ends_within(Duration::ZERO) => {}
                }
            }
            return output;
        }
        match answer {
            Some(Beat::Transient) => {
                let part = (lease.left() / RETRY_PART).max(lease.length / SHORTEST_RETRY);
                retry_at = Some(Instant::now() + part / 2 + lease.clock.part_of(part));
            }
            Some(Beat::Final) => return work.await,
            Some(answer) => note(lease, answer, sent, reach),
            None => {}
        }
    }
}

fn note(lease: &Lease, answer: Beat, sent: Moment, reach: Duration) {
    match answer {
        Beat::Renewed => lease.renewed(sent, reach),
        Beat::Lost => lease.lose(),
        Beat::Transient | Beat::Final => {}
    }
}

#[cfg(test)]
mod tests;
