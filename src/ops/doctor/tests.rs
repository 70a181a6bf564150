//! Every check planted once.

use std::{collections::BTreeSet, time::Duration};

use super::{
    look::{DeadLetters, Look},
    *,
};
use crate::{
    config::{DeadLetter, HandlerSpec},
    fit::Destination,
    guard::{GuardError, Replication, TableFacts},
    queue::{LARGEST_MESSAGE, QueueError, QueueFacts, RedriveAllow, RedrivePolicy},
    testing::Failure,
};

mod account;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

type Facts = Result<QueueFacts, QueueError>;

type Try = fn() -> Result<(), QueueError>;

/// A queue `jobs` with its dead-letter queue, a table, and settings that fit.
struct Setup {
    config: Config,
    ask: Ask,
    /// Each with its dead-letter queue.
    queues: Vec<(String, Facts, Facts)>,
    table: Result<TableFacts, GuardError>,
    rights: Vec<(&'static str, Try)>,
}

impl Setup {
    fn new() -> Self {
        let arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/leasehold".to_owned();
        let mut setup = Self {
            config: Config::default(),
            ask: Ask::default(),
            queues: Vec::new(),
            table: Ok(TableFacts { arn, ..TableFacts::default() }),
            rights: vec![("sqs:DeleteMessage", || Err(QueueError::HandleLost))],
        };
        setup.add("jobs");
        setup
    }

    fn add(&mut self, name: &str) {
        let dead = QueueFacts { retention: 14 * DAY, ..QueueFacts::example(&format!("{name}-dlq")) };
        let policy = RedrivePolicy { dead_letter_arn: dead.arn.clone(), max_receive_count: 100 };
        let facts = QueueFacts { redrive: Some(policy), ..QueueFacts::example(name) };
        let handler = Some(HandlerSpec::Exec { program: "true".into(), args: Vec::new() });
        let queue = QueueConfig { key: "/id".parse().ok(), handler, ..QueueConfig::new(name) };
        self.config.queues.insert(name.to_owned(), queue);
        self.queues.push((name.to_owned(), Ok(facts), Ok(dead)));
    }

    fn queue(&mut self) -> &mut QueueConfig {
        self.config.queues.get_mut("jobs").unwrap()
    }

    fn facts(&mut self) -> &mut QueueFacts {
        self.queues[0].1.as_mut().unwrap()
    }

    fn dead(&mut self) -> &mut QueueFacts {
        self.queues[0].2.as_mut().unwrap()
    }

    /// Both are FIFO from now on.
    fn ordered(&mut self) {
        self.facts().fifo = true;
        self.dead().fifo = true;
    }

    fn takes(&mut self, secs: u64) {
        let p99 = P99 { time: Duration::from_secs(secs), source: P99Source::Given };
        self.ask.p99.insert("jobs".to_owned(), p99);
    }

