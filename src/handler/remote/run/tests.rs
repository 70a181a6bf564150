use std::sync::Arc;

use tokio::sync::oneshot;

use super::*;
use crate::{
    guard::{
        execution::{ExecutionLease, claimed},
        memory::MemoryGuard,
    },
    handler::{remote::Runs, steps::Part},
    message::Message,
    testing::{Fault, Faults},
};

const LEASE: Duration = Duration::from_secs(30);

/// A run with a claim, on a guard with faults.
async fn run() -> (JobContext, Arc<ExecutionLease>, MemoryGuard, Faults) {
    let (claim, clock, table, faults) = claimed(LEASE).await;
    let claim = Arc::new(claim);
    let mut cx = JobContext::of(&Message::default());
    cx.steps = Steps::Recorded(Recorder::new(Arc::clone(&claim), clock, Part::Work));
    cx.remote = Some(Runs::new("http://127.0.0.1:9465".to_owned(), [7; 32]));
    (cx, claim, table, faults)
}

/// Work that begins steps, and fails while the ends of them all are on their way.
async fn fails_beside(run: Askable<'_>, ends: Vec<Ask>) -> HandlerResult {
    let runs = run.cx.remote.as_ref().expect("is listed");
    let line = runs.find(&run.place.name, &run.place.token).expect("is listed");
    let work = async {
        for step in ["a", "b", "c"] {
            let begin = Ask::Begin { step: step.to_owned(), kind: Kind::Once, call: None };
            line.ask(begin).await.expect("is answered").expect("begins");
        }
        for ask in ends {
            let (answer, _) = oneshot::channel();
            line.0.send(Asked { ask, answer }).await.expect("there is room");
        }
        Err("another part of it failed".into())
    };
    answering(Some(run), work).await
}

fn ends() -> Vec<Ask> {
    vec![
        Ask::Done { step: "a".to_owned(), result: Some("1".to_owned()) },
        Ask::Begin { step: "d".to_owned(), kind: Kind::Repeatable, call: None },
        Ask::Failed { step: "b".to_owned(), how: Failure::NotBegun },
        Ask::Done { step: "c".to_owned(), result: None },
    ]
}

#[tokio::test(start_paused = true)]
async fn s1_ends_of_steps_that_are_told_as_the_work_ends_are_recorded() {
    let (cx, claim, table, _) = run().await;
    let ended = fails_beside(Askable::list(&cx).expect("can be asked"), ends()).await;
    // One result was not kept, which is for good.
    assert_eq!(ended.expect_err("fails").code(), "step_result_not_kept");
    let record = table.record(&claim.pk).expect("a record");
    let steps: Vec<_> = record.steps.iter().map(|(name, step)| (name.as_str(), step.state)).collect();
    assert_eq!(steps, [("a", StepState::Done), ("b", StepState::Undone), ("c", StepState::Done)]);
}

#[tokio::test(start_paused = true)]
async fn s1_ends_of_steps_that_cannot_be_written_at_once_are_left_to_the_job() {
    let (cx, claim, table, faults) = run().await;
    let run = Askable::list(&cx).expect("can be asked");
    faults.decide_with(|call| (call.operation == "step" && call.number > 3).then_some(Fault::Hang));
    let begun = Instant::now();
    let ended = fails_beside(run, ends()).await;
    assert_eq!((ended.expect_err("fails").code(), begun.elapsed()), ("error", Duration::ZERO));
    assert!(claim.has_unwritten_steps());
    faults.clear();
    claim.flush().await;
    let record = table.record(&claim.pk).expect("a record");
    let steps: Vec<_> = record.steps.iter().map(|(name, step)| (name.as_str(), step.state)).collect();
    assert_eq!(steps, [("a", StepState::Done), ("b", StepState::Undone), ("c", StepState::Done)]);
}
