//! Tests of authentication that need no server.
#![cfg(test)]

mod forged;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::access_file;
use super::caller::User;
use super::cors::Origins;
use super::key::{self, KeyScope};
use super::keys::TokenKey;
use super::mint::{Scope, Signer, Wanted};
use super::*;
use crate::http::operation::Right;
use tidewire::clock::UnixMicros;
use tidewire::id::SourceId;
use tidewire::limits::{ACCESS_KEYS_MAX, CREDENTIAL_BYTES_MAX, TOKEN_CLOCK_AHEAD_MAX};

const NOW: UnixMicros = UnixMicros(1_000_000_000_000);
const SECRET: [u8; 32] = [1; 32];

/// An Ed25519 key pair, created with `openssl genpkey -algorithm ed25519`.
const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEII9CeSZFHoYZZdPZ8ri1Zlar+2Gk2SHX9QA9Efz1Ysdy
-----END PRIVATE KEY-----";
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAlvyqMXbdC9Bi5HSrRMkYQiBMBRowyyeMT+nzpbBT2Ck=
-----END PUBLIC KEY-----";

fn keys() -> Keys {
    let mut keys = Keys::default();
    keys.add_server(key::hash("the first"), KeyScope::All);
    keys.add_server(key::hash("the second"), KeyScope::Metrics);
    keys.add_token(TokenKey::hs256(&[9; 32], None));
    keys.add_token(TokenKey::hs256(&SECRET, None));
    keys.add_token(TokenKey::ed_dsa(&pem::ed25519_public(PUBLIC).unwrap(), None));
    keys
}

fn token(claims: &Value) -> String {
    token_algorithms::encode(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(&SECRET)).unwrap()
}

fn code(caller: Result<Caller, Denial>) -> &'static str {
    caller.map_or_else(Denial::code, |_| "good")
}

fn code_of(claims: &Value) -> &'static str {
    code(keys().caller(&token(claims), NOW))
}

#[test]
fn each_server_key_is_identified_and_wrong_keys_are_refused() {
    let keys = keys();
    let callers: Vec<_> = ["the first", "the second"].map(|key| keys.caller(key, NOW).unwrap()).into();
    assert!(callers.iter().all(|caller| matches!(caller, Caller::Server(..))) && callers[0] != callers[1]);
    assert!(matches!(callers[1], Caller::Server(_, KeyScope::Metrics)));
    for wrong in ["the third", "", "the firs", "the first ", "a.b.c", "the\u{0}first"] {
        assert_eq!(code(keys.caller(wrong, NOW)), "invalid_token", "{wrong:?}");
    }
    let long = "x".repeat(CREDENTIAL_BYTES_MAX + 1);
    assert_eq!(code(keys.caller(&long, NOW)), "invalid_token");
}

#[test]
fn a_token_is_valid_from_its_first_to_its_last_microsecond() {
    let seconds = NOW.0 / 1_000_000;
    for (claims, expected) in [
        (json!({"sub": "ann", "exp": seconds + 1}), "good"),
        (json!({"sub": "ann", "exp": seconds as f64 + 0.000_001}), "good"),
        (json!({"sub": "ann", "exp": seconds}), "token_expired"),
        (json!({"sub": "ann", "exp": -1}), "token_expired"),
        (json!({"sub": "ann", "exp": 1e300}), "good"),
        (json!({"sub": "ann", "exp": seconds + 9, "nbf": seconds}), "good"),
        (json!({"sub": "ann", "exp": seconds + 9, "nbf": seconds as f64 + 0.000_001}), "token_not_yet_valid"),
        (json!({"sub": "ann", "exp": seconds + 9, "nbf": 1e300}), "token_not_yet_valid"),
        (json!({"sub": "ann", "exp": seconds, "nbf": seconds + 9}), "token_expired"),
        (json!({"sub": "ann"}), "invalid_token"),
        (json!({"sub": "ann", "exp": null}), "invalid_token"),
        (json!({"sub": "ann", "exp": "9999999999"}), "invalid_token"),
        (json!({"sub": "ann", "exp": seconds + 9, "nbf": null}), "invalid_token"),
    ] {
        assert_eq!(code_of(&claims), expected, "{claims}");
    }
}

