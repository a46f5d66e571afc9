//! The documentation of follow operations.

use serde_json::json;

use crate::http::handlers::follows::{Bulk, FollowOptions};
use crate::http::openapi::documentation::{Documentation, documented};
use crate::http::openapi::groups::Documented;
use crate::http::openapi::schemas::{PUBLISHED_AT, schema, source_list};
use tidewire::feed::cursor;
use tidewire::limits::{
    BACKFILLS_PER_REQUEST_MAX, BULK_REQUEST_BYTES_MAX, FOLLOWS_PER_REQUEST_MAX, REQUEST_BYTES_MAX, USER_ID_BYTES_MAX,
    USERS_PAGE_DEFAULT, USERS_PAGE_MAX,
};

pub(super) static DOCUMENTATION: Documented = &[
    ("follow", follow),
    ("unfollow", unfollow),
    ("follow_many", follow_many),
    ("list_following", following),
    ("list_followers", followers),
    ("list_users", list_users),
    ("read_user", read_user),
];

const REFUSED: &[&str] = &["self_follow", "not_a_user", "following_limit", "misfit"];

fn follow() -> Documentation {
    documented("Follow a user, a tag, a topic or the replies to a post")
        .description("Also brings earlier posts of the source into the feed: all, or the last `backfill` ones.")
        .waits()
        .may_take::<FollowOptions>(REQUEST_BYTES_MAX, &json!({"backfill": 10}))
        .puts()
        .brings_sources()
        .refuses(403, &["blocked"])
        .refuses(422, REFUSED)
}

fn unfollow() -> Documentation {
    documented("Stop following")
        .waits()
        .truth("keep", "Posts that the follow brought stay in the feed.")
        .deletes()
        .refuses(422, &["too_many"])
}

fn follow_many() -> Documentation {
    documented("Add and remove many follow edges at once")
        .description(format!(
            "At most {FOLLOWS_PER_REQUEST_MAX} edges, with backfills of at most {BACKFILLS_PER_REQUEST_MAX} posts in total. If any \
             edge cannot be added, nothing is done, and `errors` lists these edges. Repeated edges have the effect of single requests \
             in this order. Then the edges in `unfollows` are removed, in the same commit."
        ))
        .waits()
        .takes::<Bulk>(BULK_REQUEST_BYTES_MAX, &json!({"follows": [{"follower": "ann", "source": "bob"}]}))
        .answers(200, "The numbers of new, existing and removed edges.", "Followed", &json!({"created": 1, "existing": 0}))
        .refuses(403, &["blocked"])
        .refuses(422, REFUSED)
}

fn following() -> Documentation {
    documented("List the sources that a user follows")
        .description("Newest first.")
        .listed()
        .truth("hidden", "The hidden follows instead of the others; for operators.")
        .answers(200, "A page of the list.", "SourceList", &source_list())
}

fn followers() -> Documentation {
    documented("List the followers of a source").description("Newest first.").listed().answers(
        200,
        "A page of the list.",
        "SourceList",
        &source_list(),
    )
}

fn list_users() -> Documentation {
    let limit = json!({"type": "integer", "minimum": 1, "maximum": USERS_PAGE_MAX, "default": USERS_PAGE_DEFAULT});
    let ann = json!({
        "id": "ann", "kind": "user", "active": true, "followers": 12, "following": 4, "posts": 3, "celebrity": false,
        "last_seen": PUBLISHED_AT.to_string(),
    });
    documented("List all users")
        .description(
            "By ascending id: all known users, except erased ones. A user who appears while you read the pages may be missing. \
             `GET /v1/sources` finds the most relevant users by the beginning of the id.",
        )
        .query("prefix", "Only ids with this beginning.", json!({"type": "string", "maxLength": USER_ID_BYTES_MAX, "default": ""}))
        .query("limit", "Maximum number of users on a page.", limit)
        .query("cursor", "The `next` of the previous page.", schema("Cursor"))
        .answers(200, "A page.", "UserList", &json!({"items": [ann], "next": cursor::encode_name("ann")}))
}

fn read_user() -> Documentation {
    let user = json!({
        "id": "ann", "followers": 0, "following": 1, "posts": 0, "celebrity": false,
        "cost": {"push_us_per_hour": 0.0, "pull_us_per_hour": 0.0, "decided_by": "cost"}, "active": true,
        "last_seen": "2026-11-20T10:00:00.000000Z",
    });
    documented("Read the figures of a source")
        .answers(200, "Counts, and whether its reader is awake.", "User", &user)
        .refuses(404, &["unknown_source"])
}
