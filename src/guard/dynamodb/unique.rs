//! A natural unique key: an item that is put only if there is none of its key, without any record of ours.
//!
//! **The first choice where what is made has an id of its own**: an order, a grant, an invoice. The item *is* the record
//! that the work was done, for as long as it lives, and costs one write. Such a handler runs with `GUARD=none`: every
//! delivery runs it, and all but the first find the item there.
//!
//! ```no_run
//! use leasehold::{Handler, HandlerResult, JobContext, guard, unique::{Inserted, put_new}};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Grant {
//!     grant_id: String,
//!     account: String,
//!     cents: u64,
//! }
//!
//! struct Grants {
//!     dynamodb: aws_sdk_dynamodb::Client,
//! }
//!
//! impl Handler for Grants {
//!     type Payload = Grant;
//!
//!     async fn handle(&self, grant: &Grant, _: &JobContext) -> HandlerResult {
//!         match put_new(&self.dynamodb, "grants", "grant_id", guard::item(grant)?).await? {
//!             Inserted::New => tracing::info!(grant.grant_id, "granted"),
//!             Inserted::ThereAlready(_) => tracing::info!(grant.grant_id, "granted before"),
//!         }
//!         Ok(())
//!     }
//! }
//! ```
//!
//! It is enough where the item is all of the effect. What follows from it (a message, a charge) must be done in both
//! cases, for the delivery that inserted may have died right after; where it must happen once too, take a guard and
//! [`confirm_with`](crate::JobContext::confirm_with) or a [step](crate::JobContext::step).
//!
//! To test such a handler, give it a client of the embedded engine (feature `demo`, `leasehold::embedded::Engine`).

use aws_sdk_dynamodb::{Client, operation::put_item::PutItemError, types::ReturnValuesOnConditionCheckFailure};

use super::{
    super::{GuardError, Item, Value},
    errors::meaning,
    values::{attributes, item as item_of},
    within_timeout,
};
use crate::clock::Clock;

/// The attribute that tells a call's own item from another's.
pub const TOKEN: &str = "leasehold_token";

/// Whether an item was put.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "whether it was there already is the answer"]
pub enum Inserted {
    /// There was none: it is there now, by this call.
    New,
    /// There is one, and it stays as it is. This is what it says, [`TOKEN`] left out; nothing, if the table did not send
    /// it back. [`from_item`](super::super::from_item) makes a type of yours of it.
    ThereAlready(Item),
}

/// Puts an item if there is none of its key; `key` is an attribute of the table's primary key. Needs
/// `dynamodb:PutItem`.
///
/// One `PutItem` under `attribute_not_exists`. The item gets an attribute more, [`TOKEN`], by which a put whose reply was
/// lost is recognised: the SDK's own tries, and one more of this call, are one insert.
///
/// # Errors
/// What DynamoDB said, or that it said nothing: then the item may be there, and the next attempt finds it
/// [there already](Inserted::ThereAlready).
///
/// # Cancel safety
/// Dropped, the item may or may not be there.
pub async fn put_new(client: &Client, table: &str, key: &str, item: Item) -> Result<Inserted, GuardError> {
    if !item.contains_key(key) {
        return Err(GuardError::Refused(format!("the item for table {table:?} has no {key:?}, its key")));
    }
    let token = Value::S(Clock::system().token());
    let mut item = item;
    item.insert(TOKEN.to_owned(), token.clone());
    match put(client, table, key, &item, &token).await {
        Err(GuardError::NoAnswer(_) | GuardError::Unavailable(_)) => put(client, table, key, &item, &token).await,
        answer => answer,
    }
}

async fn put(client: &Client, table: &str, key: &str, item: &Item, token: &Value) -> Result<Inserted, GuardError> {
    let put = client
        .put_item()
        .table_name(table)
        .set_item(Some(attributes(item)))
        .condition_expression("attribute_not_exists(#key)")
        .expression_attribute_names("#key", key)
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    let Err(error) = within_timeout(put.send()).await else { return Ok(Inserted::New) };
    let Some(PutItemError::ConditionalCheckFailedException(refusal)) = error.as_service_error() else {
        return Err(meaning(error));
    };
    let mut found = refusal.item().map(item_of).unwrap_or_default();
    if found.remove(TOKEN).as_ref() == Some(token) {
        return Ok(Inserted::New);
    }
    Ok(Inserted::ThereAlready(found))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use aws_sdk_dynamodb::types::{AttributeValue, error::ConditionalCheckFailedException};
    use aws_smithy_mocks::{RuleMode, mock, mock_client};

    use super::*;

    fn row() -> Item {
        Item::from([("id".to_owned(), Value::from("a"))])
    }

    #[tokio::test(start_paused = true)]
    async fn g3_a_put_whose_reply_was_lost_is_new_when_it_is_tried_again() {
        let sent: Arc<Mutex<Vec<AttributeValue>>> = Arc::default();
        let (sees, stored) = (Arc::clone(&sent), Arc::clone(&sent));
        let rule = mock!(Client::put_item)
            .match_requests(move |put| {
                sees.lock().unwrap().push(put.item().unwrap()[TOKEN].clone());
                true
            })
            .sequence()
            .http_status(503, None)
            .error(move || {
                let mut item = attributes(&row());
                item.insert(TOKEN.to_owned(), stored.lock().unwrap()[0].clone());
                let refusal = ConditionalCheckFailedException::builder().set_item(Some(item)).build();
                PutItemError::ConditionalCheckFailedException(refusal)
            })
            .build();
        let client = mock_client!(aws_sdk_dynamodb, RuleMode::Sequential, [&rule]);
        assert_eq!(put_new(&client, "t", "id", row()).await.unwrap(), Inserted::New);
        assert_eq!(rule.num_calls(), 2);
        let sent = sent.lock().unwrap();
        assert!(sent.iter().all(|token| *token == sent[0]), "{sent:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_without_the_item_is_no_insert() {
        let rule = mock!(Client::put_item).then_error(|| {
            PutItemError::ConditionalCheckFailedException(ConditionalCheckFailedException::builder().build())
        });
        let client = mock_client!(aws_sdk_dynamodb, RuleMode::Sequential, [&rule]);
        assert_eq!(put_new(&client, "t", "id", row()).await.unwrap(), Inserted::ThereAlready(Item::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_put_without_an_answer_is_tried_once_more_and_then_told() {
        let rule = mock!(Client::put_item).sequence().http_status(500, None).repeatedly().build();
        let client = mock_client!(aws_sdk_dynamodb, RuleMode::Sequential, [&rule], |config| {
            config.retry_config(aws_sdk_dynamodb::config::retry::RetryConfig::disabled())
        });
        let answer = put_new(&client, "t", "id", row()).await;
        assert!(matches!(answer, Err(GuardError::Unavailable(_))), "{answer:?}");
        assert_eq!(rule.num_calls(), 2);
    }
}
