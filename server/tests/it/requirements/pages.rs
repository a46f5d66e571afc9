//! What a page holds, in which order, and how it goes on.

use std::time::Duration;

use serde_json::{Value, json};
use tidewire::clock::{Clock, SystemClock};
use tidewire::config::EngineConfig;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::page::Range;
use tidewire::state::reader::PageRequest;

use super::{all, at, feed, figure, follow_all, numbers, walk};
use crate::personal::{bodies, follow, posts, publish, status};
use crate::server::Server;
use testkit::world::{above, config, id, some};

#[test]
fn r9_posts_of_one_instant_are_paged_by_id_from_any_source() {
    // Some are in the inbox, some below it, and two outboxes are pulled.
    let server = Server::start(EngineConfig { inbox_posts: some(12), ..config(2, above(2)) });
    let stars = ["star", "nova"];
    for reader in ["ann", "eve", "fay"] {
        follow_all(&server, stars.map(|star| (reader, star)));
    }
    follow_all(&server, [("ann", "bob"), ("ann", "cas")]);
    server.get(&feed("ann"));
    let instant = SystemClock.now().saturating_sub(Duration::from_secs(3_600));
    let authors = ["star", "bob", "nova", "ann", "cas"];
    for nth in 0..60_u64 {
        // Not in the order of their ids.
        let (id, author) = (nth * 37 % 60 + 1, authors[nth as usize % 5]);
        let mut fields = at(instant);
        fields["id"] = json!(id.to_string());
        publish(&server, author, id, &fields);
    }
    let expected: Vec<u64> = (1..=60).rev().collect();
    for limit in [1, 7, 100] {
        assert_eq!(numbers(&walk(&server, &feed("ann"), limit)), expected, "in pages of {limit}");
    }
    let first = server.get(&format!("{}?limit=5", feed("ann"))).json();
    publish(&server, "bob", 61, &json!({}));
    let page = server.get(&format!("{}?limit=5&after={}", feed("ann"), first["newest"].as_str().unwrap())).json();
    assert_eq!(numbers(page["items"].as_array().unwrap()), [61], "a refresh brings what is new, and nothing else");
}

#[test]
fn r10_a_page_merges_inbox_and_outboxes_and_reads_little_of_each() {
    let server = Server::start(config(1, above(1)));
    let (sources, rounds) = (30, 40);
    let stars: Vec<String> = (0..sources).map(|nth| format!("star{nth}")).collect();
    for reader in ["ann", "eve"] {
        follow_all(&server, stars.iter().map(|star| (reader, star.as_str())));
    }
    follow(&server, "ann", "bob");
    server.get(&feed("ann"));
    let began = SystemClock.now().saturating_sub(Duration::from_secs(3_600));
    let mut count = 0;
    for _ in 0..rounds {
        for author in stars.iter().map(String::as_str).chain(["bob"]) {
            count += 1;
            publish(&server, author, count, &at(began.saturating_add(Duration::from_secs(count))));
        }
    }
    let newest: Vec<u64> = (0..20).map(|nth| count - nth).collect();
    assert_eq!(bodies(&server, &feed("ann")), newest);
    let request = PageRequest { range: Range::Newest, limit: 20 };
    let read = tokio::runtime::Runtime::new().unwrap().block_on(server.engine.feed(&id("ann"), request));
    // An answer over HTTP does not say what it cost.
    let work = read.unwrap().page.work;
    let (pulls_max, positions_max) = (2 * sources + 20, 8 * (sources + 20));
    assert!(work.pulls <= pulls_max && work.positions <= positions_max && work.candidates <= 21, "{work:?}");
    assert_eq!(all(&server, "ann"), (1..=count).rev().collect::<Vec<_>>());
}

