//! A collector of OpenTelemetry's, played by the test: what a worker sends to it, and that it works on where it is away.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use http_body_util::{BodyExt, Empty};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
};
use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind},
};
use prost::Message as _;

use crate::{
    apps::post::{Letter, Post},
    bench::Bench,
    stand_in::{ANY, StandIn},
    worker::{Settings, report},
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PRODUCER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// What it was sent.
#[derive(Debug, Default)]
struct Taken {
    spans: Vec<Span>,
    /// Values of resources, by their keys.
    resource: BTreeMap<String, String>,
    /// Names of metrics, each with its unit.
    metrics: BTreeMap<String, String>,
}

/// Ends when it is dropped.
struct Collector {
    served: StandIn,
    taken: Arc<Mutex<Taken>>,
}

impl Collector {
    async fn start() -> Self {
        Self::at(ANY).await
    }

    async fn at(address: impl tokio::net::ToSocketAddrs) -> Self {
        let taken = Arc::<Mutex<Taken>>::default();
        let of_all = Arc::clone(&taken);
        let served = StandIn::at(address, move |request| answer(Arc::clone(&of_all), request)).await;
        Self { served, taken }
    }

    fn settings(&self, settings: Settings) -> Settings {
        settings
            .set("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", self.served.address))
            .set("OTEL_BSP_SCHEDULE_DELAY", "100")
            .set("OTEL_METRIC_EXPORT_INTERVAL", "200")
    }

    /// It is gone, and so are the connections to it.
    async fn dies(self) -> SocketAddr {
        self.served.dies().await
    }

    fn taken<T>(&self, look: impl FnOnce(&Taken) -> T) -> T {
        look(&self.taken.lock().expect("a lock"))
    }

    fn spans(&self, name: &str) -> Vec<Span> {
        self.taken(|taken| taken.spans.iter().filter(|span| span.name == name).cloned().collect())
    }
}

