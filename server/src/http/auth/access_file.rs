//! The access file: the server keys and token keys in TOML format.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ed25519_dalek::VerifyingKey;
use serde::Deserialize;
use tracing::warn;

use crate::bounded::read_text;
use crate::http::auth::key::{KeyHash, KeyScope, hash, unhex};
use crate::http::auth::keys::{Keys, TokenKey};
use crate::http::auth::pem;
use tidewire::limits::{ACCESS_KEYS_MAX, KEYS_TRIED_MAX};

/// Minimum bytes of a secret that signs tokens: the length of the signature.
const TOKEN_SECRET_BYTES_MIN: usize = 32;

/// Maximum bytes of an access file.
pub(crate) const ACCESS_FILE_BYTES_MAX: u64 = 256 * 1024;

/// Maximum bytes of the name of a key.
const NAME_BYTES_MAX: usize = 64;

/// The format of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct AccessFileEntries {
    #[serde(default)]
    server_key: Vec<ServerKeyEntry>,
    #[serde(default)]
    token_key: Vec<TokenKeyEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerKeyEntry {
    name: String,
    sha256: String,
    #[serde(default)]
    scope: KeyScope,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TokenKeyEntry {
    name: String,
    algorithm: String,
    #[serde(default)]
    secret: Option<String>,
    #[serde(default)]
    public_key: Option<String>,
    #[serde(default)]
    audience: Option<String>,
    #[serde(default)]
    kid: Option<String>,
}

/// The reason an access file was refused.
#[derive(Debug, thiserror::Error)]
pub enum AccessFileError {
    /// The file cannot be read.
    #[error("cannot read the access file {}: {cause}", file.display())]
    Unreadable {
        /// The path of the file.
        file: PathBuf,
        /// The underlying error.
        cause: io::Error,
    },
    /// The self-test of token verification failed.
    #[error("{0}")]
    Unusable(String),
    /// The content of the file is invalid.
    #[error("the access file {} is wrong: {what}", file.display())]
    Wrong {
        /// The path of the file.
        file: PathBuf,
        /// The invalid entry and the defect in it.
        what: String,
    },
}

/// Reads an access file, and logs a warning if other users may read it.
///
/// # Errors
/// The error names the file and the invalid entry.
pub fn read(file: &Path) -> Result<Keys, AccessFileError> {
    let text = read_text(file, ACCESS_FILE_BYTES_MAX)
        .map_err(|cause| AccessFileError::Unreadable { file: file.to_owned(), cause })?;
    let keys = keys(&text).map_err(|what| AccessFileError::Wrong { file: file.to_owned(), what })?;
    // Only after parsing: an invalid file is read every second, and would log this each time.
    warn_of_readers(file);
    Ok(keys)
}

fn warn_of_readers(file: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(file).map_or(0, |metadata| metadata.permissions().mode());
        if mode & 0o077 != 0 {
            warn!(
                "other users can read the access file {0}, which contains secrets: run `chmod 600 {0}`",
                file.display()
            );
        }
    }
    #[cfg(not(unix))]
    let _ = file;
}

/// Parses the text of an access file.
pub(crate) fn keys(text: &str) -> Result<Keys, String> {
    let written: AccessFileEntries = toml::from_str(text).map_err(|cause| {
        // The full error message would quote the line and thereby a secret.
        let line = cause.span().map(|span| text[..span.start.min(text.len())].lines().count().max(1));
        let line = line.map_or_else(String::new, |line| format!("line {line}: "));
        format!("{line}{}", without_values(cause.message()))
    })?;
    let mut keys = Keys::default();
    let mut names = Vec::new();
    let too_many = |kind| format!("it has more than {ACCESS_KEYS_MAX} entries [[{kind}]]");
    if written.server_key.len() > ACCESS_KEYS_MAX {
        return Err(too_many("server-key"));
    }
    if written.token_key.len() > ACCESS_KEYS_MAX {
        return Err(too_many("token-key"));
    }
    for (nth, entry) in (1..).zip(&written.server_key) {
        let of_entry = |what: String| format!("[[server-key]] {nth}, {:?}: {what}", entry.name);
        take_name(&entry.name, &mut names).map_err(of_entry)?;
        let hash = hash_of(&entry.sha256).map_err(of_entry)?;
        if !keys.add_server_named(Some(&entry.name), hash, entry.scope) {
            return Err(of_entry("another entry has the same key".to_owned()));
        }
    }
    for (nth, entry) in (1..).zip(&written.token_key) {
        let of_entry = |what: String| format!("[[token-key]] {nth}, {:?}: {what}", entry.name);
        take_name(&entry.name, &mut names).map_err(of_entry)?;
        let key = token_key(entry).map_err(of_entry)?.named(&entry.name);
        if !keys.add_token(key) {
            return Err(of_entry("another entry has the same key, or the same kid".to_owned()));
        }
    }
    if keys.tried_at_once() > KEYS_TRIED_MAX {
        return Err(format!("it has more than {KEYS_TRIED_MAX} entries [[token-key]] of one algorithm without a kid"));
    }
    if keys.is_empty() {
        return Err("it has no [[server-key]] and no [[token-key]], so it would refuse every request".to_owned());
    }
    Ok(keys)
}

