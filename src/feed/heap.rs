//! The memory that an allocation takes on the heap, which may be more than requested.

/// Largest request that is rounded to multiples of 16.
const SMALL_BYTES_MAX: usize = 64;

/// Returns the memory that an allocation of `bytes` takes. Above 64 bytes, mimalloc (as jemalloc) has four sizes for each power of two.
pub const fn allocated(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=8 => 8,
        9..=SMALL_BYTES_MAX => bytes.next_multiple_of(16),
        _ => bytes.next_multiple_of(bytes.next_power_of_two() / 8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_rounded_to_four_sizes_for_each_power_of_two() {
        for (requested, taken) in
            [(0, 0), (1, 8), (8, 8), (9, 16), (33, 48), (64, 64), (65, 80), (128, 128), (129, 160)]
        {
            assert_eq!(allocated(requested), taken, "{requested}");
        }
        for (requested, taken) in [(256, 256), (257, 320), (1_000, 1_024), (1_025, 1_280), (5_121, 6_144)] {
            assert_eq!(allocated(requested), taken, "{requested}");
        }
    }
}
