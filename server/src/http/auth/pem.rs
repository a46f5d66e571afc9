//! Keys as text: base64 of either alphabet, and the two PEM documents that Ed25519 keys come in.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const INDIFFERENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// What a public key of Ed25519 begins with in DER (RFC 8410); the rest is the key.
const PUBLIC_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Reads base64, padded or not, of the common or the URL-safe alphabet.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    let common = |letter| match letter {
        '-' => '+',
        '_' => '/',
        other => other,
    };
    let text: String = text.chars().filter(|letter| !letter.is_ascii_whitespace()).map(common).collect();
    GeneralPurpose::new(&STANDARD, INDIFFERENT).decode(text).ok()
}

/// Reads a public key of Ed25519: PEM, or base64 of its DER or of its 32 bytes.
pub(super) fn ed25519_public(text: &str) -> Option<[u8; 32]> {
    let der = base64(body(text, "PUBLIC KEY")?)?;
    der.strip_prefix(&PUBLIC_HEAD).unwrap_or(&der).try_into().ok()
}

/// Reads a private key of Ed25519 as PKCS 8, in PEM or base64. Returns its DER.
pub(super) fn ed25519_private(text: &str) -> Option<Vec<u8>> {
    base64(body(text, "PRIVATE KEY")?)
}

/// What is between the lines that begin and end a PEM document, or all of it if it is none.
fn body<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let text = text.trim();
    if !text.starts_with("-----") {
        return Some(text);
    }
    text.strip_prefix(&format!("-----BEGIN {label}-----"))?.strip_suffix(&format!("-----END {label}-----"))
}
