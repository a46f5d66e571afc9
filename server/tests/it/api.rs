//! The HTTP contract, over real sockets.

use std::num::NonZeroU64;

use serde_json::{Value, json};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::feed::celebrity::CelebrityPolicy;

use crate::server::Server;

fn server() -> Server {
    Server::start(EngineConfig::default())
}

fn publish(server: &Server, author: &str, body: u64) -> Value {
    let answer = server.post("/v1/posts?wait=delivered", &json!({"author": author, "body": body}));
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()
}

fn follow(server: &Server, follower: &str, source: &str) {
    let answer = server.send("PUT", &format!("/v1/users/{follower}/following/{source}"), None, "");
    assert_eq!(answer.status, 201, "{}", answer.text);
}

fn bodies(page: &Value) -> Vec<u64> {
    page["items"].as_array().unwrap().iter().map(|item| item["post"]["body"].as_u64().unwrap()).collect()
}

#[test]
fn a_post_is_stored_and_returned_as_the_api_documents() {
    let server = server();
    let sent = json!({
        "id": "77", "author": "ann", "published_at": "2026-01-02T03:04:05.000006Z", "kind": "ad",
        "body": {"text": "hé\u{0}llo", "n": [1, 2.50]}, "tags": ["rust", "news", "rust"], "topic": "42",
        "repost_of": "5", "reply_to": "6",
    });
    let answer = server.post("/v1/posts", &sent);
    assert_eq!((answer.status, answer.header("content-type")), (201, "application/json"));
    let mut expected = sent.clone();
    expected["tags"] = json!(["rust", "news"]);
    expected["hidden"] = json!(false);
    assert_eq!(answer.json(), expected);
    assert_eq!(server.get("/v1/posts/77").json(), expected);
    assert_eq!(server.post("/v1/posts", &sent).status, 200);
    // The same instant in another form is the same post.
    let mut elsewhere = sent.clone();
    elsewhere["published_at"] = json!("2026-01-02t05:04:05.000006999+02:00");
    let again = server.post("/v1/posts", &elsewhere);
    assert_eq!((again.status, again.json()), (200, expected.clone()));
    let other = server.post("/v1/posts", &json!({"id": "77", "author": "ann", "body": 1}));
    assert_eq!((other.status, &other.json()["code"]), (409, &json!("post_id_taken")));

    let edited = server.json("PATCH", "/v1/posts/77", &json!({"body": null}));
    assert_eq!((edited.status, &edited.json()["body"]), (200, &Value::Null));
    assert!(edited.json()["edited_at"].is_string());
    assert_eq!(server.post("/v1/posts", &sent).status, 200, "a late redelivery of the first version");
    assert_eq!(server.json("PATCH", "/v1/posts/77", &json!({"hidden": true})).json()["hidden"], true);

    for _ in 0..2 {
        assert_eq!(server.send("DELETE", "/v1/posts/77", None, "").status, 204);
    }
    assert_eq!(server.get("/v1/posts/77").status, 404);
    let tombstoned = server.post("/v1/posts", &sent);
    assert_eq!((tombstoned.status, &tombstoned.json()["code"]), (409, &json!("post_deleted")));
}

#[test]
fn a_delete_that_overtakes_its_publish_still_applies_after_a_restart() {
    for takes_snapshot in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let open = || Server::of(Engine::open_directory(EngineConfig::default(), directory.path()).unwrap());
        let late = json!({"id": "777", "author": "bob", "body": 1});
        let is_refused = |server: &Server| {
            let refused = server.post("/v1/posts", &late);
            assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("post_deleted")));
            assert_eq!(server.get("/v1/posts/777").status, 404);
        };
        let server = open();
        for _ in 0..2 {
            assert_eq!(server.send("DELETE", "/v1/posts/777", None, "").status, 204);
        }
        is_refused(&server);
        assert_eq!(server.post("/v1/posts", &json!({"id": "778", "author": "bob", "body": 1})).status, 201);
        if takes_snapshot {
            assert_eq!(server.send("POST", "/v1/snapshots", None, "").status, 201);
        }
        drop(server);
        is_refused(&open());
    }
}

