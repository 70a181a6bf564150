//! Undo, when work has failed for good (rule S3).

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{
    Handler, HandlerError, HandlerResult, JobContext, Raw, ResultExt, Shutdown, StopReport, Undo,
    guard::{Pk, Record, Status, StepState},
    ops::dead_letters::{Fate, Redrive},
    testing::{Failure, Fault, TestBed},
};
use tokio::time::sleep;

const VARS: [(&str, &str); 4] = [
    ("LEASEHOLD_QUEUES", "jobs"),
    ("LEASEHOLD_KEY", "/id"),
    ("LEASEHOLD_BACKOFF", "1s..1s"),
    ("LEASEHOLD_VISIBILITY_TIMEOUT", "10s"),
];

#[derive(Debug, Clone, Copy)]
enum Act {
    Succeed,
    Fail,
    FailForGood,
    NotYet,
    Panic,
    Hang,
}

impl Act {
    async fn play(self) -> HandlerResult {
        match self {
            Self::Succeed => Ok(()),
            Self::Fail => Err(HandlerError::new("the bank is slow").reason("slow")),
            Self::FailForGood => Err("no such account").permanent().reason("no_account"),
            Self::NotYet => Err("later").not_yet(Duration::from_secs(3)),
            Self::Panic => panic!("oh"),
            Self::Hang => std::future::pending().await,
        }
    }
}

/// Charges in a step, then does as told; undoes by a refund in a step, then does as told. Each act is for one run, and the
/// last for all that follow.
#[derive(Debug, Clone)]
struct Shop {
    bed: TestBed,
    log: Arc<Mutex<Vec<String>>>,
    work: &'static [Act],
    undo: &'static [Act],
    answer: Undo,
}

impl Shop {
    fn new(work: &'static [Act], undo: &'static [Act], answer: Undo) -> Self {
        let bed = TestBed::new(&["jobs"]);
        bed.send("jobs", r#"{"id":"a"}"#);
        Self { bed, log: Arc::default(), work, undo, answer }
    }

    /// Notes it, and tells how often it was noted before.
    fn note(&self, what: impl Into<String>) -> usize {
        let (what, mut log) = (what.into(), self.log.lock().unwrap());
        let before = log.iter().filter(|line| **line == what).count();
        log.push(what);
        before
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }

    async fn run(&self, vars: &[(&str, &str)], shutdown: Shutdown) -> StopReport {
        let vars: Vec<_> = VARS.iter().chain(vars).copied().collect();
        self.bed.worker(&vars).queue("jobs", self.clone()).run(shutdown).await.unwrap()
    }

    async fn until_idle(&self) -> StopReport {
        self.run(&[], self.bed.until_idle()).await
    }

    fn record(&self) -> Record {
        self.bed.guard.record(&Pk("jobs#a".into())).unwrap()
    }

    /// Reason code and undo of what is dead-lettered.
    fn dead(&self) -> Vec<(String, Option<String>)> {
        let notes = self.bed.dead("jobs").into_iter().filter_map(|(_, note)| note);
        notes.map(|note| (note.code, note.undo)).collect()
    }
}

fn nth(acts: &[Act], n: usize) -> Act {
    *acts.get(n).unwrap_or_else(|| acts.last().unwrap())
}

impl Handler for Shop {
    type Payload = Raw;

    async fn handle(&self, _: &Raw, cx: &JobContext) -> HandlerResult {
        let run = self.note("work");
        cx.step("charge", async |key| {
            self.note(key.as_str());
            Ok::<_, HandlerError>(500)
        })
        .await?;
        nth(self.work, run).play().await
    }

