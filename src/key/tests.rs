use proptest::prelude::*;

use super::*;
use crate::message::Attribute;

fn message(body: &str) -> Message {
    Message { id: "m1".into(), body: body.into(), ..Message::default() }
}

fn pointers(all: &[&str]) -> Vec<String> {
    all.iter().map(|&pointer| pointer.to_owned()).collect()
}

fn derive(body: &str, all: &[&str]) -> Result<String, String> {
    let key = KeySource::Pointers(pointers(all)).derive(&message(body));
    key.map(|key| key.to_string()).map_err(|error| error.to_string())
}

fn plain(operation: &str, key: impl Into<Key>) -> String {
    pk(None, operation, &key.into(), KeyHash::Long).expect("a key").0
}

#[test]
fn g10_an_ordinary_primary_key_reads_as_what_it_names() {
    assert_eq!(plain("payments", "p1"), "payments#p1");
    assert_eq!(plain("payments", ("tenant 1", 12_u64)), "payments#tenant 1#n:12");
    assert_eq!(plain("payments", (true, -1_i64, "é")), "payments#b:true#n:-1#é");
    let key = Key::from("p1");
    assert_eq!(pk(Some("prod"), "payments", &key, KeyHash::Long), Some(Pk("prod/payments#p1".into())));
}

#[test]
fn g10_parts_are_escaped_and_typed() {
    assert_eq!(plain("a/b", "100%#/:\n\u{85}"), "a%2Fb#100%25%23%2F%3A%0A%C2%85");
    assert_ne!(plain("q", ("a", "b")), plain("q", "a#b"));
    assert_ne!(plain("q", "12"), plain("q", 12_u32));
    assert_ne!(plain("q", "n:12"), plain("q", 12_i32));
    assert_ne!(plain("q", "true"), plain("q", true));
    assert_ne!(plain("q", (("a", "b"), "c")), plain("q", ("a", ("b", "c"))));
    assert_ne!(plain("q", (("a", "b"), "c")), plain("q", ("a", "b", "c")));
    assert_eq!(plain("q", (("a", "b"), "c")), "q#t:a%23b#c");
}

#[test]
fn what_somebody_types_is_read_as_text_and_as_number_or_truth_value() {
    let readings = |parts: &[&str]| Key::readings(parts).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(readings(&["p1"]), ["p1"]);
    assert_eq!(readings(&["12"]), ["12", "n:12"]);
    assert_eq!(readings(&["-1.50e3"]), ["-1.50e3", "n:-1.50e3"], "a number is its text");
    assert_eq!(readings(&["true", "x", "7"]), ["true#x#7", "b:true#x#7", "true#x#n:7", "b:true#x#n:7"]);
    for text in ["null", "01", " 1", "1 ", "+1", "\"a\"", "[1]", "{}", "True", "NaN"] {
        assert_eq!(Key::readings(&[text]), [Key::from(text)], "{text:?}");
    }
    assert_eq!(Key::readings(&["a", ""]), [Key::from("")]);
    assert_eq!(Key::readings::<&str>(&[]), [Key::from("")]);
}

#[test]
fn g10_what_is_not_there_is_no_key() {
    for key in [
        Key::from(""),
        Key::from(String::new()),
        Key::from(None::<u64>),
        Key::from(Some("")),
        Key::from(("tenant", "")),
        Key::from(("a", 1_u64, None::<String>)),
    ] {
        assert!(key.is_missing(), "{key:?}");
        assert_eq!(pk(Some("n"), "q", &key, KeyHash::Always), None);
    }
    assert!(!Key::from(Some(("a", 0_u64))).is_missing());
}

#[test]
fn g10_a_long_key_is_hashed_and_any_is_on_request() {
    let longest = LONGEST_PK - "q#".len();
    assert_eq!(plain("q", "x".repeat(longest)).len(), 1_024);
    let hashed = plain("q", "x".repeat(longest + 1));
    assert!(hashed.starts_with("q#sha256:"), "{hashed}");
    assert_eq!(hashed.len(), "q#sha256:".len() + 64);
    assert_ne!(hashed, plain("q", "x".repeat(longest + 2)));
    // `printf %s p1 | sha256sum`: what an operator would type to find the record of a key.
    let always = pk(Some("n"), "q", &Key::from("p1"), KeyHash::Always).expect("a key").0;
    assert_eq!(always, "n/q#sha256:f64551fcd6f07823cb87971cfb91446425da18286b3ab1ef935e0cbd7a69f68a");
}

