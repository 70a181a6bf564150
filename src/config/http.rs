//! How the settings of HTTP are written: a handler's URL, its headers, its statuses, and the address where health is told.
//!
//! Values of headers are secrets more often than not, so none of them is ever shown.

use std::{
    collections::BTreeSet,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    str::FromStr,
};

use url::Url;

use super::ValueError;

/// The URL of a handler: absolute, `http` or `https`, without a password and without a fragment.
pub(crate) fn handler_url(text: &str) -> Result<Url, ValueError> {
    const EXAMPLE: &str = "http://127.0.0.1:8080/jobs";
    let refuse = |what: String| ValueError::new(what, EXAMPLE);
    let mut url = Url::parse(text).map_err(|error| refuse(format!("{text:?} is no URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(refuse(format!("{text:?} is no URL of an app: http://host:port/path")));
    }
    if url.password().is_some() || !url.username().is_empty() {
        // The text is not told: it has a password in it.
        let _ = (url.set_username(""), url.set_password(None));
        url.set_fragment(None);
        let what = format!("a URL with credentials would be shown in logs: put them into HANDLER_HEADER, beside {url}");
        return Err(ValueError::new(what, url));
    }
    if url.fragment().is_some() {
        url.set_fragment(None);
        return Err(ValueError::new(format!("{text:?} has a fragment (#…), which is never sent"), url));
    }
    Ok(url)
}

/// A header that goes along to an HTTP handler. Its value is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct HandlerHeader {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl fmt::Debug for HandlerHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: (not shown)", self.name)
    }
}

/// Headers as one setting has them: one a line.
pub(super) fn headers(text: &str) -> Result<Vec<HandlerHeader>, ValueError> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::parse).collect()
}

impl FromStr for HandlerHeader {
    type Err = ValueError;

    /// `Name: value`. Errors never tell the value.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        const EXAMPLE: &str = "Authorization: Bearer <token>";
        let refuse = |what: String| Err(ValueError::new(what, EXAMPLE));
        let Some((name, value)) = text.split_once(':') else {
            return refuse("a header is written Name: value".to_owned());
        };
        let (name, value) = (name.trim(), value.trim());
        // https://www.rfc-editor.org/rfc/rfc9110#name-tokens
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(token) {
            // Not told: a token with a colon in it stands here where the name was forgotten.
            return refuse("what stands before the first colon is no name of a header".to_owned());
        }
        if !value.chars().all(|c| c == '\t' || (' '..='~').contains(&c)) {
            return refuse(format!("the value of {name} has characters that no header can have"));
        }
        let lower = name.to_ascii_lowercase();
        let ours = ["content-length", "content-type", "host", "transfer-encoding", "connection", "idempotency-key"];
        if ours.contains(&lower.as_str()) || lower.starts_with("x-leasehold-") || lower.starts_with("x-aws-sqsd-") {
            return refuse(format!("{name} is a header that Leasehold sets itself"));
        }
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

/// Replies of an HTTP handler that say that the work can never succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermanentStatus(BTreeSet<u16>);

impl PermanentStatus {
    /// Whether a reply with this status fails for good.
    #[must_use]
    pub fn has(&self, status: u16) -> bool {
        self.0.contains(&status)
    }
}

/// `400,410,413,415,422`: what says that the request itself is at fault.
impl Default for PermanentStatus {
    fn default() -> Self {
        Self(BTreeSet::from([400, 410, 413, 415, 422]))
    }
}

impl FromStr for PermanentStatus {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let refuse = |what: String| ValueError::new(what, Self::default().to_string());
        text.split(',')
            .map(str::trim)
            .map(|status| match status.parse() {
                Ok(429 | 503) => Err(refuse(format!("{status} says that the handler is not there: never for good"))),
                Ok(number @ 300..=599) => Ok(number),
                _ => Err(refuse(format!("{status:?} is no status of a failure, 300 to 599"))),
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for PermanentStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statuses: Vec<String> = self.0.iter().map(u16::to_string).collect();
        f.write_str(&statuses.join(","))
    }
}

/// Where health is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpAddr {
    /// Nowhere.
    Off,
    /// At this address.
    At(SocketAddr),
}

impl HttpAddr {
    /// Where `leasehold run` tells its health, unless it is told otherwise: nobody outside of the machine can ask.
    pub const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);
}

impl FromStr for HttpAddr {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "off" {
            return Ok(Self::Off);
        }
        text.parse().map(Self::At).map_err(|_| {
            let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
            let instead = SocketAddr::new(Self::DEFAULT.ip(), port.unwrap_or(Self::DEFAULT.port()));
            let what = format!("{text:?} is no address: an IP address and a port, as in 0.0.0.0:9464, or off");
            ValueError::new(what, instead.to_string())
        })
    }
}

impl fmt::Display for HttpAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_apps_are_taken_and_what_is_none_is_refused_with_one_that_is() {
        for text in ["http://127.0.0.1:8080/jobs", "https://app.example/a?b=c", "http://[::1]:5000/"] {
            assert_eq!(handler_url(text).expect(text).as_str(), text);
        }
        for text in ["http://", "ftp://a/", "http://a b/", "http://a/#x", "http://me:secret@a/", "//a"] {
            let error = handler_url(text).expect_err(text);
            assert!(handler_url(&error.instead).is_ok() && !error.to_string().contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn headers_are_read_a_line_each_and_their_values_never_told() {
        let read = headers("Authorization: Bearer s3cret\n\nX-Tenant: 7").expect("headers");
        assert_eq!(
            read.iter().map(|h| (h.name.as_str(), h.value.as_str())).collect::<Vec<_>>(),
            [("Authorization", "Bearer s3cret"), ("X-Tenant", "7")]
        );
        assert!(!format!("{read:?}").contains("s3cret"));
        for text in [
            "s3cret",
            "a b: s3cret",
            "Bearer s3cret:x",
            ": s3cret",
            "A: s3cret\u{7f}",
            "Host: s3cret",
            "X-Leasehold-Fence: s3cret",
        ] {
            let error = headers(text).expect_err(text).to_string();
            assert!(!error.contains("s3cret") && error.contains("Authorization: Bearer"), "{error}");
        }
    }

    #[test]
    fn statuses_are_those_of_failures_but_none_of_a_handler_that_is_not_there() {
        let statuses: PermanentStatus = "422, 404".parse().expect("statuses");
        assert_eq!((statuses.to_string().as_str(), statuses.has(404), statuses.has(400)), ("404,422", true, false));
        for text in ["", "200", "4xx", "429", "503", "400,,410", "600"] {
            assert!(text.parse::<PermanentStatus>().is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_are_of_sockets_or_off() {
        assert_eq!("off".parse(), Ok(HttpAddr::Off));
        assert_eq!("0.0.0.0:80".parse::<HttpAddr>().expect("an address").to_string(), "0.0.0.0:80");
        for (text, instead) in [(":8080", "127.0.0.1:8080"), ("localhost:1", "127.0.0.1:1"), ("x", "127.0.0.1:9464")] {
            assert_eq!(text.parse::<HttpAddr>().expect_err(text).instead, instead);
        }
    }
}
