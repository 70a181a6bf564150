//! Steps that run once or not at all (rule S2), what is recorded of steps, and handlers that were changed meanwhile.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::join_all;
use leasehold::{
    Handler, HandlerError, HandlerResult, JobContext, Raw, ResultExt, Shutdown,
    guard::{Pk, Record, Status, StepState, StepWord},
    ops::StepNames,
    testing::{Failure, Fault, TestBed},
};
use tokio::time::{sleep, timeout};

use crate::bench::Log;

const VARS: [(&str, &str); 4] = [
    ("LEASEHOLD_QUEUES", "jobs"),
    ("LEASEHOLD_KEY", "/id"),
    ("LEASEHOLD_BACKOFF", "1s..1s"),
    ("LEASEHOLD_VISIBILITY_TIMEOUT", "10s"),
];

/// What the mail server does with a mail.
#[derive(Debug, Clone, Copy)]
enum Post {
    Sends,
    SendsAndBreaks,
    IsAway,
    Refuses,
    Hangs,
}

/// A handler that sends a mail once, and mails that went out.
#[derive(Debug, Clone)]
struct Office {
    bed: TestBed,
    post: Arc<Mutex<Vec<Post>>>,
    mails: Arc<Mutex<Vec<String>>>,
}

impl Office {
    /// The post does these in turn, and then sends.
    fn new(post: &[Post]) -> Self {
        let bed = TestBed::new(&["jobs"]);
        bed.send("jobs", r#"{"id":"a"}"#);
        let post = post.iter().rev().copied().collect();
        Self { bed, post: Arc::new(Mutex::new(post)), mails: Arc::default() }
    }

    async fn send(&self, key: String) -> HandlerResult<u32> {
        let post = self.post.lock().unwrap().pop().unwrap_or(Post::Sends);
        match post {
            Post::IsAway => return Err("nobody there").unavailable(),
            Post::Refuses => return Err("no such address").definite().reason("refused"),
            Post::Sends | Post::SendsAndBreaks | Post::Hangs => self.mails.lock().unwrap().push(key),
        }
        match post {
            Post::SendsAndBreaks => Err(HandlerError::new("the connection broke")),
            Post::Hangs => std::future::pending().await,
            _ => Ok(7),
        }
    }

    async fn run(&self, vars: &[(&str, &str)], shutdown: Shutdown) {
        let vars: Vec<_> = VARS.iter().chain(vars).copied().collect();
        self.bed.worker(&vars).queue("jobs", self.clone()).run(shutdown).await.unwrap();
    }

    async fn until_idle(&self) {
        self.run(&[], self.bed.until_idle()).await;
    }

    fn mails(&self) -> Vec<String> {
        self.mails.lock().unwrap().clone()
    }

    fn record(&self) -> Record {
        self.bed.guard.record(&Pk("jobs#a".into())).unwrap()
    }

    fn dead(&self) -> Vec<String> {
        self.bed.dead("jobs").into_iter().filter_map(|(_, note)| Some(note?.code)).collect()
    }

    async fn redrive(&self) {
        sleep(Duration::from_secs(10)).await;
        let letters = self.bed.ops(&VARS).unwrap().dead_letters("jobs").await.unwrap();
        letters.redrive(&Default::default(), &Default::default(), |_| {}).await.unwrap();
    }
}

impl Handler for Office {
    type Payload = Raw;