#[test]
fn g10_a_primary_key_belongs_to_one_namespace_and_operation() {
    let key = pk(Some("prod"), "payments", &Key::from("p1"), KeyHash::Long).expect("a key");
    assert!(belongs(&key, Some("prod"), "payments"));
    for (namespace, operation) in [(Some("prod"), "pay"), (None, "payments"), (Some("test"), "payments"), (None, "")] {
        assert!(!belongs(&key, namespace, operation), "{namespace:?} {operation:?}");
    }
}

#[test]
fn g10_a_noted_key_that_no_record_can_have_is_not_believed() {
    let noted = |length: usize| Pk(format!("q#{}", "x".repeat(length - "q#".len())));
    assert!(belongs(&noted(LONGEST_STORED), None, "q"));
    assert!(!belongs(&noted(LONGEST_STORED + 1), None, "q"));
}

fn part() -> impl Strategy<Value = Key> {
    prop_oneof![
        "[a#/:%\n]{0,4}".prop_map(Key::from),
        any::<String>().prop_map(Key::from),
        any::<i64>().prop_map(Key::from),
        (0_u32..3).prop_map(Key::from),
        any::<bool>().prop_map(Key::from),
    ]
}

/// What a key is made of, to compare by something else than the text under test.
fn whole() -> impl Strategy<Value = (String, Key)> {
    prop_oneof![
        part().prop_map(|a| (format!("{a:?}"), a)),
        (part(), part()).prop_map(|(a, b)| (format!("{a:?},{b:?}"), Key::from((a, b)))),
        (part(), part(), part())
            .prop_map(|(a, b, c)| (format!("({a:?},{b:?}),{c:?}"), Key::from((Key::from((a, b)), c)))),
        (part(), part(), part()).prop_map(|(a, b, c)| (format!("{a:?},{b:?},{c:?}"), Key::from((a, b, c)))),
    ]
}

fn name() -> impl Strategy<Value = String> {
    "[a#/:%]{0,3}"
}

proptest! {
    #[test]
    fn g10_different_names_and_keys_never_become_one_primary_key(
        one in (proptest::option::of(name()), name(), whole()),
        two in (proptest::option::of(name()), name(), whole()),
    ) {
        let [a, b] = [&one, &two].map(|(namespace, operation, (_, key))| {
            pk(namespace.as_deref(), operation, key, KeyHash::Long)
        });
        if let (Some(a), Some(b)) = (a, b) {
            prop_assert!(!a.0.starts_with('#') && a.0.len() <= LONGEST_PK);
            prop_assert!(!a.0.chars().any(char::is_control));
            let same = (&one.0, &one.1, &one.2.0) == (&two.0, &two.1, &two.2.0);
            prop_assert_eq!(a == b, same, "{:?} {:?}", a, b);
        }
    }

    #[test]
    fn g10_hashed_or_not_a_primary_key_tells_what_it_names_apart(
        one in (proptest::option::of(name()), name(), whole()),
        two in (proptest::option::of(name()), name(), whole()),
    ) {
        let [a, b] = [&one, &two].map(|(namespace, operation, (_, key))| {
            pk(namespace.as_deref(), operation, key, KeyHash::Always)
        });
        if let (Some(a), Some(b)) = (a, b) {
            let same = (&one.0, &one.1, &one.2.0) == (&two.0, &two.1, &two.2.0);
            prop_assert_eq!(a == b, same, "{:?} {:?}", a, b);
            prop_assert!(belongs(&a, one.0.as_deref(), &one.1));
            let other_place = (&one.0, &one.1) != (&two.0, &two.1);
            prop_assert_eq!(belongs(&a, two.0.as_deref(), &two.1), !other_place, "{:?} in {:?} {:?}", a, two.0, two.1);
        }
    }

    #[test]
    fn what_is_said_of_two_queues_never_has_one_key(
        one in (proptest::option::of("[a/]{0,2}"), "[a/]{0,2}"), two in (proptest::option::of("[a/]{0,2}"), "[a/]{0,2}"),
    ) {
        let [a, b] = [&one, &two].map(|(namespace, queue)| control_pk(namespace.as_deref(), queue));
        prop_assert_eq!(a == b, one == two, "{:?} {:?}", a, b);
        prop_assert!(a.0.starts_with("#control#"));
    }

    /// What stands at a pointer is the key, whatever the names on the way to it.
    #[test]
    fn g10_every_value_is_found_at_its_own_pointer(name in any::<String>(), other in any::<String>(), id in any::<String>()) {
        let body = serde_json::json!({ "a": [0, { &*other: 1, &*name: id }] }).to_string();
        let pointer = format!("/a/1/{}", name.replace('~', "~0").replace('/', "~1"));
        match derive(&body, &[&pointer]) {
            Ok(key) => prop_assert_eq!(key, Key::from(id).to_string()),
            Err(why) => prop_assert!(id.is_empty() && why.ends_with("is empty"), "{}", why),
        }
    }

    #[test]
    fn g10_two_texts_are_one_key_only_if_they_are_one_text(a in "[a#/:%25\n]{1,5}", b in "[a#/:%25\n]{1,5}") {
        prop_assert_eq!(Key::from(a.as_str()) == Key::from(b.as_str()), a == b);
    }

    #[test]
    fn g9_g10_no_body_and_no_pointer_makes_it_panic(body in any::<String>(), pointer in any::<String>()) {
        let message = message(&body);
        let _ = KeySource::Pointers(vec![pointer.clone()]).derive(&message);
        prop_assert!(FingerprintSource::Body.of(&message).is_some());
        prop_assert!(FingerprintSource::Pointers(vec![pointer]).of(&message).is_some());
    }
}

