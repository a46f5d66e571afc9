//! The schemas of the messages in a stream of changes.

use serde_json::{Value, json};

use crate::http::changes::NAMES;
use crate::http::openapi::schemas::{Named, array, count, object, schema};

/// Returns the schema of each message, of any message, and of consumers.
pub(super) fn all() -> Named {
    let (user, source) = (schema("SourceId"), schema("SourceId"));
    let of_user = |mut more: Value| {
        more["user"] = user.clone();
        more
    };
    let to_source = || of_user(json!({"source": source}));
    let member = || of_user(json!({"list": schema("ListName"), "source": source}));
    let unfollow = object(json!({"follower": user, "source": source}));
    let id = || json!({"id": schema("PostId")});
    let missed = object(json!({"id": schema("PostId"), "author": user, "published_at": schema("Time")}));
    let missed = optional(missed, &[("external_id", schema("ExternalId"))]);
    let messages = vec![
        (
            "PublishedChange",
            optional(
                message(NAMES[0], json!({"post": schema("Post")})),
                &[("earlier_reposts", array(schema("PostId")))],
            ),
        ),
        (
            "EditedChange",
            optional(
                message(NAMES[1], json!({"id": schema("PostId"), "at": schema("Time")})),
                &[
                    ("body", json!({"description": "The new body, if it changed."})),
                    ("hidden", json!({"type": "boolean", "description": "The new value, if it changed."})),
                ],
            ),
        ),
        ("DeletedChange", optional(message(NAMES[2], id()), &[("repost_of", schema("PostId"))])),
        ("FollowedChange", message(NAMES[3], json!({"follows": array(follow())}))),
        (
            "UnfollowedChange",
            optional(
                message(NAMES[4], json!({"follower": user, "source": source})),
                &[("keep", json!({"type": "boolean", "description": "The posts of the source stay in the feed."}))],
            ),
        ),
        ("FollowsChange", message(NAMES[5], json!({"follows": array(follow()), "unfollows": array(unfollow)}))),
        ("MutedChange", message(NAMES[6], to_source())),
        ("UnmutedChange", message(NAMES[7], to_source())),
        ("BlockedChange", message(NAMES[8], to_source())),
        ("UnblockedChange", message(NAMES[9], to_source())),
        ("RulesChange", message(NAMES[10], of_user(json!({"rules": schema("Rules")})))),
        ("MarkedChange", message(NAMES[11], of_user(json!({"cursor": schema("Cursor")})))),
        ("MemberAddedChange", message(NAMES[12], member())),
        ("MemberRemovedChange", message(NAMES[13], member())),
        ("ListDeletedChange", message(NAMES[14], of_user(json!({"list": schema("ListName")})))),
        ("TokensRevokedChange", message(NAMES[15], of_user(json!({"not_before": schema("Time")})))),
        ("ErasedChange", message(NAMES[16], of_user(json!({})))),
        (
            "MissedMessage",
            message(
                NAMES[17],
                json!({
                    "reader": user,
                    "reason": {"const": "asleep"},
                    "post": missed,
                    "via": array(source.clone()),
                }),
            ),
        ),
        ("ReachedMessage", reached()),
    ];
    let any: Vec<Value> = messages.iter().map(|(name, _)| schema(name)).collect();
    let mut all = messages;
    all.push(("Change", json!({"oneOf": any})));
    all.extend(consumers());
    all
}

fn consumers() -> Named {
    let sequence = json!({"type": "integer", "minimum": 0, "maximum": u64::MAX});
    let consumer = json!({"name": schema("ConsumerName"), "sequence": sequence, "behind": count()});
    vec![
        ("ChangeConsumer", object(consumer)),
        ("ChangeConsumers", object(json!({"items": array(schema("ChangeConsumer"))}))),
    ]
}

fn reached() -> Value {
    let more = json!({"type": "boolean", "description": "Only in lines: true if more messages follow."});
    optional(message("reached", json!({})), &[("reader", schema("SourceId")), ("more", more)])
}

fn message(kind: &str, mut properties: Value) -> Value {
    properties["type"] = json!({"const": kind});
    properties["sequence"] = json!({"type": "integer", "minimum": 0});
    object(properties)
}

/// Returns the schema of a new edge.
fn follow() -> Value {
    optional(
        object(json!({"follower": schema("SourceId"), "source": schema("SourceId"), "since": schema("Time")})),
        &[("hidden", json!({"type": "boolean", "description": "A hidden follow: in no list and no count."}))],
    )
}

/// Adds properties that may be missing.
fn optional(mut object: Value, properties: &[(&str, Value)]) -> Value {
    for (name, of) in properties {
        object["properties"][*name] = of.clone();
    }
    object
}
