//! The behaviours of FIFO queues. As everywhere in the suite, each is a function of a fixture.
//!
//! What takes the whole five minutes for which SQS remembers ids is tested beside the queue in memory.

use std::{sync::Arc, time::Duration};

use leasehold::queue::{DeduplicationScope, Outgoing, Queue, QueueError, Receive, Received};
use tokio::time::Instant;

use super::{LONG, POLL, QueueFixture, SHORT, bodies, in_group, next, nothing_for, poll};

async fn fifo_with(fixture: &dyn QueueFixture, messages: &[(&str, &str)]) -> Arc<dyn Queue> {
    let queue = fixture.fifo().await;
    for (group, body) in messages {
        queue.send(&in_group(group, body)).await.expect("a send");
    }
    queue
}

pub(crate) async fn t5_a_fifo_group_comes_in_order(fixture: &dyn QueueFixture) {
    let queue = fifo_with(fixture, &[("g", "1"), ("g", "2"), ("g", "3")]).await;
    let mut came = Vec::new();
    let mut receives = 0;
    while came.len() < 3 && receives < 3 {
        let received = poll(&*queue, 10, LONG).await;
        receives += 1;
        for delivery in received {
            queue.delete(&delivery.handle).await.expect("a delete");
            came.push(delivery.message.body);
        }
    }
    assert_eq!(came, ["1", "2", "3"]);
    assert_eq!(receives, if fixture.differences().one_message_per_group { 3 } else { 1 });
}

pub(crate) async fn t5_a_fifo_group_is_blocked_while_a_message_of_it_is_in_flight_and_others_are_not(
    fixture: &dyn QueueFixture,
) {
    let queue = fifo_with(fixture, &[("a", "a1"), ("a", "a2"), ("b", "b1")]).await;
    let head = next(&*queue, LONG).await;
    assert_eq!(head.message.body, "a1");
    assert_eq!(bodies(&poll(&*queue, 10, LONG).await), ["b1"]);
    nothing_for(&*queue, SHORT).await;
    queue.delete(&head.handle).await.expect("a delete");
    assert_eq!(next(&*queue, LONG).await.message.body, "a2");
}

pub(crate) async fn t5_a_given_back_head_comes_again_before_its_followers(fixture: &dyn QueueFixture) {
    let queue = fifo_with(fixture, &[("a", "a1"), ("a", "a2")]).await;
    let head = next(&*queue, LONG).await;
    let delay = Duration::from_secs(3);
    let begun = Instant::now();
    queue.change_visibility(&head.handle, delay).await.expect("a change");
    // The follower waits with its head.
    let again = next(&*queue, LONG).await;
    assert!(begun.elapsed() >= delay - SHORT, "{:?}", begun.elapsed());
    assert_eq!((again.message.body.as_str(), again.message.receive_count), ("a1", 2));
}

pub(crate) async fn t1_a_late_delete_on_fifo_is_refused(fixture: &dyn QueueFixture) {
    let queue = fifo_with(fixture, &[("a", "a1")]).await;
    let received = next(&*queue, LONG).await;
    queue.change_visibility(&received.handle, Duration::ZERO).await.expect("a change");
    let deleted = queue.delete(&received.handle).await;
    let refused = !fixture.differences().accepts_late_delete_on_fifo;
    assert_eq!(matches!(deleted, Err(QueueError::HandleLost)), refused, "{deleted:?}");
    if refused {
        assert_eq!(next(&*queue, LONG).await.message.body, "a1");
    }
}

pub(crate) async fn a_fifo_queue_drops_what_it_was_sent_before(fixture: &dyn QueueFixture) {
    let queue = fifo_with(fixture, &[("a", "same"), ("a", "same")]).await;
    let by_id = |text| Outgoing { deduplication_id: Some("id".to_owned()), ..in_group("b", text) };
    queue.send(&by_id("one")).await.expect("a send");
    queue.send(&by_id("other")).await.expect("a send of a duplicate");
    for expected in ["same", "one"] {
        let received = next(&*queue, LONG).await;
        assert_eq!(received.message.body, expected);
        queue.delete(&received.handle).await.expect("a delete");
    }
    nothing_for(&*queue, SHORT).await;
}

/// Receives until all these have come, or no receive brings any.
async fn drained(queue: &dyn Queue, many: usize) -> Vec<Received> {
    let mut came = Vec::new();
    while came.len() < many {
        let received = poll(queue, 10, LONG).await;
        if received.is_empty() {
            break;
        }
        for delivery in received {
            queue.delete(&delivery.handle).await.expect("a delete");
            came.push(delivery);
        }
    }
    came
}

