//! Every operation by every kind of credential.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidewire::config::EngineConfig;
use tidewire_server::http::operations;

use crate::access::tokens::{self, METRICS_KEY, READING_KEY, SERVER_KEY, access, bearer};
use crate::server::{Answer, Server};

/// What is in posts, follows and lists, and in no refusal.
const DATA: [&str; 3] = ["marvel", "bob", "pals"];

/// Who may, as people would say it; apart from the table that the server goes by.
#[derive(Clone, Copy, PartialEq)]
enum Who {
    Anybody,
    Server,
    /// As well who collects metrics for it.
    Collector,
    /// The user in the path, or the author of what is published.
    Owner,
    /// The author of the post. To others it is not there.
    Author,
    /// Every user, who gets what that one may see.
    Each,
}

/// How an operation is asked for, and what it answers if it is allowed.
pub struct Call {
    who: Who,
    changes: bool,
    body: Option<Value>,
    status: u16,
}

pub fn call(name: &str) -> Call {
    let call = |who, changes, body, status| Call { who, changes, body, status };
    let read = |status| call(Who::Owner, false, None, status);
    let write = |body: Option<Value>, status| call(Who::Owner, true, body, status);
    match name {
        "check_alive" | "check_ready" | "describe" => call(Who::Anybody, false, None, 200),
        "read_stats" | "read_history" | "read_operations" | "find_sources" | "read_fanout" => {
            call(Who::Server, false, None, 200)
        }
        // It is part of none.
        "read_cluster" => call(Who::Server, false, None, 404),
        "read_metrics" => call(Who::Collector, false, None, 200),
        // The engine has no directory, and only in a cluster a log.
        "read_changes" => call(Who::Server, false, None, if has_log() { 200 } else { 409 }),
        "list_change_consumers" => call(Who::Server, false, None, 200),
        // A read-only key may say how far it has read.
        "set_change_consumer" => call(Who::Server, false, None, 409),
        "remove_change_consumer" => call(Who::Server, true, None, 409),
        "take_snapshot" => call(Who::Server, true, None, 409),
        "verify_feed" | "rebuild_feed" => call(Who::Server, true, None, 200),
        "revoke_tokens" => call(Who::Server, true, None, 200),
        "erase_user" => call(Who::Server, true, None, 202),
        "follow_many" => call(Who::Server, true, Some(json!({"follows": [{"follower": "ann", "source": "cas"}]})), 200),
        "publish_many" => call(Who::Server, true, Some(json!({"posts": [{"author": "ann", "body": "marvel"}]})), 200),
        "read_posts" => call(Who::Each, false, None, 200),
        "list_posts" | "list_users" | "read_user_data" => call(Who::Server, false, None, 200),
        "publish" => write(Some(json!({"author": "ann", "body": "marvel"})), 201),
        "read_feeds" => call(Who::Each, false, Some(json!({"users": ["ann"]})), 200),
        "read_replies" | "read_reposts" => call(Who::Each, false, None, 200),
        "read_post" => call(Who::Author, false, None, 200),
        "edit_post" => call(Who::Author, true, Some(json!({"hidden": false})), 200),
        "delete_post" => call(Who::Author, true, None, 204),
        "change_rules" => write(Some(json!({"reposts": true})), 200),
        "mark" => write(Some(json!({"cursor": "{cursor}"})), 200),
        "follow" | "mute" | "block" | "add_member" => write(None, 201),
        "unfollow" | "unmute" | "unblock" | "delete_list" | "remove_member" => write(None, 204),
        // As plain HTTP.
        "watch" => read(426),
        "stream_events" | "read_feed" | "read_own_page" | "read_user" | "list_following" | "list_followers"
        | "list_mutes" | "list_blocks" | "read_rules" | "read_marker" | "explain" | "list_lists" | "read_list_feed"
        | "list_members" => read(200),
        unknown => panic!("{unknown} is new: who may?"),
    }
}

