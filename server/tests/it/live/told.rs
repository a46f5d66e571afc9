//! What live clients are told of what happens.

use serde_json::{Value, json};

use crate::live::client::{Client, Next};
use crate::server::Server;
use testkit::eventually_async;
use testkit::world::{above, config};

/// Ann follows bob, who published posts 1 to `posts`.
fn ann_and_bob(posts: u64) -> Server {
    let server = Server::start(config(2, above(5)));
    assert_eq!(server.json("PUT", "/v1/users/ann/following/bob", &json!({})).status, 201);
    (1..=posts).for_each(|id| publish(&server, "bob", id));
    server
}

fn publish(server: &Server, author: &str, id: u64) {
    post(server, &json!({"author": author, "id": id.to_string(), "body": {"n": id}}));
}

fn post(server: &Server, post: &Value) {
    let answer = server.post("/v1/posts?wait=delivered", post);
    assert_eq!(answer.status, 201, "{}", answer.text);
}

fn send(server: &Server, method: &str, path: &str) {
    let answer = server.send(method, path, None, "");
    assert!(answer.status < 300, "{method} {path}: {}", answer.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_entry_equals_the_entry_on_a_page() {
    let server = ann_and_bob(0);
    let mut client = Client::watch(server.address(), "ann").await;
    assert_eq!((&client.hello["seq"], &client.hello["recovered"]), (&json!(0), &json!(false)));
    post(&server, &json!({"author": "bob", "id": "7", "body": {"text": "höi\n"}, "tags": ["tea"]}));
    let message = client.message().await;
    let page = server.get("/v1/users/ann/feed").json();
    assert_eq!(message, json!({"type": "post", "seq": 1, "item": page["items"][0]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_for_batches_receives_arrays_and_resumes_within_one() {
    let server = ann_and_bob(0);
    let mut client = Client::open(server.address(), "/v1/users/ann/live?batch=true&unread=true").await;
    let hello = client.message().await[0].clone();
    assert_eq!(hello["type"], "hello");
    let posts: Vec<Value> =
        (1..=20).map(|id: u64| json!({"author": "bob", "id": id.to_string(), "body": {"n": id}})).collect();
    assert_eq!(server.post("/v1/posts/batch?wait=delivered", &json!({"posts": posts})).status, 200);
    let mut received = Vec::new();
    while received.len() < 20 {
        let batch = client.message().await;
        let batch = batch.as_array().expect("an array of messages").iter();
        received.extend(batch.filter(|message| message["type"] == "post").cloned());
    }
    let numbers: Vec<u64> = received.iter().map(|message| message["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
    drop(client);

    let path = format!("/v1/users/ann/live?batch=true&epoch={}&seq=15", hello["epoch"].as_str().unwrap());
    let mut client = Client::open(server.address(), &path).await;
    let mut missed = Vec::new();
    while missed.len() < 6 {
        missed.extend(client.message().await.as_array().expect("an array of messages").clone());
    }
    assert_eq!(missed[0]["recovered"], true);
    assert_eq!(missed[1..], received[15..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_a_feed_is_delivered_live() {
    let server = ann_and_bob(3);
    let edge = |source: &str| format!("/v1/users/ann/following/{source}");
    let put = |path: &str| assert!(server.json("PUT", path, &json!({})).status < 300);
    let patch = |path: &str, change: Value| assert_eq!(server.json("PATCH", path, &change).status, 200);
    let mut ann = Client::watch(server.address(), "ann").await;

    send(&server, "DELETE", "/v1/posts/3");
    assert_eq!(ann.told().await, "remove 3");
    patch("/v1/posts/2", json!({"hidden": true}));
    assert_eq!(ann.told().await, "remove 2");
    patch("/v1/posts/2", json!({"hidden": false}));
    assert_eq!(ann.told().await, "post 2");
    patch("/v1/posts/2", json!({"body": "other"}));
    let update = ann.message().await;
    assert_eq!((&update["type"], &update["post"]["body"]), (&json!("update"), &json!("other")));

    put("/v1/users/ann/mutes/bob");
    assert_eq!((ann.told().await, ann.told().await), ("remove 2".into(), "remove 1".into()));
    send(&server, "DELETE", "/v1/users/ann/mutes/bob");
    assert_eq!((ann.told().await, ann.told().await), ("post 1".into(), "post 2".into()), "the oldest first");
    send(&server, "DELETE", &edge("bob"));
    assert_eq!((ann.told().await, ann.told().await), ("remove 2".into(), "remove 1".into()));
    put(&edge("bob"));
    assert_eq!((ann.told().await, ann.told().await), ("post 1".into(), "post 2".into()));

    publish(&server, "ann", 20);
    assert_eq!(ann.told().await, "post 20", "her own");
    patch("/v1/users/ann/rules", json!({"show_own": false}));
    assert_eq!(ann.told().await, "remove 20");

    put(&edge("cas"));
    post(&server, &json!({"author": "cas", "id": "30", "body": 0, "repost_of": "1"}));
    let merged = ann.message().await;
    let item = &merged["item"];
    assert_eq!((&item["post"]["id"], &item["reposts"][0]["user"]), (&json!("1"), &json!("cas")));
    send(&server, "DELETE", "/v1/posts/30");
    let unmerged = ann.message().await;
    assert_eq!((&unmerged["item"]["post"]["id"], &unmerged["item"]["reposts"]), (&json!("1"), &json!([])));

    put("/v1/users/ann/blocks/bob");
    assert_eq!((ann.told().await, ann.told().await), ("remove 2".into(), "remove 1".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_of_a_post_kept_after_an_unfollow_is_delivered_live() {
    let server = ann_and_bob(2);
    send(&server, "DELETE", "/v1/users/ann/following/bob?keep=true");
    let mut client = Client::watch(server.address(), "ann").await;
    send(&server, "DELETE", "/v1/posts/1");
    assert_eq!(client.told().await, "remove 1");
    // The same if it comes to be so while she is watched.
    send(&server, "PUT", "/v1/users/ann/following/bob");
    send(&server, "DELETE", "/v1/users/ann/following/bob?keep=true");
    let edited = server.json("PATCH", "/v1/posts/2", &json!({"body": "other"}));
    assert_eq!((edited.status, client.told().await), (200, "update 2".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn pulled_posts_are_delivered_live() {
    let server = ann_and_bob(0);
    for fan in 0..10 {
        send(&server, "PUT", &format!("/v1/users/fan{fan}/following/bob"));
    }
    assert_eq!(server.get("/v1/users/bob").json()["celebrity"], true);
    let mut client = Client::watch(server.address(), "ann").await;
    publish(&server, "bob", 9);
    assert_eq!(client.told().await, "post 9");
    assert_eq!(server.get("/v1/stats").json()["deliveries"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_device_of_a_reader_receives_marker_changes() {
    let server = ann_and_bob(1);
    let mut devices = [Client::watch(server.address(), "ann").await, Client::watch(server.address(), "ann").await];
    assert_eq!(devices[0].hello["epoch"], devices[1].hello["epoch"]);
    let cursor = server.get("/v1/users/ann/feed").json()["items"][0]["cursor"].clone();
    assert_eq!(server.json("PUT", "/v1/users/ann/marker", &json!({"cursor": cursor})).status, 200);
    for device in &mut devices {
        assert_eq!(device.message().await, json!({"type": "marker", "seq": 1, "cursor": cursor}));
    }
    assert_eq!(Client::watch(server.address(), "ann").await.hello["marker"], cursor);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_reader_receives_later_posts() {
    let server = ann_and_bob(2);
    let mut stranger = Client::watch(server.address(), "zoe").await;
    send(&server, "PUT", "/v1/users/zoe/following/bob");
    assert_eq!((stranger.told().await, stranger.told().await), ("post 1".into(), "post 2".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_client_receives_exactly_the_missed_events() {
    let server = ann_and_bob(0);
    let mut client = Client::watch(server.address(), "ann").await;
    publish(&server, "bob", 1);
    assert_eq!(client.told().await, "post 1");
    let epoch = client.hello["epoch"].clone();
    drop(client);
    for id in 2..=4 {
        publish(&server, "bob", id);
    }
    send(&server, "DELETE", "/v1/posts/3");
    let mut back = Client::resume(server.address(), "ann", &epoch, 1).await;
    let expected = json!({"type": "hello", "epoch": epoch, "seq": 1, "recovered": true, "marker": null});
    let after_sequence = back.hello.as_object_mut().unwrap().remove("after_sequence");
    assert_eq!(back.hello, expected);
    assert_eq!(
        after_sequence.is_some(),
        std::env::var_os("TIDEWIRE_TEST_NODES").is_some(),
        "only a node of a cluster adds it"
    );
    let told = [back.told().await, back.told().await, back.told().await, back.told().await];
    assert_eq!(told, ["post 2", "remove 3", "post 4", "remove 3"]);
    publish(&server, "bob", 5);
    assert_eq!(back.message().await["seq"], 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_cannot_resume_must_reload() {
    let server = ann_and_bob(0);
    let mut client = Client::watch(server.address(), "ann").await;
    let epoch = client.hello["epoch"].clone();
    let history = server.engine.shared().config.live.history_changes as u64;
    for id in 1..=history + 1 {
        publish(&server, "bob", id);
    }
    // The stream has a post some time after it is accepted.
    for id in 1..=history + 1 {
        assert_eq!(client.told().await, format!("post {id}"));
    }
    let seq = json!(history + 1);
    for (epoch, from) in [(&epoch, 0), (&epoch, 10_000), (&json!("0123456789abcdef"), 5), (&json!("x"), 5)] {
        let back = Client::resume(server.address(), "ann", epoch, from).await;
        assert_eq!((&back.hello["recovered"], &back.hello["seq"]), (&json!(false), &seq), "{epoch} {from}");
    }
    assert_eq!(Client::resume(server.address(), "ann", &epoch, 1).await.hello["recovered"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_a_stream_is_dropped_after_its_ttl() {
    let linger = std::time::Duration::from_millis(50);
    let server = Server::start(tidewire::config::EngineConfig { live_history_ttl: linger, ..config(1, above(5)) });
    let client = Client::watch(server.address(), "ann").await;
    let live = || server.get("/v1/stats").json()["live"].clone();
    assert_eq!((&live()["connections"], &live()["readers"]), (&json!(1), &json!(1)));
    let epoch = client.hello["epoch"].clone();
    drop(client);
    eventually_async("the stream is forgotten", async || live()["readers"] == 0).await;
    assert_eq!(live()["connections"], 0);
    assert_eq!(Client::resume(server.address(), "ann", &epoch, 0).await.hello["recovered"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_closes_connections_with_1012() {
    let server = ann_and_bob(0);
    let mut clients = Vec::new();
    for reader in ["ann", "bob", "cas"] {
        clients.push(Client::watch(server.address(), reader).await);
    }
    server.engine.stop_live();
    for client in &mut clients {
        assert_eq!(client.next().await, Next::Closed(1012));
    }
    let refused = crate::live::client::open(server.address(), "/v1/users/ann/live").await.unwrap_err();
    assert!(refused.to_string().contains("503"), "{refused}");
}

/// It is an entry of its own where a repost named it whose author may not see it.
#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_a_repost_that_is_reposted_itself_is_delivered_live() {
    let server = ann_and_bob(1);
    assert_eq!(server.json("PUT", "/v1/users/eve/blocks/bob", &json!({})).status, 201);
    post(&server, &json!({"author": "bob", "id": "8", "body": 0, "repost_of": "28"}));
    let mut ann = Client::watch(server.address(), "ann").await;
    post(&server, &json!({"author": "eve", "id": "28", "body": "old", "repost_of": "1"}));
    assert_eq!(ann.told().await, "post 28");
    assert_eq!(server.json("PATCH", "/v1/posts/28", &json!({"body": "new"})).status, 200);
    publish(&server, "bob", 9);
    let update = ann.message().await;
    assert_eq!((&update["type"], &update["post"]["body"]), (&json!("update"), &json!("new")));
    assert_eq!(ann.told().await, "post 9");
    assert_eq!(server.get("/v1/users/ann/feed").json()["items"][1]["post"]["body"], "new");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_original_is_delivered_live_when_a_repost_arrives_after_its_own_reposts() {
    let server = ann_and_bob(0);
    post(&server, &json!({"author": "bob", "id": "3", "body": 0, "repost_of": "2"}));
    post(&server, &json!({"author": "eve", "id": "1", "body": "original"}));
    let mut ann = Client::watch(server.address(), "ann").await;
    post(&server, &json!({"author": "cas", "id": "2", "body": 0, "repost_of": "1"}));
    let message = ann.message().await;
    let page = server.get("/v1/users/ann/feed").json();
    assert_eq!((&message["type"], &message["item"]), (&json!("post"), &page["items"][0]));
    assert_eq!(
        (&message["item"]["post"]["body"], &message["item"]["reposts"][0]["user"]),
        (&json!("original"), &json!("bob"))
    );
}

/// By the rules an answer shows if its reader follows whom it answers, which is known only once that post is.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_to_an_unknown_post_is_delivered_live_when_its_parent_arrives() {
    let server = ann_and_bob(0);
    post(&server, &json!({"author": "bob", "id": "8", "body": 0, "reply_to": "28"}));
    let mut ann = Client::watch(server.address(), "ann").await;
    post(&server, &json!({"author": "ann", "id": "28", "body": 0}));
    let mut told = [ann.told().await, ann.told().await];
    told.sort();
    assert_eq!(told, ["post 28", "post 8"]);
}

/// Such an answer was forgotten by every client when it was deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_reply_is_not_removed_again_when_its_parent_arrives() {
    let server = ann_and_bob(0);
    post(&server, &json!({"author": "bob", "id": "8", "body": 0, "reply_to": "28"}));
    send(&server, "DELETE", "/v1/posts/8");
    let mut ann = Client::watch(server.address(), "ann").await;
    post(&server, &json!({"author": "ann", "id": "28", "body": 0}));
    publish(&server, "bob", 9);
    let mut first = ann.told().await;
    if std::env::var_os("TIDEWIRE_TEST_NODES").is_some() && first == "remove 8" {
        // The node of the connection had not read of the deletion when that began.
        first = ann.told().await;
    }
    assert_eq!([first, ann.told().await], ["post 28", "post 9"]);
}

/// The readers of so many answers are not looked up one by one: every watched reader compares its feed.
#[tokio::test(flavor = "multi_thread")]
async fn many_replies_to_an_unknown_post_are_delivered_or_force_a_reload() {
    let server = ann_and_bob(0);
    let answers = 100..166;
    for id in answers.clone() {
        post(&server, &json!({"author": "bob", "id": id.to_string(), "body": 0, "reply_to": "28"}));
    }
    let mut ann = Client::watch(server.address(), "ann").await;
    post(&server, &json!({"author": "ann", "id": "28", "body": 0}));
    let mut missing: std::collections::BTreeSet<String> = answers.map(|id| format!("post {id}")).collect();
    eventually_async("the answers are told, or that the feed is to be read again", async || {
        let told = ann.told().await;
        missing.remove(&told);
        missing.is_empty() || told.starts_with("stale")
    })
    .await;
}
