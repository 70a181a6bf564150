//! HTTP handlers: an app in any language, sent one request for each message.
//!
//! The body is the request's body, the facts are headers, and the reply is the verdict. Says when the work was handed over
//! and not answered, for what an app has begun cannot be stopped from here (rule D2). Knows nothing of queues and guards.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use reqwest::{
    Client, Response,
    header::{HeaderMap, HeaderName, HeaderValue},
    redirect, retry,
};
use tokio::{net::TcpStream, time::timeout};
use url::{Host, Url};

use crate::{
    causes::in_full,
    clock::Clock,
    config::{HandlerHeader, PermanentStatus, ValueError, http::handler_url},
    message::Message,
};

use super::{
    Cancelled, Handler, HandlerError, HandlerResult, JobContext, Probe, Raw, Traits,
    remote::{Askable, Told, answering},
};
use reply::Head;

pub(crate) mod reply;
mod request;
#[cfg(test)]
mod tests;

/// How long a connection may take: an app beside us, or in the same network, answers in milliseconds or not at all.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a connection is kept that nobody uses. Servers close theirs too, gunicorn after 2 seconds and Node after 5, and
/// a request that is sent on one as it closes may or may not have been read: so ours goes first.
const IDLE: Duration = Duration::from_secs(1);

/// How much of a reply's body is read: more than is told of any failure.
const MOST_OF_A_REPLY: usize = 16 * 1024;

/// How long a reply's body may take to come. It is only the text of what is decided already.
const BODY: Duration = Duration::from_millis(500);

/// Sends a `POST` to an app for each message. Feature `http`.
///
/// ```
/// # fn worker() -> Result<leasehold::Worker, Box<dyn std::error::Error>> {
/// use leasehold::{HttpHandler, Worker};
/// let app = HttpHandler::new("http://127.0.0.1:8080/jobs")?.with_header(&"Authorization: Bearer token".parse()?)?;
/// let worker = Worker::from_env().queue("payments", app);
/// # Ok(worker)
/// # }
/// ```
///
/// The message's body is the request's body, as it came: `application/json` if it is JSON, else `text/plain`. The status
/// of the reply is the verdict:
///
/// | reply | means |
/// | --- | --- |
/// | `2xx` | done |
/// | `400`, `410`, `413`, `415`, `422`, or those [asked for](Self::with_permanent_status) | failed for good: dead-lettered |
/// | `429`, `503` | the app is not there: no attempt is used, and the queue pauses until it is back |
/// | anything else, redirects too | a failed attempt: again after the back-off |
/// | no connection | the app is not there, as above: nothing was sent |
/// | `504`, or a connection that breaks before the reply | a failed attempt; not again before its lease would have ended, for the app may still be at work |
///
/// `Retry-After`, in seconds or as a date, is honoured wherever the message comes again. What the body says is the text of
/// a failure; little of it is read, and it is not waited for.
///
/// An app that wants to say more than a status can has two headers, which count with any status:
/// `X-Leasehold-Outcome: done`, `retry`, `permanent`, `not-yet` (again after `Retry-After`, or in 30 seconds, and no
/// attempt is used) or `unavailable`; and `X-Leasehold-Reason`, a short code that dead letters are grouped by. An outcome
/// that is none of these words is a failed attempt.
///
/// # Headers
/// | header | |
/// | --- | --- |
/// | `Idempotency-Key` | in quotes; what is not ASCII is percent-encoded. The same on every attempt, to be handed downstream. Absent only without a guard |
/// | `X-Leasehold-Fence` | the fencing token, growing with each run of a key; 0 without a guard |
/// | `X-Leasehold-Attempt` | from 1; counts failures, without a guard deliveries |
/// | `X-Leasehold-Deadline` | when the time budget ends, in whole seconds since the Unix epoch |
/// | `X-Leasehold-Job-Url`, `X-Leasehold-Job-Token` | where steps are recorded, and with what; not without a guard, and only with the feature `serve` |
/// | `X-Leasehold-Steps` | the results of the steps that are recorded, as a JSON object, encoded as attributes are; absent where they are larger than 768 bytes, and without a URL |
/// | `X-Leasehold-Queue` | the queue's name in the configuration |
/// | `X-Leasehold-Message-Id` | |
/// | `X-Leasehold-Receive-Count` | how often the message was received, this time included |
/// | `X-Leasehold-Group-Id` | the message group id, if there is one: on FIFO queues, and on fair standard queues |
/// | `X-Leasehold-Deduplication-Id` | on FIFO queues |
/// | `X-Leasehold-Sent-At` | when the message was sent, in whole seconds since the Unix epoch, if that is known |
/// | `X-Leasehold-Sns-Topic-Arn`, `-Message-Id`, `-Subject`, `-Published-At`, `-Sequence-Number` | what SNS says, with `ENVELOPE=sns`, as far as it says it; the time in whole seconds since the Unix epoch, the subject encoded as attributes are |
/// | `X-Leasehold-Attribute-<Name>` | each message attribute: of the name, what is no letter and no digit is a `-`; of the value, `%` and what is not ASCII is percent-encoded; binary values in hexadecimal |
/// | `X-Leasehold-Attributes-Omitted` | names of attributes that were left out, by commas: together over 2 KiB, less what SNS says, more than ten, or two that would have one header |
/// | `traceparent`, `tracestate`, `X-Amzn-Trace-Id` | the trace that this run is in (`docs/telemetry.md`); the last where the producer has sent X-Ray's |
/// | `X-Aws-Sqsd-Msgid`, `-Queue`, `-Receive-Count`, `-Attr-<Name>` | the same once more, as apps of Elastic Beanstalk's worker tier know it |
///
/// # Stopping
/// The time budget of the run (`HANDLER_TIMEOUT`) bounds a request; there is no other timeout. When the budget is used up,
/// the worker stops or the lease ends, a reply that comes within `CANCEL_GRACE` still counts. Then the connection is
/// closed, which few apps notice: the work is taken to be still running, and comes again only after its lease would have
/// ended. A timeout counts as an attempt, a stop does not.
///
/// # Connections
/// HTTP/1.1, directly to the app: proxies from the environment are not used, redirects not followed, requests not sent
/// again, cookies not kept. Idle connections are closed after a second, before servers close theirs. `https` asks for a
/// certificate that the system trusts.
#[derive(Debug, Clone)]
#[must_use = "a handler does nothing until a worker has it"]
pub struct HttpHandler {
    url: Url,
    client: Client,
    headers: HeaderMap,
    permanent: PermanentStatus,
}