    async fn undo(&self, _: &Raw, cx: &JobContext) -> HandlerResult<Undo> {
        let run = self.note("undo");
        if let Some(cents) = cx.recorded::<u32>("charge")? {
            cx.step("refund", async |key| {
                self.note(format!("{key} of {cents}"));
                Ok::<_, HandlerError>(())
            })
            .await?;
        }
        nth(self.undo, run).play().await.map(|()| self.answer)
    }
}

fn told(code: &str, undo: &str) -> Vec<(String, Option<String>)> {
    vec![(code.to_owned(), Some(undo.to_owned()))]
}

const WORK: [&str; 4] = ["work", "jobs#a/charge", "undo", "jobs#a/refund of 500"];

#[tokio::test(start_paused = true)]
async fn s3_work_that_has_failed_for_good_is_undone_once_and_then_dead_lettered_with_what_undo_answered() {
    for (answer, word) in [(Undo::Undone, "undone"), (Undo::Kept, "kept")] {
        let shop = Shop::new(&[Act::FailForGood], &[Act::Succeed], answer);
        let report = shop.until_idle().await;
        assert_eq!((report.dead, report.failed), (1, 0));
        assert_eq!(shop.log(), WORK);
        assert_eq!(shop.dead(), told("no_account", word));
        let record = shop.record();
        assert_eq!((record.status, record.undo.unwrap().answer), (Status::Dead, Some(answer)));
    }
}

#[tokio::test(start_paused = true)]
async fn s3_work_at_the_end_of_its_attempts_is_undone_too() {
    let shop = Shop::new(&[Act::Fail], &[Act::Succeed], Undo::Undone);
    shop.run(&[("LEASEHOLD_MAX_ATTEMPTS", "3")], shop.bed.until_idle()).await;
    assert_eq!(shop.log(), ["work", "jobs#a/charge", "work", "work", "undo", "jobs#a/refund of 500"]);
    assert_eq!(shop.dead(), told("slow", "undone"));
}

#[tokio::test(start_paused = true)]
async fn s3_an_undo_that_fails_is_tried_again_with_attempts_of_its_own_and_its_steps_are_kept() {
    let shop = Shop::new(&[Act::FailForGood], &[Act::Fail, Act::Panic, Act::NotYet, Act::Succeed], Undo::Undone);
    let report = shop.run(&[("LEASEHOLD_MAX_ATTEMPTS", "3")], shop.bed.until_idle()).await;
    assert_eq!((report.dead, report.failed), (1, 2));
    let log = shop.log();
    assert_eq!(log, [&WORK[..], &["undo"; 3]].concat());
    let record = shop.record();
    let undo = record.undo.unwrap();
    assert_eq!((record.failures, undo.failures, undo.answer), (1, 2, Some(Undo::Undone)));
    assert_eq!(shop.dead(), told("no_account", "undone"));
}

#[tokio::test(start_paused = true)]
async fn s3_an_undo_at_its_last_attempt_or_that_fails_for_good_is_dead_lettered_as_incomplete() {
    for (acts, runs) in [(&[Act::Fail][..], 3), (&[Act::FailForGood], 1), (&[Act::Hang], 3)] {
        let shop = Shop::new(&[Act::FailForGood], acts, Undo::Undone);
        let vars = [("LEASEHOLD_MAX_ATTEMPTS", "3"), ("LEASEHOLD_HANDLER_TIMEOUT", "20s")];
        shop.run(&vars, shop.bed.until_idle()).await;
        assert_eq!(shop.log().iter().filter(|line| *line == "undo").count(), runs, "{acts:?}");
        assert_eq!(shop.dead(), told("undo_incomplete", "incomplete"));
        let text = shop.bed.dead("jobs").remove(0).1.unwrap().message;
        assert!(text.starts_with("no_account: no such account; its undo: "), "{text}");
        let record = shop.record();
        assert!(record.is_half_undone() && record.last_error.unwrap().code == "no_account");
    }
}

#[tokio::test(start_paused = true)]
async fn s3_on_the_last_receive_an_undo_that_fails_is_dead_lettered_by_us() {
    let shop = Shop::new(&[Act::FailForGood], &[Act::Fail], Undo::Undone);
    shop.bed.add("jobs", 1);
    shop.bed.send("jobs", r#"{"id":"a"}"#);
    shop.until_idle().await;
    assert_eq!(shop.log(), WORK);
    assert_eq!(shop.dead(), told("undo_incomplete", "incomplete"));
}

#[tokio::test(start_paused = true)]
async fn s3_whoever_takes_a_failed_record_over_only_goes_on_undoing() {
    let shop = Shop::new(&[Act::FailForGood], &[Act::Hang, Act::Succeed], Undo::Undone);
    // A crash in the middle of the undo.
    drop(tokio::time::timeout(Duration::from_secs(5), shop.run(&[], Shutdown::new())).await);
    assert_eq!(shop.record().status, Status::Failed);
    let report = shop.until_idle().await;
    assert_eq!((report.dead, report.failed), (1, 0), "a crash is no failure");
    assert_eq!(shop.log(), [&WORK[..], &["undo"]].concat(), "neither the work nor the refund again");
    assert_eq!(shop.record().undo.unwrap().takeovers, 1);
    assert_eq!(shop.dead(), told("no_account", "undone"));
}

#[tokio::test(start_paused = true)]
async fn s3_workers_that_die_while_they_undo_have_a_limit() {
    let shop = Shop::new(&[Act::FailForGood], &[Act::Hang], Undo::Undone);
    let vars = [("LEASEHOLD_MAX_TAKEOVERS", "2"), ("LEASEHOLD_CLOCK_SKEW", "1s")];
    for _ in 0..20 {
        drop(tokio::time::timeout(Duration::from_secs(5), shop.run(&vars, Shutdown::new())).await);
        sleep(Duration::from_secs(30)).await;
    }
    shop.run(&vars, shop.bed.until_idle()).await;
    assert_eq!(shop.dead(), told("undo_incomplete", "incomplete"));
    assert_eq!(shop.log().iter().filter(|line| *line == "undo").count(), 3);
}

#[tokio::test(start_paused = true)]
async fn s3_a_drain_gives_an_undo_back_and_uses_no_attempt_nor_takeover() {
    let shop = Shop::new(&[Act::FailForGood], &[Act::Hang, Act::Succeed], Undo::Undone);
    let vars = [("LEASEHOLD_DRAIN_TIMEOUT", "8s")];
    shop.run(&vars, Shutdown::when(sleep(Duration::from_secs(3)))).await;
    assert_eq!((shop.record().status, shop.bed.queue("jobs").visible()), (Status::Failed, 1));
    shop.until_idle().await;
    let undo = shop.record().undo.unwrap();
    assert_eq!((undo.failures, undo.takeovers, undo.answer), (0, 0, Some(Undo::Undone)));
}

#[tokio::test(start_paused = true)]
async fn s3_after_undone_a_redrive_takes_new_generations_and_after_kept_the_finished_steps_stay() {
    for (answer, charges) in [(Undo::Undone, vec!["jobs#a/charge/2"]), (Undo::Kept, vec![])] {
        let shop = Shop::new(&[Act::FailForGood, Act::Succeed], &[Act::Succeed], answer);
        shop.until_idle().await;
        sleep(Duration::from_secs(10)).await;
        let letters = shop.bed.ops(&VARS).unwrap().dead_letters("jobs").await.unwrap();
        letters.redrive(&Default::default(), &Default::default(), |_| {}).await.unwrap();
        let report = shop.run(&[], shop.bed.until_idle()).await;
        assert_eq!(report.done, 1);
        let again: Vec<_> = ["work"].into_iter().chain(charges).collect();
        assert_eq!(shop.log(), [&WORK[..], &again].concat());
    }
}

#[tokio::test(start_paused = true)]
async fn s3_the_verdict_is_recorded_before_anything_is_undone() {
    let shop = Shop::new(&[Act::FailForGood], &[Act::Succeed], Undo::Undone);
    // The store is away when the verdict is to be written, and comes back.
    for _ in 0..3 {
        shop.bed.guard_faults.next("fail", Fault::Fail(Failure::Unavailable));
    }
    shop.bed.guard_faults.next("fail", Fault::ApplyThenFail(Failure::NoAnswer));
    shop.until_idle().await;
    assert_eq!(shop.log(), WORK);
    assert_eq!((shop.bed.guard_faults.pending(), shop.dead()), (0, told("no_account", "undone")));
}

#[tokio::test(start_paused = true)]
async fn s3_a_verdict_that_another_worker_made_void_undoes_nothing() {
    let shop = Shop::new(&[Act::FailForGood, Act::Succeed], &[Act::Succeed], Undo::Undone);
    // The write arrives when the lease is long over and another worker has done the work.
    shop.bed.guard_faults.next("fail", Fault::Delay(Duration::from_secs(60)));
    shop.bed.guard_faults.always("renew", Fault::Hang);
    let second = async {
        sleep(Duration::from_secs(15)).await;
        shop.bed.send("jobs", r#"{"id":"a"}"#);
        shop.run(&[], shop.bed.until_idle()).await
    };
    let (first, second) = tokio::join!(shop.run(&[], shop.bed.until_idle()), second);
    assert_eq!((first.done + second.done, first.dead + second.dead), (1, 0));
    assert!(!shop.log().contains(&"undo".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn s3_what_is_half_undone_is_undone_first_when_it_is_put_back_and_only_then_runs_again() {
    let shop = Shop::new(&[Act::FailForGood, Act::Succeed], &[Act::FailForGood, Act::Succeed], Undo::Undone);
    shop.until_idle().await;
    assert_eq!(shop.dead(), told("undo_incomplete", "incomplete"));
    let letters = shop.bed.ops(&VARS).unwrap().dead_letters("jobs").await.unwrap();
    let mut fates = Vec::new();
    let dry = Redrive { dry_run: true, ..Redrive::default() };
    letters.redrive(&dry, &Default::default(), |put| fates.push(put.fate)).await.unwrap();
    assert_eq!(fates, [Fate::IsUndoneFirst]);
    for (dead, lines) in [(told("no_account", "undone"), &["undo"][..]), (vec![], &["work", "jobs#a/charge/2"])] {
        shop.log();
        shop.log.lock().unwrap().extend(["work".to_owned(), "undo".to_owned()]);
        sleep(Duration::from_secs(10)).await;
        let letters = shop.bed.ops(&VARS).unwrap().dead_letters("jobs").await.unwrap();
        letters.redrive(&Default::default(), &Default::default(), |_| {}).await.unwrap();
        shop.until_idle().await;
        assert_eq!(
            (shop.dead(), shop.log()[2..].to_vec()),
            (dead, lines.iter().map(|line| (*line).to_owned()).collect())
        );
    }
    assert_eq!(shop.record().status, Status::Done);
}

#[tokio::test(start_paused = true)]
async fn s3_a_handler_without_undo_that_meets_half_undone_work_tells_a_person() {
    let shop = Shop::new(&[Act::FailForGood], &[Act::Hang], Undo::Undone);
    drop(tokio::time::timeout(Duration::from_secs(5), shop.run(&[], Shutdown::new())).await);
    let without = leasehold::handler(async |_: &Raw, _: &JobContext| Ok(()));
    shop.bed.worker(&VARS).queue("jobs", without).run(shop.bed.until_idle()).await.unwrap();
    assert_eq!(shop.dead(), told("undo_incomplete", "incomplete"));
}

#[tokio::test(start_paused = true)]
async fn s3_a_run_without_the_table_leaves_the_message_by_which_its_work_is_undone() {
    let shop = Shop::new(&[Act::FailForGood, Act::Succeed], &[Act::Hang, Act::Succeed], Undo::Undone);
    drop(tokio::time::timeout(Duration::from_secs(5), shop.run(&[], Shutdown::new())).await);
    sleep(Duration::from_secs(60)).await;
    // Away when the message is claimed, and back when the run has ended.
    shop.bed.guard_faults.next("claim", Fault::Fail(Failure::Denied));
    let report = shop.run(&[("LEASEHOLD_GUARD_OUTAGE", "open")], shop.bed.until_idle()).await;
    assert_eq!((report.done, shop.dead()), (0, told("no_account", "undone")));
}

struct Plain(Shop);

impl Handler for Plain {
    type Payload = Raw;
    async fn handle(&self, payload: &Raw, cx: &JobContext) -> HandlerResult {
        self.0.handle(payload, cx).await
    }
}

#[tokio::test(start_paused = true)]
async fn s3_without_an_undo_of_its_own_a_handler_keeps_what_it_did() {
    let shop = Shop::new(&[Act::FailForGood], &[Act::Succeed], Undo::Undone);
    shop.bed.worker(&VARS).queue("jobs", Plain(shop.clone())).run(shop.bed.until_idle()).await.unwrap();
    assert_eq!((shop.log(), shop.dead()), (vec!["work".into(), "jobs#a/charge".into()], told("no_account", "kept")));
    assert_eq!(shop.record().steps["charge"].state, StepState::Done);
}

#[tokio::test(start_paused = true)]
async fn s3_without_a_guard_nothing_is_undone() {
    let shop = Shop::new(&[Act::FailForGood], &[Act::Succeed], Undo::Undone);
    shop.run(&[("LEASEHOLD_GUARD", "none")], shop.bed.until_idle()).await;
    assert_eq!(shop.log(), ["work"], "its step is refused");
    assert_eq!(shop.dead(), vec![("step_without_guard".to_owned(), None)]);
}