#[test]
fn g10_the_key_in_the_body_is_the_key_that_code_would_make() {
    let body = r#"{"tenant": "t1", "order": {"id": 12, "lines": [{"sku": "a/b"}]}, "a/b": {"~c": true, "~1": 5}}"#;
    for (all, key) in [
        (&["/tenant"][..], Key::from("t1")),
        (&["/tenant", "/order/id"], Key::from(("t1", 12_u64))),
        (&["/order/lines/0/sku"], Key::from("a/b")),
        (&["/a~1b/~0c"], Key::from(true)),
        (&["/a~1b/~01"], Key::from(5_u32)),
    ] {
        assert_eq!(derive(body, all), Ok(key.to_string()));
    }
}

#[test]
fn g10_a_number_is_its_text() {
    let body = r#"{"big": 12345678901234567890, "one": 1, "float": 1.0, "huge": 1e999}"#;
    assert_eq!(derive(body, &["/big"]), Ok("n:12345678901234567890".into()));
    assert_eq!(derive(body, &["/one"]), Ok("n:1".into()));
    assert_eq!(derive(body, &["/float"]), Ok("n:1.0".into()));
    assert_eq!(derive(body, &["/huge"]), Ok("n:1e999".into()));
}

#[test]
fn g10_what_is_no_key_is_told_with_its_pointer() {
    let body = r#"{"null": null, "empty": "", "object": {}, "array": [1], "text": "x", "id": "1", "id": ""}"#;
    for (pointer, found) in [
        ("/absent", "missing"),
        ("/text/deeper", "missing"),
        ("/array/-", "missing"),
        ("/array/00", "missing"),
        ("/array/1", "missing"),
        ("/array/99999999999999999999999", "missing"),
        ("/null", "null"),
        ("/empty", "empty"),
        ("/object", "an object"),
        ("/array", "an array"),
        ("/id", "empty"), // the last of two members is the one that handlers see
    ] {
        assert_eq!(derive(body, &["/text", pointer]), Err(format!("no key: {pointer} is {found}")));
    }
}

#[test]
fn t4_bodies_that_are_no_json_have_no_key() {
    for body in ["", "nope", "{", "\u{feff}{}", r#"{"id": "\ud800"}"#, r#"{"id": 01}"#, "{}{}"] {
        assert_eq!(derive(body, &["/id"]), Err("no key: the body is not JSON".into()), "{body}");
    }
}

