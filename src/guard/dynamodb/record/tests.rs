//! Records to items and back, what is foreign, and how many bytes it all takes.

use proptest::prelude::*;

use super::*;

/// A record with everything that one can have, the longest failure and names as long as they usually are.
fn full() -> Record {
    let at = |seconds: u64| Millis(1_800_000_000_000 + seconds * 1000);
    Record {
        pk: Pk("production/payments#order-7d2f4a90-1c1e-4f86-9c53-0f3a5f2b8d11".into()),
        status: Status::Dead,
        owner: Owner("0123456789abcdef0123456789abcdef".into()),
        fence: Fence(1_800_000_000_123),
        lease_until: at(1),
        not_before: Some(at(2)),
        failures: 5,
        takeovers: 10,
        last_error: Some(Failure::new("x".repeat(200), "y".repeat(2000))),
        failure_id: Some("0123456789abcdef0123456789abcdef".into()),
        dead_at: Some(at(3)),
        copied: true,
        undo: Some(Undoing { failures: 1, takeovers: 2, answer: Some(UndoAnswer::Undone) }),
        fingerprint: Some("f".repeat(64)),
        source: Source {
            queue: "payments".into(),
            message_id: "8d2f4a90-1c1e-4f86-9c53-0f3a5f2b8d11".into(),
            sent_at: Some(at(4)),
            worker: "ip-10-0-31-7.eu-central-1.compute.internal/1".into(),
        },
        created_at: at(5),
        updated_at: at(6),
        steps: BTreeMap::new(),
        expires_at: Seconds(1_802_592_000),
    }
}

fn charged() -> Step {
    Step { state: StepState::Done, generation: 1, result: Some("{\"id\":7}".into()), at: Millis(1_800_000_000_000) }
}

fn with_steps() -> Record {
    let started = Step { state: StepState::Started, generation: u32::MAX, result: None, at: Millis(u64::MAX) };
    Record { steps: [("charge".into(), charged()), ("mail, then # . é".into(), started)].into(), ..full() }
}

/// Bytes as DynamoDB counts them.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html>
fn bytes(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + value_bytes(value)).sum()
}

fn value_bytes(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(number) => number.len().div_ceil(2) + 1,
        AttributeValue::Bool(_) => 1,
        AttributeValue::M(map) => {
            3 + map.iter().map(|(name, value)| name.len() + 1 + value_bytes(value)).sum::<usize>()
        }
        other => unreachable!("records have no {other:?}"),
    }
}

#[test]
fn every_attribute_comes_back_as_it_was() {
    for record in [full(), with_steps()] {
        assert_eq!(from_item(to_item(&record)).unwrap(), record);
    }
}

#[test]
fn attributes_are_named_as_designed_and_the_optional_ones_may_be_absent() {
    let expected = "copied created_at dead_at expires_at failure_id failures fence fingerprint last_error lease_until \
                    message_id not_before owner pk queue sent_at status steps takeovers undo updated_at v worker";
    assert_eq!(to_item(&full()).keys().map(String::as_str).collect::<Vec<_>>().join(" "), expected);
    let mut least = to_item(&full());
    OPTIONAL.iter().for_each(|name| drop(least.remove(*name)));
    let least = from_item(least).unwrap();
    assert_eq!(to_item(&least).len() + OPTIONAL.len(), to_item(&full()).len());
    assert!(OPTIONAL.iter().all(|name| !to_item(&least).contains_key(*name)));
}

#[test]
fn a_record_without_steps_is_one_write_unit() {
    assert!(bytes(&to_item(&full())) < 1024, "{} bytes", bytes(&to_item(&full())));
}

#[test]
fn s1_the_estimated_size_leaves_room_to_finish_and_is_not_far_above_the_real_one() {
    for finished in [full(), with_steps()] {
        let running = Record {
            not_before: None,
            last_error: None,
            failure_id: None,
            dead_at: None,
            copied: false,
            undo: None,
            fingerprint: None,
            source: Source { sent_at: None, ..finished.source.clone() },
            ..finished.clone()
        };
        let (estimate, now, then) = (running.size(), bytes(&to_item(&running)), bytes(&to_item(&finished)));
        assert!(then + 100 < estimate && estimate < now + 1000, "estimated {estimate}, is {now}, may become {then}");
        assert!(finished.size() > then);
    }
}

/// What `from_item` says of a full item with one attribute made something else.
fn told_of(name: &str, value: Option<AttributeValue>) -> String {
    let mut item = to_item(&with_steps());
    match value {
        Some(value) => drop(item.insert(name.into(), value)),
        None => drop(item.remove(name)),
    }
    match from_item(item) {
        Err(GuardError::Foreign(told)) => told.replace(&full().pk.0, "PK"),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn g1_what_is_not_ours_to_read_is_foreign_and_says_what_and_where() {
    let step = |name: &str, value| {
        let mut map = step_to_value(&charged());
        if let AttributeValue::M(step) = &mut map {
            step.insert(name.into(), value);
        }
        Some(AttributeValue::M([("charge".to_owned(), map)].into()))
    };
    for (name, value, told) in [
        ("v", Some(number(2_u32)), "PK: version 2, this one reads 1"),
        ("v", None, "PK: v is missing"),
        ("pk", Some(number(2_u32)), "a record: pk is not a string"),
        ("status", Some(text("PAUSED")), "PK: status is \"PAUSED\", which is not known"),
        ("fence", Some(text("7")), "PK: fence is not a whole number"),
        ("fence", Some(AttributeValue::N("-7".into())), "PK: fence is not a whole number"),
        ("lease_until", Some(AttributeValue::N("1.5".into())), "PK: lease_until is not a whole number"),
        ("failures", Some(number(u64::MAX)), "PK: failures is 18446744073709551615, which is no count"),
        ("not_before", Some(AttributeValue::Null(true)), "PK: not_before is not a whole number"),
        ("copied", Some(text("yes")), "PK: copied is not true or false"),
        ("last_error", Some(text("oops")), "PK: last_error is not a map"),
        ("owner", None, "PK: owner is missing"),
        ("steps", None, "PK: steps is missing"),
        ("steps", step("state", text("lost")), "PK: steps: charge: state is \"lost\", which is not known"),
        ("steps", step("gen", text("1")), "PK: steps: charge: gen is not a whole number"),
    ] {
        assert_eq!(told_of(name, value), told);
    }
}

#[test]
fn attributes_that_are_not_known_are_no_reason_to_refuse() {
    let mut item = to_item(&full());
    item.insert("colour".into(), text("red"));
    assert_eq!(from_item(item).unwrap(), full());
}

fn any_attribute() -> impl Strategy<Value = String> {
    proptest::sample::select(to_item(&full()).into_keys().collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_item_however_strange_is_a_panic(
        changed in proptest::collection::btree_map(any_attribute(), ".{0,3}", 0..4),
        as_number in any::<bool>(),
    ) {
        let value = |text: String| if as_number { AttributeValue::N(text) } else { AttributeValue::S(text) };
        let mut item = to_item(&full());
        item.extend(changed.into_iter().map(|(name, text)| (name, value(text))));
        let _ = from_item(item);
    }
}