    fn report(self) -> Report {
        let Self { config, ask, queues, table, rights } = self;
        let asked: Vec<_> = config.queues.iter().map(|(name, queue)| Asked::new(name, queue, &config, &ask)).collect();
        let examined: Vec<_> = queues
            .into_iter()
            .filter_map(|(name, facts, dead)| {
                let config = config.queues.get(&name)?;
                let queue = look(&config.address, facts);
                let destination = crate::fit::destination(&name, config, queue.facts());
                let address = match &destination {
                    Ok(Destination::Queue(address)) => address.clone(),
                    _ => QueueAddress::Name(format!("{name}-dlq")),
                };
                let dead = DeadLetters { queue: look(&address, dead), address, rights: Vec::new() };
                let rights = rights.iter().map(|(action, tried)| (*action, tried())).collect();
                Some(Examined { queue, rights, destination, dead_letters: Some(dead) })
            })
            .collect();
        judge(&config, &asked, &ask, &examined, Some(&TableLook { facts: table, rights: Vec::new() }))
    }
}

fn look(address: &QueueAddress, facts: Facts) -> Look {
    let problem = |error: &QueueError| crate::fit::unusable(error, address, None, "LEASEHOLD_JOBS_URL");
    match facts {
        Ok(facts) => Look::Seen(Box::new(facts)),
        Err(error) if error.lacks_credentials() => Look::NoCredentials(error.to_string()),
        Err(QueueError::Denied(_)) => Look::Denied("access denied".to_owned()),
        Err(QueueError::Missing) => Look::Absent(problem(&QueueError::Missing)),
        Err(error) if error.is_transient() => Look::Away(error.to_string()),
        Err(error) => Look::Unusable(problem(&error)),
    }
}

/// A check, how bad what it finds is, a part of what it tells, a part of what mends it, and how it is planted.
type Plant = (&'static str, Severity, &'static str, &'static str, fn(&mut Setup));

use Severity::{Error, Note, Warning};

const SET: &str = "aws sqs set-queue-attributes --queue-url https://sqs.eu-central-1.amazonaws.com/123456789012/jobs";

const PLANTS: &[Plant] = &[
    ("settings", Error, "MAX_ATTEMPTS is 0", "LEASEHOLD_JOBS_MAX_ATTEMPTS=5", |s| s.queue().max_attempts = 0),
    ("queues", Error, "LEASEHOLD_QUEUES is not set", "LEASEHOLD_QUEUES=payments", |s| s.config.queues.clear()),
    ("queue", Error, "there is no queue jobs", "LEASEHOLD_JOBS_URL=", |s| s.queues[0].1 = Err(QueueError::Missing)),
    ("queue", Error, "there is no queue arn:aws:sqs:eu-central-1:123456789012:jobs-dlq", "LEASEHOLD_JOBS_URL=", |s| {
        s.queues[0].2 = Err(QueueError::Missing);
    }),
    ("queue", Error, "cannot be used: the queue refuses", "policy and region", |s| {
        s.queues[0].1 = Err(QueueError::Refused("x".into()));
    }),
    ("credentials", Error, "no valid credentials", "aws sso login", |s| {
        s.queues[0].1 = Err(Failure::NoCredentials.into());
    }),
    ("credentials", Error, "no valid credentials", "aws configure", |s| {
        s.queues[0].2 = Err(Failure::NoCredentials.into());
    }),
    ("credentials", Error, "no valid credentials", "taskRoleArn", |s| {
        s.table = Err(Failure::NoCredentials.into());
    }),
    ("could_not_look", Warning, "whether sqs:DeleteMessage is allowed", "", |s| {
        s.rights[0].1 = || Err(Failure::NoCredentials.into());
    }),
    ("unreachable", Error, "no answer came", "", |s| s.queues[0].1 = Err(QueueError::NoAnswer(None))),
    ("unreachable", Error, "no answer came", "", |s| s.table = Err(GuardError::NoAnswer(None))),
    ("could_not_look", Warning, "access denied", r#""Action":"sqs:GetQueueAttributes""#, |s| {
        s.queues[0].1 = Err(QueueError::Denied(None));
        s.queue().dead_letter = DeadLetter::Drop;
    }),
    ("could_not_look", Warning, "access denied", "dynamodb:DescribeTable", |s| s.table = Err(GuardError::Denied(None))),
    ("could_not_look", Warning, "TTL", "dynamodb:DescribeTimeToLive", |s| {
        s.table.as_mut().unwrap().ttl = Err("denied".into());
    }),
    ("could_not_look", Warning, "whether sqs:DeleteMessage is allowed", "", |s| {
        s.rights[0].1 = || Err(QueueError::NoAnswer(None));
    }),
    ("handler", Note, "has to be in code, and name the key there", "LEASEHOLD_JOBS_HANDLER='exec:", |s| {
        s.queue().handler = None;
        s.queue().key = None;
    }),
    ("handler", Note, "has to be in code", "LEASEHOLD_JOBS_HANDLER='exec:", |s| s.queue().handler = None),
    ("key", Error, "no idempotency key", "LEASEHOLD_JOBS_KEY=", |s| s.queue().key = None),
    ("key", Error, "is no FIFO queue", "LEASEHOLD_JOBS_KEY=/order_id", |s| {
        s.queue().key = "dedup-id".parse().ok();
    }),
    ("key_redrive", Warning, "does not survive", "LEASEHOLD_JOBS_KEY=", |s| s.queue().key = "message-id".parse().ok()),
    ("content_deduplication", Warning, "within 5 minutes", "ContentBasedDeduplication=false", |s| {
        s.ordered();
        s.facts().content_based_deduplication = true;
    }),
    ("retention", Error, "SQS drops what fails before its last attempt", "MessageRetentionPeriod=345600", |s| {
        s.facts().retention = Duration::from_secs(120);
    }),
    ("retention", Warning, "more than half", "MessageRetentionPeriod=345600", |s| {
        s.facts().retention = Duration::from_secs(299);
    }),
    ("done_ttl", Error, "a late duplicate would run again", "LEASEHOLD_JOBS_DONE_TTL=4d", |s| s.queue().done_ttl = DAY),
    ("done_ttl", Warning, "18d old when it is put back", "LEASEHOLD_JOBS_DONE_TTL=18d", |s| {
        s.queue().done_ttl = 5 * DAY;
    }),
    ("max_receive_count", Warning, "is 19, with 5 attempts", r#"\"maxReceiveCount\":100}"#, |s| {
        s.facts().redrive.as_mut().unwrap().max_receive_count = 19;
    }),
    ("max_receive_count", Error, "is 4, with 5 attempts", SET, |s| {
        s.facts().redrive.as_mut().unwrap().max_receive_count = 4;
    }),
    ("max_receive_count", Warning, "it is to be 50 at the least, for messages behind", SET, |s| {
        s.ordered();
        s.facts().redrive.as_mut().unwrap().max_receive_count = 49;
    }),
    ("redrive_policy", Note, "SQS moves nothing", "", |s| {
        s.facts().redrive = None;
        s.queue().dead_letter = DeadLetter::Drop;
    }),
    ("redrive_policy", Warning, "nobody else counts", "", |s| {
        s.facts().redrive = None;
        s.queue().dead_letter = DeadLetter::Drop;
        s.queue().guard = GuardMode::None;
    }),
    ("visibility", Warning, "is 30s, and the p99", "LEASEHOLD_JOBS_VISIBILITY_TIMEOUT=32s", |s| {
        s.queue().visibility_timeout.ceiling = Duration::from_secs(30);
        s.takes(16);
    }),
    ("handler_timeout", Error, "LEASEHOLD_JOBS_HANDLER_TIMEOUT is 10s", "LEASEHOLD_JOBS_HANDLER_TIMEOUT=20s", |s| {
        s.queue().handler_timeout = Duration::from_secs(10);
        s.takes(10);
    }),
    (
        "handler_timeout",
        Warning,
        "SQS hides no message for longer than 12h",
        "LEASEHOLD_JOBS_HANDLER_TIMEOUT=12h",
        |s| {
            s.queue().handler_timeout = DAY;
        },
    ),
    ("wait_time", Note, "is 20s, and is lowered to 15s", "LEASEHOLD_JOBS_WAIT_TIME=15s", |s| {
        s.queue().wait_time = Duration::from_secs(20);
    }),
    ("drain", Note, "some are cut off at each stop", "", |s| s.takes(25)),
    ("stop_timeout", Error, "is 25s, and the worker is killed 20s", "LEASEHOLD_DRAIN_TIMEOUT=15s", |s| {
        s.ask.stop_timeout = Duration::from_secs(20);
    }),
    (
        "dead_letter",
        Error,
        "no dead-letter queue",
        r#"{\"deadLetterTargetArn\":\"arn:aws:sqs:eu-central-1:123456789012:jobs-dlq\""#,
        |s| {
            s.facts().redrive = None;
        },
    ),
    ("dead_letter_kind", Error, "is standard, and its dead-letter queue", SET, |s| s.dead().fifo = true),
    ("dead_letter_retention", Error, "for 3d", "jobs-dlq --attributes MessageRetentionPeriod=1209600", |s| {
        s.dead().retention = 3 * DAY;
    }),
    ("dead_letter_retention", Warning, "for 4d", "--region eu-central-1", |s| s.dead().retention = 4 * DAY),
    ("dead_letter_retention", Warning, "for 3d", "jobs-dlq --attributes MessageRetentionPeriod=1209600", |s| {
        s.ordered();
        s.dead().retention = 3 * DAY;
    }),
    ("dead_letter_retention", Error, "for 4d", "jobs-dlq --attributes MessageRetentionPeriod=1209600", |s| {
        s.facts().retention = 14 * DAY;
        s.dead().retention = 4 * DAY;
    }),
    ("dead_letter_retention", Warning, "for 14d", "once the queue has no messages older than 13d, for they are", |s| {
        s.facts().retention = 14 * DAY;
    }),
    ("dead_letter_retention", Warning, "for 14d", "/jobs --attributes MessageRetentionPeriod=1123200", |s| {
        s.facts().retention = 14 * DAY;
    }),
    ("dead_letter_size", Error, "of 2048", "MaximumMessageSize=1048576", |s| s.dead().largest_message = 2048),
    ("dead_letter_size", Note, "of 4096", "MaximumMessageSize=1048576", |s| {
        s.facts().largest_message = 4096;
        s.dead().largest_message = 4096;
    }),
    ("dead_letter_place", Warning, "account 999999999999", "create-queue --queue-name jobs-dlq", |s| {
        s.dead().arn = "arn:aws:sqs:eu-central-1:999999999999:jobs-dlq".into();
        s.facts().redrive.as_mut().unwrap().dead_letter_arn = s.queues[0].2.as_ref().unwrap().arn.clone();
    }),
    ("dead_letter_worked_on", Error, "the queue itself", "LEASEHOLD_JOBS_DEAD_LETTER=jobs-dlq", |s| {
        *s.dead() = QueueFacts { retention: 5 * DAY, ..s.queues[0].1.as_ref().unwrap().clone() };
        s.facts().redrive.as_mut().unwrap().dead_letter_arn = s.queues[0].2.as_ref().unwrap().arn.clone();
    }),
    ("dead_letter_worked_on", Warning, "worked on by jobs-dlq", "LEASEHOLD_QUEUES=jobs", |s| s.add("jobs-dlq")),
    ("redrive_allow", Error, "does not name", r#"\"redrivePermission\":\"byQueue\""#, |s| {
        s.dead().redrive_allow = RedriveAllow::Nobody;
    }),
    (
        "redrive_allow",
        Error,
        "does not name",
        r#"[\"arn:other\",\"arn:aws:sqs:eu-central-1:123456789012:jobs\"]"#,
        |s| {
            s.dead().redrive_allow = RedriveAllow::These(vec!["arn:other".into()]);
        },
    ),
    ("two_dead_letter_queues", Note, "the redrive policy names", "LEASEHOLD_JOBS_DEAD_LETTER=redrive-policy", |s| {
        s.queue().dead_letter = DeadLetter::Queue("elsewhere".parse().unwrap());
        s.dead().arn = QueueFacts::example("elsewhere").arn;
    }),
    ("shared_dead_letter_queue", Note, "jobs and work have one dead-letter queue", "", |s| {
        s.add("work");
        let dead = s.dead().clone();
        s.queues[1].1.as_mut().unwrap().redrive.as_mut().unwrap().dead_letter_arn = dead.arn.clone();
        s.queues[1].2 = Ok(dead);
    }),
    ("same_queue", Error, "jobs and work are one and the same", "LEASEHOLD_WORK_NAME=", |s| {
        s.add("work");
        let arn = s.facts().arn.clone();
        s.queues[1].1.as_mut().unwrap().arn = arn;
    }),
    ("shared_operation", Note, "jobs and work have one operation, jobs", "LEASEHOLD_WORK_OPERATION=work", |s| {
        s.add("work");
        s.config.queues.get_mut("work").unwrap().operation = "jobs".into();
    }),
    (
        "encryption",
        Note,
        "alias/ours",
        r#""Condition":{"ForAnyValue:StringEquals":{"kms:ResourceAliases":"alias/ours"}}"#,
        |s| {
            s.facts().kms_key = Some("alias/ours".into());
        },
    ),
    ("encryption", Note, "alias/ours", r#"["kms:Decrypt","kms:GenerateDataKey"]"#, |s| {
        s.dead().kms_key = Some("arn:aws:kms:eu-central-1:2:alias/ours".into());
    }),
    ("encryption", Note, "1234-5", r#""Resource":"arn:aws:kms:eu-central-1:123456789012:key/1234-5""#, |s| {
        s.facts().kms_key = Some("1234-5".into());
    }),
    ("encryption", Note, "1234-5", r#""Resource":"arn:aws:kms:eu-west-1:2:key/1234-5""#, |s| {
        s.facts().kms_key = Some("arn:aws:kms:eu-west-1:2:key/1234-5".into());
    }),
    (
        "rights",
        Error,
        "access denied",
        r#"{"Action":"sqs:DeleteMessage","Effect":"Allow","Resource":"arn:aws:sqs:"#,
        |s| {
            s.rights[0].1 = || Err(QueueError::Denied(None));
        },
    ),
    ("table", Error, "there is no table", "", |s| s.table = Err(GuardError::Missing)),
    ("table_key", Error, "has the key \"id\"", "LEASEHOLD_TABLE=", |s| {
        s.table.as_mut().unwrap().key.hash = "id".into();
    }),
    ("ttl", Error, "reads \"ttl\"", "Enabled=false,AttributeName=ttl # wait until that is done", |s| {
        s.table.as_mut().unwrap().ttl = Ok(Some("ttl".into()));
    }),
    ("ttl", Error, "reads \"$(x)\"", "Enabled=false,AttributeName='$(x)' # wait", |s| {
        s.table.as_mut().unwrap().ttl = Ok(Some("$(x)".into()));
    }),
    ("ttl", Error, "reads \"ttl\"", "and then: aws dynamodb update-time-to-live --table-name leasehold", |s| {
        s.table.as_mut().unwrap().ttl = Ok(Some("ttl".into()));
    }),
    ("ttl", Warning, "is off", "aws dynamodb update-time-to-live", |s| s.table.as_mut().unwrap().ttl = Ok(None)),
    ("ttl", Note, "strongly consistent", "", |s| {
        s.table.as_mut().unwrap().ttl = Ok(None);
        s.table.as_mut().unwrap().replication = Replication::Strong(vec!["us-east-1".into()]);
    }),
    ("replicas", Error, "us-east-1", "--one-writer-region", |s| {
        s.table.as_mut().unwrap().replication = Replication::Eventual(vec!["us-east-1".into()]);
    }),
    ("replicas", Note, "us-east-1", "LEASEHOLD_TABLE=", |s| {
        s.table.as_mut().unwrap().replication = Replication::Eventual(vec!["us-east-1".into()]);
        s.ask.one_writer_region = true;
    }),
    ("place", Warning, "region us-east-1", "AWS_REGION=eu-central-1", |s| {
        s.table.as_mut().unwrap().arn = "arn:aws:dynamodb:us-east-1:123456789012:table/leasehold".into();
    }),
];

