//! One world from one seed: queues, one table, a bank, workers, a producer and an operator, through a storm into the calm.

use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::{Arc, Mutex, Once, PoisonError},
    time::Duration,
};

use fastrand::Rng;
use leasehold::{
    clock::Clock,
    guard::{Change, Control, ControlKey, Guard, GuardError, Paused, Pk, Status, Written, memory::MemoryGuard},
    message::{Attribute, DEAD_LETTER_ATTRIBUTE, Message, ReceiptHandle},
    queue::{Outgoing, Queue, Receive},
    testing::{Faults, MemoryBroker, MemoryQueue, MemoryQueueSettings},
};
use tokio::{runtime, task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    bank::Bank,
    groups::Groups,
    life,
    plan::{Meddling, Plan, Wrong},
    promise::Promise,
    quiet,
    trace::{Trace, Written as Outcome},
};

/// A table of the business's own.
pub(crate) const LEDGER: &str = "ledger";

/// How long after the storm everything must be settled.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Arc<Plan>,
    pub(crate) trace: Arc<Trace>,
    pub(crate) promise: Promise,
    pub(crate) bank: Bank,
    pub(crate) broker: MemoryBroker,
    pub(crate) guard: MemoryGuard,
    /// The end.
    pub(crate) finish: CancellationToken,
    /// A fault planted in the table: every confirm is written, whatever its condition says.
    unconditional_confirm: bool,
    /// How often each key was run.
    runs: Mutex<BTreeMap<usize, u32>>,
    /// The last handle of each message.
    handles: Mutex<BTreeMap<String, ReceiptHandle>>,
    /// Of all lives: what is stuck on the wire outlives its worker.
    faults: Mutex<Vec<Faults>>,
}

thread_local! {
    /// Panics of this thread that were not a handler's: those are raised without the hook.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// Counts panics from now on. A task of the worker that panics is noted there, reported, and otherwise survived.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            told(panic);
        }));
    });
    PANICS.set(0);
}

/// Runs the world of a seed.
pub(crate) fn run(seed: u64, unconditional_confirm: bool) -> Outcome {
    count_panics();
    let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let world = Arc::new(World::new(Plan::of(seed), unconditional_confirm));
        world.play().await;
        if PANICS.get() > 0 {
            world.trace.violated("invariant 8: something of ours panicked");
        }
        world.trace.take()
    })
}

impl World {
    fn new(plan: Plan, unconditional_confirm: bool) -> Self {
        let (plan, trace, guard) = (Arc::new(plan), Arc::new(Trace::new()), MemoryGuard::default());
        guard.add_table(LEDGER, &["entry"]);
        let ahead = plan.ahead.iter().enumerate();
        let mut clocks: Vec<_> = ahead.map(|(i, ahead)| Clock::simulated(plan.seed ^ (i as u64), *ahead)).collect();
        let broker = MemoryBroker::with_clock(clocks.pop().expect("the clock of SQS"));
        let create = |[jobs, dead_letters]: &[String; 2]| {
            broker.create(dead_letters, MemoryQueueSettings::default());
            let redrive = Some((dead_letters.clone(), plan.max_receive_count));
            broker.create(jobs, MemoryQueueSettings { redrive, ..MemoryQueueSettings::default() })
        };
        let queues = plan.lines.iter().map(|line| create(&line.queues)).collect();
        let groups = Groups::new(Arc::clone(&plan), queues);
        Self {
            promise: Promise::new(Arc::clone(&plan), Arc::clone(&trace), guard.clone(), clocks, groups),
            plan,
            trace,
            bank: Bank::default(),
            broker,
            guard,
            finish: CancellationToken::new(),
            unconditional_confirm,
            runs: Mutex::default(),
            handles: Mutex::default(),
            faults: Mutex::default(),
        }
    }

