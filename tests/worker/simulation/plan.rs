//! What a seed says: everything that is known before a run begins. Pure; nothing here waits or looks at a clock.

use std::time::Duration;

use fastrand::Rng;

use super::handler::Order;

/// Receives that no run uses up: where this is the limit, SQS never moves a message by itself.
pub(crate) const UNREACHED: u32 = 1_000;

/// By how much any two wall clocks may differ (`CLOCK_SKEW`).
pub(crate) const SKEW: Duration = Duration::from_secs(2);

/// By how much a clock differs that is wild, at the most.
const WILD: Duration = Duration::from_secs(60);

/// One run of the whole world.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    /// The queues. Each key belongs to one.
    pub(crate) lines: Vec<Line>,
    /// `TOTAL_CONCURRENCY`.
    pub(crate) total: Option<u64>,
    /// How long things go wrong.
    pub(crate) storm: Duration,
    /// Seconds of `VISIBILITY_TIMEOUT`, fixed, and so of both leases.
    pub(crate) visibility: u64,
    pub(crate) handler_timeout: u64,
    pub(crate) concurrency: u64,
    pub(crate) max_attempts: u32,
    pub(crate) max_takeovers: u32,
    pub(crate) max_receive_count: u32,
    /// How far ahead the wall clocks are, in milliseconds: of the workers, and of SQS.
    pub(crate) ahead: Vec<i64>,
    /// One worker's clock is off by more than `CLOCK_SKEW`.
    pub(crate) wild: bool,
    pub(crate) sends: Vec<Send>,
    pub(crate) scripts: Vec<Script>,
    /// When the operator looks at the dead letters.
    pub(crate) redrives: Vec<Duration>,
    pub(crate) meddling: Vec<(Duration, Meddling)>,
    pub(crate) hazards: Hazards,
}

/// One queue.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) kind: Kind,
    /// In the configuration.
    pub(crate) name: &'static str,
    /// In SQS: its own, and that of its dead-letter queue.
    pub(crate) queues: [String; 2],
}

/// What kind of queue it is, and how its work is guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Standard,
    /// A FIFO queue with so many groups. Each of its keys belongs to one.
    Fifo {
        groups: usize,
        guarded: bool,
    },
}

/// One message of the producer.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) at: Duration,
    pub(crate) key: usize,
    /// Sent with another payload than the key's first message.
    pub(crate) other_payload: bool,
}

/// What the handler does with one key.
#[derive(Debug)]
pub(crate) struct Script {
    /// On its first runs, in turn; after them it succeeds.
    pub(crate) acts: Vec<Act>,
    /// It fails for good on every run, until its payload is mended.
    pub(crate) hopeless: bool,
    /// Whether it charges and mails as steps.
    pub(crate) steps: bool,
    /// Whether the mail must rather not go out than go out twice.
    pub(crate) once: bool,
    /// Whether it undoes what it did.
    pub(crate) undoes: bool,
    /// Whether it writes an entry into a ledger, in one transaction with "done".
    pub(crate) commits: bool,
}

impl Script {
    /// Never fails by itself: nothing but crashes may bring it to the dead-letter queue.
    pub(crate) fn is_innocent(&self) -> bool {
        !self.hopeless && self.acts.iter().all(|act| matches!(act, Act::NotYet | Act::AskMore))
    }
}

/// How one run of a handler goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Succeed,
    Fail,
    /// After its first step.
    FailBetween,
    FailForGood,
    Panic,
    /// Past its time budget.
    Hang,
    NotYet,
    /// It needs more than its budget, asks for it in time, and succeeds.
    AskMore,
    Unavailable,
    /// The bank charges, and its answer is lost.
    ReplyLost,
    /// The bank refuses for good.
    Declined,
}

/// What befalls the queue from outside.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Meddling {
    /// A message in flight becomes visible.
    Redeliver,
    /// A message in flight becomes visible that soon: a stale handle has shortened its delivery.
    Shorten(Duration),
    /// So many receives bring nothing.
    EmptyReceives(u64),
    /// An operator pauses a queue for so long.
    Pause(Duration),
    /// All machines are suspended together.
    Suspend(Duration),
}

/// A span of time in which something is wrong.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spell {
    pub(crate) from: Duration,
    pub(crate) until: Duration,
    pub(crate) what: Wrong,
}

/// What is wrong in a spell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Nobody answers the guard's callers.
    GuardAway,
    GuardThrottled,
    GuardDenied,
    QueueThrottled,
    QueueAway,
    DeletesDenied,
    CopiesRefused,
    /// What does the work is not there, for anybody.
    HandlerAway,
    /// One worker does nothing, and neither do its handlers; what it sends takes that long.
    Stalled(usize),
    /// One worker's network holds everything back; its handlers go on.
    CutOff(usize),
}

