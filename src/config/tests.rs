use std::fmt;

use proptest::prelude::*;

use super::{settings::Apply, *};

/// Reads a value, and checks that it is written as it was read.
fn round<T>(text: &str) -> T
where
    T: std::str::FromStr<Err = ValueError> + fmt::Display + PartialEq + fmt::Debug,
{
    let value = text.parse::<T>().expect(text);
    assert_eq!(value.to_string().parse::<T>().as_ref(), Ok(&value), "{text}");
    value
}

/// What is refused, and that what is proposed in its place is taken.
fn refused<T>(text: &str) -> ValueError
where
    T: std::str::FromStr<Err = ValueError> + fmt::Debug,
{
    let error = text.parse::<T>().expect_err(text);
    error.instead.parse::<T>().expect(&error.instead);
    error
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn durations_are_a_whole_number_and_a_unit() {
    for (text, duration) in [
        ("500ms", Duration::from_millis(500)),
        ("0s", Duration::ZERO),
        ("30s", seconds(30)),
        ("15m", seconds(900)),
        ("12h", seconds(43_200)),
        ("30d", seconds(2_592_000)),
    ] {
        assert_eq!(round::<DurationText>(text), DurationText(duration));
        assert_eq!(DurationText(duration).to_string(), text);
    }
    assert_eq!(DurationText(seconds(90)).to_string(), "90s");
}

#[test]
fn durations_that_could_be_misread_are_refused_with_what_was_meant() {
    for (text, instead) in [
        ("30", "30s"),
        ("5 m", "5m"),
        ("2min", "2m"),
        ("1 Hour", "1h"),
        ("1.5h", "1h"),
        ("50msec", "50ms"),
        ("2 milliseconds", "2ms"),
        ("1month", "30s"),
        ("1w", "30s"),
        ("-5s", "30s"),
        ("", "30s"),
    ] {
        assert_eq!(refused::<DurationText>(text).instead, instead);
    }
    for text in ["99999999999999999999s", "18446744073709551615d", "18446744073709552s", "36501d", "٣s", "s", "1s1s"] {
        refused::<DurationText>(text);
    }
}

#[test]
fn ranges_have_two_ends_or_one() {
    let fixed: VisibilityTimeout = round("30s");
    assert_eq!((fixed.floor, fixed.ceiling), (seconds(30), seconds(30)));
    assert_eq!(round::<VisibilityTimeout>("30s..2m").ceiling, seconds(120));
    assert_eq!(round::<Backoff>("10s .. 15m"), Backoff { base: seconds(10), cap: seconds(900) });
    for text in ["..", "30s..", "..2m", "30..2m", "30s..2m..3m", "30s-2m"] {
        refused::<VisibilityTimeout>(text);
    }
    assert_eq!(refused::<Backoff>("30s-2m").instead, "30s..2m");
}

#[test]
fn g10_key_sources_are_read_and_written() {
    assert_eq!(round::<KeySource>("/order_id"), KeySource::Pointers(vec!["/order_id".into()]));
    assert_eq!(round::<KeySource>("/a, /b~1c/0"), KeySource::Pointers(vec!["/a".into(), "/b~1c/0".into()]));
    assert_eq!(round::<KeySource>("attr:order-id"), KeySource::Attribute("order-id".into()));
    assert_eq!(round::<KeySource>("dedup-id"), KeySource::DeduplicationId);
    assert_eq!(round::<KeySource>("group-id, dedup-id"), KeySource::GroupAndDeduplicationId);
    assert_eq!(round::<KeySource>("message-id"), KeySource::MessageId);
    for (text, instead) in [
        ("order_id", "/order_id"),
        ("$.order.id", "/order/id"),
        ("/tenant,order_id", "/tenant,/order_id"),
        ("/a,", "/a,/id"),
        ("/a~b", "/a~0b"),
        ("attr:", "attr:order-id"),
    ] {
        assert_eq!(refused::<KeySource>(text).instead, instead);
    }
}

#[test]
fn g9_fingerprint_sources_are_read_and_written() {
    assert_eq!(round::<FingerprintSource>("body"), FingerprintSource::Body);
    assert_eq!(round::<FingerprintSource>("off"), FingerprintSource::Off);
    assert_eq!(round::<FingerprintSource>("/a,/b"), FingerprintSource::Pointers(vec!["/a".into(), "/b".into()]));
    assert_eq!(refused::<FingerprintSource>("none").instead, "off");
    assert_eq!(refused::<FingerprintSource>("id").instead, "/id");
}

#[test]
fn handlers_are_split_into_words_without_a_shell() {
    let exec = |program: &str, args: &[&str]| HandlerSpec::Exec {
        program: program.into(),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
    };
    assert_eq!(round::<HandlerSpec>("exec:./pay"), exec("./pay", &[]));
    assert_eq!(round::<HandlerSpec>("exec:'my pay' -m \"it's $HOME\" ''"), exec("my pay", &["-m", "it's $HOME", ""]));
    assert_eq!(round::<HandlerSpec>(r#"["pay", "a b", "'"]"#), exec("pay", &["a b", "'"]));
    for text in ["exec:", "exec:''", "exec:'open", "[]", "[\"\"]", "[1]", "[\"a\"", "pay", "[\"a\\u0000\"]"] {
        refused::<HandlerSpec>(text);
    }
    let app = round::<HandlerSpec>("http://localhost:8080/pay");
    assert_eq!(app, HandlerSpec::Http { url: "http://localhost:8080/pay".parse().expect("a URL") });
    refused::<HandlerSpec>("https://");
}

#[test]
fn what_is_nearly_a_handler_is_refused_with_the_one_that_was_meant() {
    for (text, instead) in [
        ("127.0.0.1:8080/jobs", "http://127.0.0.1:8080/jobs"),
        ("HTTP://app/a", "http://app/a"),
        ("https//app", "https://app/"),
        ("http:/app:80", "http://app/"),
        ("./charge --fast", "exec:./charge --fast"),
        ("http", "exec:http"),
        ("ftp://app/", "exec:./handle-payment --verbose"),
        ("'open", "exec:./handle-payment --verbose"),
        ("", "exec:./handle-payment --verbose"),
    ] {
        assert_eq!(refused::<HandlerSpec>(text).instead, instead, "{text}");
    }
    let error = refused::<HandlerSpec>("http//me:s3cret@app/");
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

#[test]
fn queues_are_addressed_by_name_url_or_arn() {
    let url = "https://sqs.eu-central-1.amazonaws.com/123456789012/payments";
    assert_eq!(round::<QueueAddress>(url), QueueAddress::Url(url.into()));
    assert_eq!(round::<QueueAddress>("pay_ments-1.fifo"), QueueAddress::Name("pay_ments-1.fifo".into()));
    let arn = "arn:aws:sqs:eu-central-1:123456789012:payments.fifo";
    assert_eq!(round::<QueueAddress>(arn), QueueAddress::Arn(arn.into()));
    for text in ["", ".fifo", "a.b", "zürich", "arn:aws:sns:r:1:t", "arn:", "http://", "http://host", "http://host/a b"]
    {
        refused::<QueueAddress>(text);
    }
    assert!("x".repeat(80).parse::<QueueAddress>().is_ok());
    refused::<QueueAddress>(&"x".repeat(81));
    refused::<QueueAddress>(&format!("{}.fifo", "é".repeat(81)));
    assert_eq!(round::<DeadLetter>("payments-dlq"), DeadLetter::Queue(QueueAddress::Name("payments-dlq".into())));
    for (text, word) in [
        ("redrive-policy", DeadLetter::RedrivePolicy),
        ("keep", DeadLetter::Keep),
        ("keep-fifo", DeadLetter::KeepFifo),
        ("drop", DeadLetter::Drop),
    ] {
        assert_eq!(round::<DeadLetter>(text), word);
    }
}

#[test]
fn words_are_refused_with_the_nearest() {
    assert_eq!(round::<GuardMode>("none"), GuardMode::None);
    assert_eq!(round::<OutagePolicy>("open"), OutagePolicy::Open);
    assert_eq!(round::<KeyHash>("always"), KeyHash::Always);
    assert_eq!(round::<Envelope>("sns"), Envelope::Sns);
    assert_eq!(refused::<Envelope>("SNS").instead, "sns");
    assert_eq!(refused::<OutagePolicy>("Opne").instead, "open");
    assert_eq!(refused::<LogFormat>("JSON").instead, "json");
}

proptest! {
    #[test]
    fn durations_round_trip(millis in 0_u64..3_153_600_000_000) {
        let duration = DurationText(Duration::from_millis(millis));
        prop_assert_eq!(duration.to_string().parse(), Ok(duration));
    }

    #[test]
    fn a_duration_is_its_number_of_units_or_it_is_refused(number: u64, unit in "(ms|s|m|h|d|w|S| s|\\.5s|)") {
        let factor = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000_u64)];
        let factor = factor.into_iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
        let century = 36_500 * 86_400_000;
        let exact = factor.and_then(|factor| number.checked_mul(factor)).filter(|millis| *millis <= century);
        let read = format!("{number}{unit}").parse::<DurationText>().ok();
        prop_assert_eq!(read, exact.map(|millis| DurationText(Duration::from_millis(millis))));
    }

    #[test]
    fn ranges_round_trip(low in 0_u64..3_153_600_000_000, high in 0_u64..3_153_600_000_000) {
        let [floor, ceiling] = [low, high].map(Duration::from_millis);
        let (visibility, backoff) = (VisibilityTimeout { floor, ceiling }, Backoff { base: floor, cap: ceiling });
        prop_assert_eq!(visibility.to_string().parse(), Ok(visibility));
        prop_assert_eq!(backoff.to_string().parse(), Ok(backoff));
    }

    #[test]
    fn rates_round_trip(thousandths in 1..=1_000_000_000_u32) {
        let rate = Rate::per_second(f64::from(thousandths) / 1000.0).expect("a rate");
        prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        prop_assert_eq!(rate.interval(), Duration::from_secs(1000) / thousandths);
    }

    #[test]
    fn handlers_round_trip(program in "[^\0]{1,8}", args in proptest::collection::vec("[^\0]{0,8}", 0..4)) {
        let handler = HandlerSpec::Exec { program, args };
        prop_assert_eq!(handler.to_string().parse(), Ok(handler));
    }

    #[test]
    fn no_value_makes_a_setting_panic_and_each_proposal_is_taken(text in any::<String>(), which in 0..SETTINGS.len()) {
        let apply = |text: &str| match SETTINGS[which].apply {
            Apply::Process(apply) => apply(&mut Config::default(), text),
            Apply::Queue(apply) => apply(&mut QueueConfig::new("payments"), text),
        };
        if let Err(error) = apply(&text) {
            prop_assert_eq!(apply(&error.instead), Ok(()), "{}", error);
        }
    }
}

#[test]
fn the_defaults_in_the_table_are_the_defaults_in_the_code() {
    for setting in SETTINGS {
        let Some(default) = setting.default else { continue };
        let (mut config, mut queue) = (Config::default(), QueueConfig::new("payments"));
        match setting.apply {
            Apply::Process(apply) => apply(&mut config, default).expect(setting.name),
            Apply::Queue(apply) => apply(&mut queue, default).expect(setting.name),
        }
        assert_eq!((config, queue), (Config::default(), QueueConfig::new("payments")), "{}", setting.name);
    }
}

#[test]
fn the_table_shows_every_setting_on_a_line() {
    let table = table();
    for setting in SETTINGS {
        let names =
            ["LEASEHOLD_", "LEASEHOLD_<Q>_", "LEASEHOLD_[<Q>_]"].map(|of| format!("| `{of}{}` |", setting.name));
        let shown = table.lines().filter(|line| names.iter().any(|name| line.starts_with(name))).count();
        assert_eq!(shown, 1, "{}", setting.name);
    }
    let cells = |line: &str| line.matches('|').count();
    assert!(table.lines().filter(|line| !line.is_empty()).all(|line| cells(line) == 5), "{table}");
    assert!(table.contains("| `LEASEHOLD_[<Q>_]CONCURRENCY` | number | `20` | Handlers at once. |"), "{table}");
}

fn one_queue() -> Config {
    let mut config = Config::default();
    config.queues.insert("payments".into(), QueueConfig::new("payments"));
    config
}

fn queue(config: &mut Config) -> &mut QueueConfig {
    config.queues.get_mut("payments").expect("the queue")
}

/// Breaks one thing; the one problem must name the settings and be mended by its line.
fn check(names: &[&str], break_it: impl Fn(&mut Config)) {
    let mut config = one_queue();
    break_it(&mut config);
    let problems = config.check();
    assert_eq!(problems.len(), 1, "{names:?}: {problems:?}");
    for name in names {
        assert!(problems[0].what.contains(&format!("LEASEHOLD_{name}")), "{name}: {}", problems[0]);
    }
    let (variable, value) = problems[0].mend.split_once('=').expect("an assignment");
    let vars = [("LEASEHOLD_QUEUES", "payments"), (variable, value)];
    let mended = Config::from_vars(vars.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert!(mended.is_ok(), "{mended:?}");
}

#[test]
fn r5_defaults_with_a_queue_fit_together_and_without_one_do_not() {
    assert_eq!(one_queue().check(), []);
    assert_eq!(Config::default().check().len(), 1);
}

#[test]
fn r5_settings_of_the_process_must_fit_together() {
    check(&["DRAIN_TIMEOUT", "CANCEL_GRACE"], |c| c.drain_timeout = c.cancel_grace + DRAIN_RESERVE);
    check(&["START_TIMEOUT"], |c| c.start_timeout = Duration::ZERO);
    check(&["TABLE"], |c| c.table = "no spaces".into());
    check(&["TABLE"], |c| c.table = "t".into());
    check(&["NAMESPACE"], |c| c.namespace = Some(String::new()));
    check(&["NAMESPACE"], |c| c.namespace = Some("n".repeat(129)));
    check(&["LOG"], |c| c.log = String::new());
    check(&["TOTAL_CONCURRENCY"], |c| c.total_concurrency = Some(0));
    let mut config = one_queue();
    config.table = "arn:aws:dynamodb:eu-central-1:123456789012:table/leasehold".into();
    assert_eq!(config.check(), []);
}

#[test]
fn r5_the_lease_settings_must_fit_together() {
    let visibility = |floor: u64, ceiling: u64| {
        move |c: &mut Config| {
            let (floor, ceiling) = (Duration::from_millis(floor), Duration::from_millis(ceiling));
            queue(c).visibility_timeout = VisibilityTimeout { floor, ceiling };
        }
    };
    check(&["PAYMENTS_VISIBILITY_TIMEOUT"], visibility(0, 30_000));
    check(&["PAYMENTS_VISIBILITY_TIMEOUT"], visibility(30_000, 30_500));
    check(&["PAYMENTS_VISIBILITY_TIMEOUT"], visibility(60_000, 30_000));
    check(&["PAYMENTS_VISIBILITY_TIMEOUT"], visibility(30_000, 43_201_000));
    check(&["CANCEL_GRACE", "PAYMENTS_VISIBILITY_TIMEOUT"], visibility(4_000, 30_000));
    check(&["CANCEL_GRACE", "PAYMENTS_VISIBILITY_TIMEOUT"], |c| {
        c.drain_timeout = seconds(60);
        c.cancel_grace = seconds(15);
    });
    check(&["PAYMENTS_WAIT_TIME"], |c| queue(c).wait_time = seconds(21));
    check(&["PAYMENTS_WAIT_TIME"], |c| queue(c).wait_time = Duration::from_millis(1500));
    check(&["PAYMENTS_HANDLER_TIMEOUT", "PAYMENTS_GUARD"], |c| {
        queue(c).guard = GuardMode::None;
        queue(c).handler_timeout = seconds(43_201);
    });
    let mut beaten = one_queue();
    queue(&mut beaten).handler_timeout = seconds(86_400);
    assert_eq!(beaten.check(), [], "a handler may outlast its visibility timeout: it is beaten");
}

#[test]
fn r5_limits_of_a_queue_are_kept() {
    check(&["PAYMENTS_CONCURRENCY"], |c| queue(c).concurrency = 0);
    check(&["PAYMENTS_CONCURRENCY"], |c| queue(c).concurrency = usize::MAX);
    check(&["PAYMENTS_MAX_ATTEMPTS"], |c| queue(c).max_attempts = 0);
    check(&["PAYMENTS_MAX_TAKEOVERS"], |c| queue(c).max_takeovers = 0);
    check(&["PAYMENTS_HANDLER_TIMEOUT"], |c| queue(c).handler_timeout = Duration::ZERO);
    check(&["PAYMENTS_DONE_TTL"], |c| queue(c).done_ttl = Duration::from_millis(999));
    check(&["PAYMENTS_OPERATION"], |c| queue(c).operation = String::new());
    for (base, cap) in [(0, 60), (60, 59), (60, 43_201)] {
        check(&["PAYMENTS_BACKOFF"], |c| queue(c).backoff = Backoff { base: seconds(base), cap: seconds(cap) });
    }
}

#[test]
fn r5_values_that_only_code_can_make_are_checked_too() {
    check(&["PAYMENTS_KEY"], |c| queue(c).key = Some(KeySource::Pointers(vec!["order_id".into()])));
    check(&["PAYMENTS_KEY"], |c| queue(c).key = Some(KeySource::Pointers(vec![])));
    check(&["PAYMENTS_HANDLER_TIMEOUT"], |c| queue(c).handler_timeout = Duration::MAX);
    check(&["PAYMENTS_DONE_TTL"], |c| queue(c).done_ttl = Duration::MAX);
    check(&["START_TIMEOUT"], |c| c.start_timeout = Duration::MAX);
    check(&["CLOCK_SKEW"], |c| c.clock_skew = Duration::from_micros(1_500));
    check(&["PAYMENTS_FINGERPRINT"], |c| queue(c).fingerprint = FingerprintSource::Pointers(vec!["/a~".into()]));
    check(&["PAYMENTS_HANDLER"], |c| {
        queue(c).handler = Some(HandlerSpec::Exec { program: String::new(), args: vec![] });
    });
    check(&["PAYMENTS_HANDLER_HEADER"], |c| {
        queue(c).handler_headers = vec![HandlerHeader { name: "Host".into(), value: "elsewhere".into() }];
    });
    check(&["PAYMENTS_DEAD_LETTER"], |c| {
        queue(c).dead_letter = DeadLetter::Queue(QueueAddress::Name("drop".into()));
    });
    check(&["PAYMENTS_NAME"], |c| queue(c).address = QueueAddress::Name("a b".into()));
    check(&["PAYMENTS_URL"], |c| queue(c).address = QueueAddress::Arn("arn:aws:sns:x:1:payments".into()));
    check(&["PAYMENTS_URL"], |c| queue(c).address = QueueAddress::Url("payments".into()));
    check(&["PAYMENTS_URL"], |c| queue(c).address = QueueAddress::Url("https://nowhere".into()));
}

#[test]
fn r5_no_duration_makes_the_checks_overflow() {
    let mut config = one_queue();
    (config.cancel_grace, config.drain_timeout) = (Duration::MAX, Duration::MAX);
    queue(&mut config).visibility_timeout = VisibilityTimeout { floor: Duration::MAX, ceiling: Duration::MAX };
    queue(&mut config).backoff = Backoff { base: Duration::MAX, cap: Duration::MAX };
    assert!(config.check().len() > 4);
}

#[test]
fn t3_a_dead_letter_never_comes_back_and_never_blocks_a_group_unsaid() {
    check(&["PAYMENTS_DEAD_LETTER"], |c| {
        queue(c).dead_letter = DeadLetter::Queue(QueueAddress::Name("payments".into()));
    });
    check(&["PAYMENTS_DEAD_LETTER"], |c| {
        queue(c).address = QueueAddress::Name("payments.fifo".into());
        queue(c).dead_letter = DeadLetter::Keep;
    });
    let mut config = one_queue();
    queue(&mut config).address = QueueAddress::Name("payments.fifo".into());
    queue(&mut config).dead_letter = DeadLetter::KeepFifo;
    assert_eq!(config.check(), []);
}

#[test]
fn r5_one_queue_is_not_worked_on_under_two_names() {
    let mut config = one_queue();
    config.queues.insert("again".into(), QueueConfig::new("payments"));
    let problems = config.check();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].what.contains("\"again\" and \"payments\""), "{}", problems[0]);
    assert_eq!(problems[0].mend, "unset LEASEHOLD_AGAIN_NAME");
}
