//! Real programs. Whether all of a group is gone is seen at a pipe that its members hold open: it ends with the last.

use std::{fs, os::unix::fs::symlink, path::PathBuf, sync::Arc};

use tempfile::TempDir;
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe,
    task::JoinSet,
    time::{Duration, Instant},
};

use super::*;
use crate::{
    clock::Millis,
    handler::{CancelCause, error::Verdict},
    message::{Attribute, AttributeValue, Sns},
};

/// Far more than anything here takes, on the slowest machine.
const SOON: Duration = Duration::from_secs(20);

fn message(body: impl Into<String>) -> Message {
    Message { id: "m-1".to_owned(), body: body.into(), receive_count: 2, ..Message::default() }
}

fn shell(script: &str) -> ExecHandler {
    ExecHandler::new("/bin/sh", ["-c", script])
}

async fn run_shell(script: &str, body: impl Into<String>) -> HandlerResult {
    let message = message(body);
    let cx = JobContext::of(&message);
    timeout(SOON, shell(script).handle(&Raw(Arc::new(message)), &cx)).await.expect("ends soon")
}

/// A named pipe that programs hold open.
struct Held {
    folder: TempDir,
    reader: pipe::Receiver,
}

impl Held {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("held");
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
        assert!(made.success());
        Self { reader: pipe::OpenOptions::new().open_receiver(path).expect("a pipe"), folder }
    }

    fn path(&self) -> String {
        self.folder.path().join("held").display().to_string()
    }

    async fn reads(&mut self, text: &str) {
        let mut read = vec![0; text.len()];
        timeout(SOON, self.reader.read_exact(&mut read)).await.expect("is written soon").expect("is written");
        assert_eq!(String::from_utf8_lossy(&read), text);
    }

    /// Waits until nobody holds it any more.
    async fn is_let_go(&mut self) {
        let mut rest = Vec::new();
        timeout(SOON, self.reader.read_to_end(&mut rest)).await.expect("nobody is left soon").expect("can be read");
    }
}

#[tokio::test]
async fn the_exit_code_is_the_verdict() {
    let verdicts = [
        ("exit 65", Verdict::Permanent, "exit_65"),
        ("exit 75", Verdict::NotYet(Duration::from_secs(30)), "exit_75"),
        ("exit 1", Verdict::Retry(None), "exit_1"),
        ("kill -9 $$", Verdict::Retry(None), "signal_9"),
    ];
    assert!(run_shell("exit 0", "").await.is_ok());
    for (script, verdict, code) in verdicts {
        let error = run_shell(script, "").await.expect_err(script);
        assert_eq!((error.verdict, error.code()), (verdict, code), "{script}");
    }
}

#[tokio::test]
async fn body_and_facts_reach_the_program() {
    let folder = TempDir::new().expect("a folder");
    let out = folder.path().join("out");
    let mut message = message("{\"id\": 1}");
    message.group = Some("g".to_owned());
    message.deduplication_id = Some("d".to_owned());
    message.trace_header = Some("Root=1".to_owned());
    message.attributes.insert("order-id".to_owned(), Attribute::text("7"));
    let cx = JobContext::of(&message);
    let script = format!("{{ cat; echo; env | grep ^LEASEHOLD_ | sort; }} > {}", out.display());
    assert!(shell(&script).handle(&Raw(Arc::new(message)), &cx).await.is_ok());
    let told = fs::read_to_string(out).expect("was written");
    let (deadline, told): (Vec<_>, Vec<_>) = told.lines().partition(|line| line.starts_with("LEASEHOLD_DEADLINE="));
    let expected = "{\"id\": 1}\nLEASEHOLD_ATTEMPT=3\nLEASEHOLD_ATTRIBUTE_ORDER_ID=7\nLEASEHOLD_DEDUPLICATION_ID=d\n\
                    LEASEHOLD_FENCE=42\n\
                    LEASEHOLD_GROUP_ID=g\nLEASEHOLD_IDEMPOTENCY_KEY=payments#k-1\nLEASEHOLD_MESSAGE_ID=m-1\n\
                    LEASEHOLD_QUEUE=payments\nLEASEHOLD_RECEIVE_COUNT=2\nLEASEHOLD_TRACE_HEADER=Root=1";
    assert_eq!(told.join("\n"), expected);
    let deadline: u64 = deadline[0].trim_start_matches("LEASEHOLD_DEADLINE=").parse().expect("a number");
    let left = deadline.saturating_sub(Clock::system().wall().0 / 1000);
    assert!((290..=300).contains(&left), "{left}");
}