    async fn play(self: &Arc<Self>) {
        self.trace.note("", format_args!("{:?}", self.plan));
        for (is_so, what) in [(self.plan.wild, "a wild clock"), (self.plan.lines.len() > 1, "several queues")] {
            if is_so {
                self.trace.met(what);
            }
        }
        let mut lives = JoinSet::new();
        for worker in 0..self.plan.workers {
            lives.spawn(life::lives(Arc::clone(self), worker));
        }
        let mut around = JoinSet::new();
        around.spawn(Arc::clone(self).produce());
        around.spawn(Arc::clone(self).meddle());
        around.spawn(Arc::clone(self).operate());
        sleep(self.plan.storm).await;
        self.trace.note("", "the storm is over");
        around.join_all().await;
        self.settled().await;
        self.finish.cancel();
        lives.join_all().await;
        let faults = std::mem::take(&mut *self.faults.lock().unwrap_or_else(PoisonError::into_inner));
        for faults in faults {
            faults.landed().await;
            faults.clear();
        }
        // Tasks that were aborted are gone once they have been looked at.
        sleep(Duration::from_millis(1)).await;
        let left = runtime::Handle::current().metrics().num_alive_tasks();
        if left > 0 {
            self.trace.violated(format_args!("invariant 8: {left} tasks are left"));
        }
        let [queues, dead] =
            [0, 1].map(|place| self.queues(place).flat_map(|queue| queue.messages()).collect::<Vec<_>>());
        quiet::check(&self.promise, &self.bank, &queues, &dead);
    }

    /// Waits until all queues are empty.
    async fn settled(&self) {
        let until = self.trace.now() + PATIENCE;
        while self.queues(0).any(|queue| !queue.is_empty()) && self.trace.now() < until {
            sleep(Duration::from_secs(1)).await;
        }
        self.trace.note("", "all is settled");
    }

    /// All queues (0), or their dead-letter queues (1).
    fn queues(&self, place: usize) -> impl Iterator<Item = Arc<MemoryQueue>> {
        self.plan.lines.iter().map(move |line| self.broker.queue(&line.queues[place]))
    }

    async fn until(&self, time: Duration) {
        sleep(time.saturating_sub(self.trace.now())).await;
    }

    async fn produce(self: Arc<Self>) {
        for (number, send) in self.plan.sends.iter().enumerate() {
            self.until(send.at).await;
            let mut note = if send.other_payload { "other" } else { "first" }.to_owned();
            if !self.plan.line(send.key).is_guarded() {
                // Without a guard each message is work of its own, and is told from its duplicates by its body.
                note.push_str(&format!(" {number}"));
            }
            let group = self.plan.group(send.key);
            self.send(Outgoing { body: body(send.key, &note), group, ..Outgoing::default() }, None);
        }
    }

    fn send(&self, mut message: Outgoing, redriven: Option<&Message>) {
        let (body, group) = (message.body.clone(), message.group.clone());
        let note = redriven.and_then(|message| message.dead_letter.as_ref());
        // Its own each time: what is sent here is sent again on purpose, and not for SQS to drop.
        message.deduplication_id = group.is_some().then(|| self.promise.next_deduplication_id());
        let line = self.plan.line_of(&body);
        let Some(id) = self.broker.queue(&line.queues[0]).put(message) else { return };
        let id = line.tag(&id);
        self.trace.note("", format_args!("sends {id} {body}{}", note.map_or("", |_| ", redriven")));
        self.promise.groups.sent(&id, group.as_deref(), line.is_guarded());
        self.promise.sent(id, &body, note);
    }

    async fn meddle(self: Arc<Self>) {
        let mut meddling = self.plan.meddling.clone();
        meddling.sort_by_key(|(at, _)| *at);
        let mut chance = Rng::with_seed(self.plan.seed.rotate_left(16));
        for (at, meddling) in meddling {
            self.until(at).await;
            let line = &self.plan.lines[chance.usize(0..self.plan.lines.len())];
            let jobs = self.broker.queue(&line.queues[0]);
            self.trace.note("", format_args!("{meddling:?} {}", line.name));
            match meddling {
                Meddling::Redeliver => {
                    let messages = jobs.messages();
                    let message = chance.choice(&messages);
                    if let Some(message) = message.filter(|message| jobs.redeliver(&message.id)) {
                        self.trace.met("redelivered");
                        self.promise.groups.redelivered(&line.tag(&message.id));
                    }
                }
                Meddling::Shorten(time) => {
                    let messages = jobs.messages();
                    let tag = chance.choice(&messages).map(|message| line.tag(&message.id)).unwrap_or_default();
                    if let Some(handle) = self.handle(&tag)
                        && jobs.change_visibility(&handle, time).await.is_ok()
                    {
                        self.trace.met("shortened");
                        self.promise.groups.redelivered(&tag);
                    }
                }
                Meddling::EmptyReceives(receives) => jobs.empty_receives(receives),
                Meddling::Pause(time) => {
                    self.pause(&line.queues[0], true).await;
                    sleep(time).await;
                    self.pause(&line.queues[0], false).await;
                    self.trace.met("paused");
                }
                Meddling::Suspend(time) => {
                    let woken = self.trace.now() + time;
                    self.promise.wakes(woken);
                    tokio::time::advance(time).await;
                }
            }
        }
    }

