//! `leasehold demo`: the promise, shown and measured, with nothing else installed.
//!
//! SQS and DynamoDB are embedded in this process; a stream of payments goes through the real worker, and with `--crash`
//! a second worker process is killed in mid-work. What is told at the end is counted in the table, the dead-letter queue,
//! the bank's books and the engine's requests. Here is the course of it; must never be taken for a benchmark of AWS.

use std::{collections::BTreeMap, convert::Infallible, future::pending, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context;
use futures_util::future::try_join_all;
use leasehold::{
    Health, Message, Shutdown,
    aws::{self, Aws},
    config::HttpAddr,
    embedded::Engine,
    guard::dynamodb::{DynamoDbGuard, create_table},
    queue::{BATCH, Broker, Outgoing, Queue, QueueAddress, Receive},
};
use tokio::{
    signal::ctrl_c,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::exit;

use bank::Counter;
use second::{SecondWorker, kill_in_mid_work};
use show::Show;
use stream::{Plan, Planned};
use summary::{Found, Summary};
use work::{DEAD_LETTERS, MAX_RECEIVE_COUNT, Place, QUEUE, TABLE};

mod args;
mod bank;
mod second;
mod show;
mod stream;
mod summary;
mod work;

pub(crate) use args::Args;

/// How often the queue is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Nothing has moved for so long: what is left is told, and not waited for. Longer than anything that the settings allow:
/// a killed worker's leases, a slow payment, two back-offs.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the second worker may take to its first charge, before the first one begins without it.
const HEAD_START: Duration = Duration::from_secs(30);

/// Messages of an endless stream: so many at once, and then a pause, which gives fifty a second.
const PORTION: (u32, Duration) = (100, Duration::from_secs(2));

/// The streams of two runs are the same.
const SEED: u64 = 20;

/// Runs the demonstration; exit code 1 if anything was lost or took effect twice.
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    show::log(args.verbose);
    if let Some(place) = &args.second_worker {
        place.work_as_second().await?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Err(problem) = args.check() {
        show::usage(&problem);
        return Ok(exit::USAGE.into());
    }
    let show = Show::new(args.json, args.verbose > 0);
    show.opening(&args)?;
    let summary = Summary::of(Stage::set(&args).await?.play(&args, &show).await?);
    show.closing(&args, &summary)?;
    Ok(if summary.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the demonstration takes place on.
struct Stage {
    engine: Engine,
    counter: Counter,
    /// For what the demonstration itself sends and looks at; its requests are not the workers'.
    aws: Aws,
    queue: Arc<dyn Queue>,
    place: Place,
}

/// What was sent so far.
#[derive(Default)]
struct Sent {
    messages: u64,
    /// Whose body is whose.
    payments: BTreeMap<String, String>,
}

impl Sent {
    fn add(&mut self, message: &Planned) {
        self.messages += 1;
        self.payments.insert(message.body.clone(), message.payment_id.clone());
    }
}

/// What people ask for with Ctrl-C.
#[derive(Default)]
struct Wishes {
    /// Once: send nothing more, and work off what was sent.
    enough: CancellationToken,
    /// Twice: do not wait for that either.
    now: CancellationToken,
}

impl Stage {
    async fn set(args: &Args) -> anyhow::Result<Self> {
        let engine = Engine::start().await?;
        engine.create_queue(DEAD_LETTERS, None).await?;
        engine.create_queue(QUEUE, Some((DEAD_LETTERS, MAX_RECEIVE_COUNT))).await?;
        let aws = Aws::new(&aws::local(engine.endpoint()));
        create_table(&aws.dynamodb(), TABLE).await?;
        let queue = aws.sqs().open(&QueueAddress::Name(QUEUE.to_owned())).await?;
        let counter = Counter::open(args.terms()).await.context("the bank could not open on a loopback port")?;
        let place = Place { endpoint: engine.endpoint().to_owned(), bank: counter.address, worker: "first".to_owned() };
        Ok(Self { engine, counter, aws, queue, place })
    }

    /// The whole course, from the first message to the last look.
    async fn play(self, args: &Args, show: &Show) -> anyhow::Result<Found> {
        let (wishes, shutdown, mut sent) = (Wishes::default(), Shutdown::new(), Sent::default());
        let mut second = args.crash.then(|| SecondWorker::start(&self.place, args.verbose)).transpose()?;
        let worker = self.place.worker();
        let worker = if args.endless { worker.health_at(HttpAddr::DEFAULT) } else { worker };
        let health = worker.health();
        let working = async {
            if args.crash {
                // Without it the first worker could have done everything before the second has begun.
                let _ = timeout(HEAD_START, self.counter.bank.second(|second| second.charges > 0)).await;
            }
            Ok(worker.run(shutdown.clone()).await?)
        };
        let course = async {
            let begun = Instant::now();
            let all_sent = CancellationToken::new();
            let sending = async {
                self.send(args, &wishes, show, &mut sent).await?;
                all_sent.cancel();
                Ok(())
            };
            tokio::try_join!(sending, self.until_settled(&wishes, show, &all_sent))?;
            let took = begun.elapsed();
            if wishes.now.is_cancelled() {
                shutdown.now();
            } else {
                shutdown.drain();
            }
            anyhow::Ok(took)
        };
        let (_, took) = tokio::select! {
            // The first three arms only listen, and never end well.
            biased;
            never = wishes.listen(show) => match never {},
            never = self.tell_page(&health, show), if args.endless => match never {},
            never = kill_in_mid_work(&mut second, &self.counter.bank, show) => match never? {},
            ended = async { tokio::try_join!(working, course) } => ended?,
        };
        self.find(args, show, second, sent, took).await
    }

    /// Tells where the first worker shows how it is, once it does, and what its commands want to be run with. Never ends.
    async fn tell_page(&self, health: &Health, show: &Show) -> Infallible {
        let address = loop {
            match health.address() {
                Some(address) => break address,
                None => sleep(LOOK).await,
            }
        };
        show.page(address, &self.place);
        pending().await
    }

    /// Sends the stream: all of it, or on and on, until somebody has seen enough.
    async fn send(&self, args: &Args, wishes: &Wishes, show: &Show, sent: &mut Sent) -> anyhow::Result<()> {
        let mut chance = fastrand::Rng::with_seed(SEED);
        let (portion, pause) = if args.endless { PORTION } else { (args.messages, Duration::ZERO) };
        let mut first = 1;
        loop {
            let plan = Plan::new(args.mix(), portion, first, &mut chance);
            first += plan.payments;
            for messages in plan.messages.chunks(BATCH) {
                if wishes.enough.is_cancelled() {
                    return Ok(());
                }
                let sending = messages.iter().map(async |message| {
                    self.queue.send(&Outgoing { body: message.body.clone(), ..Outgoing::default() }).await
                });
                try_join_all(sending).await?;
                messages.iter().for_each(|message| sent.add(message));
                show.sent(if args.endless { sent.messages } else { args.messages.into() });
            }
            if !args.endless || timeout(pause, wishes.enough.cancelled()).await.is_ok() {
                return Ok(());
            }
        }
    }

    /// Waits until everything that was sent has left the queue, or nothing has moved for too long.
    async fn until_settled(&self, wishes: &Wishes, show: &Show, all_sent: &CancellationToken) -> anyhow::Result<()> {
        let (mut least, mut since) = (u64::MAX, Instant::now());
        while !wishes.now.is_cancelled() {
            // Asked first: what is sent after the look is not in it.
            let all_sent = all_sent.is_cancelled();
            let left = self.engine.depth(QUEUE).await?.total();
            let dead = self.engine.depth(DEAD_LETTERS).await?.total();
            show.progress(left, dead, &self.counter.bank);
            if left == 0 && all_sent {
                return Ok(());
            }
            if left < least || !all_sent {
                (least, since) = (left, Instant::now());
            } else if since.elapsed() > PATIENCE {
                show.event(&format!("nothing has moved for {PATIENCE:?}: {left} messages are left"));
                return Ok(());
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Counts what came of it, when no worker is left.
    async fn find(
        self,
        args: &Args,
        show: &Show,
        second: Option<SecondWorker>,
        sent: Sent,
        took: Duration,
    ) -> anyhow::Result<Found> {
        let bank = Arc::clone(&self.counter.bank);
        drop(self.counter); // Lets go of the second worker, if it still is.
        let killed = match second {
            Some(second) => second.ended(show).await?,
            None => false,
        };
        let found = Found {
            sent: sent.messages,
            payments: sent.payments,
            records: DynamoDbGuard::new(self.aws.dynamodb(), TABLE.to_owned()).records().await?,
            dead_letters: dead_letters(&self.aws).await?,
            left: self.engine.depth(QUEUE).await?.total(),
            accounts: bank.accounts(),
            beats: bank.beats(),
            api_calls: calls_of_workers(&self.engine, &self.aws),
            seconds: took.as_secs_f64(),
            naive_bank: args.naive_bank,
            killed,
        };
        self.engine.stop().await;
        show.ended();
        Ok(found)
    }
}

impl Wishes {
    /// Never ends.
    async fn listen(&self, show: &Show) -> Infallible {
        let told = [
            "Ctrl-C: nothing more is sent; what was sent is worked off (again: do not wait for it)",
            "Ctrl-C: the worker stops now",
        ];
        for (wish, told) in [&self.enough, &self.now].into_iter().zip(told) {
            if ctrl_c().await.is_err() {
                break;
            }
            wish.cancel();
            show.event(told);
        }
        pending().await
    }
}

/// Requests that the engine has counted, less the demonstration's own.
fn calls_of_workers(engine: &Engine, own: &Aws) -> BTreeMap<String, u64> {
    let mut calls = engine.calls();
    for (operation, own) in own.calls() {
        if let Some(calls) = calls.get_mut(&operation) {
            *calls = calls.saturating_sub(own);
        }
    }
    calls.retain(|_, calls| *calls > 0);
    calls
}

/// Everything that is in the dead-letter queue. Hides it from others, of whom there are none.
async fn dead_letters(aws: &Aws) -> anyhow::Result<Vec<Message>> {
    let queue = aws.sqs().open(&QueueAddress::Name(DEAD_LETTERS.to_owned())).await?;
    let ask = Receive { max: BATCH, wait: Duration::ZERO, visibility: Duration::from_secs(60 * 60), attempt_id: None };
    let mut messages = Vec::new();
    loop {
        let received = queue.receive(&ask).await?;
        if received.is_empty() {
            return Ok(messages);
        }
        messages.extend(received.into_iter().map(|received| received.message));
    }
}
