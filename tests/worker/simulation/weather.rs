//! What goes wrong with one life's calls, as the seed says.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fastrand::Rng;
use leasehold::testing::{Call, Failure, Fault};

use super::{life::Life, plan::Wrong, world::World};

/// Which port a call is one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    Queue,
    DeadLetters,
    Guard,
}

#[derive(Debug)]
pub(crate) struct Weather {
    pub(crate) world: Arc<World>,
    pub(crate) life: Arc<Life>,
    /// Locked for single draws.
    pub(crate) chance: Mutex<Rng>,
}

impl Weather {
    /// The fault that a call meets.
    pub(crate) fn fault(&self, port: Port, call: &Call) -> Option<Fault> {
        let now = self.world.trace.now();
        if now >= self.world.plan.storm {
            return None;
        }
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = self.by_spell(port, call, now, &mut chance).or_else(|| self.by_chance(port, call, &mut chance))?;
        let (operation, subject) = (call.operation, &call.subject);
        self.world.trace.note(&self.life.who, format_args!("{operation} {subject} meets {fault:?}"));
        self.world.trace.met(name(&fault));
        Some(fault)
    }

    fn by_spell(&self, port: Port, call: &Call, now: Duration, chance: &mut Rng) -> Option<Fault> {
        let spells = self.world.plan.hazards.spells.iter();
        let here = spells.filter(|spell| (spell.from..spell.until).contains(&now)).find_map(|spell| {
            let guard = port == Port::Guard;
            let fault = match spell.what {
                Wrong::Stalled(worker) | Wrong::CutOff(worker) if worker == self.life.worker => {
                    let left = spell.until - now;
                    if chance.bool() { Fault::Delay(left) } else { Fault::DelayReply(left) }
                }
                Wrong::GuardAway if guard => *chance.choice(&[Fault::Hang, Fault::LoseReply])?,
                Wrong::GuardThrottled if guard => Fault::Fail(Failure::Throttled),
                Wrong::GuardDenied if guard && call.operation != "facts" => Fault::Fail(Failure::Denied),
                Wrong::QueueThrottled if !guard => Fault::Fail(Failure::Throttled),
                Wrong::QueueAway if !guard => *chance.choice(&[Fault::Hang, Fault::LoseReply])?,
                Wrong::DeletesDenied if call.operation == "delete" => Fault::Fail(Failure::Denied),
                Wrong::CopiesRefused if call.operation == "send" => Fault::Fail(Failure::Denied),
                _ => return None,
            };
            Some(fault)
        })?;
        // A spell that lets nothing through teaches less than one that lets something through.
        (chance.u8(0..10) > 0).then_some(here)
    }

    fn by_chance(&self, port: Port, call: &Call, chance: &mut Rng) -> Option<Fault> {
        let hazards = &self.world.plan.hazards;
        // Up to three leases: later than anything that waits for it.
        let late = Duration::from_millis(chance.u64(0..self.world.plan.visibility * 3_000));
        if chance.u32(0..10_000) < hazards.stop {
            self.life.crash();
            return Some(match chance.u8(0..4) {
                0 => Fault::Stop { applied: false },
                1 => Fault::Stop { applied: true },
                // What it has sent is on its way, and lands when it is dead.
                _ => Fault::HangThenApply(late),
            });
        }
        if chance.u32(0..10_000) >= hazards.faulty {
            return None;
        }
        Some(match chance.u8(0..10) {
            0 => Fault::Fail(Failure::Throttled),
            1 => Fault::Fail(Failure::Unavailable),
            2 if port == Port::Guard => Fault::Fail(Failure::Conflict),
            2 | 3 if call.operation == "change_visibility" => Fault::Fail(Failure::HandleLost),
            3 => Fault::ApplyThenFail(Failure::Unavailable),
            4 => Fault::Delay(late),
            5 => Fault::DelayReply(late),
            6 => Fault::Hang,
            7 => Fault::HangThenApply(late),
            _ => Fault::LoseReply,
        })
    }
}

fn name(fault: &Fault) -> &'static str {
    match fault {
        Fault::Fail(_) => "failed call",
        Fault::ApplyThenFail(_) => "applied call that failed",
        Fault::Delay(_) => "late call",
        Fault::DelayReply(_) => "late reply",
        Fault::LoseReply => "lost reply",
        Fault::Hang => "lost call",
        Fault::HangThenApply(_) => "stuck call",
        Fault::Stop { applied: true } => "crash after a call",
        Fault::Stop { applied: false } => "crash before a call",
    }
}
