//! What is logged and not yet written. A thread of its own writes it, so that a reader who stands still holds up that
//! thread alone: the worker has leases to keep.
//!
//! Bounded: what does not fit is dropped and counted, and the number is logged when there is room again.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// Minutes of a busy worker's log; less than a small container has to spare.
const MOST_BYTES: usize = 4 << 20;

static BACKLOG: Backlog = Backlog { state: Mutex::new(State::new()), changed: Condvar::new() };

struct Backlog {
    /// Held for a few straight lines, and never while something is written.
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    dropped: u64,
    is_writing: bool,
}

impl State {
    const fn new() -> Self {
        Self { lines: VecDeque::new(), bytes: 0, dropped: 0, is_writing: false }
    }

    fn push(&mut self, line: &[u8]) {
        self.bytes += line.len();
        self.lines.push_back(line.to_owned());
        // The oldest goes, for the last lines of a process tell most.
        while self.bytes > MOST_BYTES && self.pop().is_some() {
            self.dropped += 1;
        }
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let line = self.lines.pop_front()?;
        self.bytes -= line.len();
        Some(line)
    }
}

impl Backlog {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next line to be written. Waits for one.
    fn next(&self) -> Vec<u8> {
        let mut state = self.state();
        state.is_writing = false;
        self.changed.notify_all();
        loop {
            if let Some(line) = state.pop() {
                state.is_writing = true;
                return line;
            }
            if state.dropped > 0 {
                let dropped = std::mem::take(&mut state.dropped);
                state.is_writing = true;
                drop(state);
                tracing::warn!(
                    dropped,
                    "lines of this log were dropped, for it could not be written as fast as it grew"
                );
                state = self.state();
                state.is_writing = false;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Starts the thread that writes to standard output.
pub(super) fn start() -> io::Result<()> {
    let write = || loop {
        // A line that cannot be written has nobody to be told to.
        let _ = io::stdout().write_all(&BACKLOG.next());
    };
    thread::Builder::new().name("log".to_owned()).spawn(write).map(drop)
}

/// Waits until all is written, but not for longer than this.
pub(super) fn flush(longest: Duration) {
    let is_left = |state: &mut State| state.is_writing || !state.lines.is_empty() || state.dropped > 0;
    drop(BACKLOG.changed.wait_timeout_while(BACKLOG.state(), longest, is_left));
}

/// Takes a line that has no end yet.
pub(super) fn line(text: &str) {
    BACKLOG.state().push(format!("{text}\n").as_bytes());
    BACKLOG.changed.notify_all();
}

/// Takes one line with each `write`, as the formatter gives them.
pub(super) struct Line;

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        BACKLOG.state().push(line);
        BACKLOG.changed.notify_all();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted_and_what_is_taken_makes_room() {
        let mut state = State::new();
        let line = |byte| vec![byte; MOST_BYTES / 2];
        for byte in *b"abc" {
            state.push(&line(byte));
        }
        assert_eq!((state.lines.len(), state.dropped), (2, 1));
        assert_eq!(state.pop(), Some(line(b'b')), "the oldest was dropped");
        state.push(&line(b'd'));
        assert_eq!((state.lines.len(), state.dropped, state.bytes), (2, 1, MOST_BYTES));
    }
}
