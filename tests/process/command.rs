//! One `leasehold` process of any command: its arguments, variables and input, what it says, and how it ends.

use std::{collections::BTreeMap, process::Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::bench::SOON;

/// How a process ended, and what it wrote.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Told {
    #[track_caller]
    pub(crate) fn check(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        self
    }
}

/// With these variables and `PATH`, and nothing else of the test's own environment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leasehold {
    pub(crate) variables: BTreeMap<String, String>,
}

impl Leasehold {
    pub(crate) fn new(variables: &[(&str, &str)]) -> Self {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self { variables: variables.collect() }
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").envs(&self.variables);
        command.env("AWS_EC2_METADATA_DISABLED", "true");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Runs to its end, with nothing to read.
    pub(crate) async fn run(&self, args: &[&str]) -> Told {
        self.reads(args, b"").await
    }

    /// Runs to its end on this input.
    pub(crate) async fn reads(&self, args: &[&str], input: &[u8]) -> Told {
        let mut running = self.start(args);
        if let Some(mut stdin) = running.stdin.take() {
            // One that does not read has ended before it was all written.
            let _ = stdin.write_all(input).await;
        }
        running.ends().await
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::new(self.command(env!("CARGO_BIN_EXE_leasehold"), args))
    }

    /// Runs a line that was printed for people to copy.
    pub(crate) async fn shell(&self, line: &str) -> Told {
        Running::new(self.command("/bin/sh", &["-c", line])).ends().await
    }
}

/// A running process. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    seen: Vec<String>,
}

impl Running {
    fn new(mut command: Command) -> Self {
        let mut child = command.spawn().expect("a process");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        Self { child, stdin, lines: BufReader::new(stdout).lines(), seen: Vec::new() }
    }

    /// Waits for the next line on standard output that has this text.
    pub(crate) async fn says(&mut self, text: &str) -> String {
        loop {
            match timeout(SOON, self.lines.next_line()).await {
                Ok(Ok(Some(line))) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                _ => panic!("{text:?} was not said, but:\n{}", self.seen.join("\n")),
            }
        }
    }

    /// Waits for its next line on standard error.
    pub(crate) async fn complains(&mut self) -> String {
        let stderr = self.child.stderr.as_mut().expect("a pipe");
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.push(timeout(SOON, stderr.read_u8()).await.expect("soon").expect("a line"));
        }
        String::from_utf8(line).expect("text")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).expect("it runs");
        kill_process(id, signal).expect("is sent");
    }

    /// Waits for its end, with no more to read.
    pub(crate) async fn ends(mut self) -> Told {
        drop(self.stdin.take());
        let mut stderr = self.child.stderr.take().expect("a pipe");
        let reading = async {
            let mut err = String::new();
            while let Some(line) = self.lines.next_line().await.expect("text") {
                self.seen.push(line);
            }
            stderr.read_to_string(&mut err).await.expect("text");
            err
        };
        let err = timeout(SOON, reading).await.expect("ends soon");
        let status = timeout(SOON, self.child.wait()).await.expect("ends soon").expect("a status");
        Told { code: status.code(), out: self.seen.join("\n"), err }
    }
}
