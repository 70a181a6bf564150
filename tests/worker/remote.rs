//! What apps ask about their runs, over real sockets: their steps, their time, whether they are still theirs. The app is the
//! test itself.

use std::{collections::BTreeMap, time::Duration};

use leasehold::{
    HttpHandler, Shutdown, StopReport,
    guard::{Pk, Record, Status, StepState},
    testing::{Failure, Fault, TestBed},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    time::timeout,
};

mod again;

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(60);

/// An app, and a worker on queues in memory that sends it messages.
struct Office {
    bed: TestBed,
    app: TcpListener,
}

impl Office {
    async fn new(keys: &[&str]) -> Self {
        let bed = TestBed::new(&["jobs"]);
        for key in keys {
            bed.send("jobs", json!({"id": key}).to_string());
        }
        Self { bed, app: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    /// Runs a worker until the queue is empty, and lets the app do this meanwhile.
    async fn work(&self, vars: &[(&str, &str)], app: impl AsyncFnOnce()) -> StopReport {
        self.work_until(self.bed.until_idle(), vars, app).await
    }

    async fn work_until(&self, shutdown: Shutdown, vars: &[(&str, &str)], app: impl AsyncFnOnce()) -> StopReport {
        let defaults = [
            ("LEASEHOLD_QUEUES", "jobs"),
            ("LEASEHOLD_BACKOFF", "1s..1s"),
            ("LEASEHOLD_WAIT_TIME", "1s"),
            ("LEASEHOLD_CLOCK_SKEW", "100ms"),
            ("LEASEHOLD_KEY", "/id"),
        ];
        let vars: Vec<_> = defaults.iter().chain(vars).copied().collect();
        let handler = HttpHandler::new(&format!("http://{}/", self.app.local_addr().unwrap())).unwrap();
        let worker = self.bed.worker(&vars).queue("jobs", handler).run(shutdown);
        let both = async { tokio::join!(worker, app()).0 };
        timeout(SOON, both).await.expect("ends soon").unwrap()
    }

    /// The next request that the app is sent.
    async fn request(&self) -> Sent {
        let next = async {
            loop {
                let (stream, _) = self.app.accept().await.unwrap();
                // A probe connects and says nothing.
                if let Some(sent) = Sent::read(BufReader::new(stream)).await {
                    return sent;
                }
            }
        };
        timeout(SOON, next).await.expect("is sent soon")
    }

    fn record(&self, key: &str) -> Record {
        self.bed.guard.record(&Pk(format!("jobs#{key}"))).expect("a record")
    }

    fn step(&self, key: &str, step: &str) -> Option<(StepState, Option<String>)> {
        let record = self.record(key);
        record.steps.get(step).map(|step| (step.state, step.result.clone()))
    }
}

/// A request that waits for its reply.
struct Sent {
    stream: BufReader<TcpStream>,
    head: BTreeMap<String, String>,
    body: String,
}

impl Sent {
    async fn read(mut stream: BufReader<TcpStream>) -> Option<Self> {
        let (mut head, mut line) = (BTreeMap::new(), String::new());
        while stream.read_line(&mut line).await.unwrap() > 2 {
            if let Some((name, value)) = line.trim_end().split_once(": ") {
                head.insert(name.to_owned(), value.to_owned());
            }
            line.clear();
        }
        let length: u64 = head.get("content-length")?.parse().unwrap();
        let mut body = String::new();
        (&mut stream).take(length).read_to_string(&mut body).await.unwrap();
        Some(Self { stream, head, body })
    }

    fn job(&self) -> Job {
        let url = self.head["x-leasehold-job-url"].strip_prefix("http://").expect("plain HTTP");
        let (address, path) = url.split_once('/').expect("a path");
        Job { address: address.to_owned(), path: format!("/{path}"), token: self.head["x-leasehold-job-token"].clone() }
    }

    async fn reply(mut self, status: &str) {
        let reply = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        self.stream.write_all(reply.as_bytes()).await.unwrap();
        self.stream.shutdown().await.unwrap();
    }
}

/// Where a run can be asked.
#[derive(Debug, Clone)]
struct Job {
    address: String,
    path: String,
    token: String,
}

impl Job {
    async fn ask(&self, method: &str, path: &str, body: impl AsRef<[u8]>) -> (u16, Value) {
        let authorization = format!("Authorization: Bearer {}", self.token);
        self.ask_with(method, path, &authorization, body).await
    }

    async fn ask_with(&self, method: &str, path: &str, header: &str, body: impl AsRef<[u8]>) -> (u16, Value) {
        let body = body.as_ref();
        let path = format!("{}{path}", self.path);
        let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{header}\r\nContent-Length: {}\r\n\r\n", body.len());
        let mut stream = TcpStream::connect(&self.address).await.expect("somebody listens");
        stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        let mut reply = String::new();
        timeout(SOON, stream.read_to_string(&mut reply)).await.expect("is answered").unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {reply:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, if body.is_empty() { Value::Null } else { serde_json::from_str(body).expect("JSON") })
    }

    /// What is refused, by status and code.
    async fn refused(&self, method: &str, path: &str, body: impl AsRef<[u8]>) -> (u16, String) {
        let (status, told) = self.ask(method, path, body).await;
        assert!(["what", "mend"].iter().all(|word| told[word].as_str().is_some_and(|text| !text.is_empty())), "{told}");
        (status, told["error"].as_str().unwrap_or_else(|| panic!("no code: {told}")).to_owned())
    }
}

fn refusal(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

/// A request that can be sent again.
const A_CALL: &str = r#"{"call": "1"}"#;

const DONE: (u16, Value) = (204, Value::Null);

#[tokio::test]
async fn s1_a_step_that_an_app_records_is_told_to_the_next_attempt_and_not_run_again() {
    let office = Office::new(&["a"]).await;
    let mut address = String::new();
    let report = office
        .work(&[], async || {
            let sent = office.request().await;
            assert_eq!(sent.head["x-leasehold-steps"], "{}");
            let job = sent.job();
            address = job.address.clone();
            let begun = json!({"recorded": false, "key": "jobs#a/charge"});
            assert_eq!(job.ask("POST", "/steps/charge", "").await, (200, begun));
            assert_eq!(job.ask("PUT", "/steps/charge", r#"{"id": "ch_1"}"#).await, DONE);
            assert_eq!(office.step("a", "charge"), Some((StepState::Done, Some(r#"{"id": "ch_1"}"#.to_owned()))));
            sent.reply("500 Oh").await;
            let sent = office.request().await;
            assert_eq!(sent.head["x-leasehold-steps"], r#"{"charge":{"id": "ch_1"}}"#);
            assert_eq!(sent.head["x-leasehold-attempt"], "2");
            let recorded = json!({"recorded": true, "result": {"id": "ch_1"}});
            assert_eq!(sent.job().ask("POST", "/steps/charge", "").await, (200, recorded));
            sent.reply("200 OK").await;
        })
        .await;
    assert_eq!((report.done, report.failed), (1, 1));
    assert!(TcpStream::connect(address).await.is_err(), "the worker is gone, and nobody listens");
}

#[tokio::test]
async fn s1_a_step_that_is_refused_has_a_new_key_on_the_next_attempt_and_one_that_failed_has_not() {
    let office = Office::new(&["a"]).await;
    office
        .work(&[], async || {
            let key = async |job: &Job, step: &str| job.ask("POST", step, "").await.1["key"].clone();
            let sent = office.request().await;
            let job = sent.job();
            assert_eq!(key(&job, "/steps/charge").await, "jobs#a/charge");
            assert_eq!(key(&job, "/steps/label%2F1").await, "jobs#a/label/1/1");
            assert_eq!(job.ask("DELETE", "/steps/charge", r#"{"refused": true}"#).await, DONE);
            assert_eq!(job.ask("DELETE", "/steps/label%2F1", "").await, DONE);
            sent.reply("500 Oh").await;
            let sent = office.request().await;
            let job = sent.job();
            assert_eq!(key(&job, "/steps/charge").await, "jobs#a/charge/2");
            assert_eq!(key(&job, "/steps/label%2F1").await, "jobs#a/label/1/1");
            sent.reply("200 OK").await;
        })
        .await;
}

#[tokio::test]
async fn s2_a_once_step_that_another_run_began_is_in_doubt_and_fails_the_work_for_good() {
    let office = Office::new(&["a"]).await;
    let once = r#"{"once": true}"#;
    let report = office
        .work(&[], async || {
            let sent = office.request().await;
            assert_eq!(sent.job().ask("POST", "/steps/mail", once).await.0, 200);
            assert_eq!(office.step("a", "mail"), Some((StepState::Started, None)));
            sent.reply("500 Oh").await;
            let sent = office.request().await;
            let job = sent.job();
            assert_eq!(job.ask("GET", "", "").await.1["steps"]["mail"], json!({"state": "in_doubt"}));
            for _ in 0..2 {
                assert_eq!(job.refused("POST", "/steps/mail", once).await, refusal(409, "step_in_doubt"));
            }
            // The app knows nothing of codes.
            sent.reply("500 Oh").await;
        })
        .await;
    assert_eq!(report.dead, 1);
    let dead = office.bed.dead("jobs");
    assert_eq!(dead[0].1.as_ref().expect("a note").code, "step_in_doubt");
}

#[tokio::test]
async fn s2_a_once_step_that_fails_is_in_doubt_unless_it_certainly_was_not_begun() {
    let office = Office::new(&["a", "b"]).await;
    let once = r#"{"once": true}"#;
    office
        .work(&[("LEASEHOLD_CONCURRENCY", "1")], async || {
            for _ in ["a", "b"] {
                let sent = office.request().await;
                let job = sent.job();
                job.ask("POST", "/steps/mail", once).await;
                if sent.body.contains("\"a\"") {
                    assert_eq!(job.ask("DELETE", "/steps/mail", r#"{"not_begun": true}"#).await, DONE);
                    sent.reply("200 OK").await;
                } else {
                    let (status, told) = job.ask("DELETE", "/steps/mail", "").await;
                    assert_eq!(
                        (status, &told["error"], &told["permanent"]),
                        (409, &"step_in_doubt".into(), &true.into())
                    );
                    sent.reply("500 Oh").await;
                }
            }
        })
        .await;
    assert_eq!(office.step("a", "mail").map(|(state, _)| state), Some(StepState::Undone));
    let dead = office.bed.dead("jobs");
    assert_eq!((dead.len(), dead[0].1.as_ref().expect("a note").code.as_str()), (1, "step_in_doubt"));
}

#[tokio::test]
async fn each_run_answers_to_its_own_token_and_to_none_when_it_is_over() {
    let office = Office::new(&["a", "b"]).await;
    office
        .work(&[], async || {
            let (one, two) = (office.request().await, office.request().await);
            let (first, second) = (one.job(), two.job());
            assert!(first.path != second.path && first.token != second.token && first.token.len() == 32);
            assert!(!first.path.contains(&first.token));
            let crossed = Job { token: second.token.clone(), ..first.clone() };
            for (header, job) in [
                (format!("Authorization: Bearer {}", crossed.token), &first),
                (format!("Authorization: Basic {}", first.token), &first),
                (format!("Authorization: Bearer {}", &first.token[..31]), &first),
                ("Authorization: Bearer ".to_owned(), &first),
                ("X: y".to_owned(), &second),
            ] {
                let (status, told) = job.ask_with("POST", "/steps/charge", &header, "").await;
                assert_eq!((status, &told["error"]), (401, &"unauthorized".into()), "{header}");
            }
            for (job, sent) in [(&first, &one), (&second, &two)] {
                let (status, told) = job.ask("GET", "", "").await;
                let key = sent.head["idempotency-key"].trim_matches('"');
                assert_eq!((status, told["key"].as_str()), (200, Some(key)));
                assert_eq!(told["fence"].to_string(), sent.head["x-leasehold-fence"]);
                assert_eq!(told["attempt"], 1);
                assert!(told["lease_ms"].as_u64().is_some_and(|left| (1..=30_000).contains(&left)), "{told}");
                assert!(told["deadline_ms"].as_u64().is_some_and(|left| (1..=300_000).contains(&left)), "{told}");
            }
            one.reply("200 OK").await;
            while first.ask("GET", "", "").await.0 != 410 {}
            assert_eq!(first.refused("PUT", "/steps/charge", "1").await, refusal(410, "gone"));
            assert_eq!(second.ask("GET", "", "").await.0, 200);
            two.reply("200 OK").await;
        })
        .await;
}

#[tokio::test]
async fn l1_a_run_that_lost_its_lease_is_told_so_and_begins_nothing() {
    let office = Office::new(&["a"]).await;
    let shutdown = Shutdown::new();
    let vars = [("LEASEHOLD_VISIBILITY_TIMEOUT", "3s"), ("LEASEHOLD_CANCEL_GRACE", "700ms")];
    office
        .work_until(shutdown.clone(), &vars, async || {
            let sent = office.request().await;
            let job = sent.job();
            job.ask("POST", "/steps/charge", A_CALL).await;
            office.bed.guard_faults.always("renew", Fault::Fail(Failure::Unavailable));
            while job.ask("GET", "", "").await.0 == 200 {}
            assert_eq!(job.refused("GET", "", "").await, refusal(409, "lease_lost"));
            for path in ["/steps/mail", "/steps/charge"] {
                assert_eq!(job.refused("POST", path, A_CALL).await, refusal(409, "lease_lost"));
            }
            assert_eq!(job.refused("POST", "/deadline", r#"{"at_least": 1}"#).await, refusal(409, "lease_lost"));
            // What has taken effect is recorded all the same.
            assert_eq!(job.ask("PUT", "/steps/charge", "1").await, DONE);
            shutdown.now();
            sent.reply("500 Oh").await;
        })
        .await;
    assert_eq!(office.step("a", "charge"), Some((StepState::Done, Some("1".to_owned()))));
    assert_eq!(office.record("a").failures, 0);
}

#[tokio::test]
async fn l8_time_that_an_app_asks_for_is_given() {
    let office = Office::new(&["a"]).await;
    let report = office
        .work(&[("LEASEHOLD_HANDLER_TIMEOUT", "2s")], async || {
            let sent = office.request().await;
            let job = sent.job();
            // Asked again, that is no more; and less is nothing to be given.
            for at_least in [60, 60, 1] {
                let (status, told) = job.ask("POST", "/deadline", json!({"at_least": at_least}).to_string()).await;
                let left = told["deadline_ms"].as_u64().expect("milliseconds");
                assert!(status == 200 && (50_000..=60_000).contains(&left), "{told}");
            }
            // Until what was given at first is used up.
            while job.ask("GET", "", "").await.1["deadline_ms"].as_u64().expect("milliseconds") > 57_500 {}
            for seconds in ["0", "-1", "1e300", "43201", "\"60\"", "null"] {
                let wanted = format!("{{\"at_least\": {seconds}}}");
                assert_eq!(job.refused("POST", "/deadline", wanted).await, refusal(400, "malformed"), "{seconds}");
            }
            sent.reply("200 OK").await;
        })
        .await;
    assert_eq!((report.done, report.failed), (1, 0));
}

#[tokio::test]
async fn s1_a_result_that_is_too_large_is_recorded_as_done_and_fails_the_work_for_good() {
    let office = Office::new(&["a", "b"]).await;
    let report = office
        .work(&[("LEASEHOLD_CONCURRENCY", "1")], async || {
            for size in [399 * 1024, 4 * 1024 * 1024] {
                let sent = office.request().await;
                let job = sent.job();
                job.ask("POST", "/steps/small", "").await;
                assert_eq!(job.ask("PUT", "/steps/small", format!("\"{}\"", "s".repeat(3000))).await, DONE);
                job.ask("POST", "/steps/large", A_CALL).await;
                let large = format!("\"{}\"", "x".repeat(size));
                for _ in 0..2 {
                    assert_eq!(job.refused("PUT", "/steps/large", &large).await, refusal(413, "step_result_not_kept"));
                }
                assert_eq!(job.refused("POST", "/steps/large", A_CALL).await, refusal(409, "step_result_not_kept"));
                sent.reply("500 Oh").await;
            }
        })
        .await;
    assert_eq!(report.dead, 2);
    for key in ["a", "b"] {
        assert_eq!(office.step(key, "large"), Some((StepState::Done, None)));
        assert_eq!(office.record(key).last_error.expect("a reason").code, "step_result_not_kept");
    }
}

#[tokio::test]
async fn s1_a_step_whose_result_is_no_json_is_done_without_one_and_fails_the_work_for_good() {
    let bodies = [&b"{"[..], b"nothing", b"1 2", b"\"\xff\"", b"[1,]", b"NaN"].map(|body| ("", body));
    let ends: Vec<_> = bodies.into_iter().chain([("?result=none", &b"1"[..]), ("?result=none", b"")]).collect();
    let keys: Vec<_> = (0..ends.len()).map(|number| number.to_string()).collect();
    let office = Office::new(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let report = office
        .work(&[("LEASEHOLD_CONCURRENCY", "1")], async || {
            for (query, body) in &ends {
                let sent = office.request().await;
                let job = sent.job();
                job.ask("POST", "/steps/charge", A_CALL).await;
                let path = format!("/steps/charge{query}");
                for _ in 0..2 {
                    assert_eq!(job.refused("PUT", &path, body).await, refusal(413, "step_result_not_kept"));
                }
                assert_eq!(job.refused("POST", "/steps/charge", A_CALL).await, refusal(409, "step_result_not_kept"));
                sent.reply("500 Oh").await;
            }
        })
        .await;
    assert_eq!(report.dead, keys.len() as u64);
    for key in &keys {
        assert_eq!(office.step(key, "charge"), Some((StepState::Done, None)));
        assert_eq!(office.record(key).last_error.expect("a reason").code, "step_result_not_kept");
    }
}

#[tokio::test]
async fn g6_a_step_that_cannot_be_recorded_for_now_uses_no_attempt() {
    let office = Office::new(&["a"]).await;
    let report = office
        .work(&[], async || {
            let sent = office.request().await;
            let job = sent.job();
            job.ask("POST", "/steps/charge", "").await;
            for _ in 0..4 {
                office.bed.guard_faults.next("step", Fault::Fail(Failure::Unavailable));
            }
            assert_eq!(job.refused("PUT", "/steps/charge", "1").await, refusal(409, "interrupted"));
            sent.reply("500 Oh").await;
            let sent = office.request().await;
            assert_eq!(sent.head["x-leasehold-attempt"], "1");
            let job = sent.job();
            job.ask("POST", "/steps/mail", "").await;
            for _ in 0..4 {
                office.bed.guard_faults.next("step", Fault::Fail(Failure::Unavailable));
            }
            // More than half of what a record has room for.
            let large = format!("\"{}\"", "x".repeat(250 * 1024));
            assert_eq!(job.refused("PUT", "/steps/mail", &large).await, refusal(409, "interrupted"));
            // Asked again, it could: what fails after that is the app's own failure.
            assert_eq!(job.ask("PUT", "/steps/mail", &large).await, DONE);
            sent.reply("500 Oh").await;
            let sent = office.request().await;
            assert_eq!(sent.head["x-leasehold-attempt"], "2");
            assert!(!sent.head.contains_key("x-leasehold-steps"), "too large for a header");
            let told = sent.job().ask("GET", "", "").await.1;
            assert_eq!(
                (&told["steps"]["charge"]["result"], &told["steps"]["mail"]["state"]),
                (&1.into(), &"done".into())
            );
            assert_eq!(told["steps"]["mail"]["result"].as_str().map(str::len), Some(250 * 1024));
            sent.reply("200 OK").await;
        })
        .await;
    assert_eq!((report.done, report.failed), (1, 1));
}

#[tokio::test]
async fn g6_an_interruption_is_not_forgotten_before_something_is_written() {
    let office = Office::new(&["a"]).await;
    let report = office
        .work(&[], async || {
            for (round, how) in ["", r#"{"not_begun": true}"#, r#"{"refused": true}"#].into_iter().enumerate() {
                let (charge, label) = (format!("/steps/charge-{round}"), format!("/steps/label-{round}"));
                let sent = office.request().await;
                assert_eq!(sent.head["x-leasehold-attempt"], "1", "{how}");
                let job = sent.job();
                job.ask("POST", &charge, "").await;
                (0..4).for_each(|_| office.bed.guard_faults.next("step", Fault::Fail(Failure::Unavailable)));
                assert_eq!(job.refused("PUT", &charge, "1").await, refusal(409, "interrupted"));
                // All of these go well, and only the last one by a write.
                assert_eq!(job.ask("GET", "", "").await.0, 200);
                assert_eq!(job.ask("POST", "/deadline", r#"{"at_least": 1}"#).await.0, 200);
                assert_eq!(job.ask("POST", &label, "").await.0, 200);
                assert_eq!(job.ask("DELETE", &label, how).await, DONE);
                sent.reply("500 Oh").await;
            }
            let sent = office.request().await;
            assert_eq!(sent.head["x-leasehold-attempt"], "2");
            sent.reply("200 OK").await;
        })
        .await;
    assert_eq!((report.done, report.failed), (1, 1));
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_what_would_and_harms_no_run() {
    let office = Office::new(&["a"]).await;
    let report = office
        .work(&[], async || {
            let sent = office.request().await;
            let job = sent.job();
            for (method, path, body, expected) in [
                ("POST", "/steps/a", &b"{\"once\": 1}"[..], refusal(400, "malformed")),
                ("POST", "/steps/a", b"{\"onec\": true}", refusal(400, "malformed")),
                ("POST", "/steps/a", b"\xff", refusal(400, "malformed")),
                ("POST", "/steps/a", b"{\"call\": \"\"}", refusal(400, "malformed")),
                ("POST", "/steps/a", b"{\"call\": 1}", refusal(400, "malformed")),
                (
                    "POST",
                    "/steps/a",
                    format!("{{\"call\": \"{}\"}}", "c".repeat(65)).as_bytes(),
                    refusal(400, "malformed"),
                ),
                ("POST", "/steps/%FF", b"", refusal(400, "malformed")),
                ("DELETE", "/steps/a", b"{\"refused\": \"yes\"}", refusal(400, "malformed")),
                ("PATCH", "/steps/a", b"", refusal(405, "no_such_path")),
                ("GET", "/steps/a", b"", refusal(405, "no_such_path")),
                ("POST", "", b"", refusal(405, "no_such_path")),
                ("GET", "/steps", b"", refusal(404, "no_such_path")),
                ("POST", "/steps/a/b", b"", refusal(404, "no_such_path")),
                ("POST", "/deadline", b"", refusal(400, "malformed")),
            ] {
                assert_eq!(job.refused(method, path, body).await, expected, "{method} {path}");
            }
            job.ask("POST", "/steps/a", "").await;
            assert_eq!(job.refused("PUT", "/steps/a?result=1", "1").await, refusal(400, "malformed"));
            assert_eq!(job.ask("PUT", "/steps/a", "").await, DONE);
            let mut raw = TcpStream::connect(&job.address).await.unwrap();
            raw.write_all(b"\x16\x03 this is no HTTP\r\n\r\n").await.unwrap();
            let mut reply = String::new();
            timeout(SOON, raw.read_to_string(&mut reply)).await.expect("is closed").unwrap();
            assert!(reply.starts_with("HTTP/1.1 400"), "{reply}");
            // One that dawdles holds up nobody.
            let mut slow = TcpStream::connect(&job.address).await.unwrap();
            slow.write_all(b"PUT /jobs/").await.unwrap();
            assert_eq!(job.ask("GET", "", "").await.1["steps"], json!({"a": {"state": "done", "result": null}}));
            sent.reply("200 OK").await;
        })
        .await;
    assert_eq!((report.done, report.failed), (1, 0));
}

#[tokio::test]
async fn without_a_claim_there_is_nothing_to_ask() {
    for vars in [&[("LEASEHOLD_GUARD", "none")][..], &[("LEASEHOLD_STEPS_ADDR", "off")]] {
        let office = Office::new(&["a"]).await;
        office
            .work(vars, async || {
                let sent = office.request().await;
                let told = sent.head.keys().filter(|name| name.contains("-job-") || name.ends_with("-steps"));
                assert_eq!(told.count(), 0, "{vars:?}: {:?}", sent.head);
                sent.reply("200 OK").await;
            })
            .await;
    }
}

#[tokio::test]
async fn g8_a_run_without_a_guard_while_its_table_is_away_cannot_be_asked() {
    let office = Office::new(&["a"]).await;
    office.bed.guard_faults.always("claim", Fault::Fail(Failure::Denied));
    office
        .work(&[("LEASEHOLD_GUARD_OUTAGE", "open")], async || {
            let sent = office.request().await;
            assert!(!sent.head.contains_key("x-leasehold-job-url"), "{:?}", sent.head);
            sent.reply("200 OK").await;
        })
        .await;
}

#[tokio::test]
async fn apps_are_told_the_name_that_was_set() {
    let office = Office::new(&["a"]).await;
    office
        .work(&[("LEASEHOLD_STEPS_ADDR", "localhost:0")], async || {
            let sent = office.request().await;
            let job = sent.job();
            assert!(job.address.starts_with("localhost:") && !job.address.ends_with(":0"), "{}", job.address);
            assert_eq!(job.ask("GET", "", "").await.0, 200);
            sent.reply("200 OK").await;
        })
        .await;
}

#[tokio::test]
async fn an_address_that_cannot_be_had_is_told_at_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let office = Office::new(&[]).await;
    let handler = HttpHandler::new("http://127.0.0.1:1/").unwrap();
    let vars = [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_STEPS_ADDR", address.as_str())];
    let worker = office.bed.worker(&vars).queue("jobs", handler);
    let error = worker.run(Shutdown::new()).await.expect_err("is taken").to_string();
    assert!(error.contains(&address) && error.contains("LEASEHOLD_STEPS_ADDR=127.0.0.1:0"), "{error}");
}
