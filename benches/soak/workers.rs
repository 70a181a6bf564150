//! The workers: one that lives, and others that are killed or stopped and started again.

use std::{
    fs::File,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::Context;
use leasehold::embedded::Engine;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};

use crate::{app::App, stops};

/// Of each queue.
const CONCURRENCY: [(&str, u64); 3] = [("JOBS", 20), ("ORDERS", 10), ("TASKS", 2)];

/// The most that one worker that is killed can have in hand.
pub(crate) const IN_HAND: u64 = CONCURRENCY[0].1 + CONCURRENCY[1].1 + CONCURRENCY[2].1;

/// Workers that are killed.
const SHORT_LIVED: usize = 2;

/// How long one lives at the least and at the most, in milliseconds.
const LIFE: std::ops::Range<u64> = 3_000..12_000;

/// A worker process, killed when dropped.
pub(crate) struct Worker {
    name: String,
    child: Child,
    pub(crate) health: SocketAddr,
}

impl Worker {
    pub(crate) fn id(&self) -> anyhow::Result<u32> {
        self.child.id().with_context(|| format!("{} has ended by itself", self.name))
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = Pid::from_raw(self.id()?.try_into()?).context("no process id")?;
        Ok(kill_process(id, signal)?)
    }

    async fn stops(mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        stops(&mut self.child, &self.name).await
    }
}

/// What all workers are started with.
struct Place {
    variables: Vec<(String, String)>,
    folder: PathBuf,
}

pub(crate) struct Workers {
    place: Place,
    pub(crate) long_lived: Worker,
    short_lived: Vec<Worker>,
    /// How many were killed with SIGKILL.
    pub(crate) killed: u64,
    stopped: u64,
}

impl Workers {
    pub(crate) fn start(engine: &Engine, app: &App, folder: &Path) -> anyhow::Result<Self> {
        let place = Place { variables: variables(engine, app, folder), folder: folder.to_owned() };
        let long_lived = place.start("long-lived")?;
        let short_lived =
            (0..SHORT_LIVED).map(|n| place.start(&format!("short-lived-{n}"))).collect::<Result<_, _>>()?;
        Ok(Self { place, long_lived, short_lived, killed: 0, stopped: 0 })
    }

    /// Kills one after the other, or stops it, and starts another in its place.
    pub(crate) async fn harass(&mut self, seed: u64, ends_at: Instant) -> anyhow::Result<()> {
        let mut chance = fastrand::Rng::with_seed(!seed);
        loop {
            let pause = Duration::from_millis(chance.u64(LIFE));
            if Instant::now() + pause >= ends_at {
                return Ok(());
            }
            sleep(pause).await;
            let mut worker = self.short_lived.swap_remove(chance.usize(..SHORT_LIVED));
            let name = worker.name.clone();
            if chance.u8(..4) == 0 {
                worker.stops().await?;
                self.stopped += 1;
            } else {
                worker.id()?;
                worker.child.kill().await?;
                self.killed += 1;
            }
            self.short_lived.push(self.place.start(&name)?);
        }
    }

    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        for worker in self.short_lived.drain(..) {
            worker.stops().await?;
        }
        self.long_lived.signal(Signal::TERM)?;
        stops(&mut self.long_lived.child, &self.long_lived.name).await
    }
}

impl Place {
    fn start(&self, name: &str) -> anyhow::Result<Worker> {
        let log = File::options().append(true).create(true).open(self.folder.join(format!("{name}.log")))?;
        // Free a moment ago, and nobody else here asks for one by number.
        let health = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let child = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .arg("run")
            .env_clear()
            .envs(self.variables.iter().cloned())
            .env("LEASEHOLD_HTTP_ADDR", health.to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Worker { name: name.to_owned(), child, health })
    }
}

fn variables(engine: &Engine, app: &App, folder: &Path) -> Vec<(String, String)> {
    let effects = folder.join("effects");
    // Of the work only its kind matters. One short line is appended as a whole.
    let program = format!(
        r#"case "$(cat)" in *poison*) exit 65;; *failing*) [ "$LEASEHOLD_ATTEMPT" -gt 1 ] || exit 1;; esac; echo "$LEASEHOLD_IDEMPOTENCY_KEY" >>'{}'"#,
        effects.display()
    );
    let exec = serde_json::json!(["/bin/sh", "-c", program]).to_string();
    let url = format!("http://{}/", app.address);
    let mut variables: Vec<(String, String)> = [
        ("AWS_ENDPOINT_URL", engine.endpoint()),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("LEASEHOLD_QUEUES", "jobs,orders,tasks"),
        ("LEASEHOLD_ORDERS_NAME", "orders.fifo"),
        ("LEASEHOLD_KEY", "/id"),
        ("LEASEHOLD_JOBS_HANDLER", &url),
        ("LEASEHOLD_ORDERS_HANDLER", &url),
        ("LEASEHOLD_TASKS_HANDLER", &exec),
        ("LEASEHOLD_VISIBILITY_TIMEOUT", "3s"),
        ("LEASEHOLD_CLOCK_SKEW", "200ms"),
        ("LEASEHOLD_CANCEL_GRACE", "500ms"),
        ("LEASEHOLD_BACKOFF", "1s..2s"),
        ("LEASEHOLD_WAIT_TIME", "1s"),
        ("LEASEHOLD_MAX_TAKEOVERS", "1000"),
        ("LEASEHOLD_LOG", "warn"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    variables.extend(CONCURRENCY.map(|(queue, slots)| (format!("LEASEHOLD_{queue}_CONCURRENCY"), slots.to_string())));
    variables
}
