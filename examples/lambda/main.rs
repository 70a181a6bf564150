//! Payments as a Lambda function: `cargo lambda build --release --features lambda --example bootstrap`.
//!
//! The handler is the very file of `examples/jobs`. What is different is `lambda::run`, where a worker that stays has
//! `Worker::run`. Every queue that `LEASEHOLD_QUEUES` names brings payments; each needs an event source mapping with
//! `ReportBatchItemFailures`. The rest is in `docs/lambda.md`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

#[path = "../jobs/charge.rs"]
#[expect(dead_code, reason = "its message is for those who run it by hand")]
mod charge;

use std::{process::ExitCode, sync::Arc};

use leasehold::{Handler, Worker, lambda};
use outside::Outside;
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let mut worker = Worker::from_env();
    let log = worker.config().map_or("info", |config| &config.log);
    tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(EnvFilter::new(log)).init();
    let queues: Vec<String> = worker.config().into_iter().flat_map(|config| config.queues.keys().cloned()).collect();
    let outside = Arc::new(Outside);
    for queue in queues {
        worker = worker.queue(queue, charge::Charge(Arc::clone(&outside)).key(charge::key));
    }
    match lambda::run(worker).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// A payment provider as its sandbox is: what a request is about decides how it goes.
mod outside {
    use leasehold::{HandlerError, HandlerResult};

    pub(crate) struct Outside;

    impl Outside {
        /// A call that its receiver knows by a key.
        pub(crate) async fn with_key(&self, what: &str, key: &str) -> HandlerResult<String> {
            self.call(what, key).await
        }

        /// A call that its receiver takes as often as it comes.
        pub(crate) async fn without_key(&self, what: &str, whom: &str) -> HandlerResult<String> {
            self.call(what, whom).await
        }

        async fn call(&self, what: &str, about: &str) -> HandlerResult<String> {
            println!("{what} for {about}");
            assert!(!about.contains("panic"), "nobody thought of that");
            if about.contains("slow") {
                std::future::pending::<()>().await;
            }
            if about.contains("broken") {
                return Err(HandlerError::new(format!("{what}: the connection broke")));
            }
            Ok(format!("{what}-1"))
        }
    }
}
