//! Pages of other origins, and how often one client may ask.

use std::io::{Read as _, Write as _};

use serde_json::Value;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire_server::http::auth::{Access, AccessOptions};
use tidewire_server::http::state::HttpState;

use crate::access::tokens::{self, SERVER_KEY, bearer};
use crate::server::Server;

fn server(options: AccessOptions) -> Server {
    Server::guarded(EngineConfig::default(), Access::open(options).unwrap())
}

#[test]
fn only_pages_of_listed_origins_may_read_answers() {
    let origins = "https://a.example,http://localhost:3000,capacitor://localhost".parse().unwrap();
    let server = server(AccessOptions { origins, ..AccessOptions::default() });
    for (origin, is_allowed) in [
        ("https://a.example", true),
        ("http://localhost:3000", true),
        ("capacitor://localhost", true),
        ("ionic://localhost", false),
        ("https://b.example", false),
        ("https://a.example.evil", false),
        ("http://a.example", false),
        ("null", false),
        ("", false),
    ] {
        let expected = if is_allowed { origin } else { "" };
        for (path, status) in [("/v1/users/ann/feed", 200), ("/v1/users/a%20b/feed", 400), ("/tidewire.js", 200)] {
            let answer = server.ask("GET", path, &[("origin", origin)], "");
            assert_eq!(
                (answer.status, answer.header("access-control-allow-origin")),
                (status, expected),
                "{origin} {path}"
            );
            let varies = answer.headers.get_all("vary").iter().filter(|vary| *vary == "Origin").count();
            assert_eq!(varies, 1, "{origin} {path}");
            assert_eq!(answer.header("access-control-allow-credentials"), "");
            let readable =
                if is_allowed { "etag, retry-after, tidewire-sequence, www-authenticate, x-request-id" } else { "" };
            assert_eq!(answer.header("access-control-expose-headers"), readable);
        }
        let asked = [("origin", origin), ("access-control-request-method", "PUT")];
        let answer = server.ask("OPTIONS", "/v1/users/ann/following/bob", &asked, "");
        assert_eq!(answer.status, if is_allowed { 204 } else { 405 }, "{origin}");
        assert_eq!((answer.header("access-control-allow-origin"), answer.header("vary")), (expected, "Origin"));
        let methods = if is_allowed { "PUT, DELETE" } else { "" };
        assert_eq!(answer.header("access-control-allow-methods"), methods);
        let headers = if is_allowed {
            "authorization, cache-control, content-type, if-none-match, last-event-id, pragma, tidewire-after, x-request-id, x-requested-with"
        } else {
            ""
        };
        assert_eq!(answer.header("access-control-allow-headers"), headers);
    }
    assert_eq!(server.ask("OPTIONS", "/v1/posts", &[("origin", "https://a.example")], "").status, 405, "no preflight");
}