#[tokio::test]
async fn a_large_body_that_is_not_read_neither_blocks_nor_fails() {
    let body = "x".repeat(1024 * 1024);
    assert!(run_shell("exit 0", body.clone()).await.is_ok());
    // Closed while the body is being written, with the program going on.
    assert!(run_shell("exec 0<&-; kill -0 $$; exit 0", body.clone()).await.is_ok());
    assert!(run_shell("cat; exit 0", body).await.is_ok(), "what is echoed is read");
}

#[tokio::test]
async fn of_a_flood_on_standard_error_only_the_end_is_kept() {
    let script = "head -c 20000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo 'disk full' >&2; exit 1";
    let error = run_shell(script, "").await.expect_err("exit 1").to_string();
    assert!(error.starts_with("exit status: 1: disk full\n…xxx"), "{error:.60}");
    assert!(error.len() < 2 * said::KEPT, "{}", error.len());
}

#[tokio::test]
async fn d2_what_a_program_leaves_running_is_killed_and_not_waited_for() {
    let mut held = Held::new();
    let script = format!("exec 3>{}; trap '' TERM; sleep 300 & exit 3", held.path());
    let began = Instant::now();
    assert_eq!(run_shell(&script, "").await.expect_err("exit 3").code(), "exit_3");
    held.is_let_go().await;
    assert!(began.elapsed() < Duration::from_secs(300));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_daemon_that_left_the_group_with_the_pipes_is_not_waited_for() {
    let folder = TempDir::new().expect("a folder");
    let left = folder.path().join("left");
    let daemon = format!("setsid sh -c 'touch {0}; exec sleep 5' & until [ -e {0} ]; do :; done", left.display());
    let began = Instant::now();
    assert!(run_shell(&daemon, "").await.is_ok());
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn told_to_stop_a_program_gets_sigterm_and_what_it_then_says_counts() {
    let (mut held, message) = (Held::new(), message(""));
    let cx = JobContext::of(&message);
    let script = format!("exec 3>{}; trap 'exit 0' TERM; echo up >&3; while :; do sleep 0.05; done", held.path());
    let stop = async {
        held.reads("up").await;
        cx.cancelled.cancel(CancelCause::Shutdown);
    };
    let handler = shell(&script);
    let raw = Raw(Arc::new(message));
    let (result, ()) = tokio::join!(timeout(SOON, handler.handle(&raw, &cx)), stop);
    assert!(result.expect("ends soon").is_ok());
    held.is_let_go().await;
}

#[tokio::test]
async fn d2_a_dropped_run_leaves_nobody_of_its_group() {
    let mut held = Held::new();
    let script = format!("trap '' TERM; exec 3>{}; sleep 300 & echo up >&3; sleep 300", held.path());
    let mut runs = JoinSet::new();
    runs.spawn(async move { run_shell(&script, "").await });
    held.reads("up").await;
    runs.shutdown().await;
    held.is_let_go().await;
}

#[tokio::test]
async fn a_program_that_is_missing_is_not_there_until_it_appears() {
    let folder = TempDir::new().expect("a folder");
    let path: PathBuf = folder.path().join("handle");
    let handler = ExecHandler::new(path.display().to_string(), ["-x"]);
    let (raw, cx) = (Raw(Arc::new(message(""))), JobContext::of(&message("")));
    let is_away = async || {
        let error = handler.handle(&raw, &cx).await.expect_err("cannot be run");
        error.is_unavailable() && handler.probe().await.is_err_and(|error| error.is_unavailable())
    };
    assert!(is_away().await, "missing");
    fs::write(&path, "#!/bin/sh\n").expect("is written");
    assert!(is_away().await, "not executable");
    // A link, for a file that was just written cannot be run while another thread's child still has it open.
    fs::remove_file(&path).expect("is removed");
    symlink("/bin/echo", &path).expect("is linked");
    assert!(handler.probe().await.is_ok());
    assert!(handler.handle(&raw, &cx).await.is_ok());
    assert!(ExecHandler::new("sh", [""; 0]).probe().await.is_ok(), "found in PATH");
    assert!(ExecHandler::new("no-such-program", [""; 0]).probe().await.is_err());
}

#[tokio::test]
async fn what_sns_says_reaches_the_program_as_it_is() {
    let mut message = message("");
    message.sns = Some(Sns {
        topic_arn: "arn:aws:sns:r:1:t".to_owned(),
        message_id: "s-1".to_owned(),
        subject: Some("50 % f\u{fc}r Zo\u{eb}".to_owned()),
        published_at: Some(Millis(1_335_920_046_655)),
        sequence_number: None,
    });
    let of_sns = |message: &Message| {
        let told = facts::variables(message, &JobContext::of(message), None, Clock::system().wall());
        told.into_iter().filter(|(name, _)| name.contains("SNS")).collect::<Vec<_>>()
    };
    let expected = [
        ("LEASEHOLD_SNS_MESSAGE_ID", "s-1"),
        ("LEASEHOLD_SNS_PUBLISHED_AT", "1335920046"),
        ("LEASEHOLD_SNS_SUBJECT", "50 % f\u{fc}r Zo\u{eb}"),
        ("LEASEHOLD_SNS_TOPIC_ARN", "arn:aws:sns:r:1:t"),
    ];
    assert_eq!(of_sns(&message), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    message.sns = Some(Sns { subject: Some("no\0body".to_owned()), ..Sns::default() });
    assert!(of_sns(&message).iter().all(|(name, _)| name != "LEASEHOLD_SNS_SUBJECT"), "no program can be given it");
}

#[tokio::test]
async fn attributes_are_bounded_and_what_is_left_out_is_named() {
    let mut message = message("");
    let mut add = |name: &str, value| message.attributes.insert(name.to_owned(), value);
    add("bytes", Attribute { data_type: "Binary".into(), value: AttributeValue::Binary(vec![0, 255]) });
    add("large", Attribute::text("x".repeat(70 * 1024)));
    add("order-id", Attribute::text("1"));
    add("order.id", Attribute::text("2"));
    let told = facts::variables(&message, &JobContext::of(&message), None, Clock::system().wall());
    let attribute = |name: &str| told.get(&format!("LEASEHOLD_ATTRIBUTE{name}")).map(String::as_str);
    assert_eq!(attribute("_BYTES"), Some("00ff"));
    assert_eq!(attribute("_ORDER_ID"), Some("1"));
    assert_eq!(attribute("_LARGE"), None);
    assert_eq!(attribute("S_OMITTED"), Some("large,order.id"));
}

#[tokio::test]
async fn t4_a_senders_endless_attribute_name_does_not_keep_a_program_from_being_run() {
    let mut message = message("");
    // More than Linux takes in one variable. SQS has no such names, but one in our own attribute may be anybody's.
    message.attributes.insert("n".repeat(200 * 1024), Attribute::text(""));
    message.attributes.extend((0..200).map(|i| (format!("{i:0>250}"), Attribute::text("x".repeat(64 * 1024)))));
    let cx = JobContext::of(&message);
    let script = "test ${#LEASEHOLD_ATTRIBUTES_OMITTED} -gt 10000";
    assert!(shell(script).handle(&Raw(Arc::new(message)), &cx).await.is_ok());
}

#[test]
fn recorded_results_go_along_as_far_as_there_is_room() {
    let message = message("");
    let told = |steps: String| {
        let told = Told { url: "http://127.0.0.1:9465/jobs/1".to_owned(), token: "t".to_owned(), steps };
        facts::variables(&message, &JobContext::of(&message), Some(&told), Clock::system().wall())
    };
    let few = told("{\"é\": 1}".to_owned());
    assert_eq!((few["LEASEHOLD_JOB_TOKEN"].as_str(), few["LEASEHOLD_STEPS"].as_str()), ("t", "{\"é\": 1}"));
    let many = told("x".repeat(64 * 1024 + 1));
    assert!(many.contains_key("LEASEHOLD_JOB_URL") && !many.contains_key("LEASEHOLD_STEPS"));
}

#[tokio::test]
async fn what_a_program_is_told_is_no_setting_for_what_it_runs_itself() {
    let mut message = message("");
    (message.group, message.deduplication_id) = (Some("g".to_owned()), Some("d".to_owned()));
    message.trace_header = Some("Root=1".to_owned());
    message.sns = Some(Sns { topic_arn: "t".to_owned(), subject: Some("s".to_owned()), ..Sns::default() });
    (0..2000).for_each(|n| drop(message.attributes.insert(format!("a{n}"), Attribute::text("x".repeat(100)))));
    let told = Told { url: "http://127.0.0.1:1/jobs/1".to_owned(), token: "t".to_owned(), steps: "{}".to_owned() };
    let told = facts::variables(&message, &JobContext::of(&message), Some(&told), Clock::system().wall());
    let (config, warnings) = crate::Config::from_vars_for_tools(told.clone()).expect("no slip of a setting");
    assert!(config.queues.is_empty() && warnings.is_empty(), "{warnings:?}");
    let alone = [("LEASEHOLD_QUEUE".to_owned(), "x".to_owned())];
    assert!(crate::Config::from_vars_for_tools(alone).is_err(), "outside of a program it is a slip");
}
