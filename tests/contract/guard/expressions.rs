//! What only DynamoDB itself can do, wherever it is: update expressions in a commit, and items that are put once.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy takes for production code here")]

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold::{
    Handler, HandlerResult, JobContext, Raw, StopReport,
    clock::{Clock, Millis, Seconds},
    guard::{Change, Claim, Claimed, Commit, Committed, GuardError, Item, ItemWrite, Owner, Pk, Source, Status, Value},
    testing::{Failure, Fault, Faults, FaultyGuard, TestBed},
    unique::{Inserted, TOKEN, put_new},
};

use super::{dynamodb::DynamoDbFixture, suite::GuardFixture};

macro_rules! expressions_contract {
    ($adapter:ident, $fixture:expr) => {
        expressions_contract!(
            @tests $adapter, $fixture,
            g12_an_update_is_committed_by_its_expressions,
            g12_increments_of_a_worker_are_made_once_though_replies_are_lost,
            g12_a_table_that_is_missing_is_told,
            an_item_is_put_once_and_the_second_finds_it,
            of_many_puts_at_once_one_is_new,
            what_cannot_be_put_says_why,
        );
    };
    (@tests $adapter:ident, $fixture:expr, $($behaviour:ident,)*) => {
        mod $adapter {
            $(
                #[tokio::test]
                async fn $behaviour() {
                    let fixture = $fixture;
                    super::expressions::$behaviour(fixture).await;
                }
            )*
        }
    };
}

const NOW: Millis = Millis(4_000_000_000_000);

fn row(id: &str, what: &str) -> Item {
    Item::from([("id".to_owned(), Value::from(id)), ("what".to_owned(), Value::from(what))])
}

/// Adds five to one balance for each key.
struct Adds {
    table: String,
}

impl Handler for Adds {
    type Payload = Raw;

    async fn handle(&self, _: &Raw, cx: &JobContext) -> HandlerResult {
        let add = ItemWrite::update(&self.table, [("id", "balance")], "ADD cents :five").value(":five", 5);
        let mark = ItemWrite::put(&self.table, [("id", cx.key())]).when("attribute_not_exists(id)");
        cx.confirm_with([add, mark]).await
    }
}

