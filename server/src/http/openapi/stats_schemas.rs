//! The schemas of statistics, readiness and other responses to operators.

use serde_json::{Value, json};

use crate::http::handlers::readiness::reasons;
use crate::http::openapi::schemas::{Named, array, count, object, or_null, schema};

/// Returns the schemas of statistics, snapshots and verification results.
pub(super) fn all() -> Named {
    let posts = || array(schema("PostId"));
    let verdict = object(json!({
        "good": {"type": "boolean"},
        "entries": count(),
        "rebuilt": count(),
        "floor": or_null(schema("Cursor")),
        "missing": posts(),
        "extra": posts(),
        "under_way": count(),
        "stale": count(),
    }));
    let recovering = object(json!({
        "phase": {"type": "string"},
        "snapshot_bytes": count(),
        "snapshot_bytes_total": count(),
        "events": count(),
    }));
    vec![
        ("Liveness", object(json!({"alive": {"const": true}}))),
        ("Readiness", readiness()),
        ("NotReady", object(json!({"ready": {"const": false}, "recovery": recovering}))),
        ("Cluster", cluster()),
        ("Snapshot", object(snapshot())),
        ("Verdict", verdict),
        ("Stats", stats()),
        ("Erasure", object(json!({"erased": {"const": "under_way"}}))),
        ("OpenApi", json!({"type": "object", "required": ["openapi", "info", "paths"]})),
    ]
}

/// The reasons why a server refuses all writes.
fn refused() -> Value {
    json!({"type": "string", "enum": reasons().collect::<Vec<_>>()})
}

fn readiness() -> Value {
    let mut readiness = object(json!({"ready": {"const": true}, "writes": {"type": "boolean"}}));
    // Optional: present only if writes are refused.
    readiness["properties"]["refused"] = refused();
    readiness
}

fn cluster() -> Value {
    let name = || json!({"type": "string"});
    let node = object(json!({
        "name": name(),
        "address": {"type": "string"},
        "partitions": array(count()),
        "heard_ms": {"type": ["integer", "null"]},
    }));
    let mut cluster = object(json!({
        "node": name(),
        "epoch": count(),
        "sequencer": or_null(name()),
        "applied": count(),
        "partitions": count(),
        "nodes": array(node),
        "gone": array(object(json!({"name": name(), "address": name(), "gone_ms": count()}))),
        "session_ms": count(),
        "beat_ms": count(),
    }));
    let digest = json!({"type": "string", "pattern": "^[0-9a-f]{32}$"});
    cluster["properties"]["world"] = object(json!({"sequence": count(), "digest": digest}));
    cluster
}

fn snapshot() -> Value {
    json!({"file": {"type": "string"}, "sequence": count(), "bytes": count(), "taken_at": schema("Time")})
}

const COUNTS: [&str; 15] = [
    "uptime_seconds",
    "users",
    "active",
    "edges",
    "posts",
    "published",
    "deliveries",
    "duplicate_deliveries",
    "deliveries_below_floor",
    "pages",
    "partial_pages",
    "archive_read_failures",
    "wakes",
    "sleeps",
    "user_crashes",
];

fn counts(names: &[&str]) -> Value {
    object(names.iter().map(|name| ((*name).to_owned(), count())).collect::<serde_json::Map<_, _>>().into())
}

fn by_name(of: Value) -> Value {
    json!({"type": "object", "additionalProperties": of})
}

fn stats() -> Value {
    let mut aged = snapshot();
    aged["age_seconds"] = count();
    let memory = object(json!({
        "resident_bytes": {"type": ["integer", "null"]},
        "posts_bytes": count(),
        "sources_bytes": count(),
        "inboxes_bytes": count(),
        "reposts_bytes": count(),
    }));
    let mut latency = counts(&["count", "p50_us", "p99_us", "max_us"]);
    latency["properties"]["followers"] = json!({"type": "string", "examples": ["10-99"]});
    let seconds = || json!({"type": "integer"});
    let clock = object(json!({
        "now": schema("Time"),
        "jumps_ahead": count(),
        "jumps_back": count(),
        "last_jump_seconds": seconds(),
        "lead_seconds": seconds(),
    }));
    let mut properties = json!({
        "shed": count(),
        "clock": clock,
        "erasures": object(json!({"under_way": count(), "oldest_seconds": {"type": ["integer", "null"]}})),
        "live": counts(&["connections", "readers", "messages", "cut_off"]),
        "queues": by_name(counts(&["depth", "limit"])),
        "fanout_latency": array(latency),
        "memory": memory,
        "writes_refused": or_null(refused()),
        "version": {"type": "string"},
        "commit": {"type": "string"},
        "backups": or_null(backups()),
        "disk_free_bytes": {"type": ["integer", "null"]},
        "stored_bytes": or_null(counts(&["journal", "changes", "snapshots", "archive", "other"])),
        "journal": or_null(counts(&["sequence", "written_bytes", "commits"])),
        "snapshots": array(object(aged)),
        "recovery": or_null(recovery()),
        "admission": by_name(counts(&["under_way", "limit", "refused"])),
    });
    for name in COUNTS {
        properties[name] = count();
    }
    let mut stats = object(properties);
    // Optional: present only if the client requests it.
    stats["properties"]["inboxes"] = counts(&["count", "entries", "bytes"]);
    stats
}

fn backups() -> Value {
    let mut figures = counts(&["interval_seconds", "age_seconds", "count", "stored_bytes", "sent_bytes", "failures"]);
    figures["properties"]["restorable_from"] = or_null(schema("Time"));
    figures["properties"]["restorable_to"] = or_null(schema("Time"));
    figures["properties"]["failing"] = json!({"type": "boolean"});
    let run = json!({
        "started_at": schema("Time"),
        "took_ms": count(),
        "sent_bytes": count(),
        "error": {"type": ["string", "null"]},
    });
    figures["properties"]["runs"] = array(object(run));
    figures
}

fn recovery() -> Value {
    let text = json!({"type": "string"});
    let number_or_null = json!({"type": ["integer", "null"]});
    object(json!({
        "snapshot": number_or_null,
        "skipped": array(text.clone()),
        "events": count(),
        "cut": or_null(object(json!({"segment": text, "after_byte": count(), "bytes": count(), "whole_events": count()}))),
        "lost": array(object(json!({"from": count(), "through": number_or_null, "segment": text, "reason": text}))),
    }))
}
