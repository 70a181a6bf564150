use proptest::{collection::vec, prelude::*};
use tracing::{
    Event, Level, Metadata, Subscriber,
    span::{Attributes, Id, Record},
};

use super::*;

/// What each took in milliseconds, how many they are, and how long nothing is then heard of others.
fn some_handlers() -> impl Strategy<Value = (u32, u32, u64)> {
    prop_oneof![(0..500_u32, 0..150_u32, 0..1_000_000_u64), (any::<u32>(), 1..4_u32, 0..1_000_000_u64)]
}

proptest! {
    #[test]
    fn l3_whatever_handlers_take_it_stays_within_its_range(
        floor in 1..100_u64, more in 0..1_000_u64, own in proptest::option::of(0..50_000_u64),
        times in vec(some_handlers(), 0..8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let (floor, ceiling) = (secs(floor), secs(floor + more));
            let visibility = Visibility::new("q".into(), floor, ceiling, own.map(secs));
            for (took, handlers, then) in times {
                (0..handlers).for_each(|_| visibility.took(Duration::from_millis(took.into())));
                tokio::time::advance(Duration::from_millis(then)).await;
                assert!((floor..=ceiling).contains(&visibility.in_force()));
            }
        });
    }
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn in_range(floor: u64, ceiling: u64, own: u64) -> Visibility {
    Visibility::new("q".into(), secs(floor), secs(ceiling), Some(secs(own)))
}

async fn run(visibility: &Visibility, handlers: u32, each: Duration) -> u64 {
    for _ in 0..handlers {
        visibility.took(each);
    }
    tokio::time::advance(LOOK).await;
    visibility.took(each);
    visibility.in_force().as_secs()
}

#[tokio::test(start_paused = true)]
async fn l3_it_starts_from_the_queues_own_within_the_range() {
    assert_eq!(in_range(30, 120, 45).in_force(), secs(45));
    assert_eq!(in_range(30, 120, 0).in_force(), secs(30));
    assert_eq!(in_range(30, 120, 43_200).in_force(), secs(120));
    assert_eq!(Visibility::new("q".into(), secs(3), secs(9), None).in_force(), secs(3));
}

#[tokio::test(start_paused = true)]
async fn l3_it_follows_twice_the_p99_up_to_the_ceiling() {
    let visibility = in_range(30, 120, 30);
    assert_eq!(run(&visibility, 1_000, Duration::from_millis(20)).await, 30, "the floor");
    // Two in a hundred take 25 s.
    for n in 0..2_000 {
        visibility.took(if n % 50 == 0 { secs(25) } else { Duration::from_millis(20) });
    }
    assert!((50..=52).contains(&run(&visibility, 0, secs(25)).await), "{:?}", visibility.in_force());
    assert_eq!(run(&visibility, 2_000, secs(90)).await, 120, "the ceiling");
}

#[tokio::test(start_paused = true)]
async fn l3_a_handler_that_is_too_slow_is_seen_at_once() {
    let visibility = in_range(30, 120, 30);
    visibility.took(secs(40));
    assert!((79..=82).contains(&visibility.in_force().as_secs()), "{:?}", visibility.in_force());
}

#[tokio::test(start_paused = true)]
async fn l3_one_slow_handler_in_a_thousand_changes_nothing() {
    let visibility = in_range(30, 120, 30);
    run(&visibility, 1_000, Duration::from_millis(20)).await;
    visibility.took(secs(50));
    assert_eq!(run(&visibility, 1_000, Duration::from_millis(20)).await, 30);
}

#[tokio::test(start_paused = true)]
async fn l3_few_handlers_raise_it_and_do_not_lower_it() {
    let visibility = in_range(30, 120, 60);
    assert_eq!(run(&visibility, 20, Duration::from_millis(20)).await, 60);
    assert!((79..=82).contains(&run(&visibility, 0, secs(40)).await), "{:?}", visibility.in_force());
    assert_eq!(run(&visibility, 10_000, Duration::from_millis(20)).await, 30, "now there are enough");
}

#[tokio::test(start_paused = true)]
async fn l3_a_hundred_handlers_are_enough_to_lower_it() {
    for (handlers, expected) in [(99, 60), (100, 30)] {
        let visibility = in_range(30, 120, 60);
        assert_eq!(run(&visibility, handlers - 1, Duration::from_millis(20)).await, expected, "{handlers}");
    }
}