#[test]
fn r11_the_last_page_is_marked_and_unknown_readers_cost_no_search() {
    let server = Server::start(config(2, CelebrityPolicy::PushAll));
    follow(&server, "ann", "bob");
    posts(&server, "bob", 1..=4);
    for (limit, is_last) in [(3, false), (4, true), (5, true)] {
        let page = server.get(&format!("{}?limit={limit}", feed("ann"))).json();
        assert_eq!(page["next"].is_null(), is_last, "{limit} of four");
    }
    let before = (figure(&server, "users"), figure(&server, "wakes"), figure(&server, "pages"));
    let empty = json!({"items": [], "next": null, "newest": null, "partial": []});
    for path in
        ["/v1/users/nobody/feed", "/v1/users/nobody/posts", "/v1/users/bob/feed?before=", "/v1/users/tag:tea/posts"]
    {
        if let Some(path) = path.strip_suffix("?before=") {
            // Below his oldest post there is nothing.
            let oldest = server.get(path).json()["items"][3]["cursor"].clone();
            let page = server.get(&format!("{path}?before={}", oldest.as_str().unwrap())).json();
            assert_eq!((&page["items"], &page["next"]), (&json!([]), &Value::Null));
            continue;
        }
        assert_eq!(server.get(path).json(), empty, "{path}");
    }
    let after = (figure(&server, "users"), figure(&server, "wakes"), figure(&server, "pages"));
    assert_eq!(after, (before.0, before.1 + 1, before.2 + 2), "bob woke and read two pages, nobody else became known");
}

#[test]
fn r12_scrolling_continues_below_the_inbox_to_the_end_without_a_gap() {
    let server = Server::start(EngineConfig { inbox_posts: some(10), ..config(2, above(2)) });
    follow_all(&server, [("eve", "star"), ("fay", "star"), ("ann", "star"), ("ann", "bob"), ("ann", "tag:tea")]);
    server.get(&feed("ann"));
    for nth in 0..25 {
        publish(&server, "bob", 4 * nth, &json!({}));
        publish(&server, "star", 4 * nth + 1, &json!({}));
        publish(&server, "cas", 4 * nth + 2, &json!({"tags": ["tea"]}));
        publish(&server, "ann", 4 * nth + 3, &json!({}));
    }
    assert_eq!(figure(&server, "inboxes/entries"), 10, "of a hundred");
    let expected: Vec<u64> = (0..100).rev().collect();
    for limit in [1, 3, 9, 10, 11, 100] {
        assert_eq!(numbers(&walk(&server, &feed("ann"), limit)), expected, "in pages of {limit}");
    }
}

#[test]
fn r26_a_page_has_contents_or_on_request_only_ids() {
    let server = Server::start(config(2, CelebrityPolicy::PushAll));
    follow(&server, "ann", "bob");
    let post = publish(&server, "bob", 1, &json!({"tags": ["tea"], "topic": "42"}));
    let whole = server.get(&format!("/v1/posts/{post}")).json();
    for path in [feed("ann"), "/v1/users/bob/posts".to_owned()] {
        let page = server.get(&path).json();
        assert_eq!(page["items"][0]["post"], whole, "no second request is needed: {path}");
        let brief = server.get(&format!("{path}?fields=ids")).json();
        let expected = json!({"id": post, "author": "bob", "published_at": whole["published_at"]});
        assert_eq!(brief["items"][0]["post"], expected);
        for name in ["cursor", "via", "reposts"] {
            assert_eq!(brief["items"][0][name], page["items"][0][name], "{path}");
        }
    }
    assert_eq!(server.get(&format!("{}?fields=some", feed("ann"))).status, 400);
}

#[test]
fn n3_a_reader_of_300_sources_wakes_once_to_a_complete_feed() {
    let server = Server::start(config(2, above(1)));
    let sources: Vec<String> = (0..300).map(|nth| format!("s{nth}")).collect();
    follow_all(&server, sources.iter().map(|source| ("ann", source.as_str())));
    // Every third is pulled.
    follow_all(&server, sources.iter().step_by(3).map(|source| ("eve", source.as_str())));
    for (body, source) in sources.iter().chain(&sources).enumerate() {
        publish(&server, source, body as u64, &json!({}));
    }
    assert_eq!((figure(&server, "wakes"), figure(&server, "deliveries")), (0, 0), "she sleeps");
    let expected: Vec<u64> = (0..600).rev().collect();
    assert_eq!(bodies(&server, &format!("{}?limit=100", feed("ann"))), expected[..100], "the first response");
    assert_eq!(figure(&server, "wakes"), 1);
    assert_eq!(all(&server, "ann"), expected);
    assert_eq!((figure(&server, "wakes"), figure(&server, "partial_pages")), (1, 0));
}