#[test]
fn a_token_with_a_lifetime_above_the_limit_is_refused() {
    const HOUR: i64 = 3_600;
    let now = NOW.0 / 1_000_000;
    let limited = Access::by(keys()).with_token_lifetime_max(Duration::from_secs(3_600));
    let ahead = TOKEN_CLOCK_AHEAD_MAX.as_secs() as i64;
    for (claims, expected) in [
        (json!({"iat": now, "exp": now + HOUR}), "good"),
        (json!({"iat": now, "exp": now + HOUR + 1}), "token_lifetime_too_long"),
        (json!({"iat": now, "exp": now as f64 + 3_600.000_001}), "token_lifetime_too_long"),
        (json!({"iat": now - HOUR + 1, "exp": now + 1}), "good"),
        (json!({"iat": now - HOUR, "exp": now + 1}), "token_lifetime_too_long"),
        (json!({"iat": now + ahead, "exp": now + ahead + HOUR}), "good"),
        (json!({"iat": now + ahead + 1, "exp": now + ahead + 1 + HOUR}), "token_issued_in_future"),
        (json!({"iat": 1e300, "exp": 1e300}), "token_issued_in_future"),
        (json!({"iat": -1e300, "exp": now + 1}), "token_lifetime_too_long"),
        (json!({"iat": now, "exp": 1e300}), "token_lifetime_too_long"),
        (json!({"exp": now + 1}), "invalid_token"),
        (json!({"iat": null, "exp": now + 1}), "invalid_token"),
        (json!({"iat": "now", "exp": now + 1}), "invalid_token"),
        (json!({"iat": now - 2 * HOUR, "exp": now - HOUR}), "token_expired"),
    ] {
        let mut claims = claims;
        claims["sub"] = json!("ann");
        let caller = keys().caller(&token(&claims), NOW);
        let limited = caller.and_then(|caller| {
            let Caller::User(user) = &caller else { panic!("{caller:?}") };
            limited.check_lifetime(user, NOW).map(|()| caller)
        });
        assert_eq!(code(limited), expected, "{claims}");
    }
    let unlimited = keys().caller(&token(&json!({"sub": "ann", "exp": 1e300})), NOW);
    let Ok(Caller::User(user)) = unlimited else { panic!("{unlimited:?}") };
    assert_eq!(Access::by(keys()).check_lifetime(&user, NOW), Ok(()), "where none is set");
    for (issued_at, expected) in [(now + ahead, Ok(())), (now + ahead + 1, Err(Denial::IssuedInFuture))] {
        let user = User { issued_at: Some(UnixMicros(issued_at * 1_000_000)), ..user.clone() };
        assert_eq!(Access::by(keys()).check_lifetime(&user, NOW), expected, "where none is set, made at {issued_at}");
    }
}

#[test]
fn a_token_needs_a_user_and_a_known_scope() {
    let end = NOW.0 / 1_000_000 + 9;
    for (claims, expected) in [
        (json!({"exp": end}), "invalid_token"),
        (json!({"exp": end, "sub": ""}), "invalid_token"),
        (json!({"exp": end, "sub": 7}), "invalid_token"),
        (json!({"exp": end, "sub": "a b"}), "invalid_token"),
        (json!({"exp": end, "sub": "tag:tea"}), "invalid_token"),
        (json!({"exp": end, "sub": "topic:42"}), "invalid_token"),
        (json!({"exp": end, "sub": "x".repeat(129)}), "invalid_token"),
        (json!({"exp": end, "sub": "ann", "scope": "admin"}), "invalid_token"),
        (json!({"exp": end, "sub": "ann", "scope": "read write"}), "invalid_token"),
        (json!({"exp": end, "sub": "ann", "scope": null}), "invalid_token"),
        (json!({"exp": end, "sub": "ann", "scope": ""}), "invalid_token"),
        (json!({"exp": end, "sub": "ann", "aud": "another service"}), "invalid_token"),
        (json!({"exp": end, "sub": "ann", "iss": "whoever", "more": [1]}), "good"),
    ] {
        assert_eq!(code_of(&claims), expected, "{claims}");
    }
    for (scope, may_write) in [("read", false), ("write", true)] {
        let caller = keys().caller(&token(&json!({"exp": end, "sub": "ann", "scope": scope})), NOW).unwrap();
        assert!(matches!(caller, Caller::User(user) if user.may_write == may_write && user.id.as_str() == "ann"));
    }
}