/// How often what goes wrong. Rates are in calls of ten thousand.
#[derive(Debug, Default)]
pub(crate) struct Hazards {
    /// A call meets some fault.
    pub(crate) faulty: u32,
    /// The worker crashes in the middle of a call.
    pub(crate) stop: u32,
    /// The share of lives, in percent, that end in a crash at some moment.
    pub(crate) crash: u32,
    /// The share of lives, in percent, that end in a drain.
    pub(crate) drain: u32,
    pub(crate) spells: Vec<Spell>,
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        // Neighbouring seeds give neighbouring generators; the constant parts them.
        let mut chance = Rng::with_seed(seed ^ 0x9E37_79B9_7F4A_7C15);
        let chance = &mut chance;
        let storm = seconds(chance, 40..160);
        let visibility = chance.u64(8..=24);
        let keys = chance.usize(3..=8);
        let (workers, lines) = (chance.usize(2..=4), lines(chance));
        let mut plan = Self {
            seed,
            workers,
            total: (lines.len() > 1 && chance.bool()).then(|| chance.u64(2 * lines.len() as u64..=12)),
            lines,
            storm,
            visibility,
            handler_timeout: visibility * chance.u64(2..=4),
            concurrency: chance.u64(1..=4),
            max_attempts: chance.u32(2..=4),
            max_takeovers: chance.u32(2..=5),
            max_receive_count: if chance.u8(0..4) == 0 { chance.u32(3..=8) } else { UNREACHED },
            ahead: Vec::new(),
            wild: chance.u8(0..10) == 0,
            sends: sends(chance, keys, storm),
            scripts: (0..keys).map(|_| script(chance)).collect(),
            redrives: (0..chance.usize(0..=3)).map(|_| moment(chance, storm)).collect(),
            meddling: (0..chance.usize(0..=6)).map(|_| (moment(chance, storm), meddling(chance))).collect(),
            hazards: hazards(chance, storm, workers),
        };
        plan.set_clocks(chance);
        if plan.lines.iter().any(|line| line.kind != Kind::Standard) {
            plan.fill_groups(chance);
        }
        plan.drop_steps();
        plan
    }

    fn set_clocks(&mut self, chance: &mut Rng) {
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(0);
        let half = millis(SKEW / 2);
        self.ahead = (0..=self.workers).map(|_| chance.i64(-half..=half)).collect();
        if self.wild {
            let off = chance.i64(millis(SKEW)..=millis(WILD));
            self.ahead[0] = if chance.bool() { off } else { -off };
        }
    }

    /// Without a guard there is nowhere to record one.
    fn drop_steps(&mut self) {
        for key in 0..self.scripts.len() {
            self.scripts[key].steps &= self.line(key).is_guarded();
            self.scripts[key].commits &= self.line(key).is_guarded();
        }
    }

    /// More keys, so that they stand behind each other; and some weather in which what a failing head costs can be told
    /// from what a fault costs.
    fn fill_groups(&mut self, chance: &mut Rng) {
        let keys = chance.usize(4..=12);
        self.sends = sends(chance, keys, self.storm);
        self.scripts = (0..keys).map(|_| script(chance)).collect();
        if chance.bool() {
            // A burst: whole groups come in one receive.
            self.sends.iter_mut().for_each(|send| send.at /= 10);
        }
        if chance.u8(0..4) == 0 {
            let Hazards { crash, drain, .. } = self.hazards;
            self.hazards = Hazards { crash, drain, ..Hazards::default() };
            self.meddling.clear();
            // Every group can rest in hand at once.
            self.concurrency = self.concurrency.max(5);
            self.total = None;
        }
    }
}

impl Line {
    pub(crate) fn is_guarded(&self) -> bool {
        !matches!(self.kind, Kind::Fifo { guarded: false, .. })
    }

    /// What names a message among those of all queues: each queue counts its own.
    pub(crate) fn tag(&self, message_id: &str) -> String {
        format!("{}/{message_id}", self.name)
    }
}

impl Plan {
    /// The queue of a key.
    pub(crate) fn line(&self, key: usize) -> &Line {
        &self.lines[key % self.lines.len()]
    }

    /// The queue of a body.
    pub(crate) fn line_of(&self, body: &str) -> &Line {
        self.line(Order::of(body).map_or(0, |order| order.key()))
    }

    /// What is done with a record's key.
    pub(crate) fn script_of(&self, pk: &str) -> Option<&Script> {
        self.scripts.get(pk.rsplit_once("#k")?.1.parse::<usize>().ok()?)
    }

    /// The queue of that name, in the configuration or in SQS.
    pub(crate) fn line_named(&self, name: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.name == name || line.queues[0] == name)
    }

    /// The message group of a key.
    pub(crate) fn group(&self, key: usize) -> Option<String> {
        let line = self.line(key);
        match line.kind {
            Kind::Standard => None,
            Kind::Fifo { groups, .. } => Some(format!("{}-{}", line.name, (key / self.lines.len()) % groups)),
        }
    }

    /// Whether nothing goes wrong but crashes and drains.
    pub(crate) fn is_calm(&self) -> bool {
        let Hazards { faulty, stop, spells, .. } = &self.hazards;
        !self.wild && *faulty == 0 && *stop == 0 && spells.is_empty() && self.meddling.is_empty()
    }

    /// Whether all machines stand still at some time, beside everything that is timed.
    pub(crate) fn suspends(&self) -> bool {
        self.meddling.iter().any(|(_, meddling)| matches!(meddling, Meddling::Suspend(_)))
    }

    /// Whether a run of this script may use up its budget without being at fault: its machine stands still, or the
    /// table takes its time to record a step.
    pub(crate) fn can_slow(&self, script: &Script) -> bool {
        let mut spells = self.hazards.spells.iter();
        let troubled = self.hazards.faulty > 0 || !self.hazards.spells.is_empty();
        self.suspends() || spells.any(|spell| matches!(spell.what, Wrong::Stalled(_))) || (script.steps && troubled)
    }
}

