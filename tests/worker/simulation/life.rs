//! The lives of one worker: it is born, crashes or drains, and after a while another takes its place.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use leasehold::{
    Shutdown, Worker, WorkerError,
    testing::{Faults, FaultyBroker, FaultyGuard},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};

use super::{
    handler::Teller,
    plan::SKEW,
    weather::{Port, Weather},
    wire::{FarBroker, FarGuard, NearBroker, NearGuard},
    world::World,
};

/// `DRAIN_TIMEOUT`.
const DRAIN: Duration = Duration::from_secs(10);

/// One life.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) worker: usize,
    /// For the trace.
    pub(crate) who: String,
    state: AtomicU8,
    crashed: Notify,
}

/// Alive, crashed, or returned from `run`.
const ALIVE: u8 = 0;
const CRASHED: u8 = 1;
const RETURNED: u8 = 2;

impl Life {
    fn new(worker: usize, number: u32) -> Self {
        let who = format!("w{worker}.{number}");
        Self { worker, who, state: AtomicU8::new(ALIVE), crashed: Notify::new() }
    }

    /// From now on nothing of it reaches anybody.
    pub(crate) fn crash(&self) {
        self.state.store(CRASHED, Ordering::Relaxed);
        self.crashed.notify_one();
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.state.load(Ordering::Relaxed) == CRASHED
    }

    pub(crate) fn has_returned(&self) -> bool {
        self.state.load(Ordering::Relaxed) == RETURNED
    }
}

/// One worker's lives, until the world finishes.
pub(crate) async fn lives(world: Arc<World>, worker: usize) {
    let mut chance = Rng::with_seed(world.plan.seed.rotate_left(48) ^ (worker as u64 + 1));
    let mut number = 0;
    while !world.finish.is_cancelled() {
        number += 1;
        live(&world, Arc::new(Life::new(worker, number)), &mut chance).await;
        let pause = Duration::from_millis(chance.u64(1..20_000));
        tokio::select! {
            // Whoever waits to be born again need not.
            biased;
            () = world.finish.cancelled() => return,
            () = sleep(pause) => {}
        }
    }
}

/// The end of a life that the seed says, if it says one.
fn some_time(world: &World, percent: u32, chance: &mut Rng) -> Option<Instant> {
    let after = Duration::from_millis(chance.u64(100..60_000));
    let within = world.trace.now() + after < world.plan.storm;
    (chance.u32(0..100) < percent && within).then(|| Instant::now() + after)
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn live(world: &Arc<World>, life: Arc<Life>, chance: &mut Rng) {
    let (crash_at, drain_at) =
        (some_time(world, world.plan.hazards.crash, chance), some_time(world, world.plan.hazards.drain, chance));
    let told = Arc::new(Mutex::new(None));
    let shutdown = Shutdown::when({
        let (finish, told) = (world.finish.clone(), Arc::clone(&told));
        async move {
            tokio::select! {
                // Both only wait.
                biased;
                () = finish.cancelled() => {}
                () = at(drain_at) => {}
            }
            *told.lock().unwrap() = Some(Instant::now());
        }
    });
    world.trace.note(&life.who, "is born");
    let worker = worker(world, &life, chance.u64(..));
    let report = tokio::select! {
        // A crash drops everything that is under way.
        biased;
        () = life.crashed.notified() => None,
        () = at(crash_at) => None,
        report = worker.run(shutdown) => Some(report),
    };
    if !world.finish.is_cancelled() {
        world.promise.groups.life_ended();
    }
    let Some(report) = report else {
        life.crash();
        world.trace.met("crash");
        world.trace.note(&life.who, "crashes");
        return;
    };
    life.state.store(RETURNED, Ordering::Relaxed);
    world.trace.note(&life.who, format_args!("returns {report:?}"));
    let took = told.lock().unwrap().map_or(Duration::ZERO, |told| told.elapsed());
    if took > DRAIN && !world.plan.suspends() {
        world.trace.violated(format_args!("invariant 8: {} took {took:?} to drain", life.who));
    }
    match report {
        Ok(report) if report.stuck > 0 => {
            world.trace.violated(format_args!("invariant 8: {} has stuck handlers", life.who));
        }
        Ok(_) => world.trace.met("drained"),
        Err(WorkerError::Unavailable(_)) => world.trace.met("not started"),
        Err(error) => world.trace.violated(format_args!("invariant 8: {} did not start: {error}", life.who)),
    }
}

fn worker(world: &Arc<World>, life: &Arc<Life>, seed: u64) -> Worker {
    let weather = Arc::new(Weather {
        world: Arc::clone(world),
        life: Arc::clone(life),
        chance: Mutex::new(Rng::with_seed(seed)),
    });
    let broker = FaultyBroker::new(Arc::new(FarBroker { world: Arc::clone(world), life: Arc::clone(life) }));
    let rule = |faults: &Faults, port: Port| {
        let weather = Arc::clone(&weather);
        faults.decide_with(move |call| weather.fault(port, call));
        world.keep(faults.clone());
    };
    for line in &world.plan.lines {
        rule(&broker.faults(&line.queues[0]), Port::Queue);
        rule(&broker.faults(&line.queues[1]), Port::DeadLetters);
    }
    let guard_faults = Faults::default();
    rule(&guard_faults, Port::Guard);
    let guard = FarGuard { world: Arc::clone(world), life: Arc::clone(life) };
    let guard = FaultyGuard::new(Arc::new(guard), guard_faults);
    let near = (NearBroker::new(broker, world, life), NearGuard::new(guard, world, life));
    let teller = || Teller { world: Arc::clone(world), life: Arc::clone(life) };
    let worker = Worker::from_vars(vars(world))
        .adapters(Arc::new(near.0), Arc::new(near.1))
        .clock(world.promise.clocks[life.worker].clone());
    world.plan.lines.iter().fold(worker, |worker, line| worker.queue(line.name, teller()))
}

fn vars(world: &World) -> Vec<(String, String)> {
    let plan = &world.plan;
    let vars = [
        ("QUEUES", plan.lines.iter().map(|line| line.name).collect::<Vec<_>>().join(",")),
        ("KEY", "/id".to_owned()),
        ("VISIBILITY_TIMEOUT", format!("{}s", plan.visibility)),
        ("HANDLER_TIMEOUT", format!("{}s", plan.handler_timeout)),
        ("WAIT_TIME", "3s".to_owned()),
        ("BACKOFF", "1s..8s".to_owned()),
        ("MAX_ATTEMPTS", plan.max_attempts.to_string()),
        ("MAX_TAKEOVERS", plan.max_takeovers.to_string()),
        ("CONCURRENCY", plan.concurrency.to_string()),
        ("CLOCK_SKEW", format!("{}s", SKEW.as_secs())),
        ("CANCEL_GRACE", "1s".to_owned()),
        ("DRAIN_TIMEOUT", format!("{}s", DRAIN.as_secs())),
        ("START_TIMEOUT", "30s".to_owned()),
    ];
    let mut vars: Vec<_> = vars.map(|(name, value)| (name.to_owned(), value)).into();
    for line in &plan.lines {
        let name = line.name.to_uppercase();
        vars.push((format!("{name}_NAME"), line.queues[0].clone()));
        vars.push((format!("{name}_GUARD"), if line.is_guarded() { "claim" } else { "none" }.to_owned()));
    }
    vars.extend(plan.total.map(|total| ("TOTAL_CONCURRENCY".to_owned(), total.to_string())));
    vars.into_iter().map(|(name, value)| (format!("LEASEHOLD_{name}"), value)).collect()
}
