//! Order inside a FIFO group, and what a failing head may cost those behind it. It goes by the messages of the queue,
//! not by their keys: a dead letter that is put back is a new message, at the end of its group.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use leasehold::testing::MemoryQueue;

use super::{plan::Plan, promise::Promise};

/// All groups of all queues. On a standard queue there are none, and nothing is looked at.
#[derive(Debug)]
pub(crate) struct Groups {
    plan: Arc<Plan>,
    queues: Vec<Arc<MemoryQueue>>,
    /// Locked for straight lines.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By message id, for all messages that ever came into a group.
    members: BTreeMap<String, Member>,
    /// How many lives of workers have ended before their time.
    ends: u32,
}

/// A message in its group.
#[derive(Debug)]
struct Member {
    group: String,
    guarded: bool,
    /// Its place: in the order of sending.
    place: usize,
    receives: u32,
    runs: u32,
    /// It became visible before its timeout had ended, which a FIFO queue never does by itself.
    redelivered: bool,
}

impl Groups {
    pub(crate) fn new(plan: Arc<Plan>, queues: Vec<Arc<MemoryQueue>>) -> Self {
        Self { plan, queues, state: Mutex::default() }
    }

    /// A test that panics inside has failed anyway.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message came into the queue.
    pub(crate) fn sent(&self, id: &str, group: Option<&str>, guarded: bool) {
        let Some(group) = group else { return };
        let mut state = self.state();
        let (group, place) = (group.to_owned(), state.members.len());
        let member = Member { group, guarded, place, receives: 0, runs: 0, redelivered: false };
        state.members.insert(id.to_owned(), member);
    }

    /// The queue hands a message out.
    pub(crate) fn received(&self, id: &str) {
        self.with(id, |member| member.receives += 1);
    }

    /// A message was made visible before its time.
    pub(crate) fn redelivered(&self, id: &str) {
        self.with(id, |member| member.redelivered = true);
    }

    /// A worker's life has ended.
    pub(crate) fn life_ended(&self) {
        self.state().ends += 1;
    }

    fn with(&self, id: &str, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.state().members.get_mut(id) {
            change(member);
        }
    }

    /// All messages in the queues.
    fn open(&self) -> impl Iterator<Item = String> {
        let lines = self.plan.lines.iter().zip(&self.queues);
        lines.flat_map(|(line, queue)| queue.messages().into_iter().map(|message| line.tag(&message.id)))
    }

    /// Invariant 9: a handler begins with a message, and nothing before it in its group is open.
    pub(crate) fn run_began(&self, promise: &Promise, id: &str) {
        self.with(id, |member| member.runs += 1);
        let state = self.state();
        let Some(member) = state.members.get(id) else { return };
        let in_queue: BTreeSet<String> = self.open().collect();
        let beside = || state.members.iter().filter(|(_, other)| other.group == member.group);
        let before: Vec<_> = beside().filter(|(_, other)| other.place < member.place).collect();
        for (other, _) in before.iter().filter(|(other, _)| in_queue.contains(*other)) {
            if !promise.is_accounted_for(other) {
                promise.trace.violated(format_args!("invariant 9: {id} begins, and {other} before it is still open"));
            }
        }
        if before.iter().any(|(_, other)| other.runs > 0) {
            promise.trace.met("a follower begins");
        }
        if before.iter().any(|(other, _)| promise.is_dead_lettered(other)) {
            promise.trace.met("a follower of a dead head begins");
        }
        let mut behind = beside().filter(|(_, other)| other.place > member.place);
        if member.runs > 1 && behind.clone().next().is_some() {
            promise.trace.met("a head begins again before its followers");
        }
        let after = behind.find(|(_, other)| other.runs > 0);
        // Under a guard, what was redelivered is found done.
        let of_its_kind = if member.guarded { promise.is_dead_lettered(id) } else { member.redelivered };
        let excused = of_its_kind || promise.has_just_woken();
        if let Some((after, _)) = after.filter(|_| !excused) {
            promise.trace.violated(format_args!("invariant 9: {id} begins again, after {after} behind it has begun"));
        }
    }

    /// Invariant 10, where receives are not lost to anything else.
    pub(crate) fn check(&self, promise: &Promise) {
        let state = self.state();
        for (id, member) in &state.members {
            let most = member.runs + 1 + RECEIVES_FOR_AN_END * state.ends;
            if self.plan.is_calm() && member.receives > most {
                let (receives, runs, ends) = (member.receives, member.runs, state.ends);
                promise.trace.violated(format_args!(
                    "invariant 10: {id} was received {receives} times, for {runs} runs and {ends} lives that ended"
                ));
            }
        }
    }
}

/// What the end of a worker's life may cost each message of a group: the receive that it had lost.
const RECEIVES_FOR_AN_END: u32 = 1;