    /// An operator's word on a queue.
    async fn pause(&self, queue: &str, holds: bool) {
        let at = self.broker.clock().wall();
        let paused = holds.then(|| Paused { at, by: "the operator".to_owned(), why: None });
        let control = Control { paused, resumed_at: (!holds).then_some(at) };
        self.guard.set_control(&ControlKey::new(None, queue), &control).await.expect("the operator's own call");
    }

    /// Looks at the dead letters some times, the last time when the storm is over, and puts most of them back.
    async fn operate(self: Arc<Self>) {
        let mut times = self.plan.redrives.clone();
        times.sort();
        times.push(self.plan.storm + Duration::from_secs(90));
        let mut chance = Rng::with_seed(self.plan.seed.rotate_left(8));
        let mut number = 0;
        for time in times {
            self.until(time).await;
            let ask = Receive { max: 10, wait: Duration::ZERO, visibility: Duration::from_secs(1), attempt_id: None };
            let mut letters = Vec::new();
            for dead in self.queues(1) {
                let received = dead.receive(&ask).await.expect("the operator's own call");
                letters.extend(received.into_iter().map(|received| (Arc::clone(&dead), received)));
            }
            for (dead, received) in letters {
                number += 1;
                let message = received.message;
                let mut copy = Outgoing::from(&message);
                if let Some(note) = &message.dead_letter {
                    let json = serde_json::to_string(note).expect("a note is JSON");
                    copy.attributes.insert(DEAD_LETTER_ATTRIBUTE.to_owned(), Attribute::text(json));
                }
                match chance.u8(0..3) {
                    0 => continue,
                    1 => {}
                    _ => copy.body = self.mended(&message, number),
                }
                dead.delete(&received.handle).await.expect("the operator's own call");
                self.send(copy, Some(&message));
            }
        }
    }

    fn mended(&self, message: &Message, number: u32) -> String {
        self.promise.mended(&message.body);
        let key = super::handler::Order::of(&message.body).map_or(0, |order| order.key());
        body(key, &format!("mended {number}"))
    }

    /// Which run of the key this is, from 0.
    pub(crate) fn next_run(&self, key: usize) -> u32 {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let run = runs.entry(key).or_default();
        *run += 1;
        *run - 1
    }

    /// Which undo of the key this is, from 0.
    pub(crate) fn next_undo(&self, key: usize) -> u32 {
        self.next_run(self.plan.scripts.len() + key)
    }

    /// Whether that is wrong now.
    pub(crate) fn is_wrong(&self, what: Wrong) -> bool {
        let now = self.trace.now();
        let mut spells = self.plan.hazards.spells.iter();
        now < self.plan.storm && spells.any(|spell| spell.what == what && (spell.from..spell.until).contains(&now))
    }

    /// How long a worker's machine still stands still, if it does.
    pub(crate) fn stalled_for(&self, worker: usize) -> Option<Duration> {
        let now = self.trace.now();
        let spells = self.plan.hazards.spells.iter().filter(|spell| spell.what == Wrong::Stalled(worker));
        let now_and_here = spells.filter(|spell| now < self.plan.storm && spell.from <= now && now < spell.until);
        now_and_here.map(|spell| spell.until - now).max()
    }

    /// A queue hands out a message.
    pub(crate) fn saw(&self, tag: String, handle: ReceiptHandle) {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).insert(tag, handle);
    }

    fn handle(&self, tag: &str) -> Option<ReceiptHandle> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).get(tag).cloned()
    }

    /// Keeps what is stuck on the wire of a life.
    pub(crate) fn keep(&self, faults: Faults) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(faults);
    }

    /// Writes a change, as the table would.
    pub(crate) async fn write(&self, pk: &Pk, change: &Change) -> Result<Written, GuardError> {
        if let (true, Change::Confirm { .. }, Some(mut record)) =
            (self.unconditional_confirm, change, self.guard.record(pk))
        {
            record.status = Status::Done;
            self.guard.put(record);
            return Ok(Written::Applied);
        }
        self.guard.write(pk, change).await
    }
}

fn body(key: usize, note: &str) -> String {
    format!(r#"{{"id":"k{key}","note":"{note}"}}"#)
}
