//! What people see: settings at the start, progress, events, the summary in words; or one JSON object.
//!
//! Progress goes to standard error and is drawn on a terminal only; the summary goes to standard output. Colour is used
//! where standard output is a terminal.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing_subscriber::EnvFilter;

use super::{
    args::Args,
    bank::Bank,
    stream::Counts,
    summary::Summary,
    work::SETTINGS,
};

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

#[derive(Debug)]
pub(super) struct Show {
    json: bool,
    colour: bool,
    bar: ProgressBar,
}

impl Show {
    /// With a log on the same terminal there is no bar: they would tear each other apart.
    pub(super) fn new(json: bool, log: bool) -> Self {
        let hidden = json || log;
        let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        if let Ok(style) = ProgressStyle::with_template("  {bar:30.green/dim} {pos:>5}/{len} settled  {msg}  {elapsed}") {
            bar.set_style(style.progress_chars("━━─"));
        }
        Self { json, colour: !json && io::stdout().is_terminal(), bar }
    }

    fn strong(&self, text: &str) -> String {
        if self.colour { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn dim(&self, text: &str) -> String {
        if self.colour { format!("\u{1b}[2m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub(super) fn usage(&self, problem: &str) {
        // Standard error that is closed leaves nobody to tell.
        let _ = writeln!(io::stderr(), "error: {problem}");
    }

    pub(super) fn opening(&self, args: &Args) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let bank = if args.naive_bank { "a bank that does not know Idempotency-Key" } else { "a bank" };
        let settings = |names: &[&str]| {
            let shown = SETTINGS.iter().filter_map(|(name, value)| {
                let name = name.trim_start_matches("LEASEHOLD_");
                names.contains(&name).then(|| format!("{} {value}", name.to_lowercase().replace('_', " ")))
            });
            shown.collect::<Vec<_>>().join(" · ")
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{} · SQS, DynamoDB and {bank}, all in this process", self.strong("leasehold demo"))?;
        writeln!(out)?;
        writeln!(out, "  stream   {}", stream(args))?;
        let timings = settings(&["VISIBILITY_TIMEOUT", "BACKOFF", "CANCEL_GRACE", "CLOCK_SKEW", "CONCURRENCY"]);
        writeln!(out, "  worker   {timings}")?;
        writeln!(out, "           {}", self.dim("shorter than in production, so that a crash is over in seconds"))?;
        writeln!(out)
    }

    pub(super) fn sent(&self, messages: u32) {
        self.bar.set_length(messages.into());
    }

    pub(super) fn progress(&self, left: u64, dead: u64, bank: &Bank) {
        let settled = self.bar.length().unwrap_or_default().saturating_sub(left);
        self.bar.set_position(settled);
        let (calls, effects) = bank.totals();
        self.bar.set_message(format!("{calls} calls of the bank, {effects} effects, {dead} dead-lettered"));
    }

    /// Something that happens once.
    pub(super) fn event(&self, what: &str) {
        if self.json {
            return;
        }
        let elapsed = self.bar.elapsed().as_secs_f64();
        let line = format!("  {}  {what}", self.dim(&format!("{elapsed:>5.1} s")));
        self.bar.suspend(|| {
            // As in `usage`.
            let _ = writeln!(io::stdout().lock(), "{line}");
        });
    }

    pub(super) fn ended(&self) {
        self.bar.finish_and_clear();
    }

    pub(super) fn closing(&self, summary: &Summary) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            return writeln!(out, "{}", serde_json::to_string(summary)?);
        }
        Ok(())
    }
}

fn stream(args: &Args) -> String {
    let mix = args.mix();
    let counts = Counts::of(mix, args.messages);
    format!("{counts:?}")
}

const _: Duration = Duration::ZERO;
