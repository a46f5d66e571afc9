//! The replies to a post: in pages, for whom, followed and muted, after a restart.

use std::path::Path;

use serde_json::{Value, json};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;

use crate::access::tokens::{self, SERVER_KEY, access, bearer};
use crate::server::{Answer, Server};
use testkit::world::{patient, some};

fn publish(server: &Server, post: &Value) {
    let answer = server.post("/v1/posts?wait=delivered", post);
    assert_eq!(answer.status, 201, "{}", answer.text);
}

/// Publishes post 100 by bob, then a reply by each of these authors with this id. The body of a reply is its id.
fn prepare(server: &Server, replies: &[(&str, u64)]) {
    publish(server, &json!({"author": "bob", "id": "100", "body": 0}));
    for (author, id) in replies {
        publish(server, &json!({"author": author, "id": id.to_string(), "body": id, "reply_to": "100"}));
    }
}

fn put(server: &Server, path: &str) {
    let answer = server.send("PUT", path, None, "");
    assert!([200, 201, 204].contains(&answer.status), "{path}: {}", answer.text);
}

fn ids(page: &Value) -> Vec<u64> {
    let items = page["items"].as_array().unwrap_or_else(|| panic!("{page}"));
    items.iter().map(|item| item["post"]["id"].as_str().unwrap().parse().unwrap()).collect()
}

fn read(server: &Server, path: &str) -> Vec<u64> {
    ids(&server.get(path).json())
}

const REPLIES: &str = "/v1/posts/100/replies";

#[test]
fn replies_to_a_post_are_paged_newest_first() {
    let server = Server::start(EngineConfig::default());
    prepare(&server, &[("ann", 1), ("bob", 2), ("cas", 3), ("ann", 4), ("dan", 5)]);
    // Neither what answers a reply nor what repeats one is a reply to the post.
    publish(&server, &json!({"author": "ann", "id": "6", "body": 0, "reply_to": "5"}));
    publish(&server, &json!({"author": "ann", "id": "7", "body": 0, "repost_of": "5"}));
    publish(&server, &json!({"author": "ann", "id": "8", "body": 0, "repost_of": "5", "reply_to": "100"}));
    let first = server.get(&format!("{REPLIES}?limit=2")).json();
    let next = first["next"].as_str().unwrap();
    let second = server.get(&format!("{REPLIES}?limit=2&before={next}")).json();
    let last = server.get(&format!("{REPLIES}?limit=2&before={}", second["next"].as_str().unwrap())).json();
    assert_eq!((ids(&first), ids(&second), ids(&last)), (vec![5, 4], vec![3, 2], vec![1]));
    assert_eq!((&last["next"], &first["items"][0]["post"]["reply_to"]), (&Value::Null, &json!("100")));

    let newest = first["newest"].as_str().unwrap();
    let since = format!("{REPLIES}?after={newest}");
    assert_eq!(read(&server, &since), Vec::<u64>::new());
    publish(&server, &json!({"author": "eve", "id": "9", "body": 0, "reply_to": "100"}));
    assert_eq!(read(&server, &since), [9]);
    let short = server.get(&format!("{REPLIES}?limit=1&fields=ids")).json();
    assert_eq!(short["items"][0]["post"].as_object().unwrap().len(), 3, "{short}");
    assert_eq!(read(&server, "/v1/users/replies:100/posts"), [9, 5, 4, 3, 2, 1], "it is the page of a source");
    assert_eq!(server.get("/v1/users/replies:100").json()["posts"], 6);
}

