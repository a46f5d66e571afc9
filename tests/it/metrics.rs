//! Metrics over HTTP, and what is under `ops/` against them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tidewire::config::EngineConfig;

use crate::server::Server;
use crate::{browser, export};

/// What a server tells after a bit of everything.
fn metrics() -> String {
    let server = Server::start(EngineConfig::default());
    server.json("PUT", "/v1/users/ann/following/bob", &json!({}));
    server.post("/v1/posts?wait=delivered", &json!({"author": "bob", "body": 1}));
    server.get("/v1/users/ann/feed");
    server.get("/v1/users/ann/feed?limit=0");
    server.get("/metrics").text
}

/// The value of a metric with these labels.
fn value(metrics: &str, name_and_labels: &str) -> Option<f64> {
    let of = |line: &str| Some(line.strip_prefix(name_and_labels)?.strip_prefix(' ')?.parse().expect("a number"));
    metrics.lines().find_map(of)
}

#[test]
fn metrics_tell_what_happened() {
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
        ("tidewire_queue_depth{queue=\"scribe\"}", 0.0),
        ("tidewire_shed_total{queue=\"fan-out\"}", 0.0),
    ] {
        assert_eq!(value(&metrics, name), Some(expected), "{name} in:\n{metrics}");
    }
    assert!(metrics.ends_with("# EOF\n"));
}

#[test]
fn memory_is_told_by_what_takes_it() {
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
    let began = Instant::now();
    while told() < counted * 0.9 {
        assert!(began.elapsed() < Duration::from_secs(20), "inboxes take {counted} bytes, and {} are told", told());
        thread::yield_now();
    }
    let told = told();
    assert!(told < counted * 2.0, "inboxes take {counted} bytes, and {told} are told");
    let reposts = value(&server.get("/metrics").text, "tidewire_reposts_bytes").unwrap();
    assert!((99.0 * 2.0..99.0 * 32.0).contains(&reposts), "99 reposts take {reposts} bytes");
    assert_eq!(memory()["reposts_bytes"].as_f64(), Some(reposts));
    assert!(memory()["inboxes_bytes"].as_u64() > Some(0));
    server.send("DELETE", "/v1/posts/1", None, "");
    assert_eq!(memory()["reposts_bytes"], 0, "with the last repost goes what is known of it");
}

#[test]
fn every_metric_says_what_it_is_and_no_label_names_a_user() {
    let metrics = metrics();
    let families = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")).count();
    let helps = metrics.lines().filter(|line| line.starts_with("# HELP ")).count();
    assert!(families > 35 && families == helps, "{families} families, {helps} of them explained");
    assert!(!metrics.contains("ann") && !metrics.contains("bob"), "{metrics}");
}

/// The names of metrics that a text mentions.
fn mentioned(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let words = text.split(|c: char| !is_name(c)).filter(|word| word.starts_with("tidewire_"));
    words.map(str::to_owned).collect()
}

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_metrics_that_there_are() {
    // A journal and a snapshot are told of only where there is a data directory, and an archive where it is read.
    let data = tempfile::tempdir().unwrap();
    let server = Server::of(export::open(data.path()));
    server.json("PUT", "/v1/users/ann/following/bob", &json!({}));
    server.post("/v1/posts?wait=delivered", &json!({"author": "bob", "body": 1}));
    server.get("/v1/users/ann/feed");
    assert_eq!(server.send("POST", "/v1/snapshots", None, "").status, 201);
    let names = mentioned(&server.get("/metrics").text);
    for name in ["ops/grafana-dashboard.json", "ops/alerts.yml", "docs/operations.md"] {
        let asked = mentioned(&file(name));
        assert!(asked.len() > 5, "{name} asks for {asked:?}");
        let missing: Vec<_> = asked.difference(&names).collect();
        assert!(missing.is_empty(), "{name} asks for {missing:?}, which there are not");
    }
    serde_json::from_str::<serde_json::Value>(&file("ops/grafana-dashboard.json")).unwrap();
}

#[test]
fn the_unit_of_systemd_is_well_formed() {
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        return browser::skip("the test of the unit of systemd", "systemd-analyze");
    };
    assert!(version.status.success());
    let directory = tempfile::tempdir().unwrap();
    // Of a program that is there.
    let unit = file("ops/tidewire.service").replace("/usr/local/bin/tidewire", env!("CARGO_BIN_EXE_tidewire"));
    let copy = directory.path().join("tidewire.service");
    fs::write(&copy, unit).unwrap();
    let verified = Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&copy).output().unwrap();
    let said = String::from_utf8_lossy(&verified.stderr);
    let complaints: Vec<&str> = said.lines().filter(|line| line.contains("tidewire.service")).collect();
    assert!(verified.status.success() && complaints.is_empty(), "{said}");
}
