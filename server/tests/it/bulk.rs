//! Many posts and edges in one request.

use serde_json::{Value, json};
use tidewire::config::EngineConfig;
use tidewire_server::http::auth::Access;

use crate::access::tokens::{self, SERVER_KEY, access, bearer};
use crate::server::{Answer, Server};

fn server() -> Server {
    Server::guarded(EngineConfig::default(), Access::default())
}

/// What became of each post of a batch: `new`, `old`, or the code of its problem.
fn outcomes(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let outcome = |entry: &Value| match entry["created"].as_bool() {
        Some(created) => if created { "new" } else { "old" }.to_owned(),
        None => entry["problem"]["code"].as_str().unwrap().to_owned(),
    };
    answer.json()["posts"].as_array().unwrap().iter().map(outcome).collect()
}

#[test]
fn each_post_of_a_batch_is_answered_like_a_single_publish() {
    let server = server();
    assert_eq!(server.post("/v1/posts", &json!({"author": "bob", "body": 1, "id": "1"})).status, 201);
    let posts = json!([
        {"author": "bob", "body": 1, "id": "1"},
        {"author": "bob", "body": 2, "id": "1"},
        {"author": "bob", "body": {"a": [1.50]}, "id": "2", "tags": ["rust"]},
        {"author": "a b", "body": 1},
        {"author": "bob"},
        {"author": "bob", "body": 1, "likes": 3},
        {"author": "tag:rust", "body": 1},
        {"author": "bob", "body": 1, "published_at": "2999-01-01T00:00:00Z"},
        {"author": "bob", "body": "x".repeat(65_535)},
        {"author": "cas", "body": 4, "id": "4"},
        {"author": "cas", "body": 4, "id": "4"},
        {"author": "cas", "body": 5, "id": "5", "reply_to": "4"},
        7,
    ]);
    let answer = server.post("/v1/posts/batch?wait=delivered", &json!({"posts": posts}));
    let expected = [
        "old",
        "post_id_taken",
        "new",
        "invalid_field",
        "missing_field",
        "unknown_field",
        "not_a_user",
        "published_in_future",
        "body_too_large",
        "new",
        "old",
        "new",
        "invalid_field",
    ];
    assert_eq!(outcomes(&answer), expected);
    for (nth, post) in posts.as_array().unwrap().iter().enumerate() {
        let alone = server.post("/v1/posts", post);
        let entry = &answer.json()["posts"][nth];
        match entry.get("problem") {
            Some(problem) => {
                for field in ["status", "code", "field"] {
                    assert_eq!(problem[field], alone.json()[field], "{post}");
                }
            }
            None => {
                assert_eq!(alone.status, 200, "it is there: {}", alone.text);
                let alone = alone.json();
                let short =
                    json!({"id": alone["id"], "author": alone["author"], "published_at": alone["published_at"]});
                assert_eq!(entry["post"], short);
            }
        }
    }
    assert_eq!(server.get("/v1/posts/2").json()["body"], json!({"a": [1.50]}));
    assert_eq!(outcomes(&server.post("/v1/posts/batch", &json!({"posts": []}))), [""; 0]);
}

