//! Faults on request: wrappers that make the calls of any adapter go wrong.
//!
//! Owns the script (which call meets which fault), the log of calls, and requests that are stuck on the wire and land
//! later. A wrapper stands where the network stands: what it adds is what a caller can meet of a real service, and it
//! never changes what the adapter answers to a call that it lets through. Batching is below the ports, so a
//! [`Fault::Fail`] on one call is what one refused entry of a batch is for its caller.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

pub use wrap::{FaultyBodies, FaultyBroker, FaultyGuard, FaultyQueue};

#[cfg(test)]
mod tests;
mod wrap;

/// After how long a caller gets [`Failure::NoAnswer`] for a call that hangs: what an adapter's own timeout would be. A
/// receive waits for its wait time and then this long.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails at once, and nothing is done.
    Fail(Failure),
    /// It is carried out, and fails all the same: what answers is not what stores.
    ApplyThenFail(Failure),
    /// It arrives this much later, is carried out then, and answered.
    Delay(Duration),
    /// It is carried out at once, and the answer comes this much later.
    DelayReply(Duration),
    /// It is carried out at once, and its answer is lost: no answer by [`CALL_TIMEOUT`].
    LoseReply,
    /// It is lost on its way: nothing is done, and no answer by [`CALL_TIMEOUT`].
    Hang,
    /// It is stuck on its way: no answer by [`CALL_TIMEOUT`], and this long after the call it is carried out all the
    /// same, whether the caller still waits or not.
    HangThenApply(Duration),
    /// The caller crashes during the call, which therefore never returns: to be dropped by whoever plays the crash.
    Stop {
        /// Whether the call is carried out first.
        applied: bool,
    },
}

/// How a call fails, by the meanings that both ports have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is what the variant of this name of QueueError, GuardError or BodyError is")]
pub enum Failure {
    Throttled,
    Unavailable,
    NoAnswer,
    Denied,
    /// `Denied`, for want of credentials that hold.
    NoCredentials,
    Missing,
    /// Of a guard: [`crate::guard::GuardError::Conflict`]. Others know none and answer `Unavailable`.
    Conflict,
    /// Of a queue. Others know none and answer `Refused`.
    HandleLost,
    /// Of a queue. Others know none and answer `Refused`.
    TwelveHours,
}

/// One call that came by.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// Of a queue: `receive`, `delete`, `change_visibility`, `send`, `facts`, `depth`, `sources`. Of a guard: `claim`,
    /// `take_over`, a change by its name (`renew`, `step`, `confirm`, `release`, `fail`, `bury`, `copied`), `amend`, `confirm_with`, `read`,
    /// `probe`, `control`, `set_control`, `facts`. Of a broker: `open`, `start_move`, `latest_move`, `cancel_move`. Of
    /// bodies: `get`, `delete`.
    pub operation: &'static str,
    /// The record's key or the receipt handle; where a call has neither, the queue's name, or nothing.
    pub subject: String,
    /// Counts the calls of this operation, from 1.
    pub number: u64,
}

/// Which calls go wrong, and which calls there were. Clones share both; wrappers that are given clones of one are
/// scripted together.
///
/// The first that has something to say decides: the script ([`Self::next`]), the rule ([`Self::decide_with`]), and
/// what always holds ([`Self::always`]).
#[derive(Clone, Default)]
pub struct Faults {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Locked for single look-ups, never across an await, nor while a rule is asked, which may look at the log.
    state: Mutex<State>,
    /// The requests that are stuck on the wire. They end with the last clone.
    stuck: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct State {
    script: BTreeMap<&'static str, VecDeque<Fault>>,
    rule: Option<Rule>,
    always: BTreeMap<&'static str, Fault>,
    calls: BTreeMap<&'static str, u64>,
    log: Vec<Call>,
}

type Rule = Arc<dyn Fn(&Call) -> Option<Fault> + Send + Sync>;

impl Faults {
    /// The next call of this operation that has none yet meets this fault. Several form a queue.
    pub fn next(&self, operation: &'static str, fault: Fault) {
        self.state().script.entry(operation).or_default().push_back(fault);
    }

