//! A claim for tests, on a table that fails by plan.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    guard::{
        Claim, Claimed, Guard, Owner, Pk, Source,
        memory::MemoryGuard,
        outage::{Circuit, Ends},
    },
    lease::Lease,
    testing::{Faults, FaultyGuard},
};

use super::ExecutionLease;

/// A claim of so long; its clock, its table without the faults, and the faults.
pub(crate) async fn claimed(length: Duration) -> (ExecutionLease, Clock, MemoryGuard, Faults) {
    let (table, faults, clock) = (MemoryGuard::default(), Faults::default(), Clock::simulated(1, 0));
    let guard: Arc<dyn Guard> = Arc::new(FaultyGuard::new(Arc::new(table.clone()), faults.clone()));
    let sent = clock.now();
    let claim = Claim {
        pk: Pk("k".into()),
        owner: Owner("me".into()),
        now: sent.wall,
        lease_until: sent.wall + length,
        fingerprint: None,
        source: Source::default(),
    };
    let Ok(Claimed::Mine(record)) = guard.claim(&claim).await else { panic!("not claimed") };
    let circuit = Arc::new(Circuit::new("store", Ends::Probe, clock.clone()));
    let lease = Lease::new(clock.clone(), sent, length);
    (ExecutionLease::new((guard, circuit), clock.clone(), *record, lease, length), clock, table, faults)
}
