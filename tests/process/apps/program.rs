//! One of the example apps as a process: it is started, stopped and killed, and its book is read.

use std::{
    collections::BTreeMap,
    io::Write,
    path::PathBuf,
    process::Stdio,
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    process::{Child, Command},
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    task::JoinSet,
    time::timeout,
};

use super::CONCURRENCY;
use crate::{
    bench::{Bench, SOON},
    worker::Settings,
};

/// Reads the book of `app.py` as that of `app.mjs` is written: a line of JSON for each charge.
const READ_BOOK: &str = r#"
import json, sqlite3
for row in sqlite3.connect("charges.db").execute("SELECT key, payment_id, cents FROM charges"):
    print(json.dumps(dict(zip(("key", "payment_id", "cents"), row))))
"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    Node,
}

impl Language {
    pub(crate) fn interpreter(self) -> &'static str {
        match self {
            Self::Python => "python3",
            Self::Node => "node",
        }
    }

    /// Whether this machine has it. Where it has not, that is said in one loud line; with `LEASEHOLD_REQUIRE_APPS=1`, as
    /// in CI, the test fails.
    pub(crate) async fn is_here(self) -> bool {
        let program = self.interpreter();
        let asked = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().await;
        if asked.is_ok_and(|status| status.success()) {
            return true;
        }
        #[expect(clippy::disallowed_methods, reason = "a switch of the tests, no setting of the worker")]
        let required = std::env::var("LEASEHOLD_REQUIRE_APPS").is_ok_and(|value| value == "1");
        assert!(!required, "{program} is required and cannot be run");
        // Written past the test harness, which shows nothing of a test that passes.
        let line = format!("\n*** There is no {program} HERE: every test of its app was SKIPPED ***\n");
        std::io::stderr().write_all(line.as_bytes()).expect("a line");
        false
    }
}

/// A port that no other test is given by the system meanwhile, for those are above: an app comes back on its own.
async fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let process = u16::try_from(std::process::id() % 100).expect("two digits");
        let port = 20_000 + process * 100 + turn % 100;
        if TcpListener::bind(("127.0.0.1", port)).await.is_ok() {
            return port;
        }
    }
}

/// An app, which can be stopped and started again.
pub(crate) struct App {
    language: Language,
    folder: PathBuf,
    port: u16,
    example: Example,
    child: Child,
    lines: UnboundedReceiver<String>,
    seen: Vec<String>,
    /// Reads all the time, so that an app with much to say never stands still.
    reading: JoinSet<()>,
}

/// Which of the examples it is, and a variable that it is started with.
#[derive(Debug, Clone, Copy)]
struct Example {
    folder: &'static str,
    variable: (&'static str, &'static str),
}

/// A charge as it stands in the book.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Charge {
    pub(crate) key: String,
    pub(crate) payment_id: String,
    pub(crate) cents: u64,
}

impl App {
    /// Starts it in the bench's folder. It closes connections after so many seconds without a request.
    pub(crate) async fn start(language: Language, bench: &Bench, keep_alive: &'static str) -> Self {
        Self::of(Example { folder: "http", variable: ("KEEP_ALIVE", keep_alive) }, language, bench).await
    }

    /// Starts the one that charges orders and mails receipts, in steps.
    pub(crate) async fn with_steps(language: Language, bench: &Bench, mails_once: bool) -> Self {
        let variable = ("MAIL_ONCE", if mails_once { "1" } else { "0" });
        Self::of(Example { folder: "steps", variable }, language, bench).await
    }

    async fn of(example: Example, language: Language, bench: &Bench) -> Self {
        let (folder, port) = (bench.path("."), port().await);
        let mut reading = JoinSet::new();
        let (child, lines) = spawn(language, &folder, port, example, &mut reading);
        let mut app = Self { language, folder, port, example, child, lines, seen: Vec::new(), reading };
        app.says("listening on", 1).await;
        app
    }

    /// Starts it again, on the same port and with the same book.
    pub(crate) async fn starts_again(&mut self) {
        (self.child, self.lines) = spawn(self.language, &self.folder, self.port, self.example, &mut self.reading);
        self.says("listening on", 1).await;
    }

    /// Settings of a worker that has it for a handler.
    pub(crate) fn settings(&self, bench: &Bench) -> Settings {
        bench
            .settings("")
            .short_leases()
            .set("LEASEHOLD_JOBS_KEY", "/payment_id")
            .set("LEASEHOLD_JOBS_HANDLER", format!("http://127.0.0.1:{}/charges", self.port))
            .set("LEASEHOLD_CONCURRENCY", CONCURRENCY.to_string())
    }

    /// Waits for that many more lines that begin so.
    pub(crate) async fn says(&mut self, text: &str, mut times: usize) {
        while times > 0 {
            let line = timeout(SOON, self.lines.recv()).await.ok().flatten();
            let line = line.unwrap_or_else(|| panic!("{text:?} was not said {times} times more: {:?}", self.seen));
            times -= usize::from(line.starts_with(text));
            self.seen.push(line);
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).expect("it runs");
        kill_process(id, signal).expect("is sent");
    }

    /// Waits for its end.
    pub(crate) async fn ends(&mut self) -> Option<i32> {
        let status = timeout(SOON, self.child.wait()).await.expect("ends soon").expect("a status");
        while let Some(line) = self.lines.recv().await {
            self.seen.push(line);
        }
        status.code()
    }

    /// Lets time pass in which nobody asks it for anything.
    pub(crate) async fn is_left_alone(&mut self, time: Duration) {
        let ended = timeout(time, self.child.wait()).await;
        assert!(ended.is_err(), "it ended by itself: {ended:?}");
    }

    /// How often each key was charged, or found charged before, over all its lives: what it said so far.
    pub(crate) fn calls(&mut self) -> BTreeMap<String, usize> {
        while let Ok(line) = self.lines.try_recv() {
            self.seen.push(line);
        }
        let mut calls = BTreeMap::new();
        for call in self.seen.iter().filter_map(|line| line.strip_prefix("charged ")) {
            let call = call.strip_prefix("before ").unwrap_or(call);
            let key = call.rsplit_once(' ').map_or(call, |(key, _cents)| key);
            *calls.entry(key.to_owned()).or_default() += 1;
        }
        calls
    }

    /// All charges, as they stand in its book.
    pub(crate) async fn book(&self) -> Vec<Charge> {
        let lines = match self.language {
            Language::Node => tokio::fs::read(self.folder.join("charges.jsonl")).await.expect("a book"),
            Language::Python => {
                let mut read = Command::new("python3");
                let read = read.args(["-c", READ_BOOK]).current_dir(&self.folder).output().await.expect("python3");
                assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
                read.stdout
            }
        };
        let lines = String::from_utf8(lines).expect("a text");
        lines.lines().map(|line| serde_json::from_str(line).expect("a charge")).collect()
    }
}

fn spawn(
    language: Language,
    folder: &PathBuf,
    port: u16,
    Example { folder: example, variable: (variable, value) }: Example,
    reading: &mut JoinSet<()>,
) -> (Child, UnboundedReceiver<String>) {
    let file = match language {
        Language::Python => "app.py",
        Language::Node => "app.mjs",
    };
    let mut child = Command::new(language.interpreter())
        .arg(format!("{}/examples/{example}/{file}", env!("CARGO_MANIFEST_DIR")))
        .arg(port.to_string())
        .env(variable, value)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("a process");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let (said, heard) = unbounded_channel();
    reading.spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            // Nobody listens to an app that was dropped.
            let _ = said.send(line);
        }
    });
    (child, heard)
}
