//! What dashboards, alert rules and pages ask of metrics is there: names with the right ending, labels, and their values.
//!
//! Queries are read as far as that needs, names and what follows them in braces. `make check` has promtool read the rules.

use std::{collections::BTreeSet, fs, path::Path};

use leasehold::telemetry::{Kind, METRICS, Metric};
use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use crate::{repository, tidy};

const ALERTS: &str = "infra/dashboards/alerts.yaml";
const GRAFANA: &str = "infra/dashboards/grafana.json";
const PAGE: &str = "docs/telemetry.md";

/// Labels that Prometheus adds.
const PROMETHEUS: [&str; 2] = ["instance", "job"];

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("it is there")
}

pub(crate) fn yaml(path: &str) -> Yaml {
    YamlLoader::load_from_str(&text(path)).expect("YAML").swap_remove(0)
}

/// The words of a text: runs of characters of which names are made, and where each begins.
pub(crate) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let mut rest = (0, text);
    std::iter::from_fn(move || {
        let start = rest.1.find(is_part)?;
        let word = &rest.1[start..];
        let word = &word[..word.find(|c| !is_part(c)).unwrap_or(word.len())];
        let at = rest.0 + start;
        rest = (at + word.len(), &rest.1[start + word.len()..]);
        Some((at, word.trim_end_matches('.')))
    })
}

/// The metric that has this name at `/metrics`.
pub(crate) fn at_metrics(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| match metric.kind {
        Kind::Histogram(_) => {
            let ending = name.strip_prefix(metric.prometheus_name().as_str());
            ending.is_some_and(|ending| ["_bucket", "_sum", "_count"].contains(&ending))
        }
        _ => name == metric.prometheus_name(),
    })
}

/// Whether a word is a metric's name, as OpenTelemetry or as Prometheus has it, or ought to be.
pub(crate) fn is_ours(word: &str) -> bool {
    let is_after = |room| word.strip_prefix(room).is_some_and(|rest: &str| rest.starts_with(['_', '.']));
    // A name with capitals is something else's: a class of an example.
    ["leasehold", "messaging"].into_iter().any(is_after) && !word.contains(|c: char| c.is_ascii_uppercase())
}

/// What is wrong with a query in PromQL.
fn wrong(query: &str) -> Vec<String> {
    let mut found = Vec::new();
    let count = |bracket| query.matches(bracket).count();
    if [('(', ')'), ('{', '}'), ('[', ']')].iter().any(|(open, close)| count(*open) != count(*close)) {
        found.push("brackets that do not match".to_owned());
    }
    let mut known: BTreeSet<String> = PROMETHEUS.map(str::to_owned).into();
    let mut metrics = 0;
    for (at, name) in words(query).filter(|(_, word)| is_ours(word)) {
        if METRICS.iter().flat_map(|metric| metric.labels).any(|label| label.replace('.', "_") == name) {
            continue;
        }
        let after = &query[at + name.len()..];
        metrics += 1;
        let Some(metric) = at_metrics(name) else {
            found.push(format!("there is no metric {name} (at /metrics)"));
            continue;
        };
        known.extend(metric.labels.iter().map(|label| label.replace('.', "_")));
        known.extend(name.ends_with("_bucket").then(|| "le".to_owned()));
        let matchers = after.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(inner, _)| inner);
        found.extend(
            matchers.split(", ").filter(|matcher| !matcher.is_empty()).filter_map(|one| unmatched(metric, one)),
        );
    }
    for (at, _) in words(query).filter(|(_, word)| ["by", "on", "without", "ignoring"].contains(word)) {
        let labels =
            query[at..].split_once('(').and_then(|(_, rest)| rest.split_once(')')).map_or("", |(labels, _)| labels);
        let unknown = labels.split(", ").filter(|label| !known.contains(*label));
        found.extend(unknown.map(|label| format!("none of its metrics has a label {label}")));
    }
    if metrics == 0 {
        found.push("it asks for no metric".to_owned());
    }
    found
}

