use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{config::KeySource, queue::QueueAddress};

type Outcome = Result<(Config, Vec<Warning>), Vec<Problem>>;

fn read(lines: &[&str]) -> Outcome {
    Config::from_vars(lines.iter().map(|line| {
        let (name, value) = line.split_once('=').expect("an assignment");
        (name.to_owned(), value.to_owned())
    }))
}

fn good(lines: &[&str]) -> Config {
    let (config, warnings) = read(lines).expect("good variables");
    assert_eq!(warnings, [], "{lines:?}");
    assert_eq!(config.check(), []);
    config
}

/// The mending lines of all problems.
fn mends(lines: &[&str]) -> Vec<String> {
    read(lines).expect_err("problems").into_iter().map(|problem| problem.mend).collect()
}

fn warnings(lines: &[&str]) -> Vec<String> {
    read(lines).expect("good variables").1.iter().map(ToString::to_string).collect()
}

#[test]
fn queues_alone_are_enough() {
    let config = good(&["LEASEHOLD_QUEUES=payments, emails.fifo", "AWS_REGION=eu-central-1", "PATH=/bin"]);
    assert_eq!(config.queues["payments"], QueueConfig::new("payments"));
    assert_eq!(config.queues["emails.fifo"], QueueConfig::new("emails.fifo"));
    assert_eq!(Config { queues: BTreeMap::new(), ..config }, Config::default());
}

#[test]
fn tools_can_do_without_queues_and_read_the_rest_as_strictly() {
    let read = |line: &str| {
        let (name, value) = line.split_once('=').expect("an assignment");
        Config::from_vars_for_tools([(name.to_owned(), value.to_owned())])
    };
    let (config, _) = read("LEASEHOLD_TABLE=work").expect("good variables");
    assert!(config.queues.is_empty() && config.table == "work");
    for line in ["LEASEHOLD_TABEL=work", "LEASEHOLD_QUEUES=", "LEASEHOLD_CLOCK_SKEW=soon"] {
        assert_eq!(read(line).expect_err(line).len(), 1);
    }
}

#[test]
fn a_queues_own_setting_wins_over_the_one_for_all() {
    let config = good(&[
        "LEASEHOLD_QUEUES=pay-ments,emails",
        "LEASEHOLD_CONCURRENCY=7",
        "LEASEHOLD_PAY_MENTS_CONCURRENCY=50",
        "LEASEHOLD_KEY=/id",
        "LEASEHOLD_EMAILS_KEY=/to,/campaign",
        "LEASEHOLD_EMAILS_URL=http://127.0.0.1:4566/000000000000/mails",
        "LEASEHOLD_PAY_MENTS_NAME=payments",
        "LEASEHOLD_PAY_MENTS_OPERATION=pay",
    ]);
    let (payments, emails) = (&config.queues["pay-ments"], &config.queues["emails"]);
    assert_eq!((payments.concurrency, emails.concurrency), (50, 7));
    assert_eq!(payments.key, Some(KeySource::Pointers(vec!["/id".into()])));
    assert_eq!(emails.key, Some(KeySource::Pointers(vec!["/to".into(), "/campaign".into()])));
    assert_eq!(payments.address, QueueAddress::Name("payments".into()));
    assert_eq!(emails.address, QueueAddress::Url("http://127.0.0.1:4566/000000000000/mails".into()));
    assert_eq!((payments.operation.as_str(), emails.operation.as_str()), ("pay", "emails"));
}

#[test]
fn settings_of_the_process_are_read() {
    let config = good(&[
        "LEASEHOLD_QUEUES=payments",
        "LEASEHOLD_TABLE= work ",
        "LEASEHOLD_NAMESPACE=prod",
        "LEASEHOLD_DRAIN_TIMEOUT=1m",
        "LEASEHOLD_LOG_FORMAT=text",
    ]);
    assert_eq!((config.table.as_str(), config.namespace.as_deref()), ("work", Some("prod")));
    assert_eq!(config.drain_timeout, Duration::from_secs(60));
    assert_eq!(config.log_format, Some(crate::config::LogFormat::Text));
}