#[test]
fn algorithms_cannot_be_confused() {
    let end = NOW.0 / 1_000_000 + 9;
    let claims = json!({"sub": "ann", "exp": end});
    let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let good = token(&claims);
    let signature = good.rsplit('.').next().unwrap();
    for alg in ["none", "None", "HS384", "RS256", "EdDSA", "ES256"] {
        let head = part(&json!({"alg": alg, "typ": "JWT"}));
        for signature in ["", signature] {
            let token = format!("{head}.{}.{signature}", part(&claims));
            assert_eq!(code(keys().caller(&token, NOW)), "invalid_token", "{alg}");
        }
    }
    // Signed with HS256, using the other key's public key as the secret.
    for public in [PUBLIC.as_bytes(), &pem::ed25519_public(PUBLIC).unwrap()] {
        let key = EncodingKey::from_secret(public);
        let token = token_algorithms::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap();
        assert_eq!(code(keys().caller(&token, NOW)), "invalid_token");
    }
    let mut head = Header::new(Algorithm::HS256);
    head.crit = Some(vec!["b64".to_owned()]);
    let token = token_algorithms::encode(&head, &claims, &EncodingKey::from_secret(&SECRET)).unwrap();
    assert_eq!(code(keys().caller(&token, NOW)), "invalid_token");
    for damaged in [format!("{good}x"), good.replacen('.', "", 1), format!("{good}."), format!(" {good}")] {
        assert_eq!(code(keys().caller(&damaged, NOW)), "invalid_token", "{damaged}");
    }
}

#[test]
fn minted_tokens_and_keys_have_the_requested_scope() {
    let user = SourceId::new("ann").unwrap();
    let wanted = Wanted {
        user: &user,
        scope: Some(Scope::Read),
        audience: None,
        kid: None,
        from: NOW,
        lasts: Duration::from_secs(60),
    };
    for signer in [Signer::hs256(&STANDARD.encode(SECRET)).unwrap(), Signer::ed_dsa(PRIVATE).unwrap()] {
        let token = signer.token(wanted).unwrap();
        let until = NOW.saturating_add(wanted.lasts);
        let caller = keys().caller(&token, NOW).unwrap();
        assert!(
            matches!(caller, Caller::User(User { ref id, may_write: false, until: end, .. }) if *id == user && end == until)
        );
        assert_eq!(code(keys().caller(&token, until)), "token_expired");
        assert_eq!(code(Keys::default().caller(&token, NOW)), "invalid_token");
    }
    let key = mint::server_key().unwrap();
    assert_ne!(key, mint::server_key().unwrap());
    for scope in [KeyScope::All, KeyScope::Read, KeyScope::Metrics] {
        let keys = access_file::keys(&mint::server_key_entry("backend", &key, scope)).unwrap();
        assert!(matches!(keys.caller(&key, NOW), Ok(Caller::Server(_, found)) if found == scope));
    }
    mint::self_test(NOW).unwrap();
}

#[test]
fn a_token_with_a_key_id_is_verified_with_that_key_only() {
    let secrets: Vec<[u8; 32]> = (1..=5).map(|nth| [nth; 32]).collect();
    let mut keys = Keys::default();
    for (secret, kid) in secrets.iter().zip([Some("a"), Some("b"), None, None]) {
        let key = TokenKey::hs256(secret, None);
        assert!(keys.add_token(kid.map_or_else(|| TokenKey::hs256(secret, None), |kid| key.called(kid))));
    }
    assert!(!keys.add_token(TokenKey::hs256(&[9; 32], None).called("a")), "its name is taken");
    let claims = json!({"sub": "ann", "exp": NOW.0 / 1_000_000 + 9});
    let code_of = |nth: usize, kid: Option<&str>| {
        let head = Header { kid: kid.map(str::to_owned), ..Header::new(Algorithm::HS256) };
        let token = token_algorithms::encode(&head, &claims, &EncodingKey::from_secret(&secrets[nth])).unwrap();
        code(keys.caller(&token, NOW))
    };
    const NOT: &str = "invalid_token";
    for (kid, expected) in [
        (Some("a"), ["good", NOT, NOT, NOT, NOT]),
        (Some("b"), [NOT, "good", NOT, NOT, NOT]),
        (Some("of another service"), [NOT, NOT, "good", "good", NOT]),
        (None, [NOT, NOT, "good", "good", NOT]),
    ] {
        assert_eq!([0, 1, 2, 3, 4].map(|nth| code_of(nth, kid)), expected, "{kid:?}");
    }
}

