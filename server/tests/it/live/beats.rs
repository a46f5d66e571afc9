//! Beats: how both ends know that the other is there.

use std::sync::Arc;
use std::time::Duration;
use testkit::{eventually_async, in_time};

use serde_json::{Value, json};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, Watcher};
use tidewire::feed::post::Draft;
use tidewire::live::event::{EventKind, LiveEntry};
use tokio::io::AsyncReadExt;

use crate::live::client::{Client, Next};
use crate::server::Server;
use testkit::world::{above, config, draft, edge, id, next_event};

fn beating() -> Server {
    Server::start(EngineConfig { live_heartbeat: Duration::from_millis(250), ..config(1, above(5)) })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_responding_client_receives_heartbeats_with_the_last_sequence() {
    let server = beating();
    assert_eq!(server.json("PUT", "/v1/users/ann/following/bob", &json!({})).status, 201);
    eventually_async("a client answers all the time", async || {
        let mut client = Client::watch(server.address(), "ann").await;
        let seq = client.hello["seq"].as_u64().unwrap();
        for _ in 0..6 {
            assert_eq!(next(&mut client).await?, json!({"type": "beat", "seq": seq}));
        }
        assert_eq!(server.post("/v1/posts", &json!({"author": "bob", "body": 1})).status, 201);
        in_time("the post comes", post(&mut client)).await?;
        assert_eq!(next(&mut client).await?, json!({"type": "beat", "seq": seq + 1}), "what came before it");
        Ok::<_, String>(())
    })
    .await;
}

/// The next message, unless the client was let go: on a busy machine it may not have answered in time.
async fn next(client: &mut Client) -> Result<Value, String> {
    match client.next().await {
        Next::Message(message) => Ok(message),
        Next::Closed(code) => Err(format!("it was let go with {code}")),
    }
}

async fn post(client: &mut Client) -> Result<(), String> {
    while next(client).await?["type"] != "post" {}
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_answer_pings_is_disconnected() {
    let server = beating();
    let mut client = Client::watch(server.address(), "ann").await;
    // Below the library, which would answer.
    let mut received = Vec::new();
    let ended = client.socket.get_mut().read_to_end(&mut received);
    in_time("it is closed", ended).await.unwrap();
    let away = 1001_u16.to_be_bytes();
    assert!(received.windows(4).any(|frame| frame[0] == 0x88 && frame[2..] == away), "{received:?}");
    assert_eq!(server.get("/v1/stats").json()["live"]["connections"], 0);
}

async fn next_item(watcher: &mut Watcher) -> Arc<LiveEntry> {
    let item = async {
        loop {
            if let EventKind::Post(item) = watcher.next().await.unwrap().kind {
                return item;
            }
        }
    };
    in_time("a post is told", item).await
}

#[tokio::test]
async fn followers_of_one_source_share_the_text_of_its_posts_and_of_its_reposts() {
    let engine = Engine::start(config(1, above(5)));
    engine.follow(vec![edge("ann", "bob"), edge("cas", "bob")]).await.unwrap();
    let (mut ann, mut cas) =
        (engine.watch(&id("ann"), None).await.unwrap(), engine.watch(&id("cas"), None).await.unwrap());
    let original = engine.publish(draft("dan", "1"), true).await.unwrap().post;
    let repost = Draft { repost_of: Some(original.id()), ..draft("bob", "2") };
    for published in [draft("bob", "3"), repost] {
        engine.publish(published, true).await.unwrap();
        assert!(Arc::ptr_eq(&next_item(&mut ann).await, &next_item(&mut cas).await));
    }
    engine.shutdown();
}

#[tokio::test]
async fn messages_waiting_for_clients_are_counted_in_bytes() {
    let engine = Engine::start(config(2, above(5)));
    let bytes = || engine.shared().watchers.waiting_bytes();
    engine.follow(vec![edge("ann", "bob"), edge("cas", "bob")]).await.unwrap();
    let mut watchers = [engine.watch(&id("ann"), None).await.unwrap(), engine.watch(&id("cas"), None).await.unwrap()];
    for watcher in &mut watchers {
        assert!(matches!(next_event(watcher).await.kind, EventKind::Hello { .. }));
    }
    assert_eq!(bytes(), 0);
    let body = "x".repeat(10_000);
    engine.publish(draft("bob", &format!("\"{body}\"")), true).await.unwrap();
    eventually_async("both messages wait", async || bytes() >= 2 * body.len()).await;
    let [mut ann, cas] = watchers;
    next_item(&mut ann).await;
    assert!((body.len()..2 * body.len()).contains(&bytes()), "one of two has taken it");
    drop(cas);
    assert_eq!(bytes(), 0);
    engine.shutdown();
}
