//! The bank: what lies downstream of the worker, outside of its transactions. Counts calls and effects per payment.
//!
//! A small HTTP server on a loopback port, so that a worker in another process reaches it too and its books survive when
//! that process is killed. As payment providers do, it replays its answer to an `Idempotency-Key` that it has seen; a
//! naive bank does not. It also lays the trap for the second worker: a charge that takes effect and is never answered.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

use super::stream::Payment;

/// Which worker it is: `first`, or `second`, the one that may be killed.
pub(super) const WORKER: &str = "x-demo-worker";

/// What a worker hands down so that a repeated call has no second effect.
pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// What the bank answers to a charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Charge {
    pub(crate) charge_id: String,
}

/// The books of one payment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// How often the bank was asked.
    pub(crate) calls: u64,
    /// How often money moved.
    pub(crate) effects: u64,
}

/// What kind of bank it is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Terms {
    /// It does not know `Idempotency-Key`.
    pub(crate) naive: bool,
    /// From this charge of the second worker on, its charges take effect and are not answered.
    pub(crate) trap_after: Option<u64>,
}

#[derive(Debug, Default)]
struct Books {
    accounts: BTreeMap<String, Account>,
    /// Answers by `Idempotency-Key`.
    answered: BTreeMap<String, Charge>,
    charges: u64,
    beats: u64,
}

/// How far the second worker has come.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Second {
    /// Charges that it has asked for.
    pub(crate) charges: u64,
    /// Charges that took effect, and that it waits for in vain.
    pub(crate) trapped: u64,
}

/// The bank's books, and the rules that it keeps them by.
#[derive(Debug, Default)]
pub(crate) struct Bank {
    terms: Terms,
    /// A lock, for it is held for a few straight lines and never across an await.
    books: Mutex<Books>,
    second: watch::Sender<Second>,
}

/// What became of a call.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Charged(Charge),
    Refused,
    /// It took effect, and the caller never hears of it.
    Never,
}

impl Bank {
    pub(crate) fn new(terms: Terms) -> Self {
        Self { terms, ..Self::default() }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The books, by payment.
    pub(crate) fn accounts(&self) -> BTreeMap<String, Account> {
        self.books().accounts.clone()
    }

    /// Calls and effects of all payments.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let books = self.books();
        books.accounts.values().fold((0, 0), |sum, account| (sum.0 + account.calls, sum.1 + account.effects))
    }

    /// Charges that took effect and that the second worker waits for in vain.
    pub(crate) fn trapped(&self) -> u64 {
        self.second.borrow().trapped
    }

    /// How often workers have told of a beat.
    pub(crate) fn beats(&self) -> u64 {
        self.books().beats
    }

    /// Waits until the second worker has come so far. Cancel safe.
    pub(crate) async fn second(&self, far_enough: impl FnMut(&Second) -> bool) {
        // An error would mean that the sender is gone, and we borrow it.
        let _ = self.second.subscribe().wait_for(far_enough).await;
    }

    fn charge(&self, payment: &Payment, key: &str, of_second: bool) -> Answer {
        let answer = self.enter(payment, key);
        if !of_second {
            return answer;
        }
        let mut trapped = false;
        self.second.send_modify(|second| {
            second.charges += 1;
            trapped = self.terms.trap_after.is_some_and(|after| second.charges >= after) && answer != Answer::Refused;
            second.trapped += u64::from(trapped);
        });
        if trapped { Answer::Never } else { answer }
    }

    fn enter(&self, payment: &Payment, key: &str) -> Answer {
        let mut books = self.books();
        let account = books.accounts.entry(payment.payment_id.clone()).or_default();
        account.calls += 1;
        if payment.account_closed {
            return Answer::Refused;
        }
        if !self.terms.naive
            && let Some(charge) = books.answered.get(key)
        {
            return Answer::Charged(charge.clone());
        }
        books.charges += 1;
        let charge = Charge { charge_id: format!("ch-{:06}", books.charges) };
        books.answered.insert(key.to_owned(), charge.clone());
        books.accounts.entry(payment.payment_id.clone()).or_default().effects += 1;
        Answer::Charged(charge)
    }
}

