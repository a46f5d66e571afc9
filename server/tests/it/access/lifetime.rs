//! Tokens that are good for longer than the server allows.

use std::time::Duration;

use serde_json::json;
use tidewire::config::EngineConfig;
use tidewire_server::http::auth::Access;

use crate::access::tokens::{self, SERVER_KEY, bearer};
use crate::server::Server;

#[test]
fn a_token_with_too_long_a_lifetime_is_refused_with_its_own_code() {
    let access = Access::by(tokens::keys()).with_token_lifetime_max(Duration::from_secs(600));
    let server = Server::guarded(EngineConfig::default(), access);
    let ask = |credential: &str| server.ask("GET", "/v1/users/ann/feed", &[("authorization", &bearer(credential))], "");
    for (made_ago, lasts, code) in
        [(0.0, 600.0, None), (300.0, 600.0, None), (0.0, 601.0, Some("token_lifetime_too_long"))]
    {
        let answer = ask(&tokens::made("ann", made_ago, lasts));
        assert_eq!(answer.status, if code.is_some() { 401 } else { 200 }, "{made_ago} {lasts}: {}", answer.text);
        assert_eq!(answer.json()["code"].as_str(), code);
        assert!(code.is_none() || answer.text.contains("longer than 600 s"), "{}", answer.text);
    }
    let without = ask(&tokens::token("ann"));
    assert_eq!((without.status, &without.json()["code"]), (401, &json!("invalid_token")));
    assert!(without.text.contains("no \\\"iat\\\""), "{}", without.text);
    assert_eq!(ask(SERVER_KEY).status, 200);
}
