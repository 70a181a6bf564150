//! When a task is to be protected from being scaled in, and that it is never so without a gap (rule D4).
//!
//! [`Protection`] decides, and is pure; [`keep`] looks, asks, and tells what changed. Protection is wanted while a handler has
//! run longer than a drain would let it run on: whatever is shorter ends in its drain anyway.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    telemetry::{ProtectionMeters, ProtectionResult},
};

use super::{
    CALL,
    answer::{Answer, EXPIRES_IN, Request},
};

#[cfg(test)]
mod tests;

/// Between two looks at what runs.
const LOOK: Duration = Duration::from_secs(1);

/// The least between two requests for protection, and the first of the pauses after one that failed; with the longest. A
/// protection that is half over is tried to be extended some times before it ends.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// How long a task is let go when it was protected for as long as it may be. ECS stops a task that it wants to stop as soon
/// as it may, and looks for those again and again.
pub(super) const GAP: Duration = Duration::from_secs(2 * 60);

/// The least that a task may be protected without a gap, so that gaps stay the exception where handlers are short.
pub(super) const LEAST_HOLD: Duration = Duration::from_secs(10 * 60);

/// How long a drain waits for the last word to the agent, from its beginning.
const LAST: Duration = Duration::from_secs(1);

/// What a protection goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// What a drain lets a handler run on for. Only for one that has run longer there is protection.
    run_on: Duration,
    /// How long there is protection before a gap: as long as any handler may take, so that one for which the task was
    /// protected comes to its end.
    hold: Duration,
}

impl Rules {
    /// From what a drain lets a handler run on for, and the longest time budget of any handler.
    pub(crate) fn new(run_on: Duration, longest_handler: Duration) -> Self {
        Self { run_on, hold: longest_handler.max(LEAST_HOLD) }
    }
}

/// What is known of a task's protection.
#[derive(Debug)]
pub(super) struct Protection {
    rules: Rules,
    /// ECS has said that it holds until then.
    held_until: Option<Instant>,
    /// It may hold until then: an unanswered request may have been carried out.
    may_hold_until: Option<Instant>,
    /// The same, before the last request for it.
    might_hold_until: Option<Instant>,
    /// When it is to be extended.
    extend_at: Option<Instant>,
    /// When this stretch of protection began. Its end is a gap; shorter ones do not count.
    since: Option<Instant>,
    /// When it was last let go.
    let_go_at: Option<Instant>,
    /// Nothing is asked for before then.
    not_before: Option<Instant>,
    /// Requests that failed, in a row.
    failures: u32,
}

/// What a look comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// A protection has ended that should not have.
    pub(super) lapsed: bool,
    /// What is to be asked for now.
    pub(super) request: Option<Request>,
}

impl Protection {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            held_until: None,
            may_hold_until: None,
            might_hold_until: None,
            extend_at: None,
            since: None,
            let_go_at: None,
            not_before: None,
            failures: 0,
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.held_until.is_some()
    }

    /// Looks at the time, and at the age of the oldest handler that runs.
    pub(super) fn next(&mut self, now: Instant, oldest: Option<Duration>) -> Next {
        let ended = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        let ended_held = ended(self.held_until);
        if ended_held {
            self.held_until = None;
        }
        if ended(self.may_hold_until) {
            self.lets_go(now);
        }
        if self.may_hold_until.is_none() && self.let_go_at.is_none_or(|at| now >= at + GAP) {
            (self.since, self.let_go_at) = (None, None);
        }
        let wanted = oldest.is_some_and(|age| age > self.rules.run_on) && !self.is_used_up(now);
        let request = match (self.may_hold_until, wanted) {
            (Some(_), false) => Some(Request::Release),
            (Some(_), true) if self.extend_at.is_none_or(|at| at <= now) => Some(Request::Protect),
            (None, true) => Some(Request::Protect),
            _ => None,
        };
        let request = request.filter(|_| self.not_before.is_none_or(|at| at <= now));
        if request == Some(Request::Protect) {
            self.since.get_or_insert(now);
            // From here on it may be there, whatever becomes of the call.
            self.might_hold_until = self.may_hold_until.replace(now + EXPIRES_IN + CALL);
        }
        Next { lapsed: ended_held && wanted, request }
    }

    /// It was held for as long as it may be, and waits for the end of its gap.
    pub(super) fn is_used_up(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now >= since + self.rules.hold)
    }

    /// What was asked for at that time was answered now. After a failure `backoff` says how long to wait.
    pub(super) fn answered(
        &mut self,
        (asked_at, now): (Instant, Instant),
        request: Request,
        answer: &Answer,
        backoff: impl FnOnce((Duration, Duration), u32) -> Duration,
    ) {
        match (answer, request) {
            (Answer::Done { left }, Request::Protect) => {
                let until = asked_at + EXPIRES_IN;
                // What is said to be over already is no shorter protection, but a clock that is not ECS's.
                let left = left.filter(|left| *left >= PAUSE.0);
                let until = left.map_or(until, |left| until.min(now + left));
                self.held_until = Some(until);
                self.may_hold_until = Some(until);
                self.extend_at = Some(now + (until.duration_since(now) / 2).max(PAUSE.0));
                (self.failures, self.not_before) = (0, None);
            }
            (Answer::Done { .. }, Request::Release) => {
                self.held_until = None;
                self.lets_go(now);
                (self.failures, self.not_before) = (0, Some(now + PAUSE.0));
            }
            (Answer::Not { may_be_done, .. }, request) => {
                if request == Request::Protect && !may_be_done {
                    self.may_hold_until = self.might_hold_until;
                }
                self.failures = self.failures.saturating_add(1);
                self.not_before = Some(now + backoff(PAUSE, self.failures));
            }
        }
    }

    fn lets_go(&mut self, now: Instant) {
        (self.may_hold_until, self.extend_at, self.let_go_at) = (None, None, Some(now));
    }
}

