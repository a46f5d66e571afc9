//! All users in pages, by id.

use serde_json::{Value, json};
use tidewire::config::EngineConfig;

use crate::server::Server;
use testkit::eventually;

fn publish(server: &Server, author: &str) {
    assert_eq!(
        server.post("/v1/posts", &json!({"author": author, "body": 1, "tags": ["tea"], "topic": "42"})).status,
        201
    );
}

fn ids(page: &Value) -> Vec<&str> {
    let items = page["items"].as_array().unwrap_or_else(|| panic!("{page}"));
    items.iter().map(|item| item["id"].as_str().unwrap()).collect()
}

/// The ids of all users, read in pages.
fn all(server: &Server, query: &str, limit: usize) -> Vec<String> {
    let (mut met, mut cursor) = (Vec::new(), String::new());
    let mut pages = testkit::PageCount::default();
    loop {
        pages.count();
        let page = server.get(&format!("/v1/users?limit={limit}{query}{cursor}")).json();
        met.extend(ids(&page).into_iter().map(str::to_owned));
        let Some(next) = page["next"].as_str() else { return met };
        assert_eq!(ids(&page).len(), limit, "a page is full while anybody is left");
        cursor = format!("&cursor={next}");
    }
}

#[test]
fn all_users_are_listed_by_id_in_pages_of_any_length() {
    let server = Server::start(EngineConfig::default());
    // In an order that is none: who publishes, who is followed, who follows, who mutes, who is answered.
    let mut users: Vec<String> = (0..25).map(|nth| format!("u{:02}", (nth * 7) % 25)).collect();
    users.iter().for_each(|user| publish(&server, user));
    for path in ["ann/following/bob", "cas/following/tag:tea", "Zoe/mutes/topic:42"] {
        assert_eq!(server.send("PUT", &format!("/v1/users/{path}"), None, "").status, 201);
    }
    users.extend(["ann", "bob", "cas", "Zoe"].map(str::to_owned));
    users.sort();
    eventually("all are collected", || all(&server, "", 1_000) == users);
    for limit in [1, 2, 7, 29, 30, 1_000] {
        assert_eq!(all(&server, "", limit), users, "{limit}");
    }
    let beginning = |prefix: &str| users.iter().filter(|user| user.starts_with(prefix)).cloned().collect::<Vec<_>>();
    for prefix in ["u", "u1", "u11", "a", "Z", "z", "u11x", "tag:", "~", ""] {
        assert_eq!(all(&server, &format!("&prefix={prefix}"), 3), beginning(prefix), "{prefix:?}");
    }
    let ann = server.get("/v1/users?prefix=ann").json()["items"][0].clone();
    assert_eq!((&ann["kind"], &ann["following"], &ann["posts"]), (&json!("user"), &json!(1), &json!(0)));
}

#[test]
fn erased_users_are_omitted_and_new_users_appear_on_the_next_first_page() {
    let server = Server::start(EngineConfig::default());
    ["ann", "bob", "cas"].iter().for_each(|user| publish(&server, user));
    let first = server.get("/v1/users?limit=1").json();
    let next = first["next"].as_str().unwrap();
    assert_eq!(server.send("DELETE", "/v1/users/bob", None, "").status, 202);
    publish(&server, "dan");
    // Of the users that the first page collected.
    let rest = server.get(&format!("/v1/users?cursor={next}")).json();
    assert_eq!(ids(&rest), ["cas"]);
    eventually("the first page is collected anew", || ids(&server.get("/v1/users").json()) == ["ann", "cas", "dan"]);
}

#[test]
fn a_server_without_users_returns_an_empty_list() {
    let server = Server::start(EngineConfig::default());
    assert_eq!(server.get("/v1/users").json(), json!({"items": [], "next": null}));
}

#[test]
fn invalid_prefixes_limits_and_cursors_are_refused_by_name() {
    let server = Server::start(EngineConfig::default());
    let long = format!("prefix={}", "x".repeat(129));
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("cursor=x", "cursor"),
        (&*long, "prefix"),
        ("after=ann", "after"),
    ] {
        let answer = server.get(&format!("/v1/users?{query}"));
        assert_eq!((answer.status, answer.json()["field"].clone()), (400, json!(field)), "{query}");
    }
}
