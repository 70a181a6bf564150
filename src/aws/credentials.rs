//! Credentials that are asked for long before the old ones end, and beside the work.
//!
//! The SDK asks when ten seconds are left, lets every call wait for the answer, and uses what it has no more: an endpoint
//! that is slow or away for that moment costs beats, and with them leases, although the credentials still hold. Here a
//! renewal begins early, is tried again, and holds up nobody before the end of what there is.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

use aws_credential_types::{
    Credentials,
    provider::{ProvideCredentials, SharedCredentialsProvider, error::CredentialsError, future},
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::{
    causes::in_full,
    clock::{Clock, Millis, millis},
};

/// A renewal begins when this much is left, or half of what there was at first if that is less. The SDK for Python begins
/// 15 minutes before the end: <https://github.com/boto/botocore/blob/develop/botocore/credentials.py>.
const AHEAD: Duration = Duration::from_secs(10 * 60);

/// What is used to the end is used to this much before it: a request takes its time to arrive, and clocks differ.
const LAST: Duration = Duration::from_secs(1);

/// The least between two renewals, and how long an answer is used at the least. While what there is holds, a tenth of what
/// is left of it, if that is more: an agent answers with what it has given out before, until minutes before the end.
const PAUSE: Duration = Duration::from_secs(5);

/// Longest renewal. What comes to nothing by then is tried again; not every provider bounds its own calls. As long as those
/// of the SDK take with all of their tries.
const RENEWAL: Duration = Duration::from_secs(30);

/// Of credentials without an end.
const WITHOUT_END: Duration = Duration::from_secs(15 * 60);

/// Renewals that one caller waits for, where they end without an answer.
const TRIES: usize = 2;

/// A provider whose answers are kept and renewed. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Renewed(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    provider: SharedCredentialsProvider,
    clock: Clock,
    /// Locked for single looks and changes, never across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: Option<Held>,
    /// Not before then, unless there is nothing else to be had.
    renew_at: Option<Instant>,
    renewal: Option<watch::Receiver<Option<Outcome>>>,
    /// The task of the renewal.
    renewing: JoinSet<()>,
}

#[derive(Debug, Clone)]
struct Held {
    credentials: Credentials,
    /// From then on a renewal is wanted.
    renew_from: Millis,
    /// Until then they are used.
    until: Millis,
}

impl Held {
    fn new(credentials: Credentials, now: Millis) -> Self {
        let end = credentials.expiry().and_then(|end| end.duration_since(UNIX_EPOCH).ok());
        let end = end.map_or(now + WITHOUT_END, |end| Millis(millis(end)));
        let left = end.since(now);
        Self {
            credentials,
            renew_from: now + left.saturating_sub(AHEAD).max(left / 2),
            until: now + left.saturating_sub(LAST).max(PAUSE),
        }
    }

    /// Whether these are to be used instead of those.
    fn follows(&self, before: &Self, now: Millis) -> bool {
        let others = self.credentials.access_key_id() != before.credentials.access_key_id();
        before.until <= now || others && now < self.until || before.until < self.until
    }
}

/// The outcome of a renewal, for all who wait for it.
type Outcome = Result<Credentials, Arc<CredentialsError>>;