#[test]
fn a_feed_is_paged_down_and_up() {
    let server = server();
    follow(&server, "ann", "bob");
    follow(&server, "ann", "tag:rust");
    (1..=7).for_each(|body| drop(publish(&server, "bob", body)));
    let tagged = json!({"author": "cas", "body": 8, "tags": ["rust"]});
    assert_eq!(server.post("/v1/posts?wait=delivered", &tagged).status, 201);
    publish(&server, "ann", 9);

    let first = server.get("/v1/users/ann/feed?limit=3").json();
    assert_eq!(bodies(&first), [9, 8, 7]);
    let via: Vec<_> = first["items"].as_array().unwrap().iter().map(|item| item["via"].clone()).collect();
    assert_eq!(via, [json!([]), json!(["tag:rust"]), json!(["bob"])]);
    assert_eq!((&first["items"][0]["reposts"], &first["partial"]), (&json!([]), &json!([])));
    let (newest, cursor) = (first["newest"].as_str().unwrap(), first["items"][0]["cursor"].as_str().unwrap());
    assert!(newest.starts_with(cursor), "a token begins with the cursor of its place");

    let next = first["next"].as_str().unwrap();
    let second = server.get(&format!("/v1/users/ann/feed?limit=6&before={next}")).json();
    assert_eq!((bodies(&second), &second["next"]), (vec![6, 5, 4, 3, 2, 1], &Value::Null));
    assert_eq!(second["newest"], first["newest"]);
    let items = [&first, &second].into_iter().flat_map(|page| page["items"].as_array().unwrap());
    let cursors: Vec<&str> = items.map(|item| item["cursor"].as_str().unwrap()).collect();
    assert!(cursors.windows(2).all(|pair| pair[0] > pair[1]), "{cursors:?}");
    let up = second["items"][2]["cursor"].as_str().unwrap();
    let gap = server.get(&format!("/v1/users/ann/feed?limit=2&after={up}")).json();
    assert_eq!(bodies(&gap), [6, 5]);

    let ids = server.get("/v1/users/ann/feed?limit=1&fields=ids").json();
    let keys: Vec<&String> = ids["items"][0]["post"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["author", "id", "published_at"]);
    let own = server.get("/v1/users/bob/posts?limit=2").json();
    assert_eq!((bodies(&own), own["next"].is_string()), (vec![7, 6], true));
}

#[test]
fn unknown_readers_have_an_empty_feed() {
    let server = server();
    let empty = json!({"items": [], "next": null, "newest": null, "partial": []});
    for path in ["/v1/users/nobody/feed", "/v1/users/nobody/posts"] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.json()), (200, empty.clone()));
    }
    assert_eq!(server.get("/v1/stats").json()["users"], 0, "asking makes nobody known");
    let unknown = server.get("/v1/users/nobody");
    assert_eq!((unknown.status, &unknown.json()["code"]), (404, &json!("unknown_source")));
}

#[test]
fn follows_are_created_listed_and_removed() {
    let server = server();
    follow(&server, "ann", "bob");
    let again = server.send("PUT", "/v1/users/ann/following/bob", Some("application/json"), "{}");
    assert_eq!(again.status, 200);
    let bulk = json!({"follows": [
        {"follower": "ann", "source": "cas"}, {"follower": "ann", "source": "bob"},
        {"follower": "ann", "source": "ads", "hidden": true}, {"follower": "dan", "source": "bob"},
    ]});
    assert_eq!(server.post("/v1/follows", &bulk).json(), json!({"created": 3, "existing": 1}));

    let ids = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    let first = server.get("/v1/users/ann/following?limit=1").json();
    assert_eq!(ids(&first), ["cas"]);
    let next = first["next"].as_str().unwrap();
    let second = server.get(&format!("/v1/users/ann/following?limit=1&cursor={next}")).json();
    assert_eq!((ids(&second), &second["next"]), (vec!["bob".to_owned()], &Value::Null));
    assert_eq!(ids(&server.get("/v1/users/bob/followers").json()), ["dan", "ann"]);
    assert_eq!(ids(&server.get("/v1/users/ads/followers").json()), [""; 0]);

    let info = server.get("/v1/users/ann").json();
    assert_eq!((&info["following"], &info["followers"], &info["celebrity"]), (&json!(2), &json!(0), &json!(false)));
    for _ in 0..2 {
        assert_eq!(server.send("DELETE", "/v1/users/ann/following/bob", None, "").status, 204);
    }
    assert_eq!(ids(&server.get("/v1/users/ann/following").json()), ["cas"]);
}

