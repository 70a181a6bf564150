//! Answers that no backend gives on request, played to the adapter as DynamoDB would send them.

use aws_credential_types::provider::{ProvideCredentials, error::CredentialsError, future};
use aws_sdk_dynamodb::{
    config::{BehaviorVersion, Credentials, Region, http::HttpResponse, retry::RetryConfig},
    types::{ReplicaDescription, error::ConditionalCheckFailedException},
};
use aws_smithy_mocks::{Rule, RuleMode, mock, mock_client};
use futures_util::{FutureExt as _, future::join_all};

use super::*;
use crate::{
    clock::{Millis, Seconds},
    guard::{Owner, Paused, Severity, Source, TakeOverKind},
};

fn claim() -> Claim {
    Claim {
        pk: Pk("ns/op#k".into()),
        owner: Owner("me".into()),
        now: Millis(1_800_000_000_000),
        lease_until: Millis(1_800_000_030_000),
        fingerprint: None,
        source: Source::default(),
    }
}

fn confirm() -> Change {
    Change::Confirm { owner: claim().owner, now: claim().now, expires_at: Seconds(1_802_000_000) }
}

fn refusal(item: Option<Item>) -> ConditionalCheckFailedException {
    ConditionalCheckFailedException::builder().set_item(item.map(|item| item.into_iter().collect())).build()
}

fn refused_put(item: Option<Item>) -> PutItemError {
    PutItemError::ConditionalCheckFailedException(refusal(item))
}

fn refused_update(item: Option<Item>) -> UpdateItemError {
    UpdateItemError::ConditionalCheckFailedException(refusal(item))
}

fn error(status: u16, code: &str, message: &str) -> HttpResponse {
    let body = format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"{message}"}}"#);
    HttpResponse::new(status.try_into().unwrap(), body.into())
}

fn guard(rules: &[&Rule]) -> DynamoDbGuard {
    let retry = RetryConfig::standard().with_max_attempts(2);
    let client =
        mock_client!(aws_sdk_dynamodb, RuleMode::Sequential, rules, |config| config.retry_config(retry.clone()));
    DynamoDbGuard::new(client, "leasehold".into())
}

