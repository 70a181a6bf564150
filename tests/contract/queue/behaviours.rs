//! The behaviours, each a function of a fixture, so that the same lines run on every adapter.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{
    message::{Attribute, AttributeValue, DEAD_LETTER_ATTRIBUTE, Note, ReceiptHandle},
    queue::{Outgoing, QueueAddress, QueueError, Receive, RedriveAllow},
};
use tokio::time::Instant;

use super::{LONG, POLL, QueueFixture, SHORT, SOON, binary, bodies, body, in_group, next, nothing_for, poll};
pub(crate) use super::{fifo::*, tools::*};

pub(crate) async fn attributes_and_body_come_back_as_they_were_sent(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    let number = Attribute { data_type: "Number.cents".to_owned(), value: AttributeValue::Text("1999".to_owned()) };
    let sent = Outgoing {
        attributes: [
            ("text".to_owned(), Attribute::text("grüße, 世界")),
            ("number".to_owned(), number),
            ("binary".to_owned(), binary(&[0, 159, 146, 150, 255])),
        ]
        .into(),
        ..body("{\"text\": \"naïve 🦀 \\u0000\",\n\t\"n\": 1.0}")
    };
    queue.send(&sent).await.expect("a send");
    let message = next(&*queue, LONG).await.message;
    assert_eq!(message.body, sent.body);
    assert_eq!(message.attributes, sent.attributes);
}

pub(crate) async fn attributes_of_every_kind_come_back(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    let typed = |data_type: &str, value| Attribute { data_type: data_type.to_owned(), value };
    let text = |data_type: &str, text: &str| typed(data_type, AttributeValue::Text(text.to_owned()));
    let longest = "n".repeat(fixture.differences().longest_attribute_name);
    let sent = Outgoing {
        attributes: [
            ("labelled", text("String.custom.label", "x")),
            ("amount", text("Number.int", "-1250")),
            ("ratio", text("Number", "0.5")),
            ("picture", typed("Binary.png", AttributeValue::Binary((0..=255).collect()))),
            ("one-byte", binary(&[0])),
            ("dots.in.a_name-9", Attribute::text("x")),
            ("case", Attribute::text("lower")),
            ("Case", Attribute::text("upper")),
            ("odd", Attribute::text(" \t\r\n\"<&>\\ \u{fffd}\u{10ffff}")),
            (&longest, Attribute::text("longest name")),
        ]
        .map(|(name, attribute)| (name.to_owned(), attribute))
        .into(),
        ..body("x")
    };
    queue.send(&sent).await.expect("a send");
    assert_eq!(next(&*queue, LONG).await.message.attributes, sent.attributes);
}

pub(crate) async fn attributes_that_sqs_does_not_take_are_refused(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    let refuses = async |name: &str, attribute: Attribute| {
        let sent = Outgoing { attributes: [(name.to_owned(), attribute)].into(), ..body("x") };
        match queue.send(&sent).await {
            Ok(()) => false,
            Err(QueueError::Refused(_)) => true,
            Err(error) => panic!("{name}: {error}"),
        }
    };
    let too_long = "n".repeat(fixture.differences().longest_attribute_name + 1);
    let mut taken = Vec::new();
    for (what, name, attribute) in [
        ("empty text", "a", Attribute::text("")),
        ("empty bytes", "a", binary(&[])),
        ("reserved name", "AWS.a", Attribute::text("x")),
        ("dot at the end", "a.", Attribute::text("x")),
        ("long name", &too_long, Attribute::text("x")),
        ("unknown type", "a", Attribute { data_type: "Text".to_owned(), ..Attribute::text("x") }),
        ("no number", "a", Attribute { data_type: "Number".to_owned(), ..Attribute::text("seven") }),
        ("no XML", "a", Attribute::text("\u{1}")),
    ] {
        if !refuses(name, attribute).await {
            taken.push(what);
        }
    }
    assert_eq!(taken, fixture.differences().takes_attributes);
}

