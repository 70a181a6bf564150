use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::message::Note;

/// As SNS writes it, byte for byte but for the signature.
const PLAIN: &str = r#"{
  "Type" : "Notification",
  "MessageId" : "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
  "TopicArn" : "arn:aws:sns:us-west-2:123456789012:MyTopic",
  "Subject" : "My First Message",
  "Message" : "Hello world!",
  "Timestamp" : "2012-05-02T00:54:06.655Z",
  "SignatureVersion" : "1",
  "Signature" : "EXAMPLEw6JRN=",
  "SigningCertURL" : "https://sns.us-west-2.amazonaws.com/SimpleNotificationService-f3ecfb7224c7233fe7bb5f59f96de52f.pem",
  "UnsubscribeURL" : "https://sns.us-west-2.amazonaws.com/?Action=Unsubscribe&SubscriptionArn=arn:aws:sns:us-west-2:123456789012:MyTopic:c9135db0-26c4-47ec-8998-413945fb5a96"
}"#;

/// What the tests here change: the least that is a notification.
fn notification(message: &str) -> Value {
    json!({"Type": "Notification", "MessageId": "s-1", "TopicArn": "arn:aws:sns:r:1:t", "Message": message})
}

fn received(body: impl Into<String>) -> Message {
    Message { id: "q-1".to_owned(), body: body.into(), receive_count: 2, ..Message::default() }
}

fn opened(body: impl Into<String>) -> Message {
    open(&received(body)).expect("a notification")
}

fn with(name: &str, value: Value) -> Value {
    let mut notification = notification("m");
    notification[name] = value;
    notification
}

#[test]
fn what_was_published_is_the_body_and_what_sns_says_stands_beside_it() {
    let message = opened(PLAIN);
    let sns = Sns {
        topic_arn: "arn:aws:sns:us-west-2:123456789012:MyTopic".to_owned(),
        message_id: "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324".to_owned(),
        subject: Some("My First Message".to_owned()),
        published_at: Some(Millis(1_335_920_046_655)),
        sequence_number: None,
    };
    assert_eq!(message, Message { sns: Some(sns), ..received("Hello world!") });
    let fifo = opened(with("SequenceNumber", json!("10000000000000003000")).to_string()).sns.expect("is said");
    assert_eq!(fifo.sequence_number.as_deref(), Some("10000000000000003000"));
    assert_eq!((fifo.subject, fifo.published_at), (None, None));
}

#[test]
fn all_else_stays_what_the_queue_says() {
    let message = Message {
        sent_at: Some(Millis(7)),
        group: Some("g".to_owned()),
        deduplication_id: Some("d".to_owned()),
        trace_header: Some("Root=1".to_owned()),
        dead_letter: Some(Note { code: "declined".to_owned(), ..Note::default() }),
        ..received(PLAIN)
    };
    let opened = open(&message).expect("a notification");
    assert_eq!(Message { body: PLAIN.to_owned(), sns: None, ..opened }, message);
}

#[test]
fn every_text_comes_out_as_it_was_published() {
    let large = "\u{e9}\"\\".repeat(64 * 1024);
    for text in ["", " ", "{\"a\":{\"b\":\"\\\"\"}}", "\u{0}\n\t\u{7f}\u{2028}", "\u{1f600}\u{ffff}", "null", &large] {
        assert_eq!(opened(notification(text).to_string()).body, text);
    }
    let escaped = r#"{"Type":"Notification","MessageId":"1","TopicArn":"t","Message":"\ud83d\ude00\/\u00e9\u000a"}"#;
    assert_eq!(opened(escaped).body, "\u{1f600}/\u{e9}\n");
    let names = r#"{"\u0054ype":"Notific\u0061tion","MessageId":"1","Topic\u0041rn":"t","Message":"m"}"#;
    assert_eq!(opened(names).body, "m");
}

