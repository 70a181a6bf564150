//! The status page at `/`, and the files that belong to it: compiled in, and handed out with a policy that lets nothing else
//! in.
//!
//! Knows nothing of workers: the page asks for `/events` by itself. Text from outside reaches it as JSON alone, never as a
//! part of these files.

use axum::{
    Router,
    http::{HeaderName, HeaderValue, header},
    response::IntoResponse,
    routing::get,
};

/// Path, type and text.
pub(super) type File = (&'static str, &'static str, &'static str);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

pub(super) const FILES: [File; 12] = [
    ("/", HTML, include_str!("page/page.html")),
    ("/page/page.css", CSS, include_str!("page/page.css")),
    ("/page/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("/page/page.mjs", JAVASCRIPT, include_str!("page/page.mjs")),
    ("/page/verdict.mjs", JAVASCRIPT, include_str!("page/verdict.mjs")),
    ("/page/queue.mjs", JAVASCRIPT, include_str!("page/queue.mjs")),
    ("/page/lists.mjs", JAVASCRIPT, include_str!("page/lists.mjs")),
    ("/page/overview.mjs", JAVASCRIPT, include_str!("page/overview.mjs")),
    ("/page/past.mjs", JAVASCRIPT, include_str!("page/past.mjs")),
    ("/page/chart.mjs", JAVASCRIPT, include_str!("page/chart.mjs")),
    ("/page/words.mjs", JAVASCRIPT, include_str!("page/words.mjs")),
    ("/page/dom.mjs", JAVASCRIPT, include_str!("page/dom.mjs")),
];

/// What a browser is to heed. Nothing inline, nothing of others, in no frame; and no markup made of text, by a slip of ours
/// neither. <https://www.w3.org/TR/CSP3/>, <https://www.w3.org/TR/trusted-types/>
const HEADERS: [(HeaderName, HeaderValue); 3] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
             require-trusted-types-for 'script'; trusted-types 'none'",
        ),
    ),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
];

pub(super) fn routes() -> Router {
    FILES.into_iter().fold(Router::new(), |router, (path, kind, text)| {
        router.route(path, get(async move || (HEADERS, [(header::CONTENT_TYPE, kind)], text).into_response()))
    })
}
