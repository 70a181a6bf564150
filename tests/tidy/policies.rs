//! What the policies of the template allow must be what the keys of records are.

use leasehold::key::{Key, KeyHash, pk};

use crate::repository;

/// The patterns of keys that a statement allows, for a queue `orders`.
fn patterns(statement: &str) -> Vec<String> {
    let template =
        repository().into_iter().find(|file| file.path == "infra/queue.yaml").expect("the template is there");
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
