//! The documentation of live connections.

use serde_json::json;

use crate::http::openapi::documentation::{Documentation, documented};
use crate::http::openapi::groups::Documented;
use crate::http::openapi::schemas::{feed_cursor, schema};
use tidewire::limits::{LIVE_BEHIND_MAX, LIVE_CONNECTIONS_PER_READER_MAX};

pub(super) static DOCUMENTATION: Documented = &[("watch", watch), ("stream_events", events)];

impl Documentation {
    fn resumes(self) -> Self {
        self.query(
            "epoch",
            "The `epoch` of the previous `hello`, to resume. Together with `seq`.",
            json!({"type": "string"}),
        )
        .query("seq", "The last received `seq`.", json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}))
        .truth("unread", "Also send the number of unread entries when it changes, at most once a second.")
        .truth(
            "batch",
            "Send messages that arrive shortly after others together, at most 16 ms late. A frame of a WebSocket is then a JSON array of \
             messages.",
        )
        .refuses(400, &["missing_parameter"])
        .refuses(422, &["not_a_user"])
        .refuses(500, &["reader_crashed", "internal"])
        .refuses(503, &["quarantined"])
    }
}

fn watch() -> Documentation {
    let seconds = LIVE_BEHIND_MAX.as_secs();
    documented("Watch a feed over a WebSocket")
        .description(
            "Each message is a JSON object, a `LiveMessage`. The first is a `hello`; `seq` increases by one. To resume, connect with \
             the last `epoch` and `seq`.",
        )
        .resumes()
        .answer(
            101,
            json!({
                "description": "The connection is now a WebSocket.",
                "headers": {"Upgrade": {"schema": {"const": "websocket"}}},
            }),
        )
        .refuses(426, &["upgrade_required"])
        .refuses(429, &["too_many_connections"])
        .extension(
            "x-websocket",
            json!({
                "messages": schema("LiveMessage"),
                "closes": {
                    "1001": "No answer to a ping.",
                    "1002": "An invalid frame, or a frame that is too long.",
                    "1012": "The server restarts: reconnect.",
                    "1013": "Too many connections: reconnect later.",
                    "4001": "Authentication failed, expired or revoked.",
                    "4008": format!("Too slow, by more than {seconds} s or too many bytes: reconnect and resume."),
                    "4029": format!("More than {LIVE_CONNECTIONS_PER_READER_MAX} connections of this reader."),
                },
            }),
        )
}

fn events() -> Documentation {
    let text = "event: marker\nid: 00000000000000a1:7\ndata: {\"type\":\"marker\",\"seq\":7,\"cursor\":";
    let example = format!("{text}{}}}\n\n", feed_cursor());
    documented("Watch a feed by server-sent events")
        .description("The same messages: the `data` of an event is a `LiveMessage`, its `event` is the `type`, its `id` is `epoch:seq`.")
        .resumes()
        .header("Last-Event-ID", "The last received `id`, as browsers send it: `epoch:seq`.", json!({"type": "string"}))
        .query(
            "lastEventId",
            "The same as the header `Last-Event-ID`, for clients that cannot set it.",
            json!({"type": "string"}),
        )
        .answer(
            200,
            json!({
                "description": "An endless stream of events.",
                "content": {"text/event-stream": {
                    "schema": {"type": "string"},
                    "example": example,
                    "x-messages": schema("LiveMessage"),
                }},
            }),
        )
        .refuses(429, &["too_many_connections"])
}
