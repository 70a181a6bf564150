//! The guard in a DynamoDB table.
//!
//! Owns one table's item calls: each method is one conditional write and reads the verdict from that write's own
//! answer. Relies on `guard/claim.rs` and `guard/change.rs` for what a write requires and makes; `expressions` says it
//! in DynamoDB's words, `record` in its types, `errors` hears its refusals. Must never read before it writes, and never
//! let an SDK type out.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_sdk_dynamodb::{
    Client,
    config::retry::RetryConfig,
    error::SdkError,
    operation::{put_item::PutItemError, update_item::UpdateItemError},
    types::{
        KeyType, MultiRegionConsistency, ReturnConsumedCapacity, ReturnValue, ReturnValuesOnConditionCheckFailure,
        ScalarAttributeType, TableDescription, TimeToLiveStatus,
    },
};
use tokio::sync::Semaphore;

use super::{
    Amend, Change, Claim, Claimed, Commit, Committed, Control, ControlKey, Guard, GuardError, Pk, Record, Replication,
    TableFacts, TableKey, TakeOver, Written,
};
use crate::clock::Clock;
use errors::{Answer, meaning, stood_in_the_way};
use expressions::{CLAIMABLE, Expressions, Update};
use record::{Item, number, text};

pub(crate) mod control;
mod errors;
mod expressions;
pub(crate) mod record;
mod table;
mod transaction;
pub mod unique;
mod values;

pub use table::create_table;

/// How long one call may take, the SDK's own retries included: a verdict must come well inside any lease, and the
/// shortest that makes sense is several times this.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// So many writes are sent at once; more wait for their turn, within their time. Each has a connection of its own, and a
/// thousand handlers that end together would open a thousand, and shake hands on each. At DynamoDB's usual 5 ms these are
/// 40,000 writes a second.
const AT_ONCE: usize = 200;

/// The key that [`Guard::probe`] writes. A record's key begins with its namespace or operation, in which `#` is
/// escaped.
const PROBE_KEY: &str = "#probe";

/// What keys of items begin with that are no records: a probe's, and those of controls.
const RESERVED: char = '#';

/// How long DynamoDB keeps the item of a probe.
const PROBE_TTL: Duration = Duration::from_secs(60 * 60);

/// A DynamoDB table as a guard. Clones share the client.
///
/// Needs `dynamodb:PutItem`, `UpdateItem` and `GetItem` on the table, and for [`Guard::facts`] `DescribeTable` and
/// `DescribeTimeToLive`. [`Guard::confirm_with`] needs nothing more of it, and of the tables that it writes to the right of
/// each of its writes: `PutItem`, `UpdateItem`, `DeleteItem`, `ConditionCheckItem`.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html>
#[derive(Debug, Clone)]
pub struct DynamoDbGuard {
    client: Client,
    table: String,
    clock: Clock,
    turns: Arc<Semaphore>,
}

