//! Metrics over HTTP.

use std::collections::BTreeSet;

use serde_json::json;
use testkit::eventually;
use tidewire::config::EngineConfig;

use crate::server::Server;

/// What a server tells after a bit of everything, done by users, tags and lists of these names.
fn metrics_of([reader, author, tag, list]: [&str; 4]) -> String {
    let server = Server::start(EngineConfig::default());
    server.json("PUT", &format!("/v1/users/{reader}/following/{author}"), &json!({}));
    server.json("PUT", &format!("/v1/users/{reader}/lists/{list}/members/{author}"), &json!({}));
    server.json("PUT", &format!("/v1/users/{reader}/mutes/tag:{tag}"), &json!({}));
    server.post("/v1/posts?wait=delivered", &json!({"author": author, "body": 1, "tags": [tag], "topic": tag}));
    server.get(&format!("/v1/users/{reader}/feed"));
    server.get(&format!("/v1/users/{reader}/feed?limit=0"));
    // Refused with a problem that says whose fault it is.
    assert_eq!(server.send("PUT", &format!("/v1/users/{reader}/following/{reader}"), None, "").status, 422);
    assert_eq!(server.get(&format!("/v1/users/{reader}/lists/{tag}/feed")).status, 404);
    assert_eq!(server.get(&format!("/{reader}/{author}")).status, 404);
    server.get("/metrics").text
}

fn metrics() -> String {
    metrics_of(["ann", "bob", "rust", "pals"])
}

/// The series there are: each name with its labels.
fn series(metrics: &str) -> BTreeSet<&str> {
    let lines = metrics.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').expect("a value").0).collect()
}

/// The value of a metric with these labels.
fn value(metrics: &str, name_and_labels: &str) -> Option<f64> {
    let of = |line: &str| Some(line.strip_prefix(name_and_labels)?.strip_prefix(' ')?.parse().expect("a number"));
    metrics.lines().find_map(of)
}

#[test]
fn metrics_count_events_and_requests() {
    let metrics = metrics();
    for (name, expected) in [
        ("tidewire_published_total", 1.0),
        ("tidewire_ready", 1.0),
        ("tidewire_edges", 1.0),
        ("tidewire_http_requests_total{operation=\"read_feed\",status=\"2xx\"}", 1.0),
        ("tidewire_http_requests_total{operation=\"read_feed\",status=\"4xx\"}", 1.0),
        ("tidewire_http_request_duration_seconds_count{operation=\"publish\"}", 1.0),
        ("tidewire_fanout_duration_seconds_bucket{le=\"+Inf\",followers=\"1-9\"}", 1.0),
        ("tidewire_page_duration_seconds_count", 1.0),
        ("tidewire_admission_limit{gate=\"reads\"}", 1024.0),
        ("tidewire_admission_limit{gate=\"metrics\"}", 8.0),
        ("tidewire_queue_depth{queue=\"commands\"}", 0.0),
        ("tidewire_queue_depth{queue=\"command_bytes\"}", 0.0),
        ("tidewire_queue_limit{queue=\"command_bytes\"}", 134_217_728.0),
        ("tidewire_shed_total{queue=\"fanout\"}", 0.0),
    ] {
        assert_eq!(value(&metrics, name), Some(expected), "{name} in:\n{metrics}");
    }
    assert!(metrics.ends_with("# EOF\n"));
}

