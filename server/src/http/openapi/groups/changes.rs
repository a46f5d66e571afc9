//! The documentation of the stream of changes.

use serde_json::json;

use crate::http::changes::{NAMES, NDJSON};
use crate::http::openapi::documentation::{Documentation, documented};
use crate::http::openapi::groups::Documented;
use crate::http::openapi::schemas::{post, schema};
use tidewire::limits::{CHANGE_STREAMS_MAX, CHANGES_DEFAULT, CHANGES_MAX};

pub(super) static DOCUMENTATION: Documented = &[("read_changes", read)];

fn read() -> Documentation {
    let lines = format!(
        "{}\n{{\"sequence\":42,\"type\":\"reached\"}}\n",
        json!({"sequence": 41, "type": "published", "post": post()})
    );
    let events = "event: deleted\nid: 42\ndata: {\"sequence\":42,\"type\":\"deleted\",\"id\":\"7\"}\n\n";
    documented("Read what was accepted")
        .description(format!(
            "Everything that was accepted after `after`, in order, each a `Change`. By default, as lines of JSON: up to `limit` events of what \
             there is, and at last `reached`, whose `sequence` is the next `after`. With `Accept: text/event-stream`, the stream goes on with \
             what is accepted later; the `id` of an event is its `sequence`. `reached` also comes with every heartbeat, in lines with \
             `more`. Sequences increase, with gaps. An event may come twice. `missed` is no event: it names a reader with the rule `notify` \
             who has slept since a post was published that is in the feed; it comes only if `types` has it. Its `sequence` is that of the \
             event before the post, and its `reader` the next `after_reader`; the `id` is both, as in `40-ann`. At most \
             {CHANGE_STREAMS_MAX} streams are open at the same time."
        ))
        .query(
            "after",
            "The last `sequence` that was processed; 0 for all. Without it, the stream begins with what is accepted from now on.",
            json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}),
        )
        .query(
            "after_reader",
            "The `reader` of the last message, if it has one: the stream goes on with the readers after this one, in the order of their ids, \
             of the post that follows `after`. Only together with `after`, and if `types` has `missed`.",
            json!({"type": "string"}),
        )
        .query(
            "limit",
            "How many messages at most, without `reached`. A stream of server-sent events has no limit unless one is given.",
            json!({"type": "integer", "minimum": 1, "maximum": CHANGES_MAX, "default": CHANGES_DEFAULT}),
        )
        .query(
            "types",
            &format!("Only events of these types, separated by commas: {}.", NAMES.map(|name| format!("`{name}`")).join(", ")),
            json!({"type": "string"}),
        )
        .for_instance(&json!("published,deleted"))
        .header(
            "Last-Event-ID",
            "The `id` of the last message. Replaces `after` and `after_reader`, for server-sent events. An empty one is ignored.",
            json!({"type": "string"}),
        )
        .query(
            "lastEventId",
            "The same as the header `Last-Event-ID`, for clients of server-sent events that cannot set it.",
            json!({"type": "string"}),
        )
        .answer(
            200,
            json!({
                "description": "The events.",
                "content": {
                    NDJSON: {"schema": {"type": "string"}, "example": lines, "x-messages": schema("Change")},
                    "text/event-stream": {"schema": {"type": "string"}, "example": events, "x-messages": schema("Change")},
                },
            }),
        )
        .refuses(400, &["sequence_in_future"])
        .refuses(409, &["no_data_directory"])
        .refuses(410, &["gone"])
        .refuses(500, &["internal"])
        .refuses(503, &["log_unavailable"])
}
