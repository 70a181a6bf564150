use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::clock::Millis;

/// Answers one request with those bytes, and tells it.
async fn answered(reply: &[u8], within: Duration) -> (String, Result<(u16, String), AskError>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/api/0123", listener.local_addr().unwrap());
    let url = agent::url(&base, "/task-protection/v1/state").unwrap();
    let stand_in = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"}") {
            let mut more = [0; 1024];
            let read = stream.read(&mut more).await.unwrap();
            asked.extend_from_slice(&more[..read]);
        }
        stream.write_all(reply).await.unwrap();
        // What is silent keeps its connection.
        let _kept = reply.is_empty().then_some(stream);
        if reply.is_empty() {
            std::future::pending::<()>().await;
        }
        String::from_utf8(asked).unwrap()
    };
    let asked = async {
        let reply = agent::ask(&url, Method::PUT, Request::Protect.body(), within).await;
        reply.map(|reply| (reply.status, String::from_utf8_lossy(&reply.body).into_owned()))
    };
    if reply.is_empty() {
        let silent = async {
            tokio::select! { biased; reply = asked => reply, _ = stand_in => unreachable!() }
        };
        return (String::new(), silent.await);
    }
    tokio::join!(stand_in, asked)
}

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn the_request_is_what_the_agent_takes_and_its_reply_is_read_to_the_end() {
    let (asked, reply) = answered(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"protection\":{}}", SOON).await;
    let (head, body) = asked.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("PUT /api/0123/task-protection/v1/state HTTP/1.1\r\n"), "{head}");
    assert!(head.to_lowercase().contains("content-type: application/json"), "{head}");
    assert_eq!(body, r#"{"ProtectionEnabled":true,"ExpiresInMinutes":5}"#);
    assert_eq!(reply.unwrap(), (200, r#"{"protection":{}}"#.to_owned()));
    assert_eq!(Request::Release.body(), r#"{"ProtectionEnabled":false}"#);
}

#[tokio::test]
async fn what_breaks_what_is_too_large_and_what_is_no_http_is_no_answer() {
    let large = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b' '; 300 * 1024]].concat();
    let broken = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"protection\"".as_slice();
    for reply in [broken, b"220 smtp.example.com ESMTP\r\n", large.as_slice()] {
        let (_, answer) = answered(reply, SOON).await;
        assert!(matches!(answer, Err(AskError::Unanswered(_))), "{answer:?}");
    }
    let (_, silence) = answered(b"", Duration::from_millis(50)).await;
    assert!(matches!(&silence, Err(AskError::Unanswered(why)) if why == "none within 50ms"), "{silence:?}");
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_sent() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let agent = Agent::at(&format!("http://{gone}"), Clock::system()).unwrap();
    let answer = agent.ask(Request::Protect).await;
    assert!(
        matches!(&answer, Answer::Not { result: ProtectionResult::NoAnswer, may_be_done: false, .. }),
        "{answer:?}"
    );
    for wrong in ["", "169.254.170.2/api", "https://169.254.170.2", "file:///etc/passwd"] {
        assert!(Agent::at(wrong, Clock::system()).is_err_and(|why| why.contains("http://")), "{wrong}");
    }
}

fn read(request: Request, status: u16, body: &str) -> Answer {
    answer::read(request, status, body.as_bytes(), Millis::from_rfc_3339("2026-11-30T12:00:00Z").unwrap())
}

#[test]
fn d4_what_is_done_is_told_with_what_is_left_of_it() {
    let left = |answer| match answer {
        Answer::Done { left } => left,
        answer => panic!("{answer:?}"),
    };
    let protected =
        r#"{"protection":{"ExpirationDate":"2026-11-30T12:05:00.5Z","ProtectionEnabled":true,"TaskArn":"arn"}}"#;
    assert_eq!(left(read(Request::Protect, 200, protected)), Some(Duration::from_millis(300_500)));
    let undated = r#"{"protection":{"ExpirationDate":"soon","ProtectionEnabled":true}}"#;
    assert_eq!(left(read(Request::Protect, 200, undated)), None);
    let past = r#"{"protection":{"ExpirationDate":"2026-11-30T11:00:00Z","ProtectionEnabled":true}}"#;
    assert_eq!(left(read(Request::Protect, 200, past)), Some(Duration::ZERO));
    let released = r#"{"protection":{"ExpirationDate":null,"ProtectionEnabled":false,"TaskArn":"arn"}}"#;
    assert_eq!(left(read(Request::Release, 200, released)), None);
}

#[test]
fn d4_a_refusal_is_known_by_its_body_or_its_status_and_told_in_few_words() {
    use ProtectionResult::{Denied, Error, Refused, Throttled};
    let long = format!(r#"{{"error":{{"Code":"ServerException","Message":"{}"}}}}"#, "é".repeat(5000));
    let refusals = [
        (200, r#"{"failure":{"Arn":"arn","Detail":null,"Reason":"TASK_NOT_VALID"}}"#, Refused, "TASK_NOT_VALID", false),
        (
            200,
            r#"{"failure":{"Reason":"DEPLOYMENT_BLOCKED","Detail":"a deployment waits"}}"#,
            Refused,
            "DEPLOYMENT_BLOCKED: a deployment waits",
            false,
        ),
        (200, r#"{"protection":{"ProtectionEnabled":false}}"#, Refused, "ECS left it as it was", false),
        (200, "<html>", Error, "status 200: <html>", false),
        (
            400,
            r#"{"requestID":"r","error":{"Arn":"arn","Code":"ThrottlingException","Message":"Rate exceeded"}}"#,
            Throttled,
            "ThrottlingException: Rate exceeded",
            false,
        ),
        (
            429,
            "You have reached maximum request limit.",
            Throttled,
            "status 429: You have reached maximum request limit.",
            false,
        ),
        (
            400,
            r#"{"error":{"Code":"AccessDeniedException","Message":"not allowed"}}"#,
            Denied,
            "AccessDeniedException: not allowed",
            false,
        ),
        (403, "", Denied, "status 403", false),
        (
            404,
            r#"{"error":{"Code":"ResourceNotFoundException","Message":"Failed to find a task for the request"}}"#,
            Refused,
            "ResourceNotFoundException: Failed to find a task for the request",
            false,
        ),
        (
            504,
            r#"{"error":{"Code":"RequestCanceled","Message":"Timed out calling ECS Task Protection API"}}"#,
            Error,
            "RequestCanceled: Timed out calling ECS Task Protection API",
            true,
        ),
    ];
    for (status, body, result, why, may_be_done) in refusals {
        let expected = Answer::Not { result, why: why.to_owned(), may_be_done };
        assert_eq!(read(Request::Protect, status, body), expected);
    }
    let Answer::Not { why, .. } = read(Request::Protect, 500, &long) else { panic!("done") };
    assert_eq!(why.chars().count(), 300);
}

#[test]
fn a_task_is_known_by_the_end_of_its_arn() {
    let body = r#"{"Cluster":"arn:aws:ecs:us-west-2:111122223333:cluster/production",
        "TaskARN":"arn:aws:ecs:us-west-2:111122223333:task/production/158d1c8083dd49d6b527399fd6414f5c",
        "Family":"payments","Revision":"17","AvailabilityZone":"us-west-2d","LaunchType":"FARGATE","Containers":[{}]}"#;
    let task = Task::read(body.as_bytes()).unwrap();
    assert_eq!((task.cluster.as_str(), task.definition.as_str()), ("production", "payments:17"));
    assert_eq!((task.id.as_str(), task.short().as_str()), ("158d1c8083dd49d6b527399fd6414f5c", "158d1c8083dd"));
    assert_eq!(task.availability_zone.as_deref(), Some("us-west-2d"));
    let old = Task::read(r#"{"Cluster":"default","TaskARN":"arn:aws:ecs:r:1:task/é"}"#.as_bytes()).unwrap();
    assert_eq!((old.cluster.as_str(), old.short().as_str(), old.availability_zone), ("default", "é", None));
    for wrong in ["", "[]", "{}", r#"{"TaskARN":"a/"}"#] {
        assert!(Task::read(wrong.as_bytes()).is_err(), "{wrong}");
    }
}