#[test]
fn deleted_and_hidden_replies_and_replies_of_deleted_posts_are_not_listed() {
    let server = Server::start(EngineConfig::default());
    prepare(&server, &[("ann", 1), ("cas", 2)]);
    for (hidden, shown) in [(true, vec![1]), (false, vec![2, 1])] {
        server.json("PATCH", "/v1/posts/2", &json!({"hidden": hidden}));
        assert_eq!(read(&server, REPLIES), shown);
    }
    server.send("DELETE", "/v1/posts/1", None, "");
    assert_eq!(read(&server, REPLIES), [2]);
    publish(&server, &json!({"author": "cas", "id": "3", "body": 0, "reply_to": "101"}));
    for (path, status) in [
        // It has no reply.
        ("/v1/posts/2/replies", 200),
        // It has one, but is not known itself.
        ("/v1/posts/101/replies", 404),
        ("/v1/posts/100/replies?reader=a%20b", 400),
        ("/v1/posts/100/replies?sort=oldest", 400),
        ("/v1/posts/bob/replies", 400),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    publish(&server, &json!({"author": "dan", "id": "101", "body": 0}));
    assert_eq!(read(&server, "/v1/posts/101/replies"), [3], "it came after its reply");
    server.send("DELETE", "/v1/posts/100", None, "");
    assert_eq!(server.get(REPLIES).json()["code"], "unknown_post");
}

#[test]
fn the_list_of_replies_respects_mutes_and_blocks_of_the_reader() {
    let server = Server::guarded(EngineConfig::default(), access());
    let key = bearer(SERVER_KEY);
    let by_server = |method: &str, path: &str, body: Option<Value>| -> Answer {
        let mut headers = vec![("authorization", key.as_str())];
        headers.extend(body.as_ref().map(|_| ("content-type", "application/json")));
        server.ask(method, path, &headers, body.map_or(String::new(), |body| body.to_string()))
    };
    by_server("POST", "/v1/posts", Some(json!({"author": "bob", "id": "100", "body": 0})));
    for (author, id) in [("muted", 1), ("blocked", 2), ("blocker", 3), ("ann", 4), ("stranger", 5)] {
        let reply = json!({"author": author, "id": id.to_string(), "body": 0, "reply_to": "100"});
        by_server("POST", "/v1/posts?wait=delivered", Some(reply));
    }
    by_server("PUT", "/v1/users/ann/mutes/muted", None);
    by_server("PUT", "/v1/users/ann/blocks/blocked", None);
    by_server("PUT", "/v1/users/blocker/blocks/ann", None);
    by_server("PATCH", "/v1/users/ann/rules", Some(json!({"replies": "none", "show_own": false})));
    let ann = bearer(&tokens::token("ann"));
    let by_ann = |path: &str| server.ask("GET", path, &[("authorization", &ann)], "");
    let for_ann = format!("{REPLIES}?reader=ann");
    // The rules are about the home feed.
    assert_eq!(ids(&by_ann(REPLIES).json()), [5, 4]);
    assert_eq!(ids(&by_ann(&for_ann).json()), [5, 4]);
    assert_eq!(ids(&by_server("GET", &for_ann, None).json()), [5, 4]);
    assert_eq!(ids(&by_server("GET", REPLIES, None).json()), [5, 4, 3, 2, 1]);
    assert_eq!(ids(&by_server("GET", &format!("{REPLIES}?reader=nobody"), None).json()), [5, 4, 3, 2, 1]);
    assert_eq!(by_ann(&format!("{REPLIES}?reader=bob")).json()["code"], "forbidden");
    // A mute or a block of the replies keeps them out of the home feed, and not from who opens them.
    for how in ["mutes", "blocks"] {
        by_server("PUT", &format!("/v1/users/ann/{how}/replies:100"), None);
        assert_eq!(ids(&by_ann(REPLIES).json()), [5, 4], "{how}");
    }

    by_server("PUT", "/v1/users/bob/blocks/ann", None);
    assert_eq!(by_ann(REPLIES).json()["code"], "unknown_post", "she may not know of the post");
    assert_eq!(by_server("GET", REPLIES, None).status, 200);
    by_server("DELETE", "/v1/users/bob/blocks/ann", None);
    by_server("PATCH", "/v1/posts/100", Some(json!({"hidden": true})));
    assert_eq!(by_ann(REPLIES).status, 404);
    assert_eq!(by_server("GET", REPLIES, None).status, 200);
}

#[test]
fn followers_of_a_thread_receive_its_replies_by_any_author() {
    let server = Server::start(EngineConfig::default());
    prepare(&server, &[("cas", 1)]);
    let feed = "/v1/users/ann/feed";
    put(&server, "/v1/users/ann/following/replies:100");
    assert_eq!(read(&server, feed), [1], "also what was written before");
    publish(&server, &json!({"author": "dan", "id": "2", "body": 0, "reply_to": "100"}));
    let page = server.get(feed).json();
    assert_eq!((ids(&page), &page["items"][0]["via"]), (vec![2, 1], &json!(["replies:100"])));
    let explained = server.get("/v1/users/ann/feed/explain/2").json();
    assert_eq!(explained["reasons"], json!([{"kind": "follow", "source": "replies:100"}]), "{explained}");

    put(&server, "/v1/users/ann/mutes/replies:100");
    assert_eq!(read(&server, feed), Vec::<u64>::new());
    server.send("DELETE", "/v1/users/ann/mutes/replies:100", None, "");
    server.json("PATCH", "/v1/users/ann/rules", &json!({"replies": "none"}));
    assert_eq!(read(&server, feed), Vec::<u64>::new(), "who wants no replies gets none");
    server.json("PATCH", "/v1/users/ann/rules", &json!({"replies": "followed"}));
    assert_eq!(read(&server, feed), [2, 1]);
    server.send("DELETE", "/v1/users/ann/following/replies:100", None, "");
    assert_eq!(read(&server, feed), Vec::<u64>::new());

    put(&server, "/v1/users/ann/following/replies:100");
    for blocks in ["/v1/users/bob/blocks/ann", "/v1/users/ann/blocks/bob"] {
        put(&server, blocks);
        assert_eq!(read(&server, feed), Vec::<u64>::new(), "{blocks}");
        server.send("DELETE", blocks, None, "");
        assert_eq!(read(&server, feed), [2, 1]);
    }
    server.json("PATCH", "/v1/posts/100", &json!({"hidden": true}));
    assert_eq!(read(&server, feed), [2, 1], "what is hidden is the post, not what others say");
    server.send("DELETE", "/v1/posts/100", None, "");
    assert_eq!(read(&server, feed), [2, 1]);

    for source in ["replies:", "replies:bob", "replies:007"] {
        let refused = server.send("PUT", &format!("/v1/users/ann/following/{source}"), None, "");
        assert_eq!(refused.status, 400, "{source}: {}", refused.text);
        assert!(refused.text.contains("must continue with the id of a post"), "{}", refused.text);
    }
    let author = server.post("/v1/posts", &json!({"author": "replies:100", "body": 0}));
    assert_eq!(author.json()["code"], "not_a_user", "{}", author.text);
    let found = server.get("/v1/sources?prefix=replies:&kind=replies").json();
    assert_eq!((&found["items"][0]["id"], &found["items"][0]["kind"]), (&json!("replies:100"), &json!("replies")));
}

#[test]
fn replies_are_the_same_after_a_restart_in_memory_and_in_the_archive() {
    let directory = tempfile::tempdir().unwrap();
    let open = |directory: &Path| {
        let config = EngineConfig { outbox_posts: some(2), ..patient() };
        Server::of(Engine::open_directory(config, directory).unwrap())
    };
    let all: Vec<(String, u64)> = (1..=40).map(|id| (format!("u{}", id % 2), id)).collect();
    let all: Vec<(&str, u64)> = all.iter().map(|(author, id)| (author.as_str(), *id)).collect();
    let expected: Vec<u64> = (1..=40).rev().filter(|id| *id != 3 && *id != 39).collect();
    let server = open(directory.path());
    prepare(&server, &all);
    for id in [3, 39] {
        server.send("DELETE", &format!("/v1/posts/{id}"), None, "");
    }
    let read_all = |server: &Server| read(server, &format!("{REPLIES}?limit=100"));
    assert_eq!(read_all(&server), expected);
    let in_memory = || server.engine.shared().world.posts.len();
    assert!(in_memory() < 20, "{} of them have left memory", in_memory());
    let snapshot = server.send("POST", "/v1/snapshots", None, "");
    assert_eq!(snapshot.status, 201, "{}", snapshot.text);
    server.engine.shutdown();
    drop(server);
    let server = open(directory.path());
    assert_eq!(read_all(&server), expected);
    assert_eq!(server.get("/v1/users/replies:100").json()["posts"], 38);
    server.engine.shutdown();
}