#[tokio::test(start_paused = true)]
async fn l3_the_p99_is_looked_at_before_its_time_only_for_a_handler_past_half_the_timeout() {
    let visibility = in_range(30, 120, 60);
    (0..200).for_each(|_| visibility.took(Duration::from_millis(20)));
    visibility.took(secs(30));
    assert_eq!(visibility.in_force(), secs(60));
    visibility.took(secs(30) + Duration::from_millis(1));
    assert_eq!(visibility.in_force(), secs(30));
}

#[tokio::test(start_paused = true)]
async fn l3_it_follows_in_steps_of_more_than_a_tenth() {
    let visibility = in_range(30, 120, 40);
    for (took, expected) in [(21_700, 40), (22_100, 45)] {
        visibility.took(Duration::from_millis(took));
        assert_eq!(visibility.in_force(), secs(expected), "{took}");
    }
}

#[tokio::test(start_paused = true)]
async fn l3_the_ceiling_is_reached_also_by_a_smaller_step() {
    let visibility = in_range(30, 32, 30);
    visibility.took(secs(16));
    assert_eq!(visibility.in_force(), secs(32));
}

#[tokio::test(start_paused = true)]
async fn l3_there_is_no_p99_before_the_first_handler_and_one_for_handlers_that_outlast_every_lease() {
    let visibility = in_range(30, 120, 30);
    assert_eq!(visibility.p99(), None);
    let longest = secs(20 * 60 * 60);
    visibility.took(longest);
    assert!(visibility.p99().is_some_and(|p99| longest <= p99 && p99 <= longest.mul_f64(1.01)), "{visibility:?}");
}

#[tokio::test(start_paused = true)]
async fn l3_what_was_slow_is_remembered_for_five_minutes_at_least() {
    let visibility = in_range(30, 120, 30);
    run(&visibility, 10, secs(60)).await;
    for _ in 0..2 {
        tokio::time::advance(secs(4 * 60)).await;
        assert_eq!(run(&visibility, 200, Duration::from_millis(20)).await, 120);
    }
}

#[tokio::test(start_paused = true)]
async fn l3_what_was_slow_once_is_forgotten() {
    let visibility = in_range(30, 120, 30);
    assert_eq!(run(&visibility, 200, secs(60)).await, 120);
    tokio::time::advance(WINDOW).await;
    assert_eq!(run(&visibility, 200, Duration::from_millis(20)).await, 120, "still in the window before");
    tokio::time::advance(WINDOW).await;
    assert_eq!(run(&visibility, 200, Duration::from_millis(20)).await, 30);
}

#[tokio::test(start_paused = true)]
async fn l3_a_fixed_timeout_stays_and_knows_when_it_is_too_short() {
    let visibility = in_range(30, 30, 30);
    // Twice the p99 of these is 30 s, rounded up.
    assert_eq!(run(&visibility, 200, Duration::from_millis(14_900)).await, 30);
    assert!(!visibility.times.lock().expect("not poisoned").told);
    assert_eq!(run(&visibility, 200, secs(16)).await, 30);
    assert!(visibility.times.lock().expect("not poisoned").told);
    assert!(visibility.p99().is_some_and(|p99| (16_000..17_000).contains(&p99.as_millis())));
}

/// Counts warnings.
#[derive(Debug, Default)]
struct Warnings(AtomicU64);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn l3_a_fixed_timeout_that_is_too_short_is_told_once_until_it_fits_again() {
    let warnings = Arc::new(Warnings::default());
    let _told = tracing::subscriber::set_default(Arc::clone(&warnings));
    let visibility = in_range(30, 30, 30);
    let slow = || run(&visibility, 200, secs(16));
    slow().await;
    slow().await;
    assert_eq!(warnings.0.load(Ordering::Relaxed), 1);
    for _ in 0..2 {
        tokio::time::advance(WINDOW).await;
        run(&visibility, 200, Duration::from_millis(20)).await;
    }
    assert_eq!(warnings.0.load(Ordering::Relaxed), 1, "it fits");
    slow().await;
    assert_eq!(warnings.0.load(Ordering::Relaxed), 2);
}
