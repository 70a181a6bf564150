//! What is asked of an account in memory, and what is told of what could not be looked at.

use std::{sync::Arc, time::Duration};

use super::{DAY, Error, Note, Warning};
use crate::{
    clock::Clock,
    config::Config,
    guard::{TableFacts, TableKey, memory::MemoryGuard},
    message::ReceiptHandle,
    ops::{
        Ops,
        doctor::{Ask, Severity},
    },
    queue::{Outgoing, Receive, memory::MemoryQueueSettings},
    testing::{Failure, Fault, Faults, FaultyBroker, FaultyGuard, MemoryBroker},
};

/// An account in memory with faults.
struct Account {
    broker: MemoryBroker,
    queues: Arc<FaultyBroker>,
    guard: MemoryGuard,
    table: Faults,
    ops: Ops,
}

fn account(vars: &[(&str, &str)]) -> Account {
    let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let (config, _) = Config::from_vars_for_tools(vars).unwrap();
    let (broker, guard, table) = (MemoryBroker::default(), MemoryGuard::default(), Faults::default());
    let queues = Arc::new(FaultyBroker::new(Arc::new(broker.clone())));
    let faulty = FaultyGuard::new(Arc::new(guard.clone()), table.clone());
    let ops = Ops::with_adapters(config, queues.clone(), Arc::new(faulty), Clock::simulated(1, 0));
    Account { broker, queues, guard, table, ops }
}

fn jobs() -> Account {
    let account =
        account(&[("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_HANDLER", "exec:true")]);
    let kept = MemoryQueueSettings { retention: 14 * DAY, ..MemoryQueueSettings::default() };
    account.broker.create("jobs-dlq", kept);
    let redrive = Some(("jobs-dlq".to_owned(), 100));
    account.broker.create("jobs", MemoryQueueSettings { redrive, ..MemoryQueueSettings::default() });
    account
}

