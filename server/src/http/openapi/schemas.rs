//! The schemas of requests and responses, and examples that several operations share.
//!
//! Request schemas are closed: unknown fields are refused. Response schemas are open: fields may be added later.

use serde_json::{Map, Value, json};

use crate::http::openapi::{change_schemas, diagnostics_schemas, live_schemas, stats_schemas};
use crate::http::post_json::Fields;
use tidewire::clock::UnixMicros;
use tidewire::feed::cursor;
use tidewire::feed::position::Position;
use tidewire::feed::post::Kind;
use tidewire::feed::rules::{Replies, Rules};
use tidewire::id::PostId;
use tidewire::limits::{
    BACKFILL_MAX, FEEDS_PER_REQUEST_MAX, FOLLOWS_PER_REQUEST_MAX, NAME_BYTES_MAX, PAGE_POSTS_DEFAULT, PAGE_POSTS_MAX,
    PARTIAL_NAMES_MAX, POST_BODY_BYTES_MAX, POST_BODY_DEPTH_MAX, POST_TAGS_MAX, POSTS_PER_REQUEST_MAX,
    SOURCE_ID_BYTES_MAX, UNREAD_MAX, USER_ID_BYTES_MAX,
};

/// Returns a reference to a schema by its name.
pub(super) fn schema(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Returns all schemas by name.
pub(super) fn all() -> Map<String, Value> {
    [values(), posts(), edges(), pages(), preferences(), users(), live_schemas::all()]
        .into_iter()
        .chain([change_schemas::all(), stats_schemas::all(), diagnostics_schemas::all()])
        .flatten()
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect()
}

/// A list of schemas with their names.
pub(super) type Named = Vec<(&'static str, Value)>;

/// An object in a response. All of its properties are required.
pub(super) fn object(properties: Value) -> Value {
    let required: Vec<String> = properties.as_object().into_iter().flat_map(Map::keys).cloned().collect();
    json!({"type": "object", "required": required, "properties": properties})
}

/// An object in a request. Unknown properties are refused.
fn closed(required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false})
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

fn values() -> Named {
    let id = |bytes_max: usize, pattern: &str, description: &str, example: &str| {
        json!({
            "type": "string",
            "minLength": 1,
            "maxLength": bytes_max,
            "pattern": pattern,
            "description": description,
            "examples": [example],
        })
    };
    // Of what a name may not have, only what every dialect of patterns can say. It has as many characters as bytes, or fewer.
    const NAME: &str = r#"[^/\\"\x00-\x1f\x7f]{1,128}"#;
    const PLAIN: &str = "[.]{3,128}|[.]{0,127}[A-Za-z0-9_:@~-][A-Za-z0-9._:@~-]{0,127}";
    const { assert!(NAME_BYTES_MAX == 128 && USER_ID_BYTES_MAX == 128) };
    let name = |description: &str, example: &str| id(NAME_BYTES_MAX, &format!("^{NAME}$"), description, example);
    vec![
        (
            "SourceId",
            id(
                SOURCE_ID_BYTES_MAX,
                &format!("^((tag|topic):{NAME}|{PLAIN})$"),
                "A user, `tag:NAME`, `topic:NAME`, or `replies:ID` for the replies to a post.",
                "ann",
            ),
        ),
        ("TagName", name("The name of a tag, in any script. Answers have its form, `NFKC_Casefold`.", "rust")),
        ("TopicName", name("The name of a topic, in any script. Answers have its form, `NFC`.", "42")),
        ("ListName", id(USER_ID_BYTES_MAX, &format!("^({PLAIN})$"), "The name of a list.", "near")),
        (
            "PostId",
            json!({
                "type": "string",
                "pattern": decimal_pattern(u64::MAX),
                "description": "A whole number of 64 bits in decimal digits, without sign or leading zeros.",
                "examples": [ID.to_string()],
            }),
        ),
        (
            "Time",
            json!({
                "type": "string",
                "format": "date-time",
                "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$",
                "description": "RFC 3339 with any offset, and at most nine digits of the second, of which those after the sixth are dropped. Answers are in UTC, with six digits and `Z`, so that their order as text is that of the times.",
                "examples": [PUBLISHED_AT.to_string()],
            }),
        ),
        (
            "Cursor",
            json!({
                "type": "string",
                "pattern": "^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)?$",
                "description": "Opaque: pass on as it came. It stays good across restarts, and when what it points at is gone.",
                "examples": [feed_cursor()],
            }),
        ),
        ("Kind", json!({"type": "string", "enum": [Kind::Post.as_str(), Kind::User.as_str(), Kind::Ad.as_str()]})),
        ("Problem", problem()),
    ]
}

/// Returns a pattern of the decimal numbers up to `max`, which has at most 20 digits.
pub(super) fn decimal_pattern(max: u64) -> String {
    let digits = max.to_string();
    let mut pattern = format!("^(0|[1-9][0-9]{{0,{}}}", digits.len() - 2);
    // Numbers with as many digits as `max`: equal up to a digit that is smaller.
    for (nth, digit) in digits.bytes().enumerate() {
        let lowest = if nth == 0 { b'1' } else { b'0' };
        if digit > lowest {
            let (equal, rest) = (&digits[..nth], digits.len() - nth - 1);
            let any = if rest == 0 { String::new() } else { format!("[0-9]{{{rest}}}") };
            pattern += &format!("|{equal}[{}-{}]{any}", char::from(lowest), char::from(digit - 1));
        }
    }
    pattern + &format!("|{digits})$")
}

fn problem() -> Value {
    let refused = object(json!({"index": count(), "code": {"type": "string"}, "detail": {"type": "string"}}));
    let mut problem = object(json!({
        "type": {"const": "about:blank"},
        "title": {"type": "string", "description": "The status in words."},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "Stable: programs branch on this."},
        "detail": {"type": "string", "description": "For people; may change."},
    }));
    problem["properties"]["field"] =
        json!({"type": "string", "description": "The field, path part or query parameter at fault."});
    problem["properties"]["retry_after"] = json!({"type": "integer", "minimum": 1, "description": "In place of the header `Retry-After`, in `feeds` and `posts` only."});
    let sequence = |description: &str| json!({"type": "integer", "minimum": 0, "description": description});
    problem["properties"]["oldest"] = sequence("Of `gone`: the first `after` that is possible.");
    problem["properties"]["newest"] = sequence("Of `sequence_in_future`: the last `after` that is possible.");
    problem["properties"]["errors"] = json!({
        "type": "array",
        "description": "Of follows: each that cannot be made, by its index in the request.",
        "items": refused,
    });
    problem
}