#[test]
fn every_problem_is_told_at_once_with_its_line() {
    let mends = mends(&[
        "LEASEHOLD_QUEUES=payments,emails",
        "LEASEHOLD_TABLE=",
        "LEASEHOLD_NAMESPACE= ",
        "LEASEHOLD_KEY=id",
        "LEASEHOLD_PAYMENTS_CONCURRENCY=many",
        "LEASEHOLD_PAYMENTS_HANDLER=pay --now",
        "LEASEHOLD_EMAILS_GUARD=nnoe",
        "LEASEHOLD_EMAILS_RATE=fast",
        "LEASEHOLD_HTTP_ADDR=:80",
        "LEASEHOLD_TABEL=mine",
    ]);
    assert_eq!(
        mends,
        [
            "LEASEHOLD_TABLE=leasehold",
            "unset LEASEHOLD_NAMESPACE",
            "LEASEHOLD_HTTP_ADDR=127.0.0.1:80",
            "LEASEHOLD_KEY=/id",
            "LEASEHOLD_EMAILS_RATE=50",
            "LEASEHOLD_EMAILS_GUARD=none",
            "LEASEHOLD_PAYMENTS_HANDLER='exec:pay --now'",
            "LEASEHOLD_PAYMENTS_CONCURRENCY=20",
            "LEASEHOLD_TABLE=mine",
        ]
        .map(String::from)
    );
}

#[test]
fn r5_what_does_not_fit_together_is_told_beside_what_cannot_be_read() {
    let mends = mends(&[
        "LEASEHOLD_QUEUES=payments,emails",
        "LEASEHOLD_DRAIN_TIMEOUT=1s", // of the process, and so told whatever the queues' settings are
        "LEASEHOLD_PAYMENTS_MAX_ATTEMPTS=-1",
        "LEASEHOLD_PAYMENTS_WAIT_TIME=1h", // not told while another of the queue's settings cannot be read
        "LEASEHOLD_EMAILS_WAIT_TIME=1h",
    ]);
    let told = ["LEASEHOLD_DRAIN_TIMEOUT=25s", "LEASEHOLD_PAYMENTS_MAX_ATTEMPTS=5", "LEASEHOLD_EMAILS_WAIT_TIME=10s"];
    assert_eq!(mends, told.map(String::from));
}

#[test]
fn a_setting_for_all_that_cannot_be_read_is_told_once() {
    assert_eq!(mends(&["LEASEHOLD_QUEUES=a,b,c", "LEASEHOLD_BACKOFF=10"]), ["LEASEHOLD_BACKOFF=10s"]);
    let both = ["LEASEHOLD_QUEUES=a,b,c", "LEASEHOLD_BACKOFF=10", "LEASEHOLD_DRAIN_TIMEOUT=1s"];
    assert_eq!(mends(&both), ["LEASEHOLD_BACKOFF=10s", "LEASEHOLD_DRAIN_TIMEOUT=25s"]);
}

#[test]
fn without_queues_the_rest_is_judged_all_the_same() {
    assert_eq!(mends(&[]), ["LEASEHOLD_QUEUES=payments,emails"]);
    assert_eq!(
        mends(&["LEASEHOLD_QEUES=payments", "LEASEHOLD_PAYMENTS_KEY=/id", "LEASEHOLD_DRAIN_TIMEOUT=1s"]),
        ["LEASEHOLD_QUEUES=payments,emails", "LEASEHOLD_DRAIN_TIMEOUT=25s", "LEASEHOLD_QUEUES=payments"]
    );
}

#[test]
fn queue_names_are_those_of_sqs_and_named_once() {
    for (names, mend) in
        [("a,,b", "a,b"), (",", "payments,emails"), ("pay ments", "pay-ments"), ("a,b,a", "a,b"), ("a;b", "a-b")]
    {
        assert_eq!(mends(&[&format!("LEASEHOLD_QUEUES={names}")]), [format!("LEASEHOLD_QUEUES={mend}")]);
    }
}

#[test]
fn two_names_that_become_one_variable_are_refused() {
    let mend = "LEASEHOLD_QUEUES=a-b,a_b-2 LEASEHOLD_A_B_2_NAME=a_b";
    assert_eq!(mends(&["LEASEHOLD_QUEUES=a-b,a_b"]), [mend]);
    assert_eq!(mends(&["LEASEHOLD_QUEUES=a,A"]).len(), 1);
    assert_eq!(mends(&["LEASEHOLD_QUEUES=a.fifo,a-fifo"]).len(), 1);
    good(&["LEASEHOLD_QUEUES=a-b,a_b-2", "LEASEHOLD_A_B_2_NAME=a_b"]);
}

#[test]
fn a_queue_whose_variable_is_a_setting_itself_is_refused() {
    let mend = "LEASEHOLD_QUEUES=total-2 LEASEHOLD_TOTAL_2_NAME=total";
    assert_eq!(mends(&["LEASEHOLD_QUEUES=total"]), [mend]);
}

#[test]
fn url_and_name_exclude_each_other() {
    let lines = ["LEASEHOLD_QUEUES=a", "LEASEHOLD_A_NAME=b", "LEASEHOLD_A_URL=http://localhost/1/b"];
    assert_eq!(mends(&lines), ["unset LEASEHOLD_A_NAME"]);
}

