//! How many cases a test tries of those that there are.

/// Returns the number of cases of a test that tries random ones, or the rounds of one that is repeated: `gate`, times `TIDEWIRE_CASES`
/// [default: 1].
pub fn cases(gate: u64) -> u64 {
    gate * number("TIDEWIRE_CASES")
}

/// Returns the step from one case to the next in a test that could try all in a row, such as every byte of a file: `gate`, divided by
/// `TIDEWIRE_CASES` [default: 1].
pub fn stride(gate: usize) -> usize {
    (gate / usize::try_from(number("TIDEWIRE_CASES")).unwrap()).max(1)
}

/// Returns what a test with random choices begins with: `TIDEWIRE_SEED` [default: 1], so that the gate makes the same choices each time.
pub fn seed() -> u64 {
    number("TIDEWIRE_SEED")
}

fn number(name: &str) -> u64 {
    std::env::var(name).map_or(1, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}
