//! The feeds of many readers in one request.

use serde_json::{Value, json};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire_server::http::admission::{Admission, AdmissionLimits};
use tidewire_server::http::auth::{Access, AccessOptions};
use tidewire_server::http::state::HttpState;

use crate::access::tokens::{self, METRICS_KEY, READING_KEY, SERVER_KEY, access, bearer};
use crate::server::{Answer, Server};

fn server() -> Server {
    Server::start(EngineConfig::default())
}

/// Lets readers follow bob, who publishes this many posts.
fn prepare(server: &Server, headers: &[(&str, &str)], readers: &[&str], posts: usize) {
    let headers = [headers, &[("content-type", "application/json")]].concat();
    for reader in readers {
        let followed = server.ask("PUT", &format!("/v1/users/{reader}/following/bob"), &headers, "{}");
        assert_eq!(followed.status, 201, "{}", followed.text);
    }
    for number in 0..posts {
        let post = json!({"author": "bob", "body": {"number": number}, "tags": ["rust"]}).to_string();
        assert_eq!(server.ask("POST", "/v1/posts?wait=delivered", &headers, post).status, 201);
    }
}

fn feeds(server: &Server, body: &Value) -> Answer {
    let answer = server.post("/v1/feeds", body);
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer
}

/// What each reader got: the number of entries, or the code of the problem.
fn outcomes(answer: &Answer) -> Vec<String> {
    let feed = |feed: &Value| match &feed["problem"]["code"] {
        Value::String(code) => code.clone(),
        _ => feed["items"].as_array().unwrap().len().to_string(),
    };
    answer.json()["feeds"].as_array().unwrap().iter().map(feed).collect()
}

