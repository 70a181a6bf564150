use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use proptest::prelude::*;
use tokio::time::advance;

use super::*;
use crate::telemetry::Telemetry;

const MINUTE: Duration = Duration::from_secs(60);
const RUN_ON: Duration = Duration::from_secs(20);
const HANDLER: Duration = Duration::from_secs(15 * 60);

fn done() -> Answer {
    Answer::Done { left: None }
}

fn not(result: ProtectionResult, may_be_done: bool) -> Answer {
    Answer::Not { result, why: "as it is".to_owned(), may_be_done }
}

/// What was asked for, and how many seconds after the start.
type Asked = Vec<(u64, Request)>;

/// Keeps a task for a time, and drains then.
async fn kept(
    time: Duration,
    oldest: impl Fn(Duration) -> Option<Duration>,
    answer: impl Fn(Duration, Request) -> Answer,
) -> (Asked, ProtectionMeters) {
    let (asked, begun, drain) = (Mutex::new(Vec::new()), Instant::now(), CancellationToken::new());
    let meters = Telemetry::default().protection();
    let ask = |request| {
        asked.lock().unwrap().push((begun.elapsed().as_secs(), request));
        std::future::ready(answer(begun.elapsed(), request))
    };
    let (rules, clock) = (Rules::new(RUN_ON, HANDLER), Clock::simulated(1, 0));
    let keeping = keep(ask, || oldest(begun.elapsed()), (rules, clock), &meters, &drain);
    tokio::join!(keeping, async {
        sleep(time).await;
        drain.cancel();
    });
    (asked.into_inner().unwrap(), meters)
}

use Request::{Protect, Release};

#[tokio::test(start_paused = true)]
async fn d4_a_handler_that_ends_within_a_drain_is_not_protected_and_a_longer_one_until_its_end() {
    let runs_for = |all| move |now| Some(now).filter(|now| *now < Duration::from_secs(all));
    let (asked, _) = kept(MINUTE, runs_for(20), |_, _| done()).await;
    assert_eq!(asked, []);
    let (asked, meters) = kept(30 * MINUTE, runs_for(500), |_, _| done()).await;
    assert_eq!(asked, [(21, Protect), (171, Protect), (321, Protect), (471, Protect), (500, Release)]);
    assert_eq!((meters.count(ProtectionResult::Ok), meters.count(ProtectionResult::Expired)), (5, 0));
}