#[test]
fn server_keys_may_be_limited_to_reading_or_metrics() {
    let may = |scope, needs| {
        let caller = Caller::Server(KeyId::default(), scope);
        caller.may(needs, Some("ann")).map_or_else(Denial::code, |()| "may")
    };
    use Right::{Read, Write};
    for (needs, reading, metrics) in [
        (Needs::Nothing, "may", "may"),
        (Needs::Metrics, "may", "may"),
        (Needs::Server(Read), "may", "forbidden"),
        (Needs::Server(Write), "read_only", "forbidden"),
        (Needs::Own(Read), "may", "forbidden"),
        (Needs::Own(Write), "read_only", "forbidden"),
        (Needs::Author(Read), "may", "forbidden"),
        (Needs::Author(Write), "read_only", "forbidden"),
    ] {
        assert_eq!((may(KeyScope::Read, needs), may(KeyScope::Metrics, needs)), (reading, metrics), "{needs:?}");
        assert_eq!(may(KeyScope::All, needs), "may");
    }
}

#[test]
fn each_denial_has_its_own_counted_code() {
    let denials = [
        Denial::Missing,
        Denial::Unknown(""),
        Denial::Expired,
        Denial::Early,
        Denial::IssuedInFuture,
        Denial::LastsTooLong(1),
        Denial::Revoked,
        Denial::Forbidden(""),
        Denial::ReadOnly,
        Denial::UnknownHost,
        Denial::ForeignPage,
        Denial::TooOften(1),
        Denial::TooMany(1),
        Denial::TooManySources(1),
    ];
    assert_eq!(denials.map(Denial::code), denial::CODES);
}

#[test]
fn a_token_for_another_audience_is_refused() {
    let mut keys = Keys::default();
    keys.add_token(TokenKey::hs256(&SECRET, Some("feeds")));
    let end = NOW.0 / 1_000_000 + 9;
    for (audience, expected) in [
        (json!("feeds"), "good"),
        (json!(["mail", "feeds"]), "good"),
        (json!("mail"), "invalid_token"),
        (json!(null), "invalid_token"),
    ] {
        let token = token(&json!({"sub": "ann", "exp": end, "aud": audience}));
        assert_eq!(code(keys.caller(&token, NOW)), expected, "{audience}");
    }
}

#[test]
fn users_may_access_only_their_own_resources() {
    let user = |may_write| {
        let id = SourceId::new("ann").unwrap();
        Caller::User(User { id, may_write, issued_at: None, until: NOW, key: KeyId::default() })
    };
    let may = |caller: &Caller, needs, user| caller.may(needs, user).map_or_else(Denial::code, |()| "may");
    for (needs, of, both, reading) in [
        (Needs::Nothing, None, "may", "may"),
        (Needs::Own(Right::Read), Some("ann"), "may", "may"),
        (Needs::Own(Right::Write), Some("ann"), "may", "read_only"),
        (Needs::Own(Right::Read), Some("bob"), "forbidden", "forbidden"),
        (Needs::Own(Right::Write), Some("bob"), "forbidden", "forbidden"),
        (Needs::Own(Right::Read), None, "forbidden", "forbidden"),
        (Needs::Author(Right::Read), None, "may", "may"),
        (Needs::Author(Right::Write), None, "may", "read_only"),
        (Needs::Server(Right::Read), Some("ann"), "forbidden", "forbidden"),
        (Needs::Metrics, None, "forbidden", "forbidden"),
    ] {
        assert_eq!((may(&user(true), needs, of), may(&user(false), needs, of)), (both, reading), "{needs:?} of {of:?}");
        let may = |caller| may(&caller, needs, of);
        assert_eq!((may(Caller::Server(KeyId::default(), KeyScope::All)), may(Caller::Anybody)), ("may", "may"));
        assert_eq!(
            (may(Caller::Unauthenticated), may(Caller::Refused(Denial::Expired))),
            ("unauthenticated", "unauthenticated")
        );
    }
}

fn wrong(text: &str) -> String {
    access_file::keys(text).expect_err(text)
}