#[test]
fn every_check_finds_what_it_is_for_and_nothing_else_is_told() {
    assert_eq!(Setup::new().report().findings, []);
    for (check, severity, found, mend, plant) in PLANTS {
        let mut setup = Setup::new();
        plant(&mut setup);
        let findings = setup.report().findings;
        let [finding] = findings.as_slice() else { panic!("{check} alone: {findings:#?}") };
        assert_eq!((finding.check, finding.severity), (*check, *severity), "{finding:#?}");
        assert!(finding.found.contains(found), "{found}: {finding:#?}");
        let line = finding.mend.as_deref().unwrap_or_default();
        assert!(line.contains(mend) && line.is_empty() == mend.is_empty(), "{mend}: {finding:#?}");
    }
    let planted: BTreeSet<_> = PLANTS.iter().map(|(check, ..)| *check).collect();
    let all: BTreeSet<_> = CHECKS.iter().map(|check| check.code).collect();
    assert_eq!(planted, all);
}

#[test]
fn what_is_at_its_bound_is_fine() {
    let bounds: [fn(&mut Setup); 8] = [
        |s| s.facts().kms_key = Some("alias/aws/sqs".into()),
        |s| s.dead().kms_key = Some("arn:aws:kms:eu-central-1:123456789012:alias/aws/sqs".into()),
        |s| s.queue().done_ttl = 18 * DAY,
        |s| s.facts().redrive.as_mut().unwrap().max_receive_count = 20,
        |s| s.takes(20),
        |s| s.ask.stop_timeout = Duration::from_secs(26),
        |s| s.dead().redrive_allow = RedriveAllow::These(vec![s.queues[0].1.as_ref().unwrap().arn.clone()]),
        |s| s.dead().largest_message = LARGEST_MESSAGE,
    ];
    for (number, plant) in bounds.iter().enumerate() {
        let mut setup = Setup::new();
        plant(&mut setup);
        assert_eq!(setup.report().findings, [], "{number}");
    }
}

