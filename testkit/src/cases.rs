//! The cases that a test tries: few in the gate, many in the full suite.

use std::num::NonZeroU64;
use std::str::FromStr;

/// Returns the number of random cases, or of rounds, that a test tries: `gate`, multiplied by `TIDEWIRE_CASES` [default: 1].
pub fn cases(gate: u64) -> u64 {
    gate * factor()
}

/// Returns the step from one case to the next, for a test that tries positions such as the bytes of a file: `gate`, divided by
/// `TIDEWIRE_CASES` [default: 1].
pub fn stride(gate: usize) -> usize {
    (gate / usize::try_from(factor()).unwrap()).max(1)
}

/// Returns the seed of random choices: `TIDEWIRE_SEED` [default: 1, so that the gate makes the same choices each time].
pub fn seed() -> u64 {
    variable("TIDEWIRE_SEED", "a number").unwrap_or(1)
}

fn factor() -> u64 {
    variable("TIDEWIRE_CASES", "a number from 1").map_or(1, NonZeroU64::get)
}

fn variable<T: FromStr>(name: &str, expected: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be {expected}, not {text:?}")))
}
