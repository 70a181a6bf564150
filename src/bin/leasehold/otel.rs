//! Spans and metrics to an OpenTelemetry collector, over OTLP.
//!
//! On where the SDK's own variables name an endpoint; it reads them itself. Works in threads of its own with bounded queues:
//! a collector that is away, slow or refuses holds up nothing, and what it does not take is lost, and counted.

use std::{
    fmt::Debug,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use anyhow::Context as _;
use leasehold::config::Otlp;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{MetricExporter, Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{
    Resource,
    metrics::{PeriodicReader, SdkMeterProvider},
    trace::{BatchSpanProcessor, SdkTracerProvider, Tracer},
};
use tracing::Subscriber;
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    registry::LookupSpan,
};
use watched::{Watch, Watched};

mod recorder;
mod watched;

/// What is sent, kept for the end of the process.
static SENT: OnceLock<Sent> = OnceLock::new();

struct Sent {
    traces: Option<(SdkTracerProvider, Arc<Watch>)>,
    metrics: Option<(SdkMeterProvider, Arc<Watch>)>,
}

/// The library's spans. Those of handlers outside are theirs, and the SDK's of AWS say little that ours do not.
const SPANS: &str = "leasehold::trace";

/// Starts to send what the environment asks for. The layer that comes back turns spans of the log's subscriber into those
/// that are sent. To be called once, before the worker is made, for that counts into what is installed here.
///
/// # Errors
/// The variables cannot be meant so: an endpoint that is no URL, a header that is none.
pub(crate) fn start<S>() -> anyhow::Result<Option<impl Layer<S> + Send + Sync + use<S>>>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let Otlp { traces, metrics, .. } = Otlp::from_env();
    let traces = traces.then(tracing_to_collector).transpose().context("spans cannot be sent")?;
    let metrics = metrics.then(metrics_to_collector).transpose().context("metrics cannot be sent")?;
    let tracer = traces.as_ref().map(|(provider, _)| provider.tracer("leasehold"));
    // Started once.
    let _ = SENT.set(Sent { traces, metrics });
    Ok(tracer.map(layer))
}

fn layer<S>(tracer: Tracer) -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let layer = tracing_opentelemetry::layer().with_tracer(tracer);
    // Where in this program a span is made, and on which thread, concerns nobody else.
    let layer = layer.with_location(false).with_threads(false).with_target(false).with_level(false);
    layer.with_tracked_inactivity(false).with_filter(Targets::new().with_target(SPANS, LevelFilter::DEBUG))
}

/// What the log tells of it, once there is a log.
pub(crate) fn tell() {
    let Some(sent) = SENT.get() else { return };
    if sent.traces.is_none() && sent.metrics.is_none() {
        return;
    }
    let (traces, metrics) = (sent.traces.is_some(), sent.metrics.is_some());
    tracing::info!(traces, metrics, "sent to a collector, over OTLP");
    if Otlp::from_env().other_protocol {
        tracing::warn!(
            "OTEL_EXPORTER_OTLP_PROTOCOL asks for another protocol than http/protobuf, the only one that is spoken: the \
             endpoint must take that, on port 4318 as a rule"
        );
    }
}

fn tracing_to_collector() -> anyhow::Result<(SdkTracerProvider, Arc<Watch>)> {
    let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary).build()?;
    let watch = Arc::new(Watch::new("spans"));
    let processor = BatchSpanProcessor::builder(Watched::new(exporter, &watch)).build();
    let provider = SdkTracerProvider::builder()
        .with_span_processor(Watched::new(processor, &watch))
        .with_resource(resource())
        .build();
    Ok((provider, watch))
}

fn metrics_to_collector() -> anyhow::Result<(SdkMeterProvider, Arc<Watch>)> {
    let exporter = MetricExporter::builder().with_http().with_protocol(Protocol::HttpBinary).build()?;
    let watch = Arc::new(Watch::new("metrics"));
    let reader = PeriodicReader::builder(Watched::new(exporter, &watch)).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).with_resource(resource()).build();
    metrics::set_global_recorder(recorder::Recorder::new(&provider)).context("there is a recorder already")?;
    Ok((provider, watch))
}

/// As the variables say; a name of our own where they name none.
fn resource() -> Resource {
    let named = Resource::builder().build();
    let name = named.get(&opentelemetry::Key::from_static_str("service.name"));
    match name {
        Some(name) if !name.as_str().starts_with("unknown_service") => named,
        _ => Resource::builder().with_service_name("leasehold").build(),
    }
}

/// Sends what is left, but for no longer than this; and says what was lost. What is still under way then ends with the
/// process.
pub(crate) fn flush(longest: Duration) {
    let Some(Sent { traces, metrics }) = SENT.get() else { return };
    if traces.is_none() && metrics.is_none() {
        return;
    }
    let (done, ended) = mpsc::channel();
    let all = move || {
        // Side by side, for each may take all the time there is.
        thread::scope(|scope| {
            if let Some((provider, _)) = traces {
                scope.spawn(move || drop(provider.shutdown_with_timeout(longest)));
            }
            if let Some((provider, _)) = metrics {
                scope.spawn(move || drop(provider.shutdown_with_timeout(longest)));
            }
        });
        let _ = done.send(());
    };
    if thread::Builder::new().name("otel".to_owned()).spawn(all).is_ok() {
        let _ = ended.recv_timeout(longest);
    }
    for watch in
        [traces.as_ref().map(|(_, watch)| watch), metrics.as_ref().map(|(_, watch)| watch)].into_iter().flatten()
    {
        watch.ends();
    }
}
