//! Mutes, blocks, rules and the read marker.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tidewire::feed::celebrity::CelebrityPolicy;
use tokio::runtime::Runtime;

use super::{bodies, check, follow, ids, posts, publish, server, status};
use crate::server::Server;
use testkit::world::{config, draft, insist};

#[test]
fn mutes_are_created_listed_and_undone_exactly() {
    let server = server();
    ["bob", "tag:rust"].iter().for_each(|source| follow(&server, "ann", source));
    posts(&server, "bob", 1..=1);
    publish(&server, "cas", 2, &json!({"tags": ["rust"]}));
    for (source, left) in [("bob", [2]), ("tag:rust", [1]), ("cas", [1])] {
        let mute = format!("/v1/users/ann/mutes/{source}");
        let made = server.send("PUT", &mute, None, "");
        assert_eq!((made.status, made.json()), (201, json!({"created": true})));
        let again = server.send("PUT", &mute, Some("application/json"), "{}");
        assert_eq!((again.status, again.json()), (200, json!({"created": false})));
        assert_eq!(bodies(&server, "/v1/users/ann/feed"), left, "{source}");
        for _ in 0..2 {
            assert_eq!(status(&server, "DELETE", &mute), 204);
        }
        assert_eq!(bodies(&server, "/v1/users/ann/feed"), [2, 1], "{source}");
    }
    assert_eq!(ids(&server.get("/v1/users/ann/following").json()), ["tag:rust", "bob"], "a mute leaves edges alone");
}

#[test]
fn muted_and_blocked_sources_are_listed_newest_first() {
    let server = server();
    for list in ["mutes", "blocks"] {
        let path = format!("/v1/users/ann/{list}");
        assert_eq!(server.get(&path).json(), json!({"items": [], "next": null}));
        for source in ["bob", "topic:7", "dan"] {
            assert_eq!(status(&server, "PUT", &format!("{path}/{source}")), 201);
        }
        let first = server.get(&format!("{path}?limit=2")).json();
        assert_eq!(ids(&first), ["dan", "topic:7"]);
        assert!(first["items"][0]["since"].as_str().unwrap() > first["items"][1]["since"].as_str().unwrap());
        let next = first["next"].as_str().unwrap();
        let second = server.get(&format!("{path}?limit=2&cursor={next}")).json();
        assert_eq!((ids(&second), &second["next"]), (vec!["bob"], &Value::Null));
    }
}

#[test]
fn a_block_removes_follows_in_both_directions_and_prevents_new_ones() {
    let server = server();
    for (follower, source) in [("ann", "bob"), ("bob", "ann"), ("cas", "bob")] {
        follow(&server, follower, source);
    }
    posts(&server, "bob", 1..=1);
    assert_eq!(status(&server, "PUT", "/v1/users/ann/blocks/bob"), 201);
    assert_eq!(status(&server, "PUT", "/v1/users/ann/blocks/bob"), 200);
    assert_eq!(bodies(&server, "/v1/users/ann/feed"), [0; 0]);
    assert_eq!(ids(&server.get("/v1/users/bob/followers").json()), ["cas"]);
    for (follower, source) in [("ann", "bob"), ("bob", "ann")] {
        let path = format!("/v1/users/{follower}/following/{source}");
        check(&server.send("PUT", &path, None, ""), &path, 403, "blocked", None);
        let edge = json!({"follower": follower, "source": source});
        let fine = json!({"follower": follower, "source": "dan"});
        let bulk = server.post("/v1/follows", &json!({"follows": [fine, edge]}));
        check(&bulk, &path, 403, "blocked", None);
        assert_eq!(bulk.json()["errors"][0]["index"], 1);
        let mixed = json!({"follows": [edge, {"follower": follower, "source": follower}]});
        check(&server.post("/v1/follows", &mixed), "blocked, and itself", 422, "self_follow", None);
    }
    assert_eq!(server.get("/v1/users/ann").json()["following"], 0, "nothing of a refused bulk was made");
    for _ in 0..2 {
        assert_eq!(status(&server, "DELETE", "/v1/users/ann/blocks/bob"), 204);
    }
    assert_eq!(bodies(&server, "/v1/users/ann/feed"), [0; 0], "edges do not come back by themselves");
    follow(&server, "ann", "bob");
    assert_eq!(bodies(&server, "/v1/users/ann/feed"), [1]);
}

