//! One pass through a dead-letter queue, settling the letters that are meant.
//!
//! Owns the order, the rate and the counts. What is received and not settled is handed back to the reading, which gives it
//! back at the end; dropped midway, it comes back by itself.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Millis,
    config::Rate,
    message::ReceiptHandle,
    queue::{BATCH, QueueError, Received},
};

use super::{
    DeadLetters, Fate, Letter, OpsError, Outcome, Put, Reading, Redrive, Redriven,
    reading::HIDDEN,
    redrive::{FAILED, NOT_DELETED},
};

/// A letter and the right to delete it.
struct Held {
    letter: Letter,
    handle: ReceiptHandle,
    fate: Fate,
}

/// So many failures in a row are no letter's own.
const FAILURES: u32 = 3;

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
    tell: T,
    begun: Millis,
    meant: usize,
    /// Failures of which one copy is put back.
    put_back: BTreeSet<String>,
    /// Groups of which one stays, so that none behind it may go ahead.
    blocked: BTreeSet<String>,
    failures: u32,
    next_at: Instant,
    redriven: Redriven,
}

impl<'a, T: FnMut(&Put<'_>)> Pass<'a, T> {
    pub(super) fn new(letters: &'a DeadLetters, ask: &'a Redrive, stop: &'a CancellationToken, tell: T) -> Self {
        let (begun, redriven) = (letters.clock.wall(), Redriven::default());
        Self {
            letters,
            ask,
            stop,
            tell,
            begun,
            meant: 0,
            put_back: BTreeSet::new(),
            blocked: BTreeSet::new(),
            failures: 0,
            next_at: Instant::now(),
            redriven,
        }
    }

    pub(super) async fn run(mut self, act: Act) -> Result<Redriven, OpsError> {
        let mut reading = Reading::begin(self.letters).await?;
        let outcome = self.all(act, &mut reading).await;
        reading.give_back().await;
        self.redriven.is_stopped = self.stop.is_cancelled();
        outcome.map(|()| self.redriven)
    }

    async fn all(&mut self, act: Act, reading: &mut Reading<'_>) -> Result<(), OpsError> {
        while self.meant < self.limit() && !self.stop.is_cancelled() {
            self.keep_to_the_rate().await;
            let received = reading.next(self.at_once()).await;
            let Some(received) = received.map_err(|error| self.letters.dead.failed(error))? else {
                self.redriven.is_all = true;
                break;
            };
            let (meant, mut others) = self.sort(act, received).await;
            let (kept, ended) = self.act(act, meant).await;
            others.extend(kept);
            reading.hold(others);
            ended?;
        }
        Ok(())
    }

    fn limit(&self) -> usize {
        self.ask.choice.limit.unwrap_or(usize::MAX)
    }

    /// How many to receive at once: a limit of one hides no ten from others, unless those that are meant have to be looked
    /// for; and no more than can be settled well before their handles expire.
    fn at_once(&self) -> usize {
        let limit = if self.ask.choice.is_filter() { BATCH } else { self.limit() - self.meant };
        let in_time = self.ask.rate.map_or(BATCH, |rate| {
            usize::try_from(HIDDEN.as_millis() / 2 / rate.interval().as_millis().max(1)).unwrap_or(BATCH)
        });
        limit.min(in_time).clamp(1, BATCH)
    }

    /// Those that are meant with what is to become of them, and the handles of the others.
    async fn sort(&mut self, act: Act, received: Vec<Received>) -> (Vec<Held>, Vec<ReceiptHandle>) {
        let (messages, handles): (Vec<_>, Vec<_>) =
            received.into_iter().map(|received| (received.message, received.handle)).unzip();
        let letters = self.letters.letters(messages).await;
        let (mut meant, mut others) = (Vec::new(), Vec::new());
        for (letter, handle) in letters.into_iter().zip(handles) {
            let is_new = letter.latest().is_some_and(|at| at >= self.begun);
            let is_enough = self.meant >= self.limit();
            if is_new || is_enough || !self.ask.choice.takes(&letter, self.letters.clock.wall()) {
                self.redriven.others += u64::from(!is_enough);
                others.push(handle);
                continue;
            }
            self.meant += 1;
            let fate = match letter.fate(self.letters, self.ask.force_rerun_by.is_some(), self.letters.clock.wall()) {
                Fate::IsOfOthers => Fate::IsOfOthers,
                _ if act == Act::Delete => Fate::IsDone,
                fate => fate,
            };
            meant.push(Held { letter, handle, fate });
        }
        (meant, others)
    }

    /// Settles them, and answers the handles of those that stay. In order where order counts.
    async fn act(&mut self, act: Act, meant: Vec<Held>) -> (Vec<ReceiptHandle>, Result<(), OpsError>) {
        let together = if self.letters.is_fifo() || self.ask.rate.is_some() { 1 } else { meant.len().max(1) };
        let (mut kept, mut meant) = (Vec::new(), meant.into_iter().peekable());
        while meant.peek().is_some() {
            if self.stop.is_cancelled() {
                kept.extend(meant.map(|held| held.handle));
                return (kept, Ok(()));
            }
            let mut some: Vec<Held> = meant.by_ref().take(together).collect();
            some.iter_mut().for_each(|held| self.find_copy(held));
            let (letters, ask, blocked) = (self.letters, self.ask, &self.blocked);
            let outcomes = some.iter().map(|held| async move {
                let is_blocked = held.group(letters).is_some_and(|group| blocked.contains(group));
                if is_blocked { Outcome::Stays } else { held.settle(letters, act, ask).await }
            });
            let outcomes = join_all(outcomes).await;
            for (held, outcome) in some.into_iter().zip(outcomes) {
                if !matches!(outcome, Outcome::Done) || self.ask.dry_run {
                    kept.push(held.handle.clone());
                }
                if let Err(error) = self.count(act, &held, outcome) {
                    kept.extend(meant.map(|held| held.handle));
                    return (kept, Err(error));
                }
            }
            self.next_at = Instant::now() + self.ask.rate.map_or(Duration::ZERO, Rate::interval);
            if meant.peek().is_some() {
                self.keep_to_the_rate().await;
            }
        }
        (kept, Ok(()))
    }

    async fn keep_to_the_rate(&mut self) {
        if self.ask.dry_run {
            return;
        }
        tokio::select! {
            // A stop does not wait for the next turn.
            biased;
            () = self.stop.cancelled() => {}
            () = sleep_until(self.next_at) => {}
        }
    }

    /// Of several copies of one failure the first goes back. The others are not needed even if that could not be sent, for
    /// then it stays.
    fn find_copy(&mut self, held: &mut Held) {
        if !matches!(held.fate, Fate::RunsAgain | Fate::GoesBack | Fate::IsForced) {
            return;
        }
        let Some(id) = held.letter.failure_id().filter(|id| !id.is_empty()) else { return };
        if !self.put_back.insert(id.to_owned()) {
            held.fate = Fate::IsCopy;
        }
    }

    fn count(&mut self, act: Act, held: &Held, outcome: Outcome) -> Result<(), OpsError> {
        let put = Put { letter: &held.letter, fate: held.fate, outcome };
        (self.tell)(&put);
        let word = if act == Act::Delete { "deleted" } else { held.fate.word() };
        match put.outcome {
            Outcome::Done => {
                self.failures = 0;
                *self.redriven.done.entry(word).or_default() += 1;
                return Ok(());
            }
            Outcome::Stays => *self.redriven.stay.entry(held.fate.word()).or_default() += 1,
            Outcome::SentAndStays(_) => *self.redriven.stay.entry(NOT_DELETED).or_default() += 1,
            Outcome::Failed(_) => *self.redriven.stay.entry(FAILED).or_default() += 1,
        }
        self.blocked.extend(held.group(self.letters).map(str::to_owned));
        match put.outcome {
            Outcome::Failed(error) | Outcome::SentAndStays(error) => {
                self.failures += 1;
                use QueueError::{HandleLost, Refused};
                let is_its_own = matches!(error, OpsError::Queue { error: Refused(_) | HandleLost, .. });
                let is_everybodys = !is_its_own && (!error.is_transient() || self.failures >= FAILURES);
                if is_everybodys { Err(error) } else { Ok(()) }
            }
            Outcome::Done | Outcome::Stays => Ok(()),
        }
    }
}

impl Held {
    /// Its message group, where that has an order.
    fn group(&self, letters: &DeadLetters) -> Option<&str> {
        self.letter.message.group.as_deref().filter(|_| letters.is_fifo())
    }

    async fn settle(&self, letters: &DeadLetters, act: Act, ask: &Redrive) -> Outcome {
        match self.fate {
            Fate::IsOfOthers => return Outcome::Stays,
            Fate::KeyIsLost if act == Act::PutBack => return Outcome::Stays,
            _ if ask.dry_run => return Outcome::Done,
            _ => {}
        }
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
        match letters.dead.queue.delete(&self.handle).await {
            Ok(()) => Outcome::Done,
            Err(error) if is_sent => Outcome::SentAndStays(letters.dead.failed(error)),
            Err(error) => Outcome::Failed(letters.dead.failed(error)),
        }
    }
}
