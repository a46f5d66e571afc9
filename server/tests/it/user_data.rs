//! All that is stored about one user.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;

use serde_json::{Value, json};
use testkit::histories::{open_before, storage};
use testkit::world::{draft, edge, patient, some};
use testkit::{eventually, eventually_async};
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::feed::event::NewEdge;
use tidewire::feed::post::Draft;
use tidewire::id::PostId;
use tidewire::limits::OPERATIONS_MAX;
use tidewire::storage::archive::faulty::{FaultyArchive, Plan};
use tidewire::storage::archive::{Archive, MemoryArchive};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::Durability;

use crate::server::{Answer, Server};

fn put(server: &Server, path: &str) {
    let answer = server.send("PUT", &format!("/v1/users/{path}"), None, "");
    assert_eq!(answer.status, 201, "{path}: {}", answer.text);
}

fn publish(server: &Server, post: &Value) -> Value {
    let answer = server.post("/v1/posts?wait=delivered", post);
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()
}

/// Sends a request that must succeed.
fn change(server: &Server, method: &str, path: &str, body: &Value) -> Answer {
    let answer = server.json(method, path, body);
    assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.text);
    answer
}

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

#[test]
fn user_data_includes_posts_follows_preferences_and_markers() {
    let server = Server::start(EngineConfig::default());
    for path in ["ann/following/bob", "ann/following/tag:Größe", "cas/following/ann", "dan/following/ann"] {
        put(&server, &path.replace("Größe", "Gr%C3%B6%C3%9Fe"));
    }
    change(&server, "PUT", "/v1/users/ann/following/spy", &json!({"hidden": true}));
    let theirs = publish(&server, &json!({"author": "eve", "body": "theirs"}));
    put(&server, "ann/following/eve");
    change(&server, "DELETE", "/v1/users/ann/following/eve?keep=true", &Value::Null);
    for path in
        ["mutes/tag:spam", "blocks/mal", "lists/near/members/bob", "lists/near/members/cas", "lists/far/members/dan"]
    {
        put(&server, &format!("ann/{path}"));
    }
    change(&server, "PATCH", "/v1/users/ann/rules", &json!({"per_source_max": 3}));
    let page = server.get("/v1/users/ann/feed").json();
    let cursor = &page["items"][0]["cursor"];
    change(&server, "PUT", "/v1/users/ann/marker", &json!({"cursor": cursor}));
    let own = publish(&server, &json!({"author": "ann", "body": "shown", "tags": ["a"], "topic": "b"}));
    let hidden = publish(&server, &json!({"author": "ann", "body": "hidden"}));
    let path = |post: &Value| format!("/v1/posts/{}", post["id"].as_str().unwrap());
    change(&server, "PATCH", &path(&hidden), &json!({"hidden": true}));
    let gone = publish(&server, &json!({"author": "ann", "body": "deleted"}));
    change(&server, "DELETE", &path(&gone), &Value::Null);
    let reply = publish(&server, &json!({"author": "ann", "body": "a reply", "reply_to": theirs["id"]}));
    let repost = publish(&server, &json!({"author": "ann", "body": 1, "repost_of": theirs["id"]}));
    let of_others = publish(&server, &json!({"author": "bob", "body": "an answer", "reply_to": own["id"]}));
    change(&server, "POST", "/v1/users/ann/revoke", &json!({"not_before": "2026-01-01T00:00:00Z"}));

    let data = server.get("/v1/users/ann/data").json();
    assert_eq!(data["user"], "ann");
    assert_eq!(ids(&data["following"]), ["tag:grösse", "bob"]);
    assert_eq!(data["following"], server.get("/v1/users/ann/following").json()["items"]);
    assert_eq!(ids(&data["hidden_following"]), ["spy"]);
    assert_eq!(ids(&data["followers"]), ["dan", "cas"]);
    assert_eq!((ids(&data["mutes"]), ids(&data["blocks"])), (vec!["tag:spam"], vec!["mal"]));
    let lists =
        data["lists"].as_array().unwrap().iter().map(|list| (list["name"].as_str().unwrap(), ids(&list["members"])));
    assert_eq!(lists.collect::<Vec<_>>(), [("far", vec!["dan"]), ("near", vec!["cas", "bob"])]);
    assert_eq!(data["rules"], server.get("/v1/users/ann/rules").json());
    assert_eq!((&data["marker"], &data["rules"]["per_source_max"]), (cursor, &json!(3)));
    assert_eq!(data["tokens_not_before"], "2026-01-01T00:00:00.000000Z");
    // Only the node that owns a user knows this.
    #[cfg(feature = "cluster")]
    let is_of_one_node = !crate::three_nodes::is_wanted();
    #[cfg(not(feature = "cluster"))]
    let is_of_one_node = true;
    assert!(!is_of_one_node || data["last_seen"].is_string(), "{data}");
    let kept = &data["kept"];
    assert_eq!((kept.as_array().unwrap().len(), &kept[0]["source"]), (1, &json!("eve")), "{kept}");
    assert_eq!((&kept[0]["hidden"], &kept[0]["published_from"]), (&json!(false), &Value::Null));
    assert!(kept[0]["published_until"].as_str().unwrap() >= theirs["published_at"].as_str().unwrap(), "{kept}");
    // As they are now, newest first, and nothing of others.
    let posts = [&repost, &reply, &hidden, &own].map(|post| server.get(&path(post)).json());
    assert_eq!(data["posts"], json!(posts));
    assert_eq!((&data["posts"][2]["hidden"], &data["unreadable"]), (&json!(true), &json!([])));
    assert!(!server.get("/v1/users/ann/data").text.contains(of_others["id"].as_str().unwrap()));
}