#[test]
fn a_queue_elsewhere_is_set_by_its_url_or_its_arn() {
    let lines = |url: &str| {
        let url = format!("LEASEHOLD_A_URL={url}");
        let vars =
            ["LEASEHOLD_QUEUES=a", "LEASEHOLD_A_KEY=/id", &url].map(|line| line.split_once('=').expect("a line"));
        Config::from_vars(vars.map(|(name, value)| (name.to_owned(), value.to_owned()))).map(|(config, _)| config)
    };
    let arn = "arn:aws:sqs:eu-west-1:210987654321:jobs";
    assert_eq!(lines(arn).expect("read").queues["a"].address, QueueAddress::Arn(arn.into()));
    let url = "https://sqs.eu-west-1.amazonaws.com/210987654321/jobs";
    assert_eq!(lines(url).expect("read").queues["a"].address, QueueAddress::Url(url.into()));
    for text in ["jobs", "arn:aws:sns:eu-west-1:210987654321:jobs"] {
        assert!(lines(text).is_err(), "{text}");
    }
}

#[test]
fn names_that_resemble_a_setting_or_name_a_listed_queue_are_problems() {
    for (line, mend) in [
        ("LEASEHOLD_PAYMENTS_CONCURENCY=5", "LEASEHOLD_PAYMENTS_CONCURRENCY=5"),
        ("LEASEHOLD_PAYMETNS_KEY=/id", "LEASEHOLD_PAYMENTS_KEY=/id"),
        ("LEASEHOLD_payments_key=/id", "LEASEHOLD_PAYMENTS_KEY=/id"),
        ("LEASEHOLD_MAX_ATEMPTS=5", "LEASEHOLD_MAX_ATTEMPTS=5"),
        ("LEASEHOLD_LOGS=a b", "LEASEHOLD_LOG='a b'"),
        ("LEASEHOLD_PAYMENTS_TABLE=t", "LEASEHOLD_TABLE=t"),
        ("LEASEHOLD_URL=http://h/1/q", "LEASEHOLD_PAYMENTS_URL=http://h/1/q"),
        ("LEASEHOLD_OPERATION=pay", "LEASEHOLD_PAYMENTS_OPERATION=pay"),
    ] {
        assert_eq!(mends(&["LEASEHOLD_QUEUES=payments", line]), [mend]);
    }
    for stranger in ["LEASEHOLD_PAYMENTS_COLOUR", "LEASEHOLD_PAYMENTS"] {
        let line = format!("{stranger}=red");
        assert_eq!(mends(&["LEASEHOLD_QUEUES=payments", &line]), [format!("unset {stranger}")]);
    }
}

#[test]
fn what_may_be_a_secret_under_a_misspelt_name_is_named_and_not_shown() {
    for (name, meant) in [
        ("LEASEHOLD_PAYMENTS_HANDLER_HEADR", "LEASEHOLD_PAYMENTS_HANDLER_HEADER"),
        ("LEASEHOLD_HANDLER_HEADERS", "LEASEHOLD_HANDLER_HEADER"),
        // Nearer to a handler than to its header.
        ("LEASEHOLD_PAYMENTS_HEADER", "LEASEHOLD_PAYMENTS_HANDLER"),
        ("LEASEHOLD_PAYMENTS_HANLDER", "LEASEHOLD_PAYMENTS_HANDLER"),
    ] {
        let mend = mends(&["LEASEHOLD_QUEUES=payments", &format!("{name}=Authorization: s3cret")]);
        assert_eq!(mend, [format!("{meant}=\"${name}\"")]);
    }
}

#[test]
fn other_names_are_warnings() {
    let told =
        warnings(&["LEASEHOLD_QUEUES=payments", "LEASEHOLD_COLOUR=red", "LEASEHOLD_INVOICES_HANDLER_TIMEOUT=5m"]);
    assert_eq!(told.len(), 2);
    assert!(told[0].contains("LEASEHOLD_COLOUR"), "{told:?}");
    assert!(told[1].contains("no queue \"INVOICES\"") && told[1].contains("HANDLER_TIMEOUT"), "{told:?}");
}

#[test]
fn what_kubernetes_sets_for_services_is_ignored() {
    good(&[
        "LEASEHOLD_QUEUES=payments",
        "LEASEHOLD_PORT=tcp://10.0.0.11:9464",
        "LEASEHOLD_PORT_9464_TCP_PROTO=tcp",
        "LEASEHOLD_SERVICE_HOST=10.0.0.11",
        "LEASEHOLD_SERVICE_PORT_HTTP=9464",
        "LEASEHOLD_PAYMENTS_SERVICE_HOST=10.0.0.12",
        "LEASEHOLD_PAYMENTS_SERVICE_PORT=80",
        "LEASEHOLD_PAYMENTS_PORT=tcp://10.0.0.12:80",
        "LEASEHOLD_PAYMENTS_PORT_80_TCP_ADDR=10.0.0.12",
    ]);
    assert_eq!(warnings(&["LEASEHOLD_QUEUES=payments", "LEASEHOLD_PORTAL=x"]).len(), 1);
}

