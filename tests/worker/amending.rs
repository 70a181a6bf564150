//! What operators make of a record, and what workers then make of the next message (rules G2, S1, S2).

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{
    Config, Handler, HandlerError, HandlerResult, JobContext, Key, Raw, ResultExt, StopReport,
    guard::{FinishedSteps, NotBefore, Pk, Record, Status, Step, StepState, StepWord},
    ops::{Ops, StepNames},
    queue::{Queue, Receive},
    testing::{Fault, TestBed},
};
use tokio::time::sleep;

use crate::bench::crashes_after;

const VARS: [(&str, &str); 3] =
    [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_VISIBILITY_TIMEOUT", "30s")];

/// Charges in a step; a body with `"bad"` in it fails for good after that.
#[derive(Debug, Clone, Default)]
struct Till {
    runs: Arc<Mutex<u32>>,
    /// The downstream keys of the step, each time it really ran.
    charges: Arc<Mutex<Vec<String>>>,
}

impl Handler for Till {
    type Payload = Raw;

    async fn handle(&self, body: &Raw, cx: &JobContext) -> HandlerResult {
        *self.runs.lock().unwrap() += 1;
        let charge = async |key: leasehold::StepKey| {
            self.charges.lock().unwrap().push(key.to_string());
            Ok::<_, HandlerError>("charged".to_owned())
        };
        cx.step("charge", charge).await?;
        if body.0.body.contains("bad") { Err("never").permanent().reason("hopeless") } else { Ok(()) }
    }
}

/// A queue, a table, what ran, and an operator.
struct Stage {
    bed: TestBed,
    till: Till,
    ops: Ops,
}

impl Stage {
    fn new() -> Self {
        let bed = TestBed::new(&["jobs"]);
        let vars = VARS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let (config, _) = Config::from_vars(vars).unwrap();
        let (broker, guard) = (Arc::new(bed.broker.clone()), Arc::new(bed.guard.clone()));
        let ops = Ops::with_adapters(config, broker, guard, bed.broker.clock().clone());
        Self { bed, till: Till::default(), ops }
    }

    /// Works until nothing is left.
    async fn works(&self) -> StopReport {
        self.bed.worker(&VARS).queue("jobs", self.till.clone()).run(self.bed.until_idle()).await.unwrap()
    }

    /// Sends a message of the key `a`, and works.
    async fn takes(&self, body: &str) -> StopReport {
        self.bed.send("jobs", body);
        self.works().await
    }

    async fn record(&self) -> Record {
        self.ops.record(&self.pk()).await.unwrap().unwrap()
    }

    fn pk(&self) -> Pk {
        self.ops.pk("jobs", &Key::from("a")).unwrap()
    }

    async fn resets(&self, steps: FinishedSteps) {
        let plan = self.ops.reset(&self.record().await, steps, NotBefore::Keep, "ann").unwrap();
        self.ops.amend(&plan).await.unwrap();
    }

    async fn says_of_the_charge(&self, word: StepWord) {
        let plan = self.ops.step(&self.record().await, "charge", StepNames::Recorded, &word, "ann").unwrap();
        self.ops.amend(&plan).await.unwrap();
    }

    fn runs(&self) -> u32 {
        *self.till.runs.lock().unwrap()
    }

    fn charges(&self) -> Vec<String> {
        self.till.charges.lock().unwrap().clone()
    }

    /// Puts a record there whose step `charge` was started, and is not known to have ended.
    async fn in_doubt(&self, generation: u32) {
        self.takes(GOOD).await;
        self.resets(FinishedSteps::Keep).await;
        let mut record = self.record().await;
        let step = Step { state: StepState::Started, generation, result: None, at: record.updated_at };
        record.steps.insert("charge".into(), step);
        self.bed.guard.put(record);
        self.till.charges.lock().unwrap().clear();
    }
}

const GOOD: &str = r#"{"id":"a"}"#;
const BAD: &str = r#"{"id":"a","bad":true}"#;

#[tokio::test(start_paused = true)]
async fn a_dead_key_that_was_reset_runs_also_for_a_message_that_is_older_than_its_failure() {
    let stage = Stage::new();
    stage.bed.send("jobs", BAD);
    stage.bed.send("jobs", BAD);
    // The second message is elsewhere while the first one fails.
    let hidden = Receive { max: 1, wait: Duration::ZERO, visibility: Duration::from_secs(600), attempt_id: None };
    assert_eq!(stage.bed.queue("jobs").receive(&hidden).await.unwrap().len(), 1);
    let worker = stage.bed.worker(&VARS).queue("jobs", stage.till.clone());
    assert_eq!(worker.run(leasehold::Shutdown::when(sleep(Duration::from_secs(60)))).await.unwrap().dead, 1);
    assert_eq!(stage.record().await.status, Status::Dead);

    stage.resets(FinishedSteps::Keep).await;
    let report = stage.works().await;
    assert_eq!((report.dead, report.suppressed, stage.runs()), (1, 0, 2));
    assert_eq!(stage.charges(), ["jobs#a/charge"], "a finished step is not repeated");
}

#[tokio::test(start_paused = true)]
async fn g9_a_done_key_that_was_reset_runs_once_more_whatever_its_payload_and_is_then_compared_again() {
    let stage = Stage::new();
    assert_eq!(stage.takes(GOOD).await.done, 1);
    assert_eq!(stage.takes(GOOD).await.suppressed, 1);
    stage.resets(FinishedSteps::Keep).await;
    let mended = r#"{"id":"a","mended":1}"#;
    assert_eq!(stage.takes(mended).await.done, 1);
    assert_eq!((stage.runs(), stage.charges().len()), (2, 1));
    assert_eq!(stage.takes(mended).await.suppressed, 1);
    assert_eq!(stage.takes(GOOD).await.dead, 1, "another payload under the same key");
}

#[tokio::test(start_paused = true)]
async fn s1_a_reset_with_all_steps_runs_them_under_another_downstream_key() {
    let stage = Stage::new();
    stage.takes(GOOD).await;
    stage.resets(FinishedSteps::Repeat).await;
    assert_eq!(stage.takes(GOOD).await.done, 1);
    assert_eq!(stage.charges(), ["jobs#a/charge", "jobs#a/charge/2"]);
}

#[tokio::test(start_paused = true)]
async fn d2_a_reset_starts_no_run_beside_one_that_may_still_run_unless_somebody_says_now() {
    for (not_before, waits) in [(NotBefore::Keep, true), (NotBefore::Clear, false)] {
        let stage = Stage::new();
        stage.takes(GOOD).await;
        stage.resets(FinishedSteps::Keep).await;
        let mut record = stage.record().await;
        record.not_before = Some(record.updated_at + Duration::from_secs(300));
        stage.bed.guard.put(record.clone());
        let plan = stage.ops.reset(&record, FinishedSteps::Keep, not_before, "ann").unwrap();
        stage.ops.amend(&plan).await.unwrap();
        let began = tokio::time::Instant::now();
        assert_eq!(stage.takes(GOOD).await.done, 1);
        assert_eq!(began.elapsed() >= Duration::from_secs(300), waits, "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn g9_a_duplicate_from_before_a_reset_gives_the_key_its_payload_too() {
    let stage = Stage::new();
    stage.takes(GOOD).await;
    stage.bed.send("jobs", GOOD);
    stage.resets(FinishedSteps::Keep).await;
    assert_eq!(stage.works().await.done, 1);
    assert_eq!(stage.takes(r#"{"id":"a","other":1}"#).await.dead, 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_done_by_hand_is_not_run_with_or_without_a_record() {
    let stage = Stage::new();
    let plan = stage.ops.done("jobs", &stage.pk(), None, None, "ann").unwrap();
    stage.ops.amend(&plan).await.unwrap();
    assert_eq!(stage.takes(GOOD).await.suppressed, 1);

    let stage = Stage::new();
    assert_eq!(stage.takes(BAD).await.dead, 1);
    let plan = stage.ops.done("jobs", &stage.pk(), Some(&stage.record().await), None, "ann").unwrap();
    stage.ops.amend(&plan).await.unwrap();
    assert_eq!(stage.takes(BAD).await.suppressed, 1);
    assert_eq!(stage.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn s2_a_step_in_doubt_that_took_effect_is_not_run() {
    let stage = Stage::new();
    stage.in_doubt(1).await;
    stage.says_of_the_charge(StepWord::Done(r#""by hand""#.into())).await;
    assert_eq!(stage.takes(GOOD).await.done, 1);
    assert_eq!(stage.charges(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn s2_a_step_in_doubt_that_took_no_effect_runs_under_the_downstream_key_that_it_had() {
    for (generation, key) in [(1, "jobs#a/charge"), (2, "jobs#a/charge/2")] {
        let stage = Stage::new();
        stage.in_doubt(generation).await;
        stage.says_of_the_charge(StepWord::Again).await;
        assert_eq!(stage.takes(GOOD).await.done, 1);
        assert_eq!(stage.charges(), [key]);
    }
}

#[tokio::test(start_paused = true)]
async fn g2_a_former_owners_late_confirm_changes_nothing_after_a_reset() {
    let stage = Stage::new();
    stage.bed.send("jobs", GOOD);
    // It is carried out long after its sender is gone.
    stage.bed.guard_faults.next("confirm", Fault::HangThenApply(Duration::from_secs(300)));
    crashes_after(Duration::from_secs(3), stage.bed.worker(&VARS).queue("jobs", stage.till.clone())).await;
    sleep(Duration::from_secs(60)).await;
    stage.resets(FinishedSteps::Keep).await;
    let reset = stage.record().await;
    sleep(Duration::from_secs(300)).await;
    let history = stage.bed.guard.calls();
    assert!(history.get("confirm").is_some_and(|calls| *calls > 0), "it has arrived: {history:?}");
    assert_eq!(stage.record().await, reset);
    assert_eq!(stage.works().await.done, 1);
}
