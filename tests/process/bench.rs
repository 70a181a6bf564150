//! One queue with its dead-letter queue and the guard's table, a folder, and a bank that handlers call.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    fs,
    path::PathBuf,
    time::Duration,
};

use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_sqs::types::QueueAttributeName as Fact;
use leasehold::{aws, embedded::Engine, guard::dynamodb::create_table};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe,
    time::{Instant, interval, timeout},
};

use crate::worker::Settings;

/// Longer than anything here takes, on the slowest machine.
pub(crate) const SOON: Duration = Duration::from_secs(90);

/// The attribute of a copy that says why it is dead-lettered.
const ATTRIBUTE: &str = "leasehold";

/// The bank, for handlers: notes the call, and lets it take effect unless there was one under its key.
const BANK: &str = r#"echo "$LEASEHOLD_IDEMPOTENCY_KEY $LEASEHOLD_FENCE $LEASEHOLD_ATTEMPT" >> calls; mkdir "effects/$LEASEHOLD_IDEMPOTENCY_KEY" 2>/dev/null"#;

/// Notes a run that begins beside another of the same key, then calls the bank.
const BEGIN: &str = r#"run="running/$LEASEHOLD_IDEMPOTENCY_KEY"; [ -e "$run" ] && kill -0 "$(cat "$run")" 2>/dev/null && echo "$run" >> overlaps; echo $$ > "$run"; $bank"#;

/// Notes that a run came to its end, and ends it.
const END: &str = r#"echo "$LEASEHOLD_IDEMPOTENCY_KEY" >> ended; exit 0"#;

/// Waits until the test lets runs go on. One whose test was killed ends with its bench.
const WAIT: &str = "until [ -e go ] || [ ! -e effects ]; do sleep 0.1; done";

/// A script under short leases: some runs need no beat, some need one, and some are longer than the leases.
pub(crate) const SHORT_AND_LONG: &str =
    "$begin; case $LEASEHOLD_IDEMPOTENCY_KEY in *3) sleep 4;; *[68]) sleep 2.2;; *) sleep 0.3;; esac; $end";

