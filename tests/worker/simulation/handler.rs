//! The simulated work: what a key's script says, a run at a time, with steps at the bank.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use leasehold::{
    Handler, HandlerError, HandlerResult, JobContext, ResultExt, StepKey, Undo,
    guard::{Fence, ItemWrite, Pk},
};
use serde::Deserialize;

use super::{
    life::Life,
    plan::{Act, Wrong},
    world::{LEDGER, World},
};

/// A message's payload.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: String,
    /// What tells two payloads of one key apart.
    pub(crate) note: String,
}

impl Order {
    pub(crate) fn of(body: &str) -> Option<Self> {
        serde_json::from_str(body).ok()
    }

    /// The place of its key in the plan.
    pub(crate) fn key(&self) -> usize {
        self.id.trim_start_matches('k').parse().unwrap_or_default()
    }

    pub(crate) fn is_mended(&self) -> bool {
        self.note.starts_with("mended")
    }
}

/// The handler of one worker's life.
#[derive(Debug)]
pub(crate) struct Teller {
    pub(crate) world: Arc<World>,
    pub(crate) life: Arc<Life>,
}

/// How one run goes.
#[derive(Debug)]
struct Course {
    act: Act,
    steps: bool,
    once: bool,
    commits: bool,
    /// It fails only when it has charged.
    late: bool,
    before: Duration,
    after: Duration,
    /// Ends when it is told to; else it goes on until it is dropped.
    heeds: bool,
}

/// Tells the promise that a run is over, also when it is dropped.
struct Under<'a> {
    world: &'a World,
    life: &'a Life,
    number: u64,
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.world.promise.run_ended(self.number, self.life.has_crashed());
    }
}

impl Handler for Teller {
    type Payload = Order;

    async fn handle(&self, order: &Order, cx: &JobContext) -> HandlerResult {
        let (pk, fence) = (Pk(cx.key().unwrap_or_default().to_owned()), Fence(cx.fence()));
        let course = self.course(order);
        let trace = &self.world.trace;
        trace.note(&self.life.who, format_args!("runs {} attempt {} {course:?}", order.id, cx.attempt()));
        let id = self.world.plan.line_of(&cx.message().body).tag(&cx.message().id);
        let number = self.world.promise.run_began(self.life.worker, &id, &cx.message().body, &pk, fence);
        let _under = Under { world: &self.world, life: &self.life, number };
        let work = self.work(&course, &pk, cx);
        let result = tokio::select! {
            // What has ended counts; the work that is dropped here is one that heeds.
            biased;
            result = work => result,
            cause = cx.cancelled().wait(), if course.heeds => Err(HandlerError::new(format!("cancelled: {cause:?}"))),
        };
        if result.is_ok() {
            self.world.promise.run_succeeded(&pk, fence, id, cx.message());
        }
        trace.note(&self.life.who, format_args!("ran {}: {result:?}", order.id));
        result
    }

    async fn undo(&self, order: &Order, cx: &JobContext) -> HandlerResult<Undo> {
        let (pk, fence) = (Pk(cx.key().unwrap_or_default().to_owned()), Fence(cx.fence()));
        let plan = &self.world.plan;
        let run = self.world.next_undo(order.key());
        let mut chance = Rng::with_seed(plan.seed.rotate_left(48) ^ ((order.key() as u64) << 16) ^ u64::from(run));
        let undoes = plan.scripts[order.key()].undoes;
        self.world.trace.note(&self.life.who, format_args!("undoes {} attempt {} {undoes}", order.id, cx.attempt()));
        let id = plan.line_of(&cx.message().body).tag(&cx.message().id);
        let number = self.world.promise.undo_began(self.life.worker, &id, &pk, fence);
        let _under = Under { world: &self.world, life: &self.life, number };
        if !undoes {
            return Ok(Undo::Kept);
        }
        self.pause(Duration::from_millis(chance.u64(0..plan.handler_timeout * 100))).await;
        if cx.recorded::<u32>("charge")?.is_some() {
            cx.step("refund", |key| self.pay(&pk, "refund", key, Act::Succeed)).await?;
            self.world.trace.met("refunded");
        }
        match chance.u8(0..8) {
            0 => Err("undo failed").reason("failing"),
            // Without the panic hook, which would print it.
            1 => std::panic::resume_unwind(Box::new("oh")),
            2 => std::future::pending().await,
            _ => Ok(Undo::Undone),
        }
    }
}

impl Teller {
    fn course(&self, order: &Order) -> Course {
        let plan = &self.world.plan;
        let (key, run) = (order.key(), self.world.next_run(order.key()));
        let script = &plan.scripts[key];
        let mut chance = Rng::with_seed(plan.seed.rotate_left(32) ^ ((key as u64) << 16) ^ u64::from(run));
        let act = match script.acts.get(run as usize) {
            _ if order.is_mended() => Act::Succeed,
            _ if script.hopeless => Act::FailForGood,
            Some(act) => *act,
            None => Act::Succeed,
        };
        // Up to a third of the budget each, so that only trouble can make an innocent run out of it.
        let most = plan.handler_timeout * 1000 / if chance.u8(0..3) == 0 { 3 } else { 30 };
        let mut some = || Duration::from_millis(chance.u64(0..most));
        let (before, after) = (some(), some());
        let heeds = chance.bool();
        Course {
            act,
            steps: script.steps,
            once: script.once,
            commits: script.commits,
            late: chance.bool(),
            before,
            after,
            heeds,
        }
    }

