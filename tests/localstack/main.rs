//! Everything that needs LocalStack, which this starts if it does not answer.
//!
//! Where it cannot start, the tests say so in one loud line and pass; with `LEASEHOLD_REQUIRE_LOCALSTACK=1`, as in CI,
//! they fail.
#![expect(clippy::expect_used, reason = "helpers of tests, which clippy takes for production code here")]

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    sync::OnceLock,
    time::Duration,
};

#[cfg(feature = "s3")]
use contract::bodies;
use contract::{queue, sqs};

#[path = "../contract"]
mod contract {
    #[cfg(feature = "s3")]
    pub(crate) mod bodies;
    pub(crate) mod queue;
    pub(crate) mod sqs;
}
#[cfg(feature = "s3")]
mod bodies_on_localstack;
mod guard;
mod queue_on_localstack;
mod worker;

/// Where LocalStack listens.
const ADDRESS: &str = "127.0.0.1:4566";

/// Where `localstack/up` says that this machine cannot run it (`EX_UNAVAILABLE`).
const CANNOT_START: i32 = 69;

/// LocalStack's endpoint; `None` where it cannot start and need not.
fn endpoint() -> Option<String> {
    static STARTED: OnceLock<bool> = OnceLock::new();
    STARTED.get_or_init(|| answers() || start()).then(|| format!("http://{ADDRESS}"))
}

fn answers() -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(ADDRESS)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /_localstack/health HTTP/1.0\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        std::io::Result::Ok(reply.contains("\"sqs\""))
    };
    ask().unwrap_or(false)
}

/// Starts it, and tells whether it runs. Fails the test that asked where it should have started.
fn start() -> bool {
    let up = concat!(env!("CARGO_MANIFEST_DIR"), "/localstack/up");
    let output = Command::new(up).output().expect("localstack/up can be run");
    if output.status.success() {
        return true;
    }
    let why = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(CANNOT_START), "localstack/up failed: {why}");
    #[expect(clippy::disallowed_methods, reason = "a switch of the tests, no setting of the worker")]
    let required = std::env::var("LEASEHOLD_REQUIRE_LOCALSTACK").is_ok_and(|value| value == "1");
    assert!(!required, "LocalStack is required and cannot start: {why}");
    // Written past the test harness, which shows nothing of a test that passes.
    let line = "\n*** LocalStack CANNOT START HERE: every test on it was SKIPPED (localstack/up says why) ***\n";
    std::io::stderr().write_all(line.as_bytes()).expect("a line");
    false
}
