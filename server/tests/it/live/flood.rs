//! More than can be told one by one, and many who take nothing of it.

use futures_util::future::join_all;
use serde_json::json;
use testkit::{eventually_async, reached};
use tidewire::feed::post::Body;
use tidewire::limits::LIVE_NOTICES_MAX;

use crate::live::client::{Client, Next};
use crate::live::feed_client::FeedClient;
use crate::server::Server;
use testkit::world::{above, config, draft, edge};

#[tokio::test(flavor = "multi_thread")]
async fn clients_converge_to_their_pages_after_many_concurrent_changes() {
    let server = Server::start(config(1, above(5)));
    let engine = &server.engine;
    engine.follow(vec![edge("ann", "bob"), edge("ann", "cas")]).await.unwrap();
    let mut clients = [FeedClient::new("ann"), FeedClient::new("ann")];
    join_all(clients.iter_mut().map(|client| client.come(server.address()))).await;
    for _ in 0..3 {
        let publish = |nth: usize| {
            let (engine, author) = (engine.clone(), ["bob", "cas"][nth % 2]);
            tokio::spawn(async move {
                let post = engine.publish(draft(author, &nth.to_string()), false).await.unwrap().post.id();
                match nth % 4 {
                    0 => engine.delete(post).await.unwrap(),
                    1 => drop(engine.edit(post, Some(Body::new("\"other\"").unwrap()), None).await.unwrap()),
                    2 => drop(engine.edit(post, None, Some(true)).await.unwrap()),
                    _ => {}
                }
            })
        };
        for done in join_all((0..2 * LIVE_NOTICES_MAX).map(publish)).await {
            done.unwrap();
        }
        engine.publish(draft("bob", "\"the last\""), true).await.unwrap();
        join_all(clients.iter_mut().map(|client| client.settle(server.address()))).await;
    }
}

/// Clients that take nothing, in the normal run; `TIDEWIRE_LIVE_STALLED` asks for more.
fn stalled() -> usize {
    std::env::var("TIDEWIRE_LIVE_STALLED").ok().and_then(|stalled| stalled.parse().ok()).unwrap_or(100)
}

/// Reads to the end, and returns how much came before it.
async fn cut_off(client: &mut Client) -> u64 {
    let mut last = 0;
    loop {
        match client.next().await {
            Next::Message(message) => {
                last += 1;
                assert_eq!(message["seq"], last, "what was on its way has no gap");
            }
            Next::Closed(code) => {
                assert_eq!(code, 4008);
                return last;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_clients_are_cut_off_and_all_others_receive_everything_in_order() {
    const STALLED_PER_READER: usize = 10;
    let server = Server::start(config(2, above(1_000_000)));
    let name = |nth: usize| format!("r{}", nth / STALLED_PER_READER);
    let healthy: Vec<String> = (0..8).map(|nth| if nth < 4 { name(nth) } else { format!("well{nth}") }).collect();
    let everyone: Vec<String> = (0..stalled()).map(name).chain(healthy.iter().cloned()).collect();
    server.engine.follow(everyone.iter().map(|reader| edge(reader, "bob")).collect()).await.unwrap();
    let mut stalling = Vec::new();
    for nth in 0..stalled() {
        stalling.push(Client::with_small_buffers(server.address(), &name(nth)).await);
    }
    let mut told = join_all(healthy.iter().map(|reader| Client::watch(server.address(), reader))).await;
    let body = json!("x".repeat(60_000)).to_string();
    let (mut posts, live) = (0, |what: &str| server.get("/v1/stats").json()["live"][what].clone());
    // A client has some time to take something of a burst.
    eventually_async("those who take nothing are cut off", async || {
        let post = server.engine.publish(draft("bob", &body), true).await.unwrap().post.id();
        posts += 1;
        for message in join_all(told.iter_mut().map(Client::message)).await {
            let of = &message["item"]["post"]["id"];
            assert_eq!((&message["seq"], of), (&json!(posts), &json!(post.to_string())));
        }
        if posts < 60 { Err(format!("{posts} posts")) } else { reached(&live("cut_off"), &json!(stalled())) }
    })
    .await;
    for last in join_all(stalling.iter_mut().map(cut_off)).await {
        assert!(last < posts, "{last} of {posts} arrived");
    }
    drop(stalling);
    eventually_async("they are gone", async || reached(&live("connections"), &json!(told.len()))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_made_by_the_server_disconnects_no_reading_client() {
    let server = Server::start(config(2, above(1_000)));
    let post = |author: &str, bytes: usize| json!({"author": author, "body": "x".repeat(bytes)});
    for _ in 0..64 {
        assert_eq!(server.post("/v1/posts?wait=delivered", &post("cas", 17_000)).status, 201);
    }
    server.engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    let mut ann = FeedClient::new("ann");
    ann.come(server.address()).await;
    // A follow that brings many large posts, and batches up to the largest that is accepted.
    assert_eq!(server.json("PUT", "/v1/users/ann/following/cas", &json!({})).status, 201);
    ann.settle(server.address()).await;
    for posts in [25, 58] {
        let batch: Vec<_> = (0..posts).map(|_| post("bob", 60_000)).collect();
        assert_eq!(server.post("/v1/posts/batch?wait=delivered", &json!({"posts": batch})).status, 200);
        ann.settle(server.address()).await;
    }
    assert_eq!((server.get("/v1/stats").json()["live"]["cut_off"].clone(), ann.anew), (json!(0), 1));
}