fn has_log() -> bool {
    #[cfg(feature = "cluster")]
    return crate::three_nodes::is_wanted();
    #[cfg(not(feature = "cluster"))]
    false
}

/// A credential, and what operations answer that are not open to anybody: to those the owner may, and to the server's.
pub struct Credential {
    pub name: &'static str,
    header: Option<String>,
    expected: fn(&Call) -> (u16, &'static str),
}

const GOOD: (u16, &str) = (0, "");

pub fn credentials() -> Vec<Credential> {
    let credential = |name, header: Option<String>, expected| Credential { name, header, expected };
    let with = |name, token: String, expected| credential(name, Some(bearer(&token)), expected);
    vec![
        credential("none", None, |_| (401, "unauthenticated")),
        with("wrong key", "tidewire_another-key".to_owned(), |_| (401, "invalid_token")),
        with("malformed", "a.b.c".to_owned(), |_| (401, "invalid_token")),
        credential("other scheme", Some("Basic YW5uOmFubg==".to_owned()), |_| (401, "invalid_token")),
        with("expired", tokens::expired("ann"), |_| (401, "token_expired")),
        with("early", tokens::early("ann"), |_| (401, "token_not_yet_valid")),
        with("alg none", tokens::unsigned("ann"), |_| (401, "invalid_token")),
        with("another key", tokens::of_another_key("ann"), |_| (401, "invalid_token")),
        with("other user", tokens::token("dan"), |call| match call {
            // Nothing is deleted.
            Call { who: Who::Author, status: 204, .. } => GOOD,
            Call { who: Who::Author, .. } => (404, "unknown_post"),
            Call { who: Who::Each, .. } => GOOD,
            _ => (403, "forbidden"),
        }),
        with("read-only", tokens::reading("ann"), |call| match call {
            Call { who: Who::Server | Who::Collector, .. } => (403, "forbidden"),
            Call { changes: true, .. } => (403, "read_only"),
            _ => GOOD,
        }),
        with("right", tokens::token("ann"), |call| match call.who {
            Who::Server | Who::Collector => (403, "forbidden"),
            _ => GOOD,
        }),
        with("metrics key", METRICS_KEY.to_owned(), |call| match call.who {
            Who::Collector => GOOD,
            _ => (403, "forbidden"),
        }),
        with("reading key", READING_KEY.to_owned(), |call| if call.changes { (403, "read_only") } else { GOOD }),
        with("server key", SERVER_KEY.to_owned(), |_| GOOD),
    ]
}

/// Brings everything to where each call has something to do, and returns a post of ann's and a cursor.
fn prepare(server: &Server, name: &str) -> (String, String) {
    let key = bearer(SERVER_KEY);
    let ask = |method: &str, path: &str, body: Option<Value>| {
        let mut headers = vec![("authorization", key.as_str())];
        headers.extend(body.is_some().then_some(("content-type", "application/json")));
        server.ask(method, path, &headers, body.map_or(String::new(), |body| body.to_string()))
    };
    for path in ["following/bob", "mutes/bob", "blocks/bob", "lists/pals"] {
        let answer = ask("DELETE", &format!("/v1/users/ann/{path}"), None);
        assert!([204, 404].contains(&answer.status), "{path}: {}", answer.text);
    }
    if name == "erase_user" {
        ask("POST", "/v1/posts", Some(json!({"author": "zoe", "body": 1})));
    }
    if name != "add_member" {
        assert!([200, 201].contains(&ask("PUT", "/v1/users/ann/lists/pals/members/bob", None).status));
    }
    let post = ask("POST", "/v1/posts?wait=delivered", Some(json!({"author": "ann", "body": "marvel"}))).json();
    let page = ask("GET", "/v1/users/ann/feed?limit=1", None).json();
    (post["id"].as_str().unwrap().to_owned(), page["newest"].as_str().unwrap().to_owned())
}

/// Whose path an operation is asked for by. Ann, and her tokens, are needed afterwards.
fn user(operation: &str) -> &'static str {
    match operation {
        "revoke_tokens" => "eve",
        "erase_user" => "zoe",
        _ => "ann",
    }
}

