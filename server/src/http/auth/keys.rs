//! Server keys, and the keys that verify tokens.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

use crate::http::auth::caller::Caller;
use crate::http::auth::claims::{Claims, VerifiedClaims};
use crate::http::auth::denial::Denial;
use crate::http::auth::key::{KeyFigures, KeyHash, KeyId, KeyScope, KeyUse, hash};
use crate::http::auth::signatures::{Check, Signatures};
use crate::http::auth::token_algorithms;
use crate::http::auth::verified::{VerifiedToken, VerifiedTokens};
use tidewire::clock::UnixMicros;
use tidewire::limits::CREDENTIAL_BYTES_MAX;

/// All keys of the server, with a cache of verified tokens.
#[derive(Default)]
pub struct Keys {
    server: Vec<ServerKey>,
    token: Vec<TokenKey>,
    verified: VerifiedTokens,
}

/// A server key with its scope.
struct ServerKey {
    hash: KeyHash,
    id: KeyId,
    scope: KeyScope,
    name: Option<Box<str>>,
    used: Arc<KeyUse>,
}

/// A key that verifies tokens.
pub struct TokenKey {
    algorithm: Algorithm,
    key: DecodingKey,
    validation: Validation,
    /// The id of the key without its audience and `kid`.
    material: KeyId,
    /// The id of the key with its audience and its `kid`, because these decide which tokens it verifies.
    id: KeyId,
    /// The `kid` of the tokens that this key verifies. Without one, the key verifies tokens that have no `kid` or an unknown one.
    kid: Option<String>,
    name: Option<Box<str>>,
    used: Arc<KeyUse>,
}

impl fmt::Debug for Keys {
    /// Shows the number of keys, never the keys themselves.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({} of the server, {} for tokens)", self.server.len(), self.token.len())
    }
}

impl TokenKey {
    /// Creates an HS256 key from the secret that the token issuer shares with the server.
    pub fn hs256(secret: &[u8], audience: Option<&str>) -> Self {
        Self::new(Algorithm::HS256, DecodingKey::from_secret(secret), secret, audience)
    }

    /// Creates an Ed25519 key from the public key of the token issuer, 32 bytes.
    pub fn ed_dsa(public: &[u8; 32], audience: Option<&str>) -> Self {
        Self::new(Algorithm::EdDSA, DecodingKey::from_ed_der(public), public, audience)
    }

    fn new(algorithm: Algorithm, key: DecodingKey, material: &[u8], audience: Option<&str>) -> Self {
        token_algorithms::install();
        let mut validation = Validation::new(algorithm);
        // The server checks times against the clock value that the caller passes.
        (validation.validate_exp, validation.validate_nbf) = (false, false);
        validation.required_spec_claims.clear();
        if let Some(audience) = audience {
            validation.set_audience(&[audience]);
            validation.set_required_spec_claims(&["aud"]);
        }
        let kind: &[u8] = if algorithm == Algorithm::HS256 { b"HS256" } else { b"EdDSA" };
        let (material, kid, name, used) = (KeyId::of(kind, material), None, None, Arc::default());
        Self { algorithm, key, validation, material, id: KeyId::default(), kid, name, used }.identified()
    }

    /// Updates the id after a change of the key's fields.
    fn identified(self) -> Self {
        let audience = self.validation.aud.iter().flatten().next();
        let text = format!("{} {audience:?} {:?}", self.material.0, self.kid);
        Self { id: KeyId::of(b"verifies", text.as_bytes()), ..self }
    }

    /// Restricts the key to tokens whose header has this `kid`.
    #[must_use]
    pub fn called(self, kid: &str) -> Self {
        Self { kid: Some(kid.to_owned()), ..self }.identified()
    }

    /// Sets the name by which operators know the key.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Returns the id of the key.
    pub fn id(&self) -> KeyId {
        self.id
    }
}

impl Keys {
    /// Adds a server key by its hash. Returns false if the key is already present.
    pub fn add_server(&mut self, hash: KeyHash, scope: KeyScope) -> bool {
        self.add_server_named(None, hash, scope)
    }

    /// Adds a server key by its hash, with the name by which operators know it. Returns false if the key is already present.
    pub fn add_server_named(&mut self, name: Option<&str>, hash: KeyHash, scope: KeyScope) -> bool {
        // The scope is part of the id, so that a session does not continue when the scope of its key changes.
        let id = KeyId::of(format!("server {scope}").as_bytes(), &hash);
        let is_new = !self.server.iter().any(|known| known.hash == hash);
        self.server.push(ServerKey { hash, id, scope, name: name.map(Into::into), used: Arc::default() });
        is_new
    }

    /// Adds a key for tokens. Returns false if the key or its `kid` is already present.
    pub fn add_token(&mut self, key: TokenKey) -> bool {
        let is_same = |known: &TokenKey| known.material == key.material || (key.kid.is_some() && known.kid == key.kid);
        let is_new = !self.token.iter().any(is_same);
        self.token.push(key);
        is_new
    }

    /// Returns true if there are no keys, so that no caller could be authenticated.
    pub fn is_empty(&self) -> bool {
        self.server.is_empty() && self.token.is_empty()
    }

    /// Returns true if there is a key with this id.
    pub fn contains_key(&self, key: KeyId) -> bool {
        self.server.iter().map(|known| known.id).chain(self.token.iter().map(TokenKey::id)).any(|known| known == key)
    }

