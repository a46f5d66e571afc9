//! The documentation of post operations.

use serde_json::json;

use crate::http::handlers::bulk_posts::Batch;
use crate::http::handlers::posts::{NewPost, PostChange};
use crate::http::openapi::documentation::{Documentation, documented};
use crate::http::openapi::groups::Documented;
use crate::http::openapi::schemas::{post, schema};
use tidewire::limits::{
    BULK_REQUEST_BYTES_MAX, POST_NUMBER_BYTES_MAX, POSTS_PAGE_BYTES, POSTS_PAGE_DEFAULT, POSTS_PAGE_MAX,
    POSTS_PER_READ_MAX, POSTS_PER_REQUEST_MAX, PUBLISH_AHEAD_MAX, REQUEST_BYTES_MAX,
};

pub(super) static DOCUMENTATION: Documented = &[
    ("publish", publish),
    ("publish_many", publish_many),
    ("read_posts", read_many),
    ("list_posts", list),
    ("read_post", read),
    ("edit_post", edit),
    ("delete_post", delete),
];

fn publish() -> Documentation {
    let minutes = PUBLISH_AHEAD_MAX.as_secs() / 60;
    documented("Publish a post")
        .description(format!(
            "`body` is any JSON that all parsers accept (RFC 7493): text is Unicode without unpaired surrogates; a number is within \
             the range of a double, an integer within 64 bits, and both have at most {POST_NUMBER_BYTES_MAX} characters; \
             names in an object are unique. The server returns the body byte for byte, without white space around it. \
             With an `id` or `external_id` of your own, a post sent twice is published once. An `external_id` determines the `id`. \
             `published_at` may be in the past, and at most {minutes} minutes ahead. A tag or topic collects the posts that name it, and \
             `replies:POST` the replies to a post. For a repost of a repost, the server sets `repost_of` to the original. If the named \
             repost is hidden, or one author blocks the other, `repost_of` stays unchanged, as with an unknown id. \
             With a token, the server chooses ids (403 with an `id` or `external_id`), unless it runs with `--token-post-ids user`."
        ))
        .waits()
        .takes::<NewPost<'_>>(REQUEST_BYTES_MAX, &json!({"author": "bob", "body": {"text": "hello"}, "tags": ["rust"]}))
        .answers(201, "The post.", "Post", &post())
        .answers(200, "The post, which already existed.", "Post", &post())
        .refuses(409, &["post_id_taken", "post_deleted"])
        .brings_sources()
        .refuses(422, &["not_a_user", "published_in_future", "misfit", "unportable_body"])
}

fn publish_many() -> Documentation {
    let post = post();
    let short = json!({"id": post["id"], "author": post["author"], "published_at": post["published_at"]});
    let refused = json!({
        "type": "about:blank", "title": "Bad Request", "status": 400, "code": "missing_field", "field": "author",
        "detail": "author: missing field `author`",
    });
    documented("Publish many posts at once")
        .description(format!(
            "At most {POSTS_PER_REQUEST_MAX} posts, in this order. The response has the post or problem of each, as from `POST /v1/posts`, in \
             the order of `posts`; a problem has `retry_after` in place of the header `Retry-After`. After a post refused as `overloaded`, all \
             others are refused too. The posts are committed together. The response has the ids, `author` and `published_at` of each post."
        ))
        .waits()
        .takes::<Batch<'_>>(
            BULK_REQUEST_BYTES_MAX,
            &json!({"posts": [{"author": "bob", "body": {"text": "hello"}, "id": "7"}, {"author": "cas", "body": 1}]}),
        )
        .answers(
            200,
            "The result of each post.",
            "PostsAnswer",
            &json!({"posts": [{"created": true, "post": short}, {"problem": refused}]}),
        )
        .refuses(500, &["internal"])
}

fn read_many() -> Documentation {
    documented("Read many posts at once")
        .description(format!(
            "At most {POSTS_PER_READ_MAX} posts, in the order of `ids`, including hidden ones. `missing` lists the ids of unknown and deleted posts, as sent."
        ))
        .query("ids", "Post ids, or `ext:` and external ids, separated by commas.", json!({"type": "string", "minLength": 1}))
        .for_instance(&json!("7,8"))
        .fields()
        .answers(200, "The posts.", "PostList", &json!({"posts": [post()], "missing": ["7"]}))
        .refuses(400, &["missing_parameter"])
        .reads_archive()
}

fn list() -> Documentation {
    let limit = json!({"type": "integer", "minimum": 1, "maximum": POSTS_PAGE_MAX, "default": POSTS_PAGE_DEFAULT});
    documented("List all posts")
        .description(format!(
            "By ascending id, including hidden posts and reposts, to build an index. Pages have all posts that were accepted up to \
             `sequence` and are not deleted. To continue, read `GET /v1/changes` after the smallest `sequence` of all pages. A page may have \
             fewer posts than `limit`, or none, because it also ends after {POSTS_PAGE_BYTES} bytes. `next` is the `after` of the next page, \
             null on the last one. `unreadable` lists damaged posts. `complete` is false if posts may be in an archive \
             across a network: posts that have left memory are then not listed."
        ))
        .query("after", "Only posts with larger ids.", schema("PostId"))
        .query("limit", "Maximum number of posts on a page.", limit)
        .answers(
            200,
            "A page.",
            "PostsPage",
            &json!({"posts": [post()], "unreadable": [], "next": null, "sequence": 41, "complete": true}),
        )
        .refuses(503, &["journal_failed"])
        .reads_archive()
}

fn read() -> Documentation {
    documented("Read a post")
        .description("Also returns hidden posts.")
        .fields()
        .answers(200, "The post.", "Post", &post())
        .tagged()
        .refuses(404, &["unknown_post"])
        .reads_archive()
}

fn edit() -> Documentation {
    let mut edited = post();
    edited["edited_at"] = json!("2026-11-20T10:05:00.500000Z");
    documented("Edit, hide or unhide a post")
        .description("Only a server key can unhide a post, because the server's owner may have hidden it.")
        .waits()
        .takes::<PostChange<'_>>(REQUEST_BYTES_MAX, &json!({"body": {"text": "hello, all"}}))
        .answers(200, "The changed post.", "Post", &edited)
        .refuses(404, &["unknown_post"])
        .refuses(422, &["unportable_body"])
}

fn delete() -> Documentation {
    documented("Delete a post")
        .description(
            "The id cannot be used again, even if no post has it yet. A token deletes only existing posts of its user.",
        )
        .waits()
        .deletes()
}
