//! One `leasehold run` process: its variables, its signals, what it says, and how it ends.

use std::{collections::BTreeMap, os::unix::process::ExitStatusExt, path::Path, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use crate::{bench::SOON, proxy::Proxy};

/// What a worker process is started with. Nothing else of the test's own environment reaches it, but `PATH`.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    folder: std::path::PathBuf,
    command: String,
    variables: BTreeMap<String, String>,
    args: Vec<String>,
}

impl Settings {
    /// An account at that endpoint, and nothing of Leasehold's own.
    pub(crate) fn new(endpoint: &str, folder: &Path) -> Self {
        Self { folder: folder.to_owned(), command: "run".to_owned(), variables: BTreeMap::new(), args: Vec::new() }
            .set("AWS_ENDPOINT_URL", endpoint)
            .set("AWS_REGION", "us-east-1")
            .set("AWS_ACCESS_KEY_ID", "test")
            .set("AWS_SECRET_ACCESS_KEY", "test")
            .set("AWS_EC2_METADATA_DISABLED", "true")
            .set("LEASEHOLD_HTTP_ADDR", "off") // workers run side by side here
            .set("PATH", "/usr/local/bin:/usr/bin:/bin")
    }

    /// Behind a proxy.
    pub(crate) fn behind(self, proxy: &Proxy) -> Self {
        self.set("AWS_ENDPOINT_URL", proxy.endpoint.as_str())
    }

    pub(crate) fn set(mut self, variable: &str, value: impl Into<String>) -> Self {
        self.variables.insert(variable.to_owned(), value.into());
        self
    }

    pub(crate) fn unset(mut self, variable: &str) -> Self {
        self.variables.remove(variable);
        self
    }

    /// Leases of three seconds and what goes with them, so that a takeover is not waited for.
    pub(crate) fn short_leases(self) -> Self {
        self.set("LEASEHOLD_VISIBILITY_TIMEOUT", "3s")
            .set("LEASEHOLD_CLOCK_SKEW", "200ms")
            .set("LEASEHOLD_CANCEL_GRACE", "500ms")
            .set("LEASEHOLD_BACKOFF", "1s..2s")
            .set("LEASEHOLD_CONCURRENCY", "5")
    }

    /// Another command than `leasehold run`.
    pub(crate) fn command(self, command: &str) -> Self {
        Self { command: command.to_owned(), ..self }
    }

    /// With an argument after the command.
    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    pub(crate) fn start(&self) -> Worker {
        self.start_writing_to(Stdio::piped(), Stdio::piped())
    }

    /// With other ends than the test's for its standard output and error. What goes there is not heard.
    pub(crate) fn start_writing_to(&self, stdout: Stdio, stderr: Stdio) -> Worker {
        let mut child = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .arg(&self.command)
            .args(&self.args)
            .env_clear()
            .envs(&self.variables)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()
            .expect("a process");
        let mut reading = JoinSet::new();
        let (said, lines) = unbounded_channel();
        if let Some(pipe) = child.stdout.take() {
            reading.spawn(read_lines(pipe, said));
        }
        let mut stderr = JoinSet::new();
        if let Some(mut errors) = child.stderr.take() {
            stderr.spawn(async move {
                let mut text = String::new();
                errors.read_to_string(&mut text).await.expect("can be read");
                text
            });
        }
        Worker { child, lines, seen: Vec::new(), heard: Vec::new(), reading, stderr, address: String::new() }
    }
}

async fn read_lines(pipe: impl AsyncRead + Unpin, said: UnboundedSender<(Instant, String)>) {
    let mut lines = BufReader::new(pipe).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // Nobody listens to a worker that was dropped.
        let _ = said.send((Instant::now(), line));
    }
}

/// A running worker. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    lines: UnboundedReceiver<(Instant, String)>,
    seen: Vec<String>,
    /// When each line in `seen` was read.
    heard: Vec<Instant>,
    /// Reads all the time, so that a worker with much to say never stands still.
    reading: JoinSet<()>,
    stderr: JoinSet<String>,
    /// Where it tells how it is, once that was heard.
    address: String,
}

/// How a worker ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) killed_by: Option<i32>,
    /// All lines of its log.
    pub(crate) log: Vec<String>,
    /// When each of them was read.
    heard: Vec<Instant>,
    pub(crate) stderr: String,
}

impl Worker {
    pub(crate) async fn says(&mut self, text: &str) {
        self.says_times(text, 1).await;
    }

    /// Waits for that many more lines of the log with this text, and for all of them no longer than one deadline.
    pub(crate) async fn says_times(&mut self, text: &str, times: usize) {
        self.hears(text, times, |line| line.contains(text)).await;
    }

    /// Waits until that many more messages have left their queue, done or dead.
    pub(crate) async fn settles(&mut self, times: usize) {
        let gone = ["\"message\":\"deleted\"", "\"outcome\":\"dead_lettered\"", "\"outcome\":\"dropped\""];
        self.hears("done or dead", times, |line| gone.iter().any(|text| line.contains(text))).await;
    }

