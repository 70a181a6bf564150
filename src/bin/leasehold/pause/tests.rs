use super::*;

fn config(lines: &[&str]) -> Config {
    let vars = lines.iter().map(|line| line.split_once('=').unwrap()).map(|(n, v)| (n.to_owned(), v.to_owned()));
    Config::from_vars_for_tools(vars).unwrap().0
}

fn meant(queues: &[&str]) -> Meant {
    Meant { queues: queues.iter().map(|&queue| queue.to_owned()).collect(), all: queues.is_empty(), json: false }
}

fn names(lines: &[&str], queues_meant: &[&str]) -> Vec<(String, String)> {
    let found = queues(&config(lines), &meant(queues_meant), "pause").unwrap();
    found.into_iter().map(|Queue { queue, name }| (queue, name)).collect()
}

fn mend(lines: &[&str], queues_meant: &[&str]) -> String {
    queues(&config(lines), &meant(queues_meant), "resume").unwrap_err().mend
}

fn pair(queue: &str, name: &str) -> (String, String) {
    (queue.to_owned(), name.to_owned())
}

const TWO: [&str; 3] = [
    "LEASEHOLD_QUEUES=payments,emails",
    "LEASEHOLD_PAYMENTS_NAME=payments-prod.fifo",
    "LEASEHOLD_EMAILS_URL=https://sqs.eu-central-1.amazonaws.com/123456789012/mails",
];

#[test]
fn queues_go_by_the_names_that_they_have_in_sqs() {
    assert_eq!(names(&TWO, &[]), [pair("emails", "mails"), pair("payments", "payments-prod.fifo")]);
    assert_eq!(names(&TWO, &["payments", "payments"]), [pair("payments", "payments-prod.fifo")]);
    assert_eq!(names(&["LEASEHOLD_TABLE=work"], &["a.fifo", "b"]), [pair("a.fifo", "a.fifo"), pair("b", "b")]);
    let arn = "arn:aws:sqs:eu-central-1:123456789012:payments";
    assert_eq!(names(&[], &[arn]), [pair(arn, "payments")]);
}

#[test]
fn a_queue_that_cannot_be_meant_is_refused_with_one_that_can() {
    assert_eq!(mend(&TWO, &["payments", "mails"]), "leasehold resume emails");
    assert_eq!(mend(&[], &["pay ments"]), "leasehold resume pay-ments");
    assert!(mend(&[], &[]).starts_with("LEASEHOLD_QUEUES="));
}

#[test]
fn without_any_guard_there_is_no_table_to_say_it_in() {
    let lines = ["LEASEHOLD_QUEUES=a,b", "LEASEHOLD_GUARD=none"];
    assert!(mend(&lines, &["a"]).contains("LEASEHOLD_GUARD=claim"));
    let one_has_a_guard = ["LEASEHOLD_QUEUES=a,b", "LEASEHOLD_A_GUARD=none"];
    assert_eq!(names(&one_has_a_guard, &["a"]), [pair("a", "a")]);
}

#[test]
fn a_pause_keeps_the_last_resume_and_a_resume_ends_the_pause() {
    let paused = Paused { at: Millis(2), by: "ann@laptop".into(), why: None };
    let before = Control { paused: None, resumed_at: Some(Millis(1)) };
    let now = Word::Pause(paused.clone()).after(&before);
    assert_eq!(now, Control { paused: Some(paused), ..before });
    assert_eq!(Word::Resume(Millis(3)).after(&now), Control { paused: None, resumed_at: Some(Millis(3)) });
}

#[test]
fn what_stands_in_the_table_cannot_steer_a_terminal() {
    let paused = Paused { at: Millis(0), by: "x\u{1b}[2J".into(), why: Some("a\nb".into()) };
    let told = standing(&Control { paused: Some(paused), resumed_at: None });
    assert_eq!(told, "paused since 1970-01-01T00:00:00Z by x\\u{1b}[2J: a\\nb");
}

#[test]
fn a_reason_is_one_line() {
    assert_eq!(reason(" the bank is down "), Ok("the bank is down".to_owned()));
    for text in ["", "  ", "a\nb", "\u{1b}[0m", &"y".repeat(Control::LONGEST_TEXT + 1)] {
        assert!(reason(text).is_err(), "{text:?}");
    }
}

#[test]
fn a_resume_is_later_than_the_last_one_also_from_a_machine_whose_clock_is_behind() {
    let before = Control { paused: None, resumed_at: Some(Millis(9_000)) };
    assert_eq!(Word::Resume(Millis(5_000)).after(&before).resumed_at, Some(Millis(9_001)));
    assert_eq!(Word::Resume(Millis(12_000)).after(&before).resumed_at, Some(Millis(12_000)));
}
