//! What the policies of the template allow must be what the source calls, and what the keys of records are.
//!
//! From the source: which calls of the SDK there are, which of ours make them, and which of those the worker, the operators'
//! tools and `leasehold send` make. Two tables say what leads to what; each is held against the source.

use std::collections::{BTreeMap, BTreeSet};

use leasehold::key::{Key, KeyHash, pk};

use crate::{File, at, production, repository, tidy};

/// The SDK's calls, and the right that each takes. Batches are authorised by the single action.
const RIGHTS: [(&str, &str); 19] = [
    ("receive_message", "sqs:ReceiveMessage"),
    ("delete_message", "sqs:DeleteMessage"),
    ("delete_message_batch", "sqs:DeleteMessage"),
    ("change_message_visibility", "sqs:ChangeMessageVisibility"),
    ("change_message_visibility_batch", "sqs:ChangeMessageVisibility"),
    ("send_message", "sqs:SendMessage"),
    ("send_message_batch", "sqs:SendMessage"),
    ("get_queue_url", "sqs:GetQueueUrl"),
    ("get_queue_attributes", "sqs:GetQueueAttributes"),
    ("start_message_move_task", "sqs:StartMessageMoveTask"),
    ("list_message_move_tasks", "sqs:ListMessageMoveTasks"),
    ("cancel_message_move_task", "sqs:CancelMessageMoveTask"),
    ("list_dead_letter_source_queues", "sqs:ListDeadLetterSourceQueues"),
    ("get_item", "dynamodb:GetItem"),
    ("put_item", "dynamodb:PutItem"),
    ("update_item", "dynamodb:UpdateItem"),
    // <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html>
    ("transact_write_items", "dynamodb:UpdateItem"),
    ("describe_table", "dynamodb:DescribeTable"),
    ("describe_time_to_live", "dynamodb:DescribeTimeToLive"),
];

/// Calls that no policy of the template is about, and why.
const NO_RIGHT_HERE: [(&str, &str); 5] = [
    ("create_table", "development and tests: production tables come from the template"),
    ("update_time_to_live", "as create_table"),
    ("scan", "demonstrations"),
    ("get_object", "docs/large-bodies.md has the policy of a bucket"),
    ("delete_object", "as get_object"),
];

/// What is called on something that is named a client, and is no call of the SDK.
const NO_CALLS: [&str; 3] = ["build", "clone", "config"];

/// The calls of our ports, and the rights that their adapters need for each.
const PORTS: [(&str, &[&str]); 21] = [
    ("broker.open", &["sqs:GetQueueUrl"]),
    ("broker.start_move", &["sqs:StartMessageMoveTask"]),
    ("broker.latest_move", &["sqs:ListMessageMoveTasks"]),
    ("broker.cancel_move", &["sqs:CancelMessageMoveTask"]),
    ("queue.receive", &["sqs:ReceiveMessage"]),
    ("queue.delete", &["sqs:DeleteMessage"]),
    ("queue.change_visibility", &["sqs:ChangeMessageVisibility"]),
    ("queue.send", &["sqs:SendMessage"]),
    ("queue.facts", &["sqs:GetQueueAttributes"]),
    ("queue.depth", &["sqs:GetQueueAttributes"]),
    ("queue.sources", &["sqs:ListDeadLetterSourceQueues"]),
    ("guard.claim", &["dynamodb:PutItem"]),
    ("guard.take_over", &["dynamodb:UpdateItem"]),
    ("guard.write", &["dynamodb:UpdateItem"]),
    ("guard.confirm_with", &["dynamodb:UpdateItem"]),
    ("guard.amend", &["dynamodb:PutItem", "dynamodb:UpdateItem"]),
    ("guard.read", &["dynamodb:GetItem"]),
    ("guard.probe", &["dynamodb:PutItem"]),
    ("guard.control", &["dynamodb:GetItem"]),
    ("guard.set_control", &["dynamodb:PutItem"]),
    ("guard.facts", &["dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"]),
];

/// Whose policy is whose, by the beginnings of paths. `doctor` tries a worker's rights, and runs as one.
const ROLES: [(&str, &[&str]); 3] = [
    ("WorkerPolicy", &["src/worker", "src/job", "src/settle", "src/handler", "src/guard/execution"]),
    (
        "OperatorPolicy",
        &[
            "src/ops/dead_letters",
            "src/ops/records",
            "src/bin/leasehold/dlq",
            "src/bin/leasehold/guard",
            "src/bin/leasehold/pause",
        ],
    ),
    ("SenderPolicy", &["src/bin/leasehold/send"]),
];

