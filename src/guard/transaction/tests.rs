use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::*;
use crate::{
    clock::{Millis, Seconds},
    guard::Owner,
};

fn commit(writes: Vec<ItemWrite>) -> Commit {
    let confirm = Change::Confirm { owner: Owner("me".into()), now: Millis(1), expires_at: Seconds(9) };
    Commit { pk: Pk("ns/op#k".into()), confirm, writes, token: "token".into() }
}

/// What is wrong with these writes; empty if nothing is.
fn fault(writes: Vec<ItemWrite>) -> String {
    match commit(writes).check() {
        Ok(()) => String::new(),
        Err(GuardError::Refused(what)) => what,
        Err(other) => panic!("{other:?}"),
    }
}

fn put(id: &str) -> ItemWrite {
    ItemWrite::put("grants", [("grant_id", id)])
}

#[test]
fn g12_what_no_transaction_takes_is_refused_with_what_and_where() {
    let keyed = |table, id| ItemWrite::delete(table, [("grant_id", id)]);
    let nothing: [(&str, &str); 0] = [];
    let large = |id: &str, bytes| ItemWrite::put("t", [("id", id.to_owned()), ("text", "x".repeat(bytes))]);
    let arn = "arn:aws:dynamodb:us-east-1:000000000000:table/grants";
    let too_many = (0..=MOST_WRITES).map(|n| put(&n.to_string())).collect();
    for (writes, told) in [
        (too_many, "100 writes"),
        (vec![put("a"), ItemWrite::put("", [("grant_id", "b")])], "write 1 (table \"\"): it names no table"),
        (vec![ItemWrite::delete("grants", nothing)], "write 0 (table \"grants\"): its item or key has no attributes"),
        (vec![put("a"), put("a")], "write 1 (table \"grants\"): write 0 has the same item"),
        (vec![put("a"), keyed("grants", "a")], "write 0 has the same item"),
        (vec![keyed("grants", "a"), keyed(arn, "a")], "write 0 has the same item"),
        (vec![put("a").name("status", "s")], "begins with #, and \"status\" does not"),
        (vec![put("a").value("v", 1)], "begins with :, and \"v\" does not"),
        (vec![large("a", LARGEST_RECORD)], "its item is larger than 400 KB"),
        ((0..11).map(|n| large(&n.to_string(), LARGEST_RECORD - 100)).collect(), "4 MB"),
    ] {
        let fault = fault(writes);
        assert!(fault.contains(told), "{fault:?} should tell {told:?}");
    }
}

#[test]
fn g12_what_a_transaction_takes_is_not_refused() {
    let elsewhere = ItemWrite::put("other", [("grant_id", "a")]);
    let change = ItemWrite::update("grants", [("grant_id", "b")], "SET #s = :s").name("#s", "status").value(":s", "x");
    let full = ItemWrite::put("t", [("id", "i".to_owned()), ("n", "x".repeat(LARGEST_RECORD - 4))]);
    for writes in [
        vec![],
        vec![put("a"), elsewhere, change, full],
        (0..MOST_WRITES).map(|n| put(&n.to_string())).collect::<Vec<_>>(),
    ] {
        assert_eq!(fault(writes), "");
    }
}

#[test]
fn g12_only_a_confirm_has_writes() {
    let renew = Change::Renew { owner: Owner("me".into()), now: Millis(1), lease_until: Millis(2) };
    let refused = Commit { confirm: renew, ..commit(vec![put("a")]) }.check();
    assert!(matches!(&refused, Err(GuardError::Refused(what)) if what.contains("renew")), "{refused:?}");
}

#[test]
fn g12_the_guards_own_table_is_not_written_to_by_name_nor_by_arn() {
    for table in ["leasehold", "arn:aws:dynamodb:eu-west-1:000000000000:table/leasehold"] {
        let refused = commit(vec![put("a"), ItemWrite::put(table, [("pk", "p")])]).check_tables("leasehold");
        assert!(matches!(&refused, Err(GuardError::Refused(what)) if what.contains("write 1")), "{refused:?}");
    }
    assert!(commit(vec![put("a")]).check_tables("leasehold").is_ok());
}

#[test]
fn two_conditions_of_one_write_are_both_required() {
    let write = put("a").when("attribute_not_exists(grant_id)").when("a = :a OR b = :b");
    assert_eq!(write.condition.as_deref(), Some("(attribute_not_exists(grant_id)) AND (a = :a OR b = :b)"));
}

#[test]
fn what_serializes_to_an_object_is_an_item() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Grant {
        grant_id: String,
        cents: u64,
        note: Option<String>,
        tags: Vec<String>,
    }
    let grant = Grant { grant_id: "g".into(), cents: 500, note: None, tags: vec!["a".into()] };
    let expected = Item::from([
        ("grant_id".to_owned(), Value::from("g")),
        ("cents".to_owned(), Value::from(500)),
        ("note".to_owned(), Value::Null),
        ("tags".to_owned(), Value::L(vec![Value::from("a")])),
    ]);
    assert_eq!(item(&grant).unwrap(), expected);
    assert_eq!(from_item::<Grant>(&expected).unwrap(), grant, "and comes back");
    let odd = Item::from([("grant_id".to_owned(), Value::from(7))]);
    assert!(from_item::<Grant>(&odd).unwrap_err().to_string().contains("a string"));
    assert_eq!(item(&json!({"m": {"n": 1.5, "b": true}})).unwrap()["m"], {
        Value::M(Item::from([("n".to_owned(), Value::N("1.5".into())), ("b".to_owned(), Value::Bool(true))]))
    });
    assert!(item("text").unwrap_err().to_string().contains("neither"));
}

#[test]
fn an_item_that_something_else_wrote_is_read_as_far_as_json_goes() {
    let texts = |words: [&str; 2]| words.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    let written = Item::from([
        ("b".to_owned(), Value::from(vec![1, 255])),
        ("ss".to_owned(), Value::Ss(texts(["a", "b"]))),
        ("ns".to_owned(), Value::Ns(texts(["-1", "2.5"]))),
        ("bs".to_owned(), Value::Bs(BTreeSet::from([vec![9]]))),
        ("m".to_owned(), Value::M(Item::from([("n".to_owned(), Value::Null), ("t".to_owned(), Value::from(true))]))),
        ("odd".to_owned(), Value::N("no number".into())),
    ]);
    let read: serde_json::Value = from_item(&written).unwrap();
    let expected = json!({
        "b": [1, 255], "ss": ["a", "b"], "ns": [-1, 2.5], "bs": [[9]], "m": {"n": null, "t": true}, "odd": "no number",
    });
    assert_eq!(read, expected);
}