    async fn hears(&mut self, text: &str, mut times: usize, is_it: impl Fn(&str) -> bool) {
        let until = Instant::now() + SOON;
        while times > 0 {
            let line = timeout_at(until, self.lines.recv()).await;
            let Ok(Some((at, line))) = line else {
                let _ = self.child.start_kill();
                let stderr = self.stderr.join_next().await;
                panic!("{text:?} was not said {times} times more, but:\n{}\n{stderr:?}", self.seen.join("\n"))
            };
            times -= usize::from(is_it(&line));
            self.seen.push(line);
            self.heard.push(at);
        }
    }

    /// The line of its log that was waited for last.
    pub(crate) fn last_line(&self) -> &str {
        self.seen.last().expect("a line")
    }

    /// Waits until it says where it tells how it is.
    pub(crate) async fn tells_its_address(&mut self) {
        const AT: &str = "tells how it is at http://";
        self.says(AT).await;
        let (_, rest) = self.last_line().split_once(AT).expect("it was said");
        self.address = rest.split('/').next().expect("an address").to_owned();
    }

    /// What it tells under that path.
    pub(crate) async fn told_at(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).await.expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut reply = String::new();
        timeout(SOON, stream.read_to_string(&mut reply)).await.expect("answers soon").expect("an answer");
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
        reply.split_once("\r\n\r\n").expect("a body").1.to_owned()
    }

    /// The sum of a metric over all of its labels, and of those lines alone that have this text.
    pub(crate) async fn metric(&self, name: &str, with: &str) -> f64 {
        let metrics = self.told_at("/metrics").await;
        let lines =
            metrics.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
        let values =
            lines.filter(|line| line.contains(with)).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    }

    /// Lets it run for a time, in which it does not end by itself.
    pub(crate) async fn runs_for(&mut self, time: Duration) {
        if let Ok(status) = timeout(time, self.child.wait()).await {
            panic!("it ended by itself: {status:?}");
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("is sent");
    }

    /// Stops its time. Of its threads, some run on for a moment after the signal; none does when this returns.
    pub(crate) fn stands_still(&self) {
        self.signal(Signal::STOP);
        let stopped = waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED).expect("it is a child");
        assert!(stopped.is_some_and(|status| status.stopped()), "{stopped:?}");
    }

    fn pid(&self) -> Pid {
        self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).expect("it runs")
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Closes the pipes that it writes to.
    pub(crate) async fn is_not_listened_to(&mut self) {
        self.reading.shutdown().await;
        self.stderr.shutdown().await;
    }

    /// Tells one that is no longer listened to to stop, and waits for its exit code.
    pub(crate) async fn stops_unheard(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        timeout(SOON, self.child.wait()).await.expect("ends soon").expect("a status").code()
    }

    /// Waits for its end.
    pub(crate) async fn ends(mut self) -> Ended {
        let status = timeout(SOON, self.child.wait()).await.expect("ends soon").expect("a status");
        while let Some((at, line)) = self.lines.recv().await {
            self.seen.push(line);
            self.heard.push(at);
        }
        let stderr = self.stderr.join_next().await.expect("spawned").expect("is read");
        Ended { code: status.code(), killed_by: status.signal(), log: self.seen, heard: self.heard, stderr }
    }

    /// Tells it to stop, and waits for its end.
    pub(crate) async fn stops(self) -> Ended {
        self.signal(Signal::TERM);
        self.ends().await
    }
}

impl Ended {
    /// When it first said something with this text.
    pub(crate) fn said_at(&self, text: &str) -> Option<Instant> {
        self.log.iter().zip(&self.heard).find(|(line, _)| line.contains(text)).map(|(_, at)| *at)
    }

    /// When it said its last word.
    pub(crate) fn last_said_at(&self) -> Option<Instant> {
        self.heard.last().copied()
    }

    /// The numbers of the stop report, which must be the last line, by name; those that are zero are left out.
    pub(crate) fn report(&self) -> BTreeMap<String, u64> {
        let last = self.log.last().unwrap_or_else(|| panic!("no log: {}", self.stderr));
        let line: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{last}: {error}"));
        assert_eq!(line["message"], "stopped", "{last}");
        let fields = line.as_object().expect("an object").iter();
        fields.filter_map(|(name, value)| Some((name.clone(), value.as_u64().filter(|count| *count > 0)?))).collect()
    }

    /// As [`report`](Self::report), of a worker that ended well.
    pub(crate) fn clean_report(&self) -> BTreeMap<String, u64> {
        assert_eq!(self.code, Some(0), "{}\n{}", self.stderr, self.log.join("\n"));
        assert_eq!(self.stderr, "");
        self.report()
    }
}

/// A report to compare with.
pub(crate) fn report<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counts.map(|(name, count)| (name.to_owned(), count)).into()
}
