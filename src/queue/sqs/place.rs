//! Where a queue is: the region that its URL or its ARN names, and the client that asks there.
//!
//! Owns one client for each region, made from the first and never twice, for each has connections of its own. Must never
//! ask one region for a queue of another, which would not be found or, worse, be found.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use aws_sdk_sqs::{Client, config::Region};
use url::Url;

use crate::queue::{QueueAddress, QueueError};

/// The domains of AWS in its partitions, with IPv4 alone and with both.
/// <https://docs.aws.amazon.com/general/latest/gr/sqs-service.html>
const DOMAINS: [&str; 5] =
    ["amazonaws.com", "api.aws", "amazonaws.com.cn", "api.amazonwebservices.com.cn", "amazonaws.eu"];

/// Where `queue.amazonaws.com` leads, from before there were regions in the names of hosts.
const FIRST_REGION: &str = "us-east-1";

/// The clients by region.
#[derive(Debug, Clone)]
pub(super) struct Regions {
    first: Client,
    /// All calls go to one endpoint, whatever the region.
    at_one_endpoint: bool,
    /// A lock, for it is held for one look-up.
    others: Arc<Mutex<BTreeMap<String, Client>>>,
}

impl Regions {
    pub(super) fn new(first: Client) -> Self {
        Self { first, at_one_endpoint: false, others: Arc::default() }
    }

    pub(super) fn at_one_endpoint(self) -> Self {
        Self { at_one_endpoint: true, ..self }
    }

    /// The region of the credentials, where names are looked for.
    pub(super) fn own(&self) -> Option<&str> {
        self.first.config().region().map(AsRef::as_ref)
    }

    /// The client for a queue's region; `None` is the client's own.
    pub(super) fn client(&self, address: &QueueAddress, region: Option<&str>) -> Result<Client, QueueError> {
        let Some(theirs) = region.filter(|theirs| self.own().is_some_and(|ours| ours != *theirs)) else {
            return Ok(self.first.clone());
        };
        if self.at_one_endpoint {
            return Err(QueueError::Refused(format!(
                "the queue {address} is in region {theirs}, but an endpoint is set (AWS_ENDPOINT_URL), which all calls go \
                 to, as to region {}; set AWS_REGION={theirs}, or no endpoint",
                self.own().unwrap_or_default()
            )));
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let client = others.entry(theirs.to_owned()).or_insert_with(|| {
            let config = self.first.config().to_builder().region(Region::new(theirs.to_owned()));
            Client::from_conf(config.build())
        });
        Ok(client.clone())
    }
}

/// The parts of an ARN, `arn:aws:sqs:eu-central-1:123456789012:payments`, that a queue is found by.
pub(super) struct Arn<'a> {
    pub(super) region: &'a str,
    pub(super) account: &'a str,
    pub(super) name: &'a str,
}

impl<'a> Arn<'a> {
    /// `None` if it is not the ARN of a queue.
    pub(super) fn parse(arn: &'a str) -> Option<Self> {
        let parts: Vec<&str> = arn.split(':').collect();
        let ["arn", _, "sqs", region, account, name] = parts[..] else { return None };
        is_region(region).then_some(Self { region, account, name })
    }
}

/// The region in a URL such as `https://sqs.eu-central-1.amazonaws.com/123456789012/payments`; `None` for hosts that are
/// not SQS's own.
pub(super) fn region_of_url(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let host = url.host_str()?;
    // The longest, for one ends in another.
    let domain = DOMAINS.iter().filter(|domain| host.ends_with(*domain)).max_by_key(|domain| domain.len())?;
    let labels: Vec<&str> = host.strip_suffix(domain)?.strip_suffix('.')?.split('.').collect();
    let region = match labels[..] {
        // sqs-fips.us-east-1.amazonaws.com
        ["sqs" | "sqs-fips", region] => region,
        // vpce-0123-4567.sqs.us-east-1.vpce.amazonaws.com
        [endpoint, "sqs" | "sqs-fips", region, "vpce"] if endpoint.starts_with("vpce-") => region,
        // us-west-2.queue.amazonaws.com
        [region, "queue"] => region,
        ["queue"] => FIRST_REGION,
        _ => return None,
    };
    is_region(region).then(|| region.to_owned())
}

/// It becomes part of a host's name.
fn is_region(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

#[cfg(test)]
impl Regions {
    /// The regions that there are clients for, the first apart.
    pub(super) fn others(&self) -> Vec<String> {
        self.others.lock().expect("whole").keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_of_sqs_names_its_region_and_no_other_host_does() {
        for (host, region) in [
            ("sqs.eu-central-1.amazonaws.com", Some("eu-central-1")),
            ("sqs.eu-central-1.amazonaws.com:443", Some("eu-central-1")),
            ("SQS.EU-Central-1.amazonaws.com", Some("eu-central-1")),
            ("sqs.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            ("sqs.cn-north-1.api.amazonwebservices.com.cn", Some("cn-north-1")),
            ("sqs-fips.us-east-1.amazonaws.com", Some("us-east-1")),
            ("sqs.us-gov-west-1.amazonaws.com", Some("us-gov-west-1")),
            ("sqs.eu-west-1.api.aws", Some("eu-west-1")),
            ("sqs-fips.us-west-2.api.aws", Some("us-west-2")),
            ("sqs.eusc-de-east-1.amazonaws.eu", Some("eusc-de-east-1")),
            ("us-west-2.queue.amazonaws.com", Some("us-west-2")),
            ("queue.amazonaws.com", Some("us-east-1")),
            ("vpce-0a1b-2c3d.sqs.us-east-2.vpce.amazonaws.com", Some("us-east-2")),
            ("vpce-0a1b-2c3d-us-east-2a.sqs.us-east-2.vpce.amazonaws.com", Some("us-east-2")),
            ("vpce-0a1b-2c3d.sqs.cn-north-1.vpce.amazonaws.com.cn", Some("cn-north-1")),
            ("sqs.us-east-1.localhost.localstack.cloud:4566", None),
            ("localhost:4566", None),
            ("127.0.0.1:4567", None),
            ("sqs.eu-west-1.amazonaws.com.example.org", None),
            ("sqs.eu-west-1.notamazonaws.com", None),
            ("sns.eu-west-1.amazonaws.com", None),
            ("amazonaws.com", None),
            ("sqs.example.org", None),
        ] {
            let found = region_of_url(&format!("https://{host}/123456789012/payments"));
            assert_eq!(found.as_deref(), region, "{host}");
        }
        assert_eq!(region_of_url("sqs.eu-west-1.amazonaws.com"), None);
    }

    #[test]
    fn an_arn_is_read_and_names_no_host_of_its_own() {
        let arn = Arn::parse("arn:aws-cn:sqs:cn-north-1:123456789012:payments.fifo").expect("an ARN");
        assert_eq!((arn.region, arn.account, arn.name), ("cn-north-1", "123456789012", "payments.fifo"));
        for text in ["payments", "arn:aws:sns:eu-west-1:1:x", "arn:aws:sqs::1:x", "arn:aws:sqs:a.example/:1:x"] {
            assert!(Arn::parse(text).is_none(), "{text}");
        }
    }
}