    /// Counts a request of an authenticated caller for its key.
    pub(super) fn note_use(&self, caller: &Caller, now: UnixMicros) {
        let used = match caller {
            Caller::Server(id, _) => self.server.iter().find(|key| key.id == *id).map(|key| &key.used),
            Caller::User(user) => self.token.iter().find(|key| key.id == user.key).map(|key| &key.used),
            Caller::Anybody | Caller::Unauthenticated | Caller::Refused(_) => None,
        };
        used.into_iter().for_each(|used| used.note(now));
    }

    /// Returns the figures of all keys, in the order in which they were added: server keys, then those that verify tokens.
    pub(super) fn figures(&self) -> Vec<KeyFigures> {
        let server = self.server.iter().map(|key| KeyFigures::new(key.name.as_deref(), Some(key.scope), &key.used));
        let token = self.token.iter().map(|key| KeyFigures::new(key.name.as_deref(), None, &key.used));
        server.chain(token).collect()
    }

    /// Copies the use counters of those keys that `before` contains too.
    pub(super) fn keep_use(&mut self, before: &Self) {
        for key in &mut self.server {
            let known = before.server.iter().find(|known| known.hash == key.hash);
            known.into_iter().for_each(|known| key.used = Arc::clone(&known.used));
        }
        for key in &mut self.token {
            let known = before.token.iter().find(|known| known.material == key.material);
            known.into_iter().for_each(|known| key.used = Arc::clone(&known.used));
        }
    }

    /// Returns the maximum number of keys that are tried for a token without a known `kid`.
    pub(super) fn tried_at_once(&self) -> usize {
        let of = |algorithm| self.candidates(algorithm, None).count();
        of(Algorithm::HS256).max(of(Algorithm::EdDSA))
    }

    /// Authenticates a credential without limits on signature checks. Only for credentials that do not come from the network.
    pub(in crate::http) fn caller(&self, credential: &str, now: UnixMicros) -> Result<Caller, Denial> {
        self.check(credential, now, Check { signatures: &Signatures::default(), address: None, at: Instant::now() })
    }

    /// Authenticates a credential that a client sent, within the client's budget for signature checks.
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
        found.claims?.at(now).map(Caller::User)
    }

    /// Copies verified tokens of other keys if these keys would give the same result: the key that verified the token is present and
    /// unchanged, and the server would still select it for the token.
    pub(super) fn keep_verified(&mut self, before: &Self) {
        let is_unchanged = |key: &&TokenKey| self.token.iter().any(|now| now.id == key.id);
        let keys: HashSet<KeyId> = before.token.iter().filter(is_unchanged).map(TokenKey::id).collect();
        let kids: HashSet<KeyId> = self.token.iter().filter_map(|key| key.kid.as_deref()).map(KeyId::of_kid).collect();
        let would_be_found = |found: &VerifiedToken| {
            keys.contains(&found.key) && found.unknown_kid.is_none_or(|unknown| !kids.contains(&unknown))
        };
        self.verified = before.verified.filtered(would_be_found);
    }

    /// Returns the server key with this hash. Compares in constant time, so the duration reveals neither the result nor the matching key.
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

    /// Returns the keys that may have signed a token with this algorithm and `kid`. If a key has this `kid`, only that key is tried;
    /// otherwise all keys without a `kid`.
    fn candidates<'a>(
        &'a self,
        algorithm: Algorithm,
        kid: Option<&'a str>,
    ) -> impl Iterator<Item = &'a TokenKey> + Clone {
        let kid = kid.filter(|kid| self.token.iter().any(|key| key.kid.as_deref() == Some(*kid)));
        self.token.iter().filter(move |key| key.algorithm == algorithm && key.kid.as_deref() == kid)
    }

    /// Verifies the signature of a token. Returns its claims, or the reason why it is never valid, if one of the keys signed it.
    fn verify(&self, token: &str, check: Check<'_>) -> Result<VerifiedToken, Denial> {
        const NOT_A_TOKEN: Denial = Denial::Unknown("this is neither a key of the server nor a token");
        const OTHER_AUDIENCE: Denial = Denial::Unknown("the token is for another audience");
        const DAMAGED: Denial = Denial::Unknown("the token lacks \"sub\" or \"exp\", or is damaged");
        let header = jsonwebtoken::decode_header(token).map_err(|_| NOT_A_TOKEN)?;
        if header.crit.is_some() {
            return Err(Denial::Unknown("the token has critical extensions, which this server does not support"));
        }
        let candidates = self.candidates(header.alg, header.kid.as_deref());
        // The cost is charged to the budget before any signature is computed, so the cost of forged tokens is bounded.
        let taken = check.take(candidates.clone().count())?;
        for key in candidates {
            check.note_computed();
            let claims = match jsonwebtoken::decode::<Claims>(token, &key.key, &key.validation) {
                Ok(decoded) => VerifiedClaims::new(&decoded.claims, key.id),
                Err(cause) => match cause.kind() {
                    // Another key may have signed the token.
                    ErrorKind::InvalidSignature => continue,
                    // The library reports these errors only after it has verified the signature.
                    ErrorKind::InvalidAudience | ErrorKind::MissingRequiredClaim(_) => Err(OTHER_AUDIENCE),
                    ErrorKind::Json(_) | ErrorKind::InvalidClaimFormat(_) => Err(DAMAGED),
                    _ => return Err(DAMAGED),
                },
            };
            check.give_back(&taken);
            let unknown_kid = header.kid.as_deref().filter(|_| key.kid.is_none()).map(KeyId::of_kid);
            return Ok(VerifiedToken { claims, key: key.id, unknown_kid });
        }
        Err(Denial::Unknown("the token is not signed by a known key"))
    }
}
