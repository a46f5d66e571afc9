//! Tests of the cost of forged tokens: they count signatures.
#![cfg(test)]

use std::collections::BTreeSet;

use super::*;
use crate::http::auth::signatures::{Check, Signatures};
use tidewire::limits::{FORGED_SIGNATURES_AT_ONCE, KEYS_TRIED_MAX, UNKNOWN_CREDENTIALS_PER_SECOND};

/// Returns the maximum number of HS256 keys without a `kid`, and one with a `kid`.
fn many_keys() -> Keys {
    let mut keys = Keys::default();
    for nth in 0..KEYS_TRIED_MAX as u8 {
        keys.add_token(TokenKey::hs256(&[nth + 1; 32], None));
    }
    keys.add_token(TokenKey::hs256(&[99; 32], None).called("named"));
    keys
}

fn signed(user: &str, kid: Option<&str>, secret: &[u8]) -> String {
    let head = Header { kid: kid.map(str::to_owned), ..Header::new(Algorithm::HS256) };
    let claims = json!({"sub": user, "exp": NOW.0 / 1_000_000 + 9});
    token_algorithms::encode(&head, &claims, &EncodingKey::from_secret(secret)).unwrap()
}

/// Checks credentials of several clients, all at the same instant.
struct Checker {
    keys: Keys,
    signatures: Signatures,
    at: Instant,
}

impl Checker {
    fn new(keys: Keys) -> Self {
        Self { keys, signatures: Signatures::default(), at: Instant::now() }
    }

    fn ask(&self, from: &str, token: &str) -> &'static str {
        let address = Some(from.parse().unwrap());
        code(self.keys.check(token, NOW, Check { signatures: &self.signatures, address, at: self.at }))
    }
}

#[test]
fn forged_tokens_of_a_network_use_no_more_verifications_than_its_budget() {
    let checker = Checker::new(many_keys());
    let (ann, bob) = (signed("ann", None, &[8; 32]), signed("bob", None, &[8; 32]));
    assert_eq!(checker.ask("192.0.2.1", &ann), "good");
    let before = checker.signatures.computed();
    let codes: Vec<_> =
        (0..1_000).map(|nth| checker.ask("192.0.2.1", &signed(&format!("user{nth}"), None, &[77; 32]))).collect();
    let (computed, at_once) = (checker.signatures.computed() - before, u64::from(FORGED_SIGNATURES_AT_ONCE));
    assert!(computed <= at_once, "{computed} signatures for 1000 forged tokens, where {at_once} are allowed");
    assert_eq!((codes[0], *codes.last().unwrap()), ("invalid_token", "too_many_denials"));
    let spent = checker.signatures.computed();
    assert_eq!(checker.ask("192.0.2.1", &ann), "good", "it was verified before");
    assert_eq!(checker.ask("192.0.2.1", &bob), "too_many_denials", "it would have to be verified");
    assert_eq!(checker.signatures.computed(), spent);
    assert_eq!(checker.ask("192.0.2.2", &bob), "good", "from elsewhere");
    assert_eq!(checker.ask("192.0.2.1", &bob), "good", "by now it was verified");
}

#[test]
fn a_token_that_no_key_can_have_signed_is_refused_without_verification() {
    let head = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let mut only_named = Keys::default();
    only_named.add_token(TokenKey::hs256(&[1; 32], None).called("named"));
    let checker = Checker::new(only_named);
    for header in [
        json!({"alg": "EdDSA"}),
        json!({"alg": "EdDSA", "kid": "named"}),
        json!({"alg": "HS256"}),
        json!({"alg": "HS256", "kid": "unknown"}),
        json!({"alg": "RS256", "kid": "named"}),
        json!({"alg": "none"}),
        json!({"alg": "HS256", "kid": "named", "crit": ["b64"]}),
    ] {
        let token = format!("{}.e30.AAAA", head(header.clone()));
        assert_eq!(checker.ask("192.0.2.1", &token), "invalid_token", "{header}");
        assert_eq!(checker.signatures.computed(), 0, "{header}");
    }
    assert_eq!(
        checker.ask("192.0.2.1", &format!("{}.e30.AAAA", head(json!({"alg": "HS256", "kid": "named"})))),
        "invalid_token"
    );
    assert_eq!(checker.signatures.computed(), 1);
}

