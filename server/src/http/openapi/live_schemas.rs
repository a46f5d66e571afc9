//! The schemas of live messages.

use serde_json::{Value, json};

use crate::http::openapi::schemas::{Named, object, or_null, schema};
use tidewire::limits::UNREAD_MAX;

/// Returns the schema of each message, and of any message.
pub(super) fn all() -> Named {
    let message = |kind: &str, description: &str, mut properties: Value| {
        properties["type"] = json!({"const": kind});
        properties["seq"] = json!({"type": "integer", "minimum": 0});
        let mut schema = object(properties);
        schema["description"] = json!(description);
        schema
    };
    let hello = json!({
        "epoch": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
        "recovered": {"type": "boolean"},
        "marker": or_null(schema("Cursor")),
    });
    let mut hello_message = message(
        "hello",
        "The first message. If `recovered`, exactly the missed messages follow; otherwise read the feed again.",
        hello,
    );
    // Not required.
    hello_message["properties"]["after_sequence"] = json!({
        "type": "integer",
        "minimum": 0,
        "description": "Only from a node of a cluster: from now on, read pages with `Tidewire-After` and this number.",
    });
    let messages = vec![
        ("HelloMessage", hello_message),
        ("PostMessage", message("post", "The entry is in the feed.", json!({"item": schema("Item")}))),
        ("RemoveMessage", message("remove", "The feed has no entry of this post.", json!({"post": schema("PostId")}))),
        ("UpdateMessage", message("update", "The post after an edit.", json!({"post": schema("Post")}))),
        (
            "StaleMessage",
            message(
                "stale",
                "Read the feed below this cursor again; with null, all of it.",
                json!({"below": or_null(schema("Cursor"))}),
            ),
        ),
        ("MarkerMessage", message("marker", "The reader has read up to here.", json!({"cursor": schema("Cursor")}))),
        (
            "UnreadMessage",
            message(
                "unread",
                "With `unread=true`: the number of unread entries, as of the marker. Its `seq` is that of the previous message.",
                json!({
                    "unread": {"type": "integer", "minimum": 0, "maximum": UNREAD_MAX},
                    "capped": {"type": "boolean"},
                    "complete": {"type": "boolean"},
                }),
            ),
        ),
        ("BeatMessage", message("beat", "A heartbeat: nothing happened.", json!({}))),
    ];
    let any: Vec<Value> = messages.iter().map(|(name, _)| schema(name)).collect();
    let mut all = messages;
    all.push(("LiveMessage", json!({"oneOf": any})));
    all
}