#[test]
fn a_refused_bulk_request_names_every_invalid_edge_and_creates_none() {
    let server = Server::start(EngineConfig { following_max: 2, ..EngineConfig::default() });
    let edge = |follower: &str, source: &str| json!({"follower": follower, "source": source});
    let edges = [edge("a", "b"), edge("a", "a"), edge("a", "c"), edge("a", "c"), edge("a", "d"), edge("tag:x", "a")];
    let answer = server.post("/v1/follows", &json!({"follows": edges}));
    assert_eq!((answer.status, answer.header("content-type")), (422, "application/problem+json"));
    let errors: Vec<_> = answer.json()["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| (error["index"].as_u64().unwrap(), error["code"].as_str().unwrap().to_owned()))
        .collect();
    let expected = [(1, "self_follow"), (4, "following_limit"), (5, "not_a_user")];
    assert_eq!(errors, expected.map(|(index, code)| (index, code.to_owned())));
    assert_eq!(server.get("/v1/users/a/following").json()["items"], json!([]));
    follow(&server, "a", "b");
    follow(&server, "a", "c");
    let over = server.send("PUT", "/v1/users/a/following/d", None, "");
    assert_eq!((over.status, &over.json()["code"]), (422, &json!("following_limit")));
}

/// The follows of a reader that are written as their sources, each with a minus if it is hidden.
fn follows(reader: &str, sources: &str) -> Value {
    let follow = |source: &str| {
        let (source, hidden) = (source.trim_start_matches('-'), source.starts_with('-'));
        json!({"follower": reader, "source": source, "hidden": hidden})
    };
    json!({"follows": sources.split(' ').map(follow).collect::<Vec<_>>()})
}

#[test]
fn visible_and_hidden_follows_of_one_request_count_toward_limits_of_their_own() {
    let server = Server::start(EngineConfig { following_max: 2, ..EngineConfig::default() });
    for (nth, (before, added, refused)) in [
        // Both limits are reached, in any order.
        ("b", "c -d -e", &[][..]),
        ("-b", "c -d e", &[]),
        ("b -c", "-d e", &[]),
        // One past either limit.
        ("b", "-c d -e f", &[3]),
        ("-b", "c -d -e f", &[2]),
        // A hidden follow that becomes visible makes room for a hidden one, and takes the place of a visible one.
        ("-b -c", "b -d", &[]),
        ("-b -c", "b c -d -e", &[]),
        ("-b -c", "b c -d -e -f", &[4]),
        ("b c -d -e", "d -f", &[0, 1]),
        // What is requested twice counts once.
        ("b", "b -c -c d -e", &[]),
    ]
    .into_iter()
    .enumerate()
    {
        let reader = format!("reader-{nth}");
        assert_eq!(server.post("/v1/follows", &follows(&reader, before)).status, 200, "{before}");
        let answer = server.post("/v1/follows", &follows(&reader, added));
        let document = answer.json();
        let errors = document["errors"].as_array().into_iter().flatten();
        let found: Vec<_> = errors.map(|error| (error["index"].clone(), error["code"].clone())).collect();
        let expected: Vec<_> = refused.iter().map(|index| (json!(index), json!("following_limit"))).collect();
        let status = if refused.is_empty() { 200 } else { 422 };
        assert_eq!((answer.status, found), (status, expected), "{added} after {before}");
    }
}

#[test]
fn posts_of_a_celebrity_are_pulled_and_appear_in_feeds() {
    let celebrity = CelebrityPolicy::Above(NonZeroU64::new(2).unwrap());
    let server = Server::start(EngineConfig { celebrity, ..EngineConfig::default() });
    publish(&server, "star", 1);
    ["a", "b", "c"].iter().for_each(|follower| follow(&server, follower, "star"));
    publish(&server, "star", 2);
    assert_eq!(server.get("/v1/users/star").json()["celebrity"], true);
    assert_eq!(bodies(&server.get("/v1/users/a/feed").json()), [2, 1]);
    publish(&server, "star", 3);
    assert_eq!(bodies(&server.get("/v1/users/a/feed").json()), [3, 2, 1]);
    assert_eq!(server.get("/v1/stats").json()["deliveries"], 0);
    assert_eq!(server.get("/v1/users/a").json()["active"], true);
}

#[test]
fn probes_and_statistics_are_answered() {
    let server = server();
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.get("/readyz").status, 200);
    for (path, has_length) in [("/healthz", true), ("/v1/users/ann/events", false)] {
        let head = server.send("HEAD", path, None, "");
        assert_eq!((head.status, !head.header("content-length").is_empty()), (200, has_length), "{path}");
    }
    follow(&server, "ann", "bob");
    server.get("/v1/users/ann/feed");
    publish(&server, "bob", 1);
    let stats = server.get("/v1/stats?inboxes=count").json();
    for (key, value) in [("users", 2), ("active", 1), ("edges", 1), ("posts", 1), ("deliveries", 1), ("pages", 1)] {
        assert_eq!(stats[key], value, "{key}");
    }
    assert_eq!(stats["inboxes"]["entries"], 1);
    assert!(stats["queues"]["commands"]["limit"].as_u64() > Some(0));
    assert!(stats["memory"]["resident_bytes"].as_u64() > Some(0));
}