pub(crate) async fn t5_several_groups_come_side_by_side_each_in_order(fixture: &dyn QueueFixture) {
    let sent = [("a", "a1"), ("b", "b1"), ("a", "a2"), ("c", "c1"), ("b", "b2"), ("a", "a3")];
    let queue = fifo_with(fixture, &sent).await;
    let first = poll(&*queue, 10, LONG).await;
    let many = if fixture.differences().one_message_per_group { 3 } else { sent.len() };
    assert_eq!(first.len(), many, "{:?}", bodies(&first));
    for delivery in &first {
        queue.delete(&delivery.handle).await.expect("a delete");
    }
    let rest = drained(&*queue, sent.len() - many).await;
    let came: Vec<&str> = bodies(&first).into_iter().chain(bodies(&rest)).collect();
    for group in ["a", "b", "c"] {
        let in_order = |texts: Vec<&str>| -> Vec<String> {
            texts.into_iter().filter(|text| text.starts_with(group)).map(str::to_owned).collect()
        };
        assert_eq!(in_order(came.clone()), in_order(sent.iter().map(|(_, text)| *text).collect()));
    }
}

pub(crate) async fn t5_a_follower_that_is_given_back_waits_for_its_head(fixture: &dyn QueueFixture) {
    let queue = fifo_with(fixture, &[("a", "a1"), ("a", "a2")]).await;
    let received = poll(&*queue, 10, LONG).await;
    let head = &received[0];
    assert_eq!(head.message.body, "a1");
    for follower in &received[1..] {
        queue.change_visibility(&follower.handle, Duration::ZERO).await.expect("a change");
    }
    if fixture.differences().hands_followers_out_beside_their_head {
        assert_eq!(bodies(&poll(&*queue, 10, LONG).await), ["a2"]);
        return;
    }
    nothing_for(&*queue, SHORT).await;
    queue.delete(&head.handle).await.expect("a delete");
    let follower = next(&*queue, LONG).await.message;
    assert_eq!((follower.body.as_str(), follower.receive_count as usize), ("a2", received.len()));
}

pub(crate) async fn t5_a_group_that_is_given_back_comes_again_in_order(fixture: &dyn QueueFixture) {
    let queue = fifo_with(fixture, &[("a", "a1"), ("a", "a2"), ("a", "a3")]).await;
    let received = poll(&*queue, 10, LONG).await;
    // The head first, as a worker that drains would not: SQS keeps the order by itself.
    for delivery in &received {
        queue.change_visibility(&delivery.handle, Duration::ZERO).await.expect("a change");
    }
    let came = drained(&*queue, 3).await;
    assert_eq!(bodies(&came), ["a1", "a2", "a3"]);
}

pub(crate) async fn t5_a_head_that_moves_to_the_dead_letter_queue_frees_its_group(fixture: &dyn QueueFixture) {
    let (queue, dead_letters) = fixture.fifo_with_dead_letters(1).await;
    for text in ["a1", "a2"] {
        queue.send(&in_group("a", text)).await.expect("a send");
    }
    let head = next(&*queue, LONG).await;
    assert_eq!(head.message.body, "a1");
    queue.change_visibility(&head.handle, Duration::ZERO).await.expect("a change");
    assert_eq!(next(&*queue, LONG).await.message.body, "a2");
    let dead = next(&*dead_letters, LONG).await.message;
    assert_eq!((dead.body.as_str(), dead.group.as_deref()), ("a1", Some("a")));
}

pub(crate) async fn l6_a_late_change_on_fifo_is_refused(fixture: &dyn QueueFixture) {
    let queue = fifo_with(fixture, &[("a", "a1")]).await;
    let received = next(&*queue, LONG).await;
    queue.change_visibility(&received.handle, Duration::ZERO).await.expect("a change");
    let changed = queue.change_visibility(&received.handle, LONG).await;
    let refused = !fixture.differences().takes_changes_with_old_handles_on_fifo;
    assert_eq!(matches!(changed, Err(QueueError::HandleLost)), refused, "{changed:?}");
    assert_eq!(next(&*queue, LONG).await.message.body, "a1");
}