#[test]
fn a_key_that_can_be_a_hash_of_the_body_is_told_beside_what_sqs_drops_for_it() {
    let mut setup = Setup::new();
    setup.ordered();
    setup.facts().content_based_deduplication = true;
    setup.queue().key = "dedup-id".parse().ok();
    let report = setup.report();
    let told: BTreeSet<_> = report.findings.iter().map(|finding| finding.check).collect();
    assert_eq!(told, ["content_deduplication", "key", "key_redrive"].into());
    assert!(report.findings.iter().any(|f| f.check == "key" && f.found.contains("equal bodies")), "{report:?}");
}

#[test]
fn the_worst_is_told_first_and_what_passed_is_counted() {
    let mut setup = Setup::new();
    setup.add("a-fine-one");
    setup.table.as_mut().unwrap().ttl = Ok(None);
    setup.queue().done_ttl = DAY;
    setup.queue().wait_time = Duration::from_secs(20);
    let fine = Setup::new().report().passed;
    let report = setup.report();
    let told: Vec<_> = report.findings.iter().map(|finding| (finding.severity, finding.check)).collect();
    assert_eq!(told, [(Error, "done_ttl"), (Note, "wait_time"), (Warning, "ttl")]);
    assert_eq!((report.count(Error), report.count(Warning), report.count(Note)), (1, 1, 1));
    assert!(report.passed > fine, "{} {fine}", report.passed);
}