pub fn send(server: &Server, (name, method, path): (&str, &str, &str), call: &Call, credential: &Credential) -> Answer {
    let (post, cursor) = prepare(server, name);
    let user = user(name);
    let parts = [
        ("{user}", user),
        ("{source}", "bob"),
        ("{name}", "pals"),
        ("{consumer}", "search"),
        ("{id}", &post),
        ("{post}", &post),
    ];
    let path = parts.iter().fold(path.to_owned(), |path, (part, value)| path.replace(part, value));
    let path = if name == "read_posts" { format!("{path}?ids={post}") } else { path };
    let mut headers = vec![];
    headers.extend(credential.header.as_deref().map(|value| ("authorization", value)));
    headers.extend(call.body.is_some().then_some(("content-type", "application/json")));
    let body = call.body.as_ref().map_or(String::new(), |body| body.to_string().replace("{cursor}", &cursor));
    // A stream that is allowed does not end; HEAD counts as GET.
    let is_endless = name == "stream_events" && (credential.expected)(call) == GOOD;
    server.ask(if is_endless { "HEAD" } else { method }, &path, &headers, body)
}

#[test]
fn every_operation_is_allowed_only_to_authorised_callers() {
    check(&Server::guarded(EngineConfig::default(), access()));
}

/// Sends every operation with every credential.
pub fn check(server: &Server) {
    let mut seen = BTreeSet::new();
    for operation @ (name, _, path) in operations() {
        let call = call(name);
        for credential in credentials() {
            let (status, code) = match call.who {
                Who::Anybody => GOOD,
                _ => (credential.expected)(&call),
            };
            let answer = send(server, operation, &call, &credential);
            let told = format!("{name} with {}: {} {}", credential.name, answer.status, answer.text);
            if status == 0 {
                // A node knows its cluster.
                let is_node = name == "read_cluster" && !answer.header("tidewire-node").is_empty();
                assert_eq!(answer.status, if is_node { 200 } else { call.status }, "{told}");
                continue;
            }
            assert_eq!((answer.status, answer.json()["code"].as_str()), (status, Some(code)), "{told}");
            assert_eq!(answer.header("content-type"), "application/problem+json", "{told}");
            assert_eq!(answer.header("www-authenticate"), if status == 401 { "Bearer" } else { "" }, "{told}");
            let fields: Vec<_> = answer.json().as_object().unwrap().keys().cloned().collect();
            assert_eq!(fields, ["code", "detail", "status", "title", "type"], "{told}");
            assert!(!DATA.iter().any(|data| answer.text.contains(data)), "{told}");
            seen.insert(code);
        }
        assert!(path.starts_with("/v1/") || path == "/metrics" || call.who == Who::Anybody, "{name}");
    }
    assert_eq!(seen.len(), 7, "{seen:?}");
}

/// Whom an operation is about that would change something in [`changeable`].
fn whom(name: &str) -> &'static str {
    match name {
        "unfollow" => "fay",
        "unmute" => "mia",
        "unblock" => "bea",
        "remove_member" => "lia",
        _ => "bob",
    }
}

/// Brings everything to where each operation would change something. Returns a post of ann's and a cursor.
fn changeable(server: &Server) -> (String, String) {
    let key = bearer(SERVER_KEY);
    for of_bob in ["following/bob", "mutes/bob", "blocks/bob", "lists/pals/members/bob"] {
        server.ask("DELETE", &format!("/v1/users/ann/{of_bob}"), &[("authorization", &key)], "");
    }
    for kept in ["following/fay", "mutes/mia", "blocks/bea", "lists/pals/members/lia"] {
        server.ask("PUT", &format!("/v1/users/ann/{kept}"), &[("authorization", &key)], "");
    }
    let headers = [("authorization", key.as_str()), ("content-type", "application/json")];
    let post = r#"{"author":"ann","body":"marvel"}"#;
    let post = server.ask("POST", "/v1/posts?wait=delivered", &headers, post).json();
    let page = server.ask("GET", "/v1/users/ann/feed?limit=1", &headers[..1], "").json();
    (post["id"].as_str().unwrap().to_owned(), page["newest"].as_str().unwrap().to_owned())
}

