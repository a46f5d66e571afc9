//! What operators ask: snapshots, verified and rebuilt feeds.

use serde_json::json;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;

use crate::server::Server;
use crate::world::{NEWEST, config, draft, edge, id, ids};

#[tokio::test]
async fn an_inbox_is_verified_against_one_built_anew() {
    let engine = Engine::start(config(2, crate::world::above(100)));
    engine.follow(vec![edge("ann", "bob"), edge("ann", "cas")]).await.unwrap();
    for nth in 0..10 {
        engine.publish(draft(if nth % 2 == 0 { "bob" } else { "cas" }, "1"), true).await.unwrap();
        engine.feed(&id("ann"), NEWEST).await.unwrap();
    }
    let verdict = engine.verify_feed(&id("ann"), false).await.unwrap();
    assert!(verdict.is_good());
    assert_eq!((verdict.entries, verdict.rebuilt, verdict.stale), (10, 10, 0));
    // Posts of a source not followed any more stay until a page meets them, and count as stale.
    engine.unfollow(id("ann"), id("bob")).await.unwrap();
    let verdict = engine.verify_feed(&id("ann"), true).await.unwrap();
    assert!(verdict.is_good());
    assert_eq!((verdict.entries, verdict.rebuilt, verdict.stale), (10, 5, 5));
    let verdict = engine.verify_feed(&id("ann"), false).await.unwrap();
    assert_eq!((verdict.entries, verdict.rebuilt, verdict.stale), (5, 5, 0));
    assert_eq!(ids(&engine.feed(&id("ann"), NEWEST).await.unwrap()).len(), 5);
    engine.shutdown();
}

#[test]
fn operators_get_answers_over_http() {
    let server = Server::start(EngineConfig::default());
    let followed = server.send("PUT", "/v1/users/ann/following/bob", None, "");
    assert_eq!(followed.status, 201);
    server.post("/v1/posts?wait=delivered", &json!({"author": "bob", "body": 1}));
    let verdict = server.send("POST", "/v1/users/ann/feed/verify", None, "");
    assert_eq!((verdict.status, &verdict.json()["good"], &verdict.json()["entries"]), (200, &json!(true), &json!(1)));
    assert_eq!(server.send("POST", "/v1/users/ann/feed/rebuild", None, "").json()["rebuilt"], json!(1));
    assert_eq!(server.send("POST", "/v1/users/nobody/feed/verify", None, "").status, 404);
    // Nor for what is no user.
    server.post("/v1/posts?wait=delivered", &json!({"author": "bob", "body": 2, "tags": ["tea"], "topic": "42"}));
    for (source, what) in ["tag:tea", "topic:42"].into_iter().flat_map(|source| [(source, "verify"), (source, "rebuild")]) {
        let refused = server.send("POST", &format!("/v1/users/{source}/feed/{what}"), None, "");
        assert_eq!((refused.status, &refused.json()["code"]), (404, &json!("unknown_source")), "{source} {what}");
    }
    assert_eq!(server.get("/v1/stats").json()["wakes"], json!(1), "only ann woke");
    let refused = server.send("POST", "/v1/snapshots", None, "");
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("no_data_directory")));
    assert_eq!(server.send("POST", "/v1/snapshots?x=1", None, "").status, 400);
}
