//! Exec handlers: a program in any language, run once for each message.
//!
//! The body is on its standard input, the facts are in variables, and its exit code is the verdict. It runs in a process
//! group of its own, and nothing of that group is left when the run is over, however it ends: by itself, told to stop, or
//! dropped. Knows nothing of queues and guards.

use std::{
    io::{self, ErrorKind},
    os::unix::process::ExitStatusExt,
    pin::pin,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, join3, ready},
};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process_group},
};
use tokio::{
    io::AsyncWriteExt,
    process::{Child, ChildStdin, Command},
    time::timeout,
};

use crate::{clock::Clock, config::env, message::Message};

use super::{
    Cancelled, Handler, HandlerError, HandlerResult, JobContext, Probe, Raw, Traits,
    outside::NOT_YET_DELAY,
    remote::{Askable, Told, answering},
};
use said::Said;

mod facts;
mod place;
pub(crate) mod said;
#[cfg(test)]
mod tests;

/// The exit code of work that can never succeed: `EX_DATAERR` of `sysexits.h`.
const PERMANENT: i32 = 65;

/// The exit code of work that is not to be done yet: `EX_TEMPFAIL` of `sysexits.h`.
const NOT_YET: i32 = 75;

/// How long the output is read on when the program has ended. Its group is killed by then, so only a process that has
/// left the group can still hold the pipes, and that one is not waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What gives the AWS SDKs credentials, or says where to find them.
/// <https://docs.aws.amazon.com/sdkref/latest/guide/settings-reference.html>
const CREDENTIALS: [&str; 15] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_CONFIG_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_DEFAULT_PROFILE",
    "AWS_PROFILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SECURITY_TOKEN",
    "AWS_SESSION_TOKEN",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
];

/// Runs a program for each message, without a shell.
///
/// The program gets the body on its standard input, as it came; it need not read it. Its exit code is the verdict:
///
/// | exit | means |
/// | --- | --- |
/// | 0 | done |
/// | 65 | failed for good: dead-lettered with what it said last |
/// | 75 | not yet: again in 30 seconds, and no attempt is used |
/// | any other code, or a signal | a failed attempt: again after the back-off |
///
/// A program that is not there, or cannot be started, uses no attempt; the queue pauses until it is found.
///
/// What it writes to standard error and output goes to the log at level `debug`, line by line; the end of its standard
/// error is also the text of its failure, the last line first. Neither is kept beyond that, however much it is.
///
/// # Variables
/// | variable | |
/// | --- | --- |
/// | `LEASEHOLD_IDEMPOTENCY_KEY` | to be handed downstream: the same on every attempt. Absent only without a guard |
/// | `LEASEHOLD_FENCE` | the fencing token, growing with each run of a key; 0 without a guard |
/// | `LEASEHOLD_ATTEMPT` | from 1; counts failures, without a guard deliveries |
/// | `LEASEHOLD_DEADLINE` | when the time budget ends, in whole seconds since the Unix epoch |
/// | `LEASEHOLD_JOB_URL`, `LEASEHOLD_JOB_TOKEN` | where steps are recorded, and with what; not without a guard, and only with the feature `serve` |
/// | `LEASEHOLD_STEPS` | the results of the steps that are recorded, as a JSON object; absent where they are larger than 64 KiB, and without a URL |
/// | `LEASEHOLD_QUEUE` | the queue's name in the configuration |
/// | `LEASEHOLD_MESSAGE_ID` | |
/// | `LEASEHOLD_RECEIVE_COUNT` | how often the message was received, this time included |
/// | `LEASEHOLD_GROUP_ID` | the message group id, if there is one: on FIFO queues, and on fair standard queues |
/// | `LEASEHOLD_DEDUPLICATION_ID` | on FIFO queues |
/// | `LEASEHOLD_TRACE_HEADER` | the X-Ray trace header as it came, if there is one |
/// | `TRACEPARENT`, `TRACESTATE`, `_X_AMZN_TRACE_ID` | the trace that this run is in (`docs/telemetry.md`); the last where the producer has sent X-Ray's |
/// | `LEASEHOLD_SENT_AT` | when the message was sent, in whole seconds since the Unix epoch, if that is known |
/// | `LEASEHOLD_SNS_TOPIC_ARN`, `_MESSAGE_ID`, `_SUBJECT`, `_PUBLISHED_AT`, `_SEQUENCE_NUMBER` | what SNS says, with `ENVELOPE=sns`, as far as it says it; the time in whole seconds since the Unix epoch |
/// | `LEASEHOLD_ATTRIBUTE_<NAME>` | each message attribute; the name in upper case, `-` and `.` as `_`; binary values in hexadecimal |
/// | `LEASEHOLD_ATTRIBUTES_OMITTED` | names of attributes that were left out, by commas: together over 64 KiB, or two that would have one variable |
///
/// It inherits the rest of the worker's environment, but not the worker's own settings, and no AWS credentials unless
/// [asked for](Self::with_aws_credentials). That keeps credentials out of accidents; it is no sandbox: files below `HOME`
/// and the roles of an instance are as far away as they are for every process of the user.
///
/// # Stopping
/// Told to stop, it gets SIGTERM, with its whole process group, and SIGKILL after `CANCEL_GRACE`. What it leaves running
/// in its group when it exits is killed too: a program that returns has done its work.
///
/// Only a worker that is itself killed with SIGKILL cannot do that. A program that lives on then may still be at work
/// when another worker takes the key over, with the same idempotency key and a higher fence.
#[derive(Debug, Clone)]
#[must_use = "a handler does nothing until a worker has it"]
pub struct ExecHandler {
    program: String,
    args: Vec<String>,
    aws_credentials: bool,
}