/// What one claim comes to that DynamoDB answers with this error, however often it is tried.
async fn meaning_of(status: u16, code: &'static str, message: &'static str) -> GuardError {
    let rule =
        mock!(Client::put_item).sequence().http_response(move || error(status, code, message)).repeatedly().build();
    guard(&[&rule]).claim(&claim()).await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn g1_a_refusal_without_a_record_is_a_refusal() {
    let put = mock!(Client::put_item).then_error(|| refused_put(None));
    let update = mock!(Client::update_item).then_error(|| refused_update(None));
    let guard = guard(&[&put, &update]);
    assert_eq!(guard.claim(&claim()).await.unwrap(), Claimed::Refused(None));
    assert_eq!(guard.write(&claim().pk, &confirm()).await.unwrap(), Written::Refused(None));
}

#[tokio::test(start_paused = true)]
async fn g3_a_claim_whose_reply_was_lost_is_ours_when_it_is_tried_again() {
    let put = mock!(Client::put_item)
        .sequence()
        .http_status(500, None)
        .error(|| refused_put(Some(record::to_item(&claim().record()))))
        .build();
    let claimed = guard(&[&put]).claim(&claim()).await.unwrap();
    assert_eq!(claimed, Claimed::Mine(Box::new(claim().record())));
    assert_eq!(put.num_calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn g3_a_takeover_and_a_confirm_whose_replies_were_lost_are_recognised() {
    let former = Claim { owner: Owner("former".into()), ..claim() }.record();
    let seen = Box::new(former.clone());
    let take_over = TakeOver { claim: claim(), seen, kind: TakeOverKind::AfterLapse };
    let mut taken = former.clone();
    take_over.apply(&mut taken);
    let mut done = taken.clone();
    confirm().apply(&mut done);

    let [for_reply, then] = [record::to_item(&taken), record::to_item(&done)];
    let update = mock!(Client::update_item)
        .sequence()
        .http_status(503, None)
        .error(move || refused_update(Some(for_reply.clone())))
        .http_status(503, None)
        .error(move || refused_update(Some(then.clone())))
        .build();
    let guard = guard(&[&update]);
    assert_eq!(guard.take_over(&take_over).await.unwrap(), Claimed::Mine(Box::new(taken)));
    assert_eq!(guard.write(&claim().pk, &confirm()).await.unwrap(), Written::Applied);
}

#[tokio::test(start_paused = true)]
async fn g1_a_record_of_a_later_version_is_no_verdict_wherever_it_is_met() {
    let mut item = record::to_item(&claim().record());
    item.insert("v".into(), number(2_u32));
    let (one, two, three) = (item.clone(), item.clone(), item);
    let put = mock!(Client::put_item).then_error(move || refused_put(Some(one.clone())));
    let update = mock!(Client::update_item).then_error(move || refused_update(Some(two.clone())));
    let get = mock!(Client::get_item).then_output(move || {
        let item = three.clone().into_iter().collect();
        aws_sdk_dynamodb::operation::get_item::GetItemOutput::builder().set_item(Some(item)).build()
    });
    let guard = guard(&[&put, &update, &get]);
    for result in [
        guard.claim(&claim()).await.map(drop),
        guard.write(&claim().pk, &confirm()).await.map(drop),
        guard.read(&claim().pk).await.map(drop),
    ] {
        assert!(matches!(&result, Err(GuardError::Foreign(told)) if told.contains("version 2")), "{result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn g8_errors_are_told_apart_by_what_they_mean_for_the_table() {
    use GuardError::*;
    let throttles = ["ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException"];
    for code in throttles {
        assert!(matches!(meaning_of(400, code, "slow down").await, Throttled(Some(_))), "{code}");
    }
    for code in ["TransactionConflictException", "ReplicatedWriteConflictException"] {
        assert!(matches!(meaning_of(400, code, "").await, Conflict), "{code}");
    }
    for code in [
        "AccessDeniedException",
        "UnrecognizedClientException",
        "ExpiredTokenException",
        "InvalidSignatureException",
        "SomethingNewAboutAccess",
    ] {
        let status = if code == "SomethingNewAboutAccess" { 403 } else { 400 };
        let error = meaning_of(status, code, "").await;
        assert!(matches!(error, Denied(Some(_))) && error.severity() == Severity::Outage, "{code}");
        assert_eq!(error.lacks_credentials(), !code.contains("Access"), "{code}");
    }
    assert!(matches!(meaning_of(400, "ResourceNotFoundException", "").await, Missing));
    for (status, code) in [(500, "InternalServerError"), (503, "ServiceUnavailable"), (502, "")] {
        assert!(matches!(meaning_of(status, code, "").await, Unavailable(Some(_))), "{code}");
    }
    for text in
        ["Item size has exceeded the maximum allowed size", "Item size to update has exceeded the maximum allowed size"]
    {
        assert!(matches!(meaning_of(400, "ValidationException", text).await, TooLarge), "{text}");
    }
    let text = "Invalid UpdateExpression: Expression size has exceeded the maximum allowed size;";
    let refused = meaning_of(400, "ValidationException", text).await;
    assert!(matches!(&refused, Refused(told) if told.contains("Invalid UpdateExpression")), "{refused:?}");
    assert!(matches!(meaning_of(400, "ItemCollectionSizeLimitExceededException", "").await, Refused(_)));
}

#[tokio::test(start_paused = true)]
async fn g2_a_request_that_did_not_get_through_is_tried_again_and_not_refused() {
    use GuardError::*;
    for (status, code) in
        [(408, "RequestTimeoutException"), (400, "RequestTimeout"), (400, "RequestAbortedException"), (408, "")]
    {
        let error = meaning_of(status, code, "").await;
        assert!(matches!(error, NoAnswer(Some(_))) && error.is_transient(), "{status} {code}: {error:?}");
    }
    assert!(matches!(meaning_of(429, "", "").await, Throttled(Some(_))));
    assert!(matches!(meaning_of(400, "RequestExpired", "").await, Denied(Some(_))));
}

#[tokio::test(start_paused = true)]
async fn g8_a_conflict_is_not_tried_again_but_a_throttle_is() {
    for (code, calls) in [("TransactionConflictException", 1), ("ThrottlingException", 2)] {
        let rule = mock!(Client::put_item).sequence().http_response(move || error(400, code, "")).repeatedly().build();
        drop(guard(&[&rule]).claim(&claim()).await);
        assert_eq!(rule.num_calls(), calls, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn r5_a_ttl_that_may_not_be_looked_at_is_said_and_a_table_that_may_not_is_denied() {
    let described = mock!(Client::describe_table).then_output(|| {
        let table = TableDescription::builder().build();
        aws_sdk_dynamodb::operation::describe_table::DescribeTableOutput::builder().table(table).build()
    });
    let denied = || error(400, "AccessDeniedException", "not authorized to perform: dynamodb:DescribeTimeToLive");
    let ttl = mock!(Client::describe_time_to_live).then_http_response(denied);
    let table = mock!(Client::describe_table).then_http_response(denied);
    let guard = guard(&[&described, &ttl, &table]);
    let told = guard.facts().await.unwrap().ttl.unwrap_err();
    assert!(told.contains("access denied") && told.contains("DescribeTimeToLive"), "{told}");
    assert!(matches!(guard.facts().await, Err(GuardError::Denied(_))));
}

#[tokio::test(start_paused = true)]
async fn r5_facts_tell_whether_conditions_see_the_writes_of_other_regions() {
    let in_frankfurt = || ReplicaDescription::builder().region_name("eu-central-1").build();
    let regions = vec!["eu-central-1".to_owned()];
    for (replica, consistency, replication) in [
        (None, None, Replication::Alone),
        (Some(in_frankfurt()), None, Replication::Eventual(regions.clone())),
        (Some(in_frankfurt()), Some(MultiRegionConsistency::Eventual), Replication::Eventual(regions.clone())),
        (Some(in_frankfurt()), Some(MultiRegionConsistency::Strong), Replication::Strong(regions)),
    ] {
        let described = mock!(Client::describe_table).then_output(move || {
            let table =
                TableDescription::builder().table_arn("arn:t").set_multi_region_consistency(consistency.clone());
            let table = table.set_replicas(replica.clone().map(|replica| vec![replica])).build();
            aws_sdk_dynamodb::operation::describe_table::DescribeTableOutput::builder().table(table).build()
        });
        let denied = || error(400, "AccessDeniedException", "");
        let ttl = mock!(Client::describe_time_to_live).then_http_response(denied);
        let facts = guard(&[&described, &ttl]).facts().await.unwrap();
        assert_eq!((facts.arn.as_str(), facts.replication), ("arn:t", replication));
    }
}

#[tokio::test(start_paused = true)]
async fn records_are_listed_without_what_is_said_of_queues_and_without_probes() {
    let key = ControlKey::new(None, "payments");
    let probe = Item::from([("pk".to_owned(), text(PROBE_KEY)), ("expires_at".to_owned(), number(1_u32))]);
    let items = [control::to_item(&key, &Control::default()), probe, record::to_item(&claim().record())];
    let scan = mock!(Client::scan).then_output(move || {
        let items = items.iter().map(|item| item.clone().into_iter().collect()).collect();
        aws_sdk_dynamodb::operation::scan::ScanOutput::builder().set_items(Some(items)).build()
    });
    assert_eq!(guard(&[&scan]).records().await.unwrap(), [claim().record()]);
}

#[tokio::test(start_paused = true)]
async fn what_is_said_of_a_queue_is_read_at_half_the_price_and_kept_as_long_as_it_pauses() {
    let key = ControlKey::new(None, "payments");
    let get = mock!(Client::get_item)
        .match_requests(|request| request.consistent_read() != Some(true))
        .then_output(|| aws_sdk_dynamodb::operation::get_item::GetItemOutput::builder().build());
    let keeps = |paused: bool| {
        mock!(Client::put_item)
            .match_requests(move |request| request.item().is_some_and(|item| item.contains_key("expires_at") != paused))
            .then_output(|| aws_sdk_dynamodb::operation::put_item::PutItemOutput::builder().build())
    };
    let (pausing, resuming) = (keeps(true), keeps(false));
    let guard = guard(&[&get, &pausing, &resuming]);
    assert_eq!(guard.control(&key).await.unwrap(), Control::default());
    let paused = Paused { at: Millis(1), by: "ann".into(), why: None };
    let resumed_at = Some(Millis(1));
    guard.set_control(&key, &Control { paused: Some(paused), resumed_at }).await.unwrap();
    guard.set_control(&key, &Control { paused: None, resumed_at }).await.unwrap();
}

/// A real client, for what happens before DynamoDB is reached.
fn client(endpoint: &str, credentials: impl ProvideCredentials + 'static) -> Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(endpoint)
        .credentials_provider(credentials);
    Client::from_conf(config.build())
}

#[tokio::test]
async fn g8_nobody_there_counts_as_no_answer() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = client(&format!("http://{closed}"), Credentials::for_tests());
    let error = DynamoDbGuard::new(client, "t".into()).claim(&claim()).await.unwrap_err();
    assert!(matches!(error, GuardError::NoAnswer(Some(_))), "{error:?}");
    assert_eq!(error.severity(), Severity::Unanswered);
}

#[tokio::test(start_paused = true)]
async fn every_call_ends_in_its_time_when_nobody_answers() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&format!("http://{}", silent.local_addr().unwrap()), Credentials::for_tests());
    let guard = DynamoDbGuard::new(client, "t".into());
    let started = tokio::time::Instant::now();
    assert!(matches!(guard.claim(&claim()).await, Err(GuardError::NoAnswer(Some(_)))));
    assert!(matches!(guard.probe().await, Err(GuardError::NoAnswer(Some(_)))));
    assert!(started.elapsed() <= 2 * CALL_TIMEOUT, "{:?}", started.elapsed());
}

#[tokio::test]
async fn writes_beyond_those_that_are_sent_at_once_wait_for_their_turn() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&format!("http://{}", silent.local_addr().unwrap()), Credentials::for_tests());
    let (guard, claim) = (DynamoDbGuard::new(client, "t".into()), claim());
    let calls = join_all((0..2 * AT_ONCE).map(|_| guard.claim(&claim)));
    let connections = async {
        let mut open = Vec::new();
        while open.len() < AT_ONCE {
            open.push(silent.accept().await.unwrap());
        }
        silent.accept().now_or_never()
    };
    let one_more = tokio::select! {
        // The calls are only driven: none of them is answered.
        biased;
        answers = calls => panic!("{answers:?}"),
        one_more = connections => one_more,
    };
    assert!(one_more.is_none(), "{one_more:?}");
}

#[derive(Debug)]
struct NoCredentials;

impl ProvideCredentials for NoCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::ready(Err(CredentialsError::not_loaded_no_source()))
    }
}

#[tokio::test]
async fn g8_no_credentials_are_denied_access_and_not_silence() {
    let guard = DynamoDbGuard::new(client("http://127.0.0.1:9", NoCredentials), "t".into());
    let answer = guard.claim(&claim()).await;
    assert!(matches!(&answer, Err(error @ GuardError::Denied(Some(_))) if error.lacks_credentials()), "{answer:?}");
}
