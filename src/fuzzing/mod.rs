//! What fuzzers call: each function takes any bytes, gives them to one reader of what comes from outside, and checks what that
//! makes of them against what must hold.
//!
//! Responsible for:
//! - one function for each target of `fuzz/`, by name ([`TARGETS`]);
//! - their replay in the usual tests: the corpora as they are, and changed a little.
//!
//! Not responsible for:
//! - making inputs up (`fuzz/`, by cargo-fuzz; `scripts/fuzz.sh`), what was ever found (a unit test where it was mended).

mod cursors;
mod input;
mod journal;
mod sample;
mod snapshot;

pub use crate::api::fuzzing::{access_file, bodies, frames, tokens};
pub use cursors::cursors;
pub use journal::journal;
pub use snapshot::snapshot;

/// One target: panics if anything is wrong.
pub type Target = fn(&[u8]);

/// All of them, by the names that they have in `fuzz/`.
pub const TARGETS: [(&str, Target); 7] = [
    ("bodies", bodies),
    ("cursors", cursors),
    ("frames", frames),
    ("journal", journal),
    ("snapshot", snapshot),
    ("tokens", tokens),
    ("access_file", access_file),
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic::catch_unwind;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Changes of each file of a corpus that are tried: more by `TIDEWIRE_SEEDS`.
    const CHANGES: u64 = 40;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
    }

    fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let files = fs::read_dir(folder().join("corpus").join(name)).unwrap();
        let mut files: Vec<_> =
            files.map(|file| file.unwrap().path()).map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        files.sort_unstable();
        files
    }

    fn changed(bytes: &[u8], other: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..=bytes.len());
            match random.u8(0..5) {
                0 => bytes.insert(at, random.u8(..)),
                1 => bytes.truncate(at),
                2 if at < bytes.len() => bytes[at] ^= 1 << random.u8(0..8),
                3 if at < bytes.len() => drop(bytes.remove(at)),
                _ => {
                    let from = random.usize(..=other.len());
                    bytes.splice(at..at, other[from..other.len().min(from + 16)].iter().copied());
                }
            }
        }
        bytes
    }

    #[test]
    fn every_target_holds_on_its_corpus_and_on_changes_of_it() {
        let changes = std::env::var("TIDEWIRE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(CHANGES);
        let mut failed = Vec::new();
        for (name, target) in TARGETS {
            let corpus = corpus(name);
            assert!(corpus.len() >= 10, "{name} has only {} inputs", corpus.len());
            let mut random = fastrand::Rng::with_seed(1);
            for (path, bytes) in &corpus {
                if catch_unwind(|| target(bytes)).is_err() {
                    failed.push(path.display().to_string());
                }
                for _ in 0..changes {
                    let other = &corpus[random.usize(..corpus.len())].1;
                    let changed = changed(bytes, other, &mut random);
                    if catch_unwind(|| target(&changed)).is_err() {
                        failed.push(format!("{name}: b\"{}\"", changed.escape_ascii()));
                    }
                }
            }
        }
        assert!(failed.is_empty(), "{} inputs fail:\n{}", failed.len(), failed.join("\n"));
    }

    #[test]
    fn the_targets_of_the_fuzzer_are_these() {
        let manifest = fs::read_to_string(folder().join("Cargo.toml")).unwrap();
        for (name, _) in TARGETS {
            assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{name} is not in fuzz/Cargo.toml");
            let target = fs::read_to_string(folder().join(format!("fuzz_targets/{name}.rs"))).unwrap();
            assert!(target.contains(&format!("tidewire::fuzzing::{name}(data)")), "{name}.rs calls something else");
        }
        assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
        let bytes: usize = TARGETS.iter().flat_map(|(name, _)| corpus(name)).map(|(_, bytes)| bytes.len()).sum();
        assert!(bytes < 1 << 20, "the corpora have {bytes} bytes, which is too much to keep");
    }
}