impl Account {
    async fn told(&self) -> Vec<(Severity, &'static str, String)> {
        let findings = self.ops.doctor(&Ask::default()).await.unwrap().findings;
        findings.into_iter().map(|f| (f.severity, f.check, f.mend.unwrap_or(f.found))).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn looking_changes_no_message_and_no_record() {
    let account = jobs();
    let queue = account.broker.queue("jobs");
    for body in ["a", "b"] {
        queue.put(Outgoing { body: body.into(), ..Outgoing::default() });
    }
    let ask = Receive { max: 1, wait: Duration::ZERO, visibility: Duration::from_secs(30), attempt_id: None };
    let held = crate::queue::Queue::receive(&*queue, &ask).await.unwrap();
    assert_eq!(account.told().await, []);
    assert_eq!((queue.in_flight(), queue.visible(), account.broker.queue("jobs-dlq").len()), (1, 1, 0));
    assert_eq!(account.guard.records(), []);
    let handle: &ReceiptHandle = &held[0].handle;
    crate::queue::Queue::delete(&*queue, handle).await.unwrap();
    assert_eq!(queue.len(), 1, "the handle still holds");
    let tried = queue.calls();
    assert!(tried["delete"].calls == 2 && tried["change_visibility"].calls == 1, "{tried:?}");
}

#[tokio::test(start_paused = true)]
async fn each_right_that_is_missing_is_told_with_the_statement_that_grants_it() {
    for (queue, operation, action) in [
        ("jobs", "delete", "sqs:DeleteMessage"),
        ("jobs", "change_visibility", "sqs:ChangeMessageVisibility"),
        ("jobs-dlq", "send", "sqs:SendMessage"),
        ("", "probe", "dynamodb:PutItem"),
        ("", "control", "dynamodb:GetItem"),
        ("", "copied", "dynamodb:UpdateItem"),
    ] {
        let account = jobs();
        let faults = if queue.is_empty() { account.table.clone() } else { account.queues.faults(queue) };
        faults.always(operation, Fault::Fail(Failure::Denied));
        let told = account.told().await;
        let [(Error, "rights", mend)] = told.as_slice() else { panic!("{action}: {told:?}") };
        assert!(mend.contains(&format!("\"Action\":\"{action}\"")), "{mend}");
        faults.always(operation, Fault::Fail(Failure::NoAnswer));
        let told = account.told().await;
        let [(Warning, "could_not_look", found)] = told.as_slice() else { panic!("{action}: {told:?}") };
        assert!(found.contains(action), "{found}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_no_valid_credentials_is_told_that_once_and_no_right_is_tried() {
    let account = jobs();
    for operation in ["open", "facts"] {
        account.queues.faults("jobs").always(operation, Fault::Fail(Failure::NoCredentials));
        account.table.always("facts", Fault::Fail(Failure::NoCredentials));
        let report = account.ops.doctor(&Ask::default()).await.unwrap();
        let told: Vec<_> = report.findings.iter().map(|finding| finding.check).collect();
        assert_eq!((told.as_slice(), report.reached), (["credentials"].as_slice(), true), "{operation}");
        assert!(report.create.is_empty(), "{report:?}");
    }
    let calls = account.guard.calls();
    assert!(!calls.contains_key("probe") && !calls.contains_key("control"), "{calls:?}");
    assert!(!account.broker.queue("jobs").calls().contains_key("delete"));
}

#[tokio::test(start_paused = true)]
async fn only_a_table_that_is_seen_to_fit_is_written_to() {
    let tried = |account: &Account, operation: &str| account.guard.calls().get(operation).copied().unwrap_or_default();
    let account = jobs();
    account.told().await;
    assert_eq!((tried(&account, "probe"), tried(&account, "copied")), (1, 1));

    let fit = TableFacts::default;
    let other_key = TableFacts { key: TableKey { range: Some("at".into()), ..fit().key }, ..fit() };
    for facts in [other_key, TableFacts { ttl: Ok(Some("ttl".into())), ..fit() }] {
        let account = jobs();
        account.guard.set_facts(facts);
        let told = account.told().await;
        assert!(matches!(told.as_slice(), [(Error, "table_key" | "ttl", _)]), "{told:?}");
        assert_eq!((tried(&account, "probe"), tried(&account, "copied")), (0, 0));
    }

    let account = jobs();
    account.table.always("facts", Fault::Fail(Failure::Denied));
    let found = account.ops.doctor(&Ask::default()).await.unwrap().findings.remove(0).found;
    assert!(found.contains("dynamodb:PutItem was not tried"), "{found}");
    assert_eq!((tried(&account, "probe"), tried(&account, "copied")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_looked_at_is_told_and_the_rest_is_judged() {
    let account = jobs();
    account.queues.faults("jobs-dlq").always("facts", Fault::Fail(Failure::Denied));
    account.table.always("facts", Fault::Fail(Failure::Denied));
    let told = account.told().await;
    let [(Warning, "could_not_look", queue), (Warning, "could_not_look", table)] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert!(queue.contains("sqs:GetQueueAttributes") && queue.contains(":jobs-dlq"), "{queue}");
    assert!(table.contains("dynamodb:DescribeTable"), "{table}");

    // What names the dead-letter queue is not shown, and so a worker does not start.
    let account = jobs();
    account.queues.faults("jobs").always("facts", Fault::Fail(Failure::Denied));
    let told = account.told().await;
    assert!(matches!(told.as_slice(), [(Error, "dead_letter", _), (Warning, "could_not_look", _)]), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_reached_is_an_error_and_nothing_at_all_is_said_so() {
    let account = jobs();
    account.queues.faults("jobs").always("open", Fault::Fail(Failure::Unavailable));
    let report = account.ops.doctor(&Ask::default()).await.unwrap();
    assert!(report.reached && report.count(Error) == 1, "{report:?}");
    account.table.always("facts", Fault::Fail(Failure::NoAnswer));
    let report = account.ops.doctor(&Ask::default()).await.unwrap();
    assert!(!report.reached && report.findings.iter().all(|finding| finding.check == "unreachable"), "{report:?}");
    assert_eq!(report.create, [] as [String; 0], "what is not reached may well be there");
}

#[tokio::test(start_paused = true)]
async fn queues_are_looked_at_by_name_with_and_without_a_configuration() {
    let account = jobs();
    let asked = |names: &[&str]| Ask { queues: names.iter().map(|&name| name.to_owned()).collect(), ..Ask::default() };
    let wrong = account.ops.doctor(&asked(&["jbos"])).await.unwrap_err().to_string();
    assert!(wrong.contains("LEASEHOLD_QUEUES names no queue"), "{wrong}");
    assert_eq!(account.ops.doctor(&asked(&["jobs"])).await.unwrap().findings, []);

    let bare = Ops { config: Config::default(), ..account.ops.clone() };
    let report = bare.doctor(&asked(&["jobs"])).await.unwrap();
    let told: Vec<_> = report.findings.iter().map(|finding| (finding.severity, finding.check)).collect();
    assert_eq!(told, [(Note, "queues"), (Note, "handler")]);
    assert_eq!(report.create.first().map(String::as_str), Some("export LEASEHOLD_QUEUES=jobs"));
    let wrong = bare.doctor(&asked(&["no queue"])).await.unwrap_err().to_string();
    assert!(wrong.contains("leasehold doctor"), "{wrong}");
}

#[tokio::test(start_paused = true)]
async fn only_what_is_not_there_is_made() {
    let account =
        account(&[("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_JOBS_NAME", "jobs.fifo")]);
    let made = account.ops.doctor(&Ask::default()).await.unwrap().create;
    let [url, arn, queue] = made.as_slice() else { panic!("{made:?}") };
    assert!(url.starts_with("DLQ_URL=$(aws sqs create-queue --queue-name jobs-dlq.fifo --attributes "), "{url}");
    assert!(url.contains("FifoQueue=true") && arn.starts_with("DLQ_ARN=$("), "{url} {arn}");
    assert!(queue.contains(r#""FifoQueue":"true""#) && queue.contains(r#"\"'"$DLQ_ARN"'\""#), "{queue}");

    account.broker.create("jobs-dlq.fifo", MemoryQueueSettings::default());
    let made = account.ops.doctor(&Ask::default()).await.unwrap().create;
    let [queue] = made.as_slice() else { panic!("{made:?}") };
    assert!(queue.contains("arn:aws:sqs:us-east-1:000000000000:jobs-dlq.fifo"), "{queue}");

    let redrive = Some(("gone.fifo".to_owned(), 100));
    account.broker.create("jobs.fifo", MemoryQueueSettings { redrive, ..MemoryQueueSettings::default() });
    account.table.always("facts", Fault::Fail(Failure::Missing));
    let made = account.ops.doctor(&Ask::default()).await.unwrap().create;
    let [dead, table, wait, ttl] = made.as_slice() else { panic!("{made:?}") };
    assert!(dead.contains("create-queue --queue-name gone.fifo") && dead.contains("--region us-east-1"), "{dead}");
    assert!(table.starts_with("aws dynamodb create-table") && wait.contains("wait table-exists"), "{table} {wait}");
    assert!(ttl.starts_with("aws dynamodb update-time-to-live"), "{ttl}");
}