#[test]
fn a_kill_that_leaves_no_time_to_drain_is_to_come_later() {
    let mut setup = Setup::new();
    setup.ask.stop_timeout = Duration::from_secs(2);
    let mend = setup.report().findings.remove(0).mend.unwrap();
    assert!(mend.starts_with("\"stopTimeout\": 30"), "{mend}");
}

#[test]
fn lines_for_a_shell_hold_whatever_a_service_calls_its_queues() {
    let mut setup = Setup::new();
    setup.facts().url = "https://x/$(reboot)'; \"y".into();
    setup.facts().redrive.as_mut().unwrap().max_receive_count = 1;
    let mend = setup.report().findings.remove(0).mend.unwrap();
    let words = shell_words::split(&mend).unwrap();
    assert_eq!(words[4], "https://x/$(reboot)'; \"y");
    let attributes: serde_json::Value = serde_json::from_str(&words[6]).unwrap();
    let policy: serde_json::Value = serde_json::from_str(attributes["RedrivePolicy"].as_str().unwrap()).unwrap();
    assert_eq!(policy["maxReceiveCount"], 100);
}

#[test]
fn a_report_is_read_by_scripts() {
    let mut setup = Setup::new();
    setup.queue().done_ttl = DAY;
    setup.takes(20);
    let json = serde_json::to_value(setup.report()).unwrap();
    let finding = &json["findings"][0];
    assert_eq!((&finding["check"], &finding["severity"]), (&"done_ttl".into(), &"error".into()));
    assert_eq!((&finding["subject"]["kind"], &finding["subject"]["name"]), (&"queue".into(), &"jobs".into()));
    assert_eq!((&json["p99"]["jobs"]["ms"], &json["p99"]["jobs"]["source"]), (&20_000.into(), &"given".into()));
    assert_eq!((&json["reached"], &json["create"]), (&true.into(), &serde_json::json!([])));
}
