//! The AWS SDK, set up once: one client per service and process, with its timeouts, retries and connections.
//!
//! Owns the numbers that bound a call, with why. Relies on the SDK for region, credentials and endpoint, which come from
//! the SDK's own environment and files. Must never be made anew for a call: every client has a pool of connections of its
//! own, and a new one begins with cold connections and fresh credentials.

use std::{collections::BTreeMap, time::Duration};

use aws_config::{
    BehaviorVersion, Region, SdkConfig,
    environment::{EnvironmentVariableCredentialsProvider, EnvironmentVariableRegionProvider},
    identity::IdentityCache,
    meta::region::ProvideRegion,
};
use aws_credential_types::{
    Credentials,
    provider::{ProvideCredentials, SharedCredentialsProvider},
};
use aws_sdk_sqs::config::{StalledStreamProtectionConfig, retry::RetryConfig, timeout::TimeoutConfig};

use aws_types::service_config::ServiceConfigKey;
use url::Url;

#[cfg(feature = "s3")]
use crate::bodies::s3::S3Bodies;
use crate::{
    clock::Clock,
    config::{Problem, env},
    queue::sqs::SqsBroker,
    telemetry::Calls,
};
use counting::{Counting, named_target};
use credentials::Renewed;

mod counting;
mod credentials;
#[cfg(feature = "s3")]
mod s3;

/// Longest wait for a connection to SQS, TLS included. Below every attempt timeout, so that a connection that could not
/// be had is told as what it is: nothing was sent. A lost SYN is sent again after one second.
const SQS_CONNECT: Duration = Duration::from_secs(2);

/// Longest attempt of a call to SQS that does not set its own. SQS answers in some tens of milliseconds. A full batch is
/// 1 MiB, and this is enough for one at 1 Mbit/s.
const SQS_ATTEMPT: Duration = Duration::from_secs(10);

/// Longest wait for a connection to DynamoDB. With the attempts below a lost SYN is met by the next attempt.
const GUARD_CONNECT: Duration = Duration::from_secs(1);

/// Longest attempt of a guard call. DynamoDB answers single items in milliseconds; what has not come by now is lost.
const GUARD_ATTEMPT: Duration = Duration::from_millis(1500);

/// Attempts of a guard call, the first included. A conditional write that the SDK repeats after it was applied is refused
/// by its own record; rule G3 recognises that.
const GUARD_ATTEMPTS: u32 = 3;

/// First pause between two attempts of a guard call, doubled once.
const GUARD_BACKOFF: Duration = Duration::from_millis(100);

/// Longest pause between two attempts of a guard call.
const GUARD_LONGEST_BACKOFF: Duration = Duration::from_millis(250);

/// The whole of a guard call: its attempts and pauses fit, and a server that asks for longer pauses does not get them.
/// A verdict then comes well inside any lease worth having.
const GUARD_CALL: Duration = Duration::from_secs(5);

/// Loads region, credentials and endpoint as every AWS tool finds them: `AWS_REGION`, `AWS_PROFILE`, `AWS_ENDPOINT_URL`
/// and the rest, profile files, container and instance roles. Cannot fail; what is missing shows at the first call.
pub async fn load() -> SdkConfig {
    aws_config::defaults(BehaviorVersion::latest()).load().await
}

/// For what runs on this machine and checks no signatures, such as the embedded engine and LocalStack.
#[must_use]
pub fn local(endpoint: &str) -> SdkConfig {
    let credentials = Credentials::new("local", "local", None, None, "local");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .endpoint_url(endpoint)
        .build()
}

/// As [`local`], but with the region and the keys of the environment's `AWS_…` variables, where it has them.
pub async fn at(endpoint: &str) -> SdkConfig {
    let local = local(endpoint);
    let keys = EnvironmentVariableCredentialsProvider::new();
    let keys = keys.provide_credentials().await.ok().map(SharedCredentialsProvider::new);
    let region = EnvironmentVariableRegionProvider::new().region().await;
    let mut builder = local.to_builder();
    builder.set_credentials_provider(keys.or(local.credentials_provider()));
    builder.set_region(region.or(local.region().cloned()));
    builder.build()
}

