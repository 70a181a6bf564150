//! `confirm_with`: a handler's writes and "done" are one (rule G12).

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{
    Handler, HandlerError, HandlerResult, JobContext, ResultExt, Shutdown, StopReport, Worker,
    guard::{Item, ItemWrite, Owner, Pk, Record, Status, Value},
    testing::{Failure, Fault, Faults, TestBed},
};
use serde::Deserialize;
use tokio::time::{sleep, timeout};

use crate::bench::{Log, apart, crashes_after};

const SECOND: Duration = Duration::from_secs(1);

/// What a message asks of the handler.
#[derive(Debug, Deserialize)]
struct Grant {
    id: String,
    /// What happens before the commit of the first run.
    #[serde(default)]
    before: Before,
    /// What the first run does with what came of its commit.
    #[serde(default)]
    then: Then,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Before {
    #[default]
    Nothing,
    /// Longer than a beat takes to come due.
    Work,
    /// A step whose result leaves hardly any room in the record.
    LargeStep,
    /// Another worker takes over.
    Theft,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Then {
    #[default]
    Return,
    /// Says that it went well, whatever came of it.
    SayOk,
    /// Takes an item that is there for an earlier grant.
    AcceptCondition,
    /// Commits something else if the condition failed.
    CommitOther,
    Fail,
    FailForGood,
    Panic,
    Hang,
    CommitAgain,
    Step,
    /// Does not wait for the commit for longer than a second, and says that it went well.
    DropAndSayOk,
}

/// The handler, the bed that it plays on, and what it did.
#[derive(Debug, Clone)]
struct Grants {
    bed: TestBed,
    /// What came of each run's commit: `ok`, or the reason of its error.
    commits: Arc<Mutex<Vec<String>>>,
    /// Each time the step `notify` really ran.
    steps: Arc<Mutex<u32>>,
}

impl Grants {
    fn new(body: &str) -> Self {
        let bed = TestBed::new(&["jobs"]);
        bed.guard.add_table("grants", &["grant_id"]);
        bed.guard.add_table("receipts", &["grant_id"]);
        bed.send("jobs", body);
        Self { bed, commits: Arc::default(), steps: Arc::default() }
    }

    fn worker(&self, vars: &[(&str, &str)]) -> Worker {
        let usual = [
            ("LEASEHOLD_QUEUES", "jobs"),
            ("LEASEHOLD_KEY", "/id"),
            ("LEASEHOLD_VISIBILITY_TIMEOUT", "30s"),
            ("LEASEHOLD_BACKOFF", "10s..60s"),
        ];
        let vars: Vec<_> = usual.iter().chain(vars).copied().collect::<BTreeMap<_, _>>().into_iter().collect();
        self.bed.worker(&vars).queue("jobs", self.clone())
    }

    async fn play(&self, vars: &[(&str, &str)]) -> StopReport {
        self.worker(vars).run(self.bed.until_idle()).await.unwrap()
    }

    /// A worker that dies in its first transaction, and the next one.
    async fn dies_in_the_transaction(&self, applied: bool) -> StopReport {
        let (dying, [_, _, guard]) = apart(&self.bed, self.worker(&[]));
        guard.next("confirm_with", Fault::Stop { applied });
        crashes_after(5 * SECOND, dying).await;
        assert_eq!(guard.pending(), 0);
        self.play(&[]).await
    }

    fn faults(&self) -> &Faults {
        &self.bed.guard_faults
    }

    fn commits(&self) -> Vec<String> {
        self.commits.lock().unwrap().clone()
    }

    fn record(&self) -> Record {
        self.bed.guard.record(&Pk("jobs#a".into())).expect("a record")
    }

    /// How often each of the writes that end the work was made.
    fn ends(&self) -> (usize, usize) {
        let history = self.bed.guard.history();
        let made = |name| history.iter().filter(|(write, _)| *write == name).count();
        (made("confirm_with"), made("confirm"))
    }

    /// The fence of the run that granted; both tables must say the same.
    fn granted(&self) -> Option<Value> {
        let of = |table| self.bed.guard.item(table, [("grant_id", "a")]).map(|item| item["fence"].clone());
        assert_eq!(of("grants"), of("receipts"), "one without the other");
        of("grants")
    }

    /// The work is done, by one transaction and nothing else, and both its effects are there.
    #[track_caller]
    fn is_granted_once(&self) {
        assert_eq!((self.record().status, self.ends()), (Status::Done, (1, 0)));
        assert_eq!(self.granted(), Some(Value::from(self.record().fence.0)), "by the run that is recorded");
        assert!(self.bed.dead("jobs").is_empty());
    }

    fn steal(&self) {
        let mut record = self.record();
        record.owner = Owner("thief".into());
        record.fence.0 += 1;
        self.bed.guard.put(record);
    }
}

fn writes(id: &str, fence: u64) -> [ItemWrite; 2] {
    let item = || [("grant_id", Value::from(id)), ("fence", Value::from(fence))];
    [ItemWrite::put("receipts", item()), ItemWrite::put("grants", item()).when("attribute_not_exists(grant_id)")]
}

impl Handler for Grants {
    type Payload = Grant;

    async fn handle(&self, grant: &Grant, cx: &JobContext) -> HandlerResult {
        let is_first = self.commits().is_empty();
        let before = if is_first { grant.before } else { Before::Nothing };
        let then = if is_first { grant.then } else { Then::Return };
        match before {
            Before::Nothing => {}
            Before::Work => sleep(25 * SECOND).await,
            Before::Theft => self.steal(),
            Before::LargeStep => {
                let large = async |_| Ok::<_, HandlerError>("x".repeat(390_000));
                cx.step("large", large).await?;
            }
        }
        if then == Then::DropAndSayOk {
            self.commits.lock().unwrap().push("dropped".into());
            let dropped = timeout(SECOND, cx.confirm_with(writes(&grant.id, cx.fence()))).await;
            assert!(dropped.is_err(), "{dropped:?}");
            return Ok(());
        }
        let committed = cx.confirm_with(writes(&grant.id, cx.fence())).await;
        let said = committed.as_ref().map_or_else(|error| error.code().to_owned(), |()| "ok".to_owned());
        self.commits.lock().unwrap().push(said);
        match then {
            Then::Return | Then::DropAndSayOk => committed,
            Then::SayOk => Ok(()),
            Then::AcceptCondition => match committed {
                Err(error) if error.condition().is_some_and(|failed| failed.table == "grants") => {
                    let failed = error.condition().expect("a condition");
                    let item = failed.item.clone().expect("what is there");
                    assert_eq!((failed.index, &item["grant_id"]), (1, &Value::from("a")));
                    Ok(())
                }
                other => other,
            },
            Then::CommitOther => {
                assert!(committed.is_err_and(|error| error.condition().is_some()));
                let item = [("grant_id", Value::from("a")), ("fence", Value::from(cx.fence()))];
                cx.confirm_with(["grants", "receipts"].map(|table| ItemWrite::put(table, item.clone()))).await
            }
            Then::Fail => Err("after the commit")?,
            Then::FailForGood => Err("after the commit").permanent(),
            Then::Panic => panic!("after the commit"),
            Then::Hang => pending().await,
            Then::CommitAgain => {
                committed?;
                cx.confirm_with(writes("another", cx.fence())).await
            }
            Then::Step => {
                committed?;
                let ran = async |_| {
                    *self.steps.lock().unwrap() += 1;
                    Ok::<_, HandlerError>(())
                };
                cx.step("notify", ran).await
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn g12_effects_and_done_are_one_write() {
    let grants = Grants::new(r#"{"id":"a"}"#);
    grants.bed.send("jobs", r#"{"id":"a"}"#);
    let report = grants.play(&[]).await;
    assert_eq!((report.done, report.suppressed), (1, 1));
    grants.is_granted_once();
    assert_eq!(grants.faults().calls().get("confirm"), None);
    assert_eq!(grants.record().expires_at.0, grants.record().updated_at.seconds().0 + 30 * 24 * 60 * 60);
}

#[tokio::test(start_paused = true)]
async fn g12_a_crash_before_the_transaction_leaves_nothing_and_the_next_run_does_all() {
    let grants = Grants::new(r#"{"id":"a"}"#);
    assert_eq!(grants.dies_in_the_transaction(false).await.done, 1);
    assert_eq!(grants.commits(), ["ok"]);
    grants.is_granted_once();
}

#[tokio::test(start_paused = true)]
async fn g12_a_crash_after_the_transaction_leaves_all_and_nothing_runs_again() {
    let grants = Grants::new(r#"{"id":"a"}"#);
    assert_eq!(grants.dies_in_the_transaction(true).await.suppressed, 1);
    assert_eq!(grants.commits(), [""; 0]);
    grants.is_granted_once();

    let grants = Grants::new(r#"{"id":"a","then":"hang"}"#);
    crashes_after(5 * SECOND, grants.worker(&[])).await;
    assert_eq!(grants.play(&[]).await.suppressed, 1);
    assert_eq!(grants.commits(), ["ok"]);
    grants.is_granted_once();
}

#[tokio::test(start_paused = true)]
async fn g3_a_transaction_whose_reply_is_lost_or_late_is_recognised() {
    for fault in [Fault::LoseReply, Fault::ApplyThenFail(Failure::Unavailable), Fault::HangThenApply(3 * SECOND)] {
        let grants = Grants::new(r#"{"id":"a"}"#);
        grants.faults().next("confirm_with", fault);
        assert_eq!(grants.play(&[]).await.done, 1, "{fault:?}");
        assert_eq!(grants.commits(), ["ok"], "{fault:?}");
        grants.is_granted_once();
    }
}

#[tokio::test(start_paused = true)]
async fn g3_a_transaction_whose_every_reply_is_lost_is_done_by_its_record() {
    for then in ["return", "say_ok", "fail_for_good"] {
        let grants = Grants::new(&format!(r#"{{"id":"a","then":"{then}"}}"#));
        grants.faults().always("confirm_with", Fault::LoseReply);
        let report = grants.play(&[]).await;
        assert_eq!((report.done, grants.commits()), (1, vec!["interrupted".to_owned()]), "{then}");
        grants.is_granted_once();
    }
}

/// All tries of the first run's commit get lost, or are so late that the run is over.
fn lose_all_tries(grants: &Grants, first: Fault) {
    grants.faults().next("confirm_with", first);
    for _ in 0..5 {
        grants.faults().next("confirm_with", Fault::Hang);
    }
}

#[tokio::test(start_paused = true)]
async fn g12_what_may_be_committed_is_not_confirmed_without_its_writes() {
    for then in ["return", "say_ok", "fail"] {
        let grants = Grants::new(&format!(r#"{{"id":"a","then":"{then}"}}"#));
        lose_all_tries(&grants, Fault::Hang);
        let report = grants.play(&[]).await;
        assert_eq!((report.done, grants.faults().pending()), (1, 0), "{then}");
        assert_eq!(grants.commits(), ["interrupted", "ok"], "{then}");
        grants.is_granted_once();
    }
}

#[tokio::test(start_paused = true)]
async fn g2_a_transaction_that_lands_after_its_run_changes_nothing() {
    let grants = Grants::new(r#"{"id":"a","then":"say_ok"}"#);
    lose_all_tries(&grants, Fault::HangThenApply(90 * SECOND));
    let report = grants.play(&[]).await;
    grants.faults().landed().await;
    assert_eq!((report.done, report.failed), (1, 0));
    assert_eq!(grants.commits(), ["interrupted", "ok"]);
    grants.is_granted_once();
}

#[tokio::test(start_paused = true)]
async fn g12_a_commit_that_is_dropped_under_way_is_not_confirmed_without_its_writes() {
    for fault in [Fault::Hang, Fault::HangThenApply(3 * SECOND), Fault::LoseReply] {
        let grants = Grants::new(r#"{"id":"a","then":"drop_and_say_ok"}"#);
        grants.faults().next("confirm_with", fault);
        assert_eq!(grants.play(&[]).await.done, 1, "{fault:?}");
        grants.faults().landed().await;
        grants.is_granted_once();
    }
}

#[tokio::test(start_paused = true)]
async fn g12_a_claim_that_was_lost_writes_nothing() {
    let grants = Grants::new(r#"{"id":"a","before":"theft"}"#);
    let worker = grants.worker(&[]);
    worker.run(Shutdown::when(sleep(5 * SECOND))).await.unwrap();
    assert_eq!((grants.commits(), grants.granted(), grants.ends()), (vec!["interrupted".to_owned()], None, (0, 0)));
    assert_eq!(grants.play(&[]).await.done, 1);
    grants.is_granted_once();
}

#[tokio::test(start_paused = true)]
async fn g12_a_condition_that_fails_is_a_failed_attempt_unless_the_handler_says_otherwise() {
    let there = Item::from([("grant_id".to_owned(), Value::from("a")), ("fence".to_owned(), Value::from(1))]);
    let taken = |then: &str| {
        let grants = Grants::new(&format!(r#"{{"id":"a","then":"{then}"}}"#));
        grants.bed.guard.put_item("grants", there.clone()).unwrap();
        grants
    };
    let grants = taken("return");
    let report = grants.play(&[("LEASEHOLD_MAX_ATTEMPTS", "2")]).await;
    assert_eq!((report.failed, report.dead), (1, 1));
    let note = grants.bed.dead("jobs")[0].1.clone().unwrap();
    assert_eq!((note.code.as_str(), grants.ends()), ("condition_failed", (0, 0)));
    assert!(note.message.contains("write 1 to the table \"grants\""), "{}", note.message);

    let grants = taken("accept_condition");
    assert_eq!((grants.play(&[]).await.done, grants.ends()), (1, (0, 1)), "it was done before, says the handler");

    let grants = taken("commit_other");
    assert_eq!(grants.play(&[]).await.done, 1);
    grants.is_granted_once();
}

#[tokio::test(start_paused = true)]
async fn g12_what_is_committed_is_done_however_the_run_ends() {
    for then in ["return", "say_ok", "fail", "fail_for_good", "panic", "hang", "commit_again", "step"] {
        let grants = Grants::new(&format!(r#"{{"id":"a","then":"{then}"}}"#));
        let report = grants.play(&[("LEASEHOLD_HANDLER_TIMEOUT", "5s"), ("LEASEHOLD_MAX_ATTEMPTS", "1")]).await;
        assert_eq!((report.done, report.failed, report.dead), (1, 0, 0), "{then}");
        assert_eq!((grants.commits().len(), grants.record().failures), (1, 0), "{then}");
        grants.is_granted_once();
        assert_eq!(*grants.steps.lock().unwrap(), 0, "nothing begins after the end");
        let calls = grants.faults().calls();
        assert!(["confirm", "release", "bury", "step"].iter().all(|write| !calls.contains_key(*write)), "{calls:?}");
        assert!(grants.record().steps.is_empty() && grants.bed.guard.items("grants").len() == 1, "{then}");
    }
}

#[tokio::test(start_paused = true)]
async fn g12_what_is_committed_is_done_when_the_worker_stops_or_the_lease_ends() {
    let grants = Grants::new(r#"{"id":"a","then":"hang"}"#);
    let stops = Shutdown::when(sleep(3 * SECOND));
    assert_eq!(grants.worker(&[("LEASEHOLD_DRAIN_TIMEOUT", "10s")]).run(stops).await.unwrap().done, 1);
    grants.is_granted_once();

    let grants = Grants::new(r#"{"id":"a","then":"hang"}"#);
    let report = grants.play(&[("LEASEHOLD_HANDLER_TIMEOUT", "2m")]).await;
    assert_eq!((report.done, grants.commits().len()), (1, 1), "nothing renews what is done");
    grants.is_granted_once();
}

#[tokio::test(start_paused = true)]
async fn g12_what_comes_after_the_end_is_told_with_its_reason() {
    for (then, told) in [
        ("commit_again", "reason=\"commit_repeated\""),
        ("step", "reason=\"step_after_commit\""),
        ("fail", "after its work was committed"),
    ] {
        let log = Log::default();
        let _log = tracing::subscriber::set_default(log.subscriber());
        let grants = Grants::new(&format!(r#"{{"id":"a","then":"{then}"}}"#));
        grants.play(&[]).await;
        assert!(log.text().contains(told), "{told}: {}", log.text());
    }
}

#[tokio::test(start_paused = true)]
async fn g12_a_conflict_with_the_beat_or_a_throttle_is_sent_again_in_the_same_run() {
    for failure in [Failure::Conflict, Failure::Throttled] {
        let grants = Grants::new(r#"{"id":"a","before":"work"}"#);
        for _ in 0..3 {
            grants.faults().next("confirm_with", Fault::Fail(failure));
        }
        let report = grants.play(&[]).await;
        assert_eq!((report.done, grants.commits()), (1, vec!["ok".to_owned()]), "{failure:?}");
        assert!(grants.faults().calls()["renew"] > 0, "there was a beat");
        grants.is_granted_once();
    }
}

#[tokio::test(start_paused = true)]
async fn g12_a_beat_that_is_in_conflict_or_lands_after_the_commit_changes_nothing() {
    for fault in [Fault::Fail(Failure::Conflict), Fault::HangThenApply(12 * SECOND), Fault::Delay(12 * SECOND)] {
        let grants = Grants::new(r#"{"id":"a","before":"work","then":"hang"}"#);
        grants.faults().next("renew", fault);
        let report = grants.play(&[("LEASEHOLD_HANDLER_TIMEOUT", "1m")]).await;
        grants.faults().landed().await;
        assert_eq!((report.done, grants.faults().pending()), (1, 0), "{fault:?}");
        grants.is_granted_once();
    }
}

#[tokio::test(start_paused = true)]
async fn g12_others_at_the_same_items_use_no_attempt() {
    let grants = Grants::new(r#"{"id":"a"}"#);
    for _ in 0..8 {
        grants.faults().next("confirm_with", Fault::Fail(Failure::Conflict));
    }
    let report = grants.play(&[("LEASEHOLD_MAX_ATTEMPTS", "1")]).await;
    assert_eq!((report.done, report.failed, report.dead), (1, 0, 0));
    assert_eq!(grants.commits(), ["interrupted", "ok"]);
    grants.is_granted_once();
}

#[tokio::test(start_paused = true)]
async fn g6_time_that_a_slow_store_takes_from_a_commit_is_no_failed_attempt() {
    let grants = Grants::new(r#"{"id":"a"}"#);
    lose_all_tries(&grants, Fault::Hang);
    let vars = [("LEASEHOLD_HANDLER_TIMEOUT", "12s"), ("LEASEHOLD_MAX_ATTEMPTS", "1")];
    let report = grants.play(&vars).await;
    assert_eq!((report.done, report.failed, report.dead), (1, 0, 0));
    assert!(grants.faults().calls()["confirm_with"] > 3, "it was cut off, and came again");
    grants.is_granted_once();
}

#[tokio::test(start_paused = true)]
async fn g12_a_table_or_a_right_that_is_missing_is_not_there_and_uses_no_attempt() {
    for (failure, code) in [(Failure::Denied, "commit_denied"), (Failure::Missing, "commit_table_missing")] {
        let grants = Grants::new(r#"{"id":"a"}"#);
        grants.faults().next("confirm_with", Fault::Fail(failure));
        let report = grants.play(&[("LEASEHOLD_MAX_ATTEMPTS", "1")]).await;
        assert_eq!((report.done, report.dead, grants.commits()), (1, 0, vec![code.to_owned(), "ok".to_owned()]));
        assert_eq!(grants.faults().calls()["confirm_with"], 2, "it is not sent again and again");
        grants.is_granted_once();
    }
}

#[tokio::test(start_paused = true)]
async fn g12_a_record_that_steps_have_filled_is_committed() {
    let grants = Grants::new(r#"{"id":"a","before":"large_step"}"#);
    assert_eq!(grants.play(&[]).await.done, 1);
    assert!(grants.record().size() > 385_000);
    grants.is_granted_once();
}

#[tokio::test(start_paused = true)]
async fn g12_without_a_guard_a_commit_is_refused_for_good() {
    let grants = Grants::new(r#"{"id":"a"}"#);
    assert_eq!(grants.play(&[("LEASEHOLD_GUARD", "none")]).await.dead, 1);
    assert_eq!(grants.bed.dead("jobs")[0].1.as_ref().unwrap().code, "commit_without_guard");
    assert_eq!(grants.granted(), None);
}

#[tokio::test(start_paused = true)]
async fn g12_while_the_store_is_away_a_commit_waits_for_it_also_where_the_policy_is_open() {
    let grants = Grants::new(r#"{"id":"a"}"#);
    grants.faults().decide_with(|_| Some(Fault::Fail(Failure::Denied)));
    let back = async {
        sleep(100 * SECOND).await;
        grants.faults().clear();
    };
    let vars = [("LEASEHOLD_GUARD_OUTAGE", "open"), ("LEASEHOLD_START", "available"), ("LEASEHOLD_MAX_ATTEMPTS", "3")];
    let (report, ()) = tokio::join!(grants.play(&vars), back);
    assert_eq!((report.done, report.dead), (1, 0));
    assert!(grants.commits().iter().any(|code| code == "commit_without_guard"), "{:?}", grants.commits());
    grants.is_granted_once();
}

#[tokio::test(start_paused = true)]
async fn g12_what_no_store_takes_fails_for_good() {
    let grants = Grants::new(r#"{"id":"a"}"#);
    grants.bed.guard.add_table("receipts", &["another_key"]);
    assert_eq!(grants.play(&[]).await.dead, 1);
    let note = grants.bed.dead("jobs")[0].1.clone().unwrap();
    assert_eq!(note.code, "commit_refused");
    assert!(
        note.message.contains("write 0 (table \"receipts\"): the key's attribute \"another_key\" is missing"),
        "{}",
        note.message
    );
}
