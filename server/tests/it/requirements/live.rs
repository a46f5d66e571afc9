//! Live connections: no gap goes unnoticed, and nobody waits for a slow one.

use serde_json::{Value, json};
use testkit::eventually_async;
use tidewire::config::EngineConfig;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::stream::StreamLimits;

use super::feed;
use crate::live::client::{Client, Next};
use crate::personal::{bodies, follow, publish};
use crate::server::Server;
use testkit::world::config;

#[tokio::test(flavor = "multi_thread")]
async fn n1_a_returning_live_client_receives_the_missing_suffix_or_must_refetch() {
    let live = StreamLimits { history_changes: 5, ..StreamLimits::default() };
    let server = Server::start(EngineConfig { live, ..config(2, CelebrityPolicy::PushAll) });
    follow(&server, "ann", "bob");
    let mut client = Client::watch(server.address(), "ann").await;
    let epoch = client.hello["epoch"].clone();
    for seq in 1..=3 {
        publish(&server, "bob", seq, &json!({}));
        let message = client.message().await;
        assert_eq!((&message["seq"], &message["item"]["post"]["body"]), (&json!(seq), &json!(seq)));
    }
    drop(client);
    (4..=6).for_each(|seq| drop(publish(&server, "bob", seq, &json!({}))));
    let mut back = Client::resume(server.address(), "ann", &epoch, 3).await;
    assert_eq!((&back.hello["recovered"], &back.hello["epoch"]), (&json!(true), &epoch));
    for seq in 4..=6 {
        let message = back.message().await;
        assert_eq!((&message["seq"], &message["item"]["post"]["body"]), (&json!(seq), &json!(seq)));
    }
    publish(&server, "bob", 7, &json!({}));
    assert_eq!(back.message().await["seq"], json!(7), "and goes on without a break");
    drop(back);
    // More than is remembered, and what was never an epoch.
    (8..=20).for_each(|seq| drop(publish(&server, "bob", seq, &json!({}))));
    for (epoch, seq) in [(&epoch, 7), (&json!("0123456789abcdef"), 20)] {
        let lost = Client::resume(server.address(), "ann", epoch, seq).await;
        assert_eq!(lost.hello["recovered"], json!(false), "{}", lost.hello);
    }
    assert_eq!(bodies(&server, &feed("ann")), (1..=20).rev().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn n2_a_slow_client_is_cut_off_with_a_code_and_delays_no_other() {
    let server = Server::start(config(1, CelebrityPolicy::PushAll));
    for reader in ["slow", "ann"] {
        follow(&server, reader, "bob");
    }
    let mut slow = Client::with_small_buffers(server.address(), "slow").await;
    let mut ann = Client::watch(server.address(), "ann").await;
    let large: Value = json!("x".repeat(60_000));
    let mut count = 0;
    // A client has some time to take something of a burst.
    eventually_async("the slow client is cut off", async || {
        count += 1;
        assert_eq!(server.post("/v1/posts?wait=delivered", &json!({"author": "bob", "body": large})).status, 201);
        assert_eq!(ann.message().await["seq"], json!(count), "the other gets all of it at once");
        server.get("/v1/stats").json()["live"]["cut_off"] == json!(1)
    })
    .await;
    let epoch = slow.hello["epoch"].clone();
    let mut last = 0;
    let code = loop {
        match slow.next().await {
            Next::Message(message) => {
                assert_eq!(message["seq"], json!(last + 1), "without a gap up to the end");
                last += 1;
            }
            Next::Closed(code) => break code,
        }
    };
    assert_eq!(code, 4008);
    assert!(last < count, "{last} of {count} arrived");
    let back = Client::resume(server.address(), "slow", &epoch, last).await;
    assert!(back.hello["recovered"].is_boolean(), "it resumes later: {}", back.hello);
}
