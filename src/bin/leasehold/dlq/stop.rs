//! When somebody says stop: the first Ctrl-C or SIGTERM is a word to what runs, the second drops it.
//!
//! Owns the signals of a whole `dlq` command, and what is said of them. Nothing is cut off between a send and a delete by
//! the first.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    io::{self, Write},
};

use indicatif::ProgressBar;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{Ended, words::confirm};

/// What the first and the second word mean where messages are received.
const RECEIVING: [&str; 2] =
    ["Stopping: what is under way is finished, the rest is given back (again: it is not)", "Stopped"];

/// What they mean where SQS works by itself.
pub(super) const MOVING: [&str; 2] = [
    "Stopping: SQS is told to stop; what it has moved stays moved (again: this ends at once)",
    "SQS goes on by itself, unless it was told in time: the same command watches it",
];

/// Whether and how somebody says stop.
pub(super) struct Stop {
    told: CancellationToken,
    words: Cell<[&'static str; 2]>,
    bar: RefCell<ProgressBar>,
}

impl Stop {
    pub(super) fn new() -> Self {
        Self { told: CancellationToken::new(), words: Cell::new(RECEIVING), bar: RefCell::new(ProgressBar::hidden()) }
    }

    /// Runs until it is done; what the second word drops comes back by itself in two minutes.
    pub(super) async fn or_done<T>(&self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let twice = async {
            for number in 0..2 {
                tokio::select! {
                    // A signal that arrives meanwhile is kept for the next turn.
                    biased;
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                self.told.cancel();
                self.say(self.words.get()[number]);
            }
        };
        tokio::select! {
            // The work is the arm that ends.
            biased;
            done = work => done,
            () = twice => Err(stopped()),
        }
    }

    /// What reads and changes nothing is dropped at the first word.
    pub(super) async fn or<T>(&self, look_up: impl Future<Output = T>) -> anyhow::Result<T> {
        tokio::select! {
            biased;
            () = self.told.cancelled() => Err(stopped()),
            done = look_up => Ok(done),
        }
    }

    /// Asks on the terminal, on a thread of its own, so that signals are heard meanwhile.
    pub(super) async fn confirmed(&self, question: String) -> anyhow::Result<bool> {
        self.or(tokio::task::spawn_blocking(move || confirm(&question))).await??
    }

    /// What listens for the first word.
    pub(super) fn told(&self) -> &CancellationToken {
        &self.told
    }

    /// What the words mean from now on.
    pub(super) fn means(&self, words: [&'static str; 2]) {
        self.words.set(words);
    }

    pub(super) fn means_receiving(&self) {
        self.words.set(RECEIVING);
    }

    /// Above this bar, from now on.
    pub(super) fn shows(&self, bar: ProgressBar) {
        self.bar.replace(bar);
    }

    /// A line on standard error, which may be closed.
    pub(super) fn say(&self, what: &str) {
        self.bar.borrow().suspend(|| {
            let _ = writeln!(io::stderr(), "{what}");
        });
    }
}

/// The end of a command that was told to stop.
pub(super) fn stopped() -> anyhow::Error {
    Ended { code: 1, told: "stopped".to_owned() }.into()
}
