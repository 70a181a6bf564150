//! A queue, or its dead-letter queue, that somebody deletes under the worker and makes again.

use std::collections::BTreeSet;

use crate::{bench::Bench, cases::check_all, worker::report};

/// What is in hand at the deletion, what is sent again afterwards, and what is new.
const IN_HAND: [&str; 3] = ["a1", "b1", "c1"];
const NEW: [&str; 3] = ["a2", "b2", "c2"];

/// The kinds of queue.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Standard,
    Fifo,
}

impl Kind {
    async fn bench(self) -> Bench {
        match self {
            Self::Standard => Bench::new().await,
            Self::Fifo => Bench::with_groups().await,
        }
    }

    async fn send(self, bench: &Bench, keys: &[&str]) {
        match self {
            Self::Standard => bench.send(keys).await,
            Self::Fifo => {
                for key in keys {
                    bench.send_to_group(&key[..1], key).await;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r4_a_queue_that_is_deleted_and_made_again_is_worked_on_and_what_ran_is_done_once() {
    check_all([Kind::Standard, Kind::Fifo], check_queue).await;
}

async fn check_queue(kind: Kind) {
    let bench = kind.bench().await;
    let mut begun = bench.pipe("begun");
    // What is in hand ends when the queue is gone.
    let script = "$begin; [ -e go ] || { exec 3>begun; echo >&3; }; $wait; $end";
    let mut worker = bench.settings(script).short_leases().start();
    kind.send(&bench, &IN_HAND).await;
    for _ in IN_HAND {
        begun.is_written_to().await;
    }
    bench.delete_queue().await;
    worker.says_times("the poll failed", 2).await;
    bench.lets_go();
    let done = async || bench.statuses().await.values().filter(|status| *status == "DONE").count();
    bench.until("what was in hand is done", async || done().await == IN_HAND.len()).await;
    bench.make_queue_again().await;
    // Of who sent them, nobody knows whether they were worked on.
    kind.send(&bench, &IN_HAND).await;
    kind.send(&bench, &NEW).await;
    bench.until("all is done", async || done().await == IN_HAND.len() + NEW.len() && bench.messages().await == 0).await;
    let ended = worker.stops().await;
    let log = ended.log.join("\n");
    assert!(log.contains("the queue does not exist"), "{log}");
    assert_eq!(ended.clean_report(), report([("done", 6), ("suppressed", 3)]), "{log}");
    let calls = bench.calls_by_key();
    assert!(calls.len() == 6 && calls.values().all(|calls| *calls == 1), "{calls:?}\n{log}");
    assert_eq!((bench.effects().len(), bench.lines("ended").len(), bench.lines("overlaps").len()), (6, 6, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn t3_poison_waits_for_its_dead_letter_queue_to_be_made_again() {
    check_all([Kind::Standard, Kind::Fifo], check_dead_letter_queue).await;
}

async fn check_dead_letter_queue(kind: Kind) {
    let bench = kind.bench().await;
    let script = "$begin; case $LEASEHOLD_IDEMPOTENCY_KEY in *9) exit 65;; esac; $end";
    let mut worker = bench.settings(script).short_leases().start();
    worker.says("\"receiving\"").await;
    bench.delete_dead_letter_queue().await;
    kind.send(&bench, &["a9", "b1", "c9"]).await;
    worker.says_times("the queue does not exist", 3).await;
    let statuses: BTreeSet<_> = bench.statuses().await.into_values().collect();
    assert!(statuses.contains("DEAD"), "{statuses:?}");
    assert!(bench.messages().await >= 2, "what has no copy is kept");
    bench.make_dead_letter_queue_again().await;
    let is_over = async || bench.statuses().await.len() == 3 && bench.messages().await == 0;
    let notes = bench.dead_letters_until("all is settled", is_over).await;
    let ended = worker.stops().await;
    let log = ended.log.join("\n");
    ended.clean_report();
    let failures: BTreeSet<_> = notes.iter().map(|note| note["failure_id"].to_string()).collect();
    assert!(notes.len() == 2 && failures.len() == 2 && !failures.contains("null"), "{notes:?}\n{log}");
    let calls = bench.calls_by_key();
    assert!(calls.len() == 3 && calls.values().all(|calls| *calls == 1), "dead is dead: {calls:?}\n{log}");
    let statuses: Vec<_> = bench.statuses().await.into_values().collect();
    assert_eq!(statuses, ["DEAD", "DONE", "DEAD"], "{log}");
}
