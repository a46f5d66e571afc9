//! Replays the corpora of the fuzz targets, unchanged and with small modifications. The server's tests include this file too.
#![cfg(test)]

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

/// Number of modifications of each corpus file that are tested.
const CHANGES: u64 = 15;

/// The number of targets of all crates.
const TARGETS: usize = 8;

type Targets<'a> = &'a [(&'a str, fn(&[u8]))];

fn folder() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    [here.join("fuzz"), here.join("../fuzz")].into_iter().find(|folder| folder.is_dir()).unwrap()
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

/// Runs each target on its corpus, and on modifications of it.
///
/// # Panics
/// If any of the targets panics; the message lists the inputs.
pub(crate) fn replay(targets: Targets<'_>) {
    let mut failed = Vec::new();
    for (name, target) in targets {
        let corpus = corpus(name);
        assert!(corpus.len() >= 10, "{name} has only {} inputs", corpus.len());
        let mut random = fastrand::Rng::with_seed(1);
        for (path, bytes) in &corpus {
            if catch_unwind(|| target(bytes)).is_err() {
                failed.push(path.display().to_string());
            }
            for _ in 0..testkit::cases(CHANGES) {
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

/// Checks that `fuzz/` defines each of these targets of a crate, and no unknown target.
///
/// # Panics
/// If a target is missing or unknown, or if a corpus is too large to store.
pub(crate) fn check_manifest(of: &str, targets: Targets<'_>) {
    let manifest = fs::read_to_string(folder().join("Cargo.toml")).unwrap();
    for (name, _) in targets {
        assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{name} is not in fuzz/Cargo.toml");
        let target = fs::read_to_string(folder().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(target.contains(&format!("{of}::fuzzing::{name}(data)")), "{name}.rs calls something else");
    }
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS);
    let bytes: usize = targets.iter().flat_map(|(name, _)| corpus(name)).map(|(_, bytes)| bytes.len()).sum();
    assert!(bytes < 1 << 20, "the corpora have {bytes} bytes, which is too much to store");
}
