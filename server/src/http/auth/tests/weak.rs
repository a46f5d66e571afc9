//! Tests that access files with weak keys are refused.
#![cfg(test)]

use super::*;

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
