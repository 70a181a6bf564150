//! A task of ECS protects itself from scaling in while it has long work in hand, and no longer (rule D4), whatever its agent
//! answers: <https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection-endpoint.html>.

use std::time::Duration;

use agent::{Agent, Mood, TASK};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    bench::Bench,
    cases::check_all,
    worker::{Settings, Worker},
};

mod agent;

/// So long that nothing here sees its end.
const LONG: Duration = Duration::from_secs(300);

/// Runs until the test lets it go.
const SCRIPT: &str = "echo >>begun; $wait; $end";

/// A worker whose drains let handlers run on for half a second, under leases that need beats.
fn settings(bench: &Bench, agent: &Agent) -> Settings {
    agent
        .has(bench.settings(SCRIPT).short_leases().set("LEASEHOLD_VISIBILITY_TIMEOUT", "6s"))
        .set("LEASEHOLD_DRAIN_TIMEOUT", "4s")
        .set("LEASEHOLD_HTTP_ADDR", "127.0.0.1:0")
}

async fn has_asked(bench: &Bench, agent: &Agent, times: usize) {
    bench.poll("the agent is asked", async || agent.asked().len() >= times).await;
}

/// What it was asked for, in order.
fn asked(agent: &Agent) -> Vec<Value> {
    agent.asked().into_iter().map(|(_, body)| body).collect()
}

fn protect() -> Value {
    json!({"ProtectionEnabled": true, "ExpiresInMinutes": 5})
}

fn release() -> Value {
    json!({"ProtectionEnabled": false})
}

async fn requests(worker: &Worker, result: &str) -> f64 {
    worker.metric("leasehold_scale_in_protection_requests_total", &format!("result=\"{result}\"")).await
}

async fn is_protected(worker: &Worker) -> bool {
    worker.metric("leasehold_scale_in_protection_held", "").await > 0.5
}

