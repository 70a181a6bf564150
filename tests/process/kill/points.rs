//! Where workers are stopped: the calls, where each of them is then, and what must come of it.

use crate::{
    bench::Bench,
    proxy::{Fault, Hold},
    worker::Settings,
};

/// Where the call is when the worker dies, or stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// On its way, and lost.
    Lost,
    /// On its way, and it arrives when the worker is dead.
    Late,
    /// On its way, and it arrives when another runs the work.
    Stale,
    /// Done; its reply finds nobody.
    Done,
}

impl At {
    /// What stops a call there, until it is let go.
    pub(super) fn held_by(self, kind: Kind, hold: &Hold) -> Fault {
        match (self, kind) {
            (Self::Lost | Self::Late, _) | (Self::Stale, Kind::Fifo) => Fault::HoldRequest(hold.clone()),
            (Self::Stale, Kind::Standard) => Fault::HoldOldHandle(hold.clone()),
            (Self::Done, _) => Fault::HoldReply(hold.clone()),
        }
    }
}

/// The key of work that succeeds, of work that fails at its first attempt, of work in whose run the first worker stops,
/// and of work that fails for good.
pub(super) const GOOD: &str = "1";
pub(super) const FLAKY: &str = "3";
pub(super) const LONG: &str = "5";
pub(super) const POISON: &str = "9";

/// Of a worker that `HANGS`, the handler of what is long never ends; of one that `WAITS`, no run does before it is let go.
pub(super) const HANDLER: &str = r#"$begin
case $LEASEHOLD_IDEMPOTENCY_KEY in
*9) exit 65 ;;
*3) [ "$LEASEHOLD_ATTEMPT" = 1 ] && exit 1 ;;
*5) [ -z "$HANGS" ] || exec sleep 300 ;;
esac
[ -z "$WAITS" ] || $wait
$end"#;

