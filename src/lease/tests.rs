use std::{
    cell::{Cell, RefCell},
    future::pending,
};

use proptest::{collection::vec, prelude::*};

use super::*;

const LENGTH: Duration = Duration::from_secs(30);

fn lease() -> (Lease, Instant) {
    let clock = Clock::simulated(1, 0);
    (Lease::new(clock.clone(), clock.now(), LENGTH), Instant::now())
}

/// Keeps a lease for `time` with a beat that answers what `answers` says for its number; gives back when beats came.
async fn beats(lease: &Lease, time: Duration, answers: impl Fn(usize) -> Beat) -> Vec<u64> {
    let start = Instant::now();
    let times = RefCell::new(Vec::new());
    let beat = |_| {
        times.borrow_mut().push(start.elapsed().as_secs());
        let answer = answers(times.borrow().len());
        async move { answer }
    };
    keep(lease, None, beat, pin!(sleep(time))).await;
    times.into_inner()
}

#[tokio::test(start_paused = true)]
async fn l4_every_beat_is_scheduled_from_the_last_confirmed_one_less_a_margin() {
    let (lease, _) = lease();
    assert_eq!(beats(&lease, Duration::from_secs(60), |_| Beat::Renewed).await, [18, 36, 54]);
    assert_eq!(lease.left(), Duration::from_secs(24));
}

