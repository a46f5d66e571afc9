//! The token signature algorithms for `jsonwebtoken`: HS256 and EdDSA.
//!
//! The providers of `jsonwebtoken` add some twenty crates for RSA and NIST curves, which no token of this server uses.

use ed25519_dalek::pkcs8::DecodePrivateKey as _;
use ed25519_dalek::{SigningKey, VerifyingKey};
use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Signer, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, EncodingKey, Header};
use ring::hmac;
use serde::Serialize;

static PROVIDER: CryptoProvider =
    CryptoProvider { signer_factory: signer, verifier_factory: verifier, key_utils: KeyUtils::new_unimplemented() };

/// Installs the provider of `jsonwebtoken` for this process. A further call does nothing.
pub(super) fn install() {
    // An error means that the provider is installed already.
    let _ = PROVIDER.install_default();
}

/// Creates a signed token, as `jsonwebtoken::encode` does.
///
/// # Errors
/// Fails if the key is not for the header's algorithm.
pub fn encode<T: Serialize>(header: &Header, claims: &T, key: &EncodingKey) -> Result<String> {
    install();
    jsonwebtoken::encode(header, claims, key)
}

/// Signs a message, as `jsonwebtoken::crypto::sign` does.
///
/// # Errors
/// Fails if the key is not for this algorithm.
pub fn sign(message: &[u8], key: &EncodingKey, algorithm: Algorithm) -> Result<String> {
    install();
    jsonwebtoken::crypto::sign(message, key, algorithm)
}

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac) => Ok(Box::new(Hs256::new(key.as_bytes()))),
        (Algorithm::EdDSA, AlgorithmFamily::Ed) => {
            let key = SigningKey::from_pkcs8_der(key.as_bytes()).map_err(|_| ErrorKind::InvalidEddsaKey)?;
            Ok(Box::new(EdDsa(key)))
        }
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let bytes = key.try_get_as_bytes()?;
    match (algorithm, key.family()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac) => Ok(Box::new(Hs256::new(bytes))),
        (Algorithm::EdDSA, AlgorithmFamily::Ed) => {
            let key = bytes.try_into().ok().and_then(|bytes| VerifyingKey::from_bytes(bytes).ok());
            Ok(Box::new(EdDsa(key.ok_or(ErrorKind::InvalidEddsaKey)?)))
        }
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

struct Hs256(hmac::Key);

impl Hs256 {
    fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }
}

impl Signer<Vec<u8>> for Hs256 {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, Error> {
        Ok(hmac::sign(&self.0, message).as_ref().to_vec())
    }
}

impl Verifier<Vec<u8>> for Hs256 {
    /// Runs in constant time, independent of the place where the signatures differ.
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        hmac::verify(&self.0, message, signature).map_err(|_| Error::new())
    }
}

impl JwtSigner for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl JwtVerifier for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

struct EdDsa<K>(K);

impl Signer<Vec<u8>> for EdDsa<SigningKey> {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, Error> {
        Ok(self.0.sign(message).to_vec())
    }
}

impl Verifier<Vec<u8>> for EdDsa<VerifyingKey> {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        self.0.verify(message, &ed25519_dalek::Signature::from_slice(signature)?)
    }
}

impl JwtSigner for EdDsa<SigningKey> {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}

impl JwtVerifier for EdDsa<VerifyingKey> {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}
