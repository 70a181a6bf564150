//! The status page: with which headers it comes, and that all of it is there.

use super::*;
use crate::serve::page::FILES;

#[tokio::test]
async fn the_page_comes_with_a_policy_that_lets_nothing_else_in() {
    let endpoint = well().await;
    for (path, kind, text) in FILES {
        let reply = endpoint.get(path).await;
        assert_eq!((reply.status(), reply.body()), (200, text), "{path}");
        let head = reply.head();
        for line in [
            &format!("content-type: {kind}"),
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "x-frame-options: deny",
            "cross-origin-opener-policy: same-origin",
            "cross-origin-resource-policy: same-origin",
            "cache-control: no-store",
        ] {
            assert!(head.lines().any(|told| told == line), "{line} is not in {head}");
        }
        let policy = head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).expect("a policy");
        let rules: Vec<_> = policy.split("; ").collect();
        for rule in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "img-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ] {
            assert!(rules.contains(&rule), "{rule} is not in {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    }
}

#[test]
fn all_that_the_page_asks_for_is_there_and_of_this_worker() {
    let is_there = |path: &str| {
        let worker = ["/status", "/events", "/metrics", "/live", "/ready"];
        worker.contains(&path) || FILES.iter().any(|(known, ..)| *known == path)
    };
    let mut asked = 0;
    for (name, _, text) in FILES {
        let marks = [("href=\"", ""), ("src=\"", ""), ("from \"./", "/page/"), ("EventSource(\"", "")];
        for (mark, folder) in marks {
            for (start, _) in text.match_indices(mark) {
                let path: String = text[start + mark.len()..].chars().take_while(|c| *c != '"').collect();
                assert!(is_there(&format!("{folder}{path}")), "{name} asks for {path}");
                asked += 1;
            }
        }
        assert!(!text.contains("innerHTML") && !text.contains("eval("), "{name}");
    }
    assert!(asked > 20, "{asked} places are not all");
}

#[tokio::test]
async fn the_page_is_only_looked_at() {
    let endpoint = well().await;
    for path in ["/", "/page/page.css", "/status", "/events", "/metrics"] {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            let reply = endpoint.says(&format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")).await;
            assert_eq!(reply.status(), 405, "{method} {path}");
        }
    }
    let head = endpoint.says("HEAD / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await;
    assert!(head.status() == 200 && head.body().is_empty() && head.head().contains("content-security-policy"));
}
