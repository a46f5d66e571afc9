//! Tokens that are revoked, over HTTP and over restarts.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidewire::clock::{Clock as _, SystemClock};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::id::SourceId;
use tidewire_server::http::engine_cell::EngineCell;
use tidewire_server::http::state::HttpState;

use crate::access::tokens::{self, SECRET, SERVER_KEY, access, bearer};
use crate::program::Program;
use crate::server::{Answer, Server};

fn feed(server: &Server, user: &str, credential: &str) -> Answer {
    server.ask("GET", &format!("/v1/users/{user}/feed"), &[("authorization", &bearer(credential))], "")
}

/// Asks for a revocation, as the server's owner.
fn revoke(server: &Server, user: &str, body: &str) -> Answer {
    let key = bearer(SERVER_KEY);
    let mut headers = vec![("authorization", key.as_str())];
    headers.extend((!body.is_empty()).then_some(("content-type", "application/json")));
    server.ask("POST", &format!("/v1/users/{user}/revoke"), &headers, body)
}

#[test]
fn tokens_issued_before_a_revocation_are_refused_and_later_ones_accepted() {
    let server = Server::guarded(EngineConfig::default(), access());
    let (old, without_iat) = (tokens::made("ann", 60.0, 600.0), tokens::token("ann"));
    for token in [&old, &without_iat] {
        assert_eq!(feed(&server, "ann", token).status, 200);
    }
    let revoked = revoke(&server, "ann", "");
    assert_eq!((revoked.status, &revoked.json()["user"]), (200, &json!("ann")), "{}", revoked.text);
    for token in [&old, &without_iat] {
        let refused = feed(&server, "ann", token);
        assert_eq!((refused.status, &refused.json()["code"]), (401, &json!("token_revoked")));
        assert_eq!(refused.header("www-authenticate"), "Bearer");
    }
    assert_eq!(feed(&server, "ann", &tokens::made("ann", 0.0, 600.0)).status, 200, "it was made since");
    assert_eq!(feed(&server, "bob", &tokens::made("bob", 60.0, 600.0)).status, 200, "another user's");
    assert_eq!(feed(&server, "ann", SERVER_KEY).status, 200);
    assert_eq!(feed(&server, "ann", &tokens::expired("ann")).json()["code"], "token_expired");
}

#[test]
fn a_token_issued_in_the_future_does_not_survive_a_revocation() {
    let server = Server::guarded(EngineConfig::default(), access());
    let of_2100 = tokens::signed(&json!({"sub": "ann", "iat": 4_102_444_800_i64, "exp": 4_102_444_900_i64}), &SECRET);
    let refused_before = feed(&server, "ann", &of_2100);
    assert_eq!(revoke(&server, "ann", "").status, 200);
    for refused in [refused_before, feed(&server, "ann", &of_2100)] {
        assert_eq!((refused.status, &refused.json()["code"]), (401, &json!("token_issued_in_future")));
        assert!(refused.text.contains("iat") && refused.text.contains("60 s"), "{}", refused.text);
    }
    let slightly_ahead = tokens::made("ann", -30.0, 600.0);
    assert_eq!(
        feed(&server, "ann", &slightly_ahead).status,
        200,
        "the clock of who makes tokens may be ahead a little"
    );
    let later = (SystemClock.now().saturating_add(Duration::from_secs(40))).to_string();
    assert_eq!(revoke(&server, "ann", &json!({"not_before": later}).to_string()).status, 200);
    assert_eq!(feed(&server, "ann", &slightly_ahead).json()["code"], "token_revoked");
}