    async fn work(&self, course: &Course, pk: &Pk, cx: &JobContext) -> HandlerResult {
        if self.world.is_wrong(Wrong::HandlerAway) {
            self.world.trace.met("handler away");
            return Err("nobody is there").unavailable();
        }
        self.pause(course.before).await;
        match course.act {
            Act::AskMore => {
                let budget = Duration::from_secs(self.world.plan.handler_timeout);
                cx.extend_deadline(budget);
                self.world.trace.met("asked for more time");
                self.pause(budget).await;
            }
            Act::Fail | Act::FailForGood if course.steps && course.late => {}
            Act::Fail => return Err("it failed").reason("failing"),
            Act::FailForGood => return Err("never").permanent().reason("hopeless"),
            // Without the panic hook, which would print it.
            Act::Panic => std::panic::resume_unwind(Box::new("oh")),
            Act::Hang => std::future::pending().await,
            Act::NotYet => return Err("later").not_yet(Duration::from_secs(3)),
            Act::Unavailable => return Err("gone").unavailable(),
            Act::ReplyLost | Act::Declined | Act::FailBetween if !course.steps => {
                return Err("it failed").reason("failing");
            }
            Act::ReplyLost | Act::Declined | Act::FailBetween | Act::Succeed => {}
        }
        if course.steps {
            let (charge, mail) = match course.act {
                Act::ReplyLost if course.once => (Act::Succeed, Act::ReplyLost),
                act => (act, Act::Succeed),
            };
            cx.step("charge", |key| self.pay(pk, "charge", key, charge)).await?;
            match course.act {
                Act::Fail | Act::FailBetween => return Err("between the steps").reason("failing"),
                Act::FailForGood => return Err("never").permanent().reason("hopeless"),
                _ if course.once => cx.step_once("mail", |key| self.mail(pk, key, mail)).await?,
                _ => cx.step("mail", |key| self.pay(pk, "mail", key, Act::Succeed)).await?,
            };
        }
        self.pause(course.after).await;
        if course.commits { self.commit(pk, cx).await } else { Ok(()) }
    }

    /// An entry of its own each time: two of one key would be two effects. What comes after it counts for nothing.
    async fn commit(&self, pk: &Pk, cx: &JobContext) -> HandlerResult {
        let (fence, message) = (Fence(cx.fence()), cx.message());
        let id = self.world.plan.line_of(&message.body).tag(&message.id);
        self.world.promise.run_succeeded(pk, fence, id, message);
        let entry = format!("{pk} {} {}", cx.fence(), cx.attempt());
        cx.confirm_with([ItemWrite::put(LEDGER, [("entry", entry.as_str()), ("key", pk.0.as_str())])]).await?;
        self.world.trace.met("committed");
        match fence.0 % 4 {
            0 => Err(HandlerError::new("after the commit")),
            1 => std::panic::resume_unwind(Box::new("oh")),
            _ => Ok(()),
        }
    }

    /// One call of the bank: it takes a while on the way there and on the way back.
    async fn pay(&self, pk: &Pk, step: &str, key: StepKey, act: Act) -> HandlerResult<u32> {
        const WAY: Duration = Duration::from_millis(150);
        let world = &self.world;
        world.promise.step_began(pk, step, key.as_str());
        self.pause(WAY).await;
        if act == Act::Declined && world.bank.refuse(pk, step, key.as_str()) {
            return Err("declined").definite().reason("declined");
        }
        let paid = world.bank.pay(pk, step, key.as_str());
        world.trace.note(&self.life.who, format_args!("{key} at the bank: {paid:?}"));
        self.pause(WAY).await;
        if act == Act::ReplyLost {
            return Err("no answer from the bank").reason("failing");
        }
        paid.map(|()| 1).definite().reason("declined")
    }

    /// A mail, which a mail server sends as often as it is told to.
    async fn mail(&self, pk: &Pk, key: StepKey, act: Act) -> HandlerResult<u32> {
        self.world.trace.met("begun once");
        self.pay(pk, "mail", key.clone(), Act::Succeed).await?;
        let times = self.world.bank.mail(key.as_str());
        if times > 1 {
            self.world.promise.broken(11, format_args!("{key} is to run once, and ran {times} times"));
        }
        if act == Act::ReplyLost {
            return Err("no answer from the mail server").reason("failing");
        }
        Ok(1)
    }

    /// Waits, and if its machine stands still meanwhile, until that is over.
    async fn pause(&self, time: Duration) {
        tokio::time::sleep(time).await;
        while let Some(left) = self.world.stalled_for(self.life.worker) {
            tokio::time::sleep(left).await;
        }
    }
}
