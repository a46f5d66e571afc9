//! `tidewire import … --dry-run`: reports the lines that an import would send and refuse.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use crate::cli::in_order::{self, Format, Item, Part};
use crate::cli::lines::{Lines, ReadError};

/// Maximum number of items that are compared with later ones, of 8 bytes each.
const COMPARED_MAX: usize = 5_000_000;

/// Checks all lines, and counts those that an import would send.
pub(crate) fn check_all<F: Format>(lines: &mut Lines, format: F) -> Part<ReadError> {
    let (mut seen, hasher) = (HashSet::new(), RandomState::new());
    in_order::read(lines, format, |item, _, report| {
        match item.check() {
            Err(why) => report.refuse(item.line(), why),
            Ok(identity) => {
                report.created += 1;
                if let Some(identity) = identity.map(|identity| hasher.hash_one(identity)) {
                    if seen.contains(&identity) {
                        report.note(F::Item::REPEATED);
                    } else if seen.len() < COMPARED_MAX {
                        seen.insert(identity);
                    } else {
                        report.note("too many lines to compare this one with later ones");
                    }
                }
            }
        }
        true
    })
}
