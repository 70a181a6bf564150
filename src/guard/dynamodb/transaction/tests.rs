//! Cancellations, place by place, and the request itself.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_sdk_dynamodb::{
    Client,
    error::ErrorMetadata,
    operation::transact_write_items::{TransactWriteItemsInput, TransactWriteItemsOutput},
    types::error::TransactionCanceledException,
};
use aws_smithy_mocks::{Rule, RuleMode, mock, mock_client};

use super::*;
use crate::{
    clock::{Clock, Millis, Seconds},
    guard::{
        Change, Claim, Guard, Item, Owner, Pk, Source, Value,
        execution::ExecutionLease,
        outage::{Circuit, Ends},
    },
    lease::Lease,
};

fn claim(owner: &str) -> Claim {
    Claim {
        pk: Pk("ns/op#k".into()),
        owner: Owner(owner.into()),
        now: Millis(1_800_000_000_000),
        lease_until: Millis(1_800_000_030_000),
        fingerprint: None,
        source: Source::default(),
    }
}

fn commit() -> Commit {
    let me = claim("me");
    let confirm = Change::Confirm { owner: me.owner, now: me.now, expires_at: Seconds(1_802_000_000) };
    let writes = vec![
        ItemWrite::put("grants", [("grant_id", "g")]).when("attribute_not_exists(grant_id)"),
        ItemWrite::update("balances", [("account", "a")], "SET #c = #c + :v").name("#c", "cents").value(":v", 5),
    ];
    Commit { pk: me.pk, confirm, writes, token: "one-token".into() }
}

fn because(code: &str, message: Option<&str>) -> CancellationReason {
    CancellationReason::builder().code(code).set_message(message.map(str::to_owned)).build()
}

fn none() -> CancellationReason {
    because("None", None)
}

fn guard(rule: &Rule) -> DynamoDbGuard {
    DynamoDbGuard::new(mock_client!(aws_sdk_dynamodb, RuleMode::Sequential, [rule]), "leasehold".into())
}

async fn answer_to(reasons: Vec<CancellationReason>) -> Result<Committed, GuardError> {
    let rule = mock!(Client::transact_write_items).then_error(move || {
        let cancelled = TransactionCanceledException::builder().set_cancellation_reasons(Some(reasons.clone()));
        TransactWriteItemsError::TransactionCanceledException(cancelled.build())
    });
    guard(&rule).confirm_with(&commit()).await
}

#[tokio::test(start_paused = true)]
async fn g12_our_own_refusal_goes_before_the_handlers() {
    let theirs = claim("another").record();
    let refusal = CancellationReason::builder()
        .code(CONDITION)
        .set_item(Some(record::to_item(&theirs).into_iter().collect()))
        .build();
    let answer = answer_to(vec![refusal, because(CONDITION, None), none()]).await;
    assert_eq!(answer.unwrap(), Committed::Refused(Some(Box::new(theirs))));
    let gone = answer_to(vec![because(CONDITION, None), none(), none()]).await;
    assert_eq!(gone.unwrap(), Committed::Refused(None));
}

#[tokio::test(start_paused = true)]
async fn g3_a_refusal_that_shows_our_own_done_is_a_commit_whose_reply_was_lost() {
    let mut done = claim("me").record();
    commit().confirm.apply(&mut done);
    let item = Some(record::to_item(&done).into_iter().collect());
    let refusal = CancellationReason::builder().code(CONDITION).set_item(item).build();
    // What it made is in the way of its own condition, too.
    let answer = answer_to(vec![refusal, because(CONDITION, None), none()]).await;
    assert_eq!(answer.unwrap(), Committed::Applied);
}

#[tokio::test(start_paused = true)]
async fn g12_the_handlers_condition_is_told_by_its_place_with_the_item_that_is_there() {
    let there = Item::from([("account".to_owned(), Value::from("a")), ("cents".to_owned(), Value::from(7))]);
    let refusal = CancellationReason::builder().code(CONDITION).set_item(Some(attributes(&there))).build();
    let answer = answer_to(vec![because("TransactionConflict", None), none(), refusal]).await;
    assert_eq!(answer.unwrap(), Committed::Condition { index: 1, item: Some(there) });
    let answer = answer_to(vec![none(), because(CONDITION, None), none()]).await;
    assert_eq!(answer.unwrap(), Committed::Condition { index: 0, item: None });
}

