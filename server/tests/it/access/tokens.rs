//! Keys and tokens for tests.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tidewire::clock::{Clock as _, SystemClock};
use tidewire_server::http::auth::Access;
use tidewire_server::http::auth::key::{KeyScope, hash};
use tidewire_server::http::auth::keys::{Keys, TokenKey};
use tidewire_server::http::auth::token_algorithms;

pub const SERVER_KEY: &str = "tidewire_a-key-of-the-server";
pub const READING_KEY: &str = "tidewire_a-key-that-reads";
pub const METRICS_KEY: &str = "tidewire_a-key-for-metrics";
pub const SECRET: [u8; 32] = *b"a secret that signs user tokens.";

pub fn keys() -> Keys {
    let mut keys = Keys::default();
    keys.add_server(hash(SERVER_KEY), KeyScope::All);
    keys.add_server(hash(READING_KEY), KeyScope::Read);
    keys.add_server(hash(METRICS_KEY), KeyScope::Metrics);
    keys.add_token(TokenKey::hs256(&SECRET, None));
    keys
}

pub fn access() -> Access {
    Access::by(keys())
}

/// An access file with the same keys.
pub fn file() -> String {
    let hash: String = hash(SERVER_KEY).iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "[[server-key]]\nname = \"s\"\nsha256 = \"{hash}\"\n\n[[token-key]]\nname = \"t\"\nalgorithm = \"HS256\"\nsecret = \"{}\"\n",
        STANDARD.encode(SECRET)
    )
}

fn seconds() -> f64 {
    SystemClock.now().0 as f64 / 1_000_000.0
}

pub fn signed(claims: &Value, secret: &[u8]) -> String {
    token_algorithms::encode(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(secret)).unwrap()
}

/// A token that is good for a while.
pub fn token_for(user: &str, lasts: Duration) -> String {
    signed(&json!({"sub": user, "exp": seconds() + lasts.as_secs_f64()}), &SECRET)
}

pub fn token(user: &str) -> String {
    token_for(user, Duration::from_secs(600))
}

/// A token that was made so many seconds ago, and is good for so many from then on.
pub fn made(user: &str, ago: f64, lasts: f64) -> String {
    let made = seconds() - ago;
    signed(&json!({"sub": user, "iat": made, "exp": made + lasts}), &SECRET)
}

pub fn reading(user: &str) -> String {
    signed(&json!({"sub": user, "exp": seconds() + 600.0, "scope": "read"}), &SECRET)
}

pub fn expired(user: &str) -> String {
    signed(&json!({"sub": user, "exp": seconds() - 1.0}), &SECRET)
}

pub fn early(user: &str) -> String {
    signed(&json!({"sub": user, "exp": seconds() + 600.0, "nbf": seconds() + 300.0}), &SECRET)
}

pub fn of_another_key(user: &str) -> String {
    signed(&json!({"sub": user, "exp": seconds() + 600.0}), &[7; 32])
}

pub fn unsigned(user: &str) -> String {
    let part = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    format!("{}.{}.", part(json!({"alg": "none"})), part(json!({"sub": user, "exp": seconds() + 600.0})))
}

pub fn bearer(credential: &str) -> String {
    format!("Bearer {credential}")
}
