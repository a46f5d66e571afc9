//! All posts in pages: complete beside writers, in memory and in the archive, and an index that is built anew from them and the changes.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;

use crate::server::Server;
use testkit::world::{patient, some};

/// What an index has of each post.
type Index = BTreeMap<u64, (String, bool)>;

fn with_archive(directory: &Path) -> Server {
    let config = EngineConfig { outbox_posts: some(4), ..patient() };
    Server::of(Engine::open_directory(config, directory).unwrap())
}

fn publish(server: &Server, post: &Value) -> u64 {
    let answer = server.post("/v1/posts", post);
    assert!([200, 201].contains(&answer.status), "{}", answer.text);
    answer.json()["id"].as_str().unwrap().parse().unwrap()
}

fn page(server: &Server, query: &str) -> Value {
    let answer = server.get(&format!("/v1/posts/all?{query}"));
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

fn id(post: &Value) -> u64 {
    post["id"].as_str().unwrap().parse().unwrap()
}

fn put(index: &mut Index, post: &Value) {
    index.insert(id(post), (post["body"].to_string(), post["hidden"] == json!(true)));
}

/// Reads all pages, calls `between` after each, and returns what they have and their smallest sequence.
fn read_all(server: &Server, limit: usize, mut between: impl FnMut(usize)) -> (Index, u64) {
    let (mut index, mut after, mut sequence, mut count) = (Index::new(), String::new(), u64::MAX, 0);
    loop {
        let found = page(server, &format!("limit={limit}{after}"));
        let posts = found["posts"].as_array().unwrap();
        assert!(posts.len() <= limit && posts.is_sorted_by_key(id), "{found}");
        let largest = index.keys().next_back().copied();
        assert!(posts.first().is_none_or(|post| Some(id(post)) > largest), "each comes once");
        posts.iter().for_each(|post| put(&mut index, post));
        sequence = sequence.min(found["sequence"].as_u64().unwrap());
        assert_eq!((&found["complete"], &found["unreadable"]), (&json!(true), &json!([])));
        between(count);
        count += 1;
        match found["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return (index, sequence),
        }
    }
}

/// Applies the changes after a sequence, as docs/changes.md says.
fn follow(server: &Server, index: &mut Index, after: u64) {
    let answer = server.get(&format!("/v1/changes?after={after}&limit=100000"));
    assert_eq!(answer.status, 200, "{}", answer.text);
    for change in answer.text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        match change["type"].as_str().unwrap() {
            "published" => put(index, &change["post"]),
            "edited" => {
                if let Some((body, is_hidden)) = index.get_mut(&id(&change)) {
                    change.get("body").into_iter().for_each(|new| *body = new.to_string());
                    *is_hidden = change.get("hidden").map_or(*is_hidden, |new| *new == json!(true));
                }
            }
            "deleted" => drop(index.remove(&id(&change))),
            _ => {}
        }
    }
}

#[test]
fn pages_list_every_post_once_by_id_including_hidden_and_archived_ones() {
    let directory = tempfile::tempdir().unwrap();
    let server = with_archive(directory.path());
    let mut expected = Index::new();
    for nth in 0..60_u64 {
        // In no order, and of several authors.
        let number = nth * 7_919 % 1_009;
        let post = publish(&server, &json!({"author": format!("u{}", nth % 3), "body": nth, "id": number.to_string()}));
        expected.insert(post, (nth.to_string(), false));
    }
    let (hidden, deleted) = (*expected.keys().nth(5).unwrap(), *expected.keys().nth(9).unwrap());
    assert_eq!(server.json("PATCH", &format!("/v1/posts/{hidden}"), &json!({"hidden": true})).status, 200);
    expected.get_mut(&hidden).unwrap().1 = true;
    assert_eq!(server.ask("DELETE", &format!("/v1/posts/{deleted}"), &[], "").status, 204);
    expected.remove(&deleted);
    let origin = *expected.keys().nth(20).unwrap();
    let repost = publish(&server, &json!({"author": "u9", "body": null, "repost_of": origin.to_string()}));
    expected.insert(repost, ("null".to_owned(), false));
    publish(&server, &json!({"author": "zoe", "body": "of an erased user"}));
    assert_eq!(server.ask("DELETE", "/v1/users/zoe", &[], "").status, 202);
    assert_eq!(server.post("/v1/snapshots", &json!({})).status, 201);
    assert!(server.engine.shared().world.has_archived(), "most posts have left memory");
    for limit in [1, 7, 1_000] {
        let (found, _) = read_all(&server, limit, |_| ());
        assert_eq!(found, expected, "{limit} on a page");
    }
    assert_eq!(page(&server, "")["next"], Value::Null, "100 on a page unless it is said");
    assert_eq!(page(&server, &format!("after={}", u64::MAX))["posts"], json!([]));
}

#[test]
fn an_index_is_rebuilt_from_pages_and_changes_during_writes() {
    let directory = tempfile::tempdir().unwrap();
    let server = with_archive(directory.path());
    let mut known: Vec<u64> = Vec::new();
    let write = |nth: u64, known: &mut Vec<u64>| {
        known.push(publish(&server, &json!({"author": format!("u{}", nth % 5), "body": nth})));
        let one = known[(nth * 31 % known.len() as u64) as usize];
        match nth % 4 {
            0 => drop(server.json("PATCH", &format!("/v1/posts/{one}"), &json!({"body": format!("edited {nth}")}))),
            1 => drop(server.json("PATCH", &format!("/v1/posts/{one}"), &json!({"hidden": nth % 8 == 1}))),
            2 => drop(server.ask("DELETE", &format!("/v1/posts/{one}"), &[], "")),
            _ => {}
        }
    };
    (0..80).for_each(|nth| write(nth, &mut known));
    let mut nth = 80;
    let (mut index, sequence) = read_all(&server, 10, |_| {
        for _ in 0..5 {
            write(nth, &mut known);
            nth += 1;
        }
    });
    follow(&server, &mut index, sequence);
    let mut truth = Index::new();
    for id in &known {
        let answer = server.get(&format!("/v1/posts/{id}"));
        if answer.status == 200 {
            put(&mut truth, &answer.json());
        }
    }
    assert!(truth.len() > 40 && nth > 100, "{} posts, {nth} writes", truth.len());
    assert_eq!(index, truth);
}

#[test]
fn invalid_ids_and_limits_are_refused() {
    let server = Server::start(EngineConfig::default());
    for (query, field) in [
        ("after=x", "after"),
        ("after=-1", "after"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
    ] {
        let refused = server.get(&format!("/v1/posts/all?{query}"));
        assert_eq!((refused.status, &refused.json()["field"]), (400, &json!(field)), "{query}");
    }
    assert_eq!(page(&server, "limit=1000")["posts"], json!([]), "also without a data directory");
}