/// What was told last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Free,
    Held,
    LetGo,
    Failing,
    Lapsed,
}

/// Protects the task as long as it should be, until the drain begins, and has the last word with the agent then, for a
/// moment. `ask` asks, `oldest` knows for how long the oldest handler has run.
pub(crate) async fn keep<Asked: Future<Output = Answer>>(
    ask: impl Fn(Request) -> Asked,
    oldest: impl Fn() -> Option<Duration>,
    (rules, clock): (Rules, Clock),
    meters: &ProtectionMeters,
    drain: &CancellationToken,
) {
    let mut keeper = Keeper { protection: Protection::new(rules), told: Told::Free, clock, meters };
    tokio::select! {
        // A drain does not wait for a look or a call; what a dropped call asked for may be done, and is taken back below.
        biased;
        () = drain.cancelled() => {}
        () = keeper.keep(&ask, oldest) => {}
    }
    if keeper.protection.may_hold_until.is_some() {
        let answer = timeout(LAST, ask(Request::Release)).await;
        let answer = answer.unwrap_or_else(|_| Answer::Not {
            result: ProtectionResult::NoAnswer,
            why: format!("no answer within {LAST:?}"),
            may_be_done: true,
        });
        keeper.takes(Instant::now(), Request::Release, &answer);
    }
}

struct Keeper<'a> {
    protection: Protection,
    told: Told,
    clock: Clock,
    meters: &'a ProtectionMeters,
}

impl Keeper<'_> {
    /// For ever.
    async fn keep<Asked: Future<Output = Answer>>(
        &mut self,
        ask: &impl Fn(Request) -> Asked,
        oldest: impl Fn() -> Option<Duration>,
    ) {
        loop {
            let next = self.protection.next(Instant::now(), oldest());
            if next.lapsed {
                self.meters.result(ProtectionResult::Expired);
                self.tells(Told::Lapsed, "it could not be extended");
            }
            if let Some(request) = next.request {
                let asked_at = Instant::now();
                let answer = ask(request).await;
                self.takes(asked_at, request, &answer);
            }
            self.meters.held(self.protection.is_held());
            sleep(LOOK).await;
        }
    }

    fn takes(&mut self, asked_at: Instant, request: Request, answer: &Answer) {
        let now = Instant::now();
        let used_up = self.protection.is_used_up(now);
        self.protection.answered((asked_at, now), request, answer, |pauses, n| self.clock.backoff(pauses, n));
        self.meters.held(self.protection.is_held());
        match answer {
            Answer::Done { .. } => {
                self.meters.result(ProtectionResult::Ok);
                match (request, used_up) {
                    (Request::Protect, _) => self.tells(Told::Held, ""),
                    (Request::Release, true) => self.tells(Told::LetGo, ""),
                    (Request::Release, false) => self.tells(Told::Free, ""),
                }
            }
            Answer::Not { result, why, .. } => {
                tracing::debug!(?request, ?result, why, "not done by ECS's agent");
                self.meters.result(*result);
                if self.told != Told::Lapsed {
                    self.tells(Told::Failing, why);
                }
            }
        }
    }

    /// One line for each change.
    fn tells(&mut self, told: Told, why: &str) {
        if std::mem::replace(&mut self.told, told) == told {
            return;
        }
        let Rules { run_on, hold } = self.protection.rules;
        match told {
            Told::Free => tracing::info!("no longer protected from scaling in"),
            Told::Held => tracing::info!(
                "protected from scaling in: a handler has run longer than {run_on:?}, which is what a drain lets it"
            ),
            Told::LetGo => tracing::info!("not protected from scaling in for {GAP:?}: it was for {hold:?}"),
            Told::Failing => {
                tracing::warn!(why, "ECS does not change the protection from scaling in; it is asked again");
            }
            Told::Lapsed => tracing::warn!(why, "no longer protected from scaling in, though a handler runs long"),
        }
    }
}
