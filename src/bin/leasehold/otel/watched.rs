//! What a collector takes and does not take, told once when it goes and once when it is back.
//!
//! Wraps the SDK's exporters and its span processor, and changes nothing of what they do.

use super::{Arc, AtomicU64, Debug, Duration, Relaxed};

use std::sync::atomic::AtomicBool;

use opentelemetry::Context;
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    metrics::{Temporality, data::ResourceMetrics, exporter::PushMetricExporter},
    trace::{Span, SpanData, SpanExporter, SpanProcessor},
};

/// What became of what was to be sent.
#[derive(Debug)]
pub(super) struct Watch {
    what: &'static str,
    is_away: AtomicBool,
    /// Spans that ended and are to be sent.
    ended: AtomicU64,
    sent: AtomicU64,
}

impl Watch {
    pub(super) fn new(what: &'static str) -> Self {
        Self { what, is_away: AtomicBool::new(false), ended: AtomicU64::new(0), sent: AtomicU64::new(0) }
    }

    fn noted(&self, answer: &OTelSdkResult, sent: u64) {
        let what = self.what;
        match answer {
            Ok(()) => {
                self.sent.fetch_add(sent, Relaxed);
                if self.is_away.swap(false, Relaxed) {
                    tracing::info!("{what} are sent again");
                }
            }
            Err(error) => {
                if !self.is_away.swap(true, Relaxed) {
                    tracing::warn!(%error, "{what} cannot be sent to the collector; those meanwhile are lost, and nothing else");
                }
            }
        }
    }

    pub(super) fn ends(&self) {
        let lost = self.ended.load(Relaxed).saturating_sub(self.sent.load(Relaxed));
        if lost > 0 {
            tracing::warn!(lost, "{} were not sent to the collector", self.what);
        }
    }
}

/// Something of the SDK's, and who looks on.
#[derive(Debug)]
pub(super) struct Watched<T> {
    inner: T,
    watch: Arc<Watch>,
}

impl<T> Watched<T> {
    pub(super) fn new(inner: T, watch: &Arc<Watch>) -> Self {
        Self { inner, watch: Arc::clone(watch) }
    }
}

impl<E: SpanExporter + Debug> SpanExporter for Watched<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len().try_into().unwrap_or(u64::MAX);
        let answer = self.inner.export(batch).await;
        self.watch.noted(&answer, spans);
        answer
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl<E: PushMetricExporter> PushMetricExporter for Watched<E> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let answer = self.inner.export(metrics).await;
        self.watch.noted(&answer, 0);
        answer
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.inner.temporality()
    }
}

impl<P: SpanProcessor> SpanProcessor for Watched<P> {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        self.watch.ended.fetch_add(u64::from(span.span_context.is_sampled()), Relaxed);
        self.inner.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