/// All that operations change, as the server's key sees it.
fn world(server: &Server) -> Vec<Value> {
    let key = bearer(SERVER_KEY);
    let parts = "following followers mutes blocks lists lists/pals/members rules marker posts feed";
    let ask = |path: &str| server.ask("GET", path, &[("authorization", &key)], "");
    let get = |part: &str| ask(&format!("/v1/users/ann/{part}")).json();
    let metrics = ask("/metrics").text;
    let revoked = metrics.lines().find(|line| line.starts_with("tidewire_revocations ")).unwrap();
    parts.split(' ').map(get).chain([json!(revoked)]).collect()
}

/// Asks for something that changes the world, if the credential is good for it.
fn change(
    server: &Server,
    (name, method, path): (&str, &str, &str),
    (post, cursor): &(String, String),
    credential: &Credential,
) -> u16 {
    let user = user(name);
    let parts = [
        ("{user}", user),
        ("{source}", whom(name)),
        ("{name}", "pals"),
        ("{consumer}", "search"),
        ("{id}", post),
        ("{post}", post),
    ];
    let path = parts.iter().fold(path.to_owned(), |path, (part, value)| path.replace(part, value));
    let body = match name {
        "edit_post" => Some(json!({"hidden": true})),
        "change_rules" => Some(json!({"reposts": false})),
        _ => call(name).body,
    };
    let mut headers = vec![];
    headers.extend(credential.header.as_deref().map(|value| ("authorization", value)));
    headers.extend(body.is_some().then_some(("content-type", "application/json")));
    let body = body.map_or(String::new(), |body| body.to_string().replace("{cursor}", cursor));
    server.ask(method, &path, &headers, body).status
}

#[test]
fn refused_operations_have_no_effect() {
    let server = Server::guarded(EngineConfig::default(), access());
    let there = changeable(&server);
    let before = world(&server);
    let (good, bad): (Vec<_>, Vec<_>) =
        credentials().into_iter().partition(|credential| ["right", "server key"].contains(&credential.name));
    for operation @ (name, ..) in operations().filter(|(name, ..)| call(name).changes) {
        for credential in &bad {
            let status = change(&server, operation, &there, credential);
            // To others the post is not there, and deleting what is not there is fine.
            let is_nothing = (name, credential.name, status) == ("delete_post", "other user", 204);
            assert!(status >= 400 || is_nothing, "{name} with {}: {status}", credential.name);
            assert_eq!(world(&server), before, "{name} with {}", credential.name);
        }
    }
    // Each would have been seen. An erasure is not seen here before it has ended, and without a directory there are no consumers.
    let changes_nothing = ["erase_user", "take_snapshot", "verify_feed", "rebuild_feed", "remove_change_consumer"];
    for operation @ (name, ..) in
        operations().filter(|(name, ..)| call(name).changes && !changes_nothing.contains(name))
    {
        let there = changeable(&server);
        let before = world(&server);
        let status = change(&server, operation, &there, good.last().unwrap());
        assert!(status < 300, "{name}: {status}");
        assert_ne!(world(&server), before, "{name}");
    }
}

