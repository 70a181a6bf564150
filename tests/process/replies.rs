//! What becomes of a message by the reply of its app, and that no reply harms the others: a table of replies, each with what
//! must follow from it.

use std::{collections::BTreeMap, fs};

use app::{App, Replies, Reply};

use crate::{
    apps::post::{Letter, Post},
    bench::Bench,
    worker::{Settings, Worker},
};

mod app;

/// In milliseconds, with the settings here.
const LEASE_AND_SKEW: u64 = 3_000 + 200;

/// What the worker's memory stays under, in KB; a reply of 100 MB would not fit.
const MEMORY: u64 = 100 << 10;

/// Messages that are answered well.
const OTHERS: usize = 30;

/// A message, the replies that it gets, and what must follow.
struct Case {
    name: &'static str,
    replies: Vec<Reply>,
    /// The attempt of each call.
    attempts: &'static [u64],
    /// Whether what was begun may still run, so that the next call waits for the lease's end.
    may_run: bool,
    /// The code under which it is dead-lettered, if it is.
    dead: Option<&'static str>,
}

impl Case {
    /// Done with the first reply.
    fn done(name: &'static str, reply: Reply) -> Self {
        Self { name, replies: vec![reply], attempts: &[1], may_run: false, dead: None }
    }

    /// Failed with this reply, and done with the next one.
    fn failed(name: &'static str, reply: Reply) -> Self {
        Self { replies: vec![reply, whole("200 OK")], attempts: &[1, 2], ..Self::done(name, whole("")) }
    }

    /// As failed, but without an answer to say that its work has ended.
    fn unanswered(name: &'static str, reply: Reply) -> Self {
        Self { may_run: true, ..Self::failed(name, reply) }
    }

    /// Again without an attempt, and done with the next reply.
    fn later(name: &'static str, reply: Reply) -> Self {
        Self { attempts: &[1, 1], ..Self::failed(name, reply) }
    }

    /// Dead-lettered, for each of so many calls has this reply.
    fn dead(name: &'static str, reply: Reply, attempts: &'static [u64], code: &'static str) -> Self {
        Self { attempts, dead: Some(code), ..Self::done(name, reply) }
    }
}

fn whole(head: &str) -> Reply {
    Reply::Whole(head.to_owned())
}

fn bytes(bytes: impl Into<Vec<u8>>) -> Reply {
    Reply::Bytes(bytes.into())
}