/// Why a matcher, `outcome=~"done|failed"`, can match nothing of a metric.
fn unmatched(metric: &Metric, matcher: &str) -> Option<String> {
    let end = matcher.find(['=', '!'])?;
    let (label, pattern) = (&matcher[..end], matcher[end..].trim_start_matches(['=', '!', '~']).trim_matches('"'));
    if PROMETHEUS.contains(&label) {
        return None;
    }
    let Some(label) = metric.labels.iter().find(|known| known.replace('.', "_") == label) else {
        return Some(format!("{} has no label {label}", metric.name));
    };
    let values = Metric::values(label, metric.name)?;
    let unknown = pattern.split('|').find(|asked| values.iter().all(|(value, _)| value != asked))?;
    Some(format!("{label} of {} is never {unknown:?}", metric.name))
}

fn all_wrong(path: &str, queries: &[String]) -> Vec<String> {
    let of_each =
        queries.iter().flat_map(|query| wrong(query).into_iter().map(move |what| format!("{path}: {what}: {query}")));
    of_each.collect()
}

/// The rules: name, query, and the command that stands with it.
fn alerts() -> Vec<(String, String, String)> {
    let alerts = yaml(ALERTS);
    let rules =
        alerts["groups"].as_vec().expect("groups").iter().flat_map(|group| group["rules"].as_vec().expect("rules"));
    let of = |rule: &Yaml, key: &str| rule[key].as_str().unwrap_or_default().to_owned();
    rules.map(|rule| (of(rule, "alert"), of(rule, "expr"), of(&rule["annotations"], "command"))).collect()
}

/// Every string under a key of that name.
fn under<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v Value>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                found.extend((name == key).then_some(field));
                under(field, key, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| under(item, key, found)),
        _ => {}
    }
}

pub(crate) const MEND: &str = "docs/telemetry.md has the metrics as they are, src/telemetry/table.rs makes them.";

#[test]
fn alert_rules_ask_for_metrics_that_there_are() {
    let alerts = alerts();
    assert!(alerts.len() > 15, "the rules are not found");
    let queries: Vec<_> = alerts.into_iter().map(|(_, query, _)| query).collect();
    tidy(&all_wrong(ALERTS, &queries), MEND);
}

#[test]
fn every_alarm_of_the_table_has_a_rule() {
    let asked: BTreeSet<_> = alerts()
        .iter()
        .flat_map(|(_, query, _)| {
            words(query).filter_map(|(_, word)| at_metrics(word)).map(|metric| metric.name).collect::<Vec<_>>()
        })
        .collect();
    let alarming = METRICS.iter().filter(|metric| metric.alarm.is_some() && !asked.contains(metric.name));
    let found: Vec<_> =
        alarming.map(|metric| format!("{ALERTS}: no rule asks for {}", metric.prometheus_name())).collect();
    tidy(&found, "Write the rule that its `alarm` describes, and show in alerts.test.yaml that it fires.");
}

