//! Steps of apps and programs: the examples are killed between two of them, and go on after the first.

use std::{collections::BTreeMap, fs, process::Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    process::Command,
    time::timeout,
};

use crate::{
    apps::{
        post::{Letter, Post},
        program::{App, Language},
        with_both,
    },
    bench::{Bench, SOON},
    worker::Settings,
};

const ORDER: &str = r#"{"order_id":"o-1","cents":1200}"#;

/// Where the examples write what they did.
const CHARGES: &str = "charges.txt";
const MAILS: &str = "mails.txt";

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/steps");

/// A mail server that nobody can hand a mail to: who opens the pipe waits for a reader.
fn mail_stands_still(bench: &Bench) {
    let made = std::process::Command::new("mkfifo").arg(bench.path(MAILS)).status().expect("mkfifo runs");
    assert!(made.success());
}

fn mail_is_back(bench: &Bench) {
    fs::remove_file(bench.path(MAILS)).expect("is there");
}

async fn order(bench: &Bench) {
    Post::new(bench).await.send([Letter::new(ORDER)]).await;
}

fn program(bench: &Bench, mails_once: bool) -> Settings {
    bench
        .settings("")
        .short_leases()
        .set("LEASEHOLD_JOBS_KEY", "/order_id")
        .set("LEASEHOLD_JOBS_HANDLER", format!("exec:python3 {FOLDER}/job.py"))
        .set("MAIL_ONCE", if mails_once { "1" } else { "0" })
        .set("PYTHONDONTWRITEBYTECODE", "1")
}

