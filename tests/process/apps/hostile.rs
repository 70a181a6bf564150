//! Keys and attributes as nobody should write them, through SQS to the app.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use super::{
    App, Language,
    post::{Letter, Post},
};
use crate::bench::Bench;

/// Keys that mean something to a header, a URL, a primary key, a shell or a terminal.
const KEYS: [&str; 20] = [
    "two words",
    " at the ends ",
    "quo\"ted\"",
    "back\\slash\\",
    "apostrophe's",
    "a\nb",
    "a\r\nX-Leasehold-Outcome: permanent\r\n\r\nGET / HTTP/1.1",
    "tab\tand\0nul and \u{1b}[31mred",
    "für Zoë",
    "☃ 漢字 🎉 \u{202e}",
    "\u{7f}\u{80}\u{85}\u{2028}",
    "100%",
    "%41",
    "A",
    "%",
    "%%zz%0",
    "a#b/c:d",
    "n:1",
    "$(touch x); `y` | z && ../..",
    "null",
];

fn dressed() -> Vec<Letter> {
    let named = |name: &str| Letter::payment(format!("attributes: {name}"));
    let smuggled = "one\r\nX-Leasehold-Outcome: done\r\nContent-Length: 0\r\n\r\nGET /charges HTTP/1.1\r\n\r\n";
    let many = |letter: Letter, value: &str| (0..10).fold(letter, |letter, n| letter.text(&format!("name-{n}"), value));
    vec![
        named("odd names").text("a.b", "dot").text("-a-", "dash").text("_", "_").text("0", "0").text("a..b", "no"),
        named("one header").text("a.b", "1").text("a-b", "2").text("a_b", "3").text("A-B", "4"),
        named("line ends").text("value", smuggled).text("traceparent", smuggled),
        named("unicode").text("value", "Zoë ☃ 漢字 🎉 \u{202e}").text("percent", "100% %0d%0a"),
        named("padding").text("value", "  \t padded \t ").text("one", " "),
        named("large").text("value", "x".repeat(200_000)),
        named("large and unicode").text("value", "☃".repeat(60_000)).text("small", "seen"),
        many(named("ten"), "value"),
        many(named("ten large"), &"x".repeat(20_000)),
        named("binary").bytes("all", (0..=255).collect::<Vec<u8>>()).bytes("large", vec![0xff; 100_000]),
        named("long name").text(&"n".repeat(256), "value").text(&"n".repeat(255), "value"),
        named("not ours")
            .text("Idempotency-Key", "other")
            .text("Content-Length", "0")
            .text("Transfer-Encoding", "chunked")
            .text("Host", "elsewhere"),
    ]
}

pub(super) async fn reaches_the_app(language: Language) {
    let bench = Bench::new().await;
    let app = App::start(language, &bench, "5").await;
    let post = Post::new(&bench).await;
    let long = ["x".repeat(2048), "é".repeat(1024)];
    let keys: Vec<String> = KEYS.iter().map(|key| (*key).to_owned()).chain(long.clone()).collect();
    let dressed = dressed();
    // Dead by the rules: without a key, without an amount, and one that is no text at all.
    let dead = ["{\"payment_id\":\"\",\"cents\":1}", "{\"payment_id\":\"no cents\"}", "{\"cents\":1}"];
    let messages = keys.len() + dressed.len() + dead.len();
    let charges = keys.len() + dressed.len();
    post.send(dead.map(Letter::new)).await;
    post.send(keys.iter().map(|key| Letter::payment(key.as_str()))).await;
    post.send(dressed).await;
    let mut worker = app.settings(&bench).start();
    worker.settles(messages).await;
    let numbers = worker.stops().await.clean_report();
    let expected = BTreeMap::from([("done".to_owned(), charges as u64), ("dead".to_owned(), 3)]);
    assert_eq!(numbers, expected);
    let codes = [("", "no_key"), ("no cents", "not_a_payment"), ("?", "no_key")];
    assert_eq!(post.dead("payment_id").await, codes.map(|(key, code)| (key.into(), code.into())).into());

    let book = app.book().await;
    assert_eq!(book.len(), charges);
    let charged: BTreeSet<_> = book.iter().map(|charge| charge.payment_id.as_str()).collect();
    assert!(keys.iter().all(|key| charged.contains(key.as_str())), "{charged:?}");
    for charge in &book {
        let named = match long.contains(&charge.payment_id) {
            true => format!("jobs#sha256:{}", sha256(&charge.payment_id)),
            false => format!("jobs#{}", charge.payment_id),
        };
        assert!(charge.key.is_ascii(), "{charge:?}");
        assert_eq!(decoded(&unquoted(&charge.key)), named);
    }
    // The app's key is that of the record.
    let statuses = bench.statuses().await;
    let done = statuses.iter().filter(|(_, status)| *status == "DONE").map(|(key, _)| decoded(key));
    assert_eq!(
        done.collect::<BTreeSet<_>>(),
        book.iter().map(|charge| decoded(&unquoted(&charge.key))).collect::<BTreeSet<_>>()
    );
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a string of RFC 8941 stands for.
fn unquoted(header: &str) -> String {
    let inside = header.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).expect("quotes");
    let mut characters = inside.chars();
    let mut text = String::new();
    while let Some(character) = characters.next() {
        text.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    text
}

/// Without its percent-encoding.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut pieces = text.split('%');
    bytes.extend(pieces.next().unwrap_or_default().bytes());
    for piece in pieces {
        bytes.push(u8::from_str_radix(&piece[..2], 16).expect("two digits"));
        bytes.extend(piece[2..].bytes());
    }
    String::from_utf8(bytes).expect("a text")
}