/// The bank's counter: open until it is dropped.
#[derive(Debug)]
pub(crate) struct Counter {
    pub(crate) bank: Arc<Bank>,
    pub(crate) address: SocketAddr,
    /// Accepts, and owns the connections. Aborted on drop.
    _accepting: JoinSet<()>,
}

impl Counter {
    /// Opens on a port that the system picks.
    pub(crate) async fn open(terms: Terms) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, bank) = (listener.local_addr()?, Arc::new(Bank::new(terms)));
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&bank)));
        Ok(Self { bank, address, _accepting: accepting })
    }
}

async fn accept(listener: TcpListener, bank: Arc<Bank>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // Ended connections are reaped first, so that they do not pile up; accepting is cancel safe.
            biased;
            Some(_) = connections.join_next() => {}
            Ok((stream, _)) = listener.accept() => {
                let _ = stream.set_nodelay(true); // Without it answers are only slower.
                let bank = Arc::clone(&bank);
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(Arc::clone(&bank), request));
                    // A worker that is killed breaks its connections: its own business.
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
            else => return,
        }
    }
}

/// `POST /charges`, `POST /beats`, and `POST /leash`, which is answered by nothing but the end of the bank.
async fn answer(bank: Arc<Bank>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let respond = |status, body: String| {
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        Ok(response)
    };
    match head.uri.path() {
        "/beats" => {
            bank.books().beats += 1;
            respond(StatusCode::NO_CONTENT, String::new())
        }
        "/leash" => std::future::pending().await,
        "/charges" => {
            let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let Ok(payment) = serde_json::from_slice::<Payment>(&body) else {
                return respond(StatusCode::BAD_REQUEST, String::new());
            };
            match bank.charge(&payment, header(IDEMPOTENCY_KEY), header(WORKER) == "second") {
                Answer::Charged(charge) => {
                    respond(StatusCode::CREATED, serde_json::to_string(&charge).unwrap_or_default())
                }
                Answer::Refused => respond(StatusCode::PAYMENT_REQUIRED, String::new()),
                Answer::Never => std::future::pending().await,
            }
        }
        _ => respond(StatusCode::NOT_FOUND, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payment(id: &str) -> Payment {
        Payment { payment_id: id.into(), ..Payment::default() }
    }

    fn account(bank: &Bank, id: &str) -> (u64, u64) {
        bank.accounts().get(id).map_or((0, 0), |account| (account.calls, account.effects))
    }

    #[test]
    fn a_repeated_call_is_counted_and_has_no_second_effect() {
        let bank = Bank::new(Terms::default());
        let first = bank.charge(&payment("p"), "k", false);
        assert_eq!(bank.charge(&payment("p"), "k", false), first);
        assert_eq!(account(&bank, "p"), (2, 1));
        assert_ne!(bank.charge(&payment("p"), "other key", false), first);
        assert_eq!(account(&bank, "p"), (3, 2));
    }

    #[test]
    fn a_naive_bank_charges_again() {
        let bank = Bank::new(Terms { naive: true, ..Terms::default() });
        bank.charge(&payment("p"), "k", false);
        bank.charge(&payment("p"), "k", false);
        assert_eq!(account(&bank, "p"), (2, 2));
    }

    #[test]
    fn a_closed_account_is_refused_without_effect_and_springs_no_trap() {
        let bank = Bank::new(Terms { trap_after: Some(1), ..Terms::default() });
        let closed = Payment { account_closed: true, ..payment("p") };
        assert_eq!(bank.charge(&closed, "k", true), Answer::Refused);
        assert_eq!(account(&bank, "p"), (1, 0));
    }

    #[test]
    fn the_trap_lets_charges_take_effect_and_answers_only_the_first_worker() {
        let bank = Bank::new(Terms { trap_after: Some(2), ..Terms::default() });
        assert!(matches!(bank.charge(&payment("a"), "a", true), Answer::Charged(_)));
        assert_eq!(bank.charge(&payment("b"), "b", true), Answer::Never);
        assert_eq!(account(&bank, "b"), (1, 1));
        assert!(matches!(bank.charge(&payment("b"), "b", false), Answer::Charged(_)));
        assert_eq!(account(&bank, "b"), (2, 1));
        assert_eq!(bank.second.borrow().trapped, 1);
    }
}