#[test]
fn every_rule_is_shown_to_fire_and_names_a_command_that_there_is() {
    let (shown, files) = (text("infra/dashboards/alerts.test.yaml"), repository());
    let mut found = Vec::new();
    for (name, _, command) in alerts() {
        if !shown.contains(&format!(r#"alertname="{name}""#)) {
            found.push(format!("{ALERTS}: {name} fires nowhere in alerts.test.yaml"));
        }
        let subcommand = command.strip_prefix("leasehold ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
        if !files.iter().any(|file| file.path == format!("src/bin/leasehold/{subcommand}.rs")) {
            found.push(format!("{ALERTS}: {name} says to run {command:?}"));
        }
    }
    tidy(&found, "Whoever is woken is told what to run first: a subcommand of leasehold.");
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are_and_says_what_is_bad() {
    let dashboard: Value = serde_json::from_str(&text(GRAFANA)).expect("JSON");
    let (mut queries, mut found) = (Vec::new(), Vec::new());
    under(&dashboard["panels"], "expr", &mut queries);
    let queries: Vec<_> = queries.iter().filter_map(|query| query.as_str()).map(in_prometheus).collect();
    assert!(queries.len() > 30, "its queries are not found");
    found.extend(all_wrong(GRAFANA, &queries));
    for variable in
        dashboard["templating"]["list"].as_array().expect("variables").iter().filter(|one| one["type"] == "query")
    {
        // label_values(METRIC, LABEL)
        let query = variable["definition"].as_str().unwrap_or_default();
        let asked = query.split(['(', ',']).nth(1).and_then(at_metrics);
        let label = query.rsplit([' ', ')']).nth(1).unwrap_or_default();
        if !asked.is_some_and(|metric| metric.labels.contains(&label) || PROMETHEUS.contains(&label)) {
            found.push(format!("{GRAFANA}: {query}"));
        }
    }
    for panel in dashboard["panels"].as_array().expect("panels").iter().filter(|panel| panel["type"] != "row") {
        if !panel["description"].as_str().is_some_and(|text| text.starts_with("Bad: ")) {
            found.push(format!("{GRAFANA}: {} does not say what a bad picture is", panel["title"]));
        }
    }
    let asked: String = queries.concat();
    let unseen = METRICS
        .iter()
        .filter(|metric| !words(&asked).any(|(_, word)| at_metrics(word).is_some_and(|one| one.name == metric.name)));
    found.extend(unseen.map(|metric| format!("{GRAFANA}: no panel shows {}", metric.name)));
    tidy(&found, MEND);
}

/// A query of Grafana's, as Prometheus would be asked it.
fn in_prometheus(query: &str) -> String {
    query.replace("$__rate_interval", "5m").replace("$__range", "1h")
}

#[test]
fn the_page_asks_for_metrics_that_there_are() {
    let page = text(PAGE);
    let blocks = page.split("```promql\n").skip(1).filter_map(|rest| rest.split("```").next());
    // One query to a paragraph, with what it asks in a comment before it.
    let queries = blocks.flat_map(|block| block.split("\n\n"));
    let without_comments =
        |query: &str| query.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let queries: Vec<_> = queries.map(without_comments).collect();
    assert!(queries.len() > 10, "its queries are not found");
    tidy(&all_wrong(PAGE, &queries), MEND);
}

#[test]
fn queries_that_ask_for_what_is_not_there_are_told() {
    for good in [
        r#"sum by (queue, outcome) (rate(leasehold_messages_settled_total{outcome=~"done|failed", instance="a"}[5m]))"#,
        r#"histogram_quantile(0.9, sum by (le) (rate(leasehold_message_age_seconds_bucket{queue=~"$queue"}[5m])))"#,
        r#"sum by (error_type) (rate(messaging_process_duration_seconds_count{messaging_system="aws_sqs"}[5m]))"#,
    ] {
        assert_eq!(wrong(good), Vec::<String>::new(), "{good}");
    }
    for (bad, why) in [
        ("leasehold_messages_settled", "no metric leasehold_messages_settled"),
        ("leasehold_message_age_seconds", "no metric leasehold_message_age_seconds"),
        ("leasehold_slots_bucket", "no metric leasehold_slots_bucket"),
        (r#"leasehold_beats_total{outcome="done"}"#, "no label outcome"),
        (r#"leasehold_beats_total{result=~"renewed|full"}"#, "never \"full\""),
        (r#"leasehold_circuit_open{circuit!="operators"}"#, "never \"operators\""),
        ("sum by (verdict) (leasehold_slots)", "has a label verdict"),
        ("sum by (queue) (leasehold_slots", "brackets"),
        ("sum by (le) (leasehold_slots)", "has a label le"),
        ("up", "no metric"),
    ] {
        assert!(wrong(bad).iter().any(|told| told.contains(why)), "{bad}: {:?}", wrong(bad));
    }
}