#[test]
fn p6_many_posts_many_feeds_and_many_ids_are_one_request_each() {
    let server = server();
    for reader in ["ann", "eve"] {
        assert_eq!(server.json("PUT", &format!("/v1/users/{reader}/following/bob"), &json!({})).status, 201);
    }
    assert_eq!(server.get("/v1/users/ann/feed").status, 200);
    let posts: Vec<Value> = (0..1_000).map(|nth| json!({"author": "bob", "body": nth})).collect();
    let answer = server.post("/v1/posts/batch?wait=delivered", &json!({"posts": posts}));
    assert_eq!(outcomes(&answer), vec!["new"; 1_000]);
    let ids: Vec<Value> =
        answer.json()["posts"].as_array().unwrap().iter().map(|entry| entry["post"]["id"].clone()).collect();
    let feed = server.get("/v1/users/ann/feed?limit=100").json();
    let shown: Vec<Value> = feed["items"].as_array().unwrap().iter().map(|item| item["post"]["id"].clone()).collect();
    assert_eq!(shown, ids.iter().rev().take(100).cloned().collect::<Vec<_>>(), "in the order of the batch");
    let many = server.post("/v1/feeds", &json!({"users": ["ann", "eve"], "limit": 100})).json();
    for (nth, reader) in ["ann", "eve"].iter().enumerate() {
        assert_eq!((&many["feeds"][nth]["user"], &many["feeds"][nth]["items"]), (&json!(reader), &feed["items"]));
    }
    let asked: Vec<&str> = ids[..100].iter().map(|id| id.as_str().unwrap()).collect();
    let read = server.get(&format!("/v1/posts?ids={},7,{}", asked[1..].join(","), asked[1])).json();
    let found: Vec<&str> = read["posts"].as_array().unwrap().iter().map(|post| post["id"].as_str().unwrap()).collect();
    assert_eq!((found.as_slice(), &read["missing"]), (&asked[1..], &json!(["7"])));
    assert_eq!(read["posts"][0], server.get(&format!("/v1/posts/{}", asked[1])).json());
}

#[test]
fn an_invalid_bulk_request_is_refused_by_its_wrong_field() {
    let server = server();
    let many = vec![json!({"author": "bob", "body": 1}); 1_001];
    for (body, code, field) in [
        (json!({"posts": many}), "invalid_field", "posts"),
        (json!({"posts": {}}), "invalid_field", "posts"),
        (json!({}), "missing_field", "posts"),
        (json!({"posts": [], "wait": true}), "unknown_field", "wait"),
        (json!([]), "invalid_field", "."),
    ] {
        let refused = server.post("/v1/posts/batch", &body);
        let problem = refused.json();
        assert_eq!((refused.status, &problem["code"], &problem["field"]), (400, &json!(code), &json!(field)));
    }
    let ids: Vec<String> = (0..101).map(|id| id.to_string()).collect();
    for (query, code) in [
        (String::new(), "missing_parameter"),
        ("?ids=".to_owned(), "invalid_parameter"),
        ("?ids=1,x".to_owned(), "invalid_parameter"),
        (format!("?ids={}", ids.join(",")), "invalid_parameter"),
    ] {
        let refused = server.get(&format!("/v1/posts{query}"));
        assert_eq!(
            (refused.status, &refused.json()["code"], &refused.json()["field"]),
            (400, &json!(code), &json!("ids"))
        );
    }
    assert_eq!(server.get(&format!("/v1/posts?ids={}", ids[1..].join(","))).status, 200);
    assert_eq!(server.get("/v1/posts/batch").status, 405);
    let edges = vec![json!({"follower": "ann", "source": "bob"}); 5_001];
    for (body, code, field) in [
        (json!({}), "missing_field", "follows"),
        (json!({"unfollows": [{"follower": "ann"}]}), "missing_field", "unfollows[0].source"),
        (
            json!({"unfollows": [{"follower": "ann", "source": "bob", "keep": true}]}),
            "unknown_field",
            "unfollows[0].keep",
        ),
        (json!({"follows": edges, "unfollows": edges}), "invalid_field", "unfollows"),
        (json!({"follows": null, "unfollows": []}), "invalid_field", "follows"),
        (json!({"follows": [], "unfollows": null}), "invalid_field", "unfollows"),
    ] {
        let refused = server.post("/v1/follows", &body);
        let problem = refused.json();
        assert_eq!((refused.status, &problem["code"], &problem["field"]), (400, &json!(code), &json!(field)));
    }
}

