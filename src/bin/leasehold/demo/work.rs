//! The work: the payment handler as a user would write it, and the real worker that runs it, in this process and in a
//! second one.
//!
//! Owns the worker's settings, which are shorter than anybody's in production so that a crash is over in seconds. The
//! worker is built from variables as everywhere, on the adapters for SQS and DynamoDB; all that is added is a count of
//! its beats, told to the bank because a process that is killed can tell nobody afterwards.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use leasehold::{
    Handler, HandlerError, HandlerResult, JobContext, ResultExt, Shutdown, Worker,
    aws::{self, Aws},
    guard::{
        Amend, Change, Claim, Claimed, Commit, Committed, Control, ControlKey, Guard, GuardError, Pk, Record,
        TableFacts, TakeOver, Written, dynamodb::DynamoDbGuard,
    },
};
use serde::{Deserialize, Serialize};

use super::{
    bank::{Charge, IDEMPOTENCY_KEY, WORKER},
    stream::Payment,
};

/// The queue of payments.
pub(super) const QUEUE: &str = "payments";

/// Its dead-letter queue.
pub(super) const DEAD_LETTERS: &str = "payments-dlq";

/// The guard's table.
pub(super) const TABLE: &str = "leasehold";

/// Receives after which SQS dead-letters a message by itself: as many as deliveries of a killed worker, of a duplicate
/// that waits for its original, and of a few failed attempts can come to, and some more.
pub(super) const MAX_RECEIVE_COUNT: u32 = 25;

/// The visibility timeout, and so the length of both leases.
pub(super) const VISIBILITY: Duration = Duration::from_secs(4);

/// What the worker is configured by.
pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("LEASEHOLD_QUEUES", QUEUE),
    ("LEASEHOLD_TABLE", TABLE),
    ("LEASEHOLD_VISIBILITY_TIMEOUT", "4s"),
    ("LEASEHOLD_WAIT_TIME", "1s"),
    ("LEASEHOLD_CANCEL_GRACE", "1s"),
    ("LEASEHOLD_CLOCK_SKEW", "250ms"),
    ("LEASEHOLD_BACKOFF", "1s..2s"),
    ("LEASEHOLD_HANDLER_TIMEOUT", "30s"),
    ("LEASEHOLD_CONCURRENCY", "40"),
    ("LEASEHOLD_DRAIN_TIMEOUT", "15s"),
];

/// What a second process is told, as one argument.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Of SQS and DynamoDB.
    pub(crate) endpoint: String,
    pub(crate) bank: SocketAddr,
    pub(crate) worker: String,
}

impl Place {
    /// A worker at this place.
    pub(crate) fn worker(&self) -> Worker {
        let bank = BankClient::new(self);
        let aws = Aws::new(&aws::local(&self.endpoint));
        let guard = DynamoDbGuard::new(aws.dynamodb(), TABLE.to_owned());
        Worker::from_vars(SETTINGS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
            .adapters(Arc::new(aws.sqs()), Arc::new(CountsBeats { guard, bank: bank.clone() }))
            .queue(QUEUE, Payments { bank }.key(|payment| payment.payment_id.clone()))
    }

    /// Works until the first process lets go, or is gone.
    pub(crate) async fn work_as_second(&self) -> anyhow::Result<()> {
        let leash = BankClient::new(self);
        let released = async move {
            // Answered by nothing but the end of the bank, which is an error.
            let _ = leash.post("/leash", "", String::new()).await;
        };
        self.worker().run(Shutdown::when(released)).await?;
        Ok(())
    }
}

/// The handler.
#[derive(Debug)]
struct Payments {
    bank: BankClient,
}

impl Handler for Payments {
    type Payload = Payment;