pub(crate) async fn system_attributes_are_told(fixture: &dyn QueueFixture) {
    let queue = fixture.fifo().await;
    let trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";
    let sent = Outgoing {
        deduplication_id: Some("once".to_owned()),
        trace_header: Some(trace.to_owned()),
        ..in_group("g", "x")
    };
    queue.send(&sent).await.expect("a send");
    let message = next(&*queue, LONG).await.message;
    assert!(!message.id.is_empty());
    assert_eq!(message.receive_count, 1);
    assert!(message.sent_at.is_some_and(|at| at.0 > 1_600_000_000_000), "sent at {:?}", message.sent_at);
    assert_eq!(message.group.as_deref(), Some("g"));
    assert_eq!(message.deduplication_id.as_deref(), Some("once"));
    let kept = !fixture.differences().drops_the_trace_header;
    assert_eq!(message.trace_header.as_deref(), kept.then_some(trace));
}

pub(crate) async fn a_dead_letter_note_is_unpacked(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    let mut note = Note::default();
    (note.code, note.failure_id) = ("declined".to_owned(), "f1".to_owned());
    let note_text = serde_json::to_string(&note).expect("JSON");
    let kept = ("kept".to_owned(), Attribute::text("yes"));
    let attributes = [kept.clone(), (DEAD_LETTER_ATTRIBUTE.to_owned(), Attribute::text(note_text))].into();
    queue.send(&Outgoing { attributes, ..body("x") }).await.expect("a send");
    let message = next(&*queue, LONG).await.message;
    assert_eq!(message.dead_letter, Some(note));
    assert_eq!(message.attributes, [kept].into());
}

pub(crate) async fn the_largest_message_passes_and_a_larger_one_is_refused(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    let largest = fixture.differences().largest_message;
    queue.send(&body(&"x".repeat(largest))).await.expect("a send");
    assert_eq!(next(&*queue, LONG).await.message.body.len(), largest);
    let refused = queue.send(&body(&"x".repeat(largest + 1))).await;
    assert!(matches!(refused, Err(QueueError::Refused(_))), "{refused:?}");
}

pub(crate) async fn a_standard_queue_carries_a_message_group(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    let sent = queue.send(&in_group("tenant-7", "x")).await;
    assert_eq!(sent.is_err(), fixture.differences().refuses_group_on_standard, "{sent:?}");
    if sent.is_err() {
        return;
    }
    queue.send(&in_group("tenant-7", "y")).await.expect("a send");
    assert_eq!(next(&*queue, LONG).await.message.group.as_deref(), Some("tenant-7"));
    // A group orders nothing on a standard queue: the second is not blocked by the first.
    next(&*queue, LONG).await;
}

pub(crate) async fn an_empty_queue_answers_with_nothing_after_the_wait(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    let begun = Instant::now();
    assert!(poll(&*queue, 10, LONG).await.is_empty());
    assert!(begun.elapsed() >= POLL.mul_f64(0.8), "{:?}", begun.elapsed());
}

