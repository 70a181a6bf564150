//! An outage of the guard's store, noticed from the answers to its calls; and the circuit that every pause here goes
//! through.
//!
//! Whether a single failed call says something about the others is decided by its severity (rule G8). Never looks at
//! messages.

use std::sync::Arc;

use async_trait::async_trait;

pub(crate) use absences::Absences;
pub(crate) use circuit::{Circuit, Ends, LONGEST_WORD, Told};

use crate::causes::in_full;

use super::{
    Amend, Change, Claim, Claimed, Commit, Committed, Control, ControlKey, Guard, GuardError, Pk, Record, Severity,
    TableFacts, TakeOver, Written,
};

mod absences;
mod circuit;

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
                Severity::Unanswered => self.circuit.unanswered(&in_full(error)),
                Severity::Outage => self.circuit.open(&in_full(error), None),
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

    /// A right or a table that is missing may be the handler's: whether it is ours, the next claim tells.
    async fn confirm_with(&self, commit: &Commit) -> Result<Committed, GuardError> {
        match self.guard.confirm_with(commit).await {
            Err(error) if error.severity() == Severity::Outage => Err(error),
            answer => self.told(answer),
        }
    }

    async fn amend(&self, amend: &Amend) -> Result<Written, GuardError> {
        self.told(self.guard.amend(amend).await)
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
    use super::*;
    use crate::{
        clock::{Clock, Millis, Seconds},
        guard::Owner,
        testing::{Failure, Fault, Faults, FaultyGuard, MemoryGuard},
    };

    #[tokio::test(start_paused = true)]
    async fn g8_looks_at_what_operators_say_neither_open_the_circuit_nor_count_as_success() {
        let faults = Faults::default();
        faults.decide_with(|call| match call.operation {
            "read" => Some(Fault::Fail(Failure::NoAnswer)),
            "set_control" => None,
            _ => Some(Fault::Fail(Failure::Denied)),
        });
        let circuit = Arc::new(Circuit::new("store", Ends::Probe, Clock::simulated(1, 0)));
        let table = FaultyGuard::new(Arc::new(MemoryGuard::default()), faults);
        let guard = WatchedGuard::new(Arc::new(table), Arc::clone(&circuit));
        let (key, pk) = (ControlKey::new(None, "q"), Pk("k".into()));
        assert!(matches!(guard.control(&key).await, Err(GuardError::Denied(_))));
        assert!(!circuit.is_open());
        for _ in 0..circuit::UNANSWERED_IN_A_ROW {
            assert!(guard.set_control(&key, &Control::default()).await.is_ok());
            assert!(guard.read(&pk).await.is_err());
        }
        assert!(circuit.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn g8_a_right_that_a_commit_lacks_opens_no_circuit_and_its_silence_does() {
        let faults = Faults::default();
        let circuit = Arc::new(Circuit::new("store", Ends::Probe, Clock::simulated(1, 0)));
        let table = FaultyGuard::new(Arc::new(MemoryGuard::default()), faults.clone());
        let guard = WatchedGuard::new(Arc::new(table), Arc::clone(&circuit));
        let confirm = Change::Confirm { owner: Owner("me".into()), now: Millis(1), expires_at: Seconds(9) };
        let commit = Commit { pk: Pk("k".into()), confirm, writes: Vec::new(), token: "t".into() };
        for failure in [Failure::Denied, Failure::Missing] {
            faults.next("confirm_with", Fault::Fail(failure));
            assert!(guard.confirm_with(&commit).await.is_err());
            assert!(!circuit.is_open(), "the table may be the handler's");
        }
        faults.always("confirm_with", Fault::Fail(Failure::NoAnswer));
        for _ in 0..circuit::UNANSWERED_IN_A_ROW {
            assert!(guard.confirm_with(&commit).await.is_err());
        }
        assert!(circuit.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn g8_an_outage_is_told_with_what_the_store_said_of_it() {
        let faults = Faults::default();
        faults.decide_with(|_| Some(Fault::Fail(Failure::Denied)));
        let circuit = Arc::new(Circuit::new("store", Ends::Probe, Clock::simulated(1, 0)));
        let table = FaultyGuard::new(Arc::new(MemoryGuard::default()), faults);
        let guard = WatchedGuard::new(Arc::new(table), Arc::clone(&circuit));
        let denied = guard.read(&Pk("k".into())).await.expect_err("denied");
        let cause = std::error::Error::source(&denied).expect("a cause").to_string();
        let told = circuit.told().expect("open").cause;
        assert!(told == format!("access denied: {cause}"), "{told}");
    }
}
