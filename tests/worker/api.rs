//! The API as its users meet it: every shape of handler, step and error that should compile does, and does what it says.
//!
//! What must not compile is in `tests/rejected.md`.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::try_join_all;
use leasehold::{
    DecodeError, Handler, HandlerError, HandlerResult, JobContext, Key, Message, Payload, Raw, ResultExt, Shutdown,
    StepKey, StopReport, Worker, handler, testing::TestBed,
};
use serde::{Deserialize, Serialize};
use tokio::{
    task::{JoinSet, yield_now},
    time::sleep,
};

#[derive(Debug, Clone, Deserialize)]
struct Order {
    shop: String,
    number: u64,
    parcels: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Invitation {
    to: String,
    team: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Label {
    parcel: String,
}

#[derive(Debug, thiserror::Error)]
enum CarrierError {
    #[error("the carrier does not go there")]
    Unreachable,
    #[error("the carrier is busy")]
    Busy,
}

/// The world outside, which counts what it was asked.
#[derive(Debug, Clone, Default)]
struct Carrier(Arc<Mutex<Vec<String>>>);

impl Carrier {
    async fn print(&self, parcel: &str, key: StepKey) -> Result<Label, CarrierError> {
        yield_now().await;
        let mut asked = self.0.lock().unwrap();
        asked.push(key.to_string());
        match parcel {
            "moon" => Err(CarrierError::Unreachable),
            "heavy" if asked.len() < 3 => Err(CarrierError::Busy),
            _ => Ok(Label { parcel: parcel.to_owned() }),
        }
    }

    async fn collect(&self, labels: &[Label], key: &StepKey) -> io::Result<usize> {
        yield_now().await;
        self.0.lock().unwrap().push(key.as_str().to_owned());
        Ok(labels.len())
    }

    fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// A handler with state, whose steps borrow all of it.
#[derive(Debug)]
struct Shipping {
    carrier: Carrier,
}

impl Handler for Shipping {
    type Payload = Order;

    async fn handle(&self, order: &Order, cx: &JobContext) -> HandlerResult {
        let mut labels = Vec::new();
        for parcel in &order.parcels {
            let print = async |key| {
                let printed = self.carrier.print(parcel, key).await;
                printed.permanent_if(|error| matches!(error, CarrierError::Unreachable)).reason("carrier")
            };
            labels.push(cx.step(format!("label-{parcel}"), print).await?);
        }
        let collected = cx.step("collect", |key| async move { self.carrier.collect(&labels, &key).await }).await?;
        if collected != order.parcels.len() {
            return Err(HandlerError::new(format!("{collected} parcels were collected")).permanent());
        }
        Ok(())
    }
}

/// A handler without state, with every form of step.
async fn invite(invitation: &Invitation, cx: &JobContext) -> HandlerResult {
    let domain = invitation.to.split_once('@').ok_or("no @ in the address").permanent().reason("address")?.1;
    let owned = domain.to_owned();

    cx.step("borrowed", |_| async { post(invitation, domain).await }).await?;
    cx.step("references moved", |_| async move { post(invitation, domain).await }).await?;
    cx.step("owned, lent to an async closure", async |_| post(invitation, &owned).await).await?;
    cx.step("owned, moved", move |key| async move { Ok::<_, HandlerError>(owned + key.as_str()) }).await?;
    cx.step("a future as it is", |_| post(invitation, domain)).await?;

    let mut posted = 0;
    cx.step("borrowed mutably", |_| async {
        posted += 1;
        Ok::<_, HandlerError>(())
    })
    .await?;
    for n in 0..2 {
        cx.step(format!("in a loop, {n}"), |_| post(invitation, domain)).await?;
    }
    tokio::try_join!(
        cx.step("beside another", |_| post(invitation, domain)),
        cx.step("beside the other", |_| post(invitation, domain)),
    )?;
    let many = (0..3).map(|n| cx.step(format!("one of many, {n}"), move |_| post(invitation, domain)));
    assert_eq!(try_join_all(many).await?.len(), 3);
    assert_eq!(posted, 1);
    Ok(())
}

async fn post(invitation: &Invitation, domain: &str) -> io::Result<String> {
    yield_now().await;
    if domain == "nowhere" { Err(io::Error::other("no such domain")) } else { Ok(invitation.to.clone()) }
}

/// A user's own type with a codec that is not JSON.
struct Row(Vec<String>);

impl Payload for Row {
    fn decode(message: &Message) -> Result<Self, DecodeError> {
        let row: Vec<_> = message.body.split(',').map(str::to_owned).collect();
        if row.len() == 2 { Ok(Self(row)) } else { Err(DecodeError::new(format!("{} columns", row.len()))) }
    }
}

/// Runs a worker until its queues are empty; in a task, as many do.
async fn run(bed: &TestBed, worker: Worker) -> StopReport {
    let mut task = JoinSet::new();
    task.spawn(worker.run(bed.until_idle()));
    task.join_next().await.unwrap().unwrap().unwrap()
}

/// The reason codes of what a queue has dead-lettered, with how often each is there.
fn reasons(bed: &TestBed, queue: &str) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::new();
    for (_, note) in bed.dead(queue) {
        *reasons.entry(note.unwrap().code).or_default() += 1;
    }
    reasons
}

#[tokio::test(start_paused = true)]
async fn two_kinds_of_payload_share_a_worker() {
    let bed = TestBed::new(&["orders", "invitations"]);
    bed.send("orders", r#"{"shop":"a","number":1,"parcels":["small","heavy"]}"#);
    bed.send("orders", r#"{"shop":"a","number":1,"parcels":["small","heavy"]}"#);
    bed.send("orders", r#"{"shop":"b","number":1,"parcels":["moon"]}"#);
    bed.send("invitations", r#"{"to":"ann@example","team":7}"#);
    bed.send("invitations", r#"{"to":"ann","team":7}"#);
    bed.send("invitations", "not JSON");
    let carrier = Carrier::default();
    let worker = bed
        .worker(&[("LEASEHOLD_QUEUES", "orders,invitations")])
        .queue("orders", Shipping { carrier: carrier.clone() }.key(|order| (order.shop.clone(), order.number)))
        .queue("invitations", handler(invite).key(|i| Key::from((i.to.as_str(), i.team))));
    let report = run(&bed, worker).await;
    assert_eq!((report.done, report.suppressed, report.dead), (2, 1, 3));
    assert_eq!(reasons(&bed, "orders"), BTreeMap::from([("carrier".into(), 1)]));
    assert_eq!(reasons(&bed, "invitations"), BTreeMap::from([("address".into(), 1), ("malformed".into(), 1)]));
    let small: Vec<_> = carrier.asked().into_iter().filter(|key| key.ends_with("label-small")).collect();
    assert_eq!(small, ["orders#a#n:1/label-small"], "recorded, it is not asked for again when the next step fails");
}

#[tokio::test(start_paused = true)]
async fn question_mark_takes_every_error() {
    let bed = TestBed::new(&["errors"]);
    for body in ["std", "text", "anyhow", "boxed", "step"] {
        bed.send("errors", body);
    }
    let failing = async |Raw(message): &Raw, cx: &JobContext| {
        match message.body.as_str() {
            "std" => drop("twelve".parse::<u64>()?),
            "text" => Err("just a text")?,
            "anyhow" => Err(anyhow::anyhow!("the cause").context("the context"))?,
            "boxed" => Err(Box::<dyn std::error::Error + Send + Sync>::from("in a box"))?,
            _ => cx.step("failing", async |_| Err::<(), _>(CarrierError::Busy)).await?,
        }
        Ok(())
    };
    let worker = bed
        .worker(&[("LEASEHOLD_QUEUES", "errors"), ("LEASEHOLD_MAX_ATTEMPTS", "1")])
        .queue("errors", handler(failing).key(|Raw(message)| message.body.clone()));
    assert_eq!(run(&bed, worker).await.dead, 5);
    let texts: BTreeMap<_, _> =
        bed.dead("errors").into_iter().map(|(body, note)| (body, note.unwrap().message)).collect();
    let expected = [
        ("std", "invalid digit found in string"),
        ("text", "just a text"),
        ("anyhow", "the context: the cause"),
        ("boxed", "in a box"),
        ("step", "the carrier is busy"),
    ];
    assert_eq!(texts, expected.map(|(body, text)| (body.to_owned(), text.to_owned())).into());
}

#[tokio::test(start_paused = true)]
async fn a_codec_of_ones_own_needs_no_serde() {
    let bed = TestBed::new(&["rows"]);
    bed.send("rows", "ann,7");
    bed.send("rows", "ann");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let rows = {
        let seen = Arc::clone(&seen);
        // A closure may own its state; what it awaits with is cloned out of it.
        handler(move |Row(row): &Row, _: &JobContext| {
            let (seen, name) = (Arc::clone(&seen), row[0].clone());
            async move {
                yield_now().await;
                seen.lock().unwrap().push(name);
                Ok(())
            }
        })
    };
    let worker = bed.worker(&[("LEASEHOLD_QUEUES", "rows"), ("LEASEHOLD_GUARD", "none")]).queue("rows", rows);
    let report = run(&bed, worker).await;
    assert_eq!((report.done, report.dead), (1, 1));
    assert_eq!(*seen.lock().unwrap(), ["ann"]);
    assert_eq!(bed.dead("rows")[0].1.as_ref().unwrap().message, "the body does not decode: 1 columns");
}

#[tokio::test(start_paused = true)]
async fn the_cancellation_can_be_taken_into_a_task() {
    let bed = TestBed::new(&["long"]);
    bed.send("long", "x");
    let causes = Arc::new(Mutex::new(Vec::new()));
    let watching = {
        let causes = Arc::clone(&causes);
        move |_: &Raw, cx: &JobContext| {
            let (cancelled, causes) = (cx.cancelled().clone(), Arc::clone(&causes));
            async move {
                let mut watcher = JoinSet::new();
                watcher.spawn(async move { cancelled.wait().await });
                let cause = watcher.join_next().await.ok_or("no task")??;
                causes.lock().unwrap().push(format!("{cause:?}"));
                Err("it was told to stop")?
            }
        }
    };
    let worker = bed
        .worker(&[("LEASEHOLD_QUEUES", "long"), ("LEASEHOLD_HANDLER_TIMEOUT", "20s")])
        .queue("long", handler(watching).key(|Raw(message)| message.id.clone()));
    let shutdown = Shutdown::when(sleep(Duration::from_secs(30)));
    let report = worker.run(shutdown).await.unwrap();
    assert_eq!(causes.lock().unwrap()[0], "TimedOut");
    assert!(report.failed >= 1, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn wrappers_go_on_each_other_in_any_order() {
    let bed = TestBed::new(&["one", "two"]);
    for queue in ["one", "two"] {
        bed.send(queue, r#"{"to":"ann@example","team":7}"#);
        bed.send(queue, r#"{"to":"ann@example","team":7}"#);
    }
    let worker = bed
        .worker(&[("LEASEHOLD_QUEUES", "one,two")])
        .queue("one", handler(invite).key(|i| Some(i.team)).blocking())
        .queue("two", handler(invite).blocking().key(|i| i.to.clone()));
    let report = run(&bed, worker).await;
    assert_eq!((report.done, report.suppressed), (2, 2));
}
