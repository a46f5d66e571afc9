//! Rights are decided where a request came in, and nobody but a node passes requests on.

use serde_json::{Value, json};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire_server::http::admission::{Admission, AdmissionLimits};
use tidewire_server::http::auth::{Access, AccessOptions};
use tidewire_server::http::state::HttpState;
use tidewire_server::http::tls::Certificate;

use crate::access::tokens::{SERVER_KEY, access, bearer, token};
use crate::cli;
use crate::cli::openssl::issue_of_authority;
use crate::cluster::nodes::{KEY, Nodes};
use crate::tls;

pub const ANYBODY: &str = r#"{"caller":"anybody","peer":null}"#;

#[test]
fn peer_headers_without_the_cluster_key_are_refused() {
    for access in [Access::default, access] {
        let nodes = Nodes::of_one_world(access);
        let key = bearer(SERVER_KEY);
        for more in [&[][..], &[("tidewire-cluster-key", "")], &[("tidewire-cluster-key", &KEY[1..])]] {
            for hop in ["owner", "sequencer", "nonsense"] {
                for (method, path) in [
                    ("GET", "/v1/users/ann/feed"),
                    ("DELETE", "/v1/users/ann/following/bob"),
                    ("GET", "/v1/stats"),
                    ("GET", "/metrics"),
                ] {
                    let of_node = [("tidewire-hop", hop), ("tidewire-caller", ANYBODY), ("authorization", &*key)];
                    for node in [nodes.a(), nodes.b(), nodes.c()] {
                        let answer = node.ask(method, path, &[&of_node, more].concat(), "");
                        let told = format!("{method} {path} {hop}: {}", answer.text);
                        assert_eq!((answer.status, &answer.json()["code"]), (403, &json!("not_a_node")), "{told}");
                    }
                }
            }
        }
        // Alone, the other headers have no meaning.
        let answer = nodes.b().ask(
            "GET",
            "/v1/users/ann/feed",
            &[("tidewire-caller", ANYBODY), ("tidewire-cluster-key", KEY), ("authorization", &key)],
            "",
        );
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
}

#[test]
fn a_node_trusts_the_caller_named_by_a_peer_and_forwards_only_once() {
    let nodes = Nodes::of_one_world(access);
    let user = |may_write: bool| {
        json!({"caller": {"user": {"id": "ann", "may_write": may_write, "issued_at": null, "until": i64::MAX, "key": 0}}, "peer": "192.0.2.1:9"})
            .to_string()
    };
    let (writer, publish) = (user(true), r#"{"author":"bob","body":1}"#);
    let unknown = r#"{"caller":"somebody","peer":null}"#;
    for (node, hop, caller, method, path, body, expected) in [
        (nodes.b(), "owner", ANYBODY, "GET", "/v1/users/ann/feed", "", (200, "")),
        (nodes.c(), "owner", ANYBODY, "GET", "/v1/users/ann/feed", "", (503, "owner_unavailable")),
        (nodes.c(), "sequencer", ANYBODY, "PUT", "/v1/users/ann/following/bob", "", (201, "")),
        (nodes.b(), "sequencer", ANYBODY, "PUT", "/v1/users/ann/following/bob", "", (503, "sequencer_unavailable")),
        (nodes.c(), "owner", ANYBODY, "PUT", "/v1/users/ann/following/bob", "", (503, "owner_unavailable")),
        // What the handler has to decide it decides by the caller that came with the request.
        (nodes.c(), "sequencer", &writer, "POST", "/v1/posts", publish, (403, "forbidden")),
        (nodes.c(), "sequencer", ANYBODY, "POST", "/v1/posts", publish, (201, "")),
        (nodes.b(), "owner", unknown, "GET", "/v1/users/ann/feed", "", (400, "invalid_hop")),
        (nodes.b(), "owner", "", "GET", "/v1/users/ann/feed", "", (400, "invalid_hop")),
        (nodes.b(), "elsewhere", ANYBODY, "GET", "/v1/users/ann/feed", "", (400, "invalid_hop")),
    ] {
        let mut headers = vec![("tidewire-hop", hop), ("tidewire-caller", caller), ("tidewire-cluster-key", KEY)];
        headers.extend((!body.is_empty()).then_some(("content-type", "application/json")));
        let answer = node.ask(method, path, &headers, body);
        let code = answer.json()["code"].as_str().unwrap_or("").to_owned();
        assert_eq!((answer.status, &*code), expected, "{hop} {method} {path}: {}", answer.text);
    }
}

#[test]
fn the_rate_of_a_client_is_counted_only_on_the_receiving_node() {
    let limited = || {
        let rate = "1".parse().ok();
        Access::open(AccessOptions { rate, ..AccessOptions::default() }).unwrap()
    };
    let nodes = Nodes::of_one_world(limited);
    let status = |node: &crate::server::Server| node.get("/v1/users/ann/feed").status;
    let mut passed = 0;
    while status(nodes.a()) == 200 {
        passed += 1;
        assert!(passed < 1_000, "there is no limit");
    }
    assert!(passed > 0);
    assert_eq!(status(nodes.b()), 200, "the owner has counted none of {passed}");
    // Each reader counts, also if another node owns it.
    let users: Vec<String> = (0..50).map(|nth| format!("r{nth}")).collect();
    let feeds = nodes.c().post("/v1/feeds", &json!({"users": users})).json()["feeds"].clone();
    assert_eq!(feeds[0]["items"], json!([]), "{feeds}");
    assert_eq!(feeds[49]["problem"]["code"], "rate_limited", "{feeds}");
}

#[test]
fn requests_of_other_nodes_have_their_own_limit() {
    let engine = Engine::start(EngineConfig::default());
    let nodes = Nodes::with(
        || engine.clone(),
        |state| {
            let limits = AdmissionLimits { reads: 0, wake_ups: 0, writes: 0, ..AdmissionLimits::default() };
            HttpState { admission: Admission::new(limits), ..state }
        },
    );
    // What clients send is refused: there is no room for clients.
    let as_node = |hop| [("tidewire-hop", hop), ("tidewire-caller", ANYBODY), ("tidewire-cluster-key", KEY)];
    for (node, hop, method, path) in [
        // Of a reader who is asleep.
        (nodes.b(), "owner", "GET", "/v1/users/ann/feed"),
        (nodes.c(), "sequencer", "PUT", "/v1/users/ann/following/bob"),
    ] {
        assert_eq!(node.ask(method, path, &[], "").status, 503, "{path}");
        let answer = node.ask(method, path, &as_node(hop), "");
        assert!(answer.status < 300, "{path}: {}", answer.text);
    }
    let metrics = nodes.c().get("/metrics").text;
    assert!(metrics.contains("tidewire_inside_limit{gate=\"writes\"} 4096"), "{metrics}");
}

#[test]
fn a_token_is_valid_for_its_user_through_another_node_even_for_many_feeds() {
    let nodes = Nodes::of_one_world(access);
    let headers = [("authorization", &*bearer(&token("ann"))), ("content-type", "application/json")];
    let answer = nodes.a().ask("POST", "/v1/feeds", &headers, r#"{"users":["ann","cas"]}"#);
    let feeds = answer.json()["feeds"].clone();
    assert_eq!((&feeds[0]["items"], &feeds[1]["problem"]["code"]), (&json!([]), &json!("forbidden")), "{feeds}");
    for (user, path, status) in [("ann", "/v1/users/ann/feed", 200), ("dan", "/v1/users/ann/feed", 403)] {
        let answer = nodes.a().ask("GET", path, &[("authorization", &bearer(&token(user)))], "");
        assert_eq!(answer.status, status, "{user}: {}", answer.text);
    }
    let cluster: Value = nodes.a().ask("GET", "/v1/cluster", &[("authorization", &bearer(SERVER_KEY))], "").json();
    assert_eq!((&cluster["node"], &cluster["sequencer"], &cluster["epoch"]), (&json!("a"), &json!("c"), &json!(7)));
    assert_eq!(cluster["nodes"][1]["address"], nodes.b().url(""));
}

#[test]
fn nodes_connect_over_tls_only_to_trusted_nodes() {
    let (served, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (certificate, _) = (tls::issue(served.path()), tls::issue(other.path()));
    for (authorities, status) in [(&served, 200), (&other, 503)] {
        let nodes = Nodes::over_tls(&tls::read(served.path()).unwrap(), &authorities.path().join("cert.pem"));
        let mut stream = tls::connect(nodes.a().address(), &certificate).unwrap();
        let page = tls::ask(&mut stream, "GET /v1/users/ann/feed HTTP/1.1\r\nHost: localhost\r\n\r\n", "}");
        assert!(page.starts_with(&format!("HTTP/1.1 {status} ")), "{page}");
        let node = if status == 200 { "b" } else { "a" };
        assert!(page.contains(&format!("tidewire-node: {node}\r\n")), "{page}");
        let upgrade = "GET /v1/users/ann/live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        let hello = tls::ask(&mut stream, upgrade, if status == 200 { "\"hello\"" } else { "owner_unavailable" });
        assert!(hello.starts_with(if status == 200 { "HTTP/1.1 101 " } else { "HTTP/1.1 503 " }), "{hello}");
    }
}

#[test]
fn nodes_accept_an_authority_certificate_of_a_peer_only_if_it_is_in_the_ca_file() {
    let directory = tempfile::tempdir().unwrap();
    let at = |file: &str| directory.path().join(file);
    ["shown", "other"].into_iter().for_each(|name| issue_of_authority(directory.path(), name, 2999));
    for (trusted, code) in [("shown.pem", 0), ("other.pem", 3)] {
        let certificate = Certificate::read(at("shown.pem"), at("shown.key")).unwrap();
        let nodes = Nodes::over_tls(&certificate, &at(trusted));
        let mut feed = cli::program(&format!("https://localhost:{}", nodes.a().address().port()));
        // Another node owns the reader.
        feed.args(["feed", "ann", "--timeout", "2s", "--ca-file"]).arg(at("shown.pem"));
        let ran = cli::ran(&mut feed);
        assert_eq!(ran.code, code, "{trusted}: {}{}", ran.out, ran.err);
        assert!(code == 0 || ran.err.contains("owner_unavailable"), "{}", ran.err);
    }
}
