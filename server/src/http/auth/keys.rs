//! Keys: those of the server, and those that tokens are signed with.
//!
//! Responsible for:
//! - telling by a credential who it stands for.
//!
//! Not responsible for:
//! - where keys come from (`access::file`), what time it is.

use std::collections::HashSet;
use std::fmt;
use std::time::Instant;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::{Deserialize, Deserializer};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

use crate::http::auth::caller::{Caller, User};
use crate::http::auth::denial::Denial;
use crate::http::auth::signatures::{Check, Signatures};
use crate::http::auth::verified::{Found, Verified};
use tidewire::clock::UnixMicros;
use tidewire::id::SourceId;
use tidewire::limits::CREDENTIAL_BYTES_MAX;

/// A hash of a key of the server.
pub type KeyHash = [u8; 32];

/// What tells keys apart, and says nothing of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct KeyId(u64);

impl KeyId {
    fn of(kind: &[u8], material: &[u8]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = hash_of_parts(&[kind, material]);
        Self(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }

    fn of_kid(kid: &str) -> Self {
        Self::of(b"kid", kid.as_bytes())
    }
}

/// The hash that a key of the server is known by.
pub fn hash(key: &str) -> KeyHash {
    hash_of_parts(&[key.as_bytes()])
}

fn hash_of_parts(parts: &[&[u8]]) -> KeyHash {
    let mut hasher = Sha256::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().into()
}

/// What a key of the server is good for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    /// Everything
    #[default]
    All,
    /// Reading everything, and changing nothing
    Read,
    /// Reading metrics
    Metrics,
}

impl fmt::Display for KeyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Read => "read",
            Self::Metrics => "metrics",
        })
    }
}

/// All keys.
#[derive(Default)]
pub struct Keys {
    server: Vec<ServerKey>,
    token: Vec<TokenKey>,
    verified: Verified,
}

/// A key of the server.
struct ServerKey {
    hash: KeyHash,
    id: KeyId,
    scope: KeyScope,
}

/// A key that vouches for tokens.
pub struct TokenKey {
    algorithm: Algorithm,
    key: DecodingKey,
    validation: Validation,
    id: KeyId,
    /// What tokens call it that are not for any other.
    kid: Option<String>,
}

impl fmt::Debug for Keys {
    /// Never the keys themselves.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({} of the server, {} for tokens)", self.server.len(), self.token.len())
    }
}

impl TokenKey {
    /// A secret that whoever makes tokens has as well.
    pub fn hs256(secret: &[u8], audience: Option<&str>) -> Self {
        Self::new(Algorithm::HS256, DecodingKey::from_secret(secret), secret, audience)
    }

    /// The public key of who makes tokens, which has no more than 32 bytes.
    pub fn ed_dsa(public: &[u8; 32], audience: Option<&str>) -> Self {
        Self::new(Algorithm::EdDSA, DecodingKey::from_ed_der(public), public, audience)
    }

    fn new(algorithm: Algorithm, key: DecodingKey, material: &[u8], audience: Option<&str>) -> Self {
        let mut validation = Validation::new(algorithm);
        // Times are compared with the clock that is handed in.
        (validation.validate_exp, validation.validate_nbf) = (false, false);
        validation.required_spec_claims.clear();
        if let Some(audience) = audience {
            validation.set_audience(&[audience]);
            validation.set_required_spec_claims(&["aud"]);
        }
        let kind: &[u8] = if algorithm == Algorithm::HS256 { b"HS256" } else { b"EdDSA" };
        Self { algorithm, key, validation, id: KeyId::of(kind, material), kid: None }
    }

    /// The same, for tokens alone that name it by this `kid`.
    #[must_use]
    pub fn called(self, kid: &str) -> Self {
        Self { kid: Some(kid.to_owned()), ..self }
    }

    /// What tells it from others.
    pub fn id(&self) -> KeyId {
        self.id
    }
}

/// What a token says, as far as it matters here.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    exp: f64,
    #[serde(default, deserialize_with = "present")]
    iat: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    nbf: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    scope: Option<String>,
}

/// A claim of `null` is nonsense, and not a missing one.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

