//! One pass through a dead-letter queue, settling the letters that are meant.
//!
//! Owns the order, the rate and the counts. What is received and not settled is the reading's, which gives it back at the
//! end; dropped midway, it comes back by itself.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{clock::Millis, config::Rate, guard::Pk, message::ReceiptHandle, queue::QueueError};

use super::{
    BrokenOff, DeadLetters, Ending, Fate, Letter, OpsError, Outcome, Put, Redrive, Redriven,
    reading::{Next, Reading},
    redrive::{FAILED, NOT_DELETED},
};

/// A letter, and what is to become of it.
struct Meant {
    letter: Letter,
    fate: Fate,
}

/// So many failures in a row are no letter's own.
const FAILURES: u32 = 3;

/// So many receives in a row that bring nothing from before the beginning are the end, where letters keep arriving.
const NEW_RECEIVES: u32 = 20;

/// What is done with the letters that are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    PutBack,
    Delete,
}

/// One pass through the dead-letter queue.
pub(super) struct Pass<'a, T> {
    letters: &'a DeadLetters,
    ask: &'a Redrive,
    stop: &'a CancellationToken,
    act: Act,
    tell: T,
    begun: Millis,
    meant: usize,
    /// Failures of which one copy is put back, and the work that is.
    put_back: BTreeSet<String>,
    gone_back: BTreeSet<Pk>,
    /// Work that is forced to run again.
    forced: BTreeSet<Pk>,
    /// Groups of which one stays, so that none behind it may go ahead.
    blocked: BTreeSet<String>,
    failures: u32,
    next_at: Instant,
    redriven: Redriven,
}

