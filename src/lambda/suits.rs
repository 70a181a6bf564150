//! What of a worker's settings is kept under Lambda, what does nothing there, and what cannot be kept.
//!
//! Pure, but for one line in the log. A setting that only tunes polls or a drain is taken for its default; one that promises
//! something which nobody could keep is a problem.

use std::{collections::BTreeMap, time::Duration};

use crate::config::{Config, Problem, QueueConfig, S3Payload, variable};

/// Lambda gives a function ten seconds before its first invocation.
/// <https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html>
const INIT: Duration = Duration::from_secs(8);

/// Makes a configuration fit. What cannot be made to is what comes back.
pub(super) fn suit(config: &mut Config) -> Vec<Problem> {
    let mut needless = without_effect_in_the_process(config);
    let mut problems = Vec::new();
    let mut names = BTreeMap::<String, String>::new();
    for (name, queue) in &mut config.queues {
        needless.extend(without_effect(name, queue));
        problems.extend(unkept(name, queue));
        let at_sqs = queue.address.queue_name().to_owned();
        if let Some(other) = names.insert(at_sqs.clone(), name.clone()) {
            let what =
                format!("{other:?} and {name:?} are both called {at_sqs:?} in SQS, and a batch is told by that name");
            problems.push(Problem::new(what, format!("LEASEHOLD_QUEUES={name}")));
        }
    }
    if !needless.is_empty() {
        tracing::warn!("without effect under Lambda: {}", needless.join(", "));
    }
    problems
}

/// Says what has no effect, and sets back what would be told of otherwise.
fn without_effect_in_the_process(config: &mut Config) -> Vec<String> {
    let usual = Config::default();
    config.start_timeout = config.start_timeout.min(INIT);
    let mut needless = Vec::new();
    if config.drain_timeout != usual.drain_timeout {
        needless.push("LEASEHOLD_DRAIN_TIMEOUT");
    }
    if config.http_addr.take().is_some() {
        needless.push("LEASEHOLD_HTTP_ADDR");
    }
    if config.steps_addr != usual.steps_addr {
        needless.push("LEASEHOLD_STEPS_ADDR");
    }
    needless.into_iter().map(str::to_owned).collect()
}

/// The same, of a queue. The mapping receives, with the queue's own visibility timeout.
fn without_effect(name: &str, queue: &mut QueueConfig) -> Vec<String> {
    let usual = QueueConfig::new(name);
    let mut needless = Vec::new();
    if queue.wait_time != usual.wait_time {
        queue.wait_time = usual.wait_time;
        needless.push("WAIT_TIME");
    }
    if queue.visibility_timeout != usual.visibility_timeout {
        queue.visibility_timeout = usual.visibility_timeout;
        needless.push("VISIBILITY_TIMEOUT");
    }
    needless.into_iter().map(|setting| variable(name, setting)).collect()
}

fn unkept(name: &str, queue: &QueueConfig) -> Vec<Problem> {
    let mut problems = Vec::new();
    if queue.rate.is_some() {
        let rate = variable(name, "RATE");
        let what = format!(
            "{rate} cannot be kept under Lambda, where many environments begin what their batches bring; the mapping's \
             MaximumConcurrency bounds them"
        );
        problems.push(Problem::new(what, format!("unset {rate} LEASEHOLD_RATE")));
    }
    if queue.s3_payload == S3Payload::FetchDelete {
        let payload = variable(name, "S3_PAYLOAD");
        let what = format!(
            "{payload} is fetch-delete, and under Lambda nobody knows when a message is gone and its body may go; a lifecycle \
             rule of the bucket ends bodies"
        );
        problems.push(Problem::new(what, format!("{payload}=fetch")));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(vars: &[(&str, &str)]) -> Config {
        let vars = vars.iter().map(|(name, value)| (format!("LEASEHOLD_{name}"), (*value).to_owned()));
        Config::from_vars(vars).expect("good variables").0
    }

    #[test]
    fn what_only_tunes_polls_and_drains_is_set_back() {
        let mut all = config(&[
            ("QUEUES", "a"),
            ("DRAIN_TIMEOUT", "50s"),
            ("HTTP_ADDR", "0.0.0.0:80"),
            ("WAIT_TIME", "1s"),
            ("VISIBILITY_TIMEOUT", "5s"),
        ]);
        assert_eq!(without_effect_in_the_process(&mut all), ["LEASEHOLD_DRAIN_TIMEOUT", "LEASEHOLD_HTTP_ADDR"]);
        let queue = all.queues.get_mut("a").expect("a queue");
        assert_eq!(without_effect("a", queue), ["LEASEHOLD_A_WAIT_TIME", "LEASEHOLD_A_VISIBILITY_TIMEOUT"]);
        assert_eq!(queue.wait_time, QueueConfig::new("a").wait_time);
        assert_eq!(all.start_timeout, INIT);
        assert_eq!(suit(&mut all), []);
        assert_eq!(all.check(), []);
    }

    #[test]
    fn what_nobody_could_keep_is_a_problem() {
        let mut all = config(&[
            ("QUEUES", "a,b"),
            ("A_RATE", "10"),
            ("B_S3_PAYLOAD", "fetch-delete"),
            ("B_S3_BUCKETS", "bodies"),
            ("B_URL", "https://sqs.eu-west-1.amazonaws.com/123456789012/a"),
        ]);
        let told: Vec<_> = suit(&mut all).iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("MaximumConcurrency") && told[1].contains("fetch-delete"), "{told:?}");
        assert!(told[2].contains("both called \"a\""), "{told:?}");
    }
}