#[test]
fn g10_keys_outside_of_the_body_are_texts_that_are_there() {
    let mut message = message("nope");
    let attribute = KeySource::Attribute("order".into());
    assert!(matches!(attribute.derive(&message), Err(KeyError::NoAttribute(name)) if name == "order"));
    assert!(matches!(KeySource::DeduplicationId.derive(&message), Err(KeyError::NoDeduplicationId)));
    message.attributes.insert("order".into(), Attribute::text(""));
    assert!(attribute.derive(&message).is_err());
    message.attributes.insert("order".into(), Attribute::text("o1"));
    message.deduplication_id = Some("d1".into());
    assert_eq!(attribute.derive(&message).ok(), Some(Key::from("o1")));
    assert_eq!(KeySource::DeduplicationId.derive(&message).ok(), Some(Key::from("d1")));
    assert_eq!(KeySource::MessageId.derive(&message).ok(), Some(Key::from("m1")));
    assert!(KeySource::GroupAndDeduplicationId.derive(&message).is_err());
    message.group = Some("g1".into());
    assert_eq!(KeySource::GroupAndDeduplicationId.derive(&message).ok(), Some(Key::from(("g1", "d1"))));
}

fn print(source: &FingerprintSource, body: &str) -> String {
    source.of(&message(body)).expect("a fingerprint")
}

fn same(a: &str, b: &str) -> bool {
    print(&FingerprintSource::Body, a) == print(&FingerprintSource::Body, b)
}