#[test]
fn a_token_is_verified_once_and_its_times_are_compared_each_time() {
    let checker = Checker::new(keys());
    let seconds = NOW.0 / 1_000_000;
    let good = token(&json!({"sub": "ann", "exp": seconds + 9}));
    (0..100).for_each(|_| assert_eq!(checker.ask("192.0.2.1", &good), "good"));
    assert_eq!(checker.signatures.computed(), 2, "one for each key of the algorithm");
    let check = Check { signatures: &checker.signatures, address: None, at: checker.at };
    assert_eq!(code(checker.keys.check(&good, UnixMicros((seconds + 9) * 1_000_000), check)), "token_expired");
    let expired = token(&json!({"sub": "ann", "exp": seconds}));
    (0..100).for_each(|_| assert_eq!(checker.ask("192.0.2.1", &expired), "token_expired"));
    assert_eq!(checker.signatures.computed(), 4, "an expired one is known as well");
}

#[test]
fn tokens_with_valid_signatures_use_no_budget_for_forged_tokens() {
    let mut keys = many_keys();
    keys.add_token(TokenKey::hs256(&[55; 32], Some("feeds")).called("feeds"));
    let checker = Checker::new(keys);
    let seconds = NOW.0 / 1_000_000;
    let of = |claims: &Value, kid: Option<&str>, secret: u8| {
        let head = Header { kid: kid.map(str::to_owned), ..Header::new(Algorithm::HS256) };
        token_algorithms::encode(&head, claims, &EncodingKey::from_secret(&[secret; 32])).unwrap()
    };
    for nth in 0..FORGED_SIGNATURES_AT_ONCE {
        let (user, exp) = (format!("user{nth}"), seconds + 9);
        for (claims, kid, secret, expected) in [
            (json!({"sub": user, "exp": exp, "aud": "others"}), Some("feeds"), 55, "invalid_token"),
            (json!({"sub": user, "exp": exp}), Some("feeds"), 55, "invalid_token"),
            (json!({"sub": user, "exp": exp, "scope": "all"}), None, 8, "invalid_token"),
            (json!({"sub": format!("tag:{nth}"), "exp": exp}), None, 8, "invalid_token"),
            (json!({"sub": user}), None, 8, "invalid_token"),
            (json!({"sub": user, "exp": seconds - 1}), None, 8, "token_expired"),
        ] {
            assert_eq!(checker.ask("192.0.2.1", &of(&claims, kid, secret)), expected, "{claims}");
        }
    }
    assert_eq!(checker.ask("192.0.2.1", &signed("ann", None, &[8; 32])), "good", "the budget is whole");
    let again = of(&json!({"sub": "ann", "exp": seconds + 9, "aud": "others"}), Some("feeds"), 55);
    let before = checker.signatures.computed();
    (0..100).for_each(|_| assert_eq!(checker.ask("192.0.2.1", &again), "invalid_token"));
    assert_eq!(checker.signatures.computed() - before, 1, "what was found out is known");
}

/// Authenticates a token from an address whose budget for forged tokens is used up.
fn beside_a_flood(access: &Access, token: &str) -> &'static str {
    let peer = Some(SocketAddr::from(([192, 0, 2, 1], 1)));
    let ask = |token: &str| code(access.authenticate(&access.keys().unwrap(), token, peer, None, Counted::NotYet));
    let lasts = json!({"sub": "mal", "exp": 4_102_444_800_i64});
    let forged = |nth: u32| EncodingKey::from_secret(&[nth.to_le_bytes(), [7; 4]].concat());
    // The budget refills with time. If it refilled after the flood, the server checks the token and finds it invalid. The test then tries
    // again.
    for _ in 0..100 {
        let mut flood = (0..2 * FORGED_SIGNATURES_AT_ONCE)
            .map(|nth| ask(&token_algorithms::encode(&Header::default(), &lasts, &forged(nth)).unwrap()));
        assert!(flood.any(|code| code == "too_many_denials"), "the budget is spent");
        let answer = ask(token);
        if answer != "invalid_token" {
            return answer;
        }
    }
    "invalid_token"
}