#[test]
fn mutes_and_blocks_hide_reposted_posts_until_undone() {
    let server = server();
    ["bob", "cas", "tag:tea"].iter().for_each(|source| follow(&server, "ann", source));
    posts(&server, "cas", 1..=1);
    let by_bob = publish(&server, "bob", 2, &json!({"tags": ["tea"]}));
    publish(&server, "cas", 3, &json!({"repost_of": by_bob}));
    let path = "/v1/users/ann/feed";
    assert_eq!(bodies(&server, path), [2, 1]);
    for source in ["bob", "tag:tea"] {
        let mute = format!("/v1/users/ann/mutes/{source}");
        assert_eq!((status(&server, "PUT", &mute), bodies(&server, path)), (201, vec![1]), "{source}");
        assert_eq!((status(&server, "DELETE", &mute), bodies(&server, path)), (204, vec![2, 1]), "{source}");
    }
    assert_eq!(status(&server, "DELETE", "/v1/users/ann/following/cas"), 204);
    assert_eq!(bodies(&server, path), [2]);
    follow(&server, "ann", "cas");
    let block = "/v1/users/ann/blocks/bob";
    assert_eq!((status(&server, "PUT", block), bodies(&server, path)), (201, vec![1]));
    assert_eq!((status(&server, "DELETE", block), bodies(&server, path)), (204, vec![2, 1]));
    let entry = server.get(path).json()["items"][0].clone();
    assert_eq!((&entry["reposts"][0]["user"], &entry["via"]), (&json!("cas"), &json!(["tag:tea", "cas"])));
}

#[test]
fn rules_are_read_and_changed_field_by_field() {
    let server = server();
    let path = "/v1/users/ann/rules";
    let mut rules =
        json!({"show_own": true, "replies": "followed", "reposts": true, "per_source_max": null, "notify": false});
    assert_eq!(server.get(path).json(), rules, "the defaults");
    let patch = |patch: Value| {
        let answer = server.json("PATCH", path, &patch);
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(server.get(path).json(), answer.json());
        answer.json()
    };
    for (field, value) in [
        ("show_own", json!(false)),
        ("replies", json!("none")),
        ("replies", json!("all")),
        ("reposts", json!(false)),
        ("per_source_max", json!(2)),
        ("notify", json!(true)),
        ("notify", json!(false)),
    ] {
        rules[field] = value.clone();
        for _ in 0..2 {
            assert_eq!(patch(json!({field: value})), rules);
        }
    }
    assert_eq!(patch(json!({})), rules);
    rules["per_source_max"] = Value::Null;
    assert_eq!(patch(json!({"per_source_max": null})), rules, "null lifts the limit");
}

#[test]
fn rules_filter_the_feed() {
    let server = server();
    follow(&server, "ann", "bob");
    let question = publish(&server, "cas", 1, &json!({}));
    publish(&server, "bob", 2, &json!({"reply_to": question}));
    publish(&server, "bob", 3, &json!({"repost_of": question}));
    posts(&server, "bob", 4..=5);
    posts(&server, "ann", 6..=6);
    let path = "/v1/users/ann/feed?limit=4";
    for (patch, expected) in [
        (json!({}), vec![6, 5, 4, 1]),
        (json!({"show_own": false, "replies": "all"}), vec![5, 4, 1, 2]),
        (json!({"reposts": false}), vec![5, 4, 2]),
        (json!({"per_source_max": 1, "show_own": true}), vec![6, 5]),
        (json!({"per_source_max": null, "replies": "none"}), vec![6, 5, 4]),
    ] {
        assert_eq!(server.json("PATCH", "/v1/users/ann/rules", &patch).status, 200);
        assert_eq!(bodies(&server, path), expected, "{patch}");
    }
}

#[test]
fn the_unread_count_ignores_the_page_limit_per_author() {
    let server = server();
    follow(&server, "ann", "bob");
    posts(&server, "bob", 1..=5);
    assert_eq!(server.json("PATCH", "/v1/users/ann/rules", &json!({"per_source_max": 2})).status, 200);
    // One's own posts need no reading.
    posts(&server, "ann", 6..=6);
    let marker = server.get("/v1/users/ann/marker").json();
    assert_eq!((&marker["unread"], &marker["capped"]), (&json!(5), &json!(false)));
}

