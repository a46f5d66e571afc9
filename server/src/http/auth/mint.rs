//! Making keys and tokens.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;

use crate::http::auth::file::secret_of;
use crate::http::auth::keys::{self, KeyHash, KeyScope, Keys, TokenKey};
use crate::http::auth::{caller::Caller, pem};
use tidewire::clock::UnixMicros;
use tidewire::id::SourceId;

/// What keys of the server begin with, so that they are known where they should not be.
const KEY_PREFIX: &str = "tidewire_";

/// Random bytes of a key.
const KEY_BYTES: usize = 32;

/// What a token is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Reading what is the user's own
    Read,
    /// Changing it as well
    Write,
}

/// What a token says.
#[derive(Serialize)]
struct Claims<'a> {
    sub: &'a str,
    iat: i64,
    exp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<Scope>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aud: Option<&'a str>,
}

/// What tokens are signed with.
#[derive(Debug)]
pub struct Signer {
    algorithm: Algorithm,
    key: EncodingKey,
}

/// A token to be made.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// For whom.
    pub user: &'a SourceId,
    /// What for; both if it is not said.
    pub scope: Option<Scope>,
    /// Whom it is meant to be shown to.
    pub audience: Option<&'a str>,
    /// What the access file calls the key that it is signed with.
    pub kid: Option<&'a str>,
    /// From when it is good.
    pub from: UnixMicros,
    /// For how long.
    pub lasts: Duration,
}

impl Signer {
    /// By a secret in base64, as the access file has it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn hs256(secret: &str) -> Result<Self, String> {
        Ok(Self { algorithm: Algorithm::HS256, key: EncodingKey::from_secret(&secret_of(secret)?) })
    }

    /// By a private key of Ed25519, PKCS 8 in PEM or base64.
    ///
    /// # Errors
    /// When it is none.
    pub fn ed_dsa(private: &str) -> Result<Self, String> {
        let wrong = "this is no private key of Ed25519 as PKCS 8, which `openssl genpkey -algorithm ed25519` makes";
        let signer = Self {
            algorithm: Algorithm::EdDSA,
            key: EncodingKey::from_ed_der(&pem::ed25519_private(private).ok_or(wrong)?),
        };
        let usable = jsonwebtoken::crypto::sign(b"", &signer.key, signer.algorithm);
        usable.map(|_| signer).map_err(|_| wrong.to_owned())
    }

    /// Makes a token.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub fn token(&self, wanted: Wanted<'_>) -> Result<String, String> {
        let seconds = |at: UnixMicros| at.0.div_euclid(1_000_000);
        let claims = Claims {
            sub: wanted.user.as_str(),
            iat: seconds(wanted.from),
            exp: seconds(wanted.from.saturating_add(wanted.lasts)),
            scope: wanted.scope,
            aud: wanted.audience,
        };
        let header = Header { kid: wanted.kid.map(str::to_owned), ..Header::new(self.algorithm) };
        let signed = jsonwebtoken::encode(&header, &claims, &self.key);
        signed.map_err(|cause| format!("the token cannot be signed: {cause}"))
    }
}

/// A new key of the server, of letters that URLs and headers take as they are.
///
/// # Errors
/// When the system has no randomness.
pub fn server_key() -> Result<String, String> {
    let mut random = [0; KEY_BYTES];
    getrandom::fill(&mut random).map_err(|cause| format!("the system gives no random bytes: {cause}"))?;
    Ok(format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(random)))
}

/// The entry of the access file for a key of the server.
pub fn server_key_entry(name: &str, key: &str, scope: KeyScope) -> String {
    let hash: String = keys::hash(key).iter().map(|byte| format!("{byte:02x}")).collect();
    let entry = format!("[[server-key]]\nname = \"{name}\"\nsha256 = \"{hash}\"");
    // As it was before there were scopes, so that servers from then take it.
    if scope == KeyScope::All { entry } else { format!("{entry}\nscope = \"{scope}\"") }
}

/// Reads what [`server_key_entry`] wrote.
pub(super) fn unhex(text: &str) -> Option<KeyHash> {
    let mut hash = KeyHash::default();
    if text.len() != 2 * hash.len() || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (nth, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * nth..2 * nth + 2], 16).ok()?;
    }
    Some(hash)
}

/// Checks that tokens can be made and read at all: cryptography that was built in wrongly fails at its first use.
///
/// # Errors
/// Says what does not work.
pub fn self_test(now: UnixMicros) -> Result<(), String> {
    let failed = |what: &str| format!("tokens do not work in this build: {what}");
    let user = SourceId::new("self-test").map_err(|cause| failed(&cause.to_string()))?;
    let secret = [7; 32];
    let signer = Signer { algorithm: Algorithm::HS256, key: EncodingKey::from_secret(&secret) };
    let wanted =
        Wanted { user: &user, scope: None, audience: None, kid: None, from: now, lasts: Duration::from_secs(60) };
    let token = signer.token(wanted)?;
    let (mut good, mut other) = (Keys::default(), Keys::default());
    good.add_token(TokenKey::hs256(&secret, None));
    other.add_token(TokenKey::hs256(&[8; 32], None));
    match good.caller(&token, now) {
        Ok(Caller::User(found)) if found.id == user => {}
        other => return Err(failed(&format!("a good one was read as {other:?}"))),
    }
    if other.caller(&token, now).is_ok() {
        return Err(failed("a bad signature was taken for a good one"));
    }
    Ok(())
}