#[test]
fn memory_is_reported_by_its_use() {
    let server = Server::start(EngineConfig::default());
    let memory = || server.get("/v1/stats").json()["memory"].clone();
    assert_eq!(memory()["reposts_bytes"], 0);
    for reader in 0..50 {
        server.json("PUT", &format!("/v1/users/reader-{reader}/following/bob"), &json!({}));
        server.get(&format!("/v1/users/reader-{reader}/feed"));
    }
    for id in 0..100 {
        server.post("/v1/posts?wait=delivered", &json!({"author": "bob", "body": 1, "id": (id + 1).to_string()}));
        if id > 0 {
            server.post("/v1/posts", &json!({"author": "cas", "body": 1, "repost_of": "1"}));
        }
    }
    let counted = server.get("/v1/stats?inboxes=count").json()["inboxes"]["bytes"].as_f64().unwrap();
    let told = || value(&server.get("/metrics").text, "tidewire_inboxes_bytes").unwrap();
    eventually(&format!("of inboxes of {counted} bytes nine tenths are told"), || told() >= counted * 0.9);
    let told = told();
    assert!(told < counted * 2.0, "inboxes take {counted} bytes, and {told} are told");
    let reposts = value(&server.get("/metrics").text, "tidewire_reposts_bytes").unwrap();
    assert!((99.0 * 2.0..99.0 * 32.0).contains(&reposts), "99 reposts take {reposts} bytes");
    assert_eq!(memory()["reposts_bytes"].as_f64(), Some(reposts));
    assert!(memory()["inboxes_bytes"].as_u64() > Some(0));
    let world = &server.engine.shared().world;
    let counted: usize = world.sources.iter().map(|source| source.bytes()).sum();
    assert_eq!(memory()["sources_bytes"], counted, "all are in the sample");
    server.send("DELETE", "/v1/posts/1", None, "");
    assert_eq!(memory()["reposts_bytes"], 0, "with the last repost goes what is known of it");
}

#[test]
fn every_metric_has_a_help_text() {
    let metrics = metrics();
    let families = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")).count();
    let helps = metrics.lines().filter(|line| line.starts_with("# HELP ")).count();
    assert!(families > 35 && families == helps, "{families} families, {helps} of them explained");
}

#[test]
fn no_label_contains_names_chosen_by_users() {
    let [one, other] = [["ann", "bob", "rust", "pals"], ["zoe.q", "42", "zig", "work"]].map(metrics_of);
    let (one, other) = (series(&one), series(&other));
    let differing: Vec<_> = one.symmetric_difference(&other).collect();
    assert!(one.len() > 100 && differing.is_empty(), "{differing:?}");
}

#[test]
fn label_values_are_in_snake_case() {
    let metrics = metrics();
    let labels = series(&metrics).into_iter().filter_map(|series| series.strip_suffix('}')?.split_once('{'));
    let labels: Vec<(&str, &str)> =
        labels.flat_map(|(_, labels)| labels.split(',')).filter_map(|label| label.split_once('=')).collect();
    assert!(labels.iter().any(|(name, _)| *name == "queue") && labels.iter().any(|(name, _)| *name == "code"));
    for (name, value) in labels {
        let is_snake =
            value.trim_matches('"').chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        assert!(is_snake || ["le", "followers", "version", "features"].contains(&name), "{name}={value}");
    }
}

#[test]
fn requests_without_a_route_have_an_id_and_are_counted_by_code() {
    let server = Server::start(EngineConfig::default());
    for (method, path, status) in [("GET", "/v1/nothing", 404), ("POST", "/healthz", 405), ("PUT", "/console", 405)] {
        let refused = server.send(method, path, None, "");
        assert_eq!((refused.status, refused.header("x-request-id").len()), (status, 32), "{method} {path}");
        let refused = server.ask(method, path, &[("x-request-id", "mine-1")], "");
        assert_eq!((refused.status, refused.header("x-request-id")), (status, "mine-1"), "{method} {path}");
    }
    assert_eq!(server.get("/v1/users/ann/feed?limit=0").status, 400);
    let metrics = server.get("/metrics").text;
    for (name, expected) in [
        ("tidewire_http_requests_total{operation=\"none\",status=\"4xx\"}", 6.0),
        ("tidewire_http_refusals_total{code=\"not_found\"}", 2.0),
        ("tidewire_http_refusals_total{code=\"method_not_allowed\"}", 4.0),
        ("tidewire_http_refusals_total{code=\"invalid_parameter\"}", 1.0),
    ] {
        assert_eq!(value(&metrics, name), Some(expected), "{name} in:\n{metrics}");
    }
}
