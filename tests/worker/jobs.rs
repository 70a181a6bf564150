//! The pages of `examples/jobs`: each message is delivered twice at once and its worker is killed, at any moment; then what
//! happened outside is counted. Those that write to DynamoDB are in `tests/process/jobs.rs`.

#[path = "../../examples/jobs/charge.rs"]
mod charge;
#[path = "../../examples/jobs/email.rs"]
mod email;
#[path = "../../examples/jobs/outside.rs"]
mod outside;
#[path = "../../examples/jobs/saga.rs"]
mod saga;
#[path = "../../examples/jobs/webhook.rs"]
mod webhook;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use leasehold::{Handler, Shutdown, testing::TestBed};
use tokio::time::{sleep, timeout};

use outside::Outside;

const VARS: [(&str, &str); 3] =
    [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_BACKOFF", "1s..1s"), ("LEASEHOLD_VISIBILITY_TIMEOUT", "10s")];

/// Longer than any of them runs.
const LONGEST: u64 = 1_500;

/// What came of one world.
struct Came {
    /// When its worker died, in milliseconds.
    killed: u64,
    outside: Arc<Outside>,
    /// Reason codes of what is dead-lettered.
    dead: Vec<String>,
}

impl Came {
    /// How often it was called, and took effect.
    fn count(&self, what: &str) -> (usize, usize) {
        self.outside.count(what)
    }
}

/// Sends a message twice, kills the worker at each moment in turn, and lets another end the work.
async fn killed_anywhere<H: Handler>(
    message: &str,
    breaks: &[&'static str],
    job: impl Fn(Arc<Outside>) -> H,
) -> Vec<Came> {
    let mut all = Vec::new();
    for killed in (0..LONGEST).step_by(20) {
        let (bed, outside) = (TestBed::new(&["jobs"]), Arc::<Outside>::default());
        breaks.iter().for_each(|what| outside.breaks(what));
        (0..2).for_each(|_| drop(bed.send("jobs", message)));
        let doomed = bed.worker(&VARS).queue("jobs", job(Arc::clone(&outside)));
        drop(timeout(Duration::from_millis(killed), doomed.run(Shutdown::new())).await);
        bed.worker(&VARS).queue("jobs", job(Arc::clone(&outside))).run(bed.until_idle()).await.unwrap();
        let dead = bed.dead("jobs").into_iter().map(|(_, note)| note.unwrap().code).collect();
        all.push(Came { killed, outside, dead });
    }
    all
}

/// The numbers of calls that were seen, to know that the kills hit something.
fn calls(all: &[Came], what: &str) -> BTreeSet<usize> {
    all.iter().map(|came| came.count(what).0).collect()
}

#[tokio::test(start_paused = true)]
async fn s1_a_payment_method_is_charged_once_whenever_its_worker_dies() {
    let all = killed_anywhere(charge::MESSAGE, &[], |outside| charge::Charge(outside).key(charge::key)).await;
    for came in &all {
        let (charges, receipts) = (came.count("charge"), came.count("receipt"));
        assert!(charges.1 == 1 && receipts.1 >= 1 && came.dead.is_empty(), "{}: {charges:?} {receipts:?}", came.killed);
    }
    assert_eq!(calls(&all, "charge"), BTreeSet::from([1, 2]), "the key made two calls one charge");
    assert_eq!(calls(&all, "receipt"), BTreeSet::from([1, 2]));
}

#[tokio::test(start_paused = true)]
async fn s1_a_charge_whose_answer_was_lost_is_asked_for_again_and_made_once() {
    let all =
        killed_anywhere(charge::MESSAGE, &["charge", "receipt"], |outside| charge::Charge(outside).key(charge::key));
    for came in all.await {
        assert_eq!(came.count("charge").1, 1, "{}", came.killed);
    }
}

#[tokio::test(start_paused = true)]
async fn s2_an_email_is_sent_once_or_not_at_all_and_then_a_person_is_told() {
    for breaks in [&[][..], &["mail"]] {
        let all = killed_anywhere(email::MESSAGE, breaks, |outside| email::Welcome(outside).key(email::key)).await;
        let in_doubt = all.iter().filter(|came| came.dead == ["step_in_doubt"]).count();
        for came in &all {
            assert!(came.count("mail").0 <= 1, "{}: {:?}", came.killed, came.count("mail"));
            assert!(came.count("mail").1 == 1 || came.dead == ["step_in_doubt"], "{}: {:?}", came.killed, came.dead);
        }
        assert!(in_doubt > 0, "no kill hit the middle of it");
    }
}

#[tokio::test(start_paused = true)]
async fn s1_a_web_hook_is_called_until_it_answers_under_one_key() {
    let all = killed_anywhere(webhook::MESSAGE, &["hook"], |outside| webhook::Notify(outside).key(webhook::key)).await;
    for came in &all {
        assert!(came.count("hook").1 == 1 && came.dead.is_empty(), "{}: {:?}", came.killed, came.count("hook"));
    }
    assert!(calls(&all, "hook").contains(&2));
}

#[tokio::test(start_paused = true)]
async fn s3_a_saga_is_done_or_undone_whenever_its_worker_dies() {
    let there = saga::MESSAGE.replace("sold-out", "book");
    let done = killed_anywhere(&there, &["charge"], |outside| saga::Order(outside).key(saga::key));
    for came in done.await {
        let effects = ["reserve", "charge", "ship", "refund", "unreserve"].map(|what| came.count(what).1);
        assert_eq!((effects, came.dead.len()), ([1, 1, 1, 0, 0], 0), "{}", came.killed);
    }
    let undone = killed_anywhere(saga::MESSAGE, &["refund"], |outside| saga::Order(outside).key(saga::key));
    for came in undone.await {
        let effects = ["reserve", "charge", "ship", "refund", "unreserve"].map(|what| came.count(what).1);
        assert_eq!((effects, came.dead.as_slice()), ([1, 1, 0, 1, 1], &["sold_out".to_owned()][..]), "{}", came.killed);
    }
}

#[tokio::test(start_paused = true)]
async fn s3_a_charge_whose_answer_was_lost_at_the_last_attempt_is_refunded_by_its_key() {
    let (bed, outside) = (TestBed::new(&["jobs"]), Arc::<Outside>::default());
    outside.breaks("charge");
    bed.send("jobs", saga::MESSAGE.replace("sold-out", "book"));
    let vars: Vec<_> = VARS.into_iter().chain([("LEASEHOLD_MAX_ATTEMPTS", "1")]).collect();
    let job = saga::Order(Arc::clone(&outside)).key(saga::key);
    bed.worker(&vars).queue("jobs", job).run(bed.until_idle()).await.unwrap();
    let effects = ["reserve", "charge", "ship", "refund", "unreserve"].map(|what| outside.count(what).1);
    assert_eq!(effects, [1, 1, 0, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn s3_an_order_that_was_undone_and_is_put_back_is_done_under_new_keys() {
    let (bed, outside) = (TestBed::new(&["jobs"]), Arc::<Outside>::default());
    let job = || saga::Order(Arc::clone(&outside)).key(saga::key);
    bed.send("jobs", saga::MESSAGE);
    bed.worker(&VARS).queue("jobs", job()).run(bed.until_idle()).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    // The same order, of something that is there.
    bed.send("jobs", saga::MESSAGE.replace("sold-out", "book"));
    bed.worker(&VARS).queue("jobs", job()).run(bed.until_idle()).await.unwrap();
    let effects = ["reserve", "charge", "ship", "refund", "unreserve"].map(|what| outside.count(what).1);
    assert_eq!(effects, [2, 2, 1, 1, 1]);
}