impl Keys {
    /// Adds a key of the server, by its hash. False if it is there already.
    pub fn add_server(&mut self, hash: KeyHash, scope: KeyScope) -> bool {
        // A connection that came by a key of another scope does not go on by this one.
        let id = KeyId::of(format!("server {scope}").as_bytes(), &hash);
        let is_new = !self.server.iter().any(|known| known.hash == hash);
        self.server.push(ServerKey { hash, id, scope });
        is_new
    }

    /// Adds a key for tokens. False if it is there already, or its `kid`.
    pub fn add_token(&mut self, key: TokenKey) -> bool {
        let is_same = |known: &TokenKey| known.id == key.id || (key.kid.is_some() && known.kid == key.kid);
        let is_new = !self.token.iter().any(is_same);
        self.token.push(key);
        is_new
    }

    /// Whether there are none, so that nobody could be let in.
    pub fn is_empty(&self) -> bool {
        self.server.is_empty() && self.token.is_empty()
    }

    /// Whether a key is one of them.
    pub fn holds(&self, key: KeyId) -> bool {
        self.server.iter().map(|known| known.id).chain(self.token.iter().map(TokenKey::id)).any(|known| known == key)
    }

    /// How many keys are tried at most on a token that names none.
    pub(super) fn tried_at_once(&self) -> usize {
        let of = |algorithm| self.candidates(algorithm, None).count();
        of(Algorithm::HS256).max(of(Algorithm::EdDSA))
    }

    /// Who a credential stands for. Bounds no work: for those who do not take credentials from anybody.
    pub(in crate::http) fn caller(&self, credential: &str, now: UnixMicros) -> Result<Caller, Denial> {
        self.check(credential, now, Check { signatures: &Signatures::default(), address: None, at: Instant::now() })
    }

    /// Who a credential stands for that somebody sent.
    pub(super) fn check(&self, credential: &str, now: UnixMicros, check: Check<'_>) -> Result<Caller, Denial> {
        if credential.len() > CREDENTIAL_BYTES_MAX {
            return Err(Denial::Unknown("the key or token is too long"));
        }
        let given = hash(credential);
        if let Some((key, scope)) = self.server_key(&given) {
            return Ok(Caller::Server(key, scope));
        }
        let found = match self.verified.get(&given) {
            Some(found) => found,
            None => {
                let found = self.verify(credential, check)?;
                self.verified.put(given, found.clone());
                found
            }
        };
        found.says?.at(now).map(Caller::User)
    }

    /// Takes over what other keys verified, as far as these would find the same: the key that vouched for it is here as it was there, and
    /// would still be the one that is tried.
    pub(super) fn keep_verified(&mut self, before: &Self) {
        let is_same = |key: &TokenKey, now: &TokenKey| {
            (key.id, &key.kid, &key.validation.aud) == (now.id, &now.kid, &now.validation.aud)
        };
        let stays = |key: &&TokenKey| self.token.iter().any(|now| is_same(key, now));
        let keys: HashSet<KeyId> = before.token.iter().filter(stays).map(TokenKey::id).collect();
        let kids: HashSet<KeyId> = self.token.iter().filter_map(|key| key.kid.as_deref()).map(KeyId::of_kid).collect();
        let would_be_found = |found: &Found| {
            keys.contains(&found.key) && found.unknown_kid.is_none_or(|unknown| !kids.contains(&unknown))
        };
        self.verified = before.verified.those(would_be_found);
    }

    /// The key of the server that has this hash. Takes as long whichever it is, or none.
    fn server_key(&self, given: &KeyHash) -> Option<(KeyId, KeyScope)> {
        let (mut found, mut is_any) = (0_u64, Choice::from(0));
        for (nth, ServerKey { hash, .. }) in (0..).zip(&self.server) {
            let is_same = hash[..].ct_eq(&given[..]);
            found.conditional_assign(&nth, is_same);
            is_any |= is_same;
        }
        let known = self.server.get(usize::try_from(found).ok().filter(|_| is_any.into())?)?;
        Some((known.id, known.scope))
    }