/// Replies after which the app is still there.
fn answers(elsewhere: &str) -> Vec<Case> {
    let long_head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let many_headers = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: x\r\n".repeat(10_000));
    vec![
        Case::done("204", bytes("HTTP/1.1 204 No Content\r\n\r\n")),
        Case::done("old", bytes("HTTP/1.0 200 OK\r\n\r\nby the connection's end")),
        Case::done("hints", bytes("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")),
        Case::failed("101", bytes("HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")),
        Case::done("short", bytes("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut")),
        Case::done("bad_chunks", bytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n")),
        Case::done("large", Reply::Large("200 OK")),
        Case::done("trickle", Reply::Trickle("HTTP/1.1 200 OK\r\n\r\n")),
        // A second reply, which nobody has asked for, must not be taken for that to the next request.
        Case::done("two", whole("200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 422 No")),
        Case::done("says_done", whole("500 No\r\nX-Leasehold-Outcome: done")),
        Case::failed("redirect_once", whole(&format!("307 Moved\r\nLocation: {elsewhere}"))),
        Case::dead("redirect", whole(&format!("302 Found\r\nLocation: {elsewhere}")), &[1, 2], "http_302"),
        Case::dead("401", whole("401 No\r\nWWW-Authenticate: Basic realm=\"x\""), &[1, 2], "http_401"),
        Case::failed("404", whole("404 No")),
        Case::failed("500", whole("500 No")),
        Case::failed("trickle_500", Reply::Trickle("HTTP/1.1 500 No\r\n\r\n")),
        Case::dead("large_500", Reply::Large("500 No"), &[1, 2], "http_500"),
        Case::dead("422", whole("422 No\r\nX-Leasehold-Reason: card declined"), &[1], "card_declined"),
        Case::dead("says_permanent", whole("200 OK\r\nX-Leasehold-Outcome: permanent"), &[1], "http_200"),
        Case::failed("says_retry", whole("200 OK\r\nX-Leasehold-Outcome: retry")),
        Case::later("says_not_yet", whole("422 No\r\nX-Leasehold-Outcome: not-yet\r\nRetry-After: 1")),
        Case::dead("says_what", whole("200 OK\r\nX-Leasehold-Outcome: well"), &[1, 2], "bad_outcome"),
        Case::unanswered("504", whole("504 No")),
        Case::unanswered("hangs_up", bytes("")),
        Case::unanswered("cut", bytes("HTTP/1.1 200 OK\r\nContent-Le")),
        Case::unanswered("long_head", bytes(long_head)),
        Case::unanswered("many_headers", bytes(many_headers)),
        Case::unanswered("trickling_head", Reply::Trickle("HTTP/1.1 200 OK\r\nX: ")),
        Case::unanswered("silence", Reply::Silence),
        Case {
            may_run: true,
            ..Case::dead("garbage", bytes(b"\x16\x03\x01\0\xff\r\n\r\n".as_slice()), &[1, 2], "no_reply")
        },
    ]
}

/// Replies that say that the app is not there, for all.
fn absences() -> Vec<Case> {
    vec![
        Case::later("503", whole("503 No\r\nRetry-After: 2")),
        Case::later("429", whole("429 No")),
        Case::later("says_unavailable", whole("200 OK\r\nX-Leasehold-Outcome: unavailable")),
    ]
}

fn replies(cases: &[Case]) -> Replies {
    cases.iter().map(|case| (case.name.to_owned(), case.replies.clone())).collect()
}

fn settings(bench: &Bench, app: &App) -> Settings {
    bench
        .settings("")
        .short_leases()
        .set("LEASEHOLD_JOBS_HANDLER", &app.url)
        .set("LEASEHOLD_CONCURRENCY", "40")
        .set("LEASEHOLD_MAX_ATTEMPTS", "2")
        .set("LEASEHOLD_BACKOFF", "1s..1s")
        .set("LEASEHOLD_HANDLER_TIMEOUT", "2s")
}

/// Sends a message for each case and the others after them, and waits until the worker is done with all.
async fn is_worked_off(post: &Post, cases: &[Case], worker: &mut Worker) {
    let names = cases.iter().map(|case| case.name.to_owned()).chain((0..OTHERS).map(|number| format!("ok-{number}")));
    post.send(names.map(|name| Letter::new(format!(r#"{{"id":"{name}"}}"#)))).await;
    worker.settles(cases.len() + OTHERS).await;
}

/// What followed from each reply is what must follow, and the others are done with a call each.
async fn check(bench: &Bench, post: &Post, app: &App, cases: &[Case]) {
    let (calls, statuses, dead) = (app.calls(), bench.statuses().await, post.dead("id").await);
    let status = |name: &str| statuses.get(&format!("jobs#{name}")).map(String::as_str);
    for Case { name, attempts, may_run, dead: code, .. } in cases {
        let calls: Vec<_> = calls.iter().filter(|call| call.name == *name).collect();
        assert_eq!(calls.iter().map(|call| call.attempt).collect::<Vec<_>>(), *attempts, "{name}");
        assert_eq!(dead.get(*name).map(String::as_str), *code, "{name}");
        assert_eq!(status(name), Some(if code.is_some() { "DEAD" } else { "DONE" }), "{name}");
        let waits = calls.windows(2).all(|pair| pair[1].fence - pair[0].fence >= LEASE_AND_SKEW);
        assert!(waits || !may_run, "{name}: {calls:?}");
    }
    for name in (0..OTHERS).map(|number| format!("ok-{number}")) {
        assert_eq!((calls.iter().filter(|call| call.name == name).count(), status(&name)), (1, Some("DONE")), "{name}");
    }
    assert_eq!(dead.len(), cases.iter().filter(|case| case.dead.is_some()).count(), "{dead:?}");
    assert_eq!(bench.messages().await, 0);
}

/// The most memory that a process ever had, in KB, where the system tells it.
fn memory(worker: &Worker) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", worker.id())).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_each_reply_has_what_follows_from_it_and_none_harms_the_others() {
    let (bench, elsewhere) = (Bench::new().await, App::new(Replies::new()).await);
    let cases = answers(&elsewhere.url);
    let app = App::new(replies(&cases)).await;
    let post = Post::new(&bench).await;
    let mut worker = settings(&bench, &app).start();
    is_worked_off(&post, &cases, &mut worker).await;
    if let Some(memory) = memory(&worker) {
        assert!(memory < MEMORY, "{memory} KB");
    }
    let numbers = worker.stops().await.clean_report();
    check(&bench, &post, &app, &cases).await;
    assert_eq!(elsewhere.calls(), [], "redirects are not followed");
    let calls = app.calls();
    let last_of_others = calls.iter().rposition(|call| call.name.starts_with("ok-"));
    let second = calls.iter().rposition(|call| call.name == "silence");
    assert!(last_of_others < second, "the others are done while one is waited for: {calls:?}");
    let dead = cases.iter().filter(|case| case.dead.is_some()).count() as u64;
    let done = (cases.len() + OTHERS) as u64 - dead;
    assert_eq!((numbers.get("done"), numbers.get("dead")), (Some(&done), Some(&dead)), "{numbers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_that_says_it_is_not_there_pauses_the_queue_for_as_long_as_it_says_and_uses_no_attempt() {
    let bench = Bench::new().await;
    let cases = absences();
    let app = App::new(replies(&cases)).await;
    let post = Post::new(&bench).await;
    let mut worker = settings(&bench, &app).start();
    is_worked_off(&post, &cases, &mut worker).await;
    let ended = worker.stops().await;
    let numbers = ended.clean_report();
    check(&bench, &post, &app, &cases).await;
    let expected = BTreeMap::from([("done".to_owned(), (cases.len() + OTHERS) as u64), ("released".to_owned(), 3)]);
    assert_eq!(numbers, expected);
    let again: Vec<_> = app.calls().into_iter().filter(|call| call.name == "503").map(|call| call.fence).collect();
    assert!(again[1] - again[0] >= 2_000, "{again:?}");
    for told in ["away: no new messages are received", "letting a little through", "back; going on"] {
        assert!(ended.log.iter().any(|line| line.contains(told)), "{told}: {}", ended.log.join("\n"));
    }
}
