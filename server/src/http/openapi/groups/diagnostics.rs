//! The documentation of diagnostics operations for operators.

use serde_json::{Value, json};

use crate::http::history::{EPOCH_DIGITS_MAX, PERIOD, PERIODS_OF_DAY, SAMPLES_MAX, TAKEN_DIGITS_MAX};
use crate::http::noted_requests::NOTED_REQUESTS_MAX;
use crate::http::openapi::documentation::{Documentation, documented};
use crate::http::openapi::groups::Documented;
use crate::http::openapi::schemas::{PUBLISHED_AT, post};
use tidewire::limits::{
    FANOUT_RECORDS_MAX, PAGE_POSTS_DEFAULT, REPOSTS_LISTED_MAX, SEARCH_TIME_MAX, SOURCE_ID_BYTES_MAX, SOURCES_FOUND_MAX,
};

pub(super) static DOCUMENTATION: Documented = &[
    ("read_history", read_history),
    ("read_operations", read_operations),
    ("find_sources", find_sources),
    ("read_fanout", read_fanout),
];

fn read_history() -> Documentation {
    let seconds_of_day = PERIOD.as_secs() * u64::from(PERIODS_OF_DAY);
    let (seconds, pattern) =
        (PERIOD.as_secs(), format!("^[0-9a-f]{{1,{EPOCH_DIGITS_MAX}}}-[0-9]{{1,{TAKEN_DIGITS_MAX}}}$"));
    documented("Read the figures of the last hour or day")
        .description(format!(
            "One sample for every {seconds} s, of a day for every {seconds_of_day} s, at most {SAMPLES_MAX}, in columns of equal length, the \
             oldest first. `at_seconds` is the end of the sample in seconds since 1970. Rates and percentiles cover the time of the \
             sample. Percentiles are estimated from histograms, and `null` without values: of pages of home feeds, from the request to the \
             built page; of publishing a post, from the head of the request to the head of the response; and of fan-out, from the \
             acceptance of a post until all inboxes have it. Requests are counted when they are answered: `reads` and `writes` of the data \
             of users, `live` for connections that stay open, and `other`. Memory and queues are values at the end of the sample. A code \
             without refusals has no column.",
        ))
        .query("span", "The period to return, up to now.", json!({"enum": ["hour", "day"], "default": "hour"}))
        .query(
            "since",
            "The `next` of the previous response for the same span: the server sends only newer samples. `reset` is true if it sends all \
             samples, because it has restarted or the previous response is too old: then discard the earlier samples.",
            json!({"type": "string", "pattern": pattern}),
        )
        .of_named_node()
        .answers(200, "The samples.", "History", &history())
}

fn history() -> Value {
    json!({
        "node": null,
        "interval_seconds": 5.0,
        "samples_max": SAMPLES_MAX,
        "next": "19a1b2c3d4e-2",
        "reset": true,
        "at_seconds": [1_795_470_005.012, 1_795_470_010.013],
        "page_p50_us": [41.2, null],
        "page_p99_us": [230.5, null],
        "publish_p50_us": [812.0, null],
        "publish_p99_us": [1_930.4, null],
        "fanout_p50_us": [700.1, null],
        "fanout_p99_us": [2_300.0, null],
        "pages_per_second": [120.4, 0.0],
        "posts_per_second": [10.2, 0.0],
        "deliveries_per_second": [5_210.8, 0.0],
        "wakes_per_second": [0.4, 0.0],
        "live_messages_per_second": [31.0, 0.0],
        "active": [812, 812],
        "live_connections": [3, 3],
        "connections": [9, 9],
        "requests_per_second": {"reads": [120.6, 0.0], "writes": [10.4, 0.0], "live": [0.2, 0.0], "other": [0.2, 0.2]},
        "refusals_per_second": {"overloaded": [0.0, 1.2]},
        "memory_bytes": {
            "resident": [104_857_600, 104_857_600],
            "posts": [40_960, 40_960],
            "sources": [81_920, 81_920],
            "inboxes": [4_096, 4_096],
            "reposts": [0, 0],
        },
        "queues": {"commands": {"limit": 65_536, "depth": [0, 12]}},
    })
}