/// The n-th call of an operation, where it is then, what the message is, and what must come of it: the attempts that its
/// runs are told, and how many copies are dead-lettered.
pub(super) type Point = (&'static str, u64, At, &'static str, &'static [u32], usize);

/// Under a claim: failures count, crashes do not, and no two runs are under way at once.
pub(super) const CLAIMED: [Point; 33] = [
    ("ReceiveMessage", 1, At::Done, GOOD, &[1], 0),
    ("PutItem", 1, At::Lost, GOOD, &[1], 0),
    ("PutItem", 1, At::Late, GOOD, &[1], 0),
    ("PutItem", 1, At::Done, GOOD, &[1], 0),
    // The handler has come to its end, and nobody knows.
    ("UpdateItem", 1, At::Lost, GOOD, &[1, 1], 0),
    ("UpdateItem", 1, At::Late, GOOD, &[1], 0),
    ("UpdateItem", 1, At::Stale, GOOD, &[1, 1], 0),
    ("UpdateItem", 1, At::Done, GOOD, &[1], 0),
    ("DeleteMessage", 1, At::Lost, GOOD, &[1], 0),
    ("DeleteMessage", 1, At::Late, GOOD, &[1], 0),
    ("DeleteMessage", 1, At::Done, GOOD, &[1], 0),
    // The delivery's beat, and the claim's.
    ("Change*", 1, At::Lost, LONG, &[1, 1], 0),
    ("Change*", 1, At::Late, LONG, &[1, 1], 0),
    ("Change*", 1, At::Stale, LONG, &[1, 1], 0),
    ("Change*", 1, At::Done, LONG, &[1, 1], 0),
    ("Change*", 2, At::Lost, LONG, &[1, 1], 0),
    ("UpdateItem", 1, At::Lost, LONG, &[1, 1], 0),
    ("UpdateItem", 1, At::Late, LONG, &[1, 1], 0),
    ("UpdateItem", 1, At::Stale, LONG, &[1, 1], 0),
    ("UpdateItem", 1, At::Done, LONG, &[1, 1], 0),
    // The failure is recorded, and its back-off begins.
    ("UpdateItem", 1, At::Lost, FLAKY, &[1, 1, 2], 0),
    ("UpdateItem", 1, At::Late, FLAKY, &[1, 2], 0),
    ("UpdateItem", 1, At::Done, FLAKY, &[1, 2], 0),
    ("Change*", 1, At::Lost, FLAKY, &[1, 2], 0),
    ("Change*", 1, At::Late, FLAKY, &[1, 2], 0),
    ("Change*", 1, At::Stale, FLAKY, &[1, 2], 0),
    ("Change*", 1, At::Done, FLAKY, &[1, 2], 0),
    ("UpdateItem", 1, At::Lost, POISON, &[1, 1], 1),
    ("UpdateItem", 1, At::Done, POISON, &[1], 1),
    ("SendMessage", 1, At::Lost, POISON, &[1], 1),
    ("SendMessage", 1, At::Done, POISON, &[1], 2),
    // The mark that the copy was sent.
    ("UpdateItem", 2, At::Lost, POISON, &[1], 2),
    ("UpdateItem", 2, At::Done, POISON, &[1], 1),
];

/// Without a guard every delivery is an attempt, and what is not deleted runs again.
pub(super) const UNGUARDED: [Point; 16] = [
    ("ReceiveMessage", 1, At::Done, GOOD, &[2], 0),
    ("DeleteMessage", 1, At::Lost, GOOD, &[1, 2], 0),
    ("DeleteMessage", 1, At::Late, GOOD, &[1], 0),
    ("DeleteMessage", 1, At::Stale, GOOD, &[1, 2], 0),
    ("DeleteMessage", 1, At::Done, GOOD, &[1], 0),
    ("Change*", 1, At::Lost, LONG, &[1, 2], 0),
    ("Change*", 1, At::Late, LONG, &[1, 2], 0),
    ("Change*", 1, At::Stale, LONG, &[1, 2], 0),
    ("Change*", 1, At::Done, LONG, &[1, 2], 0),
    ("Change*", 1, At::Lost, FLAKY, &[1, 2], 0),
    ("Change*", 1, At::Late, FLAKY, &[1, 2], 0),
    ("Change*", 1, At::Stale, FLAKY, &[1, 2], 0),
    ("Change*", 1, At::Done, FLAKY, &[1, 2], 0),
    ("SendMessage", 1, At::Lost, POISON, &[1, 2], 1),
    ("SendMessage", 1, At::Done, POISON, &[1, 2], 2),
    ("DeleteMessage", 1, At::Lost, POISON, &[1, 2], 2),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Standard,
    Fifo,
}

impl Kind {
    /// How many copies of a failure come of so many that are sent: a FIFO queue takes its id for a second one.
    pub(super) fn copies(self, sent: usize) -> usize {
        match self {
            Self::Standard => sent,
            Self::Fifo => sent.min(1),
        }
    }

    /// With a message for this key.
    pub(super) async fn bench(self, key: &str) -> Bench {
        match self {
            Self::Standard => {
                let bench = Bench::new().await;
                bench.send([key]).await;
                bench
            }
            Self::Fifo => {
                let bench = Bench::with_groups().await;
                bench.send_to_group("group", key).await;
                bench
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    Claim,
    None,
}

impl Guard {
    pub(super) fn settings(self, bench: &Bench) -> Settings {
        let settings = bench.settings(HANDLER).short_leases();
        match self {
            Self::Claim => settings,
            Self::None => settings.set("LEASEHOLD_JOBS_GUARD", "none"),
        }
    }

    /// Whether the message is gone and its record, if there is one, says so.
    pub(super) async fn is_over(self, bench: &Bench, key: &str) -> bool {
        let status = if key == POISON { "DEAD" } else { "DONE" };
        let statuses = bench.statuses().await;
        let recorded = match self {
            Self::Claim => statuses.values().eq([status]),
            Self::None => statuses.is_empty(),
        };
        recorded && bench.messages().await == 0
    }
}