#[test]
fn a_page_counts_skipped_entries_and_later_pages_show_them() {
    let server = server();
    ["bob", "cas"].iter().for_each(|source| follow(&server, "ann", source));
    posts(&server, "cas", 1..=2);
    posts(&server, "bob", 3..=6);
    assert_eq!(server.json("PATCH", "/v1/users/ann/rules", &json!({"per_source_max": 1})).status, 200);
    let mut path = "/v1/users/ann/feed?limit=2".to_owned();
    for (expected, passed_over) in [(vec![6, 2], json!(3)), (vec![1], Value::Null)] {
        let page = server.get(&path).json();
        assert_eq!((bodies(&server, &path), &page["passed_over"]), (expected, &passed_over));
        path = format!("/v1/users/ann/feed?limit=2&before={}", page["next"].as_str().unwrap_or_default());
    }
}

#[test]
fn the_unread_count_is_exact_right_after_every_change() {
    let server = server();
    let path = "/v1/users/ann/marker";
    assert_eq!(server.get(path).json(), json!({"cursor": null, "unread": 0, "capped": false, "complete": true}));
    ["bob", "cas"].iter().for_each(|source| follow(&server, "ann", source));
    let of_bob = posts(&server, "bob", 1..=3);
    posts(&server, "cas", 4..=5);
    assert_eq!(server.get(path).json(), json!({"cursor": null, "unread": 5, "capped": false, "complete": true}));
    let cursor = server.get("/v1/users/ann/feed?limit=5").json()["items"][3]["cursor"].clone();
    for _ in 0..2 {
        let marked = server.json("PUT", path, &json!({"cursor": cursor}));
        assert_eq!(
            (marked.status, marked.json()),
            (200, json!({"cursor": cursor, "unread": 3, "capped": false, "complete": true}))
        );
    }
    let unread = || server.get(path).json()["unread"].clone();
    assert_eq!(status(&server, "DELETE", &format!("/v1/posts/{}", of_bob[2])), 204);
    assert_eq!(unread(), 2);
    assert_eq!(status(&server, "DELETE", "/v1/users/ann/following/cas"), 204);
    assert_eq!(unread(), 0);
    follow(&server, "ann", "cas");
    assert_eq!(unread(), 2);
    posts(&server, "bob", 1..=97);
    assert_eq!(server.get(path).json(), json!({"cursor": cursor, "unread": 99, "capped": false, "complete": true}));
    posts(&server, "cas", 1..=1);
    assert_eq!(server.get(path).json(), json!({"cursor": cursor, "unread": 99, "capped": true, "complete": true}));
}

/// Publishes so many posts of an author, a few hundred at once.
fn many_posts(server: &Server, author: &str, count: usize) {
    Runtime::new().unwrap().block_on(async {
        for start in (0..count).step_by(500) {
            // A node on a busy machine may refuse one for a moment, without any effect.
            let publish = |_| insist(async || server.engine.publish(draft(author, "1"), true).await);
            let published = join_all((start..count.min(start + 500)).map(publish)).await;
            published.into_iter().for_each(|published| drop(published.unwrap()));
        }
    });
}

#[test]
fn unread_entries_below_thousands_of_muted_ones_are_counted_or_reported_as_unknown() {
    for policy in [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll] {
        let server = Server::start(config(1, policy));
        ["bob", "cas"].iter().for_each(|source| follow(&server, "ann", source));
        let unread = || server.get("/v1/users/ann/marker").json();
        posts(&server, "cas", 1..=3);
        many_posts(&server, "bob", 12_000);
        assert_eq!(status(&server, "PUT", "/v1/users/ann/mutes/bob"), 201);
        let counted = json!({"cursor": null, "unread": 3, "capped": false, "complete": true});
        assert_eq!(unread(), counted, "below 12,000: {policy:?}");
        many_posts(&server, "bob", 12_000);
        let not_known = json!({"cursor": null, "unread": 0, "capped": true, "complete": false});
        assert_eq!(unread(), not_known, "below 24,000: {policy:?}");
        let none = json!({"cursor": null, "unread": 0, "capped": false, "complete": true});
        assert_eq!(server.get("/v1/users/dan/marker").json(), none, "nobody mistakes one for the other");
    }
}