#[tokio::test(start_paused = true)]
async fn g12_other_reasons_are_told_apart_by_whether_a_later_try_may_meet_them() {
    let conflict = answer_to(vec![because("TransactionConflict", None), none(), none()]).await;
    assert!(matches!(conflict, Err(GuardError::Conflict)), "{conflict:?}");
    for code in ["ThrottlingError", "ProvisionedThroughputExceeded"] {
        let throttled = answer_to(vec![because("TransactionConflict", None), none(), because(code, None)]).await;
        assert!(matches!(throttled, Err(GuardError::Throttled(_))), "{code}: {throttled:?}");
    }
    let says = "Item size to update has exceeded the maximum allowed size";
    let ours = answer_to(vec![because("ValidationError", Some(says)), none(), none()]).await;
    assert!(matches!(ours, Err(GuardError::TooLarge)), "{ours:?}");
    for code in ["ValidationError", "ItemCollectionSizeLimitExceeded", "SomethingNew"] {
        let refused = answer_to(vec![none(), because("ThrottlingError", None), because(code, Some(says))]).await;
        let told = format!("write 1 (table \"balances\"): {code}: {says}");
        assert!(matches!(&refused, Err(GuardError::Refused(what)) if *what == told), "{refused:?}");
    }
    for reasons in [vec![], vec![none(), none(), none()]] {
        let silent = answer_to(reasons).await;
        assert!(matches!(silent, Err(GuardError::Unavailable(_))), "{silent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn g12_a_transaction_that_is_still_in_progress_is_no_answer() {
    let rule = mock!(Client::transact_write_items)
        .sequence()
        .http_response(|| {
            let body =
                r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionInProgressException","Message":"wait"}"#;
            aws_sdk_dynamodb::config::http::HttpResponse::new(400.try_into().unwrap(), body.into())
        })
        .repeatedly()
        .build();
    let answer = guard(&rule).confirm_with(&commit()).await;
    assert!(matches!(answer, Err(GuardError::NoAnswer(_))), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn g12_a_token_that_is_taken_is_no_answer_for_only_an_earlier_try_of_this_commit_has_it() {
    let rule = mock!(Client::transact_write_items).then_error(|| {
        TransactWriteItemsError::IdempotentParameterMismatchException(
            aws_sdk_dynamodb::types::error::IdempotentParameterMismatchException::builder()
                .meta(ErrorMetadata::builder().code("IdempotentParameterMismatchException").build())
                .build(),
        )
    });
    let answer = guard(&rule).confirm_with(&commit()).await;
    assert!(matches!(answer, Err(GuardError::NoAnswer(_))), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn g12_every_try_of_a_commit_is_the_same_request_and_begins_with_the_record() {
    let seen: Arc<Mutex<Vec<TransactWriteItemsInput>>> = Arc::default();
    let sees = Arc::clone(&seen);
    let conflict = || {
        let reasons = [because("TransactionConflict", None), none(), none()].to_vec();
        let cancelled = TransactionCanceledException::builder().set_cancellation_reasons(Some(reasons));
        TransactWriteItemsError::TransactionCanceledException(cancelled.build())
    };
    let rule = mock!(Client::transact_write_items)
        .match_requests(move |input| {
            sees.lock().unwrap().push(input.clone());
            true
        })
        .sequence()
        .error(conflict)
        .error(conflict)
        .http_status(500, None)
        .output(|| TransactWriteItemsOutput::builder().build())
        .build();
    let clock = Clock::simulated(1, 0);
    let length = Duration::from_secs(30);
    let lease = Lease::new(clock.clone(), clock.now(), length);
    let guard: Arc<dyn Guard> = Arc::new(guard(&rule));
    let circuit = Arc::new(Circuit::new("store", Ends::Probe, clock.clone()));
    let claim = ExecutionLease::new((guard, circuit), clock, claim("me").record(), lease, length);
    assert_eq!(claim.commit(commit().writes).await.unwrap(), Committed::Applied);
    assert_eq!(rule.num_calls(), 4);
    let seen = seen.lock().unwrap();
    assert!(seen.len() >= 3 && seen.iter().all(|input| *input == seen[0]), "{seen:#?}");
    assert!(seen[0].client_request_token().is_some_and(|token| (1..=36).contains(&token.len())), "{seen:#?}");
    let items = seen[0].transact_items();
    let ours = items[0].update().unwrap();
    assert_eq!((ours.table_name(), ours.key()["pk"].as_s().unwrap().as_str()), ("leasehold", "ns/op#k"));
    assert!(items[1].put().is_some() && items[2].update().is_some_and(|update| update.table_name() == "balances"));
}
