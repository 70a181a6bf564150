//! The simulation: seeded runs of workers over their queues and one table, while everything goes wrong that can.
//!
//! Each seed is one world on a paused clock, with two to four workers and one to three queues. Half of the queues are
//! standard, the others FIFO, and of those every third has no guard. There are crashes in the middle of calls and at any
//! other time, lost and late replies, requests that land when nobody waits for them any more, outages, throttling, stalls,
//! suspended machines, skewed clocks, duplicates, redeliveries, redrives, pauses, drains, handlers that hang, panic, ask for
//! more time or are not there, and on FIFO queues heads that fail with others behind them. What must hold, whatever happens:
//!
//! 1. Nothing vanishes: a message leaves its queue only when its work is done or a copy of it is dead-lettered.
//! 2. Runs of one key never overlap under a valid lease, and none begins without one.
//! 3. A done key never runs again.
//! 4. A recorded step never runs again.
//! 5. A step has one effect.
//! 6. Fences only grow; a record changes by its owner alone; what is DONE or DEAD stays so, unless it begins anew.
//! 7. Failures stay within their limit, and what never fails by itself is not dead-lettered for it.
//! 8. Drains end in time, and leave nothing behind.
//! 9. Inside a group, in the order of sending, no run of a message begins while one before it is open: still in the queue,
//!    and neither done nor dead-lettered. Nor does one begin again after one behind it has begun.
//! 10. What is behind a head that fails is not received for it: where nothing goes wrong but crashes and drains, a message
//!     is received once more than it runs at the most, and once for each worker that ended before its time.
//! 11. A step that is to run once runs once under each of its downstream keys, whatever it calls.
//! 12. Nothing is undone before the verdict is recorded, nor beside another run of its key.
//! 13. What is committed with "done" is there once, exactly where its key is done.
//!
//! Without a guard there are no records, so that 2 to 6 and the limit of 7 are not promised, and work is done when its
//! handler has succeeded: a message may run again and again until it is deleted, and two workers may run it side by side.
//! The rest holds all the same: nothing behind a message begins before it is known to be deleted.
//!
//! In every tenth world one worker's clock is off by more than `CLOCK_SKEW`, against which nobody promises 2, 4 and 10: another
//! may begin before that worker's lease has ended, each of the two knows its own steps, and what is not to begin before a time
//! of that worker's is received in vain by others. All else holds, for the table
//! takes writes by their owner alone, and a step goes downstream under one key.
//!
//! 9 is about beginnings. A run whose worker has lost its lease may go on beside those behind it, for as long as it ignores
//! its cancellation; under a guard what it writes is refused. After what is behind it may begin again, under a guard, what
//! was dead-lettered and not deleted, for a redrive may have begun it anew; without one, what was redelivered before its
//! time, which no FIFO queue does by itself; and what its worker was about to begin when its machine was suspended. A dead
//! letter that is put back is a new message, at the end of its group.
//!
//! A seed that breaks one prints itself and its trace. To replay: `SEED=123 cargo test --all-features --test worker
//! simulation::one_seed -- --nocapture`. For other seeds: `SEEDS=10000 SEED_START=random`, or any number.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests, which clippy takes for production code here; a trace is for whoever runs them"
)]

mod bank;
mod groups;
mod handler;
mod life;
mod plan;
#[cfg(feature = "planted")]
mod planted;
mod promise;
mod quiet;
mod trace;
mod weather;
mod wire;
mod world;

use std::collections::BTreeMap;

#[cfg(feature = "planted")]
pub(crate) use planted::Plant;
use trace::Written;

/// About as many as a minute of one processor is enough for.
const SEEDS: u64 = 1_000;

/// What so many seeds must have met.
const MUST_MEET: [&str; 32] = [
    "a follower begins",
    "a follower of a dead head begins",
    "a head begins again before its followers",
    "a wild clock",
    "asked for more time",
    "begun once",
    "committed",
    "begun anew",
    "crash",
    "crash after a call",
    "crash before a call",
    "dead",
    "done",
    "drained",
    "failed call",
    "handler away",
    "late call",
    "late reply",
    "lost call",
    "lost reply",
    "marked as copied",
    "moved by SQS",
    "not started",
    "parked",
    "paused",
    "redelivered",
    "refunded",
    "resumed",
    "several queues",
    "shortened",
    "stuck call",
    "taken over",
];

#[expect(clippy::disallowed_methods, reason = "which seeds are run is asked for on the command line of a test")]
fn asked(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    // Small enough to be read and typed again.
    if text == "random" { Some(fastrand::u64(..1 << 32)) } else { Some(text.parse().expect("a number, or random")) }
}

/// The run of a seed; one that breaks the promise is told with its trace.
fn checked(seed: u64) -> Result<Written, String> {
    let outcome = world::run(seed, false);
    if outcome.violations.is_empty() {
        return Ok(outcome);
    }
    Err(format!(
        "{}\n\nseed {seed} breaks the promise:\n  {}\nreplay: SEED={seed} cargo test --all-features --test worker \
         simulation::one_seed -- --nocapture",
        outcome.lines.join("\n"),
        outcome.violations.join("\n  "),
    ))
}

#[test]
fn some_thousand_seeds() {
    let first = asked("SEED_START").unwrap_or(0);
    let seeds = asked("SEEDS").unwrap_or(SEEDS);
    println!("{seeds} seeds from {first}");
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in first..first + seeds {
        match checked(seed) {
            Ok(outcome) => outcome.met.into_iter().for_each(|(what, times)| *met.entry(what).or_default() += times),
            Err(told) => panic!("{told}"),
        }
    }
    println!("{met:#?}");
    let unmet: Vec<_> = MUST_MEET.into_iter().filter(|what| !met.contains_key(what)).collect();
    assert!(unmet.is_empty() || seeds < SEEDS, "a simulation that never meets {unmet:?} proves little");
}

#[test]
fn one_seed() {
    let seed = asked("SEED").unwrap_or(0);
    match checked(seed) {
        Ok(outcome) => println!("{}", outcome.lines.join("\n")),
        Err(told) => panic!("{told}"),
    }
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..100 {
        let (one, two) = (world::run(seed, false), world::run(seed, false));
        let parted = one.lines.iter().zip(&two.lines).position(|(one, two)| one != two);
        let context = parted.map(|at| (&one.lines[at.saturating_sub(8)..=at], &two.lines[at]));
        assert!(parted.is_none() && one.lines.len() == two.lines.len(), "seed {seed} parts: {context:#?}");
    }
}
