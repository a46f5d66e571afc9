//! The number of unread entries over a live connection.

use std::time::Instant;

use serde_json::{Value, json};
use testkit::{eventually_async, reached};

use crate::live::client::Client;
use crate::server::Server;
use testkit::world::{above, config};

/// Waits until the client is told this number, and returns how many messages of the kind came until then.
async fn told(client: &mut Client, unread: u64) -> u64 {
    let mut count = 0;
    eventually_async("the number of unread entries is told", async || {
        count += 1;
        reached(&next_unread(client).await["unread"], &json!(unread))
    })
    .await;
    count
}

async fn next_unread(client: &mut Client) -> Value {
    eventually_async("the number of unread entries is told", async || {
        Some(client.message().await).filter(|message| message["type"] == "unread")
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes 3 s, since the number is told at most once a second"]
async fn clients_that_request_it_receive_the_unread_count_at_most_once_a_second() {
    let server = Server::start(config(2, above(1_000)));
    assert_eq!(server.json("PUT", "/v1/users/ann/following/bob", &json!({})).status, 201);
    let began = Instant::now();
    let mut ann = Client::connect(server.address(), "/v1/users/ann/live?unread=true").await;
    assert_eq!(told(&mut ann, 0).await, 1, "the first number comes at once");
    for nth in 0..40 {
        assert_eq!(server.post("/v1/posts?wait=delivered", &json!({"author": "bob", "body": nth})).status, 201);
    }
    let count = told(&mut ann, 40).await;
    assert!(count <= began.elapsed().as_secs(), "{count} more messages in {:?}", began.elapsed());
    // It moves with the marker, by whichever way that is set.
    let newest = server.get("/v1/users/ann/feed").json()["newest"].clone();
    let marker = server.json("PUT", "/v1/users/ann/marker", &json!({"cursor": newest})).json();
    let message = next_unread(&mut ann).await;
    for field in ["unread", "capped", "complete"] {
        assert_eq!(message[field], marker[field], "{message}");
    }
    assert_eq!(message["unread"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_request_it_receive_no_unread_count() {
    let server = Server::start(config(2, above(1_000)));
    assert_eq!(server.json("PUT", "/v1/users/ann/following/bob", &json!({})).status, 201);
    let mut ann = Client::watch(server.address(), "ann").await;
    let mut asks = Client::connect(server.address(), "/v1/users/ann/live?unread=true").await;
    assert_eq!(told(&mut asks, 0).await, 1);
    for nth in 0..2 {
        assert_eq!(server.post("/v1/posts?wait=delivered", &json!({"author": "bob", "body": nth})).status, 201);
        assert_eq!(ann.message().await["type"], "post");
    }
    let refused = server.get("/v1/users/ann/events?unread=yes");
    assert_eq!((refused.status, &refused.json()["field"]), (400, &json!("unread")));
}
