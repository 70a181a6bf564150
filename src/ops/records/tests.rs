use std::sync::Arc;

use super::*;
use crate::{
    clock::Clock,
    config::Config,
    guard::{Claim, Source, Status, StepState},
    testing::{Failure, Fault, Faults, FaultyGuard, MemoryBroker, MemoryGuard},
};

struct Stage {
    ops: Ops,
    table: MemoryGuard,
    faults: Faults,
}

impl Stage {
    fn new(vars: &[(&str, &str)]) -> Self {
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let (config, _) = Config::from_vars_for_tools(vars).unwrap();
        let (table, faults) = (MemoryGuard::default(), Faults::default());
        let guard = FaultyGuard::new(Arc::new(table.clone()), faults.clone());
        let ops =
            Ops::with_adapters(config, Arc::new(MemoryBroker::default()), Arc::new(guard), Clock::simulated(1, 0));
        Self { ops, table, faults }
    }

    /// A record with a lease that ends so many seconds from now.
    fn running(&self, seconds: u64) -> Record {
        let now = self.ops.clock.wall();
        let claim = Claim {
            pk: Pk("payments#p1".into()),
            owner: Owner("worker".into()),
            now,
            lease_until: now + Duration::from_secs(seconds),
            fingerprint: None,
            source: Source { worker: "w".into(), ..Source::default() },
        };
        self.table.put(claim.record());
        claim.record()
    }

    fn lapsed(&self) -> Record {
        let mut record = self.running(0);
        record.lease_until.0 -= 2_000;
        self.table.put(record.clone());
        record
    }
}

fn payments() -> Stage {
    Stage::new(&[("LEASEHOLD_QUEUES", "payments")])
}

