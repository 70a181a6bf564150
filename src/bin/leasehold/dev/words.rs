//! What `dev` tells at its start: where it is, what is there, and the lines to copy.
//!
//! Pure, but for the writing: from settings to text. Every line that it gives works as it stands.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use leasehold::{
    Config,
    config::{DeadLetter, Envelope, KeySource, LogFormat, QueueConfig},
    queue::usual_dead_letter_name,
};
use serde_json::{Map, Value, json};

use super::Settings;

/// Tells on standard output; where that is for JSON objects, on standard error.
pub(super) fn tell(settings: &Settings, endpoint: &str) -> io::Result<()> {
    let program = std::env::args().next().unwrap_or_else(|| "leasehold".to_owned());
    let text = opening(settings, endpoint, &program);
    if settings.config.log_format == Some(LogFormat::Json) {
        writeln!(io::stderr(), "{text}")
    } else {
        writeln!(io::stdout(), "{text}")
    }
}

fn opening(settings: &Settings, endpoint: &str, program: &str) -> String {
    let Settings { config, warnings, shorter } = settings;
    let mut text = format!("leasehold dev  SQS and DynamoDB in this process, at {endpoint}\n\n");
    for (name, queue) in &config.queues {
        line(&mut text, "queue", &about(name, queue));
    }
    line(&mut text, "table", &config.table);
    let is_worked = config.queues.values().any(|queue| queue.handler.is_some());
    if is_worked && !shorter.is_empty() {
        let shorter: Vec<_> = shorter.iter().map(|(setting, value)| format!("{setting}={value}")).collect();
        line(&mut text, "waits", &format!("{}: shorter than in production, unless set", shorter.join(" ")));
    }
    line(&mut text, "state", "in memory, and gone at the end");
    for warning in warnings {
        line(&mut text, "warning", warning);
    }
    text.push_str("\nFor any AWS client:\n");
    let _ = writeln!(
        text,
        "  export AWS_ENDPOINT_URL={endpoint} AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local"
    );
    text.push_str("\nTo send a message:\n");
    for queue in config.queues.values() {
        let _ = writeln!(text, "  {}", our_send(queue, endpoint, program));
    }
    if let Some(queue) = config.queues.values().next() {
        let _ = writeln!(text, "  {}", aws_send(queue, endpoint));
    }
    if !is_worked {
        let _ = write!(text, "\nNo queue has a handler: whatever polls these is yours. {}", with_a_handler(config));
    }
    text
}

fn line(text: &mut String, name: &str, what: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  {name:<8}  {what}");
}

fn about(name: &str, queue: &QueueConfig) -> String {
    let real = queue.address.queue_name();
    let mut text = if real == name { name.to_owned() } else { format!("{name} ({real})") };
    if let Some(handler) = &queue.handler {
        let _ = write!(text, ", handled by {handler}");
    } else {
        text.push_str(", without a handler");
    }
    match &queue.key {
        Some(key) => {
            let _ = write!(text, ", key {key}");
        }
        None if queue.handler.is_some() => text.push_str(", without a guard"),
        None => {}
    }
    if queue.envelope == Envelope::Sns {
        text.push_str(", in SNS envelopes");
    }
    match &queue.dead_letter {
        DeadLetter::RedrivePolicy => {
            let _ = write!(text, ", dead letters in {}", usual_dead_letter_name(real));
        }
        DeadLetter::Queue(address) => {
            let _ = write!(text, ", dead letters in {address}");
        }
        other => {
            let _ = write!(text, ", what is dead: {other}");
        }
    }
    text
}

fn with_a_handler(config: &Config) -> String {
    let name = config.queues.keys().next().map_or("payments", String::as_str);
    format!("With one:\n  leasehold dev {name} --key /id --handler 'exec:cat'\n")
}

