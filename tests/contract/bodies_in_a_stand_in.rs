//! Bodies in S3 through its SDK, on a small stand-in for S3 in this process: paths, statuses and error codes as S3 has
//! them, and nothing else of it. LocalStack is nearer to S3, where it can start.
#![expect(clippy::expect_used, reason = "helpers of tests, which clippy takes for production code here")]

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use leasehold::{
    aws::{self, Aws},
    bodies::{Bodies, s3::S3Bodies},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::bodies::{BodiesFixture, bodies_contract};

type Objects = Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>;

struct StandIn {
    objects: Objects,
    bodies: S3Bodies,
    _server: JoinSet<io::Result<()>>,
}

const BUCKET: &str = "bodies";

async fn stand_in() -> StandIn {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("binds");
    let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
    let objects = Objects::default();
    let mut server = JoinSet::new();
    server.spawn({
        let objects = Arc::clone(&objects);
        async move {
            loop {
                let (stream, _) = listener.accept().await?;
                answer(stream, &objects).await?;
            }
        }
    });
    StandIn { objects, bodies: Aws::new(&aws::local(&endpoint)).bodies(), _server: server }
}

/// Answers one request. None of those that come here has a body.
async fn answer(mut stream: TcpStream, objects: &Objects) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default().trim_start_matches('/');
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    let (status, body) = reply(method, bucket, &decoded(key), objects);
    let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await
}

fn reply(method: &str, bucket: &str, key: &[u8], objects: &Objects) -> (u16, Vec<u8>) {
    let error = |code: &str| (404, format!("<Error><Code>{code}</Code><Message>no</Message></Error>").into_bytes());
    let mut objects = objects.lock().expect("whole");
    match method {
        _ if bucket != BUCKET => error("NoSuchBucket"),
        "DELETE" => {
            objects.remove(key);
            (204, Vec::new())
        }
        _ => objects.get(key).map_or_else(|| error("NoSuchKey"), |body| (200, body.clone())),
    }
}

/// As S3 reads a path: `+` is a plus.
fn decoded(key: &str) -> Vec<u8> {
    let (mut decoded, mut rest) = (Vec::new(), key.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let byte =
            (*first == b'%').then(|| u8::from_str_radix(std::str::from_utf8(after.get(..2)?).ok()?, 16).ok()).flatten();
        decoded.push(byte.unwrap_or(*first));
        rest = byte.map_or(after, |_| &after[2..]);
    }
    decoded
}

#[async_trait]
impl BodiesFixture for StandIn {
    fn bodies(&self) -> &dyn Bodies {
        &self.bodies
    }

    fn bucket(&self) -> &str {
        BUCKET
    }

    async fn put(&self, key: &str, body: &[u8]) {
        self.objects.lock().expect("whole").insert(key.as_bytes().to_vec(), body.to_vec());
    }
}

bodies_contract!(in_a_stand_in, stand_in().await);
