//! A proxy before the engine that makes the faults of a network and of AWS, chosen by operation.
//!
//! A fault strikes calls by their number, so that a test says which and how many, or while a switch is on. A call that has
//! arrived whole is carried out although its client goes away: as on a real network, it may take effect late.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, Weak},
};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header::CONTENT_LENGTH,
    http::request::Parts,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::credentials;
pub(crate) use fault::{Entries, Fault, Hold, Refusal, Switch};
use fault::{Faults, Target};
use reply::{Lost, Reply};

mod fault;
mod reply;

/// A call that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) operation: String,
    pub(crate) at: Instant,
}

/// What the proxy and its connections share.
#[derive(Debug, Default)]
struct State {
    faults: Mutex<Faults>,
    calls: Mutex<Vec<Call>>,
    handles: Mutex<Vec<String>>,
    /// Cancelled to cut the connections that are there; another takes its place.
    cut: Mutex<CancellationToken>,
    /// Cancelled to swallow what goes over the connections that are there; another takes its place.
    hole: Mutex<CancellationToken>,
}

/// Calls that are being carried out, whether somebody waits for them or not.
type UnderWay = Mutex<JoinSet<()>>;

/// The proxy. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) endpoint: String,
    state: Arc<State>,
    _under_way: Arc<UnderWay>,
    _accepting: JoinSet<()>,
}

impl Proxy {
    /// Before an endpoint, without faults.
    pub(crate) async fn before(endpoint: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address: SocketAddr = listener.local_addr().expect("an address");
        let (state, under_way) = (Arc::default(), Arc::default());
        let behind = Behind {
            endpoint: endpoint.to_owned(),
            client: Client::builder(TokioExecutor::new()).build(HttpConnector::new()),
            state: Arc::clone(&state),
            under_way: Arc::downgrade(&under_way),
        };
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, behind));
        Self { endpoint: format!("http://{address}"), state, _under_way: under_way, _accepting: accepting }
    }

    /// With a fault that strikes certain calls, counted from 1. `of` is an operation, the part of `X-Amz-Target` after the
    /// dot; with a `*` at its end, all that begin so, or all of a service (`DynamoDB*`).
    pub(crate) fn with(
        self,
        of: &'static str,
        fault: Fault,
        strikes: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.state.faults.lock().expect("not poisoned").plan(of, fault, Box::new(strikes));
        self
    }

    /// With a fault that strikes all calls while the switch is on.
    pub(crate) fn during(self, of: &'static str, fault: Fault, switch: &Switch) -> Self {
        let switch = switch.clone();
        self.with(of, fault, move |_| switch.is_on())
    }

    /// The faults that never struck.
    pub(crate) fn idle_faults(&self) -> Vec<String> {
        self.state.faults.lock().expect("not poisoned").idle()
    }

    /// Every call that arrived so far, in order.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state.calls.lock().expect("not poisoned").clone()
    }

    /// The receipt handle of every delivery so far, in order.
    pub(crate) fn handles(&self) -> Vec<String> {
        self.state.handles.lock().expect("not poisoned").clone()
    }

    /// Resets every connection that is there, whatever is under way on it. What has arrived is carried out.
    pub(crate) fn cut(&self) {
        std::mem::take(&mut *self.state.cut.lock().expect("not poisoned")).cancel();
    }

    /// From now on nothing is read from the connections that are there, and nothing written to them; they stand. New ones
    /// are served.
    pub(crate) fn swallow(&self) {
        std::mem::take(&mut *self.state.hole.lock().expect("not poisoned")).cancel();
    }
}