/// Kills the program that says so in its worker's log.
fn kill_who_said(line: &str) {
    let (_, id) = line.split_once("as process ").expect("says who it is");
    let id = id.split(|c: char| !c.is_ascii_digit()).next().and_then(|id| Pid::from_raw(id.parse().ok()?));
    kill_process(id.expect("an id"), Signal::KILL).expect("is killed");
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_an_app_that_is_killed_between_two_steps_goes_on_after_the_first() {
    with_both(async |language| {
        let bench = Bench::new().await;
        let mut app = App::with_steps(language, &bench, false).await;
        mail_stands_still(&bench);
        order(&bench).await;
        let mut worker = app.settings(&bench).set("LEASEHOLD_JOBS_KEY", "/order_id").start();
        app.says("mailing o-1", 1).await;
        app.signal(Signal::KILL);
        assert_eq!(app.ends().await, None);
        mail_is_back(&bench);
        app.starts_again().await;
        bench.until_done(1).await;
        assert_eq!(bench.lines(CHARGES), ["jobs#o-1/charge 1200"]);
        assert_eq!(bench.lines(MAILS), ["jobs#o-1/mail ch_o-1"]);
        worker.says("\"deleted\"").await;
        let ended = worker.stops().await;
        let numbers = ended.clean_report();
        assert_eq!((numbers.get("done"), numbers.get("failed"), numbers.get("left")), (Some(&1), None, Some(&1)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_a_program_that_is_killed_between_two_steps_goes_on_after_the_first() {
    if !Language::Python.is_here().await {
        return;
    }
    let bench = Bench::new().await;
    mail_stands_still(&bench);
    order(&bench).await;
    let mut worker = program(&bench, false).start();
    worker.says("mailing o-1, as process").await;
    mail_is_back(&bench);
    kill_who_said(worker.last_line());
    bench.until_done(1).await;
    assert_eq!(bench.lines(CHARGES), ["jobs#o-1/charge 1200"]);
    assert_eq!(bench.lines(MAILS), ["jobs#o-1/mail ch_o-1"]);
    worker.says("\"deleted\"").await;
    let ended = worker.stops().await;
    assert!(ended.log.iter().any(|line| line.contains(r#""code":"signal_9""#)), "{:?}", ended.log);
    assert_eq!(ended.clean_report().get("done"), Some(&1));
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_a_mail_that_an_app_may_have_sent_when_it_was_killed_is_a_persons() {
    with_both(async |language| {
        let bench = Bench::new().await;
        let mut app = App::with_steps(language, &bench, true).await;
        mail_stands_still(&bench);
        order(&bench).await;
        let worker = app.settings(&bench).set("LEASEHOLD_JOBS_KEY", "/order_id").start();
        app.says("mailing o-1", 1).await;
        app.signal(Signal::KILL);
        assert_eq!(app.ends().await, None);
        mail_is_back(&bench);
        app.starts_again().await;
        is_in_doubt(&bench).await;
        worker.stops().await.clean_report();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_a_mail_that_a_program_may_have_sent_when_it_was_killed_is_a_persons() {
    if !Language::Python.is_here().await {
        return;
    }
    let bench = Bench::new().await;
    mail_stands_still(&bench);
    order(&bench).await;
    let mut worker = program(&bench, true).start();
    worker.says("mailing o-1, as process").await;
    mail_is_back(&bench);
    kill_who_said(worker.last_line());
    is_in_doubt(&bench).await;
    worker.stops().await.clean_report();
}

/// It was charged once, and is dead-lettered because nobody knows of the mail.
async fn is_in_doubt(bench: &Bench) {
    let dead = bench.dead_letters_until("it is dead-lettered", async || bench.messages().await == 0).await;
    assert_eq!((dead.len(), &dead[0]["code"]), (1, &"step_in_doubt".into()), "{dead:?}");
    assert!(dead[0]["message"].as_str().is_some_and(|text| text.contains("\"mail\"")), "{dead:?}");
    assert_eq!(bench.lines(CHARGES), ["jobs#o-1/charge 1200"]);
    assert_eq!(bench.lines(MAILS), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn l8_a_program_has_the_time_that_it_asks_for() {
    if !Language::Python.is_here().await {
        return;
    }
    let bench = Bench::new().await;
    bench.send(["a"]).await;
    let script = "$begin; python3 -c 'import leasehold; leasehold.Job.of_environment().extend(60)' && sleep 4; $end";
    let mut worker = bench
        .settings(script)
        .set("LEASEHOLD_HANDLER_TIMEOUT", "2s")
        .set("PYTHONPATH", FOLDER)
        .set("PYTHONDONTWRITEBYTECODE", "1")
        .start();
    worker.says("\"deleted\"").await;
    let ended = worker.stops().await;
    assert_eq!((bench.succeeded(), bench.calls().len()), (vec!["jobs#a".to_owned()], 1));
    assert_eq!(ended.clean_report().get("failed"), None);
}

/// A client in another language: runs the script, with `job` and `step(name, work)` at hand, as a program of the worker.
fn client(bench: &Bench, language: Language, script: &str) -> Settings {
    let file = match language {
        Language::Python => "client.py",
        Language::Node => "client.mjs",
    };
    let begin = match language {
        Language::Python => "import leasehold, math\njob = leasehold.Job.of_environment()\n".to_owned(),
        Language::Node => {
            format!("import {{ Job }} from '{FOLDER}/leasehold.mjs';\nconst job = await Job.ofEnvironment();\n")
        }
    };
    fs::write(bench.path(file), begin + script).expect("is written");
    bench
        .settings("")
        .short_leases()
        .set("LEASEHOLD_JOBS_HANDLER", format!("exec:{} {}", language.interpreter(), bench.path(file).display()))
        .set("PYTHONPATH", FOLDER)
        .set("PYTHONDONTWRITEBYTECODE", "1")
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_a_loop_that_uses_one_name_again_is_not_done_but_a_persons() {
    with_both(async |language| {
        let bench = Bench::new().await;
        bench.send(["a"]).await;
        let script = match language {
            Language::Python => {
                "for line in '12': job.step('line', lambda key: open('lines.txt', 'a').write(line + '\\n'))"
            }
            Language::Node => {
                "import { appendFileSync } from 'node:fs';
                 for (const line of '12') await job.step('line', () => appendFileSync('lines.txt', `${line}\\n`));"
            }
        };
        let worker = client(&bench, language, script).start();
        let dead = bench.dead_letters_until("it is dead-lettered", async || bench.messages().await == 0).await;
        assert_eq!((dead.len(), &dead[0]["code"]), (1, &"step_repeated".into()), "{dead:?}");
        assert_eq!(bench.lines("lines.txt"), ["1"]);
        worker.stops().await.clean_report();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_a_step_whose_result_is_no_json_is_not_run_again() {
    with_both(async |language| {
        let bench = Bench::new().await;
        bench.send(["a"]).await;
        let script = match language {
            Language::Python => {
                "results = {'set': {1}, 'nan': math.nan, 'loop': []}\n\
                 results['loop'].append(results['loop'])\n\
                 for name, result in results.items():\n\
                 \x20   try: job.step(name, lambda key: open('done.txt', 'a').write(name + '\\n') and result)\n\
                 \x20   except leasehold.Stopped as stopped: open('said.txt', 'a').write(f'{stopped.code} {stopped.__cause__ is not None}\\n')\n\
                 exit(1)"
            }
            Language::Node => {
                "import { appendFileSync } from 'node:fs';
                 const loop = [];
                 loop.push(loop);
                 for (const [name, result] of Object.entries({ set: () => 1, nan: 1n, loop })) {
                   try {
                     await job.step(name, () => (appendFileSync('done.txt', `${name}\\n`), result));
                   } catch (stopped) {
                     appendFileSync('said.txt', `${stopped.code} ${stopped.cause instanceof TypeError ? 'True' : stopped}\\n`);
                   }
                 }
                 process.exit(1);"
            }
        };
        let worker = client(&bench, language, script).start();
        let dead = bench.dead_letters_until("it is dead-lettered", async || bench.messages().await == 0).await;
        assert_eq!((dead.len(), &dead[0]["code"]), (1, &"step_result_not_kept".into()), "{dead:?}");
        assert_eq!(bench.lines("said.txt"), ["step_result_not_kept True"; 3]);
        assert_eq!(bench.lines("done.txt"), ["set", "nan", "loop"]);
        worker.stops().await.clean_report();
    })
    .await;
}

/// Asks each question twice where the first answer is lost.
#[tokio::test(flavor = "multi_thread")]
async fn clients_ask_again_where_a_reply_is_lost() {
    with_both(async |language| {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/jobs/1", listener.local_addr().expect("an address"));
        let script = match language {
            Language::Python => {
                "import leasehold; print(leasehold.Job.of_environment().step('a b/c', lambda key: key))"
            }
            Language::Node => {
                "import('./leasehold.mjs').then(async ({ Job }) => \
                 console.log(await (await Job.ofEnvironment()).step('a b/c', (key) => key)))"
            }
        };
        let flag = if language == Language::Python { "-c" } else { "-e" };
        let client = Command::new(language.interpreter())
            .args([flag, script])
            .current_dir(FOLDER)
            .envs([("LEASEHOLD_JOB_URL", url.as_str()), ("LEASEHOLD_JOB_TOKEN", "t"), ("LEASEHOLD_STEPS", "{}")])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .output();
        let answers = async {
            let mut asked = Vec::new();
            for answer in [None, Some("{\"recorded\": false, \"key\": \"k\"}"), None, Some("{}")] {
                let (stream, _) = listener.accept().await.expect("a connection");
                let mut stream = BufReader::new(stream);
                let mut head = Vec::new();
                while head.last().is_none_or(|line: &String| line.len() > 2) {
                    let mut line = String::new();
                    stream.read_line(&mut line).await.expect("a line");
                    head.push(line);
                }
                let length = head
                    .iter()
                    .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.trim().parse().ok());
                let mut body = String::new();
                (&mut stream).take(length.expect("a length")).read_to_string(&mut body).await.expect("a body");
                asked.push(format!("{} {body}", head[0].trim_end()));
                if let Some(answer) = answer {
                    let reply = format!(
                        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{answer}",
                        answer.len()
                    );
                    stream.write_all(reply.as_bytes()).await.expect("is written");
                }
            }
            asked
        };
        let (output, asked) = timeout(SOON, async { tokio::join!(client, answers) }).await.expect("ends soon");
        let done = "PUT /jobs/1/steps/a%20b%2Fc HTTP/1.1 \"k\"";
        assert_eq!(asked[1..], [asked[0].as_str(), done, done]);
        let wanted = asked[0].strip_prefix("POST /jobs/1/steps/a%20b%2Fc HTTP/1.1 ").expect("it begins");
        let wanted: BTreeMap<String, String> = serde_json::from_str(wanted).expect("texts");
        assert!(wanted.len() == 1 && (32..=64).contains(&wanted["call"].len()), "{wanted:?}");
        assert_eq!(String::from_utf8_lossy(&output.expect("runs").stdout), "k\n");
    })
    .await;
}
