//! The pages of `examples/jobs` that write to DynamoDB, on the embedded engine: each message is delivered twice at once, its
//! worker is killed at some moment, and then what stands in the tables of the business is counted.

#[path = "../../examples/jobs/balance.rs"]
mod balance;
#[path = "../../examples/jobs/record.rs"]
mod record;
#[path = "../../examples/jobs/tables.rs"]
mod tables;

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold::{
    Handler, Shutdown, Worker,
    aws::{self, Aws},
    embedded::Engine,
    guard::dynamodb::create_table,
    queue::{Broker, Outgoing, QueueAddress},
};
use tokio::time::{interval, timeout};

use crate::{bench::SOON, cases::check_all};

/// Moments at which a worker dies, in milliseconds; a run takes some tens.
const MOMENTS: [u64; 8] = [5, 10, 15, 20, 30, 40, 60, 100];

struct Account {
    engine: Engine,
    sdk: aws_config::SdkConfig,
    dynamodb: aws_sdk_dynamodb::Client,
}

impl Account {
    /// With the message twice in its queue.
    async fn with(message: &str, tables: &[(&str, &str)]) -> Self {
        let engine = Engine::start().await.expect("an engine");
        let sdk = aws::local(engine.endpoint());
        let aws = Aws::new(&sdk);
        engine.create_queue("jobs-dlq", None).await.expect("a queue");
        engine.create_queue("jobs", Some(("jobs-dlq", 100))).await.expect("a queue");
        create_table(&aws.dynamodb(), "leasehold").await.expect("a table");
        for (table, key) in tables {
            tables::make(&aws.dynamodb(), table, key).await.expect("a table");
        }
        let queue = aws.sqs().open(&QueueAddress::Name("jobs".to_owned())).await.expect("a queue");
        for _ in 0..2 {
            queue.send(&Outgoing { body: message.to_owned(), ..Outgoing::default() }).await.expect("is sent");
        }
        Self { engine, sdk, dynamodb: aws.dynamodb() }
    }

    /// One worker dies at that moment, and another ends the work.
    async fn work<H: Handler>(&self, killed: u64, guard: &str, job: impl Fn() -> H) {
        let worker = || {
            let vars = [
                ("LEASEHOLD_QUEUES", "jobs"),
                ("LEASEHOLD_GUARD", guard),
                ("LEASEHOLD_WAIT_TIME", "1s"),
                ("LEASEHOLD_VISIBILITY_TIMEOUT", "2s"),
                ("LEASEHOLD_CLOCK_SKEW", "200ms"),
                ("LEASEHOLD_CANCEL_GRACE", "200ms"),
                ("LEASEHOLD_BACKOFF", "1s..1s"),
            ];
            let vars = vars.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
            Worker::from_vars(vars).aws(&self.sdk).queue("jobs", job())
        };
        drop(timeout(Duration::from_millis(killed), worker().run(Shutdown::new())).await);
        let shutdown = Shutdown::new();
        let watch = async {
            let mut ticks = interval(Duration::from_millis(100));
            while self.engine.depth("jobs").await.expect("a depth").total() > 0 {
                ticks.tick().await;
            }
            shutdown.drain();
        };
        let (report, ()) = timeout(SOON, async { tokio::join!(worker().run(shutdown.clone()), watch) })
            .await
            .expect("it is done soon");
        assert_eq!(report.expect("it starts").dead, 0, "killed after {killed} ms");
    }

    async fn items(&self, table: &str) -> Vec<std::collections::BTreeMap<String, AttributeValue>> {
        let items = self.dynamodb.scan().table_name(table).consistent_read(true).send().await.expect("a scan").items;
        items.unwrap_or_default().into_iter().map(|item| item.into_iter().collect()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_a_grant_is_added_once_whenever_its_worker_dies() {
    check_all(MOMENTS, check_balance).await;
}

async fn check_balance(killed: u64) {
    let account = Account::with(balance::MESSAGE, &balance::TABLES).await;
    account.work(killed, "claim", || balance::Grant.key(balance::key)).await;
    let balances = account.items("balances").await;
    let cents = balances.first().and_then(|item| item.get("cents")).cloned();
    assert_eq!(cents, Some(AttributeValue::N("500".to_owned())), "killed after {killed} ms");
    assert_eq!((balances.len(), account.items("grants").await.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_an_invoice_is_made_once_by_its_own_id_without_a_guard() {
    check_all(MOMENTS, check_record).await;
}

async fn check_record(killed: u64) {
    let account = Account::with(record::MESSAGE, &[record::TABLE]).await;
    account.work(killed, "none", || record::Invoices(account.dynamodb.clone())).await;
    assert_eq!(account.items(record::TABLE.0).await.len(), 1, "killed after {killed} ms");
}
