//! Refusals: each with its exact status, code and field.

use serde_json::json;
use tidewire::feed::cursor;
use tidewire::feed::position::Position;

use super::{check, server};

#[test]
fn every_refusal_has_status_code_and_field() {
    let server = server();
    let edge_cursor = cursor::encode_edge(tidewire::clock::UnixMicros(5));
    let feed_cursor = cursor::encode(Position::MAX);
    let of_edge = format!("lists?cursor={edge_cursor}");
    let of_feed = format!("mutes?cursor={feed_cursor}");
    let of_name = format!("blocks?cursor={}", cursor::encode_name("l"));
    let cases: &[(&str, &str, u16, &str, Option<&str>)] = &[
        ("DELETE", "following/b?keep=yes", 400, "invalid_parameter", Some("keep")),
        ("DELETE", "following/b?hidden=true", 400, "unknown_parameter", Some("hidden")),
        ("GET", "following?hidden=1", 400, "invalid_parameter", Some("hidden")),
        ("GET", "followers?hidden=true", 400, "unknown_parameter", Some("hidden")),
        ("PUT", "mutes/a", 422, "self_mute", None),
        ("PUT", "blocks/a", 422, "self_block", None),
        ("PUT", "mutes/b%20c", 400, "invalid_path", Some("source")),
        ("PUT", "blocks/b?wait=x", 400, "invalid_parameter", Some("wait")),
        ("DELETE", "mutes/b?keep=true", 400, "unknown_parameter", Some("keep")),
        ("GET", &of_feed, 400, "invalid_parameter", Some("cursor")),
        ("GET", &of_name, 400, "invalid_parameter", Some("cursor")),
        ("GET", "blocks?limit=101", 400, "invalid_parameter", Some("limit")),
        ("GET", "rules?x=1", 400, "unknown_parameter", Some("x")),
        ("PATCH", "rules", 415, "unsupported_media_type", None),
        ("GET", "marker?limit=1", 400, "unknown_parameter", Some("limit")),
        ("PUT", "marker", 415, "unsupported_media_type", None),
        ("GET", &of_edge, 400, "invalid_parameter", Some("cursor")),
        ("GET", "lists?before=x", 400, "unknown_parameter", Some("before")),
        ("GET", "lists/no/feed", 404, "unknown_list", None),
        ("GET", "lists/no/members", 404, "unknown_list", None),
        ("GET", "lists/no/feed?cursor=x", 400, "unknown_parameter", Some("cursor")),
        ("GET", "lists/no/feed?limit=0", 400, "invalid_parameter", Some("limit")),
        ("GET", "lists/n%20o/feed", 400, "invalid_path", Some("name")),
        ("PUT", "lists/n%2Fo/members/b", 400, "invalid_path", Some("name")),
        ("PUT", "lists/l/members/b%20c", 400, "invalid_path", Some("source")),
        ("DELETE", "lists/l?x=1", 400, "unknown_parameter", Some("x")),
        ("GET", "feed/explain/abc", 400, "invalid_path", Some("post")),
        ("GET", "feed/explain/1?x=1", 400, "unknown_parameter", Some("x")),
    ];
    for (method, path, status, code, field) in cases {
        let answer = server.send(method, &format!("/v1/users/a/{path}"), None, "");
        check(&answer, &format!("{method} {path}"), *status, code, *field);
    }
    for path in ["mutes/b", "blocks/b", "lists/l/members/b"] {
        let answer = server.send("PUT", &format!("/v1/users/tag:a/{path}"), None, "");
        check(&answer, path, 422, "not_a_user", None);
        let answer = server.json("PUT", &format!("/v1/users/a/{path}"), &json!({"x": 1}));
        check(&answer, path, 400, "unknown_field", Some("x"));
        let answer = server.send("PUT", &format!("/v1/users/a/{path}"), Some("text/plain"), "{}");
        check(&answer, path, 415, "unsupported_media_type", None);
    }
    assert_eq!(server.get("/v1/stats").json()["users"], 0, "nothing of a refused request was done");
}

