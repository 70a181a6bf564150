//! `/metrics`: what the worker counts, in Prometheus' text format.
//!
//! The recorder is the worker's own, beside whichever the program has installed, so that a library user's metrics and these
//! do not meet. <https://prometheus.io/docs/instrumenting/exposition_formats/>

use std::{sync::Arc, time::Duration};

use axum::{Router, http::header, response::IntoResponse, routing::get};
use metrics::Recorder;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::time::sleep;

use crate::telemetry::{Kind, METRICS};

/// Times that were recorded are put into their buckets this often, asked for or not: until then each takes its own room.
const UPKEEP: Duration = Duration::from_secs(5);

/// Records for `/metrics`.
#[derive(Clone)]
pub(crate) struct Exporter(PrometheusHandle);

/// What records, and what tells of it.
pub(crate) fn exporter() -> (Arc<dyn Recorder + Send + Sync>, Exporter) {
    let mut builder = PrometheusBuilder::new().with_recommended_naming(true);
    for metric in METRICS {
        if let Kind::Histogram(bounds) = metric.kind {
            let name = Matcher::Full(metric.name.to_owned());
            // Refused where there are no bounds, and then it is a summary.
            builder = match builder.set_buckets_for_metric(name, bounds) {
                Ok(builder) => builder,
                Err(_) => unreachable!("bounds of a constant table"),
            };
        }
    }
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    (Arc::new(recorder), Exporter(handle))
}

impl Exporter {
    /// Keeps what is recorded small, for ever.
    pub(super) async fn keep_up(&self) {
        loop {
            sleep(UPKEEP).await;
            self.0.run_upkeep();
        }
    }

    pub(super) fn routes(self) -> Router {
        const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
        Router::new()
            .route("/metrics", get(async move || ([(header::CONTENT_TYPE, TEXT)], self.0.render()).into_response()))
    }
}
