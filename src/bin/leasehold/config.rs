//! `leasehold config`: the settings in force, each with where it comes from.
//!
//! What is wrong is told as `run` tells it. Asks nobody: whether queues and table are there is for `run` and for AWS.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use leasehold::{
    Worker, WorkerError,
    config::{Explained, HttpAddr, variables},
};

use crate::{
    handlers::with_handlers,
    log,
    words::{self, plain},
};

pub(crate) const HELP: &str = "\
Examples:
  What the worker would run with here, and which variable says so:

    leasehold config

  In a script, such as a check before a deploy:

    leasehold config >/dev/null || exit
    leasehold config --json | jq -r '.settings[].variable // empty'

Exit codes:
  0   all settings are good; what is probably not meant so is on standard error
  78  the configuration is wrong; every problem is on standard error, with a
      line that mends it";

/// Show the settings in force, and where each comes from
///
/// For the process and for each queue: the setting, its value, and the variable that it comes from, or `default`. What
/// `leasehold run` would refuse is told in the same words, and nothing is started. AWS is not asked. Headers of HTTP
/// handlers are shown without their values.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show these of the configured queues only
    #[arg(long, value_name = "QUEUE", value_delimiter = ',')]
    only: Vec<String>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(serde::Serialize)]
struct Told<'a> {
    settings: &'a [Explained],
    /// What is probably not meant so, and what settings come to together.
    warnings: &'a [String],
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let vars = variables().map_err(WorkerError::Configuration)?;
    let mut worker = Worker::from_vars(vars.clone());
    if !args.only.is_empty() {
        worker = worker.only(&args.only);
    }
    let worker = with_handlers(worker)?;
    let mut problems = worker.problems();
    if let Some(Err(WorkerError::Configuration(of_log))) = worker.config().map(|config| log::filter(&config.log)) {
        problems.extend(of_log);
    }
    let Some(config) = worker.config().filter(|_| problems.is_empty()) else {
        return Err(WorkerError::Configuration(problems).into());
    };
    let mut settings = config.explain(&vars);
    for setting in settings.iter_mut().filter(|setting| setting.setting == "HTTP_ADDR" && setting.value.is_none()) {
        setting.value = Some(HttpAddr::DEFAULT.to_string());
    }
    let mut warnings: Vec<String> = worker.warnings().iter().map(ToString::to_string).collect();
    warnings.extend(config.notes(&settings));
    for warning in &warnings {
        // Standard error that is closed leaves nobody to tell.
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
    let text = if args.json {
        words::json(&serde_json::to_string_pretty(&Told { settings: &settings, warnings: &warnings })?) + "\n"
    } else {
        table(&settings)
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// A block for the process and for each queue, in columns.
fn table(settings: &[Explained]) -> String {
    let value = |setting: &Explained| setting.value.as_deref().map_or_else(|| "-".to_owned(), plain);
    let name_width = settings.iter().map(|setting| setting.setting.len()).max().unwrap_or_default();
    let value_width = settings.iter().map(|setting| value(setting).chars().count()).max().unwrap_or_default();
    let (mut text, mut block) = (String::new(), None);
    for setting in settings {
        if block != Some(&setting.queue) {
            let heading = setting.queue.as_deref().map_or_else(|| "process".to_owned(), |name| format!("queue {name}"));
            text.push_str(&format!("{}{heading}\n", if block.is_some() { "\n" } else { "" }));
            block = Some(&setting.queue);
        }
        let (name, value) = (setting.setting, value(setting));
        let origin = setting.variable.as_deref().unwrap_or("default");
        text.push_str(&format!("  {name:<name_width$}  {value:<value_width$}  {origin}\n"));
    }
    text
}
