//! The documentation of the stream of changes.

use serde_json::{Value, json};

use crate::http::changes::consumers::Position;
use crate::http::changes::{NAMES, NDJSON};
use crate::http::openapi::documentation::{Documentation, documented};
use crate::http::openapi::groups::Documented;
use crate::http::openapi::schemas::{post, schema};
use tidewire::limits::{CHANGE_CONSUMERS_MAX, CHANGE_STREAMS_MAX, CHANGES_DEFAULT, CHANGES_MAX, REQUEST_BYTES_MAX};

pub(super) static DOCUMENTATION: Documented = &[
    ("read_changes", read),
    ("list_change_consumers", list_consumers),
    ("set_change_consumer", set_consumer),
    ("remove_change_consumer", remove_consumer),
];

fn list_consumers() -> Documentation {
    documented("List the consumers of changes")
        .description("The registered consumers by name, each with the last event that it has processed.")
        .answers(200, "All consumers.", "ChangeConsumers", &json!({"items": [consumer()]}))
}

fn set_consumer() -> Documentation {
    documented("Register a consumer of changes, or move it")
        .description(format!(
            "The consumer has processed all events up to `sequence`. The journal retains later events until the consumer is moved on or \
             removed, or until they take `--changes-retention-bytes`. Without `sequence` or a body, it starts at the current end. At most \
             {CHANGE_CONSUMERS_MAX} consumers can be registered. A cluster has none, because the retention of its log applies."
        ))
        .may_take::<Position>(REQUEST_BYTES_MAX, &json!({"sequence": 41}))
        .answers(200, "The consumer.", "ChangeConsumer", &consumer())
        .refuses(400, &["sequence_in_future"])
        .refuses(409, &["no_data_directory", "in_cluster"])
        .refuses(410, &["gone"])
        .refuses(422, &["too_many"])
        .refuses(500, &["internal"])
        .refuses(503, &["log_unavailable"])
        .refuses(507, &["disk_full"])
}

fn remove_consumer() -> Documentation {
    documented("Remove a consumer of changes")
        .description("The journal no longer retains events for it. Removing an unknown consumer is not an error.")
        .answers_nothing(204, "No consumer has this name.")
        .refuses(409, &["no_data_directory", "in_cluster"])
        .refuses(500, &["internal"])
        .refuses(507, &["disk_full"])
}

fn consumer() -> Value {
    json!({"name": "search", "sequence": 41, "behind": 3})
}

fn read() -> Documentation {
    let lines = format!(
        "{}\n{{\"sequence\":42,\"type\":\"reached\"}}\n",
        json!({"sequence": 41, "type": "published", "post": post()})
    );
    let events = "event: deleted\nid: 42\ndata: {\"sequence\":42,\"type\":\"deleted\",\"id\":\"7\"}\n\n";
    documented("Read all accepted changes")
        .description(format!(
            "All events that were accepted after `after`, in order, each a `Change`. By default, the response has lines of JSON: up to `limit` \
             existing events, then `reached`, whose `sequence` is the next `after`. With `Accept: text/event-stream`, the stream continues with \
             later events; the `id` of a server-sent event is its `sequence`. `reached` also comes with every heartbeat, in lines with \
             `more`. Sequences increase, with gaps. An event may come twice. `missed` is not an event: it names a reader with the rule \
             `notify` who has been asleep since a post of the feed was published. It comes only if `types` lists it. Its `sequence` is that \
             of the event before the post, and its `reader` the next `after_reader`; the `id` combines both, as in `40-ann`. At most \
             {CHANGE_STREAMS_MAX} streams can be open at the same time."
        ))
        .query(
            "after",
            "The last processed `sequence`; 0 for all events. Without it, the stream starts with events accepted from now on.",
            json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}),
        )
        .query(
            "after_reader",
            "The `reader` of the last message, if it has one. The stream continues with the next readers, in the order of their ids, \
             of the post that follows `after`. Only together with `after`, and if `types` lists `missed`.",
            json!({"type": "string"}),
        )
        .query(
            "consumer",
            "The name of a registered consumer: the stream starts after its position. Not together with `after`; `Last-Event-ID` takes precedence.",
            schema("ConsumerName"),
        )
        .query(
            "limit",
            "Maximum number of messages, without `reached`. A stream of server-sent events is unlimited by default.",
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
            "The `id` of the last message. Replaces `after` and `after_reader`, for server-sent events. An empty value is ignored.",
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
        .refuses(404, &["unknown_consumer"])
        .refuses(409, &["no_data_directory"])
        .refuses(410, &["gone"])
        .refuses(500, &["internal"])
        .refuses(503, &["log_unavailable"])
}
