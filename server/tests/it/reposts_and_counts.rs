//! The list of a post's reposts, and how many replies and reposts posts have: in pages, for whom, after a restart.

use std::path::Path;

use serde_json::{Value, json};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;

use crate::access::tokens::{self, SERVER_KEY, access, bearer};
use crate::server::{Answer, Server};
use testkit::world::{patient, some};

const POST: &str = "/v1/posts/100";
const REPOSTS: &str = "/v1/posts/100/reposts";

fn publish(server: &Server, post: &Value) {
    let answer = server.post("/v1/posts?wait=delivered", post);
    assert_eq!(answer.status, 201, "{}", answer.text);
}

fn repost(server: &Server, author: &str, id: u64) {
    publish(server, &json!({"author": author, "id": id.to_string(), "body": 0, "repost_of": "100", "tags": ["tea"]}));
}

fn reply(server: &Server, author: &str, id: u64) {
    publish(server, &json!({"author": author, "id": id.to_string(), "body": 0, "reply_to": "100"}));
}

fn hide(server: &Server, id: u64, hidden: bool) {
    let answer = server.json("PATCH", &format!("/v1/posts/{id}"), &json!({"hidden": hidden}));
    assert_eq!(answer.status, 200, "{}", answer.text);
}

fn delete(server: &Server, id: u64) {
    assert_eq!(server.send("DELETE", &format!("/v1/posts/{id}"), None, "").status, 204);
}

fn posts(page: &Value) -> Vec<u64> {
    let items = page["items"].as_array().unwrap_or_else(|| panic!("{page}"));
    items.iter().map(|item| item["post"].as_str().unwrap().parse().unwrap()).collect()
}

/// The replies and the reposts of post 100.
fn counts(server: &Server) -> (u64, u64) {
    let post = server.get(&format!("{POST}?fields=counts")).json();
    (post["counts"]["replies"].as_u64().unwrap(), post["counts"]["reposts"].as_u64().unwrap())
}