async fn accept(listener: TcpListener, behind: Behind) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        connections.spawn(serve(stream, behind.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Serves a connection until its client goes, a fault breaks it, or it is cut; the last two reset it.
async fn serve(stream: TcpStream, behind: Behind) {
    let cut = behind.state.cut.lock().expect("not poisoned").clone();
    let hole = behind.state.hole.lock().expect("not poisoned").clone();
    let service = service_fn(move |request| behind.clone().answer(request));
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let is_broken = tokio::select! {
        // What loses is broken off, and that is what this is for.
        biased;
        () = cut.cancelled() => true,
        // It stands, and nobody moves it any more.
        () = hole.cancelled() => {
            cut.cancelled().await;
            true
        }
        ended = &mut connection => ended.is_err(),
    };
    if is_broken {
        // One that its client has reset has nothing to set any more.
        let _ = connection.into_parts().io.into_inner().set_zero_linger();
    }
}

/// What one connection needs.
#[derive(Debug, Clone)]
struct Behind {
    endpoint: String,
    client: Client<HttpConnector, Full<Bytes>>,
    state: Arc<State>,
    under_way: Weak<UnderWay>,
}

impl Behind {
    async fn answer(self, request: Request<Incoming>) -> Result<Response<Reply>, Lost> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
        let (reply, replied) = oneshot::channel();
        {
            let under_way = self.under_way.upgrade().ok_or(Lost)?;
            let mut under_way = under_way.lock().expect("not poisoned");
            while under_way.try_join_next().is_some() {}
            under_way.spawn(async move {
                // Nobody may be there any more to hear it.
                let _ = reply.send(self.carry_out(head, body).await);
            });
        }
        replied.await.unwrap_or(Err(Lost))
    }

    async fn carry_out(self, head: Parts, mut body: Bytes) -> Result<Response<Reply>, Lost> {
        let target = Target::of(&head);
        let call = Call { operation: target.operation.clone(), at: Instant::now() };
        self.state.calls.lock().expect("not poisoned").push(call);
        let faults = self.state.faults.lock().expect("not poisoned").strike(&target);
        let mut refused = None;
        for fault in &faults {
            match fault {
                Fault::DelayRequest(delay) => sleep(*delay).await,
                Fault::HoldRequest(hold) => hold.reached().await,
                Fault::HoldOldHandle(hold) => {
                    hold.reached().await;
                    body = self.with_newest_handle(&body);
                }
                Fault::Hang => std::future::pending().await,
                Fault::LoseRequest => return Err(Lost),
                Fault::Refuse(refusal) => return Ok(reply::refusal(refusal, target.is_sqs)),
                Fault::RefuseExpired if credentials::have_expired(&head) => {
                    return Ok(reply::refusal(&Refusal::EXPIRED, target.is_sqs));
                }
                Fault::RefuseEntries(entries) => refused = Some(entries),
                Fault::RefuseExpired
                | Fault::LoseReply
                | Fault::CutReply
                | Fault::DelayReply(_)
                | Fault::HoldReply(_)
                | Fault::NeverReply => {}
            }
        }
        let mut reply = match refused {
            Some(entries) => self.forward_but(entries, &head, &body).await?,
            None => self.forward(&head, body).await?,
        };
        if target.operation == "ReceiveMessage" {
            self.state.handles.lock().expect("not poisoned").extend(reply.body().handles());
        }
        for fault in &faults {
            match fault {
                Fault::DelayReply(delay) => sleep(*delay).await,
                Fault::HoldReply(hold) => hold.reached().await,
                Fault::NeverReply => std::future::pending().await,
                Fault::LoseReply => return Err(Lost),
                Fault::CutReply => reply.body_mut().cut(),
                Fault::DelayRequest(_)
                | Fault::HoldRequest(_)
                | Fault::HoldOldHandle(_)
                | Fault::Hang
                | Fault::LoseRequest
                | Fault::Refuse(_)
                | Fault::RefuseExpired
                | Fault::RefuseEntries(_) => {}
            }
        }
        Ok(reply)
    }

    /// A change of one message, or a batch of one.
    fn with_newest_handle(&self, change: &Bytes) -> Bytes {
        let newest = self.state.handles.lock().expect("not poisoned").last().cloned().expect("it was received");
        let mut change: Value = serde_json::from_slice(change).expect("JSON");
        let entry = if change["Entries"].is_array() { &mut change["Entries"][0] } else { &mut change };
        entry["ReceiptHandle"] = newest.into();
        change.to_string().into()
    }

    /// Forwards a batch without the chosen entries, which are refused.
    async fn forward_but(&self, entries: &Entries, head: &Parts, body: &Bytes) -> Result<Response<Reply>, Lost> {
        let Some((rest, refused)) = entries.taken_from(body) else {
            return Ok(reply::refusal(&entries.alone(), true));
        };
        let reply = match rest {
            Some(rest) => Some(self.forward(head, rest).await?),
            // SQS takes no empty batch.
            None => None,
        };
        Ok(reply::with_refused(reply, refused))
    }

    async fn forward(&self, head: &Parts, body: Bytes) -> Result<Response<Reply>, Lost> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = format!("{}{}", self.endpoint, head.uri.path()).parse().map_err(|_| Lost)?;
        *request.headers_mut() = head.headers.clone();
        request.headers_mut().remove(CONTENT_LENGTH);
        let (head, body) = self.client.request(request).await.map_err(|_| Lost)?.into_parts();
        let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
        Ok(Response::from_parts(head, Reply::whole(body)))
    }
}