/// Where a worker looks before it starts; what it calls nowhere else is marked so in the template.
const BEFORE_THE_START: &str = "src/worker/check.rs";
const MARK: &str = "at the start";

fn template() -> File {
    repository().into_iter().find(|file| file.path == "infra/queue.yaml").expect("the template is there")
}

/// Code without white space, so that a call is found however it is laid out.
fn closed_up(file: &File) -> String {
    file.production().flat_map(|(_, line)| line.chars()).filter(|c| !c.is_whitespace()).collect()
}

/// The calls of the SDK: `client.receive_message()`, arguments follow one by one.
fn sdk_calls(file: &File) -> Vec<String> {
    let code = closed_up(file);
    let calls = code.split("client.").skip(1).filter_map(|rest| {
        let (name, _) = rest.split_once("()")?;
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_').then(|| name.to_owned())
    });
    calls.filter(|name| !NO_CALLS.contains(&name.as_str())).collect()
}

/// The rights that the files of a role need, each with the files that do.
fn needed(rooms: &[&str]) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut needed: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for file in production().iter().filter(|file| rooms.iter().any(|room| file.path.starts_with(room))) {
        let code = closed_up(file);
        for (_, rights) in PORTS.iter().filter(|(port, _)| code.contains(&format!("{port}("))) {
            for right in *rights {
                needed.entry(*right).or_default().insert(file.path.clone());
            }
        }
    }
    needed
}

/// The rights that a policy of the template gives, each with whether it carries the mark in all of its statements: of a
/// dead-letter queue less is asked than of its source.
fn given(policy: &str) -> BTreeMap<String, bool> {
    let template = template();
    let (_, rest) = template.text.split_once(&format!("\n  {policy}:\n")).expect("a policy");
    let lines =
        rest.lines().take_while(|line| line.is_empty() || line.starts_with("   ") || line.trim().starts_with('#'));
    let rights = lines.filter_map(|line| line.trim().strip_prefix("- "));
    let mut given = BTreeMap::new();
    for right in rights.filter(|right| right.starts_with("sqs:") || right.starts_with("dynamodb:")) {
        let (right, remark) = right.split_once(" #").unwrap_or((right, ""));
        let always = given.entry(right.to_owned()).or_insert(true);
        *always = *always && remark.trim() == MARK;
    }
    given
}

#[test]
fn every_call_of_the_sdk_has_its_right_in_the_table() {
    let (mut found, mut called) = (Vec::new(), BTreeSet::new());
    for file in production() {
        for name in sdk_calls(&file) {
            if RIGHTS.iter().chain(&NO_RIGHT_HERE).all(|(call, _)| *call != name) {
                found.push(format!("{}: {name} has no right", file.path));
            }
            called.insert(name);
        }
    }
    let listed = RIGHTS.iter().chain(&NO_RIGHT_HERE).map(|(call, _)| *call);
    found.extend(listed.filter(|call| !called.contains(*call)).map(|call| format!("nothing calls {call}")));
    let behind: BTreeSet<&str> = PORTS.iter().flat_map(|(_, rights)| rights.iter().copied()).collect();
    let rights: BTreeSet<&str> = RIGHTS.iter().map(|(_, right)| *right).collect();
    found.extend(rights.symmetric_difference(&behind).map(|right| format!("{right} is in one table of the two")));
    tidy(&found, "RIGHTS in tests/tidy/policies.rs, and PORTS beside it, say which right each call needs.");
}

#[test]
fn every_call_of_a_port_has_its_rights_in_the_table() {
    let mut found = Vec::new();
    for file in production().iter().filter(|file| ["src/queue.rs", "src/guard.rs"].contains(&file.path.as_str())) {
        let calls = file.production().filter_map(|(number, line)| {
            let (name, rest) = line.strip_prefix("    async fn ")?.split_once('(')?;
            rest.starts_with("&self").then_some((number, name))
        });
        let unknown = calls.filter(|(_, name)| !PORTS.iter().any(|(port, _)| port.ends_with(&format!(".{name}"))));
        found.extend(unknown.map(|(number, name)| at(file, number, &format!("{name} has no rights"))));
    }
    tidy(&found, "PORTS in tests/tidy/policies.rs says which rights each call of a port needs.");
}

