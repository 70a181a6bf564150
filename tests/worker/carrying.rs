//! What a message carries beside its body, on its way through a worker: groups of fair queues, attributes, trace headers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{
    JobContext, Message, Raw, ResultExt, handler,
    message::{Attribute, AttributeValue, DEAD_LETTER_ATTRIBUTE},
    queue::{Outgoing, Queue, Receive},
    testing::{MemoryQueueSettings, TestBed},
};

const TRACE: &str = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";

/// Ten attributes of every kind, one of them in the place of our own.
fn attributes() -> BTreeMap<String, Attribute> {
    let typed = |data_type: &str, value| Attribute { data_type: data_type.to_owned(), value };
    let text = |data_type: &str, text: &str| typed(data_type, AttributeValue::Text(text.to_owned()));
    [
        ("traceparent", Attribute::text("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")),
        ("labelled", text("String.custom", " \t\"世界\" ")),
        ("amount", text("Number.int", "-1250")),
        ("picture", typed("Binary.png", AttributeValue::Binary((0..=255).collect()))),
        ("byte", typed("Binary", AttributeValue::Binary(vec![0]))),
        ("dots.in.a-name", Attribute::text("x")),
        ("a", Attribute::text("lower")),
        ("A", Attribute::text("upper")),
        (&"n".repeat(256), Attribute::text("longest")),
        (DEAD_LETTER_ATTRIBUTE, Attribute::text(r#"{"code":"of another program"}"#)),
    ]
    .map(|(name, attribute)| (name.to_owned(), attribute))
    .into()
}

/// Lets a handler fail each message for good, and gives back what it saw and the one copy.
async fn dead_lettered(bed: &TestBed, queue: &str) -> (Message, Message) {
    let seen = Arc::new(Mutex::new(None));
    let seeing = Arc::clone(&seen);
    let handler = handler(move |_: &Raw, cx: &JobContext| {
        *seeing.lock().unwrap() = Some(cx.message().clone());
        async { Err("never").permanent() }
    });
    let vars = [("LEASEHOLD_QUEUES", queue), ("LEASEHOLD_KEY", "/id")];
    let report = bed.worker(&vars).queue(queue, handler).run(bed.until_idle()).await.unwrap();
    assert_eq!(report.dead, 1);
    let seen = seen.lock().unwrap().take().unwrap();
    (seen, bed.queue(&TestBed::dead_letter_name(queue)).messages().remove(0))
}

#[tokio::test(start_paused = true)]
async fn t3_all_that_a_message_carries_reaches_the_handler_and_the_dead_letter_queue() {
    let bed = TestBed::new(&["jobs"]);
    let sent = Outgoing {
        body: r#"{"id":"a"}"#.to_owned(),
        attributes: attributes(),
        group: Some("tenant-7".to_owned()),
        trace_header: Some(TRACE.to_owned()),
        ..Outgoing::default()
    };
    bed.queue("jobs").send(&sent).await.unwrap();
    let (seen, dead) = dead_lettered(&bed, "jobs").await;
    for message in [&seen, &dead] {
        assert_eq!(message.body, sent.body);
        assert_eq!(message.attributes, sent.attributes);
        assert_eq!(message.group, sent.group);
        assert_eq!(message.trace_header, sent.trace_header);
        assert_eq!(message.deduplication_id, None, "a standard queue takes none");
    }
    assert!(seen.dead_letter.is_none() && dead.dead_letter.is_some());
}

#[tokio::test(start_paused = true)]
async fn t3_attributes_survive_a_move_by_sqs_and_a_second_failure() {
    let bed = TestBed::new(&["jobs", "again"]);
    // SQS moves a message as it is, with the attribute that holds the displaced ones: here from one queue to the next.
    let redrive = Some(("again".to_owned(), 1));
    bed.broker.create("jobs-dlq", MemoryQueueSettings { redrive, ..MemoryQueueSettings::default() });
    let sent = Outgoing { body: r#"{"id":"a"}"#.to_owned(), attributes: attributes(), ..Outgoing::default() };
    bed.queue("jobs").put(sent.clone());
    dead_lettered(&bed, "jobs").await;
    let ask = Receive { max: 1, wait: Duration::ZERO, visibility: Duration::ZERO, attempt_id: None };
    for received in [1, 0] {
        assert_eq!(bed.queue("jobs-dlq").receive(&ask).await.unwrap().len(), received);
    }
    let (seen, again) = dead_lettered(&bed, "again").await;
    assert!(seen.dead_letter.is_some());
    assert_eq!((&seen.attributes, &again.attributes), (&sent.attributes, &sent.attributes));
}

#[tokio::test(start_paused = true)]
async fn a_copy_to_a_fifo_dead_letter_queue_stays_in_its_group() {
    let bed = TestBed::new(&["orders.fifo"]);
    bed.queue("orders.fifo").put(Outgoing {
        body: r#"{"id":"a"}"#.to_owned(),
        group: Some("customer-7".to_owned()),
        deduplication_id: Some("once".to_owned()),
        ..Outgoing::default()
    });
    let (seen, dead) = dead_lettered(&bed, "orders.fifo").await;
    assert_eq!((seen.group.as_deref(), seen.deduplication_id.as_deref()), (Some("customer-7"), Some("once")));
    let failure = dead.dead_letter.map(|note| note.failure_id);
    assert_eq!((dead.group.as_deref(), dead.deduplication_id), (Some("customer-7"), failure));
}