#[test]
fn attributes_come_out_and_win_over_those_of_the_queue() {
    let attributes = json!({
        "order": {"Type": "String", "Value": "o-1"},
        "count": {"Type": "Number", "Value": "12345678901234567890.50"},
        "list": {"Type": "String.Array", "Value": "[\"a\", null, 1]"},
        "bytes": {"Type": "Binary", "Value": "AP9h"},
        "none": {"Type": "Binary", "Value": ""},
    });
    let mut message = received(with("MessageAttributes", attributes).to_string());
    message.attributes.insert("order".to_owned(), Attribute::text("of the queue"));
    message.attributes.insert("own".to_owned(), Attribute::text("of the queue"));
    let opened = open(&message).expect("a notification").attributes;
    let expected = |data_type: &str, value| Attribute { data_type: data_type.to_owned(), value };
    let text = |data_type, value: &str| expected(data_type, AttributeValue::Text(value.to_owned()));
    let binary = |value: &[u8]| expected("Binary", AttributeValue::Binary(value.to_vec()));
    let all = [
        ("bytes", binary(&[0, 255, b'a'])),
        ("count", text("Number", "12345678901234567890.50")),
        ("list", text("String.Array", "[\"a\", null, 1]")),
        ("none", binary(&[])),
        ("order", text("String", "o-1")),
        ("own", text("String", "of the queue")),
    ];
    assert_eq!(opened, all.map(|(name, attribute)| (name.to_owned(), attribute)).into());
}

#[test]
fn what_is_not_said_and_what_nobody_asked_for_is_no_fault() {
    for (name, value) in [
        ("Subject", Value::Null),
        ("MessageAttributes", Value::Null),
        ("MessageAttributes", json!({})),
        ("Signature", json!(["of", "another", "kind"])),
        ("Timestamp", json!("yesterday")),
        ("Timestamp", json!("1969-12-31T23:59:59Z")),
    ] {
        assert_eq!(opened(with(name, value).to_string()).body, "m", "{name}");
    }
}