impl DynamoDbGuard {
    /// On a table with the string key `pk` and TTL on `expires_at`, as [`create_table`] makes it.
    #[must_use]
    pub fn new(client: Client, table: String) -> Self {
        Self { client, table, clock: Clock::system(), turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// With another wall clock. Only [`Guard::probe`] reads it: all other times come with the writes.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// All records of the table, strongly consistent, in no order. Reads the whole table: for demonstrations and tools.
    ///
    /// # Errors
    /// The table cannot be read, or holds a record of another version.
    pub async fn records(&self) -> Result<Vec<Record>, GuardError> {
        let mut records = Vec::new();
        let mut from = None;
        loop {
            let scan = self.client.scan().table_name(&self.table).consistent_read(true).set_exclusive_start_key(from);
            let page = within_timeout(scan.send()).await.map_err(meaning)?;
            for item in page.items.unwrap_or_default() {
                let pk = item.get("pk").and_then(|pk| pk.as_s().ok());
                if !pk.is_some_and(|pk| pk.starts_with(RESERVED)) {
                    records.push(record::from_item(item)?);
                }
            }
            from = page.last_evaluated_key.filter(|key| !key.is_empty());
            if from.is_none() {
                return Ok(records);
            }
        }
    }

    /// The same, but that each call is sent once. A client that sends it again hears of the last time alone.
    fn sending_once(&self) -> Self {
        let config = self.client.config().to_builder().retry_config(RetryConfig::disabled());
        Self { client: Client::from_conf(config.build()), ..self.clone() }
    }

    /// Waits for a turn, and bounds the wait and the call as one. The call is made only then: it takes ten kilobytes, and
    /// those that wait can be many.
    async fn in_turn<T, E, F>(&self, call: impl FnOnce() -> F + Send) -> Result<T, SdkError<E>>
    where
        F: Future<Output = Result<T, SdkError<E>>> + Send,
    {
        within_timeout(async {
            // Nobody closes the line, so that a turn always comes.
            let _turn = self.turns.acquire().await;
            Box::pin(call()).await
        })
        .await
    }

    /// Sends a `PutItem` under a condition; `Err` holds the record that stood in its way.
    async fn put(&self, pk: &str, item: Item, mut when: Expressions) -> Result<Answer<()>, GuardError> {
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item.into_iter().collect()))
            .set_expression_attribute_values(when.values())
            .condition_expression(when.condition)
            .set_expression_attribute_names(Some(when.names))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match self.in_turn(|| put.send()).await {
            Ok(_) => Ok(Ok(())),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(refusal)) => stood_in_the_way(pk, refusal),
                _ => Err(meaning(error)),
            },
        }
    }

    /// Sends an `UpdateItem` under a condition and brings the record as it then is, if `back` asks for it; `Err` holds
    /// the record that stood in its way.
    async fn update(&self, pk: &Pk, mut update: Update, back: ReturnValue) -> Result<Answer<Item>, GuardError> {
        let call = self
            .client
            .update_item()
            .table_name(&self.table)
            .key("pk", text(&pk.0))
            .update_expression(update.expression())
            .set_expression_attribute_values(update.when.values())
            .condition_expression(update.when.condition)
            .set_expression_attribute_names(Some(update.when.names))
            .return_values(back)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match self.in_turn(|| call.send()).await {
            Ok(output) => Ok(Ok(output.attributes.unwrap_or_default().into_iter().collect())),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(refusal)) => stood_in_the_way(&pk.0, refusal),
                _ => Err(meaning(error)),
            },
        }
    }
}

#[async_trait]
impl Guard for DynamoDbGuard {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, GuardError> {
        let record = claim.record();
        let when = Expressions::when(CLAIMABLE)
            // Rounded down, where `Millis::seconds` rounds up: a record must not count as expired before it is.
            .with(":now_s", number(claim.now.0 / 1000))
            .with(":fence", number(record.fence.0));
        match self.put(&claim.pk.0, record::to_item(&record), when).await? {
            Ok(()) => Ok(Claimed::Mine(Box::new(record))),
            Err(found) => Ok(claim.answer(found)),
        }
    }

    async fn take_over(&self, take_over: &TakeOver) -> Result<Claimed, GuardError> {
        take_over.check()?;
        // All of the new record comes back: its steps may have grown since it was seen.
        match self.update(&take_over.claim.pk, Update::take_over(take_over), ReturnValue::AllNew).await? {
            Ok(item) => Ok(Claimed::Mine(Box::new(record::from_item(item)?))),
            Err(found) => Ok(take_over.claim.answer(found)),
        }
    }

    async fn write(&self, pk: &Pk, change: &Change) -> Result<Written, GuardError> {
        change.check()?;
        match self.update(pk, Update::change(change), ReturnValue::None).await? {
            Ok(_) => Ok(Written::Applied),
            Err(found) => Ok(change.answer(found)),
        }
    }

    async fn confirm_with(&self, commit: &Commit) -> Result<Committed, GuardError> {
        self.transact(commit).await
    }

    async fn amend(&self, amend: &Amend) -> Result<Written, GuardError> {
        amend.check()?;
        let (pk, sender) = (&amend.record.pk, self.sending_once());
        let answer = match amend.seen.as_deref() {
            Some(seen) => sender.update(pk, Update::amend(amend, seen), ReturnValue::None).await?.map(drop),
            None => {
                let none = Expressions::when("attribute_not_exists(#pk)");
                sender.put(&pk.0, record::to_item(&amend.record), none).await?
            }
        };
        match answer {
            Ok(()) => Ok(Written::Applied),
            Err(found) => Ok(amend.answer(found)),
        }
    }

