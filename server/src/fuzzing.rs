//! The fuzz targets of the server. The targets of the engine are in `tidewire::fuzzing`.

#[path = "../../src/fuzzing/replay.rs"]
mod replay;

pub use crate::http::fuzzing::{access_file, bodies, commands, frames, tokens};

/// One fuzz target. It panics if a check fails.
pub type Target = fn(&[u8]);

/// All fuzz targets of the server, by the names they have in `fuzz/`.
pub const TARGETS: [(&str, Target); 5] =
    [("bodies", bodies), ("frames", frames), ("tokens", tokens), ("access_file", access_file), ("commands", commands)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fuzz_target_passes_on_its_corpus_and_on_mutations_of_it() {
        replay::replay(&TARGETS);
    }

    #[test]
    fn the_fuzz_manifest_lists_every_target() {
        replay::check_manifest("tidewire_server", &TARGETS);
    }
}
