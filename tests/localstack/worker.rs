//! The whole of it: the template deployed, the real command, a program as handler, and the queue drained.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use leasehold::{
    aws::{self, Aws},
    clock::Clock,
};
use rustix::process::{Pid, Signal, kill_process};

const KEYS: usize = 6;

/// Deploys `infra/queue.yaml` with a queue and a table of their own, and gives back what a worker needs to find them.
fn deploy(name: &str) -> BTreeMap<String, String> {
    let up = concat!(env!("CARGO_MANIFEST_DIR"), "/localstack/up");
    let (queue, table) = (format!("QueueName={name}"), format!("TableName={name}"));
    let output = Command::new(up).args([name, &queue, &table]).output().expect("localstack/up can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("text");
    let exports = lines.lines().filter_map(|line| line.strip_prefix("export ")?.split_once('='));
    exports.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Kills what a failed test would leave running.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_drains_a_queue_of_the_template_and_each_key_is_handled_once() {
    let Some(endpoint) = crate::endpoint() else { return };
    let name = format!("drain-{}", &Clock::system().token()[..12]);
    let found = deploy(&name);
    let url = found.iter().find(|(name, _)| name.ends_with("_URL") && name.starts_with("LEASEHOLD_"));
    let sqs = Aws::new(&aws::local(&endpoint)).sqs_client();
    for key in (0..KEYS).chain(0..KEYS) {
        let body = format!(r#"{{"id":"{key}"}}"#);
        let url = url.expect("the queue's URL").1;
        sqs.send_message().queue_url(url).message_body(body).send().await.expect("is sent");
    }

    let folder = tempfile::tempdir().expect("a folder");
    let mut child = Running(
        Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .arg("run")
            .envs(&found)
            .envs([
                ("LEASEHOLD_KEY", "/id"),
                ("LEASEHOLD_HANDLER", r#"["/bin/sh","-c","cat >> handled; echo >> handled"]"#),
                // One after the other: a duplicate then finds its key done, and need not wait for a lease to end.
                ("LEASEHOLD_CONCURRENCY", "1"),
                ("LEASEHOLD_WAIT_TIME", "1s"),
                ("LEASEHOLD_LOG", "info,leasehold=debug"),
                ("LEASEHOLD_LOG_FORMAT", "json"),
            ])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command can be run"),
    );
    let mut log = BufReader::new(child.0.stdout.take().expect("a log")).lines().map(|line| line.expect("a line"));
    let deleted = log.by_ref().filter(|line| line.contains("\"deleted\"")).take(2 * KEYS).count();
    assert_eq!(deleted, 2 * KEYS);
    kill_process(Pid::from_child(&child.0), Signal::TERM).expect("is told to stop");
    let last = log.last().expect("a report");
    assert!(child.0.wait().expect("an exit code").success());
    assert!(last.contains(r#""done":6"#) && last.contains(r#""suppressed":6"#), "{last}");

    let mut handled: Vec<_> =
        fs::read_to_string(folder.path().join("handled")).expect("a file").lines().map(str::to_owned).collect();
    handled.sort_unstable();
    assert_eq!(handled, (0..KEYS).map(|key| format!(r#"{{"id":"{key}"}}"#)).collect::<Vec<_>>());
}