impl Renewed {
    pub(super) fn new(provider: SharedCredentialsProvider, clock: Clock) -> Self {
        Self(Arc::new(Shared { provider, clock, state: Mutex::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is, or else a renewal to be waited for. Begins one where it is due.
    fn look(&self) -> Result<Credentials, watch::Receiver<Option<Outcome>>> {
        let (now, mut state) = (self.0.clock.now(), self.state());
        // One whose sender is gone never ends: its provider panicked, or its runtime ended.
        let renewal = state.renewal.clone().filter(|renewal| renewal.has_changed().is_ok());
        let Some(held) = state.held.clone().filter(|held| now.wall < held.until) else {
            return Err(renewal.unwrap_or_else(|| self.begin(&mut state)));
        };
        let may_renew = renewal.is_none() && state.renew_at.is_none_or(|renew_at| renew_at <= now.instant);
        if may_renew && held.renew_from <= now.wall {
            self.begin(&mut state);
        }
        Ok(held.credentials)
    }

    fn begin(&self, state: &mut State) -> watch::Receiver<Option<Outcome>> {
        let (sender, receiver) = watch::channel(None);
        let of_task = Arc::downgrade(&self.0);
        let provider = self.0.provider.clone();
        while state.renewing.try_join_next().is_some() {}
        state.renewing.spawn(async move {
            let outcome = match timeout(RENEWAL, provider.provide_credentials()).await {
                Ok(outcome) => outcome.map_err(Arc::new),
                Err(_) => {
                    let fallback = provider.fallback_on_interrupt();
                    fallback.ok_or_else(|| Arc::new(CredentialsError::provider_timed_out(RENEWAL)))
                }
            };
            let Some(shared) = of_task.upgrade() else { return };
            Self(shared).take(&outcome);
            sender.send_replace(Some(outcome));
        });
        state.renewal = Some(receiver.clone());
        receiver
    }

    fn take(&self, outcome: &Outcome) {
        let now = self.0.clock.now();
        let mut state = self.state();
        state.renewal = None;
        let left = state.held.as_ref().map(|held| held.until.since(now.wall)).filter(|left| !left.is_zero());
        state.renew_at = Some(now.instant + PAUSE.max(left.unwrap_or_default() / 10));
        match outcome {
            Ok(credentials) => {
                let new = Held::new(credentials.clone(), now.wall);
                if state.held.as_ref().is_none_or(|held| new.follows(held, now.wall)) {
                    state.held = Some(new);
                }
            }
            Err(error) => {
                drop(state);
                if let Some(left) = left {
                    let error = in_full(error);
                    tracing::warn!(error, "credentials cannot be renewed; those there are end in {left:?}");
                }
            }
        }
    }

    async fn provide(&self) -> Result<Credentials, CredentialsError> {
        for _ in 0..TRIES {
            let mut renewal = match self.look() {
                Ok(credentials) => return Ok(credentials),
                Err(renewal) => renewal,
            };
            let outcome = renewal.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
            if let Some(outcome) = outcome {
                return outcome.map_err(CredentialsError::provider_error);
            }
        }
        Err(CredentialsError::unhandled("the provider panicked, or its runtime ended"))
    }
}

impl ProvideCredentials for Renewed {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.provide())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        time::{Duration, UNIX_EPOCH},
    };

    use tokio::time::{sleep, timeout};

    use super::*;

    /// One answer: after this time, the key and how long it lives; `None` is an error.
    type Answer = (Duration, Option<(&'static str, Duration)>);

    #[derive(Debug, Clone)]
    struct Provider(Clock, Arc<Mutex<VecDeque<Answer>>>);

    impl ProvideCredentials for Provider {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            future::ProvideCredentials::new(async {
                let next = self.1.lock().expect("not poisoned").pop_front();
                let (after, what) = next.expect("another answer");
                sleep(after).await;
                let (key, life) = what.ok_or_else(|| CredentialsError::unhandled("out of order"))?;
                let end = UNIX_EPOCH + Duration::from_millis((self.0.now().wall + life).0);
                Ok(Credentials::new(key, "secret", None, Some(end), "test"))
            })
        }
    }

    const HOUR: Duration = Duration::from_secs(60 * 60);
    const MINUTE: Duration = Duration::from_secs(60);
    const AT_ONCE: Duration = Duration::ZERO;

    fn renewed<const N: usize>(answers: [Answer; N]) -> Renewed {
        from(&Arc::new(Mutex::new(answers.into())))
    }

    fn from(answers: &Arc<Mutex<VecDeque<Answer>>>) -> Renewed {
        let clock = Clock::simulated(1, 0);
        let provider = Provider(clock.clone(), Arc::clone(answers));
        Renewed::new(SharedCredentialsProvider::new(provider), clock)
    }

    /// What is to be had without waiting.
    async fn key(renewed: &Renewed) -> Option<String> {
        let now = timeout(AT_ONCE, renewed.provide()).await.ok()?.ok()?;
        Some(now.access_key_id().to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn the_old_ones_are_used_while_their_successors_are_late() {
        let renewed = renewed([
            (AT_ONCE, Some(("one", HOUR))),
            (AT_ONCE, None),
            (RENEWAL * 2, Some(("never", HOUR))),
            (Duration::from_secs(7), Some(("two", HOUR))),
        ]);
        assert_eq!(renewed.provide().await.expect("the first").access_key_id(), "one");
        sleep(HOUR - AHEAD - MINUTE).await;
        assert_eq!(key(&renewed).await.as_deref(), Some("one"), "and nobody is asked");
        sleep(MINUTE).await;
        // An error, a pause, a renewal that never ends, a pause.
        for _ in 0..16 {
            assert_eq!(key(&renewed).await.as_deref(), Some("one"));
            sleep(Duration::from_secs(10)).await;
        }
        assert_eq!(key(&renewed).await.as_deref(), Some("two"));
    }

    #[tokio::test(start_paused = true)]
    async fn minutes_of_slow_errors_hold_up_no_call_and_are_not_met_with_a_storm_of_tries() {
        let fails = (Duration::from_secs(20), None);
        let answers = Arc::new(Mutex::new([(AT_ONCE, Some(("one", HOUR)))].into_iter().chain([fails; 100]).collect()));
        let renewed = from(&answers);
        assert!(renewed.provide().await.is_ok());
        sleep(HOUR - AHEAD).await;
        for second in 0..9 * 60 {
            assert_eq!(key(&renewed).await.as_deref(), Some("one"), "{second} s");
            sleep(Duration::from_secs(1)).await;
        }
        let tries = {
            let mut left = answers.lock().expect("not poisoned");
            left.push_front((Duration::from_secs(20), Some(("two", HOUR))));
            101 - left.len()
        };
        assert!((9..=20).contains(&tries), "{tries}");
        for second in 0..50 {
            assert!(key(&renewed).await.is_some(), "{second} s of the last minute");
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(key(&renewed).await.as_deref(), Some("two"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_gives_up_waiting_does_not_end_the_renewal() {
        let renewed = renewed([(Duration::from_secs(4), Some(("one", HOUR)))]);
        for _ in 0..2 {
            assert!(timeout(Duration::from_millis(1500), renewed.provide()).await.is_err());
        }
        assert_eq!(renewed.provide().await.expect("the first").access_key_id(), "one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_panicked_or_whose_runtime_ended_is_begun_again() {
        // The second answer is not there: taking it panics.
        let answers = Arc::new(Mutex::new([(AT_ONCE, Some(("one", MINUTE)))].into()));
        let renewed = from(&answers);
        assert!(renewed.provide().await.is_ok());
        sleep(MINUTE).await;
        let error = renewed.provide().await.expect_err("nothing");
        assert!(in_full(&error).contains("panicked"), "{}", in_full(&error));
        answers.lock().expect("not poisoned").push_back((AT_ONCE, Some(("two", HOUR))));
        assert_eq!(renewed.provide().await.expect("the next").access_key_id(), "two");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_ends_earlier_takes_the_place_of_none_that_holds() {
        let renewed = renewed([
            (AT_ONCE, Some(("one", HOUR))),
            (AT_ONCE, Some(("one", MINUTE))),
            (AT_ONCE, Some(("two", 2 * HOUR))),
        ]);
        assert!(renewed.provide().await.is_ok());
        sleep(HOUR - AHEAD).await;
        assert_eq!(key(&renewed).await.as_deref(), Some("one"));
        sleep(AHEAD / 20).await;
        assert_eq!(key(&renewed).await.as_deref(), Some("one"), "nobody is asked at each call");
        sleep(AHEAD / 20).await;
        assert_eq!(key(&renewed).await.as_deref(), Some("one"), "a renewal is begun");
        sleep(PAUSE).await;
        assert_eq!(key(&renewed).await.as_deref(), Some("two"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_ended_is_not_used_and_every_call_is_told_why() {
        let renewed = renewed([(AT_ONCE, Some(("one", MINUTE))), (AT_ONCE, None), (AT_ONCE, None)]);
        assert!(renewed.provide().await.is_ok());
        sleep(MINUTE).await;
        for _ in 0..2 {
            let error = renewed.provide().await.expect_err("none");
            assert!(in_full(&error).contains("out of order"), "{}", in_full(&error));
        }
    }
}
