//! A thousand messages through three workers that are killed again and again, with duplicates and poison among them: in
//! the end the books balance.
//!
//! A seed that breaks them prints itself. To replay, or for more messages: `SEED=123 MESSAGES=10000 cargo test --all-features
//! --test process thousands`. What is slow here is debug builds of everything: some 25 ms of a processor for each message.
//! Ten thousand, with as many kills, took 95 s on two busy processors with SEED=20261130, 89 s with SEED=11652574415086198195,
//! and the books balanced.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex},
};

use fastrand::Rng;
use http_body_util::{BodyExt, Empty};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustix::process::Signal;
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time::timeout};

use crate::{
    apps::post::{Letter, Post},
    bench::{Bench, SOON},
    worker::Worker,
};

const MESSAGES: u64 = 1_000;

/// Of all messages one in so many is sent a second time, and the work of one in so many fails for good.
const DUPLICATES: usize = 10;
const POISON: usize = 50;

const CONCURRENCY: usize = 20;
const KILLS: usize = 8;

/// What the bank knows of a key.
#[derive(Debug, Default)]
struct Account {
    calls: usize,
    effects: usize,
    running: usize,
    overlaps: usize,
}

/// A bank that lets a payment take effect once under each key, and counts.
#[derive(Debug, Default)]
struct Bank {
    accounts: Mutex<BTreeMap<String, Account>>,
    effects: watch::Sender<usize>,
}

/// A call that is under way, until its reply is written or its caller has gone.
struct Running<'a>(&'a Bank, &'a str);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.with(self.1, |account| account.running -= 1);
    }
}

impl Bank {
    async fn serve(self: Arc<Self>, listener: TcpListener) {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let bank = Arc::clone(&self);
            let service = service_fn(move |request| Arc::clone(&bank).answer(request));
            // A worker that is killed breaks its connections.
            let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            connections.spawn(async move { drop(serving.await) });
            while connections.try_join_next().is_some() {}
        }
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
        let key = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
        let key = key.trim_matches('"').trim_start_matches("jobs#").to_owned();
        self.with(&key, |account| {
            account.calls += 1;
            account.overlaps += usize::from(account.running > 0);
            account.running += 1;
        });
        let _running = Running(&self, &key);
        // Its caller may be dead by then.
        let _ = request.into_body().collect().await;
        let mut response = Response::new(Empty::new());
        if key.starts_with("poison") {
            *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
            return Ok(response);
        }
        let is_first = self.with(&key, |account| {
            let is_first = account.effects == 0;
            account.effects += usize::from(is_first);
            is_first
        });
        self.effects.send_modify(|effects| *effects += usize::from(is_first));
        Ok(response)
    }

    fn with<T>(&self, key: &str, act: impl FnOnce(&mut Account) -> T) -> T {
        act(self.accounts.lock().expect("no panic").entry(key.to_owned()).or_default())
    }

    /// Waits until so many payments have taken effect, as long as now and then one more does.
    async fn has_done(&self, effects: usize) {
        let mut watch = self.effects.subscribe();
        while *watch.borrow_and_update() < effects {
            timeout(SOON, watch.changed()).await.expect("another soon").expect("the bank is here");
        }
    }
}

/// What is sent: each key, some of them twice, in any order.
fn keys(messages: usize, chance: &mut Rng) -> (BTreeSet<String>, BTreeSet<String>, Vec<String>) {
    let (duplicates, poison) = (messages / DUPLICATES, messages / POISON);
    let good: Vec<_> = (0..messages - duplicates - poison).map(|number| format!("good-{number}")).collect();
    let poison: BTreeSet<_> = (0..poison).map(|number| format!("poison-{number}")).collect();
    let duplicates = chance.choose_multiple(good.iter(), duplicates).into_iter().cloned();
    let mut sent: Vec<_> = duplicates.chain(good.iter().cloned()).chain(poison.iter().cloned()).collect();
    chance.shuffle(&mut sent);
    (good.into_iter().collect(), poison, sent)
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "the seed is for whoever replays it")]
async fn t1_workers_that_are_killed_again_and_again_leave_books_that_balance() {
    let seed = asked("SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("replay: SEED={seed}");
    let mut chance = Rng::with_seed(seed);
    let (good, poison, sent) = keys(usize::try_from(asked("MESSAGES").unwrap_or(MESSAGES)).expect("few"), &mut chance);
    let bench = Bench::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/jobs", listener.local_addr().expect("an address"));
    let (bank, mut serving) = (Arc::<Bank>::default(), JoinSet::new());
    serving.spawn(Arc::clone(&bank).serve(listener));
    let settings = bench
        .settings("")
        .short_leases()
        .set("LEASEHOLD_JOBS_HANDLER", url)
        .set("LEASEHOLD_CONCURRENCY", CONCURRENCY.to_string())
        .set("LEASEHOLD_LOG", "info");
    let mut workers: Vec<Worker> = (0..3).map(|_| settings.start()).collect();
    let post = Post::new(&bench).await;
    let letters = sent.iter().map(|key| Letter::new(format!(r#"{{"id":"{key}"}}"#)));
    let killing = async {
        let mut moments: Vec<_> = (0..KILLS).map(|_| chance.usize(1..good.len())).collect();
        moments.sort_unstable();
        for moment in moments {
            bank.has_done(moment).await;
            let doomed = &mut workers[chance.usize(0..3)];
            doomed.signal(Signal::KILL);
            *doomed = settings.start();
        }
        bank.has_done(good.len()).await;
    };
    tokio::join!(post.send(letters), killing);
    let is_empty = async || bench.engine.depth("jobs").await.is_ok_and(|depth| depth.total() == 0);
    bench.poll("the queue is empty", is_empty).await;
    for worker in workers {
        let ended = worker.stops().await;
        ended.clean_report();
    }

    let accounts = std::mem::take(&mut *bank.accounts.lock().expect("no panic"));
    let effects: BTreeMap<_, _> = accounts.iter().map(|(key, account)| (key.clone(), account.effects)).collect();
    let expected = good.iter().map(|key| (key.clone(), 1)).chain(poison.iter().map(|key| (key.clone(), 0))).collect();
    assert_eq!(effects, expected);
    let again: Vec<_> = accounts.iter().filter(|(_, account)| account.calls > 1).collect();
    assert!(again.len() <= KILLS * CONCURRENCY, "only what was in hand at a kill: {again:?}");
    assert!(accounts.values().all(|account| account.overlaps == 0), "{again:?}");
    let expected = |keys: &BTreeSet<String>, status: &'static str| {
        keys.iter().map(|key| (format!("jobs#{key}"), status.to_owned())).collect::<Vec<_>>()
    };
    let expected = [expected(&good, "DONE"), expected(&poison, "DEAD")].concat();
    assert!(bench.statuses().await.into_iter().eq(expected), "records");
    let dead: BTreeMap<_, _> = poison.into_iter().map(|key| (key, "http_422".to_owned())).collect();
    assert_eq!(post.dead("id").await, dead);
}

#[expect(clippy::disallowed_methods, reason = "a seed is replayed from the command line of a test")]
fn asked(variable: &str) -> Option<u64> {
    Some(std::env::var(variable).ok()?.parse().expect("a number"))
}