    async fn handle(&self, _: &Raw, cx: &JobContext) -> HandlerResult {
        let sent = cx.step_once("mail", |key| self.send(key.to_string())).await?;
        assert_eq!((sent, cx.recorded::<u32>("mail")?), (7, Some(7)));
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn s2_a_step_that_runs_once_is_recorded_before_and_after() {
    let office = Office::new(&[]);
    office.until_idle().await;
    assert_eq!((office.mails(), office.record().status), (vec!["jobs#a/mail".to_owned()], Status::Done));
    assert_eq!(office.bed.guard_faults.calls()["step"], 2);
}

#[tokio::test(start_paused = true)]
async fn s2_a_step_that_broke_is_in_doubt_and_never_runs_again_by_itself() {
    let office = Office::new(&[Post::SendsAndBreaks]);
    office.until_idle().await;
    assert_eq!((office.mails().len(), office.dead()), (1, vec!["step_in_doubt".to_owned()]));
    assert_eq!(office.record().steps["mail"].state, StepState::Started);
    office.redrive().await;
    office.until_idle().await;
    assert_eq!((office.mails().len(), office.dead().len()), (1, 1), "not by a redrive either");
}

#[tokio::test(start_paused = true)]
async fn s2_a_step_whose_worker_died_is_in_doubt() {
    let office = Office::new(&[Post::Hangs]);
    drop(timeout(Duration::from_secs(5), office.run(&[], Shutdown::new())).await);
    office.until_idle().await;
    assert_eq!((office.mails().len(), office.dead()), (1, vec!["step_in_doubt".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn s2_a_drain_in_the_middle_of_it_leaves_it_in_doubt() {
    let office = Office::new(&[Post::Hangs]);
    office.run(&[("LEASEHOLD_DRAIN_TIMEOUT", "8s")], Shutdown::when(sleep(Duration::from_secs(2)))).await;
    office.until_idle().await;
    assert_eq!((office.mails().len(), office.dead()), (1, vec!["step_in_doubt".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn s2_where_nothing_was_sent_or_it_was_refused_there_is_no_doubt() {
    for post in [Post::IsAway, Post::Refuses] {
        let office = Office::new(&[post]);
        office.until_idle().await;
        assert_eq!((office.mails().len(), office.dead().len()), (1, 0), "{post:?}");
        assert_eq!(office.record().status, Status::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn s2_an_operator_ends_the_doubt_either_way() {
    for (word, mails) in [(StepWord::Done("7".to_owned()), 1), (StepWord::Again, 2)] {
        let office = Office::new(&[Post::SendsAndBreaks]);
        office.until_idle().await;
        let ops = office.bed.ops(&VARS).unwrap();
        sleep(Duration::from_secs(10)).await;
        let amend = ops.step(&office.record(), "mail", StepNames::Recorded, &word, "ann").unwrap();
        ops.amend(&amend).await.unwrap();
        office.redrive().await;
        office.until_idle().await;
        assert_eq!((office.mails().len(), office.record().status), (mails, Status::Done), "{word:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn s2_a_step_whose_beginning_is_not_known_to_be_recorded_does_not_begin_and_is_not_in_doubt() {
    for fault in [Fault::Fail(Failure::Unavailable), Fault::ApplyThenFail(Failure::NoAnswer)] {
        let office = Office::new(&[]);
        for _ in 0..4 {
            office.bed.guard_faults.next("step", fault);
        }
        office.until_idle().await;
        assert_eq!(office.bed.guard_faults.pending(), 0);
        assert_eq!((office.mails().len(), office.dead().len()), (1, 0), "{fault:?}");
    }
}

struct SideBySide(Office);

impl Handler for SideBySide {
    type Payload = Raw;

    async fn handle(&self, _: &Raw, cx: &JobContext) -> HandlerResult {
        // The first fails while the beginning of the other is being written.
        let fails = async {
            sleep(Duration::from_millis(500)).await;
            if self.0.post.lock().unwrap().pop().is_some() { Err(HandlerError::new("broke")) } else { Ok(()) }
        };
        let mail = cx.step_once("mail", |key| self.0.send(key.to_string()));
        futures_util::future::try_join(fails, mail).await?;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn s2_a_step_that_is_dropped_while_its_beginning_is_written_has_not_begun() {
    for fault in [Fault::Delay(Duration::from_secs(1)), Fault::DelayReply(Duration::from_secs(1))] {
        let office = Office::new(&[Post::Sends]);
        office.bed.guard_faults.next("step", fault);
        let handler = SideBySide(office.clone());
        office.bed.worker(&VARS).queue("jobs", handler).run(office.bed.until_idle()).await.unwrap();
        assert_eq!((office.mails().len(), office.dead().len()), (1, 0), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn s2_without_its_table_it_does_not_begin_even_where_the_rest_runs() {
    let office = Office::new(&[]);
    office.bed.guard_faults.always("claim", Fault::Fail(Failure::Denied));
    office.bed.guard_faults.always("probe", Fault::Fail(Failure::Denied));
    office.run(&[("LEASEHOLD_GUARD_OUTAGE", "open")], Shutdown::when(sleep(Duration::from_secs(60)))).await;
    assert!(office.mails().is_empty() && office.dead().is_empty());
    office.bed.guard_faults.clear();
    office.until_idle().await;
    assert_eq!(office.mails().len(), 1);
}

/// What was recorded and in doubt before the step, whether the step failed, and what is in doubt after it.
type Answer = ((Option<u32>, bool), bool, bool, bool);

struct Asks(Arc<Mutex<Vec<Answer>>>);

impl Handler for Asks {
    type Payload = Raw;

    async fn handle(&self, _: &Raw, cx: &JobContext) -> HandlerResult {
        let before = (cx.recorded::<u32>("mail")?, cx.is_in_doubt("mail"));
        let sent: HandlerResult<u32> = cx.step_once("mail", async |_| Err(HandlerError::new("broke"))).await;
        let after = (cx.is_in_doubt("mail"), cx.is_in_doubt("other"));
        self.0.lock().unwrap().push((before, sent.is_err(), after.0, after.1));
        // It lives with that.
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn s2_a_handler_can_ask_what_is_recorded_and_what_is_in_doubt() {
    let bed = TestBed::new(&["jobs"]);
    bed.send("jobs", r#"{"id":"a"}"#);
    let asked = Arc::default();
    run(&bed, Asks(Arc::clone(&asked))).await;
    assert_eq!(*asked.lock().unwrap(), [((None, false), true, true, false)]);
}

async fn run(bed: &TestBed, handler: impl Handler) {
    bed.worker(&VARS).queue("jobs", handler).run(bed.until_idle()).await.unwrap();
}

/// Runs the first handler until it fails, then the second, and gives the log of that one's runs.
macro_rules! changed {
    ($first:expr, $second:expr) => {{
        let (bed, log) = (TestBed::new(&["jobs"]), Log::default());
        bed.send("jobs", r#"{"id":"a"}"#);
        let first = leasehold::handler($first);
        let shutdown = Shutdown::when(sleep(Duration::from_millis(500)));
        bed.worker(&VARS).queue("jobs", first).run(shutdown).await.unwrap();
        let _guard = tracing::subscriber::set_default(log.subscriber());
        run(&bed, leasehold::handler($second)).await;
        log.text()
    }};
}

async fn step(cx: &JobContext, name: &str) -> HandlerResult {
    cx.step(name, async |_| {
        sleep(Duration::from_millis(10)).await;
        Ok::<_, HandlerError>(())
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn s1_a_run_that_does_not_take_a_recorded_step_is_warned_of() {
    let log = changed!(
        async |_: &Raw, cx: &JobContext| {
            step(cx, "charge").await?;
            Err("again")?
        },
        async |_: &Raw, cx: &JobContext| step(cx, "charge-card").await
    );
    assert!(log.contains(r#"recorded steps that this one did not take, ["charge"]"#), "{log}");
    assert!(log.contains(r#"taken={"charge-card"}"#), "{log}");
}

#[tokio::test(start_paused = true)]
async fn s1_a_recorded_step_that_comes_after_a_new_one_is_warned_of() {
    let log = changed!(
        async |_: &Raw, cx: &JobContext| {
            step(cx, "charge").await?;
            Err("again")?
        },
        async |_: &Raw, cx: &JobContext| {
            step(cx, "reserve").await?;
            step(cx, "charge").await
        }
    );
    assert!(log.contains(r#"step "charge" is recorded by an earlier run, in which it came before "reserve""#), "{log}");
}

#[tokio::test(start_paused = true)]
async fn s1_steps_that_go_on_as_they_were_or_run_side_by_side_are_not_warned_of() {
    let sequence = changed!(
        async |_: &Raw, cx: &JobContext| {
            step(cx, "charge").await?;
            Err("again")?
        },
        async |_: &Raw, cx: &JobContext| {
            step(cx, "charge").await?;
            step(cx, "mail").await
        }
    );
    let side_by_side = changed!(
        async |_: &Raw, cx: &JobContext| {
            let first = cx.step("a", async |_| Err::<(), _>("broke"));
            let (first, second) = tokio::join!(first, step(cx, "b"));
            first.and(second)
        },
        async |_: &Raw, cx: &JobContext| {
            let (first, second) = tokio::join!(step(cx, "a"), step(cx, "b"));
            first.and(second)
        }
    );
    for log in [sequence, side_by_side] {
        assert!(!log.contains("was the handler changed"), "{log}");
    }
}

struct FanOut(Arc<Mutex<Vec<String>>>);

impl FanOut {
    /// The first call for line 17 fails.
    async fn call(&self, n: u32, key: String) -> HandlerResult<u32> {
        let mut calls = self.0.lock().unwrap();
        let is_first = !calls.contains(&key);
        calls.push(key);
        if n == 17 && is_first { Err("broke")? } else { Ok(n) }
    }
}

impl Handler for FanOut {
    type Payload = Raw;

    async fn handle(&self, _: &Raw, cx: &JobContext) -> HandlerResult {
        let lines = (0..40).map(|n| cx.step(format!("line-{n}"), move |key| self.call(n, key.to_string())));
        let lines = join_all(lines).await.into_iter().collect::<HandlerResult<Vec<u32>>>()?;
        assert_eq!(lines.iter().sum::<u32>(), (0..40).sum::<u32>());
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn s1_of_many_steps_side_by_side_only_the_one_that_failed_runs_again() {
    let bed = TestBed::new(&["jobs"]);
    bed.send("jobs", r#"{"id":"a"}"#);
    let calls = Arc::default();
    run(&bed, FanOut(Arc::clone(&calls))).await;
    let calls = calls.lock().unwrap();
    assert_eq!((calls.len(), calls.last().unwrap().as_str()), (41, "jobs#a/line-17"));
    let record = bed.guard.record(&Pk("jobs#a".into())).unwrap();
    assert_eq!((record.status, record.steps.len()), (Status::Done, 40));
}
