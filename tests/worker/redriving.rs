//! Dead letters, looked at and put back beside real workers: nothing is lost, and each piece of work takes effect once.

use std::{collections::BTreeMap, time::Duration};

use leasehold::{
    Shutdown,
    config::Rate,
    guard::{Claim, Owner, Pk, Record, Source, Status},
    ops::{
        OpsError,
        dead_letters::{
            BrokenOff, Choice, DeadLetters, Ending, Fate, Group, Groups, Known, Letter, Moving, Outcome, Put, Redrive,
            Redriven,
        },
    },
    queue::{Broker, Move, MoveStatus, MoveTask, Outgoing, QueueError},
    testing::{Failure, Fault, MemoryQueueSettings, TestBed},
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::bench::{Book, worker};

mod endings;
mod sharing;

const VARS: [(&str, &str); 2] = [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id")];

fn bed() -> (TestBed, Book) {
    (TestBed::new(&["jobs"]), Book::new())
}

async fn letters(bed: &TestBed, vars: &[(&str, &str)]) -> DeadLetters {
    let vars: Vec<_> = VARS.iter().chain(vars).copied().collect();
    bed.ops(&vars).unwrap().dead_letters("jobs").await.unwrap()
}

async fn look(letters: &DeadLetters) -> Vec<Letter> {
    let mut seen = Vec::new();
    letters.look(&Choice::default(), 1000, &CancellationToken::new(), |letter| seen.push(letter)).await.unwrap();
    seen
}

fn groups_of(letters: &[Letter]) -> Vec<Group> {
    let mut groups = Groups::default();
    letters.iter().for_each(|letter| groups.add(letter));
    groups.told()
}

/// With what became of each, by body.
async fn redrive(letters: &DeadLetters, ask: &Redrive) -> (Redriven, BTreeMap<String, Fate>) {
    let (mut fates, stop) = (BTreeMap::new(), CancellationToken::new());
    let told = |put: &Put<'_>| {
        fates.insert(put.letter.message.body.clone(), put.fate);
    };
    let redriven = letters.redrive(ask, &stop, told).await.unwrap();
    (redriven, fates)
}

fn all() -> Redrive {
    Redrive::default()
}

fn only(code: &str) -> Redrive {
    let choice = Choice { codes: vec![code.to_owned()], ..Choice::default() };
    Redrive { choice, ..Redrive::default() }
}

fn counts(counts: &[(&'static str, u64)]) -> BTreeMap<&'static str, u64> {
    counts.iter().copied().collect()
}

/// Lets a worker run until there is nothing to do.
async fn work(bed: &TestBed, book: &Book, vars: &[(&str, &str)]) {
    worker(bed, book, vars).run(bed.until_idle()).await.unwrap();
}

fn status(bed: &TestBed, id: &str) -> Status {
    bed.guard.record(&Pk(format!("jobs#{id}"))).unwrap().status
}

/// Puts a message into the queue and lets SQS itself move it, without a worker ever having run it.
async fn moved_by_sqs(bed: &TestBed, message: Outgoing) {
    use leasehold::queue::{Queue, Receive};
    let queue = bed.queue("jobs");
    let max_receive_count = queue.facts().await.unwrap().redrive.unwrap().max_receive_count;
    queue.put(message).unwrap();
    let ask = Receive { max: 1, wait: Duration::ZERO, visibility: Duration::from_secs(30), attempt_id: None };
    for _ in 0..max_receive_count {
        for received in queue.receive(&ask).await.unwrap() {
            queue.change_visibility(&received.handle, Duration::ZERO).await.unwrap();
        }
    }
    assert!(queue.receive(&ask).await.unwrap().is_empty() && queue.is_empty());
    // What was sent in the very moment in which a redrive begins may be what it has put back.
    sleep(Duration::from_secs(1)).await;
}

fn body(body: &str) -> Outgoing {
    Outgoing { body: body.to_owned(), ..Outgoing::default() }
}

const HOPELESS: &str = r#"{"id":"a","first":["fail_for_good"]}"#;

#[tokio::test(start_paused = true)]
async fn g11_letters_of_one_reason_are_put_back_and_take_effect_once_and_the_others_stay() {
    let (bed, book) = bed();
    for n in 0..30 {
        bed.send("jobs", format!(r#"{{"id":"h{n}","first":["fail_for_good"]}}"#));
        bed.send("jobs", format!(r#"{{"id":"f{n}","first":["fail"]}}"#));
    }
    bed.send("jobs", "not JSON");
    work(&bed, &book, &[("LEASEHOLD_MAX_ATTEMPTS", "1")]).await;
    let letters = letters(&bed, &[]).await;
    let groups = groups_of(&look(&letters).await);
    let told: Vec<_> = groups.iter().map(|group| (group.code.as_str(), group.messages, group.failures)).collect();
    assert_eq!(told, [("failing", 30, 30), ("hopeless", 30, 30), ("malformed", 1, 1)]);
    assert_eq!(groups[1].records, counts(&[("DEAD", 30)]));
    assert_eq!(groups[2].records, counts(&[("no key", 1)]));

    let (redriven, _) = redrive(&letters, &only("hopeless")).await;
    assert_eq!((redriven.done, redriven.others, redriven.ending), (counts(&[("runs again", 30)]), 31, Ending::All));
    work(&bed, &book, &[]).await;
    assert!((0..30).all(|n| status(&bed, &format!("h{n}")) == Status::Done && book.runs(&format!("h{n}")).len() == 2));
    assert!((0..30).all(|n| book.runs(&format!("f{n}")).len() == 1));
    assert_eq!(groups_of(&look(&letters).await).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn looking_gives_back_all_that_it_received_and_counts_as_one_receive() {
    let (bed, book) = bed();
    (0..25).for_each(|n| drop(bed.send("jobs", format!(r#"{{"id":"{n}","first":["fail_for_good"]}}"#))));
    work(&bed, &book, &[]).await;
    let letters = letters(&bed, &[]).await;
    let dead = bed.queue("jobs-dlq");
    assert_eq!(look(&letters).await.len(), 25);
    assert_eq!((dead.visible(), letters.depth().await.unwrap().total()), (25, 25));
    let looked = letters.look(&Choice::default(), 7, &CancellationToken::new(), |_| {}).await.unwrap();
    assert_eq!((looked.at, looked.ending, dead.visible()), (7, Ending::Enough, 25));
    let receives: u32 = dead.messages().iter().map(|message| message.receive_count).sum();
    assert_eq!(receives, 25 + 7);
}

#[tokio::test(start_paused = true)]
async fn a_letter_whose_work_is_done_by_now_is_cleaned_away_and_does_not_run() {
    let (bed, book) = bed();
    bed.send("jobs", HOPELESS);
    work(&bed, &book, &[]).await;
    // The same work, sent again with its payload mended.
    sleep(Duration::from_secs(10)).await;
    bed.send("jobs", r#"{"id":"a"}"#);
    work(&bed, &book, &[]).await;
    let letters = letters(&bed, &[]).await;
    let (redriven, _) = redrive(&letters, &all()).await;
    assert_eq!((redriven.done, redriven.ending), (counts(&[("was done", 1)]), Ending::All));
    assert!(bed.queue("jobs").is_empty() && bed.queue("jobs-dlq").is_empty());
    assert_eq!(book.runs("a").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn g9_a_letter_with_another_payload_than_what_is_done_under_its_key_is_not_taken_for_done() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"a"}"#);
    work(&bed, &book, &[]).await;
    bed.send("jobs", r#"{"id":"a","millis":1}"#);
    work(&bed, &book, &[]).await;
    let letters = letters(&bed, &[]).await;
    let seen = look(&letters).await;
    assert!(matches!(&seen[0].known, Known::Record(record) if record.status == Status::Done), "{:?}", seen[0]);
    let (redriven, _) = redrive(&letters, &all()).await;
    assert_eq!(redriven.done, counts(&[("goes back", 1)]));
    work(&bed, &book, &[]).await;
    assert_eq!((bed.dead("jobs").len(), book.runs("a").len()), (1, 1), "the worker decides, and refuses it again");
}

#[tokio::test(start_paused = true)]
async fn t3_copies_of_one_failure_go_back_as_one() {
    let (bed, book) = bed();
    bed.send("jobs", HOPELESS);
    bed.queue_faults("jobs-dlq").next("send", Fault::ApplyThenFail(Failure::NoAnswer));
    work(&bed, &book, &[]).await;
    let letters = letters(&bed, &[]).await;
    let group = groups_of(&look(&letters).await).remove(0);
    assert_eq!((group.messages, group.failures), (2, 1));
    let (redriven, _) = redrive(&letters, &all()).await;
    assert_eq!(redriven.done, counts(&[("runs again", 1), ("was a copy", 1)]));
    work(&bed, &book, &[]).await;
    assert_eq!((status(&bed, "a"), book.runs("a").len()), (Status::Done, 2));
    assert!(bed.dead("jobs").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_redrive_that_breaks_off_between_send_and_delete_is_done_again_and_takes_effect_once() {
    for fault in [Fault::Fail(Failure::NoAnswer), Fault::LoseReply] {
        let (bed, book) = bed();
        bed.send("jobs", HOPELESS);
        work(&bed, &book, &[]).await;
        let letters = letters(&bed, &[]).await;
        bed.queue_faults("jobs-dlq").always("delete", fault);
        let mut outcomes = Vec::new();
        let told = |put: &Put<'_>| outcomes.push(matches!(put.outcome, Outcome::SentAndStays(_)));
        let redriven = letters.redrive(&all(), &CancellationToken::new(), told).await.unwrap();
        assert_eq!(redriven.stay, counts(&[("sent, and not deleted", 1)]));
        assert_eq!(outcomes, [true]);
        bed.queue_faults("jobs-dlq").clear();
        redrive(&letters, &all()).await;
        work(&bed, &book, &[]).await;
        assert_eq!(book.completed()["a"], 2, "the failure, and one success");
        redrive(&letters, &all()).await;
        assert!(bed.queue("jobs").is_empty() && bed.queue("jobs-dlq").is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_sent_stays_and_one_that_never_can_ends_the_pass() {
    let (bed, book) = bed();
    (0..5).for_each(|n| drop(bed.send("jobs", format!(r#"{{"id":"{n}","first":["fail_for_good"]}}"#))));
    work(&bed, &book, &[]).await;
    let letters = letters(&bed, &[]).await;
    bed.queue_faults("jobs").next("send", Fault::Fail(Failure::Throttled));
    let (redriven, _) = redrive(&letters, &all()).await;
    assert_eq!((redriven.done, redriven.stay), (counts(&[("runs again", 4)]), counts(&[("failed", 1)])));
    assert_eq!(bed.queue("jobs-dlq").visible(), 1);
    bed.queue_faults("jobs").always("send", Fault::Fail(Failure::Denied));
    let refused = letters.redrive(&all(), &CancellationToken::new(), |_| {}).await;
    assert!(
        matches!(&refused, Err(BrokenOff { error: OpsError::Queue { queue, error: QueueError::Denied(_) }, .. }) if queue == "jobs"),
        "{refused:?}"
    );
    assert_eq!(bed.queue("jobs-dlq").visible(), 1, "given back");
}

#[tokio::test(start_paused = true)]
async fn what_dies_again_while_letters_are_put_back_is_left_for_the_next_time() {
    let (bed, book) = bed();
    (0..40).for_each(|n| {
        drop(bed.send("jobs", format!(r#"{{"id":"{n}","first":["fail_for_good","fail_for_good","fail_for_good"]}}"#)));
    });
    work(&bed, &book, &[]).await;
    let letters = letters(&bed, &[]).await;
    let shutdown = Shutdown::new();
    let ask = Redrive { rate: Rate::per_second(10.0), ..all() };
    let (redriven, report) = tokio::join!(
        async {
            let redriven = redrive(&letters, &ask).await.0;
            shutdown.drain();
            redriven
        },
        worker(&bed, &book, &[]).run(shutdown.clone())
    );
    report.unwrap();
    assert_eq!(redriven.done, counts(&[("runs again", 40)]));
    work(&bed, &book, &[]).await;
    assert!((0..40).all(|n| book.runs(&n.to_string()).len() == 2), "each once more");
}

#[tokio::test(start_paused = true)]
async fn letters_go_back_no_faster_than_asked() {
    let (bed, book) = bed();
    (0..12).for_each(|n| drop(bed.send("jobs", format!(r#"{{"id":"{n}","first":["fail_for_good"]}}"#))));
    work(&bed, &book, &[]).await;
    let letters = letters(&bed, &[]).await;
    let begun = Instant::now();
    let mut at = Vec::new();
    let ask = Redrive { rate: Rate::per_second(2.0), ..all() };
    letters.redrive(&ask, &CancellationToken::new(), |_| at.push(begun.elapsed().as_millis())).await.unwrap();
    let expected: Vec<u128> = (0..12).map(|n| n * 500).collect();
    assert_eq!(at, expected);
}

#[tokio::test(start_paused = true)]
async fn no_handle_expires_while_letters_go_back_slowly() {
    for queue in ["jobs", "jobs.fifo"] {
        let bed = TestBed::new(&[queue]);
        let book = Book::new();
        let vars = [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_JOBS_NAME", queue), ("LEASEHOLD_KEY", "/id")];
        (0..25).for_each(|n| drop(bed.send(queue, format!(r#"{{"id":"{n}","first":["fail_for_good"]}}"#))));
        bed.worker(&vars).queue("jobs", book.clone()).run(bed.until_idle()).await.unwrap();
        let letters = bed.ops(&vars).unwrap().dead_letters("jobs").await.unwrap();
        for (rate, put) in [(0.1, 12), (0.005, 13)] {
            let choice = Choice { limit: Some(put), ..Choice::default() };
            let ask = Redrive { choice, rate: Rate::per_second(rate), ..all() };
            let (redriven, _) = redrive(&letters, &ask).await;
            assert_eq!((redriven.done, redriven.stay), (counts(&[("runs again", put as u64)]), counts(&[])), "{queue}");
        }
        assert_eq!((bed.queue(queue).len(), bed.queue(&TestBed::dead_letter_name(queue)).len()), (25, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn t3_a_copy_that_the_dead_letter_queue_has_no_room_for_goes_without_its_reason_which_its_record_tells() {
    let (bed, book) = bed();
    let largest_message = 200;
    bed.broker.create("jobs-dlq", MemoryQueueSettings { largest_message, ..MemoryQueueSettings::default() });
    bed.send("jobs", format!(r#"{{"id":"a","first":["fail_for_good"],"note":"{}"}}"#, "x".repeat(100)));
    work(&bed, &book, &[]).await;
    assert_eq!(bed.dead("jobs").into_iter().map(|(_, note)| note).collect::<Vec<_>>(), [None]);
    let letters = letters(&bed, &[]).await;
    assert_eq!(look(&letters).await[0].code(), "hopeless");
    let (redriven, _) = redrive(&letters, &all()).await;
    assert_eq!(redriven.done, counts(&[("runs again", 1)]));
    sleep(Duration::from_secs(10)).await;
    work(&bed, &book, &[]).await;
    assert_eq!((status(&bed, "a"), book.runs("a").len()), (Status::Done, 2));
}

#[tokio::test(start_paused = true)]
async fn a_choice_is_by_reason_key_age_and_number() {
    let (bed, book) = bed();
    bed.send("jobs", r#"{"id":"old","first":["fail_for_good"]}"#);
    work(&bed, &book, &[]).await;
    sleep(Duration::from_secs(3600)).await;
    (0..20).for_each(|n| drop(bed.send("jobs", format!(r#"{{"id":"{n}","first":["fail_for_good"]}}"#))));
    work(&bed, &book, &[]).await;
    let letters = letters(&bed, &[]).await;
    let dry = |choice| Redrive { choice, dry_run: true, ..Redrive::default() };
    let meant = async |choice: Choice| redrive(&letters, &dry(choice)).await.1.len();
    assert_eq!(meant(Choice::default()).await, 21);
    assert_eq!(meant(Choice { codes: vec!["hopeless".into(), "x".into()], ..Choice::default() }).await, 21);
    assert_eq!(meant(Choice { codes: vec!["x".into()], ..Choice::default() }).await, 0);
    assert_eq!(meant(Choice { pks: vec!["jobs#7".into()], ..Choice::default() }).await, 1);
    assert_eq!(meant(Choice { older_than: Some(Duration::from_secs(1800)), ..Choice::default() }).await, 1);
    assert_eq!(meant(Choice { limit: Some(13), ..Choice::default() }).await, 13);
    assert_eq!((bed.queue("jobs-dlq").visible(), bed.queue("jobs").len()), (21, 0), "nothing was changed");
}

#[tokio::test(start_paused = true)]
async fn a_stop_leaves_what_is_not_put_back_where_it_was() {
    let (bed, book) = bed();
    (0..50).for_each(|n| drop(bed.send("jobs", format!(r#"{{"id":"{n}","first":["fail_for_good"]}}"#))));
    work(&bed, &book, &[]).await;
    let letters = letters(&bed, &[]).await;
    let stop = CancellationToken::new();
    let mut put = 0;
    let ask = Redrive { rate: Rate::per_second(100.0), ..all() };
    let redriven = letters.redrive(&ask, &stop, |_| {
        put += 1;
        if put == 17 {
            stop.cancel();
        }
    });
    let redriven = redriven.await.unwrap();
    assert_eq!((redriven.done, redriven.ending), (counts(&[("runs again", 17)]), Ending::Stopped));
    assert_eq!((bed.queue("jobs").len(), bed.queue("jobs-dlq").visible()), (17, 33));
}

#[tokio::test(start_paused = true)]
async fn g10_what_sqs_moved_keeps_its_message_id_as_its_key_when_it_is_put_back() {
    let (bed, book) = bed();
    let vars = [("LEASEHOLD_KEY", "message-id")];
    moved_by_sqs(&bed, body(r#"{"id":"a"}"#)).await;
    let letters = letters(&bed, &vars).await;
    let seen = look(&letters).await.remove(0);
    assert_eq!((seen.code(), seen.was_moved(), &seen.known), ("moved_by_sqs", true, &Known::Nothing));
    let pk = seen.pk.clone().unwrap();
    assert!(letters.why_one_by_one(None).await.is_some());
    redrive(&letters, &all()).await;
    receives_are_used_up(&bed, "jobs").await;
    sleep(Duration::from_secs(1)).await;
    let again = look(&letters).await.remove(0);
    assert_eq!((again.code(), &again.pk), ("moved_by_sqs", &Some(pk.clone())), "its note keeps the key");
    redrive(&letters, &all()).await;
    work(&bed, &book, &vars).await;
    assert_eq!(bed.guard.record(&pk).unwrap().status, Status::Done, "under the key that it always had");
}

#[tokio::test(start_paused = true)]
async fn g10_what_had_its_deduplication_id_for_a_key_stays_when_that_is_lost() {
    let bed = TestBed::new(&["jobs.fifo"]);
    let book = Book::new();
    let vars = [
        ("LEASEHOLD_QUEUES", "jobs"),
        ("LEASEHOLD_JOBS_NAME", "jobs.fifo"),
        ("LEASEHOLD_KEY", "dedup-id"),
        ("LEASEHOLD_MAX_ATTEMPTS", "1"),
    ];
    bed.send("jobs.fifo", r#"{"id":"noted","first":["fail"]}"#);
    bed.send("jobs.fifo", "not JSON");
    bed.worker(&vars).queue("jobs", book.clone()).run(bed.until_idle()).await.unwrap();
    let letters = bed.ops(&vars).unwrap().dead_letters("jobs").await.unwrap();
    let (redriven, fates) = redrive(&letters, &all()).await;
    assert_eq!(redriven.done, counts(&[("runs again", 1)]), "its failure noted the key");
    assert_eq!(redriven.stay, counts(&[("its key is lost", 1)]));
    assert_eq!(fates["not JSON"], Fate::KeyIsLost);
    bed.worker(&vars).queue("jobs", book.clone()).run(bed.until_idle()).await.unwrap();
    assert_eq!(book.runs("noted").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn t5_letters_of_a_group_go_back_in_order_and_none_ahead_of_one_that_stays() {
    let bed = TestBed::new(&["jobs.fifo"]);
    let book = Book::new();
    let vars = [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_JOBS_NAME", "jobs.fifo"), ("LEASEHOLD_KEY", "/id")];
    for n in 0..25 {
        bed.send("jobs.fifo", format!(r#"{{"id":"{n}","first":["fail_for_good"]}}"#));
    }
    bed.worker(&vars).queue("jobs", book.clone()).run(bed.until_idle()).await.unwrap();
    let letters = bed.ops(&vars).unwrap().dead_letters("jobs").await.unwrap();
    bed.queue_faults("jobs.fifo")
        .decide_with(|call| (call.operation == "send" && call.number == 4).then_some(Fault::Fail(Failure::Throttled)));
    let (redriven, _) = redrive(&letters, &all()).await;
    assert_eq!(redriven.done, counts(&[("runs again", 3)]));
    let stays: u64 = redriven.stay.values().sum();
    assert_eq!(stays, 7, "those behind it that were received with it");
    let (redriven, _) = redrive(&letters, &all()).await;
    assert_eq!((redriven.done, redriven.ending), (counts(&[("runs again", 22)]), Ending::All));
    let sent: Vec<_> = bed.queue("jobs.fifo").messages().iter().map(|message| message.body.clone()).collect();
    let expected: Vec<_> = (0..25).map(|n| format!(r#"{{"id":"{n}","first":["fail_for_good"]}}"#)).collect();
    assert_eq!(sent, expected);
}

#[tokio::test(start_paused = true)]
async fn g11_what_sqs_moved_from_a_worker_that_died_begins_anew() {
    let (bed, book) = bed();
    let now = bed.broker.clock().wall();
    let claim = Claim {
        pk: Pk("jobs#a".into()),
        owner: Owner("died".into()),
        now,
        lease_until: now + Duration::from_secs(30),
        fingerprint: Some("of a payload that is mended now".into()),
        source: Source::default(),
    };
    bed.guard.put(Record { failures: 4, takeovers: 9, ..claim.record() });
    moved_by_sqs(&bed, body(r#"{"id":"a"}"#)).await;
    let letters = letters(&bed, &[]).await;
    assert_eq!(groups_of(&look(&letters).await)[0].records, counts(&[("RUNNING", 1)]));
    let (_, fates) = redrive(&letters, &Redrive { dry_run: true, ..all() }).await;
    assert_eq!(fates[r#"{"id":"a"}"#], Fate::GoesBack, "while its lease lasts");
    sleep(Duration::from_secs(60)).await;
    let (redriven, _) = redrive(&letters, &all()).await;
    assert_eq!(redriven.done, counts(&[("runs again", 1)]));
    work(&bed, &book, &[]).await;
    assert_eq!((status(&bed, "a"), book.runs("a").len(), book.runs("a")[0].attempt), (Status::Done, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn purged_letters_are_gone_and_their_records_still_refuse_late_duplicates() {
    let (bed, book) = bed();
    bed.send("jobs", HOPELESS);
    bed.send("jobs", HOPELESS);
    work(&bed, &book, &[]).await;
    let letters = letters(&bed, &[]).await;
    let dry = Redrive { dry_run: true, ..only("hopeless") };
    let redriven = letters.purge(&dry, &CancellationToken::new(), |_| {}).await.unwrap();
    assert_eq!((redriven.done, bed.dead("jobs").len()), (counts(&[("deleted", 1)]), 1));
    letters.purge(&only("hopeless"), &CancellationToken::new(), |_| {}).await.unwrap();
    assert_eq!((bed.dead("jobs").len(), status(&bed, "a"), book.runs("a").len()), (0, Status::Dead, 1));
}

#[tokio::test(start_paused = true)]
async fn a_queue_without_a_dead_letter_queue_is_told_what_to_set() {
    let (bed, _) = bed();
    bed.broker.create("jobs", MemoryQueueSettings::default());
    for (vars, says) in [
        (&[][..], "LEASEHOLD_JOBS_DEAD_LETTER=jobs-dlq"),
        (&[("LEASEHOLD_DEAD_LETTER", "drop")], "drops"),
        (&[("LEASEHOLD_DEAD_LETTER", "keep")], "keeps"),
    ] {
        let vars: Vec<_> = VARS.iter().chain(vars).copied().collect();
        let refused = bed.ops(&vars).unwrap().dead_letters("jobs").await.unwrap_err();
        assert!(matches!(refused, OpsError::Configuration(_)) && refused.to_string().contains(says), "{refused}");
    }
}

/// Lets SQS itself move all that is visible in the queue now.
async fn receives_are_used_up(bed: &TestBed, queue: &str) {
    use leasehold::queue::{Queue, Receive};
    let queue = bed.queue(queue);
    let ask = Receive { max: 10, wait: Duration::ZERO, visibility: Duration::from_secs(30), attempt_id: None };
    loop {
        let received = queue.receive(&ask).await.unwrap();
        if received.is_empty() {
            return;
        }
        for one in received {
            queue.change_visibility(&one.handle, Duration::ZERO).await.unwrap();
        }
    }
}

fn bodies(bed: &TestBed, queue: &str) -> Vec<String> {
    bed.queue(queue).messages().into_iter().map(|message| message.body).collect()
}

#[tokio::test(start_paused = true)]
async fn g11_what_sqs_moves_after_it_was_put_back_is_no_copy_of_its_former_failure() {
    let (bed, book) = bed();
    (0..12).for_each(|n| drop(bed.send("jobs", format!(r#"{{"id":"{n}","first":["fail_for_good"]}}"#))));
    work(&bed, &book, &[]).await;
    sleep(Duration::from_secs(5)).await;
    let letters = letters(&bed, &[]).await;
    let slowly = Redrive { rate: Rate::per_second(0.5), ..all() };
    let ((redriven, _), ()) = tokio::join!(redrive(&letters, &slowly), async {
        sleep(Duration::from_millis(500)).await;
        receives_are_used_up(&bed, "jobs").await;
    });
    assert_eq!((redriven.done, redriven.others), (counts(&[("runs again", 12)]), 1));
    assert_eq!(bodies(&bed, "jobs-dlq"), [r#"{"id":"0","first":["fail_for_good"]}"#], "it is here again");
    let moved = look(&letters).await.remove(0);
    assert_eq!((moved.code(), moved.was_moved(), moved.failure_id()), ("moved_by_sqs", true, None));
    assert_eq!((moved.says(), moved.at(), moved.note()), (None, moved.message.sent_at, None));
    assert_eq!(moved.pk, Some(Pk("jobs#0".into())), "which its note gives");
    redrive(&letters, &all()).await;
    work(&bed, &book, &[]).await;
    assert!((0..12).all(|n| status(&bed, &n.to_string()) == Status::Done && book.runs(&n.to_string()).len() == 2));
    assert!(bed.queue("jobs-dlq").is_empty());
}

#[tokio::test(start_paused = true)]
async fn t3_letters_of_other_payloads_under_one_key_are_not_taken_for_copies() {
    let (bed, book) = bed();
    bed.send("jobs", HOPELESS);
    work(&bed, &book, &[]).await;
    let dead = bed.queue("jobs-dlq");
    let bare = [r#"{"id":"a","amount":1}"#, r#"{"id":"a","amount":2}"#, HOPELESS];
    bare.iter().for_each(|text| drop(dead.put(body(text)).unwrap()));
    sleep(Duration::from_secs(5)).await;
    let letters = letters(&bed, &[]).await;
    let groups = groups_of(&look(&letters).await);
    let told: Vec<_> = groups.iter().map(|group| (group.code.as_str(), group.messages, group.failures)).collect();
    assert_eq!(told, [("hopeless", 2, 1), ("unexplained", 2, 2)], "the third is a copy, without its reason");
    let (redriven, fates) = redrive(&letters, &all()).await;
    assert_eq!(redriven.done, counts(&[("runs again", 3), ("was a copy", 1)]));
    assert!(bare[..2].iter().all(|text| fates[*text] == Fate::RunsAgain), "{fates:?}");
    let back = bodies(&bed, "jobs");
    assert!(bare.iter().all(|text| back.contains(&(*text).to_owned())), "{back:?}");
}

async fn dead_ones(bed: &TestBed, book: &Book, number: usize) {
    (0..number).for_each(|n| drop(bed.send("jobs", format!(r#"{{"id":"{n}","first":["fail_for_good"]}}"#))));
    work(bed, book, &[]).await;
    sleep(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn work_is_forced_once_however_often_that_is_done_again() {
    for broken_off in ["delete", "send", "amend"] {
        let (bed, book) = bed();
        bed.send("jobs", HOPELESS);
        work(&bed, &book, &[]).await;
        sleep(Duration::from_secs(10)).await;
        bed.send("jobs", r#"{"id":"a"}"#);
        work(&bed, &book, &[]).await;
        let letters = letters(&bed, &[]).await;
        let force = Redrive { force_rerun_by: Some("ann@laptop".into()), ..all() };
        let faults = match broken_off {
            "amend" => bed.guard_faults.clone(),
            "send" => bed.queue_faults("jobs"),
            _ => bed.queue_faults("jobs-dlq"),
        };
        match broken_off {
            // Twice: the first is asked again at once.
            "amend" => (0..2).for_each(|_| faults.next("amend", Fault::LoseReply)),
            operation => faults.always(operation, Fault::Fail(Failure::NoAnswer)),
        }
        let (redriven, _) = redrive(&letters, &force).await;
        assert_eq!(redriven.done, counts(&[]), "{broken_off}");
        faults.clear();
        work(&bed, &book, &[]).await;
        for _ in 0..2 {
            redrive(&letters, &force).await;
            work(&bed, &book, &[]).await;
        }
        assert_eq!(book.completed()["a"], 3, "{broken_off}: the failure, the mended one, and one that was forced");
        assert!(bed.queue("jobs-dlq").is_empty() && bed.queue("jobs").is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn of_several_letters_of_forced_work_one_goes_back_and_a_record_that_changed_ends_no_pass() {
    let (bed, book) = bed();
    bed.send("jobs", HOPELESS);
    work(&bed, &book, &[]).await;
    sleep(Duration::from_secs(10)).await;
    bed.send("jobs", HOPELESS);
    work(&bed, &book, &[]).await;
    let dead = bed.queue("jobs-dlq");
    // The same work in a letter that tells of no failure, and others.
    dead.put(body(HOPELESS));
    ["b", "c"].iter().for_each(|id| drop(bed.send("jobs", format!(r#"{{"id":"{id}","first":["fail_for_good"]}}"#))));
    work(&bed, &book, &[]).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!((status(&bed, "a"), dead.len()), (Status::Done, 4));
    let letters = letters(&bed, &[]).await;
    let force = Redrive { force_rerun_by: Some("ann@laptop".into()), ..all() };
    let (redriven, _) = redrive(&letters, &force).await;
    assert_eq!(redriven.done, counts(&[("is forced to run again", 1), ("runs again", 2)]));
    assert_eq!(redriven.stay, counts(&[("another of its work is forced", 1)]));
    work(&bed, &book, &[]).await;
    let (redriven, _) = redrive(&letters, &force).await;
    assert_eq!(redriven.done, counts(&[("was done", 1)]), "forced since it is here");
    assert_eq!(book.completed()["a"], 3);
}
