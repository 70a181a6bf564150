//! What the CloudWatch template asks of metrics is there. In CloudWatch a metric is found by all of its dimensions, and only so:
//! those of its labels that are written as such.

use std::collections::BTreeSet;

use leasehold::telemetry::{Metric, emf::DIMENSIONS};
use serde_json::Value;
use yaml_rust2::Yaml;

use crate::{queries::yaml, tidy};

const TEMPLATE: &str = "infra/dashboard.yaml";

/// What stands for the namespace: in the alarms a reference, whose tag is not read, and in the dashboard's text a variable.
const NAMESPACES: [&str; 2] = ["MetricsNamespace", "${MetricsNamespace}"];

/// A metric that is asked for: its name, and its dimensions with the value of each, unless all are asked for.
#[derive(Debug)]
struct Asked {
    metric: String,
    dimensions: Vec<(String, Option<String>)>,
}

/// What is wrong with what is asked for.
fn wrong(asked: &Asked) -> Option<String> {
    let Some(metric) = Metric::named(&asked.metric) else {
        return Some(format!("{TEMPLATE}: there is no metric {}", asked.metric));
    };
    let dimensions: BTreeSet<_> = metric.labels.iter().copied().filter(|label| DIMENSIONS.contains(label)).collect();
    let of_asked: BTreeSet<_> = asked.dimensions.iter().map(|(name, _)| name.as_str()).collect();
    if of_asked != dimensions {
        return Some(format!("{TEMPLATE}: the dimensions of {} are {dimensions:?}, not {of_asked:?}", metric.name));
    }
    asked.dimensions.iter().find_map(|(name, value)| {
        let (value, values) = (value.as_ref()?, Metric::values(name, metric.name)?);
        let is_one = values.iter().any(|(known, _)| known == value);
        (!is_one).then(|| format!("{TEMPLATE}: {name} of {} is never {value:?}", metric.name))
    })
}

fn alarms(template: &Yaml) -> Vec<Asked> {
    let resources = template["Resources"].as_hash().expect("resources").values();
    let alarms = resources.filter(|resource| resource["Type"].as_str() == Some("AWS::CloudWatch::Alarm"));
    let mut asked = Vec::new();
    for alarm in alarms.map(|alarm| &alarm["Properties"]) {
        let of_math = alarm["Metrics"].as_vec().into_iter().flatten().map(|metric| &metric["MetricStat"]["Metric"]);
        let metrics = of_math.chain([alarm]).filter(|metric| !metric["MetricName"].is_badvalue());
        let before = asked.len();
        for metric in
            metrics.filter(|metric| metric["Namespace"].as_str().is_some_and(|name| NAMESPACES.contains(&name)))
        {
            let text = |value: &Yaml| value.as_str().expect("a text").to_owned();
            let dimensions = metric["Dimensions"].as_vec().into_iter().flatten();
            asked.push(Asked {
                metric: text(&metric["MetricName"]),
                dimensions: dimensions.map(|one| (text(&one["Name"]), Some(text(&one["Value"])))).collect(),
            });
        }
        assert!(asked.len() > before, "{alarm:?} is on none of our metrics");
    }
    asked
}

/// What the graphs ask for, each `["${MetricsNamespace}", metric, dimension, value, ...]` or an expression.
fn graphs(template: &Yaml) -> Vec<Asked> {
    let body = template["Resources"]["Dashboard"]["Properties"]["DashboardBody"].as_str().expect("a text");
    let body: Value = serde_json::from_str(body).expect("JSON");
    let widgets = body["widgets"].as_array().expect("widgets").iter();
    let metrics = widgets.flat_map(|widget| widget["properties"]["metrics"].as_array().expect("metrics"));
    metrics.filter_map(|metric| graph(metric.as_array().expect("an array"))).collect()
}

fn graph(metric: &[Value]) -> Option<Asked> {
    if let Some(expression) = metric[0]["expression"].as_str() {
        return Some(search(expression));
    }
    let texts: Vec<_> = metric.iter().map_while(Value::as_str).map(str::to_owned).collect();
    let dimensions = texts[2..].chunks(2).map(|pair| (pair[0].clone(), Some(pair[1].clone()))).collect();
    NAMESPACES.contains(&texts[0].as_str()).then(|| Asked { metric: texts[1].clone(), dimensions })
}

/// What `SEARCH('{"${MetricsNamespace}",queue,outcome} MetricName="..." queue="${Queue}"', 'Sum', 60)` finds.
fn search(expression: &str) -> Asked {
    let inner = expression.strip_prefix("SEARCH('{\"${MetricsNamespace}\",").expect("a search in our namespace");
    let (dimensions, rest) = inner.split_once("} MetricName=\"").expect("dimensions, and a name");
    let metric = rest.split('"').next().expect("a name");
    assert!(rest.contains(r#" queue="${Queue}"'"#), "{expression} finds all queues");
    Asked {
        metric: metric.to_owned(),
        dimensions: dimensions.split(',').map(|dimension| (dimension.to_owned(), None)).collect(),
    }
}

#[test]
fn cloudwatch_is_asked_for_metrics_that_there_are() {
    let template = yaml(TEMPLATE);
    let (alarms, graphs) = (alarms(&template), graphs(&template));
    assert!(alarms.len() > 10 && graphs.len() > 15, "what it asks for is not found: {alarms:?} {graphs:?}");
    let found: Vec<_> = alarms.iter().chain(&graphs).filter_map(wrong).collect();
    tidy(&found, "docs/telemetry.md has the metrics as they are, src/telemetry/table.rs makes them.");
}
