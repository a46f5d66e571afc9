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
            "The `epoch` of the `hello` before, to resume. Together with `seq`.",
            json!({"type": "string"}),
        )
        .query(
            "seq",
            "The last `seq` that was received.",
            json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}),
        )
        .truth("unread", "The number of unread entries too, when it changes, at most once a second.")
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
            "Each message is a JSON object, a `LiveMessage`. The first is a `hello`; `seq` counts up by one. Come back with the \
             last `epoch` and `seq`.",
        )
        .resumes()
        .answer(
            101,
            json!({
                "description": "The connection is a WebSocket from here on.",
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
                    "1002": "A frame that is none, or that is too long.",
                    "1012": "The server restarts; come back.",
                    "1013": "There is no room; come back.",
                    "4001": "Authentication.",
                    "4008": format!("Too slow, for more than {seconds} s or too many bytes; come back and resume."),
                    "4029": format!("More than {LIVE_CONNECTIONS_PER_READER_MAX} connections of this reader."),
                },
            }),
        )
}

fn events() -> Documentation {
    let text = "event: marker\nid: 00000000000000a1:7\ndata: {\"type\":\"marker\",\"seq\":7,\"cursor\":";
    let example = format!("{text}{}}}\n\n", feed_cursor());
    documented("Watch a feed by server-sent events")
        .description("The same messages: the `data` of an event is a `LiveMessage`, its `event` the `type`, its `id` is `epoch:seq`.")
        .resumes()
        .header("Last-Event-ID", "Where to resume, as browsers send it: `epoch:seq`.", json!({"type": "string"}))
        .query(
            "lastEventId",
            "The same as the header `Last-Event-ID`, for clients that cannot set it.",
            json!({"type": "string"}),
        )
        .answer(
            200,
            json!({
                "description": "Events without end.",
                "content": {"text/event-stream": {
                    "schema": {"type": "string"},
                    "example": example,
                    "x-messages": schema("LiveMessage"),
                }},
            }),
        )
        .refuses(429, &["too_many_connections"])
}