/// What is missing in such a configuration, or no region and no URL, so that no call could ever be made with it. Asks
/// nobody.
#[must_use]
pub fn problems(config: &SdkConfig) -> Vec<Problem> {
    let mut problems = Vec::new();
    match config.region().map(AsRef::as_ref) {
        None => problems.push(Problem::new(
            "there is no AWS region: neither AWS_REGION nor a profile names one",
            "AWS_REGION=eu-central-1",
        )),
        // It becomes part of a host's name.
        Some(region) if region.is_empty() || !region.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') => {
            problems.push(Problem::new(format!("{region:?} is no AWS region"), "AWS_REGION=eu-central-1"));
        }
        Some(_) => {}
    }
    // One that it cannot use the SDK leaves out here, and tries at every call; at an empty one it panics.
    let endpoints = match config.endpoint_url() {
        Some(endpoint) => vec![("AWS_ENDPOINT_URL", endpoint.to_owned())],
        None => env::aws_endpoints(),
    };
    for (variable, endpoint) in endpoints.into_iter().filter(|(_, endpoint)| !is_url(endpoint)) {
        problems.push(no_url(variable, &endpoint));
    }
    problems
}

fn no_url(variable: &str, endpoint: &str) -> Problem {
    if endpoint.is_empty() {
        return Problem::new(format!("{variable} is set, and empty"), format!("unset {variable}"));
    }
    let guess = format!("http://{endpoint}");
    let instead = if is_url(&guess) { guess } else { "http://127.0.0.1:4566".to_owned() };
    Problem::new(format!("{variable} is {endpoint:?}, which is no URL"), format!("{variable}={instead}"))
}

fn is_url(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// The clients of one process. Clones share connections, credentials and counts.
#[derive(Debug, Clone)]
pub struct Aws {
    sqs: aws_sdk_sqs::Client,
    dynamodb: aws_sdk_dynamodb::Client,
    /// All calls to SQS go to one endpoint that was set, whatever the region.
    sqs_at_one_endpoint: bool,
    #[cfg(feature = "s3")]
    s3: aws_sdk_s3::Client,
    calls: Calls,
}

impl Aws {
    /// With `config`'s region, credentials, endpoint and HTTP client. Its timeouts and retries are replaced: leases are
    /// reckoned with the ones here.
    #[must_use]
    pub fn new(config: &SdkConfig) -> Self {
        Self::counted(config, Calls::default())
    }

    /// The same, with requests counted there.
    pub(crate) fn counted(config: &SdkConfig, calls: Calls) -> Self {
        let config = &with_renewed_credentials(config);
        Self {
            sqs: sqs_client(config, calls.clone()),
            dynamodb: dynamodb_client(config, calls.clone()),
            sqs_at_one_endpoint: has_sqs_endpoint(config),
            #[cfg(feature = "s3")]
            s3: s3::client(config, calls.clone()),
            calls,
        }
    }

    /// The queues that the credentials reach.
    #[must_use]
    pub fn sqs(&self) -> SqsBroker {
        let broker = SqsBroker::new(self.sqs.clone(), Clock::system());
        if self.sqs_at_one_endpoint { broker.at_one_endpoint() } else { broker }
    }

    /// The SQS client, for tools. Unlike the calls of [`Aws::sqs`] it retries as the SDK does by default.
    #[must_use]
    pub fn sqs_client(&self) -> aws_sdk_sqs::Client {
        self.sqs.clone()
    }

    /// The DynamoDB client, bounded as a guard needs it.
    #[must_use]
    pub fn dynamodb(&self) -> aws_sdk_dynamodb::Client {
        self.dynamodb.clone()
    }

    /// Bodies that are in S3.
    #[cfg(feature = "s3")]
    #[must_use]
    pub fn bodies(&self) -> S3Bodies {
        S3Bodies::new(self.s3(), Clock::system())
    }

    /// The S3 client, bounded as bodies need it: single attempts.
    #[cfg(feature = "s3")]
    #[must_use]
    pub fn s3(&self) -> aws_sdk_s3::Client {
        self.s3.clone()
    }

    /// The region, if one was found.
    #[must_use]
    pub fn region(&self) -> Option<&str> {
        self.sqs.config().region().map(AsRef::as_ref)
    }

    /// Requests sent so far, by IAM action name (`sqs:ReceiveMessage`, `dynamodb:PutItem`). Attempts count, as they do on
    /// the bill; a batch is one.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.calls.all()
    }
}