    /// The keys that may have signed a token with this in its header. One that names a key is tried on that alone; a name that no
    /// key here has may be any of those without.
    fn candidates<'a>(
        &'a self,
        algorithm: Algorithm,
        kid: Option<&'a str>,
    ) -> impl Iterator<Item = &'a TokenKey> + Clone {
        let kid = kid.filter(|kid| self.token.iter().any(|key| key.kid.as_deref() == Some(*kid)));
        self.token.iter().filter(move |key| key.algorithm == algorithm && key.kid.as_deref() == kid)
    }

    /// What a token says, or why it is never good, if one of the keys has signed it.
    fn verify(&self, token: &str, check: Check<'_>) -> Result<Found, Denial> {
        const NOT_A_TOKEN: Denial = Denial::Unknown("this is neither a key of the server nor a token");
        const OTHER_AUDIENCE: Denial = Denial::Unknown("the token is for another audience");
        const DAMAGED: Denial = Denial::Unknown("the token lacks \"sub\" or \"exp\", or is damaged");
        let header = jsonwebtoken::decode_header(token).map_err(|_| NOT_A_TOKEN)?;
        if header.crit.is_some() {
            return Err(Denial::Unknown("the token has critical extensions, of which none is known here"));
        }
        let candidates = self.candidates(header.alg, header.kid.as_deref());
        // Before any signature is computed: whoever forges tokens pays for the next one with the last.
        let taken = check.take(candidates.clone().count())?;
        for key in candidates {
            check.note_computed();
            let says = match jsonwebtoken::decode::<Claims>(token, &key.key, &key.validation) {
                Ok(decoded) => Vouched::new(&decoded.claims, key.id),
                Err(cause) => match cause.kind() {
                    // Another one of the keys may have signed it.
                    ErrorKind::InvalidSignature => continue,
                    // These are found once the signature is known to be good.
                    ErrorKind::InvalidAudience | ErrorKind::MissingRequiredClaim(_) => Err(OTHER_AUDIENCE),
                    ErrorKind::Json(_) | ErrorKind::InvalidClaimFormat(_) => Err(DAMAGED),
                    _ => return Err(DAMAGED),
                },
            };
            check.give_back(&taken);
            let unknown_kid = header.kid.as_deref().filter(|_| key.kid.is_none()).map(KeyId::of_kid);
            return Ok(Found { says, key: key.id, unknown_kid });
        }
        Err(Denial::Unknown("the token is signed by no key that is known here"))
    }
}

/// What a token says whose signature is good, whatever the time is.
#[derive(Clone, Debug)]
pub(super) struct Vouched {
    user: User,
    /// From when on it is good.
    from: Option<UnixMicros>,
}

impl Vouched {
    fn new(claims: &Claims, key: KeyId) -> Result<Self, Denial> {
        let id = SourceId::new(&claims.sub).ok().filter(SourceId::is_user);
        let id = id.ok_or(Denial::Unknown("the token's \"sub\" is no user's id"))?;
        let may_write = match claims.scope.as_deref() {
            None | Some("write") => true,
            Some("read") => false,
            Some(_) => return Err(Denial::Unknown("the token's \"scope\" is neither \"read\" nor \"write\"")),
        };
        let (issued_at, until) = (claims.iat.map(instant), instant(claims.exp));
        let user = User { id, may_write, issued_at, until, key };
        Ok(Self { user, from: claims.nbf.map(instant) })
    }

    /// The user that the token stands for, if it is good by now.
    fn at(self, now: UnixMicros) -> Result<User, Denial> {
        if now >= self.user.until {
            return Err(Denial::Expired);
        }
        if self.from.is_some_and(|from| now < from) {
            return Err(Denial::Early);
        }
        Ok(self.user)
    }

    #[cfg(test)]
    pub(super) fn of(user: &str) -> Self {
        let id = SourceId::new(user).expect("tests name users");
        let user = User { id, may_write: true, issued_at: None, until: UnixMicros(0), key: KeyId::default() };
        Self { user, from: None }
    }
}

/// A time in a token: seconds, which may have a fraction. Beyond all instants are the first and the last.
fn instant(seconds: f64) -> UnixMicros {
    #[expect(clippy::cast_possible_truncation, reason = "saturates")]
    UnixMicros((seconds * 1e6) as i64)
}