#[test]
fn policies_give_what_is_called_and_no_more() {
    let mut found = Vec::new();
    for (policy, rooms) in ROLES {
        let (needed, given) = (needed(rooms), given(policy));
        assert!(!needed.is_empty(), "nothing of {policy} is found in the source");
        for (right, files) in &needed {
            match given.get(*right) {
                None => found.push(format!("{policy} lacks {right}, which {files:?} need")),
                Some(marked) if *marked != files.iter().all(|file| file == BEFORE_THE_START) => {
                    found.push(format!("{policy}: {right} is needed by {files:?}, and is marked otherwise"));
                }
                Some(_) => {}
            }
        }
        let needless = given.keys().filter(|right| !needed.contains_key(right.as_str()));
        found.extend(needless.map(|right| format!("{policy} gives {right}, which nothing needs")));
    }
    tidy(&found, "infra/queue.yaml has the policies; what is called before the start alone is marked: # at the start");
}

#[test]
fn doctor_tries_rights_that_a_worker_has() {
    let given = given("WorkerPolicy");
    let doctor = production().into_iter().find(|file| file.path == "src/ops/doctor/look.rs").expect("doctor looks");
    let tried = doctor.text.split('"').filter(|text| text.starts_with("sqs:") || text.starts_with("dynamodb:"));
    let tried: BTreeSet<&str> = tried.collect();
    assert!(tried.len() > 3, "what doctor tries is not found: {tried:?}");
    let missing = tried.into_iter().filter(|right| !given.contains_key(*right));
    let found: Vec<_> = missing.map(|right| format!("WorkerPolicy lacks {right}, which doctor tells of")).collect();
    tidy(&found, "doctor tells of rights that a worker needs, and no others.");
}

#[test]
fn g10_teams_that_share_a_table_can_be_kept_to_their_own_records() {
    let page = repository().into_iter().find(|file| file.path == "docs/deploy.md").expect("the page is there");
    let (_, rest) = page.text.split_once("dynamodb:LeadingKeys:\n").expect("a condition");
    let patterns: Vec<&str> =
        rest.lines().map_while(|line| line.trim().strip_prefix("- \"")?.split('"').next()).collect();
    let of = |operation, key: &str| pk(None, operation, &Key::from(key), KeyHash::Long).expect("a key").0;
    for (allowed, pk) in [
        (true, of("payments", "p1")),
        (true, of("leasehold-doctor", "nobody")),
        (true, "#probe".to_owned()),
        (true, "#control#payments".to_owned()),
        (false, of("payments2", "p1")),
        (false, of("emails", "payments#p1")),
        (false, "#control#emails".to_owned()),
    ] {
        assert_eq!(patterns.iter().any(|pattern| is_like(&pk, pattern)), allowed, "{pk}: {patterns:?}");
    }
}

/// The patterns of keys that a statement allows, for a queue `orders`.
fn patterns(statement: &str) -> Vec<String> {
    let template = template();
    let (_, rest) = template.text.split_once(&format!("Sid: {statement}\n")).expect("a statement");
    let (_, keys) = rest.split_once("dynamodb:LeadingKeys:\n").expect("keys");
    let lines = keys.lines().map_while(|line| line.trim().strip_prefix("- !Sub \"")?.strip_suffix('"'));
    lines.map(|line| line.replace("${QueueName}", "orders")).collect()
}

/// As IAM's `StringLike` has it, for patterns with stars alone.
fn is_like(text: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => text == pattern,
        Some((before, after)) => text
            .strip_prefix(before)
            .is_some_and(|rest| (0..=rest.len()).any(|at| rest.is_char_boundary(at) && is_like(&rest[at..], after))),
    }
}

#[test]
fn g10_operators_may_amend_the_records_of_their_queue_and_no_others() {
    let patterns = patterns("AmendRecords");
    let key = Key::from(("a#orders#/orders#b", 7));
    for (operation, expected) in
        [("orders", true), ("orders.fifo", true), ("order", false), ("orders2", false), ("mails/orders", false)]
    {
        for (namespace, hash) in [(None, KeyHash::Long), (Some("prod"), KeyHash::Long), (Some("a/b"), KeyHash::Always)]
        {
            let pk = pk(namespace, operation, &key, hash).expect("a key").0;
            let allowed = patterns.iter().any(|pattern| is_like(&pk, pattern));
            assert_eq!(allowed, expected, "{pk}: {patterns:?}");
        }
    }
    assert!(!patterns.iter().any(|pattern| is_like("#control#orders", pattern)));
}