/// Why an HTTP handler cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpHandlerError {
    /// The URL or a header is not one that can be used.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The system has nothing to tell good certificates by.
    #[error("certificates cannot be checked, so https cannot be used: {0}; install ca-certificates")]
    Certificates(String),
}

impl HttpHandler {
    /// Sends to `url`, absolute, `http` or `https`.
    ///
    /// # Errors
    /// It is no such URL, or it is `https` and the system has no certificates that it trusts.
    pub fn new(url: &str) -> Result<Self, HttpHandlerError> {
        let url = handler_url(url)?;
        let mut client = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            .user_agent(concat!("leasehold/", env!("CARGO_PKG_VERSION")));
        if url.scheme() == "http" {
            // Then certificates are none of its business, and an image without any will do.
            client = client.tls_certs_only([]);
        }
        let client = client.build().map_err(|error| HttpHandlerError::Certificates(told(&error)))?;
        Ok(Self { url, client, headers: HeaderMap::new(), permanent: PermanentStatus::default() })
    }

    /// Sends this header along too: credentials, most often.
    ///
    /// # Errors
    /// It is no header, or one that Leasehold sets itself.
    pub fn with_header(mut self, header: &HandlerHeader) -> Result<Self, HttpHandlerError> {
        let HandlerHeader { name, value } = format!("{}: {}", header.name, header.value).parse()?;
        let unfit = |_| ValueError::new(format!("{name:?} is no name of a header"), "Authorization: Bearer <token>");
        let name: HeaderName = name.parse().map_err(unfit)?;
        let unfit = |_| ValueError::new(format!("the value of {name} is none"), "Authorization: Bearer <token>");
        let mut value: HeaderValue = value.parse().map_err(unfit)?;
        value.set_sensitive(true);
        self.headers.append(name, value);
        Ok(self)
    }