/// With credentials that are renewed ahead of their end. The SDK's own cache would hold them back.
fn with_renewed_credentials(config: &SdkConfig) -> SdkConfig {
    let Some(provider) = config.credentials_provider() else { return config.clone() };
    let renewed = SharedCredentialsProvider::new(Renewed::new(provider, Clock::system()));
    config.to_builder().credentials_provider(renewed).identity_cache(IdentityCache::no_cache()).build()
}

/// Whether an endpoint is set that SQS's client uses: for all services, or for this one in the environment
/// (`AWS_ENDPOINT_URL_SQS`) or in a profile. The SDK decides so, and does not tell.
fn has_sqs_endpoint(config: &SdkConfig) -> bool {
    let key = ServiceConfigKey::builder().service_id("SQS").env("AWS_ENDPOINT_URL").profile("endpoint_url").build();
    let of_sqs = || config.service_config()?.load_config(key.ok()?);
    config.endpoint_url().is_some() || of_sqs().is_some()
}

fn sqs_client(config: &SdkConfig, calls: Calls) -> aws_sdk_sqs::Client {
    let timeouts = TimeoutConfig::builder().connect_timeout(SQS_CONNECT).operation_attempt_timeout(SQS_ATTEMPT).build();
    let config = aws_sdk_sqs::config::Builder::from(config)
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard())
        // On a long poll nothing moves for up to 20 s, which the protection has taken for a stalled stream before
        // (https://github.com/awslabs/aws-sdk-rust/issues/1148). Attempt timeouts bound every call anyway.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .interceptor(Counting { calls, target: named_target })
        .build();
    aws_sdk_sqs::Client::from_conf(config)
}

fn dynamodb_client(config: &SdkConfig, calls: Calls) -> aws_sdk_dynamodb::Client {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(GUARD_CONNECT)
        .operation_attempt_timeout(GUARD_ATTEMPT)
        .operation_timeout(GUARD_CALL)
        .build();
    let retries = RetryConfig::standard()
        .with_max_attempts(GUARD_ATTEMPTS)
        .with_initial_backoff(GUARD_BACKOFF)
        .with_max_backoff(GUARD_LONGEST_BACKOFF);
    let config = aws_sdk_dynamodb::config::Builder::from(config)
        .timeout_config(timeouts)
        .retry_config(retries)
        // It would look for stalls of seconds in calls that end sooner, and takes a timer and a wrapper of both bodies for
        // each of them.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .interceptor(Counting { calls, target: named_target })
        .build();
    aws_sdk_dynamodb::Client::from_conf(config)
}

