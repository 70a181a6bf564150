//! `leasehold dev`: from nothing to a message that is done, with the lines that it prints.

use rustix::process::Signal;

use crate::command::{Leasehold, Running};

/// The lines to copy, with this build in place of whatever stands in `PATH`.
async fn printed(dev: &mut Running, text: &str) -> String {
    dev.says(text).await.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_sent_by_the_printed_line_is_done_once() {
    let leasehold = Leasehold::default();
    let mut dev = leasehold.start(&["dev", "payments", "--key", "/id", "--handler", "exec:cat", "--port", "0"]);
    let send = printed(&mut dev, " send --endpoint-url ").await;
    dev.says("receiving").await;
    let told = leasehold.shell(&send).await.check(0);
    assert_eq!(told.out, "sent 1 message to payments");
    assert!(dev.says("| {").await.ends_with(r#"| {"id":"1"}"#), "what the program writes is seen");
    dev.says("payments#1  done in ").await;
    leasehold.shell(&send).await.check(0);
    dev.says("payments#1  a duplicate: not run").await;
    dev.signal(Signal::INT);
    let ended = dev.ends().await.check(0);
    assert!(ended.out.contains("stopped done=1 suppressed=1 "), "{}", ended.out);
    assert_eq!(ended.err, "");
    assert!(!ended.out.contains('\u{1b}'), "colours are for terminals");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_line_sends_an_envelope_where_the_queue_expects_one_and_its_handler_sees_none() {
    let leasehold = Leasehold::new(&[("LEASEHOLD_PAYMENTS_ENVELOPE", "sns")]);
    let handler = r#"exec:sh -c 'cat; echo " of $LEASEHOLD_SNS_TOPIC_ARN"'"#;
    let mut dev = leasehold.start(&["dev", "payments", "--key", "/id", "--handler", handler, "--port", "0"]);
    let send = printed(&mut dev, " send --endpoint-url ").await;
    leasehold.shell(&send).await.check(0);
    let said = dev.says("| {").await;
    assert!(said.ends_with(r#"| {"id":"1"} of arn:aws:sns:us-east-1:000000000000:example"#), "{said}");
    dev.says("payments#1  done in ").await;
    let plain = send.split(" '{").next().expect("a line");
    leasehold.shell(&format!(r#"{plain} '{{"id":"2"}}'"#)).await.check(0);
    let dead = dev.says("failed for good: dead-lettered").await;
    assert!(dead.contains("malformed: ") && dead.contains("LEASEHOLD_PAYMENTS_ENVELOPE=raw"), "{dead}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_told_with_their_reason_in_a_line_each() {
    let handler = r#"exec:sh -c 'read -r body; echo "no luck" >&2; case "$body" in *bad*) exit 65;; esac; exit $(( LEASEHOLD_ATTEMPT < 2 ))'"#;
    let leasehold = Leasehold::default();
    let mut dev = leasehold.start(&["dev", "payments", "--key", "/id", "--handler", handler, "--port", "0"]);
    let send = printed(&mut dev, " send --endpoint-url ").await;
    let send = send.strip_suffix(r#"'{"id":"1"}'"#).unwrap_or_else(|| panic!("{send}"));
    leasehold.shell(&format!(r#"{send} '{{"id":"slow"}}'"#)).await.check(0);
    let failed = dev.says("payments#slow  attempt 1 failed; again in ").await;
    assert!(failed.ends_with("s: exit_1: exit status: 1: no luck"), "{failed}");
    dev.says("payments#slow  done in ").await;
    leasehold.shell(&format!(r#"{send} '{{"id":"bad"}}' nonsense"#)).await.check(0);
    let dead = [dev.says("failed for good: dead-lettered").await, dev.says("failed for good: dead-lettered").await];
    assert!(dead.iter().any(|line| line.contains("payments#bad") && line.contains("exit_65: ")), "{dead:?}");
    assert!(dead.iter().any(|line| line.contains("no_key: ") && line.contains("not JSON")), "{dead:?}");
    dev.signal(Signal::TERM);
    let ended = dev.ends().await.check(0);
    assert!(ended.out.contains("stopped done=1 suppressed=0 dead=2 "), "{}", ended.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environments_queues_are_made_under_their_last_names() {
    let leasehold = Leasehold::new(&[
        ("LEASEHOLD_QUEUES", "orders,mails"),
        ("LEASEHOLD_ORDERS_URL", "https://sqs.eu-central-1.amazonaws.com/123456789012/orders-prod.fifo"),
        ("LEASEHOLD_ORDERS_KEY", "/tenant,/order/id"),
        ("LEASEHOLD_MAILS_KEY", "attr:mail"),
        ("LEASEHOLD_MAILS_DEAD_LETTER", "arn:aws:sqs:eu-central-1:123456789012:graveyard"),
        ("LEASEHOLD_TABLE", "arn:aws:dynamodb:eu-central-1:123456789012:table/guard"),
        ("LEASEHOLD_HANDLER", "exec:cat"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
    ]);
    let mut dev = leasehold.start(&["dev", "--port", "0"]);
    let mails = dev.says(" send --endpoint-url ").await;
    let orders = dev.says(" send --endpoint-url ").await;
    assert!(mails.contains(" mails ") && mails.ends_with("--attribute mail=1"), "{mails}");
    assert!(orders.contains(" orders-prod.fifo ") && orders.ends_with("--group a"), "{orders}");
    for line in [&mails, &orders] {
        leasehold.shell(line.trim()).await.check(0);
    }
    for _ in [mails, orders] {
        dev.says("  done in ").await;
    }
    dev.signal(Signal::INT);
    let ended = dev.ends().await.check(0);
    for told in [
        "dead letters in graveyard",
        "dead letters in orders-prod-dlq.fifo",
        "orders#1#1 (group a)  done",
        "mails#1  done",
    ] {
        assert!(ended.out.contains(told), "{told} in {}", ended.out);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_handler_there_are_queues_for_others_to_poll() {
    let leasehold = Leasehold::default();
    let mut dev = leasehold.start(&["dev", "payments", "--port", "0"]);
    let send = printed(&mut dev, " send --endpoint-url ").await;
    dev.says("No queue has a handler").await;
    leasehold.shell(&send).await.check(0);
    let endpoint = send.split(' ').find(|word| word.starts_with("http")).expect("an endpoint").to_owned();
    let port = endpoint.rsplit(':').next().expect("a port");
    let taken = leasehold.run(&["dev", "payments", "--port", port]).await.check(1);
    assert!(taken.err.contains(&format!("port {port}")) && taken.err.contains("--port 0"), "{}", taken.err);
    dev.signal(Signal::TERM);
    dev.ends().await.check(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_told_with_the_lines_to_copy() {
    let handler = ["--handler", "exec:cat", "--port", "0"];
    let keyless = Leasehold::default().run(&[&["dev", "payments"], &handler[..]].concat()).await.check(78);
    for line in ["leasehold dev payments --key /id", "export LEASEHOLD_PAYMENTS_KEY=/id"] {
        assert!(keyless.err.contains(line), "{line} in {}", keyless.err);
    }
    let nameless = Leasehold::default().run(&["dev", "--port", "0"]).await.check(78);
    assert!(nameless.err.contains("leasehold dev payments --key /id --handler 'exec:cat'"), "{}", nameless.err);
    let two = Leasehold::new(&[("LEASEHOLD_QUEUES", "a,b")]).run(&["dev", "--key", "/id"]).await.check(78);
    assert!(two.err.contains("leasehold dev a "), "{}", two.err);
    let wrong = Leasehold::default().run(&["dev", "payments", "--key", "id", "--port", "0"]).await.check(78);
    assert!(wrong.err.contains("    --key /id\n"), "{}", wrong.err);
    Leasehold::default().run(&["dev", "payments", "--port", "70000"]).await.check(64);
}