#[test]
fn n4_a_late_or_backdated_post_is_sorted_by_its_time_and_not_lost() {
    for policy in [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll] {
        let server = Server::start(config(2, policy));
        follow_all(&server, [("ann", "bob"), ("ann", "cas")]);
        let now = SystemClock.now();
        for (author, minutes) in [("bob", 3), ("cas", 50), ("bob", 4_000), ("cas", 1), ("ann", 20), ("bob", 2)] {
            publish(&server, author, minutes, &at(now.saturating_sub(Duration::from_secs(60 * minutes))));
            server.get(&feed("ann"));
        }
        assert_eq!(all(&server, "ann"), [1, 2, 3, 20, 50, 4_000], "{policy:?}");
        assert_eq!(bodies(&server, "/v1/users/bob/posts"), [2, 3, 4_000]);
        let oldest = server.get("/v1/users/bob/posts").json()["items"][2]["post"]["id"].as_str().unwrap().to_owned();
        assert_eq!(server.json("PATCH", &format!("/v1/posts/{oldest}"), &json!({"body": 4_001})).status, 200);
        assert_eq!(all(&server, "ann").last(), Some(&4_001), "an edit keeps the place");
        let ahead = at(now.saturating_add(Duration::from_secs(3_600)));
        let post = json!({"author": "bob", "body": 0, "published_at": ahead["published_at"]});
        assert_eq!(server.post("/v1/posts", &post).status, 422, "nothing stays on top for an hour");
    }
}

#[test]
fn n6_a_list_is_complete_as_soon_as_it_is_created() {
    let server = Server::start(EngineConfig { inbox_posts: some(3), ..config(2, above(1)) });
    follow_all(&server, [("eve", "star"), ("fay", "star")]);
    for body in 0..30 {
        publish(&server, ["bob", "star", "ann"][body as usize % 3], body, &json!({}));
    }
    publish(&server, "cas", 30, &json!({"tags": ["tea"]}));
    let list = "/v1/users/ann/lists/near";
    for member in ["bob", "star", "tag:tea"] {
        assert_eq!(status(&server, "PUT", &format!("{list}/members/{member}")), 201);
    }
    let expected: Vec<u64> = (0..=30).rev().filter(|body| *body == 30 || body % 3 != 2).collect();
    let read = || numbers(&walk(&server, &format!("{list}/feed"), 4));
    assert_eq!(read(), expected);
    assert_eq!(all(&server, "ann").len(), 10, "her own: members of a list are not followed");
    assert_eq!(status(&server, "PUT", "/v1/users/ann/mutes/cas"), 201);
    assert_eq!(read(), expected[1..], "under the rules of the home feed");
    assert_eq!(status(&server, "DELETE", list), 204);
    let gone = server.get(&format!("{list}/feed"));
    assert_eq!((gone.status, &gone.json()["code"]), (404, &json!("unknown_list")));
}

#[test]
fn n10_the_reader_can_limit_entries_per_source_on_a_page() {
    let server = Server::start(config(2, CelebrityPolicy::PushAll));
    follow_all(&server, [("ann", "bob"), ("ann", "cas")]);
    publish(&server, "cas", 0, &json!({}));
    posts(&server, "bob", 1..=9);
    let rules = |most: Value| server.json("PATCH", "/v1/users/ann/rules", &json!({"per_source_max": most})).status;
    assert_eq!(bodies(&server, &format!("{}?limit=4", feed("ann"))), [9, 8, 7, 6]);
    assert_eq!(rules(json!(2)), 200);
    let page = server.get(&format!("{}?limit=3", feed("ann"))).json();
    assert_eq!(numbers(page["items"].as_array().unwrap()), [9, 8, 0], "the quiet one is not crowded out");
    assert_eq!(page["passed_over"], json!(7), "and what was passed over is counted");
    let two = format!("{}?limit=2", feed("ann"));
    let next = server.get(&two).json()["next"].as_str().unwrap().to_owned();
    assert_eq!(bodies(&server, &format!("{two}&before={next}")), [7, 6], "every page counts anew");
    assert_eq!(rules(Value::Null), 200);
    assert_eq!(all(&server, "ann"), (0..=9).rev().collect::<Vec<_>>());
}
