//! Decodes keys from text: base64 of either alphabet, and the two PEM formats of Ed25519 keys.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const INDIFFERENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// The DER prefix of an Ed25519 public key (RFC 8410), followed by the 32 bytes of the key.
const PUBLIC_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Decodes base64, padded or not, of the standard or the URL-safe alphabet.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    let common = |letter| match letter {
        '-' => '+',
        '_' => '/',
        other => other,
    };
    let text: String = text.chars().filter(|letter| !letter.is_ascii_whitespace()).map(common).collect();
    GeneralPurpose::new(&STANDARD, INDIFFERENT).decode(text).ok()
}

/// Decodes an Ed25519 public key: PEM, or base64 of its DER or of its 32 bytes.
pub(super) fn ed25519_public(text: &str) -> Option<[u8; 32]> {
    let der = base64(body(text, "PUBLIC KEY")?)?;
    der.strip_prefix(&PUBLIC_HEAD).unwrap_or(&der).try_into().ok()
}

/// Decodes an Ed25519 private key in PKCS #8 format, as PEM or base64. Returns its DER.
pub(super) fn ed25519_private(text: &str) -> Option<Vec<u8>> {
    base64(body(text, "PRIVATE KEY")?)
}

/// Returns the text between the BEGIN and END lines of a PEM document, or the whole text if it has no such lines.
fn body<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let text = text.trim();
    if !text.starts_with("-----") {
        return Some(text);
    }
    text.strip_prefix(&format!("-----BEGIN {label}-----"))?.strip_suffix(&format!("-----END {label}-----"))
}
