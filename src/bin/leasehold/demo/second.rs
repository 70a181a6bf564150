//! The second worker: a process of its own, and the end that it meets.
//!
//! It runs this same program. It is killed by SIGKILL when it waits for the answer to charges that have taken effect: the
//! moment that no worker can guard by itself, for the effect is made and nothing says so. Must never outlive the first.

use std::{convert::Infallible, future::pending, iter::repeat_n, process::Stdio, time::Duration};

use anyhow::Context;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use super::{bank::Bank, show::Show, work::Place};

/// A few charges more are waited for, so that several are cut off at the same point; but not for long.
const TRAPPED: (u64, Duration) = (4, Duration::from_millis(250));

/// How long it may take to end when it is let go: its drain's time, and some.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct SecondWorker {
    /// Killed when dropped.
    process: Child,
    killed: bool,
}

impl SecondWorker {
    /// Starts it at the first worker's place, with a log as detailed as the first one's.
    pub(super) fn start(first: &Place, verbose: u8) -> anyhow::Result<Self> {
        let place = Place { worker: "second".to_owned(), ..first.clone() };
        let program = std::env::current_exe().context("this program cannot be found again")?;
        let process = Command::new(program)
            .args(["demo", "--second-worker", &serde_json::to_string(&place)?])
            .args(repeat_n("--verbose", verbose.into()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // Ctrl-C on the terminal is for the first worker to hear.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("the second worker could not be started")?;
        Ok(Self { process, killed: false })
    }

    /// Waits for its end, after it was let go; whether it had been killed in mid-work.
    pub(super) async fn ended(mut self, show: &Show) -> anyhow::Result<bool> {
        if self.killed {
            return Ok(true);
        }
        show.event("second worker not killed: it never came to enough charges");
        let ended = timeout(ENDS_WITHIN, self.process.wait()).await;
        ended.with_context(|| format!("the second worker did not end within {ENDS_WITHIN:?}"))??;
        Ok(false)
    }
}

/// Waits for the moment and kills it, if there is one to kill. Never ends.
pub(super) async fn kill_in_mid_work(
    second: &mut Option<SecondWorker>,
    bank: &Bank,
    show: &Show,
) -> anyhow::Result<Infallible> {
    let Some(second) = second else { return pending().await };
    bank.second(|second| second.trapped > 0).await;
    let _ = timeout(TRAPPED.1, bank.second(|second| second.trapped >= TRAPPED.0)).await;
    let id = second.process.id().unwrap_or_default();
    second.process.kill().await.context("the second worker could not be killed")?;
    second.killed = true;
    show.event(&format!(
        "second worker (process {id}) killed with SIGKILL: {} charges made, and not recorded",
        bank.trapped()
    ));
    pending().await
}