#[cfg(unix)]
#[test]
fn a_variable_of_ours_that_is_not_unicode_is_a_problem() {
    use std::os::unix::ffi::OsStringExt as _;
    let broken = |name: &str| (OsString::from(name), OsString::from_vec(vec![0xff]));
    let queues = (OsString::from("LEASEHOLD_QUEUES"), OsString::from("payments"));
    let problems =
        from_os_vars([queues.clone(), broken("LEASEHOLD_TABLE")], Queues::Required).expect_err("not Unicode");
    assert_eq!(problems, [Problem::new("LEASEHOLD_TABLE is not Unicode", "unset LEASEHOLD_TABLE")]);
    assert!(from_os_vars([queues, broken("TERM")], Queues::Required).is_ok());
}

fn name() -> impl Strategy<Value = String> {
    let queue = prop_oneof![Just(""), Just("PAYMENTS_"), Just("EMAILS_"), Just("ß_")];
    let setting = prop_oneof![
        (0..SETTINGS.len()).prop_map(|which| SETTINGS[which].name.to_owned()),
        any::<String>(),
        "(QUEUES|QUEUE|_|PORT_|SERVICE_)[A-Z_]{0,8}",
    ];
    (queue, setting).prop_map(|(queue, setting)| format!("LEASEHOLD_{queue}{setting}"))
}

proptest! {
    #[test]
    fn no_variables_make_it_panic_and_what_is_read_fits_together(
        vars in proptest::collection::vec((name(), any::<String>()), 0..6),
        queues in prop_oneof![Just("payments,emails".to_owned()), any::<String>(), "[a-cA-C,._-]{0,9}"],
    ) {
        let queues = ("LEASEHOLD_QUEUES".to_owned(), queues);
        match Config::from_vars([queues].into_iter().chain(vars)) {
            Ok((config, _)) => prop_assert_eq!(config.check(), []),
            Err(problems) => prop_assert!(problems.iter().all(|problem| !problem.mend.is_empty())),
        }
    }
}

#[test]
fn a_count_of_zero_is_told_beside_other_problems() {
    let vars = [
        ("LEASEHOLD_QUEUES", "a"),
        ("LEASEHOLD_CONCURRENCY", "0"),
        ("LEASEHOLD_A_MAX_ATTEMPTS", "0"),
        ("LEASEHOLD_A_KEY", "id"),
    ];
    let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let problems = Config::from_vars(vars).expect_err("three are wrong");
    assert_eq!(problems.len(), 3, "{problems:#?}");
}

#[test]
fn the_cancel_grace_fits_short_leases_unless_it_is_set() {
    let grace = |vars: &[&str]| {
        read(&[&["LEASEHOLD_QUEUES=payments,emails"], vars].concat()).expect("a configuration").0.cancel_grace
    };
    assert_eq!(grace(&[]), Duration::from_secs(2));
    assert_eq!(grace(&["LEASEHOLD_VISIBILITY_TIMEOUT=3s"]), Duration::from_millis(750));
    assert_eq!(grace(&["LEASEHOLD_EMAILS_VISIBILITY_TIMEOUT=1s..1m"]), Duration::from_millis(250));
    assert_eq!(grace(&["LEASEHOLD_VISIBILITY_TIMEOUT=3s", "LEASEHOLD_CANCEL_GRACE=1s"]), Duration::from_secs(1));
    let mends = mends(&["LEASEHOLD_QUEUES=payments", "LEASEHOLD_VISIBILITY_TIMEOUT=3s", "LEASEHOLD_CANCEL_GRACE=2s"]);
    assert_eq!(mends, ["LEASEHOLD_CANCEL_GRACE=750ms"]);
}

#[test]
fn what_is_sent_to_a_collector_is_said_by_the_variables_of_all_sdks() {
    let read = |vars: &[(&str, &str)]| {
        let Otlp { traces, metrics, other_protocol } =
            Otlp::from_vars(|name| vars.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned()));
        (traces, metrics, other_protocol)
    };
    const ALL: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
    assert_eq!(read(&[]), (false, false, false));
    assert_eq!(read(&[ALL]), (true, true, false));
    assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), (false, false, false));
    assert_eq!(read(&[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m")]), (false, true, false));
    assert_eq!(read(&[ALL, ("OTEL_TRACES_EXPORTER", "none")]), (false, true, false));
    assert_eq!(read(&[ALL, ("OTEL_SDK_DISABLED", "TRUE")]), (false, false, false));
    assert_eq!(read(&[ALL, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]), (true, true, true));
    assert_eq!(read(&[ALL, ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")]), (true, true, false));
}
