//! What the contract suite cannot show on every adapter, for it takes hours, or is the memory queue's own.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, advance};

use super::*;
use crate::{message::Attribute, queue::BATCH};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

fn queue(name: &str) -> Arc<MemoryQueue> {
    MemoryBroker::default().create(name, MemoryQueueSettings::default())
}

fn body(body: &str) -> Outgoing {
    Outgoing { body: body.to_owned(), ..Outgoing::default() }
}

fn in_group(group: &str, text: &str) -> Outgoing {
    Outgoing { group: Some(group.to_owned()), ..body(text) }
}

fn ask(max: usize, visibility: Duration) -> Receive {
    Receive { max, wait: Duration::ZERO, visibility, attempt_id: None }
}

async fn take(queue: &MemoryQueue, max: usize, visibility: Duration) -> Vec<Received> {
    queue.receive(&ask(max, visibility)).await.unwrap()
}

async fn one(queue: &MemoryQueue, visibility: Duration) -> Received {
    take(queue, 1, visibility).await.pop().expect("a message")
}

fn bodies(received: &[Received]) -> Vec<&str> {
    received.iter().map(|received| received.message.body.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn l7_no_change_hides_a_message_beyond_twelve_hours_after_its_receive() {
    let queue = queue("q");
    queue.put(body("x"));
    let received = one(&queue, HOUR).await;
    advance(HOUR / 2).await;
    queue.change_visibility(&received.handle, 11 * HOUR + HOUR / 2).await.unwrap();
    advance(HOUR).await;
    let refused = queue.change_visibility(&received.handle, 11 * HOUR).await;
    assert!(matches!(refused, Err(QueueError::TwelveHours)), "{refused:?}");
    advance(10 * HOUR).await;
    assert_eq!(queue.in_flight(), 1, "the refusal has left the timeout as it was");
    advance(HOUR / 2).await;
    assert_eq!(one(&queue, HOUR).await.message.receive_count, 2);
}

#[tokio::test(start_paused = true)]
async fn t1_on_a_standard_queue_the_latest_handle_deletes_even_after_its_timeout() {
    let queue = queue("q");
    queue.put(body("x"));
    let received = one(&queue, MINUTE).await;
    advance(2 * MINUTE).await;
    queue.delete(&received.handle).await.unwrap();
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn l6_a_late_change_on_a_standard_queue_never_hides_the_message_whatever_it_answers() {
    let broker = MemoryBroker::default();
    for late_change in [LateChange::Refused, LateChange::Ignored] {
        let queue = broker.create("q", MemoryQueueSettings { late_change, ..MemoryQueueSettings::default() });
        queue.put(body("x"));
        let received = one(&queue, MINUTE).await;
        advance(MINUTE).await;
        let answer = queue.change_visibility(&received.handle, MINUTE).await;
        assert_eq!(answer.is_ok(), late_change == LateChange::Ignored, "{answer:?}");
        assert_eq!(queue.visible(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn t1_a_fifo_queue_refuses_stale_and_late_handles() {
    let queue = queue("q.fifo");
    queue.put(in_group("g", "x"));
    let first = one(&queue, MINUTE).await;
    advance(MINUTE).await;
    let late = [queue.delete(&first.handle).await, queue.change_visibility(&first.handle, MINUTE).await];
    let latest = one(&queue, MINUTE).await;
    let stale = [queue.delete(&first.handle).await, queue.change_visibility(&first.handle, MINUTE).await];
    for refused in late.into_iter().chain(stale) {
        assert!(matches!(refused, Err(QueueError::HandleLost)), "{refused:?}");
    }
    queue.change_visibility(&latest.handle, HOUR).await.unwrap();
    advance(2 * MINUTE).await;
    queue.delete(&latest.handle).await.expect("a delete inside the extended timeout");
    queue.delete(&first.handle).await.expect("deleting what is deleted");
}

#[tokio::test(start_paused = true)]
async fn t5_a_receive_takes_one_fifo_group_before_it_goes_on_to_the_next() {
    let queue = queue("q.fifo");
    for (group, text) in [("a", "a1"), ("b", "b1"), ("a", "a2"), ("c", "c1"), ("b", "b2"), ("a", "a3")] {
        queue.put(in_group(group, text));
    }
    assert_eq!(bodies(&take(&queue, 2, MINUTE).await), ["a1", "a2"]);
    assert_eq!(bodies(&take(&queue, 2, MINUTE).await), ["b1", "b2"]);
    assert_eq!(bodies(&take(&queue, BATCH, MINUTE).await), ["c1"]);
}

#[tokio::test(start_paused = true)]
async fn t5_a_hidden_message_blocks_what_is_behind_it_and_not_what_is_before_it() {
    let queue = queue("q.fifo");
    for text in ["1", "2", "3"] {
        queue.put(in_group("g", text));
    }
    let received = take(&queue, BATCH, MINUTE).await;
    queue.change_visibility(&received[1].handle, HOUR).await.unwrap();
    advance(MINUTE).await;
    assert_eq!(bodies(&take(&queue, BATCH, MINUTE).await), ["1"]);
    advance(HOUR).await;
    assert_eq!(bodies(&take(&queue, BATCH, MINUTE).await), ["1", "2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn t5_deleting_the_last_message_in_flight_wakes_a_poll_for_the_rest_of_the_group() {
    let queue = queue("q.fifo");
    queue.put(in_group("g", "1"));
    queue.put(in_group("g", "2"));
    let head = one(&queue, HOUR).await;
    let poll = Receive { wait: Duration::from_secs(20), ..ask(1, MINUTE) };
    let begun = Instant::now();
    let (received, deleted) = tokio::join!(queue.receive(&poll), queue.delete(&head.handle));
    deleted.unwrap();
    assert_eq!(bodies(&received.unwrap()), ["2"]);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_deduplication_id_holds_for_five_minutes_across_groups_and_after_the_delete() {
    let queue = queue("q.fifo");
    let original = queue.put(in_group("a", "same"));
    let received = one(&queue, MINUTE).await;
    queue.delete(&received.handle).await.unwrap();
    advance(5 * MINUTE - Duration::from_millis(1)).await;
    assert_eq!(queue.put(in_group("b", "same")), original, "a duplicate is accepted, and told by its original's id");
    assert!(queue.is_empty());
    advance(Duration::from_millis(1)).await;
    assert_ne!(queue.put(in_group("a", "same")), original);
    assert_eq!(queue.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deduplication_id_holds_inside_its_group_where_the_scope_is_the_group() {
    let settings = MemoryQueueSettings {
        deduplication_scope: DeduplicationScope::MessageGroup,
        content_based_deduplication: false,
        ..MemoryQueueSettings::default()
    };
    let queue = MemoryBroker::default().create("q.fifo", settings);
    let same = |group| Outgoing { deduplication_id: Some("same".to_owned()), ..in_group(group, "x") };
    let original = queue.put(same("a"));
    assert_eq!(queue.put(same("a")), original);
    assert_ne!(queue.put(same("b")), original);
    assert_eq!(queue.len(), 2);
    let without_id = queue.send(&in_group("a", "y")).await;
    assert!(matches!(without_id, Err(QueueError::Refused(_))), "{without_id:?}");
}

#[tokio::test(start_paused = true)]
async fn r4_the_same_attempt_brings_the_same_messages_and_starts_their_timeouts_again() {
    let queue = queue("q.fifo");
    queue.put(in_group("g", "1"));
    queue.put(in_group("g", "2"));
    let attempt = Receive { attempt_id: Some("a".to_owned()), ..ask(BATCH, MINUTE) };
    let first = queue.receive(&attempt).await.unwrap();
    advance(MINUTE / 2).await;
    let again = queue.receive(&attempt).await.unwrap();
    let told =
        |received: &[Received]| -> Vec<_> { received.iter().map(|r| (r.message.clone(), r.handle.clone())).collect() };
    assert_eq!(told(&again), told(&first));
    assert_eq!(again[0].message.receive_count, 1);
    assert!(take(&queue, BATCH, MINUTE).await.is_empty(), "for anybody else the group is blocked");
    advance(MINUTE / 2).await;
    assert_eq!(queue.in_flight(), 2, "the timeouts count from the repeated receive");
}

#[tokio::test(start_paused = true)]
async fn r4_an_attempt_is_not_repeated_once_its_messages_have_changed_or_five_minutes_have_passed() {
    let attempt = Receive { attempt_id: Some("a".to_owned()), ..ask(BATCH, HOUR) };
    for change in ["deleted", "changed", "old"] {
        let queue = queue("q.fifo");
        queue.put(in_group("g", "1"));
        queue.put(in_group("g", "2"));
        let received = queue.receive(&attempt).await.unwrap();
        match change {
            "deleted" => queue.delete(&received[0].handle).await.unwrap(),
            "changed" => queue.change_visibility(&received[1].handle, MINUTE).await.unwrap(),
            _ => advance(5 * MINUTE).await,
        }
        let again = queue.receive(&attempt).await.unwrap();
        assert!(again.is_empty(), "{change}: {:?}", bodies(&again));
    }
}

#[tokio::test(start_paused = true)]
async fn r4_an_attempt_whose_timeout_has_ended_is_a_receive_like_any_other() {
    let queue = queue("q.fifo");
    queue.put(in_group("g", "1"));
    let attempt = Receive { attempt_id: Some("a".to_owned()), ..ask(BATCH, MINUTE) };
    queue.receive(&attempt).await.unwrap();
    advance(MINUTE).await;
    assert_eq!(queue.receive(&attempt).await.unwrap()[0].message.receive_count, 2);
}

fn with_dead_letters(suffix: &str) -> (MemoryBroker, Arc<MemoryQueue>, Arc<MemoryQueue>) {
    let broker = MemoryBroker::default();
    let dead = broker.create(&format!("dead{suffix}"), MemoryQueueSettings::default());
    let redrive = Some((format!("dead{suffix}"), 1));
    let source = broker.create(&format!("q{suffix}"), MemoryQueueSettings { redrive, ..Default::default() });
    (broker, source, dead)
}

#[tokio::test(start_paused = true)]
async fn t6_a_moved_message_goes_on_counting_and_keeps_its_sent_time_on_a_standard_queue() {
    let (_, source, dead) = with_dead_letters("");
    let id = source.put(body("x")).unwrap();
    let sent = one(&source, MINUTE).await.message;
    advance(MINUTE).await;
    assert_eq!((source.len(), dead.len()), (1, 0), "nothing is moved before the next receive");
    assert!(take(&source, 1, MINUTE).await.is_empty());
    assert_eq!((source.len(), dead.len()), (0, 1));
    let moved = one(&dead, MINUTE).await.message;
    assert_eq!((moved.id, moved.receive_count, moved.sent_at), (id, 2, sent.sent_at));
}

#[tokio::test(start_paused = true)]
async fn t6_a_moved_fifo_message_frees_its_group_and_is_enqueued_anew() {
    let (broker, source, dead) = with_dead_letters(".fifo");
    let id = source.put(in_group("g", "1")).unwrap();
    source.put(in_group("g", "2"));
    one(&source, MINUTE).await;
    advance(MINUTE).await;
    assert_eq!(bodies(&take(&source, BATCH, MINUTE).await), ["2"]);
    let moved = one(&dead, MINUTE).await.message;
    assert_eq!(moved.group.as_deref(), Some("g"));
    assert_eq!(moved.deduplication_id.as_deref(), Some(id.as_str()));
    assert_eq!(moved.sent_at, Some(broker.clock().wall()));
}

#[tokio::test(start_paused = true)]
async fn t6_without_its_dead_letter_queue_a_message_is_delivered_on() {
    let (broker, source, _) = with_dead_letters("");
    broker.delete_queue("dead");
    source.put(body("x"));
    one(&source, MINUTE).await;
    advance(MINUTE).await;
    assert_eq!(one(&source, MINUTE).await.message.receive_count, 2);
}

#[tokio::test(start_paused = true)]
async fn retention_ends_messages_in_flight_too_and_counts_on_in_a_standard_dead_letter_queue() {
    let (_, source, dead) = with_dead_letters("");
    source.put(body("moved"));
    one(&source, MINUTE).await;
    advance(24 * HOUR).await;
    source.put(body("in flight"));
    let received = one(&source, 12 * HOUR).await;
    assert_eq!((received.message.body.as_str(), dead.len()), ("in flight", 1));
    advance(3 * 24 * HOUR).await;
    assert!(dead.is_empty(), "four days after it was sent");
    advance(24 * HOUR).await;
    assert!(source.is_empty());
    source.delete(&received.handle).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn retention_of_a_fifo_head_in_flight_frees_its_group_for_a_parked_poll() {
    let settings = MemoryQueueSettings { retention: MINUTE, ..Default::default() };
    let queue = MemoryBroker::default().create("q.fifo", settings);
    queue.put(in_group("g", "1"));
    one(&queue, HOUR).await;
    advance(50 * Duration::from_secs(1)).await;
    queue.put(in_group("g", "2"));
    let begun = Instant::now();
    let received = queue.receive(&Receive { wait: Duration::from_secs(20), ..ask(1, MINUTE) }).await.unwrap();
    assert_eq!(bodies(&received), ["2"]);
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn what_sqs_refuses_to_send_is_refused() {
    let attributes = |count| (0..count).map(|i| (format!("a{i}"), Attribute::text("x"))).collect();
    let no_value = [("a".to_owned(), Attribute::text(""))].into();
    let delay = |seconds| Some(Duration::from_secs(seconds));
    let wrong = [
        body(""),
        body("\u{1}"),
        body("\u{ffff}"),
        body(&"x".repeat(crate::queue::LARGEST_MESSAGE + 1)),
        Outgoing { attributes: attributes(11), ..body("x") },
        Outgoing { attributes: no_value, ..body("x") },
        Outgoing { delay: delay(901), ..body("x") },
        Outgoing { delay: Some(Duration::from_millis(1500)), ..body("x") },
        Outgoing { deduplication_id: Some("d".to_owned()), ..body("x") },
    ];
    let wrong_on_fifo = [body("x"), Outgoing { delay: delay(1), ..in_group("g", "x") }];
    let (standard, fifo) = (queue("q"), queue("q.fifo"));
    let settings = MemoryQueueSettings { largest_message: 2, ..MemoryQueueSettings::default() };
    let (small, too_large) = (MemoryBroker::default().create("small", settings), body("xyz"));
    small.send(&body("xy")).await.unwrap();
    let both = wrong.iter().map(|m| (&standard, m)).chain(wrong_on_fifo.iter().map(|m| (&fifo, m)));
    let both = both.chain([(&small, &too_large)]);
    for (queue, message) in both {
        let refused = queue.send(message).await;
        let shown = (&message.group, message.delay, message.body.len());
        assert!(matches!(refused, Err(QueueError::Refused(_))), "{shown:?}: {refused:?}");
    }
    let right = Outgoing { attributes: attributes(10), delay: delay(900), group: Some("g".into()), ..body("x") };
    standard.send(&right).await.unwrap();
    assert_eq!((standard.delayed(), fifo.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_sqs_refuses_to_receive_is_refused() {
    let queue = queue("q");
    for wrong in [
        ask(0, MINUTE),
        ask(11, MINUTE),
        ask(1, 13 * HOUR),
        ask(1, Duration::from_millis(1500)),
        Receive { wait: Duration::from_secs(21), ..ask(1, MINUTE) },
    ] {
        let refused = queue.receive(&wrong).await;
        assert!(matches!(refused, Err(QueueError::Refused(_))), "{wrong:?}: {refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_parked_polls_share_what_arrives_and_a_third_waits_on() {
    let queue = queue("q");
    let poll = Receive { wait: Duration::from_secs(20), ..ask(1, MINUTE) };
    let arrive = async {
        advance(Duration::from_secs(5)).await;
        queue.put(body("1"));
        queue.put(body("2"));
    };
    let (first, second, third, ()) =
        tokio::join!(queue.receive(&poll), queue.receive(&poll), queue.receive(&poll), arrive);
    // Which of them is served is the runtime's choice.
    let mut came = [first, second, third].map(|received| received.unwrap().len());
    came.sort_unstable();
    assert_eq!(came, [0, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_queue_is_missing_also_for_a_parked_poll_and_its_calls_are_counted() {
    let broker = MemoryBroker::default();
    let queue = broker.create("q", MemoryQueueSettings::default());
    let poll = Receive { wait: Duration::from_secs(20), ..ask(1, MINUTE) };
    let delete = async { broker.delete_queue("q") };
    let (received, ()) = tokio::join!(queue.receive(&poll), delete);
    let later = queue.receive(&poll).await;
    for answer in [received, later] {
        assert!(matches!(answer, Err(QueueError::Missing)), "{answer:?}");
    }
    assert_eq!(queue.calls()["receive"], Calls { calls: 2, entries: 0 });
}

#[tokio::test(start_paused = true)]
async fn calls_and_their_entries_are_counted_and_a_tests_own_doings_are_not() {
    let queue = queue("q");
    queue.put(body("0"));
    for text in ["1", "2"] {
        queue.send(&body(text)).await.unwrap();
    }
    let received = take(&queue, BATCH, MINUTE).await;
    queue.delete(&received[0].handle).await.unwrap();
    assert_eq!((queue.messages().len(), queue.in_flight()), (2, 2));
    let calls = queue.calls();
    assert_eq!(calls["send"], Calls { calls: 2, entries: 2 });
    assert_eq!(calls["receive"], Calls { calls: 1, entries: 3 });
    assert_eq!(calls["delete"], Calls { calls: 1, entries: 1 });
}

#[tokio::test(start_paused = true)]
async fn a_redelivered_message_has_two_owners_and_only_the_later_can_delete_it() {
    let queue = queue("q");
    let id = queue.put(body("x")).unwrap();
    assert!(!queue.redeliver(&id), "it is not in flight");
    let first = one(&queue, HOUR).await;
    assert!(queue.redeliver(&id));
    let second = one(&queue, HOUR).await;
    assert_eq!(second.message.receive_count, 2);
    queue.delete(&first.handle).await.unwrap();
    assert_eq!(queue.in_flight(), 1);
    queue.delete(&second.handle).await.unwrap();
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn empty_receives_come_back_after_their_wait_and_leave_the_backlog() {
    let queue = queue("q");
    queue.put(body("x"));
    queue.empty_receives(1);
    let begun = Instant::now();
    let poll = Receive { wait: Duration::from_secs(10), ..ask(1, MINUTE) };
    assert!(queue.receive(&poll).await.unwrap().is_empty());
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
    assert_eq!(queue.receive(&poll).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_queue_opens_by_name_url_and_arn() {
    let broker = MemoryBroker::default();
    broker.create("q", MemoryQueueSettings::default());
    let arn = QueueAddress::Arn("arn:aws:sqs:us-east-1:000000000000:q".to_owned());
    let url = QueueAddress::Url("https://sqs.us-east-1.amazonaws.com/000000000000/q".to_owned());
    for address in [QueueAddress::Name("q".to_owned()), url, arn] {
        broker.open(&address).await.unwrap();
    }
    let missing = broker.open(&QueueAddress::Name("p".to_owned())).await;
    assert!(matches!(missing, Err(QueueError::Missing)), "{missing:?}");
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_another_queue_is_refused() {
    let broker = MemoryBroker::default();
    let [p, q] = ["p", "q"].map(|name| broker.create(name, MemoryQueueSettings::default()));
    p.put(body("x"));
    let received = one(&p, MINUTE).await;
    let refused = q.delete(&received.handle).await;
    assert!(matches!(refused, Err(QueueError::HandleLost)), "{refused:?}");
}