fn posts() -> Named {
    let body = json!({
        "description": format!("Any JSON, at most {POST_BODY_BYTES_MAX} bytes and {POST_BODY_DEPTH_MAX} levels."),
    });
    let sent = json!({
        "author": schema("SourceId"),
        "body": body,
        "id": or_null(schema("PostId")),
        "published_at": or_null(schema("Time")),
        "kind": or_null(schema("Kind")),
        "tags": {"type": ["array", "null"], "maxItems": POST_TAGS_MAX, "items": schema("TagName")},
        "topic": or_null(schema("TopicName")),
        "repost_of": or_null(schema("PostId")),
        "reply_to": or_null(schema("PostId")),
    });
    let mut change = closed(&[], json!({"body": body, "hidden": {"type": "boolean"}}));
    change["minProperties"] = json!(1);
    let mut post = object(json!({
        "id": schema("PostId"),
        "author": schema("SourceId"),
        "published_at": schema("Time"),
    }));
    post["description"] = json!(
        "With `fields=ids` it has no more than `id`, `author` and `published_at`; otherwise also `kind`, `body` and `hidden`. With \
         `fields=counts` it has `counts` in addition."
    );
    let optional = json!({
        "kind": schema("Kind"),
        "body": body,
        "hidden": {"type": "boolean", "description": "Kept out of every feed until it is shown again."},
        "tags": {"type": "array", "minItems": 1, "maxItems": POST_TAGS_MAX, "items": schema("TagName")},
        "topic": schema("TopicName"),
        "repost_of": schema("PostId"),
        "reply_to": schema("PostId"),
        "edited_at": schema("Time"),
        "counts": schema("Counts"),
    });
    for (name, of) in optional.as_object().into_iter().flatten() {
        post["properties"][name] = of.clone();
    }
    let mut counts = object(json!({"replies": count(), "reposts": count()}));
    counts["description"] = json!("How many replies and reposts a post has, hidden ones not counted.");
    let many = json!({"type": "array", "maxItems": POSTS_PER_REQUEST_MAX, "items": schema("NewPost")});
    let published = object(json!({"created": {"type": "boolean"}, "post": schema("Post")}));
    let answers = array(json!({"anyOf": [schema("PublishedPost"), schema("RefusedPost")]}));
    vec![
        ("NewPost", closed(&["author", "body"], sent)),
        ("PostChange", change),
        ("Post", post),
        ("Counts", counts),
        ("PostsRequest", closed(&["posts"], json!({"posts": many}))),
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
        ("PostList", object(json!({"posts": array(schema("Post")), "missing": array(schema("PostId"))}))),
    ]
}

