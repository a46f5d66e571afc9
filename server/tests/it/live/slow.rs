//! Clients that stop reading.

use serde_json::{Value, json};
use testkit::{eventually_async, reached};

use crate::live::client::{Client, Next};
use crate::server::Server;
use testkit::world::{above, config};

/// A body of some 60 KB.
fn large() -> Value {
    json!("x".repeat(60_000))
}

/// Many that stop reading, each of which is cut off with a code, and resumes; one beside them who is told all in time.
#[tokio::test(flavor = "multi_thread")]
async fn stalled_clients_are_cut_off_and_can_resume_without_affecting_others() {
    const STALLED: usize = 20;
    let server = Server::start(config(2, above(1_000)));
    let mut stalled = Vec::new();
    for nth in 0..STALLED {
        let (reader, address) = (format!("slow{nth}"), server.address());
        assert_eq!(server.json("PUT", &format!("/v1/users/{reader}/following/bob"), &json!({})).status, 201);
        let client = Client::with_small_buffers(address, &reader).await;
        stalled.push((reader, client));
    }
    assert_eq!(server.json("PUT", "/v1/users/ann/following/bob", &json!({})).status, 201);
    let mut ann = Client::watch(server.address(), "ann").await;
    let (mut posts, live) = (0, |what: &str| server.get("/v1/stats").json()["live"][what].clone());
    // A client has some time to take something of a burst.
    eventually_async("those who stop reading are cut off", async || {
        let post = json!({"author": "bob", "body": large()});
        assert_eq!(server.post("/v1/posts?wait=delivered", &post).status, 201);
        assert_eq!(ann.message().await["type"], "post");
        posts += 1;
        if posts < 60 { Err(format!("{posts} posts")) } else { reached(&live("cut_off"), &json!(STALLED)) }
    })
    .await;
    for (reader, mut client) in stalled {
        // What was on its way arrives, without a gap, and then the reason.
        let (epoch, mut last) = (client.hello["epoch"].clone(), 0);
        let code = loop {
            match client.next().await {
                Next::Message(message) => {
                    assert_eq!(message["seq"], last + 1);
                    last += 1;
                }
                Next::Closed(code) => break code,
            }
        };
        assert_eq!(code, 4008);
        assert!(last < posts, "{last} of {posts} arrived");
        drop(client);
        // So much is missing that the feed is read again, or all of it follows.
        let mut back = Client::resume(server.address(), &reader, &epoch, last).await;
        if back.hello["recovered"] == true {
            for seq in last + 1..=posts {
                assert_eq!(back.message().await["seq"], seq);
            }
        }
    }
    eventually_async("all others are gone", async || reached(&live("connections"), &json!(1))).await;
}