#[test]
fn a_broken_notification_is_refused_and_what_is_broken_is_named() {
    let one = |attribute: Value| with("MessageAttributes", json!({"a": attribute}));
    let twice = |member: &str| notification("m").to_string().replacen('{', &format!("{{{member},"), 1);
    let without = |name: &str| {
        let mut notification = notification("m");
        notification.as_object_mut().expect("an object").remove(name);
        notification.to_string()
    };
    for (body, what) in [
        (without("Message"), "it has no Message"),
        (with("Message", Value::Null).to_string(), "it has no Message"),
        (without("MessageId"), "it has no MessageId"),
        (with("Message", json!({"id": 1})).to_string(), "its Message is no text"),
        (with("TopicArn", json!(1)).to_string(), "its TopicArn is no text"),
        (with("Subject", json!(false)).to_string(), "its Subject is no text"),
        (notification("m").to_string().replace("\"m\"", r#""\ud800""#), "its Message is no text"),
        (twice(r#""Message":"other""#), "it has more than one Message"),
        (with("MessageAttributes", json!([])).to_string(), "its MessageAttributes are no object"),
        (one(json!(["String", "x"])).to_string(), r#"its attribute "a" is no object"#),
        (one(json!({"Type": "String"})).to_string(), r#"its attribute "a" has no Value that is a text"#),
        (one(json!({"Type": 1, "Value": ""})).to_string(), r#"its attribute "a" has no Type that is a text"#),
        (one(json!({"Type": "Number", "Value": 1})).to_string(), r#"its attribute "a" has no Value that is a text"#),
        (
            one(json!({"Type": "Binary", "Value": "no!"})).to_string(),
            r#"its attribute "a" is Binary, and not in Base64"#,
        ),
        (
            with("MessageAttributes", json!({"a": {"Type": "String", "Value": ""}}))
                .to_string()
                .replace(r#""a":{"#, r#""a":{"Type":"String","Value":"x"},"a":{"#),
            r#"its attribute "a" is there more than once"#,
        ),
    ] {
        assert_eq!(open(&received(&*body)), Err(EnvelopeError::Broken(what.to_owned())), "{body}");
    }
}

#[test]
fn a_body_is_told_by_its_form() {
    let s3_test = r#"{"Service":"Amazon S3","Event":"s3:TestEvent","Time":"2014-10-13T15:57:02.089Z","Bucket":"b","RequestId":"5582815E1AEA5ADF","HostId":"8cLeGAmw098X5cv4Zkwcmo8vvZa3eH3eKxsPzbB9wrR"}"#;
    let event_bridge = r#"{"version":"0","id":"6a7e8feb-b491-4cf7-a9f1-bf3703467718","detail-type":"EC2 Instance State-change Notification","source":"aws.ec2","account":"111122223333","time":"2017-12-22T18:43:48Z","region":"us-west-1","resources":[],"detail":{"state":"terminated"}}"#;
    let confirmation = |kind: &str| PLAIN.replace("\"Notification\"", &format!("\"{kind}\""));
    for (body, form) in [
        (PLAIN, Form::Notification),
        (&confirmation("SubscriptionConfirmation"), Form::Subscription),
        (&confirmation("UnsubscribeConfirmation"), Form::Unsubscription),
        (&confirmation("Other"), Form::Json),
        (s3_test, Form::S3Test),
        (event_bridge, Form::EventBridge),
        (r#"{"Records":[{"eventSource":"aws:s3","eventName":"ObjectCreated:Put"}]}"#, Form::Json),
        (r#"{"Type":"Notification","Message":"of somebody else's"}"#, Form::Json),
        (r#"["Notification"]"#, Form::Json),
        ("\"Notification\"", Form::Json),
        ("{\"Type\":\"Notification\",\"TopicArn\":", Form::Text),
        ("", Form::Text),
    ] {
        assert_eq!(Form::of(body), form, "{body}");
        let expected = (form != Form::Notification).then_some(EnvelopeError::Other(form));
        assert_eq!(open(&received(body)).err(), expected, "{body}");
    }
    assert_eq!(Form::of(&"[".repeat(100_000)), Form::Text);
    assert_eq!(Form::of(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))), Form::Json);
}

#[test]
fn a_glance_tells_what_sns_writes_from_most_else() {
    for body in [PLAIN, &notification("m").to_string().replacen('{', r#"{"Type":"Notification","#, 1)] {
        assert!(Form::may_be_notification(body), "{body}");
    }
    for body in
        ["", "{}", "Notification", r#"{"id":"a","Type":"Order"}"#, r#"{"of":"Notification"}"#, &"\u{1f600}".repeat(100)]
    {
        assert!(!Form::may_be_notification(body), "{body}");
    }
}

/// JSON of any kind, with the names that mean something here in most objects.
fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop_oneof![Just("Notification"), Just("Binary"), Just("String.Array"), Just("====")].prop_map(Value::from),
    ];
    let name = prop_oneof![
        any::<String>(),
        prop_oneof![Just("Type"), Just("TopicArn"), Just("MessageId"), Just("Message"), Just("MessageAttributes")]
            .prop_map(str::to_owned),
        prop_oneof![Just("Value"), Just("Subject"), Just("Timestamp"), Just("Event")].prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..8).prop_map(Value::from_iter),
        ]
    })
}

proptest! {
    #[test]
    fn t4_no_json_makes_it_panic(json in arbitrary_json(), attributes in arbitrary_json(), at in 0..400_usize) {
        let mut notification = with("MessageAttributes", attributes);
        for body in [json.to_string(), notification.to_string(), notification.to_string().chars().take(at).collect()] {
            let _ = (open(&received(&*body)), Form::of(&body), Form::may_be_notification(&body));
        }
        notification["Message"] = json;
        let _ = open(&received(notification.to_string()));
    }

    #[test]
    fn what_was_published_comes_out(text in any::<String>(), bytes in any::<Vec<u8>>(), name in any::<String>()) {
        let value = STANDARD.encode(&bytes);
        let mut notification = notification(&text);
        notification["MessageAttributes"] = json!({&*name: {"Type": "Binary", "Value": value}});
        let message = opened(notification.to_string());
        prop_assert_eq!(message.body, text);
        prop_assert_eq!(&message.attributes[&name].value, &AttributeValue::Binary(bytes));
    }
}
