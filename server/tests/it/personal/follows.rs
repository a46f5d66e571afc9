//! Options of follows, and what they bring.

use serde_json::{Value, json};

use super::{bodies, check, follow, ids, posts, publish, server, status};

#[test]
fn an_unfollow_can_keep_received_posts() {
    let server = server();
    follow(&server, "ann", "bob");
    posts(&server, "bob", 1..=2);
    for _ in 0..2 {
        assert_eq!(status(&server, "DELETE", "/v1/users/ann/following/bob?keep=true"), 204);
    }
    posts(&server, "bob", 3..=3);
    assert_eq!(bodies(&server, "/v1/users/ann/feed"), [2, 1]);
    assert_eq!(server.get("/v1/users/ann/following").json()["items"], json!([]));
    for _ in 0..2 {
        assert_eq!(status(&server, "DELETE", "/v1/users/ann/following/bob?keep=false"), 204);
    }
    assert_eq!(bodies(&server, "/v1/users/ann/feed"), [0; 0]);
}

#[test]
fn a_follow_backfills_the_requested_number_of_earlier_posts() {
    let server = server();
    posts(&server, "bob", 1..=3);
    let edge = |follower: &str| format!("/v1/users/{follower}/following/bob");
    for (follower, backfill, expected) in [("ann", 0, vec![]), ("cas", 2, vec![3, 2]), ("dan", 10_000, vec![3, 2, 1])] {
        assert_eq!(server.json("PUT", &edge(follower), &json!({"backfill": backfill})).status, 201);
        assert_eq!(server.json("PUT", &edge(follower), &json!({"backfill": 1})).status, 200, "it stays as it is");
        assert_eq!(bodies(&server, &format!("/v1/users/{follower}/feed")), expected, "{backfill}");
    }
    let bulk = json!({"follows": [{"follower": "eve", "source": "bob", "backfill": 1}]});
    assert_eq!(server.post("/v1/follows", &bulk).json(), json!({"created": 1, "existing": 0}));
    posts(&server, "bob", 4..=4);
    for (follower, expected) in [("ann", vec![4]), ("cas", vec![4, 3, 2]), ("eve", vec![4, 3])] {
        assert_eq!(bodies(&server, &format!("/v1/users/{follower}/feed")), expected, "later posts always come");
    }
}