/// Removes the value that serde includes in messages about values of the wrong type.
fn without_values(message: &str) -> &str {
    if message.starts_with("invalid type") || message.starts_with("invalid value") {
        return "a value has the wrong type";
    }
    message
}

/// Validates the name of a key.
///
/// # Errors
/// Returns a message that describes the defect of the name.
pub fn check_name(name: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | ':');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(allowed) {
        return Err(format!("a name has 1 to {NAME_BYTES_MAX} letters, digits or any of . _ - @ :"));
    }
    Ok(())
}

fn take_name<'a>(name: &'a str, names: &mut Vec<&'a str>) -> Result<(), String> {
    check_name(name)?;
    if names.contains(&name) {
        return Err("another entry has the same name".to_owned());
    }
    names.push(name);
    Ok(())
}

fn hash_of(text: &str) -> Result<KeyHash, String> {
    let known = unhex(text).ok_or_else(|| {
        "sha256 is not the 64 hexadecimal digits of a hash; `tidewire key NAME` makes a key and its entry".to_owned()
    })?;
    if known == hash("") {
        return Err(
            "sha256 is the hash of an empty text, which is not a key; a variable was empty when it was made".to_owned()
        );
    }
    Ok(known)
}

fn token_key(
    TokenKeyEntry { algorithm, secret, public_key, audience, kid, .. }: &TokenKeyEntry,
) -> Result<TokenKey, String> {
    let audience = audience.as_deref();
    if audience == Some("") {
        return Err("audience is empty".to_owned());
    }
    let key = match (algorithm.as_str(), secret, public_key) {
        ("HS256", Some(secret), None) => TokenKey::hs256(&secret_of(secret)?, audience),
        ("EdDSA", None, Some(public_key)) => {
            let public =
                pem::ed25519_public(public_key).ok_or("public-key is not a public key of Ed25519, as PEM or base64")?;
            check_point(&public)?;
            TokenKey::ed_dsa(&public, audience)
        }
        ("HS256", ..) => return Err("HS256 needs a secret, and no public-key".to_owned()),
        ("EdDSA", ..) => return Err("EdDSA needs a public-key, and no secret".to_owned()),
        _ => return Err("algorithm is neither \"HS256\" nor \"EdDSA\"".to_owned()),
    };
    match kid {
        Some(kid) if kid.is_empty() => Err("kid is empty".to_owned()),
        Some(kid) => Ok(key.called(kid)),
        None => Ok(key),
    }
}

/// Rejects public keys of small order, for which signatures can be forged without a private key.
fn check_point(public: &[u8; 32]) -> Result<(), String> {
    let key = VerifyingKey::from_bytes(public).map_err(|_| "public-key is not a point of Ed25519")?;
    if key.is_weak() {
        let what = "public-key is a point of small order, for which anybody can make signatures; \
                    `openssl genpkey -algorithm ed25519` makes good ones";
        return Err(what.to_owned());
    }
    Ok(())
}

/// Decodes and validates a secret for signing tokens.
///
/// # Errors
/// Returns a message that describes the defect of the secret, without the secret itself.
pub fn secret_of(text: &str) -> Result<Vec<u8>, String> {
    let secret = pem::base64(text).ok_or("the secret is not base64")?;
    if secret.len() < TOKEN_SECRET_BYTES_MIN {
        let has = secret.len();
        return Err(format!(
            "the secret has {has} bytes; it needs {TOKEN_SECRET_BYTES_MIN}, as of `openssl rand -base64 32`"
        ));
    }
    if secret.iter().all(|byte| *byte == 0) {
        return Err(
            "the secret is all zeros, which anybody can guess; `openssl rand -base64 32` makes a good one".to_owned()
        );
    }
    Ok(secret)
}
