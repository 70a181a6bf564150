//! `leasehold health`, against a stub of the worker's endpoint.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    time::{Instant, timeout},
};

use crate::{
    bench::SOON,
    command::{Leasehold, Told},
};

/// Answers one request, and tells what was asked for.
async fn asked(listener: &TcpListener, status: &str, body: &str) -> String {
    let (stream, _) = timeout(SOON, listener.accept()).await.expect("asks soon").expect("a connection");
    let mut stream = BufReader::new(stream);
    let (mut first, mut line) = (String::new(), String::new());
    stream.read_line(&mut first).await.expect("a request");
    while stream.read_line(&mut line).await.expect("a header") > 2 {
        line.clear();
    }
    let reply = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(reply.as_bytes()).await.expect("is read");
    first
}

async fn stub() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

async fn health(args: &[&str], variables: &[(&str, &str)]) -> Told {
    Leasehold::new(variables).run(&[&["health"], args].concat()).await
}

/// What it makes of that answer, and what it asked for.
async fn answered(
    listener: &TcpListener,
    (status, body): (&str, &str),
    args: &[&str],
    variables: &[(&str, &str)],
) -> (String, Told) {
    tokio::join!(asked(listener, status, body), health(args, variables))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_worker_says_is_told_and_its_status_is_the_exit_code() {
    let (listener, address) = stub().await;
    let here = address.to_string();
    // A proxy of the environment is for elsewhere.
    let proxied = [("http_proxy", "http://127.0.0.1:1")];
    let well = ("200 OK", r#"{"phase":"running"}"#);
    let (asked_for, ready) = answered(&listener, well, &["--addr", &here], &proxied).await;
    assert_eq!(ready.check(0).out, well.1);
    assert!(asked_for.starts_with("GET /ready "), "{asked_for}");

    // One that listens on all addresses is asked on this machine, whatever is wrong with other settings.
    let everywhere = format!("0.0.0.0:{}", address.port());
    let variables = [("LEASEHOLD_HTTP_ADDR", everywhere.as_str()), ("LEASEHOLD_CONCURRENCY", "wrong")];
    let ill = ("503 Service Unavailable", r#"{"phase":"running","queues":{}}"#);
    let (asked_for, live) = answered(&listener, ill, &["--live"], &variables).await;
    assert_eq!(live.check(1).out, ill.1);
    assert!(asked_for.starts_with("GET /live "), "{asked_for}");

    let named = format!("localhost:{}", address.port());
    let elsewhere = ("302 Found\r\nLocation: /elsewhere", "");
    let (_, moved) = answered(&listener, elsewhere, &["--addr", &named], &[]).await;
    assert!(moved.check(69).err.contains("no worker (302 Found)"));
    let other = ("404 Not Found", "<h1>Not\x1b[2J Found</h1>");
    let (_, other) = answered(&listener, other, &["--addr", &named], &[]).await;
    let told = other.check(69);
    assert!(told.out.is_empty() && told.err.contains("no worker (404 Not Found): <h1>Not [2J Found"), "{}", told.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_ends_with_69_and_so_does_one_that_never_answers() {
    let (listener, address) = stub().await;
    let begun = Instant::now();
    let hangs = health(&["--addr", &address.to_string()], &[]).await.check(69);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(hangs.out.is_empty() && hangs.err.contains(&format!("no worker answers at http://{address}/ready")));
    drop(listener);
    let gone = health(&["--addr", &address.to_string()], &[]).await.check(69);
    assert!(gone.err.contains("refused"), "{}", gone.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_none_is_told_with_one_that_is() {
    let off = health(&[], &[("LEASEHOLD_HTTP_ADDR", "off")]).await.check(78);
    assert!(off.err.contains("LEASEHOLD_HTTP_ADDR=127.0.0.1:9464"), "{}", off.err);
    let wrong = health(&[], &[("LEASEHOLD_HTTP_ADDR", ":80")]).await.check(78);
    assert!(wrong.err.contains("LEASEHOLD_HTTP_ADDR=127.0.0.1:80"), "{}", wrong.err);
    for address in ["9464", "localhost", "host:port", "a/b:1"] {
        health(&["--addr", address], &[]).await.check(64);
    }
}