fn edges() -> Named {
    let options = json!({
        "hidden": {"type": "boolean", "default": false, "description": "Followed virtually: shown nowhere."},
        "backfill": {
            "type": "integer",
            "minimum": 0,
            "maximum": BACKFILL_MAX,
            "description": "So many earlier posts come with it; without this all do.",
        },
    });
    let mut edge = options.clone();
    edge["follower"] = schema("SourceId");
    edge["source"] = schema("SourceId");
    let follows =
        json!({"type": "array", "maxItems": FOLLOWS_PER_REQUEST_MAX, "items": closed(&["follower", "source"], edge)});
    let old = closed(&["follower", "source"], json!({"follower": schema("SourceId"), "source": schema("SourceId")}));
    let unfollows = json!({"type": "array", "maxItems": FOLLOWS_PER_REQUEST_MAX, "items": old});
    let mut request = closed(&[], json!({"follows": follows, "unfollows": unfollows}));
    request["minProperties"] = json!(1);
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
        ("Nothing", closed(&[], json!({}))),
        ("FollowOptions", closed(&[], options)),
        ("FollowsRequest", request),
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
        "decided_by": {"type": "string", "enum": ["setting", "followers", "cost"], "description": "On what its route depends."},
    }));
    cost["description"] = json!(
        "The processor time that the posts of a source take by either route, in microseconds an hour: estimated from the rates since the start \
         of the server."
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
    vec![
        ("Revoke", closed(&[], json!({"not_before": or_null(schema("Time"))}))),
        ("Revoked", revoked),
        ("UserData", data),
    ]
}

fn list(item: Value) -> Value {
    object(json!({"items": array(item), "next": next()}))
}

fn next() -> Value {
    let mut next = or_null(schema("Cursor"));
    next["description"] = json!("Where what follows begins; null where nothing does.");
    next
}

fn pages() -> Named {
    let repost = object(json!({"user": schema("SourceId"), "at": schema("Time"), "post": schema("PostId")}));
    let item = object(json!({
        "post": schema("Post"),
        "cursor": schema("Cursor"),
        "reposts": {"type": "array", "items": repost, "description": "Who repeats the post, newest first."},
        "via": {"type": "array", "items": schema("SourceId"), "description": "Followed sources that brought it."},
    }));
    let listed =
        json!({"user": schema("SourceId"), "at": schema("Time"), "post": schema("PostId"), "cursor": schema("Cursor")});
    let mut newest = or_null(schema("Cursor"));
    newest["description"] = json!("For `after`: stands for all that had come into the feed. Null where nothing has.");
    let mut page = object(json!({
        "items": array(schema("Item")),
        "next": next(),
        "newest": newest,
        "partial": {
            "type": "array",
            "items": schema("SourceId"),
            "maxItems": PARTIAL_NAMES_MAX,
            "description": "What could not be read in time, and is passed over here: it is there on a later read. The user of the feed stands for posts whose sources are not known then.",
        },
    }));
    let gap = "What came in since is not known any more: this is the newest page, and the feed has to be read again.";
    page["properties"]["gap"] = json!({"type": "boolean", "description": gap});
    let more = "Sources that are not named in `partial`, beside those that are.";
    page["properties"]["partial_more"] = json!({"type": "integer", "minimum": 1, "description": more});
    page["properties"]["passed_over"] =
        json!({"type": "integer", "minimum": 1, "description": "Entries that the rule `per_source_max` left out."});
    page["properties"]["unreadable"] =
        json!({"type": "array", "items": schema("PostId"), "description": "Posts that are damaged on disk."});
    let users = json!({"type": "array", "maxItems": FEEDS_PER_REQUEST_MAX, "items": schema("SourceId")});
    let fields = or_null(json!({"type": "string", "enum": Fields::NAMES}));
    let request = closed(&["users"], json!({"users": users, "limit": limit(), "fields": fields}));
    let mut of_user = page.clone();
    of_user["properties"]["user"] = schema("SourceId");
    of_user["required"].as_array_mut().into_iter().for_each(|required| required.push(json!("user")));
    let refused = object(json!({"user": schema("SourceId"), "problem": schema("Problem")}));
    let answers = array(json!({"anyOf": [schema("FeedOfUser"), schema("RefusedFeed")]}));
    vec![
        ("Item", item),
        ("Page", page),
        ("RepostPage", list(object(listed))),
        ("FeedsRequest", request),
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
        "per_source_max": {"type": ["integer", "null"], "minimum": 1, "description": "Entries of one author on a page."},
        "notify": {"type": "boolean", "description": "Posts that the reader misses while asleep are in the stream of changes."},
    });
    let unread = "Entries of others above the marker, or that came in after it was set, wherever they stand.";
    let marker = object(json!({
        "cursor": or_null(schema("Cursor")),
        "unread": {"type": "integer", "minimum": 0, "maximum": UNREAD_MAX, "description": unread},
        "capped": {"type": "boolean", "description": "There may be more unread than is counted."},
        "complete": {
            "type": "boolean",
            "description": "False if counting ended early: whether there is more unread, or any, is not known.",
        },
    }));
    let lists = list(object(json!({"name": schema("ListName"), "members": count()})));
    vec![
        ("Rules", object(rules.clone())),
        ("RulesPatch", closed(&[], rules)),
        ("Mark", closed(&["cursor"], json!({"cursor": schema("Cursor")}))),
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

const ID: PostId = PostId(7_352_851_374_080_000_000);
/// The publication time of the post in all examples.
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