#[tokio::test(start_paused = true)]
async fn g10_a_key_is_looked_up_as_workers_name_it() {
    let stage = Stage::new(&[
        ("LEASEHOLD_QUEUES", "payments,mails,plain"),
        ("LEASEHOLD_NAMESPACE", "prod"),
        ("LEASEHOLD_MAILS_OPERATION", "payments"),
        ("LEASEHOLD_PLAIN_GUARD", "none"),
    ]);
    let pk = stage.ops.pk("mails", &Key::from(("a", 7))).unwrap();
    assert_eq!(pk, Pk("prod/payments#a#n:7".into()));
    assert_eq!(stage.ops.queues_of(&pk).collect::<Vec<_>>(), ["mails", "payments"]);
    assert_eq!(stage.ops.queues_of(&Pk("payments#a".into())).count(), 0);
    assert!(matches!(stage.ops.pk("plain", &Key::from("a")), Err(OpsError::Unguarded { queue }) if queue == "plain"));
    for (queue, key) in [("mail", "a"), ("mails", "")] {
        assert!(matches!(stage.ops.pk(queue, &Key::from(key)), Err(OpsError::Configuration(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn g4_what_a_worker_runs_is_left_to_it_until_the_skew_is_over_too() {
    let stage = payments();
    for seconds in [1, 0] {
        let record = stage.running(seconds);
        let told = [
            stage.ops.reset(&record, FinishedSteps::Keep, NotBefore::Keep, "ann").is_err(),
            stage.ops.step(&record, "charge", StepNames::Recorded, &StepWord::Done("1".into()), "ann").is_err(),
            stage.ops.done("payments", &record.pk, Some(&record), None, "ann").is_err(),
        ];
        assert_eq!(told, [true; 3]);
    }
    let held = stage.ops.reset(&stage.running(1), FinishedSteps::Keep, NotBefore::Keep, "ann").unwrap_err();
    assert!(held.is_transient());
    let told = held.to_string();
    assert!(told.contains("\"w\"") && told.contains("3s from now"), "{told}");
    stage.ops.reset(&stage.lapsed(), FinishedSteps::Keep, NotBefore::Keep, "ann").unwrap();
}

#[tokio::test(start_paused = true)]
async fn done_by_hand_is_remembered_as_long_as_the_queue_says_or_somebody_does() {
    let stage = Stage::new(&[("LEASEHOLD_QUEUES", "payments"), ("LEASEHOLD_DONE_TTL", "20d")]);
    let (pk, now) = (Pk("payments#p1".into()), stage.ops.clock.wall());
    let days = |days: u64| Duration::from_secs(days * 86_400);
    for (ttl, expected) in [(None, days(20)), (Some(days(3)), days(3))] {
        let amend = stage.ops.done("payments", &pk, None, ttl, "ann").unwrap();
        assert_eq!(amend.record.expires_at, (now + expected).seconds());
    }
    assert!(matches!(stage.ops.done("mails", &pk, None, None, "ann"), Err(OpsError::Configuration(_))));
    // Of a queue that is not configured here, if somebody says how long.
    stage.ops.done("mails", &pk, None, Some(days(3)), "ann").unwrap();
}

#[tokio::test(start_paused = true)]
async fn g4_what_has_expired_counts_as_no_record_and_is_not_brought_back() {
    let stage = payments();
    let mut record = Record { status: Status::Done, ..stage.lapsed() };
    record.expires_at = stage.ops.clock.wall().seconds();
    let done = StepWord::Done("1".into());
    for refused in [
        stage.ops.reset(&record, FinishedSteps::Keep, NotBefore::Keep, "ann"),
        stage.ops.step(&record, "charge", StepNames::Recorded, &done, "ann"),
    ] {
        assert!(matches!(refused, Err(OpsError::Expired { at }) if at == stage.ops.clock.wall()), "{refused:?}");
    }
    stage.ops.done("payments", &record.pk, Some(&record), None, "ann").unwrap();
    record.expires_at.0 += 1;
    stage.ops.reset(&record, FinishedSteps::Keep, NotBefore::Keep, "ann").unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_changed_meanwhile_is_shown_and_left_alone() {
    let stage = payments();
    let record = stage.lapsed();
    let amend = stage.ops.reset(&record, FinishedSteps::Keep, NotBefore::Keep, "ann").unwrap();
    let now = stage.running(30);
    let Err(OpsError::Changed { now: told }) = stage.ops.amend(&amend).await else { panic!("it is another") };
    assert_eq!((told.as_deref(), stage.table.record(&record.pk)), (Some(&now), Some(now.clone())));
}

#[tokio::test(start_paused = true)]
async fn g3_a_lost_reply_to_an_amendment_is_success() {
    let stage = payments();
    let amend = stage.ops.reset(&stage.lapsed(), FinishedSteps::Keep, NotBefore::Keep, "ann").unwrap();
    stage.faults.next("amend", Fault::LoseReply);
    stage.ops.amend(&amend).await.unwrap();
    assert_eq!(stage.table.record(&amend.record.pk), Some(amend.record));
    for busy in [Failure::Throttled, Failure::Conflict] {
        let amend = stage.ops.reset(&stage.lapsed(), FinishedSteps::Keep, NotBefore::Keep, "ann").unwrap();
        stage.faults.next("amend", Fault::Fail(busy));
        stage.ops.amend(&amend).await.unwrap();
    }
    let denied = stage.ops.reset(&stage.lapsed(), FinishedSteps::Keep, NotBefore::Keep, "ann").unwrap();
    stage.faults.next("amend", Fault::Fail(Failure::Denied));
    assert!(matches!(stage.ops.amend(&denied).await, Err(OpsError::Guard { table, .. }) if table == "leasehold"));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_is_not_as_it_was_thought_is_told() {
    let stage = payments();
    let mut record = stage.lapsed();
    let told = |record: &Record, name: &str, word: &StepWord| {
        stage
            .ops
            .step(record, name, StepNames::Recorded, word, "ann")
            .map_or_else(|error| error.to_string(), |_| "planned".to_owned())
    };
    assert!(told(&record, "charge", &StepWord::Again).contains("nor is any"));
    let done = StepWord::Done("1".into());
    let step =
        crate::guard::Step { state: StepState::Done, generation: 1, result: Some("1".into()), at: record.updated_at };
    record.steps.insert("charge".into(), step);
    for word in [&StepWord::Again, &done] {
        let refused = stage.ops.step(&record, "chagre", StepNames::Recorded, word, "ann");
        let Err(OpsError::NoSuchStep { name, known }) = refused else { panic!("{refused:?}") };
        assert_eq!((name.as_str(), known), ("chagre", vec!["charge".to_owned()]));
    }
    assert!(told(&record, "chagre", &done).contains(r#"there is "charge""#));
    stage.ops.step(&record, "mail", StepNames::Any, &done, "ann").unwrap();
    let again = stage.ops.step(&record, "mail", StepNames::Any, &StepWord::Again, "ann");
    assert!(matches!(again, Err(OpsError::NoSuchStep { .. })), "{again:?}");
    assert!(told(&record, "charge", &done).contains("done already"));
    assert_eq!(told(&record, "charge", &StepWord::Done("2".into())), "planned");
    assert!(told(&record, "", &done).contains("no name"));
    assert!(told(&record, &"x".repeat(256), &done).contains("256 bytes, of 255"));
    assert!(told(&record, "charge", &StepWord::Done("{".into())).contains("no JSON"));
    record.steps.clear();
    assert_eq!(told(&record, &"x".repeat(255), &done), "planned");
    assert_eq!(record.status, Status::Running);
}

#[tokio::test(start_paused = true)]
async fn s3_what_is_not_undone_to_the_end_is_reset_with_all_of_its_steps_or_not_at_all() {
    let stage = payments();
    let failed = Record { status: Status::Failed, ..stage.lapsed() };
    let told = stage.ops.reset(&failed, FinishedSteps::Keep, NotBefore::Clear, "ann").unwrap_err();
    assert!(matches!(told, OpsError::Undoing) && told.to_string().contains("undo is not finished"), "{told}");
    stage.ops.reset(&failed, FinishedSteps::Repeat, NotBefore::Keep, "ann").unwrap();
}

#[tokio::test(start_paused = true)]
async fn g3_what_may_have_been_written_before_another_wrote_is_not_called_unwritten() {
    // Somebody writes between the first try, which is not answered, and the second.
    for (written, fence, is_unsure) in [(true, 1, true), (false, 1, true), (false, 0, false)] {
        let stage = payments();
        let amend = stage.ops.reset(&stage.lapsed(), FinishedSteps::Keep, NotBefore::Keep, "ann").unwrap();
        let mut other = amend.record.clone();
        (other.owner, other.fence.0) = (Owner("other".into()), amend.record.fence.0 + fence);
        let (table, put) = (stage.table.clone(), other.clone());
        stage.faults.decide_with(move |call| match call.number {
            1 if written => Some(Fault::LoseReply),
            1 => Some(Fault::Fail(Failure::NoAnswer)),
            _ => {
                table.put(put.clone());
                None
            }
        });
        let answer = stage.ops.amend(&amend).await;
        let now = match (answer, is_unsure) {
            (Err(OpsError::Overtaken { now }), true) | (Err(OpsError::Changed { now }), false) => now,
            answer => panic!("{written} {fence}: {answer:?}"),
        };
        assert_eq!(now.as_deref(), Some(&other));
    }
}
