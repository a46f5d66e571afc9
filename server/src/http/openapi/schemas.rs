//! The schemas of responses, and examples that several operations share.
//!
//! The schemas of responses are open: fields may be added later. Those of requests are derived (`requests`), except `RulesPatch`.

use serde_json::{Map, Value, json};

use crate::http::handlers::posts::body_description;
use tidewire::clock::UnixMicros;
use tidewire::feed::cursor;
use tidewire::feed::kind::Kind;
use tidewire::feed::position::Position;
use tidewire::feed::rules::{Replies, Rules};
use tidewire::id::PostId;
use tidewire::limits::{PAGE_POSTS_DEFAULT, PAGE_POSTS_MAX, PARTIAL_NAMES_MAX, POST_TAGS_MAX, UNREAD_MAX};

/// Returns a reference to a schema by its name.
pub(super) fn schema(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Returns the schemas of responses by name.
pub(super) fn all() -> Named {
    [posts(), edges(), pages(), preferences(), users()].into_iter().flatten().collect()
}

/// A list of schemas with their names.
pub(super) type Named = Vec<(&'static str, Value)>;

/// An object in a response. All of its properties are required.
pub(super) fn object(properties: Value) -> Value {
    let required: Vec<String> = properties.as_object().into_iter().flat_map(Map::keys).cloned().collect();
    json!({"type": "object", "required": required, "properties": properties})
}

/// Allows null in addition to the given schema.
pub(super) fn or_null(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

/// A non-negative integer.
pub(super) fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

/// An array of the given item schema.
pub(super) fn array(of: Value) -> Value {
    json!({"type": "array", "items": of})
}

/// The schema of the query parameter `limit`.
pub(super) fn limit() -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": PAGE_POSTS_MAX, "default": PAGE_POSTS_DEFAULT})
}

fn posts() -> Named {
    let mut post = object(json!({
        "id": schema("PostId"),
        "author": schema("SourceId"),
        "published_at": schema("Time"),
    }));
    post["description"] = json!(
        "With `fields=ids`, only its ids, `author` and `published_at`; otherwise also `kind`, `body` and `hidden`. With \
         `fields=counts`, also `counts`."
    );
    let optional = json!({
        "kind": schema("Kind"),
        "body": {"description": body_description()},
        "hidden": {"type": "boolean", "description": "In no feed until it is unhidden."},
        "tags": {"type": "array", "minItems": 1, "maxItems": POST_TAGS_MAX, "items": schema("TagName")},
        "topic": schema("TopicName"),
        "repost_of": schema("PostId"),
        "reply_to": schema("PostId"),
        "external_id": schema("ExternalId"),
        "edited_at": schema("Time"),
        "counts": schema("Counts"),
    });
    for (name, of) in optional.as_object().into_iter().flatten() {
        post["properties"][name] = of.clone();
    }
    let mut counts = object(json!({"replies": count(), "reposts": count()}));
    counts["description"] = json!("The numbers of replies and reposts of a post, without hidden ones.");
    let published = object(json!({"created": {"type": "boolean"}, "post": schema("Post")}));
    let answers = array(json!({"anyOf": [schema("PublishedPost"), schema("RefusedPost")]}));
    vec![
        ("Post", post),
        ("Counts", counts),
        ("PublishedPost", published),
        ("RefusedPost", object(json!({"problem": schema("Problem")}))),
        ("PostsAnswer", object(json!({"posts": answers}))),
        (
            "PostsPage",
            object(json!({
                "posts": array(schema("Post")),
                "unreadable": array(schema("PostId")),
                "next": or_null(schema("PostId")),
                "sequence": count(),
                "complete": {"type": "boolean"},
            })),
        ),
        ("PostList", object(json!({"posts": array(schema("Post")), "missing": array(schema("PostName"))}))),
    ]
}

fn edges() -> Named {
    let mut followed = object(json!({"created": count(), "existing": count()}));
    followed["properties"]["removed"] =
        json!({"type": "integer", "minimum": 0, "description": "Present if the request has `unfollows`."});
    let user = object(json!({
        "id": schema("SourceId"),
        "followers": count(),
        "following": count(),
        "posts": count(),
        "celebrity": {"type": "boolean", "description": "Its posts are pulled, not pushed."},
        "cost": schema("RouteCost"),
        "active": {"type": "boolean", "description": "Its reader is awake."},
        "last_seen": or_null(schema("Time")),
    }));
    vec![
        ("Followed", followed),
        ("Put", object(json!({"created": {"type": "boolean"}}))),
        ("SourceList", list(listed())),
        ("RouteCost", route_cost()),
        ("User", user),
    ]
}

fn route_cost() -> Value {
    let us = |what: &str| json!({"type": "number", "minimum": 0, "description": what});
    let mut cost = object(json!({
        "push_us_per_hour": us("Pushing its posts to the followers that have inboxes."),
        "pull_us_per_hour": us("Pulling its posts for the pages of its followers."),
        "decided_by": {"type": "string", "enum": ["setting", "followers", "cost"], "description": "The reason for its route."},
    }));
    cost["description"] = json!(
        "The processor time that the posts of a source take by push and by pull, in microseconds per hour, estimated from the rates since \
         the start of the server."
    );
    cost
}

fn listed() -> Value {
    object(json!({"id": schema("SourceId"), "since": schema("Time")}))
}

fn users() -> Named {
    let revoked = object(json!({"user": schema("SourceId"), "not_before": schema("Time")}));
    let kept = json!({
        "source": schema("SourceId"),
        "since": schema("Time"),
        "hidden": {"type": "boolean"},
        "published_from": or_null(schema("Time")),
        "published_until": schema("Time"),
    });
    let data = object(json!({
        "user": schema("SourceId"),
        "last_seen": or_null(schema("Time")),
        "tokens_not_before": or_null(schema("Time")),
        "rules": schema("Rules"),
        "marker": or_null(schema("Cursor")),
        "kept": array(object(kept)),
        "following": array(listed()),
        "hidden_following": array(listed()),
        "followers": array(listed()),
        "mutes": array(listed()),
        "blocks": array(listed()),
        "lists": array(object(json!({"name": schema("ListName"), "members": array(listed())}))),
        "posts": array(schema("Post")),
        "unreadable": array(schema("PostId")),
    }));
    vec![("Revoked", revoked), ("UserData", data)]
}

fn list(item: Value) -> Value {
    object(json!({"items": array(item), "next": next()}))
}

fn next() -> Value {
    let mut next = or_null(schema("Cursor"));
    next["description"] = json!("The cursor of the next page; null on the last page.");
    next
}

fn pages() -> Named {
    let repost = object(json!({"user": schema("SourceId"), "at": schema("Time"), "post": schema("PostId")}));
    let item = object(json!({
        "post": schema("Post"),
        "cursor": schema("Cursor"),
        "reposts": {"type": "array", "items": repost, "description": "The reposts of the post, newest first."},
        "via": {"type": "array", "items": schema("SourceId"), "description": "The followed sources that brought the entry."},
    }));
    let listed =
        json!({"user": schema("SourceId"), "at": schema("Time"), "post": schema("PostId"), "cursor": schema("Cursor")});
    let mut newest = or_null(schema("Cursor"));
    newest["description"] =
        json!("For `after`: stands for everything that has entered the feed. Null if the feed is empty.");
    let mut page = object(json!({
        "items": array(schema("Item")),
        "next": next(),
        "newest": newest,
        "partial": {
            "type": "array",
            "items": schema("SourceId"),
            "maxItems": PARTIAL_NAMES_MAX,
            "description": "Sources that could not be read in time. Their entries are missing here, and appear on a later read. The user of the feed stands for unknown sources.",
        },
    }));
    let gap = "The server no longer knows the entries since then: this is the newest page. Read the feed again.";
    page["properties"]["gap"] = json!({"type": "boolean", "description": gap});
    let more = "The number of further sources that `partial` does not name.";
    page["properties"]["partial_more"] = json!({"type": "integer", "minimum": 1, "description": more});
    page["properties"]["passed_over"] =
        json!({"type": "integer", "minimum": 1, "description": "Entries that the rule `per_source_max` left out."});
    page["properties"]["unreadable"] =
        json!({"type": "array", "items": schema("PostId"), "description": "Posts that are damaged on disk."});
    let mut of_user = page.clone();
    of_user["properties"]["user"] = schema("SourceId");
    of_user["required"].as_array_mut().into_iter().for_each(|required| required.push(json!("user")));
    let refused = object(json!({"user": schema("SourceId"), "problem": schema("Problem")}));
    let answers = array(json!({"anyOf": [schema("FeedOfUser"), schema("RefusedFeed")]}));
    vec![
        ("Item", item),
        ("Page", page),
        ("RepostPage", list(object(listed))),
        ("FeedOfUser", of_user),
        ("RefusedFeed", refused),
        ("FeedsAnswer", object(json!({"feeds": answers}))),
    ]
}

fn preferences() -> Named {
    let replies = json!({"type": "string", "enum": [Replies::Followed, Replies::All, Replies::None]});
    let rules = json!({
        "show_own": {"type": "boolean"},
        "replies": replies,
        "reposts": {"type": "boolean"},
        "per_source_max": {"type": ["integer", "null"], "minimum": 1, "description": "Maximum number of entries of one author on a page."},
        "notify": {"type": "boolean", "description": "The stream of changes reports posts that the reader misses while asleep."},
    });
    let unread = "Entries of others above the marker, or that arrived after it was set, at any place.";
    let marker = object(json!({
        "cursor": or_null(schema("Cursor")),
        "unread": {"type": "integer", "minimum": 0, "maximum": UNREAD_MAX, "description": unread},
        "capped": {"type": "boolean", "description": "There may be more unread entries than counted."},
        "complete": {
            "type": "boolean",
            "description": "False if counting ended early: more entries may be unread.",
        },
    }));
    let lists = list(object(json!({"name": schema("ListName"), "members": count()})));
    vec![
        ("Rules", object(rules.clone())),
        // Not derived, because the type is the engine's. The rules are those of the response.
        ("RulesPatch", json!({"type": "object", "required": [], "properties": rules, "additionalProperties": false})),
        ("Marker", marker),
        ("ListOfLists", lists),
        ("Explanation", explanation()),
    ]
}

fn explanation() -> Value {
    let kind = |kind: &str, mut properties: Value| {
        properties["kind"] = json!({"const": kind});
        object(properties)
    };
    let of_source = |name: &str| kind(name, json!({"source": schema("SourceId")}));
    let of_post = |name: &str| kind(name, json!({"post": schema("PostId")}));
    let repost = json!({
        "user": schema("SourceId"),
        "at": schema("Time"),
        "post": schema("PostId"),
        "source": schema("SourceId"),
    });
    let mut reply = of_source("reply");
    reply["required"] = json!(["kind"]);
    object(json!({
        "shown": {"type": "boolean"},
        "reasons": array(json!({"oneOf": [
            kind("own", json!({})), of_source("follow"), of_source("kept"), kind("virtual", json!({})), kind("repost", repost),
        ]})),
        "blockers": array(json!({"oneOf": [
            of_post("unknown"), of_post("deleted"), of_post("hidden"), of_source("muted"), of_source("blocked"),
            of_source("blocked_by"),
            kind("own_posts_off", json!({})), kind("reposts_off", json!({})), reply,
        ]})),
        "route": or_null(json!({"type": "string", "enum": ["push", "pull"]})),
        "cost": or_null(schema("RouteCost")),
    }))
}

pub(super) const ID: PostId = PostId(7_352_851_374_080_000_000);
/// The publish time of the post in all examples.
pub(super) const PUBLISHED_AT: UnixMicros = UnixMicros(1_795_168_800_123_456);

/// An example of a feed cursor.
pub(super) fn feed_cursor() -> Value {
    json!(cursor::encode(Position { published_at: PUBLISHED_AT, id: ID }))
}

/// An example of a post.
pub(super) fn post() -> Value {
    json!({
        "id": ID.to_string(),
        "author": "bob",
        "published_at": PUBLISHED_AT.to_string(),
        "kind": Kind::Post.as_str(),
        "body": {"text": "hello"},
        "tags": ["rust"],
        "hidden": false,
    })
}

/// An example of a page.
pub(super) fn page() -> Value {
    let item = json!({"post": post(), "cursor": feed_cursor(), "reposts": [], "via": ["bob", "tag:rust"]});
    json!({"items": [item], "next": null, "newest": feed_cursor(), "partial": []})
}

/// An example of a list of sources.
pub(super) fn source_list() -> Value {
    json!({"items": [{"id": "bob", "since": "2026-11-20T09:00:00.000000Z"}], "next": null})
}

/// The default rules of a reader.
pub(super) fn rules() -> Value {
    let mut rules = json!(Rules::default());
    rules["notify"] = json!(false);
    rules
}
