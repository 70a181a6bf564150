//! The S3 client, with the numbers that bound a single attempt.
//!
//! What is tried again is the adapter's to say, which also bounds the reading of a body: for the SDK a call is over when
//! the first of it has come.

use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_s3::config::{
    StalledStreamProtectionConfig, http::HttpRequest, retry::RetryConfig, timeout::TimeoutConfig,
};

use super::Counting;
use crate::{config::env, telemetry::Calls};

/// Longest wait for a connection, TLS included. A lost SYN is sent again after one second.
const CONNECT: Duration = Duration::from_secs(2);

/// Longest wait for the first of an answer. S3 answers in 100 to 200 ms, and asks to give up slow ones early.
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance-guidelines.html>
const ATTEMPT: Duration = Duration::from_secs(5);

pub(super) fn client(sdk: &SdkConfig, calls: Calls) -> aws_sdk_s3::Client {
    let timeouts = TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(ATTEMPT).build();
    // What an endpoint was set for is most often not there under a bucket's own host name.
    let is_elsewhere = sdk.endpoint_url().is_some() || env::has_s3_endpoint();
    let config = aws_sdk_s3::config::Builder::from(sdk)
        .timeout_config(timeouts)
        .retry_config(RetryConfig::disabled())
        // The adapter looks for stalls, and says what one means.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .force_path_style(is_elsewhere)
        .interceptor(Counting { calls, target })
        .build();
    aws_sdk_s3::Client::from_conf(config)
}

/// S3 has no header that names the operation; of the two that are used here the method does.
fn target(request: &HttpRequest) -> &str {
    match request.method() {
        "DELETE" => "S3.DeleteObject",
        _ => "S3.GetObject",
    }
}
