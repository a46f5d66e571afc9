//! The documentation of feed operations.

use serde_json::json;

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

const AFTER: &str = "The `newest` of a page: every entry that came into the feed since, at least once, in whatever order posts are \
                     delivered and whatever times they carry, or `\"gap\":true`. An item's `cursor`: the entries above it, the nearest. \
                     Not together with `before`.";

impl Documentation {
    fn paged(self) -> Self {
        self.limited()
            .query("before", "Entries older than this: the `next` of the page before.", schema("Cursor"))
            .query("after", AFTER, schema("Cursor"))
            .fields()
            .answers(200, "A page.", "Page", &page())
            .tagged()
    }
}

fn home() -> Documentation {
    documented("Read a home feed")
        .description(
            "What the sources that the reader follows have published, and the reader's own posts, by the reader's rules. Go on \
             with `before=<next>` until `next` is null, even where a page is not full. Come back with `after=<newest>`, at once if as many \
             items come as were asked for. Of a reader nobody has heard of, the page is empty.",
        )
        .paged()
        .asks_reader()
}

fn of_many() -> Documentation {
    let refused = json!({
        "type": "about:blank", "title": "Service Unavailable", "status": 503, "code": "overloaded",
        "detail": "what is wrong, for people", "retry_after": 2,
    });
    let mut feed = json!({"user": "ann"});
    feed.as_object_mut().into_iter().zip(page().as_object()).for_each(|(feed, page)| feed.extend(page.clone()));
    let answer = json!({"feeds": [feed, {"user": "cas", "problem": refused}]});
    documented("Read the home feeds of many readers")
        .description(format!(
            "The newest page of each, in the order asked for, at most {FEEDS_PER_REQUEST_MAX}; a reader named twice is answered twice. Each \
             page is what `GET /v1/users/{{user}}/feed` answers, and each refusal the problem that it answers, with `retry_after` in place of \
             the header. Each reader counts as a request against the rate of who asks. After {FEEDS_ANSWER_BYTES} bytes of pages the remaining \
             readers get the problem `answer_full`: ask for them in another request. Cursors belong to one feed, so `before` and `after` are \
             not here.",
        ))
        .takes("FeedsRequest", REQUEST_BYTES_MAX, &json!({"users": ["ann", "cas"], "limit": 20}))
        .answers(200, "A page or a problem for each reader.", "FeedsAnswer", &answer)
}

fn own_page() -> Documentation {
    documented("Read a source's own page")
        .description(
            "What it has published, or what was published under a tag or topic, or in reply to a post. By a token, without what the user repeats of authors whom \
             they block or who block them.",
        )
        .paged()
        .reads_archive()
}

fn replies() -> Documentation {
    documented("Read the replies to a post")
        .description(
            "Those that answer it directly, newest first, reposts not among them. The mutes and blocks of the reader apply, and the blocks of \
             the authors, but not the rules of the home feed. To follow the replies, follow the source `replies:POST`; to keep them \
             out of a home feed, mute it. A reader who may not see the post, because it is hidden or there is a block between the \
             reader and its author, is answered as if it was not there.",
        )
        .query(
            "reader",
            "For whom the page is. By a token it is the user of the token, and nobody else. Otherwise, without it, the page is as everybody sees it.",
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
            "Newest first; a user who has reposted it twice is there twice. Hidden reposts are left out. The mutes and blocks of the reader \
             apply, and the blocks of the authors, but not the rules of the home feed. A repost of a repost is one of the original. A reader who \
             may not see the post is answered as if it was not there.",
        )
        .query(
            "reader",
            "For whom the list is. By a token it is the user of the token, and nobody else. Otherwise, without it, the list is as everybody sees it.",
            schema("SourceId"),
        )
        .limited()
        .query("before", "Reposts older than this: the `next` of the page before.", schema("Cursor"))
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
            "Without reasons and blockers, nothing brings the post. To a user's token a post that nothing brings, that is hidden or \
             deleted, or whose author blocks the user is `unknown`, unless it is the user's own.",
        )
        .answers(200, "What speaks for it and against it.", "Explanation", &why)
        .reads_archive()
}
