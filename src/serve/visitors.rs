//! Who may ask for more than whether the worker is well: whoever reaches its address, but no web page of somebody else.
//!
//! A page elsewhere can have its visitor's browser ask here. It cannot read the answers, unless its name is made to lead
//! here after it was loaded (DNS rebinding); then the request names that page's host, by which it is known. Probes and
//! scrapers are not looked at: `/live`, `/ready` and `/metrics` answer everybody.

use std::net::IpAddr;

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};

/// Of a name in an answer no more is told.
const SHOWN: usize = 80;

/// For every answer: it is of the type that it says, and for no other page to have, or to hear of.
const HEADERS: [(HeaderName, HeaderValue); 3] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
];

/// Asks on, or refuses.
pub(super) async fn admit(request: Request, next: Next) -> Response {
    let answer = match refusal(&request) {
        Some(why) => (StatusCode::FORBIDDEN, why).into_response(),
        None => next.run(request).await,
    };
    (HEADERS, answer).into_response()
}

fn refusal(request: &Request) -> Option<String> {
    if let Some(name) = names(request).find(|name| !is_here(name)) {
        let name: String = name.chars().take(SHOWN).collect();
        return Some(format!(
            "This worker was asked by the name {name:?}, to which any web page could make its own lead.\n\
             Ask by its IP address, or on its machine by localhost, as in http://127.0.0.1:9464/\n"
        ));
    }
    let asks_for_data = matches!(request.uri().path(), "/status" | "/events");
    (asks_for_data && is_of_another_site(request.headers()))
        .then(|| "A web page of another site asked for this. Open the page of the worker itself, at /\n".to_owned())
}

/// By which hosts it was asked. A client of old names none, and no browser is one.
fn names(request: &Request) -> impl Iterator<Item = &str> {
    let hosts = request.headers().get_all(header::HOST).into_iter();
    // What is no text is no host either.
    hosts.map(|host| host.to_str().unwrap_or("\u{fffd}")).chain(request.uri().authority().map(Authority::as_str))
}

/// Whether a host, with a port or without, cannot be made to lead elsewhere by whoever owns its name: addresses are no
/// names, and `localhost` is this machine to every browser.
/// <https://www.rfc-editor.org/rfc/rfc6761#section-6.3>
fn is_here(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

/// Browsers tell, where they can: `same-origin`, or `none` for what a person has typed. <https://www.w3.org/TR/fetch-metadata/>
fn is_of_another_site(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_here_and_names_are_not() {
        for host in ["127.0.0.1", "127.0.0.1:9464", "10.0.0.7:80", "[::1]", "[::1]:9464", "localhost", "LocalHost:1"] {
            assert!(is_here(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9464",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evil.localhost.",
            "127.0.0.1@evil.example",
            "evil.example@127.0.0.1",
            "[::1",
            "::1:80",
            "\u{fffd}",
            "localhost evil.example",
        ] {
            assert!(!is_here(host), "{host}");
        }
    }

    #[test]
    fn only_a_browser_that_says_so_is_of_another_site() {
        for (site, another) in [
            (None, false),
            (Some("none"), false),
            (Some("same-origin"), false),
            (Some("cross-site"), true),
            (Some("same-site"), true),
            (Some("?"), true),
        ] {
            let headers: HeaderMap = site
                .map(|site| (HeaderName::from_static("sec-fetch-site"), HeaderValue::from_static(site)))
                .into_iter()
                .collect();
            assert_eq!(is_of_another_site(&headers), another, "{site:?}");
        }
    }
}