impl<'a, T: FnMut(&Put<'_>)> Pass<'a, T> {
    pub(super) fn new(
        letters: &'a DeadLetters,
        ask: &'a Redrive,
        stop: &'a CancellationToken,
        act: Act,
        tell: T,
    ) -> Self {
        Self {
            letters,
            ask,
            stop,
            act,
            tell,
            begun: letters.clock.wall(),
            meant: 0,
            put_back: BTreeSet::new(),
            gone_back: BTreeSet::new(),
            forced: BTreeSet::new(),
            blocked: BTreeSet::new(),
            failures: 0,
            next_at: Instant::now(),
            redriven: Redriven::default(),
        }
    }

    pub(super) async fn run(mut self) -> Result<Redriven, BrokenOff> {
        let mut reading = self.letters.reading();
        let outcome = self.all(&mut reading).await;
        self.redriven.ending = *outcome.as_ref().unwrap_or(&Ending::BrokenOff);
        self.redriven.unseen = reading.unseen();
        reading.give_back().await;
        match outcome {
            Ok(_) => Ok(self.redriven),
            Err(error) => Err(BrokenOff { redriven: Box::new(self.redriven), error }),
        }
    }

    async fn all(&mut self, reading: &mut Reading<'_>) -> Result<Ending, OpsError> {
        let mut only_new = 0;
        while self.meant < self.limit() {
            self.keep_to_the_rate(reading).await;
            let next = reading.next(self.ask.choice.at_once(self.meant), self.stop).await;
            let messages = match next.map_err(|error| self.letters.dead.failed(error))? {
                Next::Some(messages) => messages,
                Next::End(ending) => return Ok(ending),
            };
            let letters = self.letters.letters(messages).await;
            let (new, old): (Vec<_>, Vec<_>) = letters.into_iter().partition(|letter| self.is_new(letter));
            self.redriven.others += new.len() as u64;
            only_new = if old.is_empty() { only_new + 1 } else { 0 };
            if only_new == NEW_RECEIVES {
                return Ok(Ending::Dying);
            }
            let meant = self.sort(old);
            self.settle(meant, reading).await?;
        }
        Ok(Ending::Enough)
    }

    fn limit(&self) -> usize {
        self.ask.choice.limit.unwrap_or(usize::MAX)
    }

    /// Whether it came only after the beginning, by SQS's clock. That and ours may differ: what was put back in this pass
    /// and is here again is new, too, if it came shortly before.
    fn is_new(&self, letter: &Letter) -> bool {
        let Some(at) = letter.came_at() else { return false };
        let is_copy = letter.failure_id().is_some_and(|id| self.put_back.contains(id));
        let is_back = !is_copy && letter.pk.as_ref().is_some_and(|pk| self.gone_back.contains(pk));
        at >= self.begun || (is_back && at + self.letters.clock_skew >= self.begun)
    }

    /// Those that are meant, with what is to become of them.
    fn sort(&mut self, letters: Vec<Letter>) -> Vec<Meant> {
        let (mut meant, now) = (Vec::new(), self.letters.clock.wall());
        for letter in letters {
            let is_enough = self.meant >= self.limit();
            if is_enough || !self.ask.choice.takes(&letter, now) {
                self.redriven.others += u64::from(!is_enough);
                continue;
            }
            self.meant += 1;
            let fate = match letter.fate(self.letters, self.ask.force_rerun_by.is_some(), now) {
                Fate::IsOfOthers => Fate::IsOfOthers,
                _ if self.act == Act::Delete => Fate::IsDeleted,
                fate => fate,
            };
            meant.push(Meant { letter, fate });
        }
        meant
    }

    /// Settles them, in order where order counts. All that came of them is counted, also when it ends by that.
    async fn settle(&mut self, meant: Vec<Meant>, reading: &mut Reading<'_>) -> Result<(), OpsError> {
        let together = if self.letters.is_fifo() || self.ask.rate.is_some() { 1 } else { meant.len().max(1) };
        let mut meant = meant.into_iter().peekable();
        while meant.peek().is_some() && !self.stop.is_cancelled() {
            let mut some: Vec<Meant> = meant.by_ref().take(together).collect();
            some.iter_mut().for_each(|one| self.find_others(one));
            let (letters, ask, blocked, act) = (self.letters, self.ask, &self.blocked, self.act);
            let outcomes = some.iter().map(|one| {
                let handle = reading.handle(&one.letter.message.id);
                let is_blocked = one.group(letters).is_some_and(|group| blocked.contains(group));
                async move { if is_blocked { Outcome::Stays } else { one.settle(letters, act, ask, handle).await } }
            });
            let outcomes = join_all(outcomes).await;
            let mut ended = Ok(());
            for (one, outcome) in some.into_iter().zip(outcomes) {
                if matches!(outcome, Outcome::Done) && !self.ask.dry_run {
                    reading.settled(&one.letter.message.id);
                }
                ended = ended.and(self.count(&one, outcome));
            }
            ended?;
            self.next_at = Instant::now() + self.ask.rate.map_or(Duration::ZERO, Rate::interval);
            if meant.peek().is_some() {
                self.keep_to_the_rate(reading).await;
            }
        }
        Ok(())
    }

    async fn keep_to_the_rate(&mut self, reading: &mut Reading<'_>) {
        if !self.ask.dry_run {
            reading.rest_until(self.next_at, self.stop).await;
        }
    }

    /// Of several copies of one failure the first goes back. The others are not needed even if that could not be sent, for
    /// then it stays. Of other letters of work that is forced none goes with it, for each could be one more effect.
    fn find_others(&mut self, one: &mut Meant) {
        if !one.fate.is_put_back() {
            return;
        }
        if let Some(id) = one.letter.failure_id().filter(|id| !id.is_empty())
            && !self.put_back.insert(id.to_owned())
        {
            one.fate = Fate::IsCopy;
            return;
        }
        let Some(pk) = &one.letter.pk else { return };
        if self.forced.contains(pk) {
            one.fate = Fate::AnotherIsForced;
            return;
        }
        self.gone_back.insert(pk.clone());
        if one.fate == Fate::IsForced {
            self.forced.insert(pk.clone());
        }
    }

    fn count(&mut self, one: &Meant, outcome: Outcome) -> Result<(), OpsError> {
        let put = Put { letter: &one.letter, fate: one.fate, outcome };
        (self.tell)(&put);
        match put.outcome {
            Outcome::Done => {
                self.failures = 0;
                *self.redriven.done.entry(one.fate.word()).or_default() += 1;
                return Ok(());
            }
            Outcome::Stays => *self.redriven.stay.entry(one.fate.word()).or_default() += 1,
            Outcome::SentAndStays(_) => *self.redriven.stay.entry(NOT_DELETED).or_default() += 1,
            Outcome::Failed(_) => *self.redriven.stay.entry(FAILED).or_default() += 1,
        }
        if self.act == Act::PutBack {
            self.blocked.extend(one.group(self.letters).map(str::to_owned));
        }
        match put.outcome {
            Outcome::Failed(error) | Outcome::SentAndStays(error) => {
                self.failures += 1;
                use QueueError::{HandleLost, Refused};
                let is_its_own =
                    matches!(error, OpsError::Queue { error: Refused(_) | HandleLost, .. } | OpsError::Changed { .. });
                let is_everybodys = !is_its_own && (!error.is_transient() || self.failures >= FAILURES);
                if is_everybodys { Err(error) } else { Ok(()) }
            }
            Outcome::Done | Outcome::Stays => Ok(()),
        }
    }
}

impl Meant {
    /// Its message group, where that has an order.
    fn group(&self, letters: &DeadLetters) -> Option<&str> {
        self.letter.message.group.as_deref().filter(|_| letters.is_fifo())
    }

    async fn settle(&self, letters: &DeadLetters, act: Act, ask: &Redrive, handle: Option<ReceiptHandle>) -> Outcome {
        if self.fate.stays() {
            return Outcome::Stays;
        }
        if ask.dry_run {
            return Outcome::Done;
        }
        // Somebody else may have it by now.
        let Some(handle) = handle else { return Outcome::Failed(letters.dead.failed(QueueError::HandleLost)) };
        let is_sent = act == Act::PutBack && !matches!(self.fate, Fate::IsDone | Fate::IsCopy);
        let by = ask.force_rerun_by.as_deref().filter(|_| self.fate == Fate::IsForced);
        if let Some(by) = by
            && let Err(error) = letters.reset(&self.letter, by).await
        {
            return Outcome::Failed(error);
        }
        if is_sent && let Err(error) = letters.send_back(&self.letter).await {
            return Outcome::Failed(letters.source.failed(error));
        }
        match letters.dead.queue.delete(&handle).await {
            Ok(()) => Outcome::Done,
            Err(error) if is_sent => Outcome::SentAndStays(letters.dead.failed(error)),
            Err(error) => Outcome::Failed(letters.dead.failed(error)),
        }
    }
}