    /// Every call of this operation meets this fault, until [`Self::clear`].
    pub fn always(&self, operation: &'static str, fault: Fault) {
        self.state().always.insert(operation, fault);
    }

    /// Asks this rule about every call, until [`Self::clear`]. It replaces an earlier rule.
    pub fn decide_with(&self, rule: impl Fn(&Call) -> Option<Fault> + Send + Sync + 'static) {
        self.state().rule = Some(Arc::new(rule));
    }

    /// From now on nothing goes wrong. What is stuck on the wire still lands, and the log stays.
    pub fn clear(&self) {
        let mut state = self.state();
        state.script.clear();
        state.always.clear();
        state.rule = None;
    }

    /// How many faults of the script no call has met yet. A test that ends with some has not tested what it says, or
    /// has misspelt an operation.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.state().script.values().map(VecDeque::len).sum()
    }

    /// How many calls there were, by operation.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.state().calls.iter().map(|(operation, calls)| ((*operation).to_owned(), *calls)).collect()
    }

    /// All calls, in their order.
    #[must_use]
    pub fn log(&self) -> Vec<Call> {
        self.state().log.clone()
    }

    /// Waits until everything that is stuck on the wire now has landed.
    ///
    /// # Cancel safety
    /// Not cancel safe: what is still stuck when it is dropped is lost.
    pub async fn landed(&self) {
        let mut stuck = std::mem::take(&mut *self.stuck());
        while stuck.join_next().await.is_some() {}
    }

    /// Carries out one call, with the fault that it meets. `patience` is the caller's: how long until it gives up.
    async fn carry_out<T, E>(
        &self,
        operation: &'static str,
        subject: &str,
        patience: Duration,
        call: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Failure> + Send + 'static,
    {
        let gives_up = Instant::now() + patience;
        match self.decide(operation, subject) {
            None => return call.await,
            Some(Fault::Fail(failure)) => return Err(failure.into()),
            Some(Fault::ApplyThenFail(failure)) => {
                drop(call.await);
                return Err(failure.into());
            }
            Some(Fault::Delay(delay)) => {
                tokio::time::sleep(delay).await;
                return call.await;
            }
            Some(Fault::DelayReply(delay)) => {
                let answer = call.await;
                tokio::time::sleep(delay).await;
                return answer;
            }
            Some(Fault::LoseReply) => drop(call.await),
            Some(Fault::Hang) => {}
            Some(Fault::HangThenApply(delay)) => self.lands_later(delay, call),
            Some(Fault::Stop { applied }) => {
                if applied {
                    drop(call.await);
                }
                return std::future::pending().await;
            }
        }
        tokio::time::sleep_until(gives_up).await;
        Err(Failure::NoAnswer.into())
    }

    fn decide(&self, operation: &'static str, subject: &str) -> Option<Fault> {
        let mut state = self.state();
        let number = state.calls.entry(operation).or_default();
        *number += 1;
        let call = Call { operation, subject: subject.to_owned(), number: *number };
        state.log.push(call.clone());
        if let Some(scripted) = state.script.get_mut(operation).and_then(VecDeque::pop_front) {
            return Some(scripted);
        }
        let always = state.always.get(operation).copied();
        let rule = state.rule.clone();
        drop(state);
        rule.and_then(|rule| rule(&call)).or(always)
    }

    fn lands_later(&self, delay: Duration, call: impl Future<Output: Send> + Send + 'static) {
        let mut stuck = self.stuck();
        while stuck.try_join_next().is_some() {}
        stuck.spawn(async move {
            tokio::time::sleep(delay).await;
            call.await;
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stuck(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.shared.stuck.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Faults").field("script", &state.script).field("calls", &state.calls).finish_non_exhaustive()
    }
}