#[test]
fn follows_precede_unfollows_and_a_refused_follow_prevents_all_unfollows() {
    let server = server();
    let edges = |sources: &[&str]| -> Vec<Value> {
        sources.iter().map(|source| json!({"follower": "ann", "source": source})).collect()
    };
    let following = || -> Vec<String> {
        let list = server.get("/v1/users/ann/following").json();
        list["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    let answer = server.post("/v1/follows", &json!({"follows": edges(&["bob", "cas", "dan"])}));
    assert_eq!(answer.json(), json!({"created": 3, "existing": 0}));
    let refused = server.post("/v1/follows", &json!({"follows": edges(&["eve", "ann"]), "unfollows": edges(&["bob"])}));
    assert_eq!((refused.status, following()), (422, vec!["dan".to_owned(), "cas".to_owned(), "bob".to_owned()]));
    let body = json!({"follows": edges(&["eve", "bob"]), "unfollows": edges(&["bob", "cas", "zed", "cas"])});
    let answer = server.post("/v1/follows", &body);
    assert_eq!(answer.json(), json!({"created": 1, "existing": 1, "removed": 2}));
    assert_eq!(following(), ["eve", "dan"]);
    let answer = server.post("/v1/follows", &json!({"unfollows": edges(&["bob"])}));
    assert_eq!(answer.json(), json!({"created": 0, "existing": 0, "removed": 0}));
}

#[test]
fn a_repeated_edge_in_a_bulk_request_equals_single_requests_in_order() {
    for hidden in
        [vec![true, false], vec![false, true], vec![true, true, false], vec![true, false, true], vec![true, true]]
    {
        let [at_once, one_by_one] = [hidden.chunks(hidden.len()), hidden.chunks(1)].map(|requests| {
            let server = Server::start(EngineConfig { following_max: 1, ..EngineConfig::default() });
            for request in requests {
                let edge = |hidden: &bool| json!({"follower": "ann", "source": "bob", "hidden": hidden});
                let edges: Vec<Value> = request.iter().map(edge).collect();
                let answer = server.post("/v1/follows", &json!({"follows": edges}));
                assert_eq!(answer.status, 200, "{}", answer.text);
            }
            let following = server.get("/v1/users/ann/following").json()["items"].clone();
            let ids: Vec<Value> = following.as_array().unwrap().iter().map(|item| item["id"].clone()).collect();
            (ids, server.get("/v1/users/ann").json()["following"].clone())
        });
        assert_eq!(at_once, one_by_one, "{hidden:?}");
    }
    // A second edge counts, and an edge that has become visible counts no longer as hidden.
    let server = Server::start(EngineConfig { following_max: 1, ..EngineConfig::default() });
    let edge = |source: &str, hidden: bool| json!({"follower": "ann", "source": source, "hidden": hidden});
    let edges = [edge("bob", true), edge("bob", false), edge("cas", true)];
    assert_eq!(server.post("/v1/follows", &json!({"follows": edges})).json(), json!({"created": 2, "existing": 1}));
    let edges = [edge("dan", true), edge("dan", false)];
    assert_eq!(server.post("/v1/follows", &json!({"follows": edges})).status, 422);
}

#[test]
fn a_token_reads_only_posts_of_its_user_among_many_ids() {
    let server = Server::guarded(EngineConfig::default(), access());
    let ask = |credential: &str, method: &str, path: &str, body: Value| {
        let credential = bearer(credential);
        let mut headers = vec![("authorization", credential.as_str())];
        headers.extend((!body.is_null()).then_some(("content-type", "application/json")));
        server.ask(method, path, &headers, if body.is_null() { String::new() } else { body.to_string() })
    };
    let posts = json!([{"author": "ann", "body": 1, "id": "1"}, {"author": "bob", "body": 2, "id": "2"}]);
    assert_eq!(outcomes(&ask(SERVER_KEY, "POST", "/v1/posts/batch", json!({"posts": posts}))), ["new", "new"]);
    assert_eq!(ask(&tokens::token("ann"), "POST", "/v1/posts/batch", json!({"posts": posts})).status, 403);
    let read = ask(&tokens::token("ann"), "GET", "/v1/posts?ids=1,2", Value::Null).json();
    assert_eq!((read["posts"][0]["body"].as_u64(), &read["missing"]), (Some(1), &json!(["2"])));
    assert_eq!(ask(SERVER_KEY, "GET", "/v1/posts?ids=1,2", Value::Null).json()["missing"], json!([]));
}