/// What a browser is answered that a page of this origin has opened a WebSocket.
fn opened_by(server: &Server, origin: &str) -> String {
    let address = server.address();
    let mut socket = testkit::connect(address);
    let origin = if origin.is_empty() { String::new() } else { format!("Origin: {origin}\r\n") };
    let request = format!(
        "GET /v1/users/ann/live HTTP/1.1\r\nHost: {address}\r\n{origin}Connection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[9..]).into_owned()
}

#[test]
fn without_keys_pages_of_other_origins_cannot_open_websockets() {
    let origins = "https://a.example".parse().unwrap();
    let server = server(AccessOptions { origins, ..AccessOptions::default() });
    let own = format!("http://{}", server.address());
    for (origin, status) in [
        ("", "101"),
        (&*own, "101"),
        ("https://a.example", "101"),
        ("https://b.example", "403"),
        ("http://localhost", "403"),
        ("null", "403"),
    ] {
        assert_eq!(opened_by(&server, origin), status, "{origin}");
    }
}

/// The status and the code that a request is answered with, word for word.
fn answered(server: &Server, request: &str, body: &str) -> (u16, String) {
    let mut socket = testkit::connect(server.address());
    let request = format!("{request}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let problem: Value = serde_json::from_str(body).unwrap_or_default();
    (head[9..12].parse().unwrap(), problem["code"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn without_keys_unknown_host_names_are_refused() {
    let hosts = "feeds.example,feeds.test:9000,feeds.net:443".parse().unwrap();
    let server = server(AccessOptions { hosts, ..AccessOptions::default() });
    for (host, is_known) in [
        ("127.0.0.1:8080", true),
        ("127.0.0.1", true),
        ("[::1]:8080", true),
        ("[::1]", true),
        ("192.0.2.7:80", true),
        ("localhost", true),
        ("LocalHost:8080", true),
        ("ann.localhost:1", true),
        ("feeds.example", true),
        ("Feeds.Example:8443", true),
        ("FEEDS.example.:443", true),
        ("localhost.:8080", true),
        ("feeds.net", true),
        ("feeds.net:443", true),
        ("feeds.net:80", false),
        ("feeds.test:9000", true),
        ("feeds.test:9001", false),
        ("evil.example", false),
        ("evil.example:8080", false),
        ("127.0.0.1.evil.example", false),
        ("localhost.evil.example", false),
        ("localhost..", false),
        ("feeds.example:port", false),
        ("evillocalhost", false),
        ("feeds.example.evil", false),
        ("[::1].evil.example", false),
        ("", false),
    ] {
        let expected = if is_known { (200, String::new()) } else { (403, "unknown_host".to_owned()) };
        for path in ["/v1/users/ann/feed", "/v1/stats", "/metrics"] {
            let answer = answered(&server, &format!("GET {path} HTTP/1.1\r\nHost: {host}"), "");
            assert_eq!(answer, expected, "{host:?} {path}");
        }
    }
    let twice = "GET /v1/stats HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example";
    assert_ne!(answered(&server, twice, "").0, 200);
    assert_eq!(answered(&server, "GET /v1/stats HTTP/1.0", "").0, 200, "no browser, which all say it");
    assert_eq!(answered(&server, "GET /healthz HTTP/1.1\r\nHost: evil.example", "").0, 200);
}

#[test]
fn without_keys_pages_of_other_origins_cannot_write() {
    let origins = "https://a.example".parse().unwrap();
    let server = server(AccessOptions { origins, ..AccessOptions::default() });
    let address = server.address();
    let own = format!("Origin: http://{address}\r\nSec-Fetch-Site: same-origin");
    let by_tls = format!("Origin: https://{address}\r\nSec-Fetch-Site: same-origin");
    for (headers, is_allowed) in [
        ("", true),
        (&*own, true),
        (&*by_tls, true),
        (&*format!("Origin: http://{address}"), true),
        ("Origin: https://a.example\r\nSec-Fetch-Site: cross-site", true),
        ("Sec-Fetch-Site: none", true),
        ("Sec-Fetch-Site: same-origin", true),
        ("Origin: https://b.example", false),
        ("Origin: https://b.example\r\nSec-Fetch-Site: cross-site", false),
        ("Origin: null", false),
        ("Origin: http://127.0.0.1:1\r\nSec-Fetch-Site: same-site", false),
        ("Sec-Fetch-Site: cross-site", false),
        ("Sec-Fetch-Site: same-site", false),
        (&*format!("Origin: http://{address}\r\nSec-Fetch-Site: cross-site"), false),
    ] {
        let headers = if headers.is_empty() { String::new() } else { format!("\r\n{headers}") };
        let ask =
            |request: &str, body| answered(&server, &format!("{request} HTTP/1.1\r\nHost: {address}{headers}"), body);
        // What a page sends of its own accord: a browser asks before it sends anything else.
        for request in ["POST /v1/snapshots", "POST /v1/users/ann/feed/rebuild"] {
            let (status, code) = ask(request, "");
            assert_eq!(code == "foreign_page", !is_allowed, "{request} {headers:?}: {status} {code}");
            assert_eq!(status == 403, !is_allowed, "{request} {headers:?}");
        }
        assert_eq!(ask("GET /v1/users/ann/feed", "").0, 200, "it cannot be read there {headers:?}");
        assert_eq!(ask("HEAD /v1/users/ann/events", "").0, if is_allowed { 200 } else { 403 }, "{headers:?}");
    }
}

#[test]
fn without_keys_the_own_origin_is_recognised_in_every_spelling() {
    let hosts = "feeds.example".parse().unwrap();
    let server = server(AccessOptions { hosts, ..AccessOptions::default() });
    for (host, origin, is_own) in [
        ("feeds.example:443", "https://feeds.example", true),
        ("feeds.example:80", "http://feeds.example", true),
        ("FEEDS.example.", "https://feeds.example", true),
        ("feeds.example", "https://feeds.example:443", true),
        ("feeds.example:80", "https://feeds.example", false),
        ("feeds.example:8443", "https://feeds.example", false),
        ("feeds.example", "https://evil.feeds.example", false),
        ("feeds.example", "capacitor://feeds.example", false),
    ] {
        let request = format!("POST /v1/users/ann/feed/rebuild HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}");
        let (status, code) = answered(&server, &request, "");
        assert_eq!((status != 403, code != "foreign_page"), (is_own, is_own), "{host} {origin}: {status} {code}");
    }
}

#[test]
fn without_keys_pages_of_other_origins_cannot_open_streams() {
    let server = server(AccessOptions::default());
    for (site, is_allowed) in [("cross-site", false), ("same-site", false), ("same-origin", true), ("none", true)] {
        for path in ["/v1/users/ann/events", "/v1/changes?after=0", "/v1/cluster"] {
            let headers = format!("Host: {}\r\nSec-Fetch-Site: {site}", server.address());
            let (status, _) = answered(&server, &format!("HEAD {path} HTTP/1.1\r\n{headers}"), "");
            assert_eq!(status != 403, is_allowed, "{site} {path}: {status}");
        }
    }
}

#[test]
fn without_configured_origins_answers_have_no_cors_headers() {
    let server = Server::start(EngineConfig::default());
    let answer = server.ask("GET", "/v1/users/ann/feed", &[("origin", "https://a.example")], "");
    assert_eq!((answer.header("access-control-allow-origin"), answer.header("vary")), ("", "Authorization"));
}

#[test]
fn a_rate_limited_client_receives_retry_after() {
    let rate = Some("1".parse().unwrap());
    let open = server(AccessOptions { rate, ..AccessOptions::default() });
    let statuses: Vec<_> = (0..4).map(|_| open.get("/v1/users/ann/feed")).collect();
    assert_eq!((statuses[0].status, statuses[1].status), (200, 200));
    let refused = statuses.iter().find(|answer| answer.status != 200).expect("four are too many");
    assert_eq!((refused.status, refused.header("retry-after")), (429, "1"));
    assert_eq!(refused.json()["code"], "rate_limited");
    assert_eq!(open.get("/healthz").status, 200);

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("access.toml");
    std::fs::write(&file, tokens::file()).unwrap();
    let access = Access::open(AccessOptions { file: Some(file), rate, ..AccessOptions::default() }).unwrap();
    let engine = Engine::start(EngineConfig::default());
    let server = Server::serving(HttpState { access: access.into(), ..HttpState::from(engine.clone()) }, engine);
    let refused = |credential: &str, user: &str| {
        let path = format!("/v1/users/{user}/feed");
        let ask = || server.ask("GET", &path, &[("authorization", &bearer(credential))], "");
        (0..6).filter(|_| ask().status == 429).count()
    };
    assert!(refused(&tokens::token("ann"), "ann") >= 2);
    assert_eq!(
        server.ask("GET", "/v1/users/bob/feed", &[("authorization", &bearer(&tokens::token("bob")))], "").status,
        200
    );
    assert_eq!(refused(SERVER_KEY, "ann"), 0);
}
