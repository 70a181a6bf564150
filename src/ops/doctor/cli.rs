//! Lines for a shell: commands of the AWS CLI, and statements for a policy.
//!
//! What comes from outside is quoted for a POSIX shell.

use std::collections::BTreeMap;

use crate::queue::QueueFacts;

/// The most that `maxReceiveCount` can be.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html>
pub(super) const LARGEST_RECEIVE_COUNT: u32 = 1000;

/// One word, whatever is in it.
pub(super) fn quoted(text: &str) -> String {
    shell_words::quote(text).into_owned()
}

/// Changes attributes of a queue.
pub(super) fn set(facts: &QueueFacts, attributes: &[(&str, String)]) -> String {
    let (url, region) = (quoted(&facts.url), region_option(&facts.arn));
    format!("aws sqs set-queue-attributes --queue-url {url} --attributes {}{region}", written(attributes))
}

/// Makes a queue; it is FIFO where its name says so.
pub(super) fn create(name: &str, attributes: &[(&str, String)]) -> String {
    let fifo = name.ends_with(".fifo").then(|| ("FifoQueue", "true".to_owned()));
    let attributes: Vec<_> = attributes.iter().cloned().chain(fifo).collect();
    format!("aws sqs create-queue --queue-name {} --attributes {}", quoted(name), written(&attributes))
}

/// As the CLI reads them: `Name=value` in short, JSON where a value is more than a word.
fn written(attributes: &[(&str, String)]) -> String {
    let is_word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric());
    if attributes.iter().all(|(_, value)| is_word(value)) {
        let pairs: Vec<_> = attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
        return pairs.join(",");
    }
    let map: BTreeMap<_, _> = attributes.iter().map(|(name, value)| (*name, value)).collect();
    quoted(&serde_json::json!(map).to_string())
}

/// A redrive policy, as the value of the attribute.
pub(super) fn redrive_policy(dead_letter_arn: &str, max_receive_count: u32) -> String {
    serde_json::json!({ "deadLetterTargetArn": dead_letter_arn, "maxReceiveCount": max_receive_count }).to_string()
}

/// A statement for the policy of the worker's role.
pub(super) fn allow(action: &str, resource: &str) -> String {
    serde_json::json!({ "Action": action, "Effect": "Allow", "Resource": resource }).to_string()
}

/// SQS's own key in KMS, which everybody in the account may use through SQS: there is nothing to be granted.
const OF_SQS: &str = "alias/aws/sqs";

/// A statement that lets a worker use a queue's key; `None` where it needs none.
///
/// A queue names its key by ARN, id or alias. A statement is for keys, and knows an alias by a condition alone.
/// <https://docs.aws.amazon.com/kms/latest/developerguide/conditions-kms.html#conditions-kms-resource-aliases>
pub(super) fn allow_key(actions: &[&str], facts: &QueueFacts) -> Option<String> {
    let name = facts.kms_key.as_deref()?;
    let (place, name) = match name.starts_with("arn:") {
        true => name.rsplit_once(':').unwrap_or_default(),
        false => ("", name),
    };
    let place = if place.is_empty() { keys_beside(&facts.arn) } else { place.to_owned() };
    let mut statement = serde_json::json!({ "Action": actions, "Effect": "Allow" });
    match name.strip_prefix("key/") {
        _ if name == OF_SQS => return None,
        None if name.starts_with("alias/") => {
            statement["Resource"] = format!("{place}:key/*").into();
            statement["Condition"] = serde_json::json!({ "ForAnyValue:StringEquals": { "kms:ResourceAliases": name } });
        }
        id => statement["Resource"] = format!("{place}:key/{}", id.unwrap_or(name)).into(),
    }
    Some(statement.to_string())
}

/// Where the keys of a queue's account and region are: `arn:aws:kms:region:account`.
fn keys_beside(queue_arn: &str) -> String {
    let partition = queue_arn.split(':').nth(1).unwrap_or("aws");
    match Place::of(queue_arn) {
        Some(Place { region, account }) => format!("arn:{partition}:kms:{region}:{account}"),
        None => format!("arn:{partition}:kms:*:*"),
    }
}

/// Where something is, by its ARN: `arn:partition:service:region:account:…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) region: &'a str,
    pub(super) account: &'a str,
}

impl<'a> Place<'a> {
    /// `None` for what is no ARN, and for regions that AWS does not have, as engines for tests name them.
    pub(super) fn of(arn: &'a str) -> Option<Self> {
        let mut parts = arn.split(':').skip(3);
        let (region, account) = (parts.next()?, parts.next()?);
        let is_region = region.contains('-') && region.ends_with(|c: char| c.is_ascii_digit());
        is_region.then_some(Self { region, account })
    }
}

/// For a queue that need not be in the CLI's own region.
pub(super) fn region_option(arn: &str) -> String {
    Place::of(arn).map(|place| format!(" --region {}", quoted(place.region))).unwrap_or_default()
}
