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
        "The first one: exactly what was missed follows if `recovered`; else the feed is to be read again.",
        hello,
    );
    // Not required.
    hello_message["properties"]["after_sequence"] = json!({
        "type": "integer",
        "minimum": 0,
        "description": "Only from a node of a cluster: read pages with `Tidewire-After` of this number from here on.",
    });
    let messages = vec![
        ("HelloMessage", hello_message),
        ("PostMessage", message("post", "The entry is in the feed.", json!({"item": schema("Item")}))),
        (
            "RemoveMessage",
            message("remove", "No entry of this post is in the feed.", json!({"post": schema("PostId")})),
        ),
        ("UpdateMessage", message("update", "The post reads like this now.", json!({"post": schema("Post")}))),
        (
            "StaleMessage",
            message(
                "stale",
                "What stands below this cursor is to be read again; with null all of it.",
                json!({"below": or_null(schema("Cursor"))}),
            ),
        ),
        ("MarkerMessage", message("marker", "The reader has read up to here.", json!({"cursor": schema("Cursor")}))),
        (
            "UnreadMessage",
            message(
                "unread",
                "With `unread=true`: the number of unread entries, as of the marker. Its `seq` is that of the message before it.",
                json!({
                    "unread": {"type": "integer", "minimum": 0, "maximum": UNREAD_MAX},
                    "capped": {"type": "boolean"},
                    "complete": {"type": "boolean"},
                }),
            ),
        ),
        ("BeatMessage", message("beat", "Nothing has happened.", json!({}))),
    ];
    let any: Vec<Value> = messages.iter().map(|(name, _)| schema(name)).collect();
    let mut all = messages;
    all.push(("LiveMessage", json!({"oneOf": any})));
    all
}
