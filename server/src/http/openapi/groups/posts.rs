//! The documentation of post operations.

use serde_json::json;

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
            "`body` is any JSON that every parser takes (RFC 7493): text is Unicode, without halves of surrogate pairs; a number is within \
             the range of a double, a whole one within 64 bits, and has at most {POST_NUMBER_BYTES_MAX} characters; \
             names in an object differ. It is served byte for byte as it came, without the white space around it. \
             With an `id` or `external_id` of your own, the same post sent twice is published once. An `external_id` determines the `id`. `published_at` may be in the past, and at most \
             {minutes} minutes ahead. A tag or topic collects the posts that name it, and `replies:POST` those that answer a post. Of a repost of a repost, `repost_of` comes to \
             be the original, unless the repost that it names is hidden or there is a block between the authors: then it \
             stays as it is, as with an unknown id. \
             By a token, ids come from the server (403 with an `id` or `external_id`), unless it runs with `--token-post-ids user`."
        ))
        .waits()
        .takes("NewPost", REQUEST_BYTES_MAX, &json!({"author": "bob", "body": {"text": "hello"}, "tags": ["rust"]}))
        .answers(201, "The post.", "Post", &post())
        .answers(200, "The post, which was published before.", "Post", &post())
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
            "At most {POSTS_PER_REQUEST_MAX}, in this order. Each is answered or refused by itself, as by `POST /v1/posts`, in the order of \
             `posts`; a problem has `retry_after` in place of the header `Retry-After`. After one that is refused as `overloaded`, all others \
             are refused too. They are committed together. Of each post, the answer has its ids, `author` and `published_at`."
        ))
        .waits()
        .takes(
            "PostsRequest",
            BULK_REQUEST_BYTES_MAX,
            &json!({"posts": [{"author": "bob", "body": {"text": "hello"}, "id": "7"}, {"author": "cas", "body": 1}]}),
        )
        .answers(
            200,
            "What became of each.",
            "PostsAnswer",
            &json!({"posts": [{"created": true, "post": short}, {"problem": refused}]}),
        )
        .refuses(500, &["internal"])
}

fn read_many() -> Documentation {
    documented("Read many posts at once")
        .description(format!(
            "At most {POSTS_PER_READ_MAX}, in the order of `ids`; hidden ones too. `missing` has those of posts that are unknown or deleted, as they were sent."
        ))
        .query("ids", "The ids, or `ext:` and external ids, separated by commas.", json!({"type": "string", "minLength": 1}))
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
            "By ascending id, hidden ones and reposts too, to build an index of them. Pages have all posts that were accepted up to \
             `sequence` and are not deleted; to go on, read `GET /v1/changes` after the smallest `sequence` of all pages. A page may have \
             fewer posts than `limit`, or none: it ends after {POSTS_PAGE_BYTES} bytes too. `next` is the `after` of the next page, null \
             on the last one. `unreadable` names posts that are damaged. `complete` is false if posts may be in an archive \
             across a network: those that have left memory are not listed."
        ))
        .query("after", "Posts with larger ids only.", schema("PostId"))
        .query("limit", "Posts of a page, at most.", limit)
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
        .description("Hidden ones too.")
        .fields()
        .answers(200, "The post.", "Post", &post())
        .tagged()
        .refuses(404, &["unknown_post"])
        .reads_archive()
}

fn edit() -> Documentation {
    let mut edited = post();
    edited["edited_at"] = json!("2026-11-20T10:05:00.500000Z");
    documented("Edit a post, hide it or show it again")
        .description("By a token, what is hidden cannot be shown again: it may be hidden by the server's owner.")
        .waits()
        .takes("PostChange", REQUEST_BYTES_MAX, &json!({"body": {"text": "hello, all"}}))
        .answers(200, "The post as it is now.", "Post", &edited)
        .refuses(404, &["unknown_post"])
        .refuses(422, &["unportable_body"])
}

fn delete() -> Documentation {
    documented("Delete a post")
        .description("Its id cannot be used again, also if there is no post with it yet. A token deletes existing posts of its user only.")
        .waits()
        .deletes()
}
