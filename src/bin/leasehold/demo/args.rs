//! The options of `leasehold demo`, and what they come to: a mix for the stream, terms for the bank.
//!
//! Every percentage has a range of its own; what only the whole can say is said by [`Args::check`].

use std::str::FromStr;

use super::{
    bank::Terms,
    stream::{Counts, Mix},
    work::{Place, VISIBILITY},
};

/// Show what Leasehold does, with nothing else installed.
///
/// SQS and DynamoDB run embedded in this process. A stream of payments goes through the real worker: some are sent twice,
/// some take longer than the visibility timeout, some can never succeed, some fail at first. A bank counts how often it
/// was called and how often money moved. At the end everything is counted, in the table, the dead-letter queue and the
/// bank's books.
///
/// Exit code 0 only if no payment was lost and none took effect more than once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Messages to send, duplicates included
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) messages: u32,

    /// How many of the messages are duplicates: other message, same payment, as when a producer sends again
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=90))]
    pub(super) duplicates: u32,

    /// How many of the payments take longer than the visibility timeout
    #[arg(long, value_name = "PERCENT", default_value_t = 2, value_parser = percent())]
    pub(super) slow: u32,

    /// How many of the payments can never succeed: refused by the bank, or a body that nobody can read
    #[arg(long, value_name = "PERCENT", default_value_t = 2, value_parser = percent())]
    pub(super) poison: u32,

    /// How many of the payments fail once or twice, after the charge, and then succeed
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = percent())]
    pub(super) transient: u32,

    /// Share the work with a second process, and kill that with SIGKILL in mid-work, right after charges
    #[arg(long)]
    pub(super) crash: bool,

    /// The bank does not know `Idempotency-Key`: see what then remains after a crash
    #[arg(long)]
    pub(super) naive_bank: bool,

    /// Print one JSON object and nothing else
    #[arg(long)]
    pub(super) json: bool,

    /// Send on and on, fifty messages a second, until Ctrl-C, and show the worker's status page meanwhile
    #[arg(long, conflicts_with = "messages")]
    pub(super) endless: bool,

    /// Show the workers' log; twice for more of it
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,

    /// Be the second worker, at this place
    #[arg(long, hide = true)]
    pub(super) second_worker: Option<Place>,
}

fn percent() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..=100)
}

impl Args {
    /// What single options cannot say.
    pub(super) fn check(&self) -> Result<(), String> {
        let parts = self.slow + self.poison + self.transient;
        if parts > 100 {
            return Err(format!(
                "--slow, --poison and --transient come to {parts} % of the payments; 100 is all of them"
            ));
        }
        Ok(())
    }

    pub(super) fn mix(&self) -> Mix {
        // Half as long again as the visibility timeout: without beats the message would come back in mid-work.
        let slow_ms = u64::try_from(VISIBILITY.as_millis() * 3 / 2).unwrap_or(u64::MAX);
        Mix { duplicates: self.duplicates, slow: self.slow, poison: self.poison, transient: self.transient, slow_ms }
    }

    pub(super) fn terms(&self) -> Terms {
        // The second worker does about half of the work, and is killed early in its life: there must be work left.
        let payments = Counts::of(self.mix(), self.messages).payments;
        let trap_after = self.crash.then(|| u64::from(payments / 10).clamp(1, 50));
        Terms { naive: self.naive_bank, trap_after }
    }
}

/// From the one argument that the second worker is given.
impl FromStr for Place {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}
