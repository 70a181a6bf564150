//! What `--help` says below the options where several commands share it: exit codes, and the settings from the library's
//! own table. What is one command's alone stands beside its options.

use std::fmt::Write;

use leasehold::config::{SETTINGS, Scope, Setting};

pub(crate) use dlq::{dlq_ls, dlq_peek, dlq_purge, dlq_redrive};
pub(crate) use doctor::doctor;
pub(crate) use guard::{guard, guard_done, guard_get, guard_reset};
pub(crate) use pause::{pause, resume};
pub(crate) use run::run;

mod dlq;
mod doctor;
mod guard;
mod pause;
mod run;

#[cfg(feature = "demo")]
const NEWCOMERS: &str = "\
Begin with:
  leasehold dev payments --key /id --handler 'exec:cat'

And in another terminal:
  leasehold send --endpoint-url http://127.0.0.1:4567 payments '{\"id\":\"1\"}'

";

#[cfg(not(feature = "demo"))]
const NEWCOMERS: &str = "";

const SETTINGS_ARE: &str = "\
Settings are environment variables: see `leasehold run --help`, and `leasehold config` for those in force. Each command \
has examples in its own --help.";

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0   all is done, or the worker was told to stop and has stopped cleanly
  64  the command line is wrong
  69  AWS could not be reached within LEASEHOLD_START_TIMEOUT
  78  the configuration is wrong; every problem is on standard error, with a
      line that mends it
  1   anything else";

/// One line for each paragraph: it is wrapped where the terminal ends. A table could not be.
const NOTES: &str = "\
AWS_REGION, AWS_ENDPOINT_URL, credentials and profiles are read as by every AWS tool. Durations are written \
500ms, 30s, 15m, 12h, 30d. <QUEUE> is a name from LEASEHOLD_QUEUES in upper case, with - and . as _; where it is in \
brackets, the variable without it is the default for all queues.";

/// Below the options of `leasehold`.
pub(crate) fn command() -> String {
    format!("{NEWCOMERS}{SETTINGS_ARE}\n\n{EXIT_CODES}")
}

/// All settings.
pub(crate) fn settings() -> String {
    let mut text = format!("Environment:\n  {NOTES}\n");
    for setting in SETTINGS {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{}", entry(setting));
    }
    text
}

fn entry(setting: &Setting) -> String {
    let queue = match setting.scope {
        Scope::Queue => "[<QUEUE>_]",
        Scope::EachQueue => "<QUEUE>_",
        _ => "",
    };
    let default = setting.default.map(|default| format!(" [default: {default}]")).unwrap_or_default();
    let Setting { name, kind, doc, .. } = setting;
    format!("  LEASEHOLD_{queue}{name}  <{kind}>{default}\n      {doc}\n").replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns of a terminal that nobody has made wider.
    const WIDTH: usize = 80;

    #[test]
    fn tables_and_lines_to_copy_fit_a_terminal_and_so_are_never_wrapped() {
        let texts = [NEWCOMERS, EXIT_CODES, crate::config::HELP, crate::health::HELP, crate::send::HELP];
        let texts = texts
            .into_iter()
            .map(str::to_owned)
            .chain([pause(), resume(), guard(), guard_get(), guard_reset(), guard_done()])
            .chain([dlq_ls(), dlq_peek(), dlq_redrive(), dlq_purge(), doctor::by_hand()])
            .chain(run::by_hand());
        #[cfg(feature = "demo")]
        let texts = texts.chain([crate::dev::HELP.to_owned()]);
        for text in texts {
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH, "{line}");
            }
        }
    }
}
