//! A confirm and a handler's writes in one `TransactWriteItems` (rule G12).
//!
//! Owns the order of the request, in which the record stands first, and reads a cancellation place by place. Relies on
//! `expressions` for what the confirm requires and makes. Must never take a cancelled transaction for one that was made,
//! nor silence for one that was not.
//!
//! <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html>

use aws_sdk_dynamodb::{
    error::BuildError,
    operation::transact_write_items::TransactWriteItemsError,
    types::{
        CancellationReason, ConditionCheck, Delete, Put, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure,
        TransactWriteItem, Update as UpdateWrite,
    },
};

use super::{
    super::{Commit, Committed, GuardError, ItemAction, ItemWrite},
    DynamoDbGuard,
    errors::{is_about_size, meaning},
    expressions::Update,
    record::{self, text},
    values::{Attributes, attribute, attributes, item},
};

/// Why one of the items cancelled the transaction. Others have `None`.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html#API_TransactWriteItems_Errors>
const CONDITION: &str = "ConditionalCheckFailed";

impl DynamoDbGuard {
    /// Sends the transaction. The same commit is the same request, its token included, however often it is sent.
    pub(super) async fn transact(&self, commit: &Commit) -> Result<Committed, GuardError> {
        commit.check()?;
        commit.check_tables(self.table.rsplit_once("table/").map_or(&self.table, |(_, name)| name))?;
        let items = self.items(commit).map_err(|error| GuardError::Refused(error.to_string()))?;
        let send = self
            .client
            .transact_write_items()
            .set_transact_items(Some(items))
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .client_request_token(commit.token.clone());
        match self.in_turn(|| send.send()).await {
            Ok(_) => Ok(Committed::Applied),
            Err(error) => match error.as_service_error() {
                Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                    answer(commit, cancelled.cancellation_reasons())
                }
                _ => Err(meaning(error)),
            },
        }
    }

    /// Ours first, so that its place is known whatever the handler writes.
    fn items(&self, commit: &Commit) -> Result<Vec<TransactWriteItem>, BuildError> {
        let mut update = Update::change(&commit.confirm);
        let confirm = UpdateWrite::builder()
            .table_name(&self.table)
            .key("pk", text(&commit.pk.0))
            .update_expression(update.expression())
            .set_expression_attribute_values(update.when.values())
            .condition_expression(update.when.condition)
            .set_expression_attribute_names(Some(update.when.names))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()?;
        let ours = TransactWriteItem::builder().update(confirm).build();
        std::iter::once(Ok(ours)).chain(commit.writes.iter().map(item_write)).collect()
    }
}

fn item_write(write: &ItemWrite) -> Result<TransactWriteItem, BuildError> {
    let names = Some(write.names.clone()).filter(|names| !names.is_empty()).map(|names| names.into_iter().collect());
    let values: Attributes = write.values.iter().map(|(name, value)| (name.clone(), attribute(value))).collect();
    let values = Some(values).filter(|values| !values.is_empty());
    // All four kinds of writes have these, and no type in common.
    macro_rules! under_condition {
        ($builder:expr) => {
            $builder
                .table_name(&write.table)
                .set_condition_expression(write.condition.clone())
                .set_expression_attribute_names(names)
                .set_expression_attribute_values(values)
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
                .build()?
        };
    }
    let made = TransactWriteItem::builder();
    Ok(match &write.action {
        ItemAction::Put(item) => made.put(under_condition!(Put::builder().set_item(Some(attributes(item))))),
        ItemAction::Update { key, update } => made
            .update(under_condition!(UpdateWrite::builder().set_key(Some(attributes(key))).update_expression(update))),
        ItemAction::Delete(key) => made.delete(under_condition!(Delete::builder().set_key(Some(attributes(key))))),
        ItemAction::Check(key) => {
            made.condition_check(under_condition!(ConditionCheck::builder().set_key(Some(attributes(key)))))
        }
    }
    .build())
}

/// What a cancellation means: nothing was written, and each place says why. Ours goes first; then what will never
/// change, the handler's condition before what no store takes; then what a later try may not meet again.
fn answer(commit: &Commit, reasons: &[CancellationReason]) -> Result<Committed, GuardError> {
    let code = |reason: &CancellationReason| reason.code().unwrap_or("None").to_owned();
    let Some((ours, theirs)) = reasons.split_first() else {
        return Err(GuardError::Unavailable(Some("the transaction was cancelled, and no reason given".into())));
    };
    if code(ours) == CONDITION {
        let found = ours.item().filter(|item| !item.is_empty()).cloned().map(record::from_item).transpose()?;
        return Ok(commit.answer(found));
    }
    if let Some(index) = theirs.iter().position(|reason| code(reason) == CONDITION) {
        let item = theirs[index].item().filter(|found| !found.is_empty()).map(item);
        return Ok(Committed::Condition { index, item });
    }
    let mut passing = None;
    for (place, reason) in reasons.iter().enumerate() {
        let said = reason.message().unwrap_or("no reason given");
        match code(reason).as_str() {
            "None" => {}
            "TransactionConflict" => passing = passing.or(Some(GuardError::Conflict)),
            "ThrottlingError" | "ProvisionedThroughputExceeded" => {
                passing = Some(GuardError::Throttled(Some(said.into())));
            }
            "ValidationError" if place == 0 && is_about_size(said) => return Err(GuardError::TooLarge),
            // `ValidationError`, `ItemCollectionSizeLimitExceeded`, and what may be added: the same request meets it again.
            other => {
                let place = place.checked_sub(1).map_or_else(|| "the record".to_owned(), |index| commit.place(index));
                return Err(GuardError::Refused(format!("{place}: {other}: {said}")));
            }
        }
    }
    Err(passing.unwrap_or_else(|| GuardError::Unavailable(Some("a transaction was cancelled without a reason".into()))))
}

#[cfg(test)]
mod tests;
