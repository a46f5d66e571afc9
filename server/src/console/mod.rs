//! Static assets: the operator's console, the page of the HTTP interface, and the live client. They are built into the binary.
//!
//! Responsible for:
//! - `GET /console/…`, pages for operators and their assets; `GET /docs`, which shows `/openapi.json`; `GET /tidewire.js`, the live client
//!   for any page.

use actix_web::http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use actix_web::{HttpResponse, HttpResponseBuilder};

/// An embedded file and the path it is served at.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// Path of the asset in the URL.
    pub path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! asset {
    ($path:literal, $content_type:ident, $file:literal) => {
        Asset { path: $path, content_type: $content_type, text: include_str!(concat!("assets/", $file)) }
    };
}

/// The path of the first page of the console.
pub const PATH: &str = "/console/overview";

/// Third-party code, built by `vendor/generate.mjs` from pinned packages, with its licence at the top.
macro_rules! vendored {
    ($path:literal, $content_type:ident, $file:literal) => {
        Asset { path: $path, content_type: $content_type, text: include_str!(concat!("vendor/", $file)) }
    };
}

/// A page of the console: the common head and foot, and its own part between them.
macro_rules! page {
    ($path:literal, $file:literal) => {
        Asset {
            path: $path,
            content_type: HTML,
            text: concat!(
                include_str!("assets/head.html"),
                include_str!(concat!("assets/", $file)),
                include_str!("assets/foot.html")
            ),
        }
    };
}

/// All static assets of the server.
pub const ASSETS: &[Asset] = &[
    page!("/console/overview", "overview.html"),
    page!("/console/readers", "readers.html"),
    page!("/console/posts", "posts.html"),
    page!("/console/live", "live.html"),
    page!("/console/changes", "changes.html"),
    page!("/console/storage", "storage.html"),
    page!("/console/cluster", "cluster.html"),
    page!("/console/keys", "keys.html"),
    asset!("/console/base.css", CSS, "base.css"),
    asset!("/console/console.css", CSS, "console.css"),
    asset!("/console/figures.css", CSS, "figures.css"),
    asset!("/console/reader.css", CSS, "reader.css"),
    asset!("/console/administration.js", JAVASCRIPT, "administration.js"),
    asset!("/console/api.js", JAVASCRIPT, "api.js"),
    asset!("/console/changes.js", JAVASCRIPT, "changes.js"),
    asset!("/console/chart.js", JAVASCRIPT, "chart.js"),
    asset!("/console/charts.js", JAVASCRIPT, "charts.js"),
    asset!("/console/cluster.js", JAVASCRIPT, "cluster.js"),
    asset!("/console/copy.js", JAVASCRIPT, "copy.js"),
    asset!("/console/dom.js", JAVASCRIPT, "dom.js"),
    asset!("/console/events.js", JAVASCRIPT, "events.js"),
    asset!("/console/explain.js", JAVASCRIPT, "explain.js"),
    asset!("/console/fanout.js", JAVASCRIPT, "fanout.js"),
    asset!("/console/feed.js", JAVASCRIPT, "feed.js"),
    asset!("/console/follows.js", JAVASCRIPT, "follows.js"),
    asset!("/console/history.js", JAVASCRIPT, "history.js"),
    asset!("/console/keys.js", JAVASCRIPT, "keys.js"),
    asset!("/console/live.js", JAVASCRIPT, "live.js"),
    asset!("/console/overview.js", JAVASCRIPT, "overview.js"),
    asset!("/console/poll.js", JAVASCRIPT, "poll.js"),
    asset!("/console/post.js", JAVASCRIPT, "post.js"),
    asset!("/console/posts.js", JAVASCRIPT, "posts.js"),
    asset!("/console/preferences.js", JAVASCRIPT, "preferences.js"),
    asset!("/console/publish.js", JAVASCRIPT, "publish.js"),
    asset!("/console/readers.js", JAVASCRIPT, "readers.js"),
    asset!("/console/search.js", JAVASCRIPT, "search.js"),
    asset!("/console/shell.js", JAVASCRIPT, "shell.js"),
    asset!("/console/source_posts.js", JAVASCRIPT, "source_posts.js"),
    asset!("/console/stats.js", JAVASCRIPT, "stats.js"),
    asset!("/console/storage.js", JAVASCRIPT, "storage.js"),
    asset!("/console/table.js", JAVASCRIPT, "table.js"),
    asset!("/console/tail.js", JAVASCRIPT, "tail.js"),
    asset!("/console/words.js", JAVASCRIPT, "words.js"),
    vendored!("/console/uplot.js", JAVASCRIPT, "uplot.js"),
    vendored!("/console/uplot.css", CSS, "uplot.css"),
    asset!("/docs", HTML, "docs.html"),
    asset!("/docs/docs.css", CSS, "docs.css"),
    asset!("/docs/docs.js", JAVASCRIPT, "docs.js"),
    asset!("/docs/navigation.js", JAVASCRIPT, "navigation.js"),
    asset!("/docs/schemas.js", JAVASCRIPT, "schemas.js"),
    asset!("/docs/try.js", JAVASCRIPT, "try.js"),
    asset!("/docs/examples.js", JAVASCRIPT, "examples.js"),
    asset!("/docs/snippets.js", JAVASCRIPT, "snippets.js"),
    asset!("/tidewire.js", JAVASCRIPT, "tidewire.js"),
];

/// The content security policy. Posts are untrusted text: the browser runs no inline or foreign script, and connects only to the origin.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Begins the response with the asset, and returns its text. Ignores query parameters, because only the page itself uses them.
pub fn serve(asset: &Asset) -> (HttpResponseBuilder, &'static str) {
    let mut response = HttpResponse::Ok();
    response
        .content_type(asset.content_type)
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((REFERRER_POLICY, "same-origin"));
    if asset.content_type == HTML {
        response.insert_header((CONTENT_SECURITY_POLICY, POLICY));
    }
    (response, asset.text)
}
