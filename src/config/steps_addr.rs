//! How the address is written at which apps and programs record steps.
//!
//! It is listened at and told to them, so it must be one that can be called.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    str::FromStr,
};

use super::ValueError;

/// Where apps and programs record steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepsAddr {
    /// Nowhere: they have no steps.
    Off,
    /// At this host and port, which they are told too.
    At {
        /// An IP address, or a name of this machine as apps know it.
        host: String,
        /// 0 is one that the system picks.
        port: u16,
    },
}

/// This machine alone, at a port that the system picks.
impl Default for StepsAddr {
    fn default() -> Self {
        Self::At { host: Ipv4Addr::LOCALHOST.to_string(), port: 0 }
    }
}

impl FromStr for StepsAddr {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "off" {
            return Ok(Self::Off);
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Self::callable(address.ip(), address.port());
        }
        let (host, port) = text.rsplit_once(':').map_or((text, None), |(host, port)| (host, port.parse().ok()));
        // https://www.rfc-editor.org/rfc/rfc1123#page-13
        let is_name = |name: &str| {
            (1..=253).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        match port {
            Some(port) if is_name(host) => Ok(Self::At { host: host.to_owned(), port }),
            port => {
                let host = if is_name(host) { host.to_owned() } else { Ipv4Addr::LOCALHOST.to_string() };
                let instead = Self::At { host, port: port.unwrap_or_default() };
                let what = format!("{text:?} is no host and port, as in 127.0.0.1:9465, or off");
                Err(ValueError::new(what, instead.to_string()))
            }
        }
    }
}

impl StepsAddr {
    fn callable(host: IpAddr, port: u16) -> Result<Self, ValueError> {
        if host.is_unspecified() {
            let what =
                format!("{host} can be listened at and not be called: say the name by which apps find this worker");
            return Err(ValueError::new(what, format!("worker:{port}")));
        }
        Ok(Self::At { host: host.to_string(), port })
    }
}

/// As in a URL.
impl fmt::Display for StepsAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::At { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["off", "127.0.0.1:0", "[::1]:9465", "worker:9465", "leasehold-1.internal:80"] {
            assert_eq!(text.parse::<StepsAddr>().expect(text).to_string(), text);
        }
        assert_eq!(StepsAddr::default().to_string(), "127.0.0.1:0");
    }

    #[test]
    fn what_cannot_be_called_is_refused_with_what_can() {
        for (text, instead) in [
            ("0.0.0.0:9465", "worker:9465"),
            ("[::]:80", "worker:80"),
            (":9465", "127.0.0.1:9465"),
            ("worker", "worker:0"),
            ("worker:http", "worker:0"),
            ("http://worker:80", "127.0.0.1:80"),
            ("worker:70000", "worker:0"),
            ("", "127.0.0.1:0"),
        ] {
            let error = text.parse::<StepsAddr>().expect_err(text);
            assert_eq!(error.instead, instead, "{text}");
            assert!(instead.parse::<StepsAddr>().is_ok());
        }
    }
}
