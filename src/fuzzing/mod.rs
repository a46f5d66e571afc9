//! What fuzzers call: each function takes any bytes, gives them to one reader of what comes from outside, and checks what that
//! makes of them against what must hold.
//!
//! Responsible for:
//! - one function for each target of `fuzz/` that is about the engine, by name ([`TARGETS`]);
//! - their replay in the usual tests: the corpora as they are, and changed a little.
//!
//! Not responsible for:
//! - making inputs up (`fuzz/`, by cargo-fuzz; `scripts/fuzz.sh`), what was ever found (a unit test where it was mended).

mod cursors;
mod input;
mod journal;
mod replay;
mod sample;
mod snapshot;

pub use cursors::cursors;
pub use journal::journal;
pub use snapshot::snapshot;

/// One target: panics if anything is wrong.
pub type Target = fn(&[u8]);

/// Those of the engine, by the names that they have in `fuzz/`.
pub const TARGETS: [(&str, Target); 3] = [("cursors", cursors), ("journal", journal), ("snapshot", snapshot)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_holds_on_its_corpus_and_on_changes_of_it() {
        replay::replay(&TARGETS);
    }

    #[test]
    fn the_targets_of_the_fuzzer_are_these() {
        replay::check_manifest("tidewire", &TARGETS);
    }
}