async fn answer(taken: Arc<Mutex<Taken>>, request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let mut taken = taken.lock().expect("a lock");
    match path.as_str() {
        "/v1/traces" => {
            for of in ExportTraceServiceRequest::decode(body).expect("spans").resource_spans {
                taken.resource.extend(texts(&of.resource.unwrap_or_default().attributes));
                taken.spans.extend(of.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        "/v1/metrics" => {
            let of = ExportMetricsServiceRequest::decode(body).expect("metrics").resource_metrics;
            let metrics = of.into_iter().flat_map(|of| of.scope_metrics).flat_map(|scope| scope.metrics);
            taken.metrics.extend(metrics.map(|metric| (metric.name, metric.unit)));
        }
        other => panic!("{other}"),
    }
    Ok(Response::default())
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &KeyValue| match value.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        other => Some(format!("{other:?}")),
    };
    attributes.iter().filter_map(|attribute| Some((attribute.key.clone(), text(attribute)?))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_is_a_trace_that_is_linked_to_its_producers_and_goes_on_in_its_program() {
    let (bench, collector) = (Bench::new().await, Collector::start().await);
    let post = Post::new(&bench).await;
    post.send([Letter::new(r#"{"id":"a"}"#).text("traceparent", PRODUCER), Letter::new(r#"{"id":"bad"}"#)]).await;
    let script = format!(
        "read -r body; echo \"$TRACEPARENT\" >> {}; case \"$body\" in *bad*) exit 65;; esac",
        bench.path("traces").display()
    );
    let settings = collector.settings(bench.settings(&script)).set("OTEL_RESOURCE_ATTRIBUTES", "team=payments");
    let mut worker = settings.start();
    worker.settles(2).await;
    let ended = worker.stops().await;
    assert_eq!(ended.report(), report([("done", 1), ("dead", 1)]));
    let processed = collector.spans("process jobs");
    assert_eq!(processed.len(), 2, "{processed:#?}");
    let of = |outcome: &str| {
        let is_it = |span: &&Span| texts(&span.attributes).get("leasehold.outcome").is_some_and(|told| told == outcome);
        processed.iter().find(is_it).expect("a span").clone()
    };
    let (done, dead) = (of("done"), of("dead_lettered"));
    // A trace of its own, with a link to the producer's.
    assert_eq!((done.kind(), done.parent_span_id.len()), (SpanKind::Consumer, 0), "{done:#?}");
    assert_eq!(done.links.iter().map(|link| hex(&link.trace_id)).collect::<Vec<_>>(), [TRACE]);
    assert_eq!((dead.links.len(), dead.status.as_ref().map(|status| status.code)), (0, Some(2)), "{dead:#?}");
    let told = texts(&done.attributes);
    for (name, value) in [
        ("messaging.system", "aws_sqs"),
        ("messaging.destination.name", "jobs"),
        ("messaging.operation.type", "process"),
        ("leasehold.key", "jobs#a"),
        ("trace_id", TRACE),
    ] {
        assert_eq!(told.get(name).map(String::as_str), Some(value), "{told:#?}");
    }
    assert_eq!(texts(&dead.attributes).get("error.type").map(String::as_str), Some("exit_65"));
    // Its parts are its children.
    let children = |of: &Span| {
        collector.taken(|taken| {
            let mut names: Vec<_> = taken
                .spans
                .iter()
                .filter(|span| span.parent_span_id == of.span_id)
                .map(|span| span.name.clone())
                .collect();
            names.sort();
            names
        })
    };
    assert_eq!(children(&done), ["claim", "handle", "record confirm", "settle jobs"]);
    assert_eq!(children(&dead), ["claim", "dead-letter", "handle", "record bury", "settle jobs"]);
    // The program's part of the trace is below its run.
    let mut handled: Vec<_> = collector
        .spans("handle")
        .iter()
        .map(|span| format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id)))
        .collect();
    let mut carried = bench.lines("traces");
    handled.sort();
    carried.sort();
    assert_eq!(handled, carried);
    let resource = collector.taken(|taken| taken.resource.clone());
    assert_eq!(
        (resource.get("service.name").map(String::as_str), resource.get("team").map(String::as_str)),
        (Some("leasehold"), Some("payments"))
    );
    let metrics = collector.taken(|taken| taken.metrics.clone());
    assert_eq!(metrics.get("leasehold.messages.settled").map(String::as_str), Some("{message}"), "{metrics:?}");
    assert_eq!(metrics.get("messaging.process.duration").map(String::as_str), Some("s"), "{metrics:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_goes_and_comes_back_costs_nothing_but_its_spans() {
    let (bench, collector) = (Bench::new().await, Collector::start().await);
    let mut worker = collector.settings(bench.settings("exit 0")).start();
    bench.send(["a"]).await;
    worker.settles(1).await;
    bench.poll("spans come", async || !collector.spans("process jobs").is_empty()).await;
    let address = collector.dies().await;
    bench.send(0..10).await;
    worker.says("spans cannot be sent to the collector").await;
    bench.poll("all is done", async || bench.messages().await == 0).await;
    let collector = Collector::at(address).await;
    bench.send(["b"]).await;
    worker.says("spans are sent again").await;
    collector.dies().await;
    bench.send(["c"]).await;
    bench.until_done(13).await;
    // Told once each time, not for each batch; and it ends in time.
    let ended = worker.stops().await;
    let told = ended.log.iter().filter(|line| line.contains("spans cannot be sent")).count();
    assert!((1..=2).contains(&told), "{:#?}", ended.log);
    assert!(ended.log.iter().any(|line| line.contains("were not sent to the collector")), "{:#?}", ended.log);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_for_cloudwatch_are_lines_of_the_log_that_end_with_the_process() {
    let bench = Bench::new().await;
    bench.send(0..3).await;
    let mut worker = bench.settings("exit 0").set("LEASEHOLD_EMF_NAMESPACE", "Shop/Prod").start();
    worker.settles(3).await;
    let ended = worker.stops().await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{:#?}", ended.log);
    let lines = ended.log.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let metrics: Vec<_> = lines.filter(|line| !line["_aws"].is_null()).collect();
    let done = metrics.iter().find(|line| line["outcome"] == "done").expect("what was done");
    assert_eq!((&done["queue"], &done["leasehold.messages.settled"]), (&"jobs".into(), &3.into()), "{done}");
    assert_eq!(done["_aws"]["CloudWatchMetrics"][0]["Namespace"], "Shop/Prod");
    // Beside a collector, which gets the same.
    let collector = Collector::start().await;
    bench.send(["last"]).await;
    let mut both = collector.settings(bench.settings("exit 0")).set("LEASEHOLD_EMF_NAMESPACE", "Shop/Prod").start();
    both.settles(1).await;
    let ended = both.stops().await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{:#?}", ended.log);
    assert!(ended.log.iter().any(|line| line.contains("_aws") && line.contains(r#""leasehold.messages.settled":1"#)));
    assert!(collector.taken(|taken| taken.metrics.contains_key("leasehold.messages.settled")));
}
