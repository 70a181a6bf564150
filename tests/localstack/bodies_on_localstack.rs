//! Bodies in S3 through its SDK, on LocalStack; and a worker that fetches one there.
#![expect(clippy::expect_used, reason = "helpers of tests, which clippy takes for production code here")]

use std::sync::Arc;

use async_trait::async_trait;
use leasehold::{
    JobContext, Raw, Shutdown,
    aws::{self, Aws},
    bodies::{Bodies, s3::S3Bodies},
    clock::Clock,
    handler,
    message::{Attribute, Pointer},
    queue::Outgoing,
    testing::TestBed,
};

use crate::bodies::{BodiesFixture, bodies_contract};

struct LocalStack {
    client: aws_sdk_s3::Client,
    bodies: S3Bodies,
    bucket: String,
}

/// With a bucket of its own.
async fn localstack() -> Option<LocalStack> {
    let aws = Aws::new(&aws::local(&crate::endpoint()?));
    let bucket = format!("bodies-{}", Clock::system().token());
    let made = aws.s3().create_bucket().bucket(&bucket).send().await;
    made.expect("a bucket; a LocalStack that was started without S3 is stopped with localstack/down");
    Some(LocalStack { client: aws.s3(), bodies: aws.bodies(), bucket })
}

#[async_trait]
impl BodiesFixture for LocalStack {
    fn bodies(&self) -> &dyn Bodies {
        &self.bodies
    }

    fn bucket(&self) -> &str {
        &self.bucket
    }

    async fn put(&self, key: &str, body: &[u8]) {
        let put = self.client.put_object().bucket(&self.bucket).key(key).body(body.to_vec().into());
        put.send().await.expect("an object");
    }
}

bodies_contract!(
    on_localstack,
    match localstack().await {
        Some(fixture) => fixture,
        None => return,
    }
);

#[tokio::test]
async fn a_body_is_fetched_from_s3_and_deleted_behind_its_message() {
    let Some(s3) = localstack().await else { return };
    let body = serde_json::json!({ "id": "a", "filling": "x".repeat(2_000_000) }).to_string();
    s3.put("a/1", body.as_bytes()).await;
    let bed = TestBed::new(&["jobs"]);
    let place = serde_json::json!({ "s3BucketName": s3.bucket, "s3Key": "a/1" });
    let pointer = serde_json::json!(["software.amazon.payloadoffloading.PayloadS3Pointer", place]).to_string();
    let attributes = [("ExtendedPayloadSize".to_owned(), Attribute::text(body.len().to_string()))].into();
    bed.queue("jobs").put(Outgoing { body: pointer, attributes, ..Outgoing::default() }).expect("is taken");
    let handled = Arc::new(tokio::sync::Notify::new());
    let shutdown = Shutdown::when({
        let handled = Arc::clone(&handled);
        async move { handled.notified().await }
    });
    let worker = bed
        .worker(&[
            ("LEASEHOLD_QUEUES", "jobs"),
            ("LEASEHOLD_KEY", "/id"),
            ("LEASEHOLD_S3_PAYLOAD", "fetch-delete"),
            ("LEASEHOLD_S3_BUCKETS", &s3.bucket),
        ])
        .bodies(Arc::new(s3.bodies.clone()))
        .queue(
            "jobs",
            handler(move |Raw(message): &Raw, _: &JobContext| {
                let (handled, length) = (Arc::clone(&handled), message.body.len());
                async move {
                    handled.notify_one();
                    if length < 2_000_000 { Err("the body did not come".into()) } else { Ok(()) }
                }
            }),
        );
    let report = worker.run(shutdown).await.expect("is configured");
    assert_eq!(report.done, 1);
    let at = Pointer::new(&s3.bucket, "a/1").expect("good");
    assert!(matches!(s3.bodies.get(&at, 10).await, Err(leasehold::bodies::BodyError::Missing)));
}