#[test]
fn each_feed_of_a_bulk_read_equals_a_single_read_byte_for_byte() {
    let server = server();
    prepare(&server, &[], &["ann", "cas", "dan", "eve"], 5);
    server.get("/v1/users/ann/feed");
    let users = ["ann", "cas", "zed", "tag:rust", "ann", "dan"];
    for (options, query) in [
        (json!({"limit": 2}), "limit=2"),
        (json!({"limit": 100, "fields": "ids"}), "limit=100&fields=ids"),
        (json!({}), ""),
    ] {
        let mut body = options;
        body["users"] = json!(users);
        let together = feeds(&server, &body).text;
        let alone = users.map(|user| {
            let page = server.get(&format!("/v1/users/{user}/feed?{query}")).text;
            format!(r#"{{"user":"{user}",{}"#, page.strip_prefix('{').unwrap())
        });
        assert_eq!(together, format!(r#"{{"feeds":[{}]}}"#, alone.join(",")), "{query}");
    }
    assert_eq!(feeds(&server, &json!({"users": []})).text, r#"{"feeds":[]}"#);
}

#[test]
fn feeds_of_a_hundred_readers_are_answered_in_request_order() {
    let server = server();
    let readers: Vec<String> = (0..100).map(|nth| format!("reader{nth}")).collect();
    let names: Vec<&str> = readers.iter().map(String::as_str).collect();
    prepare(&server, &[], &names, 1);
    for (nth, feed) in feeds(&server, &json!({"users": names})).json()["feeds"].as_array().unwrap().iter().enumerate() {
        assert_eq!((&feed["user"], feed["items"].as_array().unwrap().len()), (&json!(names[nth]), 1));
    }
    let gates = server.get("/v1/stats").json()["admission"]["bulk_reads"].clone();
    assert_eq!((&gates["under_way"], &gates["refused"]), (&json!(0), &json!(0)), "{gates}");
}

#[test]
fn each_feed_is_returned_only_to_callers_who_may_read_it() {
    let server = Server::guarded(EngineConfig::default(), access());
    prepare(&server, &[("authorization", &bearer(SERVER_KEY))], &["ann", "cas"], 2);
    let body = json!({"users": ["cas", "ann", "nobody"]}).to_string();
    let ask = |credential: &str, method: &str, path: &str, body: &str| {
        let credential = bearer(credential);
        let mut headers = vec![("authorization", credential.as_str())];
        headers.extend((!body.is_empty()).then_some(("content-type", "application/json")));
        server.ask(method, path, &headers, body)
    };
    for key in [SERVER_KEY, READING_KEY] {
        assert_eq!(outcomes(&ask(key, "POST", "/v1/feeds", &body)), ["2", "2", "0"]);
    }
    assert_eq!(ask(METRICS_KEY, "POST", "/v1/feeds", &body).status, 403);
    assert_eq!(server.send("POST", "/v1/feeds", Some("application/json"), body.as_str()).status, 401);
    for token in [tokens::token("ann"), tokens::reading("ann")] {
        let answer = ask(&token, "POST", "/v1/feeds", &body);
        assert_eq!(outcomes(&answer), ["forbidden", "2", "forbidden"]);
        let alone = ask(&token, "GET", "/v1/users/cas/feed", "");
        assert_eq!((alone.status, &answer.json()["feeds"][0]["problem"]), (403, &alone.json()));
    }
    let denied = ask(SERVER_KEY, "GET", "/metrics", "").text;
    let line = r#"tidewire_http_refusals_total{code="forbidden"} "#;
    // Two readers by each of two tokens, one request by each of them, and one by the key for metrics.
    assert!(denied.lines().any(|found| found == format!("{line}7")), "{denied}");
}

#[test]
fn each_reader_counts_as_one_request_against_the_rate_of_the_caller() {
    // One who is named several times counts each time.
    for different in [30, 3] {
        let rate = Some("5".parse().unwrap());
        let access = Access::open(AccessOptions { rate, ..AccessOptions::default() }).unwrap();
        let server = Server::guarded(EngineConfig::default(), access);
        let users: Vec<String> = (0..30).map(|nth| format!("u{}", nth % different)).collect();
        let answer = feeds(&server, &json!({"users": users}));
        let outcomes = outcomes(&answer);
        // A burst is twice the rate; while the request is answered, a few more may be earned.
        assert!((10..25).contains(&outcomes.iter().filter(|outcome| *outcome == "0").count()), "{outcomes:?}");
        let refused = &answer.json()["feeds"][29]["problem"];
        assert_eq!(
            (&refused["code"], &refused["status"], refused["retry_after"].as_u64()),
            (&json!("rate_limited"), &json!(429), Some(1))
        );
        assert_eq!(server.get("/v1/users/u1/feed").status, 429, "it is the same rate");
    }
}

#[test]
fn sleeping_readers_above_the_limit_are_refused_and_awake_ones_answered() {
    let engine = Engine::start(EngineConfig::default());
    let limits = AdmissionLimits { wake_ups: 0, ..AdmissionLimits::default() };
    let state = HttpState { admission: Admission::new(limits), ..HttpState::from(engine.clone()) };
    let server = Server::serving(state, engine);
    prepare(&server, &[], &["ann", "cas"], 1);
    assert_eq!(outcomes(&feeds(&server, &json!({"users": ["cas", "bob", "zed"]}))), ["overloaded", "overloaded", "0"]);
    let answer = feeds(&server, &json!({"users": ["ann"]})).json();
    let problem = &answer["feeds"][0]["problem"];
    assert!((1..=3).contains(&problem["retry_after"].as_u64().unwrap()), "{problem}");
    let detail = server.get("/v1/users/ann/feed").json()["detail"].clone();
    assert_eq!(problem["detail"], detail, "the same as alone");
}

#[test]
fn a_full_response_names_the_readers_to_request_again() {
    let server = server();
    prepare(&server, &[], &["ann"], 0);
    let body = "x".repeat(45_000);
    for _ in 0..100 {
        assert_eq!(server.post("/v1/posts", &json!({"author": "bob", "body": body})).status, 201);
    }
    server.get("/v1/users/ann/feed");
    let answer = feeds(&server, &json!({"users": ["ann", "ann", "ann", "zed"], "limit": 100}));
    assert_eq!(outcomes(&answer), ["100", "100", "answer_full", "answer_full"]);
    assert_eq!(answer.json()["feeds"][2]["problem"]["status"], 503);
}

#[test]
fn an_invalid_body_is_refused_by_its_wrong_field() {
    let server = server();
    let many = vec!["ann"; 101];
    for (body, code, field) in [
        (json!({"users": many}), "invalid_field", "users"),
        (json!({"users": ["ann", "a b"]}), "invalid_field", "users[1]"),
        (json!({"users": ["ann", 7]}), "invalid_field", "users[1]"),
        (json!({"users": "ann"}), "invalid_field", "users"),
        (json!({"limit": 20}), "missing_field", "users"),
        (json!({"users": [], "limit": 0}), "invalid_field", "limit"),
        (json!({"users": [], "limit": 101}), "invalid_field", "limit"),
        (json!({"users": [], "limit": "20"}), "invalid_field", "limit"),
        (json!({"users": [], "fields": "all"}), "invalid_field", "fields"),
        (json!({"users": [], "before": "x"}), "unknown_field", "before"),
        (json!(["ann"]), "invalid_field", "."),
    ] {
        let refused = server.post("/v1/feeds", &body);
        let problem = refused.json();
        assert_eq!((refused.status, &problem["code"], &problem["field"]), (400, &json!(code), &json!(field)), "{body}");
    }
    let detail = server.post("/v1/feeds", &json!({"users": many})).json()["detail"].clone();
    assert_eq!(detail, "users: a request may have at most 100, this one has 101");
    assert_eq!(server.post("/v1/feeds?limit=1", &json!({"users": []})).json()["code"], "unknown_parameter");
    assert_eq!(server.send("POST", "/v1/feeds", Some("text/plain"), "{}").status, 415);
    assert_eq!(
        server.send("POST", "/v1/feeds", Some("application/json"), "{\"users\":[").json()["code"],
        "invalid_json"
    );
    let too_large = format!(r#"{{"users":["{}"]}}"#, "x".repeat(100_000));
    assert_eq!(server.send("POST", "/v1/feeds", Some("application/json"), too_large).status, 413);
    assert_eq!(server.get("/v1/feeds").status, 405);
}
