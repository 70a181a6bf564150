use std::{collections::VecDeque, future::Future};

use futures_util::future::{join, join3};
use tokio::time::{Instant, sleep};

use super::*;

mod leaving;
mod sizes;

/// How long the fake API takes.
const TRIP: Duration = Duration::from_millis(50);

/// How much longer it takes for an entry that is `late`, when that is sent by itself.
const LATE: Duration = Duration::from_secs(2);

/// What the fake API was sent: the ids and entries of a batch, or one entry without an id.
type Sent = Vec<(String, &'static str)>;

/// An API that answers batches as scripted, and well when the script has ended. Singles go well unless they are `bad`.
#[derive(Default)]
struct Api<const TRIES: u32> {
    sent: Arc<Mutex<Vec<Sent>>>,
    script: Mutex<VecDeque<Result<Listed, Fault>>>,
}

#[async_trait]
impl<const TRIES: u32> BatchCall for Api<TRIES> {
    type Entry = &'static str;
    const TRIES: u32 = TRIES;

    /// A `big` entry leaves no room for a second one.
    fn size(entry: &&'static str) -> usize {
        if entry.starts_with("big") { LARGEST_MESSAGE / 2 + 1 } else { 0 }
    }

    async fn batch(&self, entries: &[(String, &'static str)]) -> Result<Listed, Fault> {
        lock(&self.sent).push(entries.to_vec());
        sleep(TRIP).await;
        let successful = entries.iter().map(|(id, _)| id.clone()).collect();
        lock(&self.script).pop_front().unwrap_or(Ok(Listed { successful, failed: Vec::new() }))
    }

    async fn single(&self, entry: &&'static str) -> Verdict {
        lock(&self.sent).push(vec![(String::new(), entry)]);
        sleep(if *entry == "late" { TRIP + LATE } else { TRIP }).await;
        if *entry == "bad" { Err(Fault::new(Meaning::HandleLost, "bad")) } else { Ok(()) }
    }
}

/// A batcher, and what it sends.
fn batcher<const TRIES: u32>(
    script: impl IntoIterator<Item = Result<Listed, Fault>>,
) -> (Batcher<Api<TRIES>>, Arc<Mutex<Vec<Sent>>>) {
    let sent = Arc::default();
    let api = Api { sent: Arc::clone(&sent), script: Mutex::new(script.into_iter().collect()) };
    (Batcher::new(api, Clock::simulated(1, 0)), sent)
}

fn sent(log: &Mutex<Vec<Sent>>) -> Vec<Vec<&'static str>> {
    lock(log).iter().map(|batch| batch.iter().map(|(_, entry)| *entry).collect()).collect()
}

fn listed(successful: &[&str], failed: &[(&str, &str)]) -> Listed {
    let failed = failed.iter().map(|(id, code)| {
        BatchResultErrorEntry::builder().id(*id).code(*code).sender_fault(true).build().expect("complete")
    });
    Listed { successful: successful.iter().map(ToString::to_string).collect(), failed: failed.collect() }
}

fn meaning(verdict: Verdict) -> Result<(), Meaning> {
    verdict.map_err(|fault| fault.meaning)
}

/// Polls `future` once and no more.
async fn poke<F: Future + Unpin>(future: &mut F) {
    assert!(future_is_pending(future).await);
}

async fn future_is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.poll_unpin(cx).is_pending())).await
}

#[tokio::test(start_paused = true)]
async fn t1_calls_of_one_moment_are_one_batch_whose_ids_are_positions() {
    let (batcher, log) = batcher::<3>([]);
    let (a, b, c) = join3(batcher.call("a"), batcher.call("b"), batcher.call("c")).await;
    assert_eq!((a, b, c), (Ok(()), Ok(()), Ok(())));
    let ids = [("0", "a"), ("1", "b"), ("2", "c")].map(|(id, entry)| (id.to_owned(), entry));
    assert_eq!(*lock(&log), [ids.to_vec()]);
}

#[tokio::test(start_paused = true)]
async fn t1_a_lone_call_goes_by_itself_and_almost_at_once() {
    let (batcher, log) = batcher::<3>([]);
    let start = Instant::now();
    assert_eq!(batcher.call("a").await, Ok(()));
    assert!(start.elapsed() <= TRIP + LONE_LINGER + Duration::from_millis(1), "{:?}", start.elapsed());
    assert_eq!(*lock(&log), [vec![(String::new(), "a")]]);
}

#[tokio::test(start_paused = true)]
async fn t1_a_full_batch_does_not_linger() {
    let (batcher, log) = batcher::<3>([]);
    let start = Instant::now();
    let calls = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"].map(|entry| batcher.call(entry));
    let mut calls = Box::pin(join_all(calls));
    poke(&mut calls).await;
    assert_eq!(sent(&log).len(), 1, "ten are sent without any time passing");
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(calls.await.iter().all(Result::is_ok));
    assert_eq!(sent(&log).iter().map(Vec::len).collect::<Vec<_>>(), [10, 1]);
}