#[test]
fn users_without_data_are_unknown_and_a_revocation_counts_as_data() {
    let server = Server::start(EngineConfig::default());
    publish(&server, &json!({"author": "ann", "body": 1, "tags": ["tea"]}));
    for (user, code) in [("nobody", "unknown_source"), ("tag:tea", "unknown_source"), ("a%20b", "invalid_path")] {
        let refused = server.get(&format!("/v1/users/{user}/data"));
        assert_eq!(refused.json()["code"], code, "{user}");
    }
    change(&server, "POST", "/v1/users/zoe/revoke", &json!({"not_before": "2026-01-01T00:00:00Z"}));
    let data = server.get("/v1/users/zoe/data").json();
    assert_eq!((&data["tokens_not_before"], &data["posts"]), (&json!("2026-01-01T00:00:00.000000Z"), &json!([])));
    assert_eq!(server.send("DELETE", "/v1/users/ann", None, "").status, 202);
    assert_eq!(server.get("/v1/users/ann/data").status, 404, "at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn user_data_has_each_follower_and_each_post_exactly_once() {
    const MANY: u64 = 2_500;
    let directory = tempfile::tempdir().unwrap();
    let config = EngineConfig { outbox_posts: some(2), ..patient() };
    let server = Server::of(Engine::open_directory(config, directory.path()).unwrap());
    let engine = &server.engine;
    engine.follow((0..MANY).map(|nth| edge(&format!("u{nth}"), "ann")).collect()).await.unwrap();
    // Two full pages of followed sources, and nobody after them.
    let followed = |nth| NewEdge { hidden: nth < 1_000, ..edge("ann", &format!("s{nth}")) };
    engine.follow((0..2_000).map(followed).collect()).await.unwrap();
    let drafts = (1..=MANY).map(|nth| Draft { id: Some(PostId(nth)), ..draft("ann", &nth.to_string()) });
    for draft in drafts {
        engine.publish(draft, false).await.unwrap();
    }
    for nth in (1..=MANY).step_by(100) {
        engine.edit(PostId(nth), None, Some(true)).await.unwrap();
        engine.delete(PostId(nth + 1)).await.unwrap();
    }
    eventually_async("old posts leave memory", async || engine.shared().world.posts.len() < 100).await;
    let data = server.get("/v1/users/ann/data").json();
    let expected = |prefix: &str, of: Range<u64>| of.rev().map(|nth| format!("{prefix}{nth}")).collect::<Vec<_>>();
    assert_eq!(ids(&data["followers"]), expected("u", 0..MANY));
    assert_eq!(ids(&data["hidden_following"]), expected("s", 0..1_000));
    assert_eq!(ids(&data["following"]), expected("s", 1_000..2_000));
    let live = (1..=MANY).rev().filter(|nth| nth % 100 != 2).map(|nth| nth.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(&data["posts"]), live);
}

/// Begins to read all data of ann, and returns the connection after the status.
fn begin(server: &Server, method: &str) -> (TcpStream, String) {
    let mut stream = testkit::connect(server.address());
    write!(stream, "{method} /v1/users/ann/data HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut beginning = [0; 12];
    stream.read_exact(&mut beginning).unwrap();
    (stream, String::from_utf8(beginning.to_vec()).unwrap())
}

/// A server with posts of ann that are more than what sockets hold.
async fn with_many_posts() -> Server {
    let engine = Engine::start(EngineConfig::default());
    let text = format!("\"{}\"", "x".repeat(60_000));
    for _ in 0..400 {
        engine.publish(draft("ann", &text), false).await.unwrap();
    }
    Server::of(engine)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_download_of_user_data_blocks_no_operation_and_releases_its_memory() {
    let server = with_many_posts().await;
    let reserved = || server.get("/v1/stats").json()["admission"]["response_bytes"]["under_way"].as_u64().unwrap();
    let slow: Vec<_> = (0..=OPERATIONS_MAX).map(|_| begin(&server, "GET")).collect();
    assert!(slow.iter().all(|(_, status)| status == "HTTP/1.1 200"));
    assert!(reserved() > OPERATIONS_MAX as u64 * 100_000, "{}", reserved());
    drop(slow);
    eventually("nothing is reserved", || reserved() == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_request_reads_no_user_data_and_an_erasure_truncates_the_download() {
    let server = with_many_posts().await;
    let (mut stream, status) = begin(&server, "HEAD");
    assert_eq!(status, "HTTP/1.1 200");
    write!(stream, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    let head = rest.split_once("\r\n\r\n").unwrap().0.to_lowercase();
    assert!(!head.contains("content-length"), "GET has another length: {head}");
    assert!(!rest.contains("\"posts\"") && rest.contains("HTTP/1.1 200"), "{rest}");
    let (mut stream, _) = begin(&server, "GET");
    assert_eq!(server.send("DELETE", "/v1/users/ann", None, "").status, 202);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.contains("\"posts\":[{") && !answer.contains("unreadable"), "{} bytes", answer.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_posts_are_named_and_an_archive_failure_truncates_the_download() {
    let archive = Arc::new(FaultyArchive::<MemoryArchive>::default());
    let of_engine = Arc::clone(&archive) as Arc<dyn Archive>;
    let config = EngineConfig { outbox_posts: some(2), ..patient() };
    let storage = storage(Durability::Always, 1 << 20);
    let engine = open_before(config, MemoryFiles::default(), Some(&of_engine), &storage, Arc::new(SystemClock));
    let server = Server::of(engine.unwrap().0);
    // The engine returns two pages of these posts, and the first page fills a piece of the answer.
    for nth in 1..=150 {
        let draft = draft("ann", &format!("\"{}\"", "x".repeat(1_000)));
        server.engine.publish(Draft { id: Some(PostId(nth)), ..draft }, false).await.unwrap();
    }
    eventually("old posts leave memory", || server.engine.shared().world.posts.len() <= 8);
    for plan in [
        Plan { lost_post: Some(PostId(7)), ..Plan::default() },
        Plan { damaged_post: Some(PostId(7)), ..Plan::default() },
    ] {
        archive.set_plan(plan);
        let data = server.get("/v1/users/ann/data").json();
        assert_eq!((ids(&data["posts"]).len(), &data["unreadable"]), (149, &json!(["7"])));
    }
    archive.set_plan(Plan { fail_copies: 1..u64::MAX, is_temporary: true, ..Plan::default() });
    let refused = server.get("/v1/users/ann/data");
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("archive_unavailable")));
    archive.set_plan(Plan { fail_copies: 2..u64::MAX, ..Plan::default() });
    let mut stream = testkit::connect(server.address());
    stream.write_all(b"GET /v1/users/ann/data HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // To the end of the connection, which may be reset.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\"posts\":[{"), "{answer}");
    assert!(!answer.ends_with("0\r\n\r\n") && !answer.contains("unreadable"), "{answer}");
}