#[test]
fn a_backfill_must_be_an_integer_up_to_its_limit() {
    let server = server();
    for bad in ["null", "-1", "1.5", "\"2\"", "10001", "99999999999999999999"] {
        let one = format!(r#"{{"backfill":{bad}}}"#);
        let one = server.send("PUT", "/v1/users/ann/following/bob", Some("application/json"), one);
        check(&one, bad, 400, "invalid_field", Some("backfill"));
        let many = format!(r#"{{"follows":[{{"follower":"ann","source":"bob","backfill":{bad}}}]}}"#);
        let many = server.send("POST", "/v1/follows", Some("application/json"), many);
        check(&many, bad, 400, "invalid_field", Some("follows[0].backfill"));
    }
    assert_eq!(server.get("/v1/stats").json()["edges"], 0);
}

#[test]
fn only_operators_can_list_virtual_follows() {
    let server = server();
    for source in ["ads1", "ads2"] {
        let put = server.json("PUT", &format!("/v1/users/ann/following/{source}"), &json!({"hidden": true}));
        assert_eq!(put.status, 201);
    }
    follow(&server, "ann", "bob");
    let origin = publish(&server, "bob", 1, &json!({}));
    publish(&server, "ads1", 2, &json!({"repost_of": origin, "kind": "ad"}));
    let hidden = server.get("/v1/users/ann/following?hidden=true&limit=1").json();
    assert_eq!(ids(&hidden), ["ads2"]);
    let next = hidden["next"].as_str().unwrap();
    let rest = server.get(&format!("/v1/users/ann/following?hidden=true&limit=1&cursor={next}")).json();
    assert_eq!((ids(&rest), &rest["next"]), (vec!["ads1"], &Value::Null));
    for open in ["/v1/users/ann/following", "/v1/users/ann/following?hidden=false"] {
        assert_eq!(ids(&server.get(open).json()), ["bob"]);
    }
    assert_eq!(server.get("/v1/users/ads1/followers").json()["items"], json!([]));
    assert_eq!(server.get("/v1/users/ann").json()["following"], 1);
    let page = server.get("/v1/users/ann/feed").json();
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    assert_eq!((&page["items"][0]["via"], &page["items"][0]["reposts"]), (&json!(["bob"]), &json!([])));
}

#[test]
fn a_follow_that_becomes_hidden_keeps_its_posts() {
    let server = server();
    follow(&server, "ann", "bob");
    posts(&server, "bob", 1..=2);
    assert_eq!(status(&server, "DELETE", "/v1/users/ann/following/bob?keep=true"), 204);
    let edge = "/v1/users/ann/following/bob";
    assert_eq!(server.json("PUT", edge, &json!({"backfill": 0})).status, 201);
    posts(&server, "bob", 3..=3);
    for hidden in [true, false] {
        assert_eq!(server.json("PUT", edge, &json!({"hidden": hidden})).status, 200);
        assert_eq!(bodies(&server, "/v1/users/ann/feed"), [3, 2, 1], "hidden: {hidden}");
    }
}

#[test]
fn reposts_are_one_entry_that_lists_the_reposters() {
    let server = server();
    ["bob", "cas"].iter().for_each(|source| follow(&server, "ann", source));
    let origin = publish(&server, "zoe", 1, &json!({}));
    let first = publish(&server, "bob", 2, &json!({"repost_of": origin}));
    posts(&server, "bob", 3..=3);
    let second = publish(&server, "cas", 4, &json!({"repost_of": first}));
    let page = server.get("/v1/users/ann/feed").json();
    assert_eq!(bodies(&server, "/v1/users/ann/feed"), [1, 3]);
    let entry = &page["items"][0];
    let reposts = entry["reposts"].as_array().unwrap();
    let told: Vec<_> = reposts.iter().map(|repost| (repost["user"].clone(), repost["post"].clone())).collect();
    assert_eq!(told, [(json!("cas"), json!(second)), (json!("bob"), json!(first))]);
    assert_eq!((&entry["post"]["author"], &entry["via"]), (&json!("zoe"), &json!(["cas", "bob"])));
    assert_eq!(server.get(&format!("/v1/posts/{second}")).json()["repost_of"], origin.as_str());
}

#[test]
fn reposts_and_their_originals_may_be_published_in_any_order() {
    let post = |number: usize| {
        let (author, times) = (
            ["zoe", "bob", "cas"][number - 1],
            ["2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", "2026-01-01T00:00:03Z"],
        );
        let mut post =
            json!({"author": author, "id": number.to_string(), "published_at": times[number - 1], "body": number});
        if number > 1 {
            post["repost_of"] = json!((number - 1).to_string());
        }
        post
    };
    let mut pages = Vec::new();
    for order in [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]] {
        for is_batch in [false, true] {
            let server = server();
            ["bob", "cas"].iter().for_each(|source| follow(&server, "ann", source));
            let newest = server.get("/v1/users/ann/feed").json()["newest"].clone();
            if is_batch {
                assert_eq!(
                    server.post("/v1/posts/batch?wait=delivered", &json!({"posts": order.map(post)})).status,
                    200
                );
            } else {
                order
                    .iter()
                    .for_each(|number| assert_eq!(server.post("/v1/posts?wait=delivered", &post(*number)).status, 201));
            }
            let page = server.get("/v1/users/ann/feed").json();
            assert_eq!(server.get("/v1/posts/3").json()["repost_of"], "1", "{order:?}");
            if let Some(newest) = newest.as_str() {
                let polled = server.get(&format!("/v1/users/ann/feed?after={newest}")).json();
                assert_eq!(polled["items"], page["items"], "polled after {order:?}");
            }
            pages.push(page["items"].clone());
        }
    }
    assert_eq!((&pages[0][0]["post"]["body"], pages[0].as_array().map(Vec::len)), (&json!(1), Some(1)));
    assert_eq!(pages, vec![pages[0].clone(); pages.len()]);
}
