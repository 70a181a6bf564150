//! Queues and tables under their names on this machine, whatever they are called on AWS.
//!
//! One rule, for `dev`, which makes them, and for `send`, which looks for them: of a URL or an ARN the last part counts.

use std::net::Ipv4Addr;

use leasehold::queue::QueueAddress;
use url::{Host, Url};

/// The port of `leasehold dev`, next to LocalStack's.
pub(crate) const PORT: u16 = 4567;

/// Whether that is on this machine.
pub(crate) fn is_here(endpoint: &Url) -> bool {
    match endpoint.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback() || address == Ipv4Addr::UNSPECIFIED,
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// A queue by its name alone.
pub(crate) fn address(address: &QueueAddress) -> QueueAddress {
    QueueAddress::Name(address.queue_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_have_one_name_here_however_they_are_named_there() {
        for text in [
            "payments.fifo",
            "https://sqs.eu-central-1.amazonaws.com/123456789012/payments.fifo",
            "arn:aws:sqs:eu-central-1:123456789012:payments.fifo",
        ] {
            let there: QueueAddress = text.parse().expect("an address");
            assert_eq!(address(&there), QueueAddress::Name("payments.fifo".into()));
        }
    }

    #[test]
    fn loopback_is_here_and_nothing_else_is() {
        let here = |url: &str| is_here(&Url::parse(url).expect("a URL"));
        assert!(
            ["http://127.0.0.1:4567", "http://localhost:4566/", "http://[::1]:1"].map(here).iter().all(|here| *here)
        );
        assert!(
            !["https://sqs.eu-central-1.amazonaws.com", "http://localstack:4566", "http://10.0.0.1/"]
                .map(here)
                .contains(&true)
        );
    }
}