pub(crate) async fn g12_increments_of_a_worker_are_made_once_though_replies_are_lost<B: Send + Sync>(
    fixture: DynamoDbFixture<B>,
) {
    const KEYS: u64 = 8;
    let (bed, table) = (TestBed::new(&["jobs"]), fixture.business_table().await);
    let faults = Faults::default();
    faults.decide_with(|call| {
        let lost = call.operation == "confirm_with" && call.number.is_multiple_of(3);
        lost.then_some(Fault::ApplyThenFail(Failure::Unavailable))
    });
    let mut reports = [StopReport::default(); 2];
    for report in &mut reports {
        for number in 0..KEYS {
            bed.send("jobs", format!(r#"{{"id":"{number}"}}"#));
        }
        let guard = FaultyGuard::new(Arc::new(fixture.guard_in_dynamodb()), faults.clone());
        // Another one each time: a service that lives longer than a test remembers the tokens of commits for ten minutes.
        let clock = bed.broker.clock().skewed(fastrand::u64(..), 0);
        let vars = [("LEASEHOLD_QUEUES", "jobs"), ("LEASEHOLD_KEY", "/id"), ("LEASEHOLD_WAIT_TIME", "1s")];
        let worker = bed
            .worker_with(&vars, clock)
            .adapters(Arc::new(bed.broker.clone()), Arc::new(guard))
            .queue("jobs", Adds { table: table.clone() });
        *report = worker.run(bed.until_idle()).await.unwrap();
    }
    assert_eq!((reports[0].done, reports[1].suppressed), (KEYS, KEYS), "{reports:?}");
    let key = AttributeValue::S("balance".into());
    let get = fixture.client().get_item().table_name(&table).key("id", key).consistent_read(true);
    let balance = get.send().await.unwrap().item.unwrap();
    assert_eq!(balance["cents"].as_n().unwrap(), &(5 * KEYS).to_string());
}

pub(crate) async fn g12_a_table_that_is_missing_is_told<B: Send + Sync>(fixture: DynamoDbFixture<B>) {
    let guard = fixture.guard();
    assert!(matches!(guard.claim(&claim("one")).await, Ok(Claimed::Mine(_))));
    let writes = vec![ItemWrite::put("no-such-table", [("id", "a")])];
    let answer = guard.confirm_with(&commit("one", writes)).await;
    assert!(matches!(answer, Err(GuardError::Missing)), "{answer:?}");
    assert_eq!(guard.read(&Pk("one".into())).await.unwrap().unwrap().status, Status::Running);
}

fn claim(key: &str) -> Claim {
    Claim {
        pk: Pk(key.to_owned()),
        owner: Owner("me".into()),
        now: NOW,
        lease_until: Millis(NOW.0 + 30_000),
        fingerprint: None,
        source: Source::default(),
    }
}

fn commit(key: &str, writes: Vec<ItemWrite>) -> Commit {
    let confirm = Change::Confirm { owner: Owner("me".into()), now: NOW, expires_at: Seconds(NOW.0 / 1000 + 100) };
    Commit { pk: Pk(key.to_owned()), confirm, writes, token: Clock::system().token() }
}

pub(crate) async fn g12_an_update_is_committed_by_its_expressions<B: Send + Sync>(fixture: DynamoDbFixture<B>) {
    let (guard, table) = (fixture.guard(), fixture.business_table().await);
    let commit = |key: &str, seen: &str| {
        let update =
            ItemWrite::update(&table, [("id", "a")], "SET #w = :new").name("#w", "what").value(":new", "later");
        commit(key, vec![update.when("#w = :seen").value(":seen", seen)])
    };
    for key in ["one", "two"] {
        assert!(matches!(guard.claim(&claim(key)).await, Ok(Claimed::Mine(_))));
    }
    fixture.put_item(&table, row("a", "first")).await;
    assert_eq!(guard.confirm_with(&commit("one", "first")).await.unwrap(), Committed::Applied);
    assert_eq!(fixture.item(&table, "a").await, Some(row("a", "later")));
    let refused = guard.confirm_with(&commit("two", "first")).await.unwrap();
    assert_eq!(refused, Committed::Condition { index: 0, item: Some(row("a", "later")) });
    assert_eq!(guard.read(&Pk("two".into())).await.unwrap().unwrap().status, Status::Running);
}

pub(crate) async fn an_item_is_put_once_and_the_second_finds_it<B: Send + Sync>(fixture: DynamoDbFixture<B>) {
    let (client, table) = (fixture.client(), fixture.business_table().await);
    assert_eq!(put_new(client, &table, "id", row("a", "first")).await.unwrap(), Inserted::New);
    let second = put_new(client, &table, "id", row("a", "second")).await.unwrap();
    assert_eq!(second, Inserted::ThereAlready(row("a", "first")));
    let mut stored = fixture.item(&table, "a").await.unwrap();
    assert!(stored.remove(TOKEN).is_some(), "by which a repeated put is recognised");
    assert_eq!(stored, row("a", "first"));
    // One that was put by something else has no token.
    fixture.put_item(&table, row("b", "by hand")).await;
    let there = put_new(client, &table, "id", row("b", "second")).await.unwrap();
    assert_eq!(there, Inserted::ThereAlready(row("b", "by hand")));
}

pub(crate) async fn of_many_puts_at_once_one_is_new<B: Send + Sync>(fixture: DynamoDbFixture<B>) {
    let (client, table) = (fixture.client(), fixture.business_table().await);
    let puts = (0..16).map(|n| put_new(client, &table, "id", row("a", &n.to_string())));
    let answers = futures_util::future::join_all(puts).await;
    let new = answers.iter().filter(|answer| matches!(answer, Ok(Inserted::New))).count();
    assert!(new == 1 && answers.iter().all(Result::is_ok), "{answers:?}");
}

pub(crate) async fn what_cannot_be_put_says_why<B: Send + Sync>(fixture: DynamoDbFixture<B>) {
    let (client, table) = (fixture.client(), fixture.business_table().await);
    let keyless = put_new(client, &table, "order_id", row("a", "x")).await;
    assert!(matches!(&keyless, Err(GuardError::Refused(what)) if what.contains("order_id")), "{keyless:?}");
    let missing = put_new(client, "no-such-table", "id", row("a", "x")).await;
    assert!(matches!(missing, Err(GuardError::Missing)), "{missing:?}");
    let large = put_new(client, &table, "id", row("a", &"x".repeat(410 * 1024))).await;
    assert!(matches!(large, Err(GuardError::TooLarge)), "{large:?}");
}