    /// Fails for good on replies with these statuses, instead of `400,410,413,415,422`.
    pub fn with_permanent_status(self, permanent: PermanentStatus) -> Self {
        Self { permanent, ..self }
    }

    async fn send(&self, message: &Arc<Message>, cx: &JobContext, job: Option<Told>) -> reqwest::Result<Response> {
        let headers = request::headers(self.headers.clone(), message, cx, job.as_ref(), Clock::system().wall());
        self.client
            .post(self.url.clone())
            .headers(headers)
            .body(Bytes::from_owner(Shared(Arc::clone(message))))
            .send()
            .await
    }

    /// Nothing was sent.
    fn not_there(&self, error: &dyn fmt::Display) -> HandlerError {
        HandlerError::new(format!("{} cannot be reached: {error}", self.address())).unavailable().reason("unavailable")
    }

    /// The URL without its query, which may have a secret in it.
    fn address(&self) -> String {
        let mut url = self.url.clone();
        url.set_query(None);
        url.into()
    }
}

/// A message's body as the body of a request, without a copy of it.
struct Shared(Arc<Message>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.body.as_bytes()
    }
}

impl Handler for HttpHandler {
    type Payload = Raw;

    async fn handle(&self, Raw(message): &Raw, cx: &JobContext) -> HandlerResult {
        let run = Askable::list(cx);
        let job = run.as_ref().map(Askable::told);
        answering(run, self.call(message, cx, job)).await
    }

    fn traits(&self) -> Traits<'_, Raw> {
        Traits { probe: Some(self), undoes: false, is_outside: true, ..Traits::default() }
    }
}

impl HttpHandler {
    async fn call(&self, message: &Arc<Message>, cx: &JobContext, job: Option<Told>) -> HandlerResult {
        cx.elsewhere.begins();
        let response = match self.send(message, cx, job).await {
            Ok(response) => response,
            Err(error) if error.is_connect() => {
                cx.elsewhere.ended();
                return Err(self.not_there(&told(&error)));
            }
            Err(error) => {
                let text = format!("{} did not answer and may still be at work: {}", self.address(), told(&error));
                return Err(HandlerError::new(text).reason("no_reply"));
            }
        };
        let head = Head::of(response.status(), response.headers(), &self.permanent, Clock::system().wall());
        if head.is_an_answer() {
            cx.elsewhere.ended();
        }
        let body = beginning(response, cx.cancelled()).await;
        head.verdict(&body)
    }
}

impl Probe for HttpHandler {
    fn probe(&self) -> BoxFuture<'_, HandlerResult> {
        async {
            // `http` and `https` have ports of their own, and no URL of theirs is without a host.
            let port = self.url.port_or_known_default().unwrap_or_default();
            let connected = timeout(CONNECT, async {
                match self.url.host() {
                    Some(Host::Ipv4(ip)) => TcpStream::connect((ip, port)).await,
                    Some(Host::Ipv6(ip)) => TcpStream::connect((ip, port)).await,
                    host => TcpStream::connect((host.map(|host| host.to_string()).unwrap_or_default(), port)).await,
                }
            });
            match connected.await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(self.not_there(&error)),
                Err(_) => Err(self.not_there(&"no answer in time")),
            }
        }
        .boxed()
    }
}

/// The beginning of a reply's body. What decides has come with its head, so more is not waited for long, and not at all
/// once the run is told to stop. A body that was read to its end leaves its connection for the next request; what is left
/// of another one closes it.
async fn beginning(mut response: Response, cancelled: &Cancelled) -> Vec<u8> {
    let mut body = Vec::new();
    let reading = async {
        while body.len() < MOST_OF_A_REPLY
            && let Ok(Some(piece)) = response.chunk().await
        {
            body.extend_from_slice(&piece[..piece.len().min(MOST_OF_A_REPLY - body.len())]);
        }
    };
    let read = timeout(BODY, reading);
    tokio::select! {
        // Read before stopped: what has come costs nothing. The losing arm throws away a text.
        biased;
        _ = read => {}
        _ = cancelled.wait() => {}
    }
    body
}

/// What went wrong, with its causes, and without the URL.
fn told(error: &reqwest::Error) -> String {
    error.source().map_or_else(|| "the request cannot be made".to_owned(), in_full)
}