#[test]
fn forged_tokens_affect_clients_of_the_same_network_but_not_behind_a_proxy() {
    for (peer, is_refused) in [("192.0.2.1:1", true), ("127.0.0.1:1", false)] {
        let (access, peer) = (Access::by(keys()), Some(peer.parse().unwrap()));
        let ask = |token: &str| code(access.authenticate(&access.keys().unwrap(), token, peer, None, Counted::NotYet));
        let forged: BTreeSet<_> = (0..2 * FORGED_SIGNATURES_AT_ONCE)
            .map(|nth| ask(&signed(&format!("user{nth}"), None, &[77; 32])))
            .collect();
        assert_eq!(forged.contains("too_many_denials"), is_refused, "{peer:?}: {forged:?}");
        let unknown: BTreeSet<_> = (0..5 * UNKNOWN_CREDENTIALS_PER_SECOND.get())
            .map(|_| access.count_denial(Denial::Unknown(""), peer).code())
            .collect();
        assert_eq!(unknown.contains("too_many_denials"), is_refused, "{peer:?}: {unknown:?}");
    }
}

#[test]
fn a_verified_token_stays_cached_while_its_key_is_unchanged() {
    let file = |audience: Option<&str>, kid: Option<&str>, others: &[(u8, Option<&str>)]| {
        let mut keys = Keys::default();
        let key = TokenKey::hs256(&SECRET, audience);
        keys.add_token(match kid {
            Some(kid) => key.called(kid),
            None => key,
        });
        // The server checks forged tokens with this second key in every case.
        keys.add_token(TokenKey::hs256(&[88; 32], None));
        for (secret, kid) in others {
            let other = TokenKey::hs256(&[*secret; 32], None);
            keys.add_token(match kid {
                Some(kid) => other.called(kid),
                None => other,
            });
        }
        keys
    };
    let claims = json!({"sub": "ann", "exp": 4_102_444_800_i64, "aud": "feeds"});
    let head = Header { kid: Some("2026".to_owned()), ..Header::new(Algorithm::HS256) };
    let ann = token_algorithms::encode(&head, &claims, &EncodingKey::from_secret(&SECRET)).unwrap();
    for (before, after, expected) in [
        ((Some("feeds"), None), file(Some("feeds"), None, &[(77, None)]), "good"),
        ((Some("feeds"), None), file(Some("feeds"), None, &[(77, Some("2025"))]), "good"),
        ((Some("feeds"), Some("2026")), file(Some("feeds"), Some("2026"), &[(77, Some("2027"))]), "good"),
        ((Some("feeds"), None), file(Some("others"), None, &[]), "too_many_denials"),
        ((Some("feeds"), Some("2026")), file(Some("feeds"), Some("2027"), &[]), "too_many_denials"),
        ((Some("feeds"), None), file(Some("feeds"), None, &[(77, Some("2026"))]), "too_many_denials"),
    ] {
        let access = Access::by(file(before.0, before.1, &[(66, None)]));
        let peer = Some(SocketAddr::from(([192, 0, 2, 2], 1)));
        assert_eq!(code(access.authenticate(&access.keys().unwrap(), &ann, peer, None, Counted::NotYet)), "good");
        access.replace(after);
        assert_eq!(beside_a_flood(&access, &ann), expected, "{before:?}");
    }
    let access = Access::by(file(Some("feeds"), None, &[]));
    assert_eq!(code(access.authenticate(&access.keys().unwrap(), &ann, None, None, Counted::NotYet)), "good");
    let mut without = Keys::default();
    without.add_token(TokenKey::hs256(&[77; 32], None));
    access.replace(without);
    assert_eq!(
        code(access.authenticate(&access.keys().unwrap(), &ann, None, None, Counted::NotYet)),
        "invalid_token",
        "its key has gone"
    );
}