#[test]
fn reposts_of_a_post_are_paged_newest_first() {
    let server = Server::start(EngineConfig::default());
    publish(&server, &json!({"author": "bob", "id": "100", "body": 0}));
    assert_eq!(server.get(REPOSTS).json(), json!({"items": [], "next": null}));
    for (author, id) in [("ann", 1), ("cas", 2), ("ann", 3), ("dan", 4), ("eve", 5)] {
        repost(&server, author, id);
    }
    // A repost of a repost is one of the original.
    publish(&server, &json!({"author": "fay", "id": "6", "body": 0, "repost_of": "5"}));
    hide(&server, 4, true);
    delete(&server, 2);
    let first = server.get(&format!("{REPOSTS}?limit=2")).json();
    let next = first["next"].as_str().unwrap();
    let second = server.get(&format!("{REPOSTS}?limit=2&before={next}")).json();
    assert_eq!((posts(&first), posts(&second), &second["next"]), (vec![6, 5], vec![3, 1], &Value::Null));
    let (item, post) = (&first["items"][1], server.get("/v1/posts/5").json());
    let expected = json!({"user": "eve", "at": post["published_at"], "post": "5", "cursor": item["cursor"]});
    assert_eq!((item, next), (&expected, item["cursor"].as_str().unwrap()));
    hide(&server, 4, false);
    assert_eq!(posts(&server.get(REPOSTS).json()), [6, 5, 4, 3, 1]);
    for (path, status) in [
        ("/v1/posts/101/reposts", 404),
        ("/v1/posts/bob/reposts", 400),
        ("/v1/posts/100/reposts?before=?", 400),
        ("/v1/posts/100/reposts?limit=0", 400),
        ("/v1/posts/100/reposts?fields=ids", 400),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    delete(&server, 100);
    assert_eq!(server.get(REPOSTS).json()["code"], "unknown_post");
}

#[test]
fn the_list_of_reposts_respects_mutes_and_blocks_of_the_reader() {
    let server = Server::guarded(EngineConfig::default(), access());
    let key = bearer(SERVER_KEY);
    let by_server = |method: &str, path: &str, body: Option<Value>| -> Answer {
        let mut headers = vec![("authorization", key.as_str())];
        headers.extend(body.as_ref().map(|_| ("content-type", "application/json")));
        server.ask(method, path, &headers, body.map_or(String::new(), |body| body.to_string()))
    };
    by_server("POST", "/v1/posts", Some(json!({"author": "bob", "id": "100", "body": 0})));
    let authors = [("muted", "a"), ("blocked", "a"), ("blocker", "a"), ("ann", "a"), ("stranger", "a"), ("tom", "tea")];
    for (id, (author, tag)) in (1..).zip(authors) {
        let repost = json!({"author": author, "id": id.to_string(), "body": 0, "repost_of": "100", "tags": [tag]});
        by_server("POST", "/v1/posts?wait=delivered", Some(repost));
    }
    by_server("PUT", "/v1/users/ann/mutes/muted", None);
    by_server("PUT", "/v1/users/ann/mutes/tag:tea", None);
    by_server("PUT", "/v1/users/ann/blocks/blocked", None);
    by_server("PUT", "/v1/users/blocker/blocks/ann", None);
    by_server("PATCH", "/v1/users/ann/rules", Some(json!({"reposts": false, "show_own": false})));
    let ann = bearer(&tokens::token("ann"));
    let by_ann = |path: &str| server.ask("GET", path, &[("authorization", &ann)], "");
    let for_ann = format!("{REPOSTS}?reader=ann");
    // The rules are about the home feed.
    assert_eq!(posts(&by_ann(REPOSTS).json()), [5, 4]);
    assert_eq!(posts(&by_server("GET", &for_ann, None).json()), [5, 4]);
    assert_eq!(posts(&by_server("GET", REPOSTS, None).json()), [6, 5, 4, 3, 2, 1]);
    assert_eq!(posts(&by_server("GET", &format!("{REPOSTS}?reader=nobody"), None).json()), [6, 5, 4, 3, 2, 1]);
    assert_eq!(by_ann(&format!("{REPOSTS}?reader=bob")).json()["code"], "forbidden");

    by_server("PUT", "/v1/users/bob/blocks/ann", None);
    assert_eq!(by_ann(REPOSTS).json()["code"], "unknown_post", "she may not know of the post");
    by_server("DELETE", "/v1/users/bob/blocks/ann", None);
    by_server("PATCH", POST, Some(json!({"hidden": true})));
    assert_eq!(by_ann(REPOSTS).status, 404);
    assert_eq!(by_server("GET", REPOSTS, None).status, 200);
}

#[test]
fn posts_include_counts_on_request_in_every_response() {
    let server = Server::start(EngineConfig::default());
    publish(&server, &json!({"author": "bob", "id": "100", "body": {"text": "hello"}, "reply_to": "99"}));
    publish(&server, &json!({"author": "bob", "id": "99", "body": 0}));
    for id in [1, 2, 3] {
        reply(&server, "cas", id);
    }
    repost(&server, "dan", 4);
    server.send("PUT", "/v1/users/ann/following/bob", None, "");
    server.send("PUT", "/v1/users/ann/lists/near/members/bob", None, "");
    server.json("PATCH", "/v1/users/ann/rules", &json!({"replies": "all"}));
    let of_many = |fields: &str| {
        let answer = server.post("/v1/feeds", &json!({"users": ["ann"], "fields": fields}));
        answer.json()["feeds"][0]["items"][1]["post"].clone()
    };
    let of_page = |path: &str, fields: &str| {
        let page = server.get(&format!("{path}?fields={fields}")).json();
        let posts = page["items"].as_array().unwrap_or_else(|| panic!("{path}: {page}")).iter();
        posts.map(|item| &item["post"]).find(|post| post["id"] == "100").unwrap().clone()
    };
    let of_ids = |fields: &str| server.get(&format!("/v1/posts?ids=7,100&fields={fields}")).json()["posts"][0].clone();
    let expected = json!({"replies": 3, "reposts": 1});
    let mut whole = server.get(POST).json();
    assert_eq!(whole.get("counts"), None, "not without asking");
    whole["counts"] = expected.clone();
    let short = json!({"id": "100", "author": "bob", "published_at": whole["published_at"], "counts": expected});
    for (fields, expected) in [("counts", &whole), ("ids,counts", &short), ("counts,ids", &short)] {
        assert_eq!(&server.get(&format!("{POST}?fields={fields}")).json(), expected);
        for path in
            ["/v1/users/ann/feed", "/v1/users/bob/posts", "/v1/users/ann/lists/near/feed", "/v1/posts/99/replies"]
        {
            assert_eq!(&of_page(path, fields), expected, "{path} {fields}");
        }
        assert_eq!((&of_ids(fields), &of_many(fields)), (expected, expected), "{fields}");
    }
    assert_eq!(of_page("/v1/users/ann/feed", "ids").get("counts"), None);
    for fields in ["", "count", "ids,", "counts,counts", "ids,ids", "ids counts"] {
        for path in [POST, "/v1/posts?ids=1", "/v1/users/ann/feed", "/v1/posts/99/replies"] {
            let sign = if path.contains('?') { '&' } else { '?' };
            let refused = server.get(&format!("{path}{sign}fields={}", fields.replace(' ', "%20")));
            assert_eq!((refused.status, &refused.json()["field"]), (400, &json!("fields")), "{path} {fields:?}");
        }
        assert_eq!(server.post("/v1/feeds", &json!({"users": [], "fields": fields})).status, 400, "{fields:?}");
    }
}

#[test]
fn etags_depend_on_counts() {
    let server = Server::start(EngineConfig::default());
    publish(&server, &json!({"author": "bob", "id": "100", "body": 0}));
    server.send("PUT", "/v1/users/ann/following/bob", None, "");
    let paths = ["/v1/users/ann/feed", "/v1/users/bob/posts", POST];
    let tags = |fields: &str| paths.map(|path| server.get(&format!("{path}{fields}")).header("etag").to_owned());
    let (with, without) = (tags("?fields=counts"), tags(""));
    reply(&server, "cas", 1);
    for (path, (with, without)) in paths.iter().zip(with.iter().zip(&without)) {
        let status = |path: &str, tag: &str| server.ask("GET", path, &[("if-none-match", tag)], "").status;
        assert_eq!(status(&format!("{path}?fields=counts"), with), 200, "{path}");
        // A reply elsewhere may change the token of a page, but not the post.
        assert!(*path != POST || status(path, without) == 304);
    }
    let (with, list) = (tags("?fields=counts"), server.get(REPOSTS).header("etag").to_owned());
    for (path, with) in paths.iter().zip(&with) {
        let again = server.ask("GET", &format!("{path}?fields=counts"), &[("if-none-match", with)], "");
        assert_eq!(again.status, 304, "{path}");
    }
    assert_eq!(server.ask("GET", REPOSTS, &[("if-none-match", &list)], "").status, 304);
    repost(&server, "dan", 2);
    assert_eq!(server.ask("GET", REPOSTS, &[("if-none-match", &list)], "").status, 200);
}

#[test]
fn counts_reflect_deletions_undone_reposts_hiding_and_erasures() {
    let server = Server::start(EngineConfig::default());
    publish(&server, &json!({"author": "bob", "id": "100", "body": 0}));
    for id in [1, 2, 3] {
        reply(&server, "cas", id);
        repost(&server, "dan", 10 + id);
        assert_eq!(counts(&server), (id, id));
    }
    // It repeats a post, so it is not a reply.
    publish(&server, &json!({"author": "eve", "id": "20", "body": 0, "repost_of": "2", "reply_to": "100"}));
    delete(&server, 1);
    delete(&server, 11);
    assert_eq!(counts(&server), (2, 2));
    for _ in 0..2 {
        [2, 12].into_iter().for_each(|id| hide(&server, id, true));
        assert_eq!(counts(&server), (1, 1));
    }
    delete(&server, 2);
    delete(&server, 2);
    assert_eq!(counts(&server), (1, 1), "it did not count before");
    for _ in 0..2 {
        hide(&server, 12, false);
        assert_eq!(counts(&server), (1, 2));
    }
    for (user, expected) in [("cas", (0, 2)), ("dan", (0, 0))] {
        server.send("DELETE", &format!("/v1/users/{user}"), None, "");
        testkit::eventually(&format!("{user} is erased"), || counts(&server) == expected);
    }
    assert_eq!(posts(&server.get(REPOSTS).json()), Vec::<u64>::new());
}

#[test]
fn counts_are_the_same_after_a_restart_in_memory_and_in_the_archive() {
    let directory = tempfile::tempdir().unwrap();
    let open = |directory: &Path| {
        let config = EngineConfig { outbox_posts: some(2), ..patient() };
        Server::of(Engine::open_directory(config, directory).unwrap())
    };
    let server = open(directory.path());
    publish(&server, &json!({"author": "bob", "id": "100", "body": 0}));
    for id in 1..=40 {
        reply(&server, &format!("u{}", id % 2), id);
    }
    for id in 41..=80 {
        repost(&server, &format!("u{}", id % 2), id);
    }
    // The first of each pair is in the archive.
    [2, 39, 42, 79].into_iter().for_each(|id| delete(&server, id));
    [3, 4, 38, 43, 44, 78].into_iter().for_each(|id| hide(&server, id, true));
    assert_eq!(counts(&server), (35, 35));
    assert_eq!(server.post("/v1/snapshots", &json!({})).status, 201);
    [3, 43].into_iter().for_each(|id| delete(&server, id));
    [4, 44].into_iter().for_each(|id| hide(&server, id, false));
    [5, 37, 45, 77].into_iter().for_each(|id| hide(&server, id, true));
    // The archive gets the deletions with these: then it is newer than the snapshot.
    for id in 201..=240 {
        publish(&server, &json!({"author": "u1", "id": id.to_string(), "body": 0}));
    }
    let (read, listed) = ((34, 34), posts(&server.get(&format!("{REPOSTS}?limit=100")).json()));
    assert_eq!((counts(&server), listed.len()), (read, 34));
    server.engine.shutdown();
    drop(server);
    for _ in 0..2 {
        let server = open(directory.path());
        assert_eq!(counts(&server), read);
        assert_eq!(posts(&server.get(&format!("{REPOSTS}?limit=100")).json()), listed);
        let replies = server.get("/v1/posts/100/replies?limit=100").json();
        assert_eq!(replies["items"].as_array().unwrap().len(), 34);
        server.engine.shutdown();
    }
}