pub(crate) async fn l6_an_old_handle_on_fifo_changes_nothing(fixture: &dyn QueueFixture) {
    let queue = fifo_with(fixture, &[("a", "a1")]).await;
    let first = next(&*queue, LONG).await;
    queue.change_visibility(&first.handle, Duration::ZERO).await.expect("a change");
    let second = next(&*queue, LONG).await;
    let changed = queue.change_visibility(&first.handle, Duration::ZERO).await;
    let refused = !fixture.differences().takes_changes_with_old_handles_on_fifo;
    assert_eq!(matches!(changed, Err(QueueError::HandleLost)), refused, "{changed:?}");
    if refused {
        nothing_for(&*queue, SHORT).await;
        queue.delete(&second.handle).await.expect("a delete");
    } else {
        assert_eq!(next(&*queue, LONG).await.message.receive_count, 3);
    }
}

fn with_id(id: &str, group: &str, text: &str) -> Outgoing {
    Outgoing { deduplication_id: Some(id.to_owned()), ..in_group(group, text) }
}

pub(crate) async fn a_fifo_queue_drops_duplicates_in_other_groups_too(fixture: &dyn QueueFixture) {
    let queue = fixture.fifo().await;
    for (group, text) in [("a", "a1"), ("b", "b1")] {
        queue.send(&with_id("same", group, text)).await.expect("a send");
    }
    assert_eq!(bodies(&drained(&*queue, 2).await), ["a1"]);
}

pub(crate) async fn a_fifo_queue_drops_duplicates_in_their_group_only_where_that_is_its_scope(
    fixture: &dyn QueueFixture,
) {
    let queue = fixture.fifo_by_group().await;
    for (group, text) in [("a", "a1"), ("a", "a2"), ("b", "b1")] {
        queue.send(&with_id("same", group, text)).await.expect("a send");
    }
    let came = drained(&*queue, 3).await;
    assert_eq!(bodies(&came), ["a1", "b1"]);
}

pub(crate) async fn a_fifo_queue_without_content_based_deduplication_wants_an_id(fixture: &dyn QueueFixture) {
    let queue = fixture.fifo_by_group().await;
    let refused = queue.send(&in_group("a", "a1")).await;
    assert!(matches!(refused, Err(QueueError::Refused(_))), "{refused:?}");
}

pub(crate) async fn r5_facts_tell_how_a_fifo_queue_deduplicates(fixture: &dyn QueueFixture) {
    let facts = fixture.fifo().await.facts().await.expect("facts");
    assert!(facts.fifo && facts.content_based_deduplication);
    assert_eq!(facts.deduplication_scope, DeduplicationScope::Queue);
    let facts = fixture.fifo_by_group().await.facts().await.expect("facts");
    assert!(facts.fifo && !facts.content_based_deduplication);
    assert_eq!(facts.deduplication_scope, DeduplicationScope::MessageGroup);
}

fn attempt(visibility: Duration) -> Receive {
    Receive { max: 10, wait: POLL, visibility, attempt_id: Some("attempt".to_owned()) }
}

pub(crate) async fn r4_the_same_attempt_brings_the_same_messages_and_is_not_counted_again(fixture: &dyn QueueFixture) {
    let queue = fifo_with(fixture, &[("a", "a1"), ("b", "b1")]).await;
    let short = 3 * SHORT;
    let told = |received: &[Received]| -> Vec<_> {
        received.iter().map(|r| (r.message.body.clone(), r.message.receive_count, r.handle.clone())).collect()
    };
    let first = queue.receive(&attempt(short)).await.expect("a receive");
    assert_eq!(first.len(), 2);
    let begun = Instant::now();
    let again = queue.receive(&attempt(LONG)).await.expect("a receive");
    if fixture.differences().ignores_attempt_ids {
        assert!(again.is_empty(), "received {:?}", bodies(&again));
        return;
    }
    assert_eq!(told(&again), told(&first));
    assert!(begun.elapsed() < short);
    // The timeouts count anew, from the repeated receive.
    nothing_for(&*queue, short + SHORT).await;
}

pub(crate) async fn r4_an_attempt_is_not_repeated_once_a_message_of_it_has_changed(fixture: &dyn QueueFixture) {
    let queue = fifo_with(fixture, &[("a", "a1"), ("b", "b1")]).await;
    let received = queue.receive(&attempt(LONG)).await.expect("a receive");
    assert_eq!(received.len(), 2);
    queue.delete(&received[0].handle).await.expect("a delete");
    let again = queue.receive(&attempt(LONG)).await.expect("a receive");
    assert!(again.is_empty(), "received {:?}", bodies(&again));
}