/// Most worlds have one queue.
fn lines(chance: &mut Rng) -> Vec<Line> {
    let count = if chance.u8(0..3) == 0 { chance.usize(2..=3) } else { 1 };
    ["jobs", "mails", "grants"].into_iter().take(count).map(|name| line(name, kind(chance))).collect()
}

fn line(name: &'static str, kind: Kind) -> Line {
    let suffix = if kind == Kind::Standard { "" } else { ".fifo" };
    Line { kind, name, queues: [format!("{name}{suffix}"), format!("{name}-dlq{suffix}")] }
}

/// Half of all queues are standard; of those with groups every third has no guard.
fn kind(chance: &mut Rng) -> Kind {
    match chance.u8(0..6) {
        0..=2 => Kind::Standard,
        n => Kind::Fifo { groups: chance.usize(1..=5), guarded: n < 5 },
    }
}

fn seconds(chance: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_secs(chance.u64(range))
}

fn moment(chance: &mut Rng, within: Duration) -> Duration {
    Duration::from_millis(chance.u64(0..u64::try_from(within.as_millis()).unwrap_or(u64::MAX)))
}

/// Every key once, and duplicates, at any time.
fn sends(chance: &mut Rng, keys: usize, storm: Duration) -> Vec<Send> {
    let mut sends = Vec::new();
    for key in 0..keys {
        sends.push(Send { at: moment(chance, storm / 2), key, other_payload: false });
    }
    for _ in 0..chance.usize(0..=6) {
        let key = chance.usize(0..keys);
        sends.push(Send { at: moment(chance, storm), key, other_payload: chance.u8(0..6) == 0 });
    }
    sends.sort_by_key(|send| send.at);
    sends
}

fn script(chance: &mut Rng) -> Script {
    const ACTS: [Act; 12] = [
        Act::Succeed,
        Act::Fail,
        Act::Fail,
        Act::FailBetween,
        Act::FailForGood,
        Act::Panic,
        Act::Hang,
        Act::NotYet,
        Act::AskMore,
        Act::Unavailable,
        Act::ReplyLost,
        Act::Declined,
    ];
    let steps = chance.bool();
    let many = if chance.bool() { 0 } else { chance.usize(1..=5) };
    let mut acts: Vec<_> = (0..many).filter_map(|_| chance.choice(ACTS)).collect();
    let (patient, hopeless) = (chance.u8(0..8) == 0, chance.u8(0..10) == 0);
    if patient {
        // More often than it may fail.
        acts = vec![Act::NotYet; 5];
    }
    Script { acts, hopeless, steps, once: chance.bool(), undoes: chance.bool(), commits: chance.u8(0..3) == 0 }
}

fn meddling(chance: &mut Rng) -> Meddling {
    match chance.u8(0..8) {
        0 => Meddling::EmptyReceives(chance.u64(1..=4)),
        1 => Meddling::Suspend(seconds(chance, 1..60)),
        2 => Meddling::Pause(seconds(chance, 1..40)),
        3 | 4 => Meddling::Shorten(seconds(chance, 1..8)),
        _ => Meddling::Redeliver,
    }
}

fn hazards(chance: &mut Rng, storm: Duration, workers: usize) -> Hazards {
    let mut often = |rates: [u32; 4]| rates[chance.usize(0..4)];
    let (faulty, stop) = (often([0, 200, 800, 2_000]), often([0, 0, 50, 200]));
    let (crash, drain) = (often([0, 30, 60, 90]), often([0, 0, 20, 40]));
    let spells = (0..chance.usize(0..=3)).map(|_| spell(chance, storm, workers)).collect();
    Hazards { faulty, stop, crash, drain, spells }
}

fn spell(chance: &mut Rng, storm: Duration, workers: usize) -> Spell {
    let what = match chance.u8(0..14) {
        0 => Wrong::GuardAway,
        1 => Wrong::GuardThrottled,
        2 => Wrong::GuardDenied,
        3 => Wrong::QueueThrottled,
        4 => Wrong::QueueAway,
        5 => Wrong::DeletesDenied,
        6 => Wrong::CopiesRefused,
        7..=9 => Wrong::Stalled(chance.usize(0..workers)),
        10 => Wrong::HandlerAway,
        _ => Wrong::CutOff(chance.usize(0..workers)),
    };
    let from = moment(chance, storm);
    // Mostly about as long as the leases; sometimes longer than what is in hand is kept.
    let length = if chance.u8(0..8) == 0 { seconds(chance, 120..500) } else { seconds(chance, 2..50) };
    Spell { from, until: from + length, what }
}
