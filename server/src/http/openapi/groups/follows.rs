//! The documentation of follow operations.

use serde_json::json;

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
        .description("What the source published before comes too, or so much of it as `backfill` says.")
        .waits()
        .may_take("FollowOptions", REQUEST_BYTES_MAX, &json!({"backfill": 10}))
        .puts()
        .brings_sources()
        .refuses(403, &["blocked"])
        .refuses(422, REFUSED)
}

fn unfollow() -> Documentation {
    documented("Stop following")
        .waits()
        .truth("keep", "What is in the feed by it stays there.")
        .deletes()
        .refuses(422, &["too_many"])
}

fn follow_many() -> Documentation {
    documented("Make and remove many follow edges at once")
        .description(format!(
            "At most {FOLLOWS_PER_REQUEST_MAX}, with backfills of at most {BACKFILLS_PER_REQUEST_MAX} posts together. If any \
             cannot be made, nothing is done, and `errors` has those. An edge that is named several times is what single requests \
             in this order make of it. After that the edges in `unfollows` are removed, in the same commit."
        ))
        .waits()
        .takes("FollowsRequest", BULK_REQUEST_BYTES_MAX, &json!({"follows": [{"follower": "ann", "source": "bob"}]}))
        .answers(200, "How many are new, how many there were, and how many were removed.", "Followed", &json!({"created": 1, "existing": 0}))
        .refuses(403, &["blocked"])
        .refuses(422, REFUSED)
}

fn following() -> Documentation {
    documented("List whom a user follows")
        .description("The newest first.")
        .listed()
        .truth("hidden", "Those followed virtually in place of the others; for operators.")
        .answers(200, "A page of the list.", "SourceList", &source_list())
}

fn followers() -> Documentation {
    documented("List who follows a source").description("The newest first.").listed().answers(
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
            "By ascending id, all that anything has named and that are not erased. Who comes while the pages are read may be missing. \
             `GET /v1/sources` finds the most useful of them by the beginning of the id.",
        )
        .query("prefix", "Only ids that begin so.", json!({"type": "string", "maxLength": USER_ID_BYTES_MAX, "default": ""}))
        .query("limit", "Users of a page, at most.", limit)
        .query("cursor", "The `next` of the page before.", schema("Cursor"))
        .answers(200, "A page.", "UserList", &json!({"items": [ann], "next": cursor::encode_name("ann")}))
}

fn read_user() -> Documentation {
    let user = json!({
        "id": "ann", "followers": 0, "following": 1, "posts": 0, "celebrity": false,
        "cost": {"push_us_per_hour": 0.0, "pull_us_per_hour": 0.0, "decided_by": "cost"}, "active": true,
        "last_seen": "2026-11-20T10:00:00.000000Z",
    });
    documented("Read what is known of a source")
        .answers(200, "Counts, and whether its reader is awake.", "User", &user)
        .refuses(404, &["unknown_source"])
}