#[test]
fn the_latest_revocation_time_applies_and_times_far_ahead_are_refused() {
    let server = Server::guarded(EngineConfig::default(), access());
    let not_before = |answer: &Answer| answer.json()["not_before"].as_str().unwrap().to_owned();
    let first = revoke(&server, "ann", r#"{"not_before":"2020-01-01T00:00:00Z"}"#);
    assert_eq!(not_before(&first), "2020-01-01T00:00:00.000000Z");
    assert_eq!(feed(&server, "ann", &tokens::made("ann", 60.0, 600.0)).status, 200, "made later");
    assert_eq!(feed(&server, "ann", &tokens::token("ann")).status, 401, "who knows when it was made");
    let now = revoke(&server, "ann", r#"{"not_before":null}"#);
    assert_eq!(feed(&server, "ann", &tokens::made("ann", 60.0, 600.0)).status, 401);
    let earlier = revoke(&server, "ann", r#"{"not_before":"2020-01-01T00:00:00Z"}"#);
    assert_eq!((earlier.status, not_before(&earlier)), (200, not_before(&now)), "nothing is taken back");
    for (user, body, status, code, field) in [
        ("ann", r#"{"not_before":"2999-01-01T00:00:00Z"}"#, 400, "invalid_field", json!("not_before")),
        ("ann", r#"{"not_before":1}"#, 400, "invalid_field", json!("not_before")),
        ("ann", r#"{"before":"2020-01-01T00:00:00Z"}"#, 400, "unknown_field", json!("before")),
        ("ann", "[]", 400, "invalid_field", json!(".")),
        ("tag:tea", "", 422, "not_a_user", Value::Null),
    ] {
        let answer = revoke(&server, user, body);
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{body}: {}", answer.text);
        assert_eq!(answer.json()["field"], field, "{body}");
    }
    let metrics = server.ask("GET", "/metrics", &[("authorization", &bearer(SERVER_KEY))], "").text;
    assert!(metrics.contains("tidewire_revocations 1\n"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn user_tokens_are_refused_until_revocations_are_recovered() {
    let engine = Engine::start(EngineConfig::default());
    let user = SourceId::new("ann").unwrap();
    engine.revoke_tokens(user, SystemClock.now(), None).await.unwrap();
    let engine_cell = EngineCell::default();
    let state = HttpState { access: Arc::new(access()), ..HttpState::from(engine_cell.clone()) };
    let server = Server::serving(state, engine.clone());
    let (old, codes) = (tokens::made("ann", 60.0, 600.0), |path: &str, credential: &str| {
        let answer = server.ask("GET", path, &[("authorization", &bearer(credential))], "");
        (answer.status, answer.json()["code"].as_str().unwrap_or_default().to_owned())
    });
    for path in ["/v1/users/ann/feed", "/v1/users/ann/live", "/v1/posts/1"] {
        assert_eq!(codes(path, &old), (503, "recovering".to_owned()), "{path}");
    }
    assert_eq!(codes("/v1/users/ann/feed", "guess").0, 401);
    engine_cell.set(engine);
    assert_eq!(codes("/v1/users/ann/feed", &old), (401, "token_revoked".to_owned()));
    assert_eq!(codes("/v1/users/ann/feed", &tokens::made("ann", 0.0, 600.0)).0, 200);
}

#[test]
fn a_revocation_survives_a_restart_from_journal_and_from_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let (file, data) = (directory.path().join("access.toml"), directory.path().join("data"));
    std::fs::write(&file, tokens::file()).unwrap();
    let start = || Program::start(&data, &["--access", file.to_str().unwrap()]);
    let (old, of_bob) = (tokens::made("ann", 60.0, 600.0), tokens::made("bob", 60.0, 600.0));
    let status = |program: &Program, user: &str, token: &str| {
        let request = program.agent.get(format!("{}/v1/users/{user}/feed", program.url));
        request.header("authorization", bearer(token)).call().unwrap().status().as_u16()
    };
    let post = |program: &Program, path: &str| {
        let request = program.agent.post(format!("{}{path}", program.url));
        request.header("authorization", bearer(SERVER_KEY)).send_empty().unwrap().status().as_u16()
    };
    let program = start();
    assert_eq!(status(&program, "ann", &old), 200);
    assert_eq!(post(&program, "/v1/users/ann/revoke"), 200);
    program.kill();
    let program = start();
    assert_eq!((status(&program, "ann", &old), status(&program, "bob", &of_bob)), (401, 200), "by the journal");
    assert_eq!(post(&program, "/v1/snapshots"), 201);
    program.kill();
    let program = start();
    assert_eq!((status(&program, "ann", &old), status(&program, "bob", &of_bob)), (401, 200), "by a snapshot");
    program.kill();
}
