//! Those who ask: by which names a worker answers, and whose web pages it does not answer to.

use super::*;

/// A request of a browser that was led to this host, with these headers more.
fn asked(path: &str, host: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n")
}

#[tokio::test]
async fn a_name_that_another_could_make_lead_here_is_refused_but_to_probes_and_scrapers() {
    let endpoint = well().await;
    for host in ["evil.example", "evil.example:9464", "127.0.0.1.evil.example", "localhost.evil.example", ""] {
        for path in ["/", "/page/page.mjs", "/status", "/events", "/nothing"] {
            let reply = endpoint.says(&asked(path, host, "")).await;
            assert_eq!(reply.status(), 403, "{host} {path}: {reply:?}");
            assert!(reply.body().contains("by its IP address") && reply.body().contains("localhost"), "{reply:?}");
            assert!(reply.head().contains("x-content-type-options: nosniff"), "what it was called by is no markup");
        }
        for path in ["/live", "/ready", "/metrics"] {
            assert_eq!(endpoint.says(&asked(path, host, "")).await.status(), 200, "{host} {path}");
        }
    }
}

#[tokio::test]
async fn addresses_and_localhost_are_answered() {
    let endpoint = well().await;
    for host in ["127.0.0.1", "127.0.0.1:9464", "10.1.2.3:80", "[::1]:9464", "localhost:9464", "LOCALHOST"] {
        for path in ["/", "/status", "/metrics"] {
            assert_eq!(endpoint.says(&asked(path, host, "")).await.status(), 200, "{host} {path}");
        }
    }
    assert_eq!(endpoint.says("GET /metrics HTTP/1.0\r\n\r\n").await.status(), 200, "who names no host is no browser");
}

#[tokio::test]
async fn a_name_is_not_hidden_behind_another() {
    let endpoint = well().await;
    for request in [
        asked("/status", "127.0.0.1", "Host: evil.example\r\n"),
        asked("/status", "evil.example", "Host: 127.0.0.1\r\n"),
        asked("http://evil.example/status", "127.0.0.1", ""),
        asked("http://127.0.0.1/status", "evil.example", ""),
        asked("/status", "\u{e9}vil.example", ""),
    ] {
        let reply = endpoint.says(&request).await;
        assert!([400, 403].contains(&reply.status()), "{request}: {reply:?}");
    }
}

#[tokio::test]
async fn what_the_worker_does_is_not_told_to_pages_of_other_sites() {
    let endpoint = well().await;
    let from =
        async |path, site| endpoint.says(&asked(path, "127.0.0.1", &format!("Sec-Fetch-Site: {site}\r\n"))).await;
    for path in ["/status", "/events"] {
        for site in ["cross-site", "same-site"] {
            let reply = from(path, site).await;
            assert!(reply.status() == 403 && reply.body().contains("another site"), "{reply:?}");
        }
    }
    for site in ["same-origin", "none"] {
        assert_eq!(from("/status", site).await.status(), 200, "{site}");
    }
    // A link to the page may stand anywhere, and probes come from anywhere.
    for path in ["/", "/ready", "/metrics"] {
        assert_eq!(from(path, "cross-site").await.status(), 200, "{path}");
    }
}