pub(crate) async fn r1_a_long_poll_wakes_when_a_message_arrives(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    let begun = Instant::now();
    let ask = Receive { max: 10, wait: 2 * SOON, visibility: LONG, attempt_id: None };
    let message = body("x");
    let (received, sent) = tokio::join!(queue.receive(&ask), queue.send(&message));
    sent.expect("a send");
    assert_eq!(bodies(&received.expect("a receive")), ["x"]);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

pub(crate) async fn a_delayed_message_is_hidden_at_first(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    let begun = Instant::now();
    let delay = Duration::from_secs(3);
    queue.send(&Outgoing { delay: Some(delay), ..body("x") }).await.expect("a send");
    next(&*queue, LONG).await;
    assert!(begun.elapsed() >= delay - SHORT, "{:?}", begun.elapsed());
}

pub(crate) async fn r2_what_was_received_is_hidden_for_the_asked_time_and_comes_back_with_a_new_handle(
    fixture: &dyn QueueFixture,
) {
    let queue = fixture.standard().await;
    queue.send(&body("x")).await.expect("a send");
    let begun = Instant::now();
    let visibility = Duration::from_secs(3);
    let first = next(&*queue, visibility).await;
    let second = next(&*queue, LONG).await;
    assert!(begun.elapsed() >= visibility - SHORT, "{:?}", begun.elapsed());
    assert_eq!((first.message.receive_count, second.message.receive_count), (1, 2));
    assert_eq!(first.message.id, second.message.id);
    assert_eq!(first.message.sent_at, second.message.sent_at);
    assert_ne!(first.handle, second.handle);
}

pub(crate) async fn l4_a_longer_visibility_keeps_a_message_hidden(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    queue.send(&body("x")).await.expect("a send");
    let received = next(&*queue, 2 * SHORT).await;
    queue.change_visibility(&received.handle, LONG).await.expect("a change");
    nothing_for(&*queue, 4 * SHORT).await;
}

pub(crate) async fn d1_visibility_zero_gives_a_message_back_at_once(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    queue.send(&body("x")).await.expect("a send");
    let received = next(&*queue, LONG).await;
    queue.change_visibility(&received.handle, Duration::ZERO).await.expect("a change");
    assert_eq!(next(&*queue, LONG).await.message.receive_count, 2);
}

pub(crate) async fn t1_a_deleted_message_never_comes_back(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    queue.send(&body("x")).await.expect("a send");
    let received = next(&*queue, 2 * SHORT).await;
    queue.delete(&received.handle).await.expect("a delete");
    nothing_for(&*queue, 4 * SHORT).await;
}

pub(crate) async fn t1_deleting_twice_is_ok(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    queue.send(&body("x")).await.expect("a send");
    let received = next(&*queue, LONG).await;
    queue.delete(&received.handle).await.expect("a delete");
    queue.delete(&received.handle).await.expect("a second delete");
}

pub(crate) async fn t1_deleting_after_the_timeout_deletes(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    queue.send(&body("x")).await.expect("a send");
    let received = next(&*queue, LONG).await;
    queue.change_visibility(&received.handle, Duration::ZERO).await.expect("a change that ends the timeout");
    queue.delete(&received.handle).await.expect("a delete");
    if fixture.differences().ignores_late_delete_on_standard {
        next(&*queue, LONG).await;
    }
    nothing_for(&*queue, 2 * SHORT).await;
}

pub(crate) async fn t1_deleting_with_a_superseded_handle_answers_ok_and_deletes_nothing(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    queue.send(&body("x")).await.expect("a send");
    let first = next(&*queue, SHORT).await;
    let second = next(&*queue, 2 * SHORT).await;
    queue.delete(&first.handle).await.expect("a delete");
    if fixture.differences().deletes_with_a_superseded_handle {
        return nothing_for(&*queue, 4 * SHORT).await;
    }
    let third = next(&*queue, LONG).await;
    assert_eq!(third.message.id, second.message.id);
}

pub(crate) async fn l6_an_old_handle_shortens_the_timeout_of_a_later_receive(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    queue.send(&body("x")).await.expect("a send");
    let first = next(&*queue, SHORT).await;
    next(&*queue, LONG).await;
    let changed = queue.change_visibility(&first.handle, Duration::ZERO).await;
    if fixture.differences().refuses_change_with_a_superseded_handle {
        assert!(matches!(changed, Err(QueueError::HandleLost)), "{changed:?}");
    } else {
        changed.expect("a change");
        assert_eq!(next(&*queue, LONG).await.message.receive_count, 3);
    }
}

pub(crate) async fn l4_changing_a_deleted_message_tells_that_the_handle_is_lost(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    queue.send(&body("x")).await.expect("a send");
    let received = next(&*queue, LONG).await;
    queue.delete(&received.handle).await.expect("a delete");
    let changed = queue.change_visibility(&received.handle, SHORT).await;
    assert!(matches!(changed, Err(QueueError::HandleLost)), "{changed:?}");
}

pub(crate) async fn a_handle_that_was_never_given_out_is_refused(fixture: &dyn QueueFixture) {
    let queue = fixture.standard().await;
    let made_up = ReceiptHandle::new("made-up");
    let is_refusal = |error: &QueueError| matches!(error, QueueError::HandleLost | QueueError::Refused(_));
    let changed = queue.change_visibility(&made_up, SHORT).await;
    assert!(changed.as_ref().is_err_and(is_refusal), "{changed:?}");
    let deleted = queue.delete(&made_up).await;
    let refused = !fixture.differences().accepts_delete_with_a_made_up_handle;
    assert_eq!(deleted.as_ref().is_err_and(is_refusal), refused, "{deleted:?}");
}

pub(crate) async fn l4_calls_that_come_together_are_answered_one_by_one(fixture: &dyn QueueFixture) {
    /// More than one batch.
    const MANY: usize = 14;
    let queue = fixture.standard().await;
    let messages: Vec<_> = (0..MANY).map(|i| body(&i.to_string())).collect();
    join_all(messages.iter().map(|message| queue.send(message)))
        .await
        .into_iter()
        .for_each(|sent| sent.expect("a send"));
    let mut handles = Vec::new();
    while handles.len() < MANY {
        handles.push(next(&*queue, LONG).await.handle);
    }
    // In the middle of a batch.
    handles.insert(MANY / 2, ReceiptHandle::new("made-up"));
    let changed = join_all(handles.iter().map(|handle| queue.change_visibility(handle, LONG))).await;
    let deleted = join_all(handles.iter().map(|handle| queue.delete(handle))).await;
    for (position, (changed, deleted)) in changed.into_iter().zip(deleted).enumerate() {
        assert_eq!(changed.is_ok(), position != MANY / 2, "change {position}: {changed:?}");
        let accepted = position != MANY / 2 || fixture.differences().accepts_delete_with_a_made_up_handle;
        assert_eq!(deleted.is_ok(), accepted, "delete {position}: {deleted:?}");
    }
    nothing_for(&*queue, SHORT).await;
}

pub(crate) async fn t6_a_message_moves_to_the_dead_letter_queue_at_the_receive_after_its_last(
    fixture: &dyn QueueFixture,
) {
    let (queue, dead_letters) = fixture.with_dead_letters(2).await;
    let attributes: std::collections::BTreeMap<_, _> = [("kept".to_owned(), Attribute::text("yes"))].into();
    queue.send(&Outgoing { attributes: attributes.clone(), ..body("x") }).await.expect("a send");
    let first = next(&*queue, LONG).await;
    queue.change_visibility(&first.handle, Duration::ZERO).await.expect("a change");
    let last = next(&*queue, LONG).await;
    assert_eq!(last.message.receive_count, 2);
    queue.change_visibility(&last.handle, Duration::ZERO).await.expect("a change");
    nothing_for(&*dead_letters, SHORT).await;
    nothing_for(&*queue, SHORT).await;
    let dead = next(&*dead_letters, LONG).await.message;
    assert_eq!((dead.body.as_str(), &dead.attributes), ("x", &attributes));
    assert_eq!(dead.id != first.message.id, fixture.differences().redrive_changes_the_id);
}

pub(crate) async fn r5_facts_tell_the_settings(fixture: &dyn QueueFixture) {
    let standard = fixture.standard().await.facts().await.expect("facts");
    assert!(!standard.fifo && standard.redrive.is_none());
    assert_eq!(standard.visibility, Duration::from_secs(30));
    assert_eq!(standard.retention, Duration::from_secs(4 * 24 * 60 * 60));
    assert_eq!((standard.redrive_allow, standard.kms_key), (RedriveAllow::All, None));
    assert_eq!(standard.largest_message, fixture.differences().largest_message);
    let by_url = fixture.broker().open(&QueueAddress::Url(standard.url)).await.expect("a queue");
    assert_eq!(by_url.facts().await.expect("facts").arn, standard.arn);
    assert!(fixture.fifo().await.facts().await.expect("facts").fifo);
    let (queue, dead_letters) = fixture.with_dead_letters(7).await;
    let redrive = queue.facts().await.expect("facts").redrive.expect("a redrive policy");
    assert_eq!(redrive.max_receive_count, 7);
    assert_eq!(redrive.dead_letter_arn, dead_letters.facts().await.expect("facts").arn);
    // By this ARN the worker finds it.
    let opened = fixture.broker().open(&QueueAddress::Arn(redrive.dead_letter_arn.clone())).await.expect("a queue");
    assert_eq!(opened.facts().await.expect("facts").arn, redrive.dead_letter_arn);
}

pub(crate) async fn r5_a_queue_that_is_not_there_is_missing(fixture: &dyn QueueFixture) {
    let opened = fixture.broker().open(&QueueAddress::Name("not-there".to_owned())).await;
    assert!(matches!(opened, Err(QueueError::Missing)), "{opened:?}");
}