#[test]
fn g9_what_json_calls_the_same_is_the_same_payload() {
    assert!(same(r#"{"a": 1, "b": [true, null]}"#, "\n{\"b\":[true,null],\"a\":1} "));
    assert!(same(r#"{"\u0061": "\u0041\/"}"#, r#"{"a": "A/"}"#));
    assert!(same(r#"{"a": 1, "a": 2}"#, r#"{"a": 2}"#));
    assert!(same(r#""\ud83d\ude00""#, "\"😀\""));
}

#[test]
fn g9_other_values_are_another_payload() {
    assert!(!same(r#"{"a": 1}"#, r#"{"a": 1.0}"#));
    assert!(!same("12345678901234567890", "12345678901234567891"));
    assert!(!same(r#"{"a": 1}"#, r#"{"a": "1"}"#));
    assert!(!same("[1,2]", "[2,1]"));
    assert!(!same("{}", "[]"));
    assert!(!same(r#"["a,b"]"#, r#"["a","b"]"#));
    assert!(!same("nope", "nope "));
}

#[test]
fn g9_bytes_never_look_like_json() {
    // The canonical form of a JSON text, were it hashed as the bytes that it is made of.
    assert_ne!(print(&FingerprintSource::Body, "{}"), sha256(["bytes:{}"]));
    assert_eq!(print(&FingerprintSource::Body, "nope"), sha256(["bytes:nope"]));
    assert_eq!(print(&FingerprintSource::Body, r#"["\ud800"]"#), sha256([r#"bytes:["\ud800"]"#]));
}

#[test]
fn g9_nesting_is_bounded() {
    let nested = |levels: usize| format!("{}{} {}", "[".repeat(levels), 1, "]".repeat(levels));
    assert_eq!(
        print(&FingerprintSource::Body, &nested(128)),
        sha256([format!("json:{}", nested(128).replace(' ', ""))])
    );
    assert_eq!(print(&FingerprintSource::Body, &nested(129)), sha256([format!("bytes:{}", nested(129))]));
    let bottomless = "[".repeat(1024 * 1024);
    assert_eq!(print(&FingerprintSource::Body, &bottomless), sha256([format!("bytes:{bottomless}")]));
}

#[test]
fn what_is_said_of_a_queue_has_a_key_that_no_record_and_no_other_queue_has() {
    let keys = [
        (None, "payments", "#control#payments"),
        (Some("prod"), "payments.fifo", "#control#prod/payments.fifo"),
        (None, "prod/payments", "#control#prod%2Fpayments"),
        (Some("prod/eu"), "payments", "#control#prod%2Feu/payments"),
        (Some("a#b"), "c", "#control#a%23b/c"),
    ];
    for (namespace, queue, expected) in keys {
        assert_eq!(control_pk(namespace, queue).0, expected);
        let record = pk(namespace, "#control", &Key::from(queue), KeyHash::Long).expect("a key");
        assert!(!record.0.starts_with('#'), "{record}");
    }
}

#[test]
fn g9_pointers_compare_only_what_they_point_at() {
    let source = FingerprintSource::Pointers(pointers(&["/amount", "/to"]));
    let of = |body: &str| print(&source, body);
    assert_eq!(of(r#"{"amount": 1, "to": {"b": 1, "a": 2}, "sent": 5}"#), of(r#"{"to": {"a":2,"b":1}, "amount": 1}"#));
    assert_ne!(of(r#"{"amount": 1, "to": null}"#), of(r#"{"amount": 1}"#));
    assert_ne!(of(r#"{"amount": 1}"#), of(r#"{"to": 1}"#));
    assert_eq!(of("nope"), sha256(["bytes:nope"]));
    assert_eq!(FingerprintSource::Off.of(&message("{}")), None);
}

proptest! {
    /// Checked against a printer that knows nothing of raw values: numbers are whole, so that it does not round them.
    #[test]
    fn g9_the_canonical_form_is_what_sorted_compact_json_is(value in json_value(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let compact = serde_json::to_string(&sorted(&value)).expect("JSON");
        prop_assert_eq!(print(&FingerprintSource::Body, &text.expect("JSON")), sha256([format!("json:{compact}")]));
    }
}

proptest! {
    #[test]
    fn g9_one_value_has_one_fingerprint_however_it_is_written(value in json_value(), seed: u64) {
        let mut chance = fastrand::Rng::with_seed(seed);
        let written = written(&value, &mut chance);
        prop_assert!(same(&value.to_string(), &written), "{}", written);
        let source = FingerprintSource::Pointers(vec!["/0".into(), "/a".into()]);
        prop_assert_eq!(print(&source, &value.to_string()), print(&source, &written));
    }

    #[test]
    fn g9_different_values_have_different_fingerprints(one in small_value(), two in small_value()) {
        prop_assert_eq!(same(&one.to_string(), &two.to_string()), one == two);
    }
}

/// So few of them that two are often nearly the same.
fn small_value() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::{Value, json};
    let leaf = proptest::sample::select(vec![json!(1), json!("1"), json!(null)]);
    leaf.prop_recursive(1, 3, 2, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[a,]", inner, 0..2).prop_map(Value::from_iter),
        ]
    })
}

/// The same value in another writing: members in any order, any space, any character escaped.
fn written(value: &serde_json::Value, chance: &mut fastrand::Rng) -> String {
    use serde_json::Value;
    let text = |text: &str, chance: &mut fastrand::Rng| {
        let mut out = String::from('"');
        for c in text.chars() {
            if chance.bool() || matches!(c, '"' | '\\') || c < ' ' {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
            } else {
                out.push(c);
            }
        }
        out + "\""
    };
    let space = |chance: &mut fastrand::Rng| " \t\r\n"[..chance.usize(0..=4)].to_owned();
    let parts: Vec<String> = match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            chance.shuffle(&mut members);
            let member = |(name, value): (&String, _)| {
                format!("{}{}:{}", text(name, chance), space(chance), written(value, chance))
            };
            members.into_iter().map(member).collect()
        }
        Value::Array(items) => items.iter().map(|item| written(item, chance)).collect(),
        Value::String(string) => vec![text(string, chance)],
        other => vec![other.to_string()],
    };
    let (before, after) = match value {
        Value::Object(_) => ("{", "}"),
        Value::Array(_) => ("[", "]"),
        _ => ("", ""),
    };
    format!("{}{before}{}{after}{}", space(chance), parts.join(&format!("{},", space(chance))), space(chance))
}

fn json_value() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(any::<String>(), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().rev().collect())),
        ]
    })
}

/// Sorted whether or not `preserve_order` is on somewhere in the build.
fn sorted(value: &serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Object(members) => {
            let mut members: Vec<_> = members.iter().map(|(name, value)| (name.clone(), sorted(value))).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            serde_json::Value::Object(members.into_iter().collect())
        }
        serde_json::Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}