#[tokio::test(start_paused = true)]
async fn work_inside_the_margin_costs_no_beat() {
    let (lease, _) = lease();
    assert!(beats(&lease, Duration::from_secs(17), |_| Beat::Renewed).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn l4_a_transient_failure_is_tried_again_inside_what_remains() {
    let (lease, _) = lease();
    let times = beats(&lease, Duration::from_secs(29), |n| if n < 4 { Beat::Transient } else { Beat::Renewed }).await;
    assert_eq!(times.len(), 4, "{times:?}");
    assert!(!lease.is_over());
}

#[tokio::test(start_paused = true)]
async fn l4_after_a_failed_beat_its_part_of_what_remains_is_waited_for() {
    let (lease, start) = lease();
    let beats = RefCell::new(Vec::new());
    let beat = |_| {
        beats.borrow_mut().push((start.elapsed(), lease.left()));
        async { Beat::Transient }
    };
    keep(&lease, None, beat, pin!(sleep(Duration::from_secs(29)))).await;
    let beats = beats.into_inner();
    assert!(beats.len() > 4, "{beats:?}");
    for pair in beats.windows(2) {
        let part = (pair[0].1 / RETRY_PART).max(LENGTH / SHORTEST_RETRY);
        // Timers are a millisecond late at the most.
        let waits = part / 2..=part * 3 / 2 + Duration::from_millis(2);
        assert!(waits.contains(&(pair[1].0 - pair[0].0)), "{waits:?}: {pair:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn l4_a_lost_lease_ends_at_once_and_is_never_beaten_again() {
    let (lease, start) = lease();
    let over = async {
        lease.ends_within(Duration::ZERO).await;
        start.elapsed()
    };
    let (times, over) = tokio::join!(beats(&lease, Duration::from_secs(100), |_| Beat::Lost), over);
    assert_eq!((times, over.as_secs()), (vec![18], 18));
}

#[tokio::test(start_paused = true)]
async fn l5_a_call_that_succeeded_late_proves_nothing() {
    let (lease, _) = lease();
    let beat = |_| async {
        sleep(Duration::from_secs(15)).await;
        Beat::Renewed
    };
    keep(&lease, None, beat, pin!(sleep(Duration::from_secs(34)))).await;
    assert!(lease.is_over());
}

#[tokio::test(start_paused = true)]
async fn l5_a_renewed_lease_counts_from_before_the_call_was_sent() {
    let (lease, _) = lease();
    let beat = |_| async {
        sleep(Duration::from_secs(5)).await;
        Beat::Renewed
    };
    keep(&lease, None, beat, pin!(sleep(Duration::from_secs(25)))).await;
    assert_eq!(lease.left(), Duration::from_secs(18 + 30 - 25));
}

#[tokio::test(start_paused = true)]
async fn l6_a_beat_on_the_wire_is_awaited_when_the_work_ends() {
    let (lease, start) = lease();
    let answered = Cell::new(false);
    let beat = |_| async {
        sleep(Duration::from_secs(3)).await;
        answered.set(true);
        Beat::Renewed
    };
    keep(&lease, None, beat, pin!(sleep(Duration::from_secs(19)))).await;
    assert_eq!((answered.get(), start.elapsed().as_secs()), (true, 21));
}

#[tokio::test(start_paused = true)]
async fn l6_a_beat_that_hangs_is_awaited_to_the_end_of_the_lease_at_the_most() {
    let (lease, start) = lease();
    keep(&lease, None, |_| pending::<Beat>(), pin!(sleep(Duration::from_secs(19)))).await;
    assert_eq!(start.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn l7_extensions_are_clamped_to_the_cap_and_then_beats_stop() {
    let clock = Clock::simulated(1, 0);
    let start = clock.now();
    let lease = Lease::new(clock, start, LENGTH).capped(Deadline::after(start, Duration::from_secs(60)));
    let reaches = RefCell::new(Vec::new());
    let beat = |reach: Duration| {
        reaches.borrow_mut().push(reach.as_secs());
        async { Beat::Renewed }
    };
    keep(&lease, None, beat, pin!(sleep(Duration::from_secs(300)))).await;
    assert_eq!(reaches.into_inner(), [30, 24]);
    assert!(lease.is_over());
}

#[tokio::test(start_paused = true)]
async fn l4_deliveries_of_one_queue_beat_on_a_shared_tick() {
    let clock = Clock::simulated(1, 0);
    let tick = Tick::new();
    let mut due = Vec::new();
    for _ in 0..3 {
        tokio::time::advance(Duration::from_millis(700)).await;
        due.push(Lease::new(clock.clone(), clock.now(), LENGTH).due(Some(tick)));
    }
    assert_eq!(due[0], due[1]);
    assert_eq!(due[1], due[2]);
}

#[tokio::test(start_paused = true)]
async fn l5_a_wall_clock_that_jumped_ahead_ends_a_lease() {
    let clock = Clock::simulated(1, 0);
    let ahead = Clock::simulated(1, 40_000);
    let deadline = Deadline::after(clock.now(), LENGTH);
    assert_eq!(deadline.left(clock.now()), LENGTH);
    assert_eq!(deadline.left(Moment { instant: Instant::now(), wall: ahead.wall() }), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn l7_no_storm_of_beats_just_below_the_cap_and_none_that_believes_in_fractions_of_a_second() {
    let clock = Clock::simulated(1, 0);
    let start = clock.now();
    let cap = Deadline::after(start, Duration::from_millis(100_900));
    let lease = Lease::new(clock, start, LENGTH).capped(cap);
    let beats = Cell::new(0);
    let beat = |reach: Duration| {
        beats.set(beats.get() + 1);
        assert_eq!(reach.subsec_nanos(), 0, "SQS would be told less than is believed");
        async {
            sleep(Duration::from_millis(20)).await;
            Beat::Renewed
        }
    };
    keep(&lease, None, beat, pin!(sleep(Duration::from_secs(120)))).await;
    assert_eq!(beats.get(), 4);
}

#[tokio::test(start_paused = true)]
async fn l7_a_beat_is_worth_a_call_when_it_wins_more_than_a_tenth_of_the_lease() {
    let (lease, _) = lease();
    tokio::time::advance(LENGTH / LEAST_GROWTH).await;
    assert!(!lease.can_grow());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(lease.can_grow());
}

/// Runs on a paused clock of its own.
fn paused<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(test)
}

proptest! {
    #[test]
    fn l5_a_deadline_has_come_when_either_clock_says_so(length in 0..100_000_u64, passed: [u16; 2]) {
        let left = paused(async {
            let [ticked, shown] = passed.map(|time| Duration::from_millis(time.into()));
            let start = Clock::simulated(1, 0).now();
            let now = Moment { instant: start.instant + ticked, wall: start.wall + shown };
            Deadline::after(start, Duration::from_millis(length)).left(now)
        });
        let most = u64::from(passed[0].max(passed[1]));
        prop_assert_eq!(left, Duration::from_millis(length.saturating_sub(most)));
    }

    /// Whatever beats answer, and however long they take: the lease never lasts past its cap, and no beat asks for more.
    #[test]
    fn l7_no_beats_take_a_lease_past_its_cap(
        length in 1..100_u64, cap in 1..1_000_u64, works in 1..2_000_u64, beats in vec((0..3_u8, 0..20_000_u64), 1..9),
    ) {
        paused(async {
            let clock = Clock::simulated(1, 0);
            let start = clock.now();
            let (length, cap) = (Duration::from_secs(length), Duration::from_secs(cap));
            // As SQS has it, the first timeout is within the cap too.
            let lease = Lease::new(clock.clone(), start, length.min(cap)).capped(Deadline::after(start, cap));
            let ends_at = (start.instant + cap, start.wall + cap);
            let sent = Cell::new(0);
            let beat = |reach: Duration| {
                assert!(reach <= length && Instant::now() + reach <= ends_at.0, "{reach:?}");
                assert_eq!(reach.subsec_nanos(), 0, "SQS has whole seconds");
                let (answer, takes) = beats[sent.get() % beats.len()];
                sent.set(sent.get() + 1);
                async move {
                    sleep(Duration::from_millis(takes)).await;
                    [Beat::Renewed, Beat::Transient, Beat::Final][usize::from(answer)]
                }
            };
            keep(&lease, None, beat, pin!(sleep(Duration::from_secs(works)))).await;
            assert!(Instant::now() + lease.left() <= ends_at.0.max(Instant::now()));
            assert!(lease.end().is_some_and(|end| end <= ends_at.1));
        });
    }

    #[test]
    fn l4_a_tick_is_early_by_a_tenth_of_the_lease_at_the_most(length in 1..50_000_u64, at in 0..100_000_000_u64) {
        paused(async {
            let (tick, length) = (Tick::new(), Duration::from_secs(length));
            let due = tick.origin + Duration::from_millis(at);
            let ticked = tick.at_or_before(due, length);
            assert!(ticked <= due && due - ticked < length / 10);
            assert_eq!(tick.at_or_before(ticked, length), ticked);
        });
    }
}
