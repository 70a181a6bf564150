//! Steps: what is recorded never runs again (rule S1).

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use leasehold::{
    HandlerError, HandlerResult, JobContext, Raw, ResultExt, Shutdown, StopReport,
    guard::{Pk, StepState},
    testing::{Failure, Fault, TestBed},
};
use tokio::time::sleep;

const VARS: [(&str, &str); 3] =
    [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_BACKOFF", "1s..1s")];

/// A bed with one message, a log of what ran, and what a handler needs of them.
#[derive(Clone)]
struct Stage {
    bed: TestBed,
    log: Arc<Mutex<Vec<String>>>,
    runs: Arc<AtomicU32>,
}

impl Stage {
    fn new() -> Self {
        let bed = TestBed::new(&["jobs"]);
        bed.send("jobs", r#"{"id":"a"}"#);
        Self { bed, log: Arc::default(), runs: Arc::default() }
    }

    fn note(&self, what: impl Into<String>) {
        self.log.lock().unwrap().push(what.into());
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Which run this is, from 1.
    fn run(&self) -> u32 {
        self.runs.fetch_add(1, Ordering::Relaxed) + 1
    }

    async fn play<F>(&self, vars: &[(&str, &str)], function: F) -> StopReport
    where
        F: AsyncHandler,
    {
        let stage = self.clone();
        let all: Vec<_> = VARS.iter().chain(vars).copied().collect();
        let handler = StageHandler { stage, function };
        self.bed.worker(&all).queue("jobs", handler).run(self.bed.until_idle()).await.unwrap()
    }
}

/// An async function of the stage and the context, with a future that is `Send`.
trait AsyncHandler: Send + Sync + 'static {
    fn call(&self, stage: &Stage, cx: &JobContext) -> impl Future<Output = HandlerResult> + Send;
}

struct StageHandler<F> {
    stage: Stage,
    function: F,
}

impl<F: AsyncHandler> leasehold::Handler for StageHandler<F> {
    type Payload = Raw;
    async fn handle(&self, _: &Raw, cx: &JobContext) -> HandlerResult {
        self.function.call(&self.stage, cx).await
    }
}

macro_rules! plays {
    ($name:ident, |$stage:ident, $cx:ident| $body:block) => {
        struct $name;
        impl AsyncHandler for $name {
            async fn call(&self, $stage: &Stage, $cx: &JobContext) -> HandlerResult $body
        }
    };
}

plays!(ChargeThenMail, |stage, cx| {
    let run = stage.run();
    let charge: String = cx
        .step("charge", async |key| {
            stage.note(format!("charge {key}"));
            Ok::<_, HandlerError>(format!("charge of run {run}"))
        })
        .await?;
    cx.step("mail", async |_| {
        stage.note(format!("mail {charge}"));
        if run < 3 { Err("the mail server is down") } else { Ok(()) }
    })
    .await?;
    Ok(())
});

#[tokio::test(start_paused = true)]
async fn s1_a_recorded_step_returns_what_it_recorded_and_never_runs_again() {
    let stage = Stage::new();
    let report = stage.play(&[], ChargeThenMail).await;
    assert_eq!((report.done, report.failed), (1, 2));
    let mail = "mail charge of run 1";
    assert_eq!(stage.log(), ["charge jobs#a/charge", mail, mail, mail]);
}

#[tokio::test(start_paused = true)]
async fn s1_a_step_whose_record_is_late_is_written_before_the_claim_is_given_back() {
    let stage = Stage::new();
    for _ in 0..200 {
        stage.bed.guard_faults.next("step", Fault::Fail(Failure::Unavailable));
    }
    let report = stage.play(&[("LEASEHOLD_VISIBILITY_TIMEOUT", "10s")], ChargeThenMail).await;
    assert_eq!(report.done, 1);
    let charges: Vec<_> = stage.log().into_iter().filter(|line| line.starts_with("charge")).collect();
    assert_eq!(charges, ["charge jobs#a/charge"]);
}

plays!(NoJson, |stage, cx| {
    let _: BTreeMap<Vec<u8>, u8> = cx
        .step("odd", async |key| {
            stage.note(key.to_string());
            Ok::<_, HandlerError>(BTreeMap::from([(vec![1], 1)]))
        })
        .await?;
    Ok(())
});

#[tokio::test(start_paused = true)]
async fn s1_a_result_that_is_no_json_is_kept_as_done_and_fails_for_good() {
    let stage = Stage::new();
    let report = stage.play(&[], NoJson).await;
    assert_eq!((report.dead, stage.log().len()), (1, 1));
    assert_eq!(stage.bed.dead("jobs")[0].1.as_ref().unwrap().code, "step_result_not_kept");
}

#[tokio::test(start_paused = true)]
async fn g6_time_that_a_slow_store_takes_from_a_handler_is_no_failed_attempt() {
    let stage = Stage::new();
    for _ in 0..3 {
        stage.bed.guard_faults.next("step", Fault::Hang);
    }
    let vars = [("LEASEHOLD_HANDLER_TIMEOUT", "10s"), ("LEASEHOLD_MAX_ATTEMPTS", "2")];
    let report = stage.play(&vars, ChargeThenMail).await;
    assert_eq!((report.done, report.failed, report.dead), (1, 1, 0), "only the mail server's failure counts");
    assert_eq!(stage.log().iter().filter(|line| line.starts_with("charge")).count(), 1);
}

plays!(Refused, |stage, cx| {
    let run = stage.run();
    cx.step("charge", async |key| {
        stage.note(key.as_str());
        if run == 1 { Err("card declined").definite() } else { Ok(()) }
    })
    .await
});

#[tokio::test(start_paused = true)]
async fn s1_a_definite_refusal_begins_a_new_generation_of_the_step() {
    let stage = Stage::new();
    assert_eq!(stage.play(&[], Refused).await.done, 1);
    assert_eq!(stage.log(), ["jobs#a/charge", "jobs#a/charge/2"]);
}

plays!(Twice, |stage, cx| {
    stage.run();
    cx.step("charge", async |_| Ok::<_, HandlerError>(())).await?;
    cx.step("charge", async |_| Ok::<_, HandlerError>(())).await
});

#[tokio::test(start_paused = true)]
async fn s1_the_same_name_twice_in_a_run_is_a_permanent_error() {
    let stage = Stage::new();
    assert_eq!(stage.play(&[], Twice).await.dead, 1);
    assert_eq!(stage.bed.dead("jobs")[0].1.as_ref().unwrap().code, "step_repeated");
}

plays!(TooLarge, |stage, cx| {
    let run = stage.run();
    stage.note(format!("run {run}"));
    cx.step("report", async |_| {
        stage.note("report");
        Ok::<_, HandlerError>("x".repeat(500_000))
    })
    .await?;
    Ok(())
});

#[tokio::test(start_paused = true)]
async fn s1_a_result_too_large_for_the_record_is_kept_as_done_and_fails_for_good() {
    let stage = Stage::new();
    assert_eq!(stage.play(&[], TooLarge).await.dead, 1);
    assert_eq!(stage.bed.dead("jobs")[0].1.as_ref().unwrap().code, "step_result_not_kept");
    let record = stage.bed.guard.record(&Pk("jobs#a".into())).unwrap();
    assert_eq!((record.steps["report"].state, &record.steps["report"].result), (StepState::Done, &None));
    assert_eq!(stage.log(), ["run 1", "report"]);
}

plays!(Full, |stage, cx| {
    for n in 0..10 {
        cx.step(format!("part-{n}"), async |_| {
            stage.note(format!("part {n}"));
            Ok::<_, HandlerError>("x".repeat(60_000))
        })
        .await?;
    }
    Ok(())
});

#[tokio::test(start_paused = true)]
async fn s1_room_is_looked_at_before_a_step_is_begun() {
    let stage = Stage::new();
    assert_eq!(stage.play(&[], Full).await.dead, 1);
    let code = stage.bed.dead("jobs")[0].1.as_ref().unwrap().code.clone();
    assert!(["record_full", "step_result_not_kept"].contains(&code.as_str()), "{code}");
    let record = stage.bed.guard.record(&Pk("jobs#a".into())).unwrap();
    assert!(record.size() < 400 * 1024);
    assert_eq!(record.steps.len(), stage.log().len(), "whatever ran is recorded");
}

plays!(Slow, |stage, cx| {
    let run = stage.run();
    cx.step("long", async |key| {
        stage.note(format!("run {run}: {key}"));
        if run == 1 {
            sleep(Duration::from_secs(3600)).await;
        }
        Ok::<_, HandlerError>(())
    })
    .await?;
    Ok(())
});

plays!(Late, |stage, cx| {
    cx.cancelled().wait().await;
    cx.step("late", async |_| {
        stage.note("late");
        Ok::<_, HandlerError>(())
    })
    .await
});

#[tokio::test(start_paused = true)]
async fn s1_no_step_is_begun_once_the_run_is_told_to_stop() {
    let stage = Stage::new();
    let handler = StageHandler { stage: stage.clone(), function: Late };
    let worker = stage.bed.worker(&VARS).queue("jobs", handler);
    worker.run(Shutdown::when(sleep(Duration::from_secs(1)))).await.unwrap();
    assert!(stage.log().is_empty());
    assert_eq!(stage.bed.queue("jobs").visible(), 1);
}

#[tokio::test(start_paused = true)]
async fn s1_a_step_that_is_cut_off_runs_again_with_the_same_key() {
    let stage = Stage::new();
    let report = stage.play(&[("LEASEHOLD_HANDLER_TIMEOUT", "1m")], Slow).await;
    assert_eq!((report.done, report.failed), (1, 1));
    assert_eq!(stage.log(), ["run 1: jobs#a/long", "run 2: jobs#a/long"]);
}

#[tokio::test(start_paused = true)]
async fn g12_without_a_guard_a_step_is_refused_for_good() {
    let stage = Stage::new();
    assert_eq!(stage.play(&[("LEASEHOLD_GUARD", "none")], ChargeThenMail).await.dead, 1);
    assert_eq!(stage.bed.dead("jobs")[0].1.as_ref().unwrap().code, "step_without_guard");
    assert!(stage.log().is_empty());
}
