//! A log that cannot be written: its disk is full, or nobody reads it.

use std::{fs::File, process::Stdio};

use crate::{bench::Bench, cases::check_all};

/// More than a pipe holds that nobody reads, which is 64 KiB on Linux: <https://man7.org/linux/man-pages/man7/pipe.7.html>.
const KEYS: usize = 120;

/// Where the log and what is told of errors goes.
#[derive(Debug, Clone, Copy)]
enum To {
    FullDisk,
    UnreadPipe,
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_a_worker_whose_log_cannot_be_written_works_on_and_stops_cleanly() {
    check_all([To::FullDisk, To::UnreadPipe], check).await;
}

async fn check(to: To) {
    let bench = Bench::new().await;
    bench.send(0..KEYS).await;
    let script = "echo a word; echo another >&2; $begin; $end";
    let settings = bench.settings(script).set("LEASEHOLD_CONCURRENCY", "10");
    let (_unread, worker) = match to {
        To::FullDisk => {
            let full = || File::options().write(true).open("/dev/full").expect("a full disk");
            (None, settings.start_writing_to(full().into(), full().into()))
        }
        To::UnreadPipe => {
            let (unread, pipe) = std::io::pipe().expect("a pipe");
            let errors = Stdio::from(pipe.try_clone().expect("its end"));
            (Some(unread), settings.start_writing_to(pipe.into(), errors))
        }
    };
    let is_over = async || bench.effects().len() == KEYS && bench.messages().await == 0;
    bench.until("all is done", is_over).await;
    assert_eq!(worker.stops_unheard().await, Some(0));
    let calls = bench.calls_by_key();
    assert!(calls.len() == KEYS && calls.values().all(|calls| *calls == 1), "{calls:?}");
    assert!(bench.statuses().await.into_values().eq(std::iter::repeat_n("DONE", KEYS)));
}
