//! Posts that are named by the ids of other systems.

use serde_json::{Value, json};
use testkit::eventually;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::id::ExternalId;

use crate::server::Server;
use testkit::world::{patient, some};

const UUID: &str = "550e8400-e29b-41d4-a716-446655440000";

fn publish(server: &Server, post: &Value) -> Value {
    let answer = server.post("/v1/posts?wait=delivered", post);
    assert!([200, 201].contains(&answer.status), "{}", answer.text);
    answer.json()
}

fn put(server: &Server, path: &str) {
    assert_eq!(server.send("PUT", &format!("/v1/users/{path}"), None, "").status, 201);
}

#[test]
fn every_operation_on_a_post_accepts_its_external_id() {
    let server = Server::start(EngineConfig::default());
    put(&server, "ann/following/bob");
    let post = publish(&server, &json!({"author": "bob", "body": 1, "external_id": UUID}));
    assert_eq!((&post["external_id"], post["id"].as_str()), (&json!(UUID), Some(&*computed(UUID))));
    let named = format!("/v1/posts/ext:{UUID}");
    assert_eq!(server.get(&named).json(), post);
    assert_eq!(server.get(&format!("/v1/posts/{}", computed(UUID))).json(), post);
    let edited = server.json("PATCH", &named, &json!({"body": 2})).json();
    assert_eq!((&edited["body"], &edited["external_id"]), (&json!(2), &json!(UUID)));
    let name = format!("ext:{UUID}");
    publish(&server, &json!({"author": "cas", "body": 3, "reply_to": name, "external_id": "urn:isbn:0451450523"}));
    publish(&server, &json!({"author": "cas", "body": 4, "repost_of": name}));
    assert_eq!(
        server.get(&format!("{named}/replies")).json()["items"][0]["post"]["external_id"],
        "urn:isbn:0451450523"
    );
    assert_eq!(server.get(&format!("{named}/reposts")).json()["items"][0]["user"], "cas");
    assert_eq!(server.get(&format!("{named}/fanout")).json()["post"], post["id"]);
    assert_eq!(server.get(&format!("/v1/users/ann/feed/explain/{name}")).json()["shown"], true);
    assert_eq!(server.get("/v1/users/ann/feed").json()["items"][0]["post"]["external_id"], UUID);
    let many = server.get(&format!("/v1/posts?ids={name},ext:none,7,{}", computed(UUID))).json();
    assert_eq!((many["posts"].as_array().unwrap().len(), &many["missing"]), (1, &json!(["ext:none", "7"])));
    // A delete may overtake its publish.
    assert_eq!(server.send("DELETE", "/v1/posts/ext:none", None, "").status, 204);
    let late = server.post("/v1/posts", &json!({"author": "bob", "body": 1, "external_id": "none"}));
    assert_eq!(late.json()["code"], "post_deleted", "{}", late.text);
    put(&server, &format!("dan/following/replies:{name}"));
    assert_eq!(
        server.get("/v1/users/dan/feed?fields=ids").json()["items"][0]["post"]["external_id"],
        "urn:isbn:0451450523"
    );
    let batch = json!({"posts": [{"author": "eve", "body": 1, "external_id": "AA+A=="}]});
    assert_eq!(server.post("/v1/posts/batch", &batch).json()["posts"][0]["post"]["external_id"], "AA+A==");
    for encoded in ["ext:AA+A==", "ext%3AAA%2BA%3D%3D"] {
        assert_eq!(server.get(&format!("/v1/posts/{encoded}")).json()["author"], "eve", "{encoded}");
    }
    assert_eq!(server.get("/v1/posts?ids=ext:AA%2BA==").json()["missing"], json!([]));
    let all = server.get(&format!("/v1/posts/all?after={name}")).json();
    assert!(all["posts"].as_array().unwrap().iter().all(|post| post["external_id"] != UUID), "{all}");
    assert_eq!(server.send("DELETE", &named, None, "").status, 204);
    assert_eq!(server.get(&named).status, 404);
}

/// The id of the post that has this external id.
fn computed(external_id: &str) -> String {
    ExternalId::new(external_id).unwrap().post_id().to_string()
}

#[test]
fn a_repeated_external_id_is_idempotent_and_refused_for_another_post() {
    let server = Server::start(EngineConfig::default());
    let post = json!({"author": "bob", "body": 1, "external_id": UUID});
    let first = server.post("/v1/posts", &post);
    let again = server.post("/v1/posts", &post);
    assert_eq!((first.status, again.status, first.json()["id"].clone()), (201, 200, again.json()["id"].clone()));
    // As an export has it, with the id that follows from the external one.
    let mut both = post.clone();
    both["id"] = json!(computed(UUID));
    assert_eq!(server.post("/v1/posts", &both).status, 200);
    for (change, status, code) in [
        (json!({"body": 2}), 409, "post_id_taken"),
        (json!({"external_id": null, "id": computed(UUID)}), 409, "post_id_taken"),
        (json!({"id": "7"}), 422, "misfit"),
        (json!({"external_id": ""}), 400, "invalid_field"),
        (json!({"external_id": "a/b"}), 400, "invalid_field"),
        (json!({"external_id": "x".repeat(65)}), 400, "invalid_field"),
        (json!({"reply_to": "ext:a b"}), 400, "invalid_field"),
    ] {
        let mut other = post.clone();
        other.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let refused = server.post("/v1/posts", &other);
        assert_eq!(
            (refused.status, refused.json()["code"].as_str()),
            (status, Some(code)),
            "{other}: {}",
            refused.text
        );
    }
    server.send("DELETE", &format!("/v1/posts/ext:{UUID}"), None, "");
    assert_eq!(server.post("/v1/posts", &post).json()["code"], "post_deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_id_survives_archiving_and_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let config = EngineConfig { outbox_posts: some(2), ..patient() };
        Server::of(Engine::open_directory(config, directory.path()).unwrap())
    };
    let server = open();
    for nth in 0..60 {
        publish(&server, &json!({"author": "bob", "body": nth, "external_id": format!("old-{nth}")}));
    }
    eventually("old posts leave memory", || server.engine.shared().world.posts.len() <= 8);
    let check = |server: &Server| {
        for nth in 0..60 {
            let post = server.get(&format!("/v1/posts/ext:old-{nth}")).json();
            assert_eq!((&post["body"], &post["external_id"]), (&json!(nth), &json!(format!("old-{nth}"))));
        }
        // The same again finds what the archive has.
        let again = server.post("/v1/posts", &json!({"author": "bob", "body": 3, "external_id": "old-3"}));
        assert_eq!(again.status, 200, "{}", again.text);
    };
    check(&server);
    let edited = server.json("PATCH", "/v1/posts/ext:old-5", &json!({"hidden": true})).json();
    assert_eq!((&edited["hidden"], &edited["external_id"]), (&json!(true), &json!("old-5")));
    server.engine.snapshot().await.unwrap();
    publish(&server, &json!({"author": "bob", "body": "after the snapshot", "external_id": "last"}));
    drop(server);
    let server = open();
    check(&server);
    assert_eq!(server.get("/v1/posts/ext:last").json()["body"], "after the snapshot");
}