    async fn read(&self, pk: &Pk) -> Result<Option<Record>, GuardError> {
        let get = self.client.get_item().table_name(&self.table).key("pk", text(&pk.0)).consistent_read(true);
        let output = within_timeout(get.send()).await.map_err(meaning)?;
        output.item.map(record::from_item).transpose()
    }

    async fn probe(&self) -> Result<(), GuardError> {
        let expires_at = (self.clock.wall() + PROBE_TTL).seconds();
        let item = Item::from([("pk".to_owned(), text(PROBE_KEY)), ("expires_at".to_owned(), number(expires_at.0))]);
        // What counts is that the table could tell; it does hold, for nothing that has a version lives under this key.
        self.put(PROBE_KEY, item, Expressions::when("attribute_not_exists(#v)")).await.map(drop)
    }

    async fn control(&self, key: &ControlKey) -> Result<Control, GuardError> {
        // Eventually consistent, at half the price: it is read all the time, and what is missed now is read next time.
        let get = self.client.get_item().table_name(&self.table).key("pk", text(&key.pk().0));
        match within_timeout(get.send()).await.map_err(meaning)?.item {
            Some(item) => control::from_item(key, item.into_iter().collect()),
            None => Ok(Control::default()),
        }
    }

    async fn set_control(&self, key: &ControlKey, control: &Control) -> Result<(), GuardError> {
        control.check()?;
        let (pk, ours) = (&key.pk().0, super::control::VERSION);
        let when = Expressions::when("attribute_not_exists(#v) OR #v = :ours").with(":ours", number(ours));
        match self.put(pk, control::to_item(key, control), when).await? {
            Ok(()) => Ok(()),
            Err(_) => Err(GuardError::Foreign(format!("{pk}: another version, this one writes {ours}"))),
        }
    }

    async fn facts(&self) -> Result<TableFacts, GuardError> {
        let describe = self.client.describe_table().table_name(&self.table);
        let described = within_timeout(describe.send()).await.map_err(meaning)?;
        let table = described.table().ok_or(GuardError::Missing)?;
        let ttl = self.ttl_attribute().await.map_err(|error| errors::told(&error));
        let arn = table.table_arn().unwrap_or_default().to_owned();
        Ok(TableFacts { arn, key: key_of(table), ttl, replication: replication_of(table) })
    }
}

impl DynamoDbGuard {
    /// The attribute that TTL reads, if it is on or being switched on, which takes DynamoDB up to an hour.
    async fn ttl_attribute(&self) -> Result<Option<String>, GuardError> {
        let describe = self.client.describe_time_to_live().table_name(&self.table);
        let ttl = within_timeout(describe.send()).await.map_err(meaning)?.time_to_live_description;
        Ok(ttl
            .filter(|ttl| {
                matches!(ttl.time_to_live_status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling))
            })
            .and_then(|ttl| ttl.attribute_name))
    }
}

fn key_of(table: &TableDescription) -> TableKey {
    let name_of = |role: &KeyType| {
        table.key_schema().iter().find(|part| part.key_type() == role).map(|part| part.attribute_name().to_owned())
    };
    let hash = name_of(&KeyType::Hash).unwrap_or_default();
    let is_string = table
        .attribute_definitions()
        .iter()
        .any(|one| one.attribute_name() == hash && *one.attribute_type() == ScalarAttributeType::S);
    TableKey { hash, is_string, range: name_of(&KeyType::Range) }
}

fn replication_of(table: &TableDescription) -> Replication {
    let regions: Vec<_> = table.replicas().iter().filter_map(|one| one.region_name().map(str::to_owned)).collect();
    match table.multi_region_consistency() {
        _ if regions.is_empty() => Replication::Alone,
        Some(MultiRegionConsistency::Strong) => Replication::Strong(regions),
        _ => Replication::Eventual(regions),
    }
}

/// Bounds a call. What was sent is not undone when time runs out, so the outcome is then unknown.
async fn within_timeout<T, E>(call: impl Future<Output = Result<T, SdkError<E>>> + Send) -> Result<T, SdkError<E>> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(answer) => answer,
        Err(late) => Err(SdkError::timeout_error(late)),
    }
}

#[cfg(test)]
mod tests;