#[test]
fn users_may_change_only_their_own_posts_and_missing_posts_look_the_same() {
    let server = Server::guarded(EngineConfig::default(), access());
    let ask_by = |credential: &str, method: &str, path: &str, body: &str| {
        let credential = bearer(credential);
        let mut headers = vec![("authorization", credential.as_str())];
        headers.extend((!body.is_empty()).then_some(("content-type", "application/json")));
        server.ask(method, path, &headers, body)
    };
    let ask = |user: &str, method: &str, path: &str, body: &str| ask_by(&tokens::token(user), method, path, body);
    let publish = |post: &str| ask_by(SERVER_KEY, "POST", "/v1/posts", post).status;
    assert_eq!(publish(r#"{"author":"ann","id":"7","body":1}"#), 201);
    let refused = ask("dan", "POST", "/v1/posts", r#"{"author":"ann","body":1}"#);
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("forbidden")));
    for (method, body) in [("GET", ""), ("PATCH", r#"{"hidden":true}"#), ("DELETE", "")] {
        let unknown = if method == "DELETE" { 204 } else { 404 };
        for post in ["/v1/posts/7", "/v1/posts/8"] {
            assert_eq!(ask("dan", method, post, body).status, unknown, "{method} {post}");
        }
    }
    assert_eq!(ask("ann", "PATCH", "/v1/posts/7", r#"{"hidden":true}"#).status, 200);
    assert_eq!(ask("ann", "GET", "/v1/posts/7", "").status, 200, "hidden, and still ann's");
    assert_eq!(ask("ann", "DELETE", "/v1/posts/7", "").status, 204);
    for user in ["ann", "dan"] {
        assert_eq!(ask(user, "GET", "/v1/posts/7", "").status, 404);
        assert_eq!(ask(user, "DELETE", "/v1/posts/7", "").status, 204);
    }
    assert_eq!(publish(r#"{"author":"dan","id":"8","body":1}"#), 201, "what deleted nothing left nothing behind");
}

#[test]
fn only_server_keys_can_make_and_list_hidden_follows() {
    let server = Server::guarded(EngineConfig::default(), access());
    for (credential, allowed) in [(tokens::token("ann"), false), (SERVER_KEY.to_owned(), true)] {
        let headers = [("authorization", &*bearer(&credential)), ("content-type", "application/json")];
        let hidden = server.ask("PUT", "/v1/users/ann/following/bob", &headers, r#"{"hidden":true}"#);
        assert_eq!(hidden.status, if allowed { 201 } else { 403 });
        let listed = server.ask("GET", "/v1/users/ann/following?hidden=true", &headers[..1], "");
        assert_eq!(listed.status, if allowed { 200 } else { 403 });
        let plain = server.ask("PUT", "/v1/users/ann/following/cas", &headers, r#"{"hidden":false}"#);
        assert_eq!(plain.status, if allowed { 200 } else { 201 });
    }
}

#[test]
fn the_user_in_a_path_is_authorised_as_the_handler_decodes_it() {
    let server = Server::guarded(EngineConfig::default(), access());
    let token = bearer(&tokens::token("ann"));
    for (path, status) in [
        ("/v1/users/ann/feed", 200),
        ("/v1/users/%61nn/feed", 200),
        ("/v1/users/ANN/feed", 403),
        ("/v1/users/ann%2F/feed", 403),
        ("/v1/users/tag:ann/feed", 403),
        ("/v1/users/ann%00/feed", 403),
        ("/v1/nothing", 404),
        ("/console", 200),
        ("/tidewire.js", 200),
    ] {
        assert_eq!(server.ask("GET", path, &[("authorization", &token)], "").status, status, "{path}");
    }
    assert_eq!(server.get("/v1/nothing").status, 404);
    assert_eq!(server.get("/console").status, 200);
    let twice = [("authorization", &*token), ("authorization", &*token)];
    assert_eq!(server.ask("GET", "/v1/users/ann/feed", &twice, "").status, 401);
    assert_eq!(
        server.ask("GET", "/v1/users/ann/feed", &[("authorization", &token.replace("Bearer", "bearer"))], "").status,
        200
    );
}