fn read_operations() -> Documentation {
    let time = PUBLISHED_AT.to_string();
    let example = json!({
        "node": null,
        "slow_requests": {
            "threshold_ms": 1_000,
            "count": 17,
            "items": [{
                "at": time,
                "operation": "read_feed",
                "method": "GET",
                "route": "/v1/users/{user}/feed",
                "status": 200,
                "took_ms": 1_203,
                "request_id": "0123456789abcdef0123456789abcdef",
            }],
        },
        "refused_requests": {
            "count": 3,
            "items": [{
                "at": time,
                "operation": "publish",
                "method": "POST",
                "route": "/v1/posts",
                "code": "disk_full",
                "status": 507,
                "request_id": "fedcba9876543210fedcba9876543210",
            }],
        },
        "keys": [
            {"name": "app", "kind": "server", "scope": "all", "requests": 1_200, "last_used": time},
            {"name": "sign-in", "kind": "token", "scope": null, "requests": 0, "last_used": null},
        ],
    });
    documented("Read slow and refused requests, and the use of keys")
        .description(format!(
            "The last {NOTED_REQUESTS_MAX} requests that took longer than `--slow-log`, and the last {NOTED_REQUESTS_MAX} refused requests, \
             except those to operations that need no authentication; newest first, with their numbers since the start. \
             `status` and `request_id` are null if the client disconnected before the response. `operation`, `method` and `route` of a \
             refused request are null if no such operation exists. `keys` is null without access control. The use of keys counts \
             since the start; the use of a token counts for the key that signed it. Responses never contain the keys themselves.",
        ))
        .of_named_node()
        .answers(200, "Slow and refused requests, and keys.", "Operations", &example)
}

fn find_sources() -> Documentation {
    let item = json!({
        "id": "ann", "kind": "user", "active": true, "followers": 12, "following": 4, "posts": 3, "celebrity": false,
        "last_seen": PUBLISHED_AT.to_string(),
    });
    let example = json!({"node": null, "items": [item], "complete": true, "examined": 1_042});
    let milliseconds = SEARCH_TIME_MAX.as_millis();
    documented("Find sources by the beginning of their ids")
        .description(format!(
            "First the source with exactly this id, then awake ones, then those with the most followers. Ids have no order in \
             memory: the server examines all of them, for at most {milliseconds} ms. `complete` is false if that was not enough; a \
             complete id is found nevertheless.",
        ))
        .query(
            "prefix",
            "The beginning of the id, in upper or lower case. Without it: some of the awake readers, most recent read first; if \
             no reader is awake, users who follow a source.",
            json!({"type": "string", "maxLength": SOURCE_ID_BYTES_MAX, "default": ""}),
        )
        .query("kind", "Only sources of this kind.", json!({"enum": ["user", "tag", "topic", "replies"]}))
        .query(
            "limit",
            "Maximum number of sources.",
            json!({"type": "integer", "minimum": 1, "maximum": SOURCES_FOUND_MAX, "default": PAGE_POSTS_DEFAULT}),
        )
        .answers(200, "The found sources.", "FoundSources", &example)
}

fn read_fanout() -> Documentation {
    let repost = json!({"user": "cas", "post": post()["id"], "at": PUBLISHED_AT.to_string(), "hidden": false});
    let example = json!({
        "node": null,
        "post": post()["id"],
        "author": "bob",
        "accepted_at": PUBLISHED_AT.to_string(),
        "state": "delivered",
        "sources": [
            {"id": "bob", "route": "push", "followers": 1_200, "decided_by": "followers"},
            {"id": "tag:tea", "route": "pull", "followers": 90_000, "decided_by": "followers"},
        ],
        "followers": 91_200,
        "pulled": 90_000,
        "awake": 300,
        "pushed": 298,
        "already_there": 2,
        "asleep": 900,
        "started_after_us": 40,
        "first_delivery_after_us": 180,
        "finished_after_us": 700,
        "reposts": {"count": 1, "complete": true, "items": [repost]},
    });
    documented("Read how a post reached its readers")
        .description(format!(
            "Available for the last {FANOUT_RECORDS_MAX} posts since the start. `state` is `queued`, `delivering`, `delivered`, `pulled` if no \
             source pushes the post, or `gone` if the post is older; then all figures are null. `sources` are the author, the tags, the \
             topic, and the replies to the answered post. Each has its followers when the post was accepted, its route (push or pull), and \
             the reason for the route. `awake` is the number of followers of pushing sources that had an inbox. The others are `asleep`, and \
             fill theirs when they read; in a cluster they may be awake on other nodes. `pushed` is the number of inboxes that got the post. \
             `already_there` counts deliveries to inboxes that had the post from another of its sources, or were full of newer posts. These \
             four are null until the delivery has finished. Times are in microseconds since the post was queued for delivery; the first two \
             are null if there was no inbox to deliver it to. The newest {REPOSTS_LISTED_MAX} reposts are listed; `complete` is false if \
             there are too many to examine, and then `count` covers only the examined ones.",
        ))
        .answers(200, "The fan-out.", "PostFanout", &example)
        .refuses(404, &["unknown_post"])
        .reads_archive()
}
