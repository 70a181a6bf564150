//! Real apps as handlers: the examples in Python and in Node, whose book says what was charged.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    time::Duration,
};

use futures_util::FutureExt;
use rustix::process::Signal;
use tokio::time::timeout;

use crate::{bench::Bench, worker::Ended};
use post::{Letter, Post};
use program::{App, Language};

mod hostile;
pub(crate) mod post;
pub(crate) mod program;

const PAYMENTS: usize = 200;
const DUPLICATES: usize = 60;

/// Handlers at once.
const CONCURRENCY: usize = 20;

/// Runs a test with both apps side by side, but for one that this machine cannot run.
pub(crate) async fn with_both(test: impl AsyncFn(Language)) {
    let passes = async |language: Language| {
        !language.is_here().await || AssertUnwindSafe(test(language)).catch_unwind().await.is_ok()
    };
    let (python, node) = tokio::join!(passes(Language::Python), passes(Language::Node));
    assert!(python && node, "passed with Python: {python}, with Node: {node}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t1_apps_charge_payments_and_their_duplicates_once() {
    with_both(drains).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_restarts_of_apps_in_mid_load_cost_attempts_only_of_requests_that_broke() {
    with_both(restarts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_on_a_connection_that_an_app_is_about_to_close() {
    with_both(idles).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_whatever_stands_in_keys_and_attributes_reaches_apps_as_what_it_is() {
    with_both(hostile::reaches_the_app).await;
}

fn payments() -> impl Iterator<Item = Letter> {
    (0..PAYMENTS).map(|number| Letter::payment(format!("p-{number}")))
}

/// Of each payment, one charge, under its key.
async fn check_book(app: &App) {
    let book = app.book().await;
    let mut charged: Vec<_> = book.iter().map(|charge| (charge.key.clone(), charge.payment_id.clone())).collect();
    let mut expected: Vec<_> =
        (0..PAYMENTS).map(|number| (format!("\"jobs#p-{number}\""), format!("p-{number}"))).collect();
    charged.sort();
    expected.sort();
    assert_eq!(charged, expected);
    assert!(book.iter().all(|charge| charge.cents == 1200), "{book:?}");
}

/// The keys of attempts that failed, each with how often; all because the reply did not come.
fn broken(ended: &Ended) -> BTreeMap<String, usize> {
    let mut broken = BTreeMap::new();
    for line in ended.log.iter().filter(|line| line.contains("the attempt failed")) {
        assert!(line.contains(r#""code":"no_reply""#), "{line}");
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        *broken.entry(format!("{:?}", line["pk"].as_str().expect("a key"))).or_default() += 1;
    }
    broken
}

async fn drains(language: Language) {
    let bench = Bench::new().await;
    let mut app = App::start(language, &bench, "5").await;
    let post = Post::new(&bench).await;
    post.send(payments().chain(payments().take(DUPLICATES))).await;
    let mut worker = app.settings(&bench).start();
    worker.says_times("\"deleted\"", PAYMENTS + DUPLICATES).await;
    let ended = worker.stops().await;
    let numbers = ended.clean_report();
    assert_eq!((numbers.get("done"), numbers.get("suppressed")), (Some(&200), Some(&60)), "{numbers:?}");
    assert_eq!(broken(&ended), BTreeMap::new());
    app.signal(Signal::TERM);
    assert_eq!(app.ends().await, Some(0));
    let calls = app.calls();
    assert!(calls.len() == PAYMENTS && calls.values().all(|calls| *calls == 1), "{calls:?}");
    check_book(&app).await;
    assert_eq!((bench.messages().await, post.dead("payment_id").await), (0, BTreeMap::new()));
}

async fn restarts(language: Language) {
    let bench = Bench::new().await;
    let mut app = App::start(language, &bench, "5").await;
    let post = Post::new(&bench).await;
    post.send(payments()).await;
    let mut worker = app.settings(&bench).start();
    // It finishes what it was sent, and is away until a probe has missed it.
    app.says("charged", 40).await;
    app.signal(Signal::TERM);
    assert_eq!(app.ends().await, Some(0));
    worker.says("still away").await;
    app.starts_again().await;
    worker.says("back; going on").await;
    // It stands still until a request waits in each slot, and is killed.
    app.says("charged", 40).await;
    app.signal(Signal::STOP);
    let in_hand = async || {
        let statuses = bench.statuses().await;
        statuses.into_iter().filter_map(|(key, status)| (status == "RUNNING").then_some(key)).collect::<Vec<_>>()
    };
    bench.until("all slots are taken", async || in_hand().await.len() == CONCURRENCY).await;
    let lost = in_hand().await;
    app.signal(Signal::KILL);
    assert_eq!(app.ends().await, None);
    worker.says("still away").await;
    app.starts_again().await;
    worker.says("back; going on").await;
    bench.until("all is done", async || bench.messages().await == 0).await;
    let ended = worker.stops().await;
    let numbers = ended.clean_report();
    assert_eq!((numbers.get("done"), numbers.get("dead")), (Some(&200), None), "{numbers:?}");
    check_book(&app).await;
    // What was charged by an app that could not say so any more was asked for again, and nothing else.
    let broken = broken(&ended);
    let lost: BTreeSet<_> = lost.into_iter().map(|key| format!("{key:?}")).collect();
    assert!(broken.iter().all(|(key, times)| *times == 1 && lost.contains(key)), "{broken:?}, and in hand {lost:?}");
    assert!(broken.len() > CONCURRENCY / 2, "{broken:?}");
    let calls = app.calls();
    let again: Vec<_> = calls.iter().filter(|(_, calls)| **calls > 1).collect();
    assert!(calls.len() == PAYMENTS, "{calls:?}");
    assert!(again.iter().all(|(key, calls)| **calls == 2 && broken.contains_key(*key)), "{again:?}");
}

/// The worker closes idle connections after a second. Where the app does that later, no request meets a connection that is
/// just being closed, not even when messages come at that very moment. Where it does so sooner, one can, which costs its
/// attempt and nothing else.
async fn idles(language: Language) {
    const SOONER: &str = "0.3";
    let idle = async |keep_alive: &'static str, gaps: &[u64]| {
        let bench = Bench::new().await;
        let mut app = App::start(language, &bench, keep_alive).await;
        let post = Post::new(&bench).await;
        let mut worker = app.settings(&bench).start();
        for gap in gaps {
            post.send((0..CONCURRENCY).map(|number| Letter::payment(format!("after {gap}: {number}")))).await;
            worker.says_times("\"deleted\"", CONCURRENCY).await;
            app.is_left_alone(Duration::from_millis(*gap)).await;
        }
        // An app ends with its last connection, which is not for it to close.
        app.signal(Signal::TERM);
        let end = timeout(Duration::from_secs(10), app.ends()).await;
        assert_eq!(end.expect("the worker has closed its connections"), Some(0));
        let ended = worker.stops().await;
        let (payments, broken) = (gaps.len() * CONCURRENCY, broken(&ended));
        if keep_alive != SOONER {
            assert_eq!(broken, BTreeMap::new(), "with {keep_alive} s");
        }
        let numbers = ended.clean_report();
        let left = numbers.get("left").map_or(0, |left| *left as usize);
        assert_eq!((numbers.get("done"), left), (Some(&(payments as u64)), broken.len()), "{numbers:?}");
        assert_eq!(app.book().await.len(), payments);
    };
    tokio::join!(
        idle(SOONER, &[100, 250, 280, 290, 300, 500]),
        idle("1.2", &[1110, 1130, 1150, 1160, 1170, 1180, 1190]),
        idle("30", &[920, 940, 960, 970, 980, 990, 1000]),
    );
}
