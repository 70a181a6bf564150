//! What is told, and with which exit code, when a worker cannot start.

use crate::{bench::Bench, worker::Settings};

#[tokio::test(flavor = "multi_thread")]
async fn r5_wrong_settings_end_with_78_and_all_of_them_told() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0").unset("LEASEHOLD_JOBS_KEY");
    let ended = settings
        .set("LEASEHOLD_CONCURENCY", "5")
        .set("LEASEHOLD_DRAIN_TIMEOUT", "soon")
        .set("LEASEHOLD_JOBS_HANDLER", "handle")
        .start()
        .ends()
        .await;
    assert_eq!(ended.code, Some(78));
    for mend in ["LEASEHOLD_CONCURRENCY=5", "LEASEHOLD_DRAIN_TIMEOUT=", "LEASEHOLD_JOBS_HANDLER=exec:handle"] {
        assert!(ended.stderr.contains(mend), "{mend} in {}", ended.stderr);
    }
    assert!(ended.log.is_empty() && !ended.stderr.contains("Problem {"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn r5_what_is_missing_in_aws_and_in_settings_ends_with_78_too() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0");
    let missing = settings.clone().set("LEASEHOLD_QUEUES", "jobs,other").set("LEASEHOLD_TABLE", "no-table");
    let missing =
        missing.set("LEASEHOLD_OTHER_KEY", "/id").set("LEASEHOLD_OTHER_HANDLER", "exec:true").start().ends().await;
    assert_eq!(missing.code, Some(78), "{}", missing.stderr);
    assert!(missing.stderr.contains("no-table") && missing.stderr.contains("other"), "{}", missing.stderr);

    let bare = settings.clone().unset("LEASEHOLD_JOBS_HANDLER").unset("LEASEHOLD_JOBS_KEY").start().ends().await;
    assert_eq!(bare.code, Some(78));
    assert!(bare.stderr.contains("LEASEHOLD_JOBS_HANDLER=exec:"), "{}", bare.stderr);

    let filter = settings.clone().set("LEASEHOLD_LOG", "info,=loud=").start().ends().await;
    assert_eq!(filter.code, Some(78));
    assert!(filter.stderr.contains("LEASEHOLD_LOG=info"), "{}", filter.stderr);

    let only = settings.arg("--only").arg("job").start().ends().await;
    assert_eq!(only.code, Some(78));
    assert!(only.stderr.contains("--only jobs"), "{}", only.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn r5_an_account_out_of_reach_ends_with_69_after_the_start_timeout() {
    let bench = Bench::new().await;
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let settings = bench.settings("exit 0").set("AWS_ENDPOINT_URL", format!("http://{nowhere}"));
    let ended = settings.set("LEASEHOLD_START_TIMEOUT", "2s").start().ends().await;
    assert_eq!(ended.code, Some(69), "{}", ended.stderr);
    assert!(ended.stderr.contains("jobs") && ended.stderr.contains("refused"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn r5_what_no_call_could_be_made_with_is_wrong_and_not_away() {
    let bench = Bench::new().await;
    let settings = bench.settings("exit 0");
    let scheme = settings.clone().set("AWS_ENDPOINT_URL", "127.0.0.1:4566").start().ends().await;
    assert_eq!(scheme.code, Some(78), "{}", scheme.stderr);
    assert!(scheme.stderr.contains("    AWS_ENDPOINT_URL=http://127.0.0.1:4566\n"), "{}", scheme.stderr);
    assert!(scheme.log.iter().all(|line| !line.contains("Request {")), "{:?}", scheme.log);
    let empty = settings.clone().set("AWS_ENDPOINT_URL", "").start().ends().await;
    assert_eq!(empty.code, Some(78), "{}", empty.stderr);
    let region = settings.set("AWS_REGION", "").start().ends().await;
    assert_eq!(region.code, Some(78), "{}", region.stderr);
    assert!(region.stderr.contains("    AWS_REGION="), "{}", region.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_argument_ends_with_64() {
    let folder = std::env::temp_dir();
    let ended = Settings::new("http://127.0.0.1:9", &folder).arg("--once").start().ends().await;
    assert_eq!(ended.code, Some(64));
    assert!(ended.stderr.contains("--once"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn help_names_every_setting_and_exit_code() {
    let help = Settings::new("http://127.0.0.1:9", &std::env::temp_dir()).arg("--help").start().ends().await;
    let text = help.log.join("\n");
    assert_eq!(help.code, Some(0));
    for setting in leasehold::config::SETTINGS {
        assert!(text.contains(&format!("{}  <", setting.name)), "{}", setting.name);
    }
    for code in ["64", "69", "78"] {
        assert!(text.contains(&format!("  {code}  ")), "{code}");
    }
}
