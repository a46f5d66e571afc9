//! Fuzz targets: each function takes arbitrary bytes, passes them to one parser of external input, and checks the result against its
//! invariants.
//!
//! Responsible for:
//! - one function for each target in `fuzz/` that belongs to the engine, by name ([`TARGETS`]);
//! - their replay in the ordinary tests: the corpora unchanged, and with small modifications.

mod cursors;
mod input;
mod journal;
mod replay;
mod sample;
mod snapshot;

pub use cursors::cursors;
pub use journal::journal;
pub use snapshot::snapshot;

/// A fuzz target: it panics if an invariant is violated.
pub type Target = fn(&[u8]);

/// The targets of the engine, under their names in `fuzz/`.
pub const TARGETS: [(&str, Target); 3] = [("cursors", cursors), ("journal", journal), ("snapshot", snapshot)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fuzz_target_passes_on_its_corpus_and_on_mutations_of_it() {
        replay::replay(&TARGETS);
    }

    #[test]
    fn the_fuzz_manifest_lists_every_target() {
        replay::check_manifest("tidewire", &TARGETS);
    }
}
