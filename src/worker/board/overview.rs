//! The whole of what is known of a worker, put together for a person.
//!
//! Looks at everything that is there and keeps nothing: made when somebody asks, and not before.

use tokio::time::Instant;

use super::Board;
use crate::{
    clock::{Clock, millis},
    guard::outage::{Circuit, Told},
    status::{CircuitStatus, DepthStatus, History as HistoryStatus, Overview, QueueOverview, QueueStatus, Status},
    telemetry::{Beaten, Fixed, LeaseKind, Outcome},
    worker::history::{History, STEP},
};

impl Board {
    pub(super) fn overview(&self) -> Overview {
        let status = self.status();
        let (ready, live) = (status.is_ready(), status.is_live());
        let Status { phase, problems, stalled_ms, mut queues, .. } = status;
        let known = self.known();
        let cost = known.cost();
        let per_message = known.costs.per_message(cost);
        let of_each = known.queues.iter().filter_map(|queue| {
            let name = queue.hall.jobs.name.to_string();
            let status = queues.remove(&name)?;
            let depth = known.depths.get(&name).copied();
            Some((name, all_of(queue, status, depth)))
        });
        let of_each = of_each.collect();
        let running = known.running.as_ref();
        Overview {
            ready,
            live,
            phase,
            problems,
            worker: running.map(|running| running.worker.clone()).unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION"),
            now: running.map_or_else(|| Clock::system().wall(), |running| running.clock.wall()).0,
            up_ms: millis(self.made.elapsed()),
            drain_left_ms: known.gone_by.map(|by| millis(by.saturating_duration_since(Instant::now()))),
            stalled_ms,
            circuits: running.and_then(|running| circuit(&running.store)).into_iter().collect(),
            calls: running.map(|running| running.calls.all()).unwrap_or_default(),
            write_units: cost.units,
            calls_per_message: per_message.map(|(calls, _)| calls),
            write_units_per_message: per_message.map(|(_, units)| units),
            queues: of_each,
        }
    }

    pub(super) fn history(&self) -> HistoryStatus {
        let known = self.known();
        let queues = known.queues.iter().map(|queue| (queue.hall.jobs.name.to_string(), queue.samples()));
        HistoryStatus { step_ms: millis(STEP), queues: queues.collect() }
    }
}

fn all_of(history: &History, status: QueueStatus, depth: Option<DepthStatus>) -> QueueOverview {
    let (hall, jobs) = (&history.hall, &history.hall.jobs);
    let meters = &jobs.meters;
    let beats = |lease: &LeaseKind| {
        let by_end = Beaten::ALL.iter().map(|beaten| (beaten.as_str(), meters.beats(*lease, *beaten)));
        (lease.as_str(), by_end.collect())
    };
    QueueOverview {
        status,
        fifo: hall.fifo,
        in_hand: meters.in_hand(),
        stuck: jobs.stuck.count(),
        handler_p50_ms: jobs.visibility.p50().map(millis),
        oldest_ms: history.oldest(),
        depth,
        received: meters.received.total(),
        started: meters.started.total(),
        outcomes: Outcome::ALL.iter().map(|outcome| (outcome.as_str(), meters.outcome(*outcome))).collect(),
        takeovers: meters.takeovers.total(),
        leases_lost: LeaseKind::ALL.iter().map(|lease| (lease.as_str(), meters.leases_lost(*lease))).collect(),
        beats: LeaseKind::ALL.iter().map(beats).collect(),
        late_beats: meters.late_beats(),
        failed_by_code: meters.failures.totals(),
        dead_by_code: meters.dead.totals(),
        running: jobs.watch.running(jobs.visibility.p99()),
        running_total: jobs.watch.count(),
        failures: jobs.watch.recent_failures(),
    }
}

fn circuit(circuit: &Circuit) -> Option<CircuitStatus> {
    let state = if circuit.is_trial() { "trial" } else { "open" };
    circuit.told().map(|Told { what, cause, ends }| CircuitStatus { what, state, cause, ends })
}