pub(crate) struct Bench {
    pub(crate) engine: Engine,
    /// Patient, unlike a worker's.
    sqs: aws_sdk_sqs::Client,
    dynamodb: aws_sdk_dynamodb::Client,
    folder: TempDir,
    queue: String,
    dead: String,
    policy: String,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with_queue("jobs", "jobs-dlq").await
    }

    /// With a FIFO queue; the worker knows it as `jobs` all the same.
    pub(crate) async fn with_groups() -> Self {
        Self::with_queue("jobs.fifo", "jobs-dlq.fifo").await
    }

    async fn with_queue(name: &str, dead: &str) -> Self {
        let engine = Engine::start().await.expect("an engine");
        let account = aws::local(engine.endpoint());
        let (sqs, dynamodb) = (aws_sdk_sqs::Client::new(&account), aws_sdk_dynamodb::Client::new(&account));
        let policy =
            format!(r#"{{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:{dead}","maxReceiveCount":100}}"#);
        let dead = create(&sqs, dead, None).await;
        let queue = create(&sqs, name, Some(&policy)).await;
        create_table(&dynamodb, "leasehold").await.expect("a table");
        let folder = TempDir::new().expect("a folder");
        for name in ["effects", "running"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        Self { engine, sqs, dynamodb, folder, queue, dead, policy }
    }

    /// Deletes the queue and what is in it.
    pub(crate) async fn delete_queue(&self) {
        self.sqs.delete_queue().queue_url(&self.queue).send().await.expect("is deleted");
    }

    /// Makes it again, empty, under the same URL.
    pub(crate) async fn make_queue_again(&self) {
        assert_eq!(create(&self.sqs, last_part(&self.queue), Some(&self.policy)).await, self.queue);
    }

    pub(crate) async fn delete_dead_letter_queue(&self) {
        self.sqs.delete_queue().queue_url(&self.dead).send().await.expect("is deleted");
    }

    pub(crate) async fn make_dead_letter_queue_again(&self) {
        assert_eq!(create(&self.sqs, last_part(&self.dead), None).await, self.dead);
    }

    /// Settings for a worker whose handler is this shell script; `$bank` in it is a call of the bank, `$begin` and `$end`
    /// let runs that overlap and runs that come to their end be told, `$wait` waits for [`lets_go`](Self::lets_go). It runs
    /// in the bench's folder.
    pub(crate) fn settings(&self, script: &str) -> Settings {
        let handle = self.path("handle.sh");
        let words = [("$begin", BEGIN), ("$wait", WAIT), ("$end", END), ("$bank", BANK)];
        let script = words.iter().fold(script.to_owned(), |script, (word, meaning)| script.replace(word, meaning));
        fs::write(&handle, script).expect("is written");
        let settings = Settings::new(self.engine.endpoint(), self.folder.path());
        let name = last_part(&self.queue);
        let settings = if name == "jobs" { settings } else { settings.set("LEASEHOLD_JOBS_NAME", name) };
        settings
            .set("LEASEHOLD_QUEUES", "jobs")
            .set("LEASEHOLD_JOBS_KEY", "/id")
            .set("LEASEHOLD_JOBS_HANDLER", format!("exec:/bin/sh {}", handle.display()))
            .set("LEASEHOLD_WAIT_TIME", "1s")
            .set("LEASEHOLD_LOG", "info,leasehold=debug")
    }

    /// Lets runs that wait go on.
    pub(crate) fn lets_go(&self) {
        fs::write(self.path("go"), "").expect("is written");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sends a message for each of the keys.
    pub(crate) async fn send(&self, keys: impl IntoIterator<Item = impl Display>) {
        for key in keys {
            let body = format!(r#"{{"id":"{key}"}}"#);
            self.sqs.send_message().queue_url(&self.queue).message_body(body).send().await.expect("is sent");
        }
    }

    /// Sends so many messages in each of the groups, whose names their keys begin with, in turn.
    pub(crate) async fn send_to_groups(&self, groups: &[&str], each: usize) {
        for number in 0..each {
            for group in groups {
                self.send_to_group(group, &format!("{group}{number:02}")).await;
            }
        }
    }

    /// Sends a message for a key in a group.
    pub(crate) async fn send_to_group(&self, group: &str, key: &str) {
        let send = self.sqs.send_message().queue_url(&self.queue).message_body(format!(r#"{{"id":"{key}"}}"#));
        send.message_group_id(group).message_deduplication_id(key).send().await.expect("is sent");
    }

    /// The bank's calls: the idempotency key, the fence and the attempt of each.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.lines("calls")
    }

    /// The keys of all runs that came to their end, in order: one that did twice stands there twice.
    pub(crate) fn succeeded(&self) -> Vec<String> {
        let mut succeeded = self.lines("ended");
        succeeded.sort_unstable();
        succeeded
    }

    /// The lines of a file in the folder; none if it is not there.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        fs::read_to_string(self.path(name)).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// How often the bank was called under each key.
    pub(crate) fn calls_by_key(&self) -> BTreeMap<String, usize> {
        let mut by_key = BTreeMap::new();
        for call in self.calls() {
            let key = call.split(' ').next().unwrap_or_default().to_owned();
            *by_key.entry(key).or_default() += 1;
        }
        by_key
    }

    /// The keys under which the bank did something.
    pub(crate) fn effects(&self) -> BTreeSet<String> {
        let effects = fs::read_dir(self.path("effects")).expect("a folder");
        effects.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    /// Messages in the queue, hidden ones too.
    pub(crate) async fn messages(&self) -> usize {
        let counted = [
            Fact::ApproximateNumberOfMessages,
            Fact::ApproximateNumberOfMessagesNotVisible,
            Fact::ApproximateNumberOfMessagesDelayed,
        ];
        let ask = self.sqs.get_queue_attributes().queue_url(&self.queue);
        let facts = ask.set_attribute_names(Some(counted.to_vec())).send().await.expect("facts").attributes;
        facts.unwrap_or_default().values().filter_map(|count| count.parse::<usize>().ok()).sum()
    }

    /// Waits until the queue's only message is visible again, and tells how often it has been received by then.
    pub(crate) async fn receives_of_the_message(&self) -> u32 {
        let until = Instant::now() + SOON;
        while Instant::now() < until {
            let poll = self.sqs.receive_message().queue_url(&self.queue).wait_time_seconds(1);
            let poll = poll.message_system_attribute_names("ApproximateReceiveCount".into()).send().await;
            if let Some(message) = poll.expect("a poll").messages.unwrap_or_default().first() {
                let attributes = message.attributes.as_ref().expect("attributes");
                let count = attributes.values().next().expect("a count");
                return count.parse::<u32>().expect("a number");
            }
        }
        panic!("the message never became visible");
    }

    /// Waits until a condition holds; meanwhile nothing must be dead-lettered. Each turn is a long poll of the
    /// dead-letter queue.
    pub(crate) async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let dead = self.dead_letters_until(what, holds).await;
        assert_eq!(dead, [Value::Null; 0], "dead-lettered");
    }

    /// Waits until so many keys are done, and their messages gone.
    pub(crate) async fn until_done(&self, keys: usize) {
        let is_over = async || {
            let statuses = self.statuses().await;
            statuses.len() == keys && statuses.values().all(|status| status == "DONE") && self.messages().await == 0
        };
        self.until("all is done", is_over).await;
    }

    /// Waits until a condition holds, and leaves the dead-letter queue alone.
    pub(crate) async fn poll(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let (until, mut ticks) = (Instant::now() + SOON, interval(Duration::from_millis(100)));
        while !holds().await {
            assert!(Instant::now() < until, "not soon: {what}");
            ticks.tick().await;
        }
    }

    /// Waits until a condition holds, and takes what is dead-lettered by then: the note of each copy, `null` of one that
    /// has none.
    pub(crate) async fn dead_letters_until(&self, what: &str, holds: impl AsyncFn() -> bool) -> Vec<Value> {
        let until = Instant::now() + SOON;
        let mut notes = Vec::new();
        loop {
            // Looked at before the poll: what holds then has sent its copies.
            let holds = holds().await;
            assert!(holds || Instant::now() < until, "not soon: {what}; dead-lettered: {notes:?}");
            let poll = self.sqs.receive_message().queue_url(&self.dead).wait_time_seconds(i32::from(!holds));
            let poll = poll.max_number_of_messages(10).message_attribute_names(ATTRIBUTE).send().await;
            for copy in poll.expect("a poll").messages.unwrap_or_default() {
                let note = copy.message_attributes.and_then(|mut attributes| attributes.remove(ATTRIBUTE));
                let note = note.and_then(|note| note.string_value).unwrap_or("null".to_owned());
                notes.push(serde_json::from_str(&note).expect("JSON"));
            }
            if holds {
                return notes;
            }
        }
    }

    /// The status of every record, by its idempotency key; what a probe has written is none.
    pub(crate) async fn statuses(&self) -> BTreeMap<String, String> {
        let pages = self.dynamodb.scan().table_name("leasehold").consistent_read(true).into_paginator().items().send();
        let items: Vec<_> = pages.try_collect().await.expect("a scan");
        let text =
            |value: Option<&AttributeValue>| value.and_then(|value| value.as_s().ok()).cloned().unwrap_or_default();
        let records = items.iter().filter(|item| item.contains_key("status"));
        records.map(|item| (text(item.get("pk")), text(item.get("status")))).collect()
    }

    /// A named pipe in the folder, and the test's end of it to read from.
    pub(crate) fn pipe(&self, name: &str) -> Pipe {
        let path = self.path(name);
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
        assert!(made.success());
        Pipe(pipe::OpenOptions::new().open_receiver(path).expect("a pipe"))
    }
}

/// Makes a queue, with a redrive policy if it is no dead-letter queue, and gives its URL.
async fn create(sqs: &aws_sdk_sqs::Client, name: &str, policy: Option<&str>) -> String {
    let mut create = sqs.create_queue().queue_name(name);
    if let Some(policy) = policy {
        create = create.attributes(Fact::RedrivePolicy, policy);
    }
    if name.ends_with(".fifo") {
        create = create.attributes(Fact::FifoQueue, "true");
    }
    create.send().await.expect("a queue").queue_url.expect("a URL")
}

fn last_part(url: &str) -> &str {
    url.rsplit('/').next().expect("a part")
}

/// The reading end of a named pipe. It ends when all processes that had it open are gone.
pub(crate) struct Pipe(pipe::Receiver);

impl Pipe {
    /// Waits for one byte.
    pub(crate) async fn is_written_to(&mut self) {
        timeout(SOON, self.0.read_u8()).await.expect("is written soon").expect("is written");
    }

    /// Waits until nobody has it open any more.
    pub(crate) async fn is_let_go(&mut self) {
        timeout(SOON, self.0.read_to_end(&mut Vec::new())).await.expect("nobody is left soon").expect("can be read");
    }
}
