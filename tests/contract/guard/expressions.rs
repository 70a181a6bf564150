//! What only DynamoDB itself can do, wherever it is: update expressions in a commit, and items that are put once.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy takes for production code here")]

use leasehold::{
    clock::{Clock, Millis, Seconds},
    guard::{Change, Claim, Claimed, Commit, Committed, GuardError, Item, ItemWrite, Owner, Pk, Source, Status, Value},
    unique::{Inserted, TOKEN, put_new},
};

use super::{dynamodb::DynamoDbFixture, suite::GuardFixture};

macro_rules! expressions_contract {
    ($adapter:ident, $fixture:expr) => {
        expressions_contract!(
            @tests $adapter, $fixture,
            g12_an_update_is_committed_by_its_expressions,
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

pub(crate) async fn g12_an_update_is_committed_by_its_expressions<B: Send + Sync>(fixture: DynamoDbFixture<B>) {
    let (guard, table) = (fixture.guard(), fixture.business_table().await);
    let claim = |key: &str| Claim {
        pk: Pk(key.to_owned()),
        owner: Owner("me".into()),
        now: NOW,
        lease_until: Millis(NOW.0 + 30_000),
        fingerprint: None,
        source: Source::default(),
    };
    let commit = |key: &str, seen: &str| {
        let update =
            ItemWrite::update(&table, [("id", "a")], "SET #w = :new").name("#w", "what").value(":new", "later");
        Commit {
            pk: Pk(key.to_owned()),
            confirm: Change::Confirm { owner: Owner("me".into()), now: NOW, expires_at: Seconds(NOW.0 / 1000 + 100) },
            writes: vec![update.when("#w = :seen").value(":seen", seen)],
            token: Clock::system().token(),
        }
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