/// What a single SQS call changes of the client's settings: one attempt, this long.
///
/// An *attempt* timeout, for an operation timeout would span attempts. One attempt, because the SDK's retries draw on one
/// bucket of tokens for the whole service: a spell of throttled receives would leave none for deletes. What is retried,
/// and when, is the adapter's to say. The connect timeout is left alone, for the SDK keeps one pool of connections for
/// each value of it.
pub(crate) fn one_attempt(timeout: Duration) -> aws_sdk_sqs::config::Builder {
    aws_sdk_sqs::Config::builder()
        .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(timeout).build())
        .retry_config(RetryConfig::disabled())
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::AttributeValue;
    use aws_sdk_sqs::config::{Credentials, Region, SharedCredentialsProvider};
    use tokio::{net::TcpListener, time::Instant};

    use super::*;

    async fn aws_that_never_answers() -> (Aws, TcpListener) {
        // Connections are taken by the system, and nobody reads from them.
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("binds");
        let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .endpoint_url(format!("http://{}", listener.local_addr().expect("bound")));
        (Aws::new(&config.build()), listener)
    }

    #[tokio::test(start_paused = true)]
    async fn g1_a_guard_call_without_an_answer_is_tried_again_and_ends_in_time() {
        let (aws, _listener) = aws_that_never_answers().await;
        let start = Instant::now();
        let put = aws.dynamodb().put_item().table_name("t").item("pk", AttributeValue::S("k".into())).send();
        assert!(put.await.is_err());
        assert!(start.elapsed() <= GUARD_CALL, "{:?}", start.elapsed());
        assert_eq!(aws.calls(), BTreeMap::from([("dynamodb:PutItem".to_owned(), u64::from(GUARD_ATTEMPTS))]));
    }

    #[test]
    fn what_no_call_could_be_made_with_is_told_with_what_to_set() {
        let mends = |region: Option<&'static str>, endpoint: Option<&str>| {
            let mut config = SdkConfig::builder().region(region.map(Region::new));
            config.set_endpoint_url(endpoint.map(str::to_owned));
            problems(&config.build()).into_iter().map(|problem| problem.mend).collect::<Vec<_>>()
        };
        assert_eq!(mends(Some("eu-central-1"), None), [] as [String; 0]);
        assert_eq!(mends(Some("us-gov-west-1"), Some("https://vpce-1.sqs.example/")), [] as [String; 0]);
        for region in [None, Some(""), Some("eu central")] {
            assert_eq!(mends(region, None), ["AWS_REGION=eu-central-1"], "{region:?}");
        }
        for (endpoint, instead) in [
            ("127.0.0.1:4567", "http://127.0.0.1:4567"),
            ("localhost:1", "http://localhost:1"),
            ("a b", "http://127.0.0.1:4566"),
        ] {
            assert_eq!(mends(Some("eu-central-1"), Some(endpoint)), [format!("AWS_ENDPOINT_URL={instead}")]);
        }
        assert_eq!(mends(None, Some("")), ["AWS_REGION=eu-central-1", "unset AWS_ENDPOINT_URL"]);
    }

    /// What the environment or a profile says of SQS alone.
    #[derive(Debug)]
    struct OfSqs;

    impl aws_types::service_config::LoadServiceConfig for OfSqs {
        fn load_config(&self, key: ServiceConfigKey<'_>) -> Option<String> {
            let asked = (key.service_id(), key.env(), key.profile());
            (asked == ("SQS", "AWS_ENDPOINT_URL", "endpoint_url")).then(|| "http://127.0.0.1:4566".to_owned())
        }
    }

    #[tokio::test]
    async fn other_regions_are_not_asked_where_an_endpoint_is_set() {
        let url = "https://sqs.eu-west-1.amazonaws.com/1/q".to_owned();
        let asks_there = async |config: aws_types::sdk_config::Builder| {
            let config = config.behavior_version(BehaviorVersion::latest()).region(Region::new("us-east-1")).build();
            Aws::new(&config).sqs().url(&crate::queue::QueueAddress::Url(url.clone())).await.is_ok()
        };
        assert!(asks_there(SdkConfig::builder()).await);
        assert!(!asks_there(SdkConfig::builder().endpoint_url("http://127.0.0.1:4566")).await);
        assert!(!asks_there(SdkConfig::builder().service_config(OfSqs)).await);
    }

    #[tokio::test]
    async fn no_call_is_watched_for_a_stalled_stream() {
        let (aws, _listener) = aws_that_never_answers().await;
        let client = aws.sqs_client();
        let protection = client.config().stalled_stream_protection().expect("is set");
        assert!(!protection.upload_enabled() && !protection.download_enabled());
        let client = aws.dynamodb();
        let protection = client.config().stalled_stream_protection().expect("is set");
        assert!(!protection.upload_enabled() && !protection.download_enabled());
    }
}
