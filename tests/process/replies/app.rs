//! An app that answers as it was told to, however bad that is: bytes on a socket.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::interval,
};

/// What a request is answered with.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    /// A whole reply, of which these are the status and headers; the connection is kept.
    Whole(String),
    /// These bytes, and the connection closes.
    Bytes(Vec<u8>),
    /// These bytes, and then one after another, for ever.
    Trickle(&'static str),
    /// This status with a body of 100 MB.
    Large(&'static str),
    /// Nothing, for ever.
    Silence,
}

/// The bytes of a large body.
const LARGE: usize = 100 << 20;

/// Between two bytes of one that trickles.
const TRICKLE: Duration = Duration::from_millis(50);

/// A request, as far as it is told from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    /// The key.
    pub(super) name: String,
    pub(super) attempt: u64,
    /// A time in milliseconds, unless runs follow each other faster.
    pub(super) fence: u64,
}

/// The first, second, ... reply to each key; the last is that to all that follow. Others are answered with 200.
pub(super) type Replies = BTreeMap<String, Vec<Reply>>;

/// Serves until it is dropped.
pub(super) struct App {
    pub(super) url: String,
    calls: Arc<Mutex<Vec<Call>>>,
    _serving: JoinSet<()>,
}

impl App {
    pub(super) async fn new(replies: Replies) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/jobs", listener.local_addr().expect("an address"));
        let (calls, replies) = (Arc::<Mutex<Vec<Call>>>::default(), Arc::new(replies));
        let mut serving = JoinSet::new();
        let noted = Arc::clone(&calls);
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (replies, noted) = (Arc::clone(&replies), Arc::clone(&noted));
                // That the worker closes a connection is no error of this app.
                connections.spawn(async move { drop(serve(stream, &replies, &noted).await) });
            }
        });
        Self { url, calls, _serving: serving }
    }

    /// All calls, in the order in which they came.
    pub(super) fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("no panic").clone()
    }
}

async fn serve(stream: TcpStream, replies: &Replies, noted: &Mutex<Vec<Call>>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(call) = request(&mut stream).await? {
        let before = {
            let mut calls = noted.lock().expect("no panic");
            let before = calls.iter().filter(|earlier| earlier.name == call.name).count();
            calls.push(call.clone());
            before
        };
        let reply = replies.get(&call.name).and_then(|replies| replies.get(before).or(replies.last()));
        match reply {
            Some(Reply::Whole(head)) => {
                stream.write_all(format!("HTTP/1.1 {head}\r\nContent-Length: 3\r\n\r\nno\n").as_bytes()).await?;
            }
            None => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await?,
            Some(Reply::Bytes(bytes)) => {
                stream.write_all(bytes).await?;
                return stream.shutdown().await;
            }
            Some(Reply::Trickle(begins)) => {
                stream.write_all(begins.as_bytes()).await?;
                let mut ticks = interval(TRICKLE);
                loop {
                    ticks.tick().await;
                    stream.write_all(b"x").await?;
                }
            }
            Some(Reply::Large(status)) => {
                stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: {LARGE}\r\n\r\n").as_bytes()).await?;
                let piece = [b'x'; 64 << 10];
                for _ in 0..LARGE / piece.len() {
                    stream.write_all(&piece).await?;
                }
            }
            Some(Reply::Silence) => {
                // Until the worker closes.
                stream.read_to_end(&mut Vec::new()).await?;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The next request of a connection, its body read; `None` at its end.
async fn request(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Call>> {
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        match stream.read_line(&mut line).await? {
            0 => return Ok(None),
            2 => break,
            _ => {}
        }
        if let Some((name, value)) = line.trim_end().split_once(": ") {
            headers.insert(name.to_owned(), value.to_owned());
        }
    }
    // One who follows a redirect may leave all of it away.
    let header = |name: &str| headers.get(name).map(String::as_str).unwrap_or_default();
    let number = |name: &str| header(name).parse().unwrap_or(0);
    stream.take(number("content-length")).read_to_end(&mut Vec::new()).await?;
    let name = header("idempotency-key").trim_matches('"').trim_start_matches("jobs#").to_owned();
    let attempt = number("x-leasehold-attempt");
    Ok(Some(Call { name, attempt, fence: number("x-leasehold-fence") }))
}
