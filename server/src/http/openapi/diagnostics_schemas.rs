//! The schemas of diagnostics responses for operators.

use serde_json::{Value, json};

use crate::http::openapi::schemas::{Named, array, count, object, or_null, schema};

/// Returns the schemas of the history, found sources, the fan-out of a post, and operations.
pub(super) fn all() -> Named {
    vec![
        ("History", history()),
        ("FoundSource", found_source()),
        ("FoundSources", found_sources()),
        ("UserList", user_list()),
        ("PostFanout", post_fanout()),
        ("Operations", operations()),
    ]
}

/// The name of the answering node, or null if it is not part of a cluster.
fn node() -> Value {
    json!({"type": ["string", "null"]})
}

fn count_or_null() -> Value {
    json!({"type": ["integer", "null"], "minimum": 0})
}

fn history() -> Value {
    let number = || json!({"type": "number", "minimum": 0});
    let number_or_null = || json!({"type": ["number", "null"], "minimum": 0});
    let queue = object(json!({"limit": count(), "depth": array(count())}));
    let of_class = || array(number());
    let requests = object(json!({"reads": of_class(), "writes": of_class(), "live": of_class(), "other": of_class()}));
    let memory = object(json!({
        "resident": array(count_or_null()),
        "posts": array(count()),
        "sources": array(count()),
        "inboxes": array(count()),
        "reposts": array(count()),
    }));
    object(json!({
        "node": node(),
        "interval_seconds": number(),
        "samples_max": count(),
        "next": {"type": "string"},
        "reset": {"type": "boolean"},
        "at_seconds": array(number()),
        "page_p50_us": array(number_or_null()),
        "page_p99_us": array(number_or_null()),
        "publish_p50_us": array(number_or_null()),
        "publish_p99_us": array(number_or_null()),
        "fanout_p50_us": array(number_or_null()),
        "fanout_p99_us": array(number_or_null()),
        "pages_per_second": array(number()),
        "posts_per_second": array(number()),
        "deliveries_per_second": array(number()),
        "wakes_per_second": array(number()),
        "live_messages_per_second": array(number()),
        "active": array(count()),
        "live_connections": array(count()),
        "connections": array(count()),
        "requests_per_second": requests,
        "refusals_per_second": {"type": "object", "additionalProperties": array(number())},
        "memory_bytes": memory,
        "queues": {"type": "object", "additionalProperties": queue},
    }))
}

fn found_source() -> Value {
    object(json!({
        "id": schema("SourceId"),
        "kind": {"type": "string", "enum": ["user", "tag", "topic", "replies"]},
        "active": {"type": "boolean"},
        "followers": count(),
        "following": count(),
        "posts": count(),
        "celebrity": {"type": "boolean"},
        "last_seen": or_null(schema("Time")),
    }))
}

fn user_list() -> Value {
    object(json!({"items": array(schema("FoundSource")), "next": or_null(schema("Cursor"))}))
}

fn found_sources() -> Value {
    object(
        json!({"node": node(), "items": array(schema("FoundSource")), "complete": {"type": "boolean"}, "examined": count()}),
    )
}

fn post_fanout() -> Value {
    let source = object(json!({
        "id": schema("SourceId"),
        "route": {"type": "string", "enum": ["push", "pull"]},
        "followers": count(),
        "decided_by": {"type": "string", "enum": ["setting", "followers", "cost"]},
    }));
    let repost = object(json!({
        "user": schema("SourceId"),
        "post": schema("PostId"),
        "at": schema("Time"),
        "hidden": {"type": "boolean"},
    }));
    object(json!({
        "node": node(),
        "post": schema("PostId"),
        "author": schema("SourceId"),
        "accepted_at": schema("Time"),
        "state": {"type": "string", "enum": ["queued", "delivering", "delivered", "pulled", "gone"]},
        "sources": array(source),
        "followers": count_or_null(),
        "pulled": count_or_null(),
        "awake": count_or_null(),
        "pushed": count_or_null(),
        "already_there": count_or_null(),
        "asleep": count_or_null(),
        "started_after_us": count_or_null(),
        "first_delivery_after_us": count_or_null(),
        "finished_after_us": count_or_null(),
        "reposts": object(json!({"count": count(), "complete": {"type": "boolean"}, "items": array(repost)})),
    }))
}

fn operations() -> Value {
    let text = || json!({"type": "string"});
    let text_or_null = || json!({"type": ["string", "null"]});
    let slow = object(json!({
        "at": schema("Time"),
        "operation": text(),
        "method": text(),
        "route": text(),
        "status": count_or_null(),
        "took_ms": count(),
        "request_id": text_or_null(),
    }));
    let refused = object(json!({
        "at": schema("Time"),
        "operation": text_or_null(),
        "method": text_or_null(),
        "route": text_or_null(),
        "code": text(),
        "status": count(),
        "request_id": text(),
    }));
    let key = object(json!({
        "name": text_or_null(),
        "kind": {"type": "string", "enum": ["server", "token"]},
        "scope": text_or_null(),
        "requests": count(),
        "last_used": or_null(schema("Time")),
    }));
    object(json!({
        "node": node(),
        "slow_requests": object(json!({"threshold_ms": count(), "count": count(), "items": array(slow)})),
        "refused_requests": object(json!({"count": count(), "items": array(refused)})),
        "keys": or_null(array(key)),
    }))
}
