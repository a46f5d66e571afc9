//! Lists: named feeds.

use serde_json::json;

use super::{bodies, check, ids, posts, publish, server, status};

#[test]
fn a_list_is_a_complete_feed_of_its_members_at_once() {
    let server = server();
    let list = "/v1/users/ann/lists/friends";
    (1..=4).for_each(|body| drop(posts(&server, if body % 2 == 0 { "bob" } else { "cas" }, body..=body)));
    publish(&server, "dan", 5, &json!({"topic": "sea"}));
    for source in ["bob", "cas", "topic:sea"] {
        let member = format!("{list}/members/{source}");
        let made = server.send("PUT", &member, None, "");
        assert_eq!((made.status, made.json()), (201, json!({"created": true})));
        assert_eq!(server.send("PUT", &member, Some("application/json"), "{}").status, 200);
    }
    let first = server.get(&format!("{list}/feed?limit=3")).json();
    assert_eq!(bodies(&server, &format!("{list}/feed?limit=3")), [5, 4, 3]);
    assert_eq!((&first["items"][0]["via"], &first["items"][1]["via"]), (&json!(["topic:sea"]), &json!(["bob"])));
    let next = first["next"].as_str().unwrap();
    assert_eq!(bodies(&server, &format!("{list}/feed?before={next}")), [2, 1]);
    assert_eq!(bodies(&server, &format!("{list}/feed?after={next}&limit=1")), [4]);
    let brief = server.get(&format!("{list}/feed?fields=ids&limit=1")).json();
    assert_eq!(brief["items"][0]["post"].as_object().unwrap().len(), 3);
    assert_eq!(bodies(&server, "/v1/users/ann/feed"), [0; 0], "members need not be followed");

    let members = server.get(&format!("{list}/members?limit=2")).json();
    assert_eq!(ids(&members), ["topic:sea", "cas"]);
    let next = members["next"].as_str().unwrap();
    assert_eq!(ids(&server.get(&format!("{list}/members?cursor={next}")).json()), ["bob"]);

    for source in ["bob", "bob", "cas", "topic:sea"] {
        assert_eq!(status(&server, "DELETE", &format!("{list}/members/{source}")), 204);
    }
    assert_eq!(bodies(&server, &format!("{list}/feed")), [0; 0]);
    let lists = server.get("/v1/users/ann/lists").json();
    assert_eq!(lists, json!({"items": [{"name": "friends", "members": 0}], "next": null}), "it stays, empty");
    for _ in 0..2 {
        assert_eq!(status(&server, "DELETE", list), 204);
    }
    assert_eq!(server.get("/v1/users/ann/lists").json()["items"], json!([]));
}

#[test]
fn lists_are_listed_by_name_up_to_the_limit() {
    let server = server();
    let put = |name: &str| server.send("PUT", &format!("/v1/users/ann/lists/{name}/members/bob"), None, "");
    (0..100).rev().for_each(|nth| assert_eq!(put(&format!("l{nth:02}")).status, 201));
    check(&put("m"), "one list too many", 422, "too_many", None);
    let (mut names, mut path) = (Vec::new(), "/v1/users/ann/lists?limit=33".to_owned());
    loop {
        let page = server.get(&path).json();
        let items = page["items"].as_array().unwrap();
        names.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/users/ann/lists?limit=33&cursor={next}");
    }
    assert_eq!(names, (0..100).map(|nth| format!("l{nth:02}")).collect::<Vec<_>>());
}