/// No beat was late, and no lease lost.
async fn beats_were_in_time(worker: &Worker) {
    let late = worker.metric("leasehold_beats_late_total", "").await;
    let lost = worker.metric("leasehold_leases_lost_total", "").await;
    assert!(late + lost < 0.5, "{late} late, {lost} lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_a_task_is_protected_while_a_handler_outlasts_a_drain_and_says_which_task_it_is() {
    let (bench, agent) = (Bench::new().await, Agent::new(Mood::Grants(Duration::from_secs(12))).await);
    let long = Duration::from_millis(6500);
    let settings = settings(&bench, &agent).set("LEASEHOLD_DRAIN_TIMEOUT", "10s");
    let mut worker = settings.start();
    worker.tells_its_address().await;
    worker.says("this is a task of ECS").await;
    for told in ["production", TASK, "payments:17", "us-west-2d"] {
        assert!(worker.last_line().contains(told), "{}", worker.last_line());
    }
    let begun = Instant::now();
    bench.send(["a"]).await;
    has_asked(&bench, &agent, 1).await;
    let (first, _) = agent.asked()[0];
    assert!(first.duration_since(begun) >= long, "{:?}", first.duration_since(begun));
    worker.says("\"protected from scaling in").await;
    bench.poll("it is told", async || is_protected(&worker).await).await;
    let status: Value = serde_json::from_str(&worker.told_at("/status").await).expect("JSON");
    let name = status["worker"].as_str().expect("a name");
    assert!(name.starts_with(&format!("{}/{}-", &TASK[..12], worker.id())), "{name}");
    // Half of what is granted is over.
    has_asked(&bench, &agent, 2).await;
    assert_eq!(asked(&agent), [protect(), protect()]);
    assert!(agent.asked()[1].0.duration_since(first) >= Duration::from_secs(5));
    beats_were_in_time(&worker).await;
    bench.lets_go();
    worker.says("no longer protected from scaling in").await;
    assert_eq!(asked(&agent), [protect(), protect(), release()]);
    bench.until_done(1).await;
    let ended = worker.stops().await;
    ended.clean_report();
    assert_eq!(asked(&agent).len(), 3, "there is nothing to be taken back");
    assert_eq!(ended.log.iter().filter(|line| line.contains("scaling in")).count(), 2, "{}", ended.log.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_whatever_the_agent_answers_work_goes_on_and_one_line_says_it() {
    let throttled = Mood::Error(400, "ThrottlingException");
    let denied = Mood::Error(400, "AccessDeniedException");
    let cases = [
        (Mood::Refuses, "refused"),
        (throttled, "throttled"),
        (Mood::TooMany, "throttled"),
        (denied, "denied"),
        (Mood::Error(500, "ServerException"), "error"),
        (Mood::Silent, "no_answer"),
    ];
    check_all(cases, async |(mood, result)| {
        let (bench, agent) = (Bench::new().await, Agent::new(mood).await);
        let mut worker = settings(&bench, &agent).start();
        worker.tells_its_address().await;
        bench.send(["a", "b"]).await;
        bench.poll("it is counted twice", async || requests(&worker, result).await > 1.5).await;
        beats_were_in_time(&worker).await;
        assert!(!is_protected(&worker).await);
        bench.lets_go();
        bench.until_done(2).await;
        let told = Instant::now();
        let ended = worker.stops().await;
        // As long as a poll may be parked, and what the agent is waited for beside it.
        assert!(told.elapsed() < Duration::from_secs(4), "{:?}", told.elapsed());
        let log = ended.log.join("\n");
        ended.clean_report();
        let warned = ended.log.iter().filter(|line| line.contains("WARN") && line.contains("scaling in")).count();
        assert_eq!(warned, 1, "{log}");
        assert_eq!(bench.lines("begun").len(), 2, "{log}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_a_protection_that_cannot_be_extended_ends_and_is_told() {
    let (bench, agent) = (Bench::new().await, Agent::new(Mood::Grants(Duration::from_secs(12))).await);
    let mut worker = settings(&bench, &agent).start();
    worker.tells_its_address().await;
    bench.send(["a"]).await;
    worker.says("\"protected from scaling in").await;
    agent.is(Mood::TooMany);
    worker.says("though a handler runs long").await;
    bench.poll("it is counted", async || requests(&worker, "expired").await > 0.5).await;
    assert!(!is_protected(&worker).await);
    // It is asked for on, and had again.
    agent.is(Mood::Grants(LONG));
    worker.says("\"protected from scaling in").await;
    bench.lets_go();
    bench.until_done(1).await;
    worker.stops().await.clean_report();
    assert_eq!(asked(&agent).last(), Some(&release()));
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_a_drain_gives_the_protection_back_at_once_and_waits_for_no_agent() {
    check_all([Mood::Grants(LONG), Mood::Silent, Mood::TooMany], async |at_the_end| {
        let (bench, agent) = (Bench::new().await, Agent::new(Mood::Grants(LONG)).await);
        let mut worker = settings(&bench, &agent).set("LEASEHOLD_DRAIN_TIMEOUT", "6s").start();
        bench.send(["a"]).await;
        worker.says("\"protected from scaling in").await;
        agent.is(at_the_end);
        worker.signal(Signal::TERM);
        worker.says("draining").await;
        has_asked(&bench, &agent, 2).await;
        assert_eq!(asked(&agent), [protect(), release()]);
        assert!(bench.lines("ended").is_empty(), "it still runs");
        let told = Instant::now();
        bench.lets_go();
        let ended = worker.ends().await;
        assert!(told.elapsed() < Duration::from_secs(4), "{:?}", told.elapsed());
        let report = ended.clean_report();
        assert_eq!(report.values().sum::<u64>(), 1, "{}", ended.log.join("\n"));
        assert_eq!(asked(&agent).len(), 2, "{:?}", asked(&agent));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_off_and_outside_of_ecs_nobody_is_asked_and_what_is_asked_for_in_vain_is_told() {
    let (bench, agent) = (Bench::new().await, Agent::new(Mood::Grants(LONG)).await);
    let off = settings(&bench, &agent).unset("LEASEHOLD_SCALE_IN_PROTECTION");
    let outside =
        settings(&bench, &agent).unset("ECS_AGENT_URI").set("ECS_CONTAINER_METADATA_URI_V4", "http://127.0.0.1:1");
    let mut ended = Vec::new();
    for (settings, id) in [(off, "a"), (outside, "b")] {
        let mut worker = settings.start();
        worker.tells_its_address().await;
        bench.send([id]).await;
        bench.poll("it runs", async || bench.lines("begun").len() > ended.len()).await;
        worker.runs_for(Duration::from_secs(2)).await;
        bench.lets_go();
        bench.until_done(ended.len() + 1).await;
        ended.push(worker.stops().await);
        ended[ended.len() - 1].clean_report();
    }
    assert_eq!(asked(&agent), Vec::<Value>::new());
    let says = |index: usize, text: &str| ended[index].log.iter().any(|line: &String| line.contains(text));
    assert!(!says(0, "nobody to ask") && says(0, "this is a task of ECS") && !says(0, "cannot be learnt"));
    assert!(says(1, "nobody to ask for protection") && says(1, "which one it is cannot be learnt"));
}
