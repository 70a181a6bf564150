//! Messages in SNS's envelopes, and settings that say otherwise than bodies do (rules T4, G9, G10).

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{
    HandlerResult, JobContext, Raw, StopReport,
    guard::{Pk, Status},
    handler,
    message::{Attribute, DEAD_LETTER_ATTRIBUTE},
    queue::Outgoing,
    testing::TestBed,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::bench::{Book, Log, worker};

const SNS: (&str, &str) = ("LEASEHOLD_JOBS_ENVELOPE", "sns");

const S3_TEST: &str = r#"{"Service":"Amazon S3","Event":"s3:TestEvent","Time":"2014-10-13T15:57:02.089Z","Bucket":"b","RequestId":"5582815E1AEA5ADF","HostId":"8cLeGAmw098X5cv4"}"#;

const EVENT_BRIDGE: &str = r#"{"version":"0","id":"6a7e8feb-b491-4cf7-a9f1-bf3703467718","detail-type":"Order Placed","source":"shop","account":"111122223333","time":"2017-12-22T18:43:48Z","region":"us-west-1","resources":[],"detail":{"id":"a"}}"#;

fn envelope(kind: &str, id: &str, message: &str) -> String {
    json!({
        "Type": kind,
        "MessageId": id,
        "TopicArn": "arn:aws:sns:us-west-2:123456789012:orders",
        "Message": message,
        "Timestamp": "2012-05-02T00:54:06.655Z",
        "SignatureVersion": "1",
        "Signature": "EXAMPLE=",
        "SigningCertURL": "https://sns.us-west-2.amazonaws.com/SimpleNotificationService-f3ecfb72.pem",
    })
    .to_string()
}

fn notification(id: &str, message: &str) -> String {
    envelope("Notification", id, message)
}

async fn work_off(bed: &TestBed, book: &Book, vars: &[(&str, &str)]) -> StopReport {
    let run = worker(bed, book, vars).run(bed.until_idle());
    timeout(Duration::from_secs(24 * 60 * 60), run).await.expect("the queue is never empty").unwrap()
}

fn bed(bodies: &[&str]) -> (TestBed, Book) {
    let bed = TestBed::new(&["jobs"]);
    for body in bodies {
        bed.send("jobs", *body).expect("is taken");
    }
    (bed, Book::new())
}

/// The code and the text of the one failure.
fn failure(bed: &TestBed) -> (String, String) {
    let mut dead = bed.dead("jobs");
    assert_eq!(dead.len(), 1, "{dead:?}");
    let note = dead.remove(0).1.expect("a reason");
    (note.code, note.message)
}

#[tokio::test(start_paused = true)]
async fn g9_g10_key_and_fingerprint_are_of_what_was_published_so_that_two_publishes_of_one_work_take_effect_once() {
    let again = notification("s-2", r#" {"millis":0, "id":"a"}"#);
    let (bed, book) = bed(&[&notification("s-1", r#"{"id":"a","millis":0}"#), &again]);
    let report = work_off(&bed, &book, &[SNS]).await;
    assert_eq!((report.done, report.suppressed, report.dead), (1, 1, 0));
    assert_eq!(book.runs("a").len(), 1);
    bed.send("jobs", notification("s-3", r#"{"id":"a","millis":1}"#));
    assert_eq!(work_off(&bed, &book, &[SNS]).await.dead, 1);
    assert_eq!(failure(&bed).0, "key_reused", "the same key with another payload");
}

#[tokio::test(start_paused = true)]
async fn t3_a_copy_carries_the_envelope_as_it_came_and_its_redrive_begins_anew() {
    let body = notification("s-1", r#"{"id":"a","first":["fail_for_good"]}"#);
    let (bed, book) = bed(&[&body]);
    assert_eq!(work_off(&bed, &book, &[SNS]).await.dead, 1);
    let copies = bed.queue("jobs-dlq").messages();
    assert_eq!((copies.len(), &copies[0].body, copies[0].sns.as_ref()), (1, &body, None));
    let note = copies[0].dead_letter.as_ref().expect("a reason");
    assert_eq!((note.code.as_str(), note.pk.as_deref()), ("hopeless", Some("jobs#a")));
    let mut redriven = Outgoing::from(&copies[0]);
    let note = Attribute::text(serde_json::to_string(note).unwrap());
    redriven.attributes.insert(DEAD_LETTER_ATTRIBUTE.into(), note);
    bed.queue("jobs").put(redriven);
    let report = work_off(&bed, &book, &[SNS]).await;
    assert_eq!((report.done, book.runs("a").len()), (1, 2));
    assert_eq!(bed.guard.record(&Pk("jobs#a".into())).map(|record| record.status), Some(Status::Done));
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_lent_what_was_published_and_what_sns_says_of_it() {
    let mut body: Value = serde_json::from_str(&notification("s-1", "{\"id\":\"a\"}")).unwrap();
    body["MessageAttributes"] = json!({"tenant": {"Type": "String", "Value": "acme"}});
    let bed = TestBed::new(&["jobs.fifo"]);
    let group = Some("g".to_owned());
    let id = Some("d".to_owned());
    let body = body.to_string();
    bed.queue("jobs.fifo").put(Outgoing { body, group, deduplication_id: id, ..Outgoing::default() });
    let seen = Arc::new(Mutex::new(Vec::new()));
    let looks = {
        let seen = Arc::clone(&seen);
        handler(move |Raw(message): &Raw, cx: &JobContext| {
            seen.lock().unwrap().push((Arc::clone(message), cx.message().clone(), cx.key().map(str::to_owned)));
            async { HandlerResult::Ok(()) }
        })
    };
    let vars = [("LEASEHOLD_QUEUES", "jobs.fifo"), ("LEASEHOLD_ENVELOPE", "sns"), ("LEASEHOLD_KEY", "attr:tenant")];
    let report = bed.worker(&vars).queue("jobs.fifo", looks).run(bed.until_idle()).await.unwrap();
    assert_eq!(report.done, 1);
    let (message, lent, key) = seen.lock().unwrap().remove(0);
    assert_eq!(*message, lent);
    assert_eq!((message.body.as_str(), key.as_deref()), ("{\"id\":\"a\"}", Some("jobs.fifo#acme")));
    assert_eq!((message.group.as_deref(), message.deduplication_id.as_deref()), (Some("g"), Some("d")));
    let sns = message.sns.as_ref().expect("SNS says");
    assert_eq!((sns.message_id.as_str(), sns.topic_arn.ends_with(":orders")), ("s-1", true));
}

#[tokio::test(start_paused = true)]
async fn t4_what_is_no_notification_is_dead_lettered_with_the_line_that_mends_it() {
    let other = r#"{"id":"a"}"#;
    let raw = "LEASEHOLD_JOBS_ENVELOPE=raw hands bodies on as they are";
    for (body, found) in [
        ("nope", "plain text"),
        (other, "other JSON"),
        (EVENT_BRIDGE, "an EventBridge event"),
        (S3_TEST, "an S3 test event"),
    ] {
        let (bed, book) = bed(&[body]);
        assert_eq!(work_off(&bed, &book, &[SNS]).await.dead, 1);
        let text = format!("the body is no SNS notification, but {found}; {raw}");
        assert_eq!(failure(&bed), ("malformed".to_owned(), text));
        assert!(bed.guard.records().is_empty(), "no claim");
    }
    let (bed, book) = bed(&[&notification("s-1", "").replace("\"Message\":\"\"", "\"Message\":7")]);
    work_off(&bed, &book, &[SNS]).await;
    let broken = "the SNS notification is broken: its Message is no text";
    assert_eq!(failure(&bed), ("malformed".to_owned(), broken.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn t4_a_confirmation_is_dead_lettered_and_told_for_what_it_is_with_either_setting() {
    for (kind, advice) in
        [("SubscriptionConfirmation", "sns:ConfirmSubscription"), ("UnsubscribeConfirmation", "subscribe again")]
    {
        for vars in [&[SNS][..], &[]] {
            let (bed, book) = bed(&[&envelope(kind, "s-1", "You have chosen to subscribe to the topic ...")]);
            assert_eq!(work_off(&bed, &book, vars).await.dead, 1);
            let (code, text) = failure(&bed);
            assert_eq!(code, "malformed");
            assert!(text.contains("subscri") && text.contains(advice) && text.ends_with("it can be purged"), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn t4_an_envelope_that_is_handed_on_and_cannot_be_used_is_told_with_the_line_that_takes_it_out() {
    let hint = "; the body is an SNS notification: LEASEHOLD_JOBS_ENVELOPE=sns takes it out";
    let body = notification("s-1", r#"{"id":"a"}"#);
    let (malformed, book) = bed(&[&body]);
    work_off(&malformed, &book, &[]).await;
    let (code, text) = failure(&malformed);
    assert_eq!(code, "malformed");
    assert!(text.contains("missing field `id`") && text.ends_with(hint), "{text}");

    let (keyless, _) = bed(&[&body]);
    let run = keyless.worker(&[("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id")]).queue("jobs", nothing());
    assert_eq!(run.run(keyless.until_idle()).await.unwrap().dead, 1);
    assert_eq!(failure(&keyless), ("no_key".to_owned(), format!("no key: /id is missing{hint}")));
}

#[tokio::test(start_paused = true)]
async fn t4_what_other_services_send_is_named_where_it_cannot_be_used() {
    for (body, named) in [
        (S3_TEST.to_owned(), "an S3 test event: S3 sends it once, when notifications are set up, and it can be purged"),
        (EVENT_BRIDGE.to_owned(), "an EventBridge event: what its source sent is under /detail"),
    ] {
        // Straight from the service, and by way of a topic.
        for (body, vars) in [
            (body.clone(), &[("LEASEHOLD_KEY", "/order")][..]),
            (notification("s-1", &body), &[SNS, ("LEASEHOLD_KEY", "/order")]),
        ] {
            let bed = TestBed::new(&["jobs"]);
            bed.send("jobs", body);
            let vars = [&[("LEASEHOLD_QUEUES", "jobs")], vars].concat();
            bed.worker(&vars).queue("jobs", nothing()).run(bed.until_idle()).await.unwrap();
            let text = format!("no key: /order is missing; the body is {named}");
            assert_eq!(failure(&bed), ("no_key".to_owned(), text));
        }
    }
    let (ordinary, _) = bed(&[EVENT_BRIDGE]);
    let vars = [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/detail/id")];
    let report = ordinary.worker(&vars).queue("jobs", nothing()).run(ordinary.until_idle()).await.unwrap();
    assert_eq!((report.done, report.dead), (1, 0), "it is JSON like any other");
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_kept_whole_however_long_the_failure_is() {
    let unknown = format!(r#"{{"first":["{}"],"#, "x".repeat(4096));
    let (bed, book) = bed(&[&notification("s-1", "m").replacen('{', &unknown, 1)]);
    work_off(&bed, &book, &[]).await;
    let (_, text) = failure(&bed);
    assert!(text.len() < 300 && text.ends_with("LEASEHOLD_JOBS_ENVELOPE=sns takes it out"), "{text}");
    assert!(text.starts_with("the body does not decode: unknown variant"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn envelopes_that_are_handed_on_are_told_of_once_a_queue() {
    let key = ("LEASEHOLD_KEY", "/MessageId");
    for (bodies, vars, expected) in [
        ([r#"{"MessageId":"0"}"#.to_owned(), notification("1", "m"), notification("2", "m")], &[key][..], 1),
        (
            [
                r#"{"MessageId":"0"}"#.to_owned(),
                S3_TEST.replace("RequestId", "MessageId"),
                EVENT_BRIDGE.replace("source", "MessageId"),
            ],
            &[key],
            0,
        ),
        (
            [notification("1", "1"), notification("2", "2"), notification("3", "3")],
            &[("LEASEHOLD_KEY", "message-id"), SNS],
            0,
        ),
    ] {
        let (bed, _) = bed(&bodies.each_ref().map(String::as_str));
        let vars = [&[("LEASEHOLD_QUEUES", "jobs")], vars].concat();
        let log = Log::default();
        let told = tracing::subscriber::set_default(log.subscriber());
        let report = bed.worker(&vars).queue("jobs", nothing()).run(bed.until_idle()).await.unwrap();
        drop(told);
        assert_eq!((report.done, report.dead), (3, 0));
        let told = log.text();
        assert_eq!(told.matches("LEASEHOLD_JOBS_ENVELOPE=sns takes the messages out").count(), expected, "{told}");
    }
}

/// A handler that takes anything.
fn nothing() -> impl leasehold::Handler {
    handler(async |_: &Raw, _: &JobContext| HandlerResult::Ok(()))
}
