//! The documentation of feed operations.

use serde_json::json;

use crate::http::handlers::many_feeds::Feeds;
use crate::http::openapi::documentation::{Documentation, documented};
use crate::http::openapi::groups::Documented;
use crate::http::openapi::schemas::{feed_cursor, page, schema};
use tidewire::limits::{FEEDS_ANSWER_BYTES, FEEDS_PER_REQUEST_MAX, REQUEST_BYTES_MAX};

pub(super) static DOCUMENTATION: Documented = &[
    ("read_feed", home),
    ("read_feeds", of_many),
    ("read_own_page", own_page),
    ("read_replies", replies),
    ("read_reposts", reposts),
    ("read_list_feed", of_list),
    ("explain", explain),
];

const AFTER: &str = "The `newest` of a page: returns every entry that entered the feed since then, at least once, whatever its publishing \
                     time, or `\"gap\":true`. Or the `cursor` of an item: returns the entries directly above it. \
                     Not together with `before`.";

impl Documentation {
    fn paged(self) -> Self {
        self.limited()
            .query("before", "Entries older than this: the `next` of the previous page.", schema("Cursor"))
            .query("after", AFTER, schema("Cursor"))
            .fields()
            .answers(200, "A page.", "Page", &page())
            .tagged()
    }
}

fn home() -> Documentation {
    documented("Read a home feed")
        .description(
            "The posts of the sources that the reader follows, and the reader's own posts, by the reader's rules. Continue \
             with `before=<next>` until `next` is null, even if a page is not full. Poll with `after=<newest>`, at once if the response \
             has `limit` items. The page of an unknown reader is empty.",
        )
        .paged()
        .asks_reader()
}

fn of_many() -> Documentation {
    let refused = json!({
        "type": "about:blank", "title": "Service Unavailable", "status": 503, "code": "overloaded",
        "detail": "what failed and why, for people", "retry_after": 2,
    });
    let mut feed = json!({"user": "ann"});
    feed.as_object_mut().into_iter().zip(page().as_object()).for_each(|(feed, page)| feed.extend(page.clone()));
    let answer = json!({"feeds": [feed, {"user": "cas", "problem": refused}]});
    documented("Read the home feeds of many readers")
        .description(format!(
            "The newest page of each reader, in the order of the request, at most {FEEDS_PER_REQUEST_MAX}; a repeated reader has a page each \
             time. Each page or problem is that of `GET /v1/users/{{user}}/feed`, with `retry_after` in place of \
             the header. Each reader counts as a request against the client's rate. After {FEEDS_ANSWER_BYTES} bytes of pages, the remaining \
             readers get the problem `answer_full`: request them again. Cursors belong to one feed, so this operation has no `before` \
             and `after`.",
        ))
        .takes::<Feeds>(REQUEST_BYTES_MAX, &json!({"users": ["ann", "cas"], "limit": 20}))
        .answers(200, "A page or a problem for each reader.", "FeedsAnswer", &answer)
}

fn own_page() -> Documentation {
    documented("Read a source's own page")
        .description(
            "The posts of a user, with a tag or topic, or in reply to a post. With a token, the page omits the user's reposts of authors \
             whom the user blocks or who block the user.",
        )
        .paged()
        .reads_archive()
}

fn replies() -> Documentation {
    documented("Read the replies to a post")
        .description(
            "The direct replies, newest first, without reposts. The mutes and blocks of the reader apply, and the blocks of \
             the authors, but not the rules of the home feed. To follow the replies, follow the source `replies:POST`; to keep them \
             out of a home feed, mute it. If the post is hidden, or the reader or its author blocks the other, the response is the same \
             as for an unknown post.",
        )
        .query(
            "reader",
            "The reader for whom the page is built. A token allows only its user, which is then the default. Otherwise the default is the page without a reader.",
            schema("SourceId"),
        )
        .paged()
        .refuses(404, &["unknown_post"])
        .reads_archive()
}

fn reposts() -> Documentation {
    let repost = json!({
        "user": "ann", "at": "2026-11-20T10:05:00.500000Z", "post": "7352851374080000001", "cursor": feed_cursor(),
    });
    documented("List the reposts of a post")
        .description(
            "Newest first; a user who reposted twice is listed twice. Hidden reposts are omitted. The mutes and blocks of the reader \
             apply, and the blocks of the authors, but not the rules of the home feed. A repost of a repost is listed for the original. If the \
             reader may not see the post, the response is the same as for an unknown post.",
        )
        .query(
            "reader",
            "The reader for whom the list is built. A token allows only its user, which is then the default. Otherwise the default is the list without a reader.",
            schema("SourceId"),
        )
        .limited()
        .query("before", "Reposts older than this: the `next` of the previous page.", schema("Cursor"))
        .answers(200, "A page.", "RepostPage", &json!({"items": [repost], "next": null}))
        .tagged()
        .refuses(404, &["unknown_post"])
        .reads_archive()
}

fn of_list() -> Documentation {
    documented("Read the feed of a list").paged().refuses(404, &["unknown_list"]).reads_archive()
}

fn explain() -> Documentation {
    let why = json!({
        "shown": false,
        "reasons": [{"kind": "follow", "source": "bob"}],
        "blockers": [{"kind": "muted", "source": "bob"}],
        "route": null,
        "cost": null,
    });
    documented("Explain why a post is, or is not, in a home feed")
        .description(
            "If both lists are empty, nothing brings the post into the feed. For a user's token, a post is `unknown` if nothing \
             brings it, if it is hidden or deleted, or if its author blocks the user, unless it is the user's own.",
        )
        .answers(200, "The reasons and the blockers.", "Explanation", &why)
        .reads_archive()
}
