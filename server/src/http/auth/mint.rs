//! Creates server keys and tokens.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;

use crate::http::auth::access_file::secret_of;
use crate::http::auth::key::{KeyScope, hash};
use crate::http::auth::keys::{Keys, TokenKey};
use crate::http::auth::{caller::Caller, pem, token_algorithms};
use tidewire::clock::UnixMicros;
use tidewire::id::SourceId;

/// The prefix of server keys, by which scanners recognize leaked keys.
const KEY_PREFIX: &str = "tidewire_";

/// Number of random bytes of a server key.
const KEY_BYTES: usize = 32;

/// The permissions of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Permits reading the user's own data
    Read,
    /// Permits reading and changing the user's own data
    Write,
}

/// The claims of a token.
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

/// The key that signs tokens.
#[derive(Debug)]
pub struct Signer {
    algorithm: Algorithm,
    key: EncodingKey,
}

/// The parameters of a token to create.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The user that the token is for.
    pub user: &'a SourceId,
    /// The permissions; `None` permits reading and writing.
    pub scope: Option<Scope>,
    /// The audience (`aud`) of the token.
    pub audience: Option<&'a str>,
    /// The `kid` of the signing key in the access file.
    pub kid: Option<&'a str>,
    /// The time of issue, from which the token is valid.
    pub from: UnixMicros,
    /// The lifetime of the token.
    pub lasts: Duration,
}

impl Signer {
    /// Creates an HS256 signer from a base64 secret, as in the access file.
    ///
    /// # Errors
    /// Returns a message that describes the defect of the secret.
    pub fn hs256(secret: &str) -> Result<Self, String> {
        // Server keys are valid base64, but no server would accept a token that is signed with one.
        if secret.starts_with(KEY_PREFIX) {
            return Err(format!(
                "this is a server key ({KEY_PREFIX}…), which cannot sign tokens; name the file with the secret of a [[token-key]]"
            ));
        }
        Ok(Self { algorithm: Algorithm::HS256, key: EncodingKey::from_secret(&secret_of(secret)?) })
    }

    /// Creates an EdDSA signer from a private Ed25519 key, PKCS #8 as PEM or base64.
    ///
    /// # Errors
    /// Fails if the text is not such a key.
    pub fn ed_dsa(private: &str) -> Result<Self, String> {
        let wrong = "this is not a private key of Ed25519 as PKCS 8, which `openssl genpkey -algorithm ed25519` makes";
        let key = EncodingKey::from_ed_der(&pem::ed25519_private(private).ok_or(wrong)?);
        let signer = Self { algorithm: Algorithm::EdDSA, key };
        let usable = token_algorithms::sign(b"", &signer.key, signer.algorithm);
        usable.map(|_| signer).map_err(|_| wrong.to_owned())
    }

    /// Creates and signs a token.
    ///
    /// # Errors
    /// Fails if the token cannot be signed.
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
        let signed = token_algorithms::encode(&header, &claims, &self.key);
        signed.map_err(|cause| format!("the token cannot be signed: {cause}"))
    }
}

/// Creates a random server key, which contains only characters that need no escaping in URLs and headers.
///
/// # Errors
/// Fails if the system provides no random bytes.
pub fn server_key() -> Result<String, String> {
    let mut random = [0; KEY_BYTES];
    getrandom::fill(&mut random).map_err(|cause| format!("the system returned no random bytes: {cause}"))?;
    Ok(format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(random)))
}

/// Returns the entry of the access file for a server key.
pub fn server_key_entry(name: &str, key: &str, scope: KeyScope) -> String {
    let hash: String = hash(key).iter().map(|byte| format!("{byte:02x}")).collect();
    let entry = format!("[[server-key]]\nname = \"{name}\"\nsha256 = \"{hash}\"");
    // The default scope is omitted, so that server versions without scopes accept the entry.
    if scope == KeyScope::All { entry } else { format!("{entry}\nscope = \"{scope}\"") }
}

/// Checks that tokens can be created and verified. An incorrectly built cryptography library fails only at its first use.
///
/// # Errors
/// The error describes the failed step.
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