#[tokio::test(start_paused = true)]
async fn d4_a_task_that_is_never_idle_is_let_go_for_a_while_again_and_again() {
    let (asked, _) = kept(45 * MINUTE, |_| Some(MINUTE), |_, _| done()).await;
    let changes: Vec<_> = asked.chunk_by(|one, next| one.1 == next.1).map(|same| same[0]).collect();
    let (hold, gap) = (HANDLER.as_secs(), GAP.as_secs());
    let second = hold + gap;
    assert_eq!(
        changes,
        [
            (0, Protect),
            (hold, Release),
            (second, Protect),
            (second + hold, Release),
            (2 * second, Protect),
            (2700, Release)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn d4_pauses_that_are_shorter_than_a_gap_do_not_put_it_off() {
    // Half a minute of each is a handler that is long for ten seconds.
    let runs = |now: Duration| Some(Duration::from_secs(now.as_secs() % 30));
    let (asked, _) = kept(60 * MINUTE, runs, |_, _| done()).await;
    let gaps: Vec<_> = asked
        .windows(2)
        .filter(|pair| pair[0].1 == Release && pair[1].0 - pair[0].0 >= GAP.as_secs())
        .map(|pair| (pair[0].0, pair[1].0))
        .collect();
    assert_eq!(gaps.len(), 3, "{asked:?}");
    for (index, (let_go, _)) in gaps.iter().enumerate() {
        let since = if index == 0 { 0 } else { gaps[index - 1].1 };
        assert!(let_go - since <= HANDLER.as_secs() + 30, "{gaps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn d4_what_is_refused_is_asked_for_again_ever_more_rarely_and_counted() {
    let refuse = |_, _| not(ProtectionResult::Throttled, false);
    let (asked, meters) = kept(10 * MINUTE, |_| Some(MINUTE), refuse).await;
    let waits: Vec<_> = asked.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(
        waits[0] <= 6 && waits[1] >= 5 && waits[3] >= 20 && waits[4..].iter().all(|wait| (30..=61).contains(wait)),
        "{waits:?}"
    );
    assert_eq!(meters.count(ProtectionResult::Throttled), asked.len() as u64);
    assert!(asked.iter().all(|(_, request)| *request == Protect), "nothing is taken back that was never had");
}

#[tokio::test(start_paused = true)]
async fn d4_a_protection_that_cannot_be_extended_counts_once_and_is_asked_for_on() {
    let well = |now: Duration| now < MINUTE || now > 10 * MINUTE;
    let answer = |now, _| if well(now) { done() } else { not(ProtectionResult::Refused, false) };
    let (asked, meters) = kept(14 * MINUTE, |_| Some(MINUTE), answer).await;
    assert_eq!((meters.count(ProtectionResult::Expired), meters.count(ProtectionResult::Ok)), (1, 4), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn d4_what_may_be_done_is_taken_back_and_a_later_refusal_does_not_hide_it() {
    let answer = |now: Duration, request| match (request, now.as_secs()) {
        (Protect, 0) => not(ProtectionResult::NoAnswer, true),
        (Protect, _) => not(ProtectionResult::Throttled, false),
        (Release, _) => done(),
    };
    let (asked, meters) = kept(MINUTE, |now| (now < MINUTE / 3).then_some(MINUTE), answer).await;
    assert_eq!(asked.last().map(|last| last.1), Some(Release), "{asked:?}");
    assert_eq!(asked.iter().filter(|asked| asked.1 == Release).count(), 1, "{asked:?}");
    assert_eq!(meters.count(ProtectionResult::Ok), 1);
}

#[tokio::test(start_paused = true)]
async fn d4_a_shorter_time_than_was_asked_for_is_believed() {
    let answer = |_, _| Answer::Done { left: Some(Duration::from_secs(30)) };
    let (asked, _) = kept(MINUTE, |_| Some(MINUTE), answer).await;
    assert_eq!(asked, [(0, Protect), (15, Protect), (30, Protect), (45, Protect), (60, Protect), (60, Release)]);
    // To a clock that is far ahead of ECS's all of it is over.
    let answer = |_, _| Answer::Done { left: Some(Duration::ZERO) };
    let (asked, _) = kept(MINUTE, |_| Some(MINUTE), answer).await;
    assert_eq!(asked, [(0, Protect), (60, Release)]);
}

#[tokio::test(start_paused = true)]
async fn d4_a_drain_waits_a_second_at_most_for_an_agent_that_does_not_answer() {
    let (drain, silent, begun) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)), Instant::now());
    let meters = Telemetry::default().protection();
    let ask = |request| {
        let silent = Arc::clone(&silent);
        async move {
            if silent.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            assert_eq!(request, Protect);
            done()
        }
    };
    let rules = (Rules::new(RUN_ON, HANDLER), Clock::simulated(1, 0));
    let keeping = keep(ask, || Some(MINUTE), rules, &meters, &drain);
    tokio::join!(keeping, async {
        advance(MINUTE).await;
        silent.store(true, Ordering::Relaxed);
        // In the midst of a call that is not answered.
        sleep(2 * MINUTE).await;
        drain.cancel();
    });
    assert_eq!(begun.elapsed(), 3 * MINUTE + LAST);
    assert_eq!(meters.count(ProtectionResult::NoAnswer), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever runs and whatever is answered, ECS as it really is never protects a task for longer than it may without a
    /// gap, and never one without long work for longer than an expiry.
    #[test]
    fn d4_no_task_is_protected_without_a_gap(
        seed in any::<u64>(), changes in prop::collection::vec((1..400_u64, 0..60_u64, 0..4_u8), 1..60)
    ) {
        let (clock, begun) = (Clock::simulated(seed, 0), Instant::now());
        let rules = Rules::new(RUN_ON, HANDLER);
        let mut protection = Protection::new(rules);
        // Of ECS: until when the task is protected, since when without a gap, and when it last was.
        let (mut until, mut since, mut last): (Option<Instant>, Option<Instant>, Option<Instant>) = (None, None, None);
        let mut now = begun;
        for (seconds, age, mood) in changes {
            for _ in 0..seconds {
                now += LOOK;
                until = until.filter(|until| now < *until);
                let next = protection.next(now, Some(Duration::from_secs(age)).filter(|age| !age.is_zero()));
                if let Some(request) = next.request {
                    prop_assert!(request == Release || Duration::from_secs(age) > RUN_ON);
                    let is_carried_out = mood != 3;
                    let answer = match mood {
                        0 => done(),
                        1 => not(ProtectionResult::NoAnswer, true),
                        2 => Answer::Done { left: Some(Duration::from_secs(100)) },
                        _ => not(ProtectionResult::Refused, false),
                    };
                    if is_carried_out {
                        until = (request == Protect).then_some(now + if mood == 2 { MINUTE * 5 / 3 } else { EXPIRES_IN });
                    }
                    protection.answered((now, now), request, &answer, |pauses, n| clock.backoff(pauses, n));
                }
                if until.is_some() {
                    if last.is_none_or(|last| now - last >= GAP) {
                        since = Some(now);
                    }
                    last = Some(now);
                    let without_a_gap = now - since.unwrap_or(now);
                    // The last may have to end by itself.
                    prop_assert!(without_a_gap <= rules.hold + EXPIRES_IN, "{without_a_gap:?}");
                }
            }
        }
    }
}