#[test]
fn a_stopping_server_answers_accepted_requests_and_refuses_new_ones() {
    let server = server();
    follow(&server, "ann", "bob");
    let engine = server.engine.clone();
    publish(&server, "bob", 1);
    drop(server);
    let draft = tidewire::feed::post::Draft::new(
        tidewire::id::SourceId::new("bob").unwrap(),
        tidewire::feed::post::Body::new("2").unwrap(),
    );
    let refused = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(engine.publish(draft, false));
    assert_eq!(refused.unwrap_err().code(), "shutting_down");
}

#[test]
fn a_polling_client_receives_late_posts_or_a_gap() {
    let server = server();
    follow(&server, "ann", "bob");
    publish(&server, "bob", 1);
    let newest = |page: &Value| page["newest"].as_str().unwrap().to_owned();
    let poll = |after: &str| server.get(&format!("/v1/users/ann/feed?after={after}")).json();
    let bodies = |page: &Value| -> Vec<Value> {
        page["items"].as_array().unwrap().iter().map(|item| item["post"]["body"].clone()).collect()
    };
    let first = server.get("/v1/users/ann/feed").json();
    let cursor = first["items"][0]["cursor"].as_str().unwrap();
    assert!(newest(&first).starts_with(cursor) && newest(&first).as_str() > cursor, "tokens compare as cursors do");
    let back = json!({"author": "bob", "body": "back", "published_at": "2020-01-01T00:00:00Z"});
    assert_eq!(server.post("/v1/posts?wait=delivered", &back).status, 201);
    assert_eq!(server.json("PUT", "/v1/users/ann/marker", &json!({"cursor": newest(&first)})).json()["unread"], 1);
    let late = poll(&newest(&first));
    assert_eq!((bodies(&late), late.get("gap")), (vec![json!("back")], None));
    assert_eq!(bodies(&poll(&newest(&late))), [Value::Null; 0]);
    assert_eq!(server.json("PUT", "/v1/users/ann/marker", &json!({"cursor": newest(&late)})).json()["unread"], 0);
    follow(&server, "ann", "cas");
    let gap = poll(&newest(&late));
    assert_eq!((&gap["gap"], bodies(&gap)), (&json!(true), vec![json!(1), json!("back")]));
    assert_eq!(poll(&newest(&gap)).get("gap"), None);
    assert_eq!(bodies(&poll(cursor)), [Value::Null; 0], "an item's cursor says where, not when");
    let before = server.get(&format!("/v1/users/ann/feed?before={}", newest(&gap))).json();
    assert_eq!(bodies(&before), [json!("back")]);
    for bad in [format!("{}A", newest(&gap)), format!("{cursor}."), format!("{cursor}.AAAA")] {
        assert_eq!(server.get(&format!("/v1/users/ann/feed?after={bad}")).status, 400, "{bad}");
    }
}
