//! Dead-letter queues that several queues share, and tasks of SQS, which do not look at what they move.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_letter_that_sqs_moved_from_another_queue_stays() {
    let (bed, _) = bed();
    bed.broker.create(
        "others",
        MemoryQueueSettings { redrive: Some(("jobs-dlq".to_owned(), 1)), ..MemoryQueueSettings::default() },
    );
    use leasehold::queue::{Queue, Receive};
    let others = bed.queue("others");
    others.put(body(r#"{"id":"theirs"}"#)).unwrap();
    let ask = Receive { max: 1, wait: Duration::ZERO, visibility: Duration::from_secs(1), attempt_id: None };
    others.receive(&ask).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    others.receive(&ask).await.unwrap();
    moved_by_sqs(&bed, body(r#"{"id":"ours"}"#)).await;
    let letters = letters(&bed, &[]).await;
    let (redriven, fates) = redrive(&letters, &all()).await;
    assert_eq!(redriven.stay, counts(&[("came from another queue", 1)]));
    assert_eq!(fates[r#"{"id":"ours"}"#], Fate::RunsAgain);
    assert_eq!(bed.queue("jobs-dlq").visible(), 1);
    let mut purged = Vec::new();
    letters.purge(&all(), &CancellationToken::new(), |put| purged.push(put.fate)).await.unwrap();
    assert_eq!((purged, bed.queue("jobs-dlq").visible()), (vec![Fate::IsOfOthers], 1), "nor is it purged");
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_another_queues_worker_stays_also_where_that_queue_is_not_configured() {
    let (bed, book) = bed();
    let settings = MemoryQueueSettings { redrive: Some(("jobs-dlq".to_owned(), 5)), ..MemoryQueueSettings::default() };
    bed.add("mails", 5);
    bed.broker.create("mails", settings);
    bed.send("mails", r#"{"id":"m","first":["fail_for_good","fail_for_good"]}"#);
    let theirs = [("LEASEHOLD_QUEUES", "mails")];
    bed.worker(&[&VARS[1..], &theirs].concat()).queue("mails", book.clone()).run(bed.until_idle()).await.unwrap();
    // What was put back and is moved by SQS has their note, and tells by SQS's word.
    let of_mails = bed.ops(&[&VARS[1..], &theirs].concat()).unwrap().dead_letters("mails").await.unwrap();
    sleep(Duration::from_secs(5)).await;
    redrive(&of_mails, &all()).await;
    receives_are_used_up(&bed, "mails").await;
    bed.send("mails", r#"{"id":"n","first":["fail_for_good"]}"#);
    bed.worker(&[&VARS[1..], &theirs].concat()).queue("mails", book.clone()).run(bed.until_idle()).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    let letters = letters(&bed, &[]).await;
    let (redriven, _) = redrive(&letters, &all()).await;
    assert_eq!((redriven.done, redriven.stay), (counts(&[]), counts(&[("came from another queue", 2)])));
    let known_by_another_name =
        [("LEASEHOLD_QUEUES", "post"), ("LEASEHOLD_POST_NAME", "mails"), ("LEASEHOLD_KEY", "/id")];
    let of_post = bed.ops(&known_by_another_name).unwrap().dead_letters("post").await.unwrap();
    let (redriven, _) = redrive(&of_post, &all()).await;
    assert_eq!(redriven.done.values().sum::<u64>(), 2, "SQS tells of one, and the queue's name in SQS of the other");
}

#[tokio::test(start_paused = true)]
async fn a_task_does_not_move_letters_of_other_queues_that_share_the_dead_letter_queue() {
    let (bed, book) = bed();
    dead_ones(&bed, &book, 1).await;
    let shares = MemoryQueueSettings { redrive: Some(("jobs-dlq".to_owned(), 5)), ..MemoryQueueSettings::default() };
    let both = [("LEASEHOLD_QUEUES", "jobs,mails")];
    let names_it = [("LEASEHOLD_QUEUES", "jobs,mails"), ("LEASEHOLD_MAILS_DEAD_LETTER", "jobs-dlq")];
    assert_eq!(letters(&bed, &both).await.why_one_by_one(None).await, None);
    let why = letters(&bed, &names_it).await.why_one_by_one(None).await.unwrap();
    assert!(why.contains("the dead letters of mails"), "{why}");
    bed.broker.create("mails", shares);
    for vars in [&both[..], &[]] {
        let why = letters(&bed, vars).await.why_one_by_one(None).await.unwrap();
        assert!(why.contains("the dead letters of mails"), "{why}");
    }
    bed.broker.delete_queue("mails");
    let letters = letters(&bed, &[]).await;
    bed.queue_faults("jobs-dlq").always("sources", Fault::Fail(Failure::Denied));
    let why = letters.why_one_by_one(None).await.unwrap();
    assert!(why.contains("cannot be looked up: access denied"), "{why}");
    bed.queue_faults("jobs-dlq").clear();
    let why = letters.why_one_by_one(Rate::per_second(0.5)).await.unwrap();
    assert!(why.contains("one in a second at the least"), "{why}");
    assert_eq!(letters.why_one_by_one(Rate::per_second(1.0)).await, None);
}

#[tokio::test(start_paused = true)]
async fn sqs_itself_puts_all_back_and_the_guard_makes_each_once() {
    let (bed, book) = bed();
    (0..30).for_each(|n| drop(bed.send("jobs", format!(r#"{{"id":"{n}","first":["fail_for_good"]}}"#))));
    work(&bed, &book, &[]).await;
    let letters = letters(&bed, &[]).await;
    let rate = Rate::per_second(10.0);
    assert_eq!(letters.why_one_by_one(rate).await, None);
    let mut told = Vec::new();
    let moving = letters.redrive_all(rate, &CancellationToken::new(), |task| told.push(task.moved)).await.unwrap();
    let Moving::Task(task) = moving else { panic!("{moving:?}") };
    assert_eq!((task.status, task.moved, told), (MoveStatus::Completed, 30, vec![0, 10, 20, 30]));
    work(&bed, &book, &[]).await;
    assert!((0..30).all(|n| status(&bed, &n.to_string()) == Status::Done));
    letters.redrive_all(None, &CancellationToken::new(), |_| {}).await.unwrap();
    let again = letters.redrive_all(None, &CancellationToken::new(), |_| {}).await.unwrap();
    assert!(matches!(again, Moving::Task(task) if task.moved == 0), "another task, not the one before");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_runs_is_joined_and_stopped_as_often_as_it_takes_and_one_to_another_queue_is_left() {
    let (bed, book) = bed();
    dead_ones(&bed, &book, 30).await;
    let letters = letters(&bed, &[]).await;
    let arns = ["jobs-dlq", "jobs"].map(|name| format!("arn:aws:sqs:us-east-1:000000000000:{name}"));
    let [from, to] = arns.clone();
    let task = Move { from: from.clone(), to, per_second: Some(10) };
    bed.broker.start_move(&task).await.unwrap();
    bed.queue_faults("jobs-dlq").next("cancel_move", Fault::Fail(Failure::Unavailable));
    bed.queue_faults("jobs-dlq").decide_with(|call| {
        (call.operation == "latest_move" && call.number == 2).then_some(Fault::Fail(Failure::NoAnswer))
    });
    let stop = CancellationToken::new();
    let tell = |task: &MoveTask| {
        if task.moved >= 10 {
            stop.cancel();
        }
    };
    let moving = letters.redrive_all(None, &stop, tell).await.unwrap();
    let Moving::Task(task) = moving else { panic!("{moving:?}") };
    assert_eq!((task.status, task.moved, task.of), (MoveStatus::Cancelled, 30 - 10, Some(30)));
    assert_eq!((bed.queue("jobs").len(), bed.queue("jobs-dlq").len()), (20, 10));

    bed.add("elsewhere", 5);
    let elsewhere = format!("{from}-elsewhere").replace("jobs-dlq-", "");
    bed.broker.start_move(&Move { from, to: elsewhere, per_second: Some(1) }).await.unwrap();
    let refused = letters.redrive_all(None, &CancellationToken::new(), |_| {}).await.unwrap_err();
    assert!(format!("{refused:?}").contains("is moving its messages to"), "{refused:?}");
    assert_eq!(bed.queue("jobs-dlq").len(), 10, "and nothing is moved by it");
}
