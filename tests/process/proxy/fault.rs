//! The faults that the proxy can make, and which calls they strike.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper::{body::Bytes, http::request::Parts};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use crate::bench::SOON;

/// What happens to a call.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// It is not done: this is the answer.
    Refuse(Refusal),
    /// It is not done if the credentials that sign it [have expired](crate::credentials::have_expired).
    RefuseExpired,
    /// These entries of a batch are refused; the others are done. A call that is no batch is refused.
    RefuseEntries(Entries),
    /// It is not done, and the connection breaks.
    LoseRequest,
    /// It is not done, and never answered; the connection stands.
    Hang,
    /// It is done after this time.
    DelayRequest(Duration),
    /// It is done when the test lets it go.
    HoldRequest(Hold),
    /// It is done when the test lets it go, and with the [newest handle](super::Proxy::handles): AWS may take an old one
    /// so on a standard queue, where the engine refuses it.
    HoldOldHandle(Hold),
    /// It is done, and the connection breaks before its reply.
    LoseReply,
    /// It is done, and the connection breaks in the middle of its reply.
    CutReply,
    /// It is done, and never answered; the connection stands.
    NeverReply,
    /// It is done, and its reply comes after this time.
    DelayReply(Duration),
    /// It is done, and its reply comes when the test lets it go.
    HoldReply(Hold),
}

/// An answer of AWS, or of what stands before it.
#[derive(Clone, Copy)]
pub(crate) struct Refusal {
    pub(super) status: u16,
    /// AWS's name for it; `None` is a page of a gateway that is no JSON.
    pub(super) code: Option<&'static str>,
}

impl Refusal {
    pub(crate) const THROTTLED: Self = Self::aws(400, "ThrottlingException");
    pub(crate) const INTERNAL: Self = Self::aws(500, "InternalServerError");
    pub(crate) const DENIED: Self = Self::aws(400, "AccessDeniedException");
    pub(crate) const EXPIRED: Self = Self::aws(400, "ExpiredTokenException");
    pub(crate) const UNAVAILABLE: Self = Self { status: 503, code: None };

    pub(crate) const fn aws(status: u16, code: &'static str) -> Self {
        Self { status, code: Some(code) }
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.code.unwrap_or("without a word"))
    }
}

/// Entries of a batch that are refused.
#[derive(Clone, Copy)]
pub(crate) struct Entries {
    /// Which, counted from 0.
    pub(crate) which: fn(usize) -> bool,
    pub(crate) code: &'static str,
    pub(crate) sender_fault: bool,
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the {}", self.code, if self.sender_fault { "sender" } else { "service" })
    }
}

impl Entries {
    /// The first, for a reason that will pass.
    pub(crate) const FIRST: Self = Self { which: |entry| entry == 0, code: "InternalError", sender_fault: false };

    /// What is said of a call that is no batch.
    pub(super) fn alone(&self) -> Refusal {
        Refusal::aws(if self.sender_fault { 400 } else { 500 }, self.code)
    }

    /// The batch without these entries, `None` if none is left; and their answers. `None` if it is no batch.
    pub(super) fn taken_from(&self, batch: &Bytes) -> Option<(Option<Bytes>, Vec<Value>)> {
        let mut batch: Value = serde_json::from_slice(batch).expect("JSON");
        let entries = std::mem::take(batch["Entries"].as_array_mut()?);
        let (refused, rest): (Vec<_>, Vec<_>) =
            entries.into_iter().enumerate().partition(|(position, _)| (self.which)(*position));
        batch["Entries"] = rest.into_iter().map(|(_, entry)| entry).collect();
        let is_empty = batch["Entries"].as_array().is_some_and(Vec::is_empty);
        let (code, sender_fault) = (self.code, self.sender_fault);
        let answer =
            |entry: &Value| json!({"Id": entry["Id"], "Code": code, "Message": code, "SenderFault": sender_fault});
        let refused = refused.iter().map(|(_, entry)| answer(entry)).collect();
        Some(((!is_empty).then(|| batch.to_string().into()), refused))
    }
}

/// Where calls wait until the test lets them go. Clones are the same.
#[derive(Clone)]
pub(crate) struct Hold {
    reached: Arc<Semaphore>,
    released: watch::Sender<bool>,
}

impl Hold {
    pub(crate) fn new() -> Self {
        Self { reached: Arc::new(Semaphore::new(0)), released: watch::channel(false).0 }
    }

    /// Waits until that many calls are, or were, held.
    pub(crate) async fn holds(&self, calls: u32) {
        let held = tokio::time::timeout(SOON, self.reached.acquire_many(calls)).await;
        held.expect("is reached soon").expect("not closed").forget();
    }

    /// Lets go what is held, and what comes later.
    pub(crate) fn release(&self) {
        self.released.send_replace(true);
    }

    /// A call is here.
    pub(super) async fn reached(&self) {
        self.reached.add_permits(1);
        // The sender is in `self`, and does not go away meanwhile.
        let _ = self.released.subscribe().wait_for(|released| *released).await;
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold")
    }
}

/// Turns faults on and off. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Switch(Arc<AtomicBool>);

impl Switch {
    pub(crate) fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a call asks for.
#[derive(Debug)]
pub(super) struct Target {
    service: String,
    pub(super) operation: String,
    pub(super) is_sqs: bool,
}

impl Target {
    pub(super) fn of(head: &Parts) -> Self {
        let target = head.headers.get("x-amz-target").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (service, operation) = target.split_once('.').unwrap_or_default();
        let is_sqs = service == "AmazonSQS";
        Self { service: service.to_owned(), operation: operation.to_owned(), is_sqs }
    }
}

/// The faults of one proxy.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Planned>);

/// Whether a fault strikes the n-th of its calls, counted from 1.
type Strikes = Box<dyn Fn(u64) -> bool + Send + Sync>;

struct Planned {
    of: &'static str,
    fault: Fault,
    strikes: Strikes,
    calls: u64,
    has_struck: bool,
}

impl Faults {
    pub(super) fn plan(&mut self, of: &'static str, fault: Fault, strikes: Strikes) {
        self.0.push(Planned { of, fault, strikes, calls: 0, has_struck: false });
    }

    /// What happens to the next call.
    pub(super) fn strike(&mut self, target: &Target) -> Vec<Fault> {
        let concerns = |of: &str| match of.strip_suffix('*') {
            Some(of) => target.service.starts_with(of) || target.operation.starts_with(of),
            None => target.operation == of,
        };
        let mut striking = Vec::new();
        for planned in self.0.iter_mut().filter(|planned| concerns(planned.of)) {
            planned.calls += 1;
            if (planned.strikes)(planned.calls) {
                planned.has_struck = true;
                striking.push(planned.fault.clone());
            }
        }
        striking
    }

    pub(super) fn idle(&self) -> Vec<String> {
        let idle = self.0.iter().filter(|planned| !planned.has_struck);
        idle.map(|planned| format!("{planned:?}")).collect()
    }
}

impl fmt::Debug for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}, after {} calls", self.of, self.fault, self.calls)
    }
}
