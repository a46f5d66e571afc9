//! Forged tokens, sent as anybody can send them: what they cost is counted by the server's own metric.

use testkit::eventually;
use tidewire::config::EngineConfig;
use tidewire::limits::{FORGED_SIGNATURES_AT_ONCE, FORGED_SIGNATURES_OF_PROXIES_PER_SECOND, KEYS_TRIED_MAX};
use tidewire_server::http::auth::Access;
use tidewire_server::http::auth::keys::TokenKey;

use crate::access::tokens::{self, SERVER_KEY, bearer};
use crate::server::Server;

/// Signatures that the server computed since its start.
fn computed(server: &Server) -> u64 {
    let metrics = server.ask("GET", "/metrics", &[("authorization", &bearer(SERVER_KEY))], "").text;
    let line = metrics.lines().find_map(|line| line.strip_prefix("tidewire_token_signatures_total "));
    line.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
}

#[test]
fn a_flood_of_forged_tokens_uses_no_more_verifications_than_its_network_may() {
    let mut keys = tokens::keys();
    for nth in 1..KEYS_TRIED_MAX as u8 {
        assert!(keys.add_token(TokenKey::hs256(&[nth + 100; 32], None)));
    }
    let server = Server::guarded(EngineConfig::default(), Access::by(keys).with_proxies("none".parse().unwrap()));
    let ask = |token: &str| server.ask("GET", "/v1/users/ann/feed", &[("authorization", &bearer(token))], "");
    let good = tokens::token("ann");
    assert_eq!(ask(&good).status, 200);
    let (before, mut nth) = (computed(&server), 0);
    // What is spent comes back, but not so soon.
    eventually("forged tokens are refused by what they cost", || {
        let before = computed(&server);
        nth += 1;
        let status = ask(&tokens::of_another_key(&format!("user{nth}"))).status;
        assert!(
            status == 401 || (status, computed(&server)) == (429, before),
            "no signature for who is refused: {status}"
        );
        status == 429
    });
    let spent = computed(&server) - before;
    assert!(spent >= u64::from(FORGED_SIGNATURES_AT_ONCE) / 2, "{spent}");
    assert!(spent <= nth * KEYS_TRIED_MAX as u64, "{spent} for {nth}");
    assert_eq!(ask(&good).status, 200, "a user who was there before");
}

#[test]
fn forged_tokens_of_one_client_behind_a_proxy_do_not_lock_out_others() {
    let server = Server::guarded(EngineConfig::default(), tokens::access());
    let ask = |token: &str| server.ask("GET", "/v1/users/ann/feed", &[("authorization", &bearer(token))], "").status;
    let before = computed(&server);
    for nth in 0..2 * FORGED_SIGNATURES_AT_ONCE {
        assert_eq!(ask(&tokens::of_another_key(&format!("user{nth}"))), 401, "{nth}");
    }
    assert!(u64::from(FORGED_SIGNATURES_OF_PROXIES_PER_SECOND) > computed(&server) - before);
    assert_eq!(ask(&tokens::token("ann")), 200, "by the same proxy, and not verified before");
}
