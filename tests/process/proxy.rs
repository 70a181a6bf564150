//! A proxy before the engine that makes the faults of a network and of AWS, chosen by operation.
//!
//! A fault strikes a call of its operation by the call's number, so that a test says which and how many.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue},
    http::{StatusCode, request::Parts},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet, time::sleep};

/// What happens to a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// It is done, and the connection breaks before its reply.
    LoseReply,
    /// It is done after this time.
    DelayRequest(Duration),
    /// It is done, and its reply comes after this time.
    DelayReply(Duration),
    /// The first entry of a batch is refused, for a reason that will pass; the others are done.
    RefuseEntry,
    /// It is not done: throttled.
    Throttle,
}

/// Whether a fault strikes the n-th call of its operation, counted from 1.
type Strikes = fn(u64) -> bool;

#[derive(Debug, Default)]
struct Faults {
    planned: Vec<Planned>,
    /// Calls so far, by operation.
    calls: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Planned {
    operation: &'static str,
    fault: Fault,
    strikes: Strikes,
    has_struck: bool,
}

impl Faults {
    /// What happens to the next call of an operation.
    fn strike(&mut self, operation: &str) -> Vec<Fault> {
        let calls = self.calls.entry(operation.to_owned()).or_default();
        *calls += 1;
        let planned = self.planned.iter_mut().filter(|planned| planned.operation == operation);
        let striking = planned.filter(|planned| (planned.strikes)(*calls));
        striking
            .map(|planned| {
                planned.has_struck = true;
                planned.fault
            })
            .collect()
    }
}

/// The proxy. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) endpoint: String,
    faults: Arc<Mutex<Faults>>,
    _accepting: JoinSet<()>,
}

impl Proxy {
    /// Before an endpoint, without faults.
    pub(crate) async fn before(endpoint: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address: SocketAddr = listener.local_addr().expect("an address");
        let faults = Arc::new(Mutex::default());
        let behind = Behind {
            endpoint: endpoint.to_owned(),
            client: Client::builder(TokioExecutor::new()).build(HttpConnector::new()),
            faults: Arc::clone(&faults),
        };
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, behind));
        Self { endpoint: format!("http://{address}"), faults, _accepting: accepting }
    }

    /// With a fault that strikes certain calls of an operation: the part of `X-Amz-Target` after the dot.
    pub(crate) fn with(self, operation: &'static str, fault: Fault, strikes: Strikes) -> Self {
        let planned = Planned { operation, fault, strikes, has_struck: false };
        self.faults.lock().expect("not poisoned").planned.push(planned);
        self
    }

    /// The faults that never struck.
    pub(crate) fn idle_faults(&self) -> Vec<String> {
        let faults = self.faults.lock().expect("not poisoned");
        let idle = faults.planned.iter().filter(|planned| !planned.has_struck);
        idle.map(|planned| format!("{} {:?}", planned.operation, planned.fault)).collect()
    }
}

async fn accept(listener: TcpListener, behind: Behind) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let behind = behind.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| behind.clone().answer(request));
            // A connection that breaks is what this is for.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

/// What one connection needs.
#[derive(Debug, Clone)]
struct Behind {
    endpoint: String,
    client: Client<HttpConnector, Full<Bytes>>,
    faults: Arc<Mutex<Faults>>,
}

/// Breaks the connection.
#[derive(Debug, thiserror::Error)]
#[error("lost")]
struct Lost;

impl Behind {
    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Lost> {
        let (head, body) = request.into_parts();
        let target = head.headers.get("x-amz-target").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default();
        let faults = self.faults.lock().expect("not poisoned").strike(operation);
        let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
        for fault in &faults {
            match fault {
                Fault::DelayRequest(delay) => sleep(*delay).await,
                Fault::Throttle => return Ok(json_reply(StatusCode::BAD_REQUEST, &throttling())),
                Fault::RefuseEntry | Fault::LoseReply | Fault::DelayReply(_) => {}
            }
        }
        let refuses = faults.iter().any(|fault| matches!(fault, Fault::RefuseEntry));
        let reply = if refuses { self.forward_but_one(&head, &body).await? } else { self.forward(&head, body).await? };
        for fault in &faults {
            match fault {
                Fault::LoseReply => return Err(Lost),
                Fault::DelayReply(delay) => sleep(*delay).await,
                Fault::DelayRequest(_) | Fault::Throttle | Fault::RefuseEntry => {}
            }
        }
        Ok(reply)
    }

    /// Forwards a batch without its first entry, which is refused.
    async fn forward_but_one(&self, head: &Parts, body: &Bytes) -> Result<Response<Full<Bytes>>, Lost> {
        let mut request: Value = serde_json::from_slice(body).expect("JSON");
        let entries = request["Entries"].as_array_mut().expect("a batch");
        let refused = entries.remove(0)["Id"].take();
        // SQS takes no empty batch.
        let mut reply = if entries.is_empty() {
            json!({})
        } else {
            let reply = self.forward(head, request.to_string().into()).await?;
            serde_json::from_slice(&reply.into_body().collect().await.map_err(|_| Lost)?.to_bytes())
                .map_err(|_| Lost)?
        };
        let failed = json!({"Id": refused, "Code": "InternalError", "Message": "for a while", "SenderFault": false});
        match reply["Failed"].as_array_mut() {
            Some(others) => others.push(failed),
            None => reply["Failed"] = json!([failed]),
        }
        if reply["Successful"].is_null() {
            reply["Successful"] = json!([]);
        }
        Ok(json_reply(StatusCode::OK, &reply))
    }

    async fn forward(&self, head: &Parts, body: Bytes) -> Result<Response<Full<Bytes>>, Lost> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = format!("{}{}", self.endpoint, head.uri.path()).parse().map_err(|_| Lost)?;
        *request.headers_mut() = head.headers.clone();
        request.headers_mut().remove(CONTENT_LENGTH);
        let (head, body) = self.client.request(request).await.map_err(|_| Lost)?.into_parts();
        let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
        Ok(Response::from_parts(head, Full::new(body)))
    }
}

fn throttling() -> Value {
    json!({"__type": "com.amazonaws#ThrottlingException", "message": "Rate exceeded"})
}

fn json_reply(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::new(body.to_string().into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-amz-json-1.0"));
    reply
}
