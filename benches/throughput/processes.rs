//! One measurement: an engine, a subject, and what both say.
//!
//! Owns the processes and on which core each is; both are gone when a measurement is over.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    thread,
};

use anyhow::Context;
use leasehold::clock::Clock;
use serde::de::DeserializeOwned;

use crate::{report::Measured, subject::Subject, usage::Usage};

/// Measures one subject once.
pub(crate) fn measure(subject: Subject, scale: usize, clock: &Clock) -> anyhow::Result<Measured> {
    let messages = subject.messages() * if subject.is_paced() { 1 } else { scale };
    let bytes = subject.bytes();
    let mut engine = Process::start(0, ["engine".into(), messages.to_string(), bytes.to_string()])?;
    let endpoint = engine.line()?;
    let started = clock.wall().0.to_string();
    let mut worker =
        Process::start(1, ["subject".into(), subject.name().into(), endpoint, messages.to_string(), started])?;
    let usage: Usage = worker.json()?;
    worker.end()?;
    engine.ask()?;
    let calls: BTreeMap<String, u64> = engine.json()?;
    engine.end()?;
    Ok(Measured { messages, usage, calls })
}

/// This binary, in another role. Killed when dropped.
struct Process {
    child: Child,
    says: BufReader<std::process::ChildStdout>,
}

impl Process {
    /// Starts it on a core of its own, where there are two and `taskset` is installed.
    fn start(core: usize, args: impl IntoIterator<Item = String>) -> anyhow::Result<Self> {
        let this = env::current_exe()?.into_os_string();
        let command = |mut words: Vec<OsString>, args: &[String]| {
            let mut command = Command::new(words.remove(0));
            command.args(words).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn()
        };
        let args: Vec<String> = args.into_iter().collect();
        let two = thread::available_parallelism().is_ok_and(|cores| cores.get() >= 2);
        let pinned = ["taskset".into(), "-c".into(), core.to_string().into(), this.clone()];
        let pinned = two.then(|| command(pinned.into(), &args)).and_then(Result::ok);
        let mut child = pinned.map_or_else(|| command(vec![this], &args), Ok)?;
        let says = BufReader::new(child.stdout.take().context("no pipe")?);
        Ok(Self { child, says })
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        anyhow::ensure!(!line.is_empty(), "a process ended before it said what it was to say");
        Ok(line.trim_end().to_owned())
    }

    fn json<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        Ok(serde_json::from_str(&self.line()?)?)
    }

    fn ask(&mut self) -> anyhow::Result<()> {
        Ok(writeln!(self.child.stdin.as_mut().context("no pipe")?)?)
    }

    /// Lets it end by itself.
    fn end(mut self) -> anyhow::Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        anyhow::ensure!(status.success(), "a process ended with {status}");
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already has nothing to be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