    async fn handle(&self, payment: &Payment, cx: &JobContext) -> HandlerResult {
        tokio::time::sleep(Duration::from_millis(payment.check_ms)).await;
        let charge = cx.step("charge", |key| self.bank.charge(payment, key.to_string())).await?;
        cx.step("receipt", async |_| mail_receipt(payment, &charge, cx.attempt())).await?;
        Ok(())
    }
}

/// Stands in for a mail server that is busy now and then.
fn mail_receipt(payment: &Payment, charge: &Charge, attempt: u32) -> HandlerResult<String> {
    if attempt <= payment.mail_busy {
        return Err(HandlerError::new("the mail server is busy").reason("mail_busy"));
    }
    Ok(format!("{} for {}", charge.charge_id, payment.payment_id))
}

/// The way to the bank, over HTTP. Clones share connections.
#[derive(Debug, Clone)]
pub(crate) struct BankClient {
    http: Client<HttpConnector, Full<Bytes>>,
    bank: SocketAddr,
    worker: Arc<str>,
}

/// The bank did not answer as it should.
#[derive(Debug, thiserror::Error)]
enum BankError {
    #[error("the bank cannot be reached")]
    Away(#[from] hyper_util::client::legacy::Error),
    #[error("the bank's answer broke off")]
    BrokeOff(#[from] hyper::Error),
    #[error("the bank's answer cannot be read")]
    Odd(#[from] serde_json::Error),
    #[error("the request is none")]
    Request(#[from] hyper::http::Error),
    #[error("the account is closed")]
    AccountClosed,
}

impl BankClient {
    fn new(place: &Place) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let http = Client::builder(TokioExecutor::new()).build(connector);
        Self { http, bank: place.bank, worker: place.worker.as_str().into() }
    }

    async fn post(&self, path: &str, key: &str, body: String) -> Result<Response<Incoming>, BankError> {
        let request = Request::post(format!("http://{}{path}", self.bank))
            .header(WORKER, &*self.worker)
            .header(IDEMPOTENCY_KEY, key)
            .body(Full::new(Bytes::from(body)))?;
        Ok(self.http.request(request).await?)
    }

    async fn charge(&self, payment: &Payment, key: String) -> HandlerResult<Charge> {
        let charged = self.try_charge(payment, &key).await;
        if matches!(charged, Err(BankError::AccountClosed)) {
            return charged.permanent().reason("account_closed");
        }
        Ok(charged?)
    }

    async fn try_charge(&self, payment: &Payment, key: &str) -> Result<Charge, BankError> {
        let response = self.post("/charges", key, serde_json::to_string(payment)?).await?;
        if response.status() == StatusCode::PAYMENT_REQUIRED {
            return Err(BankError::AccountClosed);
        }
        let body = response.into_body().collect().await?.to_bytes();
        Ok(serde_json::from_slice(&body)?)
    }
}

/// The guard, with a count of the renewals of its claims.
#[derive(Debug)]
struct CountsBeats {
    guard: DynamoDbGuard,
    bank: BankClient,
}

#[async_trait]
impl Guard for CountsBeats {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, GuardError> {
        self.guard.claim(claim).await
    }

    async fn take_over(&self, take_over: &TakeOver) -> Result<Claimed, GuardError> {
        self.guard.take_over(take_over).await
    }

    async fn write(&self, pk: &Pk, change: &Change) -> Result<Written, GuardError> {
        let written = self.guard.write(pk, change).await;
        if matches!((change, &written), (Change::Renew { .. }, Ok(Written::Applied)))
            && let Err(error) = self.bank.post("/beats", "", String::new()).await
        {
            tracing::debug!(%error, "a beat is not counted");
        }
        written
    }

    async fn confirm_with(&self, commit: &Commit) -> Result<Committed, GuardError> {
        self.guard.confirm_with(commit).await
    }

    async fn amend(&self, amend: &Amend) -> Result<Written, GuardError> {
        self.guard.amend(amend).await
    }

    async fn read(&self, pk: &Pk) -> Result<Option<Record>, GuardError> {
        self.guard.read(pk).await
    }

    async fn probe(&self) -> Result<(), GuardError> {
        self.guard.probe().await
    }

    async fn control(&self, key: &ControlKey) -> Result<Control, GuardError> {
        self.guard.control(key).await
    }

    async fn set_control(&self, key: &ControlKey, control: &Control) -> Result<(), GuardError> {
        self.guard.set_control(key, control).await
    }

    async fn facts(&self) -> Result<TableFacts, GuardError> {
        self.guard.facts().await
    }
}