#[test]
fn an_invalid_access_file_entry_is_named_without_its_secret() {
    let secret = STANDARD.encode([3; 32]);
    let hash = "ab".repeat(32);
    let server = |name: &str, hash: &str| format!("[[server-key]]\nname = \"{name}\"\nsha256 = \"{hash}\"\n");
    let hs256 = |name: &str, secret: &str| {
        format!("[[token-key]]\nname = \"{name}\"\nalgorithm = \"HS256\"\nsecret = \"{secret}\"\n")
    };
    assert!(access_file::keys(&format!("{}{}", server("a", &hash), hs256("b", &secret))).is_ok());
    let short = STANDARD.encode([3; 31]);
    let of =
        |algorithm: &str, rest: &str| format!("[[token-key]]\nname = \"t\"\nalgorithm = \"{algorithm}\"\n{rest}\n");
    for (text, expected) in [
        (String::new(), "would refuse every request"),
        (server("a", "12"), "[[server-key]] 1, \"a\": sha256"),
        (server("a", &"zz".repeat(32)), "\"a\": sha256"),
        (server("", &hash), "a name has"),
        (server("a b", &hash), "a name has"),
        (
            server("a", &hash) + &server("a", &"cd".repeat(32)),
            "[[server-key]] 2, \"a\": another entry has the same name",
        ),
        (server("a", &hash) + &server("b", &hash), "\"b\": another entry has the same key"),
        (hs256("a", &secret) + &hs256("b", &secret), "[[token-key]] 2, \"b\": another entry has the same key"),
        (hs256("a", &short), "the secret has 31 bytes"),
        (hs256("a", "not base64!"), "the secret is not base64"),
        (of("HS256", "public-key = \"x\""), "HS256 needs a secret"),
        (of("EdDSA", &format!("secret = \"{secret}\"")), "EdDSA needs a public-key"),
        (of("EdDSA", "public-key = \"AAAA\""), "not a public key of Ed25519"),
        (of("EdDSA", &format!("public-key = \"{}\"", STANDARD.encode([2; 32]))), "not a point of Ed25519"),
        (of("none", ""), "neither \"HS256\" nor \"EdDSA\""),
        (of("RS256", ""), "neither \"HS256\" nor \"EdDSA\""),
        (hs256("a", &secret) + "audience = \"\"\n", "audience is empty"),
        (hs256("a", &secret) + "kid = \"\"\n", "kid is empty"),
        (server("a", &hash) + "scope = \"everything\"\n", "line 4"),
        (format!("\n\n[[token-key]]\nname = \"a\"\nsecert = \"{secret}\"\n"), "unknown field `secert`"),
        (format!("[[token-key]]\nname = {secret}\n"), "line 2"),
        (format!("[[server-key]]\nname = [\"{secret}\"]\nsha256 = \"\"\n"), "line 2"),
    ] {
        let cause = wrong(&text);
        assert!(cause.contains(expected), "{text}: {cause}");
        assert!(!cause.contains(&secret), "{cause}");
    }
    let without_kid = |count: u8| {
        (0..count).map(|nth| hs256(&format!("k{nth}"), &STANDARD.encode([100 + nth; 32]))).collect::<String>()
    };
    assert!(wrong(&without_kid(9)).contains("more than 8 entries [[token-key]] of one algorithm without a kid"));
    assert!(access_file::keys(&(without_kid(8) + &hs256("a", &secret) + "kid = \"a\"\n")).is_ok());
    let many: String = (0..=ACCESS_KEYS_MAX).map(|nth| server(&format!("k{nth}"), &format!("{nth:064x}"))).collect();
    assert!(wrong(&many).contains("more than 64"));
}

/// The points of small order, little-endian, and their other encodings (RFC 7748 and libsodium list the same). Anyone can create
/// signatures for such a key without a private key.
const SMALL_ORDER: [&str; 7] = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
];

fn refused(entry: &str) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("access.toml");
    let good = mint::server_key_entry("good", "a key", KeyScope::All);
    std::fs::write(&file, format!("{good}\n{entry}")).unwrap();
    let cause = access_file::read(&file).map_err(|cause| cause.to_string()).err().ok_or_else(|| entry.to_owned())?;
    let names_both = cause.contains(file.to_str().unwrap()) && cause.contains("] 2, \"weak\": ")
        || cause.contains("[[token-key]] 1, \"weak\": ");
    assert!(names_both, "{cause}");
    Ok(())
}