fn our_send(queue: &QueueConfig, endpoint: &str, program: &str) -> String {
    let name = queue.address.queue_name();
    let body = shell_words::quote(&example(queue)).into_owned();
    let mut text = format!("{} send --endpoint-url {endpoint} {name} {body}", shell_words::quote(program));
    if name.ends_with(".fifo") {
        text.push_str(" --group a");
    }
    match &queue.key {
        Some(KeySource::Attribute(attribute)) => {
            let _ = write!(text, " --attribute {attribute}=1");
        }
        Some(KeySource::DeduplicationId | KeySource::GroupAndDeduplicationId) => text.push_str(" --dedup-id 1"),
        _ => {}
    }
    text
}

fn aws_send(queue: &QueueConfig, endpoint: &str) -> String {
    let name = queue.address.queue_name();
    let body = shell_words::quote(&example(queue)).into_owned();
    let mut text = format!(
        "aws --endpoint-url {endpoint} sqs send-message --queue-url {endpoint}/000000000000/{name} --message-body {body}"
    );
    if name.ends_with(".fifo") {
        text.push_str(" --message-group-id a --message-deduplication-id 1");
    }
    if let Some(KeySource::Attribute(attribute)) = &queue.key {
        let value = format!("{{\"{attribute}\":{{\"DataType\":\"String\",\"StringValue\":\"1\"}}}}");
        let _ = write!(text, " --message-attributes {}", shell_words::quote(&value));
    }
    text
}

/// A body that has the queue's key, in the envelope that the queue expects.
fn example(queue: &QueueConfig) -> String {
    let payload = payload(queue);
    if queue.envelope != Envelope::Sns {
        return payload;
    }
    let topic = "arn:aws:sns:us-east-1:000000000000:example";
    json!({"Type": "Notification", "MessageId": "1", "TopicArn": topic, "Message": payload}).to_string()
}

fn payload(queue: &QueueConfig) -> String {
    let mut body = Value::Object(Map::new());
    let pointers = match &queue.key {
        Some(KeySource::Pointers(pointers)) => pointers.clone(),
        _ => vec!["/id".to_owned()],
    };
    for pointer in &pointers {
        let mut place = &mut body;
        for part in pointer.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            if !place.is_object() {
                *place = Value::Object(Map::new());
            }
            place = &mut place[part];
        }
        *place = Value::from("1");
    }
    body.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str, key: &str) -> QueueConfig {
        let mut queue = QueueConfig::new(name);
        queue.key = Some(key.parse().expect("a key"));
        queue
    }

    #[test]
    fn lines_to_copy_send_an_envelope_where_one_is_expected() {
        let mut queue = queue("q", "/id");
        assert!(!about("q", &queue).contains("SNS"));
        queue.envelope = Envelope::Sns;
        assert!(about("q", &queue).contains(", in SNS envelopes"));
        let body: Value = serde_json::from_str(&example(&queue)).expect("JSON");
        assert_eq!((&body["Type"], &body["Message"]), (&json!("Notification"), &json!(r#"{"id":"1"}"#)));
    }

    #[test]
    fn lines_to_copy_send_a_message_that_has_the_key() {
        let at = "http://127.0.0.1:4567";
        for (key, end) in [
            ("/id", r#"'{"id":"1"}'"#),
            ("/a/b,/c~1d", r#"'{"a":{"b":"1"},"c/d":"1"}'"#),
            ("attr:order", r#"'{"id":"1"}' --attribute order=1"#),
            ("message-id", r#"'{"id":"1"}'"#),
        ] {
            let line = our_send(&queue("q", key), at, "leasehold");
            assert_eq!(line, format!("leasehold send --endpoint-url {at} q {end}"));
        }
        let fifo = our_send(&queue("q.fifo", "dedup-id"), at, "/a path/leasehold");
        assert!(fifo.starts_with("'/a path/leasehold' ") && fifo.ends_with(" --group a --dedup-id 1"), "{fifo}");
        let aws = aws_send(&queue("q.fifo", "attr:order"), at);
        assert!(aws.contains("--message-group-id a --message-deduplication-id 1 --message-attributes '{"), "{aws}");
    }
}