#[tokio::test(start_paused = true)]
async fn t1_under_load_calls_gather_for_longer() {
    let (batcher, log) = batcher::<3>([]);
    let later = |delay, entry| {
        let batcher = &batcher;
        async move {
            sleep(Duration::from_millis(delay)).await;
            batcher.call(entry).await
        }
    };
    let outcomes = join3(later(0, "a"), later(20, "b"), later(28, "c")).await;
    assert_eq!(outcomes, (Ok(()), Ok(()), Ok(())));
    assert_eq!(sent(&log), [vec!["a"], vec!["b", "c"]]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_stays_within_the_size_limit() {
    let (batcher, log) = batcher::<3>([]);
    let (a, b, c) = join3(batcher.call("big"), batcher.call("big too"), batcher.call("small")).await;
    assert_eq!((a, b, c), (Ok(()), Ok(()), Ok(())));
    assert_eq!(sent(&log), [vec!["big"], vec!["big too", "small"]]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_before_the_sending_takes_its_entry_along_and_strands_nobody() {
    let (batcher, log) = batcher::<3>([]);
    let mut first = Box::pin(batcher.call("first"));
    poke(&mut first).await;
    let mut second = Box::pin(batcher.call("second"));
    poke(&mut second).await;
    drop(first);
    assert_eq!(second.await, Ok(()));
    assert_eq!(sent(&log), [vec!["second"]]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_during_the_sending_strands_nobody() {
    let (batcher, log) = batcher::<3>([]);
    let mut first = Box::pin(batcher.call("first"));
    poke(&mut first).await;
    let second = batcher.call("second");
    let third = async {
        let called = tokio::time::timeout(LONE_LINGER + TRIP / 2, first).await;
        assert!(called.is_err(), "the call is under way when its first caller goes");
    };
    assert_eq!(join(second, third).await.0, Ok(()));
    assert_eq!(sent(&log), [vec!["first", "second"]], "once, and with what was sent before");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_not_polled_holds_nobody_up() {
    let (batcher, log) = batcher::<3>([]);
    let mut first = Box::pin(batcher.call("first"));
    poke(&mut first).await;
    assert_eq!(batcher.call("second").await, Ok(()));
    assert_eq!(sent(&log), [vec!["first", "second"]]);
    assert_eq!(first.await, Ok(()), "it finds its answer when it is");
}

#[tokio::test(start_paused = true)]
async fn d3_nothing_is_sent_when_all_callers_have_gone() {
    let (batcher, log) = batcher::<3>([]);
    for entry in ["first", "second"] {
        poke(&mut Box::pin(batcher.call(entry))).await;
    }
    sleep(TRIP).await;
    assert_eq!(sent(&log), Vec::<Vec<&str>>::new());
    assert_eq!(batcher.call("third").await, Ok(()));
    assert_eq!(sent(&log), [vec!["third"]]);
}

#[tokio::test(start_paused = true)]
async fn t1_only_failed_entries_are_sent_again_under_their_own_ids() {
    let first = listed(&["0"], &[("1", "InternalError"), ("2", "RequestThrottled"), ("3", "ReceiptHandleIsInvalid")]);
    let (batcher, log) = batcher::<3>([Ok(first)]);
    let start = Instant::now();
    let outcomes = join_all(["a", "b", "c", "d"].map(|entry| batcher.call(entry))).await;
    assert_eq!(
        outcomes.into_iter().map(meaning).collect::<Vec<_>>(),
        [Ok(()), Ok(()), Ok(()), Err(Meaning::HandleLost)]
    );
    assert_eq!(sent(&log), [vec!["a", "b", "c", "d"], vec!["b", "c"]]);
    assert_eq!(lock(&log)[1].iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["1", "2"]);
    assert!(start.elapsed() >= TRIP * 2 + BACKOFF / 2, "with a pause between");
}

#[tokio::test(start_paused = true)]
async fn t1_an_entry_with_its_verdict_is_answered_while_its_neighbours_are_tried_again() {
    let first = listed(&["0"], &[("1", "InternalError"), ("2", "ReceiptHandleIsInvalid"), ("3", "InternalError")]);
    let (batcher, log) = batcher::<3>([Ok(first), Ok(listed(&["1"], &[("3", "InternalError")]))]);
    let begun = Instant::now();
    let timed = async |entry| (batcher.call(entry).await, begun.elapsed());
    let outcomes = join_all(["a", "b", "c", "d"].map(&timed)).await;
    let [a, b, c, d] = &outcomes[..] else { panic!("four") };
    let one_trip = LONE_LINGER + TRIP + Duration::from_millis(2);
    assert!(a.0.is_ok() && a.1 <= one_trip, "{a:?}");
    assert!(c.0.is_err() && c.1 <= one_trip, "{c:?}");
    assert!(b.0.is_ok() && b.1 >= 2 * TRIP + BACKOFF / 2, "{b:?}");
    assert!(d.0.is_ok() && d.1 >= b.1 + TRIP, "the last is by itself: {d:?}");
    assert_eq!(sent(&log), [vec!["a", "b", "c", "d"], vec!["b", "d"], vec!["d"]]);
}

#[tokio::test(start_paused = true)]
async fn t1_an_answer_reaches_a_caller_of_another_task_than_the_one_that_drives_the_batch() {
    let first = listed(&["1"], &[("0", "InternalError")]);
    let (batcher, _) = batcher::<3>([Ok(first)]);
    let batcher = Arc::new(batcher);
    let begun = Instant::now();
    let mut calls = tokio::task::JoinSet::new();
    for entry in ["slow", "quick"] {
        let batcher = Arc::clone(&batcher);
        calls.spawn(async move { (entry, batcher.call(entry).await, begun.elapsed()) });
    }
    let (entry, outcome, took) = calls.join_next().await.expect("a call").expect("no panic");
    assert_eq!((entry, outcome), ("quick", Ok(())));
    assert!(took <= LONE_LINGER + TRIP + Duration::from_millis(2), "{took:?}");
    let (entry, outcome, _) = calls.join_next().await.expect("a call").expect("no panic");
    assert_eq!((entry, outcome), ("slow", Ok(())));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_between_two_tries_is_not_sent_for_again() {
    let (batcher, log) = batcher::<3>([Ok(listed(&[], &[("0", "InternalError"), ("1", "InternalError")]))]);
    let mut first = Box::pin(batcher.call("first"));
    poke(&mut first).await;
    let goes = async {
        assert!(tokio::time::timeout(LONE_LINGER + TRIP + BACKOFF / 4, first).await.is_err(), "it is tried again");
    };
    assert_eq!(join(batcher.call("second"), goes).await.0, Ok(()));
    assert_eq!(sent(&log), [vec!["first", "second"], vec!["second"]]);
}

#[tokio::test(start_paused = true)]
async fn l4_of_entries_that_are_sent_one_by_one_none_waits_for_another() {
    let (batcher, _) = batcher::<1>([Err(Fault::new(Meaning::Refused, "InvalidParameterValue"))]);
    let begun = Instant::now();
    let timed = async |entry| (batcher.call(entry).await.is_ok(), begun.elapsed());
    let (a, late) = join(timed("a"), timed("late")).await;
    let two_trips = LONE_LINGER + 2 * TRIP + Duration::from_millis(3);
    assert!(a.0 && a.1 <= two_trips, "{a:?}");
    assert!(late.0 && late.1 >= 2 * TRIP + LATE, "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn t1_tries_end() {
    let throttled = || Err(Fault::new(Meaning::Throttled, "slow down"));
    let (batcher, log) = batcher::<3>([throttled(), throttled(), throttled()]);
    let (a, b) = join(batcher.call("a"), batcher.call("b")).await;
    assert_eq!((meaning(a), meaning(b)), (Err(Meaning::Throttled), Err(Meaning::Throttled)));
    assert_eq!(sent(&log).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn t1_an_entry_in_neither_list_has_no_answer() {
    let (batcher, log) = batcher::<1>([Ok(listed(&["1", "7"], &[]))]);
    let (a, b) = join(batcher.call("a"), batcher.call("b")).await;
    assert_eq!((meaning(a), b), (Err(Meaning::NoAnswer), Ok(())));
    assert_eq!(sent(&log), [vec!["a", "b"]], "l6: and with one try is not sent again");
}

#[tokio::test(start_paused = true)]
async fn l4_a_refused_batch_is_sent_one_by_one_and_one_bad_entry_harms_no_other() {
    let (batcher, log) = batcher::<1>([Err(Fault::new(Meaning::Refused, "InvalidParameterValue"))]);
    let (a, bad, c) = join3(batcher.call("a"), batcher.call("bad"), batcher.call("c")).await;
    assert_eq!((a, meaning(bad), c), (Ok(()), Err(Meaning::HandleLost), Ok(())));
    assert_eq!(sent(&log), [vec!["a", "bad", "c"], vec!["a"], vec!["bad"], vec!["c"]]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_fate_is_unknown_is_not_taken_apart() {
    let (batcher, log) = batcher::<1>([Err(Fault::new(Meaning::NoAnswer, "timed out"))]);
    let (a, b) = join(batcher.call("a"), batcher.call("b")).await;
    assert_eq!((meaning(a), meaning(b)), (Err(Meaning::NoAnswer), Err(Meaning::NoAnswer)));
    assert_eq!(sent(&log).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_same_entry_twice_has_two_verdicts() {
    let (batcher, _) = batcher::<1>([Ok(listed(&["1"], &[("0", "ReceiptHandleIsInvalid")]))]);
    let (a, b) = join(batcher.call("a"), batcher.call("a")).await;
    assert_eq!((meaning(a), b), (Err(Meaning::HandleLost), Ok(())));
}