#[test]
fn weak_keys_are_refused_with_file_and_entry() {
    let token_key = |rest: &str| format!("[[token-key]]\nname = \"weak\"\n{rest}");
    let mut entries = Vec::new();
    for point in SMALL_ORDER {
        for sign in [0, 0x80] {
            let mut public = key::unhex(point).unwrap();
            public[31] |= sign;
            entries.push(token_key(&format!("algorithm = \"EdDSA\"\npublic-key = \"{}\"", STANDARD.encode(public))));
        }
    }
    for bytes in [32, 64] {
        let zeros = STANDARD.encode(vec![0; bytes]);
        entries.push(token_key(&format!("algorithm = \"HS256\"\nsecret = \"{zeros}\"")));
    }
    let empty = mint::server_key_entry("weak", "", KeyScope::All);
    entries.push(empty.replace("sha256 = \"e3b0", "sha256 = \"E3B0"));
    entries.push(empty);
    let taken: Vec<_> = entries.iter().filter_map(|entry| refused(entry).err()).collect();
    assert!(taken.is_empty(), "{} of {} are taken:\n{}", taken.len(), entries.len(), taken.join("\n"));
}

#[test]
fn public_keys_are_read_in_three_forms() {
    let public = pem::ed25519_public(PUBLIC).unwrap();
    let der = PUBLIC.lines().nth(1).unwrap();
    assert_eq!(pem::ed25519_public(der), Some(public));
    assert_eq!(pem::ed25519_public(&STANDARD.encode(public)), Some(public));
    assert_eq!(pem::ed25519_public(&URL_SAFE_NO_PAD.encode(public)), Some(public));
    assert_eq!(pem::ed25519_public(PRIVATE), None);
    assert!(Signer::ed_dsa(PUBLIC).is_err());
}

#[test]
fn origins_are_those_that_browsers_send() {
    for good in [
        "https://a.example",
        "http://localhost:3000",
        "https://a.example, https://b.example:8443",
        "",
        "http://[::1]:80 1",
        "capacitor://localhost,tauri://localhost,moz-extension://2b5f",
        "app+dev.x-1://localhost",
    ] {
        let is_good = !good.ends_with(" 1");
        assert_eq!(good.parse::<Origins>().is_ok(), is_good, "{good}");
    }
    for bad in [
        "*",
        "null",
        "a.example",
        "https://*.example",
        "https://a.example/",
        "https://A.example",
        "Capacitor://localhost",
        "1a://localhost",
        "a b://localhost",
        "://localhost",
        "file://",
        "https://a.example:443",
        "http://a.example:80",
        "https://u@a.example",
        "https://",
        "https://ä.example",
    ] {
        assert!(bad.parse::<Origins>().is_err(), "{bad}");
    }
}

#[test]
fn only_loopback_needs_no_keys() {
    let refusal = |listen: &str, file| Access::refusal_to_listen(("--listen", listen.parse().unwrap()), file);
    for listen in ["127.0.0.1:8080", "[::1]:8080", "127.9.9.9:1", "[::ffff:127.0.0.1]:80"] {
        assert_eq!(refusal(listen, None), None, "{listen}");
    }
    for listen in ["0.0.0.0:8080", "[::]:8080", "192.0.2.1:80", "[::ffff:192.0.2.1]:80"] {
        assert!(refusal(listen, None).unwrap().contains("--access FILE"), "{listen}");
        assert_eq!(refusal(listen, Some(Path::new("access.toml"))), None);
    }
}

#[test]
fn plaintext_credentials_on_a_public_address_cause_a_warning() {
    let file = Some(Path::new("access.toml"));
    for (listen, file, has_certificate, is_warned) in [
        ("0.0.0.0:8080", file, false, true),
        ("[::]:8080", file, false, true),
        ("0.0.0.0:8080", file, true, false),
        ("0.0.0.0:8080", None, false, false),
        ("127.0.0.1:8080", file, false, false),
        ("[::1]:8080", file, false, false),
    ] {
        let warning = Access::warning_of_plaintext(listen.parse().unwrap(), file, has_certificate);
        assert_eq!(warning.is_some_and(|warning| warning.contains(listen)), is_warned, "{listen}");
    }
}
