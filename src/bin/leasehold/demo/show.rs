//! What people see while it runs: settings at the start, progress, events, and at the end the summary; or one JSON
//! object and nothing else.
//!
//! Progress goes to standard error and is drawn on a terminal only; everything else goes to standard output, with colour
//! where that is a terminal. The words of the summary are in [`words`].

use std::{
    io::{self, IsTerminal, Write},
    net::SocketAddr,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing_subscriber::EnvFilter;

use super::{args::Args, bank::Bank, summary::Summary, work::Place};
use words::Ink;

mod words;

/// Sets the log up: errors alone unless asked for more. A conditional write that is refused is daily business, but the
/// embedded DynamoDB warns of each.
pub(super) fn log(verbose: u8) {
    let filter = match verbose {
        0 => "off,leasehold=error",
        1 => "error,leasehold=info",
        _ => "warn,leasehold=debug,dynoxide=error",
    };
    // Fails where a log is set up already, which then is as good.
    let _ = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(filter)).with_writer(io::stderr).try_init();
}

/// Tells of options that do not fit together. Standard error that is closed leaves nobody to tell.
pub(super) fn usage(problem: &str) {
    let _ = writeln!(io::stderr(), "error: {problem}");
}

#[derive(Debug)]
pub(super) struct Show {
    json: bool,
    ink: Ink,
    bar: ProgressBar,
}

impl Show {
    /// With a log on the same terminal there is no bar: they would tear each other apart.
    pub(super) fn new(json: bool, log: bool) -> Self {
        let hidden = json || log;
        let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        if let Ok(style) = ProgressStyle::with_template("{elapsed:>6}  {bar:24.green/dim} {pos}/{len} settled · {msg}")
        {
            bar.set_style(style.progress_chars("━━─"));
        }
        let ink = if !json && io::stdout().is_terminal() { Ink::Colour } else { Ink::Plain };
        Self { json, ink, bar }
    }

    pub(super) fn opening(&self, args: &Args) -> io::Result<()> {
        if self.json { Ok(()) } else { writeln!(io::stdout(), "{}", words::opening(args, self.ink)) }
    }

    /// So many messages there are to settle.
    pub(super) fn sent(&self, messages: u64) {
        self.bar.set_length(messages);
    }

    pub(super) fn progress(&self, left: u64, dead: u64, bank: &Bank) {
        self.bar.set_position(self.bar.length().unwrap_or_default().saturating_sub(left));
        let (calls, effects) = bank.totals();
        self.bar.set_message(format!("bank: {calls} calls, {effects} effects · {dead} dead"));
    }

    /// Something that happens once. Standard output that is closed is met again, and told, at the end.
    pub(super) fn event(&self, what: &str) {
        if !self.json {
            let at = self.ink.dim(&format!("{:>5.1}s", self.bar.elapsed().as_secs_f64()));
            self.bar.suspend(|| {
                let _ = writeln!(io::stdout(), "{at}  {what}");
            });
        }
    }

    /// Where people can look on, and what the commands that they find there want to be run with.
    pub(super) fn page(&self, address: SocketAddr, place: &Place) {
        self.event(&format!("look on at http://{address}/"));
        self.event(&format!("its commands want: {}", words::variables(place)));
    }

    pub(super) fn ended(&self) {
        self.bar.finish_and_clear();
    }

    pub(super) fn closing(&self, args: &Args, summary: &Summary) -> io::Result<()> {
        let text = if self.json { serde_json::to_string(summary)? } else { words::closing(args, summary, self.ink) };
        writeln!(io::stdout(), "{text}")
    }
}
