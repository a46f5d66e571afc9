//! How much space the disk has left, as it was measured last.
//!
//! Asking a disk may block for as long as the disk does not answer, so one background thread asks, and all others read its last result.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::storage::files::Files;

/// The value for unknown.
const UNKNOWN: u64 = u64::MAX;

/// The bytes that were free at the last measurement.
#[derive(Debug)]
pub struct FreeSpace(AtomicU64);

impl Default for FreeSpace {
    fn default() -> Self {
        Self(AtomicU64::new(UNKNOWN))
    }
}

impl FreeSpace {
    /// Asks the disk.
    pub fn measure(&self, files: &dyn Files) {
        let free = files.free_bytes().ok().flatten();
        self.0.store(free.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    /// Returns the bytes that were free, or none if that is unknown.
    pub fn bytes(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|free| *free != UNKNOWN)
    }
}