#[test]
fn every_invalid_body_is_refused_by_its_wrong_field() {
    let server = server();
    let edge = format!(r#"{{"cursor":"{}"}}"#, cursor::encode_edge(tidewire::clock::UnixMicros(5)));
    for (method, path, body, code, field) in [
        ("PATCH", "rules", r#"{"per_source_max":0}"#, "invalid_field", "per_source_max"),
        ("PATCH", "rules", r#"{"per_source_max":-1}"#, "invalid_field", "per_source_max"),
        ("PATCH", "rules", r#"{"per_source_max":"1"}"#, "invalid_field", "per_source_max"),
        ("PATCH", "rules", r#"{"replies":"some"}"#, "invalid_field", "replies"),
        ("PATCH", "rules", r#"{"show_own":1}"#, "invalid_field", "show_own"),
        ("PATCH", "rules", r#"{"show_own":null}"#, "invalid_field", "show_own"),
        ("PATCH", "rules", r#"{"replies":null}"#, "invalid_field", "replies"),
        ("PATCH", "rules", r#"{"reposts":null}"#, "invalid_field", "reposts"),
        ("PATCH", "rules", r#"{"mutes":[]}"#, "unknown_field", "mutes"),
        ("PATCH", "rules", r#"{"reposts":true,"reposts":true}"#, "duplicate_field", "reposts"),
        ("PUT", "marker", "{}", "missing_field", "cursor"),
        ("PUT", "marker", r#"{"cursor":null}"#, "invalid_field", "cursor"),
        ("PUT", "marker", r#"{"cursor":"x"}"#, "invalid_field", "cursor"),
        ("PUT", "marker", &edge, "invalid_field", "cursor"),
        ("PUT", "marker", r#"{"cursor":"x","unread":1}"#, "invalid_field", "cursor"),
        ("PUT", "marker", r#"{"unread":1}"#, "unknown_field", "unread"),
    ] {
        let answer = server.send(method, &format!("/v1/users/a/{path}"), Some("application/json"), body);
        check(&answer, body, 400, code, Some(field));
    }
    let marker = json!({"cursor": cursor::encode(Position::MIN)});
    for (method, path, body) in [("PATCH", "rules", json!({"reposts": false})), ("PUT", "marker", marker)] {
        let answer = server.json(method, &format!("/v1/users/topic:a/{path}"), &body);
        check(&answer, path, 422, "not_a_user", None);
        let huge = format!("{{{}}}", " ".repeat(99_000));
        let answer = server.send(method, &format!("/v1/users/a/{path}"), Some("application/json"), huge);
        check(&answer, path, 413, "body_too_large", None);
    }
    assert_eq!(server.get("/v1/stats").json()["users"], 0, "nothing of a refused request was done");
}

#[test]
fn unsupported_methods_are_refused_with_the_allowed_methods() {
    let server = server();
    for (method, path, allow) in [
        ("POST", "mutes/b", "PUT, DELETE"),
        ("GET", "blocks/b", "PUT, DELETE"),
        ("PUT", "mutes", "GET, HEAD"),
        ("DELETE", "blocks", "GET, HEAD"),
        ("PUT", "rules", "GET, HEAD, PATCH"),
        ("DELETE", "marker", "GET, HEAD, PUT"),
        ("POST", "lists", "GET, HEAD"),
        ("GET", "lists/l", "DELETE"),
        ("PUT", "lists/l/feed", "GET, HEAD"),
        ("DELETE", "lists/l/members", "GET, HEAD"),
        ("GET", "lists/l/members/b", "PUT, DELETE"),
        ("POST", "feed/explain/1", "GET, HEAD"),
    ] {
        let answer = server.send(method, &format!("/v1/users/a/{path}"), None, "");
        check(&answer, &format!("{method} {path}"), 405, "method_not_allowed", None);
        assert_eq!(answer.header("allow"), allow, "{method} {path}");
    }
}

#[test]
fn a_post_that_reposts_or_answers_itself_is_refused() {
    let server = server();
    for field in ["repost_of", "reply_to"] {
        let answer = server.post("/v1/posts", &serde_json::json!({"id": "7", "author": "ann", "body": 1, field: "7"}));
        assert_eq!((answer.status, &answer.json()["code"]), (422, &serde_json::json!("misfit")), "{field}");
    }
}
