//! What tools ask of a queue: how many messages there are, and to move all of them at once.

use std::{collections::BTreeMap, time::Duration};

use leasehold::{
    message::Attribute,
    queue::{Depth, Move, MoveStatus, Outgoing, QueueError},
};

use super::{LONG, QueueFixture, SHORT, body, next, nothing_for};

pub(crate) async fn depth_tells_what_is_visible_and_what_is_in_flight(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    for text in ["a", "b", "c"] {
        queue.send(&body(text)).await.expect("a send");
    }
    next(&*queue, LONG).await;
    let delayed = Outgoing { delay: Some(LONG), ..body("later") };
    queue.send(&delayed).await.expect("a send");
    let Depth { visible, in_flight, delayed, .. } = queue.depth().await.expect("a depth");
    assert_eq!((visible, in_flight, delayed), (2, 1, 1));
}

pub(crate) async fn what_sqs_moved_tells_from_where_and_what_was_sent_does_not(fixture: &dyn QueueFixture) {
    let (queue, dead_letters) = fixture.with_dead_letters(1).await;
    dead_letters.send(&body("sent")).await.expect("a send");
    assert_eq!(next(&*dead_letters, LONG).await.message.moved_from, None);
    queue.send(&body("moved")).await.expect("a send");
    let last = next(&*queue, LONG).await;
    queue.change_visibility(&last.handle, Duration::ZERO).await.expect("a change");
    nothing_for(&*queue, SHORT).await;
    let moved = next(&*dead_letters, LONG).await.message;
    let from = queue.facts().await.expect("facts").arn;
    assert_eq!(moved.moved_from, Some(from));
}

pub(crate) async fn a_move_takes_all_of_a_dead_letter_queue_to_where_it_is_told(fixture: &dyn QueueFixture) {
    let (queue, dead_letters) = fixture.with_dead_letters(5).await;
    let [from, to] = [&dead_letters, &queue].map(async |queue| queue.facts().await.expect("facts").arn);
    let (from, to) = (from.await, to.await);
    let broker = fixture.broker();
    assert_eq!(broker.latest_move(&from).await.expect("an answer"), None);
    let attributes: BTreeMap<_, _> = [("kept".to_owned(), Attribute::text("yes"))].into();
    for text in ["a", "b"] {
        let copy = Outgoing { attributes: attributes.clone(), ..body(text) };
        dead_letters.send(&copy).await.expect("a send");
    }
    let started = broker.start_move(&Move { from: from.clone(), to: to.clone(), per_second: None }).await;
    if fixture.differences().moves_nothing {
        assert!(matches!(started, Err(QueueError::Unsupported(_))), "{started:?}");
        return;
    }
    started.expect("a move");
    let mut moved = Vec::new();
    while moved.len() < 2 {
        let message = next(&*queue, LONG).await.message;
        assert_eq!(message.attributes, attributes);
        moved.push(message.body);
    }
    moved.sort_unstable();
    assert_eq!(moved, ["a", "b"]);
    let task = loop {
        let task = broker.latest_move(&from).await.expect("an answer").expect("a task");
        if task.status.is_over() {
            break task;
        }
        // A poll of a second: the suite waits by these alone.
        nothing_for(&*dead_letters, SHORT).await;
    };
    assert_eq!((task.status, task.moved, task.to), (MoveStatus::Completed, 2, Some(to)));
    assert_eq!(dead_letters.depth().await.expect("a depth").total(), 0);
}

pub(crate) async fn a_move_to_a_queue_that_is_not_there_is_refused(fixture: &dyn QueueFixture) {
    let (_, dead_letters) = fixture.with_dead_letters(5).await;
    let from = dead_letters.facts().await.expect("facts").arn;
    let to = format!("{from}-not-there");
    let refused = fixture.broker().start_move(&Move { from, to, per_second: Some(10) }).await;
    if fixture.differences().moves_nothing {
        assert!(matches!(refused, Err(QueueError::Unsupported(_))), "{refused:?}");
    } else {
        assert!(matches!(refused, Err(QueueError::Missing | QueueError::Refused(_))), "{refused:?}");
    }
}

pub(crate) async fn a_move_from_what_is_nobodys_dead_letter_queue_is_refused(fixture: &dyn QueueFixture) {
    let (queue, dead_letters) = fixture.with_dead_letters(5).await;
    let [from, to] = [&queue, &dead_letters].map(async |queue| queue.facts().await.expect("facts").arn);
    let (from, to) = (from.await, to.await);
    let refused = fixture.broker().start_move(&Move { from, to, per_second: None }).await;
    assert!(matches!(refused, Err(QueueError::Unsupported(_) | QueueError::Refused(_))), "{refused:?}");
}

pub(crate) async fn a_dead_letter_queue_tells_whose_it_is(fixture: &dyn QueueFixture) {
    let (queue, dead_letters) = fixture.with_dead_letters(5).await;
    let name = queue.facts().await.expect("facts").arn;
    let name = name.rsplit(':').next();
    let sources = dead_letters.sources().await.expect("an answer");
    if fixture.differences().tells_no_sources {
        assert_eq!(sources, Vec::<String>::new());
        return;
    }
    assert_eq!(sources.iter().map(|url| url.rsplit('/').next()).collect::<Vec<_>>(), [name]);
    assert_eq!(queue.sources().await.expect("an answer"), Vec::<String>::new());
}
