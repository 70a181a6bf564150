//! How a way through a dead-letter queue ends, and that it says so: of others that are hidden, of letters that keep
//! arriving, of calls that fail.

use super::*;

#[tokio::test(start_paused = true)]
async fn t5_a_dry_run_that_cannot_see_behind_the_heads_of_groups_says_so() {
    let bed = TestBed::new(&["jobs.fifo"]);
    let book = Book::new();
    let vars = [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_JOBS_NAME", "jobs.fifo"), ("LEASEHOLD_KEY", "/id")];
    (0..25).for_each(|n| drop(bed.send("jobs.fifo", format!(r#"{{"id":"{n}","first":["fail_for_good"]}}"#))));
    bed.worker(&vars).queue("jobs", book.clone()).run(bed.until_idle()).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    let letters = bed.ops(&vars).unwrap().dead_letters("jobs").await.unwrap();
    let (dry, _) = redrive(&letters, &Redrive { dry_run: true, ..all() }).await;
    assert_eq!((dry.done, dry.ending, dry.unseen), (counts(&[("runs again", 10)]), Ending::Behind, 15));
    let choice = Choice { pks: vec!["jobs#20".into()], ..Choice::default() };
    let (redriven, _) = redrive(&letters, &Redrive { choice, ..all() }).await;
    assert_eq!((redriven.ending, redriven.is_clean()), (Ending::Behind, false), "its head is not meant, and blocks it");
    let (redriven, _) = redrive(&letters, &all()).await;
    assert_eq!((redriven.done, redriven.ending, redriven.unseen), (counts(&[("runs again", 25)]), Ending::All, 0));
}

#[tokio::test(start_paused = true)]
async fn the_end_is_not_claimed_while_a_tool_that_was_killed_hides_letters() {
    let (bed, book) = bed();
    dead_ones(&bed, &book, 5).await;
    let letters = letters(&bed, &[]).await;
    let slowly = Redrive { rate: Rate::per_second(1.0), ..all() };
    let killed = tokio::time::timeout(Duration::from_millis(1500), redrive(&letters, &slowly)).await;
    assert!(killed.is_err());
    let (redriven, _) = redrive(&letters, &all()).await;
    assert_eq!((redriven.ending, redriven.unseen, redriven.is_clean()), (Ending::Hidden, 3, false));
    sleep(Duration::from_secs(120)).await;
    let (redriven, _) = redrive(&letters, &all()).await;
    assert_eq!((redriven.done, redriven.ending), (counts(&[("runs again", 3)]), Ending::All));
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_takes_longer_than_letters_are_hidden_still_reaches_the_last() {
    let (bed, _) = bed();
    let dead = bed.queue("jobs-dlq");
    (0..3000).for_each(|n| drop(dead.put(body(&format!(r#"{{"id":"{n}"}}"#)))));
    sleep(Duration::from_secs(5)).await;
    let letters = letters(&bed, &[]).await;
    let slow = Fault::Delay(Duration::from_secs(1));
    bed.queue_faults("jobs-dlq").decide_with(move |call| (call.operation == "receive").then_some(slow));
    let begun = Instant::now();
    let choice = Choice { pks: vec!["jobs#2999".into()], ..Choice::default() };
    let (redriven, _) = redrive(&letters, &Redrive { choice, ..all() }).await;
    assert!(begun.elapsed() > Duration::from_secs(290));
    assert_eq!((redriven.done, redriven.others), (counts(&[("runs again", 1)]), 2999));
    assert_eq!((redriven.ending, dead.visible()), (Ending::All, 2999), "and all are given back");
}

#[tokio::test(start_paused = true)]
async fn a_pass_ends_although_new_letters_keep_arriving() {
    let (bed, book) = bed();
    dead_ones(&bed, &book, 3).await;
    let letters = letters(&bed, &[]).await;
    let dead = bed.queue("jobs-dlq");
    let feed = async {
        for n in 0..7200 {
            sleep(Duration::from_millis(500)).await;
            dead.put(body(&format!(r#"{{"id":"x{n}"}}"#)));
        }
    };
    let (every, begun) = (all(), Instant::now());
    let (redriven, _) = tokio::select! {
        // The feed is cut off when the pass has ended.
        biased;
        redriven = redrive(&letters, &every) => redriven,
        () = feed => panic!("it does not end"),
    };
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(
        (redriven.done.clone(), redriven.ending, redriven.is_clean()),
        (counts(&[("runs again", 3)]), Ending::Dying, true)
    );
    assert_eq!(dead.in_flight(), 0, "what is new is given back");
}

#[tokio::test(start_paused = true)]
async fn work_that_dies_again_does_not_go_round_where_the_tools_clock_is_ahead() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a","first":["fail_for_good","fail_for_good","fail_for_good","fail_for_good"]}"#);
    work(&bed, &book, &[]).await;
    sleep(Duration::from_secs(5)).await;
    let ahead = bed.broker.clock().skewed(1, 1_500);
    let vars = VARS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let config = leasehold::Config::from_vars(vars).map_err(|_| "settings").unwrap().0;
    let (broker, guard) = (std::sync::Arc::new(bed.broker.clone()), std::sync::Arc::new(bed.guard.clone()));
    let letters = leasehold::ops::Ops::with_adapters(config, broker, guard, ahead).dead_letters("jobs").await.unwrap();
    let shutdown = Shutdown::new();
    let (redriven, report) = tokio::join!(
        async {
            let redriven = redrive(&letters, &all()).await.0;
            shutdown.drain();
            redriven
        },
        worker(&bed, &book, &[]).run(shutdown.clone())
    );
    report.unwrap();
    assert_eq!((redriven.done, book.runs("a").len()), (counts(&[("runs again", 1)]), 2));
}

#[tokio::test(start_paused = true)]
async fn errors_that_pass_end_no_pass_and_one_that_does_not_tells_what_was_done() {
    let (bed, book) = bed();
    dead_ones(&bed, &book, 40).await;
    let letters = letters(&bed, &[]).await;
    (0..4).for_each(|_| bed.queue_faults("jobs-dlq").next("receive", Fault::Fail(Failure::Throttled)));
    let choice = Choice { limit: Some(10), ..Choice::default() };
    let (redriven, _) = redrive(&letters, &Redrive { choice, ..all() }).await;
    assert_eq!((redriven.done, redriven.ending), (counts(&[("runs again", 10)]), Ending::Enough));
    let number = bed.queue_faults("jobs").calls()["send"];
    let denied = Fault::Fail(Failure::Denied);
    bed.queue_faults("jobs")
        .decide_with(move |call| (call.operation == "send" && call.number == number + 14).then_some(denied));
    let mut told = 0;
    let broken_off = letters.redrive(&all(), &CancellationToken::new(), |_| told += 1).await.unwrap_err();
    assert!(matches!(broken_off.error, OpsError::Queue { error: QueueError::Denied(_), .. }), "{broken_off:?}");
    let redriven = broken_off.redriven;
    assert_eq!((redriven.done, redriven.stay), (counts(&[("runs again", 19)]), counts(&[("failed", 1)])));
    assert_eq!((told, redriven.ending), (20, Ending::BrokenOff));
    assert_eq!(
        (bed.queue("jobs").len(), bed.queue("jobs-dlq").visible()),
        (29, 11),
        "also the failed one is given back"
    );
}

#[tokio::test(start_paused = true)]
async fn l6_what_is_no_longer_ours_is_neither_put_back_nor_given_back() {
    let (bed, book) = bed();
    dead_ones(&bed, &book, 5).await;
    let letters = letters(&bed, &[]).await;
    // Its beats do not get through: what waits for its turn comes back, and somebody else has it then.
    bed.queue_faults("jobs-dlq").always("change_visibility", Fault::Fail(Failure::Unavailable));
    let slowly = Redrive { rate: Rate::per_second(0.02), ..all() };
    let stop = CancellationToken::new();
    let mut outcomes = Vec::new();
    let told = |put: &Put<'_>| outcomes.push(matches!(put.outcome, Outcome::Done));
    let pass = letters.redrive(&slowly, &stop, told);
    let ((), redriven) = tokio::join!(
        async {
            sleep(Duration::from_secs(230)).await;
            stop.cancel();
        },
        pass
    );
    let redriven = redriven.unwrap();
    assert_eq!((redriven.done, redriven.stay), (counts(&[("runs again", 3)]), counts(&[("failed", 2)])));
    let calls = bed.queue_faults("jobs-dlq").calls()["change_visibility"];
    let (begun, before) = (Instant::now(), calls);
    assert_eq!(outcomes, [true, true, true, false, false]);
    bed.queue_faults("jobs-dlq").clear();
    // Giving back ends in time where nothing is answered.
    bed.queue_faults("jobs-dlq").always("change_visibility", Fault::Delay(Duration::from_secs(3600)));
    letters.look(&Choice::default(), 10, &CancellationToken::new(), |_| {}).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(bed.queue_faults("jobs-dlq").calls()["change_visibility"] - before, 2);
}

#[tokio::test(start_paused = true)]
async fn a_look_for_some_ends_when_they_are_found() {
    let (bed, _) = bed();
    let dead = bed.queue("jobs-dlq");
    (0..500).for_each(|n| drop(dead.put(body(&format!(r#"{{"id":"{n}"}}"#)))));
    let letters = letters(&bed, &[]).await;
    let choice = Choice { pks: vec!["jobs#25".into(), "jobs#26".into()], limit: Some(1), ..Choice::default() };
    let (mut seen, stop) = (Vec::new(), CancellationToken::new());
    let looked = letters.look(&choice, 10_000, &stop, |letter| seen.push(letter.message.body)).await.unwrap();
    assert_eq!((looked.at, looked.ending, seen.len()), (30, Ending::Enough, 1));
    let looked = letters.look(&choice, 20, &stop, |_| panic!("is not among them")).await.unwrap();
    assert_eq!((looked.at, looked.ending, dead.visible()), (20, Ending::Enough, 500));
}