impl ExecHandler {
    /// Runs `program`, a path or a name that is looked for in `PATH`, with `args`.
    pub fn new(program: impl Into<String>, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { program: program.into(), args: args.into_iter().map(Into::into).collect(), aws_credentials: false }
    }

    /// Lets the program have the worker's AWS credentials, as far as they are in variables.
    pub fn with_aws_credentials(self) -> Self {
        Self { aws_credentials: true, ..self }
    }

    fn command(&self, message: &Message, cx: &JobContext, told: Option<&Told>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            // For a program that has left its group; the group has a guard of its own.
            .kill_on_drop(true);
        for setting in env::settings_of_ours() {
            command.env_remove(setting);
        }
        if !self.aws_credentials {
            for credential in CREDENTIALS {
                command.env_remove(credential);
            }
        }
        for ours in ["TRACEPARENT", "TRACESTATE", "_X_AMZN_TRACE_ID"] {
            // Of whoever started the worker, not of this message.
            command.env_remove(ours);
        }
        command.envs(facts::variables(message, cx, told, Clock::system().wall()));
        command
    }

    /// Nothing was run, whatever the reason: missing, not executable, no room for another process.
    fn not_there(&self, why: &str) -> HandlerError {
        HandlerError::new(format!("{} cannot be run: {why}", self.program)).unavailable().reason("unavailable")
    }
}

impl Handler for ExecHandler {
    type Payload = Raw;

    async fn handle(&self, Raw(message): &Raw, cx: &JobContext) -> HandlerResult {
        let asks = Askable::list(cx);
        let child = self.command(message, cx, asks.as_ref().map(Askable::told).as_ref()).spawn();
        let child = child.map_err(|error| self.not_there(&place::why(&self.program, &error)))?;
        answering(asks, async {
            let (status, said) = run(child, &message.body, cx.cancelled()).await?;
            verdict(status, &said)
        })
        .await
    }

    fn traits(&self) -> Traits<'_, Raw> {
        Traits { probe: Some(self), undoes: false, is_outside: true, ..Traits::default() }
    }
}

impl Probe for ExecHandler {
    fn probe(&self) -> BoxFuture<'_, HandlerResult> {
        ready(place::of(&self.program).map(|_| ()).map_err(|why| self.not_there(&why))).boxed()
    }
}

/// A child's process group, killed when this is dropped.
struct Group(Option<Pid>);

impl Group {
    /// Of a child that leads one and was not yet waited for, so that its number is still its own.
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)))
    }

    fn signal(&self, signal: Signal) {
        match self.0.map_or(Ok(()), |leader| kill_process_group(leader, signal)) {
            // Nobody is left.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => tracing::warn!(%error, ?signal, "a handler's process group cannot be signalled"),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Runs the child to its end; what it wrote to standard error comes back with its status.
///
/// # Cancel safety
/// Dropped, it kills the child and its group.
async fn run(mut child: Child, body: &str, cancelled: &Cancelled) -> io::Result<(ExitStatus, Said)> {
    let group = Group::of(&child);
    let mut errors = Said::default();
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let talk = async {
        let mut output = Said::default();
        join3(feed(stdin, body), output.listen("stdout", stdout), errors.listen("stderr", stderr)).await.0
    };
    let status = ended(child, group, cancelled, talk).await?;
    Ok((status, errors))
}

/// Waits for the child's end, telling it to stop when the run is; lets it talk meanwhile.
async fn ended(
    mut child: Child,
    group: Group,
    cancelled: &Cancelled,
    talk: impl Future<Output = io::Result<()>>,
) -> io::Result<ExitStatus> {
    let mut talk = pin!(talk);
    let (mut talking, mut told) = (true, false);
    let status = loop {
        tokio::select! {
            // An end counts before anything else. Waiting for it is cancel safe, and what is said is kept in `talk`.
            biased;
            status = child.wait() => break status?,
            _ = cancelled.wait(), if !told => {
                told = true;
                group.signal(Signal::TERM);
            }
            fed = &mut talk, if talking => {
                fed?;
                talking = false;
            }
        }
    };
    // At once, before the system can give the group's number to somebody else.
    drop(group);
    if talking {
        timeout(LAST_WORDS, talk).await.unwrap_or(Ok(()))?;
    }
    Ok(status)
}

/// Writes the body and closes the pipe. A program need not read it.
async fn feed(input: Option<ChildStdin>, body: &str) -> io::Result<()> {
    let Some(mut input) = input else { return Ok(()) };
    match input.write_all(body.as_bytes()).await {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn verdict(status: ExitStatus, stderr: &Said) -> HandlerResult {
    let error = |code: String| HandlerError::new(stderr.text_after(&status.to_string())).reason(code);
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(PERMANENT), _) => Err(error(format!("exit_{PERMANENT}")).permanent()),
        (Some(NOT_YET), _) => Err(error(format!("exit_{NOT_YET}")).not_yet(NOT_YET_DELAY)),
        (Some(code), _) => Err(error(format!("exit_{code}"))),
        (None, Some(signal)) => Err(error(format!("signal_{signal}"))),
        (None, None) => Err(error("error".to_owned())),
    }
}
