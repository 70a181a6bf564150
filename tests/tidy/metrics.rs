//! The page on metrics lists those that there are, and pages name no others.

use std::collections::BTreeSet;

use leasehold::telemetry::{Kind, METRICS, Metric};

use crate::{generated, queries, repository, tidy};

const PAGE: &str = "docs/telemetry.md";

#[test]
fn the_page_lists_the_metrics() {
    let mend = "UPDATE=1 cargo test --all-features --test tidy metrics writes them.";
    generated(PAGE, "metrics", &table(), "src/telemetry/table.rs", mend);
}

/// The metrics, the values of their labels, and how many series that makes, in Markdown.
fn table() -> String {
    let mut page = "| metric, and its name at `/metrics` | | labels | what it tells | alarm |\n\
                    | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for metric in METRICS {
        let Metric { name, doc, .. } = metric;
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        page += &format!(
            "| `{name}` `{}` | {}, {} | {labels} | {doc} | {} |\n",
            metric.prometheus_name(),
            metric.kind.as_str(),
            metric.unit,
            metric.alarm.unwrap_or_default()
        );
    }
    page += "\n| label | value | means |\n| --- | --- | --- |\n";
    let mut told = BTreeSet::new();
    for (metric, label) in METRICS.iter().flat_map(|metric| metric.labels.iter().map(move |label| (metric, *label))) {
        let Some(values) = Metric::values(label, metric.name) else { continue };
        // `result` has other values in each of its metrics; the others have the same in all.
        let of = METRICS.iter().filter(|other| Metric::values(label, other.name).as_ref() == Some(&values));
        let of: Vec<_> =
            of.filter(|other| other.labels.contains(&label)).map(|other| format!("`{}`", other.name)).collect();
        if told.insert((label, of.clone())) {
            for (index, (value, means)) in values.iter().enumerate() {
                let head = if index == 0 { format!("`{label}` of {}", of.join(", ")) } else { String::new() };
                page += &format!("| {head} | `{value}` | {means} |\n");
            }
        }
    }
    page + &series()
}

/// So many reason codes of a queue are told apart, and the rest is one more: `CODES` in src/telemetry/queue.rs.
const CODES: usize = 101;

/// How many series a worker makes at the most, each bucket of a histogram being one.
fn series() -> String {
    let of_queue = METRICS.iter().filter(|metric| metric.labels.contains(&"queue"));
    let (by_code, others): (Vec<_>, Vec<_>) = of_queue.partition(|metric| metric.labels.contains(&"code"));
    let each = |metric: &&Metric| {
        let in_each = match metric.kind {
            // Its bounds, the one without end, the sum and the count.
            Kind::Histogram(bounds) => bounds.len() + 3,
            _ => 1,
        };
        let ways = metric.labels.iter().filter_map(|label| Some((label, Metric::values(label, metric.name)?.len())));
        // A run that succeeded has no `error.type`.
        ways.map(|(label, values)| values + usize::from(*label == "error.type")).product::<usize>() * in_each
    };
    let of_operation = Metric::values("result", "leasehold.api.calls").expect("a fixed set").len();
    format!(
        "\nThat is {} series at most for each queue of a worker, up to {} more by reason code, and {of_operation} for each \
         operation of AWS that is used.\n",
        others.iter().map(each).sum::<usize>(),
        by_code.len() * CODES,
    )
}

#[test]
fn pages_name_metrics_that_there_are() {
    // Files, and what is no metric.
    let others = ["leasehold.py", "leasehold.mjs", "leasehold_token"];
    let mut found = Vec::new();
    let files = repository();
    let spans = files.iter().find(|file| file.path == "src/trace.rs").expect("the spans");
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (_, word) in queries::words(&file.text).filter(|(_, word)| queries::is_ours(word)) {
            let is_one = |metric: &Metric| metric.name == word || metric.prometheus_name() == word;
            let is_label = METRICS.iter().any(|metric| metric.labels.contains(&word) || is_one(metric));
            let is_of_a_span = spans.text.contains(&format!("{word} = "));
            if !is_label && !is_of_a_span && queries::at_metrics(word).is_none() && !others.contains(&word) {
                found.push(format!("{}: there is no {word}", file.path));
            }
        }
    }
    tidy(&found, queries::MEND);
}
